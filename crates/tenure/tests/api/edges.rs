//! Where the work, its runtime and its driver do not agree on when it ends: the ticket is free only when nothing of
//! the work runs any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use tenure::conformance::Relay;
use tenure::store::{Answer, Call, MemoryStore, OpenStore, Pending, Request, Store};
use tenure::testing::ManualClock;
use tenure::{Tickets, Timing, Worker};
use testkit::{soon, until};

const TTL: Duration = Duration::from_secs(15);

fn stage() -> (ManualClock, OpenStore) {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::by_hand(clock.clone()));
    (clock, OpenStore::memory(store).expect("a thread"))
}

async fn worker(opened: &OpenStore) -> Worker {
    let timing = Timing::new(TTL).expect("within the limits");
    Worker::on(opened.clone()).timing(timing).connect().await.expect("a worker")
}

// req: O7 S3
#[test]
fn a_start_that_waited_for_a_blocked_runtime_beyond_the_trust_is_not_run() {
    let (clock, opened) = stage();
    let (called, held) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");

    runtime.block_on(async {
        let worker = worker(&opened).await;
        let tools = tenure::admin::Admin::on(opened.clone());
        let (called_too, held) = (called.clone(), held.clone());
        let start = move |own: tenure::Lead| {
            called_too.fetch_add(1, SeqCst);
            held.fetch_add(u32::from(own.holds()), SeqCst);
            async {}
        };
        let _campaign = worker.campaign("r").obtain(start, async |_| {}).expect("it competes");
        // The application blocks its runtime: the driver wins, and loses again by the clock.
        let owns = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
            runtime.block_on(soon(async {
                while tools.read("r").await.expect("an answer").is_none_or(|view| view.owners.is_empty()) {}
            }));
        });
        owns.join().expect("the driver wins meanwhile");
        clock.advance(TTL);
        until(|| called.load(SeqCst) > 0).await;
    });

    assert_eq!(called.load(SeqCst), held.load(SeqCst), "every start holds");
}

// req: S5 H7
#[test]
fn the_ticket_stays_while_a_step_of_the_work_runs_although_its_runtime_has_ended() {
    let (_clock, opened) = stage();
    let (began, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let app = builder.worker_threads(2).enable_all().build().expect("a runtime");
    let (begins, ends) = (began.clone(), ended.clone());
    let work = move |_| {
        let (begins, ends) = (begins.clone(), ends.clone());
        async move {
            begins.store(true, SeqCst);
            std::thread::sleep(Duration::from_millis(500));
            ends.store(true, SeqCst);
        }
    };
    let one = app.block_on(async {
        let one = worker(&opened).await;
        one.campaign("r").obtain(work, async |_| {}).expect("it competes");
        one
    });
    while !began.load(SeqCst) {
        std::thread::yield_now();
    }

    app.shutdown_background();
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    other.block_on(async {
        let two = worker(&opened).await;
        let own = soon(two.campaign("r").acquire()).await.expect("a ticket");

        assert!(ended.load(SeqCst), "term {} began while the work of the one before ran", own.term());
    });
    drop(one);
}

// req: S5 T10
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_run_if_owner_runs_has_ended_before_the_next_owner_begins() {
    let (_clock, opened) = stage();
    let (one, two) = (worker(&opened).await, worker(&opened).await);
    let campaign = one.campaign("r").obtain(async |_| {}, async |_| {}).expect("it competes");
    until(|| campaign.is_owner()).await;
    let busy = Arc::new(AtomicBool::new(false));
    let running = tokio::spawn({
        let (busy, campaign) = (busy.clone(), campaign.clone());
        async move {
            let step = async |_| {
                busy.store(true, SeqCst);
                std::thread::sleep(Duration::from_millis(500));
                busy.store(false, SeqCst);
            };
            campaign.run_if_owner(step).await
        }
    });
    until(|| busy.load(SeqCst)).await;

    tokio::spawn(async move { campaign.stop().await });
    let _own = soon(two.campaign("r").acquire()).await.expect("a ticket");

    assert!(!busy.load(SeqCst), "the next owner began within the work");
    running.await.expect("no panic");
}

#[test]
fn a_runtime_without_io_or_any_other_awaits_the_cleanup_all_the_same() {
    let opened = OpenStore::memory(Arc::new(MemoryStore::default())).expect("a thread");
    let cleaned = Arc::new(AtomicBool::new(false));
    let app = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");

    app.block_on(async {
        let worker = worker(&opened).await;
        let cleans = cleaned.clone();
        let cleanup = move |_| {
            let cleans = cleans.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                cleans.store(true, SeqCst);
            }
        };
        let campaign = worker.campaign("r").obtain(async |_| {}, cleanup).expect("it competes");
        until(|| campaign.is_owner()).await;
        soon(campaign.stop()).await;
        assert!(soon(worker.campaign("r").try_acquire()).await.expect("an answer").is_some());
        soon(worker.shutdown()).await;
    });

    assert!(cleaned.load(SeqCst), "stopped before the cleanup had ended");
}

// req: O4 A3
#[tokio::test]
async fn a_campaign_without_limit_is_a_campaign_like_any_other() {
    let (_clock, opened) = stage();
    let worker = worker(&opened).await;
    let (started, cleaned) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (starts, cleanups) = (started.clone(), cleaned.clone());
    let start = move |_| {
        starts.fetch_add(1, SeqCst);
        async {}
    };
    let cleanup = move |_| {
        cleanups.fetch_add(1, SeqCst);
        async {}
    };
    let campaign = worker.campaign("r").tickets(Tickets::All).obtain(start, cleanup).expect("it runs");
    until(|| campaign.is_owner() && started.load(SeqCst) == 1).await;

    soon(campaign.step_down()).await;
    until(|| campaign.is_owner() && started.load(SeqCst) == 2).await;
    assert_eq!(cleaned.load(SeqCst), 1);
    soon(worker.shutdown()).await;

    assert!(!campaign.is_owner());
    assert_eq!(cleaned.load(SeqCst), 2);
}

