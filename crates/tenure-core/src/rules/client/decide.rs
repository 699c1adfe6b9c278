//! Which rule decides which request, and what the client does with the decision: read, commit, or settle a part.
//!
//! No rule stands here. `held` decides the two requests that look at everything a lease may own.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::Client;
use super::answer::PartAnswer;
use super::operation::{Operation, Part};
use super::own_lease::OwnLease;
use super::protocol::{Act, Env, Step};
use super::send::{LONGEST_WAIT, Sendable};
use crate::message::{
    BATCH, Call, Closing, LeaseId, Leave, Leaving, Released, Request, Said, WaitReason, Want,
};
use crate::names::ResourceName;
use crate::planted::Bug;
use crate::rules::change::{Change, Decision};
use crate::rules::keys::{Key, Version};
use crate::rules::leases::{self, Opening, Renewal};
use crate::rules::tickets::{self, Outcome};
use crate::rules::view::{View, Wanted};
use crate::rules::{jobs, operators};

impl Client {
    /// Lets the rules decide the parts whose turn it is, and finds the next step: reads come before commits, and the
    /// wishes of all parts go together.
    pub(super) fn decide(&mut self, env: &Env, op: &mut Operation) -> Step {
        if let Some(step) = self.decide_held(env, op) {
            return step;
        }
        let (mut keys, mut first, mut changes) = (BTreeSet::new(), Vec::new(), Vec::new());
        let turn = op.parts_to_decide();
        if !turn.is_empty() {
            op.decided_at = env.at;
        }
        for part in turn {
            match self.decide_part(env, op, part) {
                Decision::Read(more) => keys.extend(more),
                Decision::First(some) => match op.out_of_window(&some) {
                    Some(_) => keys.extend(self.reread_or_hold_back(env, op, part, &some)),
                    None => first.extend(some),
                },
                Decision::Commit(change, said) => match op.out_of_window(core::slice::from_ref(&*change)) {
                    Some(_) => keys.extend(self.reread_or_hold_back(env, op, part, &[*change])),
                    None => changes.push((Some(part), *change, said)),
                },
                Decision::Say(said) => op.parts[part] = Part::Settled(said),
                Decision::SayIf(said, expected) => op.settle(self.capabilities, part, said, expected),
            }
        }
        if !keys.is_empty() {
            return self.read_step(env, op, keys);
        }
        if !first.is_empty() {
            let mut known = BTreeSet::new();
            first.retain(|change: &Change| change.put.iter().all(|(key, _)| known.insert(key.clone())));
            let first: Vec<_> = first.into_iter().map(|change| (None, change, PartAnswer::Done)).collect();
            return self.commit_step(env, op, first);
        }
        // Where a request names a resource twice, the second part is decided after the first is applied.
        let mut known = BTreeSet::new();
        changes.retain(|(_, change, _)| change.put.iter().all(|(key, _)| known.insert(key.clone())));
        if !changes.is_empty() {
            if let Some(wait) = self.wait_to_join(env, op, &changes) {
                return wait;
            }
            if self.planted.has(Bug::BatchLeans) {
                changes = self.with_ends(env, op, changes);
            }
            return self.commit_step(env, op, changes);
        }
        if let Some(step) = self.verify(env, op) {
            return step;
        }
        if op.parts_to_decide().is_empty() { Step::Done(self.reply(env, op)) } else { self.decide(env, op) }
    }

    /// For a store that compares only the records that it writes. What such a store applied counts only if a later read
    /// still shows what the change expected.
    pub(super) fn verify(&mut self, env: &Env, op: &mut Operation) -> Option<Step> {
        if op.verify.is_empty() {
            return None;
        }
        if !op.verified {
            op.verified = true;
            op.fresh_from = self.next_order();
            let keys =
                op.verify.iter().flat_map(|(_, _, expected)| expected.iter().map(|(key, _)| key.clone()));
            let keys = keys.collect();
            return Some(self.read_step(env, op, keys));
        }
        op.verified = false;
        for (part, said, expected) in core::mem::take(&mut op.verify) {
            // Only what this read has shown counts: an older reply may have arrived since.
            let view = self.view(env, op);
            let holds = |(key, version): &(Key, Version)| {
                view.get(key).is_some_and(|record| view.is_fresh(record) && record.version == *version)
            };
            if expected.iter().all(holds) {
                op.parts[part] = Part::Settled(said);
            }
        }
        None
    }

