//! What is a new life of the store, and what is not.

use rustix::process::{Pid, Signal, kill_process};
use tenure::store::PostgresBackend;
use tenure::store::backend::{Backend, Committed};
use tenure_core::{Incarnation, Key, Version};
use testkit::postgres::Options;

use super::fixture::{Fresh, SOON, lease, life, namespace, open, read, set, snapshot, text, write};

/// Reads until the server answers again.
async fn life_again(backend: &PostgresBackend) -> Incarnation {
    let until = tokio::time::Instant::now() + SOON;
    loop {
        match backend.read(&[]).await {
            Ok(shown) => return shown.life,
            Err(error) => assert!(tokio::time::Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// What was answered is there after this, in a new life, and a commit for the old life changes nothing.
async fn begins_a_new_life(happens: impl AsyncFnOnce(&Fresh)) {
    let fresh = Fresh::alone().await;
    let before = life(&fresh.backend).await;
    let version = set(&fresh.backend, &lease(1), "kept").await;

    happens(&fresh).await;

    let after = life_again(&fresh.backend).await;
    assert_ne!(before, after);
    let late = fresh.backend.commit(before, &[write(&lease(1), version, "late")]).await.expect("an answer");
    assert_eq!((late.life, late.done), (after, vec![Committed::Conflict(Vec::new())]));
    let stored = read(&fresh.backend, &lease(1)).await;
    assert_eq!((stored.version, text(&stored)), (version, Some("kept")));
    assert_eq!(life(&fresh.another().await).await, after, "everybody sees the same life");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_a_new_life() {
    begins_a_new_life(async |fresh| {
        fresh.server().stop();
        fresh.server().start();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_is_a_new_life_and_loses_nothing() {
    begins_a_new_life(async |fresh| {
        fresh.server().kill();
        fresh.server().start();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restored_from_a_backup_is_a_new_life() {
    let fresh = Fresh::alone().await;
    set(&fresh.backend, &lease(1), "old").await;
    fresh.server().back_up();
    let newer = set(&fresh.backend, &lease(1), "new").await;
    let before = life(&fresh.backend).await;

    fresh.server().stop();
    fresh.server().restore();
    fresh.server().start();

    assert_ne!(life_again(&fresh.backend).await, before);
    let stored = read(&fresh.backend, &lease(1)).await;
    assert!(text(&stored) == Some("old") && stored.version != newer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_takes_over_is_a_new_life_and_is_found_among_the_hosts() {
    let mut primary = Options::new().start();
    let name = namespace("failover");
    drop(open(&primary.url(), &name).await);
    let standby = primary.standby();
    let both =
        format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", standby.port(), primary.port());
    let backend = open(&both, &name).await;
    let (before, version) = (life(&backend).await, set(&backend, &lease(1), "kept").await);
    let has_all = "SELECT pg_current_wal_lsn() = replay_lsn FROM pg_stat_replication";
    testkit::eventually(SOON, "the standby has caught up", || primary.sql(has_all) == "t");

    primary.kill();
    standby.promote();

    assert_ne!(life_again(&backend).await, before);
    assert_eq!(read(&backend, &lease(1)).await.version, version);
    let late = backend.commit(before, &[write(&lease(1), version, "late")]).await.expect("an answer");
    assert_eq!(late.done, [Committed::Conflict(Vec::new())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_alone_is_a_new_life() {
    let primary = Options::new().start();
    let name = namespace("promoted");
    let backend = open(&primary.url(), &name).await;
    let old = life(&backend).await;
    let standby = primary.standby();
    let refused = PostgresBackend::open(&standby.url(), &name).await.expect_err("a standby");
    assert!(refused.to_string().contains("standby"), "{refused}");

    standby.promote();

    let promoted = open(&standby.url(), &name).await;
    assert_ne!(life(&promoted).await, old);
}

#[tokio::test]
async fn a_standby_answers_neither_reads_nor_commits() {
    let primary = Options::new().start();
    let name = namespace("stale");
    drop(open(&primary.url(), &name).await);
    let standby = primary.standby();

    for call in [
        "read('{meta}')",
        "list('lease/', 'lease0', 9)",
        "commit('\\x00', '{}', '{}', 0, 0, '{}', '{}', '{}', '{}', '{}',
        NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    ] {
        let told = standby.try_sql(&format!("SELECT stale.{call}")).expect_err("a standby");
        assert!(told.contains("recovery is in progress"), "{told}");
    }
}

#[tokio::test]
async fn a_schema_that_is_dropped_and_created_again_is_a_new_life_that_may_have_lost_something() {
    let fresh = Fresh::start().await;
    let before = life(&fresh.backend).await;
    fresh.sql("DROP SCHEMA @ CASCADE");

    let again = fresh.another().await;

    assert_ne!(life(&again).await, before);
    assert!(!again.lost_nothing(SOON).await.expect("an answer"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_one_process_of_the_server_is_the_same_life_and_loses_nothing() {
    let fresh =
        Fresh::with(Options::new().set("restart_after_crash", "on").set("wal_writer_delay", "10s")).await;
    let before = life(&fresh.backend).await;
    let victim = fresh.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'");
    let mut versions = Vec::new();
    for number in 0..20 {
        versions.push(set(&fresh.backend, &lease(number), "kept").await);
    }

    let victim = Pid::from_raw(victim.parse().expect("a pid")).expect("a pid");
    kill_process(victim, Signal::KILL).expect("a process of this test's own server");

    // The others end at once, and the server begins anew by what is on the disk.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(life_again(&fresh.backend).await, before);
    let keys: Vec<Key> = (0..20).map(lease).collect();
    let kept: Vec<Version> =
        snapshot(&fresh.backend, &keys).await.records.iter().map(|stored| stored.version).collect();
    assert_eq!(kept, versions);
}

#[tokio::test]
async fn reloading_the_configuration_and_tidying_up_are_the_same_life() {
    let fresh = Fresh::start().await;
    let before = life(&fresh.backend).await;

    fresh.sql("SELECT pg_reload_conf()");
    fresh.sql("VACUUM FULL @.record");
    fresh.sql("CHECKPOINT");
    fresh.sql("SELECT pg_switch_wal()");

    assert_eq!(life(&fresh.backend).await, before);
}
