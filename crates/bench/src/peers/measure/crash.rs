//! `kill -9` of the owning process: until another one owns, and how much later than the end of the dead one's lease. Many
//! pairs, killed one after the other, so that the kills fall on every phase between two renewals.

use std::time::Duration;

use super::{Found, SETTLE, TTL, only_after, seconds_between};
use crate::peers::cell::{Cell, Column};
use crate::peers::stage::Stage;
use crate::players::nanos;
use crate::samples::Samples;
use crate::{Failure, clock};

const PAIRS: usize = 15;
/// Where a lease takes so long that a kill costs a minute.
const FEW: usize = 4;
/// No multiple of the interval of renewals.
const BETWEEN: Duration = Duration::from_millis(170);
/// Beyond the lease.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) fn measure(stage: &Stage<'_>) -> Result<Found, Failure> {
    let ttl = stage.peer.ttl(TTL);
    let count = if stage.peer.fixed_ttl.is_some() { FEW } else { PAIRS };
    let mut pairs = stage.pairs(count, ttl, None)?;
    std::thread::sleep(SETTLE + TTL / 2);
    let mut kills = Vec::new();
    for pair in &mut pairs {
        std::thread::sleep(BETWEEN);
        let lease_until = pair.owner.ask("lease", "lease")?;
        let killed_at = nanos(clock::boottime());
        pair.owner.kill()?;
        kills.push((killed_at, lease_until));
    }
    let (mut waited, mut late) = (Samples::default(), Samples::default());
    for (pair, (killed_at, lease_until)) in pairs.iter().zip(kills) {
        let owned = pair.waiter.hear_within("own", ttl + PATIENCE)?;
        let owned_at = owned.and_then(|numbers| numbers.first().copied());
        let owned_at = owned_at.ok_or_else(|| format!("nobody owns {:?} after the kill", ttl + PATIENCE))?;
        only_after(killed_at, owned_at)?;
        waited.add_number(seconds_between(killed_at, owned_at));
        if lease_until > 0 {
            late.add_number(seconds_between(lease_until, owned_at));
        }
    }
    let excess = match late.count() {
        _ if !stage.peer.has_lease => Cell::says("no lease: goes with the connection"),
        0 => Cell::says("the client does not know its end"),
        // Nearly all of the lease was left, or it was waited for.
        _ if late.median() < -0.5 * TTL.as_secs_f64() => Cell::says("does not wait for it"),
        _ => Cell::Samples(late),
    };
    Ok(vec![(Column::Crash, Cell::Samples(waited)), (Column::Excess, excess)])
}
