//! What becomes of occurrences that were missed, and of those that were interrupted.

use std::sync::Arc;
use std::time::Duration;

use tenure::Worker;
use tenure::jobs::JobState;
use tenure::jobs::cron::{Change, Changes, CronBuilder, Interrupted, Misfire};
use tenure::store::OpenStore;
use testkit::soon;
use tokio::sync::Notify;

use super::links::Link;
use super::{Book, Stage, writing};

/// The second at which the job was taken up last, and the clock stands.
async fn away(stage: &Stage, minutes: u64) -> u64 {
    let first = stage.worker("first").await;
    let book = Book::default();
    let job = first.cron("job", "* * * * *").run(writing(&book)).expect("it begins");
    stage.until_by(Duration::from_secs(1), &mut || book.len() == 1).await;
    soon(job.stop()).await;
    stage.clock.advance(Duration::from_secs(minutes * 60 + 30));
    book.seconds()[0]
}

fn begin(builder: CronBuilder, book: &Book) -> (tenure::jobs::cron::Cron, Changes) {
    let mut builder = builder;
    let changes = builder.changes();
    let job = builder.run(writing(book)).expect("it begins");
    (job, changes)
}

// req: E11
#[tokio::test]
async fn after_ten_minutes_without_an_owner_skip_waits_once_runs_the_last_and_all_runs_those_within_the_window()
 {
    let within = Duration::from_secs(5 * 60 + 50);
    for misfire in [Misfire::Skip, Misfire::Once, Misfire::All { within }] {
        let stage = Stage::new();
        let before = away(&stage, 10).await;
        let (worker, book) = (stage.worker("second").await, Book::default());
        let (job, mut changes) = begin(worker.cron("job", "* * * * *").misfire(misfire), &book);
        // The one after those that were missed.
        let next = before + 11 * 60;
        stage.until_by(Duration::from_secs(1), &mut || book.seconds().contains(&next)).await;
        soon(job.stop()).await;

        let expected: Vec<u64> = match misfire {
            Misfire::Skip => vec![11],
            Misfire::Once => vec![10, 11],
            _ => vec![5, 6, 7, 8, 9, 10, 11],
        };
        let ran: Vec<u64> = book.seconds().iter().map(|second| (second - before) / 60).collect();
        assert_eq!(ran, expected, "{misfire:?}");
        let missed = 11 - expected.len() as u64;
        let counts = stage.job("cron:job").await.counts;
        assert_eq!((counts.missed, counts.skipped), (missed, 0), "{misfire:?}");
        assert_eq!(soon(changes.next()).await, Some(Change::Missed { count: missed }), "{misfire:?}");
    }
}

#[tokio::test]
async fn nothing_before_a_job_was_taken_up_for_the_first_time_is_missed() {
    let (stage, book) = (Stage::new(), Book::default());
    let worker = stage.worker("one").await;
    let all = Misfire::All { within: Duration::from_secs(3600) };
    let (job, mut changes) = begin(worker.cron("job", "* * * * *").misfire(all), &book);

    assert!(matches!(stage.next(&mut changes).await, Change::Began { .. }));
    soon(job.stop()).await;

    assert_eq!(book.seconds(), [3660], "the clock began at 3600");
}

// req: E11
#[tokio::test]
async fn an_occurrence_whose_owner_died_in_it_is_left_interrupted_or_run_again_with_the_same_key() {
    for policy in [Interrupted::Leave, Interrupted::Again] {
        let stage = Stage::new();
        let link = Link::to(&stage.store);
        let opened = OpenStore::by_hand(link.clone(), stage.clock.clone()).expect("a thread");
        let dead = Worker::on(opened).label("dead").connect().await.expect("a worker");
        let (book, begun) = (Book::default(), Arc::new(Notify::new()));
        let (writer, begins) = (book.clone(), begun.clone());
        let _job = dead.cron("job", "* * * * *").run(move |tick| {
            writer.write(&tick);
            begins.notify_one();
            std::future::pending::<()>()
        });
        stage.until_by(Duration::from_secs(1), &mut || book.len() == 1).await;
        soon(begun.notified()).await;
        link.cut();

        let (next, then) = (stage.worker("next").await, Book::default());
        let (job, mut changes) = begin(next.cron("job", "* * * * *").interrupted(policy), &then);
        stage.until_by(Duration::from_secs(1), &mut || then.len() >= 2).await;
        soon(job.stop()).await;

        let (first, runs) = (book.runs()[0].clone(), then.runs().clone());
        let told = soon(changes.next()).await;
        let is_told = matches!(&told, Some(Change::Interrupted { worker, .. }) if worker.as_str() == "dead");
        assert!(is_told, "{policy:?}: {told:?}");
        let view = stage.job("cron:job").await;
        assert_eq!(view.counts.interrupted, 1, "{policy:?}");
        let record = view.records.iter().find(|record| record.occurrence.as_millis() == first.second * 1000);
        let state = record.map(|record| record.state);
        if policy == Interrupted::Again {
            assert_eq!((runs[0].second, runs[0].attempt), (first.second, 2));
            assert_eq!(runs[0].key, first.key);
            assert!(runs[0].token > first.token);
            assert_eq!(state, Some(JobState::Ran));
        } else {
            assert!(runs.iter().all(|run| run.second > first.second && run.attempt == 1), "{runs:?}");
            assert_eq!(state, Some(JobState::Interrupted));
        }
    }
}

/// Of many with one spec, not all begin at once.
#[tokio::test]
async fn jitter_delays_each_job_by_its_own_span_and_leaves_none_out() {
    let stage = Stage::new();
    let worker = stage.worker("one").await;
    // What is made of their names, in milliseconds.
    for (name, delay) in [("job-0", 12_128), ("job-2", 24_908)] {
        let book = Book::default();
        let builder = worker.cron(name, "* * * * *").jitter(Duration::from_secs(30));
        let (job, _changes) = begin(builder, &book);
        stage.until(|| book.len() >= 3).await;
        soon(job.stop()).await;

        let seconds = book.seconds();
        assert!(seconds.windows(2).all(|pair| pair[1] == pair[0] + 60), "{name}: {seconds:?}");
        for record in stage.job(&format!("cron:{name}")).await.records {
            let late = record.began_at.as_micros() / 1000 - record.occurrence.as_millis();
            assert!(late >= delay, "{name} began {late} ms after its time");
        }
    }
}
