//! `tenure step-down`: asks an owner to hand over, waits for the outcome, and reports it.

use std::time::Duration;

use serde::Serialize;
use tenure::{Asked, Label, Namespace, OwnerView, ResourceName, ResourceView};
use tokio::time::{Instant, sleep, timeout};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::output::{self, Handed, millis};
use crate::reading::{self, Reading};
use crate::settings::named;

/// Grows when a field changes its meaning or goes. New fields may come without.
const VERSION: u32 = 1;
/// How often is looked whether it has happened.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a ticket that is free may stay so although somebody waits: ten steps of a waiter are one second, and a
/// store may answer slowly.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn step_down(typed: args::StepDown) -> Result<Exit, Failure> {
    let resource = named(&typed.resource, ResourceName::new)?;
    let successor = typed.to.map(|label| named(&label, Label::new)).transpose()?;
    let reading = Reading::meant_by(typed.at)?;
    let store = reading.require().await?;
    let before = reading::known(&store, &resource).await?;
    let owner = meant(&before, typed.ticket)?;
    let token = owner.grant.token.0;
    let asked = match typed.force {
        true => store.evict(resource.as_str(), token).await?,
        false => store.ask(resource.as_str(), token, successor.as_ref().map(Label::as_str)).await?,
    };
    match asked {
        Asked::Done => {}
        Asked::NotWaiting => return Err(not_waiting(successor.as_ref(), &before)),
        Asked::OtherOwners(_) => {
            let what = format!("`{resource}` has changed its owner meanwhile; nobody was asked");
            return Err(Failure::new(what).hint("`tenure status` shows who owns it now"));
        }
    }
    let worker = owner.worker.as_str();
    match typed.force {
        true => output::taken_away(resource.as_str(), worker, owner.grant.term.0),
        false => output::asked(resource.as_str(), worker, owner.grant.term.0),
    }
    let began = Instant::now();
    let watched = timeout(typed.wait.unwrap_or(Duration::MAX), outcome(&store, &before, owner)).await;
    let (handed, took) = (watched.ok().transpose()?, began.elapsed());
    if handed.is_none() {
        let waited = output::span(typed.wait.unwrap_or_default());
        output::not_handed_over(resource.as_str(), worker, &waited);
    }
    match &handed {
        _ if typed.json => output::json(&Report::of(&reading, owner, &before, handed.as_ref(), took))?,
        Some(handed) => output::handed_over(resource.as_str(), handed, took)?,
        None => {}
    }
    Ok(handed.map_or(Exit::NOT_ELECTED, |_| Exit::OK))
}

// ---- for programs ------------------------------------------------------------------------------------------

#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    store: String,
    namespace: &'a str,
    resource: &'a str,
    outcome: &'static str,
    from: Owner<'a>,
    /// Who owns now, because of it.
    to: Option<Owner<'a>>,
    took_ms: u64,
}

#[derive(Serialize)]
struct Owner<'a> {
    worker: &'a str,
    ticket: u32,
    term: u64,
    token: u64,
}

impl<'a> Report<'a> {
    /// Nothing is handed over if that took too long.
    fn of(
        reading: &'a Reading,
        owner: &'a OwnerView,
        before: &'a ResourceView,
        handed: Option<&'a Handed>,
        took: Duration,
    ) -> Self {
        let (outcome, to) = match handed {
            None => ("not_yet", None),
            Some(Handed::ToNobody { .. }) => ("free", None),
            Some(Handed::To { worker, ticket, term, token, is_same }) => {
                let to = Owner { worker, ticket: *ticket, term: *term, token: *token };
                (if *is_same { "owned_again" } else { "handed_over" }, Some(to))
            }
        };
        let grant = owner.grant;
        Self {
            version: VERSION,
            store: reading.place.to_string(),
            namespace: reading.namespace.as_str(),
            resource: before.resource.as_str(),
            outcome,
            from: Owner {
                worker: owner.worker.as_str(),
                ticket: grant.ticket.0,
                term: grant.term.0,
                token: grant.token.0,
            },
            to,
            took_ms: millis(took),
        }
    }
}

