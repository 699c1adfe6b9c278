//! How a store is opened: by whom, in which version, on which server.

use std::sync::Arc;
use std::time::Duration;

use tenure::store::{Call, Closing, LeaseId, Namespace, PostgresStore, Said, Store};
use tenure::{Error, Kind, Timing, Worker};
use testkit::postgres::{Options, Postgres};
use tokio::task::JoinSet;

use crate::fixture::{Fresh, lock, shared};
use crate::words::{Asker, SOON, want};

fn namespace(name: &str) -> Namespace {
    Namespace::new(name).expect("a namespace")
}

fn refusal(opened: Result<PostgresStore, Error>) -> String {
    let error = opened.expect_err("a store that is refused");
    assert_eq!(error.kind(), Kind::Refused, "{error}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_workers_that_start_at_once_on_an_empty_database_make_one_schema() {
    let server = shared();
    let url = lock(&server).url();
    let mut opening = JoinSet::new();

    for _ in 0..50 {
        let url = url.clone();
        opening.spawn(async move { PostgresStore::open(&url, &namespace("fifty")).await.map(|_| ()) });
    }

    for opened in opening.join_all().await {
        opened.expect("each of them finds it, or makes it");
    }
    assert_eq!(lock(&server).sql("SELECT count(*) FROM fifty.meta"), "1");
}

#[tokio::test]
async fn looking_for_a_namespace_makes_nothing() {
    let server = shared();
    let url = lock(&server).url();

    assert!(tenure::Namespace::find(&url, "unlooked").await.expect("an answer").is_none());
    assert_eq!(lock(&server).sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'unlooked'"), "0");

    PostgresStore::open(&url, &namespace("unlooked")).await.expect("it is made");
    let found = tenure::Namespace::find(&url, "unlooked").await.expect("an answer").expect("it is there");
    assert_eq!(found.read_all().await.expect("an answer"), []);
}

/// How many connections of ours the server has.
fn connections(server: &Postgres) -> String {
    server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_looks_for_a_namespace_reads_it_and_closes_a_lease_over_the_connection_that_found_it() {
    let server = Options::new().start();
    PostgresStore::open(&server.url(), &namespace("found")).await.expect("it is made");
    testkit::eventually(SOON, "nobody is connected", || connections(&server) == "0");

    let found =
        tenure::Namespace::find(&server.url(), "found").await.expect("an answer").expect("it is there");
    found.read_all().await.expect("an answer");
    found.close(LeaseId(1), Closing::Proved).await.expect("an answer");

    assert_eq!(connections(&server), "1");
    drop(found);
    testkit::eventually(SOON, "it goes with who looked", || connections(&server) == "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_leaves_needs_no_new_connection_for_it() {
    let server = Options::new().start();
    let store: Arc<dyn Store> =
        Arc::new(PostgresStore::open(&server.url(), &namespace("left")).await.expect("a store"));
    let mut worker = Asker::open(&store, "a", SOON).await;
    worker.claim(&["job"]).await;
    testkit::eventually(SOON, "who opened it is gone", || connections(&server) == "1");

    let closed = worker.ask(Call::Close(Closing::Left)).await.expect("an answer");

    assert_eq!((closed.said, connections(&server).as_str()), (Said::Closed, "1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_gave_up_a_request_leaves_over_the_connection_of_its_renewals() {
    let server = Options::new().start();
    let store: Arc<dyn Store> =
        Arc::new(PostgresStore::open(&server.url(), &namespace("left")).await.expect("a store"));
    let mut worker = Asker::open(&store, "a", SOON).await;
    worker.claim(&["job"]).await;
    worker.renew().await;
    testkit::eventually(SOON, "who opened it is gone", || connections(&server) == "2");
    let pids = || server.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'tenure'");
    let before = pids();

    let held = server.hold(r#"SELECT FROM "left".resource FOR UPDATE"#);
    let claiming = worker.ask(Call::Claim(vec![want("job")]));
    // Long before the claim goes on over a connection of its own.
    tokio::time::timeout(Duration::from_millis(30), claiming).await.expect_err("somebody holds it");
    let closed = worker.ask(Call::Close(Closing::Left)).await.expect("an answer");
    drop(held);

    assert_eq!(closed.said, Said::Closed);
    let made: Vec<String> = pids().lines().filter(|pid| !before.contains(*pid)).map(str::to_owned).collect();
    assert_eq!(made, [""; 0]);
}

fn version(told: &str) -> i32 {
    told.parse().expect("a number")
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_a_sentence() {
    let fresh = Fresh::start().await;
    let known = version(&fresh.sql("SELECT version FROM @.meta"));
    fresh.sql("UPDATE @.meta SET version = version + 1");

    let told = refusal(PostgresStore::open(&fresh.url, &fresh.namespace).await);

    let expected =
        format!("it has version {}, and this program knows {known}; use a newer program", known + 1);
    assert!(told.contains(&expected), "{told}");
}

#[tokio::test]
async fn an_older_schema_is_refused_with_a_sentence() {
    let fresh = Fresh::start().await;
    let known = version(&fresh.sql("SELECT version FROM @.meta"));
    fresh.sql("UPDATE @.meta SET version = version - 1");

    let told = refusal(PostgresStore::open(&fresh.url, &fresh.namespace).await);

    let expected = format!("it has version {}, from before the first release", known - 1);
    assert!(told.contains(&expected), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_schema_that_is_made_while_this_program_waits_to_make_it_is_refused() {
    let server = shared();
    let (url, name) = (lock(&server).url(), namespace("meanwhile"));
    let held = lock(&server).hold(&format!("SELECT pg_advisory_xact_lock({})", making("meanwhile")));
    let opening = tokio::spawn({
        let name = name.clone();
        async move { PostgresStore::open(&url, &name).await }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'";
    testkit::eventually(SOON, "the program waits", || lock(&server).sql(waits) == "1");

    lock(&server).sql(&PostgresStore::schema(&name).expect("a script"));
    let newer = lock(&server).sql("UPDATE meanwhile.meta SET version = version + 1 RETURNING version");
    drop(held);

    let told = refusal(opening.await.expect("a task"));
    let newer = newer.lines().next().expect("a version");
    assert!(told.contains(&format!("it has version {newer}")), "{told}");
}

/// The number of the lock under which a schema is made.
fn making(schema: &str) -> i64 {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(format!("tenure schema \"{schema}\"").as_bytes());
    i64::from_be_bytes(hash[..8].try_into().expect("eight bytes"))
}

#[tokio::test]
async fn a_schema_with_what_is_not_ours_is_left_alone() {
    let server = shared();
    let url = lock(&server).url();
    lock(&server).sql("CREATE SCHEMA theirs; CREATE TABLE theirs.jobs (id int)");

    let told = refusal(PostgresStore::open(&url, &namespace("theirs")).await);

    assert!(told.contains("choose another namespace"), "{told}");
    assert_eq!(
        lock(&server).sql("SELECT count(*) FROM pg_class WHERE relnamespace = 'theirs'::regnamespace"),
        "1"
    );
}

#[tokio::test]
async fn hostile_looking_namespaces_are_names_like_others() {
    let server = shared();
    let url = lock(&server).url();
    for name in ["select", "a-b_c", "0", "x--y"] {
        PostgresStore::open(&url, &namespace(name)).await.expect("a store");
        assert_eq!(lock(&server).sql(&format!("SELECT count(*) FROM \"{name}\".meta")), "1");
    }
}

#[tokio::test]
async fn transactions_that_are_not_read_committed_are_refused() {
    let server = shared();
    let url = format!("{}?options=-c%20default_transaction_isolation%3Dserializable", lock(&server).url());

    let told = refusal(PostgresStore::open(&url, &namespace("isolated")).await);

    assert!(told.contains("have to be read committed"), "{told}");
}

#[tokio::test]
async fn a_database_of_another_encoding_is_refused() {
    let server = shared();
    let port = lock(&server).port();
    lock(&server).sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");

    let url = format!("postgres://postgres@127.0.0.1:{port}/latin");
    let told = refusal(PostgresStore::open(&url, &namespace("tenure")).await);

    assert!(told.contains("LATIN1"), "{told}");
}

#[tokio::test]
async fn a_standby_is_refused_and_of_several_hosts_the_primary_is_found() {
    let server = Options::new().start();
    let standby = server.standby();
    let name = namespace("found");

    let told = refusal(PostgresStore::open(&standby.url(), &name).await);
    assert!(told.contains("it is a standby"), "{told}");

    let both = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        standby.port(),
        server.port()
    );
    let opened = PostgresStore::open(&both, &name).await.expect("the primary is among them");
    assert!(!format!("{opened:?}").contains("postgres@"), "{opened:?}");
}

#[tokio::test]
async fn passwords_are_asked_for_and_never_told() {
    let server = Options::new().rules("host all all 127.0.0.1/32 scram-sha-256").start();
    server.sql("CREATE ROLE app LOGIN PASSWORD 'swordfish'; GRANT CREATE ON DATABASE postgres TO app");
    let (port, name) = (server.port(), namespace("secret"));
    let url = |user: &str| format!("postgres://{user}@127.0.0.1:{port}/postgres");

    let opened = PostgresStore::open(&url("app:swordfish"), &name).await.expect("the right password");
    assert!(!format!("{opened:?}").contains("swordfish"));

    let wrong = PostgresStore::open(&url("app:hunter2"), &name).await.expect_err("a wrong password");
    assert_eq!(wrong.kind(), Kind::Refused);
    let none = PostgresStore::open(&url("app"), &name).await.expect_err("no password");
    assert!(none.to_string().contains("asks for a password"), "{none}");
    for error in [wrong, none] {
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_elected_over_a_unix_socket_by_its_url() {
    let server = shared();
    let url = lock(&server).socket_url();
    let worker = Worker::builder(&url)
        .namespace("by-socket")
        .timing(Timing::new(Duration::from_secs(1)).expect("a timing"))
        .connect()
        .await
        .expect("a worker");

    let own = tokio::time::timeout(SOON, worker.campaign("job").acquire()).await;

    let own = own.expect("in time").expect("an ownership");
    assert!(own.holds());
    worker.shutdown().await;
}

#[tokio::test]
async fn nothing_is_granted_in_a_new_schema_for_one_longest() {
    let server = shared();
    let url = lock(&server).url();
    let worker = Worker::builder(&url)
        .namespace("brand-new")
        .timing(Timing::new(Duration::from_millis(1500)).expect("a timing"))
        .connect()
        .await
        .expect("a worker");
    let made = std::time::Instant::now();

    let _own =
        tokio::time::timeout(SOON, worker.campaign("job").acquire()).await.expect("in time").expect("owned");

    // Somebody may have dropped the schema while its owners were at work.
    assert!(made.elapsed() > Duration::from_millis(1000), "{:?}", made.elapsed());
    worker.shutdown().await;
}
