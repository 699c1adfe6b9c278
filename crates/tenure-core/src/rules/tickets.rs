//! Claims and releases: who gets a ticket, who waits, who is woken.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::change::{Change, Decision, Event, Signal};
use super::keys::{Key, Version, Window};
use super::leases;
use super::records::{Lease, Resource, Rest, Seat, SetBy, Time, is_told};
use super::view::{Standing, View, Wanted};
use crate::message::{
    Claimed, Grant, LeaseId, Leave, Leaving, Released, Term, Token, Waiting, Want, Why, Wish,
};
use crate::names::ResourceName;
use crate::planted::Bug;
use crate::shown::Happened;

/// The least that a later waiter leaves to each one before it.
const SHORTEST_STEP: Duration = Duration::from_millis(100);
/// However far back, nobody waits for more steps than this once a ticket is free.
const MOST_STEPS: u32 = 10;
/// How many dead waiters one change drops.
const DROPPED: usize = 8;
/// Up to this place, waiters look a step after the one before; the rest leave it for a ttl.
const WATCHFUL: usize = 8;
/// How many leases of owners one look reads.
const MOST_OWNERS: usize = 64;
/// How many owners are told who joins the queue.
const OWNERS_TOLD: usize = 4;
/// Nobody is told to look again sooner.
pub(super) const SOONEST: Duration = Duration::from_millis(1);
/// How many waiters a signal may go on to if nobody listens.
const ALTERNATIVES: usize = 8;

/// What a claim or a release of one resource comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome<T> {
    Said(T),
    /// The worker's own lease is dead.
    Gone,
}

/// How long a waiter with this ttl leaves a free ticket to the one before it.
pub(super) fn step(ttl: Duration) -> Duration {
    SHORTEST_STEP.max(ttl / 150)
}

/// Whose request it is.
struct Own<'a> {
    id: LeaseId,
    lease: &'a Lease,
    end: Time,
}

/// A resource while a request is decided.
struct Draft<'a> {
    view: View<'a>,
    name: &'a ResourceName,
    version: Version,
    resource: Resource,
    /// How long the tickets that are free now have been free.
    freed_for: Duration,
    history: Vec<Event>,
    /// Something has changed that is written even if nothing else is.
    changed: bool,
    /// A later lease wants the same K as the one before: noted, unless it gets no place.
    confirmed: bool,
    /// A ticket was found free, or K was raised: others may be woken.
    freed: bool,
    /// K was lowered below a ticket that is held.
    lowered: bool,
    /// Waiters that are known to be dead.
    dead: BTreeSet<LeaseId>,
}

/// A ticket of the resource, or a place in its queue.
pub(super) fn claim(view: View<'_>, id: LeaseId, want: &Want) -> Decision<Outcome<Claimed>> {
    let own = match own(&view, id) {
        Ok(own) => own,
        Err(decision) => return decision,
    };
    let mut draft = match Draft::begin(view, &want.resource) {
        Ok(Some(draft)) => draft,
        Ok(None) => Draft::new(view, want, &own),
        Err(wanted) => return Decision::Read(wanted.0),
    };
    draft.resize(want, &own);
    if let Err(decision) = draft.reap(id) {
        return decision;
    }
    if draft.lowered {
        // First the wishes stand on the seats, then their owners are told.
        return Decision::First(vec![draft.change(&own)]);
    }
    let knocks = draft.knocks();
    if !knocks.is_empty() {
        return Decision::First(knocks);
    }
    let decision = draft.grant_or_queue(&own, want.priority);
    decision.map(Outcome::Said)
}

