//! What one run is like: how many there are, how bad the network is, which faults strike.

use std::time::Duration;

use tenure_core::{Clock, Timing};

use crate::rng::Rng;

/// The world of one seed. Times are real microseconds, rates are millionths.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) theme: Theme,
    pub(crate) workers: usize,
    pub(crate) resources: usize,
    pub(crate) tickets: u32,
    /// The ttl of a worker is one of these, in microseconds.
    pub(crate) ttls: Vec<u64>,
    /// By how much the ttls of newcomers may grow beyond these.
    pub(crate) growth: u64,
    /// How far clock rates may lie from true, in millionths to either side.
    pub(crate) band: u64,
    /// Which part of the margin the work uses up after it was told to stop, in permille.
    pub(crate) margin_use: u64,
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    /// How many of the requests, and of the answers, are slow.
    pub(crate) slowness: u64,
    pub(crate) slow_answers: u64,
    /// The store's clock steps. Then every worker is strict.
    pub(crate) steps: bool,
    /// What the store can do.
    pub(crate) clock: bool,
    pub(crate) together: bool,
    pub(crate) restarts: Restarts,
    /// All data may be wiped while the store is up.
    pub(crate) wipes: bool,
    pub(crate) tickets_change: bool,
    /// One of the clocks of a machine may be much too fast.
    pub(crate) wild: bool,
    /// How many newcomers share the process of another worker, how many leave while they claim, and how many that have
    /// left stay away; in permille.
    pub(crate) shared: u64,
    pub(crate) leaves_soon: u64,
    pub(crate) stays_away: u64,
    /// The mean real time between two faults, and between two wishes of users and operators.
    pub(crate) fault_every: u64,
    pub(crate) wish_every: u64,
    /// The mean real time between two things that a process does in the background.
    pub(crate) chore_every: u64,
    /// How long the bad time lasts.
    pub(crate) storm: u64,
}

