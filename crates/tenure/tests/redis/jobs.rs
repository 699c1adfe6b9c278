//! Jobs and messages on real servers: lost replies, forgotten scripts, damaged keys, a full memory, a lost subscription.

use super::*;
use std::sync::atomic::AtomicBool;
use tenure::store::{
    Begin, Holder, JobAct, JobOutcome, JobSaid, JobStep, Message, Messages, Payload, Published,
};
use tenure::{JobRecord, JobState, JobView, Note, Occurrence, Plan};
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
        let before = proxy.accepted();
        proxy.set(Link::Pass);

        let again = tokio::time::timeout(PATIENCE, store.job(&step)).await.expect("soon").expect("an answer");
        match again {
            JobSaid::Begun(again) | JobSaid::Finished(again) => assert_eq!(again, record),
            said => panic!("{said:?}"),
        }
        assert!(proxy.accepted() > before, "it was asked over the connection that had lost the reply");
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

    let channels = || server.command(&["PUBSUB", "CHANNELS", "{tenure}:fan:*"]);
    testkit::eventually(
        PATIENCE,
        "nobody listens",
        || matches!(channels(), Reply::List(channels) if channels.is_empty()),
    );
}

/// What is damaged of one job is said when that one is asked for, and nothing of it is changed; the others go on.
#[tokio::test]
async fn a_damaged_job_is_corrupt_for_itself_only() {
    let row = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    for damage in [
        row(&["HSET", "{tenure}:jobs", "cron:a", "x"]),
        row(&["HSET", "{tenure}:jobs", "cron:a", "1 1 1 1 1 1 1 "]),
        row(&["HDEL", "{tenure}:jobs", "cron:a"]),
        row(&["HSET", "{tenure}:runs", "cron:a\u{0}0", "x"]),
        row(&["HDEL", "{tenure}:runs", "cron:a\u{0}0"]),
    ] {
        let server = fresh(Options::new().set("enable-debug-command", "local"));
        let store = open(&server.url()).await.expect("a store");
        let [a, b] = [attended(&store, "cron:a").await, attended(&store, "cron:b").await];
        for holder in [&a, &b] {
            begun(&store, holder, 1).await;
        }
        server.command(&damage.iter().map(String::as_str).collect::<Vec<_>>());
        let digest = || server.command(&["DEBUG", "DIGEST"]).text();
        let before = digest();

        for step in [attending(&a), beginning(&a, 1), beginning(&a, 2), finishing(&a, 1)] {
            let error = store.job(&step).await.expect_err("a part of it is gone");
            assert!(
                error.kind() == Kind::Corrupt && error.to_string().contains("cron:a"),
                "{}",
                chain(&error)
            );
        }
        let error = store.jobs(Some(&name("cron:a"))).await.expect_err("a part of it is gone");
        assert_eq!(error.kind(), Kind::Corrupt, "{}", chain(&error));
        assert_eq!(digest(), before, "{damage:?}");

        let views = store.jobs(None).await.expect("views");
        let names: Vec<&str> = views.iter().map(|view| view.job.as_str()).collect();
        assert_eq!(names, ["cron:b"], "{damage:?}");
        finished(&store, &b, 1).await;
    }
}

/// What was done once is not done again because somebody deleted the key that says so.
#[tokio::test]
async fn jobs_that_are_lost_are_not_begun_anew() {
    for lost in [&["{tenure}:jobs"][..], &["{tenure}:runs"], &["{tenure}:jobs", "{tenure}:runs"]] {
        let server = fresh(Options::new());
        let store = open(&server.url()).await.expect("a store");
        let holder = attended(&store, "once:a").await;
        begun(&store, &holder, 1).await;
        finished(&store, &holder, 1).await;

        server.command(&[&["DEL"], lost].concat());

        for step in [attending(&holder), beginning(&holder, 1)] {
            let error = store.job(&step).await.expect_err("nobody knows whether it was done");
            assert_eq!(error.kind(), Kind::Corrupt, "{lost:?}: {}", chain(&error));
        }
    }
}

/// Keys of another kind are somebody else's.
#[tokio::test]
async fn keys_of_another_kind_are_left_as_they_are() {
    for key in ["jobs", "runs", "held", "leases", "state"] {
        let server = fresh(Options::new().set("enable-debug-command", "local"));
        let store = open(&server.url()).await.expect("a store");
        let holder = attended(&store, "cron:a").await;
        begun(&store, &holder, 1).await;
        let key = format!("{{tenure}}:{key}");
        server.command(&["DEL", &key]);
        server.command(&["SET", &key, "x"]);
        let before = server.command(&["DEBUG", "DIGEST"]).text();

        for step in [attending(&holder), beginning(&holder, 2), finishing(&holder, 1)] {
            match store.job(&step).await {
                Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "{key}: {}", chain(&error)),
                // Who finishes needs neither lease nor ticket, and where there are few tickets nobody looks at what is held.
                Ok(said) => {
                    let is_finish = matches!(step.act, JobAct::Finish { .. });
                    assert!(is_finish || key.ends_with("held"), "{key}: {said:?}");
                    continue;
                }
            }
            assert_eq!(server.command(&["DEBUG", "DIGEST"]).text(), before, "{key}: {step:?}");
        }
    }
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
    assert_eq!(full.kind(), Kind::Unavailable, "{}", chain(&full));
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

    assert_eq!(server.command(&["HLEN", "{tenure}:runs"]).text(), "50");
    let view = job(&store, "cron:a").await;
    let kept: Vec<u64> = view.records.iter().map(|record| record.occurrence.as_millis()).collect();
    assert_eq!(kept, (71..=120).collect::<Vec<_>>());
    assert_eq!(view.counts.interrupted, 119);
}

/// More jobs than one answer carries are all listed, once each and by name.
#[tokio::test]
async fn many_jobs_are_listed_once_each_and_by_name() {
    const COUNT: usize = 1_000;
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let row =
        |number: usize| (format!("cron:{number:04}"), format!("{number} 0 0 0 0 0 0 {}", "* ".repeat(50)));
    for number in 0..COUNT {
        let (name, row) = row(number);
        server.command(&["HSET", "{tenure}:jobs", &name, row.trim_end()]);
    }

    let views = store.jobs(None).await.expect("views");

    assert_eq!(views.len(), COUNT);
    for (number, view) in views.iter().enumerate() {
        assert_eq!((view.job.as_str(), view.through), (&*row(number).0, at(number as u64)));
    }
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
