//! A resource while a request is decided: the record as the request will write it, and what follows from that.
//!
//! Who gets a ticket is decided elsewhere: see `grant` and `turn`.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::Caller;
use super::reap::look_keys;
use super::wake::wake;
use crate::message::{Claimed, Grant, LeaseId, Leaving, Term, Token, Want, Wish};
use crate::names::{Label, ResourceName};
use crate::planted::Bug;
use crate::rules::change::{Change, Decision, Event};
use crate::rules::keys::{Key, Version, Window};
use crate::rules::records::{Resource, SetBy, Time};
use crate::rules::view::{View, Wanted};
use crate::shown::HistoryEvent;

/// How many dead waiters one change removes.
const DROPPED: usize = 8;

/// A resource while a request is decided.
pub(super) struct Draft<'a> {
    pub(super) view: View<'a>,
    pub(super) name: &'a ResourceName,
    pub(super) version: Version,
    pub(super) resource: Resource,
    /// How long the tickets that are free now have been free.
    pub(super) freed_for: Duration,
    pub(super) history: Vec<Event>,
    /// Something has changed that must be written even if nothing is granted.
    pub(super) changed: bool,
    /// A later lease wants the same K: that is written, unless the worker finds the queue full.
    pub(super) confirmed: bool,
    /// A ticket became free, or K was raised: waiters are woken.
    pub(super) freed: bool,
    /// K was lowered below a ticket that is held.
    pub(super) lowered: bool,
    /// Waiters that are known to be dead.
    pub(super) dead: BTreeSet<LeaseId>,
}

impl<'a> Draft<'a> {
    /// The resource as it was read; nothing if it does not exist.
    pub(super) fn begin(view: View<'a>, name: &'a ResourceName) -> Result<Option<Self>, Wanted> {
        let Some((record, resource)) = view.resource(name) else {
            return Err(Wanted([Key::Resource(name.clone())].into()));
        };
        Ok(resource.map(|resource| Self::of(view, name, record.version, resource.clone())))
    }

    pub(super) fn new(view: View<'a>, want: &'a Want, caller: &Caller<'_>) -> Self {
        let set_by = SetBy { opened: caller.lease.opened, lease: caller.id };
        let version = view.resource(&want.resource).map_or(Version::NONE, |(record, _)| record.version);
        let resource = Resource::new(want.tickets.count(), set_by);
        Self { changed: true, ..Self::of(view, &want.resource, version, resource) }
    }

    pub(super) fn of(view: View<'a>, name: &'a ResourceName, version: Version, resource: Resource) -> Self {
        let freed_for = match view.resource(name) {
            Some((record, Some(known))) => view.ago(record, known.freed, record.seen.marked_at),
            _ => Duration::MAX,
        };
        Self {
            view,
            name,
            version,
            resource,
            freed_for,
            history: Vec::new(),
            changed: false,
            confirmed: false,
            freed: false,
            lowered: false,
            dead: BTreeSet::new(),
        }
    }

    /// Changes K, if this worker's lease was opened after the lease that set it. If K is lowered, the owners of the
    /// highest tickets are asked to hand over.
    pub(super) fn resize(&mut self, want: &Want, caller: &Caller<'_>) {
        let set_by = SetBy { opened: caller.lease.opened, lease: caller.id };
        let before = self.resource.set_by;
        let resized = self.resource.tickets != want.tickets.count();
        let later = set_by.opened > before.opened;
        let may = later || (before.lease == caller.id && resized);
        if !may {
            return;
        }
        self.changed |= resized;
        self.confirmed = !resized;
        if want.tickets.count() > self.resource.tickets {
            // The new tickets are free from now on: the waiters at the head have their steps.
            (self.freed, self.freed_for, self.resource.freed) = (true, Duration::ZERO, None);
            self.resource.frees = self.resource.frees.saturating_add(1);
        }
        (self.resource.set_by, self.resource.tickets) = (set_by, want.tickets.count());
        for owner in &mut self.resource.owners {
            if owner.grant.ticket.0 >= want.tickets.count() {
                owner.wish = Some(owner.wish.map_or(Wish::Lowered, |wish| wish.max(Wish::Lowered)));
                self.lowered = true;
            } else if owner.wish == Some(Wish::Lowered) {
                owner.wish = None;
            }
        }
    }

    /// Takes the worker out of the queue, and frees its ticket.
    pub(super) fn give_up(&mut self, caller: &Caller<'_>, how: Leaving) {
        self.resource.leave_queue(caller.id);
        if let Some(owner) = self.resource.owner_with(caller.id).cloned() {
            self.resource.vacate(owner.grant.token, None);
            self.freed_for = Duration::ZERO;
            self.freed = true;
            self.note(None, caller.lease.label.clone(), owner.grant, how.into());
            if self.view.planted.has(Bug::TokenResetOnRelease) {
                (self.resource.term, self.resource.token) = (Term(0), Token(0));
            }
        }
    }

    pub(super) fn note(&mut self, at: Time, worker: Label, grant: Grant, what: HistoryEvent) {
        self.history.push(Event { at, resource: self.name.clone(), worker, grant, what });
    }

    /// Writes what has changed. If nothing has, answers at once, provided that all records were read for this request.
    pub(super) fn written_or_said(mut self, caller: &Caller<'_>, claimed: Claimed) -> Decision<Claimed> {
        if self.changed || self.confirmed {
            // Tickets that were found free are written as free: this worker does not take them.
            return Decision::commit(self.change(caller), claimed);
        }
        let mut wanted = Wanted::default();
        for key in look_keys(&self.view, caller.id, self.name) {
            wanted.unless_fresh(&self.view, key);
        }
        if !wanted.is_empty() {
            // All of them: those that were read before may be outdated by now.
            return Decision::Read(look_keys(&self.view, caller.id, self.name));
        }
        if !self.dead.is_empty() {
            // The next release would wake dead waiters in vain, so this worker removes them.
            let mut cleared = self.resource_as_known();
            let dead = |lease: &LeaseId| self.dead.contains(lease);
            cleared.queue.retain(|waiter| !dead(&waiter.lease));
            let cleared = Change::of(Key::Resource(self.name.clone()), self.version, cleared);
            return Decision::First(vec![cleared]);
        }
        Decision::Say(claimed)
    }

    /// The record as it was read, without what this request has made of it.
    pub(super) fn resource_as_known(&self) -> Resource {
        let known = self.view.resource(self.name).and_then(|(_, resource)| resource);
        known.cloned().unwrap_or_else(|| self.resource.clone())
    }

    /// The change that writes the draft.
    pub(super) fn change(&mut self, caller: &Caller<'_>) -> Change {
        let mut dropped = 0;
        let dead = core::mem::take(&mut self.dead);
        self.resource.queue.retain(|waiter| {
            let drop = dropped < DROPPED && dead.contains(&waiter.lease);
            dropped += usize::from(drop);
            !drop
        });
        self.dead = dead;
        let signals = match self.freed {
            true => wake(&self.view, self.name, &self.resource, Some(caller.id)),
            false => Vec::new(),
        };
        if self.view.planted.has(Bug::FreedRestamped) {
            self.resource.freed = None;
        }
        Change {
            history: core::mem::take(&mut self.history),
            signals,
            window: Window { from: None, until: caller.end },
            ..Change::of(Key::Resource(self.name.clone()), self.version, self.resource.clone())
        }
    }
}
