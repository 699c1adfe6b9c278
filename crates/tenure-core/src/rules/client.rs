//! One process at a store: the entry point of the rules.
//!
//! [`Client::begin`] makes an [`Operation`] of a request. [`Client::step`] says what to do next: read records, commit
//! changes, wait, or return the reply. The caller does that and hands the result back to [`Client::read`] or
//! [`Client::committed`]. The caller may drop an operation at any time. A commit under way is then in doubt, and the
//! client remembers that.
//!
//! The parts: `cache` keeps the records, `own_lease` what was done under a lease of this process, `operation` one
//! request on its way. `contact`, `decide`, `held` and `send` find the next step; `answer` makes the reply. The rules
//! themselves do not belong here: see `leases`, `tickets`, `jobs` and `operators`.

mod answer;
mod cache;
mod contact;
mod decide;
mod held;
mod operation;
mod own_lease;
mod protocol;
mod send;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use self::cache::KnownLife;
pub use self::operation::Operation;
use self::operation::Scan;
use self::own_lease::OwnLease;
pub use self::protocol::{Act, Env, Fate, Reply, Sending, Shown, Step};
use self::send::Conflicts;
use super::contact::Before;
use super::keys::{Capabilities, Key};
use super::records::{Found, Order, Record};
use super::view::KnownMeta;
use crate::message::{Call, Incarnation, LeaseId, Leaving, Request};
use crate::moment::Moment;
use crate::names::ResourceName;
use crate::planted::{Bug, Planted};

/// One process at a namespace of a store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    capabilities: Capabilities,
    planted: Planted,
    life: Option<KnownLife>,
    /// The life before this one, and when it was last heard, until the first contact is over.
    before: Option<(Before, Moment)>,
    known_meta: KnownMeta,
    /// A quarantine by its mark, and the span over which the store could not show that it lost nothing.
    may_have_lost: Option<(u64, Duration)>,
    records: BTreeMap<Key, Record>,
    /// The longest ttl of the namespace, as far as this process knows. It outlives the record.
    longest: Duration,
    /// The latest wall clock that this life of the store has shown, and when. Tokens of lost data lie below it.
    wall: Option<(u64, Moment)>,
    /// Raised with every request that begins, every message sent and every reply.
    order: Order,
    own_leases: BTreeMap<LeaseId, OwnLease>,
}

impl Client {
    /// A client that has seen nothing yet.
    #[must_use]
    pub fn new(capabilities: Capabilities) -> Self {
        Self {
            capabilities,
            planted: Planted::default(),
            life: None,
            before: None,
            known_meta: KnownMeta::default(),
            may_have_lost: None,
            records: BTreeMap::new(),
            longest: Duration::ZERO,
            wall: None,
            order: Order::default(),
            own_leases: BTreeMap::new(),
        }
    }

    /// The same client with a planted bug, for tests.
    #[must_use]
    pub fn with_planted(self, planted: Planted) -> Self {
        Self { planted, ..self }
    }

    /// Begins a request.
    pub fn begin(&mut self, env: &Env, act: Act) -> Operation {
        let begun = self.next_order();
        match &act {
            Act::Call(Request { lease, call: Call::Claim(wants), .. }, _) => {
                let own_lease = self.own_leases.entry(*lease).or_default();
                for want in wants {
                    own_lease.touch(&want.resource);
                    if let Some(given_up) = own_lease.given_up.get_mut(&want.resource) {
                        given_up.for_good = false;
                    }
                }
            }
            Act::Call(Request { lease, call: Call::Release(leaves), .. }, _) => {
                let own_lease = self.own_leases.entry(*lease).or_default();
                for leave in leaves {
                    own_lease.leave(leave, begun);
                    if leave.how == Leaving::SteppedDown {
                        // It may be answered with a grant.
                        own_lease.touch(&leave.resource);
                    }
                }
            }
            _ => {}
        }
        Operation::new(env, act, begun, self.life.map(|known| known.life))
    }

    /// What to do next.
    pub fn step(&mut self, env: &Env, op: &mut Operation) -> Step {
        let two_lives = self.planted.has(Bug::PartsOfTwoLives);
        op.restart_in_new_life(self.life.map(|heard| heard.life).filter(|_| !two_lives));
        if let Some(wait) = op.wait.take() {
            return Step::Wait(wait);
        }
        // After a wait the records are outdated: read them again before the next commit.
        if !op.reread.is_empty() {
            let keys = core::mem::take(&mut op.reread);
            if !self.planted.has(Bug::CommitAfterWait) {
                op.fresh_from = self.next_order();
                return self.read_step(env, op, keys);
            }
        }
        if let Some(step) = self.contact(env, op) {
            return step;
        }
        if let Some(step) = self.verify(env, op) {
            return step;
        }
        self.decide(env, op)
    }

