//! Work that is done once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::jobs::{JobState, Once};
use tenure::store::{MemoryStore, OpenStore};
use tenure::{ErrorKind, Worker};
use testkit::soon;
use tokio::sync::Notify;

use super::Stage;
use super::links::Link;

async fn worker(opened: &OpenStore, label: &str) -> Worker {
    Worker::on(opened.clone()).label(label).connect().await.expect("a worker")
}

fn opened() -> OpenStore {
    OpenStore::memory(Arc::new(MemoryStore::default())).expect("a thread")
}

fn by(once: &Once) -> &str {
    match once {
        Once::Done { by, .. } => by.as_str(),
        Once::Ran => panic!("it was not done before"),
    }
}

// req: E13
#[tokio::test]
async fn of_five_workers_one_does_it_and_the_others_learn_by_whom_at_once_or_when_it_is_done() {
    let (opened, count, go_on) = (opened(), Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let mut workers = Vec::new();
    for number in 1..=5 {
        let (worker, count, go_on) =
            (worker(&opened, &format!("worker {number}")).await, count.clone(), go_on.clone());
        workers.push(tokio::spawn(async move {
            worker
                .once("migration-42", async move |own| {
                    assert!(own.holds());
                    count.fetch_add(1, Ordering::SeqCst);
                    go_on.notified().await;
                })
                .await
        }));
    }
    let late = worker(&opened, "late").await;
    while count.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Whoever does not wait goes on.
    assert_eq!(soon(late.try_once("migration-42", async |_| {})).await.expect("an answer"), None);
    assert!(workers.iter().all(|worker| !worker.is_finished()), "they wait");
    go_on.notify_one();

    let mut outcomes = Vec::new();
    for worker in workers {
        outcomes.push(soon(worker).await.expect("it runs").expect("an answer"));
    }
    let ran = outcomes.iter().position(|once| *once == Once::Ran).expect("one did it");
    let label = format!("worker {}", ran + 1);
    assert!(
        outcomes.iter().enumerate().all(|(number, once)| number == ran || by(once) == label),
        "{outcomes:?}"
    );
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let later = soon(late.once("migration-42", async |_| count.store(2, Ordering::SeqCst))).await;
    assert_eq!(by(&later.expect("an answer")), label);
    assert_eq!(count.load(Ordering::SeqCst), 1, "it is not done again");
}

// req: E13
#[tokio::test]
async fn one_that_fails_gets_its_error_back_and_the_next_one_tries() {
    let opened = opened();
    let (one, two) = (worker(&opened, "one").await, worker(&opened, "two").await);

    let failed = soon(one.once("seed", async |_| Err(std::io::Error::other("the disk is full")))).await;
    let error = failed.expect_err("it fails");
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Failed, "`once:seed` failed".to_owned()));
    assert_eq!(std::error::Error::source(&error).expect("its own").to_string(), "the disk is full");
    let tried = soon(two.once("seed", async |_| Ok::<(), std::io::Error>(()))).await;
    assert_eq!(tried.expect("an answer"), Once::Ran);
    assert_eq!(by(&soon(one.once("seed", async |_| {})).await.expect("an answer")), "two");

    let job =
        tenure::admin::Admin::on(opened).job("once:seed").await.expect("an answer").expect("it is known");
    assert_eq!((job.counts.failed, job.counts.ran), (1, 1));
    assert_eq!((job.records[0].attempt, job.records[0].state), (2, JobState::Ran));
}

