//! One configuration: who takes part, what may go wrong, and for how long it is looked at.

use std::time::Duration;

use tenure_core::{Bug, Capabilities, Planted, Timing};

/// In microseconds, a sixth of the ttl. At 600 ms, a step in the queue is one quantum, too.
pub(crate) const QUANTUM: u64 = 100_000;
pub(crate) const TTL: Duration = Duration::from_micros(6 * QUANTUM);

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) workers: usize,
    pub(crate) tickets: usize,
    pub(crate) begin: Begin,
    pub(crate) store: Kind,
    /// How many faults there may be, of which kinds.
    pub(crate) faults: u8,
    pub(crate) troubles: &'static [Trouble],
    /// How many wishes users and operators may have, of which kinds.
    pub(crate) wishes: u8,
    pub(crate) wish: &'static [Wish],
    /// How many quanta are between two renewals.
    pub(crate) renew: u64,
    /// After how many quanta time stops.
    pub(crate) horizon: u64,
    pub(crate) order: Order,
    /// What is planted.
    pub(crate) bug: Option<Bug>,
}

impl Plan {
    pub(crate) const THREE: Self = Self {
        workers: 3,
        tickets: 2,
        begin: Begin::Owned,
        store: Kind::Clock,
        faults: 0,
        troubles: &Trouble::ALL,
        wishes: 0,
        wish: &[Wish::StepDown],
        renew: 2,
        horizon: 0,
        order: Order::Prompt,
        bug: None,
    };
    pub(crate) const TWO: Self = Self { workers: 2, tickets: 1, ..Self::THREE };
    pub(crate) const ONE: Self = Self { workers: 1, tickets: 1, ..Self::THREE };

    pub(crate) fn planted(&self) -> Planted {
        self.bug.map_or_else(Planted::default, Planted::with)
    }

    /// All clocks run at one rate, so the trust may be as long as a timing allows: nothing is hidden by its slack.
    pub(crate) fn timing(&self) -> Timing {
        let tight = Timing::new(TTL).and_then(|timing| timing.with_margin(TTL / 100));
        let tight = tight.and_then(|timing| timing.with_drift(1));
        let renew = Duration::from_micros(self.renew * QUANTUM);
        tight.and_then(|timing| timing.with_renew(renew)).expect("a sound timing")
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let (clock, together) = match self.store {
            Kind::Clock => (true, true),
            Kind::NoClock => (false, true),
            Kind::OneByOne => (false, false),
        };
        Capabilities { clock, together, most_changes: 250, most_signal_bytes: 8_000 }
    }
}

/// How it begins. The leases are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// The tickets are owned in order of the workers, and whoever is left waits.
    Owned,
    /// Nobody owns anything; the first claims are under way.
    Free,
}

/// What the store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It has a clock and writes several records as one step: SQL databases, Redis.
    Clock,
    /// It writes several records as one step: etcd.
    NoClock,
    /// It has no clock and writes records one by one: NATS, object storage.
    OneByOne,
}

/// How much of the order of events is left open; the head of main.rs says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Any,
    Commits,
    Prompt,
}

/// What a user or an operator may want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// An owner steps down.
    StepDown,
    /// A worker leaves its campaign.
    Leave,
    /// A worker shuts down.
    Shutdown,
    /// An operator takes an ownership away.
    Evict,
    /// The same, and the operator's process dies when one record is written.
    EvictHalf,
}

/// What can go wrong. Each time is one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A message to the store arrives twice, the second time whenever it likes.
    Duplicate,
    /// A message to the store takes as long as it likes. One that takes for ever is lost.
    Hold,
    /// A message from the store takes as long as it likes.
    HoldAnswer,
    /// The store refuses a commit for no reason.
    Refuse,
    /// The store writes one record of a commit, and the others whenever it likes, or never.
    Half,
    /// A process dies, and its work with it. Another one under the same label may come at any time.
    Crash,
    /// Nothing passes between a worker and the store, until the link heals at any time.
    Cut,
    /// A guard ends the work of a process that lives, and its lease; then it tells the process.
    Guard,
    /// The store restarts without its data.
    LoseAll,
    /// The store restarts with its data as they were in the beginning.
    FallBack,
    /// The store restarts with all of its data.
    Restart,
    /// The store's clock steps forward by two leases.
    StepForward,
    /// The store's clock steps back by two leases.
    StepBack,
}

impl Trouble {
    /// All that any store has to live with.
    pub(crate) const ALL: [Self; 9] = [
        Self::Duplicate,
        Self::Hold,
        Self::HoldAnswer,
        Self::Refuse,
        Self::Crash,
        Self::Cut,
        Self::LoseAll,
        Self::FallBack,
        Self::Restart,
    ];
    pub(crate) const OF_MESSAGES: [Self; 4] = [Self::Duplicate, Self::Hold, Self::HoldAnswer, Self::Refuse];
    pub(crate) const OF_THE_STORE: [Self; 3] = [Self::LoseAll, Self::FallBack, Self::Restart];

    pub(crate) fn concerns(self) -> Warnings {
        match self {
            Self::Duplicate | Self::Hold | Self::HoldAnswer | Self::Refuse | Self::Half => Warnings::Message,
            Self::Crash | Self::Cut | Self::Guard => Warnings::Worker,
            Self::LoseAll | Self::FallBack | Self::Restart | Self::StepForward | Self::StepBack => {
                Warnings::Store
            }
        }
    }
}

/// What a trouble is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warnings {
    Message,
    Worker,
    Store,
}
