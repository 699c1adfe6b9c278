//! The least that a worker or a reader needs: to call the functions, and nothing else.

use tenure::ErrorKind;
use tenure::store::PostgresBackend;
use tenure::store::backend::{Backend, Channel, Listing};
use tenure_core::{Key, Version};

use super::fixture::{SOON, Words, apply, lease, life, lock, namespace, open, read, set, shared, write};

/// What stands as a comment in the script, for this role.
fn grants(script: &str, role: &str) -> String {
    let listed = script.split("-- What a worker's role needs").nth(1).expect("the list at the end");
    let lines: Vec<&str> = listed.lines().skip(1).map(|line| line.trim_start_matches("--")).collect();
    lines.join("\n").replace("TO worker", &format!("TO {role}"))
}

fn reader_grants(script: &str, schema: &str, role: &str) -> String {
    let listed = script.split("-- A role that only reads").nth(1).expect("the list of a reader");
    let listed = listed.split("COMMIT;").next().expect("the end of the list");
    let names: Vec<&str> =
        listed.split([' ', ',', '\n']).filter(|word| word.starts_with(&format!("\"{schema}\"."))).collect();
    let names = names.join(", ").trim_end_matches('.').to_owned();
    format!("GRANT USAGE ON SCHEMA \"{schema}\" TO {role}; GRANT EXECUTE ON FUNCTION {names} TO {role}")
}

#[tokio::test]
async fn a_worker_that_may_only_call_the_functions_can_do_everything_and_touch_no_table() {
    let server = shared();
    let name = namespace("least");
    let script = PostgresBackend::schema(&name).expect("a script");
    lock(&server).sql(&script);
    lock(&server).sql("CREATE ROLE few LOGIN");
    let url = lock(&server).url().replace("postgres@", "few@");

    let without = PostgresBackend::open(&url, &name).await.expect_err("no rights");
    assert_eq!(without.kind(), ErrorKind::Refused);
    assert!(without.to_string().contains("tenure schema postgres"), "{without}");

    lock(&server).sql(&grants(&script, "few"));
    let backend = open(&url, &name).await;
    let (subscriptions, mut signals) = backend.listen().await.expect("it may listen");
    subscriptions.follow(Channel::new("a")).await.expect("it may follow");
    apply(&backend, write(&lease(1), Version::NONE, "x").and_signal(&Channel::new("a"), "hello")).await;
    assert!(tokio::time::timeout(SOON, signals.recv()).await.expect("in time").is_some());
    backend.list(Listing::Leases, None).await.expect("it may list");
    backend.history(None, 9).await.expect("it may read the history");
    backend.safety().await.expect("it may read the settings");

    for table in ["store", "record", "history"] {
        for right in ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"] {
            let allowed = format!("SELECT has_table_privilege('few', 'least.{table}', '{right}')");
            assert_eq!(lock(&server).sql(&allowed), "f", "{right} on {table}");
        }
    }
    let inner = lock(&server).sql(
        "SELECT string_agg(proname, ' ') FROM pg_proc WHERE pronamespace = 'least'::regnamespace
         AND NOT prosecdef AND has_function_privilege('few', oid, 'EXECUTE')",
    );
    assert_eq!(inner, "", "what the functions call is not to be called");
}

#[tokio::test]
async fn a_reader_can_read_and_listen_and_change_nothing() {
    let server = shared();
    let name = namespace("readable");
    let script = PostgresBackend::schema(&name).expect("a script");
    lock(&server).sql(&script);
    lock(&server).sql("CREATE ROLE reader LOGIN");
    lock(&server).sql(&reader_grants(&script, "readable", "reader"));
    let url = lock(&server).url();
    set(&open(&url, &name).await, &lease(1), "x").await;
    let url = url.replace("postgres@", "reader@");

    let backend = open(&url, &name).await;
    let version = read(&backend, &lease(1)).await.version;
    backend.list(Listing::Leases, None).await.expect("it may list");
    backend.history(None, 9).await.expect("it may read the history");
    backend.safety().await.expect("it may read the settings");
    let (subscriptions, _signals) = backend.listen().await.expect("it may listen");
    subscriptions.follow(Channel::new("a")).await.expect("it may follow");

    let told =
        backend.commit(life(&backend).await, &[write(&lease(1), version, "y")]).await.expect_err("no right");
    assert_eq!(told.kind(), ErrorKind::Refused);
    assert!(told.to_string().contains("permission denied for function commit"), "{told}");
}

#[tokio::test]
async fn a_role_that_may_not_create_a_schema_is_told_what_to_do() {
    let server = shared();
    lock(&server).sql("CREATE ROLE nothing LOGIN");
    let url = lock(&server).url().replace("postgres@", "nothing@");

    let told = PostgresBackend::open(&url, &namespace("uncreated")).await.expect_err("no rights");

    assert_eq!(told.kind(), ErrorKind::Refused);
    assert!(told.to_string().contains("no right to create the schema"), "{told}");
}

#[tokio::test]
async fn what_stands_in_the_callers_search_path_does_not_change_the_functions() {
    let server = shared();
    let name = namespace("straight");
    let url = lock(&server).url();
    let backend = open(&url, &name).await;
    set(&backend, &Key::Meta, "right").await;
    lock(&server).sql(
        "CREATE ROLE sly LOGIN; CREATE SCHEMA traps AUTHORIZATION sly; GRANT USAGE ON SCHEMA straight TO sly;
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA straight TO sly; SET ROLE sly;
         CREATE TABLE traps.store (version int); INSERT INTO traps.store VALUES (99);
         CREATE FUNCTION traps.clock() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
    );

    let seen = lock(&server).sql(
        "SET ROLE sly; SET search_path = traps, pg_temp, pg_catalog; CREATE TEMP TABLE record (key text, value text);
         SELECT straight.version() < 99, (straight.read('{meta}')).texts, (straight.read('{meta}')).now_us > 1000",
    );

    assert_eq!(seen, "t|{right}|t");
}
