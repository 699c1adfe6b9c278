//! `tenure status`: who owns what, for how long still, and who waits, in order.

use serde::Serialize;
use serde_json::Value;
use tenure::{Metadata, Namespace, OwnerView, ResourceName, ResourceView, WaiterView};

use crate::exit::{Exit, Failure};
use crate::output::{self, span};
use crate::settings::{self, Form};

/// Grows when a field changes its meaning or goes. New fields may come without.
const VERSION: u32 = 1;

pub(crate) async fn status(settings: settings::Status) -> Result<Exit, Failure> {
    let settings::Status { resource, form, place, namespace } = settings;
    let found = Namespace::find(place.url(), namespace.as_str()).await;
    let views: Vec<ResourceView> = match found.map_err(|error| place.cannot_open(error))? {
        Some(store) => {
            output::which_store(&place, namespace.as_str());
            read(&store, resource.as_ref()).await?
        }
        None if place.is_default() => {
            output::nothing_yet(&place);
            Vec::new()
        }
        // "Nobody owns anything" would be a dangerous answer to a misspelt path.
        None => {
            return Err(Failure::new(format!("there is no store at `{place}`"))
                .hint("`tenure run --store ..` makes it; is the path right?"));
        }
    };
    output::data(&match form {
        Form::Programs => json(&Report::of(&place.to_string(), namespace.as_str(), &views))?,
        Form::People => table(&views),
    })?;
    Ok(Exit::OK)
}

async fn read(store: &Namespace, resource: Option<&ResourceName>) -> Result<Vec<ResourceView>, Failure> {
    let Some(name) = resource else { return Ok(store.read_all().await?) };
    let view = store.read(name.as_str()).await?;
    if view.is_none() {
        output::never_claimed(name.as_str());
    }
    Ok(view.into_iter().collect())
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
    owners: Vec<Owner<'a>>,
    waiters: Vec<Waiter<'a>>,
}

#[derive(Serialize)]
struct Owner<'a> {
    worker: &'a str,
    ticket: u32,
    term: u64,
    token: u64,
    owned_for_ms: u64,
    lease_left_ms: u64,
    metadata: Value,
}

#[derive(Serialize)]
struct Waiter<'a> {
    worker: &'a str,
    lease_left_ms: u64,
    metadata: Value,
}

impl<'a> Report<'a> {
    fn of(store: &'a str, namespace: &'a str, views: &'a [ResourceView]) -> Self {
        let resources = views.iter().map(Resource::of).collect();
        Self { version: VERSION, store, namespace, resources }
    }
}

impl<'a> Resource<'a> {
    fn of(view: &'a ResourceView) -> Self {
        Self {
            resource: view.resource.as_str(),
            tickets: view.tickets,
            owners: view.owners.iter().map(Owner::of).collect(),
            waiters: view.waiters.iter().map(Waiter::of).collect(),
        }
    }
}

impl<'a> Owner<'a> {
    fn of(view: &'a OwnerView) -> Self {
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
    fn of(view: &'a WaiterView) -> Self {
        Self {
            worker: view.worker.as_str(),
            lease_left_ms: millis(view.left),
            metadata: parsed(&view.metadata),
        }
    }
}

fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Metadata was checked to be JSON when it was given; should it not be, it is shown as it is.
fn parsed(metadata: &Metadata) -> Value {
    serde_json::from_str(metadata.as_str()).unwrap_or_else(|_| Value::from(metadata.as_str()))
}

fn json(report: &Report<'_>) -> Result<String, Failure> {
    let written = serde_json::to_string_pretty(report);
    written.map(|text| text + "\n").map_err(|error| Failure::new("cannot write JSON").because(&error))
}

// ---- for people --------------------------------------------------------------------------------------------

const COLUMNS: usize = 7;
type Row = [String; COLUMNS];
const HEAD: [&str; COLUMNS] = ["RESOURCE", "TICKET", "WORKER", "TERM", "TOKEN", "HELD FOR", "LEASE LEFT"];

/// One line per owner, one for what is free, one per waiter in their order. Nothing at all for no resource.
fn table(views: &[ResourceView]) -> String {
    let rows: Vec<Row> = views.iter().flat_map(rows).collect();
    if rows.is_empty() {
        return String::new();
    }
    let rows: Vec<Row> = std::iter::once(HEAD.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let line: String =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}  ", width = *width)).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn rows(view: &ResourceView) -> Vec<Row> {
    let nothing = String::new;
    let mut rows: Vec<Row> = Vec::new();
    for OwnerView { worker, grant, owned_for, left, .. } in &view.owners {
        let ticket = format!("{}/{}", grant.ticket.0, view.tickets);
        let (term, token) = (grant.term.0.to_string(), grant.token.0.to_string());
        rows.push([nothing(), ticket, worker.to_string(), term, token, span(*owned_for), span(*left)]);
    }
    let owned = u32::try_from(view.owners.len()).unwrap_or(u32::MAX);
    match view.tickets.saturating_sub(owned) {
        0 => {}
        free => {
            let free = format!("{free} of {} free", view.tickets);
            rows.push([nothing(), free, nothing(), nothing(), nothing(), nothing(), nothing()]);
        }
    }
    for WaiterView { worker, left, .. } in &view.waiters {
        let waits = "waits".to_owned();
        rows.push([nothing(), waits, worker.to_string(), nothing(), nothing(), nothing(), span(*left)]);
    }
    if let Some(first) = rows.first_mut() {
        first[0] = view.resource.to_string();
    }
    rows
}
