//! A store that counts what is asked of it, and tells what it answered.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure::conformance::Relay;
use tenure::store::{Answer, Call, LeaseId, Pending, Request, Store};

/// Called with every answer, on the driver's thread.
type Heard = Box<dyn Fn(&Request, &Answer) + Send + Sync>;

/// Counts, and hands on to another store.
pub(crate) struct Counted {
    inner: Arc<dyn Store>,
    heard: Heard,
    renewals: AtomicU64,
    claims: AtomicU64,
    others: AtomicU64,
    /// Claims by who made them.
    looks: Mutex<HashMap<LeaseId, u64>>,
}

/// How often what was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) renewals: u64,
    pub(crate) claims: u64,
    pub(crate) others: u64,
    /// How often the most eager lease has claimed.
    pub(crate) most: u64,
}

impl Counted {
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        heard: impl Fn(&Request, &Answer) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner,
            heard: Box::new(heard),
            renewals: AtomicU64::new(0),
            claims: AtomicU64::new(0),
            others: AtomicU64::new(0),
            looks: Mutex::default(),
        })
    }

    pub(crate) fn counts(&self) -> Counts {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        Counts {
            renewals: self.renewals.load(Ordering::Relaxed),
            claims: self.claims.load(Ordering::Relaxed),
            others: self.others.load(Ordering::Relaxed),
            most: looks.values().copied().max().unwrap_or(0),
        }
    }

    /// Begins the count of claims by lease anew.
    pub(crate) fn forget_looks(&self) {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn count(&self, request: &Request) {
        match request.call {
            Call::Renew => self.renewals.fetch_add(1, Ordering::Relaxed),
            Call::Claim(_) => {
                let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
                *looks.entry(request.lease).or_default() += 1;
                self.claims.fetch_add(1, Ordering::Relaxed)
            }
            _ => self.others.fetch_add(1, Ordering::Relaxed),
        };
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Relay for Counted {
    fn behind(&self) -> &dyn Store {
        &*self.inner
    }

    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        self.count(request);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let Ok(answer) = &answer {
                (self.heard)(request, answer);
            }
            answer
        })
    }
}
