//! Claims and releases: who gets a ticket, who waits, who is woken.

use alloc::vec::Vec;
use core::time::Duration;

use super::history::Record;
use super::leases::Lease;
use super::resource::{MOST_STEPS, Resource, SetBy, Tenant, Turn, step};
use super::{Here, Ledger, notify};
use crate::message::{
    Claimed, Grant, Hint, LeaseId, Leave, Leaving, Released, Request, Said, Seq, WaitReason, Waiting, Want,
    Wish,
};
use crate::moment::StoreTime;
use crate::names::ResourceName;
use crate::shown::HistoryEvent;

/// How many dead waiters one operation clears.
const CLEARED: usize = 8;
/// Up to this place, waiters look a step after the one before; the rest leave it for a ttl.
const WATCHFUL: u32 = 8;
/// Nobody is told to look again sooner.
const SOONEST: Duration = Duration::from_millis(1);

/// One request at work: who asks, and by what time it judges.
#[derive(Clone, Copy)]
struct Case {
    here: Here,
    id: LeaseId,
    seq: Seq,
    opened_at: StoreTime,
    ttl: Duration,
    /// By this it marks the dead.
    judged: StoreTime,
    /// By this it says when to look again; the same, unless the request came late.
    vouched: StoreTime,
}

impl Case {
    /// The same request, by which no lease of another worker has run out.
    fn ending_no_lease(self) -> Self {
        Self { judged: StoreTime::from_micros(0), ..self }
    }
}

impl Ledger {
    pub(super) fn claim(&mut self, here: Here, request: &Request, wants: &[Want]) -> Said {
        let Some(case) = self.case(here, request) else { return Said::Gone };
        Said::Claimed(wants.iter().map(|want| self.claim_one(&case, want)).collect())
    }

    pub(super) fn release(&mut self, here: Here, request: &Request, leaves: &[Leave]) -> Said {
        let Some(case) = self.case(here, request) else { return Said::Gone };
        Said::Released(leaves.iter().map(|leave| self.release_one(&case, leave)).collect())
    }

    /// What all resources of a request have in common; nothing when its lease is dead.
    fn case(&mut self, here: Here, request: &Request) -> Option<Case> {
        self.see(here, Duration::ZERO);
        let (id, judged, vouched) = (request.lease, self.judged(here, request), Self::vouched(here, request));
        let alive = self.leases.judge(id, judged);
        let lease = self.leases.get(id).filter(|_| alive)?;
        let case =
            Case { here, id, seq: request.seq, opened_at: lease.opened_at, ttl: lease.ttl, judged, vouched };
        // By the store's clock its own lease has run out: the clock stepped, or the request is very late. It has
        // to renew before it may judge others.
        let doubtful = lease.expires_at <= here.now;
        Some(if doubtful { case.ending_no_lease() } else { case })
    }

    fn claim_one(&mut self, case: &Case, want: &Want) -> Claimed {
        let name = &want.resource;
        let set_by = SetBy { opened_at: case.opened_at, lease: case.id, seq: case.seq };
        let resized = match self.resources.get_mut(name) {
            Some(record) => record.resize(want.tickets, set_by, case.here.now),
            None => {
                self.resources.insert(name.clone(), Resource::new(want.tickets, set_by, case.here.now));
                false
            }
        };
        if resized {
            self.ask_surplus(name);
        }
        let reaped = self.reap(name, case.judged);
        let claimed = self.grant_or_queue(case, name, want.priority);
        if reaped || resized {
            self.wake(name, Some(case.id), case.judged);
        }
        claimed
    }

    fn release_one(&mut self, case: &Case, leave: &Leave) -> Released {
        let name = &leave.resource;
        if let Some(lease) = self.leases.get_mut(case.id) {
            lease.notices.remove(name);
        }
        let Some(record) = self.resources.get_mut(name) else { return Released::Free };
        record.leave_queue(case.id);
        let tenant = record.tenancy_of(case.id).copied();
        if let Some(tenant) = tenant {
            self.vacate(name, &tenant, case.here.now, leave.how.into());
        }
        let released = match leave.how {
            Leaving::SteppedDown => Released::Again(self.queue_again(case, name)),
            Leaving::Released | Leaving::Failed => Released::Free,
        };
        if tenant.is_some() {
            self.wake(name, Some(case.id), case.judged);
        }
        released
    }

    fn queue_again(&mut self, case: &Case, name: &ResourceName) -> Claimed {
        if let Some(record) = self.resources.get_mut(name) {
            record.queue_last(case.id, |waiter| self.leases.lives(waiter, case.judged));
        }
        self.reap(name, case.judged);
        self.grant_or_queue(case, name, 0)
    }

