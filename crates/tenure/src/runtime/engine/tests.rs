//! What only the driver's thread can show, on clocks that are moved apart.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use tenure_core::{Answer, Call, Request, ResourceName};

use crate::conformance::Relay;
use crate::guard::{SharedPage, Standing};
use crate::runtime::clock::{Clocks, ManualClock};
use crate::runtime::engine::Command;
use crate::runtime::events::{Event, StoreChange};
use crate::store::{MemoryStore, OpenStore, Pending, Store};
use crate::{EndReason, Ownership, Timing, Worker};

const TTL: Duration = Duration::from_secs(15);
/// In real time: whatever comes this soon did not wait for the clock that stands still.
const SOON: Duration = Duration::from_secs(5);

// req: E8 H5
#[tokio::test]
async fn after_a_suspend_the_driver_wakes_at_once_and_everything_is_lost() {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::by_hand(clock.clone()));
    let opened = OpenStore::memory(store).expect("a thread");
    let timing = Timing::new(TTL).expect("sound");
    let worker = Worker::on(opened).timing(timing).connect().await.expect("a worker");
    let own =
        tokio::time::timeout(SOON, worker.campaign("echo").acquire()).await.expect("soon").expect("a ticket");
    let before = Clocks::ByHand(clock.clone()).now();
    assert!(own.holds());

    clock.suspend(timing.trust());

    assert!(!own.holds(), "the first look says no");
    // Nobody moves the other clock: a timer that went by it would never fire.
    assert_eq!(tokio::time::timeout(SOON, own.lost()).await, Ok(EndReason::Expired));
    assert_eq!(Clocks::ByHand(clock).now().raw_micros(), before.raw_micros());
}

// req: E8
#[tokio::test]
async fn a_suspend_that_the_trust_outlasts_costs_nothing() {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::by_hand(clock.clone()));
    let opened = OpenStore::memory(store.clone()).expect("a thread");
    let timing = Timing::new(TTL).expect("sound");
    let worker = Worker::on(opened).timing(timing).connect().await.expect("a worker");
    let own =
        tokio::time::timeout(SOON, worker.campaign("echo").acquire()).await.expect("soon").expect("a ticket");

    // Twice as long as the trust in all, and a renewal after each.
    for _ in 0..4 {
        clock.suspend(timing.trust() / 2);
        let renewed = async {
            while own.remaining() < timing.trust() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SOON, renewed).await.expect("the driver wakes, and renews");
    }

    assert!(own.holds());
}

/// A guarded worker that owns, and its clock.
async fn guarded(page: &Arc<SharedPage>) -> (ManualClock, Worker, Ownership) {
    let clock = ManualClock::new();
    let opened = OpenStore::memory(Arc::new(MemoryStore::by_hand(clock.clone()))).expect("a thread");
    let timing = Timing::new(TTL).expect("sound");
    let worker =
        Worker::on(opened).timing(timing).guarded_by(page.clone()).connect().await.expect("a worker");
    let own =
        tokio::time::timeout(SOON, worker.campaign("echo").acquire()).await.expect("soon").expect("a ticket");
    (clock, worker, own)
}

#[tokio::test]
async fn what_a_worker_relies_on_stands_in_the_page_of_its_guard() {
    let page = Arc::new(SharedPage::map().expect("a page"));
    let (clock, worker, own) = guarded(&page).await;
    let (now, timing) = (Clocks::ByHand(clock.clone()).now(), Timing::new(TTL).expect("sound"));

    let look = page.look();
    assert!(own.holds() && look.allows(1, now));
    assert_eq!((look.until(), look.margin()), (now + timing.trust(), timing.margin()));

    clock.advance(timing.renew());
    let extended = async {
        while page.look().until() == look.until() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SOON, extended).await.expect("it is extended");
    own.release().await;
    worker.shutdown().await;
    assert_eq!((page.look().standing(), page.look().lease()), (Standing::Ended, look.lease()));
}

#[tokio::test]
async fn what_a_guard_has_ended_its_worker_does_not_own_any_more_and_competes_for_anew() {
    let page = Arc::new(SharedPage::map().expect("a page"));
    let (clock, worker, own) = guarded(&page).await;

    assert!(page.end(&page.look()));
    clock.advance(Timing::new(TTL).expect("sound").renew());

    // The store keeps the lease; the word of the guard counts.
    assert_eq!(tokio::time::timeout(SOON, own.lost()).await, Ok(EndReason::Expired));
    assert!(!own.holds());
    drop(own);
    let again = tokio::time::timeout(SOON, worker.campaign("echo").acquire()).await.expect("soon");
    assert!(again.expect("a ticket").holds());
    assert_eq!(page.look().number(), 2);
}

