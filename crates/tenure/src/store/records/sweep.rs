//! Work in the background: removes leases that ended long ago, and forgets ttls that no lease uses.

use crate::runtime::events;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tenure_core::rules::{Act, Found, Key, LookedAtLeases, Value};
use tenure_core::{BATCH, LeaseId, Version};

use super::Inner;
use super::run::{decoded, readable};
use crate::Error;
use crate::runtime::engine::random;
use crate::store::backend::{Backend, Listing, Page, Snapshot};

/// How often one process removes old leases.
const SWEPT_EVERY: Duration = Duration::from_secs(60);

impl<B: Backend> Inner<B> {
    /// Starts a sweep, unless this process did so lately.
    pub(super) fn sweep_if_due(self: &Arc<Self>) {
        {
            // Real time, even on a manual clock: it only limits the work.
            let mut swept_at = self.swept_at.lock().unwrap_or_else(PoisonError::into_inner);
            if swept_at.is_some_and(|at| at.elapsed() < SWEPT_EVERY) {
                return;
            }
            *swept_at = Some(Instant::now());
        }
        let inner = self.clone();
        tokio::spawn(async move {
            if let Err(error) = inner.sweep().await {
                events::debug("cannot remove old leases", &error);
            }
        });
    }

    /// Removes old leases from one page of the listing, at a random place, and looks which ttls are in use.
    pub(super) async fn sweep(&self) -> Result<(), Error> {
        let somewhere = Key::Lease(LeaseId(random::<16>()));
        let Page { shown: mut page, more } = self.backend.list(Listing::Leases, Some(&somewhere)).await?;
        if !more {
            let first = self.backend.list(Listing::Leases, None).await?.shown;
            page = Snapshot { records: page.records.into_iter().chain(first.records).collect(), ..first };
        }
        let over = readable(page.records).into_iter().filter_map(|found| {
            let Found { key: Key::Lease(id), value: Some(Value::Lease(lease)), .. } = found.timed(page.now)
            else {
                return None;
            };
            // Where the store has no clock, the rules watch every lease for a while.
            let run_out =
                page.now.zip(lease.renewed).is_none_or(|(now, renewed)| now.since(renewed) >= lease.ttl);
            (lease.ended.is_some() || run_out).then_some(id)
        });
        let over: BTreeSet<LeaseId> = over.take(BATCH).collect();
        if !over.is_empty() {
            self.run(Act::Sweep(over.into_iter().collect())).await?;
        }
        let may_have_unused = self.client().may_have_unused_ttls(&self.env());
        if may_have_unused {
            let (_, before) = self.read(&[Key::Meta, Key::Ttls]).await?;
            let [meta, ttls] = [Key::Meta, Key::Ttls].map(|key| {
                before.iter().find(|found| found.key == key).map_or(Version::NONE, |found| found.version)
            });
            let (_, leases) = self.list(Listing::Leases).await?;
            // An unreadable lease may use any ttl: then nothing is forgotten.
            let leases = leases.into_iter().map(decoded).collect::<Result<Vec<_>, _>>()?;
            let in_use = leases.into_iter().filter_map(|found| match found.value {
                Some(Value::Lease(lease)) if lease.ended.is_none() => Some(lease.ttl),
                _ => None,
            });
            let looked = LookedAtLeases::since(meta, ttls, in_use.collect());
            self.run(Act::DropTtls(looked)).await?;
        }
        Ok(())
    }
}
