//! One resource as it stands in its rows: numbered seats, a queue, and who may take a free seat.
//!
//! The rules are those of the ledger's own record in `tenure-core`; every change is made here and in the rows.

use std::cmp::Reverse;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use tenure_core::{Grant, ResourceName, Seq, StoreTime, Term, Ticket, Tickets, Token};

use super::rows::{Lease, lease_columns, micros, signed, time, unsigned};
use super::trouble::{Outcome, Trouble};

/// The least that a later waiter leaves to each one before it.
const SHORTEST_STEP: Duration = Duration::from_millis(100);
/// However far back, nobody waits for more steps than this once a ticket is free.
pub(super) const MOST_STEPS: u32 = 10;

const FIND: &str = "SELECT id, tickets, set_opened_at, set_lease, set_seq, arrivals, term, token
    FROM resource WHERE namespace = ?1 AND name = ?2";
const MAKE: &str = "INSERT INTO resource
    (namespace, name, tickets, set_opened_at, set_lease, set_seq, arrivals, term, token)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, 0)";
const SAVE: &str = "UPDATE resource SET tickets = ?2, set_opened_at = ?3, set_lease = ?4, set_seq = ?5,
    arrivals = ?6, term = ?7, token = ?8 WHERE id = ?1";
/// All seats by number, with the leases of those who sit there.
const SEATS: &str = concat!(
    "SELECT s.since, s.term, s.token, s.lease, ",
    lease_columns!(),
    " FROM seat AS s LEFT JOIN lease AS l ON l.id = s.lease WHERE s.resource = ?1 ORDER BY s.ticket"
);
const ADD_SEAT: &str = "INSERT INTO seat (resource, ticket, since) VALUES (?1, ?2, ?3)";
const DROP_SEATS: &str = "DELETE FROM seat WHERE resource = ?1 AND ticket >= ?2";
const TAKE_SEAT: &str =
    "UPDATE seat SET since = ?3, lease = ?4, term = ?5, token = ?6 WHERE resource = ?1 AND ticket = ?2";
const FREE_SEAT: &str =
    "UPDATE seat SET since = ?3, lease = NULL, term = NULL, token = NULL WHERE resource = ?1 AND ticket = ?2";
/// The whole queue in order, with the leases of those who wait, where they are still known.
const QUEUE: &str = concat!(
    "SELECT w.lease, w.named, w.priority, w.arrival, l.id IS NOT NULL, ",
    lease_columns!(),
    " FROM waiter AS w LEFT JOIN lease AS l ON l.id = w.lease WHERE w.resource = ?1
    ORDER BY w.named DESC, w.priority DESC, w.arrival"
);
const ADD_WAITER: &str =
    "INSERT INTO waiter (resource, lease, named, priority, arrival) VALUES (?1, ?2, ?3, ?4, ?5)";
const DROP_WAITER: &str = "DELETE FROM waiter WHERE resource = ?1 AND lease = ?2";

#[derive(Debug)]
pub(super) struct Record {
    pub(super) row: i64,
    pub(super) name: ResourceName,
    head: Head,
    /// As the row has it.
    stored: Head,
    seats: Vec<Seat>,
    queue: Vec<Waiter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    tickets: u32,
    set_by: SetBy,
    arrivals: u64,
    term: Term,
    token: Token,
}

/// Which claim set K: of two leases the one that was opened later counts, of one lease the later claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SetBy {
    pub(super) opened_at: StoreTime,
    pub(super) lease: i64,
    pub(super) seq: Seq,
}

impl SetBy {
    fn overrides(self, other: Self) -> bool {
        self.opened_at > other.opened_at || (self.lease == other.lease && self.seq > other.seq)
    }
}

#[derive(Clone, Copy, Debug)]
enum Seat {
    Free { since: StoreTime },
    Held(Tenant),
}

/// Who sits there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenant {
    pub(super) lease: Lease,
    pub(super) since: StoreTime,
    pub(super) grant: Grant,
}

