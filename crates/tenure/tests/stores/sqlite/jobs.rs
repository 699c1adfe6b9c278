//! Jobs and messages between processes, and what damage does to them.

use std::collections::BTreeSet;

use super::child::Process;
use super::*;
use tenure::ErrorKind;
use tenure_core::{
    Begin, Holder, JobAct, JobOutcome, JobRecord, JobSaid, JobState, JobStep, Message, Note, Occurrence,
    Payload, Plan, Published,
};

pub(crate) fn attend() -> JobAct {
    JobAct::Attend { plan: Plan::new("* * * * *").expect("a plan"), from: at(0) }
}

pub(crate) fn begin(occurrence: u64) -> JobAct {
    JobAct::Begin(Begin { occurrence: at(occurrence), missed: 0, skipped: 0, again: false })
}

fn begin_again(occurrence: u64) -> JobAct {
    JobAct::Begin(Begin { occurrence: at(occurrence), missed: 0, skipped: 0, again: true })
}

fn finish(occurrence: u64) -> JobAct {
    JobAct::Finish { occurrence: at(occurrence), outcome: JobOutcome::Ran, note: Note::default() }
}

fn at(millis: u64) -> Occurrence {
    Occurrence::new(millis).expect("an occurrence")
}

impl Asker<'_> {
    /// This worker as the owner of a resource.
    pub(crate) fn holder(&self, resource: &str, grant: Grant) -> Holder {
        Holder { lease: self.lease, resource: name(resource), token: grant.token }
    }
}

pub(crate) async fn step(store: &SqliteStore, holder: &Holder, act: JobAct) -> JobSaid {
    store.job(&JobStep { holder: holder.clone(), act }).await.expect("an answer")
}

/// Owns for a moment, again and again, until `enough` occurrences were begun by whomever. Says which were its own.
pub(crate) async fn hurry(store: &SqliteStore, enough: u64) -> Vec<u64> {
    let mut asker = Asker::opened(store, "hurry", LONG).await;
    let mut hints = asker.hints().await;
    let mut begun = Vec::new();
    loop {
        let grant = asker.wins("job", &mut hints).await;
        let holder = asker.holder("job", grant);
        let said = step(store, &holder, attend()).await;
        let JobSaid::Attended { through, .. } = said else { panic!("{said:?}") };
        let next = through.as_millis() + 1;
        if next <= enough {
            assert!(matches!(step(store, &holder, begin(next)).await, JobSaid::Begun(_)));
            begun.push(next);
            assert!(matches!(step(store, &holder, finish(next)).await, JobSaid::Finished(_)));
        }
        asker.release("job").await;
        if next >= enough {
            asker.close().await;
            return begun;
        }
    }
}

// req: E11
#[tokio::test]
async fn each_occurrence_is_begun_by_one_of_several_processes() {
    let folder = Folder::new();
    let store = open(&folder.file());

    let file = folder.file();
    let children = std::thread::spawn(move || {
        let children: Vec<_> = (0..2)
            .map(|_| {
                let file = file.clone();
                std::thread::spawn(move || Process::start("hurry", &file).told.clone())
            })
            .collect();
        children.into_iter().map(|child| child.join().expect("a child")).collect::<Vec<String>>()
    });
    let ours = hurry(&store, 60).await;
    let theirs = children.join().expect("two children");

    let theirs =
        theirs.iter().flat_map(|told| told.split_whitespace()).map(|told| told.parse().expect("a number"));
    let all: Vec<u64> = ours.into_iter().chain(theirs).collect();
    assert_eq!(all.len(), 60, "{all:?}");
    assert_eq!(all.iter().copied().collect::<BTreeSet<u64>>(), (1..=60).collect());
    let view = store.jobs(Some(&name("job"))).await.expect("a view").remove(0);
    assert_eq!((view.counts.ran, view.counts.interrupted), (60, 0));
}

// req: E11
#[tokio::test]
async fn the_run_of_a_process_that_was_killed_is_interrupted_and_can_be_run_again_under_its_key() {
    let folder = Folder::new();
    let mut child = Process::start("runner", &folder.file());
    let store = open(&folder.file());
    let mut next = Asker::opened(&store, "next", LONG).await;
    let mut hints = next.hints().await;
    next.waits("job").await;

    child.kill();
    let grant = next.wins("job", &mut hints).await;
    let holder = next.holder("job", grant);
    let said = step(&store, &holder, attend()).await;
    let JobSaid::Attended { latest: Some(left), .. } = said else { panic!("{said:?}") };
    let unasked = step(&store, &holder, begin(7)).await;
    let again = step(&store, &holder, begin_again(7)).await;

    assert_eq!((left.state, left.worker.as_str()), (JobState::Interrupted, "child"));
    assert_eq!(unasked, JobSaid::Taken(Some(left.clone())));
    let JobSaid::Begun(JobRecord { attempt: 2, key_token, token, .. }) = again else { panic!("{again:?}") };
    assert_eq!((key_token.0.to_string(), token), (child.told.clone(), holder.token));
}

