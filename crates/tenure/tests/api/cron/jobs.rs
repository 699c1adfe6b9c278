//! What a job does from one occurrence to the next.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::admin::Admin;
use tenure::jobs::JobState;
use tenure::jobs::cron::{Change, Cron, Misfire, Skipped};
use tenure::store::{MemoryStore, OpenStore};
use tenure::testing::ManualClock;
use tenure::{ErrorKind, Timing, Worker};
use testkit::soon;
use tokio::sync::Notify;

use super::links::Link;
use super::{Book, SOON, Stage, second, writing};

const EVERY_SECOND: &str = "* * * * * *";

/// None is left out, however much faster the clock goes than this machine.
fn keep_book(worker: &Worker, book: &Book) -> Cron {
    let all = Misfire::All { within: Duration::from_secs(3600) };
    let job = worker.cron("job", EVERY_SECOND).misfire(all);
    job.run(writing(book)).expect("it begins")
}

// req: E10 E11
#[tokio::test]
async fn of_two_workers_one_runs_each_occurrence_and_the_other_goes_on_where_it_left() {
    let (stage, book) = (Stage::new(), Book::default());
    let (one, two) = (stage.worker("one").await, stage.worker("two").await);
    let jobs = [keep_book(&one, &book), keep_book(&two, &book)];

    stage.until(|| book.len() >= 5).await;
    let owners: Vec<bool> = jobs.iter().map(Cron::is_owner).collect();
    assert_eq!(owners.iter().filter(|owns| **owns).count(), 1);
    let (first, second) = if owners[0] { (&jobs[0], &jobs[1]) } else { (&jobs[1], &jobs[0]) };
    soon(first.stop()).await;
    first.stop().await;
    stage.until(|| book.len() >= 10).await;

    assert!(second.is_owner() && !first.is_owner());
    let seconds = book.seconds();
    assert!(seconds.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seconds:?}");
    let keys: std::collections::BTreeSet<String> = book.runs().iter().map(|run| run.key.clone()).collect();
    assert_eq!(keys.len(), book.len());
    let run = book.runs()[0].clone();
    assert_eq!(run.key, format!("cron:job/{}000/{}", run.second, run.token));
    soon(second.stop()).await;
    let job = stage.job("cron:job").await;
    assert_eq!(job.plan.as_str(), "* * * * * * UTC");
    assert_eq!((job.counts.ran, job.counts.missed, job.counts.skipped), (book.len() as u64, 0, 0));
}

// req: H1
#[tokio::test]
async fn a_run_that_fails_or_panics_is_written_down_and_the_job_goes_on_under_the_same_ownership() {
    let (stage, book, count) = (Stage::new(), Book::default(), Arc::new(AtomicU32::new(0)));
    let worker = stage.worker("one").await;
    let mut builder = worker.cron("job", EVERY_SECOND);
    let mut changes = builder.changes();
    let writer = book.clone();
    let job = builder.run(move |tick| {
        writer.write(&tick);
        let count = count.fetch_add(1, Ordering::SeqCst);
        async move {
            match count {
                0 => Err("no paper\nleft"),
                1 => panic!("out of ink"),
                _ => Ok(()),
            }
        }
    });
    let job = job.expect("it begins");

    let mut told = Vec::new();
    while told.len() < 6 {
        told.push(stage.next(&mut changes).await);
    }
    soon(job.stop()).await;

    assert!(matches!(&told[1], Change::Failed { what, .. } if what == "no paper\nleft"), "{told:?}");
    assert!(matches!(&told[3], Change::Failed { what, .. } if what == "it panicked: out of ink"), "{told:?}");
    assert!(matches!(told[5], Change::Ran { .. }), "{told:?}");
    let runs = book.runs().clone();
    assert!(runs.iter().all(|run| run.token == runs[0].token), "{runs:?}");
    let view = stage.job("cron:job").await;
    assert_eq!((view.counts.failed, view.counts.interrupted), (2, 0));
    assert_eq!(view.records[0].note.as_str(), "no paper left");
    assert_eq!((view.records[0].state, view.records[2].state), (JobState::Failed, JobState::Ran));
    // The end of the job is the end of what it tells.
    while soon(changes.next()).await.is_some() {}
}