    /// The store's clock lies outside the window of these changes. If that clock went back, times from before it are
    /// too late: then records that were not read for this request are read first. Else the part is settled without a
    /// change.
    fn reread_or_hold_back(
        &self,
        env: &Env,
        op: &mut Operation,
        part: usize,
        changes: &[Change],
    ) -> BTreeSet<Key> {
        let view = self.view(env, op);
        let expected = changes.iter().flat_map(|change| change.expect.iter().map(|(key, _)| key));
        let outdated: BTreeSet<Key> = expected.filter(|key| !view.has_fresh(key)).cloned().collect();
        if outdated.is_empty() {
            op.parts[part] = Part::Settled(op.answer_out_of_window(changes));
        }
        outdated
    }

    /// Which rule answers this part of the request.
    fn decide_part(&self, env: &Env, op: &Operation, part: usize) -> Decision<PartAnswer> {
        let view = self.view(env, op);
        match &op.act {
            Act::Call(request, witness) => self.decide_call(view, op, request, witness.as_ref(), part),
            Act::Ask(name, token, successor) => {
                operators::ask(view, name, *token, successor.as_ref()).map(PartAnswer::Asked)
            }
            Act::Evict(name, token) => operators::evict(view, name, *token).map(PartAnswer::Asked),
            Act::Job(step) => jobs::step(view, step).map(PartAnswer::Job),
            Act::Publish(holder, payload) => jobs::publish(view, holder, payload).map(PartAnswer::Published),
            Act::Prove(lease) => leases::close(view, *lease, Closing::Proved, false).map(PartAnswer::Said),
            Act::Wishes(_) => Decision::Say(PartAnswer::Done),
            Act::Sweep(leases) => leases::sweep(&view, leases[part]).map(|()| PartAnswer::Done),
            Act::DropTtls(looked) => {
                let mut wanted = Wanted::default();
                [Key::Ttls, Key::Meta].into_iter().for_each(|key| wanted.unless_fresh(&view, key));
                if !wanted.is_empty() {
                    return Decision::Read(wanted.0);
                }
                match leases::drop_unused(&view, looked) {
                    Some(change) => Decision::commit(change, PartAnswer::Done),
                    None => Decision::Say(PartAnswer::Done),
                }
            }
        }
    }

    /// Which rule answers the call of a worker.
    fn decide_call(
        &self,
        view: View<'_>,
        op: &Operation,
        request: &Request,
        witness: Option<&Arc<str>>,
        part: usize,
    ) -> Decision<PartAnswer> {
        let id = request.lease;
        let nothing = OwnLease::default();
        let own = self.own_leases.get(&id).unwrap_or(&nothing);
        if own.lost && !matches!(request.call, Call::Close(_)) {
            return Decision::Say(PartAnswer::Said(Said::Gone));
        }
        match &request.call {
            Call::Open { ttl, label, metadata } => {
                leases::open(view, &Opening { id, ttl: *ttl, label, metadata, witness }).map(PartAnswer::Said)
            }
            Call::Renew => {
                let renewal = Renewal { id, seq: request.seq, mark: op.mark, attempts: op.attempts };
                leases::renew(view, &renewal, &own.settled).map(PartAnswer::Said)
            }
            Call::Close(why) => match self.last_releases(view, id, *why) {
                Some((releases, _)) if !releases.is_empty() => Decision::First(releases),
                known => {
                    let clean = known.is_some_and(|(_, all_known)| all_known);
                    leases::close(view, id, *why, clean).map(PartAnswer::Said)
                }
            },
            Call::Held => Decision::Say(PartAnswer::Done),
            Call::Claim(wants) => self.decide_claim(view, op, request, own, &wants[part]),
            Call::Release(leaves) => decide_release(view, op, id, own, &leaves[part]),
        }
    }

