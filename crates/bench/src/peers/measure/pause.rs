//! SIGSTOP of the owning process for longer than its lease, until another one owns; then SIGCONT. What does the first check
//! say? Every process checks once a millisecond, so it is the first thing that runs.

use std::time::Duration;

use super::{Found, SETTLE, TTL, all_say, only_after};
use crate::peers::cell::{Cell, Column};
use crate::peers::roster::Check;
use crate::peers::stage::Stage;
use crate::players::nanos;
use crate::{Failure, clock};

const PAIRS: usize = 5;
/// Beyond the lease, for the next one to own.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) fn measure(stage: &Stage<'_>) -> Result<Found, Failure> {
    if stage.peer.check == Check::None {
        return Ok(all_say(&[Column::AfterPause], "no check"));
    }
    let mut pairs = stage.pairs(PAIRS, TTL, None)?;
    for pair in &mut pairs {
        pair.owner.tell("watch")?;
    }
    std::thread::sleep(SETTLE);
    let paused_at = nanos(clock::boottime());
    for pair in &pairs {
        pair.owner.pause()?;
    }
    std::thread::sleep(TTL);
    let mut successors = 0;
    for pair in &pairs {
        if let Some(owned) = pair.waiter.hear_within("own", PATIENCE)? {
            only_after(paused_at, owned.first().copied().unwrap_or(0))?;
            successors += 1;
        }
    }
    // So that it is beyond any doubt who owns.
    std::thread::sleep(SETTLE);
    let mut yes = 0;
    for pair in &pairs {
        pair.owner.resume()?;
        yes += usize::from(pair.owner.hear("resumed")? == 1);
    }
    let cell = match successors {
        0 => Cell::says("true, rightly: nobody else can own meanwhile"),
        PAIRS => Cell::Answers { yes, of: PAIRS },
        some => return Err(format!("only {some} of {PAIRS} had a successor").into()),
    };
    Ok(vec![(Column::AfterPause, cell)])
}
