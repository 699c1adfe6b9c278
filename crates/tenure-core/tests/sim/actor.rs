//! One worker in the simulated world: its machine, its clocks, its work, and what it believes.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::rules::{Act, Fate, Found, Operation, Shown};
use tenure_core::{
    Grant, Incarnation, Input, Label, LeaseId, Metadata, Moment, Planted, ResourceName, Timing, Token, Worker,
};

use crate::plan::{Plan, Theme};
use crate::rng::Rng;

#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) worker: Worker,
    pub(crate) timing: Timing,
    pub(crate) label: Label,
    clocks: Clocks,
    /// Until when the process stands still, and whether the machine sleeps with it.
    pub(crate) frozen_until: Option<u64>,
    pub(crate) crashed: bool,
    /// What came while it stood still.
    pub(crate) backlog: Vec<News>,
    /// The process that it is in. What that has seen of the store, its clocks and its faults are the same for all
    /// workers in it.
    pub(crate) process: usize,
    /// What it asks of the store, by a number of its own.
    pub(crate) asking: BTreeMap<u64, Box<Asking>>,
    pub(crate) cut: Cut,
    /// Distinguishes the wake-up that counts from those that were set before.
    pub(crate) wake: u64,
    pub(crate) trust: Option<Moment>,
    pub(crate) owned: BTreeMap<ResourceName, Grant>,
    pub(crate) works: BTreeMap<ResourceName, Work>,
}

/// What reaches a process.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Input(Input),
    /// The store's answer to one of its messages.
    Reply {
        asking: u64,
        trip: u64,
        /// When the store made it.
        made_at: u64,
        shown: Shown,
        said: Reply,
    },
    /// A record that came by itself.
    Told(Incarnation, Found),
    /// It has waited for long enough.
    Go {
        asking: u64,
        trip: u64,
    },
}

/// What the store says to one message.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Read(Vec<Found>),
    Committed(Vec<Fate>),
    LostNothing(bool),
    Listed(Vec<ResourceName>),
    /// The link broke.
    Failed,
}

impl Reply {
    /// Whether it is the store that says something.
    pub(crate) fn is_shown(&self) -> bool {
        matches!(self, Self::Read(_) | Self::Committed(_))
    }
}

/// A request that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) act: Act,
    pub(crate) operation: Operation,
    /// How many messages were sent for it. An answer to an earlier one is not heard.
    pub(crate) trip: u64,
}

/// A link that carries nothing, one way or both.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cut {
    pub(crate) requests: bool,
    pub(crate) answers: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) grant: Grant,
    pub(crate) lease: Option<LeaseId>,
    /// It was held up by a pause beyond its trust: no lease can help it, only the token.
    pub(crate) overtaken: bool,
}

/// Two clocks with rates of their own. One of them stops while the machine sleeps.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    boot_rate: u64,
    raw_rate: u64,
    slept: u64,
    asleep_since: Option<u64>,
}

impl Actor {
    pub(crate) fn new(
        timing: Timing,
        label: Label,
        clocks: Clocks,
        at: u64,
        process: usize,
        planted: Planted,
    ) -> Self {
        let worker =
            Worker::new(timing, label.clone(), Metadata::default(), clocks.read(at)).with_planted(planted);
        Self {
            worker,
            timing,
            label,
            clocks,
            frozen_until: None,
            crashed: false,
            backlog: Vec::new(),
            process,
            asking: BTreeMap::new(),
            cut: Cut::default(),
            wake: 0,
            trust: None,
            owned: BTreeMap::new(),
            works: BTreeMap::new(),
        }
    }

    /// Another worker in the same process.
    pub(crate) fn beside(mate: &Self, timing: Timing, label: Label, at: u64, planted: Planted) -> Self {
        let new = Self::new(timing, label, mate.clocks.clone(), at, mate.process, planted);
        Self { cut: mate.cut, ..new }
    }

    pub(crate) fn moment(&self, at: u64) -> Moment {
        self.clocks.read(at)
    }

    pub(crate) fn fall_asleep(&mut self, at: u64) {
        self.clocks.asleep_since = Some(at);
    }

    pub(crate) fn wake_up(&mut self, at: u64) {
        if let Some(since) = self.clocks.asleep_since.take() {
            self.clocks.slept += at - since;
        }
    }

    /// The real time in which neither clock runs further than `span`.
    pub(crate) fn real(&self, span: Duration) -> u64 {
        span.as_micros() as u64 * 1_000_000 / self.clocks.boot_rate.max(self.clocks.raw_rate)
    }

    /// How much slower than true the slower clock is, in millionths.
    pub(crate) fn slowest_rate(&self) -> u64 {
        self.clocks.boot_rate.min(self.clocks.raw_rate)
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.crashed && self.frozen_until.is_none()
    }

    /// What `holds()` would say now, for each resource. It is evaluated when it is read, pause or not.
    pub(crate) fn believes(&self, at: u64, resource: &ResourceName) -> Option<Grant> {
        let until = self.trust.filter(|until| !self.crashed && !self.moment(at).has_reached(*until));
        until.and_then(|_| self.owned.get(resource).copied())
    }

    /// The work that acts now: not that of a process that stands still, or has stood still for too long.
    pub(crate) fn works(&self, resource: &ResourceName) -> Option<Grant> {
        let work = self.works.get(resource).filter(|work| self.is_up() && !work.overtaken);
        work.map(|work| work.grant)
    }

    pub(crate) fn has_work(&self, resource: &ResourceName, token: Token) -> bool {
        self.works.get(resource).is_some_and(|work| work.grant.token == token)
    }
}

impl Clocks {
    pub(crate) fn of(plan: &Plan, rng: &mut Rng) -> Self {
        let band = plan.band;
        let rate = |rng: &mut Rng| {
            // The ends of the band are where it hurts.
            match rng.range(0, 4) {
                0 => 1_000_000 - band,
                1 => 1_000_000 + band,
                _ => rng.range(1_000_000 - band, 1_000_000 + band + 1),
            }
        };
        let (mut boot_rate, mut raw_rate) = (rate(rng), rate(rng));
        if plan.theme == Theme::SlowAnswers {
            // As far apart as may be.
            boot_rate = if rng.chance(500) { 1_000_000 - band } else { 1_000_000 + band };
            raw_rate = boot_rate;
        }
        if plan.wild && rng.chance(700) {
            raw_rate = rng.range(1_000_000, 1_500_000);
        }
        Self { boot_rate, raw_rate, slept: 0, asleep_since: None }
    }

    fn read(&self, at: u64) -> Moment {
        let scale = |span: u64, rate: u64| Duration::from_micros(span * rate / 1_000_000);
        let awake = self.asleep_since.unwrap_or(at) - self.slept;
        Moment::new(scale(at, self.boot_rate), scale(awake, self.raw_rate))
    }
}
