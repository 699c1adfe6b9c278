//! What the client and its caller exchange: requests, steps, results and replies. No decisions here.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::fanout::{Payload, Published};
use crate::job::{Holder, JobSaid, JobStep};
use crate::message::{Answer, Incarnation, LeaseId, Request, StepDownReply, Token};
use crate::moment::{Moment, StoreTime};
use crate::names::{Label, ResourceName};
use crate::rules::change::Change;
use crate::rules::keys::{Key, Version};
use crate::rules::leases::LookedAtLeases;
use crate::rules::records::Found;

/// What a step needs from outside: the time, and chance.
#[derive(Clone, Copy, Debug)]
pub struct Env {
    /// The worker's clocks, read just now.
    pub at: Moment,
    /// This machine's wall clock in microseconds since 1970; used where the store tells none.
    pub wall: u64,
    /// How much of a spread is used, in parts of 65 536.
    pub jitter: u16,
    /// Drawn anew for every step.
    pub chance: u128,
}

/// What is asked of a store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// What a worker asks. The text proves its life, where that can be proved: it goes with the opening of a lease.
    Call(Request, Option<Arc<str>>),
    /// An operator's wish that the ownership under this token be handed over, to a waiter of that label if named.
    Ask(ResourceName, Token, Option<Label>),
    /// An operator takes the ownership under this token away.
    Evict(ResourceName, Token),
    /// A step of a job.
    Job(JobStep),
    /// An owner sends something to all.
    Publish(Holder, Payload),
    /// The worker of this lease was proved dead.
    Prove(LeaseId),
    /// Looks what the owners of this lease's tickets are asked for, because there were more notices than fit.
    Wishes(LeaseId),
    /// Forgets ttls that no lease uses, after a look at all leases.
    DropTtls(LookedAtLeases),
    /// Deletes those of these leases that ended long ago.
    Sweep(Vec<LeaseId>),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Act::Call`].
    Answer(Answer),
    /// To [`Act::Ask`] and [`Act::Evict`].
    Asked(StepDownReply),
    /// To [`Act::Job`].
    Job(JobSaid),
    /// To [`Act::Publish`].
    Published(Published),
    /// To the others.
    Done,
}

/// What has to be done next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Read these records; then [`Client::read`](super::Client::read).
    Read(Vec<Key>),
    /// Commit these changes, each for itself, within this life of the store; then
    /// [`Client::committed`](super::Client::committed).
    Commit(Incarnation, Vec<Sending>),
    /// Ask whether the store can show that it has lost nothing for so long; then
    /// [`Client::lost_nothing`](super::Client::lost_nothing).
    LostNothing(Duration),
    /// List all resources; then [`Client::listed`](super::Client::listed).
    List,
    /// Wait for so long.
    Wait(Duration),
    /// That is the answer.
    Done(Reply),
}

/// A change on its way to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sending {
    /// What is to be changed.
    pub change: Change,
    /// The version of everything that it writes.
    pub version: Version,
    /// How often each of the records has been written then, in the order of the puts.
    pub revisions: Vec<u64>,
}

/// What the store says of itself with every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shown {
    /// Which life of it this is.
    pub life: Incarnation,
    /// Its clock when it made the answer.
    pub now: Option<StoreTime>,
    /// Its wall clock in microseconds since 1970.
    pub wall: Option<u64>,
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It was applied.
    Done(Option<StoreTime>),
    /// It was not. These of the expected records are at another version.
    Conflict(Vec<Found>),
}
