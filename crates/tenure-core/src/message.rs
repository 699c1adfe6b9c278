//! What a worker asks of a store, and what a store answers. Plain data; the rules are in `rules`.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::moment::{Moment, StoreTime};
use crate::names::{Label, Metadata, ResourceName, Tickets};

/// How many resources one request may name.
pub const BATCH: usize = 250;
/// How many notices one answer carries.
pub const NOTICES: usize = 64;

/// The identity of a lease and the bearer's right to it: random, used once, never printed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u128);

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseId(..)")
    }
}

/// The number of a worker's request, attempts included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// One of the seats of a resource: 0 to K-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);

/// The ordinal of an ownership: 1, 2, 3, ...; for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// The number that fences writes: strictly increasing per resource, for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

macro_rules! number {
    ($($name:ident is $number:ident),+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<$name> for $number {
            fn from(number: $name) -> Self {
                number.0
            }
        }
    )+};
}

number!(Ticket is u32, Term is u64, Token is u64);

/// One life of a store with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

/// What a worker asks of the store. The answer is handed back together with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Who asks.
    pub lease: LeaseId,
    /// The how-manieth request of this worker it is.
    pub seq: Seq,
    /// When it was asked, read before it left.
    pub asked_at: Moment,
    /// How long the attempt may take; then it is given up, with its connection.
    pub limit: Duration,
    /// The latest store time that the worker's own clock can vouch for; absent on first contact.
    pub judged_by: Option<StoreTime>,
    /// What is asked.
    pub call: Call,
}

/// The operations of the store that need a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Create the lease. Repeating it changes nothing.
    Open {
        /// How long it lives without a renewal.
        ttl: Duration,
        /// What people call the worker.
        label: Label,
        /// What it tells the others.
        metadata: Metadata,
    },
    /// Extend the lease, if it lives.
    Renew,
    /// A ticket of each of these, or a place in its queue.
    Claim(Vec<Want>),
    /// As of this request the worker holds and wants nothing of these.
    Release(Vec<Leave>),
    /// What does this lease hold?
    Held,
    /// End the lease, and with it everything that it holds.
    Close(Closing),
}

/// One resource that is claimed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// Which one.
    pub resource: ResourceName,
    /// How many tickets it should have.
    pub tickets: Tickets,
    /// Larger is served first; taken with the place in the queue.
    pub priority: i32,
}

/// One resource that is given up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leave {
    /// Which one.
    pub resource: ResourceName,
    /// What follows, and what the history says.
    pub how: Leaving,
}

/// How a resource is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leaving {
    /// For good, as far as the store is concerned.
    Released,
    /// Because the work failed.
    Failed,
    /// Handed over; in the same step the worker queues again, at the tail.
    SteppedDown,
}

/// Why a lease is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Closing {
    /// The worker leaves.
    Left,
    /// Its trust had run out, and the last work under it has ended now.
    Expired,
    /// Somebody proved that the worker is dead.
    Proved,
}

/// What a store answers. Every answer is stamped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use = "an answer decides who owns"]
pub struct Answer {
    /// By whom, and when.
    pub stamp: Stamp,
    /// What.
    pub said: Said,
}

/// What every answer tells of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The store's clock when it applied the request: by this it decided.
    pub now: StoreTime,
    /// The store's clock when it made the answer: from this on spans are counted, and by this the worker watches the
    /// clock. The same as `now` where nothing takes long in between.
    pub shown: StoreTime,
    /// Which life of the store this is.
    pub incarnation: Incarnation,
    /// The longest ttl that the namespace has seen.
    pub longest: Duration,
}

/// What was said to the one call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Said {
    /// The lease lives.
    Opened,
    /// The lease was extended.
    Kept {
        /// What the store has to tell this worker; at most 64.
        notices: Vec<Notice>,
        /// Whether there are more; they come as these are released.
        more: bool,
    },
    /// One answer per resource, in the order of the claim.
    Claimed(Vec<Claimed>),
    /// One answer per resource, in the order of the release.
    Released(Vec<Released>),
    /// Everything that the lease holds.
    Held(Vec<Holding>),
    /// The lease is over.
    Closed,
    /// The lease is dead or unknown. It stays so.
    Gone,
    /// A newer renewal of this lease was here already.
    Stale,
}

/// The answer to the claim of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claimed {
    /// A ticket; the same one as before if the lease held one already.
    Granted(Grant),
    /// A place in the queue.
    Waiting(Waiting),
}

/// The answer to the release of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// Nothing is held or wanted any more.
    Free,
    /// Given up and queued again, answered like a claim.
    Again(Claimed),
}

/// A ticket, as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Which seat.
    pub ticket: Ticket,
    /// The how-manieth ownership of the resource.
    pub term: Term,
    /// What fences writes.
    pub token: Token,
}

/// A place in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    /// How many live waiters come first.
    pub ahead: u32,
    /// When it makes sense to ask again, counted from this answer.
    pub look_again: Duration,
    /// Why there is no ticket now.
    pub why: WaitReason,
}

/// Why a claim has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitReason {
    /// Every ticket is owned.
    Taken,
    /// A ticket is free, and others come first for a moment.
    Turn,
    /// The store is new or lost its data, and grants nothing until every owner of before has stopped.
    Quarantine,
    /// What the store has of the resource is damaged, or was written by a newer version.
    Unreadable,
}

/// What a lease holds, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    /// Of which resource.
    pub resource: ResourceName,
    /// Which seat.
    pub ticket: Ticket,
    /// Under which token.
    pub token: Token,
}

/// What the store has to tell a worker about one ownership. Repeated until it is released.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// Of which resource.
    pub resource: ResourceName,
    /// Which ownership.
    pub token: Token,
    /// What.
    pub wish: Wish,
}

/// What a notice says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wish {
    /// The resource has fewer tickets now: hand this one over gently.
    Lowered,
    /// The operator asks that this ownership be handed over gently.
    Asked,
    /// The operator has taken the ticket away.
    Evicted,
}

/// A wake-up, for a waiter or for an owner that there is something to tell. It may be lost, late or wrong: the claim or
/// the renewal decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hint {
    /// For whom.
    pub lease: LeaseId,
    /// What it is about.
    pub resource: ResourceName,
    /// How long to leave it to those who come first.
    pub after: Duration,
}

/// The answer to an operator's wish about one ownership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StepDownReply {
    /// The owner is told, or the ticket is free.
    Done,
    /// Nobody owns the resource under that token; these are the tokens of the present owners.
    OtherOwners(Vec<Token>),
    /// Nobody of that label waits.
    NotWaiting,
}
