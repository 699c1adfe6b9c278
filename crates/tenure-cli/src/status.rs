//! `tenure status`: the owners of each resource, how long their leases last, and the waiting workers in order.

use std::collections::BTreeSet;

use serde_json::Value;
use tenure::admin::{Admin, OwnerView, ResourceView, WaiterView};
use tenure::jobs::{JobState, JobView};
use tenure::store::{Condition, Entry};
use tenure::types::{Label, Metadata, ResourceName};

use crate::exit::{Exit, Failure};
use crate::json;
use crate::open;
use crate::output::{self, Colour, Style, Table, clean, grants_nothing, say, span, wrapped};
use crate::settings;
use crate::timeline::timelines;
use crate::view::Seen;
use crate::watch;

/// The prefix of the resource of one-time work.
const ONCE: &str = "once:";

pub(crate) async fn status(settings: settings::Status) -> Result<Exit, Failure> {
    let settings::Status { resource, watch, look } = settings;
    if watch {
        return watch::watch(&look.store, resource).await;
    }
    let (mut seen, mut condition) = (Vec::new(), Condition::default());
    if let Some(store) = look.store.open().await? {
        let (views, entries) = open::read(&store, resource.as_ref()).await?;
        seen = examine(&store, views, &entries).await?;
        if resource.is_none() || seen.is_empty() {
            condition = store.condition().await?;
        }
        if seen.is_empty() && !look.json {
            match condition.withheld {
                Some(left) => say(grants_nothing(left)),
                None if resource.is_none() && condition.unreadable.is_empty() => {
                    say("nothing has been claimed yet");
                }
                None => {}
            }
        }
    }
    for Seen { view, .. } in &seen {
        for label in duplicate_labels(view) {
            output::same_label(view.resource.as_str(), label);
        }
    }
    let exit = look.answer(|| json::status(&condition, &seen), |style| text(&seen, style))?;
    match condition.unreadable.first().filter(|_| resource.is_none()) {
        Some(first) => Err(cannot_be_read(first, condition.unreadable.len())),
        None => Ok(exit),
    }
}

/// The labels that more than one worker of a resource has.
// req: T11
fn duplicate_labels(view: &ResourceView) -> BTreeSet<&str> {
    let owners = view.owners.iter().map(|owner| owner.worker.as_str());
    let waiters = view.waiters.iter().map(|waiter| waiter.worker.as_str());
    let mut seen = BTreeSet::new();
    owners.chain(waiters).filter(|label| !seen.insert(*label)).collect()
}

/// Leaving it out would read as "nobody owns it".
pub(crate) fn cannot_be_read(first: &ResourceName, all: usize) -> Failure {
    let what = match all {
        1 => format!("cannot read the record of `{first}`: its owner is unknown, and nobody is granted it"),
        all => format!(
            "cannot read the records of `{first}` and {} more: their owners are unknown, and nobody is granted them",
            all - 1
        ),
    };
    Failure::new(what).hint(format!("`tenure status {first}` says why"))
}

/// Adds what history and jobs say about resources.
pub(crate) async fn examine(
    store: &Admin,
    views: Vec<ResourceView>,
    entries: &[Entry],
) -> Result<Vec<Seen>, Failure> {
    let mut timelines = timelines(entries, &views);
    let is_once = |view: &ResourceView| view.resource.as_str().starts_with(ONCE);
    let jobs = match views.as_slice() {
        views if !views.iter().any(is_once) => Vec::new(),
        [one] => store.job(one.resource.as_str()).await?.into_iter().collect(),
        _ => store.jobs().await?,
    };
    let seen = |view: ResourceView| {
        let timeline = timelines.remove(view.resource.as_str()).unwrap_or_default();
        let job = jobs.iter().find(|job| job.job == view.resource && is_once(&view));
        Seen { timeline, done_by: job.and_then(did), view }
    };
    Ok(views.into_iter().map(seen).collect())
}

fn did(job: &JobView) -> Option<Label> {
    let latest = job.records.last().filter(|latest| latest.state == JobState::Ran)?;
    Some(latest.worker.clone())
}

// ---- for people --------------------------------------------------------------------------------------------

const COLUMNS: usize = 8;
type Row = [String; COLUMNS];
const HEAD: [&str; COLUMNS] =
    ["RESOURCE", "TICKET", "WORKER", "TERM", "TOKEN", "OWNED FOR", "LEASE LEFT", "METADATA"];

/// One line per owner, one for what is free or done, one per waiter in order; below, what flaps, and why nothing is granted.
/// Empty without resources.
fn text(seen: &[Seen], style: Style) -> String {
    let rows = seen.iter().flat_map(rows).collect();
    let table = Table { head: HEAD, rows }.text(style.columns);
    let flaps = seen.iter().filter_map(|Seen { view, timeline, .. }| {
        Some(format!("`{}` is flapping: {}", clean(view.resource.as_str()), timeline.flapping_now()?))
    });
    // The same for all of them.
    let withheld = seen.iter().find_map(|Seen { view, .. }| view.withheld).map(grants_nothing);
    let notes: String = flaps.chain(withheld).map(|note| painted(&note, style)).collect();
    if notes.is_empty() { table } else { format!("{table}\n{notes}") }
}

fn painted(note: &str, style: Style) -> String {
    let lines = wrapped(note, style.columns);
    lines.lines().map(|line| style.paint(Colour::Warning, line) + "\n").collect()
}

fn rows(Seen { view, done_by, .. }: &Seen) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for OwnerView { worker, grant, owned_for, left, metadata } in &view.owners {
        let mut row = row(&format!("{}/{}", grant.ticket.0, view.tickets), worker.as_str());
        (row[3], row[4], row[5]) = (grant.term.0.to_string(), grant.token.0.to_string(), span(*owned_for));
        (row[6], row[7]) = (span(*left), said(metadata));
        rows.push(row);
    }
    let owned = u32::try_from(view.owners.len()).unwrap_or(u32::MAX);
    match (view.tickets.saturating_sub(owned), done_by) {
        (0, _) => {}
        (_, Some(by)) => rows.push(row("done", by.as_str())),
        (free, None) => rows.push(row(&format!("{free} of {} free", view.tickets), "")),
    }
    for WaiterView { worker, left, metadata } in &view.waiters {
        let mut row = row("waits", worker.as_str());
        (row[6], row[7]) = (span(*left), said(metadata));
        rows.push(row);
    }
    if let Some(first) = rows.first_mut() {
        first[0] = view.resource.to_string();
    }
    rows
}

fn row(ticket: &str, worker: &str) -> Row {
    let mut row = Row::default();
    (row[1], row[2]) = (ticket.to_owned(), worker.to_owned());
    row
}

/// Metadata on one line; empty if there is none.
pub(crate) fn said(metadata: &Metadata) -> String {
    match json::metadata(metadata) {
        Value::Object(none) if none.is_empty() => String::new(),
        some => some.to_string(),
    }
}
