//! What a process remembers of its own leases: what it touched and gave up, commits in doubt, notices.
//!
//! The rule that renews a lease is in `rules/leases.rs`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::Client;
use super::protocol::Sending;
use crate::message::{LeaseId, Leave, Leaving, Notice, Token};
use crate::names::ResourceName;
use crate::rules::keys::{Key, Version};
use crate::rules::records::{Order, Record};

/// How many resources of one lease a client remembers by name. Beyond it the client lists all resources.
const MOST_TOUCHED: usize = 10_000;

/// What a client remembers of a lease of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct OwnLease {
    /// Every resource that was claimed under the lease.
    pub(super) touched: BTreeSet<ResourceName>,
    /// There were more than [`MOST_TOUCHED`].
    pub(super) too_many_touched: bool,
    /// Commits whose outcome is unknown: the version that they expect of each resource, and when they were sent.
    pub(super) doubts: BTreeMap<ResourceName, Vec<(Version, Order)>>,
    /// Notices of a resource up to this token are done with.
    pub(super) settled: BTreeMap<ResourceName, Token>,
    /// Notices found on the resources, to be returned with the next renewal.
    pub(super) found_notices: Vec<Notice>,
    /// The lease has more notices than fit: the worker has to look at its resources.
    pub(super) must_look: bool,
    /// When each resource was given up last. A request from before that neither takes it nor gives it up.
    pub(super) given_up: BTreeMap<ResourceName, GivenUp>,
    /// Resources that were given up while their record was unreadable. A ticket that is found later does not count.
    pub(super) unreleased: BTreeSet<ResourceName>,
    /// The lease was lost with all data, within one life of the store. A record of it that is found later came late.
    pub(super) lost: bool,
}

/// A resource that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GivenUp {
    pub(super) at: Order,
    /// The worker does not want it any more.
    pub(super) for_good: bool,
}

impl OwnLease {
    pub(super) fn touch(&mut self, name: &ResourceName) {
        if self.touched.len() < MOST_TOUCHED {
            self.touched.insert(name.clone());
        } else if !self.touched.contains(name) {
            self.too_many_touched = true;
        }
    }

    pub(super) fn leave(&mut self, leave: &Leave, at: Order) {
        if self.given_up.len() >= MOST_TOUCHED {
            // Drop the older half: the requests that were under way then are over.
            let mut orders: Vec<Order> = self.given_up.values().map(|left| left.at).collect();
            orders.sort_unstable();
            self.given_up.retain(|_, left| left.at > orders[MOST_TOUCHED / 2]);
        }
        let for_good = leave.how != Leaving::SteppedDown;
        self.given_up.insert(leave.resource.clone(), GivenUp { at, for_good });
    }

    /// Whether the resource was given up after a request that began then.
    pub(super) fn has_left(&self, name: &ResourceName, begun: Order) -> bool {
        self.given_up.get(name).is_some_and(|left| left.at > begun)
    }

    /// Whether the worker does not want the resource any more.
    pub(super) fn left_for_good(&self, name: &ResourceName) -> bool {
        self.given_up.get(name).is_some_and(|left| left.for_good)
    }

    /// A linearizable read shows this version. The store will not apply a commit that was sent before the read and
    /// expects another version.
    pub(super) fn resolve_doubts(&mut self, name: &ResourceName, version: Version, asked: Order) {
        if let Some(doubts) = self.doubts.get_mut(name) {
            doubts.retain(|(doubted, sent)| *doubted == version || asked < *sent);
            if doubts.is_empty() {
                self.doubts.remove(name);
            }
        }
    }
}

impl Client {
    /// A commit is sent: until its outcome is known, it is in doubt.
    pub(super) fn doubt(&mut self, order: Order, lease: LeaseId, sending: &Sending) {
        for (name, version) in expected_resources(sending) {
            let own_lease = self.own_leases.entry(lease).or_default();
            own_lease.doubts.entry(name.clone()).or_default().push((version, order));
        }
    }

    /// A renewal clears the flag that there are more notices than fit, so the worker has to look, whether or not the
    /// renewal succeeds.
    pub(super) fn must_look_after(&mut self, lease: LeaseId, sending: &Sending) {
        let key = Key::Lease(lease);
        let more = self.records.get(&key).and_then(Record::lease).is_some_and(|lease| lease.more_notices);
        if more && sending.change.put.iter().any(|(put, _)| *put == key) {
            self.own_leases.entry(lease).or_default().must_look = true;
        }
    }

    /// The outcome of a commit is known.
    pub(super) fn resolve(&mut self, lease: LeaseId, sending: &Sending) {
        let Some(own_lease) = self.own_leases.get_mut(&lease) else { return };
        for (name, version) in expected_resources(sending) {
            if let Some(doubts) = own_lease.doubts.get_mut(name) {
                if let Some(at) = doubts.iter().position(|(doubted, _)| *doubted == version) {
                    doubts.remove(at);
                }
                if doubts.is_empty() {
                    own_lease.doubts.remove(name);
                }
            }
        }
    }
}

fn expected_resources(sending: &Sending) -> impl Iterator<Item = (&ResourceName, Version)> {
    let expected = sending.change.expect.iter();
    expected.filter_map(|(key, version)| match key {
        Key::Resource(name) => Some((name, *version)),
        _ => None,
    })
}
