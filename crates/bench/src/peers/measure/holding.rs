//! One process that owns 1, 100 and 1 000 resources and does nothing else: what the server is asked per second, and how
//! much more memory the process has in RAM.

use std::time::{Duration, Instant};

use super::{Found, all_say};
use crate::Failure;
use crate::peers::cell::{Cell, Column};
use crate::peers::stage::Stage;

/// Renewed once a second.
const TTL: Duration = Duration::from_secs(3);
const COUNTS: [(u32, Column); 3] = [(1, Column::Held1), (100, Column::Held100), (1_000, Column::Held1000)];
/// Until what was needed to get them is over.
const SETTLE: Duration = Duration::from_millis(1_500);
const SPAN: Duration = Duration::from_secs(6);

pub(super) fn measure(stage: &Stage<'_>) -> Result<Found, Failure> {
    let mut owner = stage.start(stage.peer.ttl(TTL), None)?;
    let (mut found, mut sizes) = (Vec::new(), Vec::new());
    for (count, column) in COUNTS {
        if count > 1 && !stage.peer.is_many {
            found.extend(all_say(&[column], "a process each"));
            continue;
        }
        owner.ask(&format!("hold {count}"), "held")?;
        std::thread::sleep(SETTLE);
        sizes.push(owner.resident_bytes()? as f64);
        let counting = stage.server.count(&stage.space)?;
        let (began, before) = (Instant::now(), counting.so_far()?);
        std::thread::sleep(SPAN);
        let commands = counting.so_far()? - before;
        found.push((column, Cell::number(commands as f64 / began.elapsed().as_secs_f64())));
    }
    found.push(match sizes.as_slice() {
        // A collector may have given back more than was taken.
        [one, _, many] => (Column::Memory, Cell::number(((many - one) / 999.0).max(0.0))),
        _ => (Column::Memory, Cell::says("a process each")),
    });
    Ok(found)
}
