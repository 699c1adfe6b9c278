//! One request on its way: its parts, what was sent for it, and what it waits for.
//!
//! What the process remembers between requests does not belong here: see `cache` and `own_lease`.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::answer::PartAnswer;
use super::protocol::{Act, Env, Sending, Shown};
use super::send::{FEW, LONGEST_WAIT};
use crate::fanout::Published;
use crate::job::JobSaid;
use crate::message::{Call, Incarnation, LeaseId, Request, Said, WaitReason};
use crate::moment::{Moment, StoreTime};
use crate::names::ResourceName;
use crate::rules::change::Change;
use crate::rules::keys::{Capabilities, Key, Version};
use crate::rules::records::{Order, Owner, Value};
use crate::rules::tickets;

/// One request on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    pub(super) act: Act,
    pub(super) begun: Order,
    /// In which life of the store its parts were settled.
    pub(super) life: Option<Incarnation>,
    /// Records that were asked for after this count as fresh.
    pub(super) fresh_from: Order,
    pub(super) parts: Vec<Part>,
    /// Set after a conflict of a request with many parts: the part that is tried first.
    pub(super) crowded_from: Option<usize>,
    /// The version of `meta`, the mark of its quarantine and the span for which the store was asked whether it lost
    /// nothing.
    pub(super) asked_lost_nothing: Option<(Version, u64, Duration)>,
    /// The version of `meta` at which the store showed that it lost nothing.
    pub(super) lost_nothing: Option<Version>,
    /// Resources whose records cannot be read.
    pub(super) unreadable: BTreeSet<ResourceName>,
    pub(super) scan: Option<Scan>,
    /// How many conflicts came in a row.
    pub(super) conflicts: u32,
    /// How many commits were sent.
    pub(super) attempts: u32,
    /// The operation has waited once before it joins a long queue.
    pub(super) waited_to_join: bool,
    /// How long to wait before the next attempt.
    pub(super) wait: Option<Duration>,
    /// The records to read after the wait.
    pub(super) reread: BTreeSet<Key>,
    pub(super) sent: Option<Sent>,
    /// How long the last round trip took.
    pub(super) round_trip: Duration,
    /// When the rules were asked last.
    pub(super) decided_at: Moment,
    /// When the store applied a change of this operation.
    pub(super) stamp: Option<StoreTime>,
    /// The store's clock in its last reply.
    pub(super) shown: Option<StoreTime>,
    /// Parts that count only if a later read confirms them, on a store that compares only what it writes.
    pub(super) verify: Vec<Unverified>,
    /// That read was sent.
    pub(super) verified: bool,
    /// Drawn at random. A clone of this process sends the same sequence number with another mark.
    pub(super) mark: u64,
    /// The mark of the quarantine that this operation wants to begin.
    pub(super) quarantine: Option<u64>,
}

/// A look at every resource that a lease may own, one batch at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Scan {
    pub(super) names: Vec<ResourceName>,
    /// How many of the names are done.
    pub(super) seen: usize,
    /// How many of the records were written again.
    pub(super) rewritten: usize,
    /// The tickets that the lease owns.
    pub(super) owned: Vec<(ResourceName, Owner)>,
}

/// The state of one part of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Open,
    Settled(PartAnswer),
}

/// A part, its answer, and the versions that a later read has to show.
pub(super) type Unverified = (usize, PartAnswer, Vec<(Key, Version)>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) at: Moment,
    pub(super) order: Order,
    pub(super) life: Option<Incarnation>,
    /// For each change its part, and the answer if the store applies it.
    pub(super) changes: Vec<(Option<usize>, Sending, PartAnswer)>,
}

impl Operation {
    pub(super) fn new(env: &Env, act: Act, begun: Order, life: Option<Incarnation>) -> Self {
        let parts = match &act {
            Act::Call(Request { call: Call::Claim(wants), .. }, _) => wants.len(),
            Act::Call(Request { call: Call::Release(leaves), .. }, _) => leaves.len(),
            Act::Sweep(leases) => leases.len(),
            _ => 1,
        };
        Self {
            act,
            begun,
            life,
            fresh_from: begun,
            parts: vec![Part::Open; parts],
            crowded_from: None,
            asked_lost_nothing: None,
            lost_nothing: None,
            unreadable: BTreeSet::new(),
            scan: None,
            conflicts: 0,
            attempts: 0,
            waited_to_join: false,
            wait: None,
            reread: BTreeSet::new(),
            sent: None,
            round_trip: Duration::ZERO,
            decided_at: env.at,
            stamp: None,
            shown: None,
            verify: Vec::new(),
            verified: false,
            mark: (env.chance as u64).max(1),
            quarantine: None,
        }
    }

