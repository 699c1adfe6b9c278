//! `memory:` One process; the ledger behind a mutex. For tests and examples.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_core::{
    Answer, Asked, Here, Incarnation, Label, LeaseId, Ledger, Request, ResourceName, ResourceView, StoreTime,
    Token,
};
use tokio::sync::mpsc;

use super::{Entry, Hints, Pending, Store};
use crate::Error;
use crate::clock::{ClockByHand, Clocks};

/// A store in this process. It never restarts, so its incarnation is always the same.
#[derive(Debug)]
pub struct MemoryStore {
    clocks: Clocks,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    ledger: Ledger,
    listeners: HashMap<LeaseId, mpsc::UnboundedSender<tenure_core::Hint>>,
}

const INCARNATION: Incarnation = Incarnation(1);

impl MemoryStore {
    /// An empty store on the system's clocks.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Clocks::System)
    }

    /// An empty store on a clock that is moved by hand.
    #[must_use]
    pub fn by_hand(clock: ClockByHand) -> Self {
        Self::on(Clocks::ByHand(clock))
    }

    pub(crate) fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    fn on(clocks: Clocks) -> Self {
        let inner = Inner { ledger: Ledger::new(INCARNATION), listeners: HashMap::new() };
        Self { clocks, inner: Mutex::new(inner) }
    }

    fn here(&self) -> Result<Here, Error> {
        let now = StoreTime::from_micros(self.clocks.now().boot_micros());
        Ok(Here::new(now, self.clocks.wall(), INCARNATION)?)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The ledger has no step that a panic could leave half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out one step, then wakes whom it concerns.
    fn step<T>(&self, act: impl FnOnce(&mut Ledger, Here) -> T) -> Result<T, Error> {
        let mut inner = self.lock();
        // Read under the lock, so that time does not go back from one step to the next.
        let here = self.here()?;
        let done = act(&mut inner.ledger, here);
        for hint in inner.ledger.take_hints() {
            let gone = inner.listeners.get(&hint.lease).is_some_and(|to| to.send(hint.clone()).is_err());
            if gone {
                inner.listeners.remove(&hint.lease);
            }
        }
        Ok(done)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Box::pin(async move { self.step(|ledger, here| ledger.apply(here, request)) })
    }

    fn hints(&self, lease: LeaseId) -> Pending<'_, Hints> {
        Box::pin(async move {
            let (to, hints) = mpsc::unbounded_channel();
            let mut inner = self.lock();
            inner.listeners.retain(|_, listener| !listener.is_closed());
            inner.listeners.insert(lease, to);
            Ok(hints)
        })
    }

    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>> {
        Box::pin(async move {
            self.step(|ledger, here| match resource {
                Some(resource) => ledger.read(here, resource.as_str()).into_iter().collect(),
                None => ledger.resources().filter_map(|name| ledger.read(here, name.as_str())).collect(),
            })
        })
    }

    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>> {
        Box::pin(async move {
            self.step(|ledger, here| {
                let records = ledger.history(here).into_iter();
                let wanted = records.filter(|record| resource.is_none_or(|name| *name == record.resource));
                wanted.map(|record| Entry::of(record, here.now())).collect()
            })
        })
    }

    fn ask<'a>(
        &'a self,
        resource: &'a ResourceName,
        token: Token,
        successor: Option<&'a Label>,
    ) -> Pending<'a, Asked> {
        Box::pin(
            async move { self.step(|ledger, here| ledger.ask(here, resource.as_str(), token, successor)) },
        )
    }

    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, Asked> {
        Box::pin(async move { self.step(|ledger, here| ledger.evict(here, resource.as_str(), token)) })
    }
}
