//! `tenure step-down`: asks an owner to hand over, waits for the outcome, and reports it.

use std::time::Duration;

use tenure::admin::{Admin, OwnerView, ResourceView, StepDownReply};
use tenure::types::{Grant, Label};
use tokio::time::{Instant, sleep, timeout};

use crate::exit::{Exit, Failure};
use crate::json;
use crate::open;
use crate::output::{clean, grants_nothing, say, say_with_hint, span};
use crate::settings::{self, Removal};
use crate::view::Handed;

/// How often to look at the outcome.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a free ticket may stay free while workers wait: ten steps of a waiting worker are one second, and a store may
/// answer slowly.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn step_down(settings: settings::StepDown) -> Result<Exit, Failure> {
    let settings::StepDown { resource, ticket, how, wait, look } = settings;
    let store = look.store.require().await?;
    let before = open::known(&store, &resource).await?;
    let owner = meant(&before, ticket)?;
    let (name, worker, token) = (resource.as_str(), owner.worker.as_str(), owner.grant.token.0);
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
    let term = owner.grant.term.0;
    match how {
        Removal::Force => say_with_hint(
            format!("took `{name}` (term {term}) away from `{worker}`"),
            Some(
                "until it learns of that, at its next renewal, it may go on working: only the token protects",
            ),
        ),
        Removal::Ask { .. } => {
            say(format!("asked `{worker}` to hand over `{name}` (term {term}); waiting until it has"));
        }
    }
    let began = Instant::now();
    let watched = timeout(wait.unwrap_or(Duration::MAX), outcome(&store, &before, owner)).await;
    let (handed, took) = (watched.ok().transpose()?, began.elapsed());
    if handed.is_none() {
        let waited = span(wait.unwrap_or_default());
        say_with_hint(
            format!("`{worker}` has not handed over `{name}` within {waited}; it stays asked"),
            Some("`tenure step-down --force` takes it away at once; then only the token protects"),
        );
    }
    let json = || json::step_down(&resource, owner, handed.as_ref(), took);
    let exit =
        look.answer(json, |_| handed.as_ref().map(|handed| told(name, handed, took)).unwrap_or_default())?;
    Ok(if handed.is_some() { exit } else { Exit::NOT_ELECTED })
}

/// The outcome, for people.
fn told(resource: &str, handed: &Handed, took: Duration) -> String {
    let resource = clean(resource);
    let how = |owner: &OwnerView| {
        let Grant { ticket, term, token } = owner.grant;
        format!("(ticket {}, term {}, token {}), after {}\n", ticket.0, term.0, token.0, span(took))
    };
    match handed {
        Handed::To(next) => format!("`{}` owns `{resource}` now {}", clean(next.worker.as_str()), how(next)),
        Handed::Back(same) => {
            let worker = clean(same.worker.as_str());
            format!("nobody else wanted `{resource}`: `{worker}` owns it again {}", how(same))
        }
        Handed::ToNobody { waiting: 0, .. } => format!("nobody owns `{resource}` now, and nobody wants it\n"),
        Handed::ToNobody { waiting, withheld } => {
            let why = withheld.map(|left| format!(": {}", grants_nothing(left))).unwrap_or_default();
            format!("nobody owns `{resource}` now; {waiting} wait for it, and have not taken it yet{why}\n")
        }
    }
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
                0 => "nobody waits for it".to_owned(),
                count => format!("{count} wait for it"),
            };
            Err(Failure::new(format!("nobody owns `{resource}` now; {waiting}")))
        }
        (None, [only]) => Ok(only),
        (None, _) => Err(Failure::new(format!("`{resource}` has {} owners", view.owners.len()))
            .hint(format!("name a ticket with --ticket: {}", owners()))),
        (Some(ticket), all) => all.iter().find(|owner| owner.grant.ticket.0 == ticket).ok_or_else(|| {
            Failure::new(format!("nobody owns ticket {ticket} of `{resource}`"))
                .hint(format!("these tickets are owned: {}", owners()))
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
            all => format!("these workers wait: `{}`", all.join("`, `")),
        },
    )
}

/// Waits until the owner has gone and another worker owns the ticket, or nobody wants it.
async fn outcome(store: &Admin, before: &ResourceView, owner: &OwnerView) -> Result<Handed, Failure> {
    let mut free_since = None;
    let mut present = look(store, before).await?;
    loop {
        if present.owners.iter().all(|one| one.grant.token != owner.grant.token) {
            let newest = present.owners.iter().max_by_key(|one| one.grant.token);
            if let Some(next) = newest.filter(|next| is_new(before, next)) {
                // With another waiter of the same label it is more likely that one.
                let is_other = before.waiters.iter().any(|waiter| waiter.worker == owner.worker);
                let is_same = next.worker == owner.worker && !is_other;
                return Ok(if is_same { Handed::Back(next.clone()) } else { Handed::To(next.clone()) });
            }
            let free_since = *free_since.get_or_insert_with(Instant::now);
            // One look is not enough: the owner itself queues again a moment later.
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

/// Whether this ownership began after `before` was read.
fn is_new(before: &ResourceView, owner: &OwnerView) -> bool {
    before.owners.iter().all(|one| one.grant.token < owner.grant.token)
}

async fn look(store: &Admin, before: &ResourceView) -> Result<ResourceView, Failure> {
    let view = store.read(before.resource.as_str()).await?;
    view.ok_or_else(|| Failure::new(format!("the store has forgotten `{}`", before.resource)))
}
