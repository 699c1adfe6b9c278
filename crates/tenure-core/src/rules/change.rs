//! What the rules want: records to be read, a change to be committed, or nothing more, because the answer is known.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::keys::{Key, Version, Window};
use super::records::{Time, Value};
use crate::fanout::Payload;
use crate::message::{Grant, LeaseId, Ticket, Token};
use crate::names::{Label, ResourceName};
use crate::shown::HistoryEvent;

/// "If these records are still at these versions, write those."
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Change {
    /// What has to be there; what is written is among it.
    pub expect: Vec<(Key, Version)>,
    /// When it may be applied, by the store's clock.
    pub window: Window,
    /// What is written, in this order, or deleted.
    pub put: Vec<(Key, Option<Value>)>,
    /// What is appended to the history.
    pub history: Vec<Event>,
    /// What is sent.
    pub signals: Vec<Signal>,
    /// It is on the disk before it is answered, even if the power goes.
    pub lasting: bool,
    /// It is applied even when the store is short of memory.
    pub essential: bool,
    /// It does not wait behind others after a conflict.
    pub urgent: bool,
}

impl Change {
    /// Writes this record if it is still at this version.
    #[must_use]
    pub fn of(key: Key, version: Version, value: impl Into<Value>) -> Self {
        Self { expect: vec![(key.clone(), version)], put: vec![(key, Some(value.into()))], ..Self::default() }
    }

    /// The same, if this record, too, is still at this version.
    #[must_use]
    pub fn expecting(mut self, key: Key, version: Version) -> Self {
        self.expect.push((key, version));
        self
    }

    /// The same, and this record is written after it.
    #[must_use]
    pub fn and(mut self, key: Key, version: Version, value: impl Into<Value>) -> Self {
        self.expect.push((key.clone(), version));
        self.put.push((key, Some(value.into())));
        self
    }

    /// Which of the expected records are not written.
    pub fn only_expected(&self) -> impl Iterator<Item = &(Key, Version)> {
        self.expect.iter().filter(|(key, _)| !self.put.iter().any(|(put, _)| put == key))
    }
}

/// Something that happened to an ownership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// When; absent: when the change is applied.
    pub at: Time,
    /// To which resource.
    pub resource: ResourceName,
    /// Whose ownership.
    pub worker: Label,
    /// Its ticket, term and token.
    pub grant: Grant,
    /// What.
    pub what: HistoryEvent,
}

/// A signal that the store sends to listeners when it applies a change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// A ticket may be free: for the first of these waiters that listens.
    Look {
        /// The waiters.
        to: Vec<LeaseId>,
        /// Of which resource.
        resource: ResourceName,
        /// How long to leave it to those who come first.
        after: Duration,
    },
    /// The lease has ended: for those who follow it.
    Ended(LeaseId),
    /// The record of this resource has changed: for an owner, whose release then need not read it.
    Changed(LeaseId, ResourceName),
    /// There is a notice for this worker, about this resource.
    Knock(LeaseId, ResourceName),
    /// What an owner sends to all.
    Message {
        /// Of which resource it is the owner.
        resource: ResourceName,
        /// Under which ticket.
        ticket: Ticket,
        /// Under which token.
        token: Token,
        /// Drawn at random: a message that comes twice is dropped.
        number: u64,
        /// What it sends.
        payload: Payload,
    },
}

/// What follows from what is known.
#[derive(Clone, Debug)]
pub(super) enum Decision<T> {
    /// These have to be read; those that are known, anew.
    Read(BTreeSet<Key>),
    /// These are to be committed first, each for itself; then it is decided again.
    First(Vec<Change>),
    /// This is to be committed. If it is applied, that is the answer; else it is decided again.
    Commit(Box<Change>, T),
    /// That is the answer; nothing is written.
    Say(T),
    /// The same, if these records are still at these versions after all that was read for it.
    SayIf(T, Vec<(Key, Version)>),
}

impl<T> Decision<T> {
    pub(super) fn commit(change: Change, then: T) -> Self {
        Self::Commit(Box::new(change), then)
    }

    /// The same, if these records, too, are still at these versions.
    pub(super) fn only_if(self, expected: impl IntoIterator<Item = (Key, Version)>) -> Self {
        match self {
            Self::Commit(mut change, then) => {
                change.expect.extend(expected);
                Self::Commit(change, then)
            }
            Self::Say(said) => Self::SayIf(said, expected.into_iter().collect()),
            other => other,
        }
    }

    pub(super) fn map<U>(self, with: impl FnOnce(T) -> U) -> Decision<U> {
        match self {
            Self::Read(keys) => Decision::Read(keys),
            Self::First(changes) => Decision::First(changes),
            Self::Commit(change, then) => Decision::Commit(change, with(then)),
            Self::Say(said) => Decision::Say(with(said)),
            Self::SayIf(said, expected) => Decision::SayIf(with(said), expected),
        }
    }
}