/// As of this request the worker holds and wants nothing of the resource; or it queues again at the tail.
/// `in_doubt` are the versions that commits of this worker expect whose outcome is not known.
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
    let part = resource.is_some_and(|resource| resource.seat_of(id).is_some() || resource.waits(id));
    if !part && !view.is_fresh(record) {
        return Decision::Read([Key::Resource(name.clone())].into());
    }
    let doubtful = in_doubt.contains(&record.version) && !view.planted.has(Bug::LeaveInDoubt);
    if !part && !again {
        if !doubtful {
            return Decision::Say(Outcome::Said(Released::Free));
        }
        // A commit that is still under way expects this very version: written anew, it cannot be applied any more.
        let unchanged = resource.cloned().unwrap_or_else(|| nobodys(id));
        let change = Change::of(Key::Resource(name.clone()), record.version, unchanged);
        return Decision::commit(
            Change { essential: true, urgent: true, ..change },
            Outcome::Said(Released::Free),
        );
    }
    let own = match own(&view, id) {
        Ok(own) => own,
        Err(decision) => return decision,
    };
    let resource = resource.cloned().unwrap_or_else(|| nobodys(id));
    let mut draft = Draft::of(view, name, record.version, resource);
    draft.give_up(&own, leave.how);
    if again {
        draft.queue_again(&own).map(|claimed| Outcome::Said(Released::Again(claimed)))
    } else {
        let change = draft.change(&own);
        let change = Change { essential: true, urgent: true, window: Window::default(), ..change };
        Decision::commit(change, Outcome::Said(Released::Free))
    }
}

/// A resource that is written only so that it exists: the first claim sets K.
pub(super) fn nobodys(id: LeaseId) -> Resource {
    Resource::new(1, SetBy { opened: Some(crate::moment::StoreTime::from_micros(0)), lease: id })
}

/// The worker's own lease; what has to be done first if it is not known.
fn own<'a, T>(view: &View<'a>, id: LeaseId) -> Result<Own<'a>, Decision<Outcome<T>>> {
    let key = Key::Lease(id);
    let Some(record) = view.get(&key) else { return Err(Decision::Read([key].into())) };
    match record.lease() {
        Some(lease) if lease.ended.is_none() => Ok(Own { id, lease, end: view.own_end(id) }),
        _ if view.is_fresh(record) => Err(Decision::Say(Outcome::Gone)),
        _ => Err(Decision::Read([key].into())),
    }
}

/// What a look at the resource reads: itself, the leases of its owners, and of those waiters that matter.
pub(super) fn look_keys(view: &View<'_>, id: LeaseId, name: &ResourceName) -> BTreeSet<Key> {
    let mut keys: BTreeSet<Key> = [Key::Resource(name.clone())].into();
    if view.quarantine().is_some() {
        // It may be over for others, or have begun by a clock that went back since.
        keys.insert(Key::Meta);
    }
    if let Some((_, Some(resource))) = view.resource(name) {
        keys.extend(owners_to_read(view, resource).map(Key::Lease));
        keys.extend(waiters_before(resource, id).map(Key::Lease));
    }
    keys
}

/// Those owners whose leases end first; one that is not known may be the first.
fn owners_to_read<'a>(view: &View<'_>, resource: &'a Resource) -> impl Iterator<Item = LeaseId> + use<'a> {
    let mut owners: Vec<(bool, Duration, LeaseId)> = resource
        .seats
        .iter()
        .map(|seat| {
            let left = match view.standing(seat.lease) {
                Some(Standing::Alive(left)) => left,
                _ => Duration::ZERO,
            };
            (!view.has_fresh(&Key::Lease(seat.lease)), left, seat.lease)
        })
        .collect();
    if owners.len() > MOST_OWNERS {
        // Those that were read for this request already are the ones to look at.
        owners.sort();
        owners.truncate(MOST_OWNERS);
    }
    owners.into_iter().map(|(_, _, lease)| lease)
}

/// Those of the first few waiters that come before this one.
fn waiters_before(resource: &Resource, id: LeaseId) -> impl Iterator<Item = LeaseId> {
    let first = resource.queue.iter().take(resource.free() + WATCHFUL).map(|place| place.lease);
    first.take_while(move |lease| *lease != id)
}

impl<'a> Draft<'a> {
    /// The resource as it is known; nothing if it does not exist.
    fn begin(view: View<'a>, name: &'a ResourceName) -> Result<Option<Self>, Wanted> {
        let Some((record, resource)) = view.resource(name) else {
            return Err(Wanted([Key::Resource(name.clone())].into()));
        };
        Ok(resource.map(|resource| Self::of(view, name, record.version, resource.clone())))
    }