    /// The result of [`Step::Read`].
    pub fn read(&mut self, env: &Env, op: &mut Operation, shown: Shown, records: Vec<Found>) {
        let Some(sent) = op.sent.take() else { return };
        op.note_reply(env, &sent, shown);
        if self.note_life(env, sent.order, shown) {
            self.keep(env, Some((sent.order, sent.at)), shown, records);
            self.note_reply_time(env);
        }
    }

    /// The result of [`Step::Commit`]: one fate per change, in order.
    pub fn committed(&mut self, env: &Env, op: &mut Operation, shown: Shown, fates: Vec<Fate>) {
        let Some(sent) = op.sent.take() else { return };
        op.note_reply(env, &sent, shown);
        // A store that has begun a new life since may have lost what it applied in the old one.
        let same_life = self.note_life(env, sent.order, shown)
            && (sent.life == Some(shown.life) || self.planted.has(Bug::PartsOfTwoLives));
        let mut conflicts = Conflicts::default();
        for ((part, sending, said), fate) in sent.changes.into_iter().zip(fates) {
            // A change that only its window or its life kept out is still in doubt: a copy may arrive when both fit.
            let decided = !matches!(&fate, Fate::Conflict(differ) if differ.is_empty());
            if let Some(lease) = op.lease().filter(|_| decided) {
                self.resolve(lease, &sending);
            }
            let fate = if same_life { fate } else { Fate::Conflict(Vec::new()) };
            match self.note_fate(env, (sent.order, sent.at), shown, &sending, fate) {
                Some(stamp) => {
                    op.stamp = stamp.or(op.stamp);
                    let began = op.own_quarantine_in(&sending, sent.at);
                    self.known_meta.own_quarantine = began.or(self.known_meta.own_quarantine);
                    if let Some(part) = part {
                        let only_expected = sending.change.only_expected().cloned().collect();
                        op.settle(self.capabilities, part, said, only_expected);
                    }
                }
                None => conflicts.add(sending.change),
            }
        }
        self.note_reply_time(env);
        if conflicts.is_empty() || !same_life {
            op.conflicts = 0;
        } else {
            self.back_off(env, op, conflicts);
        }
    }

    /// The result of [`Step::LostNothing`].
    pub fn lost_nothing(&mut self, op: &mut Operation, lost_nothing: bool) {
        let Some((version, mark, within)) = op.asked_lost_nothing.take() else { return };
        match lost_nothing {
            true => op.lost_nothing = Some(version),
            false => self.may_have_lost = Some((mark, within)),
        }
    }

    /// Part of the result of [`Step::Read`] or [`Step::Commit`]: the record of this resource is damaged, or a newer
    /// version of the library wrote it. Returns whether the request can go on without it.
    pub fn unreadable(&mut self, op: &mut Operation, resource: &ResourceName) -> bool {
        let goes_on = match &op.act {
            Act::Call(request, _) => match &request.call {
                Call::Claim(wants) => wants.len() > 1 && wants.iter().any(|want| want.resource == *resource),
                Call::Release(leaves) => {
                    leaves.len() > 1 && leaves.iter().any(|leave| leave.resource == *resource)
                }
                Call::Held => true,
                _ => false,
            },
            Act::Wishes(_) => true,
            _ => false,
        };
        if goes_on {
            op.unreadable.insert(resource.clone());
            if let Act::Call(Request { lease, call: Call::Release(_), .. }, _) = &op.act {
                self.own_leases.entry(*lease).or_default().unreleased.insert(resource.clone());
            }
        }
        goes_on
    }

    /// The result of [`Step::List`].
    pub fn listed(&mut self, op: &mut Operation, names: Vec<ResourceName>) {
        op.scan = Some(Scan { names, ..Scan::default() });
    }

    /// A record that came with a hint. It may save a read; it proves nothing.
    pub fn told(&mut self, env: &Env, life: Incarnation, record: Found) {
        if self.life.is_some_and(|heard| heard.life == life) {
            let shown = Shown { life, now: record.stamp, wall: None };
            self.keep(env, None, shown, vec![record]);
        }
    }

    /// Whether this lease has more notices than fit into it. True once per case.
    pub fn must_look(&mut self, lease: LeaseId) -> bool {
        self.own_leases.get_mut(&lease).is_some_and(|own_lease| core::mem::take(&mut own_lease.must_look))
    }

    /// The look at all wishes failed: the next renewal asks for it again.
    pub fn look_again(&mut self, lease: LeaseId) {
        self.own_leases.entry(lease).and_modify(|own_lease| own_lease.must_look = true);
    }

    fn next_order(&mut self) -> Order {
        self.order.0 += 1;
        self.order
    }
}
