//! What goes wrong with real servers and links, while workers compete: never more owners than tickets, tokens that rise,
//! and owners again when it is over. Where a fault moves the ownership, the control of the scene would have seen
//! somebody who goes on; where it does not, a control of its own shows that the same judge sees what must not be.

use std::time::Duration;

use tenure::store::{Namespace, PostgresStore};
use testkit::postgres::{Options, Postgres};
use testkit::proxy::{Link, Proxy};
use testkit::shim::Step;

use super::fixture::{contact, end_quarantine, one_life, waiters};
use super::scene::Scene;
use super::words::SOON;

const TTL: Duration = Duration::from_secs(1);
/// For faults during which a server is exchanged: the owner of before is to believe for longer than that takes.
const LONG_TTL: Duration = Duration::from_secs(6);
const NAMESPACE: &str = "faults";
/// How soon there is an owner again; most of it is for a machine that is busy with other tests.
const RECOVERS: Duration = Duration::from_secs(30);

/// A server, a link to it that goes bad, and workers: the first, who own, over that link, the others over a good one.
struct Stage {
    server: Postgres,
    link: Proxy,
    scene: Scene,
    tickets: u32,
}

impl Stage {
    async fn set(options: Options, ttl: Duration) -> Self {
        Self::set_as(options, ttl, "postgres", "").await
    }

    /// The same for workers of this role, which may make the schema, and with a bug planted in its functions.
    async fn set_as(options: Options, ttl: Duration, role: &str, plant: &str) -> Self {
        let server = options.start();
        if role != "postgres" {
            server.sql(&format!("CREATE ROLE {role} LOGIN; GRANT CREATE ON DATABASE postgres TO {role}"));
        }
        let link = Proxy::to(server.port());
        let stage = Self { scene: Scene::new(NAMESPACE, ttl), server, link, tickets: 1 };
        let namespace = Namespace::new(NAMESPACE).expect("a name");
        let store = PostgresStore::open(&stage.good(role), &namespace).await.expect("a store");
        stage.server.sql(plant);
        contact(&store).await;
        end_quarantine(&stage.server, NAMESPACE);
        stage
    }

    /// So many may own at once.
    fn tickets(mut self, tickets: u32) -> Self {
        self.scene = self.scene.tickets(tickets);
        self.tickets = tickets;
        self
    }

    fn good(&self, role: &str) -> String {
        self.server.url().replace("postgres@", &format!("{role}@"))
    }

    fn bad(&self, role: &str) -> String {
        self.server.url_at(self.link.port()).replace("postgres@", &format!("{role}@"))
    }

    /// The first own over the bad link, two wait over the good one.
    async fn fill(&self) {
        self.fill_as("postgres").await;
    }

    async fn fill_as(&self, role: &str) {
        for _ in 0..self.tickets {
            self.scene.joins(&self.bad(role)).await;
        }
        self.scene.the_first_own().await;
        for _ in 0..2 {
            self.scene.joins(&self.good(role)).await;
        }
    }

    /// The link is like this for two leases, while newcomers come; then it is good again.
    async fn bad_link(&self, link: Link) {
        self.fill().await;
        let newcomers = self.scene.newcomers(&self.good("postgres"), TTL / 3);
        self.link.set(link);
        tokio::time::sleep(TTL * 2).await;
        self.link.set(Link::Pass);
        tokio::time::sleep(TTL).await;
        newcomers.abort();
        self.scene.all_are_owned(RECOVERS).await;
        let taken_over = || self.scene.ownerships() >= 2 * self.tickets as usize;
        tokio::task::block_in_place(|| testkit::eventually(RECOVERS, "the others take over", taken_over));
        self.scene.holds_what_could_have_failed();
    }
}

macro_rules! bad_links {
    ($($name:ident: $tickets:literal, $link:expr;)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let stage = Stage::set(Options::new(), TTL).await.tickets($tickets);
            stage.bad_link($link).await;
        })+
    };
}