/// Who waits, and where: those whom an operator named, the last named first; then by priority; then arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) row: i64,
    place: Place,
    /// Absent when it is forgotten.
    pub(super) lease: Option<Lease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    named: Reverse<u64>,
    priority: Reverse<i32>,
    arrival: u64,
}

impl Waiter {
    pub(super) fn lives(&self, judged: StoreTime) -> bool {
        self.lease.is_some_and(|lease| lease.lives(judged))
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

impl Record {
    /// The resource of that name, if it was ever claimed.
    pub(super) fn find(db: &Connection, namespace: i64, name: &ResourceName) -> Outcome<Option<Self>> {
        let found = db.prepare_cached(FIND)?.query_row(params![namespace, name.as_str()], |row| {
            let set_by =
                SetBy { opened_at: time(row.get(2)?), lease: row.get(3)?, seq: Seq(unsigned(row.get(4)?)) };
            let head = Head {
                tickets: row.get(1)?,
                set_by,
                arrivals: unsigned(row.get(5)?),
                term: Term(unsigned(row.get(6)?)),
                token: Token(unsigned(row.get(7)?)),
            };
            Ok((row.get(0)?, head))
        });
        let Some((row, head)) = found.optional()? else { return Ok(None) };
        let (seats, queue) = (seats(db, row)?, queue(db, row)?);
        Ok(Some(Self { row, name: name.clone(), head, stored: head, seats, queue }))
    }

    pub(super) fn make(
        db: &Connection,
        namespace: i64,
        name: &ResourceName,
        tickets: Tickets,
        set_by: SetBy,
        now: StoreTime,
    ) -> Outcome<Self> {
        let SetBy { opened_at, lease, seq } = set_by;
        db.prepare_cached(MAKE)?.execute(params![
            namespace,
            name.as_str(),
            tickets.count(),
            micros(opened_at),
            lease,
            signed(seq.0)
        ])?;
        let head = Head { tickets: tickets.count(), set_by, arrivals: 0, term: Term(0), token: Token(0) };
        let row = db.last_insert_rowid();
        let mut made =
            Self { row, name: name.clone(), head, stored: head, seats: Vec::new(), queue: Vec::new() };
        made.extend_seats(db, now)?;
        Ok(made)
    }

    /// Writes back what belongs to the resource as a whole.
    pub(super) fn save(&mut self, db: &Connection) -> Outcome<()> {
        if self.head == self.stored {
            return Ok(());
        }
        self.stored = self.head;
        let Head { tickets, set_by, arrivals, term, token } = self.head;
        db.prepare_cached(SAVE)?.execute(params![
            self.row,
            tickets,
            micros(set_by.opened_at),
            set_by.lease,
            signed(set_by.seq.0),
            signed(arrivals),
            signed(term.0),
            signed(token.0)
        ])?;
        Ok(())
    }

    pub(super) fn tickets(&self) -> u32 {
        self.head.tickets
    }

    /// Changes K, if this claim may. Says whether it did.
    pub(super) fn resize(
        &mut self,
        db: &Connection,
        tickets: Tickets,
        set_by: SetBy,
        now: StoreTime,
    ) -> Outcome<bool> {
        if !set_by.overrides(self.head.set_by) {
            return Ok(false);
        }
        self.head.set_by = set_by;
        let changed = self.head.tickets != tickets.count();
        self.head.tickets = tickets.count();
        self.trim(db)?;
        self.extend_seats(db, now)?;
        Ok(changed)
    }

    pub(super) fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.seats.iter().filter_map(|seat| match seat {
            Seat::Held(tenant) => Some(tenant),
            Seat::Free { .. } => None,
        })
    }

    /// Owners whose seat is no longer one of the K.
    pub(super) fn surplus(&self) -> impl Iterator<Item = &Tenant> {
        self.tenants().filter(|tenant| tenant.grant.ticket.0 >= self.head.tickets)
    }

    pub(super) fn tenancy_of(&self, lease: i64) -> Option<&Tenant> {
        self.tenants().find(|tenant| tenant.lease.row == lease)
    }

    /// Whether `lease` owns a ticket here, or waits for one.
    pub(super) fn has_part(&self, lease: i64) -> bool {
        self.queue.iter().any(|waiter| waiter.row == lease) || self.tenancy_of(lease).is_some()
    }

    pub(super) fn vacate(&mut self, db: &Connection, ticket: Ticket, since: StoreTime) -> Outcome<()> {
        if let Some(seat) = self.seats.get_mut(ticket.0 as usize) {
            *seat = Seat::Free { since };
            db.prepare_cached(FREE_SEAT)?.execute(params![self.row, ticket.0, micros(since)])?;
        }
        self.trim(db)
    }

    /// Gives the lowest free ticket to `lease`, under the next term and a larger token.
    pub(super) fn grant(
        &mut self,
        db: &Connection,
        lease: Lease,
        now: StoreTime,
        wall: u64,
    ) -> Outcome<Option<Grant>> {
        let among = self.seats.iter().take(self.head.tickets as usize);
        let Some(index) = among.into_iter().position(|seat| matches!(seat, Seat::Free { .. })) else {
            return Ok(None);
        };
        let ticket = Ticket(u32::try_from(index).unwrap_or(u32::MAX));
        self.head.term = Term(self.head.term.0 + 1);
        self.head.token = Token((self.head.token.0 + 1).max(wall));
        let grant = Grant { ticket, term: self.head.term, token: self.head.token };
        self.seats[index] = Seat::Held(Tenant { lease, since: now, grant });
        db.prepare_cached(TAKE_SEAT)?.execute(params![
            self.row,
            ticket.0,
            micros(now),
            lease.row,
            signed(grant.term.0),
            signed(grant.token.0)
        ])?;
        self.leave_queue(db, lease.row)?;
        Ok(Some(grant))
    }

    pub(super) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.queue.iter()
    }