// ---- what happens ------------------------------------------------------------------------------------------

/// The owner of this ticket, or the only one.
fn meant(view: &ResourceView, ticket: Option<u32>) -> Result<&OwnerView, Failure> {
    let resource = &view.resource;
    let owners = || {
        let owners = view.owners.iter().map(|owner| format!("{} (`{}`)", owner.grant.ticket.0, owner.worker));
        owners.collect::<Vec<String>>().join(", ")
    };
    match (ticket, view.owners.as_slice()) {
        (_, []) => {
            let waiting = match view.waiters.len() {
                0 => "nobody waits for it either".to_owned(),
                count => format!("{count} wait for it"),
            };
            Err(Failure::new(format!("nobody owns `{resource}` now; {waiting}")))
        }
        (None, [only]) => Ok(only),
        (None, _) => Err(Failure::new(format!("`{resource}` has {} owners", view.owners.len()))
            .hint(format!("name a ticket with --ticket: {}", owners()))),
        (Some(ticket), all) => all.iter().find(|owner| owner.grant.ticket.0 == ticket).ok_or_else(|| {
            Failure::new(format!("nobody owns ticket {ticket} of `{resource}`"))
                .hint(format!("owned are {}", owners()))
        }),
    }
}

fn not_waiting(successor: Option<&Label>, view: &ResourceView) -> Failure {
    let label = successor.map_or("", Label::as_str);
    let failure = Failure::new(format!("`{label}` does not wait for `{}`; nobody was asked", view.resource));
    let waiting: Vec<&str> = view.waiters.iter().map(|waiter| waiter.worker.as_str()).collect();
    match (reading::nearest(label, &waiting), waiting.as_slice()) {
        (Some(near), _) => failure.hint(format!("did you mean `{near}`?")),
        (None, []) => failure.hint("nobody waits for it"),
        (None, [..]) => failure.hint(format!("there wait `{}`", waiting.join("`, `"))),
    }
}

/// Waits until the owner has gone and somebody else has come, or nobody wants to.
async fn outcome(store: &Namespace, before: &ResourceView, owner: &OwnerView) -> Result<Handed, Failure> {
    let mut free_since = None;
    let mut present = look(store, before).await?;
    loop {
        if present.owners.iter().all(|one| one.grant.token != owner.grant.token) {
            let newest = present.owners.iter().max_by_key(|one| one.grant.token);
            if let Some(next) = newest.filter(|next| is_new(before, next)) {
                // Where another one has the same label, it cannot be told, and was more likely handed over.
                let is_other = before.waiters.iter().any(|waiter| waiter.worker == owner.worker);
                let is_same = next.worker == owner.worker && !is_other;
                let (worker, ticket) = (next.worker.to_string(), next.grant.ticket.0);
                let (term, token) = (next.grant.term.0, next.grant.token.0);
                return Ok(Handed::To { worker, ticket, term, token, is_same });
            }
            let free_since = *free_since.get_or_insert_with(Instant::now);
            // One look is not enough to say that nobody wants it: the owner itself queues again a moment later.
            let wanted = !present.waiters.is_empty();
            if free_since.elapsed() >= if wanted { TAKEN_WITHIN } else { 4 * AGAIN } {
                let (waiting, withheld) = (present.waiters.len(), present.withheld);
                return Ok(Handed::ToNobody { waiting, withheld });
            }
        }
        sleep(AGAIN).await;
        present = look(store, before).await?;
    }
}

/// Whether this ownership is one that was not there before.
fn is_new(before: &ResourceView, owner: &OwnerView) -> bool {
    before.owners.iter().all(|one| one.grant.token < owner.grant.token)
}

async fn look(store: &Namespace, before: &ResourceView) -> Result<ResourceView, Failure> {
    let view = store.read(before.resource.as_str()).await?;
    view.ok_or_else(|| Failure::new(format!("the store has forgotten `{}`", before.resource)))
}
