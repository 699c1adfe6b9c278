//! What was measured of one peer, column by column.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::samples::Samples;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    HandOver,
    Crash,
    Excess,
    Held1,
    Held100,
    Held1000,
    Waiting,
    PerHandOver,
    CheckCost,
    AfterPause,
    Hung,
    Cut,
    Memory,
}

impl Column {
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::HandOver => "hand_over_seconds",
            Self::Crash => "crash_seconds",
            Self::Excess => "crash_excess_seconds",
            Self::Held1 => "commands_per_second_1_held",
            Self::Held100 => "commands_per_second_100_held",
            Self::Held1000 => "commands_per_second_1000_held",
            Self::Waiting => "commands_per_second_100_waiting",
            Self::PerHandOver => "commands_per_hand_over_100_waiting",
            Self::CheckCost => "check_seconds",
            Self::AfterPause => "first_check_after_sigstop",
            Self::Hung => "overlap_hung_link_seconds",
            Self::Cut => "overlap_cut_link_seconds",
            Self::Memory => "bytes_per_resource",
        }
    }

    /// For a table's head.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::HandOver => "hand-over: median / p99 (runs)",
            Self::Crash => "crash: median / maximum (runs)",
            Self::Excess => "beyond the lease",
            Self::Held1 => "1 held",
            Self::Held100 => "100 held",
            Self::Held1000 => "1 000 held",
            Self::Waiting => "100 waiting",
            Self::PerHandOver => "per hand-over, 100 waiting",
            Self::CheckCost => "check costs",
            Self::AfterPause => "first check after SIGSTOP",
            Self::Hung => "both own, hung link",
            Self::Cut => "both own, cut link",
            Self::Memory => "memory per resource",
        }
    }

    /// What is less than this is no difference: one command more or less within the span of a count.
    pub(super) fn tolerance(self) -> f64 {
        match self {
            Self::Held1 | Self::Held100 | Self::Held1000 | Self::Waiting => 0.5,
            Self::PerHandOver => 3.0,
            _ => 0.0,
        }
    }

    fn show(self, number: f64) -> String {
        match self {
            Self::Held1 | Self::Held100 | Self::Held1000 | Self::Waiting | Self::PerHandOver => {
                match number {
                    number if number < 10.0 => format!("{number:.1}"),
                    number => format!("{number:.0}"),
                }
            }
            Self::Memory => format!("{:.1} KiB", number / 1024.0),
            _ => seconds(number),
        }
    }
}

fn seconds(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1.0 => format!("{number:.2} s"),
        size if size >= 1e-3 => format!("{:.2} ms", number * 1e3),
        size if size >= 1e-6 => format!("{:.1} us", number * 1e6),
        _ => format!("{:.1} ns", number * 1e9),
    }
}

/// One figure, or why there is none.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    /// Less is better.
    Samples(Samples),
    /// How often the answer was yes where it should have been no.
    Answers { yes: usize, of: usize },
    /// There is no such thing here, or it could not be measured.
    Says(String),
}

impl Cell {
    pub(super) fn number(number: f64) -> Self {
        Self::Samples(Samples::of(vec![number]))
    }

    pub(super) fn says(text: impl Into<String>) -> Self {
        Self::Says(text.into())
    }

    /// What it is compared by; less is better.
    pub(super) fn rank(&self) -> Option<f64> {
        match self {
            Self::Samples(samples) => Some(samples.median()),
            Self::Answers { yes, of } => Some(*yes as f64 / (*of).max(1) as f64),
            Self::Says(_) => None,
        }
    }

    pub(super) fn show(&self, column: Column) -> String {
        match self {
            Self::Samples(samples) if samples.count() == 1 => column.show(samples.median()),
            Self::Samples(samples) => {
                let most = if column == Column::HandOver { samples.p99() } else { samples.max() };
                format!("{} / {} ({})", column.show(samples.median()), column.show(most), samples.count())
            }
            Self::Answers { yes: 0, of } => format!("false ({of} of {of})"),
            Self::Answers { yes, of } => format!("**true** ({yes} of {of})"),
            Self::Says(text) => text.clone(),
        }
    }

    pub(super) fn value(&self) -> Value {
        match self {
            Self::Samples(samples) => json!({
                "median": samples.median(), "p99": samples.p99(), "max": samples.max(), "runs": samples.count(),
            }),
            Self::Answers { yes, of } => json!({ "true": yes, "runs": of }),
            Self::Says(text) => json!({ "not_measured": text }),
        }
    }
}

/// All that was measured of one peer.
pub(super) type Cells = BTreeMap<Column, Cell>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_shows_median_and_worst_in_the_unit_that_fits() {
        let spans = Cell::Samples(Samples::of(vec![0.001, 0.002, 2.0]));

        assert_eq!(spans.show(Column::Crash), "2.00 ms / 2.00 s (3)");
        assert_eq!(Cell::number(1500.0).show(Column::Waiting), "1500");
        assert_eq!(Cell::number(3e-8).show(Column::CheckCost), "30.0 ns");
        assert_eq!(Cell::Answers { yes: 5, of: 5 }.show(Column::AfterPause), "**true** (5 of 5)");
        assert_eq!(Cell::Answers { yes: 0, of: 5 }.show(Column::AfterPause), "false (5 of 5)");
    }
}
