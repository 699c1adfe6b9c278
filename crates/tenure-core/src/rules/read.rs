//! What people and dashboards may read. Takes no lease, changes nothing, and shows no lease id.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::change::Event;
use super::records::{Lease, Meta, Resource, Runs};
use super::view::run_out;
use crate::job::{JOB_RECORDS, JobView};
use crate::message::{Incarnation, LeaseId};
use crate::moment::StoreTime;
use crate::names::{Metadata, ResourceName};
use crate::shown::{OwnerView, ResourceView, WaiterView};

/// Everything that is needed to show resources.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// The store's clock; absent where it has none.
    pub now: Option<StoreTime>,
    /// The leases that the resources name, and what their workers tell.
    pub leases: BTreeMap<LeaseId, (Lease, Metadata)>,
    /// How long nothing is granted still.
    pub withheld: Option<Duration>,
}

impl Reader {
    /// For how long nothing is granted, because the store is new, was restarted or lost its data.
    #[must_use]
    pub fn withheld(meta: Option<&Meta>, life: Incarnation, now: Option<StoreTime>) -> Option<Duration> {
        let meta = meta?;
        // A life that nobody has noticed yet begins with a quarantine.
        let left = match (&meta.quarantine, now) {
            _ if meta.life != life => meta.longest,
            (Some(quarantine), Some(now)) => {
                let gone = quarantine.since.map_or(Duration::ZERO, |since| now.since(since));
                meta.longest.saturating_sub(gone)
            }
            (Some(_), None) => meta.longest,
            (None, _) => Duration::ZERO,
        };
        (!left.is_zero()).then_some(left)
    }

    /// Owners and waiters of one resource; those whose lease is over are left out.
    #[must_use]
    pub fn view(&self, name: &ResourceName, resource: &Resource) -> ResourceView {
        let owners = resource.owners.iter().filter_map(|owner| {
            let (lease, metadata, left) = self.living(owner.lease)?;
            let owned_for = self.now.zip(owner.since).map_or(Duration::ZERO, |(now, since)| now.since(since));
            let (worker, metadata) = (lease.label.clone(), metadata.clone());
            Some(OwnerView { worker, metadata, grant: owner.grant, owned_for, left })
        });
        let waiters = resource.queue.iter().filter_map(|waiter| {
            let (lease, metadata, left) = self.living(waiter.lease)?;
            Some(WaiterView { worker: lease.label.clone(), metadata: metadata.clone(), left })
        });
        ResourceView {
            resource: name.clone(),
            tickets: resource.tickets,
            owners: owners.collect(),
            waiters: waiters.collect(),
            withheld: self.withheld,
        }
    }

    /// The endings that nobody has come across yet.
    #[must_use]
    pub fn endings(&self, name: &ResourceName, resource: &Resource) -> Vec<Event> {
        let over = resource.owners.iter().filter(|owner| self.living(owner.lease).is_none());
        let ending = over.filter_map(|owner| {
            let (lease, _) = self.leases.get(&owner.lease)?;
            let ended = lease.ended.unwrap_or(run_out(lease.runs_out_at()));
            let (worker, grant, at) = (lease.label.clone(), owner.grant, ended.at.max(owner.since));
            Some(Event { at, resource: name.clone(), worker, grant, what: ended.why.into() })
        });
        ending.collect()
    }

    fn living(&self, lease: LeaseId) -> Option<(&Lease, &Metadata, Duration)> {
        let (lease, metadata) = self.leases.get(&lease)?;
        let left = match (self.now, lease.runs_out_at()) {
            (Some(now), Some(end)) => end.since(now),
            _ => lease.ttl,
        };
        (lease.ended.is_none() && !left.is_zero()).then_some((lease, metadata, left))
    }
}

/// A job as it stands, with the latest record only or with the earlier ones, too.
#[must_use]
pub fn job_view(name: &ResourceName, resource: &Resource, earlier: Option<&Runs>) -> Option<JobView> {
    let job = resource.job.as_ref()?;
    let latest = job.latest.iter().map(|run| run.record.clone());
    let mut records: Vec<_> =
        earlier.into_iter().flat_map(|runs| runs.runs.iter().cloned()).chain(latest).collect();
    let surplus = records.len().saturating_sub(JOB_RECORDS);
    records.drain(..surplus);
    Some(JobView {
        job: name.clone(),
        plan: job.plan.clone(),
        through: job.through,
        counts: job.counts,
        records,
    })
}
