//! What the rules and a store have in common: the names of records, their versions, when a change may be applied.

use crate::message::LeaseId;
use crate::moment::StoreTime;
use crate::names::ResourceName;

/// The name of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// What concerns the whole namespace: its life, quarantine, longest ttl, token floor.
    Meta,
    /// Which ttls are in use.
    Ttls,
    /// One lease.
    Lease(LeaseId),
    /// What a worker says of itself when it opens a lease: written once.
    Info(LeaseId),
    /// One resource: its owners, its queue, its job.
    Resource(ResourceName),
    /// The earlier runs of a resource's job.
    Runs(ResourceName),
}

/// The version of a record. It changes with every write and never comes back, not even when a store is restored
/// from older data: it is drawn at random for every commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// The version of a record that does not exist.
    pub const NONE: Self = Self(0);
}

/// When the store may apply a change, by its own clock: `from <= clock < until`. A store without a clock ignores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    /// Not before.
    pub from: Option<StoreTime>,
    /// Not at this time or later.
    pub until: Option<StoreTime>,
}

impl Window {
    /// Whether the store's clock lies within it.
    #[must_use]
    pub fn contains(self, now: StoreTime) -> bool {
        self.from.is_none_or(|from| from <= now) && self.until.is_none_or(|until| now < until)
    }
}

/// What a store can do, constant while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// It has a clock: it stamps what it writes, and checks the window of a change.
    pub clock: bool,
    /// It compares and writes several records as one step. A store that cannot writes the records of a change one by
    /// one, in the order given, and compares only those that it writes.
    pub together: bool,
    /// How many changes one commit may contain.
    pub most_changes: usize,
    /// How many bytes of text one signal may carry.
    pub most_signal_bytes: usize,
}
