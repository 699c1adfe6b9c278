//! What the scripts say of jobs and messages.

use std::time::Duration;

use redis::Value;
use tenure_core::{
    JobCounts, JobRecord, JobSaid, JobState, JobView, Note, Occurrence, Plan, Published, ResourceName, Token,
    WallTime,
};

use super::{Parts, label, report, resource, stamp, unknown};
use crate::store::redis::trouble::{Outcome, Trouble};

/// The answer to a step of a job.
pub(in super::super) fn said(value: Value) -> Outcome<JobSaid> {
    let mut parts = Parts::of(value)?;
    stamp(&mut parts)?;
    let latest = |parts: &mut Parts| {
        let latest = parts.list()?;
        if latest.0.len() == 0 { Ok(None) } else { record(latest).map(Some) }
    };
    Ok(match parts.text()?.as_str() {
        "attended" => {
            let (through, latest) = (occurrence(&mut parts)?, latest(&mut parts)?);
            let replaced = parts.text()?;
            let replaced = (!replaced.is_empty()).then(|| plan(&replaced)).transpose()?;
            JobSaid::Attended { through, latest, replaced }
        }
        "begun" => JobSaid::Begun(record(parts.list()?)?),
        "finished" => JobSaid::Finished(record(parts.list()?)?),
        "taken" => JobSaid::Taken(latest(&mut parts)?),
        "early" => JobSaid::Early,
        "unknown" => JobSaid::Unknown,
        "not-owner" => JobSaid::NotOwner,
        other => return Err(unknown(other)),
    })
}

/// The answer to one who publishes.
pub(in super::super) fn published(value: Value) -> Outcome<Published> {
    let mut parts = Parts::of(value)?;
    stamp(&mut parts)?;
    match parts.text()?.as_str() {
        "sent" => Ok(Published::Sent),
        "not-owner" => Ok(Published::NotOwner),
        other => Err(unknown(other)),
    }
}

/// Some of the jobs, and where to go on.
pub(in super::super) struct Jobs {
    pub(in super::super) views: Vec<JobView>,
    /// Empty when these were all.
    pub(in super::super) cursor: String,
    /// Damaged ones.
    pub(in super::super) left_out: Vec<String>,
}

/// Who asks for `one` job is told what is odd about it.
pub(in super::super) fn jobs(value: Value, one: Option<&ResourceName>) -> Outcome<Jobs> {
    let mut parts = Parts::of(value)?;
    stamp(&mut parts)?;
    let (views, odd) = match one {
        Some(_) => (parts.list()?.each(view)?, 0),
        None => parts.list()?.each_sound(view),
    };
    let (cursor, left_out) = (parts.text()?, parts.list()?.texts()?);
    report(&left_out, odd);
    Ok(Jobs { views, cursor, left_out })
}

fn view(mut parts: Parts) -> Outcome<JobView> {
    Ok(JobView {
        job: resource(&parts.text()?)?,
        plan: plan(&parts.text()?)?,
        through: occurrence(&mut parts)?,
        counts: JobCounts {
            ran: parts.number()?,
            failed: parts.number()?,
            interrupted: parts.number()?,
            missed: parts.number()?,
            skipped: parts.number()?,
        },
        records: parts.list()?.each(record)?,
    })
}

fn record(mut parts: Parts) -> Outcome<JobRecord> {
    Ok(JobRecord {
        occurrence: occurrence(&mut parts)?,
        attempt: parts.number()?,
        token: Token(parts.number()?),
        key_token: Token(parts.number()?),
        worker: label(&parts.text()?)?,
        began_at: WallTime::from_micros(parts.number()?),
        state: match parts.text()?.as_str() {
            "running" => JobState::Running,
            "ran" => JobState::Ran,
            "failed" => JobState::Failed,
            "interrupted" => JobState::Interrupted,
            other => return Err(unknown(other)),
        },
        took: match parts.text()?.as_str() {
            "" => None,
            took => Some(Duration::from_micros(super::parsed(took)?)),
        },
        missed: parts.number()?,
        skipped: parts.number()?,
        note: Note::of(&parts.text()?),
    })
}

fn occurrence(parts: &mut Parts) -> Outcome<Occurrence> {
    Occurrence::new(parts.number()?).map_err(|limit| Trouble::Odd(limit.to_string()))
}

fn plan(text: &str) -> Outcome<Plan> {
    Plan::new(text).map_err(|limit| Trouble::Odd(limit.to_string()))
}
