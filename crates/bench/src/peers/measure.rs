//! The measurements, each in a file of its own, each the same for every peer.

mod check;
mod crash;
mod hand_over;
mod holding;
mod links;
mod pause;
mod waiting;

use std::time::Duration;

use super::cell::{Cell, Column};
use super::stage::Stage;
use crate::Failure;

/// What a measurement has found.
pub(super) type Found = Vec<(Column, Cell)>;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measurement {
    pub(super) name: &'static str,
    pub(super) columns: &'static [Column],
    /// Whether milliseconds count, so that nothing else may run beside it.
    pub(super) is_exact: bool,
    pub(super) measure: fn(&Stage<'_>) -> Result<Found, Failure>,
}

pub(super) const ALL: [Measurement; 7] = {
    use Column::*;
    [
        Measurement { name: "hand-over", columns: &[HandOver], is_exact: true, measure: hand_over::measure },
        Measurement { name: "check", columns: &[CheckCost], is_exact: true, measure: check::measure },
        Measurement { name: "crash", columns: &[Crash, Excess], is_exact: true, measure: crash::measure },
        Measurement { name: "pause", columns: &[AfterPause], is_exact: false, measure: pause::measure },
        Measurement { name: "links", columns: &[Hung, Cut], is_exact: false, measure: links::measure },
        Measurement {
            name: "holding",
            columns: &[Held1, Held100, Held1000, Memory],
            is_exact: false,
            measure: holding::measure,
        },
        Measurement {
            name: "waiting",
            columns: &[Waiting, PerHandOver],
            is_exact: false,
            measure: waiting::measure,
        },
    ]
};

/// The lease, where it is waited for; renewed every third of it by everybody.
const TTL: Duration = Duration::from_secs(2);
/// Until everybody who competes is in the queue, or has begun to try.
const SETTLE: Duration = Duration::from_millis(500);

/// The same for every column.
fn all_say(columns: &[Column], text: &str) -> Found {
    columns.iter().map(|column| (*column, Cell::says(text))).collect()
}

/// From one time to another, in seconds; negative when it was before.
fn seconds_between(from: u64, to: u64) -> f64 {
    (to as f64 - from as f64) / 1e9
}

/// Nobody else may own before something has happened to the owner: then the machine was too busy for the lease, and the
/// figure would say nothing.
fn only_after(happened_at: u64, owned_at: u64) -> Result<(), Failure> {
    match owned_at < happened_at {
        true => Err("an owner had lost it before, the machine is too busy".into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_owns_before_anything_happened_spoils_the_figure() {
        assert!(only_after(2, 1).is_err());
        assert!(only_after(2, 2).is_ok());
    }

    #[test]
    fn every_column_belongs_to_one_measurement() {
        let mut columns: Vec<Column> =
            ALL.iter().flat_map(|measurement| measurement.columns).copied().collect();
        columns.sort();
        columns.dedup();

        assert_eq!(columns.len(), ALL.iter().map(|measurement| measurement.columns.len()).sum::<usize>());
    }
}