#[tokio::test]
async fn a_name_that_is_used_with_another_plan_is_told_and_one_that_this_worker_has_is_refused() {
    let stage = Stage::new();
    let (one, two) = (stage.worker("one").await, stage.worker("two").await);
    let first = one.cron("job", EVERY_SECOND).run(async |_| {}).expect("it begins");
    let twice = one.cron("job", "0 6 * * *").run(async |_| {}).expect_err("it has it");
    assert_eq!(twice.kind(), ErrorKind::Refused);
    assert_eq!(twice.to_string(), "this worker competes for `cron:job` already");
    stage.until(|| first.is_owner()).await;
    let mut other = two.cron("job", "*/2 * * * * *").time_zone("Europe/Berlin");
    let mut changes = other.changes();
    let _other = other.run(async |_| {}).expect("it begins");
    let mut heard = first.changes();
    while !matches!(stage.next(&mut heard).await, Change::Ran { .. }) {}

    soon(first.stop()).await;

    // Who listened hears the rest and then the end, who listens from now on the end.
    soon(async { while heard.next().await.is_some() {} }).await;
    assert_eq!(soon(first.changes().next()).await, None);
    let change = stage.next(&mut changes).await;
    assert_eq!(change, Change::PlanChanged { before: "* * * * * * UTC".into() });
    assert_eq!(stage.job("cron:job").await.plan.as_str(), "*/2 * * * * * Europe/Berlin");
}

