//! Claims and releases, and the operator's wishes: who gets a ticket, who waits, who is woken.

use std::time::Duration;

use rusqlite::{OptionalExtension, params};
use tenure_core::{
    Asked, Claimed, Grant, HISTORY, Happened, Label, LeaseId, Leave, Leaving, Released, Request,
    ResourceName, Said, Seq, StoreTime, Token, Waiting, Want, Why, Wish,
};

use super::record::{MOST_STEPS, Record, SetBy, Tenant, Turn, step};
use super::rows::{Lease, micros, number, signed, unsigned};
use super::step::{Case, Step};
use super::trouble::Outcome;
use super::watch::Watch;

/// How many dead waiters one operation clears.
const CLEARED: usize = 8;
/// Up to this place, waiters look a step after the one before; the rest leave it for a ttl.
const WATCHFUL: u32 = 8;
/// Nobody is told to look again sooner.
const SOONEST: Duration = Duration::from_millis(1);
/// To how many more a hint may go on when nobody listens.
const SPARE: usize = 8;

/// What a lease last asked for at one resource.
const NEWEST: &str = "SELECT claimed, released FROM newest WHERE lease = ?1 AND resource = ?2";
const CLAIMED: &str = "INSERT INTO newest (lease, resource, claimed) VALUES (?1, ?2, ?3)
    ON CONFLICT DO UPDATE SET claimed = excluded.claimed";
const RELEASED: &str = "INSERT INTO newest (lease, resource, released) VALUES (?1, ?2, ?3)
    ON CONFLICT DO UPDATE SET released = excluded.released";
/// Leaves a notice. A stronger one that stands already for the same ownership stays.
const NOTIFY: &str = "INSERT INTO notice (lease, resource, token, wish) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT DO UPDATE SET token = excluded.token,
    wish = CASE WHEN token = excluded.token THEN max(wish, excluded.wish) ELSE excluded.wish END";
const HEARD: &str = "DELETE FROM notice WHERE lease = ?1 AND resource = ?2";
const LABEL: &str = "SELECT label FROM lease WHERE id = ?1";
const COUNT: &str = "UPDATE namespace SET records = records + 1 WHERE id = ?1 RETURNING records";
const RECORD: &str =
    "INSERT INTO history (namespace, record, at, resource, worker, ticket, term, token, what)
    SELECT ?1, ?2, ?3, ?4, label, ?6, ?7, ?8, ?9 FROM lease WHERE id = ?5";
/// The history is bounded by count.
const PRUNE: &str = "DELETE FROM history WHERE namespace = ?1 AND record <= ?2";

/// Who is to be woken about one resource: as many as there are free tickets at once, the next a step later.
#[derive(Clone, Debug)]
pub(super) struct Wake {
    pub(super) resource: ResourceName,
    pub(super) free: usize,
    /// In order; more than needed, for the case that nobody listens.
    pub(super) waiters: Vec<Sleeper>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sleeper {
    pub(super) lease: LeaseId,
    pub(super) step: Duration,
    /// The one who asks needs no hint.
    pub(super) is_awake: bool,
}

impl Step<'_> {
    pub(super) fn claim(&mut self, request: &Request, wants: &[Want]) -> Outcome<Said> {
        let Some(case) = self.case(request)? else { return Ok(Said::Gone) };
        let claimed: Outcome<_> = wants.iter().map(|want| self.claim_one(&case, want)).collect();
        Ok(Said::Claimed(claimed?))
    }

    pub(super) fn release(&mut self, request: &Request, leaves: &[Leave]) -> Outcome<Said> {
        let Some(case) = self.case(request)? else { return Ok(Said::Gone) };
        let released: Outcome<_> = leaves.iter().map(|leave| self.release_one(&case, leave)).collect();
        Ok(Said::Released(released?))
    }

    /// What all resources of a request have in common; nothing when its lease is dead.
    fn case(&mut self, request: &Request) -> Outcome<Option<Case>> {
        self.see(request.longest)?;
        // Refused before anything is written.
        number(request.seq)?;
        let Some(mut lease) = self.lease(request.lease)? else { return Ok(None) };
        let (judged, vouched) = (self.judged(Some(&lease), request), self.vouched(request));
        let alive = lease.judge(self.db, judged)?;
        let case = Case { lease, seq: request.seq, judged, vouched };
        // By the store's clock its own lease has run out: it has to renew before it may judge others.
        let doubtful = lease.expires_at <= self.here.now();
        Ok(alive.then_some(if doubtful { case.judging_nobody() } else { case }))
    }

