//! `tenure status`: who owns what, for how long still, and who waits, in order.

use serde::Serialize;
use serde_json::Value;
use tenure::{
    JobState, JobView, Label, Metadata, Namespace, OwnerView, ResourceName, ResourceView, WaiterView,
};

use crate::exit::{Exit, Failure};
use crate::neighbours;
use crate::output::{self, Colour, Style, Table, clean, millis, span, wrapped};
use crate::settings::{self, Form};
use crate::timeline::{Flaps, Timeline, timelines};
use crate::watch;

/// Grows when a field changes its meaning or goes. New fields may come without.
const VERSION: u32 = 1;
/// What the resource of something that is done once begins with.
const ONCE: &str = "once:";

pub(crate) async fn status(settings: settings::Status) -> Result<Exit, Failure> {
    let settings::Status { resource, form, reading } = settings;
    if form == Form::Watchers {
        return watch::watch(&reading, resource).await;
    }
    let seen: Vec<Seen> = match reading.open().await? {
        Some(store) => {
            let seen = read(&store, resource.as_ref()).await?;
            if seen.is_empty() && resource.is_none() && form == Form::People {
                output::nothing_claimed_yet();
            }
            seen
        }
        None => Vec::new(),
    };
    for Seen { view, .. } in &seen {
        for label in neighbours::doubles(view) {
            output::same_label(view.resource.as_str(), label);
        }
    }
    match form {
        Form::Programs => {
            output::json(&Report::of(&reading.place.to_string(), reading.namespace.as_str(), &seen))?;
        }
        Form::People | Form::Watchers => output::data(&text(&seen, Style::of_stdout()))?,
    }
    Ok(Exit::OK)
}

/// A resource as it is now.
struct Seen {
    view: ResourceView,
    flaps: Option<Flaps>,
    /// Who has done it, where it is something that is done once.
    done_by: Option<Label>,
}

async fn read(store: &Namespace, resource: Option<&ResourceName>) -> Result<Vec<Seen>, Failure> {
    let (views, entries) = match resource {
        Some(name) => {
            let Some(view) = store.read(name.as_str()).await? else {
                output::never_claimed(name.as_str());
                return Ok(Vec::new());
            };
            (vec![view], store.history(name.as_str()).await?)
        }
        None => (store.read_all().await?, store.history_of_all().await?),
    };
    let timelines = timelines(&entries, &views);
    let is_once = |view: &ResourceView| view.resource.as_str().starts_with(ONCE);
    let jobs = match resource {
        _ if !views.iter().any(is_once) => Vec::new(),
        Some(name) => store.job(name.as_str()).await?.into_iter().collect(),
        None => store.jobs().await?,
    };
    let seen = |view: ResourceView| {
        let flaps = timelines.get(view.resource.as_str()).and_then(Timeline::flapping_now);
        let job = jobs.iter().find(|job| job.job == view.resource && is_once(&view));
        Seen { flaps, done_by: job.and_then(did), view }
    };
    Ok(views.into_iter().map(seen).collect())
}

/// Who has done it, where it is something that is done once.
pub(crate) async fn done_by(store: &Namespace, resource: &ResourceName) -> Result<Option<Label>, Failure> {
    if !resource.as_str().starts_with(ONCE) {
        return Ok(None);
    }
    Ok(store.job(resource.as_str()).await?.as_ref().and_then(did))
}

fn did(job: &JobView) -> Option<Label> {
    let latest = job.records.last().filter(|latest| latest.state == JobState::Ran)?;
    Some(latest.worker.clone())
}

// ---- for programs ------------------------------------------------------------------------------------------

/// All spans, no times: whose clock would a time be?
#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    store: &'a str,
    namespace: &'a str,
    resources: Vec<Resource<'a>>,
}

#[derive(Serialize)]
struct Resource<'a> {
    resource: &'a str,
    tickets: u32,
    flapping: bool,
    done_by: Option<&'a str>,
    /// Nothing is granted so long still.
    withheld_ms: Option<u64>,
    owners: Vec<Owner<'a>>,
    waiters: Vec<Waiter<'a>>,
}

#[derive(Serialize)]
pub(crate) struct Owner<'a> {
    worker: &'a str,
    ticket: u32,
    term: u64,
    token: u64,
    owned_for_ms: u64,
    lease_left_ms: u64,
    metadata: Value,
}

#[derive(Serialize)]
pub(crate) struct Waiter<'a> {
    worker: &'a str,
    lease_left_ms: u64,
    metadata: Value,
}

impl<'a> Report<'a> {
    fn of(store: &'a str, namespace: &'a str, seen: &'a [Seen]) -> Self {
        let resources = seen.iter().map(Resource::of).collect();
        Self { version: VERSION, store, namespace, resources }
    }
}

