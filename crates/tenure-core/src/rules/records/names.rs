//! The names by which records say what was wished, how a lease ended, and what became of an ownership or a run.
//!
//! They stand here, not in the codec of the library: some of these enums may grow, and only in their own crate does the
//! compiler refuse a variant without a name.

use crate::job::JobState;
use crate::message::{Closing, Wish};
use crate::shown::HistoryEvent;

macro_rules! record_names {
    ($($type:ident { $($variant:ident $name:literal)+ })+) => {
        $(
            impl $type {
                /// The name that stands in records.
                #[must_use]
                pub const fn record_name(self) -> &'static str {
                    match self {
                        $(Self::$variant => $name,)+
                    }
                }

                /// The variant that has this name in records.
                #[must_use]
                pub fn of_record_name(name: &str) -> Option<Self> {
                    match name {
                        $($name => Some(Self::$variant),)+
                        _ => None,
                    }
                }
            }
        )+
    };
}

record_names! {
    Wish { Lowered "lowered" Asked "asked" Evicted "evicted" }
    Closing { Left "left" Expired "expired" Proved "proved" }
    JobState { Running "running" Ran "ran" Failed "failed" Interrupted "interrupted" }
    HistoryEvent {
        Granted "granted" Released "released" Failed "failed" SteppedDown "stepped-down" Expired "expired" Died "died"
        Evicted "evicted"
    }
}
