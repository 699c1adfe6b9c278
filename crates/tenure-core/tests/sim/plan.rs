//! What one run is like: how many there are, how bad the network is, which faults strike.

use std::time::Duration;

use tenure_core::{Clock, Timing};

use crate::rng::Rng;

/// The world of one seed. Times are real microseconds, rates are millionths.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) workers: usize,
    pub(crate) resources: usize,
    pub(crate) tickets: u32,
    /// The ttl of a worker is one of these, in microseconds.
    pub(crate) ttls: Vec<u64>,
    /// How far clock rates may lie from true, in millionths to either side.
    pub(crate) band: u64,
    /// Which part of the margin the work uses up after it was told to stop, in permille.
    pub(crate) margin_use: u64,
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    pub(crate) slowness: u64,
    /// The store's clock steps. Then every worker is strict.
    pub(crate) steps: bool,
    /// What the store can do.
    pub(crate) clock: bool,
    pub(crate) together: bool,
    pub(crate) restarts: Restarts,
    pub(crate) tickets_change: bool,
    /// The mean real time between two faults, and between two wishes of users and operators.
    pub(crate) fault_every: u64,
    pub(crate) wish_every: u64,
    /// How long the bad time lasts.
    pub(crate) storm: u64,
}

/// What a restart of the store may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Restarts {
    Never,
    Whole,
    SomeLost,
    AllLost,
}

/// A tenth is allowed between any two clocks: 1.0525 / 0.9475 is just below 1 / 0.9.
const FULL_BAND: u64 = 52_500;
/// Where the store's clock steps *and* rates differ, the allowance is used twice: once by the owner, once by
/// the one who judges. Half of the band leaves the whole margin to the work.
const HALF_BAND: u64 = 25_000;

impl Plan {
    pub(crate) fn of(rng: &mut Rng) -> Self {
        let (clock, together) =
            *rng.pick(&[(true, true), (true, true), (true, false), (false, true), (false, false)]);
        let steps = clock && rng.chance(350);
        let restarts = *rng.pick(&[Restarts::Never, Restarts::Whole, Restarts::SomeLost, Restarts::AllLost]);
        let (band, margin_use) = match (*rng.pick(&[0, 1, 2]), steps) {
            (0, _) => (0, 1000),
            (1, true) => (FULL_BAND, 0),
            (_, true) => (HALF_BAND, 1000),
            (_, false) => (FULL_BAND, 1000),
        };
        let base = *rng.pick(&[300_000, 500_000, 1_000_000, 2_000_000]);
        let ttls =
            if restarts != Restarts::AllLost && rng.chance(300) { vec![base, base * 2] } else { vec![base] };
        let longest = *ttls.last().unwrap_or(&base);
        Self {
            workers: rng.range(2, 7) as usize,
            resources: rng.range(1, 5) as usize,
            tickets: rng.range(1, 5) as u32,
            ttls,
            band,
            margin_use,
            loss: *rng.pick(&[0, 10, 50, 200]),
            duplication: *rng.pick(&[0, 0, 10, 30]),
            slowness: *rng.pick(&[0, 20, 100, 250]),
            steps,
            clock,
            together,
            restarts,
            tickets_change: rng.chance(300),
            fault_every: longest * *rng.pick(&[1, 2, 2]) / 8,
            wish_every: longest / *rng.pick(&[5, 12, 24]),
            storm: longest * 80,
        }
    }

    pub(crate) fn longest(&self) -> u64 {
        self.ttls.iter().copied().max().unwrap_or(0)
    }

    pub(crate) fn timing(&self, rng: &mut Rng) -> Timing {
        let ttl = Duration::from_micros(*rng.pick(&self.ttls));
        let clock = if self.steps { Clock::Strict } else { Clock::Sane };
        let timing = Timing::new(ttl).expect("a sound ttl").with_clock(clock);
        match rng.range(0, 3) {
            0 => timing.with_margin(ttl / 20).expect("a sound margin"),
            1 => timing.with_renew(ttl / 5).expect("a sound interval"),
            _ => timing,
        }
    }
}
