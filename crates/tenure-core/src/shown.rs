//! What people and dashboards are shown. Plain data, without any lease id.

use alloc::vec::Vec;
use core::time::Duration;

use crate::message::{Closing, Grant, Leaving};
use crate::names::{Label, Metadata, ResourceName};

/// How many entries the history of a namespace keeps.
pub const HISTORY: usize = 10_000;

/// One resource as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceView {
    /// Its name.
    pub resource: ResourceName,
    /// How many tickets it has.
    pub tickets: u32,
    /// Who owns them, by ticket.
    pub owners: Vec<OwnerView>,
    /// Who waits, in order.
    pub waiters: Vec<WaiterView>,
    /// For how long nothing is granted still, because the store is new, was restarted or lost its data.
    pub withheld: Option<Duration>,
}

/// One ownership as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerView {
    /// What people call the worker.
    pub worker: Label,
    /// What it tells the others.
    pub metadata: Metadata,
    /// Its ticket, term and token.
    pub grant: Grant,
    /// For how long it has owned.
    pub owned_for: Duration,
    /// For how long its lease is still good without a renewal.
    pub left: Duration,
}

/// One waiter as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// What people call the worker.
    pub worker: Label,
    /// What it tells the others.
    pub metadata: Metadata,
    /// For how long its lease is still good without a renewal.
    pub left: Duration,
}

/// What happened to an ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HistoryEvent {
    /// It began.
    Granted,
    /// It was given up, or its worker left.
    Released,
    /// It was given up because the work failed.
    Failed,
    /// It was handed over, and the worker stayed a candidate.
    SteppedDown,
    /// Its lease ran out.
    Expired,
    /// The worker's death was proved.
    Died,
    /// The operator took it away.
    Evicted,
}

impl From<Leaving> for HistoryEvent {
    fn from(how: Leaving) -> Self {
        match how {
            Leaving::Released => Self::Released,
            Leaving::Failed => Self::Failed,
            Leaving::SteppedDown => Self::SteppedDown,
        }
    }
}

impl From<Closing> for HistoryEvent {
    fn from(why: Closing) -> Self {
        match why {
            Closing::Left => Self::Released,
            Closing::Expired => Self::Expired,
            Closing::Proved => Self::Died,
        }
    }
}
