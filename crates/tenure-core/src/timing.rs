//! How long things last: the settings of a worker's lease. A [`Timing`] that exists is sound.

use core::fmt;
use core::time::Duration;

/// The shortest lease: below it the drift allowance and the scheduler of the machine eat the margin.
pub const SHORTEST_TTL: Duration = Duration::from_millis(100);
/// The longest lease: a quarantine lasts as long.
pub const LONGEST_TTL: Duration = Duration::from_secs(3600);
/// The shortest interval between renewals.
pub const SHORTEST_RENEW: Duration = Duration::from_millis(1);
/// The shortest beacon.
pub const SHORTEST_BEACON: Duration = Duration::from_millis(10);
/// The largest drift allowance, in percent; beyond it little of a lease would be left.
pub const LARGEST_DRIFT: u8 = 30;

/// What a newcomer makes of the store's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Clock {
    /// The store's clock has not stepped within the last ttl: a newcomer claims at once.
    #[default]
    Sane,
    /// It may have: a newcomer, or one that heard nothing for a while, watches for one `longest` first.
    Strict,
}

/// The spans of a worker's lease.
///
/// Only `ttl` has to be chosen; [`Timing::new`] derives the rest. Every setter checks the whole and refuses
/// with a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    ttl: Duration,
    renew: Duration,
    margin: Duration,
    grace: Duration,
    beacon: Option<Duration>,
    drift: u8,
    clock: Clock,
}

impl Timing {
    /// Renewed every 5 s, lost after 15 s. The default.
    pub const FAST: Self = Self::derived(Duration::from_secs(15));
    /// Renewed every 10 s, lost after 30 s.
    pub const NORMAL: Self = Self::derived(Duration::from_secs(30));
    /// Renewed every 30 s, lost after 90 s: for links that come and go.
    pub const UNRELIABLE: Self = Self::derived(Duration::from_secs(90));

    /// A lease of `ttl`, renewed every third of it, with a margin of a tenth and a grace of one ttl.
    ///
    /// # Errors
    /// When `ttl` is outside [`SHORTEST_TTL`] to [`LONGEST_TTL`].
    pub fn new(ttl: Duration) -> Result<Self, TimingError> {
        Self::derived(ttl).checked()
    }

    /// The same with another interval between renewals: at most a third of the ttl.
    ///
    /// # Errors
    /// When the interval leaves no room for a second try within the lease.
    pub fn with_renew(self, renew: Duration) -> Result<Self, TimingError> {
        Self { renew, ..self }.checked()
    }

    /// The same with another margin: what the work has, once told, to be gone before another may come.
    ///
    /// # Errors
    /// When the trust that is left is shorter than two renew intervals.
    pub fn with_margin(self, margin: Duration) -> Result<Self, TimingError> {
        Self { margin, ..self }.checked()
    }

    /// The same with another grace: how long a gentle stop waits before the harder one.
    #[must_use]
    pub const fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// The same with a beacon: unless the application beats within `span`, renewals stop.
    ///
    /// # Errors
    /// When the span is below [`SHORTEST_BEACON`]: no application beats as often.
    pub fn with_beacon(self, span: Duration) -> Result<Self, TimingError> {
        Self { beacon: Some(span), ..self }.checked()
    }

    /// The same with another allowance for unequal clock rates, in percent.
    ///
    /// # Errors
    /// When it is not within 1 to [`LARGEST_DRIFT`], or leaves too little trust.
    pub fn with_drift(self, percent: u8) -> Result<Self, TimingError> {
        Self { drift: percent, ..self }.checked()
    }

    /// The same with another view of the store's clock.
    #[must_use]
    pub const fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// How long the store keeps a lease that is not renewed.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The interval between renewals.
    #[must_use]
    pub const fn renew(&self) -> Duration {
        self.renew
    }

    /// How much earlier than the store the worker stops.
    #[must_use]
    pub const fn margin(&self) -> Duration {
        self.margin
    }

    /// How long a gentle stop waits before the harder one.
    #[must_use]
    pub const fn grace(&self) -> Duration {
        self.grace
    }

    /// Within which span the application has to beat, if it has to.
    #[must_use]
    pub const fn beacon(&self) -> Option<Duration> {
        self.beacon
    }

    /// How the store's clock is seen.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// How long an answered renewal is relied on, counted from before it was sent: `ttl * (1 - drift) - margin`.
    #[must_use]
    pub const fn trust(&self) -> Duration {
        self.undrifted().saturating_sub(self.margin)
    }

    const fn undrifted(&self) -> Duration {
        Duration::from_micros((self.ttl.as_micros() as u64) / 100 * (100 - self.drift) as u64)
    }

    const fn derived(ttl: Duration) -> Self {
        Self {
            ttl,
            renew: Duration::from_micros(ttl.as_micros() as u64 / 3),
            margin: Duration::from_micros(ttl.as_micros() as u64 / 10),
            grace: ttl,
            beacon: None,
            drift: 10,
            clock: Clock::Sane,
        }
    }

