//! How a backend is opened: who creates the schema, in which version, on which server.

use tenure::admin::Admin;
use tenure::store::PostgresBackend;
use tenure::{Error, ErrorKind};
use testkit::postgres::Options;
use tokio::task::JoinSet;

use super::fixture::{Fresh, SOON, lease, life, lock, namespace, open, read, set, shared};

fn refusal(opened: Result<PostgresBackend, Error>) -> String {
    let error = opened.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_that_start_at_once_on_an_empty_database_create_one_schema() {
    let server = shared();
    let url = lock(&server).url();
    let mut opening = JoinSet::new();

    for _ in 0..50 {
        let url = url.clone();
        opening.spawn(async move { PostgresBackend::open(&url, &namespace("fifty")).await.map(|_| ()) });
    }

    for opened in opening.join_all().await {
        opened.expect("each of them finds it, or creates it");
    }
    assert_eq!(lock(&server).sql("SELECT count(*) FROM fifty.store"), "1");
}

#[tokio::test]
async fn looking_for_a_namespace_creates_nothing() {
    let server = shared();
    let url = lock(&server).url();

    assert!(Admin::find(&url, "unlooked").await.expect("an answer").is_none());
    assert_eq!(lock(&server).sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'unlooked'"), "0");

    open(&url, &namespace("unlooked")).await;
    assert!(Admin::find(&url, "unlooked").await.expect("an answer").is_some());
}

#[tokio::test]
async fn the_script_creates_the_same_and_applying_it_again_changes_nothing() {
    let fresh = Fresh::start().await;
    let script = PostgresBackend::schema(&namespace("by-hand")).expect("a script");
    let ours = PostgresBackend::schema(&fresh.namespace).expect("a script");
    set(&fresh.backend, &lease(1), "kept").await;
    let before = life(&fresh.backend).await;

    fresh.server().sql(&script);
    fresh.server().sql(&script);
    fresh.server().sql(&ours);
    assert_eq!(life(&fresh.backend).await, before);

    assert_eq!(super::fixture::text(&read(&fresh.backend, &lease(1)).await), Some("kept"));
    let all = |schema: &str| {
        fresh.server().sql(&format!(
            "SELECT string_agg(pg_get_functiondef(oid), E'\\n' ORDER BY proname) FROM pg_proc
             WHERE pronamespace = '\"{schema}\"'::regnamespace AND proname <> 'life'"
        ))
    };
    assert!(all("by-hand") == all(fresh.namespace.as_str()).replace(fresh.namespace.as_str(), "by-hand"));
    let backend = open(&fresh.url, &namespace("by-hand")).await;
    set(&backend, &lease(1), "x").await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_a_sentence() {
    let fresh = Fresh::start().await;
    fresh.sql("UPDATE @.store SET version = version + 1");

    let told = refusal(PostgresBackend::open(&fresh.url, &fresh.namespace).await);

    assert!(told.contains("it has version 11, and this program needs 10; use a newer program"), "{told}");
}

#[tokio::test]
async fn data_of_an_earlier_build_is_refused_with_what_to_do() {
    let server = shared();
    let (url, name) = (lock(&server).url(), namespace("earlier"));
    // What matters of such a build: its tables, and the function that says its version.
    lock(&server).sql(
        "CREATE SCHEMA earlier; CREATE TABLE earlier.meta (version integer); INSERT INTO earlier.meta VALUES (9);
         CREATE FUNCTION earlier.version() RETURNS integer LANGUAGE sql AS 'SELECT version FROM earlier.meta'",
    );

    let told = refusal(PostgresBackend::open(&url, &name).await);
    assert!(told.contains("it has version 9") && told.contains("DROP SCHEMA \"earlier\" CASCADE"), "{told}");
    let script = PostgresBackend::schema(&name).expect("a script");
    let by_hand = lock(&server).try_sql(&script).expect_err("it is refused by hand, too");
    assert!(by_hand.contains("another version of Tenure"), "{by_hand}");
    assert_eq!(lock(&server).sql("SELECT earlier.version()"), "9");

    lock(&server).sql("DROP SCHEMA \"earlier\" CASCADE");
    open(&url, &name).await;
}

#[tokio::test]
async fn a_schema_of_somebody_else_is_left_alone() {
    let server = shared();
    let url = lock(&server).url();
    lock(&server).sql("CREATE SCHEMA theirs; CREATE TABLE theirs.jobs (id int); CREATE SCHEMA empty");

    let told = refusal(PostgresBackend::open(&url, &namespace("theirs")).await);

    assert!(told.contains("choose another namespace"), "{told}");
    let tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'theirs'::regnamespace";
    assert_eq!(lock(&server).sql(tables), "1");
    open(&url, &namespace("empty")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_schema_that_is_created_while_this_program_waits_to_create_it_is_refused() {
    let server = shared();
    let (url, name) = (lock(&server).url(), namespace("meanwhile"));
    let script = PostgresBackend::schema(&name).expect("a script");
    let number = script
        .split("pg_advisory_xact_lock(")
        .nth(1)
        .and_then(|rest| rest.split(')').next())
        .expect("a lock");
    let held = lock(&server).hold(&format!("SELECT pg_advisory_xact_lock({number})"));
    let opening = tokio::spawn({
        let name = name.clone();
        async move { PostgresBackend::open(&url, &name).await }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'";
    tokio::task::block_in_place(|| {
        testkit::eventually(SOON, "the program waits", || lock(&server).sql(waits) == "1");
    });

    lock(&server).sql(&script.replace(&format!("SELECT pg_advisory_xact_lock({number});"), ""));
    lock(&server).sql("UPDATE meanwhile.store SET version = version + 1");
    drop(held);

    let told = refusal(opening.await.expect("a task"));
    assert!(told.contains("use a newer program"), "{told}");
}

#[tokio::test]
async fn hostile_looking_namespaces_are_names_like_others() {
    let server = shared();
    let url = lock(&server).url();
    for name in ["select", "a-b_c", "0", "x--y"] {
        set(&open(&url, &namespace(name)).await, &lease(1), "x").await;
        assert_eq!(lock(&server).sql(&format!("SELECT count(*) FROM \"{name}\".record")), "1");
    }
}

#[tokio::test]
async fn servers_that_tenure_cannot_work_with_are_refused() {
    let server = shared();
    let url = lock(&server).url();
    let port = lock(&server).port();
    lock(&server).sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");

    let isolated = format!("{url}?options=-c%20default_transaction_isolation%3Dserializable");
    let told = refusal(PostgresBackend::open(&isolated, &namespace("isolated")).await);
    assert!(told.contains("have to be read committed"), "{told}");
    let latin = format!("postgres://postgres@127.0.0.1:{port}/latin");
    let told = refusal(PostgresBackend::open(&latin, &namespace("tenure")).await);
    assert!(told.contains("LATIN1"), "{told}");
    let none = format!("postgres://postgres@127.0.0.1:{port}/none");
    let told = refusal(PostgresBackend::open(&none, &namespace("tenure")).await);
    assert!(told.contains("does not exist"), "{told}");
}

#[tokio::test]
async fn a_transaction_that_is_not_read_committed_commits_nothing() {
    let fresh = Fresh::start().await;
    let call =
        "SELECT @.commit((@.read('{}')).life, '{NULL}', '{NULL}', 1, 1, '{1}', '{a}', '{0}', '{1}', '{x}',
        NULL, NULL, NULL, NULL, NULL, NULL, NULL)";

    let told = fresh
        .server()
        .try_sql(&fresh.in_schema(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {call}; COMMIT")))
        .expect_err("it is refused");

    assert!(told.contains("have to be read committed"), "{told}");
    fresh.sql(call);
    assert_eq!(fresh.sql("SELECT count(*) FROM @.record"), "1", "the call itself is right");
}

#[tokio::test]
async fn works_over_a_unix_socket() {
    let server = shared();
    let url = lock(&server).socket_url();

    set(&open(&url, &namespace("by-socket")).await, &lease(1), "x").await;
}

#[tokio::test]
async fn of_several_hosts_the_primary_is_found() {
    let server = Options::new().start();
    let standby = server.standby();
    let both =
        format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", standby.port(), server.port());

    let backend = open(&both, &namespace("found")).await;

    set(&backend, &lease(1), "x").await;
    assert!(!format!("{backend:?}").contains("postgres@"), "{backend:?}");
}
