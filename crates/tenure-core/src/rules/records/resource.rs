//! A resource: its owners, its queue, its number of tickets. Who may take a ticket is decided in `rules/tickets`.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use super::{Job, Rest, Time};
use crate::message::{Grant, LeaseId, Term, Ticket, Token, Wish};

/// A resource: owners, queue, job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// How many tickets it has: K.
    pub tickets: u32,
    /// Which lease set K.
    pub set_by: SetBy,
    /// The number of the latest ownership.
    pub term: Term,
    /// The latest token.
    pub token: Token,
    /// How many have joined the queue so far.
    pub arrivals: u64,
    /// The owners, by ticket.
    pub owners: Vec<Owner>,
    /// When a ticket was freed last.
    pub freed: Time,
    /// How often one was freed.
    pub frees: u64,
    /// The waiters in order; at most [`MOST_WAITERS`] + K.
    pub queue: Vec<Waiter>,
    /// The job that is attached to it.
    pub job: Option<Box<Job>>,
    /// What this version does not know.
    pub rest: Rest,
}

/// How many workers the queue holds, beside one for each ticket. Behind them a worker looks once per ttl.
pub const MOST_WAITERS: usize = 64;

/// Which lease set K: of two leases the one that was opened later counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SetBy {
    /// When it was opened.
    pub opened: Time,
    /// Which.
    pub lease: LeaseId,
}

/// A worker that owns a ticket of the resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Its lease.
    pub lease: LeaseId,
    /// Ticket, term and token.
    pub grant: Grant,
    /// Since when.
    pub since: Time,
    /// What it is asked to do.
    pub wish: Option<Wish>,
    /// What this version does not know.
    pub rest: Rest,
}

/// A worker in the queue. Workers that an operator named come first, the last named at the head; then by priority; then
/// by arrival.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The lease of the worker.
    pub lease: LeaseId,
    /// Larger is served first.
    pub priority: i32,
    /// Zero, or the number of arrivals when an operator named it.
    pub named: u64,
    /// The number of its arrival.
    pub arrival: u64,
    /// How long it leaves a free ticket to the waiter before it.
    pub step: Duration,
    /// What this version does not know.
    pub rest: Rest,
}

impl Waiter {
    /// What the queue is sorted by.
    #[must_use]
    pub fn order(&self) -> (Reverse<u64>, Reverse<i32>, u64) {
        (Reverse(self.named), Reverse(self.priority), self.arrival)
    }
}

impl Resource {
    /// A resource that nobody has claimed yet.
    #[must_use]
    pub fn new(tickets: u32, set_by: SetBy) -> Self {
        Self {
            tickets,
            set_by,
            term: Term(0),
            token: Token(0),
            arrivals: 0,
            owners: Vec::new(),
            freed: None,
            frees: 0,
            queue: Vec::new(),
            job: None,
            rest: Rest::new(),
        }
    }

    /// The owner with this lease.
    #[must_use]
    pub fn owner_with(&self, lease: LeaseId) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.lease == lease)
    }

    /// The owner under this token.
    #[must_use]
    pub fn owner_under(&self, token: Token) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.grant.token == token)
    }

    /// Whether this lease waits.
    #[must_use]
    pub fn waits(&self, lease: LeaseId) -> bool {
        self.queue.iter().any(|waiter| waiter.lease == lease)
    }

    /// How many more owners there may be.
    #[must_use]
    pub fn free(&self) -> usize {
        (self.tickets as usize).saturating_sub(self.owners.len())
    }

    /// The lowest free number, if one may be given.
    #[must_use]
    pub fn lowest_free(&self) -> Option<Ticket> {
        let held = |ticket: &u32| self.owners.iter().any(|owner| owner.grant.ticket.0 == *ticket);
        (0..self.tickets).find(|ticket| !held(ticket)).map(Ticket)
    }

    pub(in crate::rules) fn vacate(&mut self, token: Token, at: Time) {
        self.owners.retain(|owner| owner.grant.token != token);
        self.freed = at;
        self.frees = self.frees.saturating_add(1);
    }

    pub(in crate::rules) fn leave_queue(&mut self, lease: LeaseId) {
        self.queue.retain(|waiter| waiter.lease != lease);
    }

    /// Queues the lease in order.
    pub(in crate::rules) fn join(&mut self, lease: LeaseId, priority: i32, named: u64, step: Duration) {
        self.leave_queue(lease);
        self.arrivals = self.arrivals.saturating_add(1);
        let waiter = Waiter { lease, priority, named, arrival: self.arrivals, step, rest: Rest::new() };
        let at = self.queue.partition_point(|other| other.order() < waiter.order());
        self.queue.insert(at, waiter);
    }

    /// How many waiters the record may hold.
    #[must_use]
    pub fn most_waiters(&self) -> usize {
        MOST_WAITERS + self.tickets as usize
    }
}
