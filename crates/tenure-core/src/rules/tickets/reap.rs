//! Frees the tickets of owners whose leases have ended, and finds dead waiters. Also which leases a claim has to read
//! for that.
//!
//! How a lease ends is decided in `rules/leases.rs`.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::draft::Draft;
use super::turn::WATCHFUL;
use crate::message::LeaseId;
use crate::names::ResourceName;
use crate::planted::Bug;
use crate::rules::change::Decision;
use crate::rules::keys::Key;
use crate::rules::leases;
use crate::rules::records::{Ended, Owner, Resource};
use crate::rules::view::{Standing, View, Wanted, run_out};

/// How many leases of owners one claim reads.
const MOST_OWNERS: usize = 64;

/// The records that a claim reads: the resource, the leases of its owners, and those of the waiters that come first.
pub(in crate::rules) fn look_keys(view: &View<'_>, id: LeaseId, name: &ResourceName) -> BTreeSet<Key> {
    let mut keys: BTreeSet<Key> = [Key::Resource(name.clone())].into();
    if view.quarantine().is_some() {
        // Another process may have ended it, or it began by a clock that has gone back since.
        keys.insert(Key::Meta);
    }
    if let Some((_, Some(resource))) = view.resource(name) {
        keys.extend(owners_to_read(view, resource).map(Key::Lease));
        keys.extend(waiters_before(resource, id).map(Key::Lease));
    }
    keys
}

/// The owners whose leases end first. A lease that was not read yet may be the first.
fn owners_to_read<'a>(view: &View<'_>, resource: &'a Resource) -> impl Iterator<Item = LeaseId> + use<'a> {
    let mut owners: Vec<(bool, Duration, LeaseId)> = resource
        .owners
        .iter()
        .map(|owner| {
            let left = match view.standing(owner.lease) {
                Some(Standing::Alive(left)) => left,
                _ => Duration::ZERO,
            };
            (!view.has_fresh(&Key::Lease(owner.lease)), left, owner.lease)
        })
        .collect();
    if owners.len() > MOST_OWNERS {
        // Leases that were read for this request come first, so that the choice stays the same.
        owners.sort();
        owners.truncate(MOST_OWNERS);
    }
    owners.into_iter().map(|(_, _, lease)| lease)
}

/// Of the first few waiters, those that come before this one.
fn waiters_before(resource: &Resource, id: LeaseId) -> impl Iterator<Item = LeaseId> {
    let first = resource.queue.iter().take(resource.free() + WATCHFUL).map(|waiter| waiter.lease);
    first.take_while(move |lease| *lease != id)
}

impl Draft<'_> {
    /// Frees the tickets of owners whose leases have ended. Leases that have run out are ended first, in a commit of
    /// their own. Notes which waiters are dead.
    pub(super) fn reap<T>(&mut self, id: LeaseId) -> Result<(), Decision<T>> {
        let view = self.view;
        let quarantined = view.quarantine().is_some_and(|left| !left.is_zero());
        let may_end = !quarantined || view.planted.has(Bug::EndedInQuarantine);
        let (mut wanted, mut first) = (Wanted::default(), Vec::new());
        let mut over: Vec<(Owner, Ended)> = Vec::new();
        let mut expired = Vec::new();
        for lease in owners_to_read(&view, &self.resource).collect::<Vec<_>>() {
            let Some(owner) = self.resource.owner_with(lease).filter(|owner| owner.lease != id) else {
                continue;
            };
            match view.standing(lease) {
                None => drop(wanted.0.insert(Key::Lease(lease))),
                Some(Standing::Ended(ended)) => over.push((owner.clone(), ended)),
                Some(Standing::RunOut(at)) if may_end => {
                    if view.planted.has(Bug::TakeBeforeEnd) || view.planted.has(Bug::BatchLeans) {
                        over.push((owner.clone(), run_out(at)));
                    }
                    expired.push(lease);
                }
                Some(Standing::Missing) if !view.has_fresh(&Key::Lease(lease)) => {
                    wanted.0.insert(Key::Lease(lease));
                }
                Some(Standing::Missing) => first.extend(leases::adopt(&view, lease)),
                Some(Standing::Alive(_) | Standing::RunOut(_)) => {}
            }
        }
        if expired.len() > 1 {
            // Most of them have probably renewed since they were read.
            expired.iter().for_each(|lease| wanted.unless_fresh(&view, Key::Lease(*lease)));
        }
        first.extend(expired.into_iter().filter_map(|lease| leases::end_run_out(&view, lease)));
        for lease in waiters_before(&self.resource, id) {
            match view.standing(lease) {
                None => drop(wanted.0.insert(Key::Lease(lease))),
                Some(Standing::Ended(_)) => drop(self.dead.insert(lease)),
                Some(Standing::Alive(_)) => {}
                Some(Standing::RunOut(_)) if !may_end => {}
                Some(Standing::RunOut(_) | Standing::Missing) if view.has_fresh(&Key::Lease(lease)) => {
                    self.dead.insert(lease);
                }
                Some(Standing::RunOut(_) | Standing::Missing) => drop(wanted.0.insert(Key::Lease(lease))),
            }
        }
        if !wanted.is_empty() {
            return Err(Decision::Read(wanted.0));
        }
        let early = view.planted.has(Bug::TakeBeforeEnd) || view.planted.has(Bug::BatchLeans);
        if !first.is_empty() && !early {
            return Err(Decision::First(first));
        }
        self.vacate_ended(over);
        Ok(())
    }

    /// Frees the tickets of these owners: their leases have ended.
    pub(super) fn vacate_ended(&mut self, over: Vec<(Owner, Ended)>) {
        let view = self.view;
        for (owner, ended) in over {
            self.freed = true;
            let (worker, ended_for) = match view.lease(owner.lease) {
                Some((record, lease)) => {
                    (lease.label.clone(), view.ago(record, ended.at, record.seen.first_at))
                }
                None => continue,
            };
            self.freed_for = self.freed_for.min(ended_for);
            // Nobody takes a ticket beyond K, so no grant would clear it away.
            self.changed |= owner.grant.ticket.0 >= self.resource.tickets;
            // A grant may be stamped after the expiry, if the clock of its worker lagged.
            let at = ended.at.max(owner.since);
            // Absent means now, which is later than any end.
            let freed = self.resource.freed.map(|freed| at.map_or(freed, |at| freed.max(at)));
            self.resource.vacate(owner.grant.token, freed);
            self.note(at, worker, owner.grant, ended.why.into());
        }
    }
}