bad_links! {
    a_link_that_refuses: 1, Link::Refuse;
    a_link_that_hangs: 1, Link::Hang;
    a_link_of_three_owners_that_hangs: 3, Link::Hang;
    a_link_whose_requests_vanish: 1, Link::DropRequests;
    a_link_whose_replies_vanish: 1, Link::DropReplies;
    a_link_that_is_half_open: 1, Link::HalfOpen;
    replies_that_take_nine_tenths_of_a_lease: 1, Link::Delay { requests: Duration::ZERO, replies: TTL * 9 / 10 };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_lease_that_is_taken_for_dead_too_early_is_seen_by_the_judge() {
    // Everybody sees every renewal 0.9 s before it was.
    let stamps = "array_agg(r.stamp)";
    let plant = ["read", "commit"].map(|name| plant(name, "array_agg(r.stamp - 900000)", stamps)).join("; ");
    let stage = Stage::set_as(Options::new(), TTL, "postgres", &plant).await;
    stage.fill().await;

    let newcomers = stage.scene.newcomers(&stage.good("postgres"), TTL / 20);
    stage.link.set(Link::Hang);
    let seen = || stage.scene.most_owners() > 1;
    tokio::task::block_in_place(|| testkit::eventually(SOON, "the judge sees two owners", seen));
    newcomers.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_cut_again_and_again_costs_nothing_but_connections() {
    let stage = Stage::set(Options::new(), LONG_TTL).await;
    stage.fill().await;

    // For longer than a lease.
    for _ in 0..28 {
        stage.link.cut();
        tokio::time::sleep(TTL / 4).await;
        assert!(stage.scene.first_are_owners(), "the lease was good all the time");
    }

    stage.scene.holds_what_is_promised();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_server_ends() {
    let stage = Stage::set(Options::new(), LONG_TTL).await;
    stage.fill().await;

    // For longer than a lease.
    for _ in 0..20 {
        let ended = stage.server.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'tenure'",
        );
        assert_ne!(ended, "0");
        tokio::time::sleep(TTL / 3).await;
        assert!(stage.scene.first_are_owners(), "the lease was good all the time");
    }

    stage.scene.holds_what_is_promised();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_come_again_after_the_server_has_ended_the_connection_that_listens() {
    // Nobody looks again by itself within the limit below.
    let stage = Stage::set(Options::new(), SOON * 3).await;
    stage.fill().await;
    let listens = || {
        stage.server.sql(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'
             AND (query LIKE '%.listen(%' OR query LIKE '%.unlisten(%')",
        )
    };

    let ended = stage.server.sql(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'tenure'",
    );
    assert_ne!(ended, "0");
    tokio::task::block_in_place(|| testkit::eventually(SOON, "they listen again", || listens() == "2"));

    let before = stage.scene.ownerships();
    stage.scene.steps_down().await;
    let more = || stage.scene.ownerships() > before;
    tokio::task::block_in_place(|| testkit::eventually(SOON, "somebody takes over", more));
    stage.scene.holds_what_is_promised();
}

/// The server goes and comes back after so long.
async fn server_goes(stop: impl FnOnce(&mut Postgres), tickets: u32, ttl: Duration, down: Duration) {
    let mut stage = Stage::set(Options::new(), ttl).await.tickets(tickets);
    stage.fill().await;

    stop(&mut stage.server);
    tokio::time::sleep(down).await;
    stage.server.start();

    let newcomers = stage.scene.newcomers(&stage.good("postgres"), ttl / 3);
    tokio::time::sleep(ttl * 2).await;
    newcomers.abort();
    stage.scene.all_are_owned(RECOVERS).await;
    if down > ttl {
        stage.scene.holds_what_could_have_failed();
    } else {
        stage.scene.holds_what_is_promised();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_at_once_and_back_within_the_lease() {
    server_goes(Postgres::stop_immediately, 1, LONG_TTL, Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_at_once_and_back_after_the_lease() {
    server_goes(Postgres::stop_immediately, 1, TTL, TTL * 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed() {
    server_goes(Postgres::kill, 1, TTL, Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_three_owners_that_is_killed_and_back_within_the_lease() {
    server_goes(Postgres::kill, 3, LONG_TTL, Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_three_owners_that_is_killed_and_back_after_the_lease() {
    server_goes(Postgres::kill, 3, TTL, TTL * 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_paused() {
    let stage = Stage::set(Options::new(), TTL).await;
    stage.fill().await;

    for pause in [TTL / 2, TTL * 2] {
        stage.server.pause();
        tokio::time::sleep(pause).await;
        stage.server.resume();
        stage.scene.all_are_owned(RECOVERS).await;
        tokio::time::sleep(TTL / 2).await;
    }

    stage.scene.all_are_owned(RECOVERS).await;
    stage.scene.holds_what_could_have_failed();
}

/// The first wait, with leases that are kept, and own later, which is not. Then what was kept is put back, while the
/// link of the first is as given. Whoever lives in it is dead by then, or is made so where it is to be `aged`.
async fn older_data(
    keep: impl FnOnce(&mut Postgres),
    plant: &str,
    tickets: u32,
    ttl: Duration,
    aged: bool,
    link: Link,
) -> Stage {
    let mut stage = Stage::set_as(Options::new(), ttl, "postgres", plant).await.tickets(tickets);
    let before = Scene::new(NAMESPACE, ttl).tickets(tickets);
    for _ in 0..tickets {
        before.joins(&stage.good("postgres")).await;
    }
    before.all_are_owned(SOON).await;
    for _ in 0..tickets {
        stage.scene.joins(&stage.bad("postgres")).await;
    }
    let waits = || waiters(&stage.server, NAMESPACE) == tickets as usize;
    tokio::task::block_in_place(|| testkit::eventually(SOON, "the first wait", waits));
    keep(&mut stage.server);
    before.ends().await;
    stage.scene.the_first_own().await;
    // By then everybody whom the kept data knows is dead in it.
    if !aged {
        tokio::time::sleep(ttl).await;
    }
    assert!(stage.scene.first_are_owners());

    stage.link.set(link);
    stage.server.stop_immediately();
    stage.server.restore();
    stage.server.start();
    if aged {
        stage.server.sql("UPDATE faults.record SET stamp = stamp - 3600000000 WHERE key LIKE 'lease/%'");
    }

    let newcomers = stage.scene.newcomers(&stage.good("postgres"), LONG_TTL / 20);
    tokio::time::sleep(ttl.min(LONG_TTL)).await;
    newcomers.abort();
    stage.link.set(Link::Pass);
    before.holds_what_is_promised();
    stage
}

/// The grants that were lost do not go on; new ones are given, under larger tokens.
async fn goes_on_under_a_new_grant(stage: &Stage) {
    let granted = || stage.scene.ownerships() >= 2 * stage.tickets as usize;
    tokio::task::block_in_place(|| testkit::eventually(RECOVERS, "new grants", granted));
    stage.scene.all_are_owned(RECOVERS).await;
    stage.scene.holds_what_could_have_failed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_base_backup_that_is_restored() {
    let stage = older_data(|server| server.back_up(), "", 1, LONG_TTL, false, Link::Pass).await;

    goes_on_under_a_new_grant(&stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_base_backup_that_is_restored_under_three_owners() {
    let stage = older_data(|server| server.back_up(), "", 3, LONG_TTL, false, Link::Pass).await;

    goes_on_under_a_new_grant(&stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_the_data_that_is_put_back() {
    let copy = |server: &mut Postgres| {
        server.stop();
        server.keep();
        server.start();
    };
    let stage = older_data(copy, "", 1, LONG_TTL, false, Link::Pass).await;

    goes_on_under_a_new_grant(&stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_base_backup_that_is_restored_behind_the_owners_back() {
    let stage = older_data(|server| server.back_up(), "", 1, LONG_TTL, false, Link::Hang).await;

    goes_on_under_a_new_grant(&stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_older_data_without_a_quarantine_is_seen_by_the_judge() {
    let plant = one_life(NAMESPACE);
    // Long enough for an owner to believe all the while, however slowly the server comes back; and it cannot ask.
    let stage = older_data(|server| server.back_up(), &plant, 1, LONG_TTL * 10, true, Link::Hang).await;

    let seen = || stage.scene.most_owners() > 1;
    tokio::task::block_in_place(|| testkit::eventually(SOON, "the judge sees two owners", seen));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_somebody_else_that_holds_the_resource() {
    let stage = Stage::set(Options::new(), TTL * 3).await;
    stage.fill().await;

    let held = stage.server.hold("SELECT 1 FROM faults.record WHERE key = 'resource/job' FOR UPDATE");
    let newcomers = stage.scene.newcomers(&stage.good("postgres"), TTL / 2);
    tokio::time::sleep(TTL * 4).await;
    assert!(stage.scene.first_are_owners(), "renewals wait for no resource");
    drop(held);

    stage.scene.steps_down().await;
    tokio::time::sleep(TTL).await;
    newcomers.abort();
    stage.scene.all_are_owned(RECOVERS).await;
    stage.scene.holds_what_is_promised();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_renewals_that_wait_for_a_resource_are_seen_to_fail() {
    let waits = "life := life(); PERFORM FROM record WHERE key LIKE 'resource/%' FOR NO KEY UPDATE;";
    let plant = plant("commit", waits, "life := life();");
    let stage = Stage::set_as(Options::new(), TTL, "postgres", &plant).await;
    stage.fill().await;

    let _held = stage.server.hold("SELECT 1 FROM faults.record WHERE key = 'resource/job' FOR UPDATE");
    let lost = || stage.scene.first_own_nothing();
    tokio::task::block_in_place(|| testkit::eventually(SOON, "the owner cannot renew", lost));
}

/// A statement that replaces a piece of text in a function: a bug, planted.
fn plant(function: &str, wrong: &str, instead_of: &str) -> String {
    let (wrong, right) = (wrong.replace('\'', "''"), instead_of.replace('\'', "''"));
    format!(
        "DO $do$ DECLARE text text := pg_get_functiondef('faults.{function}'::regproc); BEGIN
            ASSERT position('{right}' IN text) > 0; EXECUTE replace(text, '{right}', '{wrong}'); END $do$"
    )
}

/// Something is forbidden to the role of the workers for two leases, and then allowed again.
async fn forbidden(forbid: &str, allow: &str) {
    let stage = Stage::set_as(Options::new(), TTL, "app", "").await;
    stage.fill_as("app").await;
    let newcomers = stage.scene.newcomers(&stage.good("app"), TTL / 2);

    stage.server.sql(forbid);
    stage.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
    tokio::time::sleep(TTL * 2).await;
    assert!(stage.scene.first_own_nothing(), "no renewal came through");
    stage.server.sql(allow);

    stage.scene.all_are_owned(RECOVERS).await;
    newcomers.abort();
    stage.scene.holds_what_could_have_failed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_connections_that_is_reached() {
    forbidden("ALTER ROLE app CONNECTION LIMIT 0", "ALTER ROLE app CONNECTION LIMIT -1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_revoked_in_mid_lease() {
    forbidden(
        "ALTER SCHEMA faults OWNER TO postgres; REVOKE ALL ON SCHEMA faults FROM app",
        "ALTER SCHEMA faults OWNER TO app",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full() {
    let stage = Stage::set(Options::new().disk(96), TTL).await;
    stage.fill().await;
    let newcomers = stage.scene.newcomers(&stage.good("postgres"), TTL / 2);

    stage.server.disk().fill();
    // What the log has in store for itself has to be used up, too.
    let lost = || {
        let write = "SELECT pg_logical_emit_message(true, 'tenure', repeat('x', 500000))";
        stage.server.try_sql(write).is_err() && stage.scene.first_own_nothing()
    };
    tokio::task::block_in_place(|| testkit::eventually(RECOVERS, "the owner cannot renew", lost));
    stage.server.disk().free();

    // A server whose log cannot be written stops by itself, at once or a moment later, and somebody starts it again.
    let Stage { mut server, scene, link: _link, .. } = stage;
    let keep_up = async {
        loop {
            if !server.is_up() {
                tokio::task::block_in_place(|| server.start());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = scene.all_are_owned(RECOVERS) => {}
        () = keep_up => {}
    }
    newcomers.abort();
    scene.holds_what_could_have_failed();
}

/// The clock of the server steps, for good; newcomers watch it for a while before they judge.
async fn clock_steps(step: Step) {
    let mut stage = Stage::set(Options::new().own_clock(), TTL).await;
    stage.scene = Scene::new(NAMESPACE, TTL).strict();
    stage.fill().await;
    tokio::time::sleep(TTL * 2).await;
    let newcomers = stage.scene.newcomers(&stage.good("postgres"), TTL / 3);
    tokio::time::sleep(TTL / 2).await;

    stage.server.clock().step(step);
    tokio::time::sleep(TTL * 4).await;

    newcomers.abort();
    stage.scene.all_are_owned(RECOVERS).await;
    stage.scene.steps_down().await;
    stage.scene.all_are_owned(RECOVERS).await;
    stage.scene.holds_what_is_promised();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_newcomers_who_believe_a_clock_that_stepped_are_seen_by_the_judge() {
    let stage = Stage::set(Options::new().own_clock(), LONG_TTL).await;
    stage.fill().await;

    // The owner cannot renew by the new time before somebody comes who has seen no other.
    stage.link.set(Link::Hang);
    stage.server.clock().step(Step::Forward(Duration::from_secs(60)));
    let newcomers = stage.scene.newcomers(&stage.good("postgres"), TTL / 4);

    let seen = || stage.scene.most_owners() > 1;
    tokio::task::block_in_place(|| testkit::eventually(SOON, "the judge sees two owners", seen));
    newcomers.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_forward() {
    clock_steps(Step::Forward(Duration::from_secs(60))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_back() {
    clock_steps(Step::Back(Duration::from_secs(60))).await;
}
