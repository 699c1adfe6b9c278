//! What people read: owners and waiters, the condition of the namespace, history, jobs; and what is known of a resource without
//! reading. Nothing is changed here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::rules::{Event, Found, Key, Lease, Reader, Record, Resource, Value, job_view};
use tenure_core::{BATCH, HISTORY, JobView, LeaseId, Metadata, ResourceName, ResourceView};

use super::Inner;
use super::run::{decoded, readable};
use crate::Error;
use crate::store::backend::{Backend, History, Listing};
use crate::store::{Condition, Entry, Known, codec};

/// So many other workers of a resource are compared with one that competes for it.
const MOST_COMPARED: usize = 64;

impl<B: Backend> Inner<B> {
    /// What earlier answers showed.
    pub(super) fn known(&self, lease: LeaseId, name: &ResourceName) -> Known {
        let client = self.client();
        let Some(resource) = client.seen(&Key::Resource(name.clone())).and_then(Record::resource) else {
            return Known::default();
        };
        let lease_of = |id: LeaseId| client.seen(&Key::Lease(id)).and_then(Record::lease);
        // A worker that died and came again under its label finds the lease that it had before. As long as it waits, only a
        // lease that was renewed since counts.
        let owns = resource.owner_with(lease).is_some();
        let has_namesake = lease_of(lease).is_some_and(|own| {
            let is_namesake = |other: &Lease| {
                other.label == own.label && other.ended.is_none() && (owns || other.renewed > own.opened)
            };
            let owners = resource.owners.iter().map(|owner| owner.lease);
            let others = owners.chain(resource.queue.iter().map(|waiter| waiter.lease));
            let others = others.filter(|other| *other != lease).take(MOST_COMPARED);
            others.filter_map(lease_of).any(is_namesake)
        });
        Known { tickets: Some(resource.tickets), has_namesake }
    }

    /// These resources, or all, with the leases that they name.
    pub(super) async fn resources(
        &self,
        resource: Option<&ResourceName>,
    ) -> Result<(Reader, Vec<(ResourceName, Resource)>), Error> {
        let (shown, found) = match resource {
            Some(resource) => self.read(&[Key::Resource(resource.clone())]).await?,
            None => {
                let (shown, records) = self.list(Listing::Resources).await?;
                (shown, readable(records))
            }
        };
        let mut named = BTreeSet::new();
        let mut resources = Vec::new();
        for found in found {
            let Found { key, value, .. } = found.timed(shown.now);
            if let (Key::Resource(name), Some(Value::Resource(resource))) = (key, value) {
                named.extend(resource.owners.iter().map(|owner| owner.lease));
                named.extend(resource.queue.iter().map(|waiter| waiter.lease));
                resources.push((name, resource));
            }
        }
        let mut keys = vec![Key::Meta];
        keys.extend(named.iter().flat_map(|lease| [Key::Lease(*lease), Key::Info(*lease)]));
        let mut reader = Reader::default();
        let mut leases: BTreeMap<LeaseId, Lease> = BTreeMap::new();
        let mut said: BTreeMap<LeaseId, Metadata> = BTreeMap::new();
        for some in keys.chunks(2 * BATCH) {
            let (shown, found) = self.read(some).await?;
            reader.now = shown.now;
            for found in found {
                let Found { key, value, .. } = found.timed(shown.now);
                match (key, value) {
                    (Key::Lease(id), Some(Value::Lease(lease))) => drop(leases.insert(id, lease)),
                    (Key::Info(id), Some(Value::Info(info))) => drop(said.insert(id, info.metadata)),
                    (Key::Meta, Some(Value::Meta(meta))) => {
                        reader.withheld = Reader::withheld(Some(&meta), shown.life, shown.now);
                    }
                    _ => {}
                }
            }
        }
        let with_metadata = |(id, lease): (LeaseId, Lease)| {
            let metadata = said.get(&id).cloned().unwrap_or_default();
            (id, (lease, metadata))
        };
        reader.leases = leases.into_iter().map(with_metadata).collect();
        resources.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok((reader, resources))
    }

    pub(super) async fn views(&self, resource: Option<&ResourceName>) -> Result<Vec<ResourceView>, Error> {
        let (reader, resources) = self.resources(resource).await?;
        Ok(resources.iter().map(|(name, resource)| reader.view(name, resource)).collect())
    }

    pub(super) async fn condition(&self) -> Result<Condition, Error> {
        let (shown, found) = self.read(&[Key::Meta]).await?;
        let meta =
            found.into_iter().map(|found| found.timed(shown.now)).find_map(|found| match found.value {
                Some(Value::Meta(meta)) => Some(meta),
                _ => None,
            });
        let (_, records) = self.list(Listing::Resources).await?;
        let unreadable =
            records.into_iter().filter_map(|stored| match (stored.key.clone(), decoded(stored)) {
                (Key::Resource(name), Err(_)) => Some(name),
                _ => None,
            });
        Ok(Condition {
            withheld: Reader::withheld(meta.as_ref(), shown.life, shown.now),
            unreadable: unreadable.collect(),
        })
    }

    pub(super) async fn history(&self, resource: Option<&ResourceName>) -> Result<Vec<Entry>, Error> {
        let History { now, entries } = self.backend.history(resource, HISTORY).await?;
        let (reader, resources) = self.resources(resource).await?;
        let events = entries.into_iter().map(|(at, text)| codec::decode_event(at, text.as_str()));
        let mut events = events.collect::<Result<Vec<_>, Error>>()?;
        events.extend(resources.iter().flat_map(|(name, resource)| reader.endings(name, resource)));
        let now = reader.now.max(now);
        events.sort_by_key(|event| event.at);
        let entry = |event: Event| Entry {
            ago: now.zip(event.at).map_or(Duration::ZERO, |(now, at)| now.since(at)),
            resource: event.resource,
            worker: event.worker,
            grant: event.grant,
            what: event.what,
        };
        Ok(events.into_iter().map(entry).collect())
    }

    pub(super) async fn jobs(&self, job: Option<&ResourceName>) -> Result<Vec<JobView>, Error> {
        let found = match job {
            Some(job) => self.read(&[Key::Resource(job.clone()), Key::Runs(job.clone())]).await?.1,
            None => readable(self.list(Listing::Resources).await?.1),
        };
        let runs = found.iter().find_map(|found| match &found.value {
            Some(Value::Runs(runs)) => Some(runs),
            _ => None,
        });
        let view = |found: &Found| match (&found.key, &found.value) {
            (Key::Resource(name), Some(Value::Resource(resource))) => job_view(name, resource, runs),
            _ => None,
        };
        let mut views: Vec<JobView> = found.iter().filter_map(view).collect();
        views.sort_by(|a, b| a.job.cmp(&b.job));
        Ok(views)
    }
}
