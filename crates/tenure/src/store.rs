//! What a store has to offer. One folder per store beside this file; `open` finds them by their URLs.
//!
//! A store is a [`RecordStore`] on a [`Backend`](backend::Backend): the rules of `tenure-core` decide, the backend keeps
//! records and swaps them if nobody was faster.

pub mod backend;
pub mod codec;
#[cfg(all(test, feature = "sqlite", target_os = "linux"))]
mod fuzz;
mod json;
mod listening;
mod memory;
mod open;
#[cfg(feature = "postgres")]
mod postgres;
mod records;
#[cfg(all(feature = "redis", unix))]
mod redis;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod sqlite;

use std::fmt;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use tenure_core::{
    Answer, Begin, Call, Claimed, Closing, Hint, Holder, Holding, Incarnation, JobAct, JobOutcome, JobSaid,
    JobStep, LeaseId, Leave, Leaving, Message, Namespace, Notice, Payload, Published, Released, Request,
    Said, Seq, Stamp, StoreTime, Tickets, Want, Wish,
};
use tenure_core::{Grant, HistoryEvent, JobView, Label, ResourceName, ResourceView, StepDownReply, Token};
use tokio::sync::mpsc;

pub use self::memory::{MemoryBackend, MemoryStore};
pub use self::open::schemes;
pub(crate) use self::open::{find, open};
#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresBackend, PostgresStore};
pub use self::records::RecordStore;
#[cfg(all(feature = "redis", unix))]
pub use self::redis::{RedisBackend, RedisStore};
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub use self::sqlite::{SqliteBackend, SqliteStore};
use crate::Error;
use crate::runtime::clock::{Clocks, ManualClock};
use crate::runtime::driver::Driver;
pub use crate::runtime::events::StoreChange;
use crate::runtime::process::Owned;

/// What a store answers, when it does. Dropping it gives the attempt up, with its connection: a later attempt
/// does not queue behind it, and a late reply is not seen.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The wake-ups for one lease. It may be silent; the claim decides. It ends when the subscription is lost: then
/// the driver subscribes again and, because hints may have been missed, whoever waits looks once.
pub type Hints = mpsc::UnboundedReceiver<Hint>;

/// What the owners of one resource send. It ends when the subscription is lost: then the driver subscribes again, and
/// what was sent meanwhile is lost.
pub type Messages = mpsc::UnboundedReceiver<Message>;

/// What holds for a whole namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Condition {
    /// Nothing is granted for so long still, because the store is new, was restarted or lost its data.
    pub withheld: Option<Duration>,
    /// Resources whose records cannot be read. They are granted to nobody.
    pub unreadable: Vec<ResourceName>,
}

/// What earlier answers showed of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Known {
    /// How many tickets it has.
    pub tickets: Option<u32>,
    /// Whether another live worker that competes for it has the same label.
    pub has_namesake: bool,
}

/// A namespace of a store.
///
/// `Err` means only: we do not know. Losing is an answer.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Carries out what a worker asks, in one atomic step per resource, and sends the hints that follow from it
    /// after the change is durable.
    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer>;

    /// Subscribes to the wake-ups for this lease. Called before its first claim. Once it is answered, later
    /// hints arrive unless the connection fails.
    fn hints(&self, lease: LeaseId) -> Pending<'_, Hints>;

    /// What earlier answers to this lease showed of a resource. Sends no request.
    fn known(&self, lease: LeaseId, resource: &ResourceName) -> Known {
        let _ = (lease, resource);
        Known::default()
    }

    /// What the store's configuration takes away from the promises, as of now. Nothing: they hold as they stand.
    fn safety(&self) -> Pending<'_, Vec<Warning>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Owners and waiters of one resource, or of all that were ever claimed, by name.
    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>>;

    /// What holds for all resources at once, as of now.
    fn condition(&self) -> Pending<'_, Condition>;

    /// What happened, oldest first, of one resource or of all.
    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>>;

    /// The operator's wish that the ownership under `token` be handed over gently, to `successor` if named.
    fn ask<'a>(
        &'a self,
        resource: &'a ResourceName,
        token: Token,
        successor: Option<&'a Label>,
    ) -> Pending<'a, StepDownReply>;

    /// Takes the ownership under `token` away at once; until its worker learns of it only the token protects.
    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, StepDownReply>;

    /// Carries out one step of a job, in one atomic step. What it answers is durable, as a grant is.
    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid>;

    /// One job with all its records that are kept, oldest first, or every job with the latest, by name.
    fn jobs<'a>(&'a self, job: Option<&'a ResourceName>) -> Pending<'a, Vec<JobView>>;

    /// Sends to all who have subscribed, if the holder is the owner: looked at in the same step. At most once.
    fn publish<'a>(&'a self, holder: &'a Holder, payload: &'a Payload) -> Pending<'a, Published>;

    /// Subscribes to what the owners of a resource publish. When it is answered, no message from then on is lost but
    /// by accident.
    fn subscribe<'a>(&'a self, resource: &'a ResourceName) -> Pending<'a, Messages>;

    /// The lock by which the death of those who do the work under this lease is proved, for another process that
    /// is to do it; nothing where deaths are not proved. Does not wait.
    ///
    /// # Errors
    /// When the lock should exist but cannot be obtained: a process that works without it may be taken for dead.
    fn share_lock(&self, lease: LeaseId) -> Result<Option<OwnedFd>, Error> {
        let _ = lease;
        Ok(None)
    }
}

/// One thing about a store's configuration that its users should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What it costs.
    pub cost: Impact,
    /// What it is, in a sentence without a full stop.
    pub what: String,
    /// What can be done about it.
    pub hint: String,
}

/// What a concern costs, from bad to worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Impact {
    /// Time without an owner, after some faults.
    Time,
    /// After some faults it is forgotten what was done once or at set times, and that may be done again.
    Record,
    /// After some faults two workers may own the same ticket for a while: only the token protects.
    Exclusion,
}

/// A store that is open, and the thread that drives its workers. Of no use in a forked child.
#[derive(Clone, Debug)]
pub struct OpenStore {
    pub(crate) parts: Owned<(Arc<dyn Store>, Arc<Driver>)>,
    pub(crate) clocks: Clocks,
}

impl OpenStore {
    /// Any store, on the system's clocks.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn new(store: Arc<dyn Store>) -> Result<Self, Error> {
        Ok(Self::with(store, Clocks::System, Driver::start()?))
    }

    /// Any store, on a clock that is moved by hand: for tests that put a store of their own in front of one in memory.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn by_hand(store: Arc<dyn Store>, clock: ManualClock) -> Result<Self, Error> {
        Ok(Self::with(store, Clocks::ByHand(clock), Driver::start()?))
    }

    /// A store in this process, on its own clock.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn memory(store: Arc<MemoryStore>) -> Result<Self, Error> {
        let clocks = store.clocks().clone();
        Ok(Self::with(store, clocks, Driver::start()?))
    }

    pub(crate) fn with(store: Arc<dyn Store>, clocks: Clocks, driver: Arc<Driver>) -> Self {
        Self { parts: Owned::new((store, driver)), clocks }
    }
}

/// One thing that happened to an ownership, as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How long ago.
    pub ago: Duration,
    /// To which resource.
    pub resource: ResourceName,
    /// Whose ownership.
    pub worker: Label,
    /// Its ticket, term and token.
    pub grant: Grant,
    /// What.
    pub what: HistoryEvent,
}
