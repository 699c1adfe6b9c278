//! The rules that every store obeys, as one pure type: leases, tickets, queue, terms, tokens.
//!
//! The memory store and the simulation use it; every other store is compared with it. Time, wall clock and
//! incarnation come in as data, and each operation is one atomic step. What the rules are for is said in
//! docs/guarantees.md; the words are those of ARCHITECTURE.md.

mod history;
mod leases;
mod read;
mod resource;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use self::history::History;
pub use self::history::{HISTORY, Happened, Record};
use self::leases::{Ended, Lease, Leases};
pub use self::read::{OwnerView, ResourceView, WaiterView};
use self::resource::{Resource, SetBy, Tenant, Turn, step};
use crate::message::{
    Answer, Call, Claimed, Closing, Grant, Hint, Holding, Incarnation, LeaseId, Leave, Leaving, Notice,
    Released, Request, Said, Stamp, Token, Waiting, Want, Why, Wish,
};
use crate::moment::StoreTime;
use crate::names::{Label, LimitError, Metadata, ResourceName};
use crate::planted::{Bug, Planted};

/// How many resources one request may name.
pub const BATCH: usize = 250;
/// How many notices one answer carries.
pub const NOTICES: usize = 64;
/// How many dead waiters one operation clears.
const CLEARED: usize = 8;
/// Up to this place, waiters look a step after the one before; the rest leave it for a ttl.
const WATCHFUL: u32 = 8;
/// Nobody is told to look again sooner.
const SOONEST: Duration = Duration::from_millis(1);
/// 2200-01-01, in microseconds: tokens stay below 2^53, so that every language can hold them.
const LATEST_WALL: u64 = 7_258_118_400_000_000;

/// What the store knows of itself at the instant of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Here {
    now: StoreTime,
    wall: u64,
    incarnation: Incarnation,
}

impl Here {
    /// The store's clock, the wall clock in microseconds since 1970 (for tokens only), the store's life.
    ///
    /// # Errors
    /// When the wall clock is beyond the year 2200.
    pub fn new(now: StoreTime, wall: u64, incarnation: Incarnation) -> Result<Self, LimitError> {
        if wall >= LATEST_WALL {
            let value = alloc::format!("{wall}");
            return Err(LimitError::new(
                "wall clock",
                &value,
                "before the year 2200, in microseconds since 1970",
            ));
        }
        Ok(Self { now, wall, incarnation })
    }
}

/// The answer to an operator's wish about one ownership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// The owner is told, or the ticket is free.
    Done,
    /// Nobody owns the resource under that token; these are the tokens of the present owners.
    OtherOwners(Vec<Token>),
    /// Nobody of that label waits.
    NotWaiting,
}

/// All that a namespace of a store knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    incarnation: Option<Incarnation>,
    quarantine_from: Option<StoreTime>,
    longest: Duration,
    leases: Leases,
    resources: BTreeMap<ResourceName, Resource>,
    history: History,
    hints: Vec<Hint>,
    planted: Planted,
}

impl Ledger {
    /// A ledger that is known to be new: nobody can own anything, so it grants at once.
    #[must_use]
    pub fn new(incarnation: Incarnation) -> Self {
        Self { incarnation: Some(incarnation), ..Self::bereft() }
    }

    /// A ledger found without data. It may have had some: a quarantine begins with the first contact.
    #[must_use]
    pub fn bereft() -> Self {
        Self {
            incarnation: None,
            quarantine_from: None,
            longest: Duration::ZERO,
            leases: Leases::default(),
            resources: BTreeMap::new(),
            history: History::of(HISTORY),
            hints: Vec::new(),
            planted: Planted::default(),
        }
    }

    /// The same with another bound on the history.
    #[must_use]
    pub fn with_history(self, most: usize) -> Self {
        Self { history: History::of(most), ..self }
    }

    /// The same with a bug in it, for tests.
    #[must_use]
    pub fn with_planted(self, planted: Planted) -> Self {
        Self { planted, ..self }
    }

    /// Carries out what a worker asks.
    pub fn apply(&mut self, here: Here, request: &Request) -> Answer {
        let said = match &request.call {
            Call::Open { ttl, label, metadata } => self.open(here, request, *ttl, label, metadata),
            Call::Renew => self.renew(here, request),
            Call::Claim(wants) => self.claim(here, request, wants),
            Call::Release(leaves) => self.release(here, request, leaves),
            Call::Held => self.held(request.lease),
            Call::Close(why) => self.close(here, request.lease, *why),
        };
        Answer { stamp: Stamp { now: here.now, incarnation: here.incarnation, longest: self.longest }, said }
    }

