//! Who owned what, when, and why it ended: a bounded record.

use alloc::collections::VecDeque;

use crate::message::{Closing, Grant, Leaving};
use crate::moment::StoreTime;
use crate::names::{Label, ResourceName};

/// How many records a namespace keeps unless told otherwise.
pub const HISTORY: usize = 10_000;

/// One thing that happened to an ownership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// When, on the store's clock.
    pub at: StoreTime,
    /// To which resource.
    pub resource: ResourceName,
    /// Whose ownership.
    pub worker: Label,
    /// Its ticket, term and token.
    pub grant: Grant,
    /// What.
    pub what: Happened,
}

/// What happened to an ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Happened {
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

impl From<Leaving> for Happened {
    fn from(how: Leaving) -> Self {
        match how {
            Leaving::Released => Self::Released,
            Leaving::Failed => Self::Failed,
            Leaving::SteppedDown => Self::SteppedDown,
        }
    }
}

impl From<Closing> for Happened {
    fn from(why: Closing) -> Self {
        match why {
            Closing::Left => Self::Released,
            Closing::Expired => Self::Expired,
            Closing::Proved => Self::Died,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct History {
    records: VecDeque<Record>,
    most: usize,
}

impl History {
    pub(super) fn of(most: usize) -> Self {
        Self { records: VecDeque::new(), most }
    }

    pub(super) fn add(&mut self, record: Record) {
        if self.most == 0 {
            return;
        }
        if self.records.len() >= self.most {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.records.iter()
    }
}