    /// How many commits were sent, and how many conflicts came in a row.
    #[must_use]
    pub fn attempts(&self) -> (u32, u32) {
        (self.attempts, self.conflicts)
    }

    /// The open parts to decide now. After a conflict an operation with many parts tries a few at a time, from a random
    /// start: workers that claim the same resources all at once would only make each other conflict.
    pub(super) fn parts_to_decide(&self) -> Vec<usize> {
        let first = self.crowded_from.unwrap_or(0);
        let most = self.crowded_from.map_or(usize::MAX, |_| FEW);
        let parts = (first..self.parts.len()).chain(0..first);
        parts.filter(|part| matches!(self.parts[*part], Part::Open)).take(most).collect()
    }

    /// The lease that sends the request.
    pub(super) fn lease(&self) -> Option<LeaseId> {
        match &self.act {
            Act::Call(request, _) => Some(request.lease),
            Act::Job(step) => Some(step.holder.lease),
            _ => None,
        }
    }

    /// The ttl of the lease, for a request that opens one.
    pub(super) fn opens_for(&self) -> Option<Duration> {
        match &self.act {
            Act::Call(Request { call: Call::Open { ttl, .. }, .. }, _) => Some(*ttl),
            _ => None,
        }
    }

    /// A worker's request is answered within one life of the store: in a new life all parts are decided again.
    pub(super) fn restart_in_new_life(&mut self, life: Option<Incarnation>) {
        if self.life != life && matches!(self.act, Act::Call(..)) {
            self.parts.fill(Part::Open);
            (self.scan, self.verified) = (None, false);
            self.verify.clear();
        }
        self.life = life;
    }

    /// Notes the round trip and the store's clock of a reply.
    pub(super) fn note_reply(&mut self, env: &Env, sent: &Sent, shown: Shown) {
        self.round_trip = env.at.longest_since(sent.at);
        self.shown = shown.now.or(self.shown);
    }

    /// The quarantine that this change begins, by its mark, if this operation drew that mark.
    pub(super) fn own_quarantine_in(&self, sending: &Sending, at: Moment) -> Option<(u64, Moment)> {
        let metas = sending.change.put.iter().filter_map(|(_, value)| match value.as_ref()? {
            Value::Meta(meta) => meta.quarantine.as_ref(),
            _ => None,
        });
        let marks = metas.map(|quarantine| quarantine.mark);
        marks.filter(|mark| Some(*mark) == self.quarantine).map(|mark| (mark, at)).next()
    }

    /// Settles a part. A store that compares only what it writes has to show the expected versions once more first.
    pub(super) fn settle(
        &mut self,
        capabilities: Capabilities,
        part: usize,
        said: PartAnswer,
        expected: Vec<(Key, Version)>,
    ) {
        if capabilities.together || expected.is_empty() {
            self.parts[part] = Part::Settled(said);
        } else {
            self.verify.push((part, said, expected));
        }
    }

    /// How far the store's clock in its last reply lies outside the window of one of the changes.
    pub(super) fn out_of_window(&self, changes: &[Change]) -> Option<Duration> {
        let shown = self.shown?;
        let late = changes.iter().filter(|change| !change.window.contains(shown));
        late.map(|change| change.window.from.map_or(Duration::ZERO, |from| from.since(shown))).max()
    }

    /// The answer for a part whose change lies outside its window.
    pub(super) fn answer_out_of_window(&self, changes: &[Change]) -> PartAnswer {
        let left = self.out_of_window(changes).unwrap_or_default();
        // Past the window the worker's own lease has run out by the store's clock: it has to be renewed first.
        let look_again = if left.is_zero() { LONGEST_WAIT } else { left };
        let of_all = |change: &Change| change.put.iter().any(|(key, _)| *key == Key::Meta);
        let why = if changes.iter().any(of_all) { WaitReason::Quarantine } else { WaitReason::Taken };
        let claimed = tickets::waiting(0, look_again, why);
        match &self.act {
            Act::Call(request, _) => match &request.call {
                Call::Claim(_) => PartAnswer::Claimed(claimed),
                // No other call has a window.
                _ => PartAnswer::Said(Said::Gone),
            },
            Act::Job(_) => PartAnswer::Job(JobSaid::NotOwner),
            Act::Publish(..) => PartAnswer::Published(Published::NotOwner),
            _ => PartAnswer::Done,
        }
    }
}
