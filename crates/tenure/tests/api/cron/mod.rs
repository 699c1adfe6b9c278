//! Jobs at set times and work that is done once, on the memory store with a clock that is moved by hand.
#![cfg(feature = "cron")]

mod chaos;
mod gate;
mod jobs;
mod links;
mod once;
mod policies;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::admin::Admin;
use tenure::jobs::JobView;
use tenure::jobs::cron::{Change, Changes};
use tenure::store::{MemoryStore, OpenStore};
use tenure::testing::ManualClock;
use tenure::{Timing, Worker};
use testkit::soon;

/// How long a condition may take to come true, in real time.
const SOON: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(15);

/// One store in memory, and its clock.
struct Stage {
    clock: ManualClock,
    store: Arc<MemoryStore>,
    opened: OpenStore,
}

impl Stage {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::by_hand(clock.clone()));
        let opened = OpenStore::memory(store.clone()).expect("a thread");
        Self { clock, store, opened }
    }

    async fn worker(&self, label: &str) -> Worker {
        let builder = Worker::on(self.opened.clone()).label(label).timing(Timing::new(TTL).expect("sound"));
        builder.connect().await.expect("a worker")
    }

    async fn job(&self, resource: &str) -> JobView {
        let job = Admin::on(self.opened.clone()).job(resource).await;
        job.expect("an answer").expect("somebody has taken it up")
    }

    /// Lets time go by in small steps, as it does, until it is so.
    async fn until(&self, mut is_so: impl FnMut() -> bool) {
        self.until_by(Duration::from_millis(100), &mut is_so).await;
    }

    async fn until_by(&self, step: Duration, is_so: &mut impl FnMut() -> bool) {
        soon(async {
            while !is_so() {
                self.clock.advance(step);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    /// The next change, however much time has to go by for it.
    async fn next(&self, changes: &mut Changes) -> Change {
        let next = async {
            loop {
                tokio::select! {
                    change = changes.next() => return change.expect("it goes on"),
                    () = tokio::time::sleep(Duration::from_millis(1)) => self.clock.advance(Duration::from_millis(100)),
                }
            }
        };
        soon(next).await
    }
}

/// What the runs of a job write down themselves.
#[derive(Clone, Debug, Default)]
struct Book(Arc<Mutex<Vec<Run>>>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    second: u64,
    attempt: u32,
    key: String,
    token: u64,
}

impl Book {
    fn write(&self, tick: &tenure::jobs::cron::Tick) {
        let run = Run {
            second: second(tick.occurrence()),
            attempt: tick.attempt(),
            key: tick.key().to_owned(),
            token: tick.lead().token(),
        };
        self.runs().push(run);
    }

    fn runs(&self) -> std::sync::MutexGuard<'_, Vec<Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seconds(&self) -> Vec<u64> {
        self.runs().iter().map(|run| run.second).collect()
    }

    fn len(&self) -> usize {
        self.runs().len()
    }
}

/// A job that writes its runs into the book.
fn writing(book: &Book) -> impl FnMut(tenure::jobs::cron::Tick) -> std::future::Ready<()> + Send + 'static {
    let book = book.clone();
    move |tick| {
        book.write(&tick);
        std::future::ready(())
    }
}

fn second(occurrence: tenure::jobs::Occurrence) -> u64 {
    occurrence.since_epoch().as_secs()
}
