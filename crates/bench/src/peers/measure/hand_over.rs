//! A graceful hand-over: from the call of release in one process until another one owns. Several pairs take turns by
//! chance, so that each rests meanwhile, and those who try every so often are met at any phase.

use std::time::{Duration, Instant};

use super::{Found, SETTLE, TTL, only_after, seconds_between};
use crate::Failure;
use crate::peers::cell::{Cell, Column};
use crate::peers::stage::{Pair, Stage};
use crate::samples::Samples;

const PAIRS: usize = 8;
const WARM_UP: usize = 2 * PAIRS;
/// So many others come before a pair has its turn again.
const REST: usize = 4;
const ROUNDS: usize = 150;
/// Those who take long get along with fewer.
const LEAST: usize = 30;
const ENOUGH: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn measure(stage: &Stage<'_>) -> Result<Found, Failure> {
    let ttl = stage.peer.ttl(TTL);
    let mut pairs = stage.pairs(PAIRS, ttl, None)?;
    std::thread::sleep(SETTLE);
    for round in 0..WARM_UP {
        hand_over(&mut pairs[round % PAIRS])?;
    }
    let mut turns = Turns { order: (0..PAIRS).collect(), random: 0x9e37_79b9_7f4a_7c15 };
    let (began, mut samples) = (Instant::now(), Samples::default());
    for round in 0..ROUNDS {
        if round >= LEAST && began.elapsed() > ENOUGH {
            break;
        }
        samples.add_number(hand_over(&mut pairs[turns.next()])?);
    }
    Ok(vec![(Column::HandOver, Cell::Samples(samples))])
}

/// One hand-over; afterwards the other one waits.
fn hand_over(pair: &mut Pair) -> Result<f64, Failure> {
    std::thread::sleep(PAUSE);
    pair.owner.tell("release")?;
    let owned_at = pair.waiter.hear("own")?;
    let released_at = pair.owner.hear("released")?;
    only_after(released_at, owned_at)?;
    pair.owner.tell(&format!("campaign {}", pair.name))?;
    std::mem::swap(&mut pair.owner, &mut pair.waiter);
    Ok(seconds_between(released_at, owned_at))
}

/// Who is next.
struct Turns {
    /// Those who rested longest first.
    order: Vec<usize>,
    random: u64,
}

impl Turns {
    /// One of those that have rested enough.
    fn next(&mut self) -> usize {
        // Xorshift: no two runs need to differ.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let among = (self.order.len() - REST) as u64;
        let chosen = self.order.remove(usize::try_from(self.random % among).unwrap_or(0));
        self.order.push(chosen);
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_rests_while_others_have_their_turn_and_nobody_is_forgotten() {
        let mut turns = Turns { order: (0..PAIRS).collect(), random: 1 };
        let taken: Vec<usize> = (0..1_000).map(|_| turns.next()).collect();

        assert!(taken.windows(REST + 1).all(|few| few[1..].iter().all(|other| *other != few[0])));
        assert!((0..PAIRS).all(|pair| taken.iter().filter(|taken| **taken == pair).count() > 50));
    }
}
