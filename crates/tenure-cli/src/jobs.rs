//! `tenure cron --list` and `tenure cron --history`: the outcomes of jobs.

use tenure::jobs::JobRecord;

use crate::exit::{Exit, Failure};
use crate::json;
use crate::output::{Table, say, span};
use crate::settings;
use crate::view::{CRON, ScheduledJob};

pub(crate) async fn jobs(settings: settings::Jobs) -> Result<Exit, Failure> {
    let settings::Jobs { one, look } = settings;
    let store = match &one {
        None => look.store.open().await?,
        Some(_) => Some(look.store.require().await?),
    };
    let all = match &store {
        Some(store) => store.jobs().await?,
        None => Vec::new(),
    };
    let views = match (&store, &one) {
        (Some(store), Some(name)) => match store.job(&format!("{CRON}{name}")).await? {
            Some(view) => vec![view],
            None => {
                let names: Vec<&str> =
                    all.iter().filter_map(|view| view.job.as_str().strip_prefix(CRON)).collect();
                let failure = Failure::new(format!("there is no job `{name}`: nobody has run it yet"));
                return Err(failure.did_you_mean(name.as_str(), &names, || {
                    "`tenure cron --list` lists the jobs".to_owned()
                }));
            }
        },
        _ => all,
    };
    let jobs: Vec<ScheduledJob<'_>> = views.iter().filter_map(ScheduledJob::of).collect();
    if jobs.is_empty() && store.is_some() && !look.json {
        say("no job has run yet");
    }
    look.answer(
        || json::jobs(&jobs),
        |style| match one {
            None => list(&jobs).text(style.columns),
            Some(_) => jobs.iter().map(|job| history(job).text(style.columns)).collect(),
        },
    )
}

fn list(jobs: &[ScheduledJob<'_>]) -> Table<10> {
    let row = |job: &ScheduledJob<'_>| {
        let (latest, counts) = (job.view.records.last(), job.view.counts);
        let count = |count: u64| if count == 0 { String::new() } else { count.to_string() };
        [
            job.name.to_owned(),
            job.view.plan.to_string(),
            job.next().unwrap_or_default(),
            latest.map(|latest| job.scheduled(latest)).unwrap_or_default(),
            latest.map(|latest| json::state(latest.state).to_owned()).unwrap_or_default(),
            counts.ran.to_string(),
            count(counts.failed),
            count(counts.interrupted),
            count(counts.missed),
            count(counts.skipped),
        ]
    };
    let head =
        ["JOB", "PLAN", "NEXT", "LATEST", "STATE", "RAN", "FAILED", "INTERRUPTED", "MISSED", "SKIPPED"];
    Table { head, rows: jobs.iter().map(row).collect() }
}

fn history(job: &ScheduledJob<'_>) -> Table<8> {
    let row = |record: &JobRecord| {
        let left_out = u64::from(record.missed) + u64::from(record.skipped);
        [
            job.scheduled(record),
            json::state(record.state).to_owned(),
            if record.attempt == 1 { String::new() } else { record.attempt.to_string() },
            record.worker.to_string(),
            job.began(record),
            record.took.map(span).unwrap_or_default(),
            if left_out == 0 { String::new() } else { left_out.to_string() },
            record.note.to_string(),
        ]
    };
    let head = ["OCCURRENCE", "STATE", "ATTEMPT", "WORKER", "BEGAN", "TOOK", "LEFT OUT BEFORE", "NOTE"];
    Table { head, rows: job.view.records.iter().map(row).collect() }
}
