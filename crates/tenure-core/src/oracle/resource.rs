//! One resource: its numbered seats, its queue, and who may take a free seat.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use crate::message::{Grant, LeaseId, Seq, Term, Ticket, Token};
use crate::moment::StoreTime;
use crate::names::Tickets;

/// The least that a later waiter leaves to each one before it.
const SHORTEST_STEP: Duration = Duration::from_millis(100);
/// However far back, nobody waits for more steps than this once a ticket is free.
pub(super) const MOST_STEPS: u32 = 10;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Resource {
    tickets: u32,
    set_by: SetBy,
    /// As many as there are tickets, and beyond that as far as one is still held after K was lowered.
    seats: Vec<Seat>,
    queue: BTreeMap<Place, LeaseId>,
    places: BTreeMap<LeaseId, Place>,
    arrivals: u64,
    pub(super) term: Term,
    pub(super) token: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Seat {
    Free { since: StoreTime },
    Held(Tenant),
}

/// Who sits there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tenant {
    pub(super) lease: LeaseId,
    pub(super) since: StoreTime,
    pub(super) grant: Grant,
}

/// A place in the queue: those whom an operator named, the last named first; then by priority; then arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    named: Reverse<u64>,
    priority: Reverse<i32>,
    arrival: u64,
}

/// Which claim set K: of two leases the one that was opened later counts, of one lease the later claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SetBy {
    pub(super) opened_at: StoreTime,
    pub(super) lease: LeaseId,
    pub(super) seq: Seq,
}

impl SetBy {
    fn overrides(self, other: Self) -> bool {
        self.opened_at > other.opened_at || (self.lease == other.lease && self.seq > other.seq)
    }
}

/// Whether a waiter may take a ticket now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    At(StoreTime),
    /// Nothing is free.
    Taken,
}

/// How long a waiter with this ttl leaves a free ticket to the one before it.
pub(super) fn step(ttl: Duration) -> Duration {
    SHORTEST_STEP.max(ttl / 150)
}

impl Resource {
    pub(super) fn new(tickets: Tickets, set_by: SetBy, now: StoreTime) -> Self {
        Self {
            tickets: tickets.count(),
            set_by,
            seats: vec![Seat::Free { since: now }; tickets.count() as usize],
            queue: BTreeMap::new(),
            places: BTreeMap::new(),
            arrivals: 0,
            term: Term(0),
            token: Token(0),
        }
    }

    pub(super) fn tickets(&self) -> u32 {
        self.tickets
    }

    /// Changes K, if this claim may. Says whether it did.
    pub(super) fn resize(&mut self, tickets: Tickets, set_by: SetBy, now: StoreTime) -> bool {
        if !set_by.overrides(self.set_by) {
            return false;
        }
        self.set_by = set_by;
        let changed = self.tickets != tickets.count();
        self.tickets = tickets.count();
        self.trim();
        let seats = self.seats.len().max(tickets.count() as usize);
        self.seats.resize(seats, Seat::Free { since: now });
        changed
    }

