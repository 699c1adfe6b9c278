//! `tenure cron --list` and `tenure cron --history`: what became of the occurrences of jobs.

use std::time::Duration;

use tenure::jobs::JobView;

use crate::exit::{Exit, Failure};
use crate::json::{CRON, Job, Jobs, Occurrence};
use crate::output::{self, Style, Table, span};
use crate::settings::{self, Form};

pub(crate) async fn jobs(settings: settings::Jobs) -> Result<Exit, Failure> {
    let settings::Jobs { one, form, store: at } = settings;
    let store = match &one {
        None => at.open().await?,
        Some(_) => Some(at.require().await?),
    };
    let views = match (&store, &one) {
        (None, _) => Vec::new(),
        (Some(store), None) => store.jobs().await?,
        (Some(store), Some(name)) => match store.job(&format!("{CRON}{name}")).await? {
            Some(view) => vec![view],
            None => return Err(unknown(name.as_str(), &store.jobs().await?)),
        },
    };
    let jobs = Jobs::of(&views);
    if form == Form::Programs {
        return output::report(&at, jobs).map(|()| Exit::OK);
    }
    if jobs.jobs.is_empty() && store.is_some() {
        output::no_job_yet();
    }
    let columns = Style::of_stdout().columns;
    let text = match one {
        None => list(&jobs.jobs).text(columns),
        Some(_) => jobs.jobs.iter().map(|job| history(job).text(columns)).collect(),
    };
    output::data(&text).map(|()| Exit::OK)
}

fn unknown(name: &str, views: &[JobView]) -> Failure {
    let names: Vec<&str> = views.iter().filter_map(|view| view.job.as_str().strip_prefix(CRON)).collect();
    Failure::new(format!("there is no job `{name}`: nobody has run it yet")).did_you_mean(
        name,
        &names,
        || "`tenure cron --list` lists those that there are".to_owned(),
    )
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
