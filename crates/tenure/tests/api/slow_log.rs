//! A log or a metrics recorder of the application that blocks. Alone in its process: both belong to all of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tenure::store::{MemoryStore, OpenStore};
use tenure::testing::ManualClock;
use tenure::{Ownership, Timing, Worker};
use testkit::child::is_alone;

const TTL: Duration = Duration::from_secs(15);
const LIMIT: Duration = Duration::from_secs(20);

/// Holds up whoever passes it while it is shut.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
    is_waited_at: AtomicBool,
}

impl Gate {
    fn shut(&self) {
        *self.is_shut.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    fn open(&self) {
        *self.is_shut.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut is_shut = self.is_shut.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_shut {
            self.is_waited_at.store(true, Ordering::SeqCst);
            is_shut = self.opened.wait(is_shut).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_waited_at(&self) -> bool {
        self.is_waited_at.load(Ordering::SeqCst)
    }
}

struct Log(Arc<Gate>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.pass();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Figures(Arc<Gate>);

impl Recorder for Figures {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.0.pass();
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.0.pass();
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.0.pass();
        Histogram::noop()
    }
}

/// Lets time go by for three ttls: without renewals the lease would end three times.
fn is_renewed_for_three_ttls(clock: &ManualClock, own: &Ownership) {
    for _ in 0..8 {
        clock.advance(TTL * 2 / 5);
        testkit::eventually(LIMIT, "a renewal", || own.remaining() > TTL * 4 / 5);
        assert!(own.holds());
    }
}

// req: T8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_or_a_recorder_that_blocks_costs_no_lease() {
    if !is_alone(module_path!(), "a_log_or_a_recorder_that_blocks_costs_no_lease") {
        return;
    }
    let (log, figures) = (Arc::<Gate>::default(), Arc::<Gate>::default());
    let to = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || Log(to.clone())).finish();
    tracing::subscriber::set_global_default(subscriber).expect("no other subscriber");
    metrics::set_global_recorder(Figures(figures.clone())).map_err(drop).expect("no other recorder");
    let clock = ManualClock::new();
    let opened = OpenStore::memory(Arc::new(MemoryStore::by_hand(clock.clone()))).expect("a thread");
    let worker =
        Worker::on(opened).timing(Timing::new(TTL).expect("sound")).connect().await.expect("a worker");
    log.shut();
    let own = worker.campaign("r").acquire().await.expect("a ticket");

    testkit::eventually(LIMIT, "the log blocks", || log.is_waited_at());
    tokio::task::block_in_place(|| is_renewed_for_three_ttls(&clock, &own));
    figures.shut();
    log.open();
    testkit::eventually(LIMIT, "the recorder blocks", || figures.is_waited_at());
    tokio::task::block_in_place(|| is_renewed_for_three_ttls(&clock, &own));

    figures.open();
    own.release().await;
    worker.shutdown().await;
}
