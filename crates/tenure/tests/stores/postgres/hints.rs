//! Hand-over between processes: whoever is next hears of it at once, and needs one round trip to take over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::store::{Call, Claimed, Closing, Hints, PostgresStore, Said, Store};
use testkit::postgres::Options;

use super::fixture::Fresh;
use super::words::{Asker, SOON, granted};

/// Nobody looks again by itself within this.
const LONG: Duration = Duration::from_secs(600);
const AT_ONCE: Duration = Duration::from_secs(2);

/// A worker in a process of its own, as far as the server can tell, that hears its hints.
async fn worker(fresh: &Fresh, label: &str) -> (Asker, Hints) {
    let store: Arc<dyn Store> =
        Arc::new(PostgresStore::open(&fresh.url, &fresh.namespace).await.expect("a store"));
    let worker = Asker::open(&store, label, LONG).await;
    let hints = store.hints(worker.lease).await.expect("a stream");
    (worker, hints)
}

async fn hinted(hints: &mut Hints) -> Duration {
    let hint = tokio::time::timeout(SOON, hints.recv()).await.expect("in time").expect("a hint");
    assert_eq!(hint.resource.as_str(), "job");
    hint.after
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_the_head_at_once_and_the_next_a_step_later() {
    let fresh = Fresh::start().await;
    let (mut owner, _) = worker(&fresh, "owner").await;
    let (mut head, mut head_hears) = worker(&fresh, "head").await;
    let (mut next, mut next_hears) = worker(&fresh, "next").await;
    granted(&owner.claim(&["job"]).await);
    head.claim(&["job"]).await;
    next.claim(&["job"]).await;

    let released = Instant::now();
    owner.release(&["job"]).await;

    assert_eq!(hinted(&mut head_hears).await, Duration::ZERO);
    assert!(released.elapsed() < AT_ONCE, "{:?}", released.elapsed());
    assert!(hinted(&mut next_hears).await > Duration::ZERO);
    granted(&head.claim(&["job"]).await);
    assert!(matches!(next.claim(&["job"]).await[..], [Claimed::Waiting(_)]));
}

/// The record comes with the hint, so the claim reads nothing. The owner does not hear who joins the queue, so its
/// release may conflict with that once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_hint_a_ticket_is_taken_in_one_round_trip_and_nobody_reads() {
    let fresh = Fresh::on(Arc::new(std::sync::Mutex::new(Options::new().start()))).await;
    let (mut owner, mut owner_hears) = worker(&fresh, "a").await;
    let (mut head, mut head_hears) = worker(&fresh, "b").await;
    granted(&owner.claim(&["job"]).await);
    head.claim(&["job"]).await;
    // Whoever waits begins to follow the owner meanwhile.
    tokio::time::sleep(Duration::from_millis(500)).await;
    fresh.sql("ALTER SYSTEM SET log_statement = 'all'");
    fresh.sql("SELECT pg_reload_conf()");
    testkit::eventually(SOON, "statements are logged", || fresh.sql("SHOW log_statement") == "all");
    let log = fresh.server().folder().join("log");
    let said = || {
        let log = std::fs::read_to_string(&log).expect("a log");
        let calls = |name: &str| log.matches(&fresh.in_schema(&format!("SELECT * FROM @.{name}("))).count();
        (calls("read"), calls("commit"))
    };
    let (reads, before) = said();

    owner.release(&["job"]).await;
    hinted(&mut head_hears).await;
    let (_, released) = said();
    granted(&head.claim(&["job"]).await);

    let (reads_after, taken) = said();
    assert_eq!((reads_after, taken - released), (reads, 1), "reads, and commits of the claim");
    assert!((1..=2).contains(&(released - before)), "{} commits of the release", released - before);
    assert!(owner_hears.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_hears_at_once_that_the_owners_lease_was_closed() {
    let fresh = Fresh::start().await;
    for closing in [Closing::Left, Closing::Proved] {
        let (mut owner, _) = worker(&fresh, "owner").await;
        let (mut head, mut hears) = worker(&fresh, "head").await;
        granted(&owner.claim(&["job"]).await);
        head.claim(&["job"]).await;
        // Whoever waits begins to follow the owner meanwhile.
        tokio::time::sleep(Duration::from_millis(500)).await;

        let closed = Instant::now();
        assert_eq!(owner.ask(Call::Close(closing)).await.expect("an answer").said, Said::Closed);

        assert_eq!(hinted(&mut hears).await, Duration::ZERO);
        assert!(closed.elapsed() < AT_ONCE, "{:?}", closed.elapsed());
        granted(&head.claim(&["job"]).await);
        assert_eq!(head.ask(Call::Close(Closing::Left)).await.expect("an answer").said, Said::Closed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_queues_while_the_owners_lease_is_closed_is_granted_or_hinted() {
    let fresh = Fresh::start().await;
    for round in 0..30_u64 {
        let (mut owner, _) = worker(&fresh, "owner").await;
        let (mut head, mut hears) = worker(&fresh, "head").await;
        granted(&owner.claim(&["job"]).await);

        let closing = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(round * 200)).await;
            owner.ask(Call::Close(Closing::Left)).await.expect("an answer")
        });
        let mut claimed = head.claim(&["job"]).await;
        assert_eq!(closing.await.expect("a task").said, Said::Closed);

        while matches!(claimed[..], [Claimed::Waiting(_)]) {
            hinted(&mut hears).await;
            claimed = head.claim(&["job"]).await;
        }
        granted(&claimed);
        assert_eq!(head.ask(Call::Close(Closing::Left)).await.expect("an answer").said, Said::Closed);
    }
}