    fn claim_one(&mut self, case: &Case, want: &Want) -> Outcome<Claimed> {
        let name = &want.resource;
        let (claimed, released) = self.newest(case, name)?;
        let found = Record::find(self.db, self.namespace, name)?;
        // A repetition may ask again for what was given, not for what was taken away since; and what it vouches
        // for may be outdated, as with any late request.
        let repeated = case.seq == claimed;
        let has_part = found.as_ref().is_some_and(|record| record.has_part(case.lease.row));
        if case.seq < claimed || case.seq <= released || (repeated && !has_part) {
            return Ok(Claimed::Stale);
        }
        let case = &if repeated { case.judging_nobody() } else { *case };
        self.db.prepare_cached(CLAIMED)?.execute(params![
            case.lease.row,
            name.as_str(),
            signed(case.seq.0)
        ])?;
        let set_by = SetBy { opened_at: case.lease.opened_at, lease: case.lease.row, seq: case.seq };
        let now = self.here.now();
        let (mut record, resized) = match found {
            Some(mut record) => {
                let resized = record.resize(self.db, want.tickets, set_by, now)?;
                (record, resized)
            }
            None => (Record::make(self.db, self.namespace, name, want.tickets, set_by, now)?, false),
        };
        if resized {
            for tenant in record.surplus() {
                self.notify(&record, tenant, Wish::Lowered)?;
            }
        }
        let reaped = self.reap(&mut record, case.judged)?;
        let claimed = self.grant_or_queue(case, &mut record, want.priority)?;
        if reaped || resized {
            self.wake(&record, Some(case.lease.row), case.judged);
        }
        record.save(self.db)?;
        self.watch(case, &record, &claimed)?;
        Ok(claimed)
    }

    fn release_one(&mut self, case: &Case, leave: &Leave) -> Outcome<Released> {
        let name = &leave.resource;
        let (claimed, released) = self.newest(case, name)?;
        // A claim forbids older releases, too: a store that forgot the release, but not the claim after it, must
        // not free what was granted since.
        if case.seq <= claimed || case.seq <= released {
            return Ok(Released::Stale);
        }
        self.db.prepare_cached(RELEASED)?.execute(params![
            case.lease.row,
            name.as_str(),
            signed(case.seq.0)
        ])?;
        self.watches.push(Watch::nobody(case.lease.id, name));
        let Some(mut record) = Record::find(self.db, self.namespace, name)? else {
            return Ok(Released::Free);
        };
        self.db.prepare_cached(HEARD)?.execute([case.lease.row, record.row])?;
        record.leave_queue(self.db, case.lease.row)?;
        let tenant = record.tenancy_of(case.lease.row).copied();
        if let Some(tenant) = tenant {
            self.vacate(&mut record, &tenant, self.here.now(), leave.how.into())?;
        }
        let released = match leave.how {
            Leaving::SteppedDown => {
                record.queue_last(self.db, case.lease, case.judged)?;
                self.reap(&mut record, case.judged)?;
                let claimed = self.grant_or_queue(case, &mut record, 0)?;
                self.watch(case, &record, &claimed)?;
                Released::Again(claimed)
            }
            Leaving::Released | Leaving::Failed => Released::Free,
        };
        if tenant.is_some() {
            self.wake(&record, Some(case.lease.row), case.judged);
        }
        record.save(self.db)?;
        Ok(released)
    }