    /// The wake-ups that the last operations gave rise to. They are to be sent after the change is durable.
    pub fn take_hints(&mut self) -> Vec<Hint> {
        core::mem::take(&mut self.hints)
    }

    /// The operator's wish that the ownership under `token` be handed over gently, to `successor` if named.
    /// Of two waiters with one label the earlier is meant. Marks nobody.
    pub fn ask(&mut self, here: Here, resource: &str, token: Token, successor: Option<&Label>) -> Asked {
        let tenant = match self.tenant_of(resource, token) {
            Ok(tenant) => tenant,
            Err(others) => return others,
        };
        let Some((name, record)) = self.resources.get_key_value(resource) else { return Asked::NotWaiting };
        let name = name.clone();
        if let Some(label) = successor {
            let named = record.waiters().find(|lease| {
                self.leases.lives(*lease, here.now)
                    && self.leases.get(*lease).is_some_and(|l| l.label == *label)
            });
            let Some(named) = named else { return Asked::NotWaiting };
            if let Some(record) = self.resources.get_mut(resource) {
                record.queue_first(named);
            }
        }
        notify(&mut self.leases, &name, &tenant, Wish::Asked);
        Asked::Done
    }

    /// Takes the ownership under `token` away at once. Its worker learns of it with the next renewal; until
    /// then only the token protects. Marks nobody.
    pub fn evict(&mut self, here: Here, resource: &str, token: Token) -> Asked {
        let tenant = match self.tenant_of(resource, token) {
            Ok(tenant) => tenant,
            Err(others) => return others,
        };
        let Some((name, _)) = self.resources.get_key_value(resource) else { return Asked::NotWaiting };
        let name = name.clone();
        notify(&mut self.leases, &name, &tenant, Wish::Evicted);
        self.vacate(&name, &tenant, here.now, Happened::Evicted);
        self.wake(&name, None, here.now);
        Asked::Done
    }

    fn open(
        &mut self,
        here: Here,
        request: &Request,
        ttl: Duration,
        label: &Label,
        metadata: &Metadata,
    ) -> Said {
        self.see(here, request.longest.max(ttl));
        self.leases.clear_old(here.now);
        if self.leases.get(request.lease).is_some() {
            let lives = self.leases.judge(request.lease, judged(here, request));
            return if lives { Said::Opened } else { Said::Gone };
        }
        let lease = Lease {
            label: label.clone(),
            metadata: metadata.clone(),
            ttl,
            opened_at: here.now,
            expires_at: here.now + ttl,
            ended: None,
            renewed: Default::default(),
            newest: BTreeMap::new(),
            held: Default::default(),
            notices: BTreeMap::new(),
        };
        self.leases.insert(request.lease, lease);
        Said::Opened
    }

    fn renew(&mut self, here: Here, request: &Request) -> Said {
        self.see(here, Duration::ZERO);
        let judged = self.judged_unless(here, request, Bug::JudgedByMissingInRenew);
        if !self.leases.judge(request.lease, judged) {
            return self.not_alive(here, request);
        }
        let repeated_is_kept = self.planted.has(Bug::RepeatedRenewalKept);
        let Some(lease) = self.leases.get_mut(request.lease) else { return Said::Gone };
        if request.seq <= lease.renewed && !repeated_is_kept {
            return Said::Stale;
        }
        lease.renewed = lease.renewed.max(request.seq);
        lease.expires_at = here.now + lease.ttl;
        let notices = lease.notices.values().take(NOTICES).cloned().collect();
        Said::Kept { notices, more: lease.notices.len() > NOTICES }
    }

    /// A renewal never re-creates: death is stable.
    fn not_alive(&mut self, here: Here, request: &Request) -> Said {
        if self.planted.has(Bug::RenewalRecreatesLease)
            && let Some(lease) = self.leases.get_mut(request.lease)
        {
            lease.ended = None;
            lease.expires_at = here.now + lease.ttl;
            return Said::Kept { notices: Vec::new(), more: false };
        }
        Said::Gone
    }

