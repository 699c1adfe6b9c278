//! What a claimant gets: the ticket that it owns already, a free ticket, or a place in the queue.

use alloc::vec;
use core::time::Duration;

use super::Caller;
use super::draft::Draft;
use super::turn::{Turn, step, waiting};
use crate::message::{Claimed, Grant, LeaseId, Term, Token, WaitReason};
use crate::planted::Bug;
use crate::rules::change::{Change, Decision, Signal};
use crate::rules::keys::{Key, Window};
use crate::rules::records::{Meta, Owner, Resource, Rest, Time};
use crate::rules::view::Standing;
use crate::shown::HistoryEvent;

/// How many owners are sent the record when a worker joins the queue.
const OWNERS_TOLD: usize = 4;

impl Draft<'_> {
    /// Answers with the ticket that the worker owns already, or grants one that it may take now. Else queues the
    /// worker, once, and says when to look again.
    pub(super) fn grant_or_queue(mut self, caller: &Caller<'_>, priority: i32) -> Decision<Claimed> {
        let quarantine = match self.settle_quarantine() {
            Ok(quarantine) => quarantine,
            Err(decision) => return decision,
        };
        if let Some(owner) = self.resource.owner_with(caller.id) {
            let claimed = match quarantine {
                None => Claimed::Granted(owner.grant),
                Some(left) => waiting(0, left, WaitReason::Quarantine),
            };
            let meta = self.view.meta().map(|(meta, _)| (Key::Meta, meta.version));
            let meta = meta.filter(|_| !self.view.planted.has(Bug::FoundCounts));
            return self.written_or_said(caller, claimed).only_if(meta);
        }
        let position = self.resource.queue.iter().position(|waiter| waiter.lease == caller.id);
        let position = position.unwrap_or_else(|| self.position_for(priority));
        let ahead = self.resource.queue[..position]
            .iter()
            .filter(|waiter| !self.dead.contains(&waiter.lease))
            .count();
        let turn = self.turn(ahead, step(caller.lease.ttl));
        if let (None, Turn::Now(from)) = (quarantine, turn)
            && let Some(decision) = self.grant(caller, from)
        {
            return decision;
        }
        let later = self.later(caller, ahead);
        let claimed = match (quarantine, turn) {
            (Some(left), _) => waiting(ahead, left.saturating_add(later), WaitReason::Quarantine),
            (None, Turn::In(left)) => waiting(ahead, left, WaitReason::Turn),
            (None, _) => waiting(ahead, self.first_to_end().saturating_add(later), WaitReason::Taken),
        };
        if self.resource.waits(caller.id) {
            return self.written_or_said(caller, claimed);
        }
        if position >= self.resource.most_waiters() && !self.view.planted.has(Bug::FullQueueIsWritten) {
            let behind = waiting(ahead, caller.lease.ttl, WaitReason::Taken);
            self.confirmed = false;
            return self.written_or_said(caller, behind);
        }
        self.resource.join(caller.id, priority, 0, step(caller.lease.ttl));
        let most = self.resource.most_waiters();
        self.resource.queue.truncate(most);
        let mut change = self.change(caller);
        let owners = self.resource.owners.iter().take(OWNERS_TOLD);
        change.signals.extend(owners.map(|owner| Signal::Changed(owner.lease, self.name.clone())));
        Decision::commit(change, claimed)
    }

    /// Queues the worker at the tail after a step-down, or grants the ticket again if nobody else waits.
    pub(super) fn queue_again(mut self, caller: &Caller<'_>) -> Decision<Claimed> {
        let quarantine = self.view.quarantine();
        let view = self.view;
        // The other leases may have been read long ago. Only an end is certain to stand.
        let ended = |owner: &Owner| match view.standing(owner.lease) {
            Some(Standing::Ended(ended)) => Some((owner.clone(), ended)),
            _ => None,
        };
        let over = self.resource.owners.iter().filter_map(ended).collect();
        self.vacate_ended(over);
        let lives = |lease: LeaseId| !matches!(view.standing(lease), Some(Standing::Ended(_)));
        let living = self.resource.queue.iter().filter(|waiter| lives(waiter.lease));
        let lowest = living.map(|waiter| waiter.priority).min();
        let ahead = self.resource.queue.iter().filter(|waiter| lives(waiter.lease)).count();
        // Giving up a ticket has no window, so a grant in the same change has none either.
        let unlimited =
            |change: Change| Change { essential: true, urgent: true, window: Window::default(), ..change };
        if let (None, Turn::Now(_)) = (quarantine, self.turn(ahead, step(caller.lease.ttl)))
            && let Some(Decision::Commit(change, claimed)) = self.grant(caller, None)
        {
            return Decision::commit(unlimited(*change), claimed);
        }
        let later = self.later(caller, ahead);
        let claimed = match (quarantine, self.turn(ahead, step(caller.lease.ttl))) {
            (Some(left), _) => waiting(ahead, left.saturating_add(later), WaitReason::Quarantine),
            (None, Turn::In(left)) => waiting(ahead, left, WaitReason::Turn),
            (None, _) => waiting(ahead, self.first_to_end().saturating_add(later), WaitReason::Taken),
        };
        let claimed = match self.resource.queue.len() < self.resource.most_waiters() {
            true => {
                self.resource.join(caller.id, lowest.unwrap_or(0), 0, step(caller.lease.ttl));
                claimed
            }
            false => waiting(ahead, caller.lease.ttl, WaitReason::Taken),
        };
        Decision::commit(unlimited(self.change(caller)), claimed)
    }

    /// Grants the lowest free ticket, under the next term and a larger token.
    pub(super) fn grant(&mut self, caller: &Caller<'_>, from: Time) -> Option<Decision<Claimed>> {
        let (meta_record, meta) = self.view.meta()?;
        let tickets =
            if self.view.planted.has(Bug::TicketsNotCounted) { u32::MAX } else { self.resource.tickets };
        let ticket = Resource { tickets, ..self.resource.clone() }.lowest_free()?;
        let resource = &mut self.resource;
        resource.term = Term(resource.term.0.saturating_add(1));
        let least = resource.token.max(meta.floor).0.saturating_add(1);
        resource.token = Token(least.max(self.view.wall_for_token()));
        let grant = Grant { ticket, term: resource.term, token: resource.token };
        resource.leave_queue(caller.id);
        let at = resource.owners.partition_point(|owner| owner.grant.ticket < ticket);
        resource
            .owners
            .insert(at, Owner { lease: caller.id, grant, since: None, wish: None, rest: Rest::new() });
        // The record stays in the cache for as long as the ticket is owned.
        resource.owners.shrink_to_fit();
        self.note(None, caller.lease.label.clone(), grant, HistoryEvent::Granted);
        let change = self.change(caller);
        let change = match self.view.planted.has(Bug::MetaNotExpected) {
            true => change,
            false => change.expecting(Key::Meta, meta_record.version),
        };
        let window = Window { from, ..change.window };
        Some(Decision::commit(
            Change { window, lasting: true, urgent: true, ..change },
            Claimed::Granted(grant),
        ))
    }

    /// How long the quarantine still lasts. One that is over is removed first, so that it stays over when `longest`
    /// grows.
    pub(super) fn settle_quarantine<T>(&self) -> Result<Option<Duration>, Decision<T>> {
        let (Some(left), Some((record, meta))) = (self.view.quarantine(), self.view.meta()) else {
            return Ok(None);
        };
        if self.view.planted.has(Bug::QuarantineOff) {
            return Ok(None);
        }
        if !left.is_zero() {
            return Ok(Some(left));
        }
        let since = meta.quarantine.as_ref().and_then(|quarantine| quarantine.since);
        let over = Meta { quarantine: None, ..meta.clone() };
        let from = since.map(|since| since + meta.longest);
        let change = Change::of(Key::Meta, record.version, over);
        Err(Decision::First(vec![Change { window: Window { from, until: None }, ..change }]))
    }
}