    /// Grants what the worker holds already, or what it may take now; else queues it once, and says when to look
    /// again.
    fn grant_or_queue(&mut self, case: &Case, record: &mut Record, priority: i32) -> Outcome<Claimed> {
        if let Some(tenant) = record.tenancy_of(case.lease.row) {
            return Ok(Claimed::Granted(tenant.grant));
        }
        let place = record.queue(self.db, case.lease, priority)?;
        let ahead = record.before(place).filter(|waiter| waiter.lives(case.judged)).count();
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let (now, ttl) = (self.here.now(), case.lease.ttl);
        let turn = record.turn(ahead, step(ttl), now);
        let quiet_until = self.quiet_until.filter(|until| *until > case.judged);
        // One that came late may be from a lease that has run out since, which it is not to judge.
        if turn == Turn::Now
            && quiet_until.is_none()
            && case.lease.lives(case.vouched)
            && let Some(grant) = record.grant(self.db, case.lease, now, self.wall)?
        {
            self.granted = true;
            self.db.prepare_cached(HEARD)?.execute([case.lease.row, record.row])?;
            self.record(record.row, case.lease.row, grant, now, Happened::Granted)?;
            return Ok(Claimed::Granted(grant));
        }
        let later = if ahead <= WATCHFUL { step(ttl) * ahead } else { ttl };
        let (look_again, why) = match (quiet_until, turn) {
            (Some(until), _) => (until.since(case.vouched).min(ttl) + later, Why::Quarantine),
            (None, Turn::At(at)) => (at.since(now).min(step(ttl) * MOST_STEPS), Why::Turn),
            (None, Turn::Now | Turn::Taken) => (first_to_end(record, case.vouched) + later, Why::Taken),
        };
        Ok(Claimed::Waiting(Waiting { ahead, look_again: look_again.max(SOONEST), why }))
    }

    /// Frees the tickets of owners that are dead, and forgets a few dead waiters. Says whether any was freed.
    fn reap(&mut self, record: &mut Record, judged: StoreTime) -> Outcome<bool> {
        let mut dead = Vec::new();
        for waiter in record.waiters_mut().filter(|waiter| !waiter.lives(judged)).take(CLEARED) {
            if let Some(lease) = &mut waiter.lease {
                lease.judge(self.db, judged)?;
            }
            dead.push(waiter.row);
        }
        for waiter in dead {
            record.leave_queue(self.db, waiter)?;
        }
        let owners: Vec<Tenant> = record.tenants().copied().collect();
        let mut reaped = false;
        for mut tenant in owners {
            if !tenant.lease.judge(self.db, judged)? {
                let ended = tenant.lease.ending();
                // A grant may come after the expiry by the store's clock, if the worker vouches for less.
                self.vacate(record, &tenant, ended.at.max(tenant.since), ended.why.into())?;
                reaped = true;
            }
        }
        Ok(reaped)
    }

    /// Hints those who may take a free ticket at once, and tells the next to look one step later.
    pub(super) fn wake(&mut self, record: &Record, except: Option<i64>, judged: StoreTime) {
        let owned = record.tenants().filter(|tenant| tenant.lease.lives(judged)).count();
        let free = (record.tickets() as usize).saturating_sub(owned);
        if free == 0 {
            return;
        }
        let living = record.waiters().filter_map(|waiter| waiter.lease).filter(|lease| lease.lives(judged));
        let sleeper = |lease: Lease| Sleeper {
            lease: lease.id,
            step: step(lease.ttl),
            is_awake: Some(lease.row) == except,
        };
        let waiters: Vec<Sleeper> = living.take(free + 1 + SPARE).map(sleeper).collect();
        self.wakes.push(Wake { resource: record.name.clone(), free, waiters });
    }

    /// The operator's wish that the ownership under `token` be handed over gently. Marks nobody.
    pub(super) fn ask(
        &mut self,
        name: &ResourceName,
        token: Token,
        successor: Option<&Label>,
    ) -> Outcome<Asked> {
        let mut record = match self.owned_under(name, token)? {
            Ok(record) => record,
            Err(others) => return Ok(others),
        };
        let Some(tenant) = under(&record, token) else { return Ok(Asked::NotWaiting) };
        if let Some(label) = successor {
            let now = self.here.now();
            let mut named = None;
            for lease in record.waiters().filter_map(|waiter| waiter.lease).filter(|lease| lease.lives(now)) {
                if self.is_called(&lease, label)? {
                    named = Some(lease);
                    break;
                }
            }
            let Some(named) = named else { return Ok(Asked::NotWaiting) };
            record.queue_first(self.db, named)?;
            record.save(self.db)?;
        }
        self.notify(&record, &tenant, Wish::Asked)?;
        Ok(Asked::Done)
    }

