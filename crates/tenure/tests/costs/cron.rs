//! What many jobs cost.
#![cfg(feature = "cron")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use tenure::jobs::cron::Cron;
use tenure::store::{MemoryStore, OpenStore};
use tenure::testing::ManualClock;
use tenure::{Timing, Worker};
use testkit::child::is_alone;
use testkit::until;
use tokio::sync::Notify;

const JOBS: usize = 10_000;
/// How long a condition may take to come true, in real time.
const SOON: Duration = Duration::from_secs(300);

// req: E10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_jobs_cost_next_to_nothing_while_they_wait() {
    if !is_alone(module_path!(), "ten_thousand_jobs_cost_next_to_nothing_while_they_wait") {
        return;
    }
    // On the system's clocks, with a lease that is renewed meanwhile.
    let opened = OpenStore::memory(Arc::new(MemoryStore::default())).expect("a thread");
    let timing = Timing::new(Duration::from_secs(15)).expect("sound");
    let worker = Worker::on(opened).timing(timing).connect().await.expect("a worker");
    // Half a year away, so that none is due.
    let month = 1 + (month() + 5) % 12;
    let begin =
        |number: usize| worker.cron(format!("job-{number}"), format!("0 0 1 {month} *")).run(async |_| {});
    let jobs: Vec<Cron> = (0..JOBS).map(|number| begin(number).expect("it begins")).collect();
    until(|| jobs.iter().all(Cron::is_owner)).await;
    // Each has been taken up; what that cost is over when nothing is used for a while.
    let (mut before, until) = (used(), Instant::now() + SOON);
    loop {
        assert!(Instant::now() < until, "they never come to rest");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = used();
        if now - before < Duration::from_millis(200) {
            break;
        }
        before = now;
    }

    let (before, span) = (used(), Duration::from_secs(10));
    tokio::time::sleep(span).await;
    let per_minute = (used() - before) * 6;

    println!("{JOBS} jobs that wait: {per_minute:?} of CPU per minute");
    assert!(per_minute < Duration::from_secs(1), "{per_minute:?}");
    worker.shutdown().await;
}

/// An hour of simulated time: one job of every second, and ten thousand that come once in it.
// req: E10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_jobs_begin_in_time_for_an_hour() {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::by_hand(clock.clone()));
    let opened = OpenStore::memory(store).expect("a thread");
    let worker = Worker::on(opened).connect().await.expect("a worker");
    let began = Began::default();
    let start = |name: String, spec: String| {
        let (clock, began) = (clock.clone(), began.clone());
        let run = worker.cron(name, spec).run(move |tick| {
            let due = Duration::from_millis(tick.occurrence().as_millis());
            began.note(tick.lead().resource().as_str(), due.as_secs(), clock.shows().saturating_sub(due));
            async {}
        });
        run.expect("it begins")
    };
    let every_second = start("every-second".into(), "* * * * * *".into());
    // Second and minute of the hour.
    let due = |number: usize| (number % 60, 5 + number / 60 % 50);
    let spec = |number: usize| format!("{} {} * * * *", due(number).0, due(number).1);
    let others: Vec<Cron> = (0..JOBS).map(|number| start(format!("job-{number}"), spec(number))).collect();
    until(|| every_second.is_owner() && others.iter().all(Cron::is_owner)).await;
    let from = clock.shows();

    let mut due_by = [0; 3600];
    (0..JOBS).for_each(|number| due_by[due(number).1 * 60 + due(number).0] += 1);
    let mut begun = 1;
    for (second, due) in due_by.iter().enumerate().skip(1) {
        clock.advance(Duration::from_secs(1));
        begun += due;
        // Time goes on when what is due has begun, as on a machine that is fast enough.
        began.until(from.as_secs() + second as u64, begun).await;
    }

    let (runs, latest) = began.judge();
    let seconds = &runs["cron:every-second"];
    assert!(seconds.windows(2).all(|pair| pair[1] == pair[0] + 1), "one in each second: {seconds:?}");
    assert_eq!(seconds.len(), 3599);
    assert!(
        runs.iter().all(|(job, seconds)| job == "cron:every-second" || seconds.len() == 1),
        "each of the others once"
    );
    println!("{} jobs in an hour, the latest run {latest:?} after its time", began.len());
    assert_eq!(latest, Duration::ZERO, "they do not drift");
    worker.shutdown().await;
}

/// By job, which seconds, and how late the latest of all was.
type Judged = (BTreeMap<String, Vec<u64>>, Duration);

#[derive(Clone, Debug, Default)]
struct Began {
    judged: Arc<Mutex<Judged>>,
    more: Arc<Notify>,
}

impl Began {
    fn note(&self, job: &str, second: u64, late: Duration) {
        let mut began = self.lock();
        began.0.entry(job.to_owned()).or_default().push(second);
        began.1 = began.1.max(late);
        drop(began);
        self.more.notify_one();
    }

    /// Waits until the job of every second has begun for this one, and so many jobs at least once.
    async fn until(&self, second: u64, jobs: usize) {
        let wait = async {
            loop {
                let more = self.more.notified();
                if self.has("cron:every-second", second) && self.len() == jobs {
                    return;
                }
                more.await;
            }
        };
        tokio::time::timeout(SOON, wait).await.expect("it comes soon");
    }

    fn has(&self, job: &str, second: u64) -> bool {
        self.lock().0.get(job).is_some_and(|seconds| seconds.last() >= Some(&second))
    }

    /// How many jobs have begun at least once.
    fn len(&self) -> usize {
        self.lock().0.len()
    }

    fn lock(&self) -> MutexGuard<'_, Judged> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self) -> Judged {
        self.lock().clone()
    }
}

/// This month: 1 to 12, give or take a day.
fn month() -> u64 {
    let days =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs() / 86_400;
    (days % 365 / 31) % 12 + 1
}

/// The time that all threads of this process have used.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}
