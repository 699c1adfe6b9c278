//! How late the machine itself is: what is promised of a worker cannot hold to the millisecond where nobody gets a
//! processor in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{Micros, boottime};

const TICK: Duration = Duration::from_millis(5);

/// Ticks in a thread of its own until it is stopped.
#[derive(Debug)]
pub struct Metronome {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Lateness>,
}

/// When a tick was to come, and how late it was.
#[derive(Clone, Debug, Default)]
pub struct Lateness(Vec<(Micros, Duration)>);

impl Metronome {
    /// Begins to tick.
    #[must_use]
    pub fn start() -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let told = stops.clone();
        let thread = std::thread::spawn(move || {
            let mut late = Lateness::default();
            while !told.load(Ordering::Relaxed) {
                let began = boottime();
                std::thread::sleep(TICK);
                let took = Duration::from_micros(boottime() - began);
                late.0.push((began, took.saturating_sub(TICK)));
            }
            late
        });
        Self { stops, thread }
    }

    /// How late it was so far.
    ///
    /// # Panics
    /// When its thread has.
    #[must_use]
    pub fn stop(self) -> Lateness {
        self.stops.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only sleeps")
    }
}

impl Lateness {
    /// The worst of those that fell into this time.
    #[must_use]
    pub fn within(&self, from: Micros, to: Micros) -> Duration {
        let fell = self.0.iter().filter(|(began, late)| {
            let ended = began + u64::try_from((TICK + *late).as_micros()).expect("short");
            *began <= to && from <= ended
        });
        fell.map(|(_, late)| *late).max().unwrap_or_default()
    }

    /// Half of them were later than this.
    #[must_use]
    pub fn median(&self) -> Duration {
        let mut late: Vec<Duration> = self.0.iter().map(|(_, late)| *late).collect();
        late.sort();
        late.get(late.len() / 2).copied().unwrap_or_default()
    }

    /// The worst of all.
    #[must_use]
    pub fn worst(&self) -> Duration {
        self.within(0, Micros::MAX)
    }
}
