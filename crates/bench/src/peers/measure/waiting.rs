//! A hundred candidates that wait for one resource: what the server is asked per second meanwhile, and how much more for
//! one hand-over. Both are counted over whole intervals of renewal, in which everybody does the same again.

use std::time::{Duration, Instant};

use super::{Found, all_say};
use crate::Failure;
use crate::peers::cell::{Cell, Column};
use crate::peers::stage::Stage;

const WAITERS: usize = 100;
/// As long as it usually is, so that renewals do not hide what a hand-over costs.
const TTL: Duration = Duration::from_secs(15);
/// They begin within an interval, one after the other, so that those who try once per interval do so evenly.
const INTERVAL: Duration = Duration::from_secs(5);
const SETTLE: Duration = Duration::from_secs(1);
const HAND_OVERS: u32 = 8;
/// After a hand-over, for those who were woken in vain; all of them fit into an interval.
const AFTERMATH: Duration = Duration::from_millis(500);

pub(super) fn measure(stage: &Stage<'_>) -> Result<Found, Failure> {
    if !stage.peer.is_many {
        return Ok(all_say(&[Column::Waiting, Column::PerHandOver], "a process each"));
    }
    let mut owner = stage.start(TTL, None)?;
    owner.ask(&format!("campaign {}", stage.space), "own")?;
    let mut waiters = stage.start(TTL, None)?;
    waiters.ask(&format!("wait {WAITERS} {} {}", INTERVAL.as_millis(), stage.space), "queued")?;
    std::thread::sleep(SETTLE);
    let counting = stage.server.count(&stage.space)?;
    let (mut began, before) = (Instant::now(), counting.so_far()?);
    std::thread::sleep(INTERVAL);
    let (usual, took) = ((counting.so_far()? - before) as f64, began.elapsed().as_secs_f64());

    began = Instant::now();
    let before = counting.so_far()?;
    for round in 0..HAND_OVERS {
        // The first owner is another process; afterwards it is one of those who waited.
        let releasing = if round == 0 { &mut owner } else { &mut waiters };
        releasing.tell("release")?;
        waiters.hear("own")?;
        std::thread::sleep(AFTERMATH);
    }
    let intervals = began.elapsed().as_secs_f64() / INTERVAL.as_secs_f64();
    std::thread::sleep((INTERVAL * (intervals.ceil() as u32)).saturating_sub(began.elapsed()));
    let more = (counting.so_far()? - before) as f64 - usual * intervals.ceil();
    Ok(vec![
        (Column::Waiting, Cell::number(usual / took)),
        (Column::PerHandOver, Cell::number((more / f64::from(HAND_OVERS)).max(0.0))),
    ])
}
