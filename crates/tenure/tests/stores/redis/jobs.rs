//! Jobs and messages on real servers: lost replies, forgotten scripts, damaged keys, a full memory, a lost subscription.

use super::*;
use std::sync::atomic::AtomicBool;
use tenure::jobs::{JobRecord, JobState, JobView, Note, Occurrence, Plan};
use tenure::store::{
    Begin, Holder, JobAct, JobOutcome, JobSaid, JobStep, Message, Messages, Payload, Published,
};
use testkit::proxy::{Link, Proxy};

/// Shorter than the store itself waits.
const HURRY: Duration = Duration::from_millis(300);

/// The owner of this job, who has taken it up.
async fn attended(store: &RedisStore, job: &str) -> Holder {
    let lease = opened(store).await;
    let Claimed::Granted(grant) = claimed(store, lease, job).await else { panic!("not granted") };
    let holder = Holder { lease, resource: name(job), token: grant.token };
    let said = store.job(&attending(&holder)).await.expect("an answer");
    assert!(matches!(said, JobSaid::Attended { .. }), "{said:?}");
    holder
}

fn step(holder: &Holder, act: JobAct) -> JobStep {
    JobStep { holder: holder.clone(), act }
}

fn attending(holder: &Holder) -> JobStep {
    step(holder, JobAct::Attend { plan: Plan::new("* * * * *").expect("a plan"), from: at(0) })
}

fn beginning(holder: &Holder, occurrence: u64) -> JobStep {
    let begin = Begin { occurrence: at(occurrence), missed: 0, skipped: 0, again: false };
    step(holder, JobAct::Begin(begin))
}

fn finishing(holder: &Holder, occurrence: u64) -> JobStep {
    let (occurrence, outcome) = (at(occurrence), JobOutcome::Ran);
    step(holder, JobAct::Finish { occurrence, outcome, note: Note::of("it went well") })
}

fn at(millis: u64) -> Occurrence {
    Occurrence::new(millis).expect("an occurrence")
}

async fn begun(store: &RedisStore, holder: &Holder, occurrence: u64) -> JobRecord {
    match store.job(&beginning(holder, occurrence)).await.expect("an answer") {
        JobSaid::Begun(record) => record,
        said => panic!("{occurrence} was answered {said:?}"),
    }
}

async fn finished(store: &RedisStore, holder: &Holder, occurrence: u64) -> JobRecord {
    match store.job(&finishing(holder, occurrence)).await.expect("an answer") {
        JobSaid::Finished(record) => record,
        said => panic!("{occurrence} was answered {said:?}"),
    }
}

async fn job(store: &RedisStore, job: &str) -> JobView {
    store.jobs(Some(&name(job))).await.expect("views").swap_remove(0)
}

async fn heard(messages: &mut Messages) -> Message {
    tokio::time::timeout(PATIENCE, messages.recv()).await.expect("soon").expect("a message")
}

fn payload(text: &str) -> Payload {
    Payload::new(text.as_bytes()).expect("not too much")
}

