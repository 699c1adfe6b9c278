//! One atomic step: what a worker asks, decided by the ledger's rules inside one transaction.
//!
//! What follows from it outside the database (hints, whom to watch) is collected here and carried out after the
//! COMMIT; a step that is rolled back leaves nothing behind.

use std::collections::HashMap;
use std::time::Duration;

use rusqlite::{Connection, params};
use tenure_core::{
    Answer, Call, Closing, Here, Holding, Incarnation, LeaseId, NOTICES, Notice, Request, Said, Seq, Stamp,
    StoreTime, Ticket, Token, Wish,
};

use super::Proof;
use super::host::Process;
use super::lock::Identity;
use super::record::Record;
use super::rows::{self, Ended, Lease, bearer, micros, nanos, number, span, unsigned};
use super::tickets::Wake;
use super::trouble::{Outcome, Trouble};
use super::watch::{Target, Watch};
use crate::Error;

/// The file never lives a second life: what a boot ends is settled lease by lease.
pub(super) const INCARNATION: Incarnation = Incarnation(1);
/// How long the record of a dead lease is kept, so that a late `open` cannot make it again.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// How many old records one `open` clears: bounded work.
const CLEARED: i64 = 8;

const LONGEST: &str = "SELECT longest_ns FROM namespace WHERE id = ?1";
const LENGTHEN: &str = "UPDATE namespace SET longest_ns = ?2 WHERE id = ?1";
const NEXT_TURN: &str = "UPDATE namespace SET turns = turns + 1 WHERE id = ?1 RETURNING turns";
const OPEN: &str = "INSERT INTO lease
    (namespace, bearer, ttl_ns, opened_at, expires_at, turn, boot, label, metadata,
     lock_dev, lock_ino, pid, pid_started, pid_ns)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
/// Extends a lease that was found alive in this transaction.
const RENEW: &str = "UPDATE lease SET expires_at = ?2, renewed = ?3 WHERE id = ?1";
/// What stands for a worker, by name; one more than an answer carries tells whether there are more.
const STANDING: &str =
    "SELECT r.name, n.token, n.wish FROM notice AS n JOIN resource AS r ON r.id = n.resource
    WHERE n.lease = ?1 ORDER BY r.name LIMIT ?2";
/// What a lease holds, by name.
const HELD: &str = "SELECT r.name, s.ticket, s.token FROM seat AS s JOIN resource AS r ON r.id = s.resource
    WHERE s.lease = ?1 ORDER BY r.name LIMIT ?2";
/// The leases whose turn it is to be looked at for clearing.
const OLDEST: &str = "SELECT id, bearer, expires_at, ended_at,
    EXISTS (SELECT 1 FROM seat WHERE seat.lease = lease.id)
    FROM lease WHERE namespace = ?1 ORDER BY turn LIMIT ?2";
const FORGET: &str = "DELETE FROM lease WHERE id = ?1";
const NEXT_TIME: &str = "UPDATE lease SET turn = ?2 WHERE id = ?1";

/// What a lease's row says of its worker: who could be proved dead, and how.
#[derive(Clone, Debug)]
pub(super) struct Opener {
    /// Absent where somebody else holds the lock of this lease, or proofs are off.
    pub(super) lock: Option<Identity>,
    /// Whether a lease may be made without one.
    pub(super) proof: Proof,
    pub(super) boot: String,
    pub(super) process: Process,
}

impl Opener {
    /// What the row says of the lock.
    fn lock_to_write(&self) -> Outcome<Option<Identity>> {
        match (self.proof, self.lock) {
            (Proof::Off, _) => Ok(None),
            (Proof::On, Some(lock)) => Ok(Some(lock)),
            (Proof::On, None) => {
                Err(Error::unavailable("cannot open the lease: another process holds its lock").into())
            }
        }
    }
}

pub(super) struct Step<'c> {
    pub(super) db: &'c Connection,
    pub(super) namespace: i64,
    pub(super) here: Here,
    pub(super) wall: u64,
    longest: Duration,
    /// Before then nothing is granted.
    pub(super) quiet_until: Option<StoreTime>,
    /// Whom to wake after the COMMIT.
    pub(super) wakes: Vec<Wake>,
    /// Whom to watch from then on.
    pub(super) watches: Vec<Watch>,
    /// What is known of those to be watched, by row.
    pub(super) targets: HashMap<i64, Target>,
    /// Leases whose records were cleared: their files can go.
    pub(super) forgotten: Vec<LeaseId>,
    /// Whether a lease was made.
    pub(super) opened: bool,
    /// Whether a ticket was given: then the COMMIT has to be durable.
    pub(super) granted: bool,
}

