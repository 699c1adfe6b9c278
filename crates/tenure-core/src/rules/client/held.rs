//! What a lease holds, and what its worker is asked for: a look at every resource that was ever claimed under the
//! lease.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::Client;
use super::answer::PartAnswer;
use super::decide::release_change;
use super::operation::{Operation, Part, Scan};
use super::protocol::{Act, Env, Step};
use super::send::Sendable;
use crate::message::{BATCH, Call, Holding, LeaseId, Notice, Request, Said};
use crate::names::ResourceName;
use crate::planted::Bug;
use crate::rules::change::Change;
use crate::rules::keys::Key;
use crate::rules::tickets;
use crate::rules::view::{Standing, View};

impl Client {
    /// Reads every resource that was ever claimed under the lease, in one life of the store. Settles [`Call::Held`] and
    /// [`Act::Wishes`]; nothing to do for other requests.
    pub(super) fn decide_held(&mut self, env: &Env, op: &mut Operation) -> Option<Step> {
        let (lease, is_held) = match &op.act {
            Act::Call(Request { lease, call: Call::Held, .. }, _) => (*lease, true),
            Act::Wishes(lease) => (*lease, false),
            _ => return None,
        };
        if !matches!(op.parts[0], Part::Open) {
            return None;
        }
        let mut scan = match op.scan.take() {
            Some(scan) => scan,
            None => match self.own_leases.get(&lease) {
                Some(own) if own.too_many_touched => return Some(Step::List),
                Some(own) => Scan { names: own.touched.iter().cloned().collect(), ..Scan::default() },
                None => Scan::default(),
            },
        };
        if self.planted.has(Bug::HeldAsksOnlyForOwned) {
            scan.names.retain(|name| !self.has_left_for_good(lease, name));
        }
        if let Some(step) = self.scan_on(env, op, lease, is_held, &mut scan) {
            op.scan = Some(scan);
            return Some(step);
        }
        op.parts[0] = Part::Settled(match is_held {
            true => PartAnswer::Said(self.said_held(self.view(env, op), lease, scan)),
            false => {
                let found = scan.owned.into_iter().filter_map(|(resource, owner)| {
                    Some(Notice { resource, token: owner.grant.token, wish: owner.wish? })
                });
                let found: Vec<Notice> = found.collect();
                if let Some(own) = self.own_leases.get_mut(&lease) {
                    own.found_notices = found;
                }
                PartAnswer::Done
            }
        });
        None
    }

    /// What the scan still needs; nothing when it is complete.
    fn scan_on(
        &mut self,
        env: &Env,
        op: &mut Operation,
        lease: LeaseId,
        is_held: bool,
        scan: &mut Scan,
    ) -> Option<Step> {
        let view = self.view(env, op);
        let unread = |name: &&ResourceName| {
            !op.unreadable.contains(*name) && !view.has_fresh(&Key::Resource((*name).clone()))
        };
        let batch = BATCH.min(self.capabilities.most_changes.max(1));
        loop {
            let some = &scan.names[scan.seen..(scan.seen + batch).min(scan.names.len())];
            let mut keys: BTreeSet<Key> =
                [Key::Lease(lease)].into_iter().filter(|key| !view.has_fresh(key)).collect();
            keys.extend(some.iter().filter(unread).map(|name| Key::Resource(name.clone())));
            if !keys.is_empty() {
                return Some(self.read_step(env, op, keys));
            }
            if some.is_empty() {
                break;
            }
            if is_held && !self.capabilities.together && scan.rewritten == scan.seen {
                // This store does not compare lives. A new version keeps out a commit from another life.
                let rewritten = some.iter().filter_map(|name| rewrite_unchanged(view, lease, name)).collect();
                scan.rewritten += some.len();
                op.fresh_from = self.next_order();
                return Some(self.commit_step(env, op, rewritten));
            }
            let owners = some.iter().filter_map(|name| {
                let (_, resource) = view.resource(name)?;
                Some((name.clone(), resource?.owner_with(lease)?.clone()))
            });
            scan.owned.extend(owners);
            scan.seen += some.len();
        }
        let left = scan.names.iter().filter(|name| is_held && self.has_left_for_good(lease, name));
        let places: Vec<_> = left.filter_map(|name| leave_queue(view, lease, name)).collect();
        if places.is_empty() || self.planted.has(Bug::PlacesNotLeft) {
            return None;
        }
        // A store that fell back shows the worker in queues that it has left.
        Some(self.commit_step(env, op, places))
    }

    fn has_left_for_good(&self, lease: LeaseId, name: &ResourceName) -> bool {
        self.own_leases.get(&lease).is_some_and(|own| own.left_for_good(name))
    }

    /// The answer to [`Call::Held`].
    fn said_held(&self, view: View<'_>, lease: LeaseId, scan: Scan) -> Said {
        let lives = matches!(view.standing(lease), Some(Standing::Alive(_) | Standing::RunOut(_)));
        let lost = self.own_leases.get(&lease).is_some_and(|own| own.lost);
        if lost || !lives || view.lease(lease).is_some_and(|(_, lease)| lease.is_adopted()) {
            return Said::Gone;
        }
        let held = scan.owned.into_iter().map(|(resource, owner)| Holding {
            resource,
            ticket: owner.grant.ticket,
            token: owner.grant.token,
        });
        Said::Held(held.collect())
    }
}

/// Takes the worker out of the queue of a resource that it does not own.
fn leave_queue(view: View<'_>, id: LeaseId, name: &ResourceName) -> Option<Sendable> {
    let (_, resource) = view.resource(name)?;
    resource.filter(|resource| resource.waits(id) && resource.owner_with(id).is_none())?;
    release_change(view, id, name).map(|change| (None, change, PartAnswer::Done))
}

/// Writes a resource as it is, under a new version.
fn rewrite_unchanged(view: View<'_>, id: LeaseId, name: &ResourceName) -> Option<Sendable> {
    let (record, resource) = view.resource(name)?;
    let unchanged = resource.cloned().unwrap_or_else(|| tickets::unclaimed(id));
    let change = Change::of(Key::Resource(name.clone()), record.version, unchanged);
    Some((None, Change { essential: true, urgent: true, ..change }, PartAnswer::Done))
}
