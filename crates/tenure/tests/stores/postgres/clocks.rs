//! The server's clock goes back while its owner is dead, in a quarantine, and while a ticket is free: nothing is blocked
//! for longer than one ttl from when somebody looks.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::conformance::Fixture;
use tenure::store::{Claimed, PostgresStore, Said, Store};
use testkit::postgres::{Options, Postgres};
use testkit::proxy::{Link, Proxy};
use testkit::shim::Step;

use super::fixture::{Fresh, contact, end_quarantine, lock};
use super::scene::Scene;
use super::words::{Asker, granted};

const TTL: Duration = Duration::from_secs(3);
/// For a machine that is busy with other tests; much less than the smallest step.
const SLACK: Duration = Duration::from_secs(5);
const STEPS: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(15 * 60)];

fn server() -> Arc<Mutex<Postgres>> {
    Arc::new(Mutex::new(Options::new().own_clock().start()))
}

fn step_back(fresh: &Fresh, step: Duration) {
    fresh.server().clock().step(Step::Back(step));
}

/// Renews and claims again and again, and says after how long the claim was granted.
async fn granted_after(worker: &mut Asker) -> Duration {
    let began = Instant::now();
    loop {
        assert!(matches!(worker.renew().await, Said::Kept { .. }));
        if let [Claimed::Granted(_)] = worker.claim(&["job"]).await[..] {
            return began.elapsed();
        }
        assert!(began.elapsed() < TTL + SLACK * 2, "not granted within {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_owner_is_replaced_within_its_ttl_after_a_step_back() {
    let fresh = Fresh::on(server()).await;
    let store = fresh.store();
    for step in STEPS {
        let mut dead = Asker::open(&store, "dead", TTL).await;
        granted(&dead.claim(&["job"]).await);
        let mut next = Asker::open(&store, "next", TTL).await;
        assert!(matches!(next.claim(&["job"]).await[..], [Claimed::Waiting(_)]));

        step_back(&fresh, step);

        let took = granted_after(&mut next).await;
        assert!(took < TTL + SLACK, "{took:?} after a step of -{step:?}");
        assert!(took > TTL - Duration::from_secs(1), "{took:?}: the owner could still believe that it owns");
        next.release(&["job"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_who_has_seen_no_other_time_replaces_a_dead_owner_within_its_ttl_after_a_step_back() {
    let fresh = Fresh::on(server()).await;
    for step in STEPS {
        let mut dead = Asker::open(&fresh.store(), "dead", TTL).await;
        granted(&dead.claim(&["job"]).await);

        step_back(&fresh, step);

        let store: Arc<dyn Store> =
            Arc::new(PostgresStore::open(&fresh.url, &fresh.namespace).await.expect("a store"));
        let mut newcomer = Asker::open(&store, "new", TTL).await;
        let took = granted_after(&mut newcomer).await;
        assert!(took < TTL + SLACK, "{took:?} after a step of -{step:?}");
        newcomer.release(&["job"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarantine_is_over_after_one_longest_ttl_whatever_the_clock_does() {
    let mut fresh = Fresh::on(server()).await;
    for step in STEPS {
        // The longest ttl is known before the restart.
        let mut worker = Asker::open(&fresh.store(), "before", TTL).await;
        assert!(matches!(worker.renew().await, Said::Kept { .. }));
        fresh.restart().await;
        let mut worker = Asker::open(&fresh.store(), "after", TTL).await;
        assert!(matches!(worker.claim(&["job"]).await[..], [Claimed::Waiting(_)]), "in the quarantine");

        step_back(&fresh, step);

        let took = granted_after(&mut worker).await;
        assert!(took < TTL + SLACK, "{took:?} after a step of -{step:?}");
        worker.release(&["job"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_in_line_takes_what_the_first_does_not_take_after_a_step_back() {
    let fresh = Fresh::on(server()).await;
    let store = fresh.store();
    for step in STEPS {
        let mut owner = Asker::open(&store, "owner", TTL).await;
        let mut first = Asker::open(&store, "first", TTL).await;
        let mut second = Asker::open(&store, "second", TTL).await;
        granted(&owner.claim(&["job"]).await);
        first.claim(&["job"]).await;
        second.claim(&["job"]).await;
        owner.release(&["job"]).await;

        step_back(&fresh, step);

        let took = granted_after(&mut second).await;
        assert!(took < TTL + SLACK, "{took:?} after a step of -{step:?}");
        second.release(&["job"]).await;
        first.release(&["job"]).await;
    }
}

/// Workers look by themselves: the last look before the step may be one ttl ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_replace_an_owner_that_is_cut_off_within_two_ttls_after_a_step_back() {
    const NAMESPACE: &str = "stepped";
    let server = server();
    let namespace = tenure::store::Namespace::new(NAMESPACE).expect("a name");
    let url = lock(&server).url();
    contact(&PostgresStore::open(&url, &namespace).await.expect("a store")).await;
    end_quarantine(&lock(&server), NAMESPACE);
    let link = Proxy::to(lock(&server).port());
    let bad = lock(&server).url_at(link.port());
    let scene = Scene::new(NAMESPACE, TTL);
    scene.joins(&bad).await;
    scene.the_first_own().await;
    for _ in 0..2 {
        scene.joins(&url).await;
    }
    tokio::time::sleep(TTL / 3).await;

    link.set(Link::Hang);
    lock(&server).clock().step(Step::Back(STEPS[1]));

    let (began, before) = (Instant::now(), scene.ownerships());
    let limit = TTL * 2 + SLACK;
    let more = || scene.ownerships() > before;
    tokio::task::block_in_place(|| testkit::eventually(limit, "somebody takes over", more));
    println!("taken over {:?} after the step", began.elapsed());
    link.set(Link::Pass);
    scene.holds_what_could_have_failed();
}