impl<'c> Step<'c> {
    pub(super) fn new(db: &'c Connection, namespace: i64, now: StoreTime, wall: u64) -> Outcome<Self> {
        let longest = db.prepare_cached(LONGEST)?.query_row([namespace], |row| row.get(0))?;
        Ok(Self {
            db,
            namespace,
            here: Here::new(now, wall, INCARNATION).map_err(Error::from)?,
            wall,
            longest: span(longest),
            quiet_until: None,
            wakes: Vec::new(),
            watches: Vec::new(),
            targets: HashMap::new(),
            forgotten: Vec::new(),
            opened: false,
            granted: false,
        })
    }

    /// Carries out what a worker asks. `opener` is needed for `open` only.
    pub(super) fn apply(&mut self, request: &Request, opener: Option<&Opener>) -> Outcome<Answer> {
        let said = match &request.call {
            Call::Open { .. } => self.open(request, opener)?,
            Call::Renew => self.renew(request)?,
            Call::Claim(wants) => self.claim(request, wants)?,
            Call::Release(leaves) => self.release(request, leaves)?,
            Call::Held => self.held(request.lease)?,
            Call::Close(why) => self.close(request.lease, *why)?,
        };
        Ok(Answer { stamp: self.stamp(), said })
    }

    pub(super) fn stamp(&self) -> Stamp {
        let now = self.here.now();
        Stamp { now, shown: now, incarnation: INCARNATION, longest: self.longest }
    }

    fn open(&mut self, request: &Request, opener: Option<&Opener>) -> Outcome<Said> {
        let Call::Open { ttl, label, metadata } = &request.call else { return Ok(Said::Gone) };
        self.see(request.longest.max(*ttl))?;
        self.clear_old(request.judged_by)?;
        if let Some(lease) = self.lease(request.lease)? {
            // It marks nobody: a late repetition of a first contact must not end by a clock that stepped since
            // what has been renewed since.
            let lives = lease.lives(self.judged(Some(&lease), request));
            return Ok(if lives { Said::Opened } else { Said::Gone });
        }
        let Some(opener) = opener else { return Ok(Said::Gone) };
        let now = self.here.now();
        let lock = opener.lock_to_write()?;
        let turn = self.next_turn()?;
        let process = &opener.process;
        self.db.prepare_cached(OPEN)?.execute(params![
            self.namespace,
            bearer(request.lease),
            nanos(*ttl),
            micros(now),
            micros(now + *ttl),
            turn,
            opener.boot,
            label.as_str(),
            metadata.as_str(),
            lock.map(|lock| lock.dev),
            lock.map(|lock| lock.ino),
            process.pid,
            process.started,
            process.pid_ns,
        ])?;
        self.opened = true;
        Ok(Said::Opened)
    }

    fn renew(&mut self, request: &Request) -> Outcome<Said> {
        self.see(request.longest)?;
        let Some(mut lease) = self.lease(request.lease)? else { return Ok(Said::Gone) };
        // Before it judges anything: what it vouches for may be outdated, too.
        if lease.ended.is_none() && request.seq <= lease.renewed {
            return Ok(Said::Stale);
        }
        let judged = self.judged(Some(&lease), request);
        if !lease.judge(self.db, judged)? {
            return Ok(Said::Gone);
        }
        let expires_at = micros(self.here.now() + lease.ttl);
        self.db.prepare_cached(RENEW)?.execute(params![lease.row, expires_at, number(request.seq)?])?;
        let mut notices = self.standing(lease.row)?;
        let more = notices.len() > NOTICES;
        notices.truncate(NOTICES);
        Ok(Said::Kept { notices, more })
    }

    fn held(&mut self, id: LeaseId) -> Outcome<Said> {
        match self.lease(id)?.filter(|lease| lease.ended.is_none()) {
            Some(lease) => Ok(Said::Held(self.holdings(lease.row, i64::MAX)?)),
            None => Ok(Said::Gone),
        }
    }

    pub(super) fn close(&mut self, id: LeaseId, why: Closing) -> Outcome<Said> {
        let Some(mut lease) = self.lease(id)?.filter(|lease| lease.ended.is_none()) else {
            return Ok(Said::Closed);
        };
        let held = self.holdings(lease.row, i64::try_from(tenure_core::BATCH).unwrap_or(i64::MAX))?;
        let now = self.here.now();
        lease.end(self.db, Ended { at: now.min(lease.expires_at), why })?;
        for holding in held {
            // Read after the end was written, so that its seats count as free.
            if let Some(record) = Record::find(self.db, self.namespace, &holding.resource)? {
                self.wake(&record, None, now);
            }
        }
        Ok(Said::Closed)
    }