/// A memory store that needs a runtime for its releases, and counts them.
#[derive(Debug, Default)]
struct Counting {
    store: MemoryStore,
    releases: AtomicUsize,
}

impl Relay for Counting {
    fn behind(&self) -> &dyn Store {
        &self.store
    }

    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Box::pin(async move {
            let answer = self.store.call(request).await;
            if let Call::Release(_) = request.call {
                self.releases.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            answer
        })
    }
}

/// A memory store that carries out renewals and does not say so.
#[derive(Debug, Default)]
struct Mute {
    store: MemoryStore,
    /// The numbers of the latest ones.
    renewed: AtomicU64,
    released: AtomicU64,
}

impl Relay for Mute {
    fn behind(&self) -> &dyn Store {
        &self.store
    }

    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Box::pin(async move {
            let answer = self.store.call(request).await;
            match request.call {
                Call::Renew => {
                    self.renewed.store(request.seq.0, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                }
                Call::Release(_) => self.released.store(request.seq.0, Ordering::SeqCst),
                _ => {}
            }
            answer
        })
    }
}

/// Who owns `resource` by the word of the store, which answers at once.
fn owners(store: &dyn Store, resource: &ResourceName) -> usize {
    let mut read = store.read(Some(resource));
    match read.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(Ok(views)) => views.iter().map(|view| view.owners.len()).sum(),
        unread => panic!("a store in memory answers at once: {unread:?}"),
    }
}

// req: S7
#[tokio::test]
async fn a_panic_of_the_engine_itself_ends_every_ownership_at_once_and_is_told() {
    let opened = OpenStore::memory(Arc::new(MemoryStore::default())).expect("a thread");
    let mut events = crate::events();
    let worker = Worker::on(opened).label("doomed").connect().await.expect("a worker");
    let (one, other) = (worker.campaign("one").acquire().await, worker.campaign("other").acquire().await);
    let (one, other) = (one.expect("a ticket"), other.expect("a ticket"));
    assert!(one.holds() && other.holds());

    let panics = Command::Ask(Box::new(|_| panic!("planted")));
    worker.inner.commands.send(panics).expect("the engine runs");

    let lost = tokio::time::timeout(SOON, async { (one.lost().await, other.lost().await) }).await;
    assert_eq!(lost, Ok((EndReason::Expired, EndReason::Expired)));
    assert!(!one.holds() && !other.holds());
    let late = tokio::time::timeout(SOON, worker.campaign("late").acquire()).await;
    assert!(matches!(late, Ok(Err(_))), "nobody competes through it any more");
    let told = async {
        while !matches!(events.next().await, Some(Event::Panicked { what }) if what.contains("planted")) {}
    };
    tokio::time::timeout(SOON, told).await.expect("it is told");
}

#[tokio::test]
async fn a_campaign_that_the_engine_did_not_come_to_is_over_with_the_engine() {
    let opened = OpenStore::memory(Arc::new(MemoryStore::default())).expect("a thread");
    let worker = Worker::on(opened).connect().await.expect("a worker");

    // The campaign begins while the engine panics.
    let panics = Command::Ask(Box::new(|_| panic!("planted")));
    worker.inner.commands.send(panics).expect("the engine runs");
    let late = tokio::time::timeout(SOON, worker.campaign("late").acquire()).await;

    assert!(matches!(late, Ok(Err(_))));
}

// req: S7
#[tokio::test]
async fn a_panic_of_the_engine_ends_the_lease_for_its_guard_too() {
    let page = Arc::new(SharedPage::map().expect("a page"));
    let (_, worker, own) = guarded(&page).await;
    assert_eq!(page.look().standing(), Standing::Live);

    let panics = Command::Ask(Box::new(|_| panic!("planted")));
    worker.inner.commands.send(panics).expect("the engine runs");

    assert_eq!(tokio::time::timeout(SOON, own.lost()).await, Ok(EndReason::Expired));
    assert_eq!(page.look().standing(), Standing::Ended);
}

/// A memory store whose first claim panics.
#[derive(Debug, Default)]
struct Panicking {
    store: MemoryStore,
    claims: AtomicUsize,
}

