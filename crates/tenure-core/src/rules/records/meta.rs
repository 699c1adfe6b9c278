//! The record of the whole namespace, and the record of the ttls in use.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Rest, Time};
use crate::message::{Incarnation, Token};

/// What concerns the whole namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Meta {
    /// The life of the store that wrote it.
    pub life: Incarnation,
    /// The longest ttl in use. After data may have been lost, nothing is granted for so long.
    pub longest: Duration,
    /// Set while nothing is granted.
    pub quarantine: Option<Quarantine>,
    /// Every token is above it.
    pub floor: Token,
    /// Names the channels: a stranger cannot guess them.
    pub secret: u128,
    /// What this version does not know.
    pub rest: Rest,
}

impl Meta {
    /// The quarantine of a namespace that was new to the process that created it. It is not needed if the store lost
    /// nothing.
    pub(in crate::rules) fn new_quarantine(&self) -> Option<&Quarantine> {
        self.quarantine.as_ref().filter(|quarantine| quarantine.from.is_none())
    }
}

/// Nothing is granted until one longest ttl has passed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quarantine {
    /// Since when.
    pub since: Time,
    /// Drawn at random when it began: tells two of them apart.
    pub mark: u64,
    /// The life of the store that a process came from.
    pub from: Option<Incarnation>,
    /// What this version does not know.
    pub rest: Rest,
}

/// Which ttls are in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ttls {
    /// At most [`MOST_TTLS`].
    pub uses: Vec<TtlUse>,
    /// What this version does not know.
    pub rest: Rest,
}

/// How many different ttls are noted: the longest ones.
pub const MOST_TTLS: usize = 16;

/// A ttl, and when a lease was last opened with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TtlUse {
    /// How long.
    pub ttl: Duration,
    /// The last time.
    pub used: Time,
}
