//! What operators ask for: a gentle hand-over, or the ticket at once.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::change::{Change, Decision, Event};
use super::keys::Key;
use super::leases::rewritten;
use super::records::{Record, Resource, Seat, notify};
use super::tickets::wake;
use super::view::{Standing, View, Wanted};
use crate::message::Asked;
use crate::message::{LeaseId, Token, Wish};
use crate::names::{Label, ResourceName};
use crate::planted::Bug;
use crate::shown::Happened;

/// The wish that the ownership under `token` be handed over gently, to `successor` if named. Of two waiters with one
/// label the earlier is meant.
pub(super) fn ask(
    view: View<'_>,
    name: &ResourceName,
    token: Token,
    successor: Option<&Label>,
) -> Decision<Asked> {
    let Present { record, mut resource, seat } = match present(view, name, token) {
        Ok(present) => present,
        Err(decision) => return decision,
    };
    if let Some(label) = successor {
        let waiters: Vec<LeaseId> = resource.queue.iter().map(|place| place.lease).collect();
        if let Some(wanted) = unread(&view, waiters.iter().copied()) {
            return Decision::Read(wanted);
        }
        let named = waiters.into_iter().find(|lease| {
            matches!(view.standing(*lease), Some(Standing::Alive(_)))
                && view.lease(*lease).is_some_and(|(_, lease)| lease.label == *label)
        });
        let Some(named) = named else { return Decision::Say(Asked::NotWaiting) };
        let place = resource.queue.iter().find(|place| place.lease == named).cloned();
        if let Some(place) = place {
            resource.join(named, place.priority, resource.arrivals.saturating_add(1), place.step);
        }
    }
    if let Some(seat) = resource.seats.iter_mut().find(|seat| seat.grant.token == token) {
        seat.wish = Some(seat.wish.map_or(Wish::Asked, |wish| wish.max(Wish::Asked)));
    }
    let change = Change::of(Key::Resource(name.clone()), record.version, resource);
    // The wish stands on the seat first: whoever looks tells the owner, should this stop in the middle.
    Decision::commit(with_notice(view, change, name, &seat, Wish::Asked, Order::NoticeLast), Asked::Done)
}

/// Takes the ownership under `token` away at once. Its worker learns of it with the next renewal; until then only the
/// token protects.
pub(super) fn evict(view: View<'_>, name: &ResourceName, token: Token) -> Decision<Asked> {
    let Present { record, mut resource, seat } = match present(view, name, token) {
        Ok(present) => present,
        Err(decision) => return decision,
    };
    let Some((_, lease)) = view.lease(seat.lease) else {
        return Decision::Say(Asked::OtherOwners(Vec::new()));
    };
    resource.vacate(token, None);
    let (worker, grant) = (lease.label.clone(), seat.grant);
    let ending = Event { at: None, resource: name.clone(), worker, grant, what: Happened::Evicted };
    let signals = wake(&view, name, &resource, None);
    let change = Change::of(Key::Resource(name.clone()), record.version, resource);
    let change = Change { history: alloc::vec![ending], signals, ..change };
    // The notice stands first: an owner that looks while its seat is still there obeys all the same.
    let order = match view.planted.has(Bug::SeatBeforeNotice) {
        true => Order::NoticeLast,
        false => Order::NoticeFirst,
    };
    Decision::commit(with_notice(view, change, name, &seat, Wish::Evicted, order), Asked::Done)
}

struct Present<'a> {
    record: &'a Record,
    resource: Resource,
    seat: Seat,
}

/// The ownership under `token`, or who owns instead. One whose lease has ended is over.
fn present<'a>(view: View<'a>, name: &ResourceName, token: Token) -> Result<Present<'a>, Decision<Asked>> {
    let key = Key::Resource(name.clone());
    let Some((record, resource)) = view.resource(name).filter(|(record, _)| view.is_fresh(record)) else {
        return Err(Decision::Read([key].into()));
    };
    let Some(resource) = resource else { return Err(Decision::Say(Asked::OtherOwners(Vec::new()))) };
    if let Some(wanted) = unread(&view, resource.seats.iter().map(|seat| seat.lease)) {
        return Err(Decision::Read(wanted));
    }
    let stands =
        |seat: &&Seat| !matches!(view.standing(seat.lease), Some(Standing::Ended(_) | Standing::Missing));
    let seats: Vec<&Seat> = resource.seats.iter().filter(stands).collect();
    match seats.iter().find(|seat| seat.grant.token == token) {
        Some(seat) => Ok(Present { record, resource: resource.clone(), seat: (*seat).clone() }),
        None => {
            let tokens = seats.iter().map(|seat| seat.grant.token).collect();
            Err(Decision::Say(Asked::OtherOwners(tokens)))
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
    seat: &Seat,
    wish: Wish,
    order: Order,
) -> Change {
    let Some((record, lease)) = view.lease(seat.lease) else { return change };
    let mut told = lease.clone();
    notify(&mut told, name, seat.grant.token, wish);
    let notice = rewritten(&view, record, seat.lease, told, name);
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
