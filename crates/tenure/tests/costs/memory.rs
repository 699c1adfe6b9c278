//! What an owned resource takes of memory. Alone in its process: nothing else may allocate meanwhile.
#![cfg(all(feature = "sqlite", target_os = "linux"))]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure::store::{Namespace, OpenStore, SqliteStore};
use tenure::{Campaign, Ownership, Timing, Worker};
use testkit::child::is_alone;

use super::LIVE;

const COUNT: usize = 2000;
/// So long that nothing is renewed meanwhile.
const TTL: Duration = Duration::from_secs(600);

// req: C1
#[tokio::test]
async fn what_is_owned_takes_less_than_two_and_a_half_kilobytes_each() {
    if !is_alone(module_path!(), "what_is_owned_takes_less_than_two_and_a_half_kilobytes_each") {
        return;
    }
    let folder = testkit::folder();
    let store = SqliteStore::open(folder.path().join("tenure.db"), &Namespace::default()).expect("a store");
    let opened = OpenStore::new(Arc::new(store)).expect("a driver");
    let worker = Worker::on(opened).timing(Timing::new(TTL).expect("a timing"));
    let worker = worker.connect().await.expect("a worker");
    // What is there once, whatever is owned, does not count: the lease, threads, connections.
    let first = worker.campaign("first").acquire().await.expect("it competes");

    let before = LIVE.load(Ordering::Relaxed);
    let by_hand = acquire_all(&worker).await;
    let between = LIVE.load(Ordering::Relaxed);
    let in_callbacks = obtain_all(&worker).await;
    let after = LIVE.load(Ordering::Relaxed);

    let each = [(between - before) / COUNT, (after - between) / COUNT];
    // About 600 of them are the record of the resource, kept so that a release is one round trip.
    assert!(each.iter().all(|bytes| *bytes <= 2560), "{each:?} bytes by hand and in callbacks");
    drop((first, by_hand, in_callbacks));
}

async fn acquire_all(worker: &Worker) -> Vec<Ownership> {
    let acquire = |number| tokio::spawn(worker.campaign(format!("by-hand.{number}")).acquire());
    let mut owned = Vec::with_capacity(COUNT);
    for task in (0..COUNT).map(acquire).collect::<Vec<_>>() {
        owned.push(task.await.expect("it runs").expect("it competes"));
    }
    owned
}

async fn obtain_all(worker: &Worker) -> Vec<Campaign> {
    let obtain = |number| worker.campaign(format!("callbacks.{number}")).obtain(async |_| {}, async |_| {});
    let campaigns: Vec<_> = (0..COUNT).map(|number| obtain(number).expect("it competes")).collect();
    while !campaigns.iter().all(Campaign::is_owner) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The callbacks have returned, too.
    tokio::time::sleep(Duration::from_millis(100)).await;
    campaigns
}
