//! Points in time, always handed in: [`Moment`] on the worker's own clocks, [`StoreTime`] on the store's.
//!
//! They are different types on purpose. A worker never compares its own time with the store's; it only
//! measures how long ago something was.

use core::ops::Add;
use core::time::Duration;

/// A reading of the worker's two clocks: one that counts suspend but is slewed by NTP (BOOTTIME), one that
/// is not slewed but stops in suspend (MONOTONIC_RAW).
///
/// Neither is right alone. Whoever owns something believes the clock that has run further, whoever waits
/// for another's end believes the one that has run less; so both err on the safe side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    boot: u64,
    raw: u64,
}

impl Moment {
    /// The moment at which the clocks show `boot` and `raw`, each counted from a start of its own.
    #[must_use]
    pub const fn new(boot: Duration, raw: Duration) -> Self {
        Self { boot: micros(boot), raw: micros(raw) }
    }

    /// What the clock that counts suspend shows, in microseconds.
    #[must_use]
    pub const fn boot_micros(self) -> u64 {
        self.boot
    }

    /// What the clock that is not slewed shows, in microseconds.
    #[must_use]
    pub const fn raw_micros(self) -> u64 {
        self.raw
    }

    /// How much time may have gone by since `earlier`: the owner's measure.
    #[must_use]
    pub fn longest_since(self, earlier: Self) -> Duration {
        let (boot, raw) = self.since(earlier);
        Duration::from_micros(boot.max(raw))
    }

    /// How much time has surely gone by since `earlier`: the candidate's measure.
    #[must_use]
    pub fn shortest_since(self, earlier: Self) -> Duration {
        let (boot, raw) = self.since(earlier);
        Duration::from_micros(boot.min(raw))
    }

    /// Whether `deadline` may have come: the owner's question.
    #[must_use]
    pub const fn has_reached(self, deadline: Self) -> bool {
        self.boot >= deadline.boot || self.raw >= deadline.raw
    }

    /// Whether `deadline` has surely come: the candidate's question.
    #[must_use]
    pub const fn has_surely_reached(self, deadline: Self) -> bool {
        self.boot >= deadline.boot && self.raw >= deadline.raw
    }

    /// How long until [`has_reached`](Self::has_reached) can turn true.
    #[must_use]
    pub fn until(self, deadline: Self) -> Duration {
        let (boot, raw) = deadline.since(self);
        Duration::from_micros(boot.min(raw))
    }

    /// How long until [`has_surely_reached`](Self::has_surely_reached) can turn true.
    #[must_use]
    pub fn surely_until(self, deadline: Self) -> Duration {
        let (boot, raw) = deadline.since(self);
        Duration::from_micros(boot.max(raw))
    }

    /// The deadline that is reached as soon as this one or `other` is.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { boot: self.boot.min(other.boot), raw: self.raw.min(other.raw) }
    }

    const fn since(self, earlier: Self) -> (u64, u64) {
        (self.boot.saturating_sub(earlier.boot), self.raw.saturating_sub(earlier.raw))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        let span = micros(span);
        Self { boot: self.boot.saturating_add(span), raw: self.raw.saturating_add(span) }
    }
}

/// A point in time on the store's clock, in microseconds. Only the store says what it is; it may step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreTime(u64);

impl StoreTime {
    /// The time at which the store's clock shows `micros`.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// What the store's clock shows, in microseconds.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The span from `earlier` to this; nothing when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for StoreTime {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }
}

/// A span in whole microseconds; one beyond 584 000 years is cut there.
pub(crate) const fn micros(span: Duration) -> u64 {
    let micros = span.as_micros();
    if micros > u64::MAX as u128 { u64::MAX } else { micros as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(boot: u64, raw: u64) -> Moment {
        Moment::new(Duration::from_secs(boot), Duration::from_secs(raw))
    }

    #[test]
    fn after_a_suspend_the_owner_counts_it_and_the_candidate_does_not() {
        let before = at(100, 100);
        let after = at(160, 101);

        assert_eq!(after.longest_since(before), Duration::from_secs(60));
        assert_eq!(after.shortest_since(before), Duration::from_secs(1));
    }

    #[test]
    fn a_deadline_may_have_come_when_one_clock_shows_it_and_surely_when_both_do() {
        let deadline = at(100, 100) + Duration::from_secs(5);

        assert!(!at(104, 104).has_reached(deadline));
        assert!(at(105, 101).has_reached(deadline) && !at(105, 101).has_surely_reached(deadline));
        assert!(at(105, 105).has_surely_reached(deadline));
        assert_eq!(at(101, 103).until(deadline), Duration::from_secs(2));
        assert_eq!(at(101, 103).surely_until(deadline), Duration::from_secs(4));
    }

    #[test]
    fn the_earlier_of_two_deadlines_is_reached_with_either() {
        let both = at(10, 30).or(at(20, 20));

        assert!(at(10, 0).has_reached(both) && at(0, 20).has_reached(both) && !at(9, 19).has_reached(both));
    }

    #[test]
    fn time_before_the_start_and_beyond_the_end_saturates() {
        assert_eq!(at(1, 1).longest_since(at(2, 2)), Duration::ZERO);
        assert_eq!(StoreTime::from_micros(1).since(StoreTime::from_micros(2)), Duration::ZERO);
        assert_eq!((at(1, 1) + Duration::MAX).boot_micros(), u64::MAX);
    }
}
