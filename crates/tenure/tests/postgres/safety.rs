//! What the configuration of the server takes away, and that it is said.

use std::sync::{Arc, Mutex};

use tenure::conformance::Fixture;
use tenure::store::{Call, Cost, Leave, Leaving, Namespace, PostgresStore, Store};
use testkit::postgres::{Options, Postgres};

use crate::fixture::Fresh;
use crate::words::{Asker, SOON, granted, resource, want};

async fn concerns(url: &str) -> Vec<(Cost, String)> {
    let namespace = Namespace::new("asked").expect("a name");
    let store = PostgresStore::open(url, &namespace).await.expect("a store");
    let concerns = store.safety().await.expect("an answer");
    concerns.into_iter().map(|concern| (concern.cost, concern.what)).collect()
}

#[tokio::test]
async fn a_server_on_its_own_with_its_defaults_is_safe() {
    let server = Options::new().start();

    assert_eq!(concerns(&server.url()).await, []);
}

#[tokio::test]
async fn fsync_off_costs_exclusion() {
    let server = Options::new().set("fsync", "off").set("full_page_writes", "off").start();

    let told = concerns(&server.url()).await;

    assert!(told.iter().all(|(cost, _)| *cost == Cost::Exclusion) && told.len() == 2, "{told:?}");
    assert!(told[0].1.contains("fsync is off"), "{told:?}");
}

#[tokio::test]
async fn an_asynchronous_standby_costs_exclusion_and_a_synchronous_one_does_not() {
    let server = Options::new().start();
    let _standby = server.standby();
    testkit::eventually(SOON, "the standby follows", || {
        server.sql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == "1"
    });

    let told = concerns(&server.url()).await;
    assert!(matches!(&told[..], [(Cost::Exclusion, what)] if what.contains("asynchronous")), "{told:?}");

    server.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    server.sql("SELECT pg_reload_conf()");
    testkit::eventually(SOON, "the setting is read", || server.sql("SHOW synchronous_standby_names") == "*");
    assert_eq!(concerns(&server.url()).await, []);
}

#[tokio::test]
async fn every_commit_is_synchronous_whatever_the_default_is() {
    let server = Options::new().set("synchronous_commit", "off").set("wal_writer_delay", "10s").start();
    let namespace = Namespace::new("sync").expect("a name");
    let store: Arc<dyn Store> =
        Arc::new(PostgresStore::open(&server.url(), &namespace).await.expect("a store"));
    let mut worker = Asker::open(&store, "a", SOON).await;

    // What is answered is on disk: nothing is left that only the log's writer would write later.
    for _ in 0..20 {
        worker.renew().await;
        assert!(unwritten(&server) < A_HINT, "what was renewed is not on disk");
    }
    let told = concerns(&server.url()).await;
    assert!(matches!(&told[..], [(Cost::Time, what)] if what.contains("synchronous_commit")), "{told:?}");
}

/// So many bytes of the log may be written by readers that tidy up.
const A_HINT: u64 = 200;

/// How much of the log is not on disk.
fn unwritten(server: &Postgres) -> u64 {
    let bytes = server.sql("SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()");
    bytes.parse().expect("a number of bytes")
}

/// Where nothing but a commit writes the log to disk.
async fn lazy() -> Fresh {
    let server = Options::new().set("wal_writer_delay", "10s").start();
    Fresh::on(Arc::new(Mutex::new(server))).await
}

/// The most that was not on disk when a release that wakes somebody was answered.
async fn unwritten_after_a_release(fresh: &Fresh) -> u64 {
    let store = fresh.store();
    let (mut owner, mut next) = (Asker::open(&store, "a", SOON).await, Asker::open(&store, "b", SOON).await);
    owner.claim(&["job"]).await;
    let mut most = 0;
    for _ in 0..20 {
        next.claim(&["job"]).await;
        owner.release(&["job"]).await;
        most = most.max(unwritten(&fresh.server()));
        next.claim(&["job"]).await;
        std::mem::swap(&mut owner, &mut next);
    }
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_wakes_somebody_is_answered_when_it_is_on_disk() {
    let fresh = lazy().await;

    let most = unwritten_after_a_release(&fresh).await;

    assert!(most < A_HINT, "{most} bytes are not on disk");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_answered_before_it_is_on_disk_is_found() {
    let fresh = lazy().await;
    fresh.plant("done := true", "done := pg_logical_emit_message(true, 'tenure', '') IS NULL");

    let most = unwritten_after_a_release(&fresh).await;

    assert!(most >= A_HINT, "nobody found it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_the_server_has_forgotten_before_it_was_on_disk_is_not_answered() {
    let fresh = Fresh::start().await;
    let store = fresh.store();
    let (mut owner, mut next) = (Asker::open(&store, "a", SOON).await, Asker::open(&store, "b", SOON).await);
    granted(&owner.claim(&["job"]).await);
    next.claim(&["job"]).await;
    // As if a crash had undone the release before the second step looks for it.
    let forgets = "UPDATE newest SET released = 0; RETURN EXISTS (";
    fresh.plant(forgets, "RETURN EXISTS (");

    let leave = Leave { resource: resource("job"), how: Leaving::Released };
    let answered = owner.ask(Call::Release(vec![leave])).await;

    let told = answered.expect_err("an error").to_string();
    assert!(told.contains("forgotten"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_year_2200_nothing_is_granted_renewed_or_released() {
    let fresh = Fresh::start().await;
    let store = fresh.store();
    let mut worker = Asker::open(&store, "a", SOON).await;
    granted(&worker.claim(&["before"]).await);
    fresh.plant("to_timestamp(7258118400)", "clock_timestamp()");

    let leave = Leave { resource: resource("before"), how: Leaving::Released };
    for call in [Call::Claim(vec![want("after")]), Call::Renew, Call::Release(vec![leave])] {
        let told = worker.ask(call).await.expect_err("an error").to_string();
        assert!(told.contains("2200"), "{told}");
    }
}
