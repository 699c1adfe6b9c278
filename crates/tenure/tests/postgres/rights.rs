//! The least that a worker needs: to call the functions, and nothing else.

use tenure::Kind;
use tenure::conformance::Fixture;
use tenure::store::{
    Begin, Holder, JobAct, JobOutcome, JobSaid, JobStep, Namespace, Payload, PostgresStore, Published, Said,
    Store,
};
use tenure_core::{Note, Occurrence, Plan};

use crate::fixture::{Fresh, lock, shared};
use crate::words::{Asker, SOON, granted};
use std::sync::Arc;

/// What the script lists at its end, for the role `worker`.
fn grants(script: &str, role: &str) -> String {
    let listed = script.split("-- What a worker's role needs").nth(1).expect("the list at the end");
    let lines: Vec<&str> = listed.lines().skip(1).map(|line| line.trim_start_matches("--")).collect();
    lines.join("\n").replace("TO worker", &format!("TO {role}"))
}

#[tokio::test]
async fn a_role_that_may_only_call_the_functions_can_do_everything_and_read_nothing() {
    let server = shared();
    let namespace = Namespace::new("least").expect("a namespace");
    let script = PostgresStore::schema(&namespace).expect("a script");
    lock(&server).sql(&script);
    lock(&server).sql("UPDATE least.meta SET quarantine_from = NULL; CREATE ROLE few LOGIN");
    let url = lock(&server).url().replace("postgres@", "few@");

    let without = PostgresStore::open(&url, &namespace).await.expect_err("no rights");
    assert_eq!(without.kind(), Kind::Refused);
    assert!(without.to_string().contains("tenure schema postgres"), "{without}");

    lock(&server).sql(&grants(&script, "few"));
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&url, &namespace).await.expect("enough rights"));
    let mut worker = Asker::open(&store, "a", SOON).await;
    let mut hints = store.hints(worker.lease).await.expect("it may listen");
    let grant = granted(&worker.claim(&["job"]).await);
    assert!(matches!(worker.renew().await, Said::Kept { .. }));
    let mut next = Asker::open(&store, "b", SOON).await;
    next.claim(&["job"]).await;
    assert!(
        store.read(None).await.is_ok() && store.history(None).await.is_ok() && store.safety().await.is_ok()
    );
    let job = crate::words::resource("job");
    let holder = Holder { lease: worker.lease, resource: job.clone(), token: grant.token };
    run_a_job(&store, &holder).await;
    let mut messages = store.subscribe(&job).await.expect("it may listen");
    let hello = Payload::new(b"hello").expect("not too much");
    assert_eq!(store.publish(&holder, &hello).await.expect("an answer"), Published::Sent);
    assert!(tokio::time::timeout(SOON, messages.recv()).await.expect("in time").is_some());
    assert_eq!(store.ask(&job, grant.token, None).await.expect("asked"), tenure::Asked::Done);
    assert_eq!(store.evict(&job, grant.token).await.expect("evicted"), tenure::Asked::Done);
    worker.release(&["job"]).await;
    assert!(hints.try_recv().is_err());

    let tables =
        ["meta", "lease", "resource", "ticket", "waiter", "newest", "notice", "history", "job", "run"];
    for table in tables {
        let allowed = |right: &str| {
            lock(&server).sql(&format!("SELECT has_table_privilege('few', 'least.{table}', '{right}')"))
        };
        for right in ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"] {
            assert_eq!(allowed(right), "f", "{right} on {table}");
        }
    }
    let inner = lock(&server).sql(
        "SELECT string_agg(proname, ' ') FROM pg_proc WHERE pronamespace = 'least'::regnamespace
         AND NOT prosecdef AND has_function_privilege('few', oid, 'EXECUTE')",
    );
    assert_eq!(inner, "", "what the functions call is not to be called");
}

/// Every step of a job, and what can be read of it.
async fn run_a_job(store: &Arc<dyn Store>, holder: &Holder) {
    let occurrence = Occurrence::ONCE;
    let acts = [
        JobAct::Attend { plan: Plan::new("once").expect("a plan"), from: Occurrence::default() },
        JobAct::Begin(Begin { occurrence, missed: 0, skipped: 0, again: false }),
        JobAct::Finish { occurrence, outcome: JobOutcome::Ran, note: Note::default() },
    ];
    for act in acts {
        let said = store.job(&JobStep { holder: holder.clone(), act }).await.expect("an answer");
        assert!(
            matches!(said, JobSaid::Attended { .. } | JobSaid::Begun(_) | JobSaid::Finished(_)),
            "{said:?}"
        );
    }
    assert_eq!(store.jobs(Some(&holder.resource)).await.expect("an answer")[0].counts.ran, 1);
}

#[tokio::test]
async fn a_role_that_may_not_make_a_schema_is_told_what_to_do() {
    let server = shared();
    lock(&server).sql("CREATE ROLE nothing LOGIN");
    let url = lock(&server).url().replace("postgres@", "nothing@");

    let told =
        PostgresStore::open(&url, &Namespace::new("unmade").expect("a name")).await.expect_err("no rights");

    assert_eq!(told.kind(), Kind::Refused);
    assert!(told.to_string().contains("no right to make the schema"), "{told}");
}

#[tokio::test]
async fn what_stands_in_the_callers_search_path_does_not_change_the_functions() {
    let server = shared();
    let namespace = Namespace::new("straight").expect("a namespace");
    let url = lock(&server).url();
    drop(PostgresStore::open(&url, &namespace).await.expect("a store"));
    lock(&server).sql(
        "CREATE ROLE sly LOGIN; CREATE SCHEMA traps AUTHORIZATION sly; GRANT USAGE ON SCHEMA straight TO sly;
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA straight TO sly; SET ROLE sly;
         CREATE TABLE traps.lease (id int); CREATE TABLE traps.meta (version int);
         INSERT INTO traps.meta VALUES (99);
         CREATE FUNCTION traps.clock() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
    );

    let seen = lock(&server).sql(
        "SET ROLE sly; SET search_path = traps, pg_temp, pg_catalog;
         CREATE TEMP TABLE resource (id int); SELECT straight.version() < 99, (straight.held('\\x00', 100)).now_us > 1000",
    );

    assert_eq!(seen, "t|t");
}

/// What a rehearsal is known by takes nothing from anybody.
#[tokio::test]
async fn who_asks_in_the_name_of_nobody_takes_and_frees_nothing() {
    let fresh = Fresh::start().await;
    let mut owner = Asker::open(&fresh.store(), "a", SOON * 10).await;
    granted(&owner.claim(&["job"]).await);
    let all =
        "SELECT r, t, l, (SELECT count(*) FROM @.history) FROM @.resource AS r, @.ticket AS t, @.lease AS l";
    let before = fresh.sql(all);

    let said = fresh.sql(
        "SELECT (@.release(NULL, 9, NULL, 0, 100, '{job}', '{0}', true)).verdict,
            (@.claim(NULL, 9, NULL, 0, 100, '{job}', '{1}', '{0}', true)).verdict, (@.close(NULL, 100, 0::smallint)).verdict",
    );

    assert_eq!((said.as_str(), fresh.sql(all)), ("7|7|6", before));
}