    fn claim(&mut self, here: Here, request: &Request, wants: &[Want]) -> Said {
        self.see(here, request.longest);
        let judged = self.judged_unless(here, request, Bug::JudgedByOff);
        if !self.leases.judge(request.lease, judged) {
            return Said::Gone;
        }
        Said::Claimed(wants.iter().map(|want| self.claim_one(here, judged, request, want)).collect())
    }

    fn claim_one(&mut self, here: Here, judged: StoreTime, request: &Request, want: &Want) -> Claimed {
        let id = request.lease;
        let name = &want.resource;
        let Some(lease) = self.leases.get_mut(id) else { return Claimed::Stale };
        let newest = lease.newest.entry(name.clone()).or_default();
        let stale = request.seq < newest.claimed || request.seq <= newest.released;
        if stale && !self.planted.has(Bug::ReleaseWithoutSeq) {
            return Claimed::Stale;
        }
        newest.claimed = request.seq;
        let set_by = SetBy { opened_at: lease.opened_at, lease: id, seq: request.seq };
        let resized = match self.resources.get_mut(name) {
            Some(record) => record.resize(want.tickets, set_by, here.now),
            None => {
                self.resources.insert(name.clone(), Resource::new(want.tickets, set_by, here.now));
                false
            }
        };
        if resized {
            self.ask_surplus(name);
        }
        let reaped = self.reap(name, judged);
        let claimed = match self.quarantine_left(judged) {
            Some(left) => self.wait(here, name, id, want.priority, judged, Some(left)),
            None => self.consider(here, name, id, want.priority, judged),
        };
        if reaped || resized {
            self.wake(name, Some(id), judged);
        }
        claimed
    }

    /// Grants what the worker holds already, or what it may take now; else it waits.
    fn consider(
        &mut self,
        here: Here,
        name: &ResourceName,
        id: LeaseId,
        priority: i32,
        judged: StoreTime,
    ) -> Claimed {
        let count_off = self.planted.has(Bug::TicketsNotCounted);
        let Some(record) = self.resources.get_mut(name) else { return Claimed::Stale };
        if let Some(tenant) = record.tenancy_of(id) {
            return Claimed::Granted(tenant.grant);
        }
        let place = record.queue(id, priority);
        let ahead = count(record.before(place).filter(|waiter| self.leases.lives(*waiter, judged)));
        let ttl = self.leases.get(id).map_or(Duration::ZERO, |lease| lease.ttl);
        let may = record.turn(ahead, step(ttl), here.now) == Turn::Now || count_off;
        match may.then(|| record.grant(id, here.now, here.wall)).flatten() {
            Some(grant) => {
                self.begin(here, name, id, grant);
                Claimed::Granted(grant)
            }
            None => self.wait(here, name, id, priority, judged, None),
        }
    }

    /// Queues the worker once, and says when to look again.
    fn wait(
        &mut self,
        here: Here,
        name: &ResourceName,
        id: LeaseId,
        priority: i32,
        judged: StoreTime,
        quarantine: Option<Duration>,
    ) -> Claimed {
        let Some(record) = self.resources.get_mut(name) else { return Claimed::Stale };
        // An owner that asks again during a quarantine has no place in the queue, and needs none.
        let place = if record.tenancy_of(id).is_none() { Some(record.queue(id, priority)) } else { None };
        let before = place.into_iter().flat_map(|place| record.before(place));
        let ahead = count(before.filter(|waiter| self.leases.lives(*waiter, judged)));
        let ttl = self.leases.get(id).map_or(Duration::ZERO, |lease| lease.ttl);
        let later = match ahead {
            0..=WATCHFUL => step(ttl) * ahead,
            _ => ttl,
        };
        // Where the caller's judgement lags behind the store's clock, or that clock went back, the span would
        // be longer than any lease: looking once per ttl finds out when they agree again.
        let left = |lease: &Lease| lease.expires_at.since(judged).min(lease.ttl);
        let first_to_end = || {
            let leases = record.tenants().filter_map(|tenant| self.leases.get(tenant.lease));
            leases.map(left).min().unwrap_or(Duration::ZERO)
        };
        let (look_again, why) = match (quarantine, record.turn(ahead, step(ttl), here.now)) {
            (Some(left), _) => (left + later, Why::Quarantine),
            (None, Turn::At(at)) => (at.since(here.now), Why::Turn),
            (None, Turn::Now | Turn::Taken) => (first_to_end() + later, Why::Taken),
        };
        Claimed::Waiting(Waiting { ahead, look_again: look_again.max(SOONEST), why })
    }

