//! Who is told: waiters about a free ticket, and owners about what they are asked to do.

use alloc::vec::Vec;
use core::time::Duration;

use super::draft::Draft;
use crate::message::{LeaseId, Wish};
use crate::names::ResourceName;
use crate::planted::Bug;
use crate::rules::change::{Change, Signal};
use crate::rules::leases;
use crate::rules::records::{Owner, Resource, is_told, notify};
use crate::rules::view::View;

/// How many other waiters a signal may go to if the first does not listen.
const ALTERNATIVES: usize = 8;

/// Hints the waiters that may take a free ticket at once, and tells the next waiter to look one step later. A hint that
/// nobody listens to goes on to the next waiter.
pub(in crate::rules) fn wake(
    view: &View<'_>,
    name: &ResourceName,
    resource: &Resource,
    except: Option<LeaseId>,
) -> Vec<Signal> {
    let free = resource.free();
    if free == 0 || view.planted.has(Bug::NobodyIsHinted) {
        return Vec::new();
    }
    let waiters: Vec<_> = resource.queue.iter().collect();
    let more = usize::from(!view.planted.has(Bug::NextIsNotTold));
    let mut signals = Vec::new();
    for (position, waiter) in waiters.iter().enumerate().take(free + more) {
        if Some(waiter.lease) == except {
            continue;
        }
        let after = if position < free { Duration::ZERO } else { waiter.step };
        let others = waiters[position + 1..].iter().take(ALTERNATIVES);
        let to = core::iter::once(waiter.lease).chain(others.map(|other| other.lease));
        let to = to.filter(|lease| Some(*lease) != except).collect();
        signals.push(Signal::Look { to, resource: name.clone(), after });
    }
    signals
}

impl Draft<'_> {
    /// Notices for owners that are asked for something and were not told yet: any worker that looks tells them.
    pub(super) fn knocks(&self) -> Vec<Change> {
        if self.view.planted.has(Bug::WishWithoutKnock) {
            return Vec::new();
        }
        let wishes = self.resource.owners.iter().filter_map(|owner| Some((owner, owner.wish?)));
        wishes.filter_map(|(owner, wish)| knock(&self.view, self.name, owner, wish)).collect()
    }
}

/// Tells an owner what it is asked for; nothing if it was told already, or if its lease is not known to live.
fn knock(view: &View<'_>, name: &ResourceName, owner: &Owner, wish: Wish) -> Option<Change> {
    let (record, lease) = view.lease(owner.lease)?;
    if lease.ended.is_some() || is_told(lease, name, owner.grant.token, wish) {
        return None;
    }
    let mut told = lease.clone();
    notify(&mut told, name, owner.grant.token, wish);
    Some(leases::rewritten(view, record, owner.lease, told, name))
}
