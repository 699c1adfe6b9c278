//! Who owned what, when, and why it ended: a bounded record.

use alloc::collections::VecDeque;

use crate::message::Grant;
use crate::moment::StoreTime;
use crate::names::{Label, ResourceName};
use crate::shown::HistoryEvent;

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
    pub what: HistoryEvent,
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
