//! `etcd-client`: one lease per candidate, kept alive every third of its ttl, and `campaign`, which waits in the server.
//! There is no check: a flag, which falls when the lease cannot be kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::{Client, LeaderKey, LeaseKeepAliveStream, LeaseKeeper, ResignOptions};

use crate::protocol::{Peer, Trouble, now};

#[derive(Clone)]
pub(crate) struct Candidate {
    url: Arc<str>,
    client: Client,
    lease: i64,
    ttl: Duration,
    kept: Arc<Kept>,
}

struct Kept {
    is_alive: AtomicBool,
    renewed_at: AtomicU64,
}

impl Candidate {
    pub(crate) async fn connect(url: &str, ttl: Duration) -> Result<Self, Trouble> {
        let mut client = Client::connect([url], None).await?;
        let lease = client.lease_grant(i64::try_from(ttl.as_secs())?, None).await?.id();
        let kept = Arc::new(Kept { is_alive: AtomicBool::new(true), renewed_at: AtomicU64::new(now()) });
        let (keeper, replies) = client.lease_keep_alive(lease).await?;
        let noted = kept.clone();
        tokio::spawn(async move {
            if let Err(trouble) = keep(keeper, replies, ttl, &noted).await {
                eprintln!("cannot keep the lease: {trouble}");
            }
            noted.is_alive.store(false, Ordering::Release);
        });
        Ok(Self { url: url.into(), client, lease, ttl, kept })
    }
}

/// Comes back when the lease is gone.
async fn keep(
    mut keeper: LeaseKeeper,
    mut replies: LeaseKeepAliveStream,
    ttl: Duration,
    noted: &Kept,
) -> Result<(), Trouble> {
    loop {
        keeper.keep_alive().await?;
        match replies.message().await? {
            Some(reply) if reply.ttl() > 0 => noted.renewed_at.store(now(), Ordering::Relaxed),
            _ => return Ok(()),
        }
        tokio::time::sleep(ttl / 3).await;
    }
}

impl Peer for Candidate {
    type Own = LeaderKey;

    async fn win(&self, name: String) -> Result<LeaderKey, Trouble> {
        let mut won = self.client.clone().campaign(name, "candidate", self.lease).await?;
        won.take_leader().ok_or_else(|| "etcd names no leader".into())
    }

    async fn release(&self, leader: LeaderKey) {
        let options = ResignOptions::new().with_leader(leader);
        if let Err(error) = self.client.clone().resign(Some(options)).await {
            eprintln!("cannot resign: {error}");
        }
    }

    fn holds(&self, _: &LeaderKey) -> bool {
        self.kept.is_alive.load(Ordering::Acquire)
    }

    fn lease_until(&self, _: &LeaderKey) -> u64 {
        self.kept.renewed_at.load(Ordering::Relaxed) + u64::try_from(self.ttl.as_nanos()).unwrap_or(0)
    }

    async fn another(&self) -> Result<Self, Trouble> {
        Self::connect(&self.url, self.ttl).await
    }
}
