//! Many at once, and others who hold what we need: no deadlocks, no stale clocks, no bloat.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::conformance::Fixture;
use tenure::store::{Call, Claimed, Leave, Leaving, Said, Store};
use tokio::task::JoinSet;

use crate::fixture::{Fresh, start};
use crate::words::{Asker, SOON, granted, resource, want};

const HOUR: Duration = Duration::from_secs(3600);

/// 64 workers on connections of their own claim and release batches in orders of their own: how many deadlocks the
/// server met, and how many requests failed.
pub(crate) async fn claim_batches(fresh: &Fresh, rounds: usize) -> (u64, usize) {
    let deadlocks = || fresh.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'");
    let before: u64 = deadlocks().parse().expect("a number");
    let mut workers = JoinSet::new();
    for number in 0..64_usize {
        let (url, namespace) = (fresh.url.clone(), fresh.namespace.clone());
        workers.spawn(async move {
            let store = tenure::store::PostgresStore::open(&url, &namespace).await.expect("a store");
            let store: Arc<dyn Store> = Arc::new(store);
            let mut worker = Asker::open(&store, &format!("w{number}"), HOUR).await;
            worker.limit = SOON * 3;
            let mut failed = 0;
            for round in 0..rounds {
                // Another order, and other resources, each time; some of them nobody has named before.
                let names: Vec<String> = (0..12)
                    .map(|n| format!("job-{}", (number * 7 + n * (round + 5)) % 24 + round * 3))
                    .collect();
                let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
                if number % 2 == 0 {
                    names.reverse();
                }
                names.dedup();
                let wants = names.iter().map(|name| want(name)).collect();
                let leaves =
                    names.iter().map(|name| Leave { resource: resource(name), how: Leaving::Released });
                for call in [Call::Claim(wants), Call::Release(leaves.collect())] {
                    failed += usize::from(worker.ask(call).await.is_err());
                }
            }
            failed
        });
    }
    let failed = workers.join_all().await.into_iter().sum();
    // The server counts them when the connections that met them report, or end.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    (deadlocks().parse::<u64>().expect("a number") - before, failed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_batch_claimants_never_deadlock() {
    let fresh = Fresh::on(start()).await;

    assert_eq!(claim_batches(&fresh, 6).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clock_is_read_after_the_locks() {
    let fresh = Fresh::start().await;

    let (answered, freed) = claim_behind_a_lock(&fresh).await;

    assert!(answered >= freed, "an answer of {answered} to a claim that waited until {freed}");
}

/// Claims while another transaction holds the resource: when the claim was applied, and when it could be, in
/// microseconds of the server's clock.
pub(crate) async fn claim_behind_a_lock(fresh: &Fresh) -> (u64, u64) {
    let store = fresh.store();
    let [mut a, mut b] = [Asker::open(&store, "a", HOUR).await, Asker::open(&store, "b", HOUR).await];
    granted(&a.claim(&["job"]).await);
    let held = fresh.server().hold(&format!("SELECT 1 FROM \"{}\".resource FOR UPDATE", fresh.namespace));

    let claim = tokio::spawn(async move { b.ask(Call::Claim(vec![want("job")])).await });
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%@.claim%'";
    testkit::eventually(SOON, "the claim waits", || fresh.sql(waits) != "0");
    let freed = fresh.sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
    drop(held);

    let answer = claim.await.expect("a task").expect("an answer");
    (answer.stamp.now.as_micros(), freed.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_somebody_else_holds_delays_neither_renewals_nor_other_claims() {
    let fresh = Fresh::start().await;
    let store = fresh.store();
    let [mut a, mut b] = [Asker::open(&store, "a", HOUR).await, Asker::open(&store, "b", HOUR).await];
    granted(&a.claim(&["held"]).await);
    let _held = fresh.server().hold(&format!("SELECT 1 FROM \"{}\".resource FOR UPDATE", fresh.namespace));
    b.limit = Duration::from_secs(3);
    let blocked = tokio::spawn(async move { b.ask(Call::Claim(vec![want("held")])).await });
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%@.claim%'";
    testkit::eventually(SOON, "the claim waits", || fresh.sql(waits) != "0");
    tokio::time::sleep(Duration::from_millis(60)).await;

    let asked = Instant::now();
    assert!(matches!(a.renew().await, Said::Kept { .. }));
    let other = granted(&a.claim(&["free"]).await);
    let took = asked.elapsed();

    assert_eq!(other.term.0, 1);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let error = blocked.await.expect("a task").expect_err("it could not have the lock");
    assert_eq!(error.kind(), tenure::Kind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_somebody_else_holds_delays_only_its_own_worker() {
    let fresh = Fresh::start().await;
    let store = fresh.store();
    let [mut a, mut b] = [Asker::open(&store, "a", HOUR).await, Asker::open(&store, "b", HOUR).await];
    let lock = format!("SELECT 1 FROM \"{}\".lease WHERE label = 'a' FOR UPDATE", fresh.namespace);
    let _held = fresh.server().hold(&lock);
    a.limit = Duration::from_secs(2);
    let blocked = tokio::spawn(async move { a.ask(Call::Renew).await });
    tokio::time::sleep(Duration::from_millis(60)).await;

    let asked = Instant::now();
    assert!(matches!(b.renew().await, Said::Kept { .. }));
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    blocked.await.expect("a task").expect_err("it could not have the lock");
}

#[tokio::test]
async fn every_renewal_is_a_heap_only_update() {
    let fresh = Fresh::on(start()).await;
    let store = fresh.store();
    let mut workers = vec![];
    for number in 0..20 {
        workers.push(Asker::open(&store, &format!("w{number}"), HOUR).await);
    }

    for _ in 0..50 {
        for worker in &mut workers {
            assert!(matches!(worker.renew().await, Said::Kept { .. }));
        }
    }

    let counts = "SELECT n_tup_upd || ' ' || n_tup_hot_upd FROM pg_stat_user_tables
        WHERE schemaname = trim('@', '\"') AND relname = 'lease'";
    testkit::eventually(SOON, "all updates are counted, and all were heap-only", || {
        fresh.sql(counts) == "1000 1000"
    });
}

#[tokio::test]
async fn the_history_is_bounded() {
    let fresh = Fresh::start().await;
    fresh.sql("UPDATE @.meta SET history_most = 100");
    let store = fresh.store();
    let mut worker = Asker::open(&store, "a", HOUR).await;

    for _ in 0..200 {
        granted(&worker.claim(&["job"]).await);
        worker.release(&["job"]).await;
    }

    let kept: u64 = fresh.sql("SELECT count(*) FROM @.history").parse().expect("a number");
    assert!((100..200).contains(&kept), "{kept}");
    let read = store.history(None).await.expect("an answer");
    assert_eq!(read.len(), 100);
    assert_eq!(read.last().map(|entry| entry.grant.term.0), Some(200));
}

#[tokio::test]
async fn ten_thousand_resources_are_claimed_in_batches() {
    let fresh = Fresh::start().await;
    let mut worker = Asker::open(&fresh.store(), "a", HOUR).await;
    let names: Vec<String> = (0..10_000).map(|number| format!("job-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();

    let began = Instant::now();
    for batch in names.chunks(250) {
        assert!(worker.claim(batch).await.iter().all(|claimed| matches!(claimed, Claimed::Granted(_))));
    }
    println!("10 000 resources claimed in {:?}", began.elapsed());

    let asked = Instant::now();
    assert!(matches!(worker.renew().await, Said::Kept { .. }));
    println!("one renewal for all of them in {:?}", asked.elapsed());
}