impl Relay for Panicking {
    fn behind(&self) -> &dyn Store {
        &self.store
    }

    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Box::pin(async move {
            let first = || self.claims.fetch_add(1, Ordering::SeqCst) == 0;
            assert!(!matches!(request.call, Call::Claim(_)) || !first(), "planted");
            self.store.call(request).await
        })
    }
}

// req: S7
#[tokio::test]
async fn a_request_in_which_the_store_panics_has_failed_and_is_tried_again() {
    let store = Arc::new(Panicking::default());
    let opened = OpenStore::new(store.clone()).expect("a thread");
    let mut events = crate::events();
    // With this ttl a request is given up after 30 s: its end is noticed, not waited for.
    let timing = Timing::new(Duration::from_secs(120)).expect("sound");
    let worker = Worker::on(opened).timing(timing).connect().await.expect("a worker");

    let own = tokio::time::timeout(SOON * 3, worker.campaign("echo").acquire()).await;

    assert!(own.expect("soon").expect("a ticket").holds());
    assert_eq!(store.claims.load(Ordering::SeqCst), 2);
    let told = async {
        loop {
            if let Some(Event::Store { change: StoreChange::Failed { call: "claim", error, cause }, .. }) =
                events.next().await
                && cause.contains("planted")
            {
                return error;
            }
        }
    };
    let told = tokio::time::timeout(SOON, told).await.expect("it is told");
    assert_eq!(told, "the store panicked");
}

/// One that a renewal has overtaken would judge nobody, and dead waiters would be told instead of those who live.
// req: L3
#[tokio::test]
async fn a_release_is_newer_than_a_renewal_that_is_under_way() {
    let store = Arc::new(Mute::default());
    let opened = OpenStore::new(store.clone()).expect("a thread");
    let timing = Timing::new(Duration::from_millis(1500)).expect("sound");
    let worker = Worker::on(opened).timing(timing).connect().await.expect("a worker");
    let own = worker.campaign("echo").acquire().await.expect("a ticket");
    let renews = async {
        while store.renewed.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SOON, renews).await.expect("it renews");

    assert!(own.holds());
    own.release().await;

    let [renewed, released] = [&store.renewed, &store.released].map(|number| number.load(Ordering::SeqCst));
    assert!(released > renewed, "{released} after {renewed}");
}

/// Were its number from before the claim, the store would take the worker for a clone of itself.
// req: S6
#[tokio::test]
async fn a_release_is_newer_than_the_claim_of_what_it_gives_up() {
    let store = Arc::new(Counting::default());
    let worker =
        Worker::on(OpenStore::new(store.clone()).expect("a thread")).connect().await.expect("a worker");
    let stays = worker.campaign("echo").acquire().await.expect("a ticket");
    let goes = worker.campaign("foxtrot").acquire().await.expect("a ticket");
    let resource = goes.resource().clone();

    tokio::time::timeout(SOON, goes.release()).await.expect("it is answered");

    assert_eq!((owners(&*store, &resource), stays.holds()), (0, true));
    assert_eq!(store.releases.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn many_releases_at_once_go_together() {
    let store = Arc::new(Counting::default());
    let worker =
        Worker::on(OpenStore::new(store.clone()).expect("a thread")).connect().await.expect("a worker");
    let mut owned: Vec<Ownership> = Vec::new();
    for number in 0..500 {
        owned.push(worker.campaign(format!("r{number}")).acquire().await.expect("a ticket"));
    }

    let mut releases = tokio::task::JoinSet::new();
    owned.into_iter().for_each(|own| drop(releases.spawn(own.release())));
    tokio::time::timeout(SOON, releases.join_all()).await.expect("all are answered");

    let sent = store.releases.load(Ordering::SeqCst);
    assert!((2..50).contains(&sent), "{sent} requests for 500");
}

// req: O9
#[tokio::test]
async fn a_release_that_is_dropped_half_way_is_carried_on_by_the_driver() {
    let store = Arc::new(Counting::default());
    let worker =
        Worker::on(OpenStore::new(store.clone()).expect("a thread")).connect().await.expect("a worker");
    let own = worker.campaign("echo").acquire().await.expect("a ticket");

    {
        let mut release = pin!(own.release());
        assert!(release.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    let again = tokio::time::timeout(SOON, async {
        // The campaign before has to have left.
        worker.campaign("echo").acquire().await.expect("a ticket")
    });
    assert_eq!(again.await.expect("soon").term(), 2);
    assert_eq!(store.releases.load(Ordering::SeqCst), 1);
}
