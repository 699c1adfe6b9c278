//! The way from a worker to the store, which can be cut, loses answers, and counts what goes over it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure::Error;
use tenure::conformance::Relay;
use tenure::store::{Answer, Call, JobAct, JobSaid, JobStep, MemoryStore, Pending, Request, Store};

#[derive(Debug)]
pub(crate) struct Link {
    store: Arc<MemoryStore>,
    is_cut: AtomicBool,
    to_lose: AtomicUsize,
    lost: AtomicUsize,
    counts: Mutex<BTreeMap<&'static str, usize>>,
}

impl Link {
    pub(crate) fn to(store: &Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            is_cut: AtomicBool::new(false),
            to_lose: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            counts: Mutex::default(),
        })
    }

    /// Nothing goes over it any more.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }

    /// The next so many steps of jobs are carried out, and their answers are lost.
    pub(crate) fn lose_answers(&self, count: usize) {
        self.to_lose.store(count, Ordering::SeqCst);
    }

    /// How many were.
    pub(crate) fn lost(&self) -> usize {
        self.lost.load(Ordering::SeqCst)
    }

    /// How many steps of jobs of this kind were asked for.
    pub(crate) fn steps(&self, kind: &str) -> usize {
        self.count(kind)
    }

    pub(crate) fn calls(&self, kind: &str) -> usize {
        self.count(kind)
    }

    fn count(&self, kind: &str) -> usize {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).get(kind).copied().unwrap_or(0)
    }

    fn note(&self, kind: &'static str) -> Result<(), Error> {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
        self.look()
    }

    fn look(&self) -> Result<(), Error> {
        let is_cut = self.is_cut.load(Ordering::SeqCst);
        if is_cut { Err(Error::unavailable("the link is cut")) } else { Ok(()) }
    }
}

impl Relay for Link {
    fn behind(&self) -> &dyn Store {
        &*self.store
    }

    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Box::pin(async move {
            self.note(match request.call {
                Call::Claim(_) => "claim",
                Call::Release(_) => "release",
                _ => "lease",
            })?;
            let answer = self.store.call(request).await;
            // It may have been cut meanwhile.
            self.look()?;
            answer
        })
    }

    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid> {
        Box::pin(async move {
            self.note(match step.act {
                JobAct::Attend { .. } => "attend",
                JobAct::Begin(_) => "begin",
                JobAct::Finish { .. } => "finish",
            })?;
            let said = self.store.job(step).await;
            self.look()?;
            let one_less = |left: usize| left.checked_sub(1);
            if self.to_lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                self.lost.fetch_add(1, Ordering::SeqCst);
                return Err(Error::unavailable("the answer was lost"));
            }
            said
        })
    }
}
