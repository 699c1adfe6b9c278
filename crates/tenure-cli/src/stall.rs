//! Detects that this process stood still: stopped, suspended or starved. Then a loss is not the store's fault.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Reads the boot clock, which counts suspend, at intervals: a late reading shows a stall.
#[derive(Debug)]
pub(crate) struct StallDetector {
    period: Duration,
    looked_at: Cell<Duration>,
    /// The latest long stall: when it ended, and how long it was.
    latest: Cell<Option<(Duration, Duration)>>,
    trust: Duration,
}

impl StallDetector {
    /// `trust` is how long a lease rides out one.
    pub(crate) fn new(trust: Duration) -> Self {
        // Often enough to tell it from the trust, seldom enough to cost nothing.
        let period = (trust / 16).clamp(Duration::from_millis(5), Duration::from_secs(1));
        Self { period, looked_at: Cell::new(now()), latest: Cell::new(None), trust }
    }

    /// Looks until it is dropped.
    pub(crate) async fn watch(&self) {
        loop {
            tokio::time::sleep(self.period).await;
            self.look_at(now());
        }
    }

    /// How long this process stalled just now, if that was long enough to lose a lease.
    pub(crate) fn just_now(&self) -> Option<Duration> {
        let now = now();
        self.look_at(now);
        self.latest_at(now)
    }

    fn look_at(&self, now: Duration) {
        let still = now.saturating_sub(self.looked_at.replace(now)).saturating_sub(self.period);
        if still >= self.trust / 2 {
            self.latest.set(Some((now, still)));
        }
    }

    fn latest_at(&self, now: Duration) -> Option<Duration> {
        // A lease that runs out lasted for the whole trust; an older stall is not the cause.
        let (over_at, still) = self.latest.get()?;
        (now.saturating_sub(over_at) < self.trust / 2).then_some(still)
    }
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    // It counts up from zero, and a nanosecond part is below a second.
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(looks_ms: &[u64]) -> (StallDetector, impl Fn(u64) -> Duration) {
        let watch = StallDetector::new(Duration::from_secs(8));
        let began = watch.looked_at.get();
        looks_ms.iter().for_each(|ms| watch.look_at(began + Duration::from_millis(*ms)));
        (watch, move |ms| began + Duration::from_millis(ms))
    }

    #[test]
    fn readings_on_time_show_no_stall() {
        let (watch, at) = after(&[500, 1_000, 1_600, 2_100]);

        assert_eq!(watch.latest_at(at(2_200)), None);
    }

    #[test]
    fn a_late_reading_shows_the_length_of_the_stall() {
        let (watch, at) = after(&[500, 10_000, 10_500]);

        assert_eq!(watch.latest_at(at(10_600)), Some(Duration::from_secs(9)));
    }

    #[test]
    fn an_old_stall_and_a_short_one_are_no_reason() {
        let (watch, at) = after(&[500, 10_000, 12_000, 14_000]);
        assert_eq!(watch.latest_at(at(14_100)), None);

        let (watch, at) = after(&[500, 3_000]);
        assert_eq!(watch.latest_at(at(3_100)), None);
    }
}
