//! Hints may fail in any way; the election goes on, and what was missed is looked for.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::conformance::Relay;
use tenure::store::{Answer, Call, Hints, LeaseId, MemoryStore, OpenStore, Pending, Request, Store};
use tenure::{Change, Error, Timing, Worker};
use tokio::sync::mpsc;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(10);

/// A memory store without hints of its own: what comes over a subscription is up to the test.
#[derive(Debug, Default)]
struct Deaf {
    store: Arc<MemoryStore>,
    claims: AtomicU32,
    subscriptions: AtomicU32,
    /// Dropping it ends the subscription.
    latest: Mutex<Option<mpsc::UnboundedSender<tenure::store::Hint>>>,
    hangs: bool,
}

impl Relay for Deaf {
    fn behind(&self) -> &dyn Store {
        &*self.store
    }

    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        if matches!(request.call, Call::Claim(_)) {
            self.claims.fetch_add(1, Ordering::SeqCst);
        }
        self.store.call(request)
    }

    fn hints(&self, _: LeaseId) -> Pending<'_, Hints> {
        Box::pin(async move {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            if self.subscriptions.fetch_add(1, Ordering::SeqCst) == 1 {
                return Err(Error::unavailable("no link yet"));
            }
            let (to, hints) = mpsc::unbounded_channel();
            *self.latest.lock().expect("no panic holds it") = Some(to);
            Ok(hints)
        })
    }
}

// req: E6 H8
#[tokio::test]
async fn a_lost_subscription_is_restored_and_one_look_follows() {
    let store = Arc::new(Deaf::default());
    // The lease of the one who has the ticket outlasts the test: only a missed hint makes the waiter look.
    let timing = Timing::new(Duration::from_secs(60)).expect("within the limits");
    let owner = OpenStore::memory(store.store.clone()).expect("a thread");
    let owner = Worker::on(owner).timing(timing).connect().await.expect("a worker");
    let waiter = OpenStore::new(store.clone()).expect("a thread");
    let waiter = Worker::on(waiter).timing(timing).connect().await.expect("a worker");
    let own = owner.campaign("r").acquire().await.expect("it is free");
    let mut campaign = waiter.campaign("r");
    let mut changes = campaign.changes();
    let _campaign = campaign.obtain(async |_| (), async |_| ()).expect("a campaign");
    while !matches!(timeout(LIMIT, changes.next()).await.expect("it queues"), Some(Change::Waiting(_))) {}
    assert_eq!(store.claims.load(Ordering::SeqCst), 1);

    drop(store.latest.lock().expect("no panic holds it").take());
    let looks = async {
        while store.claims.load(Ordering::SeqCst) == 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, looks).await.expect("a look follows the new subscription");

    assert_eq!(store.subscriptions.load(Ordering::SeqCst), 3, "lost, failed, restored");
    own.release().await;
    owner.shutdown().await;
    waiter.shutdown().await;
}

// req: E6
#[tokio::test]
async fn a_store_whose_subscription_hangs_still_elects() {
    let store = Arc::new(Deaf { hangs: true, ..Deaf::default() });
    let timing = Timing::new(Duration::from_secs(1)).expect("within the limits");
    let opened = OpenStore::new(store).expect("a thread");
    let worker = Worker::on(opened).timing(timing).connect().await.expect("a worker");

    let own = timeout(LIMIT, worker.campaign("r").acquire()).await.expect("in time").expect("it is free");

    assert!(own.holds());
    own.release().await;
    worker.shutdown().await;
}
