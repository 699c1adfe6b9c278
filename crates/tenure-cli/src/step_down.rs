//! `tenure step-down`: asks an owner to hand over, waits for the outcome, and reports it.

use std::time::Duration;

use tenure::admin::{Admin, OwnerView, ResourceView, StepDownReply};
use tenure::types::Label;
use tokio::time::{Instant, sleep, timeout};

use crate::exit::{Exit, Failure};
use crate::json;
use crate::open;
use crate::output;
use crate::settings::{self, Form, Removal};

/// How often is looked whether it has happened.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a ticket that is free may stay so although somebody waits: ten steps of a waiter are one second, and a
/// store may answer slowly.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn step_down(settings: settings::StepDown) -> Result<Exit, Failure> {
    let settings::StepDown { resource, ticket, how, wait, form, store: at } = settings;
    let store = at.require().await?;
    let before = open::known(&store, &resource).await?;
    let owner = meant(&before, ticket)?;
    let (name, token) = (resource.as_str(), owner.grant.token.0);
    let asked = match &how {
        Removal::Force => store.evict(name, token).await?,
        Removal::Ask { successor } => store.ask(name, token, successor.as_ref().map(Label::as_str)).await?,
    };
    match asked {
        StepDownReply::Done => {}
        StepDownReply::NotWaiting => return Err(not_waiting(&how, &before)),
        StepDownReply::OtherOwners(_) => {
            let what = format!("`{resource}` has changed its owner meanwhile; nobody was asked");
            return Err(Failure::new(what).hint("`tenure status` shows who owns it now"));
        }
    }
    let worker = owner.worker.as_str();
    match how {
        Removal::Force => output::taken_away(name, worker, owner.grant.term.0),
        Removal::Ask { .. } => output::asked(name, worker, owner.grant.term.0),
    }
    let began = Instant::now();
    let watched = timeout(wait.unwrap_or(Duration::MAX), outcome(&store, &before, owner)).await;
    let (handed, took) = (watched.ok().transpose()?, began.elapsed());
    if handed.is_none() {
        output::not_handed_over(name, worker, &output::span(wait.unwrap_or_default()));
    }
    match &handed {
        _ if form == Form::Programs => {
            output::report(&at, json::StepDown::of(&resource, owner, handed.as_ref(), took))?;
        }
        Some(handed) => output::handed_over(name, handed, took)?,
        None => {}
    }
    Ok(handed.map_or(Exit::NOT_ELECTED, |_| Exit::OK))
}

/// What became of a ticket.
#[derive(Debug)]
pub(crate) enum Handed {
    /// Another worker owns it.
    To(OwnerView),
    /// The same worker owns it again.
    Back(OwnerView),
    ToNobody {
        waiting: usize,
        withheld: Option<Duration>,
    },
}

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

fn not_waiting(how: &Removal, view: &ResourceView) -> Failure {
    let label = match how {
        Removal::Ask { successor: Some(label) } => label.as_str(),
        _ => "",
    };
    let waiting: Vec<&str> = view.waiters.iter().map(|waiter| waiter.worker.as_str()).collect();
    Failure::new(format!("`{label}` does not wait for `{}`; nobody was asked", view.resource)).did_you_mean(
        label,
        &waiting,
        || match waiting.as_slice() {
            [] => "nobody waits for it".to_owned(),
            all => format!("there wait `{}`", all.join("`, `")),
        },
    )
}

/// Waits until the owner has gone and somebody else has come, or nobody wants to.
async fn outcome(store: &Admin, before: &ResourceView, owner: &OwnerView) -> Result<Handed, Failure> {
    let mut free_since = None;
    let mut present = look(store, before).await?;
    loop {
        if present.owners.iter().all(|one| one.grant.token != owner.grant.token) {
            let newest = present.owners.iter().max_by_key(|one| one.grant.token);
            if let Some(next) = newest.filter(|next| is_new(before, next)) {
                // Where another one has the same label, it cannot be told, and was more likely handed over.
                let is_other = before.waiters.iter().any(|waiter| waiter.worker == owner.worker);
                let is_same = next.worker == owner.worker && !is_other;
                return Ok(if is_same { Handed::Back(next.clone()) } else { Handed::To(next.clone()) });
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

async fn look(store: &Admin, before: &ResourceView) -> Result<ResourceView, Failure> {
    let view = store.read(before.resource.as_str()).await?;
    view.ok_or_else(|| Failure::new(format!("the store has forgotten `{}`", before.resource)))
}
