//! `rslock`, with a task that extends every third of the ttl what is held. Its check is `is_freed`, which asks the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::rslock::{Lock, LockManager};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::protocol::{Peer, Trouble, now};

#[derive(Clone)]
pub(crate) struct Candidate {
    url: Arc<str>,
    manager: LockManager,
    ttl: Duration,
}

pub(crate) struct Held {
    lock: Arc<Lock>,
    renewed_at: Arc<AtomicU64>,
    renewing: JoinHandle<()>,
    manager: LockManager,
    runtime: Handle,
}

impl Candidate {
    pub(crate) fn connect(url: &str, ttl: Duration) -> Self {
        Self { url: url.into(), manager: LockManager::new(vec![url]), ttl }
    }
}

impl Peer for Candidate {
    type Own = Held;

    async fn win(&self, name: String) -> Result<Held, Trouble> {
        let lock = Arc::new(self.manager.acquire_no_guard(name.as_str(), self.ttl).await?);
        let renewed_at = Arc::new(AtomicU64::new(now()));
        let (ttl, manager, kept, noted) = (self.ttl, self.manager.clone(), lock.clone(), renewed_at.clone());
        let renewing = tokio::spawn(async move {
            loop {
                tokio::time::sleep(ttl / 3).await;
                if let Err(error) = manager.extend(&kept, ttl).await {
                    eprintln!("cannot extend: {error}");
                    return;
                }
                noted.store(now(), Ordering::Relaxed);
            }
        });
        let runtime = Handle::current();
        Ok(Held { lock, renewed_at, renewing, manager: self.manager.clone(), runtime })
    }

    async fn release(&self, held: Held) {
        held.renewing.abort();
        held.manager.unlock(&held.lock).await;
    }

    fn holds(&self, held: &Held) -> bool {
        matches!(held.runtime.block_on(held.manager.is_freed(&held.lock)), Ok(false))
    }

    fn lease_until(&self, held: &Held) -> u64 {
        held.renewed_at.load(Ordering::Relaxed) + u64::try_from(self.ttl.as_nanos()).unwrap_or(0)
    }

    async fn another(&self) -> Result<Self, Trouble> {
        Ok(Self::connect(&self.url, self.ttl))
    }
}
