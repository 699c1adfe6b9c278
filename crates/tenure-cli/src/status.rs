//! `tenure status`: who owns what, for how long still, and who waits, in order.

use serde_json::Value;
use tenure::admin::{Admin, OwnerView, ResourceView, WaiterView};
use tenure::jobs::{JobState, JobView};
use tenure::store::{Condition, Entry};
use tenure::types::{Label, Metadata, ResourceName};

use crate::duplicate_labels;
use crate::exit::{Exit, Failure};
use crate::json;
use crate::open;
use crate::output::{self, Colour, Style, Table, clean, span, wrapped};
use crate::settings::{self, Form};
use crate::timeline::{Timeline, timelines};
use crate::watch;

/// What the resource of something that is done once begins with.
const ONCE: &str = "once:";

pub(crate) async fn status(settings: settings::Status) -> Result<Exit, Failure> {
    let settings::Status { resource, form, store: at } = settings;
    if form == Form::Watchers {
        return watch::watch(&at, resource).await;
    }
    let (seen, condition) = match at.open().await? {
        Some(store) => {
            let (views, entries) = open::read(&store, resource.as_ref()).await?;
            let seen = examine(&store, views, &entries).await?;
            let condition = match resource.is_some() && !seen.is_empty() {
                true => Condition::default(),
                false => store.condition().await?,
            };
            if seen.is_empty() && form == Form::People {
                match condition.withheld {
                    Some(left) => output::withheld_from_all(left),
                    None if resource.is_none() && condition.unreadable.is_empty() => {
                        output::nothing_claimed_yet();
                    }
                    None => {}
                }
            }
            (seen, condition)
        }
        None => Default::default(),
    };
    for Seen { view, .. } in &seen {
        for label in duplicate_labels::doubles(view) {
            output::same_label(view.resource.as_str(), label);
        }
    }
    match form {
        Form::Programs => output::report(&at, json::Status::of(&condition, &seen))?,
        Form::People | Form::Watchers => output::data(&text(&seen, Style::of_stdout()))?,
    }
    match condition.unreadable.first().filter(|_| resource.is_none()) {
        Some(first) => Err(cannot_be_read(first, condition.unreadable.len())),
        None => Ok(Exit::OK),
    }
}

/// To leave it out would read as "nobody owns it".
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

/// A resource as it is now.
pub(crate) struct Seen {
    pub(crate) view: ResourceView,
    pub(crate) timeline: Timeline,
    /// Who has done it, where it is something that is done once.
    pub(crate) done_by: Option<Label>,
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

/// One line per owner, one for what is free or done, one per waiter in their order; below, what flaps, and why nothing is
/// granted. Nothing at all for no resource.
fn text(seen: &[Seen], style: Style) -> String {
    let rows = seen.iter().flat_map(rows).collect();
    let table = Table { head: HEAD, rows }.text(style.columns);
    let flaps = seen.iter().filter_map(|Seen { view, timeline, .. }| {
        Some(format!("`{}` is flapping: {}", clean(view.resource.as_str()), timeline.flapping_now()?))
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
    match json::metadata(metadata) {
        Value::Object(none) if none.is_empty() => String::new(),
        some => some.to_string(),
    }
}
