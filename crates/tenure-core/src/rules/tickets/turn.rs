//! Whose turn it is: how long a waiter leaves a free ticket to the waiters before it, and when it looks again.

use core::time::Duration;

use super::Caller;
use super::draft::Draft;
use crate::message::{Claimed, WaitReason, Waiting};
use crate::planted::Bug;
use crate::rules::records::{Owner, Time};
use crate::rules::view::Standing;

/// The least that a waiter leaves to each waiter before it.
const SHORTEST_STEP: Duration = Duration::from_millis(100);
/// Nobody waits for more steps than this once a ticket is free, however far back it queues.
const MOST_STEPS: u32 = 10;
/// Up to this position a waiter looks one step after the waiter before it. Those behind look a ttl later.
pub(super) const WATCHFUL: usize = 8;
/// Nobody is told to look again sooner.
pub(in crate::rules) const SOONEST: Duration = Duration::from_millis(1);

/// Whether a waiter may take a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It may, from this time on by the store's clock.
    Now(Time),
    /// It may after this span.
    In(Duration),
    /// No ticket is free.
    Taken,
}

/// How long a waiter with this ttl leaves a free ticket to the waiter before it.
pub(super) fn step(ttl: Duration) -> Duration {
    SHORTEST_STEP.max(ttl / 150)
}

pub(in crate::rules) fn waiting(ahead: usize, look_again: Duration, why: WaitReason) -> Claimed {
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    Claimed::Waiting(Waiting { ahead, look_again: look_again.max(SOONEST), why })
}

impl Draft<'_> {
    /// Whether a waiter with so many live waiters before it may take a ticket now.
    pub(super) fn turn(&self, ahead: usize, step: Duration) -> Turn {
        let free = self.resource.free();
        if free == 0 {
            return if self.view.planted.has(Bug::TicketsNotCounted) { Turn::Now(None) } else { Turn::Taken };
        }
        if ahead < free {
            return Turn::Now(None);
        }
        let steps = u32::try_from(ahead - free + 1).unwrap_or(u32::MAX).min(MOST_STEPS);
        let left = (step * steps).saturating_sub(self.freed_for);
        if left.is_zero() {
            Turn::Now(self.resource.freed.map(|freed| freed + step * steps))
        } else {
            Turn::In(left)
        }
    }

    /// How much later than the head a waiter looks: a step for each waiter before it, or a ttl if it is far back.
    pub(super) fn later(&self, caller: &Caller<'_>, ahead: usize) -> Duration {
        match ahead <= WATCHFUL && !self.view.planted.has(Bug::LookTooLate) {
            true => step(caller.lease.ttl) * u32::try_from(ahead).unwrap_or(u32::MAX),
            false => caller.lease.ttl,
        }
    }

    /// How long until the first lease of an owner runs out.
    pub(super) fn first_to_end(&self) -> Duration {
        let left = |owner: &Owner| match self.view.standing(owner.lease) {
            Some(Standing::Alive(left)) => Some(left),
            Some(_) => Some(Duration::ZERO),
            None => None,
        };
        self.resource.owners.iter().filter_map(left).min().unwrap_or_default()
    }

    /// The position of a newcomer with this priority.
    pub(super) fn position_for(&self, priority: i32) -> usize {
        self.resource.queue.partition_point(|waiter| waiter.named > 0 || waiter.priority >= priority)
    }
}