    fn release(&mut self, here: Here, request: &Request, leaves: &[Leave]) -> Said {
        self.see(here, Duration::ZERO);
        let judged = self.judged_unless(here, request, Bug::JudgedByMissingInRelease);
        if !self.leases.judge(request.lease, judged) {
            return Said::Gone;
        }
        Said::Released(leaves.iter().map(|leave| self.release_one(here, judged, request, leave)).collect())
    }

    fn release_one(&mut self, here: Here, judged: StoreTime, request: &Request, leave: &Leave) -> Released {
        let (id, name) = (request.lease, &leave.resource);
        let Some(lease) = self.leases.get_mut(id) else { return Released::Stale };
        let newest = lease.newest.entry(name.clone()).or_default();
        // A claim forbids older releases, too: a store that forgot the release, but not the claim after it,
        // must not free what was granted since.
        let stale = request.seq <= newest.claimed || request.seq <= newest.released;
        if stale && !self.planted.has(Bug::ReleaseWithoutSeq) {
            return Released::Stale;
        }
        newest.released = request.seq;
        lease.notices.remove(name);
        let Some(record) = self.resources.get_mut(name) else { return Released::Free };
        record.leave_queue(id);
        let tenant = record.tenancy_of(id).copied();
        if let Some(tenant) = tenant {
            self.vacate(name, &tenant, here.now, leave.how.into());
        }
        let released = match leave.how {
            Leaving::SteppedDown => Released::Again(self.queue_again(here, name, id, judged)),
            Leaving::Released | Leaving::Failed => Released::Free,
        };
        if tenant.is_some() {
            self.wake(name, Some(id), judged);
        }
        released
    }

    fn queue_again(&mut self, here: Here, name: &ResourceName, id: LeaseId, judged: StoreTime) -> Claimed {
        let Some(record) = self.resources.get_mut(name) else { return Claimed::Stale };
        record.queue_last(id);
        self.reap(name, judged);
        match self.quarantine_left(judged) {
            Some(left) => self.wait(here, name, id, 0, judged, Some(left)),
            None => self.consider(here, name, id, 0, judged),
        }
    }

    fn held(&self, id: LeaseId) -> Said {
        let Some(lease) = self.leases.get(id).filter(|lease| lease.ended.is_none()) else {
            return Said::Gone;
        };
        let holding = |name: &ResourceName| {
            let Grant { ticket, token, .. } = self.resources.get(name)?.tenancy_of(id)?.grant;
            Some(Holding { resource: name.clone(), ticket, token })
        };
        Said::Held(lease.held.iter().filter_map(holding).collect())
    }

    fn close(&mut self, here: Here, id: LeaseId, why: Closing) -> Said {
        let Some(lease) = self.leases.get(id).filter(|lease| lease.ended.is_none()) else {
            return Said::Closed;
        };
        let held: Vec<ResourceName> = lease.held.iter().take(BATCH).cloned().collect();
        self.leases.end(id, Ended { at: here.now, why });
        for name in &held {
            self.wake(name, None, here.now);
        }
        Said::Closed
    }

    /// Notices a new life of the store, and what the caller knows of the longest ttl.
    fn see(&mut self, here: Here, longest: Duration) {
        self.longest = self.longest.max(longest);
        if self.incarnation != Some(here.incarnation) {
            self.incarnation = Some(here.incarnation);
            self.quarantine_from = Some(here.now);
        }
    }

    /// How long there are no grants still. A quarantine that is over stays over, also when `longest` grows.
    fn quarantine_left(&mut self, judged: StoreTime) -> Option<Duration> {
        let until = self.quarantine_from? + self.longest;
        if until <= judged || self.planted.has(Bug::QuarantineOff) {
            self.quarantine_from = None;
            return None;
        }
        Some(until.since(judged).min(self.longest))
    }

    /// Frees the tickets of owners that are dead, and forgets a few dead waiters. Says whether any was freed.
    fn reap(&mut self, name: &ResourceName, judged: StoreTime) -> bool {
        let Some(record) = self.resources.get_mut(name) else { return false };
        let dead: Vec<LeaseId> =
            record.waiters().filter(|waiter| !self.leases.lives(*waiter, judged)).take(CLEARED).collect();
        for waiter in dead {
            self.leases.judge(waiter, judged);
            record.leave_queue(waiter);
        }
        let owners: Vec<Tenant> = record.tenants().copied().collect();
        let mut reaped = false;
        for tenant in owners {
            if !self.leases.judge(tenant.lease, judged) {
                let ended = self.leases.ending(tenant.lease, judged);
                self.vacate(name, &tenant, ended.at, ended.why.into());
                reaped = true;
            }
        }
        reaped
    }

