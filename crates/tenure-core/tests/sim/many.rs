//! Many seeds on all cores, added up.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure_core::Planted;

use crate::check::Violation;
use crate::run::{Outcome, simulate};

/// How many seeds are run unless more are asked for: half a minute.
const FEW: u64 = 400;

/// Which seeds are run, and what must come of it.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    first: u64,
    seeds: u64,
    /// How many seeds a planted bug has to hide from.
    pub(crate) bug_seeds: u64,
    /// At least so many grants and take-overs, within this time.
    pub(crate) at_least: Option<(u64, u64, Duration)>,
}

impl Setting {
    pub(crate) fn seeds(first: u64, seeds: u64) -> Self {
        Self { first, seeds, bug_seeds: 0, at_least: None }
    }

    pub(crate) fn is_many(&self) -> bool {
        self.seeds > 1
    }

    /// What `scripts/sim` asked for; a few seeds without it.
    pub(crate) fn from_env() -> Self {
        let number = |name: &str| {
            let value = std::env::var(name).ok()?;
            Some(value.parse::<u64>().unwrap_or_else(|_| panic!("{name} is {value:?}, not a number")))
        };
        let (first, seeds) = match number("TENURE_SIM_SEED") {
            Some(seed) => (seed, 1),
            None => (number("TENURE_SIM_FROM").unwrap_or(0), number("TENURE_SIM_SEEDS").unwrap_or(FEW)),
        };
        let grants = number("TENURE_SIM_GRANTS");
        let limit = Duration::from_secs(number("TENURE_SIM_SECONDS").unwrap_or(3600));
        let at_least = grants.map(|grants| (grants, grants / 5, limit));
        // Some of them are seen in one of several thousand worlds, by chance: where a change of the simulation makes
        // other worlds of the seeds, they have to be looked for anew.
        Self { first, seeds, bug_seeds: number("TENURE_SIM_BUG_SEEDS").unwrap_or(60_000), at_least }
    }
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) seeds: u64,
    pub(crate) grants: u64,
    pub(crate) takeovers: u64,
    pub(crate) faults: u64,
    pub(crate) events: u64,
    pub(crate) simulated: u64,
    /// Hand-overs, deaths and dead heads of a queue that were tried in calm weather.
    pub(crate) trials: [u64; 3],
    /// The lowest seed that broke a promise.
    pub(crate) violation: Option<(u64, Violation)>,
    pub(crate) took: Duration,
    /// The time of all cores together.
    pub(crate) busy: Duration,
    pub(crate) cores: usize,
}

/// Runs the seeds in order on all cores; stops handing out more once one has broken a promise.
pub(crate) fn run(setting: &Setting, planted: Planted) -> Tally {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (next, broken) = (AtomicU64::new(0), AtomicBool::new(false));
    let tally = Mutex::new(Tally { cores, ..Tally::default() });
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let began = Instant::now();
                let mut mine = Tally::default();
                while !broken.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= setting.seeds {
                        break;
                    }
                    mine.add(simulate(setting.first + seed, planted));
                    broken.fetch_or(mine.violation.is_some(), Ordering::Relaxed);
                }
                mine.busy = began.elapsed();
                tally.lock().expect("no thread panicked").merge(mine);
            });
        }
    });
    let mut tally = tally.into_inner().expect("no thread panicked");
    tally.took = began.elapsed();
    tally
}

impl Tally {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.grants += outcome.grants;
        self.takeovers += outcome.takeovers;
        self.faults += outcome.faults;
        self.events += outcome.events;
        self.simulated += outcome.simulated;
        self.try_more(outcome.trials);
        self.blame(outcome.violation.map(|violation| (outcome.seed, violation)));
    }

    fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.grants += other.grants;
        self.takeovers += other.takeovers;
        self.faults += other.faults;
        self.events += other.events;
        self.simulated += other.simulated;
        self.try_more(other.trials);
        self.busy += other.busy;
        self.blame(other.violation);
    }

    fn try_more(&mut self, trials: [u64; 3]) {
        for (sum, more) in self.trials.iter_mut().zip(trials) {
            *sum += more;
        }
    }

    fn blame(&mut self, violation: Option<(u64, Violation)>) {
        let lowest = self.violation.as_ref().map_or(u64::MAX, |(seed, _)| *seed);
        if let Some((seed, violation)) = violation.filter(|(seed, _)| *seed < lowest) {
            self.violation = Some((seed, violation));
        }
    }
}