impl<'a> Resource<'a> {
    fn of(Seen { view, flaps, done_by }: &'a Seen) -> Self {
        Self {
            resource: view.resource.as_str(),
            tickets: view.tickets,
            flapping: flaps.is_some(),
            done_by: done_by.as_ref().map(Label::as_str),
            withheld_ms: view.withheld.map(millis),
            owners: view.owners.iter().map(Owner::of).collect(),
            waiters: view.waiters.iter().map(Waiter::of).collect(),
        }
    }
}

impl<'a> Owner<'a> {
    pub(crate) fn of(view: &'a OwnerView) -> Self {
        Self {
            worker: view.worker.as_str(),
            ticket: view.grant.ticket.0,
            term: view.grant.term.0,
            token: view.grant.token.0,
            owned_for_ms: millis(view.owned_for),
            lease_left_ms: millis(view.left),
            metadata: parsed(&view.metadata),
        }
    }
}

impl<'a> Waiter<'a> {
    pub(crate) fn of(view: &'a WaiterView) -> Self {
        Self {
            worker: view.worker.as_str(),
            lease_left_ms: millis(view.left),
            metadata: parsed(&view.metadata),
        }
    }
}

/// Metadata was checked to be JSON when it was given; should it not be, it is shown as it is.
pub(crate) fn parsed(metadata: &Metadata) -> Value {
    serde_json::from_str(metadata.as_str()).unwrap_or_else(|_| Value::from(metadata.as_str()))
}

// ---- for people --------------------------------------------------------------------------------------------

const COLUMNS: usize = 8;
type Row = [String; COLUMNS];
const HEAD: [&str; COLUMNS] =
    ["RESOURCE", "TICKET", "WORKER", "TERM", "TOKEN", "OWNED FOR", "LEASE LEFT", "METADATA"];

/// One line per owner, one for what is free or done, one per waiter in their order; below, what flaps, and why nothing is
/// granted. Nothing at all for no resource.
fn text(seen: &[Seen], style: Style) -> String {
    let rows = seen.iter().flat_map(rows).collect();
    let table = Table { head: HEAD, rows }.text(style.columns);
    let flaps = seen.iter().filter_map(|Seen { view, flaps, .. }| {
        Some(format!("`{}` is flapping: {}", clean(view.resource.as_str()), (*flaps)?))
    });
    // It is the same for all of them.
    let withheld = seen.iter().find_map(|Seen { view, .. }| output::withheld(view));
    let notes: String = flaps.chain(withheld).map(|note| painted(&note, style)).collect();
    if notes.is_empty() { table } else { format!("{table}\n{notes}") }
}

fn painted(note: &str, style: Style) -> String {
    let lines = wrapped(note, style.columns);
    lines.lines().map(|line| style.paint(Colour::Warning, line) + "\n").collect()
}

fn rows(Seen { view, done_by, .. }: &Seen) -> Vec<Row> {
    let nothing = String::new;
    let mut rows: Vec<Row> = Vec::new();
    for OwnerView { worker, grant, owned_for, left, metadata } in &view.owners {
        let ticket = format!("{}/{}", grant.ticket.0, view.tickets);
        let (term, token) = (grant.term.0.to_string(), grant.token.0.to_string());
        let (owned_for, left) = (span(*owned_for), span(*left));
        rows.push([nothing(), ticket, worker.to_string(), term, token, owned_for, left, said(metadata)]);
    }
    let owned = u32::try_from(view.owners.len()).unwrap_or(u32::MAX);
    match (view.tickets.saturating_sub(owned), done_by) {
        (0, _) => {}
        (_, Some(by)) => {
            let (done, by) = ("done".to_owned(), by.to_string());
            rows.push([nothing(), done, by, nothing(), nothing(), nothing(), nothing(), nothing()]);
        }
        (free, None) => {
            let free = format!("{free} of {} free", view.tickets);
            rows.push([nothing(), free, nothing(), nothing(), nothing(), nothing(), nothing(), nothing()]);
        }
    }
    for WaiterView { worker, left, metadata } in &view.waiters {
        let (waits, worker, left) = ("waits".to_owned(), worker.to_string(), span(*left));
        rows.push([nothing(), waits, worker, nothing(), nothing(), nothing(), left, said(metadata)]);
    }
    if let Some(first) = rows.first_mut() {
        first[0] = view.resource.to_string();
    }
    rows
}

/// Metadata on one line; nothing for none.
pub(crate) fn said(metadata: &Metadata) -> String {
    match parsed(metadata) {
        Value::Object(none) if none.is_empty() => String::new(),
        some => some.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_a_worker_tells_is_shown_as_it_is() {
        let metadata = Metadata::new("[-2011e40,0.1,3]").expect("short");

        assert_eq!(parsed(&metadata).to_string(), "[-2.011e+43,0.1,3]");
    }
}