// req: E13
#[tokio::test]
async fn one_that_dies_in_it_is_followed_by_the_next_who_does_all_of_it() {
    let stage = Stage::new();
    let link = Link::to(&stage.store);
    let cut = OpenStore::by_hand(link.clone(), stage.clock.clone()).expect("a thread");
    let (dead, begun) = (worker(&cut, "dead").await, Arc::new(Notify::new()));
    let dying = tokio::spawn({
        let begun = begun.clone();
        async move {
            dead.once("seed", async move |_| {
                begun.notify_one();
                std::future::pending::<()>().await;
            })
            .await
        }
    });
    soon(begun.notified()).await;
    link.cut();

    let next = stage.worker("next").await;
    let done = tokio::spawn(async move { next.once("seed", async |_| {}).await });
    stage.until(|| done.is_finished()).await;

    assert_eq!(done.await.expect("it runs").expect("an answer"), Once::Ran);
    let job = stage.job("once:seed").await;
    assert_eq!((job.counts.interrupted, job.counts.ran, job.records[0].attempt), (1, 1, 2));
    // When it comes back it learns that it was done.
    link.mend();
    stage.until(|| dying.is_finished()).await;
    assert_eq!(by(&dying.await.expect("it runs").expect("an answer")), "next");
}

#[tokio::test]
async fn what_is_done_is_written_down_before_the_ticket_is_free_although_answers_are_lost() {
    let stage = Stage::new();
    let link = Link::to(&stage.store);
    let shaky = OpenStore::by_hand(link.clone(), stage.clock.clone()).expect("a thread");
    let worker = worker(&shaky, "one").await;

    let done = tokio::spawn({
        let link = link.clone();
        async move { worker.once("seed", async move |_| link.lose_answers(4)).await }
    });
    stage.until(|| done.is_finished()).await;

    assert_eq!(done.await.expect("it runs").expect("an answer"), Once::Ran);
    assert_eq!(link.lost(), 4);
    assert_eq!(stage.job("once:seed").await.records[0].state, JobState::Ran);
}

#[tokio::test]
async fn a_name_that_cannot_be_and_one_that_this_worker_is_at_are_refused() {
    let opened = opened();
    let one = worker(&opened, "one").await;
    let refused = |outcome: Result<Once, tenure::Error>| outcome.expect_err("it is refused").to_string();

    assert!(
        refused(one.once("", async |_| {}).await.and(one.once("a\nb", async |_| {}).await))
            .contains("resource name")
    );
    let twice = one.once("seed", async |_| {
        let again = one.once("seed", async |_| {}).await;
        assert!(refused(again).contains("already"));
    });
    assert_eq!(soon(twice).await.expect("an answer"), Once::Ran);
    one.shutdown().await;
    assert!(refused(one.once("other", async |_| {}).await).contains("shut down"));
}

// req: E13
#[tokio::test]
async fn work_that_says_that_it_is_unfinished_is_found_interrupted_and_tried_again() {
    use tenure::Change;
    use tenure::Outcome;
    let (opened, attempts) = (opened(), AtomicU32::new(0));
    let tools = tenure::admin::Admin::on(opened.clone());
    let mut once = worker(&opened, "one").await.once_builder("backfill");
    let mut ownerships = once.ownerships();

    let done = once.run(async |_| match attempts.fetch_add(1, Ordering::SeqCst) {
        0 => Outcome::Unfinished,
        _ => {
            let job = tools.job("once:backfill").await.expect("an answer").expect("it is known");
            assert_eq!((job.counts.interrupted, job.counts.failed), (1, 0));
            Outcome::Done
        }
    });

    assert_eq!(soon(done).await.expect("an answer"), Once::Ran);
    assert_eq!(attempts.load(Ordering::SeqCst), 2);
    assert!(matches!(soon(ownerships.next()).await, Some(Change::Acquired(_))));
}

/// What it came to counts, although the ownership ended while it was at it.
// req: E13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_ends_in_the_poll_in_which_its_ownership_ends_is_done() {
    let opened = opened();
    let (one, two) = (worker(&opened, "one").await, worker(&opened, "two").await);
    let leaver = one.clone();

    let once = soon(one.once("migration-42", async |own| {
        let leaver = leaver.clone();
        tokio::spawn(async move { leaver.shutdown().await });
        // As a migration does that is not async.
        while own.holds() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }));

    assert_eq!(once.await.expect("it is done"), Once::Ran);
    let mut is_done_again = false;
    let later = soon(two.once("migration-42", async |_| is_done_again = true)).await;
    assert_eq!((by(&later.expect("an answer")), is_done_again), ("one", false));
}
