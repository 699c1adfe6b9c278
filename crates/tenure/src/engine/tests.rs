//! What only the driver's thread can show, on clocks that are moved apart.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{ClockByHand, Clocks};
use crate::guard::{SharedPage, Standing};
use crate::store::{MemoryStore, Opened};
use crate::{Ending, Timing, Worker};

const TTL: Duration = Duration::from_secs(15);
/// In real time: whatever comes this soon did not wait for the clock that stands still.
const SOON: Duration = Duration::from_secs(5);

// req: E8 H5
#[tokio::test]
async fn after_a_suspend_the_driver_wakes_at_once_and_everything_is_lost() {
    let clock = ClockByHand::new();
    let store = Arc::new(MemoryStore::by_hand(clock.clone()));
    let opened = Opened::memory(store).expect("a thread");
    let timing = Timing::new(TTL).expect("sound");
    let worker = Worker::on(opened).timing(timing).connect().await.expect("a worker");
    let own =
        tokio::time::timeout(SOON, worker.campaign("echo").acquire()).await.expect("soon").expect("a ticket");
    let before = Clocks::ByHand(clock.clone()).now();
    assert!(own.holds());

    clock.suspend(timing.trust());

    assert!(!own.holds(), "the first look says no");
    // Nobody moves the other clock: a timer that went by it would never fire.
    assert_eq!(tokio::time::timeout(SOON, own.lost()).await, Ok(Ending::Expired));
    assert_eq!(Clocks::ByHand(clock).now().raw_micros(), before.raw_micros());
}

// req: E8
#[tokio::test]
async fn a_suspend_that_the_trust_outlasts_costs_nothing() {
    let clock = ClockByHand::new();
    let store = Arc::new(MemoryStore::by_hand(clock.clone()));
    let opened = Opened::memory(store.clone()).expect("a thread");
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
async fn guarded(page: &Arc<SharedPage>) -> (ClockByHand, Worker, crate::Ownership) {
    let clock = ClockByHand::new();
    let opened = Opened::memory(Arc::new(MemoryStore::by_hand(clock.clone()))).expect("a thread");
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
    assert_eq!(tokio::time::timeout(SOON, own.lost()).await, Ok(Ending::Expired));
    assert!(!own.holds());
    drop(own);
    let again = tokio::time::timeout(SOON, worker.campaign("echo").acquire()).await.expect("soon");
    assert!(again.expect("a ticket").holds());
    assert_eq!(page.look().number(), 2);
}
