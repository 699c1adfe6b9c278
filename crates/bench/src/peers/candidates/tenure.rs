//! Tenure: one worker; its check is `Ownership::holds`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::store::{OpenStore, Said};
use tenure::{Ownership, Timing, Worker};

use crate::counted::Counted;
use crate::ground::Site;
use crate::peers::protocol::{Peer, Trouble, now};

#[derive(Clone)]
pub(super) struct Candidate {
    worker: Worker,
    store: OpenStore,
    timing: Timing,
    ttl: Duration,
    /// When the lease was last renewed, as the answer arrived.
    renewed_at: Arc<AtomicU64>,
}

impl Candidate {
    pub(super) async fn connect(url: &str, ttl: Duration, space: &str) -> Result<Self, Trouble> {
        let renewed_at = Arc::new(AtomicU64::new(now()));
        let noted = renewed_at.clone();
        let store = Counted::new(Site::at(url, space).store().await?, move |_, answer| {
            if let Said::Kept { .. } = answer.said {
                noted.store(now(), Ordering::Relaxed);
            }
        });
        let (store, timing) = (OpenStore::new(store)?, Timing::new(ttl)?);
        let worker = Worker::on(store.clone()).timing(timing).connect().await?;
        Ok(Self { worker, store, timing, ttl, renewed_at })
    }
}

impl Peer for Candidate {
    type Own = Ownership;

    async fn win(&self, name: String) -> Result<Ownership, Trouble> {
        Ok(self.worker.campaign(name).acquire().await?)
    }

    async fn release(&self, own: Ownership) {
        own.release().await;
    }

    fn holds(&self, own: &Ownership) -> bool {
        own.holds()
    }

    fn lease_until(&self, _: &Ownership) -> u64 {
        self.renewed_at.load(Ordering::Relaxed) + u64::try_from(self.ttl.as_nanos()).unwrap_or(0)
    }

    async fn another(&self) -> Result<Self, Trouble> {
        let worker = Worker::on(self.store.clone()).timing(self.timing).connect().await?;
        Ok(Self { worker, ..self.clone() })
    }
}
