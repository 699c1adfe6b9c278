//! Many workers at once, and others who hold what we need: no deadlocks, bounded work, nobody waits for a stranger.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::Error;
use tenure::conformance::Fixture;
use tenure::store::{Call, Claimed, Closing, Leave, Leaving, PostgresStore, Said, Store};
use testkit::postgres::Options;
use tokio::task::JoinSet;

use super::fixture::{Fresh, start};
use super::words::{Asker, SOON, granted, resource, want};

const HOUR: Duration = Duration::from_secs(3600);

/// 64 workers on connections of their own claim and release batches in orders of their own: how many deadlocks the
/// server met, and which requests failed.
async fn claim_batches(fresh: &Fresh, rounds: usize) -> (u64, Vec<Error>) {
    let deadlocks = || fresh.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'");
    let before: u64 = deadlocks().parse().expect("a number");
    let mut workers = JoinSet::new();
    for number in 0..64_usize {
        let (url, namespace) = (fresh.url.clone(), fresh.namespace.clone());
        workers.spawn(async move {
            let store = PostgresStore::open(&url, &namespace).await.expect("a store");
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

/// Everybody wants the same resource, keeps it for a moment and passes it on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_workers_pass_one_resource_around_and_all_have_it() {
    const WORKERS: usize = 40;
    let fresh = Fresh::start().await;
    let (inside, had) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut workers = JoinSet::new();

    for number in 0..WORKERS {
        let (url, namespace) = (fresh.url.clone(), fresh.namespace.clone());
        let (inside, had) = (inside.clone(), had.clone());
        // Some share a process, and so a connection and what it has read.
        let store = (number % 4 == 0).then(|| fresh.store());
        workers.spawn(async move {
            let store = match store {
                Some(store) => store,
                None => Arc::new(PostgresStore::open(&url, &namespace).await.expect("a store")),
            };
            let mut worker = Asker::open(&store, &format!("w{number}"), SOON * 3).await;
            let mut hints = store.hints(worker.lease).await.expect("a stream");
            while !matches!(worker.claim(&["job"]).await[..], [Claimed::Granted(_)]) {
                // Until a hint says that it is its turn; whoever is not hinted looks again a little later.
                let mut wait = SOON / 20;
                while !wait.is_zero() {
                    match tokio::time::timeout(wait, hints.recv()).await {
                        Ok(Some(hint)) => wait = wait.min(hint.after),
                        Ok(None) => panic!("the stream has ended"),
                        Err(_) => break,
                    }
                }
            }
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            inside.fetch_sub(1, Ordering::SeqCst);
            had.fetch_add(1, Ordering::SeqCst);
            worker.release(&["job"]).await;
        });
    }
    let done = tokio::time::timeout(SOON * 3, workers.join_all()).await;

    done.unwrap_or_else(|_| panic!("only {had:?} of {WORKERS} had it"));
    let history = fresh.store().history(None).await.expect("an answer");
    let granted = history.iter().filter(|entry| entry.what == tenure::admin::HistoryEvent::Granted);
    let terms: Vec<u64> = granted.map(|entry| entry.grant.term.0).collect();
    assert_eq!(terms, (1..=WORKERS as u64).collect::<Vec<_>>());
}

/// Takes the lock of one resource.
const HOLDS: &str = "SELECT 1 FROM @.record WHERE key = 'resource/job' FOR UPDATE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_somebody_else_holds_delays_neither_renewals_nor_other_claims() {
    let fresh = Fresh::start().await;
    let store = fresh.store();
    let [mut a, mut b] = [Asker::open(&store, "a", HOUR).await, Asker::open(&store, "b", HOUR).await];
    granted(&a.claim(&["job"]).await);
    let _held = fresh.server().hold(&fresh.in_schema(HOLDS));
    b.limit = SOON / 2;

    let blocked = b.ask(Call::Claim(vec![want("job")]));
    let others = async {
        let asked = Instant::now();
        assert!(matches!(a.renew().await, Said::Kept { .. }));
        assert_eq!(granted(&a.claim(&["free"]).await).term.0, 1);
        asked.elapsed()
    };
    let (blocked, took) = tokio::join!(blocked, others);

    assert!(took < SOON / 4, "{took:?}");
    let error = blocked.expect_err("it could not have the lock");
    assert_eq!(error.kind(), tenure::ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_somebody_else_holds_delays_only_its_own_worker() {
    let fresh = Fresh::start().await;
    let store = fresh.store();
    let [mut a, mut b] = [Asker::open(&store, "a", HOUR).await, Asker::open(&store, "b", HOUR).await];
    let lease = format!("SELECT 1 FROM @.record WHERE key = 'lease/{:032x}' FOR UPDATE", a.lease.0);
    let held = fresh.server().hold(&fresh.in_schema(&lease));
    let blocked = tokio::spawn(async move { a.renew().await });
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%@.commit%'";
    testkit::eventually(SOON / 4, "the renewal waits", || fresh.sql(waits) == "1");

    assert!(matches!(b.renew().await, Said::Kept { .. }));

    assert!(!blocked.is_finished(), "the other waited for it");
    drop(held);
    let renewed = blocked.await.expect("a task");
    assert!(matches!(renewed, Said::Kept { .. }), "{renewed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_leaves_though_somebody_else_holds_its_resource() {
    let fresh = Fresh::start().await;
    let store = fresh.store();
    let [mut a, mut b] = [Asker::open(&store, "a", HOUR).await, Asker::open(&store, "b", HOUR).await];
    granted(&a.claim(&["job"]).await);
    let held = fresh.server().hold(&fresh.in_schema(HOLDS));

    let asked = Instant::now();
    // It cannot give up the resource first, so that whoever waits is woken; then the end of its lease has to do.
    let first = a.ask(Call::Close(Closing::Left)).await.expect_err("somebody holds the resource");
    assert_eq!(first.kind(), tenure::ErrorKind::Unavailable, "{first}");
    let closed = a.ask(Call::Close(Closing::Left)).await.expect("an answer");

    assert_eq!(closed.said, Said::Closed);
    assert!(asked.elapsed() < SOON / 2, "{:?}", asked.elapsed());
    drop(held);
    granted(&b.claim(&["job"]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_ended_long_ago_are_cleared_away() {
    let fresh = Fresh::start().await;
    let (live, dead) =
        (r#"{"format":1,"rev":1,"label":"old","ttl_us":1000000,"seq":1,"mark":1"#, 3_700_000_000_u64);
    fresh.sql(&format!(
        "INSERT INTO @.record (key, version, stamp, value)
            SELECT 'lease/' || md5(n::text), n, @.clock() - {dead}, '{live}'
                || CASE WHEN n % 2 = 0 THEN '}}' ELSE ',\"ended\":{{\"why\":\"left\",\"clean\":true}}}}' END
            FROM generate_series(1, 400) AS n"
    ));
    let ended = || fresh.sql("SELECT count(*) FROM @.record WHERE value LIKE '%\"ended\"%'");
    assert_eq!(ended(), "200");

    // Each process clears a page, beginning anywhere.
    testkit::eventually(SOON, "most are cleared", || {
        let opens = async {
            let store = PostgresStore::open(&fresh.url, &fresh.namespace).await.expect("a store");
            let store: Arc<dyn Store> = Arc::new(store);
            Asker::open(&store, "w", HOUR).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(opens));
        ended().parse::<u64>().expect("a number") < 50
    });
    let living = "SELECT count(*) FROM @.record WHERE key LIKE 'lease/%' AND value LIKE '%\"old\"%'
        AND value NOT LIKE '%\"ended\"%'";
    assert_eq!(fresh.sql(living), "200", "who was never ended stays");
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
    let reader = PostgresStore::open(&fresh.url, &fresh.namespace).await.expect("a store");
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
