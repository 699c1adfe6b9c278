//! Resources without limit: everybody owns them, no store is asked, and all else is as with the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::store::{MemoryStore, OpenStore};
use tenure::testing::ManualClock;
use tenure::{EndReason, Tickets, Timing, Worker};
use testkit::{soon, until};
use tokio::sync::mpsc;

use super::shaky::Shaky;

const TTL: Duration = Duration::from_secs(15);

/// A cleanup that says why the ownership ended.
fn says_ending(
    said: mpsc::UnboundedSender<String>,
) -> impl FnMut(EndReason) -> std::future::Ready<()> + Send + 'static {
    move |ending| {
        said.send(format!("{ending:?}")).expect("heard");
        std::future::ready(())
    }
}

// req: O4 H1
#[tokio::test]
async fn a_callback_that_fails_is_started_again_after_a_growing_pause() {
    let (clock, worker) = by_hand().await;
    let tries = Arc::new(AtomicU32::new(0));
    let (said, mut heard) = mpsc::unbounded_channel();
    let count = tries.clone();
    let campaign = worker.campaign("job").tickets(Tickets::All).obtain(
        move |lead| {
            let count = count.clone();
            async move {
                match count.fetch_add(1, Ordering::SeqCst) {
                    0 => Err(format!("term {} fails", lead.term())),
                    1 => panic!("the second panics"),
                    _ => Ok(()),
                }
            }
        },
        says_ending(said),
    );
    let campaign = campaign.expect("it runs");

    for (tried, pause) in [(1, 100), (2, 200)] {
        assert_eq!(soon(heard.recv()).await.as_deref(), Some("Failed"));
        assert!(!campaign.is_owner());
        // Not before its time, however often one looks.
        clock.advance(Duration::from_millis(pause - 10));
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert_eq!(tries.load(Ordering::SeqCst), tried);
        until(|| {
            clock.advance(Duration::from_millis(1));
            tries.load(Ordering::SeqCst) == tried + 1
        })
        .await;
    }

    until(|| campaign.is_owner()).await;
    assert_eq!(soon(campaign.run_if_owner(async |own| own.term())).await, Some(3));
    assert!(heard.try_recv().is_err());
}

// req: O4 O9 A3
#[tokio::test]
async fn stepping_down_and_releasing_end_an_ownership_and_the_next_begins() {
    let (_clock, worker) = by_hand().await;
    let (said, mut heard) = mpsc::unbounded_channel();
    let starts = said.clone();
    let campaign = worker.campaign("job").tickets(Tickets::All).obtain(
        move |lead| {
            starts.send(format!("starts {}", lead.term())).expect("heard");
            async move {
                if lead.term() == 2 {
                    lead.step_down().await;
                }
            }
        },
        says_ending(said),
    );
    let campaign = campaign.expect("it runs");
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("starts 1"));

    soon(campaign.step_down()).await;

    for words in ["SteppedDown", "starts 2", "SteppedDown", "starts 3"] {
        assert_eq!(soon(heard.recv()).await.as_deref(), Some(words));
    }
    soon(campaign.stop()).await;
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("Left"));
    soon(campaign.stop()).await;
    soon(campaign.step_down()).await;
    assert!(heard.recv().await.is_none(), "nothing runs any more");
}

// req: O4 A2 O8
#[tokio::test]
async fn a_shutdown_ends_them_too_and_waits_for_their_cleanup() {
    let (_clock, worker) = by_hand().await;
    let running = Arc::new(AtomicU32::new(0));
    let (started, ended) = (running.clone(), running.clone());
    let campaign = worker.campaign("job").tickets(Tickets::All).obtain(
        move |_| {
            started.fetch_add(1, Ordering::SeqCst);
            async {}
        },
        move |ending| {
            let ended = ended.clone();
            async move {
                assert_eq!(ending, EndReason::Left);
                tokio::time::sleep(Duration::from_millis(20)).await;
                ended.fetch_sub(1, Ordering::SeqCst);
            }
        },
    );
    let campaign = campaign.expect("it runs");
    let own = soon(worker.campaign("lock").tickets(Tickets::All).acquire()).await.expect("a ticket");
    let lock = tokio::spawn(async move { own.lost().await });
    until(|| running.load(Ordering::SeqCst) == 1).await;

    soon(worker.shutdown()).await;

    assert_eq!(running.load(Ordering::SeqCst), 0);
    assert!(!campaign.is_owner());
    assert_eq!(soon(lock).await.expect("no panic"), EndReason::Left);
    let late = worker.campaign("late").tickets(Tickets::All).obtain(async |_| {}, async |_| {});
    assert_eq!(late.expect_err("too late").to_string(), "the worker has been shut down");
}

// req: O4 A3
#[tokio::test]
async fn work_that_does_not_end_is_dropped_when_its_grace_is_over() {
    let (clock, worker) = by_hand().await;
    let campaign = worker.campaign("job").tickets(Tickets::All);
    let campaign =
        campaign.obtain(async |_| std::future::pending::<()>().await, async |_| {}).expect("it runs");
    until(|| campaign.is_owner()).await;

    let stopped = tokio::spawn({
        let campaign = campaign.clone();
        async move { campaign.stop().await }
    });
    until(|| !campaign.is_owner()).await;
    clock.advance(TTL - Duration::from_millis(1));
    tokio::task::yield_now().await;
    assert!(!stopped.is_finished());
    until(|| {
        clock.advance(Duration::from_millis(1));
        stopped.is_finished()
    })
    .await;
}

// req: O4
#[tokio::test]
async fn work_without_limit_has_a_result_and_no_store_is_ever_asked() {
    let (store, worker) = Shaky::with_worker(TTL, "alone").await;
    let mut turns = 0;

    let done = worker.campaign("job").tickets(Tickets::All).run(async |own| {
        turns += 1;
        if turns == 1 {
            own.step_down().await;
        }
        turns
    });
    assert_eq!(soon(done).await.expect("a result"), 2);
    let own = soon(worker.campaign("job").tickets(Tickets::All).try_acquire()).await.expect("an answer");
    assert!(own.expect("a ticket").holds());
    soon(worker.shutdown()).await;

    assert!(store.was_never_asked());
}

async fn by_hand() -> (ManualClock, Worker) {
    let clock = ManualClock::new();
    let opened = OpenStore::memory(Arc::new(MemoryStore::by_hand(clock.clone()))).expect("a thread");
    let timing = Timing::new(TTL).expect("sound");
    (clock, Worker::on(opened).timing(timing).connect().await.expect("a worker"))
}
