//! Many at once, and others who hold what we need: no deadlocks, no stale clocks, no bloat.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::Error;
use tenure::conformance::Fixture;
use tenure::store::{Call, Claimed, Closing, Leave, Leaving, Said, Store};
use tenure_core::Why;
use testkit::postgres::Options;
use tokio::task::JoinSet;

use crate::fixture::{Fresh, start};
use crate::words::{Asker, SOON, granted, resource, want};

const HOUR: Duration = Duration::from_secs(3600);
/// How many claims wait for a lock, over a connection of their own: over the one of all they wait for a moment only.
const WAITS: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
    AND query LIKE '%@.claim%' AND clock_timestamp() - query_start > interval '200 ms'";

/// 64 workers on connections of their own claim and release batches in orders of their own: how many deadlocks the
/// server met, and which requests failed.
pub(crate) async fn claim_batches(fresh: &Fresh, rounds: usize) -> (u64, Vec<Error>) {
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
            let mut failed = Vec::new();
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
                    failed.extend(worker.ask(call).await.err());
                }
            }
            failed
        });
    }
    let failed = workers.join_all().await.into_iter().flatten().collect();
    // The server counts them when the connections that met them report, or end.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    (deadlocks().parse::<u64>().expect("a number") - before, failed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_batch_claimants_never_deadlock() {
    // Fewer than it takes when each of them has another connection for what waits.
    let server = Options::new().set("max_connections", "150").start();
    let fresh = Fresh::on(Arc::new(Mutex::new(server))).await;

    let (deadlocks, failed) = claim_batches(&fresh, 6).await;

    assert_eq!((deadlocks, failed.len()), (0, 0), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clock_is_read_after_the_locks() {
    let fresh = Fresh::start().await;

    let (token, freed) = claim_behind_a_lock(&fresh).await;

    assert!(token >= freed, "the token {token} of a claim that waited until {freed}");
}

/// Claims what is free while another transaction holds the resource: the token, which says when it was granted, and
/// when it could be, in microseconds of the server's clock.
pub(crate) async fn claim_behind_a_lock(fresh: &Fresh) -> (u64, u64) {
    let store = fresh.store();
    let [mut a, mut b] = [Asker::open(&store, "a", HOUR).await, Asker::open(&store, "b", HOUR).await];
    granted(&a.claim(&["job"]).await);
    a.release(&["job"]).await;
    let held = fresh.server().hold(&format!("SELECT 1 FROM \"{}\".resource FOR UPDATE", fresh.namespace));

    let claim = tokio::spawn(async move { b.claim(&["job"]).await });
    testkit::eventually(SOON, "the claim waits", || fresh.sql(WAITS) != "0");
    let freed = fresh.sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
    drop(held);

    (granted(&claim.await.expect("a task")).token.0, freed.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_somebody_else_holds_delays_neither_renewals_nor_other_claims() {
    let fresh = Fresh::start().await;
    let store = fresh.store();
    let [mut a, mut b] = [Asker::open(&store, "a", HOUR).await, Asker::open(&store, "b", HOUR).await];
    granted(&a.claim(&["held"]).await);
    let _held = fresh.server().hold(&format!("SELECT 1 FROM \"{}\".resource FOR UPDATE", fresh.namespace));
    b.limit = SOON / 2;

    // The second and third are sent right behind the first.
    let blocked = b.ask(Call::Claim(vec![want("held")]));
    let others = async {
        let asked = Instant::now();
        assert!(matches!(a.renew().await, Said::Kept { .. }));
        assert_eq!(granted(&a.claim(&["free"]).await).term.0, 1);
        asked.elapsed()
    };
    let (blocked, took) = tokio::join!(blocked, others);

    assert!(took < SOON / 4, "{took:?}");
    let error = blocked.expect_err("it could not have the lock");
    assert_eq!(error.kind(), tenure::Kind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_somebody_else_holds_delays_only_its_own_worker() {
    let fresh = Fresh::start().await;
    let store = fresh.store();
    let [mut a, mut b] = [Asker::open(&store, "a", HOUR).await, Asker::open(&store, "b", HOUR).await];
    let lock = format!("SELECT 1 FROM \"{}\".lease WHERE label = 'a' FOR UPDATE", fresh.namespace);
    let held = fresh.server().hold(&lock);
    a.ask(Call::Renew).await.expect_err("it could not have the lock");

    // The lock of a lease is waited for only for a moment; here for long, so that whoever queues behind it shows.
    fresh.plant("20000::text", "patience::text");
    let blocked = tokio::spawn(async move { a.ask(Call::Renew).await });
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%@.renew%'";
    testkit::eventually(SOON / 4, "the renewal waits", || fresh.sql(waits) == "1");
    // For longer than anybody queues behind it over the same connection.
    tokio::time::sleep(Duration::from_millis(60)).await;

    assert!(matches!(b.renew().await, Said::Kept { .. }));
    assert!(!blocked.is_finished(), "the other waited for it");
    drop(held);
    let renewed = blocked.await.expect("a task").expect("an answer");
    assert!(matches!(renewed.said, Said::Kept { .. }), "{renewed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_takes_what_it_can_have_while_somebody_else_holds_one_of_its_resources() {
    let fresh = Fresh::start().await;
    let store = fresh.store();
    let [mut a, mut b] = [Asker::open(&store, "a", HOUR).await, Asker::open(&store, "b", HOUR).await];
    granted(&b.claim(&["held"]).await);
    b.release(&["held"]).await;
    let lock = format!("SELECT 1 FROM \"{}\".resource WHERE name = 'held' FOR UPDATE", fresh.namespace);
    let held = fresh.server().hold(&lock);

    let asked = Instant::now();
    let claimed = a.claim(&["free", "held", "other"]).await;
    assert!(asked.elapsed() < SOON / 4, "{:?}", asked.elapsed());
    assert!(
        matches!(claimed[..], [Claimed::Granted(_), Claimed::Waiting(_), Claimed::Granted(_)]),
        "{claimed:?}"
    );
    let leaving = tokio::spawn(async move {
        a.release(&["free", "held", "other"]).await;
        a
    });
    let until = Instant::now() + SOON / 2;
    for name in ["free", "other"] {
        while !matches!(b.claim(&[name]).await[..], [Claimed::Granted(_)]) {
            assert!(Instant::now() < until, "`{name}` is not free while `held` is held");
        }
    }

    drop(held);
    let mut a = leaving.await.expect("the release waits for what is held, and comes through");
    granted(&a.claim(&["held"]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_queues_while_the_owners_lease_is_closed_is_hinted() {
    let fresh = Fresh::start().await;
    let store = fresh.store();
    let [mut a, mut b] = [Asker::open(&store, "a", HOUR).await, Asker::open(&store, "b", HOUR).await];
    let mut hints = store.hints(b.lease).await.expect("a stream");
    granted(&a.claim(&["job"]).await);
    // Whoever has queued stays in its transaction until the close waits for it, or for a few seconds.
    let meanwhile = format!(
        "FOR i IN 1 .. 2000 LOOP
            PERFORM pg_stat_clear_snapshot();
            EXIT WHEN EXISTS (SELECT FROM pg_stat_activity
                WHERE wait_event_type = 'Lock' AND query LIKE '%\"{}\".close(%');
            PERFORM pg_sleep(0.001);
        END LOOP; later := CASE",
        fresh.namespace
    );
    fresh.plant(&meanwhile, "later := CASE");
    fresh.plant("10000::text", "least(patience, 100)::text");
    let claim = tokio::spawn(async move { b.claim(&["job"]).await });
    let queued =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%@.claim%'";
    testkit::eventually(SOON, "the claim has queued", || fresh.sql(queued) == "1");

    let closed = a.ask(Call::Close(Closing::Left)).await.expect("an answer");

    assert_eq!(closed.said, Said::Closed);
    let claimed = claim.await.expect("a task");
    assert!(matches!(claimed[..], [Claimed::Waiting(_)]), "{claimed:?}");
    let hint =
        tokio::time::timeout(SOON, hints.recv()).await.expect("it looks again at once").expect("a hint");
    assert_eq!((hint.resource.as_str(), hint.after), ("job", Duration::ZERO));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_ends_though_somebody_else_holds_its_resource() {
    let fresh = Fresh::start().await;
    let store = fresh.store();
    let [mut a, mut b] = [Asker::open(&store, "a", HOUR).await, Asker::open(&store, "b", HOUR).await];
    granted(&a.claim(&["job"]).await);
    let held = fresh.server().hold(&format!("SELECT 1 FROM \"{}\".resource FOR UPDATE", fresh.namespace));

    let asked = Instant::now();
    let closed = a.ask(Call::Close(Closing::Left)).await.expect("an answer");

    assert_eq!(closed.said, Said::Closed);
    assert!(asked.elapsed() < SOON / 4, "{:?}", asked.elapsed());
    drop(held);
    granted(&b.claim(&["job"]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarantine_that_grows_while_a_claim_waits_for_a_lock_counts() {
    let fresh = Fresh::start().await;

    let claimed = claim_while_the_quarantine_grows(&fresh).await;

    assert!(matches!(claimed, Claimed::Waiting(waiting) if waiting.why == Why::Quarantine), "{claimed:?}");
}

/// Claims behind a lock in the last second of a quarantine; before it would be over, and before the lock is free,
/// somebody with a longer ttl comes.
pub(crate) async fn claim_while_the_quarantine_grows(fresh: &Fresh) -> Claimed {
    let store = fresh.store();
    let mut a = Asker::open(&store, "a", HOUR).await;
    granted(&a.claim(&["job"]).await);
    a.release(&["job"]).await;
    fresh.sql("UPDATE @.meta SET quarantine_from = @.clock() - 1000000, longest_ns = 2000000000");
    let held = fresh.server().hold(&format!("SELECT 1 FROM \"{}\".resource FOR UPDATE", fresh.namespace));
    let claim = tokio::spawn(async move { a.claim(&["job"]).await });
    testkit::eventually(SOON, "the claim waits", || fresh.sql(WAITS) != "0");

    let _longer = Asker::open(&store, "b", HOUR).await;
    testkit::eventually(SOON, "the shorter quarantine would be over", || {
        fresh.sql("SELECT @.clock() > quarantine_from + 2000000 FROM @.meta") == "t"
    });
    drop(held);

    claim.await.expect("a task")[0]
}

#[tokio::test]
async fn dead_leases_behind_many_that_live_are_swept() {
    let fresh = Fresh::start().await;

    assert_ne!(sweep_behind_the_living(&fresh).await, 0);
}

/// Many leases that live, as many behind them that died hours ago, and workers that come: how many dead are forgotten.
pub(crate) async fn sweep_behind_the_living(fresh: &Fresh) -> u64 {
    let add = |from: u32, to: u32, columns: &str, values: &str| {
        fresh.sql(&format!(
            "INSERT INTO @.lease (bearer, ttl_ns, opened_at, label, metadata, {columns})
                SELECT decode(lpad(to_hex(n), 32, '0'), 'hex'), 1000, 1, 'old', '{{}}', {values}
                FROM generate_series({from}, {to}) AS n"
        ))
    };
    add(1, 400, "expires_at", "@.clock() + 3600000000");
    add(401, 800, "expires_at, ended_at, ended_why", "1, 1, 0");

    let store = fresh.store();
    for number in 0..40 {
        Asker::open(&store, &format!("w{number}"), HOUR).await;
    }

    400 - fresh.sql("SELECT count(*) FROM @.lease WHERE ended_at = 1").parse::<u64>().expect("a number")
}

#[tokio::test]
async fn who_reads_one_resource_reads_its_rows_and_no_others() {
    let fresh = Fresh::on(start()).await;
    let store = fresh.store();
    let mut worker = Asker::open(&store, "a", HOUR).await;
    let names: Vec<String> = (0..1000).map(|number| format!("job-{number}")).collect();
    for batch in names.chunks(250) {
        worker.claim(&batch.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    fresh.sql("ANALYZE");
    drop((worker, store));
    let reader = tenure::store::PostgresStore::open(&fresh.url, &fresh.namespace).await.expect("a store");
    let rows = "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
        WHERE schemaname = trim('@', '\"')";
    let count = || {
        // What a connection has read is counted when it ends.
        let gone =
            || fresh.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'") == "0";
        fresh.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenure'");
        testkit::eventually(SOON, "all connections are gone", gone);
        fresh.sql(rows).parse::<u64>().expect("a number")
    };
    let before = count();

    for _ in 0..10 {
        let one = reader.read(Some(&resource("job-7"))).await;
        if let Ok(one) = one {
            assert_eq!((one.len(), one[0].owners.len()), (1, 1));
        }
    }

    let read = count() - before;
    assert!((10..500).contains(&read), "{read} rows for ten looks at one resource of a thousand");
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

    let counts = "SELECT n_tup_upd = 1000 AND n_tup_hot_upd = 1000 FROM pg_stat_user_tables
        WHERE schemaname = trim('@', '\"') AND relname = 'lease'";
    testkit::eventually(SOON, "all updates are counted, and all were heap-only", || fresh.sql(counts) == "t");
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
