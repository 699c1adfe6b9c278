//! Jobs and messages when a reply is lost, a connection is ended, or a pooler stands in between.

use std::sync::Arc;
use std::time::Duration;

use tenure::store::{
    Begin, Holder, JobAct, JobOutcome, JobSaid, JobStep, Messages, Namespace, Payload, PostgresStore,
    Published, Store,
};
use tenure::{Error, ErrorKind};
use tenure_core::{JobRecord, JobState, Message, Note, Occurrence, Plan};
use testkit::postgres::{Bouncer, Pooling};
use testkit::proxy::{Link, Proxy};

use super::fixture::{Fresh, lock, settle, shared, start};
use super::words::{Asker, SOON, granted, resource};

/// Ends every connection of the stores in this process.
const TERMINATE: &str =
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'tenure'";
/// How long a caller waits for a reply that does not come.
const IMPATIENT: Duration = Duration::from_millis(300);

async fn open(url: &str, namespace: &Namespace) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(url, namespace).await.expect("a store"))
}

/// The owner of `job`, which has taken its job up.
async fn attending(store: &Arc<dyn Store>) -> Holder {
    let holder = holder(store).await;
    let plan = Plan::new("* * * * *").expect("a plan");
    let said = step(store, &holder, JobAct::Attend { plan, from: Occurrence::default() }).await;
    assert!(matches!(said, Ok(JobSaid::Attended { .. })), "{said:?}");
    holder
}

async fn holder(store: &Arc<dyn Store>) -> Holder {
    let mut owner = Asker::open(store, "a", SOON * 3).await;
    let token = granted(&owner.claim(&["job"]).await).token;
    Holder { lease: owner.lease, resource: resource("job"), token }
}

async fn step(store: &Arc<dyn Store>, holder: &Holder, act: JobAct) -> Result<JobSaid, Error> {
    store.job(&JobStep { holder: holder.clone(), act }).await
}

fn begin(number: u64) -> JobAct {
    let occurrence = Occurrence::new(number).expect("an occurrence");
    JobAct::Begin(Begin { occurrence, missed: 2, skipped: 1, again: false })
}

fn finish(number: u64) -> JobAct {
    let occurrence = Occurrence::new(number).expect("an occurrence");
    JobAct::Finish { occurrence, outcome: JobOutcome::Ran, note: Note::of("done") }
}

#[track_caller]
fn begun(said: Result<JobSaid, Error>) -> JobRecord {
    match said {
        Ok(JobSaid::Begun(record)) => record,
        other => panic!("what should begin was answered {other:?}"),
    }
}

