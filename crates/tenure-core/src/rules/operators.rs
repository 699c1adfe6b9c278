//! What operators ask for: a gentle hand-over, or the ticket at once.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::change::{Change, Decision, Event};
use super::keys::Key;
use super::leases::rewritten;
use super::records::{Owner, Record, Resource, notify};
use super::tickets::wake;
use super::view::{Standing, View, Wanted};
use crate::message::StepDownReply;
use crate::message::{LeaseId, Token, Wish};
use crate::names::{Label, ResourceName};
use crate::planted::Bug;
use crate::shown::HistoryEvent;

/// The wish that the ownership under `token` be handed over gently, to `successor` if named. Of two waiters with one
/// label the earlier is meant.
pub(super) fn ask(
    view: View<'_>,
    name: &ResourceName,
    token: Token,
    successor: Option<&Label>,
) -> Decision<StepDownReply> {
    let Present { record, mut resource, owner } = match present(view, name, token) {
        Ok(present) => present,
        Err(decision) => return decision,
    };
    if let Some(label) = successor {
        let waiters: Vec<LeaseId> = resource.queue.iter().map(|waiter| waiter.lease).collect();
        if let Some(wanted) = unread(&view, waiters.iter().copied()) {
            return Decision::Read(wanted);
        }
        let named = waiters.into_iter().find(|lease| {
            matches!(view.standing(*lease), Some(Standing::Alive(_)))
                && view.lease(*lease).is_some_and(|(_, lease)| lease.label == *label)
        });
        let Some(named) = named else { return Decision::Say(StepDownReply::NotWaiting) };
        let waiter = resource.queue.iter().find(|waiter| waiter.lease == named).cloned();
        if let Some(waiter) = waiter {
            resource.join(named, waiter.priority, resource.arrivals.saturating_add(1), waiter.step);
        }
    }
    if let Some(owner) = resource.owners.iter_mut().find(|owner| owner.grant.token == token) {
        owner.wish = Some(owner.wish.map_or(Wish::Asked, |wish| wish.max(Wish::Asked)));
    }
    let change = Change::of(Key::Resource(name.clone()), record.version, resource);
    // The wish is written to the resource first. Should this stop in the middle, any worker that looks tells the owner.
    Decision::commit(
        with_notice(view, change, name, &owner, Wish::Asked, Order::NoticeLast),
        StepDownReply::Done,
    )
}

/// Takes the ownership under `token` away at once. Its worker learns of it with the next renewal; until then only the
/// token protects.
pub(super) fn evict(view: View<'_>, name: &ResourceName, token: Token) -> Decision<StepDownReply> {
    let Present { record, mut resource, owner } = match present(view, name, token) {
        Ok(present) => present,
        Err(decision) => return decision,
    };
    let Some((_, lease)) = view.lease(owner.lease) else {
        return Decision::Say(StepDownReply::OtherOwners(Vec::new()));
    };
    resource.vacate(token, None);
    let (worker, grant) = (lease.label.clone(), owner.grant);
    let ending = Event { at: None, resource: name.clone(), worker, grant, what: HistoryEvent::Evicted };
    let signals = wake(&view, name, &resource, None);
    let change = Change::of(Key::Resource(name.clone()), record.version, resource);
    let change = Change { history: alloc::vec![ending], signals, ..change };
    // The notice is written first: an owner that still finds itself in the resource obeys it all the same.
    let order = match view.planted.has(Bug::SeatBeforeNotice) {
        true => Order::NoticeLast,
        false => Order::NoticeFirst,
    };
    Decision::commit(with_notice(view, change, name, &owner, Wish::Evicted, order), StepDownReply::Done)
}

struct Present<'a> {
    record: &'a Record,
    resource: Resource,
    owner: Owner,
}

/// The ownership under `token`, or the answer that another worker owns instead. An ownership is over when its lease has
/// ended.
fn present<'a>(
    view: View<'a>,
    name: &ResourceName,
    token: Token,
) -> Result<Present<'a>, Decision<StepDownReply>> {
    let key = Key::Resource(name.clone());
    let Some((record, resource)) = view.resource(name).filter(|(record, _)| view.is_fresh(record)) else {
        return Err(Decision::Read([key].into()));
    };
    let Some(resource) = resource else { return Err(Decision::Say(StepDownReply::OtherOwners(Vec::new()))) };
    if let Some(wanted) = unread(&view, resource.owners.iter().map(|owner| owner.lease)) {
        return Err(Decision::Read(wanted));
    }
    let stands =
        |owner: &&Owner| !matches!(view.standing(owner.lease), Some(Standing::Ended(_) | Standing::Missing));
    let owners: Vec<&Owner> = resource.owners.iter().filter(stands).collect();
    match owners.iter().find(|owner| owner.grant.token == token) {
        Some(owner) => Ok(Present { record, resource: resource.clone(), owner: (*owner).clone() }),
        None => {
            let tokens = owners.iter().map(|owner| owner.grant.token).collect();
            Err(Decision::Say(StepDownReply::OtherOwners(tokens)))
        }
    }
}

fn unread(view: &View<'_>, leases: impl Iterator<Item = LeaseId>) -> Option<BTreeSet<Key>> {
    let mut wanted = Wanted::default();
    leases.for_each(|lease| wanted.unless_fresh(view, Key::Lease(lease)));
    (!wanted.is_empty()).then_some(wanted.0)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    NoticeFirst,
    NoticeLast,
}

/// The same change, and the owner is told in the same step.
fn with_notice(
    view: View<'_>,
    change: Change,
    name: &ResourceName,
    owner: &Owner,
    wish: Wish,
    order: Order,
) -> Change {
    let Some((record, lease)) = view.lease(owner.lease) else { return change };
    let mut told = lease.clone();
    notify(&mut told, name, owner.grant.token, wish);
    let notice = rewritten(&view, record, owner.lease, told, name);
    let (first, last) = match order {
        Order::NoticeFirst => (notice, change),
        Order::NoticeLast => (change, notice),
    };
    Change {
        expect: first.expect.into_iter().chain(last.expect).collect(),
        put: first.put.into_iter().chain(last.put).collect(),
        history: first.history.into_iter().chain(last.history).collect(),
        signals: first.signals.into_iter().chain(last.signals).collect(),
        ..Change::default()
    }
}
