//! What a database must offer to be a store: keep records, and swap them if nobody was faster.
//!
//! A backend decides nothing and reads no record: values are text to it. The rules are in `tenure-core`; the layer
//! above (`RecordStore`) reads, lets the rules decide, and commits.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Capabilities, Incarnation, Key, LeaseId, ResourceName, StoreTime, Version, Window};
use tokio::sync::mpsc;

use super::{Pending, Warning};
use crate::Error;

/// One namespace of a database.
///
/// `Err` means only: we do not know what happened. Dropping a pending answer gives the attempt up: a later attempt
/// must not queue behind it.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// The present state of these records, in the order asked, with those that do not exist at [`Version::NONE`].
    /// Linearizable: it shows every commit that was answered before it was asked for.
    fn read<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Snapshot>;

    /// Applies each change that finds what it expects; one answer per change, in order.
    ///
    /// A change is all or nothing. It is applied if the store is in the life `within`, every expected record is at
    /// its version, and the store's clock lies within the window. Then all puts are written with one stamp, the
    /// history is appended and the signals are sent, once the change is as durable as the store makes it. Changes of
    /// one commit do not depend on each other, and name no record twice.
    fn commit<'a>(&'a self, within: Incarnation, changes: &'a [Change]) -> Pending<'a, Commits>;

    /// Leases or resources in the order of their names, a page at a time.
    fn list<'a>(&'a self, of: Listing, after: Option<&'a Key>) -> Pending<'a, Page>;

    /// The newest entries of the history, of one resource or of all, in the order in which they were appended; at most
    /// `most`. The newest 10 000 are kept, and not many more.
    fn history<'a>(&'a self, of: Option<&'a ResourceName>, most: usize) -> Pending<'a, History>;

    /// Begins to listen. One call per store; when the returned [`Signals`] end, the connection was lost, and it is
    /// called again.
    fn listen(&self) -> Pending<'_, (Arc<dyn Subscriptions>, Signals)>;

    /// Asked when somebody has just made the `meta` record of a new namespace: can the store show that it never lost
    /// any data of this namespace, looking back `within`? If so, it grants at once; else after a quarantine.
    fn lost_nothing(&self, within: Duration) -> Pending<'_, bool>;

    /// What the store's configuration takes away from the promises, as of now.
    fn safety(&self) -> Pending<'_, Vec<Warning>>;

    /// What proves deaths here, if anything does.
    fn witness(&self) -> Option<&dyn Witness> {
        None
    }
}

/// Proves that a worker is dead, so that nobody has to wait until its lease runs out.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Makes the proof of life for a lease that this process is about to open. The text goes into the lease's `info`
    /// record, where the others find it. Doing it again gives the same text.
    fn vouch(&self, lease: LeaseId) -> Pending<'_, Text>;

    /// Ends the proof of life: the lease is closed, or was never opened.
    fn let_go(&self, lease: LeaseId);

    /// Watches the workers of these leases from now on, and no others. Each comes with the text of its proof of life.
    fn watch(&self, whom: Vec<(LeaseId, Text)>);

    /// Receives the death of each watched worker as soon as it is proved. Returns the receiver to the first caller
    /// only.
    fn deaths(&self) -> Option<mpsc::UnboundedReceiver<Proof>>;

    /// The lock that proves the life of this lease's work, for another process that is to do it.
    ///
    /// # Errors
    /// When the lock should exist but cannot be obtained.
    fn share_lock(&self, lease: LeaseId) -> Result<Option<OwnedFd>, Error>;
}

/// A proved death. As long as it is kept, nobody else can prove the same.
#[derive(Debug)]
pub struct Proof {
    /// Whose lease may be ended.
    pub lease: LeaseId,
    /// What proves it, for instance a lock that was won.
    pub held: OwnedFd,
}

