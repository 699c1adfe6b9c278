//! What the configuration of the server takes away, and that it is said; and that commits are on the disk.

use tenure::store::Impact;
use tenure::store::backend::Backend;
use testkit::postgres::{Options, Postgres};

use super::fixture::{Fresh, SOON, lease, namespace, open, set};

async fn concerns(url: &str) -> Vec<(Impact, String)> {
    let backend = open(url, &namespace("asked")).await;
    let concerns = backend.safety().await.expect("an answer");
    concerns.into_iter().map(|concern| (concern.cost, concern.what)).collect()
}

#[tokio::test]
async fn a_server_with_its_defaults_is_safe() {
    let fresh = Fresh::start().await;

    assert_eq!(concerns(&fresh.url).await, []);
}

#[tokio::test]
async fn fsync_off_costs_exclusion() {
    let server = Options::new().set("fsync", "off").set("full_page_writes", "off").start();

    let told = concerns(&server.url()).await;

    assert!(told.iter().all(|(cost, _)| *cost == Impact::Exclusion) && told.len() == 2, "{told:?}");
    assert!(told[0].1.contains("fsync is off"), "{told:?}");
}

#[tokio::test]
async fn an_asynchronous_standby_costs_exclusion_and_a_synchronous_one_does_not() {
    let server = Options::new().start();
    let _standby = server.standby();
    let follows = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
    testkit::eventually(SOON, "the standby follows", || server.sql(follows) == "1");

    let told = concerns(&server.url()).await;
    assert!(matches!(&told[..], [(Impact::Exclusion, what)] if what.contains("asynchronous")), "{told:?}");

    server.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    server.sql("SELECT pg_reload_conf()");
    testkit::eventually(SOON, "the setting is read", || server.sql("SHOW synchronous_standby_names") == "*");
    assert_eq!(concerns(&server.url()).await, []);
    let local = format!("{}?options=-c%20synchronous_commit%3Dlocal", server.url());
    let told = concerns(&local).await;
    assert!(matches!(&told[..], [(Impact::Exclusion, what)] if what.contains("local")), "{told:?}");
}

/// How much of the log is not on the disk.
fn unwritten(server: &Postgres) -> u64 {
    let bytes = server.sql("SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()");
    bytes.parse().expect("a number of bytes")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_commit_is_on_the_disk_when_it_is_answered_whatever_the_default_is() {
    // Readers that tidy up may write so much.
    const HINTS: u64 = 200;
    let options = Options::new().set("synchronous_commit", "off").set("wal_writer_delay", "10s");
    let fresh = Fresh::with(options).await;

    for _ in 0..20 {
        set(&fresh.backend, &lease(1), "x").await;
        assert!(unwritten(&fresh.server()) < HINTS, "what was answered is not on the disk");
    }

    assert_eq!(concerns(&fresh.url).await, []);
}
