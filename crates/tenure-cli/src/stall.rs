//! Whether this very process stood still: stopped, suspended or starved. Then a loss is not the store's fault.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Looks at the boot clock, which counts suspend, again and again: a look that came late shows a standstill.
#[derive(Debug)]
pub(crate) struct StallDetector {
    period: Duration,
    looked_at: Cell<Duration>,
    /// The latest standstill that was worth noting: when it was over, and how long it was.
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

    /// For how long this process stood still just now, if that was long enough to lose a lease by.
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
        // What runs out lasted for the whole trust; an older standstill is not why.
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
    fn looks_that_are_on_time_show_no_standstill() {
        let (watch, at) = after(&[500, 1_000, 1_600, 2_100]);

        assert_eq!(watch.latest_at(at(2_200)), None);
    }

    #[test]
    fn a_look_that_is_late_shows_for_how_long_it_stood_still() {
        let (watch, at) = after(&[500, 10_000, 10_500]);

        assert_eq!(watch.latest_at(at(10_600)), Some(Duration::from_secs(9)));
    }

    #[test]
    fn a_standstill_of_long_ago_and_a_short_one_are_no_reason() {
        let (watch, at) = after(&[500, 10_000, 12_000, 14_000]);
        assert_eq!(watch.latest_at(at(14_100)), None);

        let (watch, at) = after(&[500, 3_000]);
        assert_eq!(watch.latest_at(at(3_100)), None);
    }
}
