//! Claims and releases: the two rules about tickets.
//!
//! Both work on a `draft` of the resource. `reap` frees the tickets of dead owners, `grant` gives a ticket or a place
//! in the queue, `turn` says whose turn it is, `wake` tells waiters and owners. Leases do not belong here, except as a
//! reason to free a ticket.

mod draft;
mod grant;
mod reap;
mod turn;
mod wake;

use alloc::collections::BTreeSet;
use alloc::vec;

use self::draft::Draft;
pub(super) use self::reap::look_keys;
pub(super) use self::turn::{SOONEST, waiting};
pub(super) use self::wake::wake;
use super::change::{Change, Decision};
use super::keys::{Key, Version, Window};
use super::records::{Lease, Resource, SetBy, Time};
use super::view::View;
use crate::message::{Claimed, LeaseId, Leave, Leaving, Released, Want};
use crate::planted::Bug;

/// The result of a claim or a release of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome<T> {
    Said(T),
    /// The worker's own lease is dead.
    Gone,
}

/// The worker that sends the request.
struct Caller<'a> {
    id: LeaseId,
    lease: &'a Lease,
    end: Time,
}

/// Gives the worker a ticket of the resource, or a place in its queue.
pub(super) fn claim(view: View<'_>, id: LeaseId, want: &Want) -> Decision<Outcome<Claimed>> {
    let caller = match caller(&view, id) {
        Ok(caller) => caller,
        Err(decision) => return decision,
    };
    let mut draft = match Draft::begin(view, &want.resource) {
        Ok(Some(draft)) => draft,
        Ok(None) => Draft::new(view, want, &caller),
        Err(wanted) => return Decision::Read(wanted.0),
    };
    draft.resize(want, &caller);
    if let Err(decision) = draft.reap(id) {
        return decision;
    }
    if draft.lowered {
        // The wishes are written to the resource first, then their owners are told.
        return Decision::First(vec![draft.change(&caller)]);
    }
    let knocks = draft.knocks();
    if !knocks.is_empty() {
        return Decision::First(knocks);
    }
    let decision = draft.grant_or_queue(&caller, want.priority);
    decision.map(Outcome::Said)
}

/// Gives the worker's ticket and its place in the queue up. After a step-down the worker queues again at the tail.
/// `in_doubt` are the versions that commits of this worker expect whose outcome is unknown.
pub(super) fn release(
    view: View<'_>,
    id: LeaseId,
    leave: &Leave,
    in_doubt: &BTreeSet<Version>,
) -> Decision<Outcome<Released>> {
    let name = &leave.resource;
    let Some((record, resource)) = view.resource(name) else {
        return Decision::Read([Key::Resource(name.clone())].into());
    };
    let again = leave.how == Leaving::SteppedDown;
    let part = resource.is_some_and(|resource| resource.owner_with(id).is_some() || resource.waits(id));
    if !part && !view.is_fresh(record) {
        return Decision::Read([Key::Resource(name.clone())].into());
    }
    let doubtful = in_doubt.contains(&record.version) && !view.planted.has(Bug::LeaveInDoubt);
    if !part && !again {
        if !doubtful {
            return Decision::Say(Outcome::Said(Released::Free));
        }
        // A commit that is still under way expects this very version. A new version keeps it out.
        let unchanged = resource.cloned().unwrap_or_else(|| unclaimed(id));
        let change = Change::of(Key::Resource(name.clone()), record.version, unchanged);
        return Decision::commit(
            Change { essential: true, urgent: true, ..change },
            Outcome::Said(Released::Free),
        );
    }
    let caller = match caller(&view, id) {
        Ok(caller) => caller,
        Err(decision) => return decision,
    };
    let resource = resource.cloned().unwrap_or_else(|| unclaimed(id));
    let mut draft = Draft::of(view, name, record.version, resource);
    draft.give_up(&caller, leave.how);
    if again {
        draft.queue_again(&caller).map(|claimed| Outcome::Said(Released::Again(claimed)))
    } else {
        let change = draft.change(&caller);
        let change = Change { essential: true, urgent: true, window: Window::default(), ..change };
        Decision::commit(change, Outcome::Said(Released::Free))
    }
}

/// A resource that is written only to have a version. The first claim sets K.
pub(super) fn unclaimed(id: LeaseId) -> Resource {
    Resource::new(1, SetBy { opened: Some(crate::moment::StoreTime::from_micros(0)), lease: id })
}

/// The lease of the worker that sends the request, or what to do first.
fn caller<'a, T>(view: &View<'a>, id: LeaseId) -> Result<Caller<'a>, Decision<Outcome<T>>> {
    let key = Key::Lease(id);
    let Some(record) = view.get(&key) else { return Err(Decision::Read([key].into())) };
    match record.lease() {
        Some(lease) if lease.ended.is_none() => Ok(Caller { id, lease, end: view.own_end(id) }),
        _ if view.is_fresh(record) => Err(Decision::Say(Outcome::Gone)),
        _ => Err(Decision::Read([key].into())),
    }
}
