//! The rules written a second time, for tests only: as one type that knows everything and needs no records.
//!
//! The shipped rules ([`crate::rules`]) are compared with it. Time, wall clock and incarnation come in as data, and
//! each operation is one atomic step.

mod history;
mod jobs;
mod leases;
mod read;
mod resource;
mod tickets;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use self::history::History;
pub use self::history::Record;
use self::jobs::Job;
use self::leases::{Ended, Lease, Leases};
use self::resource::{Resource, Tenant};
use crate::message::{
    Answer, BATCH, Call, Closing, Grant, Hint, Holding, Incarnation, LeaseId, NOTICES, Notice, Request, Said,
    Stamp, StepDownReply, Token, Wish,
};
use crate::moment::StoreTime;
use crate::names::{Label, LimitError, Metadata, ResourceName};
use crate::shown::{HISTORY, HistoryEvent};

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

    /// What the store's clock shows.
    #[must_use]
    pub const fn now(&self) -> StoreTime {
        self.now
    }
}

/// All that a namespace of a store knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    incarnation: Option<Incarnation>,
    quarantine_from: Option<StoreTime>,
    longest: Duration,
    leases: Leases,
    resources: BTreeMap<ResourceName, Resource>,
    jobs: BTreeMap<ResourceName, Job>,
    history: History,
    hints: Vec<Hint>,
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
            jobs: BTreeMap::new(),
            history: History::of(HISTORY),
            hints: Vec::new(),
        }
    }

    /// The same with another bound on the history.
    #[must_use]
    pub fn with_history(self, most: usize) -> Self {
        Self { history: History::of(most), ..self }
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
        let stamp =
            Stamp { now: here.now, shown: here.now, incarnation: here.incarnation, longest: self.longest };
        Answer { stamp, said }
    }

    /// The wake-ups that the last operations gave rise to. They are to be sent after the change is durable.
    pub fn take_hints(&mut self) -> Vec<Hint> {
        core::mem::take(&mut self.hints)
    }

    /// The operator's wish that the ownership under `token` be handed over gently, to `successor` if named.
    /// Of two waiters with one label the earlier is meant. Marks nobody.
    pub fn ask(
        &mut self,
        here: Here,
        resource: &str,
        token: Token,
        successor: Option<&Label>,
    ) -> StepDownReply {
        let tenant = match self.tenant_of(resource, token) {
            Ok(tenant) => tenant,
            Err(others) => return others,
        };
        let Some((name, record)) = self.resources.get_key_value(resource) else {
            return StepDownReply::NotWaiting;
        };
        let name = name.clone();
        if let Some(label) = successor {
            let named = record.waiters().find(|lease| {
                self.leases.lives(*lease, here.now)
                    && self.leases.get(*lease).is_some_and(|l| l.label == *label)
            });
            let Some(named) = named else { return StepDownReply::NotWaiting };
            if let Some(record) = self.resources.get_mut(resource) {
                record.queue_first(named);
            }
        }
        notify(&mut self.leases, &name, &tenant, Wish::Asked);
        StepDownReply::Done
    }

    /// Takes the ownership under `token` away at once. Its worker learns of it with the next renewal; until
    /// then only the token protects. Marks nobody.
    pub fn evict(&mut self, here: Here, resource: &str, token: Token) -> StepDownReply {
        let tenant = match self.tenant_of(resource, token) {
            Ok(tenant) => tenant,
            Err(others) => return others,
        };
        let Some((name, _)) = self.resources.get_key_value(resource) else {
            return StepDownReply::NotWaiting;
        };
        let name = name.clone();
        notify(&mut self.leases, &name, &tenant, Wish::Evicted);
        self.vacate(&name, &tenant, here.now, HistoryEvent::Evicted);
        self.wake(&name, None, here.now);
        StepDownReply::Done
    }

    fn open(
        &mut self,
        here: Here,
        request: &Request,
        ttl: Duration,
        label: &Label,
        metadata: &Metadata,
    ) -> Said {
        self.see(here, ttl);
        self.leases.clear_old(here.now, request.judged_by);
        if self.leases.get(request.lease).is_some() {
            // It marks nobody: a late repetition of a first contact has no `judged_by`, and must not end by a
            // clock that stepped since what has been renewed since.
            let lives = self.leases.lives(request.lease, self.judged(here, request));
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
            held: Default::default(),
            notices: BTreeMap::new(),
        };
        self.leases.insert(request.lease, lease);
        Said::Opened
    }

    fn renew(&mut self, here: Here, request: &Request) -> Said {
        self.see(here, Duration::ZERO);
        let lease = self.leases.get(request.lease).filter(|lease| lease.ended.is_none());
        let late = lease.is_some_and(|lease| request.seq <= lease.renewed);
        // Before it judges anything: what it vouches for may be outdated, too.
        if late {
            return Said::Stale;
        }
        if !self.leases.judge(request.lease, self.judged(here, request)) {
            // A renewal never re-creates: death is stable.
            return Said::Gone;
        }
        let Some(lease) = self.leases.get_mut(request.lease) else { return Said::Gone };
        lease.renewed = lease.renewed.max(request.seq);
        lease.expires_at = here.now + lease.ttl;
        let notices = lease.notices.values().take(NOTICES).cloned().collect();
        Said::Kept { notices, more: lease.notices.len() > NOTICES }
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
        let at = here.now.min(lease.expires_at);
        self.leases.end(id, Ended { at, why });
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
    fn quarantine_left(&mut self, judged: StoreTime, vouched: StoreTime) -> Option<Duration> {
        let until = self.quarantine_from? + self.longest;
        if until <= judged {
            self.quarantine_from = None;
            return None;
        }
        Some(until.since(vouched).min(self.longest))
    }

    /// The ownership under `token`, or who owns instead. One whose lease is marked dead is over.
    fn tenant_of(&self, resource: &str, token: Token) -> Result<Tenant, StepDownReply> {
        let tenants = self.resources.get(resource).into_iter().flat_map(Resource::tenants);
        let present: Vec<&Tenant> = tenants.filter(|tenant| !self.leases.is_marked(tenant.lease)).collect();
        let named = present.iter().find(|tenant| tenant.grant.token == token);
        named.map(|tenant| **tenant).ok_or_else(|| {
            StepDownReply::OtherOwners(present.iter().map(|tenant| tenant.grant.token).collect())
        })
    }

    /// The time by which this request judges life: the store's clock, as far as the caller's own can vouch for
    /// it. One that a later renewal has overtaken judges nobody: what it vouched for may be from before the
    /// store's clock went back.
    fn judged(&self, here: Here, request: &Request) -> StoreTime {
        let overtaken = self.leases.get(request.lease).is_some_and(|lease| request.seq < lease.renewed);
        if overtaken {
            return StoreTime::from_micros(0);
        }
        Self::vouched(here, request)
    }

    /// The store's clock, as far as the caller's own can vouch for it.
    fn vouched(here: Here, request: &Request) -> StoreTime {
        request.judged_by.map_or(here.now, |vouched| vouched.min(here.now))
    }
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
