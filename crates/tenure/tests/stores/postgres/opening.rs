//! How a store is opened through the library; what the backend refuses is in `backend`.

use std::sync::Arc;
use std::time::Duration;

use tenure::store::{Call, Closing, LeaseId, Namespace, PostgresStore, Said, Store};
use tenure::{Timing, Worker};
use testkit::postgres::{Options, Postgres};
use tokio::task::JoinSet;

use super::fixture::{lock, shared};
use super::words::{Asker, SOON};

fn namespace(name: &str) -> Namespace {
    Namespace::new(name).expect("a namespace")
}

/// How many connections of ours the server has.
fn connections(server: &Postgres) -> String {
    server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_looks_for_a_namespace_reads_it_and_closes_a_lease_over_the_connection_that_found_it() {
    let server = Options::new().start();
    PostgresStore::open(&server.url(), &namespace("found")).await.expect("it is made");
    testkit::eventually(SOON, "nobody is connected", || connections(&server) == "0");

    let found =
        tenure::admin::Admin::find(&server.url(), "found").await.expect("an answer").expect("it is there");
    found.read_all().await.expect("an answer");
    found.close(LeaseId(1), Closing::Proved).await.expect("an answer");

    assert_eq!(connections(&server), "1");
    drop(found);
    testkit::eventually(SOON, "it goes with who looked", || connections(&server) == "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_leaves_needs_no_new_connection_for_it() {
    let server = Options::new().start();
    let store: Arc<dyn Store> =
        Arc::new(PostgresStore::open(&server.url(), &namespace("left")).await.expect("a store"));
    let mut worker = Asker::open(&store, "a", SOON).await;
    worker.claim(&["job"]).await;
    let before = connections(&server);

    let closed = worker.ask(Call::Close(Closing::Left)).await.expect("an answer");

    assert_eq!((closed.said, connections(&server)), (Said::Closed, before));
}

/// A server needs milliseconds for a connection, and makes its plans anew for it.
#[tokio::test]
async fn the_connections_of_a_burst_are_used_again_by_the_next() {
    let server = Options::new().start();
    let store = Arc::new(PostgresStore::open(&server.url(), &namespace("burst")).await.expect("a store"));
    let ids = "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity WHERE application_name = 'tenure'";
    let burst = async || {
        let mut reads = JoinSet::new();
        for _ in 0..12 {
            let store = store.clone();
            reads.spawn(async move { store.read(None).await.expect("an answer") });
        }
        reads.join_all().await;
        server.sql(ids)
    };

    let first = burst().await;
    assert_eq!((first.split(' ').count(), burst().await), (12, first));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_elected_over_a_unix_socket_by_its_url() {
    let server = shared();
    let url = lock(&server).socket_url();
    let worker = Worker::builder(&url)
        .namespace("by-socket")
        .timing(Timing::new(Duration::from_secs(1)).expect("a timing"))
        .connect()
        .await
        .expect("a worker");

    let own = tokio::time::timeout(SOON, worker.campaign("job").acquire()).await;

    let own = own.expect("in time").expect("an ownership");
    assert!(own.holds());
    worker.shutdown().await;
}

#[tokio::test]
async fn nothing_is_granted_in_a_new_schema_for_one_longest() {
    let server = shared();
    let url = lock(&server).url();
    let worker = Worker::builder(&url)
        .namespace("brand-new")
        .timing(Timing::new(Duration::from_millis(1500)).expect("a timing"))
        .connect()
        .await
        .expect("a worker");
    let made = std::time::Instant::now();

    let _own =
        tokio::time::timeout(SOON, worker.campaign("job").acquire()).await.expect("in time").expect("owned");

    // Somebody may have dropped the schema while its owners were at work.
    assert!(made.elapsed() > Duration::from_millis(1000), "{:?}", made.elapsed());
    worker.shutdown().await;
}