    fn new(view: View<'a>, want: &'a Want, own: &Own<'_>) -> Self {
        let set_by = SetBy { opened: own.lease.opened, lease: own.id };
        let version = view.resource(&want.resource).map_or(Version::NONE, |(record, _)| record.version);
        let resource = Resource::new(want.tickets.count(), set_by);
        Self { changed: true, ..Self::of(view, &want.resource, version, resource) }
    }

    fn of(view: View<'a>, name: &'a ResourceName, version: Version, resource: Resource) -> Self {
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

    /// Changes K, if this worker's lease was opened after that of whoever set it. After K was lowered the owners of the
    /// highest tickets are asked to hand over.
    fn resize(&mut self, want: &Want, own: &Own<'_>) {
        let set_by = SetBy { opened: own.lease.opened, lease: own.id };
        let before = self.resource.set_by;
        let resized = self.resource.tickets != want.tickets.count();
        let later = set_by.opened > before.opened;
        let may = later || (before.lease == own.id && resized);
        if !may {
            return;
        }
        self.changed |= resized;
        self.confirmed = !resized;
        if want.tickets.count() > self.resource.tickets {
            // The new tickets are free from now on: those who come first have their steps.
            (self.freed, self.freed_for, self.resource.freed) = (true, Duration::ZERO, None);
            self.resource.frees = self.resource.frees.saturating_add(1);
        }
        (self.resource.set_by, self.resource.tickets) = (set_by, want.tickets.count());
        for seat in &mut self.resource.seats {
            if seat.grant.ticket.0 >= want.tickets.count() {
                seat.wish = Some(seat.wish.map_or(Wish::Lowered, |wish| wish.max(Wish::Lowered)));
                self.lowered = true;
            } else if seat.wish == Some(Wish::Lowered) {
                seat.wish = None;
            }
        }
    }

    /// Frees the tickets of owners whose leases have ended; ends those that have run out first. Notes who among the
    /// waiters is dead.
    fn reap<T>(&mut self, id: LeaseId) -> Result<(), Decision<T>> {
        let view = self.view;
        let quarantined = view.quarantine().is_some_and(|left| !left.is_zero());
        let may_end = !quarantined || view.planted.has(Bug::EndedInQuarantine);
        let (mut wanted, mut first) = (Wanted::default(), Vec::new());
        let mut over: Vec<(Seat, super::records::Ended)> = Vec::new();
        let mut run_out = Vec::new();
        for lease in owners_to_read(&view, &self.resource).collect::<Vec<_>>() {
            let Some(seat) = self.resource.seat_of(lease).filter(|seat| seat.lease != id) else { continue };
            match view.standing(lease) {
                None => drop(wanted.0.insert(Key::Lease(lease))),
                Some(Standing::Ended(ended)) => over.push((seat.clone(), ended)),
                Some(Standing::RunOut(at)) if may_end => {
                    if view.planted.has(Bug::TakeBeforeEnd) || view.planted.has(Bug::BatchLeans) {
                        over.push((seat.clone(), super::view::run_out(at)));
                    }
                    run_out.push(lease);
                }
                Some(Standing::Missing) if !view.has_fresh(&Key::Lease(lease)) => {
                    wanted.0.insert(Key::Lease(lease));
                }
                Some(Standing::Missing) => first.extend(leases::adopt(&view, lease)),
                Some(Standing::Alive(_) | Standing::RunOut(_)) => {}
            }
        }
        if run_out.len() > 1 {
            // Most of them will have renewed since they were seen last.
            run_out.iter().for_each(|lease| wanted.unless_fresh(&view, Key::Lease(*lease)));
        }
        first.extend(run_out.into_iter().filter_map(|lease| leases::end_run_out(&view, lease)));
        for lease in waiters_before(&self.resource, id) {
            match view.standing(lease) {
                None => drop(wanted.0.insert(Key::Lease(lease))),
                Some(Standing::Ended(_)) => drop(self.dead.insert(lease)),
                Some(Standing::Alive(_)) => {}
                Some(Standing::RunOut(_)) if !may_end => {}
                Some(Standing::RunOut(_) | Standing::Missing) if view.has_fresh(&Key::Lease(lease)) => {
                    self.dead.insert(lease);
                }
                Some(Standing::RunOut(_) | Standing::Missing) => drop(wanted.0.insert(Key::Lease(lease))),
            }
        }
        if !wanted.is_empty() {
            return Err(Decision::Read(wanted.0));
        }
        let early = view.planted.has(Bug::TakeBeforeEnd) || view.planted.has(Bug::BatchLeans);
        if !first.is_empty() && !early {
            return Err(Decision::First(first));
        }
        self.vacate_ended(over);
        Ok(())
    }

    /// Frees the tickets of these owners, whose leases have ended.
    fn vacate_ended(&mut self, over: Vec<(Seat, super::records::Ended)>) {
        let view = self.view;
        for (seat, ended) in over {
            self.freed = true;
            let (worker, ended_for) = match view.lease(seat.lease) {
                Some((record, lease)) => {
                    (lease.label.clone(), view.ago(record, ended.at, record.seen.first_at))
                }
                None => continue,
            };
            self.freed_for = self.freed_for.min(ended_for);
            // Nobody takes a ticket beyond K, so nobody else would clear it away.
            self.changed |= seat.grant.ticket.0 >= self.resource.tickets;
            // A grant may come after the expiry by the store's clock, if the worker vouches for less.
            let at = ended.at.max(seat.since);
            // Absent is now, which is later than any end.
            let freed = self.resource.freed.map(|freed| at.map_or(freed, |at| freed.max(at)));
            self.resource.vacate(seat.grant.token, freed);
            self.note(at, worker, seat.grant, ended.why.into());
        }
    }

    fn note(&mut self, at: Time, worker: crate::names::Label, grant: Grant, what: Happened) {
        self.history.push(Event { at, resource: self.name.clone(), worker, grant, what });
    }

    /// Takes the worker out of the queue, and its ticket from it.
    fn give_up(&mut self, own: &Own<'_>, how: Leaving) {
        self.resource.leave_queue(own.id);
        if let Some(seat) = self.resource.seat_of(own.id).cloned() {
            self.resource.vacate(seat.grant.token, None);
            self.freed_for = Duration::ZERO;
            self.freed = true;
            self.note(None, own.lease.label.clone(), seat.grant, how.into());
            if self.view.planted.has(Bug::TokenResetOnRelease) {
                (self.resource.term, self.resource.token) = (Term(0), Token(0));
            }
        }
    }

    /// Grants what the worker holds already, or what it may take now; else queues it once, and says when to look
    /// again.
    fn grant_or_queue(mut self, own: &Own<'_>, priority: i32) -> Decision<Claimed> {
        let quarantine = match self.settle_quarantine() {
            Ok(quarantine) => quarantine,
            Err(decision) => return decision,
        };
        if let Some(seat) = self.resource.seat_of(own.id) {
            let claimed = match quarantine {
                None => Claimed::Granted(seat.grant),
                Some(left) => waiting(0, left, Why::Quarantine),
            };
            let meta = self.view.meta().map(|(meta, _)| (Key::Meta, meta.version));
            let meta = meta.filter(|_| !self.view.planted.has(Bug::FoundCounts));
            return self.written_or_said(own, claimed).only_if(meta);
        }
        let place = self.resource.queue.iter().position(|place| place.lease == own.id);
        let place = place.unwrap_or_else(|| self.place_of(priority));
        let ahead =
            self.resource.queue[..place].iter().filter(|place| !self.dead.contains(&place.lease)).count();
        let turn = self.turn(ahead, step(own.lease.ttl));
        if let (None, Turn::Now(from)) = (quarantine, turn)
            && let Some(decision) = self.grant(own, from)
        {
            return decision;
        }
        let later = self.later(own, ahead);
        let claimed = match (quarantine, turn) {
            (Some(left), _) => waiting(ahead, left.saturating_add(later), Why::Quarantine),
            (None, Turn::In(left)) => waiting(ahead, left, Why::Turn),
            (None, _) => waiting(ahead, self.first_to_end().saturating_add(later), Why::Taken),
        };
        if self.resource.waits(own.id) {
            return self.written_or_said(own, claimed);
        }
        if place >= self.resource.most_waiters() && !self.view.planted.has(Bug::FullQueueIsWritten) {
            let behind = waiting(ahead, own.lease.ttl, Why::Taken);
            self.confirmed = false;
            return self.written_or_said(own, behind);
        }
        self.resource.join(own.id, priority, 0, step(own.lease.ttl));
        let most = self.resource.most_waiters();
        self.resource.queue.truncate(most);
        let mut change = self.change(own);
        let owners = self.resource.seats.iter().take(OWNERS_TOLD);
        change.signals.extend(owners.map(|seat| Signal::Changed(seat.lease, self.name.clone())));
        Decision::commit(change, claimed)
    }

    /// Where a newcomer of this priority would come in the queue.
    fn place_of(&self, priority: i32) -> usize {
        self.resource.queue.partition_point(|place| place.named > 0 || place.priority >= priority)
    }

    /// Queues at the tail, or takes the ticket again if nobody else waits.
    fn queue_again(mut self, own: &Own<'_>) -> Decision<Claimed> {
        let quarantine = self.view.quarantine();
        let view = self.view;
        // What was seen of the others may be long ago: only an end is sure to be one still.
        let ended = |seat: &Seat| match view.standing(seat.lease) {
            Some(Standing::Ended(ended)) => Some((seat.clone(), ended)),
            _ => None,
        };
        let over = self.resource.seats.iter().filter_map(ended).collect();
        self.vacate_ended(over);
        let lives = |lease: LeaseId| !matches!(view.standing(lease), Some(Standing::Ended(_)));
        let living = self.resource.queue.iter().filter(|place| lives(place.lease));
        let lowest = living.map(|place| place.priority).min();
        let ahead = self.resource.queue.iter().filter(|place| lives(place.lease)).count();
        // Giving up must not fail for want of time, so neither does what is taken in the same step.
        let unlimited =
            |change: Change| Change { essential: true, urgent: true, window: Window::default(), ..change };
        if let (None, Turn::Now(_)) = (quarantine, self.turn(ahead, step(own.lease.ttl)))
            && let Some(Decision::Commit(change, claimed)) = self.grant(own, None)
        {
            return Decision::commit(unlimited(*change), claimed);
        }
        let later = self.later(own, ahead);
        let claimed = match (quarantine, self.turn(ahead, step(own.lease.ttl))) {
            (Some(left), _) => waiting(ahead, left.saturating_add(later), Why::Quarantine),
            (None, Turn::In(left)) => waiting(ahead, left, Why::Turn),
            (None, _) => waiting(ahead, self.first_to_end().saturating_add(later), Why::Taken),
        };
        let claimed = match self.resource.queue.len() < self.resource.most_waiters() {
            true => {
                self.resource.join(own.id, lowest.unwrap_or(0), 0, step(own.lease.ttl));
                claimed
            }
            false => waiting(ahead, own.lease.ttl, Why::Taken),
        };
        Decision::commit(unlimited(self.change(own)), claimed)
    }

    /// How long nothing is granted still. One that is over is ended first: it stays over when the longest ttl grows.
    fn settle_quarantine<T>(&self) -> Result<Option<Duration>, Decision<T>> {
        let (Some(left), Some((record, meta))) = (self.view.quarantine(), self.view.meta()) else {
            return Ok(None);
        };
        if self.view.planted.has(Bug::QuarantineOff) {
            return Ok(None);
        }
        if !left.is_zero() {
            return Ok(Some(left));
        }
        let since = meta.quarantine.as_ref().and_then(|quarantine| quarantine.since);
        let over = super::records::Meta { quarantine: None, ..meta.clone() };
        let from = since.map(|since| since + meta.longest);
        let change = Change::of(Key::Meta, record.version, over);
        Err(Decision::First(vec![Change { window: Window { from, until: None }, ..change }]))
    }

    /// Whether a waiter with so many live ones before it may take a ticket now.
    fn turn(&self, ahead: usize, step: Duration) -> Turn {
        let free = self.resource.free();
        if free == 0 {
            return if self.view.planted.has(Bug::TicketsNotCounted) { Turn::Now(None) } else { Turn::Taken };
        }
        if ahead < free {
            return Turn::Now(None);
        }
        let steps = u32::try_from(ahead - free + 1).unwrap_or(u32::MAX).min(MOST_STEPS);
        let left = (step * steps).saturating_sub(self.freed_for);
        if left.is_zero() {
            Turn::Now(self.resource.freed.map(|freed| freed + step * steps))
        } else {
            Turn::In(left)
        }
    }

    /// How much later than the head somebody with so many before it looks: a step each, and far back a ttl.
    fn later(&self, own: &Own<'_>, ahead: usize) -> Duration {
        match ahead <= WATCHFUL && !self.view.planted.has(Bug::LookTooLate) {
            true => step(own.lease.ttl) * u32::try_from(ahead).unwrap_or(u32::MAX),
            false => own.lease.ttl,
        }
    }

    /// How long until the first of the owners would be dead.
    fn first_to_end(&self) -> Duration {
        let left = |seat: &Seat| match self.view.standing(seat.lease) {
            Some(Standing::Alive(left)) => Some(left),
            Some(_) => Some(Duration::ZERO),
            None => None,
        };
        self.resource.seats.iter().filter_map(left).min().unwrap_or_default()
    }

    /// Gives the lowest free ticket to the worker, under the next term and a larger token.
    fn grant(&mut self, own: &Own<'_>, from: Time) -> Option<Decision<Claimed>> {
        let (meta_record, meta) = self.view.meta()?;
        let tickets =
            if self.view.planted.has(Bug::TicketsNotCounted) { u32::MAX } else { self.resource.tickets };
        let ticket = Resource { tickets, ..self.resource.clone() }.lowest_free()?;
        let resource = &mut self.resource;
        resource.term = Term(resource.term.0.saturating_add(1));
        let least = resource.token.max(meta.floor).0.saturating_add(1);
        resource.token = Token(least.max(self.view.wall_for_token()));
        let grant = Grant { ticket, term: resource.term, token: resource.token };
        resource.leave_queue(own.id);
        let at = resource.seats.partition_point(|seat| seat.grant.ticket < ticket);
        resource.seats.insert(at, Seat { lease: own.id, grant, since: None, wish: None, rest: Rest::new() });
        // It is kept for as long as the ticket is held.
        resource.seats.shrink_to_fit();
        self.note(None, own.lease.label.clone(), grant, Happened::Granted);
        let change = self.change(own);
        let change = match self.view.planted.has(Bug::MetaNotExpected) {
            true => change,
            false => change.expecting(Key::Meta, meta_record.version),
        };
        let window = Window { from, ..change.window };
        Some(Decision::commit(
            Change { window, lasting: true, urgent: true, ..change },
            Claimed::Granted(grant),
        ))
    }

    /// Writes what has changed, or says the answer if nothing has: then it has to rest on what was read for this request.
    fn written_or_said(mut self, own: &Own<'_>, claimed: Claimed) -> Decision<Claimed> {
        if self.changed || self.confirmed {
            // The seats that were found free stay for whoever takes them: this is not about them.
            return Decision::commit(self.change(own), claimed);
        }
        let mut wanted = Wanted::default();
        for key in look_keys(&self.view, own.id, self.name) {
            wanted.unless_fresh(&self.view, key);
        }
        if !wanted.is_empty() {
            // Together with the rest: what was read before may be outdated by now.
            return Decision::Read(look_keys(&self.view, own.id, self.name));
        }
        if !self.dead.is_empty() {
            // Whoever comes across dead waiters clears them away: a release would be told to them.
            let mut cleared = self.resource_as_known();
            let dead = |lease: &LeaseId| self.dead.contains(lease);
            cleared.queue.retain(|place| !dead(&place.lease));
            let cleared = Change::of(Key::Resource(self.name.clone()), self.version, cleared);
            return Decision::First(vec![cleared]);
        }
        Decision::Say(claimed)
    }

    /// The record as it was read, without what this request has made of it.
    fn resource_as_known(&self) -> Resource {
        let known = self.view.resource(self.name).and_then(|(_, resource)| resource);
        known.cloned().unwrap_or_else(|| self.resource.clone())
    }

    /// Owners that are asked for something and were not told: whoever looks tells them.
    fn knocks(&self) -> Vec<Change> {
        if self.view.planted.has(Bug::WishWithoutKnock) {
            return Vec::new();
        }
        let wishes = self.resource.seats.iter().filter_map(|seat| Some((seat, seat.wish?)));
        wishes.filter_map(|(seat, wish)| knock(&self.view, self.name, seat, wish)).collect()
    }

    /// What is written of the draft.
    fn change(&mut self, own: &Own<'_>) -> Change {
        let mut dropped = 0;
        let dead = core::mem::take(&mut self.dead);
        self.resource.queue.retain(|place| {
            let drop = dropped < DROPPED && dead.contains(&place.lease);
            dropped += usize::from(drop);
            !drop
        });
        self.dead = dead;
        let signals = match self.freed {
            true => wake(&self.view, self.name, &self.resource, Some(own.id)),
            false => Vec::new(),
        };
        if self.view.planted.has(Bug::FreedRestamped) {
            self.resource.freed = None;
        }
        Change {
            history: core::mem::take(&mut self.history),
            signals,
            window: Window { from: None, until: own.end },
            ..Change::of(Key::Resource(self.name.clone()), self.version, self.resource.clone())
        }
    }
}

/// Whether a waiter may take a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Now, and not before this time of the store.
    Now(Time),
    In(Duration),
    /// Nothing is free.
    Taken,
}