    pub(super) fn waiters_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        self.queue.iter_mut()
    }

    /// The place that `lease` has, or a new one at the end of its priority.
    pub(super) fn queue(&mut self, db: &Connection, lease: Lease, priority: i32) -> Outcome<Place> {
        match self.queue.iter().find(|waiter| waiter.row == lease.row) {
            Some(waiter) => Ok(waiter.place),
            None => self.take_place(db, lease, 0, priority),
        }
    }

    /// Queues `lease` at the tail, with the lowest priority of those who wait and live.
    pub(super) fn queue_last(&mut self, db: &Connection, lease: Lease, judged: StoreTime) -> Outcome<()> {
        self.leave_queue(db, lease.row)?;
        let waiting = self.queue.iter().filter(|waiter| waiter.lives(judged));
        let lowest = waiting.map(|waiter| waiter.place.priority.0).min();
        self.take_place(db, lease, 0, lowest.unwrap_or(0))?;
        Ok(())
    }

    /// Moves `lease`, which waits, to the head.
    pub(super) fn queue_first(&mut self, db: &Connection, lease: Lease) -> Outcome<()> {
        let place = self.queue.iter().find(|waiter| waiter.row == lease.row).map(|waiter| waiter.place);
        self.leave_queue(db, lease.row)?;
        let named = self.head.arrivals + 1;
        self.take_place(db, lease, named, place.map_or(0, |place| place.priority.0))?;
        Ok(())
    }

    pub(super) fn leave_queue(&mut self, db: &Connection, lease: i64) -> Outcome<()> {
        if let Some(index) = self.queue.iter().position(|waiter| waiter.row == lease) {
            self.queue.remove(index);
            db.prepare_cached(DROP_WAITER)?.execute([self.row, lease])?;
        }
        Ok(())
    }

    /// The waiters before `place`, in order.
    pub(super) fn before(&self, place: Place) -> impl Iterator<Item = &Waiter> {
        self.queue.iter().take_while(move |waiter| waiter.place < place)
    }

    /// Who may take a free ticket: with `ahead` live waiters before it, in steps of `step`. A matter of order,
    /// not of life, so the store's own clock is good enough.
    pub(super) fn turn(&self, ahead: u32, step: Duration, now: StoreTime) -> Turn {
        let owned = u32::try_from(self.tenants().count()).unwrap_or(u32::MAX);
        let free = self.head.tickets.saturating_sub(owned);
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
        let seats = self.seats.iter().take(self.head.tickets as usize);
        let freed = seats.filter_map(|seat| match seat {
            Seat::Free { since } => Some(*since),
            Seat::Held(_) => None,
        });
        freed.max()
    }

    fn take_place(&mut self, db: &Connection, lease: Lease, named: u64, priority: i32) -> Outcome<Place> {
        self.head.arrivals += 1;
        let arrival = self.head.arrivals;
        let place = Place { named: Reverse(named), priority: Reverse(priority), arrival };
        let index = self.queue.partition_point(|waiter| waiter.place < place);
        self.queue.insert(index, Waiter { row: lease.row, place, lease: Some(lease) });
        let row = params![self.row, lease.row, signed(named), priority, signed(arrival)];
        db.prepare_cached(ADD_WAITER)?.execute(row)?;
        Ok(place)
    }

    /// Drops free seats beyond K.
    fn trim(&mut self, db: &Connection) -> Outcome<()> {
        let before = self.seats.len();
        while self.seats.len() > self.head.tickets as usize
            && matches!(self.seats.last(), Some(Seat::Free { .. }))
        {
            self.seats.pop();
        }
        if self.seats.len() < before {
            db.prepare_cached(DROP_SEATS)?.execute([self.row, signed(self.seats.len() as u64)])?;
        }
        Ok(())
    }

    fn extend_seats(&mut self, db: &Connection, now: StoreTime) -> Outcome<()> {
        let mut add = db.prepare_cached(ADD_SEAT)?;
        for ticket in self.seats.len()..self.head.tickets as usize {
            add.execute(params![self.row, signed(ticket as u64), micros(now)])?;
            self.seats.push(Seat::Free { since: now });
        }
        Ok(())
    }
}

