//! A store that can be made to fail, and counts what it is asked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::admin::{ResourceView, StepDownReply};
use tenure::jobs::JobView;
use tenure::store::{
    Answer, Call, Condition, Entry, Hints, Holder, JobSaid, JobStep, LeaseId, MemoryStore, Messages,
    OpenStore, Payload, Pending, Published, Request, Store,
};
use tenure::types::{Label, ResourceName, Token};
use tenure::{Error, Timing, Worker};

/// How the store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    Fails,
    Hangs,
}

#[derive(Debug)]
pub(crate) struct Shaky {
    inner: MemoryStore,
    calls: Mutex<Mood>,
    hints: Mutex<Mood>,
    asked: Mutex<Vec<(Instant, &'static str)>>,
    renewing: AtomicUsize,
    /// How many renewals were ever under way at once.
    pub(crate) most_renewing: AtomicUsize,
}

impl Shaky {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::default(),
            calls: Mutex::new(Mood::Well),
            hints: Mutex::new(Mood::Well),
            asked: Mutex::default(),
            renewing: AtomicUsize::new(0),
            most_renewing: AtomicUsize::new(0),
        })
    }

    /// A store, and a worker on it.
    pub(crate) async fn with_worker(ttl: Duration, label: &str) -> (Arc<Self>, Worker) {
        let store = Self::new();
        let worker = store.worker(ttl, label).await;
        (store, worker)
    }

    pub(crate) async fn worker(self: &Arc<Self>, ttl: Duration, label: &str) -> Worker {
        let timing = Timing::new(ttl).expect("sound");
        Worker::on(self.opened()).timing(timing).label(label).connect().await.expect("a worker")
    }

    pub(crate) fn opened(self: &Arc<Self>) -> OpenStore {
        OpenStore::new(self.clone()).expect("a thread")
    }

    /// From now on everything that is asked goes like this, but for hints.
    pub(crate) fn is(&self, mood: Mood) {
        *self.calls.lock().expect("no panic") = mood;
    }

    pub(crate) fn hints_are(&self, mood: Mood) {
        *self.hints.lock().expect("no panic") = mood;
    }

    /// When it was asked this.
    pub(crate) fn asked(&self, call: &str) -> Vec<Instant> {
        let asked = self.asked.lock().expect("no panic");
        asked.iter().filter(|(_, name)| *name == call).map(|(at, _)| *at).collect()
    }

    pub(crate) fn was_never_asked(&self) -> bool {
        self.asked.lock().expect("no panic").is_empty()
    }

    fn note(&self, name: &'static str) {
        self.asked.lock().expect("no panic").push((Instant::now(), name));
    }

    async fn shake(&self, mood: &Mutex<Mood>) -> Result<(), Error> {
        let mood = *mood.lock().expect("no panic");
        match mood {
            Mood::Well => Ok(()),
            Mood::Fails => {
                Err(Error::unavailable("cannot ask").because(std::io::Error::other("the link is cut")))
            }
            Mood::Hangs => std::future::pending().await,
        }
    }

    async fn answer<T>(&self, name: &'static str, answer: Pending<'_, T>) -> Result<T, Error> {
        self.note(name);
        self.shake(&self.calls).await?;
        answer.await
    }
}

/// Counts a renewal for as long as somebody waits for it.
struct Renewing<'a>(&'a AtomicUsize);

impl<'a> Renewing<'a> {
    fn begin(store: &'a Shaky) -> Self {
        let now = store.renewing.fetch_add(1, Ordering::SeqCst) + 1;
        store.most_renewing.fetch_max(now, Ordering::SeqCst);
        Self(&store.renewing)
    }
}

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Store for Shaky {
    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        let name = match request.call {
            Call::Open { .. } => "open",
            Call::Renew => "renew",
            Call::Claim(_) => "claim",
            Call::Close(_) => "close",
            _ => "other",
        };
        Box::pin(async move {
            let _counted = (name == "renew").then(|| Renewing::begin(self));
            self.answer(name, self.inner.call(request)).await
        })
    }

    fn hints(&self, lease: LeaseId) -> Pending<'_, Hints> {
        Box::pin(async move {
            self.note("hints");
            self.shake(&self.hints).await?;
            self.inner.hints(lease).await
        })
    }

    fn condition(&self) -> Pending<'_, Condition> {
        Box::pin(self.answer("condition", self.inner.condition()))
    }

    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>> {
        Box::pin(self.answer("read", self.inner.read(resource)))
    }

    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>> {
        Box::pin(self.answer("history", self.inner.history(resource)))
    }

    fn ask<'a>(
        &'a self,
        resource: &'a ResourceName,
        token: Token,
        to: Option<&'a Label>,
    ) -> Pending<'a, StepDownReply> {
        Box::pin(self.answer("ask", self.inner.ask(resource, token, to)))
    }

    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, StepDownReply> {
        Box::pin(self.answer("evict", self.inner.evict(resource, token)))
    }

    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid> {
        Box::pin(self.answer("job", self.inner.job(step)))
    }

    fn jobs<'a>(&'a self, job: Option<&'a ResourceName>) -> Pending<'a, Vec<JobView>> {
        Box::pin(self.answer("jobs", self.inner.jobs(job)))
    }

    fn publish<'a>(&'a self, holder: &'a Holder, payload: &'a Payload) -> Pending<'a, Published> {
        Box::pin(self.answer("publish", self.inner.publish(holder, payload)))
    }

    fn subscribe<'a>(&'a self, resource: &'a ResourceName) -> Pending<'a, Messages> {
        Box::pin(self.answer("subscribe", self.inner.subscribe(resource)))
    }
}
