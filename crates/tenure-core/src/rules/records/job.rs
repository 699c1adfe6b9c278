//! The job that is attached to a resource, and its runs.

use alloc::vec::Vec;

use super::{Rest, Time};
use crate::job::{JobCounts, JobRecord, Occurrence};
use crate::names::Plan;

/// The job of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// Its schedule, as its latest owner has it.
    pub plan: Plan,
    /// Up to here every occurrence is claimed, or does not count.
    pub through: Occurrence,
    /// How often what has happened.
    pub counts: JobCounts,
    /// The latest run.
    pub latest: Option<Run>,
    /// What this version does not know.
    pub rest: Rest,
}

/// One run of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// What became of it.
    pub record: JobRecord,
    /// When it began, by the clock that does not step with the wall clock.
    pub began: Time,
}

/// The runs before the latest, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Runs {
    /// At most [`JOB_RECORDS`](crate::JOB_RECORDS) - 1.
    pub runs: Vec<JobRecord>,
    /// What this version does not know.
    pub rest: Rest,
}
