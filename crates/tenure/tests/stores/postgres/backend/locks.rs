//! Who waits for whom: locks, and the time after a wait.

use std::time::{Duration, Instant};

use tenure::ErrorKind;
use tenure::store::PostgresBackend;
use tenure::store::backend::{Backend, Change, Committed};
use tenure_core::{Key, StoreTime, Version, Window};
use testkit::postgres::Hold;

use super::fixture::{
    Fresh, SOON, Words, apply, commit, is_done, lease, life, read, resource, set, snapshot, text, write,
};

async fn clock(backend: &PostgresBackend) -> StoreTime {
    snapshot(backend, &[]).await.now.expect("a clock")
}

/// Commits while `hold` is kept for at least half a second; gives back the answer, and when the hold ended.
async fn commits_behind(fresh: &Fresh, hold: Hold, change: Change) -> (Committed, StoreTime) {
    let life = life(&fresh.backend).await;
    let backend = fresh.backend.clone();
    let waiting =
        tokio::spawn(async move { backend.commit(life, &[change]).await.expect("an answer").done.remove(0) });
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%@.commit%'";
    let server_sees = || fresh.sql(waits) == "1";
    tokio::task::block_in_place(|| testkit::eventually(SOON, "the commit waits", server_sees));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished());
    let until = clock(&fresh.backend).await;
    drop(hold);
    (waiting.await.expect("a task"), until)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stamp_is_the_time_after_the_wait_for_a_row() {
    let fresh = Fresh::start().await;
    let key = resource("a");
    let version = set(&fresh.backend, &key, "1").await;
    let hold = fresh.server().hold(&fresh.in_schema("SELECT FROM @.record FOR UPDATE"));

    let (committed, until) = commits_behind(&fresh, hold, write(&key, version, "2")).await;

    let Committed::Done { stamp: Some(stamp) } = committed else { panic!("{committed:?}") };
    assert!(stamp >= until, "{stamp:?} {until:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_passes_during_the_wait_for_a_row_has_passed() {
    let fresh = Fresh::start().await;
    let key = resource("a");
    let version = set(&fresh.backend, &key, "1").await;
    let hold = fresh.server().hold(&fresh.in_schema("SELECT FROM @.record FOR UPDATE"));
    let until = Some(clock(&fresh.backend).await + Duration::from_millis(400));

    let change = write(&key, version, "2").within(Window { from: None, until });
    let (committed, _) = commits_behind(&fresh, hold, change).await;

    assert_eq!(committed, Committed::Conflict(Vec::new()));
    assert_eq!(text(&read(&fresh.backend, &key).await), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_passes_while_another_creates_the_record_has_passed() {
    let fresh = Fresh::start().await;
    let key = resource("a");
    let hold =
        fresh.server().hold(&fresh.in_schema("INSERT INTO @.record VALUES ('resource/a', 77, 1, 'never')"));
    let until = Some(clock(&fresh.backend).await + Duration::from_millis(400));

    let change = write(&key, Version::NONE, "2").within(Window { from: None, until });
    let (committed, _) = commits_behind(&fresh, hold, change).await;

    assert_eq!(committed, Committed::Conflict(Vec::new()));
    assert_eq!(fresh.sql("SELECT count(*) FROM @.record"), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_another_almost_created_is_created_with_the_time_after_the_wait() {
    let fresh = Fresh::start().await;
    let hold =
        fresh.server().hold(&fresh.in_schema("INSERT INTO @.record VALUES ('resource/a', 77, 1, 'never')"));

    let (committed, until) = commits_behind(&fresh, hold, write(&resource("a"), Version::NONE, "2")).await;

    let Committed::Done { stamp } = committed else { panic!("{committed:?}") };
    assert!(stamp >= Some(until));
    let stored = read(&fresh.backend, &resource("a")).await;
    assert_eq!((stored.stamp, text(&stored)), (stamp, Some("2")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_another_created_first_is_a_conflict_of_that_change_only() {
    let fresh = Fresh::start().await;
    let (a, b, z) = (resource("a"), resource("b"), resource("z"));
    let of_z = set(&fresh.backend, &z, "1").await;
    let life = life(&fresh.backend).await;
    // A transaction that creates `b`, and commits after a while.
    let creates = fresh.in_schema(
        "BEGIN; INSERT INTO @.record VALUES ('resource/b', 77, 1, 'theirs'); SELECT pg_sleep(1); COMMIT",
    );
    let url = fresh.server().socket_url();
    let other = tokio::task::spawn_blocking(move || {
        std::process::Command::new("psql")
            .args(["-XAtq", "-d", &url, "-c", &creates])
            .status()
            .expect("psql runs")
    });
    let sleeps = || {
        fresh.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%@%'")
            == "1"
    };
    tokio::task::block_in_place(|| testkit::eventually(SOON, "b is being created", sleeps));

    // The change has another new record and one that exists: neither may be left behind.
    let loses =
        write(&a, Version::NONE, "ours").and_write(&b, Version::NONE, "ours").and_write(&z, of_z, "ours");
    let wins = write(&resource("c"), Version::NONE, "ours");
    let answer = fresh.backend.commit(life, &[loses, wins]).await.expect("an answer");

    assert!(other.await.expect("a task").success());
    let Committed::Conflict(records) = &answer.done[0] else { panic!("{answer:?}") };
    assert_eq!((records.len(), &records[0].key, text(&records[0])), (1, &b, Some("theirs")));
    assert!(is_done(&answer.done[1]));
    let keys = fresh.sql("SELECT string_agg(key || '=' || value, ' ' ORDER BY key) FROM @.record");
    assert_eq!(keys, "resource/b=theirs resource/c=ours resource/z=1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_a_record_for_long_does_not_hold_up_commits_for_ever() {
    let fresh = Fresh::start().await;
    let key = resource("a");
    let version = set(&fresh.backend, &key, "1").await;
    let _hold = fresh.server().hold(&fresh.in_schema("SELECT FROM @.record FOR UPDATE"));
    let (life, began) = (life(&fresh.backend).await, Instant::now());

    let told = fresh.backend.commit(life, &[write(&key, version, "2")]).await.expect_err("it is held");

    assert_eq!(told.kind(), ErrorKind::Unavailable);
    assert!(told.to_string().contains("another transaction holds"), "{told}");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_only_expected_is_not_waited_for() {
    let fresh = Fresh::start().await;
    let meta = set(&fresh.backend, &Key::Meta, "meta").await;
    let version = set(&fresh.backend, &lease(1), "1").await;
    let _hold = fresh.server().hold(&fresh.in_schema("SELECT FROM @.record WHERE key = 'meta' FOR UPDATE"));

    let renewing = apply(&fresh.backend, write(&lease(1), version, "2").and_expect(&Key::Meta, meta));

    tokio::time::timeout(Duration::from_secs(2), renewing).await.expect("nobody is waited for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_the_same_records_in_any_order_never_deadlock() {
    let fresh = Fresh::alone().await;
    // Half of them exist, the others are created in the race.
    let keys: Vec<Key> = (0..240).map(|number| resource(&format!("r{number}"))).collect();
    let some: Vec<Change> = keys.iter().step_by(2).map(|key| write(key, Version::NONE, "0")).collect();
    assert!(commit(&fresh.backend, &some).await.done.iter().all(is_done));
    let mut racing = tokio::task::JoinSet::new();
    for client in 0..8_usize {
        let (backend, keys) = (fresh.another().await, keys.clone());
        racing.spawn(async move {
            let mut applied = 0;
            for round in 0..8_usize {
                let shown = backend.read(&keys).await.expect("an answer");
                let mut changes: Vec<Change> =
                    shown.records.iter().map(|stored| write(&stored.key, stored.version, "x")).collect();
                changes.rotate_left(client * 30 + round);
                if client % 2 == 0 {
                    changes.reverse();
                }
                let answer = backend.commit(shown.life, &changes).await.expect("no deadlock");
                applied += answer.done.iter().filter(|done| is_done(done)).count();
            }
            applied
        });
    }

    let applied: usize = racing.join_all().await.into_iter().sum();

    assert!(applied >= 240, "{applied}");
    assert_eq!(fresh.sql("SELECT count(*) FROM @.record WHERE version = 0"), "0");
    assert_eq!(fresh.sql("SELECT sum(deadlocks) FROM pg_stat_database"), "0");
}
