//! What people and dashboards may read. Takes no lease, marks nobody, and shows no lease id.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Here, Ledger, Record};
use crate::message::{Grant, LeaseId, Token};
use crate::moment::StoreTime;
use crate::names::{Label, ResourceName};
use crate::shown::{HistoryEvent, OwnerView, ResourceView, WaiterView};

impl Ledger {
    /// Owners and waiters of one resource; those whose lease is over are left out.
    #[must_use]
    pub fn read(&self, here: Here, resource: &str) -> Option<ResourceView> {
        let (name, record) = self.resources.get_key_value(resource)?;
        let living = |lease: LeaseId| self.leases.get(lease).filter(|_| self.leases.lives(lease, here.now));
        let owner = |lease: LeaseId, grant: Grant, since: StoreTime| {
            let lease = living(lease)?;
            Some(OwnerView {
                worker: lease.label.clone(),
                metadata: lease.metadata.clone(),
                grant,
                owned_for: here.now.since(since),
                left: lease.expires_at.since(here.now),
            })
        };
        let waiter = |lease: LeaseId| {
            let lease = living(lease)?;
            let left = lease.expires_at.since(here.now);
            Some(WaiterView { worker: lease.label.clone(), metadata: lease.metadata.clone(), left })
        };
        Some(ResourceView {
            resource: name.clone(),
            tickets: record.tickets(),
            owners: record
                .tenants()
                .filter_map(|tenant| owner(tenant.lease, tenant.grant, tenant.since))
                .collect(),
            waiters: record.waiters().filter_map(waiter).collect(),
            withheld: self.withheld(here),
        })
    }

    fn withheld(&self, here: Here) -> Option<Duration> {
        // A life that nobody has noticed yet begins with a quarantine.
        let from = if self.incarnation == Some(here.incarnation) { self.quarantine_from? } else { here.now };
        let left = (from + self.longest).since(here.now).min(self.longest);
        (!left.is_zero()).then_some(left)
    }

    /// Every resource that was ever claimed, by name.
    pub fn resources(&self) -> impl Iterator<Item = &ResourceName> {
        self.resources.keys()
    }

    /// What happened, oldest first, with the endings that nobody has come across yet at their place in time.
    #[must_use]
    pub fn history(&self, here: Here) -> Vec<Record> {
        let mut records: Vec<Record> = self.history.iter().cloned().collect();
        for (name, record) in &self.resources {
            for tenant in record.tenants().filter(|tenant| !self.leases.lives(tenant.lease, here.now)) {
                let Some(lease) = self.leases.get(tenant.lease) else { continue };
                let ended = self.leases.ending(tenant.lease, here.now);
                records.push(Record {
                    at: ended.at.max(tenant.since),
                    resource: name.clone(),
                    worker: lease.label.clone(),
                    grant: tenant.grant,
                    what: HistoryEvent::from(ended.why),
                });
            }
        }
        records.sort_by_key(|record| record.at);
        records
    }

    /// When the store would let go of this lease, if it lives. For tests that compare stores.
    #[must_use]
    pub fn expiry(&self, lease: LeaseId) -> Option<StoreTime> {
        self.leases.get(lease).filter(|lease| lease.ended.is_none()).map(|lease| lease.expires_at)
    }

    /// Counts the steps of this resource's free tickets from `at`. For tests that compare stores: one that keeps a
    /// single time per resource, when a ticket was freed last, counts so.
    pub fn count_steps_from(&mut self, resource: &str, at: StoreTime) {
        if let Some(record) = self.resources.get_mut(resource) {
            record.count_steps_from(at);
        }
    }

    /// Which lease owns the resource under `token`. For tests that compare stores.
    #[must_use]
    pub fn owner_of(&self, resource: &str, token: Token) -> Option<LeaseId> {
        self.tenant_of(resource, token).ok().map(|tenant| tenant.lease)
    }

    /// Labels that more than one live worker carries: harmless, and worth a report.
    #[must_use]
    pub fn shared_labels(&self, here: Here) -> Vec<Label> {
        let mut labels: Vec<&Label> = self
            .leases
            .iter()
            .filter(|(id, _)| self.leases.lives(*id, here.now))
            .map(|(_, lease)| &lease.label)
            .collect();
        labels.sort();
        let mut shared: Vec<Label> =
            labels.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone()).collect();
        shared.dedup();
        shared
    }
}