fn seats(db: &Connection, resource: i64) -> Outcome<Vec<Seat>> {
    let mut read = db.prepare_cached(SEATS)?;
    let mut rows = read.query([resource])?;
    let mut seats = Vec::new();
    while let Some(row) = rows.next()? {
        let since = time(row.get(0)?);
        let held: Option<i64> = row.get(3)?;
        seats.push(match held {
            None => Seat::Free { since },
            Some(_) => {
                let ticket = Ticket(
                    u32::try_from(seats.len())
                        .map_err(|_| Trouble::Damaged("a resource has too many tickets".to_owned()))?,
                );
                let (term, token) = (Term(unsigned(row.get(1)?)), Token(unsigned(row.get(2)?)));
                let lease = Lease::of(row, 4)?;
                Seat::Held(Tenant { lease, since, grant: Grant { ticket, term, token } })
            }
        });
    }
    Ok(seats)
}

fn queue(db: &Connection, resource: i64) -> Outcome<Vec<Waiter>> {
    let mut read = db.prepare_cached(QUEUE)?;
    let waiters = read.query_map([resource], |row| {
        let place = Place {
            named: Reverse(unsigned(row.get(1)?)),
            priority: Reverse(row.get(2)?),
            arrival: unsigned(row.get(3)?),
        };
        let lease = if row.get(4)? { Some(Lease::of(row, 5)?) } else { None };
        Ok(Waiter { row: row.get(0)?, place, lease })
    })?;
    Ok(waiters.collect::<Result<_, _>>()?)
}
