//! What may become of a resource in one commit, said a second time: not by the rules, and by nothing that they use.

use std::collections::BTreeSet;

use tenure_core::rules::{Event, MOST_WAITERS, Place, Resource, Seat};
use tenure_core::{Happened, LeaseId, Ticket};

/// Which promise this change of a resource breaks, and how. The history is judged only where it is written together with
/// the records.
pub(crate) fn mistake(
    before: Option<&Resource>,
    after: &Resource,
    history: Option<&[Event]>,
) -> Option<(&'static str, String)> {
    let nothing = Resource::new(after.tickets, after.set_by);
    let before = before.unwrap_or(&nothing);
    let in_history = || history.and_then(|history| told(before, after, history));
    let seats = seats(before, after).map(|what| ("S2", what));
    let queue = || queue(before, after).map(|what| ("L3", what));
    let broken = seats.or_else(queue).or_else(|| in_history().map(|what| ("history", what)));
    broken.map(|(promise, what)| (promise, format!("{what}: {before:?} -> {after:?}")))
}

/// Numbers only grow. Whoever keeps a ticket keeps it as it is; whoever gets one gets a free one and the next term.
fn seats(before: &Resource, after: &Resource) -> Option<&'static str> {
    let numbers = |resource: &Resource| (resource.term, resource.token, resource.arrivals, resource.frees);
    let (old, new) = (numbers(before), numbers(after));
    if new.0 < old.0 || new.1 < old.1 || new.2 < old.2 || new.3 < old.3 {
        return Some("a number falls");
    }
    let tickets: BTreeSet<Ticket> = after.seats.iter().map(|seat| seat.grant.ticket).collect();
    let leases: BTreeSet<LeaseId> = after.seats.iter().map(|seat| seat.lease).collect();
    if tickets.len() < after.seats.len() || leases.len() < after.seats.len() {
        return Some("two owners have one ticket, or one has two");
    }
    if added(before, after).count() as u64 != after.term.0 - before.term.0 {
        return Some("there are not as many new terms as new owners");
    }
    for seat in added(before, after) {
        if seat.grant.ticket.0 >= after.tickets {
            return Some("a ticket is granted that there is not");
        }
        if seat.grant.term <= before.term
            || seat.grant.token <= before.token
            || seat.grant.token > after.token
        {
            return Some("a new owner has an old term or token");
        }
        if seat.wish.is_some() {
            return Some("a new owner is asked to leave");
        }
    }
    if after.seats.len() > before.seats.len().max(after.tickets as usize) {
        return Some("there are more owners than tickets");
    }
    if removed(before, after).next().is_some() && after.frees == before.frees {
        return Some("a ticket is freed, and nobody counts it");
    }
    None
}

/// Those who go on waiting do so in the same order, and nobody who owns a ticket waits.
fn queue(before: &Resource, after: &Resource) -> Option<&'static str> {
    let leases: BTreeSet<LeaseId> = after.queue.iter().map(|place| place.lease).collect();
    if leases.len() < after.queue.len() {
        return Some("somebody waits twice");
    }
    if after.seats.iter().any(|seat| leases.contains(&seat.lease)) {
        return Some("an owner waits");
    }
    let rank = |place: &Place| (u64::MAX - place.named, i64::MAX - i64::from(place.priority), place.arrival);
    if !after.queue.is_sorted_by_key(rank) {
        return Some("the queue is not in order");
    }
    if after.queue.len() > before.queue.len().max(MOST_WAITERS + after.tickets as usize) {
        return Some("the queue is too long");
    }
    let of =
        |resource: &'_ Resource, lease| resource.queue.iter().find(|place| place.lease == lease).cloned();
    for place in &after.queue {
        match of(before, place.lease) {
            Some(known) if known.arrival != place.arrival && place.arrival <= before.arrivals => {
                return Some("somebody has moved in the queue");
            }
            None if place.arrival <= before.arrivals || place.arrival > after.arrivals => {
                return Some("a newcomer has an old place");
            }
            _ => {}
        }
    }
    None
}

/// The history says of each who came and went just that.
fn told(before: &Resource, after: &Resource, history: &[Event]) -> Option<&'static str> {
    let of = |seat: &Seat, granted: bool| {
        let about =
            |event: &&Event| event.grant == seat.grant && (event.what == Happened::Granted) == granted;
        history.iter().filter(about).count()
    };
    if added(before, after).any(|seat| of(seat, true) != 1) {
        return Some("a grant is not in the history, or twice");
    }
    if removed(before, after).any(|seat| of(seat, false) != 1) {
        return Some("an end is not in the history, or twice");
    }
    let changed = added(before, after).count() + removed(before, after).count();
    (history.len() != changed).then_some("the history tells what has not happened")
}

fn added<'a>(before: &'a Resource, after: &'a Resource) -> impl Iterator<Item = &'a Seat> {
    after.seats.iter().filter(|seat| !before.seats.iter().any(|known| is_same(known, seat)))
}

fn removed<'a>(before: &'a Resource, after: &'a Resource) -> impl Iterator<Item = &'a Seat> {
    before.seats.iter().filter(|seat| !after.seats.iter().any(|known| is_same(known, seat)))
}

fn is_same(one: &Seat, other: &Seat) -> bool {
    (one.lease, one.grant) == (other.lease, other.grant)
}
