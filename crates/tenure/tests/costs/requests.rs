//! Requests and allocations.

use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::conformance::Relay;
use tenure::store::{Answer, Call, MemoryStore, OpenStore, Pending, Request, Store};
use tenure::{Ownership, Timing, Worker};
use testkit::{soon, until};
use tokio::sync::mpsc;

use super::ASKED;

// req: C1 H15
#[tokio::test]
async fn an_interval_costs_one_request_whatever_is_owned() {
    tokio::join!(renewals_alone(1), renewals_alone(100), renewals_alone(1000));
}

async fn renewals_alone(count: usize) {
    let timing = Timing::new(Duration::from_secs(3)).expect("a timing");
    let store = Counted::new();
    let opened = OpenStore::new(store.clone()).expect("a driver");
    let worker = Worker::on(opened).timing(timing).connect().await.expect("a worker");
    let owned = acquire_all(&worker, count).await;

    store.next_renewal().await;
    let before = store.counts();
    for _ in 0..3 {
        store.next_renewal().await;
    }
    let after = store.counts();

    assert_eq!(owned.iter().filter(|own| own.holds()).count(), count);
    assert_eq!(after.claims + after.others, before.claims + before.others, "{count} owned");
    // By the clock of the worker, so that a slow machine changes nothing.
    let spent = after.renewed_at - before.renewed_at;
    let renewals = u32::try_from(after.renewals - before.renewals).expect("a few");
    assert!(spent >= timing.renew() * renewals, "{count} owned: {renewals} in {spent:?}");
}

// req: C2 H8
#[tokio::test]
async fn a_release_with_two_hundred_waiters_causes_two_claims() {
    // So long that nobody looks by himself: a step is 0.8 s, the head looks again after 80 s.
    let timing = Timing::new(Duration::from_secs(120)).expect("a timing");
    let store = Counted::new();
    let opened = OpenStore::new(store.clone()).expect("a driver");
    let (won, mut owned) = mpsc::unbounded_channel::<Ownership>();
    let pursue = async || {
        let worker = Worker::on(opened.clone()).timing(timing).connect().await.expect("a worker");
        let won = won.clone();
        tokio::spawn(async move {
            let own = worker.campaign("job").acquire().await.expect("it competes");
            // The test may be over.
            let _gone = won.send(own);
            std::future::pending::<()>().await;
        });
    };
    pursue().await;
    let own = soon(owned.recv()).await.expect("an owner");
    for _ in 0..200 {
        pursue().await;
    }
    until(|| store.counts().claims == 201).await;

    own.release().await;
    let _next = soon(owned.recv()).await.expect("a successor");
    until(|| store.counts().claims == 203).await;
    // Whoever else was woken would look within another step.
    tokio::time::sleep(Duration::from_secs(1)).await;

    assert_eq!(store.counts().claims, 203);
}

// req: C3 E1
#[tokio::test]
async fn a_look_at_an_ownership_allocates_nothing() {
    let worker = Worker::connect("memory:costs").await.expect("a worker");
    let own = worker.campaign("job").acquire().await.expect("it competes");
    let campaign = worker.campaign("other").obtain(async |_| {}, async |_| {}).expect("it competes");
    until(|| campaign.is_owner()).await;

    let before = ASKED.get();
    let held = (0..1_000_000).filter(|_| black_box(&own).holds() && black_box(&campaign).is_owner()).count();
    let allocated = ASKED.get() - before;

    assert_eq!((held, allocated), (1_000_000, 0));
}

async fn acquire_all(worker: &Worker, count: usize) -> Vec<Ownership> {
    let acquire = |number| tokio::spawn(worker.campaign(format!("many.{number}")).acquire());
    let mut owned = Vec::new();
    for task in (0..count).map(acquire).collect::<Vec<_>>() {
        owned.push(soon(task).await.expect("it runs").expect("it competes"));
    }
    owned
}

/// A store in memory that counts what it answered.
#[derive(Debug, Default)]
struct Counted {
    inner: MemoryStore,
    counts: Mutex<Counts>,
    renewed: tokio::sync::Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    renewals: u64,
    claims: u64,
    others: u64,
    /// When the last renewal was asked for, on the worker's clock.
    renewed_at: Duration,
}

impl Counted {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next_renewal(&self) {
        soon(self.renewed.notified()).await;
    }

    fn count(&self, request: &Request) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match request.call {
            Call::Renew => {
                counts.renewals += 1;
                counts.renewed_at = Duration::from_micros(request.asked_at.boot_micros());
                self.renewed.notify_one();
            }
            Call::Claim(_) => counts.claims += 1,
            _ => counts.others += 1,
        }
    }
}

impl Relay for Counted {
    fn behind(&self) -> &dyn Store {
        &self.inner
    }

    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Box::pin(async move {
            let answer = self.inner.call(request).await;
            self.count(request);
            answer
        })
    }
}