// req: O4 H1
#[tokio::test]
async fn a_start_without_limit_that_fails_is_tried_again() {
    let opened = OpenStore::memory(Arc::new(MemoryStore::default())).expect("a thread");
    let worker = worker(&opened).await;
    let starts = Arc::new(AtomicU32::new(0));
    let tries = starts.clone();
    let start = move |_| {
        let first = tries.fetch_add(1, SeqCst) == 0;
        async move { if first { Err("not yet") } else { Ok(()) } }
    };
    let all = worker.campaign("r").tickets(Tickets::All);

    let campaign = all.obtain(start, async |_| {}).expect("it runs");

    until(|| starts.load(SeqCst) == 2 && campaign.is_owner()).await;
    worker.shutdown().await;
}

#[tokio::test]
async fn the_changes_of_a_campaign_that_was_left_end() {
    let (_clock, opened) = stage();
    let worker = worker(&opened).await;
    let campaign = worker.campaign("r").obtain(async |_| {}, async |_| {}).expect("it competes");
    let mut changes = campaign.changes();

    soon(campaign.stop()).await;

    soon(async { while changes.next().await.is_some() {} }).await;
}

// req: E9
#[tokio::test]
async fn when_a_release_has_returned_others_can_have_the_ticket() {
    let opened = OpenStore::memory(Arc::new(MemoryStore::default())).expect("a thread");
    let (one, two) = (worker(&opened).await, worker(&opened).await);
    for _ in 0..20 {
        let own = one.campaign("r").acquire().await.expect("a ticket");
        own.release().await;

        let own = two.campaign("r").try_acquire().await.expect("an answer").expect("it is free");
        own.release().await;
    }
}

/// A memory store that never answers a release.
#[derive(Debug, Default)]
struct Deaf(MemoryStore);

impl Relay for Deaf {
    fn behind(&self) -> &dyn Store {
        &self.0
    }

    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        match request.call {
            Call::Release(_) => Box::pin(std::future::pending()),
            _ => self.0.call(request),
        }
    }
}

// req: E9 H12
#[tokio::test]
async fn a_release_that_is_not_answered_is_waited_for_a_third_of_the_ttl() {
    let ttl = Duration::from_millis(1500);
    let opened = OpenStore::new(Arc::new(Deaf::default())).expect("a thread");
    let timing = Timing::new(ttl).expect("within the limits");
    let worker = Worker::on(opened).timing(timing).connect().await.expect("a worker");
    let own = worker.campaign("r").acquire().await.expect("a ticket");
    let began_at = std::time::Instant::now();

    soon(own.release()).await;

    // Were there no limit, it would never return: the lease is renewed meanwhile.
    let took = began_at.elapsed();
    assert!(took >= ttl / 3 && took < ttl, "{took:?}");
}

#[tokio::test]
async fn the_namespace_of_an_open_store_cannot_be_another_one() {
    let (_clock, opened) = stage();

    let refused = Worker::on(opened).namespace("other").connect().await.map(drop).expect_err("refused");

    let why = "the store is open already, and its namespace was chosen when it was opened: `other` cannot be";
    assert_eq!(refused.to_string(), why);
}

/// A memory store that releases late, or whose renewals are lost.
#[derive(Debug, Default)]
struct Moody {
    inner: MemoryStore,
    is_mute: AtomicBool,
    is_slow: AtomicBool,
}

impl Relay for Moody {
    fn behind(&self) -> &dyn Store {
        &self.inner
    }

    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Box::pin(async move {
            match request.call {
                Call::Renew if self.is_mute.load(SeqCst) => std::future::pending::<()>().await,
                Call::Release(_) if self.is_slow.load(SeqCst) => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                _ => {}
            }
            self.inner.call(request).await
        })
    }
}

#[tokio::test]
async fn after_a_loss_a_new_lease_does_not_protect_the_old_ownership() {
    let store = Arc::new(Moody::default());
    let opened = OpenStore::new(store.clone()).expect("a thread");
    let timing = Timing::new(Duration::from_millis(500)).expect("within the limits");
    let (one, two) = (Worker::on(opened.clone()).timing(timing), Worker::on(opened).timing(timing));
    let (one, two) = (one.connect().await.expect("a worker"), two.connect().await.expect("a worker"));
    let own = one.campaign("r").acquire().await.expect("a ticket");

    store.is_mute.store(true, SeqCst);
    soon(own.lost()).await;
    store.is_mute.store(false, SeqCst);
    let next = soon(two.campaign("r").acquire()).await.expect("a ticket");

    assert!(next.holds() && !own.holds());
    assert_eq!(own.remaining(), Duration::ZERO, "term {} is another's", next.term());
}

// req: A3 O15
#[tokio::test]
async fn whoever_waits_behind_a_campaign_that_gave_up_is_served() {
    let store = Arc::new(Moody::default());
    store.is_slow.store(true, SeqCst);
    let worker = worker(&OpenStore::new(store).expect("a thread")).await;
    drop(worker.campaign("r").acquire().await.expect("a ticket"));

    let gave_up = worker.campaign("r").acquire_within(Duration::from_millis(20)).await;
    let served = soon(worker.campaign("r").acquire()).await;

    assert!(gave_up.is_err() && served.is_ok());
}
