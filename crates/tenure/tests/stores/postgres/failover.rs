//! A standby takes over from its primary, which is gone for good, while workers compete that know both. It follows
//! asynchronously, and has missed the latest grants: whoever holds one of them still believes when it takes over.

use std::time::Duration;

use tenure::store::{Namespace, PostgresStore};
use testkit::postgres::{Options, Postgres};

use super::fixture::{contact, end_quarantine, one_life, waiters};
use super::scene::Scene;
use super::words::SOON;

/// The owners of before are to believe for longer than a promotion takes.
const TTL: Duration = Duration::from_secs(6);
const NAMESPACE: &str = "failover";
const RECOVERS: Duration = Duration::from_secs(60);

/// A primary, a standby of it, and workers who compete at whichever can be written to.
struct Pair {
    primary: Postgres,
    standby: Postgres,
    scene: Scene,
}

impl Pair {
    async fn set(tickets: u32, ttl: Duration, plant: &str) -> Self {
        let primary = Options::new().start();
        let namespace = Namespace::new(NAMESPACE).expect("a name");
        drop(PostgresStore::open(&primary.url(), &namespace).await.expect("a schema"));
        primary.sql(plant);
        contact(&PostgresStore::open(&primary.url(), &namespace).await.expect("a store")).await;
        end_quarantine(&primary, NAMESPACE);
        let standby = primary.standby();
        Self { primary, standby, scene: Scene::new(NAMESPACE, ttl).tickets(tickets) }
    }

    /// The hosts in the order in which nobody wants them: a worker has to look for the primary.
    fn both(&self) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
            self.standby.port(),
            self.primary.port()
        )
    }

    /// From here on the standby learns nothing.
    fn cut_off(&self) {
        let has_all = "SELECT pg_current_wal_lsn() = replay_lsn FROM pg_stat_replication";
        testkit::eventually(SOON, "the standby has caught up", || self.primary.sql(has_all) == "t");
        self.standby.sql("ALTER SYSTEM SET primary_conninfo = ''");
        self.standby.sql("SELECT pg_reload_conf()");
        let follows = "SELECT count(*) FROM pg_stat_replication";
        testkit::eventually(SOON, "the standby is cut off", || self.primary.sql(follows) == "0");
    }

    /// Some own and are known to the standby. They leave, and the first, who waited, own what it has never heard of.
    /// Then the primary is killed, and the standby takes over while newcomers come.
    async fn takes_over(&mut self, tickets: u32, ttl: Duration, first_at: &str) {
        let both = self.both();
        let before = Scene::new(NAMESPACE, ttl).tickets(tickets);
        for _ in 0..tickets {
            before.joins(&both).await;
        }
        before.all_are_owned(SOON).await;
        for _ in 0..tickets {
            self.scene.joins(first_at).await;
        }
        let waits = || waiters(&self.primary, NAMESPACE) == tickets as usize;
        tokio::task::block_in_place(|| {
            testkit::eventually(SOON, "the first wait", waits);
            self.cut_off();
        });
        before.ends().await;
        self.scene.the_first_own().await;
        // By then everybody whom the standby knows is dead in its data.
        tokio::time::sleep(ttl).await;
        assert!(self.scene.first_are_owners());

        self.primary.kill();
        self.standby.promote();

        let newcomers = self.scene.newcomers(&both, ttl / 20);
        tokio::time::sleep(ttl).await;
        newcomers.abort();
        before.holds_what_is_promised();
    }
}

async fn survives(tickets: u32) {
    let mut pair = Pair::set(tickets, TTL, "").await;
    let both = pair.both();
    pair.takes_over(tickets, TTL, &both).await;

    // What the standby never knew does not go on; new grants come, under larger tokens.
    let granted = || pair.scene.ownerships() >= 2 * tickets as usize;
    tokio::task::block_in_place(|| testkit::eventually(RECOVERS, "new grants", granted));
    pair.scene.all_are_owned(RECOVERS).await;
    pair.scene.steps_down().await;
    pair.scene.all_are_owned(RECOVERS).await;
    pair.scene.holds_what_could_have_failed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_takes_over() {
    survives(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_takes_over_under_three_owners() {
    survives(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_standby_that_takes_over_without_a_quarantine_is_seen_by_the_judge() {
    let ttl = TTL * 3;
    let mut pair = Pair::set(1, ttl, &one_life(NAMESPACE)).await;
    // The owner knows the old primary only: it cannot learn that its grant is lost.
    let old = pair.primary.url();
    pair.takes_over(1, ttl, &old).await;

    assert!(pair.scene.most_owners() > 1, "two who own, or this test shows nothing");
}