    pub(super) fn lease(&self, id: LeaseId) -> Outcome<Option<Lease>> {
        Lease::find(self.db, self.namespace, id)
    }

    /// Notices what the caller knows of the longest ttl.
    pub(super) fn see(&mut self, longest: Duration) -> Outcome<()> {
        // Cut as the row cuts it, so that the answer and the row agree.
        let longest = span(nanos(longest));
        if longest > self.longest {
            self.longest = longest;
            self.db.prepare_cached(LENGTHEN)?.execute(params![self.namespace, nanos(longest)])?;
        }
        Ok(())
    }

    /// The time by which this request judges life: the store's clock, as far as the caller's own can vouch for
    /// it. One that a later renewal has overtaken judges nobody.
    pub(super) fn judged(&self, lease: Option<&Lease>, request: &Request) -> StoreTime {
        if lease.is_some_and(|lease| request.seq < lease.renewed) {
            return StoreTime::from_micros(0);
        }
        self.vouched(request)
    }

    /// The store's clock, as far as the caller's own can vouch for it.
    pub(super) fn vouched(&self, request: &Request) -> StoreTime {
        let now = self.here.now();
        request.judged_by.map_or(now, |vouched| vouched.min(now))
    }

    fn standing(&self, lease: i64) -> Outcome<Vec<Notice>> {
        let mut read = self.db.prepare_cached(STANDING)?;
        let mut rows = read.query([lease, NOTICES as i64 + 1])?;
        let mut notices = Vec::new();
        while let Some(row) = rows.next()? {
            let resource = rows::resource(row, 0)?;
            let wish = match row.get(2)? {
                0 => Wish::Lowered,
                1 => Wish::Asked,
                2 => Wish::Evicted,
                other => return Err(Trouble::Damaged(format!("there is no wish {other}"))),
            };
            notices.push(Notice { resource, token: Token(unsigned(row.get(1)?)), wish });
        }
        Ok(notices)
    }

    fn holdings(&self, lease: i64, most: i64) -> Outcome<Vec<Holding>> {
        let mut read = self.db.prepare_cached(HELD)?;
        let mut rows = read.query([lease, most])?;
        let mut held = Vec::new();
        while let Some(row) = rows.next()? {
            let resource = rows::resource(row, 0)?;
            held.push(Holding { resource, ticket: Ticket(row.get(1)?), token: Token(unsigned(row.get(2)?)) });
        }
        Ok(held)
    }

    /// Forgets a few that died long ago, as far as the caller can vouch for it. One that a resource still names
    /// is kept until that is looked at.
    fn clear_old(&mut self, vouched: Option<StoreTime>) -> Outcome<()> {
        let remembered = i64::try_from(REMEMBERED.as_micros()).unwrap_or(i64::MAX);
        let now = micros(self.here.now());
        let vouched = vouched.map(|vouched| micros(vouched).min(now));
        let mut read = self.db.prepare_cached(OLDEST)?;
        let oldest = read.query_map([self.namespace, CLEARED], |row| {
            let (expires_at, ended_at): (i64, Option<i64>) = (row.get(2)?, row.get(3)?);
            let over = match ended_at {
                Some(at) => at.saturating_add(remembered) <= now,
                None => vouched.is_some_and(|vouched| expires_at.saturating_add(remembered) <= vouched),
            };
            let held: bool = row.get(4)?;
            Ok((row.get(0)?, row.get(1)?, over && !held))
        })?;
        let oldest: Vec<(i64, [u8; 16], bool)> = oldest.collect::<Result<_, _>>()?;
        for (row, id, is_over) in oldest {
            if is_over {
                self.db.prepare_cached(FORGET)?.execute([row])?;
                self.db.prepare_cached("DELETE FROM notice WHERE lease = ?1")?.execute([row])?;
                self.db.prepare_cached("DELETE FROM newest WHERE lease = ?1")?.execute([row])?;
                self.forgotten.push(LeaseId(u128::from_be_bytes(id)));
            } else {
                let turn = self.next_turn()?;
                self.db.prepare_cached(NEXT_TIME)?.execute([row, turn])?;
            }
        }
        Ok(())
    }

    fn next_turn(&self) -> Outcome<i64> {
        Ok(self.db.prepare_cached(NEXT_TURN)?.query_row([self.namespace], |row| row.get(0))?)
    }
}

/// A request at work on resources: who asks, and by what time it judges.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) lease: Lease,
    pub(super) seq: Seq,
    /// By this it marks the dead.
    pub(super) judged: StoreTime,
    /// By this it says when to look again; the same, unless the request came late.
    pub(super) vouched: StoreTime,
}

impl Case {
    pub(super) fn judging_nobody(self) -> Self {
        Self { judged: StoreTime::from_micros(0), ..self }
    }
}