/// What a run is about: it makes frequent what is rare by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    /// A little of everything.
    Any,
    /// Many resources in one request.
    Batches,
    /// The store's clock steps, also back and forward again within a lease.
    Clock,
    /// All data is lost, and leases are of different length.
    Losses,
    /// The store falls back to older data while requests are under way.
    Fallbacks,
    /// Answers are slow, and clocks are as far apart as they may be.
    SlowAnswers,
    /// A store without a clock, and machines with one clock that is much too fast.
    WildClocks,
    /// The old primary goes on for a while after a failover.
    OldPrimary,
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
        let plan = Self::any(rng);
        match rng.range(0, 11) {
            0..=2 => plan,
            3 => plan.with_batches(rng),
            4 | 5 => plan.with_clock_steps(rng),
            6 => plan.with_losses(rng),
            7 => plan.with_fallbacks(rng),
            8 => plan.with_slow_answers(rng),
            9 => plan.with_wild_clocks(rng),
            _ => plan.with_old_primary(rng),
        }
    }

    fn any(rng: &mut Rng) -> Self {
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
        let ttls = if rng.chance(300) { vec![base, base * 2] } else { vec![base] };
        let longest = *ttls.last().unwrap_or(&base);
        let slowness = *rng.pick(&[0, 20, 100, 250]);
        Self {
            theme: Theme::Any,
            workers: rng.range(2, 7) as usize,
            resources: rng.range(1, 5) as usize,
            tickets: rng.range(1, 5) as u32,
            ttls,
            growth: 0,
            band,
            margin_use,
            loss: *rng.pick(&[0, 10, 50, 200]),
            duplication: *rng.pick(&[0, 0, 10, 30]),
            slowness,
            slow_answers: slowness,
            steps,
            clock,
            together,
            restarts,
            wipes: restarts == Restarts::AllLost && rng.chance(500),
            tickets_change: rng.chance(300),
            wild: false,
            shared: *rng.pick(&[0, 200, 500]),
            leaves_soon: *rng.pick(&[0, 10, 50]),
            stays_away: *rng.pick(&[0, 200]),
            fault_every: longest * *rng.pick(&[1, 2, 2]) / 8,
            wish_every: longest / *rng.pick(&[5, 12, 24]),
            chore_every: longest / *rng.pick(&[2, 5, 12]),
            storm: longest * *rng.pick(&[30, 60]),
        }
    }

    fn short(self, theme: Theme) -> Self {
        let storm = self.longest() * 24;
        Self { theme, storm, ..self }
    }

    fn with_batches(mut self, rng: &mut Rng) -> Self {
        (self.workers, self.resources) = (rng.range(2, 5) as usize, rng.range(5, 13) as usize);
        self.tickets = rng.range(1, 3) as u32;
        (self.leaves_soon, self.stays_away) = (50, 300);
        self.wish_every = self.longest() / 24;
        self.short(Theme::Batches)
    }

    fn with_clock_steps(mut self, rng: &mut Rng) -> Self {
        (self.clock, self.steps, self.wipes) = (true, true, false);
        self.restarts = *rng.pick(&[Restarts::Never, Restarts::Never, Restarts::Whole, Restarts::SomeLost]);
        (self.band, self.margin_use) = *rng.pick(&[(0, 1000), (FULL_BAND, 0), (HALF_BAND, 1000)]);
        (self.workers, self.resources) = (rng.range(2, 5) as usize, rng.range(1, 3) as usize);
        (self.tickets, self.tickets_change) = (1, rng.chance(300));
        self.shared = *rng.pick(&[0, 500]);
        if rng.chance(400) {
            self.ttls.truncate(1);
            self.growth = self.ttls[0] / 2;
            self.restarts = Restarts::Whole;
        }
        self.chore_every = self.longest() / *rng.pick(&[12, 48]);
        self.wish_every = self.longest() / *rng.pick(&[3, 12]);
        self.short(Theme::Clock)
    }

    fn with_losses(mut self, rng: &mut Rng) -> Self {
        let base = *rng.pick(&[300_000, 500_000, 1_000_000]);
        self.ttls = vec![base, base * *rng.pick(&[2, 2, 4])];
        self.with_few_drifts(rng);
        (self.restarts, self.wipes) = (Restarts::AllLost, rng.chance(500));
        (self.workers, self.resources, self.tickets) =
            (rng.range(2, 6) as usize, rng.range(1, 4) as usize, 1);
        (self.fault_every, self.storm) = (base / 3, base * 60);
        self.loss = *rng.pick(&[0, 10, 50]);
        Self { theme: Theme::Losses, ..self }
    }

    fn with_fallbacks(mut self, rng: &mut Rng) -> Self {
        self.restarts = Restarts::SomeLost;
        self.with_few_drifts(rng);
        (self.workers, self.resources) = (rng.range(2, 5) as usize, rng.range(2, 7) as usize);
        self.tickets = rng.range(1, 3) as u32;
        (self.slowness, self.slow_answers) = *rng.pick(&[(20, 20), (100, 100), (250, 100), (100, 250)]);
        self.loss = *rng.pick(&[0, 10, 50]);
        (self.leaves_soon, self.stays_away) = (30, 300);
        (self.fault_every, self.wish_every) = (self.longest() / 8, self.longest() / 24);
        self.short(Theme::Fallbacks)
    }

    fn with_slow_answers(mut self, rng: &mut Rng) -> Self {
        (self.slowness, self.slow_answers, self.loss) = (0, *rng.pick(&[300, 500]), 0);
        (self.steps, self.restarts, self.wipes) = (self.clock && rng.chance(300), Restarts::Never, false);
        (self.band, self.margin_use) = match self.steps {
            true => *rng.pick(&[(0, 1000), (FULL_BAND, 0)]),
            false => (FULL_BAND, 1000),
        };
        (self.workers, self.resources, self.tickets) = (rng.range(2, 5) as usize, 1, 1);
        self.short(Theme::SlowAnswers)
    }

    fn with_wild_clocks(mut self, rng: &mut Rng) -> Self {
        (self.clock, self.steps, self.wild) = (false, false, true);
        self.restarts = *rng.pick(&[Restarts::Never, Restarts::Whole]);
        (self.band, self.margin_use, self.wipes) = (FULL_BAND, 1000, false);
        (self.workers, self.resources, self.tickets) =
            (rng.range(2, 5) as usize, rng.range(1, 3) as usize, 1);
        self.short(Theme::WildClocks)
    }

    fn with_old_primary(mut self, rng: &mut Rng) -> Self {
        (self.clock, self.together, self.restarts, self.wipes) = (true, true, Restarts::Never, false);
        self.with_few_drifts(rng);
        (self.workers, self.resources, self.tickets) =
            (rng.range(2, 5) as usize, rng.range(1, 3) as usize, 1);
        (self.loss, self.fault_every) = (*rng.pick(&[0, 10]), self.longest() / 2);
        self.short(Theme::OldPrimary)
    }

    fn with_few_drifts(&mut self, rng: &mut Rng) {
        self.steps = false;
        (self.band, self.margin_use) = *rng.pick(&[(0, 1000), (FULL_BAND, 1000)]);
    }

    pub(crate) fn longest(&self) -> u64 {
        self.ttls.iter().copied().max().unwrap_or(0) + self.growth
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