// req: E15
#[tokio::test]
async fn what_an_owner_in_another_process_sends_is_heard() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut one = store.subscribe(&name("job")).await.expect("a subscription");
    let mut two = open(&folder.file()).subscribe(&name("other")).await.expect("a subscription");

    let child = Process::start("speaker", &folder.file());

    let Message { resource, token, payload, .. } = one.recv().await.expect("a message");
    assert_eq!((resource, token.0.to_string()), (name("job"), child.told.clone()));
    assert_eq!(payload.as_bytes(), b"hello");
    assert!(two.recv().await.is_none(), "its store was dropped, and heard nothing before");
}

#[tokio::test]
async fn a_burst_is_heard_whole_although_the_kernel_keeps_few() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    let grant = owner.granted("job").await;
    let holder = owner.holder("job", grant);
    let mut messages = store.subscribe(&name("job")).await.expect("a subscription");

    for number in 0..200_u32 {
        let payload = Payload::new(&number.to_le_bytes()).expect("short");
        assert_eq!(store.publish(&holder, &payload).await.expect("an answer"), Published::Sent);
    }

    for number in 0..200_u32 {
        let message =
            tokio::time::timeout(LIMIT, messages.recv()).await.expect("in time").expect("a message");
        assert_eq!(message.payload.as_bytes(), number.to_le_bytes());
    }
}

#[tokio::test]
async fn a_subscriber_that_was_killed_costs_nothing_and_its_socket_goes() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    let grant = owner.granted("job").await;
    let holder = owner.holder("job", grant);
    let mut child = Process::start("subscriber", &folder.file());
    let mut messages = store.subscribe(&name("job")).await.expect("a subscription");
    assert_eq!(sockets(&folder), 2);

    child.kill();
    assert_eq!(sockets(&folder), 2, "as `kill -9` leaves it");
    let payload = Payload::new(b"hello").expect("short");
    assert_eq!(store.publish(&holder, &payload).await.expect("an answer"), Published::Sent);

    assert_eq!(messages.recv().await.expect("a message").payload, payload);
    assert_eq!(sockets(&folder), 1);
}

#[tokio::test]
async fn a_store_that_is_opened_removes_the_sockets_of_killed_subscribers_and_no_others() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let _messages = store.subscribe(&name("job")).await.expect("a subscription");
    Process::start("subscriber", &folder.file()).kill();
    assert_eq!(sockets(&folder), 2);

    let next = open(&folder.file());
    // Beside everything else: what is read after it was done.
    next.jobs(None).await.expect("views");

    assert_eq!(sockets(&folder), 1);
    drop(store);
}

#[tokio::test]
async fn a_damaged_job_is_corrupt_and_the_others_are_not() {
    let damages = [
        "'{'",
        "json_set(value, '$.format', 'new')",
        "json_set(value, '$.job.plan', 'a' || char(10))",
        "json_set(value, '$.job.through', -1)",
        "json_set(value, '$.job.counts.ran', -1)",
        "json_set(value, '$.job.latest.state', 'asleep')",
        "json_set(value, '$.job.latest.worker', '')",
        "json_set(value, '$.job.latest.attempt', 5000000000)",
        "json_set(value, '$.job.latest.token', -7)",
        "json_set(value, '$.job.latest.occurrence', 7258118400001)",
    ];
    for damage in damages {
        let folder = Folder::new();
        let store = open(&folder.file());
        let mut owner = Asker::opened(&store, "owner", LONG).await;
        let mut holders = Vec::new();
        for job in ["one", "two"] {
            let grant = owner.granted(job).await;
            let holder = owner.holder(job, grant);
            step(&store, &holder, attend()).await;
            assert!(matches!(step(&store, &holder, begin(7)).await, JobSaid::Begun(_)));
            holders.push(holder);
        }

        let db = rusqlite::Connection::open(folder.file()).expect("SQLite opens it");
        // Another version, too, as with every write.
        let damage = format!("UPDATE record SET version = 7, value = {damage} WHERE key = 'resource/one'");
        assert_eq!(db.execute(&damage, []).expect("damage"), 1, "{damage}");

        for act in [attend(), begin(8), finish(7)] {
            let holder = holders[0].clone();
            let error = store.job(&JobStep { holder, act }).await.expect_err(&damage);
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
        }
        let error = store.jobs(Some(&name("one"))).await.expect_err(&damage);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
        assert!(matches!(step(&store, &holders[1], begin(8)).await, JobSaid::Begun(_)));
        let all = store.jobs(None).await.expect("the others");
        assert_eq!(all.iter().map(|view| view.job.as_str()).collect::<Vec<_>>(), ["two"], "{damage}");
        let all = store.read(None).await.expect("the others");
        assert_eq!(all.iter().map(|view| view.resource.as_str()).collect::<Vec<_>>(), ["two"], "{damage}");
        assert!(matches!(owner.said(Call::Renew).await, Said::Kept { .. }), "{damage}");
    }
}