/// Which channels a listener hears.
pub trait Subscriptions: fmt::Debug + Send + Sync + 'static {
    /// Hears this channel from when it is answered. Following a channel twice changes nothing.
    fn follow(&self, channel: Channel) -> Pending<'_, ()>;

    /// Does not need to hear this channel any more.
    fn forget(&self, channel: &Channel);
}

/// What is heard. It ends when the connection is lost.
pub type Signals = mpsc::UnboundedReceiver<Heard>;

/// One signal as it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Where.
    pub channel: Channel,
    /// The stamp of the change that sent it, where the store has a clock.
    pub stamp: Option<StoreTime>,
    /// What.
    pub text: Text,
}

/// Text that stays out of logs: the value of a record, the text of a signal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text(Arc<str>);

impl Text {
    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for Text {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// The name of a channel: 1 to 60 characters of `a-z 0-9 _`, not to be guessed by strangers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel(Arc<str>);

impl Channel {
    /// The channel of this name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel(..)")
    }
}

/// One record as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub key: Key,
    /// [`Version::NONE`] if it does not exist.
    pub version: Version,
    /// When it was written, by the store's clock.
    pub stamp: Option<StoreTime>,
    /// Its text; nothing if it does not exist.
    pub value: Option<Text>,
}

impl Stored {
    /// A record that does not exist.
    #[must_use]
    pub fn absent(key: Key) -> Self {
        Self { key, version: Version::NONE, stamp: None, value: None }
    }
}

/// Records as of one instant each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The store's life.
    pub life: Incarnation,
    /// The store's clock when the answer was made; not before any stamp in it, unless that clock went back.
    pub now: Option<StoreTime>,
    /// The store's wall clock in microseconds since 1970, for tokens and for people.
    pub wall: Option<u64>,
    /// One per key, in the order asked.
    pub records: Vec<Stored>,
}

/// "If these records are still at these versions, write those."
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The versions that the records must have. Every record that is written is expected, too.
    pub expect: Vec<(Key, Version)>,
    /// When it may be applied, by the store's clock.
    pub window: Window,
    /// What is written, in this order.
    pub put: Vec<Put>,
    /// What is appended to the history.
    pub history: Vec<HistoryEntry>,
    /// What is sent.
    pub signals: Vec<Signal>,
    /// It is on the disk before it is answered, even if the power goes.
    pub lasting: bool,
    /// It is applied even when the store is full or short of memory, if the store can do that.
    pub essential: bool,
}

/// One record that is written or, without a value, deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Which.
    pub key: Key,
    /// Its new version; drawn at random, and the same for all records of a change.
    pub version: Version,
    /// Its new text.
    pub value: Option<Text>,
}

/// One line of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Of which resource.
    pub resource: ResourceName,
    /// When it happened; absent: when the change is applied.
    pub at: Option<StoreTime>,
    /// What.
    pub text: Text,
}

/// A message to listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// It goes to the first of these channels that somebody listens to or, where the store cannot tell, to the first.
    pub to: Vec<Channel>,
    /// What.
    pub text: Text,
}

/// What became of the changes of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commits {
    /// The store's life. If it is not the one that the commit was for, nothing was applied.
    pub life: Incarnation,
    /// The store's clock when the answer was made.
    pub now: Option<StoreTime>,
    /// One per change, in order.
    pub done: Vec<Committed>,
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It was applied.
    Done {
        /// The stamp of what was written.
        stamp: Option<StoreTime>,
    },
    /// Nothing was written. Those of the expected records that are at another version; none if the clock was outside
    /// of the window, or the life was another.
    Conflict(Vec<Stored>),
}

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// [`Key::Lease`] records.
    Leases,
    /// [`Key::Resource`] records.
    Resources,
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// What every answer tells, and the records.
    pub shown: Snapshot,
    /// Whether there may be more after the last of them.
    pub more: bool,
}

/// A part of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The store's clock when the answer was made.
    pub now: Option<StoreTime>,
    /// When and what, oldest first.
    pub entries: Vec<(Option<StoreTime>, Text)>,
}