    fn checked(self) -> Result<Self, TimingError> {
        let Self { ttl, renew, margin, drift, .. } = self;
        if ttl < SHORTEST_TTL || ttl > LONGEST_TTL {
            return Err(TimingError::Ttl { ttl });
        }
        if drift == 0 || drift > LARGEST_DRIFT {
            return Err(TimingError::Drift { percent: drift });
        }
        if renew < SHORTEST_RENEW || renew > ttl / 3 {
            return Err(TimingError::Renew { renew, ttl });
        }
        if margin < ttl / 100 {
            return Err(TimingError::NoMargin { margin, ttl });
        }
        if let Some(beacon) = self.beacon.filter(|beacon| *beacon < SHORTEST_BEACON) {
            return Err(TimingError::Beacon { beacon });
        }
        if self.trust() < renew * 2 {
            return Err(TimingError::Margin { margin, renew, trust: self.trust() });
        }
        Ok(self)
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::FAST
    }
}

/// Why a timing was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimingError {
    /// The ttl is outside its limits.
    Ttl {
        /// The ttl that was asked for.
        ttl: Duration,
    },
    /// The renew interval is more than a third of the ttl, or nothing.
    Renew {
        /// The interval that was asked for.
        renew: Duration,
        /// The ttl that it was asked for with.
        ttl: Duration,
    },
    /// The margin leaves less trust than two renew intervals.
    Margin {
        /// The margin that was asked for.
        margin: Duration,
        /// The interval between renewals.
        renew: Duration,
        /// The trust that would be left.
        trust: Duration,
    },
    /// The margin leaves the work no time to stop.
    NoMargin {
        /// The margin that was asked for.
        margin: Duration,
        /// The ttl that it was asked for with.
        ttl: Duration,
    },
    /// The beacon is too short.
    Beacon {
        /// The beacon that was asked for.
        beacon: Duration,
    },
    /// The drift allowance is outside its limits.
    Drift {
        /// The allowance that was asked for.
        percent: u8,
    },
}

impl fmt::Display for TimingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ttl { ttl } => {
                write!(f, "a ttl of {ttl:?} is outside {SHORTEST_TTL:?} to {LONGEST_TTL:?}")
            }
            Self::Renew { renew, .. } if *renew < SHORTEST_RENEW => {
                write!(f, "a renew interval of {renew:?} is below {SHORTEST_RENEW:?}")
            }
            Self::Renew { renew, ttl } => write!(
                f,
                "a renew interval of {renew:?} leaves no room for a second try within a lease of {ttl:?}: \
                 at most a third, {:?}",
                *ttl / 3
            ),
            Self::Margin { margin, renew, trust } => write!(
                f,
                "a margin of {margin:?} leaves {trust:?} of trust, less than two renew intervals of {renew:?}"
            ),
            Self::NoMargin { margin, ttl } => write!(
                f,
                "a margin of {margin:?} leaves the work no time to stop: at least a hundredth of the ttl, {:?}",
                *ttl / 100
            ),
            Self::Beacon { beacon } => write!(f, "a beacon of {beacon:?} is below {SHORTEST_BEACON:?}"),
            Self::Drift { percent } => {
                write!(f, "a drift allowance of {percent} % is outside 1 % to {LARGEST_DRIFT} %")
            }
        }
    }
}

impl core::error::Error for TimingError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const SECOND: Duration = Duration::from_secs(1);

    // req: T5
    #[test]
    fn the_presets_renew_at_exactly_a_third() {
        for (preset, renew, ttl) in
            [(Timing::FAST, 5, 15), (Timing::NORMAL, 10, 30), (Timing::UNRELIABLE, 30, 90)]
        {
            assert_eq!((preset.renew(), preset.ttl()), (SECOND * renew, SECOND * ttl));
            assert_eq!(preset.checked(), Ok(preset));
        }
        assert_eq!(Timing::default().ttl(), 15 * SECOND);
    }

    #[test]
    fn trust_is_the_ttl_less_drift_and_margin() {
        assert_eq!(Timing::FAST.trust(), Duration::from_millis(12_000));
    }

    // req: T5
    #[test]
    fn unsound_settings_are_refused_with_a_sentence() {
        let nine = Timing::new(9 * SECOND).unwrap();

        let refused = [
            (Timing::new(Duration::from_millis(99)), "a ttl of 99ms is outside 100ms to 3600s"),
            (Timing::new(3601 * SECOND), "a ttl of 3601s is outside 100ms to 3600s"),
            (
                nine.with_renew(8 * SECOND),
                "a renew interval of 8s leaves no room for a second try within a lease of 9s: at most a third, 3s",
            ),
            (nine.with_renew(Duration::ZERO), "a renew interval of 0ns is below 1ms"),
            (nine.with_beacon(Duration::ZERO), "a beacon of 0ns is below 10ms"),
            (
                nine.with_margin(Duration::ZERO),
                "a margin of 0ns leaves the work no time to stop: at least a hundredth of the ttl, 90ms",
            ),
            (
                nine.with_margin(4 * SECOND),
                "a margin of 4s leaves 4.1s of trust, less than two renew intervals of 3s",
            ),
            (nine.with_drift(0), "a drift allowance of 0 % is outside 1 % to 30 %"),
            (nine.with_drift(31), "a drift allowance of 31 % is outside 1 % to 30 %"),
        ];

        for (timing, sentence) in refused {
            assert_eq!(timing.unwrap_err().to_string(), sentence);
        }
    }

    #[test]
    fn the_limits_themselves_are_allowed() {
        for ttl in [SHORTEST_TTL, LONGEST_TTL] {
            assert_eq!(Timing::new(ttl).unwrap().ttl(), ttl);
        }
    }
}