    /// Grants what the worker holds already, or what it may take now; else queues it once, and says when to
    /// look again.
    fn grant_or_queue(&mut self, case: &Case, name: &ResourceName, priority: i32) -> Claimed {
        let quarantine = self.quarantine_left(case.judged, case.vouched);
        let record = self.resources.get_mut(name).expect("it was claimed");
        let owned = record.tenancy_of(case.id).map(|tenant| tenant.grant);
        let ahead = match (owned, quarantine) {
            (Some(grant), None) => return Claimed::Granted(grant),
            // An owner that asks again during a quarantine has no place in the queue, and needs none.
            (Some(_), Some(_)) => 0,
            (None, _) => {
                let place = record.queue(case.id, priority);
                count(record.before(place).filter(|waiter| self.leases.lives(*waiter, case.judged)))
            }
        };
        let turn = record.turn(ahead, step(case.ttl), case.here.now);
        let may = match turn {
            Turn::Now => true,
            Turn::At(_) | Turn::Taken => false,
        };
        // One that came late may be from a lease that has run out since, which it is not to judge.
        let lives = self.leases.lives(case.id, case.vouched);
        if quarantine.is_none()
            && may
            && lives
            && let Some(grant) = record.grant(case.id, case.here.now, case.here.wall)
        {
            self.begin(case, name, grant);
            return Claimed::Granted(grant);
        }
        let later = if ahead <= WATCHFUL { step(case.ttl) * ahead } else { case.ttl };
        let (look_again, why) = match (quarantine, turn) {
            (Some(left), _) => (left + later, WaitReason::Quarantine),
            (None, Turn::At(at)) => {
                (at.since(case.here.now).min(step(case.ttl) * MOST_STEPS), WaitReason::Turn)
            }
            (None, Turn::Now | Turn::Taken) => {
                (self.first_to_end(name, case.vouched) + later, WaitReason::Taken)
            }
        };
        Claimed::Waiting(Waiting { ahead, look_again: look_again.max(SOONEST), why })
    }

    /// How long until the first of the owners would be dead.
    fn first_to_end(&self, name: &ResourceName, vouched: StoreTime) -> Duration {
        let tenants = self.resources.get(name).into_iter().flat_map(Resource::tenants);
        // Where the caller's judgement lags behind the store's clock, or that clock went back, the span would
        // be longer than any lease: looking once per ttl finds out when they agree again.
        let left = |lease: &Lease| lease.expires_at.since(vouched).min(lease.ttl);
        tenants.filter_map(|tenant| self.leases.get(tenant.lease)).map(left).min().unwrap_or_default()
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
                // A grant may come after the expiry by the store's clock, if the worker vouches for less.
                self.vacate(name, &tenant, ended.at.max(tenant.since), ended.why.into());
                reaped = true;
            }
        }
        reaped
    }

    /// Writes a new ownership down, beside the resource itself.
    fn begin(&mut self, case: &Case, name: &ResourceName, grant: Grant) {
        let Some(lease) = self.leases.get_mut(case.id) else { return };
        lease.held.insert(name.clone());
        lease.notices.remove(name);
        let worker = lease.label.clone();
        let (at, what) = (case.here.now, HistoryEvent::Granted);
        self.history.add(Record { at, resource: name.clone(), worker, grant, what });
    }

    /// Frees a ticket, everywhere where it is written down.
    pub(super) fn vacate(&mut self, name: &ResourceName, tenant: &Tenant, at: StoreTime, what: HistoryEvent) {
        if let Some(record) = self.resources.get_mut(name) {
            record.vacate(tenant.grant.ticket, at);
        }
        if let Some(lease) = self.leases.get_mut(tenant.lease) {
            lease.held.remove(name);
            let (worker, grant) = (lease.label.clone(), tenant.grant);
            self.history.add(Record { at, resource: name.clone(), worker, grant, what });
        }
    }

    /// Hints those who may take a free ticket at once, and tells the next to look one step later.
    pub(super) fn wake(&mut self, name: &ResourceName, except: Option<LeaseId>, judged: StoreTime) {
        let Some(record) = self.resources.get(name) else { return };
        let owned = count(record.tenants().filter(|tenant| self.leases.lives(tenant.lease, judged)));
        let free = record.tickets().saturating_sub(owned);
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

    /// Whom a hint goes on to when nobody listens where it was sent: the next live waiter behind that one.
    #[must_use]
    pub fn pass_on(&self, here: Here, hint: &Hint) -> Option<Hint> {
        let record = self.resources.get(&hint.resource)?;
        let behind = record.waiters().skip_while(|waiter| *waiter != hint.lease).skip(1);
        let lease = behind.into_iter().find(|waiter| self.leases.lives(*waiter, here.now))?;
        let ttl = self.leases.get(lease).map_or(Duration::ZERO, |lease| lease.ttl);
        let after = if hint.after.is_zero() { Duration::ZERO } else { step(ttl) };
        Some(Hint { lease, resource: hint.resource.clone(), after })
    }

    /// After K was lowered: the owners of the highest tickets are asked to hand over.
    fn ask_surplus(&mut self, name: &ResourceName) {
        let Some(record) = self.resources.get(name) else { return };
        for tenant in record.surplus() {
            notify(&mut self.leases, name, tenant, Wish::Lowered);
        }
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}