    /// Writes a new ownership down, beside the resource itself.
    fn begin(&mut self, here: Here, name: &ResourceName, id: LeaseId, grant: Grant) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        lease.held.insert(name.clone());
        lease.notices.remove(name);
        let worker = lease.label.clone();
        let what = Happened::Granted;
        self.history.add(Record { at: here.now, resource: name.clone(), worker, grant, what });
    }

    /// Frees a ticket, everywhere where it is written down.
    fn vacate(&mut self, name: &ResourceName, tenant: &Tenant, at: StoreTime, what: Happened) {
        if let Some(record) = self.resources.get_mut(name) {
            record.vacate(tenant.grant.ticket, at);
            if self.planted.has(Bug::TokenResetOnRelease) {
                (record.term, record.token) = Default::default();
            }
        }
        if let Some(lease) = self.leases.get_mut(tenant.lease) {
            lease.held.remove(name);
            let (worker, grant) = (lease.label.clone(), tenant.grant);
            self.history.add(Record { at, resource: name.clone(), worker, grant, what });
        }
    }

    /// Hints those who may take a free ticket at once, and tells the next to look one step later.
    fn wake(&mut self, name: &ResourceName, except: Option<LeaseId>, judged: StoreTime) {
        let Some(record) = self.resources.get(name) else { return };
        let dead = count(record.tenants().filter(|tenant| !self.leases.lives(tenant.lease, judged)));
        let free = record.free() + dead.min(record.tickets());
        if free == 0 {
            return;
        }
        let waiters = record.waiters().filter(|waiter| self.leases.lives(*waiter, judged));
        for (position, lease) in waiters.take(free as usize + 1).enumerate() {
            let ttl = self.leases.get(lease).map_or(Duration::ZERO, |lease| lease.ttl);
            let after = if position < free as usize { Duration::ZERO } else { step(ttl) };
            if Some(lease) != except {
                self.hints.push(Hint { lease, resource: name.clone(), after });
            }
        }
    }

    /// After K was lowered: the owners of the highest tickets are asked to hand over.
    fn ask_surplus(&mut self, name: &ResourceName) {
        let Some(record) = self.resources.get(name) else { return };
        for tenant in record.surplus() {
            notify(&mut self.leases, name, tenant, Wish::Lowered);
        }
    }

    fn tenant_of(&self, resource: &str, token: Token) -> Result<Tenant, Asked> {
        let record = self.resources.get(resource);
        let mut tenants = record.into_iter().flat_map(Resource::tenants);
        match tenants.find(|tenant| tenant.grant.token == token) {
            Some(tenant) => Ok(*tenant),
            None => {
                let present = record.into_iter().flat_map(Resource::tenants);
                Err(Asked::OtherOwners(present.map(|tenant| tenant.grant.token).collect()))
            }
        }
    }

    /// The time by which this request judges life, unless a bug is planted here.
    fn judged_unless(&self, here: Here, request: &Request, bug: Bug) -> StoreTime {
        if self.planted.has(bug) || self.planted.has(Bug::JudgedByOff) {
            here.now
        } else {
            judged(here, request)
        }
    }
}

/// The time by which a request judges life: the store's clock, as far as the caller's own can vouch for it.
fn judged(here: Here, request: &Request) -> StoreTime {
    request.judged_by.map_or(here.now, |vouched| vouched.min(here.now))
}

/// Leaves a notice for the worker of an ownership. A stronger one that stands already stays.
fn notify(leases: &mut Leases, name: &ResourceName, tenant: &Tenant, wish: Wish) {
    let Some(lease) = leases.get_mut(tenant.lease).filter(|lease| lease.ended.is_none()) else { return };
    let notice = Notice { resource: name.clone(), token: tenant.grant.token, wish };
    match lease.notices.get_mut(name) {
        Some(standing) if standing.token == notice.token => standing.wish = standing.wish.max(wish),
        Some(standing) => *standing = notice,
        None => drop(lease.notices.insert(name.clone(), notice)),
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