/// The reply is lost, and the link with it; asked again by somebody in a hurry, over another connection, the store knows
/// that it has said yes.
#[tokio::test]
async fn a_begin_whose_reply_is_lost_is_the_same_claim_when_it_is_repeated() {
    let server = fresh(Options::new());
    let proxy = Proxy::to(server.port());
    let store = open(&format!("redis://127.0.0.1:{}", proxy.port())).await.expect("a store");
    let holder = attended(&store, "cron:a").await;
    // So that the server knows the scripts: an answer that it does not would be lost, too.
    let direct = open(&server.url()).await.expect("a store");
    let other = attended(&direct, "cron:b").await;
    begun(&direct, &other, 1).await;
    finished(&direct, &other, 1).await;

    for (step, done) in [(beginning(&holder, 7), JobState::Running), (finishing(&holder, 7), JobState::Ran)] {
        proxy.set(Link::DropReplies);
        let lost = tokio::time::timeout(HURRY, store.job(&step)).await;
        assert!(lost.is_err(), "{lost:?}");
        // Somebody in such a hurry does not wait for a server that is busy, either.
        let is_done = |record: &JobRecord| (record.occurrence, record.state) == (at(7), done);
        let written = async {
            loop {
                if let Some(record) = job(&direct, "cron:a").await.records.pop().filter(is_done) {
                    return record;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let record = tokio::time::timeout(PATIENCE, written).await.expect("it was written down");
        proxy.set(Link::Pass);

        let again = tokio::time::timeout(PATIENCE, store.job(&step)).await.expect("soon").expect("an answer");
        match again {
            JobSaid::Begun(again) | JobSaid::Finished(again) => assert_eq!(again, record),
            said => panic!("{said:?}"),
        }
    }
    let view = job(&store, "cron:a").await;
    assert_eq!((view.records.len(), view.counts.ran, view.through), (1, 1, at(7)));
}

#[tokio::test]
async fn scripts_of_jobs_that_the_server_forgot_are_sent_again() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let forget = || server.command(&["SCRIPT", "FLUSH"]);
    let holder = attended(&store, "cron:a").await;
    let mut messages = store.subscribe(&name("cron:a")).await.expect("a subscription");

    forget();
    assert_eq!(begun(&store, &holder, 1).await.attempt, 1);
    forget();
    assert_eq!(finished(&store, &holder, 1).await.note.as_str(), "it went well");
    forget();
    assert_eq!(store.publish(&holder, &payload("once")).await.expect("an answer"), Published::Sent);
    forget();
    assert_eq!(job(&store, "cron:a").await.counts.ran, 1);
    assert_eq!(store.publish(&holder, &payload("bell")).await.expect("an answer"), Published::Sent);

    for text in ["once", "bell"] {
        assert_eq!(heard(&mut messages).await.payload, payload(text), "sent once each");
    }
}

/// Messages and hints share a connection: both end with it, and both can be had again.
#[tokio::test]
async fn a_subscription_to_messages_that_was_killed_ends_and_can_be_made_again() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let holder = attended(&store, "job").await;
    let mut hints = store.hints(holder.lease).await.expect("a subscription");
    let mut messages = store.subscribe(&name("job")).await.expect("a subscription");

    for round in 0..3 {
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        let ended = tokio::time::timeout(PATIENCE, messages.recv()).await.expect("it is noticed");
        assert!(ended.is_none(), "round {round}: {ended:?}");
        let ended = tokio::time::timeout(PATIENCE, hints.recv()).await.expect("it is noticed");
        assert!(ended.is_none(), "round {round}: {ended:?}");

        messages = store.subscribe(&name("job")).await.expect("a subscription");
        hints = store.hints(holder.lease).await.expect("a subscription");
        let text = format!("round {round}");
        assert_eq!(store.publish(&holder, &payload(&text)).await.expect("an answer"), Published::Sent);
        assert_eq!(heard(&mut messages).await.payload, payload(&text));
    }
}

/// Who comes while the last one goes is heard all the same, and what nobody listens to is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn coming_and_going_at_once_leaves_nobody_deaf() {
    let server = fresh(Options::new());
    let store = Arc::new(open(&server.url()).await.expect("a store"));
    let holder = attended(&store, "job").await;
    let is_over = Arc::new(AtomicBool::new(false));
    // Whoever asks for hints has those left who are gone.
    let leaving = tokio::spawn({
        let (store, is_over) = (store.clone(), is_over.clone());
        async move {
            let mut number = 1;
            while !is_over.load(Ordering::SeqCst) {
                drop(store.hints(LeaseId(number)).await.expect("a subscription"));
                number += 1;
            }
        }
    });

    for round in 0..200 {
        let mut messages = store.subscribe(&name("job")).await.expect("a subscription");
        let text = payload(&format!("{round}"));
        assert_eq!(store.publish(&holder, &text).await.expect("an answer"), Published::Sent);
        assert_eq!(heard(&mut messages).await.payload, text);
    }
    is_over.store(true, Ordering::SeqCst);
    leaving.await.expect("it does not panic");

    let _hints = store.hints(holder.lease).await.expect("a subscription");
    let channels = || server.command(&["PUBSUB", "CHANNELS", "{tenure}:t_*"]);
    testkit::eventually(
        PATIENCE,
        "only the last one listens",
        || matches!(channels(), Reply::List(channels) if channels.len() == 1),
    );
}

/// What was done once is not done again because somebody deleted or damaged the record that says so.
#[tokio::test]
async fn jobs_that_are_damaged_are_not_begun_anew() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [a, b] = [attended(&store, "once:a").await, attended(&store, "once:b").await];
    for holder in [&a, &b] {
        begun(&store, holder, 1).await;
        finished(&store, holder, 1).await;
    }

    write_record(&server, "{tenure}:resource/once:a", "x");

    for step in [attending(&a), beginning(&a, 1)] {
        for store in [&store, &open(&server.url()).await.expect("a store")] {
            let error = store.job(&step).await.expect_err("nobody knows whether it was done");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", chain(&error));
            assert!(error.to_string().contains("once:a"), "{error}");
        }
    }
    let names: Vec<String> =
        store.jobs(None).await.expect("views").iter().map(|view| view.job.to_string()).collect();
    assert_eq!(names, ["once:b"]);
    let said = store.job(&beginning(&b, 1)).await.expect("an answer");
    assert!(!matches!(said, JobSaid::Begun(_)), "it was done: {said:?}");
}

/// That it ran is written down also where nothing else can be.
#[tokio::test]
async fn a_run_is_finished_also_at_the_memory_limit() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let holder = attended(&store, "cron:a").await;
    begun(&store, &holder, 1).await;

    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let full = store.job(&beginning(&holder, 2)).await.expect_err("there is no room");
    assert_eq!(full.kind(), ErrorKind::Unavailable, "{}", chain(&full));
    assert_eq!(finished(&store, &holder, 1).await.state, JobState::Ran);

    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(begun(&store, &holder, 2).await.occurrence, at(2));
}

