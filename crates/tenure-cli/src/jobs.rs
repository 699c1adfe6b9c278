//! `tenure cron --list` and `tenure cron --history`: what became of the occurrences of jobs.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use tenure::cron::Schedule;
use tenure::{JobRecord, JobState, JobView, ResourceName};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::output::{self, Style, Table, millis, span};
use crate::reading::{Reading, nearest};
use crate::settings::named;

/// Grows when a field changes its meaning or goes. New fields may come without.
const VERSION: u32 = 1;
/// What the resource of a job begins with.
const PREFIX: &str = "cron:";

pub(crate) async fn jobs(typed: args::Cron) -> Result<Exit, Failure> {
    let one = typed.history.map(|name| named(&name, ResourceName::new)).transpose()?;
    let reading = Reading::meant_by(typed.at)?;
    let store = match &one {
        None => reading.open().await?,
        Some(_) => Some(reading.require().await?),
    };
    let views = match (&store, &one) {
        (None, _) => Vec::new(),
        (Some(store), None) => store.jobs().await?,
        (Some(store), Some(name)) => match store.job(&format!("{PREFIX}{name}")).await? {
            Some(view) => vec![view],
            None => return Err(unknown(name.as_str(), &store.jobs().await?)),
        },
    };
    let jobs: Vec<Job> = views.iter().filter_map(Job::of).collect();
    if jobs.is_empty() && store.is_some() && !typed.json {
        output::no_job_yet();
    }
    if typed.json {
        let (store, namespace) = (reading.place.to_string(), reading.namespace.as_str());
        output::json(&Report { version: VERSION, store, namespace, jobs })?;
    } else {
        let columns = Style::of_stdout().columns;
        output::data(&match one {
            None => list(&jobs).text(columns),
            Some(_) => jobs.iter().map(|job| history(job).text(columns)).collect(),
        })?;
    }
    Ok(Exit::OK)
}

fn unknown(name: &str, views: &[JobView]) -> Failure {
    let names: Vec<&str> = views.iter().filter_map(|view| view.job.as_str().strip_prefix(PREFIX)).collect();
    let failure = Failure::new(format!("there is no job `{name}`: nobody has run it yet"));
    match nearest(name, &names) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint("`tenure cron --list` lists those that there are"),
    }
}

// ---- for programs ------------------------------------------------------------------------------------------

#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    store: String,
    namespace: &'a str,
    jobs: Vec<Job<'a>>,
}

#[derive(Serialize)]
struct Job<'a> {
    job: &'a str,
    plan: &'a str,
    /// By this host's clock; nothing if the plan is not understood.
    next: Option<String>,
    ran: u64,
    failed: u64,
    interrupted: u64,
    missed: u64,
    skipped: u64,
    /// Oldest first.
    occurrences: Vec<Occurrence<'a>>,
}

#[derive(Serialize)]
struct Occurrence<'a> {
    occurrence: String,
    state: &'static str,
    attempt: u32,
    worker: &'a str,
    token: u64,
    key: String,
    /// By the store's clock.
    began: String,
    took_ms: Option<u64>,
    missed_before: u32,
    skipped_before: u32,
    note: &'a str,
}

impl<'a> Job<'a> {
    /// Nothing if it is not one that runs at set times.
    fn of(view: &'a JobView) -> Option<Self> {
        let (plan, counts) = (view.plan.as_str(), view.counts);
        let schedule = schedule_of(plan);
        let shown = schedule.clone().or_else(|| Schedule::new("@daily").ok())?;
        let next = schedule.and_then(|schedule| Some(schedule.show(schedule.after(SystemTime::now())?)));
        Some(Self {
            job: view.job.as_str().strip_prefix(PREFIX)?,
            plan,
            next,
            ran: counts.ran,
            failed: counts.failed,
            interrupted: counts.interrupted,
            missed: counts.missed,
            skipped: counts.skipped,
            occurrences: view.records.iter().map(|record| Occurrence::of(view, record, &shown)).collect(),
        })
    }
}

impl<'a> Occurrence<'a> {
    fn of(view: &'a JobView, record: &'a JobRecord, shown: &Schedule) -> Self {
        let at = |span: Duration| shown.show(SystemTime::UNIX_EPOCH + span);
        Self {
            occurrence: at(Duration::from_millis(record.occurrence.as_millis())),
            state: match record.state {
                JobState::Running => "running",
                JobState::Ran => "ran",
                JobState::Failed => "failed",
                JobState::Interrupted => "interrupted",
                _ => "unknown",
            },
            attempt: record.attempt,
            worker: record.worker.as_str(),
            token: record.token.0,
            key: record.key(&view.job),
            // To the second, as the others.
            began: at(Duration::from_secs(record.began_at.as_micros() / 1_000_000)),
            took_ms: record.took.map(millis),
            missed_before: record.missed,
            skipped_before: record.skipped,
            note: record.note.as_str(),
        }
    }
}

/// The plan is spec and zone.
fn schedule_of(plan: &str) -> Option<Schedule> {
    let (spec, zone) = plan.rsplit_once(' ')?;
    Schedule::new(spec).ok()?.in_zone(zone).ok()
}

// ---- for people --------------------------------------------------------------------------------------------

fn list(jobs: &[Job<'_>]) -> Table<10> {
    let row = |job: &Job<'_>| {
        let latest = job.occurrences.last();
        let count = |count: u64| if count == 0 { String::new() } else { count.to_string() };
        [
            job.job.to_owned(),
            job.plan.to_owned(),
            job.next.clone().unwrap_or_default(),
            latest.map(|latest| latest.occurrence.clone()).unwrap_or_default(),
            latest.map(|latest| latest.state.to_owned()).unwrap_or_default(),
            job.ran.to_string(),
            count(job.failed),
            count(job.interrupted),
            count(job.missed),
            count(job.skipped),
        ]
    };
    let head =
        ["JOB", "PLAN", "NEXT", "LATEST", "STATE", "RAN", "FAILED", "INTERRUPTED", "MISSED", "SKIPPED"];
    Table { head, rows: jobs.iter().map(row).collect() }
}

fn history(job: &Job<'_>) -> Table<8> {
    let row = |one: &Occurrence<'_>| {
        let left_out = u64::from(one.missed_before) + u64::from(one.skipped_before);
        [
            one.occurrence.clone(),
            one.state.to_owned(),
            if one.attempt == 1 { String::new() } else { one.attempt.to_string() },
            one.worker.to_owned(),
            one.began.clone(),
            one.took_ms.map(|took| span(Duration::from_millis(took))).unwrap_or_default(),
            if left_out == 0 { String::new() } else { left_out.to_string() },
            one.note.to_owned(),
        ]
    };
    let head = ["OCCURRENCE", "STATE", "ATTEMPT", "WORKER", "BEGAN", "TOOK", "LEFT OUT BEFORE", "NOTE"];
    Table { head, rows: job.occurrences.iter().map(row).collect() }
}