/// Asks again until there is an answer.
async fn insist(store: &Arc<dyn Store>, holder: &Holder, act: JobAct) -> JobSaid {
    let until = tokio::time::Instant::now() + SOON;
    loop {
        match step(store, holder, act.clone()).await {
            Ok(said) => return said,
            Err(error) => {
                assert!(
                    error.kind() == ErrorKind::Unavailable && tokio::time::Instant::now() < until,
                    "{error}"
                );
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn publish(store: &Arc<dyn Store>, holder: &Holder, text: &str) -> Published {
    let payload = Payload::new(text.as_bytes()).expect("not too much");
    store.publish(holder, &payload).await.expect("an answer")
}

async fn next(messages: &mut Messages) -> Option<Message> {
    tokio::time::timeout(SOON, messages.recv()).await.expect("in time")
}

// req: E11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_and_a_finish_whose_replies_are_lost_count_once() {
    let fresh = Fresh::start().await;
    let proxy = Proxy::to(fresh.server().port());
    let url = fresh.server().url_at(proxy.port());
    let store = open(&url, &fresh.namespace).await;
    let holder = attending(&store).await;

    for act in [begin(7), finish(7)] {
        proxy.set(Link::DropReplies);
        let lost = tokio::time::timeout(IMPATIENT, step(&store, &holder, act.clone())).await;
        assert!(lost.is_err(), "a reply that should be lost came: {lost:?}");
        let state = if matches!(act, JobAct::Begin(_)) { "running" } else { "ran" };
        let latest = "SELECT value::jsonb #>> '{job,latest,state}' FROM @.record WHERE key = 'resource/job'";
        let arrived = || fresh.sql(latest) == state;
        testkit::eventually(SOON, "it arrived nevertheless", arrived);
        proxy.set(Link::Pass);

        let said = insist(&store, &holder, act.clone()).await;
        assert!(matches!(said, JobSaid::Begun(_) | JobSaid::Finished(_)), "{said:?}");
    }

    let views = store.jobs(Some(&holder.resource)).await.expect("an answer");
    let (counts, record) = (views[0].counts, &views[0].records[0]);
    assert_eq!((counts.ran, counts.missed, counts.skipped), (1, 2, 1));
    assert_eq!((record.attempt, record.state, record.token), (1, JobState::Ran, holder.token));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_ended_in_between_double_and_lose_nothing() {
    let fresh = Fresh::on(start()).await;
    let store = open(&fresh.url, &fresh.namespace).await;
    let holder = attending(&store).await;

    for number in 1..=20 {
        for act in [begin(number), finish(number)] {
            let asked = tokio::spawn({
                let (store, holder, act) = (store.clone(), holder.clone(), act.clone());
                async move { step(&store, &holder, act).await }
            });
            fresh.sql(TERMINATE);
            // Whether this one came through, or was answered, is chance.
            let _perhaps = asked.await.expect("a task");
            let said = insist(&store, &holder, act).await;
            assert!(matches!(said, JobSaid::Begun(_) | JobSaid::Finished(_)), "{said:?}");
        }
    }

    let views = store.jobs(Some(&holder.resource)).await.expect("an answer");
    assert_eq!((views[0].counts.ran, views[0].counts.interrupted), (20, 0));
    assert!(views[0].records.iter().all(|record| (record.attempt, record.state) == (1, JobState::Ran)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_waits_for_the_resource_begins_by_the_clock_after_the_wait() {
    let fresh = Fresh::start().await;
    let store = fresh_store(&fresh);
    let mut owner = Asker::open(&store, "a", Duration::from_secs(1)).await;
    let token = granted(&owner.claim(&["job"]).await).token;
    let holder = Holder { lease: owner.lease, resource: resource("job"), token };
    let plan = Plan::new("once").expect("a plan");
    step(&store, &holder, JobAct::Attend { plan, from: Occurrence::default() }).await.expect("an answer");
    let held =
        fresh.server().hold(&fresh.in_schema("SELECT 1 FROM @.record WHERE key = 'resource/job' FOR UPDATE"));

    let asked = tokio::spawn({
        let (store, holder) = (store.clone(), holder.clone());
        async move { step(&store, &holder, begin(1)).await }
    });
    let over = "SELECT count(*) FROM @.record WHERE key LIKE 'lease/%' AND stamp + 1000000 < @.clock()";
    testkit::eventually(SOON, "the lease runs out while it waits", || fresh.sql(over) == "1");
    drop(held);

    assert_eq!(asked.await.expect("a task").expect("an answer"), JobSaid::NotOwner);
}

fn fresh_store(fresh: &Fresh) -> Arc<dyn Store> {
    use tenure::conformance::Fixture;
    fresh.store()
}

// req: E15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_whose_connection_is_ended_ends_and_a_new_one_hears_again() {
    let fresh = Fresh::on(start()).await;
    let store = open(&fresh.url, &fresh.namespace).await;
    let holder = holder(&store).await;
    let mut messages = store.subscribe(&holder.resource).await.expect("a stream");
    assert_eq!(publish(&store, &holder, "before").await, Published::Sent);
    assert_eq!(next(&mut messages).await.expect("a message").payload.as_bytes(), b"before");

    fresh.sql(TERMINATE);

    assert_eq!(next(&mut messages).await, None, "it has to end, so that somebody subscribes again");
    let until = tokio::time::Instant::now() + SOON;
    let mut messages = loop {
        match store.subscribe(&holder.resource).await {
            Ok(messages) => break messages,
            Err(error) => assert!(tokio::time::Instant::now() < until, "{error}"),
        }
    };
    assert_eq!(publish(&store, &holder, "after").await, Published::Sent);
    let heard = next(&mut messages).await.expect("a message");
    assert_eq!((heard.token, heard.payload.as_bytes()), (holder.token, &b"after"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_subscribes_while_the_last_one_is_let_go_of_hears_what_is_sent() {
    let fresh = Fresh::on(start()).await;
    let store = open(&fresh.url, &fresh.namespace).await;
    let holder = holder(&store).await;

    // Longer than the pulse with which deserted channels are let go of, so that one falls into it.
    let until = tokio::time::Instant::now() + Duration::from_secs(6);
    while tokio::time::Instant::now() < until {
        drop(store.subscribe(&holder.resource).await.expect("a stream"));
        let mut messages = store.subscribe(&holder.resource).await.expect("a stream");
        assert_eq!(publish(&store, &holder, "hello").await, Published::Sent);
        assert!(next(&mut messages).await.is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_namespaces_of_one_database_do_not_hear_each_other() {
    let fresh = Fresh::start().await;
    let other = Fresh::on(shared()).await;
    let [ours, theirs] = [fresh_store(&fresh), fresh_store(&other)];
    let (our_owner, their_owner) = (holder(&ours).await, holder(&theirs).await);
    let mut messages = ours.subscribe(&our_owner.resource).await.expect("a stream");

    assert_eq!(publish(&theirs, &their_owner, "theirs").await, Published::Sent);
    assert_eq!(publish(&ours, &our_owner, "ours").await, Published::Sent);

    assert_eq!(next(&mut messages).await.expect("a message").payload.as_bytes(), b"ours");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_transaction_pooler_jobs_and_publishing_work_and_subscribing_is_refused_with_a_way_out() {
    let server = shared();
    let pooler = Bouncer::before(&lock(&server), Pooling::Transactions);
    let pooled = lock(&server).url_at(pooler.port());
    let direct = lock(&server).url();
    let namespace = Namespace::new("jobs-pooled").expect("a name");
    settle(&server, &pooled, &namespace).await;
    let store = open(&pooled, &namespace).await;
    let holder = attending(&store).await;
    begun(step(&store, &holder, begin(1)).await);

    let refused = store.subscribe(&holder.resource).await.expect_err("nothing would come");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.to_string().contains("as `listen`"), "{refused}");

    let around = open(&format!("{pooled}?listen={direct}"), &namespace).await;
    let mut messages = around.subscribe(&holder.resource).await.expect("a stream");
    assert_eq!(publish(&store, &holder, "hello").await, Published::Sent);
    assert_eq!(next(&mut messages).await.expect("a message").payload.as_bytes(), b"hello");
}

/// Sixteen connections ask for the same occurrence at once: all hear of one and the same run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_occurrence_that_is_begun_over_many_connections_at_once_is_one_run() {
    let fresh = Fresh::start().await;
    let store = fresh_store(&fresh);
    let holder = attending(&store).await;

    for number in 1..=5 {
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let (url, namespace, holder) = (fresh.url.clone(), fresh.namespace.clone(), holder.clone());
            asked.spawn(async move { step(&open(&url, &namespace).await, &holder, begin(number)).await });
        }
        let mut records: Vec<JobRecord> = asked.join_all().await.into_iter().map(begun).collect();
        records.dedup();
        assert_eq!((records.len(), records[0].attempt), (1, 1));
    }
    let counts = store.jobs(Some(&holder.resource)).await.expect("an answer")[0].counts;
    assert_eq!((counts.missed, counts.skipped), (10, 5));
}