pub(super) fn waiting(ahead: usize, look_again: Duration, why: Why) -> Claimed {
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    Claimed::Waiting(Waiting { ahead, look_again: look_again.max(SOONEST), why })
}

/// Hints those who may take a free ticket at once, and tells the next to look one step later. Where nobody listens the
/// hint goes on to the next.
pub(super) fn wake(
    view: &View<'_>,
    name: &ResourceName,
    resource: &Resource,
    except: Option<LeaseId>,
) -> Vec<Signal> {
    let free = resource.free();
    if free == 0 || view.planted.has(Bug::NobodyIsHinted) {
        return Vec::new();
    }
    let waiters: Vec<_> = resource.queue.iter().collect();
    let more = usize::from(!view.planted.has(Bug::NextIsNotTold));
    let mut signals = Vec::new();
    for (position, place) in waiters.iter().enumerate().take(free + more) {
        if Some(place.lease) == except {
            continue;
        }
        let after = if position < free { Duration::ZERO } else { place.step };
        let others = waiters[position + 1..].iter().take(ALTERNATIVES);
        let to = core::iter::once(place.lease).chain(others.map(|other| other.lease));
        let to = to.filter(|lease| Some(*lease) != except).collect();
        signals.push(Signal::Look { to, resource: name.clone(), after });
    }
    signals
}

/// Tells the owner of a seat what it is asked for, unless it was told; nothing if its lease is not known to live.
pub(super) fn knock(view: &View<'_>, name: &ResourceName, seat: &Seat, wish: Wish) -> Option<Change> {
    let (record, lease) = view.lease(seat.lease)?;
    if lease.ended.is_some() || is_told(lease, name, seat.grant.token, wish) {
        return None;
    }
    let mut told = lease.clone();
    super::records::notify(&mut told, name, seat.grant.token, wish);
    Some(leases::rewritten(view, record, seat.lease, told, name))
}