    /// Takes the ownership under `token` away at once. Marks nobody.
    pub(super) fn evict(&mut self, name: &ResourceName, token: Token) -> Outcome<Asked> {
        let mut record = match self.owned_under(name, token)? {
            Ok(record) => record,
            Err(others) => return Ok(others),
        };
        let Some(tenant) = under(&record, token) else { return Ok(Asked::NotWaiting) };
        self.notify(&record, &tenant, Wish::Evicted)?;
        let now = self.here.now();
        self.vacate(&mut record, &tenant, now, Happened::Evicted)?;
        self.wake(&record, None, now);
        record.save(self.db)?;
        Ok(Asked::Done)
    }

    /// The resource whose ownership under `token` stands, or who owns instead.
    fn owned_under(&self, name: &ResourceName, token: Token) -> Outcome<Result<Record, Asked>> {
        let Some(record) = Record::find(self.db, self.namespace, name)? else {
            return Ok(Err(Asked::OtherOwners(Vec::new())));
        };
        if under(&record, token).is_some() {
            return Ok(Ok(record));
        }
        let present = record.tenants().filter(|tenant| tenant.lease.ended.is_none());
        Ok(Err(Asked::OtherOwners(present.map(|tenant| tenant.grant.token).collect())))
    }

    fn is_called(&self, lease: &Lease, label: &Label) -> Outcome<bool> {
        let called: String = self.db.prepare_cached(LABEL)?.query_row([lease.row], |row| row.get(0))?;
        Ok(called == label.as_str())
    }

    fn newest(&self, case: &Case, name: &ResourceName) -> Outcome<(Seq, Seq)> {
        let mut find = self.db.prepare_cached(NEWEST)?;
        let newest = find.query_row(params![case.lease.row, name.as_str()], |row| {
            Ok((Seq(unsigned(row.get(0)?)), Seq(unsigned(row.get(1)?))))
        });
        Ok(newest.optional()?.unwrap_or_default())
    }

    /// Leaves a notice for the worker of an ownership, if its lease stands.
    fn notify(&self, record: &Record, tenant: &Tenant, wish: Wish) -> Outcome<()> {
        if tenant.lease.ended.is_some() {
            return Ok(());
        }
        let wish = match wish {
            Wish::Lowered => 0,
            Wish::Asked => 1,
            Wish::Evicted => 2,
        };
        let token = signed(tenant.grant.token.0);
        self.db.prepare_cached(NOTIFY)?.execute(params![tenant.lease.row, record.row, token, wish])?;
        Ok(())
    }

    /// Frees a ticket, and writes down how that came.
    fn vacate(&self, record: &mut Record, tenant: &Tenant, at: StoreTime, what: Happened) -> Outcome<()> {
        record.vacate(self.db, tenant.grant.ticket, at)?;
        self.record(record.row, tenant.lease.row, tenant.grant, at, what)
    }

    fn record(&self, resource: i64, lease: i64, grant: Grant, at: StoreTime, what: Happened) -> Outcome<()> {
        let number: i64 = self.db.prepare_cached(COUNT)?.query_row([self.namespace], |row| row.get(0))?;
        self.db.prepare_cached(RECORD)?.execute(params![
            self.namespace,
            number,
            micros(at),
            resource,
            lease,
            grant.ticket.0,
            signed(grant.term.0),
            signed(grant.token.0),
            super::read::code(what),
        ])?;
        let most = i64::try_from(HISTORY).unwrap_or(i64::MAX);
        if number > most {
            self.db.prepare_cached(PRUNE)?.execute([self.namespace, number - most])?;
        }
        Ok(())
    }
}

/// The ownership under `token`. One whose lease is marked dead is over.
fn under(record: &Record, token: Token) -> Option<Tenant> {
    let mut present = record.tenants().filter(|tenant| tenant.lease.ended.is_none());
    present.find(|tenant| tenant.grant.token == token).copied()
}

/// How long until the first of the owners would be dead.
fn first_to_end(record: &Record, vouched: StoreTime) -> Duration {
    // Where the caller's judgement lags behind the store's clock the span would be longer than any lease:
    // looking once per ttl finds out when they agree again.
    let left = |lease: &Lease| lease.expires_at.since(vouched).min(lease.ttl);
    record.tenants().map(|tenant| left(&tenant.lease)).min().unwrap_or_default()
}
