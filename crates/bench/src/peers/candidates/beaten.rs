//! What the recipes written by hand have in common: a flag, and a task that renews every third of the ttl and lowers the
//! flag when the store says no, or when it cannot be asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::peers::protocol::{Trouble, now};

/// Owned as long as the flag says so.
pub(super) struct Beaten {
    pub(super) name: String,
    state: Arc<State>,
    beating: JoinHandle<()>,
}

struct State {
    is_owner: AtomicBool,
    renewed_at: AtomicU64,
    ttl: Duration,
}

/// How often a recipe tries, and how often it renews.
pub(super) fn interval(ttl: Duration) -> Duration {
    ttl / 3
}

impl Beaten {
    /// From when it was granted on: `renew` says whether it is still ours.
    pub(super) fn begin<F>(name: String, ttl: Duration, mut renew: impl FnMut() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<bool, Trouble>> + Send,
    {
        let state =
            Arc::new(State { is_owner: AtomicBool::new(true), renewed_at: AtomicU64::new(now()), ttl });
        let noted = state.clone();
        let beating = tokio::spawn(async move {
            loop {
                tokio::time::sleep(interval(noted.ttl)).await;
                let is_ours = renew().await.unwrap_or_else(|trouble| {
                    eprintln!("cannot renew: {trouble}");
                    false
                });
                if !is_ours {
                    noted.is_owner.store(false, Ordering::Release);
                    return;
                }
                noted.renewed_at.store(now(), Ordering::Relaxed);
            }
        });
        Self { name, state, beating }
    }

    pub(super) fn is_owner(&self) -> bool {
        self.state.is_owner.load(Ordering::Acquire)
    }

    pub(super) fn lease_until(&self) -> u64 {
        self.state.renewed_at.load(Ordering::Relaxed) + u64::try_from(self.state.ttl.as_nanos()).unwrap_or(0)
    }

    /// No renewal after this.
    pub(super) fn end(&self) {
        self.state.is_owner.store(false, Ordering::Release);
        self.beating.abort();
    }
}