    fn decide_claim(
        &self,
        view: View<'_>,
        op: &Operation,
        request: &Request,
        own: &OwnLease,
        want: &Want,
    ) -> Decision<PartAnswer> {
        if own.unreleased.contains(&want.resource)
            && let Some(change) = release_change(view, request.lease, &want.resource)
        {
            return Decision::First(vec![change]);
        }
        if own.has_left(&want.resource, op.begun) && !self.planted.has(Bug::ClaimAfterRelease) {
            // The worker has given the resource up since, and does not wait for this answer any more.
            return Decision::Say(PartAnswer::Claimed(tickets::waiting(0, LONGEST_WAIT, WaitReason::Taken)));
        }
        if op.unreadable.contains(&want.resource) {
            let later = request.limit * 4;
            return Decision::Say(PartAnswer::Claimed(tickets::waiting(0, later, WaitReason::Unreadable)));
        }
        tickets::claim(view, request.lease, want).map(|outcome| match outcome {
            Outcome::Said(claimed) => PartAnswer::Claimed(claimed),
            Outcome::Gone => PartAnswer::Said(Said::Gone),
        })
    }

    /// What a worker that leaves in order has to release before it closes its lease, so that waiters are woken at once.
    /// Also whether everything that it may hold is known. `None` if a commit is in doubt.
    fn last_releases(&self, view: View<'_>, id: LeaseId, why: Closing) -> Option<(Vec<Change>, bool)> {
        let own_lease = self
            .own_leases
            .get(&id)
            .filter(|own_lease| why == Closing::Left && !own_lease.too_many_touched)?;
        if !own_lease.doubts.is_empty() {
            return None;
        }
        let release = |name: &ResourceName| {
            let (_, resource) = view.resource(name)?;
            resource.filter(|resource| resource.owner_with(id).is_some() || resource.waits(id))?;
            release_change(view, id, name)
        };
        let all_known = own_lease.touched.iter().all(|name| view.resource(name).is_some());
        Some((own_lease.touched.iter().filter_map(release).take(BATCH).collect(), all_known))
    }

    /// For [`Bug::BatchLeans`]: the same changes, and the end of every lease that ran out as a change of its own.
    fn with_ends(&self, env: &Env, op: &Operation, changes: Vec<Sendable>) -> Vec<Sendable> {
        let view = self.view(env, op);
        let leases = self.records.keys().filter_map(|key| match key {
            Key::Lease(lease) => leases::end_run_out(&view, *lease),
            _ => None,
        });
        leases.map(|change| (None, change, PartAnswer::Done)).chain(changes).collect()
    }
}

fn decide_release(
    view: View<'_>,
    op: &Operation,
    id: LeaseId,
    own: &OwnLease,
    leave: &Leave,
) -> Decision<PartAnswer> {
    // Nobody can write an unreadable record, and nobody can take its tickets: they go with the lease.
    let unreadable = op.unreadable.contains(&leave.resource);
    // Perhaps a later request gave the resource up, and the worker owns it again since.
    let given_up_later = own.has_left(&leave.resource, op.begun);
    if unreadable || given_up_later {
        return Decision::Say(PartAnswer::Released(Released::Free));
    }
    let doubts = own.doubts.get(&leave.resource);
    let doubts = doubts.into_iter().flatten().map(|(version, _)| *version).collect();
    tickets::release(view, id, leave, &doubts).map(|outcome| match outcome {
        Outcome::Said(released) => PartAnswer::Released(released),
        Outcome::Gone => PartAnswer::Said(Said::Gone),
    })
}

/// The change that gives the resource up, if anything is known to give up.
pub(super) fn release_change(view: View<'_>, id: LeaseId, name: &ResourceName) -> Option<Change> {
    let leave = Leave { resource: name.clone(), how: Leaving::Released };
    match tickets::release(view, id, &leave, &BTreeSet::new()) {
        Decision::Commit(change, _) => Some(*change),
        _ => None,
    }
}
