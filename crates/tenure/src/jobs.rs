//! Jobs whose runs are claimed in the store, so that each is begun at most once in the whole cluster: at set times
//! ([`Worker::cron`](crate::Worker::cron)) or once and never again ([`Worker::once`](crate::Worker::once)).

#[cfg(feature = "cron")]
pub mod cron;
mod once;
mod store;

pub use tenure_core::{JobCounts, JobRecord, JobState, JobView, Note, Occurrence, Plan, WallTime};

pub use self::once::{Once, OnceBuilder};
