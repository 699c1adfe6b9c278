//! What may become of a resource in one commit, said a second time: not by the rules, and by nothing that they use.

use std::collections::BTreeSet;

use tenure_core::rules::{Event, MOST_WAITERS, Owner, Resource, Waiter};
use tenure_core::{HistoryEvent, LeaseId, Ticket};

/// Which promise this change of a resource breaks, and how. The history is judged only where it is written together
/// with the records.
pub(crate) fn mistake(
    before: Option<&Resource>,
    after: &Resource,
    history: Option<&[Event]>,
) -> Option<(&'static str, String)> {
    let nothing = Resource::new(after.tickets, after.set_by);
    let before = before.unwrap_or(&nothing);
    let in_history = || history.and_then(|history| told(before, after, history));
    let owners = owners(before, after).map(|what| ("S2", what));
    let queue = || queue(before, after).map(|what| ("L3", what));
    let broken = owners.or_else(queue).or_else(|| in_history().map(|what| ("history", what)));
    broken.map(|(promise, what)| (promise, format!("{what}: {before:?} -> {after:?}")))
}

/// Numbers only grow. Whoever keeps a ticket keeps it as it is; whoever gets one gets a free one and the next term.
fn owners(before: &Resource, after: &Resource) -> Option<&'static str> {
    let numbers = |resource: &Resource| (resource.term, resource.token, resource.arrivals, resource.frees);
    let (old, new) = (numbers(before), numbers(after));
    if new.0 < old.0 || new.1 < old.1 || new.2 < old.2 || new.3 < old.3 {
        return Some("a number falls");
    }
    let tickets: BTreeSet<Ticket> = after.owners.iter().map(|owner| owner.grant.ticket).collect();
    let leases: BTreeSet<LeaseId> = after.owners.iter().map(|owner| owner.lease).collect();
    if tickets.len() < after.owners.len() || leases.len() < after.owners.len() {
        return Some("two owners have one ticket, or one has two");
    }
    if added(before, after).count() as u64 != after.term.0 - before.term.0 {
        return Some("there are not as many new terms as new owners");
    }
    for owner in added(before, after) {
        if owner.grant.ticket.0 >= after.tickets {
            return Some("a ticket is granted that there is not");
        }
        if owner.grant.term <= before.term
            || owner.grant.token <= before.token
            || owner.grant.token > after.token
        {
            return Some("a new owner has an old term or token");
        }
        if owner.wish.is_some() {
            return Some("a new owner is asked to leave");
        }
    }
    if after.owners.len() > before.owners.len().max(after.tickets as usize) {
        return Some("there are more owners than tickets");
    }
    if removed(before, after).next().is_some() && after.frees == before.frees {
        return Some("a ticket is freed, and nobody counts it");
    }
    None
}

/// Those who go on waiting do so in the same order, and nobody who owns a ticket waits.
fn queue(before: &Resource, after: &Resource) -> Option<&'static str> {
    let leases: BTreeSet<LeaseId> = after.queue.iter().map(|waiter| waiter.lease).collect();
    if leases.len() < after.queue.len() {
        return Some("somebody waits twice");
    }
    if after.owners.iter().any(|owner| leases.contains(&owner.lease)) {
        return Some("an owner waits");
    }
    let rank =
        |waiter: &Waiter| (u64::MAX - waiter.named, i64::MAX - i64::from(waiter.priority), waiter.arrival);
    if !after.queue.is_sorted_by_key(rank) {
        return Some("the queue is not in order");
    }
    if after.queue.len() > before.queue.len().max(MOST_WAITERS + after.tickets as usize) {
        return Some("the queue is too long");
    }
    let of =
        |resource: &'_ Resource, lease| resource.queue.iter().find(|waiter| waiter.lease == lease).cloned();
    for waiter in &after.queue {
        match of(before, waiter.lease) {
            Some(known) if known.arrival != waiter.arrival && waiter.arrival <= before.arrivals => {
                return Some("somebody has moved in the queue");
            }
            None if waiter.arrival <= before.arrivals || waiter.arrival > after.arrivals => {
                return Some("a newcomer has an old place");
            }
            _ => {}
        }
    }
    None
}

/// The history says of each who came and went just that.
fn told(before: &Resource, after: &Resource, history: &[Event]) -> Option<&'static str> {
    let of = |owner: &Owner, granted: bool| {
        let about =
            |event: &&Event| event.grant == owner.grant && (event.what == HistoryEvent::Granted) == granted;
        history.iter().filter(about).count()
    };
    if added(before, after).any(|owner| of(owner, true) != 1) {
        return Some("a grant is not in the history, or twice");
    }
    if removed(before, after).any(|owner| of(owner, false) != 1) {
        return Some("an end is not in the history, or twice");
    }
    let changed = added(before, after).count() + removed(before, after).count();
    (history.len() != changed).then_some("the history tells what has not happened")
}

fn added<'a>(before: &'a Resource, after: &'a Resource) -> impl Iterator<Item = &'a Owner> {
    after.owners.iter().filter(|owner| !before.owners.iter().any(|known| is_same(known, owner)))
}

fn removed<'a>(before: &'a Resource, after: &'a Resource) -> impl Iterator<Item = &'a Owner> {
    before.owners.iter().filter(|owner| !after.owners.iter().any(|known| is_same(known, owner)))
}

fn is_same(one: &Owner, other: &Owner) -> bool {
    (one.lease, one.grant) == (other.lease, other.grant)
}