    pub(super) fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.seats.iter().filter_map(|seat| match seat {
            Seat::Held(tenant) => Some(tenant),
            Seat::Free { .. } => None,
        })
    }

    /// Owners whose seat is no longer one of the K.
    pub(super) fn surplus(&self) -> impl Iterator<Item = &Tenant> {
        self.tenants().filter(|tenant| tenant.grant.ticket.0 >= self.tickets)
    }

    pub(super) fn tenancy_of(&self, lease: LeaseId) -> Option<&Tenant> {
        self.tenants().find(|tenant| tenant.lease == lease)
    }

    /// How many more owners there may be.
    pub(super) fn free(&self) -> u32 {
        self.tickets.saturating_sub(u32::try_from(self.tenants().count()).unwrap_or(u32::MAX))
    }

    /// The lowest free number, if a waiter may be given one.
    fn lowest_free(&self) -> Option<Ticket> {
        let free =
            self.seats.iter().take(self.tickets as usize).position(|seat| matches!(seat, Seat::Free { .. }));
        free.and_then(|index| u32::try_from(index).ok()).map(Ticket)
    }

    pub(super) fn vacate(&mut self, ticket: Ticket, since: StoreTime) {
        if let Some(seat) = self.seats.get_mut(ticket.0 as usize) {
            *seat = Seat::Free { since };
        }
        self.trim();
    }

    /// Gives the lowest free ticket to `lease`, under the next term and a larger token.
    pub(super) fn grant(&mut self, lease: LeaseId, now: StoreTime, wall: u64) -> Option<Grant> {
        let ticket = self.lowest_free()?;
        self.term = Term(self.term.0 + 1);
        self.token = Token((self.token.0 + 1).max(wall));
        let grant = Grant { ticket, term: self.term, token: self.token };
        self.seats[ticket.0 as usize] = Seat::Held(Tenant { lease, since: now, grant });
        self.leave_queue(lease);
        Some(grant)
    }

    /// Queues `lease` once; a place that it has is kept, with its priority.
    pub(super) fn queue(&mut self, lease: LeaseId, priority: i32) -> Place {
        match self.places.get(&lease) {
            Some(place) => *place,
            None => self.take_place(lease, 0, priority),
        }
    }

    /// Queues `lease` at the tail, with the lowest priority of those who wait and live.
    pub(super) fn queue_last(&mut self, lease: LeaseId, lives: impl Fn(LeaseId) -> bool) {
        self.leave_queue(lease);
        let waiting = self.queue.iter().filter(|(_, waiter)| lives(**waiter));
        let lowest = waiting.map(|(place, _)| place.priority.0).min();
        self.take_place(lease, 0, lowest.unwrap_or(0));
    }

    /// Moves `lease`, which waits, to the head.
    pub(super) fn queue_first(&mut self, lease: LeaseId) {
        let priority = self.places.get(&lease).map_or(0, |place| place.priority.0);
        self.leave_queue(lease);
        self.take_place(lease, self.arrivals + 1, priority);
    }

    fn take_place(&mut self, lease: LeaseId, named: u64, priority: i32) -> Place {
        self.arrivals += 1;
        let place = Place { named: Reverse(named), priority: Reverse(priority), arrival: self.arrivals };
        self.queue.insert(place, lease);
        self.places.insert(lease, place);
        place
    }

    pub(super) fn leave_queue(&mut self, lease: LeaseId) {
        if let Some(place) = self.places.remove(&lease) {
            self.queue.remove(&place);
        }
    }

    /// The waiters in order.
    pub(super) fn waiters(&self) -> impl Iterator<Item = LeaseId> {
        self.queue.values().copied()
    }

    /// The waiters before `place`, in order.
    pub(super) fn before(&self, place: Place) -> impl Iterator<Item = LeaseId> {
        self.queue.range(..place).map(|(_, lease)| *lease)
    }

    /// Who may take a free ticket: with `ahead` live waiters before it, in steps of `step`. A matter of order,
    /// not of life, so the store's own clock is good enough.
    pub(super) fn turn(&self, ahead: u32, step: Duration, now: StoreTime) -> Turn {
        let free = self.free();
        let Some(freed_at) = self.freed_at() else { return Turn::Taken };
        if free == 0 {
            return Turn::Taken;
        }
        if ahead < free {
            return Turn::Now;
        }
        let at = freed_at + step * (ahead - free + 1).min(MOST_STEPS);
        if at <= now { Turn::Now } else { Turn::At(at) }
    }

    /// When the latest of the free tickets became free.
    fn freed_at(&self) -> Option<StoreTime> {
        let seats = self.seats.iter().take(self.tickets as usize);
        let freed = seats.filter_map(|seat| match seat {
            Seat::Free { since } => Some(*since),
            Seat::Held(_) => None,
        });
        freed.max()
    }

    pub(super) fn count_steps_from(&mut self, at: StoreTime) {
        for seat in &mut self.seats {
            if let Seat::Free { since } = seat {
                *since = at;
            }
        }
    }

    /// Drops free seats beyond K.
    fn trim(&mut self) {
        while self.seats.len() > self.tickets as usize && matches!(self.seats.last(), Some(Seat::Free { .. }))
        {
            self.seats.pop();
        }
    }
}
