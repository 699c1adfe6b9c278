//! Figures that follow from round trips and a timing. Prints nothing.

use std::time::Duration;

use tenure::Timing;
use tenure::admin::{Measured, RoundTrip};
use tenure::store::{Impact, Warning};

use crate::timeline::LATEST_SUCCESSION;

/// Replies that take longer than this part of the ttl do not help to judge the store's clock.
const COUNTED_PART: u32 = 20;
/// With a shorter one a busy machine, on which a process may wait for some hundred milliseconds, costs leases.
const SHORTEST_SUGGESTED: Duration = Duration::from_secs(2);

/// What was measured and examined.
pub(crate) struct Findings {
    pub(crate) proves_deaths: bool,
    pub(crate) concerns: Vec<Warning>,
    pub(crate) clock: Clock,
    pub(crate) figures: Figures,
}

impl Findings {
    /// Whether two workers never own at once.
    pub(crate) fn is_safe(&self) -> bool {
        self.concerns.iter().all(|concern| concern.cost < Impact::Exclusion)
    }
}

/// How long replies took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trips {
    pub(crate) count: usize,
    pub(crate) median: Duration,
    /// All but a hundredth were faster; of fewer than a hundred, all.
    pub(crate) p99: Duration,
    pub(crate) slowest: Duration,
}

impl Trips {
    fn of(trips: &[RoundTrip]) -> Self {
        let mut took: Vec<Duration> = trips.iter().map(|trip| trip.took).collect();
        took.sort_unstable();
        let at = |part: usize| took.get((took.len() * part / 100).min(took.len().saturating_sub(1)));
        let at = |part: usize| at(part).copied().unwrap_or_default();
        Self { count: took.len(), median: at(50), p99: at(99), slowest: at(100) }
    }
}

/// How the store's clock runs beside this host's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Clock {
    /// It is the same.
    Shared,
    Server(ServerClock),
}

/// The wall clock of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ServerClock {
    /// Negative if it is behind.
    pub(crate) ahead_us: i64,
    pub(crate) uncertain: Duration,
    /// By how many percent its rate differs from that of this host's clock, which nobody sets; and the error of that.
    pub(crate) rate: Option<(f64, f64)>,
}

impl ServerClock {
    /// The fastest reply says most about the difference; the fastest early and the fastest late one about the rate.
    pub(crate) fn of(trips: &[RoundTrip]) -> Self {
        // The server read its clock between request and reply. Take the middle; half of the round trip is the error.
        let difference = |trip: &RoundTrip| {
            let middle = trip.wall_us as f64 + trip.took.as_secs_f64() * 5e5;
            (trip.store_us as f64 - middle) as i64
        };
        let fastest = |trips: &[RoundTrip]| trips.iter().min_by_key(|trip| trip.took).copied();
        let best = fastest(trips);
        let third = trips.len() / 3;
        let ends = fastest(&trips[..third]).zip(fastest(&trips[trips.len() - third..]));
        let rate = ends.and_then(|(first, last)| {
            let middle = |trip: &RoundTrip| trip.sent_after.as_secs_f64() + trip.took.as_secs_f64() / 2.0;
            let here = middle(&last) - middle(&first);
            let there = (last.store_us as f64 - first.store_us as f64) / 1e6;
            let error = (first.took + last.took).as_secs_f64() / 2.0;
            (here > 0.0).then(|| (100.0 * (there - here).abs() / here, 100.0 * error / here))
        });
        let (ahead_us, uncertain) =
            best.map_or((0, Duration::ZERO), |best| (difference(&best), best.took / 2));
        Self { ahead_us, uncertain, rate }
    }
}

/// What the timing is worth on this store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) timing: Timing,
    pub(crate) asking: Trips,
    pub(crate) renewing: Trips,
    /// The longest ttl that the namespace has seen, if any.
    pub(crate) longest: Duration,
}

impl Figures {
    pub(crate) fn of(timing: Timing, measured: &Measured) -> Self {
        let (asking, renewing) = (Trips::of(&measured.asked), Trips::of(&measured.renewed));
        Self { timing, asking, renewing, longest: measured.longest }
    }

    /// From the death of an owner to the next one, at worst: it had just renewed.
    pub(crate) fn worst_failover(&self) -> Duration {
        self.timing.ttl() + LATEST_SUCCESSION + self.renewing.slowest.max(self.asking.slowest)
    }

    /// How long the store may be away without anybody losing anything: at worst it goes just before a renewal, at
    /// best just after one. What the first answer afterwards takes is not outage.
    pub(crate) fn outage(&self) -> (Duration, Duration) {
        let trust = self.timing.trust().saturating_sub(self.renewing.p99);
        (trust.saturating_sub(self.timing.renew()), trust)
    }

    /// The shortest ttl that leaves room for the slow answers of this store, rounded up to what people would write.
    pub(crate) fn suggested_ttl(&self) -> Duration {
        let wanted = (self.renewing.p99.max(self.asking.p99) * COUNTED_PART).max(SHORTEST_SUGGESTED);
        let nice = [2, 3, 5, 10, 15, 20, 30, 60, 90, 120, 180, 300, 600, 900, 1_800, 3_600];
        let fits = nice.into_iter().map(Duration::from_secs).find(|ttl| *ttl >= wanted);
        fits.unwrap_or(Duration::from_secs(3_600))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trips(took_ms: impl IntoIterator<Item = u64>) -> Trips {
        let mut took: Vec<Duration> = took_ms.into_iter().map(Duration::from_millis).collect();
        took.sort_unstable();
        Trips {
            count: took.len(),
            median: took[took.len() / 2],
            p99: took[took.len() * 99 / 100],
            slowest: took[took.len() - 1],
        }
    }

    fn figures(ttl_s: u64, slow_ms: u64) -> Figures {
        let timing = Timing::new(Duration::from_secs(ttl_s)).expect("it is sound");
        Figures { timing, asking: trips([1]), renewing: trips([slow_ms]), longest: Duration::ZERO }
    }

    #[test]
    fn the_default_ttl_survives_seven_seconds_and_fails_over_in_fifteen() {
        let figures = figures(15, 10);

        assert_eq!(figures.worst_failover(), Duration::from_millis(15_060));
        assert_eq!(figures.outage(), (Duration::from_millis(6_990), Duration::from_millis(11_990)));
    }

    #[test]
    fn a_slow_store_wants_a_longer_ttl_and_a_fast_one_is_limited_by_the_machine() {
        assert_eq!(figures(15, 1).suggested_ttl(), Duration::from_secs(2));
        assert_eq!(figures(15, 400).suggested_ttl(), Duration::from_secs(10));
        assert_eq!(figures(15, 1_000_000).suggested_ttl(), Duration::from_secs(3_600));
    }
}
