//! The leases of a store, and the one judgement of life.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::time::Duration;

use crate::message::{Closing, LeaseId, Notice, Seq};
use crate::moment::StoreTime;
use crate::names::{Label, Metadata, ResourceName};

/// How long the record of a dead lease is kept, so that a late `open` cannot make it again.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// How many old records one `open` clears: bounded work.
const CLEARED: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    pub(super) label: Label,
    pub(super) metadata: Metadata,
    pub(super) ttl: Duration,
    pub(super) opened_at: StoreTime,
    pub(super) expires_at: StoreTime,
    pub(super) ended: Option<Ended>,
    /// The number of the newest renewal.
    pub(super) renewed: Seq,
    /// Where this lease is an owner.
    pub(super) held: BTreeSet<ResourceName>,
    pub(super) notices: BTreeMap<ResourceName, Notice>,
}

/// How a lease came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ended {
    pub(super) at: StoreTime,
    pub(super) why: Closing,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Leases {
    all: BTreeMap<LeaseId, Lease>,
    /// All of them, in the order in which they will be looked at for clearing.
    turn: VecDeque<LeaseId>,
}

impl Leases {
    pub(super) fn get(&self, id: LeaseId) -> Option<&Lease> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: LeaseId) -> Option<&mut Lease> {
        self.all.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: LeaseId, lease: Lease) {
        self.all.insert(id, lease);
        self.turn.push_back(id);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LeaseId, &Lease)> {
        self.all.iter().map(|(id, lease)| (*id, lease))
    }

    /// Whether the lease is marked dead, or forgotten.
    pub(super) fn is_marked(&self, id: LeaseId) -> bool {
        self.all.get(&id).is_none_or(|lease| lease.ended.is_some())
    }

    /// Whether the lease lives as of `judged`. Marks nobody.
    pub(super) fn lives(&self, id: LeaseId, judged: StoreTime) -> bool {
        self.all.get(&id).is_some_and(|lease| lease.ended.is_none() && lease.expires_at > judged)
    }

    /// The same, and a lease that is found run out is marked dead: its death is stable from here on.
    pub(super) fn judge(&mut self, id: LeaseId, judged: StoreTime) -> bool {
        let Some(lease) = self.all.get(&id) else { return false };
        let expires_at = lease.expires_at;
        if lease.ended.is_none() && expires_at <= judged {
            self.end(id, Ended { at: expires_at, why: Closing::Expired });
            return false;
        }
        lease.ended.is_none()
    }

    /// Marks the lease dead. One that is dead already stays as it is.
    pub(super) fn end(&mut self, id: LeaseId, ended: Ended) {
        let Some(lease) = self.all.get_mut(&id) else { return };
        if lease.ended.is_none() {
            lease.ended = Some(ended);
            lease.notices.clear();
        }
    }

    /// When and why the lease ended, for the history of what it held. For one that has run out without
    /// being marked: as it will be marked.
    pub(super) fn ending(&self, id: LeaseId, judged: StoreTime) -> Ended {
        match self.all.get(&id) {
            Some(lease) => lease.ended.unwrap_or(Ended { at: lease.expires_at, why: Closing::Expired }),
            None => Ended { at: judged, why: Closing::Expired },
        }
    }

    /// Forgets a few that died long ago, as far as the caller can vouch for it. One that a resource still
    /// names is kept until that is looked at.
    pub(super) fn clear_old(&mut self, now: StoreTime, vouched: Option<StoreTime>) {
        for _ in 0..CLEARED.min(self.turn.len()) {
            let Some(id) = self.turn.pop_front() else { return };
            let Some(lease) = self.all.get(&id) else { continue };
            let over = match lease.ended {
                Some(ended) => ended.at + REMEMBERED <= now,
                None => vouched.is_some_and(|vouched| lease.expires_at + REMEMBERED <= vouched.min(now)),
            };
            if over && lease.held.is_empty() {
                self.all.remove(&id);
            } else {
                self.turn.push_back(id);
            }
        }
    }
}
