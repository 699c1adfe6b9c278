//! Reads and commits on their way to the store, and how long a request waits between two attempts.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::Client;
use super::answer::PartAnswer;
use super::operation::{Operation, Sent};
use super::protocol::{Env, Sending, Step};
use crate::planted::Bug;
use crate::rules::change::Change;
use crate::rules::keys::{Key, Version};
use crate::rules::records::Value;

/// The longest wait between two attempts, unless an eighth of the ttl is less. A longer wait only lets others come
/// first.
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// How often an urgent change is tried before it waits between attempts like the others.
const URGENT_TRIES: u32 = 5;
/// A newcomer waits a little before it joins a queue of this length.
const CROWD: usize = 8;
/// How many parts of a request are tried together after a conflict.
pub(super) const FEW: usize = 16;

/// The part that a change is for, the change, and the answer if the store applies it.
pub(super) type Sendable = (Option<usize>, Change, PartAnswer);

/// The changes of a commit that were not applied.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    /// What they expected.
    keys: BTreeSet<Key>,
    /// At least one of them waits like any other.
    patient: bool,
}

impl Conflicts {
    pub(super) fn add(&mut self, change: Change) {
        self.patient |= !change.urgent;
        self.keys.extend(change.expect.into_iter().map(|(key, _)| key));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Client {
    /// What to do after a conflict: try again at once, or wait first and read again.
    pub(super) fn back_off(&self, env: &Env, op: &mut Operation, conflicts: Conflicts) {
        op.conflicts += 1;
        if op.parts.len() > FEW && op.crowded_from.is_none() {
            op.crowded_from = Some(env.chance as usize % op.parts.len());
        }
        let waits = op.conflicts > 1
            && (conflicts.patient || op.conflicts >= URGENT_TRIES || self.planted.has(Bug::AllWaitAlike));
        if waits {
            // A wait of more than 32 round trips only lets others come first.
            let doubled = op.round_trip * 2u32.saturating_pow((op.conflicts - 1).min(5));
            op.wait = Some(jittered(env, doubled.min(self.longest_wait(op))));
            op.reread = conflicts.keys;
        }
    }

    pub(super) fn read_step(&mut self, env: &Env, op: &mut Operation, keys: BTreeSet<Key>) -> Step {
        let life = self.life.map(|heard| heard.life);
        op.sent = Some(Sent { at: env.at, order: self.next_order(), life, changes: Vec::new() });
        Step::Read(keys.into_iter().collect())
    }

    pub(super) fn commit_step(&mut self, env: &Env, op: &mut Operation, changes: Vec<Sendable>) -> Step {
        let Some(heard) = self.life else { return Step::Wait(Duration::ZERO) };
        op.attempts += 1;
        let order = self.next_order();
        let most = self.capabilities.most_changes.max(1);
        let mut sent = Vec::new();
        for (index, (part, change, said)) in changes.into_iter().take(most).enumerate() {
            // Never the version of a missing record, and never the same version for two changes.
            let drawn = (env.chance >> 64) as u64;
            let version = Version((drawn ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1));
            let revision =
                |key: &Key| self.records.get(key).map_or(0, |record| record.revision).saturating_add(1);
            let revisions = change.put.iter().map(|(key, _)| revision(key)).collect();
            let sending = Sending { change, version, revisions };
            if let Some(lease) = op.lease() {
                self.doubt(order, lease, &sending);
                self.must_look_after(lease, &sending);
            }
            sent.push((part, sending, said));
        }
        let sending = sent.iter().map(|(_, sending, _)| sending.clone()).collect();
        op.sent = Some(Sent { at: env.at, order, life: Some(heard.life), changes: sent });
        Step::Commit(heard.life, sending)
    }

    /// A worker that joins a long queue waits a little first: many may join at once.
    pub(super) fn wait_to_join(&self, env: &Env, op: &mut Operation, changes: &[Sendable]) -> Option<Step> {
        if op.waited_to_join || changes.iter().any(|(_, change, _)| change.urgent) {
            return None;
        }
        let waiters = |(_, change, _): &Sendable| match change.put.first() {
            Some((_, Some(Value::Resource(resource)))) => resource.queue.len(),
            _ => 0,
        };
        let longest = changes.iter().map(waiters).max().unwrap_or(0);
        if longest < CROWD {
            return None;
        }
        op.waited_to_join = true;
        let most = op.round_trip * u32::try_from(longest).unwrap_or(u32::MAX);
        op.reread = changes
            .iter()
            .flat_map(|(_, change, _)| change.expect.iter().map(|(key, _)| key.clone()))
            .collect();
        Some(Step::Wait(jittered(env, most.min(self.longest_wait(op)))))
    }

    fn longest_wait(&self, op: &Operation) -> Duration {
        let lease = op.lease().and_then(|lease| self.records.get(&Key::Lease(lease))?.lease());
        lease.map_or(LONGEST_WAIT, |lease| LONGEST_WAIT.min(lease.ttl / 8))
    }
}

fn jittered(env: &Env, span: Duration) -> Duration {
    span * u32::from(env.jitter) / 65_536
}
