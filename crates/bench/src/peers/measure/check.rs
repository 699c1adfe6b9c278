//! What one check of one's own ownership costs, in the process that owns.

use super::{Found, TTL, all_say};
use crate::Failure;
use crate::peers::cell::{Cell, Column};
use crate::peers::roster::Check;
use crate::peers::stage::Stage;

pub(super) fn measure(stage: &Stage<'_>) -> Result<Found, Failure> {
    if stage.peer.check == Check::None {
        return Ok(all_say(&[Column::CheckCost], "no check"));
    }
    let mut owner = stage.start(stage.peer.ttl(TTL), None)?;
    owner.ask(&format!("campaign {}", stage.space), "own")?;
    if owner.ask("check", "check")? != 1 {
        return Err("who owns is told that it does not".into());
    }
    let picoseconds = owner.ask("cost", "cost")?;
    Ok(vec![(Column::CheckCost, Cell::number(picoseconds as f64 / 1e12))])
}
