//! A hundred candidates that wait for one resource: what the server is asked per second meanwhile, and how much more for
//! one hand-over.

use std::time::{Duration, Instant};

use super::{Found, all_say};
use crate::Failure;
use crate::peers::cell::{Cell, Column};
use crate::peers::stage::Stage;
use crate::samples::Samples;

const WAITERS: usize = 100;
/// Renewed once a second.
const TTL: Duration = Duration::from_secs(3);
const SETTLE: Duration = Duration::from_secs(2);
const SPAN: Duration = Duration::from_secs(6);
const HAND_OVERS: usize = 5;
/// After a hand-over, for those who were woken in vain.
const AFTERMATH: Duration = Duration::from_millis(500);

pub(super) fn measure(stage: &Stage<'_>) -> Result<Found, Failure> {
    if !stage.peer.is_many {
        return Ok(all_say(&[Column::Waiting, Column::PerHandOver], "a process each"));
    }
    let mut owner = stage.start(TTL, None)?;
    owner.ask(&format!("campaign {}", stage.space), "own")?;
    let mut waiters = stage.start(TTL, None)?;
    waiters.ask(&format!("wait {WAITERS} {}", stage.space), "queued")?;
    std::thread::sleep(SETTLE);
    let counting = stage.server.count(&stage.space)?;
    let (began, before) = (Instant::now(), counting.so_far()?);
    std::thread::sleep(SPAN);
    let rate = (counting.so_far()? - before) as f64 / began.elapsed().as_secs_f64();
    let mut extra = Samples::default();
    for round in 0..HAND_OVERS {
        let (began, before) = (Instant::now(), counting.so_far()?);
        // The first owner is another process; afterwards it is one of those who waited.
        let releasing = if round == 0 { &mut owner } else { &mut waiters };
        releasing.tell("release")?;
        waiters.hear("own")?;
        std::thread::sleep(AFTERMATH);
        let commands = (counting.so_far()? - before) as f64;
        extra.add_number((commands - rate * began.elapsed().as_secs_f64()).max(0.0));
    }
    Ok(vec![(Column::Waiting, Cell::number(rate)), (Column::PerHandOver, Cell::Samples(extra))])
}
