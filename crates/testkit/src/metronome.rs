//! How late the machine itself is: what is promised of a worker cannot hold to the millisecond where nobody gets a
//! processor in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{Micros, boottime};

const TICK: Duration = Duration::from_millis(5);
/// The kernel is asked every so many ticks.
const ASKED: usize = 4;

/// Ticks in a thread of its own until it is stopped.
#[derive(Debug)]
pub struct Metronome {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Lateness>,
}

/// How late the machine was, and when.
#[derive(Clone, Debug, Default)]
pub struct Lateness {
    /// When a tick was to come, and how late it was.
    ticks: Vec<(Micros, Duration)>,
    /// For how long tasks had waited for a processor until then, by the kernel's count.
    stalls: Vec<(Micros, Micros)>,
}

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
                late.ticks.push((began, took.saturating_sub(TICK)));
                if late.ticks.len().is_multiple_of(ASKED) {
                    late.stalls.push((boottime(), stalled()));
                }
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
        self.fell(from, to).max().unwrap_or_default()
    }

    fn fell(&self, from: Micros, to: Micros) -> impl Iterator<Item = Duration> {
        let fell = self.ticks.iter().filter(move |(began, late)| {
            let ended = began + u64::try_from((TICK + *late).as_micros()).expect("short");
            *began <= to && from <= ended
        });
        fell.map(|(_, late)| *late)
    }

    /// All the lateness within this time, added up: at most so long did a thread like this one wait for a processor.
    #[must_use]
    pub fn total(&self, from: Micros, to: Micros) -> Duration {
        self.fell(from, to).sum()
    }

    /// For how long some task of this machine waited for a processor within this time; nothing where the kernel does not say.
    #[must_use]
    pub fn stalled(&self, from: Micros, to: Micros) -> Duration {
        let before = self.stalls.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let after = self.stalls.partition_point(|(at, _)| *at < to).min(self.stalls.len().saturating_sub(1));
        let count = |index: usize| self.stalls.get(index).map_or(0, |(_, stalled)| *stalled);
        Duration::from_micros(count(after).saturating_sub(count(before)))
    }

    /// Half of them were later than this.
    #[must_use]
    pub fn median(&self) -> Duration {
        let mut late: Vec<Duration> = self.ticks.iter().map(|(_, late)| *late).collect();
        late.sort();
        late.get(late.len() / 2).copied().unwrap_or_default()
    }

    /// The worst of all.
    #[must_use]
    pub fn worst(&self) -> Duration {
        self.within(0, Micros::MAX)
    }
}

/// For how long tasks of this machine have waited for a processor since it booted.
fn stalled() -> Micros {
    let pressure = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let total = pressure.lines().next().and_then(|some| some.rsplit_once("total="));
    total.and_then(|(_, micros)| micros.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_late_counts_where_it_fell() {
        let ticks = vec![(0, Duration::ZERO), (5_000, Duration::from_millis(50)), (60_000, Duration::ZERO)];
        let late = Lateness { ticks, stalls: vec![(0, 100), (50_000, 20_100), (60_000, 20_100)] };

        assert_eq!(late.within(0, 4_000), Duration::ZERO);
        assert_eq!(late.within(20_000, 30_000), Duration::from_millis(50));
        assert_eq!(late.total(0, 70_000), Duration::from_millis(50));
        assert_eq!(late.stalled(10_000, 40_000), Duration::from_millis(20));
        assert_eq!(late.stalled(55_000, 60_000), Duration::ZERO);
        assert_eq!(Lateness::default().stalled(0, 1), Duration::ZERO);
    }
}
