//! Behind PgBouncer in transaction mode: everything works, but hints do not come, unless there is a way around it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::store::{Impact, Namespace, PostgresStore, Store};
use tenure::{Campaign, Timing, Worker};
use testkit::postgres::{Bouncer, Pooling, Postgres};

use super::fixture::{lock, settle, shared};
use super::words::{Asker, SOON, granted};

async fn store(server: &Mutex<Postgres>, url: &str, name: &str) -> Arc<dyn Store> {
    let name = Namespace::new(name).expect("a name");
    settle(server, url, &name).await;
    Arc::new(PostgresStore::open(url, &name).await.expect("a store"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_transaction_pooler_silence_is_detected_and_reported() {
    let server = shared();
    let pooler = Bouncer::before(&lock(&server), Pooling::Transactions);
    let url = lock(&server).url_at(pooler.port());
    let store = store(&server, &url, "silent").await;

    let mut a = Asker::open(&store, "a", SOON).await;
    let mut hints = store.hints(a.lease).await.expect("a stream, though a silent one");
    let safety = store.safety().await.expect("an answer");

    assert!(
        safety.iter().any(|concern| concern.cost == Impact::Time && concern.what.contains("pooler")),
        "{safety:?}"
    );
    let mut b = Asker::open(&store, "b", SOON).await;
    granted(&b.claim(&["job"]).await);
    a.claim(&["job"]).await;
    b.release(&["job"]).await;
    granted(&a.claim(&["job"]).await);
    assert!(hints.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listen_url_around_the_pooler_brings_the_hints_back() {
    let server = shared();
    let pooler = Bouncer::before(&lock(&server), Pooling::Transactions);
    let pooled = lock(&server).url_at(pooler.port());
    let direct = lock(&server).url();
    let url = format!("{pooled}?listen={direct}");
    let store = store(&server, &url, "around").await;

    let [mut a, mut b] = [Asker::open(&store, "a", SOON).await, Asker::open(&store, "b", SOON).await];
    let mut hints = store.hints(b.lease).await.expect("a stream");
    granted(&a.claim(&["job"]).await);
    b.claim(&["job"]).await;
    a.release(&["job"]).await;

    let hint = tokio::time::timeout(SOON, hints.recv()).await.expect("in time").expect("a hint");
    assert_eq!((hint.resource.as_str(), hint.after), ("job", Duration::ZERO));
    assert!(store.safety().await.expect("an answer").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_session_pooler_hints_come() {
    let server = shared();
    let pooler = Bouncer::before(&lock(&server), Pooling::Sessions);
    let url = lock(&server).url_at(pooler.port());
    let store = store(&server, &url, "sessions").await;

    let a = Asker::open(&store, "a", SOON).await;
    let _hints = store.hints(a.lease).await.expect("a stream");

    assert!(store.safety().await.expect("an answer").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_behind_a_transaction_pooler_hand_over_and_take_over() {
    let server = shared();
    let pooler = Bouncer::before(&lock(&server), Pooling::Transactions);
    let url = lock(&server).url_at(pooler.port());
    let timing = Timing::new(Duration::from_secs(2)).expect("a timing");
    let mut campaigns: Vec<(Worker, Campaign)> = Vec::new();
    for _ in 0..3 {
        let worker =
            Worker::builder(&url).namespace("pooled").timing(timing).connect().await.expect("a worker");
        let campaign = worker.campaign("job").obtain(async |_| {}, async |_| {}).expect("it competes");
        campaigns.push((worker, campaign));
    }

    for _ in 0..2 {
        let owner = owner(&campaigns).await;
        let (worker, _campaign) = campaigns.remove(owner);
        worker.shutdown().await;
    }
    owner(&campaigns).await;
}

async fn owner(campaigns: &[(Worker, Campaign)]) -> usize {
    let until = tokio::time::Instant::now() + SOON;
    loop {
        if let Some(owner) = campaigns.iter().position(|(_, campaign)| campaign.is_owner()) {
            return owner;
        }
        assert!(tokio::time::Instant::now() < until, "no owner within {SOON:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