#[tokio::test]
async fn an_owner_whose_clock_is_far_ahead_waits_until_the_store_has_come_near_and_then_runs_the_job() {
    let (clock, ahead, book) = (ManualClock::new(), ManualClock::new(), Book::default());
    ahead.advance(Duration::from_secs(300));
    let store = Arc::new(MemoryStore::by_hand(clock.clone()));
    let opened = OpenStore::by_hand(store, ahead.clone()).expect("a thread");
    let builder = Worker::on(opened).timing(Timing::new(super::TTL).expect("sound"));
    let worker = builder.connect().await.expect("a worker");
    let mut builder = worker.cron("job", EVERY_SECOND);
    let mut changes = builder.changes();
    let _job = builder.run(writing(&book)).expect("it begins");

    let mut by = 0;
    soon(async {
        while book.len() == 0 {
            by += 1;
            clock.advance(Duration::from_millis(100));
            ahead.advance(Duration::from_millis(100));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;

    // Not more than a minute before its time by the store's clock.
    assert!(by >= 2_390, "{by}");
    // By its own clock it missed some before that.
    let is_told = |change| change == Some(Change::Skipped { count: 1, reason: Skipped::TooEarly });
    while !is_told(soon(changes.next()).await) {}
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_anything_begins() {
    let worker = Stage::new().worker("one").await;
    let refused = |outcome: Result<Cron, tenure::Error>| {
        let error = outcome.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Refused);
        error.to_string()
    };

    assert!(refused(worker.cron("job", "0 0 30 2 *").run(async |_| {})).contains("never comes"));
    let zone = worker.cron("job", "0 6 * * *").time_zone("Europe/Berlni").run(async |_| {});
    assert!(refused(zone).contains("did you mean \"Europe/Berlin\"?"));
    assert!(refused(worker.cron("job", "six o'clock").run(async |_| {})).contains("has 2 fields"));
    assert!(refused(worker.cron("a\nb", "* * * * *").run(async |_| {})).contains("resource name"));
    let job = worker.cron("job", "0 6 * * *").run(async |_| {}).expect("nothing of it stayed behind");
    job.stop().await;
}

#[tokio::test]
async fn a_job_never_overlaps_itself_and_what_came_due_meanwhile_is_skipped() {
    let stage = Stage::new();
    let worker = stage.worker("one").await;
    let (book, go_on) = (Book::default(), Arc::new(Notify::new()));
    let mut builder = worker.cron("job", EVERY_SECOND);
    let mut changes = builder.changes();
    let (writer, let_go) = (book.clone(), go_on.clone());
    let job = builder.run(move |tick| {
        writer.write(&tick);
        let let_go = let_go.clone();
        async move {
            if tick.left_out() == 0 {
                let_go.notified().await;
            }
        }
    });
    let job = job.expect("it begins");
    stage.until(|| book.len() == 1).await;
    let first = book.seconds()[0];

    // Ten more are due, and none of them begins.
    let until = first + 10;
    while second(job.next().expect("it comes")) <= until {
        stage.clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(book.len(), 1);
    go_on.notify_one();

    // It is told before the run begins, and may be heard after that.
    let mut skipped = 0;
    while book.len() < 2 || skipped == 0 {
        if let Change::Skipped { count, .. } = stage.next(&mut changes).await {
            skipped += count;
        }
    }
    let next = book.seconds()[1];
    assert!(next >= until);
    soon(job.stop()).await;
    let view = stage.job("cron:job").await;
    assert_eq!((view.counts.missed, u64::from(view.records[1].skipped)), (0, next - first - 1));
    assert_eq!(skipped, next - first - 1, "what is told is what is counted");
}

/// Claiming an occurrence is one round trip, and writing down how it ended another, after the work; nothing else.
// req: E11
#[tokio::test]
async fn a_tick_asks_the_store_once_before_the_work_and_once_after_it() {
    let (stage, book) = (Stage::new(), Book::default());
    let link = Link::to(&stage.store);
    let opened = OpenStore::by_hand(link.clone(), stage.clock.clone()).expect("a thread");
    let worker = Worker::on(opened).connect().await.expect("a worker");
    let job = keep_book(&worker, &book);
    stage.until(|| book.len() >= 1 && link.steps("finish") >= 1).await;

    let attended = link.steps("attend");
    let (runs, others) = (book.len(), link.calls("claim") + link.calls("release") + link.calls("read"));
    stage.until(|| book.len() >= runs + 20).await;
    soon(job.stop()).await;

    let ran = book.len();
    assert!(ran >= runs + 20);
    assert_eq!(link.steps("begin"), ran);
    // If the stop comes while the end of the last run is told, that is told once more.
    assert!((ran..=ran + 1).contains(&link.steps("finish")), "{} of {ran}", link.steps("finish"));
    assert_eq!((attended, link.steps("attend")), (1, 1), "the job is taken up once per ownership");
    assert_eq!(
        link.calls("claim") + link.calls("release") + link.calls("read") - others,
        1,
        "the last release"
    );
}

// req: S7
#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_asked_again_and_runs_once() {
    let (stage, book) = (Stage::new(), Book::default());
    let link = Link::to(&stage.store);
    let opened = OpenStore::by_hand(link.clone(), stage.clock.clone()).expect("a thread");
    let worker = Worker::on(opened).connect().await.expect("a worker");
    let job = keep_book(&worker, &book);
    stage.until(|| book.len() >= 2).await;

    link.lose_answers(3);
    let runs = book.len();
    stage.until(|| book.len() >= runs + 5).await;
    soon(job.stop()).await;

    assert_eq!(link.lost(), 3, "they were lost");
    let seconds = book.seconds();
    assert!(seconds.windows(2).all(|pair| pair[1] > pair[0]), "{seconds:?}");
    let counts = stage.job("cron:job").await.counts;
    assert_eq!((counts.ran, counts.interrupted), (book.len() as u64, 0));
}

#[tokio::test]
async fn on_a_gentle_hand_over_the_run_comes_to_its_end_and_on_a_loss_it_is_dropped() {
    let stage = Stage::new();
    let link = Link::to(&stage.store);
    let opened = OpenStore::by_hand(link.clone(), stage.clock.clone()).expect("a thread");
    let worker = Worker::on(opened).connect().await.expect("a worker");
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let start = |name: &str| {
        let mut builder = worker.cron(name, EVERY_SECOND);
        let changes = builder.changes();
        let (begun, go_on) = (begun.clone(), go_on.clone());
        let job = builder.run(move |_| {
            let (begun, go_on) = (begun.clone(), go_on.clone());
            async move {
                begun.notify_one();
                go_on.notified().await;
            }
        });
        (job.expect("it begins"), changes)
    };
    let (job, mut changes) = start("gentle");
    assert!(matches!(stage.next(&mut changes).await, Change::Began { .. }));
    soon(begun.notified()).await;
    let stopping = tokio::spawn(async move { job.stop().await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!stopping.is_finished(), "the work has not ended");
    go_on.notify_one();
    soon(stopping).await.expect("it ends");
    assert!(matches!(soon(changes.next()).await, Some(Change::Ran { .. })));

    let (job, mut changes) = start("loss");
    assert!(matches!(stage.next(&mut changes).await, Change::Began { .. }));
    soon(begun.notified()).await;
    link.cut();
    stage.until(|| !job.is_owner()).await;
    // From here on time stands still: this is the first stop, not the harder one.
    assert!(matches!(soon(changes.next()).await, Some(Change::Stopped { .. })));
    assert_eq!(Arc::strong_count(&begun), 2, "the work is gone, and with it what it held");
    let counts = stage.job("cron:gentle").await.counts;
    assert_eq!((counts.ran, counts.interrupted), (1, 0));
}

#[tokio::test]
async fn a_job_may_run_in_the_task_of_the_caller_and_borrow() {
    let (stage, mut seconds) = (Stage::new(), Vec::new());
    let worker = stage.worker("one").await;
    let serving = worker.cron("job", EVERY_SECOND).misfire(Misfire::Once).serve(async |tick| {
        seconds.push(second(tick.occurrence()));
        if seconds.len() == 3 {
            tokio::spawn({
                let worker = worker.clone();
                async move { worker.shutdown().await }
            });
            return Err("the third fails");
        }
        Ok(())
    });
    let clock = async {
        loop {
            stage.clock.advance(Duration::from_millis(100));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let served = tokio::time::timeout(SOON, async {
        tokio::select! {
            served = serving => served,
            () = clock => unreachable!("it goes on for ever"),
        }
    });

    served.await.expect("it ends with the worker").expect("it served");
    assert_eq!(seconds.len(), 3);
    let counts = stage.job("cron:job").await.counts;
    assert_eq!((counts.ran, counts.failed), (2, 1));
}

#[tokio::test]
async fn the_changes_of_a_job_end_also_with_its_runtime() {
    let (stage, book) = (Stage::new(), Book::default());
    let worker = stage.worker("one").await;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let job = {
        let _within = runtime.enter();
        keep_book(&worker, &book)
    };
    let mut changes = job.changes();
    stage.until(|| book.len() >= 1).await;

    runtime.shutdown_background();

    soon(async { while changes.next().await.is_some() {} }).await;
    assert_eq!(soon(job.changes().next()).await, None);
}

// req: H1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_blocks_its_thread_outlasts_stop_and_keeps_the_ticket_until_it_has_ended() {
    let stage = Stage::new();
    let worker = stage.worker("one").await;
    let (go_on, blocked) = std::sync::mpsc::channel::<()>();
    let (begun, blocked) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(blocked)));
    let count = begun.clone();
    let job = worker.cron("job", EVERY_SECOND).run(move |_| {
        let (count, blocked) = (count.clone(), blocked.clone());
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            // Until somebody lets it go on.
            let _told = blocked.lock().expect("nobody panicked").recv();
        }
    });
    let job = job.expect("it begins");
    stage.until(|| begun.load(Ordering::SeqCst) == 1).await;

    let stopping = tokio::spawn(async move { job.stop().await });
    stage.until_by(Duration::from_millis(20), &mut || stopping.is_finished()).await;

    let owners = async || {
        let view = Admin::on(stage.opened.clone()).read("cron:job").await.expect("an answer");
        view.expect("it was claimed").owners.len()
    };
    assert_eq!(owners().await, 1, "it is at work still");
    go_on.send(()).expect("it waits");
    soon(async {
        while owners().await == 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(begun.load(Ordering::SeqCst), 1);
}