/// However often it runs, a job takes the room of fifty records.
#[tokio::test]
async fn records_take_the_place_of_the_oldest() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let holder = attended(&store, "cron:a").await;

    for occurrence in 1..=120 {
        begun(&store, &holder, occurrence).await;
    }

    let kept = record(&server, "runs/cron:a")["runs"].as_array().map_or(0, Vec::len);
    assert_eq!(kept, 49, "and the latest with the job itself");
    let view = job(&store, "cron:a").await;
    let kept: Vec<u64> = view.records.iter().map(|record| record.occurrence.as_millis()).collect();
    assert_eq!(kept, (71..=120).collect::<Vec<_>>());
    assert_eq!(view.counts.interrupted, 119);
}

/// More jobs than one page carries are all listed, once each and by name.
#[tokio::test]
async fn many_jobs_are_listed_once_each_and_by_name() {
    const COUNT: u64 = 600;
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let holder = attended(&store, "cron:model").await;
    begun(&store, &holder, 1).await;
    for number in 0..COUNT {
        let mut job = record(&server, "resource/cron:model");
        job["job"]["through"] = number.into();
        write_record(&server, &format!("{{tenure}}:resource/cron:{number:04}"), &job.to_string());
        server.command(&["ZADD", "{tenure}:names/resource", "0", &format!("cron:{number:04}")]);
    }

    let views = store.jobs(None).await.expect("views");

    assert_eq!(views.len(), usize::try_from(COUNT).expect("few") + 1);
    for (number, view) in (0..COUNT).zip(&views) {
        assert_eq!((view.job.as_str(), view.through), (&*format!("cron:{number:04}"), at(number)));
    }
}

/// Pub/sub knows no databases, and two fleets may share a server and a namespace's name.
#[tokio::test]
async fn messages_and_hints_stay_within_their_database() {
    let server = fresh(Options::new());
    let (zero, one) = (open(&server.url()).await, open(&format!("{}/1", server.url())).await);
    let (zero, one) = (zero.expect("a store"), one.expect("a store"));
    // The other fleet has the same leases, as a copy of the database would: what is heard is told apart all the same.
    let lease = LeaseId(7);
    for store in [&zero, &one] {
        said(store, lease, opening(Duration::from_secs(60))).await;
    }
    let mut connection = server.connect().expect("a connection");
    connection.command(&["SELECT", "1"]).expect("an answer");
    let meta = connection.command(&["HGET", "{tenure}:meta", "value"]).expect("an answer").text();
    let mut meta: serde_json::Value = serde_json::from_str(&meta).expect("a record");
    meta.as_object_mut().expect("an object").remove("quarantine");
    let words = ["HSET", "{tenure}:meta", "version", "00000000000000ff", "value", &meta.to_string()];
    connection.command(&words).expect("an answer");
    // A renewal shows that the record of the namespace has changed.
    assert!(matches!(said(&one, lease, Call::Renew).await, Said::Kept { .. }));
    let mut heard_there = one.subscribe(&name("job")).await.expect("a subscription");
    let mut hints_there = one.hints(lease).await.expect("a subscription");
    let mut heard_here = zero.subscribe(&name("job")).await.expect("a subscription");
    let Claimed::Granted(theirs) = claimed(&one, lease, "job").await else { panic!("not granted") };
    let Claimed::Granted(ours) = claimed(&zero, lease, "job").await else { panic!("not granted") };
    let holder = |grant: tenure_core::Grant| Holder { lease, resource: name("job"), token: grant.token };

    let waiter = opened(&zero).await;
    claimed(&zero, waiter, "job").await;
    assert_eq!(zero.publish(&holder(ours), &payload("here")).await.expect("an answer"), Published::Sent);
    assert_eq!(heard(&mut heard_here).await.payload, payload("here"));
    said(&zero, lease, releasing(&["job"], Leaving::SteppedDown)).await;
    claimed(&zero, waiter, "job").await;
    said(&zero, waiter, releasing(&["job"], Leaving::Released)).await;
    assert_eq!(one.publish(&holder(theirs), &payload("there")).await.expect("an answer"), Published::Sent);

    assert_eq!(heard(&mut heard_there).await.payload, payload("there"), "the first that is heard there");
    assert!(hints_there.try_recv().is_err(), "hinted by another fleet");
    assert!(heard_here.try_recv().is_err());
}

/// In a cluster, too, all keys lie in one slot, and messages are heard.
#[tokio::test]
async fn a_cluster_serves_jobs_and_messages_as_well() {
    let server = fresh(Options::new().cluster());
    let store = open(&server.url()).await.expect("a store");
    let holder = attended(&store, "cron:{a}b").await;
    let mut messages = store.subscribe(&holder.resource).await.expect("a subscription");

    begun(&store, &holder, 1).await;
    finished(&store, &holder, 1).await;
    assert_eq!(store.publish(&holder, &payload("hello")).await.expect("an answer"), Published::Sent);

    assert_eq!(heard(&mut messages).await.token, holder.token);
    assert_eq!(store.jobs(None).await.expect("views").len(), 1);
}
