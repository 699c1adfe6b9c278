//! One process at a store: what it has seen of the records, and how a request becomes reads and commits.
//!
//! A request is an [`Operation`]. [`Client::step`] says what to do next: read records, commit changes, wait, or nothing
//! more, because the answer is known. Whoever drives it carries that out and hands the result back to [`Client::read`] or
//! [`Client::committed`]. An operation may be dropped at any time: what became of a commit that was under way is then in
//! doubt, and the client remembers that.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::change::{Change, Decision};
use super::contact::{self, Arrival, Before};
use super::keys::{Capabilities, Key, Version};
use super::leases::{self, Opening, Tried};
use super::records::{Found, Meta, Order, Record, Resource, Seat, Seen, TtlUse, Value};
use super::tickets::{self, Outcome};
use super::view::{Standing, View, Wanted};
use super::{jobs, operators};
use crate::fanout::{Payload, Published};
use crate::job::{Holder, JobSaid, JobStep};
use crate::message::{
    Answer, Call, Claimed, Closing, Holding, Incarnation, LeaseId, Leave, Leaving, Notice, Released, Request,
    Said, Stamp, Token, Waiting, Why,
};
use crate::message::{Asked, BATCH, NOTICES};
use crate::moment::{Moment, StoreTime};
use crate::names::{Label, ResourceName};
use crate::planted::{Bug, Planted};
use crate::timing::LONGEST_TTL;

/// How many resources a client remembers of one lease by name. Beyond it, it looks at all that there are.
const MOST_TOUCHED: usize = 10_000;
/// How many records a client keeps.
const MOST_RECORDS: usize = 50_000;
/// The longest wait between two attempts, unless an eighth of the ttl is less: whoever waits longer only lets others come
/// first.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// How often an urgent change is tried before it waits between attempts like the others.
const URGENT_TRIES: u32 = 5;
/// How far the store's clock has to go back to count as a step. Answers that overtake each other are closer together.
const STEP_BACK: Duration = Duration::from_secs(1);
/// From this length on, a newcomer waits a little before it joins a queue.
const CROWD: usize = 8;
/// How many parts of a request are tried at once after a conflict.
const FEW: usize = 16;

/// What a step needs from outside: the time, and chance.
#[derive(Clone, Copy, Debug)]
pub struct Env {
    /// The worker's clocks, read just now.
    pub at: Moment,
    /// This machine's wall clock in microseconds since 1970; used where the store tells none.
    pub wall: u64,
    /// How much of a spread is used, in parts of 65 536.
    pub jitter: u16,
    /// Drawn anew for every step.
    pub chance: u128,
}

/// What is asked of a store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// What a worker asks. The text proves its life, where that can be proved: it goes with the opening of a lease.
    Call(Request, Option<Arc<str>>),
    /// An operator's wish that the ownership under this token be handed over, to a waiter of that label if named.
    Ask(ResourceName, Token, Option<Label>),
    /// An operator takes the ownership under this token away.
    Evict(ResourceName, Token),
    /// A step of a job.
    Job(JobStep),
    /// An owner sends something to all.
    Publish(Holder, Payload),
    /// The worker of this lease was proved dead.
    Prove(LeaseId),
    /// Looks what the owners of this lease's tickets are asked for, because there were more notices than fit.
    Wishes(LeaseId),
    /// Looks after the namespace: which ttls are in use, given those of all leases that are not ended.
    DropTtls(BTreeSet<Duration>, Duration),
    /// Deletes those of these leases that ended long ago.
    Sweep(Vec<LeaseId>),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Act::Call`].
    Answer(Answer),
    /// To [`Act::Ask`] and [`Act::Evict`].
    Asked(Asked),
    /// To [`Act::Job`].
    Job(JobSaid),
    /// To [`Act::Publish`].
    Published(Published),
    /// To the others.
    Done,
}

/// What has to be done next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Read these records; then [`Client::read`].
    Read(Vec<Key>),
    /// Commit these changes, each for itself, within this life of the store; then [`Client::committed`].
    Commit(Incarnation, Vec<Sending>),
    /// Ask whether the store can show that it has lost nothing for so long; then [`Client::lost_nothing`].
    LostNothing(Duration),
    /// List all resources; then [`Client::listed`].
    List,
    /// Wait for so long.
    Wait(Duration),
    /// That is the answer.
    Done(Reply),
}

/// A change on its way to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sending {
    /// What is to be changed.
    pub change: Change,
    /// The version of everything that it writes.
    pub version: Version,
    /// How often each of the records has been written then, in the order of the puts.
    pub revisions: Vec<u64>,
}

/// What the store says of itself with every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shown {
    /// Which life of it this is.
    pub life: Incarnation,
    /// Its clock when it made the answer.
    pub now: Option<StoreTime>,
    /// Its wall clock in microseconds since 1970.
    pub wall: Option<u64>,
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It was applied.
    Done(Option<StoreTime>),
    /// It was not. These of the expected records are at another version.
    Conflict(Vec<Found>),
}

/// One process at a namespace of a store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    capabilities: Capabilities,
    planted: Planted,
    life: Option<Heard>,
    /// The life before, until it is known what that means for this one.
    before: Option<(Before, Moment)>,
    /// The mark of a new quarantine for which the store could not show that it has lost nothing, for so long.
    may_have_lost: Option<(u64, Duration)>,
    records: BTreeMap<Key, Record>,
    /// The longest ttl of the namespace, as far as this process knows: it outlives the record that says it.
    longest: Duration,
    /// The store's wall clock as this life has shown it: tokens of data that were lost in an earlier one are below it.
    wall: Option<(u64, Moment)>,
    /// Raised with everything that is begun, sent or heard.
    order: Order,
    mine: BTreeMap<LeaseId, OwnLease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Heard {
    life: Incarnation,
    /// When the first answer of this life came.
    since: Order,
    /// When the last one came.
    at: Moment,
    /// What the store's clock showed with it.
    now: Option<StoreTime>,
}

/// What a client remembers of a lease of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct OwnLease {
    /// Every resource that was claimed under it.
    touched: BTreeSet<ResourceName>,
    /// There were more.
    countless: bool,
    /// Commits whose outcome is not known: which version of which resource they expect, and when they were sent.
    doubts: BTreeMap<ResourceName, Vec<(Version, Order)>>,
    /// Up to which token the notices of a resource are done with.
    settled: BTreeMap<ResourceName, Token>,
    /// Wishes that were found on the seats, to be told with the next renewal.
    found: Vec<Notice>,
    /// There were more notices than fit into the lease.
    must_look: bool,
    /// When each resource was given up last: requests from before that take nothing and give nothing up any more.
    left: BTreeMap<ResourceName, Left>,
    /// What was given up although it could not be read: a ticket of it that is found later is none.
    unreleased: BTreeSet<ResourceName>,
    /// It was lost with all data, within one life of the store. Whatever is there under its name came late.
    lost: bool,
}

/// A resource that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Left {
    at: Order,
    /// The worker does not want it any more.
    for_good: bool,
}

/// A request while it is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    act: Act,
    begun: Order,
    /// In which life of the store its parts were settled.
    life: Option<Incarnation>,
    fresh_from: Order,
    parts: Vec<Part>,
    /// Set after a conflict, if there are many parts: which one is tried first.
    crowded: Option<usize>,
    /// The store was asked whether it has lost nothing for so long, at this version and mark of a new quarantine.
    asked: Option<(Version, u64, Duration)>,
    /// The version at which it has shown that it has.
    lost_nothing: Option<Version>,
    /// Resources whose records cannot be read.
    unreadable: BTreeSet<ResourceName>,
    scan: Option<Scan>,
    /// How many conflicts in a row there were.
    conflicts: u32,
    /// How many commits were sent.
    attempts: u32,
    waited: bool,
    wait: Option<Duration>,
    /// What has to be read after a wait.
    stuck: BTreeSet<Key>,
    sent: Option<Sent>,
    /// How long the last round trip took.
    trip: Duration,
    /// When the rules were asked last.
    decided_at: Moment,
    /// When the store decided, and when it made its last answer.
    stamp: Option<StoreTime>,
    shown: Option<StoreTime>,
    /// What was only expected by changes that have been applied, where the store cannot compare what it does not write.
    verify: Vec<Unverified>,
    verified: bool,
    /// The versions of what was sent for its parts, whether it was applied or not.
    wrote: Vec<Version>,
    /// Whether one of them was applied, in whatever life.
    applied: bool,
}

/// A look at every resource that a lease may own, some at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Scan {
    names: Vec<ResourceName>,
    /// How many of them have been looked at.
    seen: usize,
    /// How many of them have been written anew.
    anew: usize,
    seats: Vec<(ResourceName, Seat)>,
}

/// What came of one part of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    Open,
    Settled(PartAnswer),
}

/// A change, what it is for, and what it comes to if it is applied.
type Sendable = (Option<usize>, Change, PartAnswer);

/// A part that is settled if the store still shows this.
type Unverified = (usize, PartAnswer, Vec<(Key, Version)>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PartAnswer {
    Claimed(Claimed),
    Released(Released),
    Said(Said),
    Asked(Asked),
    Job(JobSaid),
    Published(Published),
    /// A step on the way to what is asked for.
    Onward,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sent {
    at: Moment,
    order: Order,
    life: Option<Incarnation>,
    /// What each change is for, and what it comes to if it is applied.
    changes: Vec<(Option<usize>, Sending, PartAnswer)>,
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
            may_have_lost: None,
            records: BTreeMap::new(),
            longest: Duration::ZERO,
            wall: None,
            order: Order::default(),
            mine: BTreeMap::new(),
        }
    }

    /// The same with a bug in it, for tests.
    #[must_use]
    pub fn with_planted(self, planted: Planted) -> Self {
        Self { planted, ..self }
    }

    /// Begins to carry out what is asked.
    pub fn begin(&mut self, env: &Env, act: Act) -> Operation {
        let begun = self.next_order();
        let parts = match &act {
            Act::Call(Request { lease, call: Call::Claim(wants), .. }, _) => {
                let mine = self.mine.entry(*lease).or_default();
                for want in wants {
                    mine.touch(&want.resource);
                    if let Some(left) = mine.left.get_mut(&want.resource) {
                        left.for_good = false;
                    }
                }
                wants.len()
            }
            Act::Call(Request { lease, call: Call::Release(leaves), .. }, _) => {
                let mine = self.mine.entry(*lease).or_default();
                for leave in leaves {
                    mine.leave(leave, begun);
                    if leave.how == Leaving::SteppedDown {
                        // It may be answered with a grant.
                        mine.touch(&leave.resource);
                    }
                }
                leaves.len()
            }
            Act::Sweep(leases) => leases.len(),
            _ => 1,
        };
        Operation {
            act,
            begun,
            life: self.life.map(|heard| heard.life),
            fresh_from: begun,
            parts: vec![Part::Open; parts],
            crowded: None,
            asked: None,
            lost_nothing: None,
            unreadable: BTreeSet::new(),
            scan: None,
            conflicts: 0,
            attempts: 0,
            waited: false,
            wait: None,
            stuck: BTreeSet::new(),
            sent: None,
            trip: Duration::ZERO,
            decided_at: env.at,
            stamp: None,
            shown: None,
            verify: Vec::new(),
            verified: false,
            wrote: Vec::new(),
            applied: false,
        }
    }

    /// What to do next.
    pub fn step(&mut self, env: &Env, op: &mut Operation) -> Step {
        let two_lives = self.planted.has(Bug::PartsOfTwoLives);
        op.live_in(self.life.map(|heard| heard.life).filter(|_| !two_lives));
        if let Some(wait) = op.wait.take() {
            return Step::Wait(wait);
        }
        // Never commit after a wait without reading: what was known before it is outdated.
        if !op.stuck.is_empty() {
            let keys = core::mem::take(&mut op.stuck);
            if !self.planted.has(Bug::CommitAfterWait) {
                op.fresh_from = self.next_order();
                return self.reading(env, op, keys);
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

    /// The answer to [`Step::Read`].
    pub fn read(&mut self, env: &Env, op: &mut Operation, shown: Shown, records: Vec<Found>) {
        let Some(sent) = op.sent.take() else { return };
        op.note(env, &sent, shown);
        if self.hear(env, sent.order, shown) {
            self.store(env, Some(sent.order), shown, records);
            self.heard_at(env);
        }
    }

    /// The answer to [`Step::Commit`]: one fate per change, in order.
    pub fn committed(&mut self, env: &Env, op: &mut Operation, shown: Shown, fates: Vec<Fate>) {
        let Some(sent) = op.sent.take() else { return };
        op.note(env, &sent, shown);
        // What was applied in another life than the one that is shown with it may be lost already.
        let same = self.hear(env, sent.order, shown)
            && (sent.life == Some(shown.life) || self.planted.has(Bug::PartsOfTwoLives));
        let mut stuck = BTreeSet::new();
        let mut urgent = true;
        for ((part, sending, said), fate) in sent.changes.into_iter().zip(fates) {
            if let Some(lease) = op.lease() {
                self.resolve(lease, &sending);
            }
            op.applied |= part.is_some() && matches!(fate, Fate::Done(_));
            let fate = if same { fate } else { Fate::Conflict(Vec::new()) };
            match self.fate(env, sent.order, shown, &sending, fate) {
                Some(stamp) => {
                    op.stamp = stamp.or(op.stamp);
                    if let Some(part) = part {
                        let only_expected = sending.change.only_expected().cloned().collect();
                        op.settle(self.capabilities, part, said, only_expected);
                    }
                }
                None => {
                    urgent &= sending.change.urgent;
                    stuck.extend(sending.change.expect.into_iter().map(|(key, _)| key));
                }
            }
        }
        self.heard_at(env);
        if stuck.is_empty() || !same {
            op.conflicts = 0;
            return;
        }
        op.conflicts += 1;
        if op.parts.len() > FEW && op.crowded.is_none() {
            op.crowded = Some(env.chance as usize % op.parts.len());
        }
        let waits = op.conflicts > 1
            && (!urgent || op.conflicts >= URGENT_TRIES || self.planted.has(Bug::AllWaitAlike));
        if waits {
            // Beyond that a longer wait only lets others come first.
            let doubled = op.trip * 2u32.saturating_pow((op.conflicts - 1).min(5));
            op.wait = Some(jittered(env, doubled.min(self.longest_wait(op))));
            op.stuck = stuck;
        }
    }

    /// The answer to [`Step::LostNothing`].
    pub fn lost_nothing(&mut self, op: &mut Operation, lost_nothing: bool) {
        let Some((version, mark, within)) = op.asked.take() else { return };
        match lost_nothing {
            true => op.lost_nothing = Some(version),
            false => self.may_have_lost = Some((mark, within)),
        }
    }

    /// Part of the answer to [`Step::Read`] or [`Step::Commit`]: what the store has of this resource is damaged, or of a
    /// newer version. Says whether the request can go on without it.
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
                self.mine.entry(*lease).or_default().unreleased.insert(resource.clone());
            }
        }
        goes_on
    }

    /// The answer to [`Step::List`].
    pub fn listed(&mut self, op: &mut Operation, names: Vec<ResourceName>) {
        op.scan = Some(Scan { names, ..Scan::default() });
    }

    /// A record that came with a hint. It may save a read; it proves nothing.
    pub fn told(&mut self, env: &Env, life: Incarnation, record: Found) {
        if self.life.is_some_and(|heard| heard.life == life) {
            let shown = Shown { life, now: record.stamp, wall: None };
            self.store(env, None, shown, vec![record]);
        }
    }

    fn resource(&self, name: &ResourceName) -> Option<&Resource> {
        self.records.get(&Key::Resource(name.clone())).and_then(Record::resource)
    }

    /// Which leases own this resource, as far as is known.
    #[must_use]
    pub fn owners(&self, resource: &ResourceName) -> Vec<LeaseId> {
        self.resource(resource)
            .map_or(Vec::new(), |resource| resource.seats.iter().map(|seat| seat.lease).collect())
    }

    /// Who comes first in the queue of this resource, as far as is known.
    #[must_use]
    pub fn waiters(&self, resource: &ResourceName) -> Vec<LeaseId> {
        self.resource(resource)
            .map_or(Vec::new(), |resource| resource.queue.iter().map(|place| place.lease).collect())
    }

    /// How long this waiter leaves so many free tickets to those before it, as far as is known.
    #[must_use]
    pub fn step_behind(&self, resource: &ResourceName, lease: LeaseId, free: usize) -> Duration {
        let queue = self.resource(resource).map_or(&[][..], |resource| &resource.queue);
        let place = queue.iter().enumerate().find(|(_, place)| place.lease == lease);
        place.filter(|(position, _)| *position >= free).map_or(Duration::ZERO, |(_, place)| place.step)
    }

    /// A record as it was seen last.
    #[must_use]
    pub fn seen(&self, key: &Key) -> Option<&Record> {
        self.records.get(key)
    }

    /// Whether a ttl was noted as in use long ago, so that it is worth looking whether any lease uses it still.
    #[must_use]
    pub fn may_have_unused_ttls(&self, env: &Env) -> bool {
        let record = self.records.get(&Key::Ttls);
        let Some((record, ttls)) = record.and_then(|record| Some((record, record.ttls()?))) else {
            return false;
        };
        let now = record.seen.now.map(|now| now + env.at.shortest_since(record.seen.at));
        let old = |used: &TtlUse| match (now, used.used) {
            (Some(now), Some(used)) => now.since(used) >= leases::TTL_LINGERS,
            _ => env.at.shortest_since(record.seen.first_at) >= leases::TTL_LINGERS,
        };
        ttls.uses.len() > 1 && ttls.uses.iter().any(old)
    }

    /// Whether there were more notices for this lease than fit; asked once.
    pub fn must_look(&mut self, lease: LeaseId) -> bool {
        self.mine.get_mut(&lease).is_some_and(|mine| core::mem::take(&mut mine.must_look))
    }

    /// A look at all wishes that failed: the next renewal asks for it again.
    pub fn look_again(&mut self, lease: LeaseId) {
        self.mine.entry(lease).and_modify(|mine| mine.must_look = true);
    }

    fn next_order(&mut self) -> Order {
        self.order.0 += 1;
        self.order
    }

    // ---- what is seen --------------------------------------------------------------------------------------

    /// Notes from which life an answer came. One of an earlier life that comes late says nothing any more.
    fn hear(&mut self, env: &Env, sent: Order, shown: Shown) -> bool {
        let order = self.next_order();
        match &mut self.life {
            Some(heard) if heard.life == shown.life => {
                let before = core::mem::replace(&mut heard.now, shown.now);
                if let (Some(before), Some(now)) = (before, shown.now)
                    && before.since(now) >= STEP_BACK
                {
                    let seen_before = self.records.values_mut().filter(|record| sent > record.seen.arrived);
                    seen_before.for_each(|record| record.turn_back(env.at, now));
                }
                // An answer that comes late shows an earlier time.
                if let Some(wall) = shown.wall
                    && self.wall.is_none_or(|(latest, _)| latest <= wall)
                {
                    self.wall = Some((wall, env.at));
                }
                true
            }
            Some(heard) if sent < heard.since => false,
            heard => {
                let next = Heard { life: shown.life, since: order, at: env.at, now: shown.now };
                if let Some(before) = heard.replace(next) {
                    self.forget(before);
                }
                self.wall = shown.wall.map(|wall| (wall, env.at));
                true
            }
        }
    }

    /// Everything that an answer has told is noted.
    fn heard_at(&mut self, env: &Env) {
        if let Some(heard) = &mut self.life {
            heard.at = env.at;
        }
    }

    /// What was seen may be lost. How long others may rely on it is kept.
    fn forget(&mut self, heard: Heard) {
        let secret = self.records.get(&Key::Meta).and_then(Record::meta).map(|meta| meta.secret);
        // What was known of an earlier life, and not told to this one yet, still counts.
        let before = self.before.filter(|_| !self.planted.has(Bug::LongestForgotten));
        let longest = before.map_or(self.longest, |(before, _)| before.longest.max(self.longest));
        self.before = Some((Before { life: heard.life, secret, longest }, heard.at));
        self.records.clear();
    }

    fn store(&mut self, env: &Env, asked: Option<Order>, shown: Shown, records: Vec<Found>) {
        if self.records.len() > MOST_RECORDS {
            let mine = &self.mine;
            self.records.retain(|key, _| match key {
                Key::Meta | Key::Ttls => true,
                Key::Lease(lease) => mine.contains_key(lease),
                _ => false,
            });
        }
        let arrived = self.next_order();
        for found in records {
            let (key, version) = (found.key.clone(), found.version);
            let (at, first_at, marked_at) = (env.at, env.at, env.at);
            let (now, turned_back) = (shown.now, None);
            let seen = Seen { asked, arrived, first_at, at, now, turned_back, marked_at };
            let record = Record::arrived(found, seen);
            if let (Key::Resource(name), Some(asked)) = (&key, asked) {
                self.mine.values_mut().for_each(|mine| mine.see(name, version, asked));
            }
            let known = self.records.get(&key);
            let secret = |record: &Record| record.meta().map(|meta| meta.secret);
            let (known_secret, new_secret) = (known.and_then(secret), secret(&record));
            let Some(record) = record.after(known) else { continue };
            if let (Key::Meta, Some(heard)) = (&key, self.life)
                && known_secret.is_some()
                && new_secret != known_secret
                && !self.planted.has(Bug::WipeUnnoticed)
            {
                self.forget(heard);
                self.mine.values_mut().for_each(|mine| mine.lost = true);
                self.wall = shown.wall.map(|wall| (wall, env.at));
            }
            if let Some(meta) = record.meta() {
                self.longest = meta.longest;
            }
            self.records.insert(key, record);
        }
    }

    /// Takes note of what became of a change. Says when it was applied, if it was.
    fn fate(
        &mut self,
        env: &Env,
        sent: Order,
        shown: Shown,
        sending: &Sending,
        fate: Fate,
    ) -> Option<Option<StoreTime>> {
        let Sending { change, version, revisions } = sending;
        match fate {
            Fate::Done(stamp) => {
                let written = change.put.iter().zip(revisions).map(|((key, value), revision)| Found {
                    key: key.clone(),
                    version: if value.is_some() { *version } else { Version::NONE },
                    revision: *revision,
                    stamp,
                    value: value.clone(),
                });
                self.store(env, Some(sent), shown, written.collect());
                Some(stamp)
            }
            Fate::Conflict(records) => {
                // A copy of this very commit was here before: it was applied then.
                let written = |key: &Key| records.iter().find(|r| r.key == *key && r.version == *version);
                let applied =
                    !change.put.is_empty() && change.put.iter().all(|(key, _)| written(key).is_some());
                let stamp = change.put.first().and_then(|(key, _)| written(key)?.stamp);
                self.store(env, Some(sent), shown, records);
                applied.then_some(stamp)
            }
        }
    }

    /// What the store's wall clock shows by now, if it tells.
    fn wall_now(&self, env: &Env) -> Option<u64> {
        let (wall, at) = self.wall?;
        Some(wall.saturating_add(u64::try_from(env.at.shortest_since(at).as_micros()).unwrap_or(0)))
    }

    fn view(&self, env: &Env, op: &Operation) -> View<'_> {
        let judged_by = match &op.act {
            Act::Call(request, _) => request.judged_by,
            _ => None,
        };
        View {
            records: &self.records,
            planted: self.planted,
            at: env.at,
            fresh_from: op.fresh_from,
            judged_by,
            wall: self.wall_now(env).unwrap_or(env.wall),
            chance: env.chance as u64,
        }
    }

    // ---- what is done --------------------------------------------------------------------------------------

    /// What has to be done before anything is decided: the namespace's own record has to be known, and to be of this
    /// life.
    fn contact(&mut self, env: &Env, op: &mut Operation) -> Option<Step> {
        let known = self.life.zip(self.records.get(&Key::Meta));
        let Some((heard, record)) = known else {
            let mut keys: BTreeSet<Key> = [Key::Meta, Key::Ttls].into();
            keys.extend(self.first_keys(env, op));
            return Some(self.reading(env, op, keys));
        };
        let before = self.before.filter(|(before, at)| env.at.longest_since(*at) <= before.longest);
        let owed = before.map(|(before, at)| before.longest.saturating_sub(env.at.shortest_since(at)));
        // A quarantine that will be over before those who rely on the life before have given up is not long enough.
        let lasts = self.view(env, op).quarantine().unwrap_or_default() >= owed.unwrap_or_default()
            || self.planted.has(Bug::OldQuarantineStands);
        let before = before.map(|(before, _)| before);
        // Where the record is missing: the longest ttl that anybody may rely on, as far as this process can tell.
        let noted = self.records.get(&Key::Ttls).and_then(Record::ttls);
        let noted = noted.into_iter().flat_map(|ttls| ttls.uses.iter().map(|used| used.ttl)).max();
        let known = self.longest.max(noted.unwrap_or_default()).max(op.opens_for().unwrap_or_default());
        let lost_nothing = op.lost_nothing == Some(record.version);
        if let Some(new) = record.meta().filter(|meta| meta.life == heard.life).and_then(Meta::new_quarantine)
            && !lost_nothing
        {
            // Whoever does not say for how long its own lease is to live cannot tell how far back others may rely.
            let within = op.opens_for().unwrap_or(LONGEST_TTL).max(known);
            if self.may_have_lost.is_none_or(|(mark, asked)| mark != new.mark || within < asked) {
                op.asked = Some((record.version, new.mark, within));
                return Some(Step::LostNothing(within));
            }
        }
        let (secret, mark) = (env.chance, env.chance as u64);
        let arrival = Arrival { before, known, lasts, lost_nothing, secret, mark };
        match contact::arrive(record, heard.life, &arrival) {
            Some(change) => Some(self.committing(env, op, vec![(None, change, PartAnswer::Onward)])),
            None => {
                self.before = None;
                None
            }
        }
    }

    /// What the operation will want to read first, so that the first contact takes one round trip.
    fn first_keys(&self, env: &Env, op: &Operation) -> BTreeSet<Key> {
        let view = self.view(env, op);
        match &op.act {
            Act::Call(request, _) => match &request.call {
                Call::Open { .. } => [Key::Lease(request.lease), Key::Info(request.lease)].into(),
                Call::Claim(wants) => {
                    let mut keys: BTreeSet<Key> = [Key::Lease(request.lease)].into();
                    wants.iter().for_each(|want| {
                        keys.extend(tickets::look_keys(&view, request.lease, &want.resource));
                    });
                    keys
                }
                Call::Release(leaves) => {
                    leaves.iter().map(|leave| Key::Resource(leave.resource.clone())).collect()
                }
                Call::Renew | Call::Close(_) => [Key::Lease(request.lease)].into(),
                Call::Held => BTreeSet::new(),
            },
            Act::Ask(name, ..) | Act::Evict(name, _) => [Key::Resource(name.clone())].into(),
            Act::Job(step) => {
                [Key::Resource(step.holder.resource.clone()), Key::Lease(step.holder.lease)].into()
            }
            Act::Publish(holder, _) => {
                [Key::Resource(holder.resource.clone()), Key::Lease(holder.lease)].into()
            }
            Act::Prove(lease) => [Key::Lease(*lease)].into(),
            Act::Wishes(_) | Act::DropTtls(..) | Act::Sweep(_) => BTreeSet::new(),
        }
    }

    /// Where the store cannot compare what it does not write: what was applied counts only if a read after it still shows
    /// what was expected.
    fn verify(&mut self, env: &Env, op: &mut Operation) -> Option<Step> {
        if op.verify.is_empty() {
            return None;
        }
        if !op.verified {
            op.verified = true;
            op.fresh_from = self.next_order();
            let keys =
                op.verify.iter().flat_map(|(_, _, expected)| expected.iter().map(|(key, _)| key.clone()));
            let keys = keys.collect();
            return Some(self.reading(env, op, keys));
        }
        op.verified = false;
        for (part, said, expected) in core::mem::take(&mut op.verify) {
            // What this look has shown, not what an older answer has put in its place.
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

    /// Lets the rules decide the parts whose turn it is, and does what they want: reads before commits, all parts together.
    fn decide(&mut self, env: &Env, op: &mut Operation) -> Step {
        if let Some(step) = self.decide_all_touched(env, op) {
            return step;
        }
        let (mut keys, mut first, mut changes) = (BTreeSet::new(), Vec::new(), Vec::new());
        let turn = op.turn();
        if !turn.is_empty() {
            op.decided_at = env.at;
        }
        for part in turn {
            match self.decide_part(env, op, part) {
                Decision::Read(more) => keys.extend(more),
                Decision::First(some) => match op.out_of_time(&some) {
                    Some(_) => keys.extend(self.hold_back(env, op, part, &some)),
                    None => first.extend(some),
                },
                Decision::Commit(change, said) => match op.out_of_time(core::slice::from_ref(&*change)) {
                    Some(_) => keys.extend(self.hold_back(env, op, part, &[*change])),
                    None => changes.push((Some(part), *change, said)),
                },
                Decision::Say(said) => op.parts[part] = Part::Settled(said),
                Decision::SayIf(said, expected) => op.settle(self.capabilities, part, said, expected),
            }
        }
        if !keys.is_empty() {
            return self.reading(env, op, keys);
        }
        if !first.is_empty() {
            let mut known = BTreeSet::new();
            first.retain(|change: &Change| change.put.iter().all(|(key, _)| known.insert(key.clone())));
            let first: Vec<_> = first.into_iter().map(|change| (None, change, PartAnswer::Onward)).collect();
            return self.committing(env, op, first);
        }
        // A resource that a request names twice: the second part is decided when the first is applied.
        let mut known = BTreeSet::new();
        changes.retain(|(_, change, _)| change.put.iter().all(|(key, _)| known.insert(key.clone())));
        if !changes.is_empty() {
            if let Some(wait) = self.crowd(env, op, &changes) {
                return wait;
            }
            if self.planted.has(Bug::BatchLeans) {
                changes = self.with_ends(env, op, changes);
            }
            return self.committing(env, op, changes);
        }
        if let Some(step) = self.verify(env, op) {
            return step;
        }
        if op.turn().is_empty() { Step::Done(self.reply(env, op)) } else { self.decide(env, op) }
    }

    /// The same, and the ends of all leases that have run out as changes of their own.
    fn with_ends(&self, env: &Env, op: &Operation, changes: Vec<Sendable>) -> Vec<Sendable> {
        let view = self.view(env, op);
        let leases = self.records.keys().filter_map(|key| match key {
            Key::Lease(lease) => leases::end_run_out(&view, *lease),
            _ => None,
        });
        leases.map(|change| (None, change, PartAnswer::Onward)).chain(changes).collect()
    }

    /// The store's clock does not allow these changes. Their times may come from before that clock went back: what was
    /// not read for this request is read first, and counts from then on for no more than the clock shows.
    fn hold_back(&self, env: &Env, op: &mut Operation, part: usize, changes: &[Change]) -> BTreeSet<Key> {
        let view = self.view(env, op);
        let expected = changes.iter().flat_map(|change| change.expect.iter().map(|(key, _)| key));
        let outdated: BTreeSet<Key> = expected.filter(|key| !view.has_fresh(key)).cloned().collect();
        if outdated.is_empty() {
            op.parts[part] = Part::Settled(op.held_back(changes));
        }
        outdated
    }

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
            Act::Wishes(_) => Decision::Say(PartAnswer::Onward),
            Act::Sweep(leases) => leases::sweep(&view, leases[part]).map(|()| PartAnswer::Onward),
            Act::DropTtls(in_use, linger) => {
                let mut wanted = Wanted::default();
                [Key::Ttls, Key::Meta].into_iter().for_each(|key| wanted.unless_fresh(&view, key));
                if !wanted.is_empty() {
                    return Decision::Read(wanted.0);
                }
                match leases::drop_unused(&view, in_use, *linger) {
                    Some(change) => Decision::commit(change, PartAnswer::Onward),
                    None => Decision::Say(PartAnswer::Onward),
                }
            }
        }
    }

    fn decide_call(
        &self,
        view: View<'_>,
        op: &Operation,
        request: &Request,
        witness: Option<&Arc<str>>,
        part: usize,
    ) -> Decision<PartAnswer> {
        let (id, seq) = (request.lease, request.seq);
        let nothing = OwnLease::default();
        let mine = self.mine.get(&id).unwrap_or(&nothing);
        if mine.lost && !matches!(request.call, Call::Close(_)) {
            return Decision::Say(PartAnswer::Said(Said::Gone));
        }
        if let Call::Claim(wants) = &request.call
            && mine.unreleased.contains(&wants[part].resource)
            && let Some(change) = leaving(view, id, &wants[part].resource)
        {
            return Decision::First(vec![change]);
        }
        match &request.call {
            Call::Open { ttl, label, metadata } => {
                leases::open(view, &Opening { id, ttl: *ttl, label, metadata, witness }).map(PartAnswer::Said)
            }
            Call::Renew => {
                let tried = Tried { attempts: op.attempts, wrote: &op.wrote, applied: op.applied };
                leases::renew(view, id, seq, &tried, &mine.settled).map(PartAnswer::Said)
            }
            Call::Close(why) => match self.last_releases(view, id, *why) {
                Some(releases) if !releases.is_empty() => Decision::First(releases),
                known => leases::close(view, id, *why, known.is_some()).map(PartAnswer::Said),
            },
            Call::Held => Decision::Say(PartAnswer::Onward),
            Call::Claim(wants)
                if mine.has_left(&wants[part].resource, op.begun)
                    && !self.planted.has(Bug::ClaimAfterRelease) =>
            {
                // The worker has given it up since, and does not wait for this answer any more.
                Decision::Say(PartAnswer::Claimed(tickets::waiting(0, LONGEST_WAIT, Why::Taken)))
            }
            Call::Claim(wants) if op.unreadable.contains(&wants[part].resource) => {
                Decision::Say(PartAnswer::Claimed(tickets::waiting(0, request.limit * 4, Why::Unreadable)))
            }
            Call::Claim(wants) => tickets::claim(view, id, &wants[part]).map(|outcome| match outcome {
                Outcome::Said(claimed) => PartAnswer::Claimed(claimed),
                Outcome::Gone => PartAnswer::Said(Said::Gone),
            }),
            Call::Release(leaves) if op.unreadable.contains(&leaves[part].resource) => {
                // Nobody can write it, and nobody can take it: it goes with the lease.
                Decision::Say(PartAnswer::Released(Released::Free))
            }
            Call::Release(leaves) if mine.has_left(&leaves[part].resource, op.begun) => {
                // A later request has given it up, and perhaps the worker owns it again since.
                Decision::Say(PartAnswer::Released(Released::Free))
            }
            Call::Release(leaves) => {
                let doubts = mine.doubts.get(&leaves[part].resource);
                let doubts = doubts.into_iter().flatten().map(|(version, _)| *version).collect();
                tickets::release(view, id, &leaves[part], &doubts).map(|outcome| match outcome {
                    Outcome::Said(released) => PartAnswer::Released(released),
                    Outcome::Gone => PartAnswer::Said(Said::Gone),
                })
            }
        }
    }

    /// What a worker that leaves in order still has to release before it closes its lease: so those who wait are woken at
    /// once. Nothing if not everything is known.
    fn last_releases(&self, view: View<'_>, id: LeaseId, why: Closing) -> Option<Vec<Change>> {
        let mine = self.mine.get(&id).filter(|mine| why == Closing::Left && !mine.countless)?;
        if !mine.doubts.is_empty() {
            return None;
        }
        let release = |name: &ResourceName| {
            let (_, resource) = view.resource(name)?;
            resource.filter(|resource| resource.seat_of(id).is_some() || resource.waits(id))?;
            leaving(view, id, name)
        };
        Some(mine.touched.iter().filter_map(release).take(BATCH).collect())
    }

    /// `held`, and a look at all wishes: everything that was ever claimed under the lease is read, in one life of the
    /// store.
    fn decide_all_touched(&mut self, env: &Env, op: &mut Operation) -> Option<Step> {
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
            None => match self.mine.get(&lease) {
                Some(mine) if mine.countless => return Some(Step::List),
                Some(mine) => Scan { names: mine.touched.iter().cloned().collect(), ..Scan::default() },
                None => Scan::default(),
            },
        };
        let view = self.view(env, op);
        let owned_only = self.planted.has(Bug::HeldAsksOnlyForOwned);
        let unread = |name: &&ResourceName| {
            !op.unreadable.contains(*name) && !view.has_fresh(&Key::Resource((*name).clone()))
        };
        let given_up =
            |name: &ResourceName| self.mine.get(&lease).is_some_and(|mine| mine.left_for_good(name));
        if owned_only {
            scan.names.retain(|name| !given_up(name));
        }
        let batch = BATCH.min(self.capabilities.most_changes.max(1));
        loop {
            let some = &scan.names[scan.seen..(scan.seen + batch).min(scan.names.len())];
            let mut keys: BTreeSet<Key> =
                [Key::Lease(lease)].into_iter().filter(|key| !view.has_fresh(key)).collect();
            keys.extend(some.iter().filter(unread).map(|name| Key::Resource(name.clone())));
            if !keys.is_empty() {
                op.scan = Some(scan);
                return Some(self.reading(env, op, keys));
            }
            if some.is_empty() {
                break;
            }
            if is_held && !self.capabilities.together && scan.anew == scan.seen {
                // The store does not compare lives: what a commit of another one expects must not be there any more.
                let anew: Vec<_> = some.iter().filter_map(|name| written_anew(view, lease, name)).collect();
                scan.anew += some.len();
                op.scan = Some(scan);
                op.fresh_from = self.next_order();
                return Some(self.committing(env, op, anew));
            }
            let seats = some.iter().filter_map(|name| {
                let (_, resource) = view.resource(name)?;
                Some((name.clone(), resource?.seat_of(lease)?.clone()))
            });
            scan.seats.extend(seats);
            scan.seen += some.len();
        }
        let left = scan.names.iter().filter(|name| is_held && given_up(name));
        let places: Vec<_> = left.filter_map(|name| place_left(view, lease, name)).collect();
        if !places.is_empty() && !self.planted.has(Bug::PlacesNotLeft) {
            // A store that fell back shows the worker in queues that it has left.
            op.scan = Some(scan);
            return Some(self.committing(env, op, places));
        }
        let seats = scan.seats.into_iter();
        if is_held {
            let lives = matches!(view.standing(lease), Some(Standing::Alive(_) | Standing::RunOut(_)));
            let lost = self.mine.get(&lease).is_some_and(|mine| mine.lost);
            let dead = lost || !lives || view.lease(lease).is_some_and(|(_, lease)| lease.is_adopted());
            let held = seats.map(|(resource, seat)| Holding {
                resource,
                ticket: seat.grant.ticket,
                token: seat.grant.token,
            });
            let said = if dead { Said::Gone } else { Said::Held(held.collect()) };
            op.parts[0] = Part::Settled(PartAnswer::Said(said));
        } else {
            let found = seats.filter_map(|(resource, seat)| {
                Some(Notice { resource, token: seat.grant.token, wish: seat.wish? })
            });
            let found: Vec<Notice> = found.collect();
            if let Some(mine) = self.mine.get_mut(&lease) {
                mine.found = found;
            }
            op.parts[0] = Part::Settled(PartAnswer::Onward);
        }
        None
    }

    fn reading(&mut self, env: &Env, op: &mut Operation, keys: BTreeSet<Key>) -> Step {
        let life = self.life.map(|heard| heard.life);
        op.sent = Some(Sent { at: env.at, order: self.next_order(), life, changes: Vec::new() });
        Step::Read(keys.into_iter().collect())
    }

    fn committing(&mut self, env: &Env, op: &mut Operation, changes: Vec<Sendable>) -> Step {
        let Some(heard) = self.life else { return Step::Wait(Duration::ZERO) };
        op.attempts += 1;
        let order = self.next_order();
        let most = self.capabilities.most_changes.max(1);
        let mut sent = Vec::new();
        for (index, (part, change, said)) in changes.into_iter().take(most).enumerate() {
            // Never the version of a record that does not exist, and never the same for two changes.
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
            op.wrote.extend(part.map(|_| version));
            sent.push((part, sending, said));
        }
        let sending = sent.iter().map(|(_, sending, _)| sending.clone()).collect();
        op.sent = Some(Sent { at: env.at, order, life: Some(heard.life), changes: sent });
        Step::Commit(heard.life, sending)
    }

    /// Whoever joins a long queue waits a little first: many may do so at once.
    fn crowd(&self, env: &Env, op: &mut Operation, changes: &[Sendable]) -> Option<Step> {
        if op.waited || changes.iter().any(|(_, change, _)| change.urgent) {
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
        op.waited = true;
        let most = op.trip * u32::try_from(longest).unwrap_or(u32::MAX);
        op.stuck = changes
            .iter()
            .flat_map(|(_, change, _)| change.expect.iter().map(|(key, _)| key.clone()))
            .collect();
        Some(Step::Wait(jittered(env, most.min(self.longest_wait(op)))))
    }

    fn longest_wait(&self, op: &Operation) -> Duration {
        let lease = op.lease().and_then(|lease| self.records.get(&Key::Lease(lease))?.lease());
        lease.map_or(LONGEST_WAIT, |lease| LONGEST_WAIT.min(lease.ttl / 8))
    }

    // ---- doubt ---------------------------------------------------------------------------------------------

    fn doubt(&mut self, order: Order, lease: LeaseId, sending: &Sending) {
        for (name, version) in resources_of(sending) {
            let mine = self.mine.entry(lease).or_default();
            mine.doubts.entry(name.clone()).or_default().push((version, order));
        }
    }

    /// A renewal takes back that there are more notices than fit: whatever becomes of it, they have to be looked for.
    fn must_look_after(&mut self, lease: LeaseId, sending: &Sending) {
        let key = Key::Lease(lease);
        let more = self.records.get(&key).and_then(Record::lease).is_some_and(|lease| lease.all);
        if more && sending.change.put.iter().any(|(put, _)| *put == key) {
            self.mine.entry(lease).or_default().must_look = true;
        }
    }

    fn resolve(&mut self, lease: LeaseId, sending: &Sending) {
        let Some(mine) = self.mine.get_mut(&lease) else { return };
        for (name, version) in resources_of(sending) {
            if let Some(doubts) = mine.doubts.get_mut(name) {
                if let Some(at) = doubts.iter().position(|(doubted, _)| *doubted == version) {
                    doubts.remove(at);
                }
                if doubts.is_empty() {
                    mine.doubts.remove(name);
                }
            }
        }
    }

    // ---- the answer ----------------------------------------------------------------------------------------

    fn reply(&mut self, env: &Env, op: &mut Operation) -> Reply {
        // When to look again counts from the answer, and was found out when it was decided.
        let since = env.at.shortest_since(op.decided_at);
        let said: Vec<PartAnswer> = op
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Settled(said) => Some(said.clone().sooner(since)),
                Part::Open => None,
            })
            .collect();
        let Act::Call(request, _) = &op.act else {
            return match said.into_iter().next() {
                Some(PartAnswer::Asked(asked)) => Reply::Asked(asked),
                Some(PartAnswer::Job(said)) => Reply::Job(said),
                Some(PartAnswer::Published(published)) => Reply::Published(published),
                _ => Reply::Done,
            };
        };
        let gone = said.iter().any(|said| matches!(said, PartAnswer::Said(Said::Gone)));
        let answer = match &request.call {
            _ if gone => Said::Gone,
            Call::Claim(_) => Said::Claimed(said.into_iter().filter_map(PartAnswer::claimed).collect()),
            Call::Release(_) => Said::Released(said.into_iter().filter_map(PartAnswer::released).collect()),
            _ => match said.into_iter().next() {
                Some(PartAnswer::Said(said)) => said,
                _ => Said::Gone,
            },
        };
        let lease = request.lease;
        let request = request.clone();
        let answer = self.remember(&request, answer);
        let own = StoreTime::from_micros(env.at.boot_micros());
        let shown = op.shown.unwrap_or(own);
        let now = op.stamp.unwrap_or(shown).min(shown);
        let incarnation = self.life.map_or(Incarnation(0), |heard| heard.life);
        let longest = self.longest;
        if matches!(answer, Said::Closed | Said::Gone) {
            self.mine.remove(&lease);
        }
        Reply::Answer(Answer { stamp: Stamp { now, shown, incarnation, longest }, said: answer })
    }

    /// What follows from an answer for the requests to come.
    fn remember(&mut self, request: &Request, answer: Said) -> Said {
        let lease = request.lease;
        match (&request.call, answer) {
            (_, Said::Opened) => {
                // From here on everything that is done under it is known.
                self.mine.entry(lease).or_default();
                Said::Opened
            }
            (Call::Release(leaves), answer @ Said::Released(_)) => {
                for leave in leaves {
                    let key = Key::Resource(leave.resource.clone());
                    let token =
                        self.records.get(&key).and_then(Record::resource).map(|resource| resource.token);
                    let mine = self.mine.entry(lease).or_default();
                    mine.settled.insert(leave.resource.clone(), token.unwrap_or_default());
                    mine.found.retain(|notice| notice.resource != leave.resource);
                }
                if let Said::Released(released) = &answer {
                    for (leave, released) in leaves.iter().zip(released) {
                        if let Released::Again(claimed) = released {
                            self.begins(lease, &leave.resource, *claimed);
                        }
                    }
                }
                answer
            }
            (Call::Renew, Said::Kept { mut notices, more }) => {
                let standing = self.records.get(&Key::Lease(lease)).and_then(Record::lease);
                let stands = |name: &ResourceName| {
                    standing.is_some_and(|lease| lease.notices.iter().any(|notice| notice.resource == *name))
                };
                let mine = self.mine.entry(lease).or_default();
                mine.settled.retain(|name, _| stands(name));
                mine.must_look |= more;
                mine.found.retain(|found| !notices.iter().any(|known| known.resource == found.resource));
                // What does not fit into this answer comes with the next.
                let room = NOTICES.saturating_sub(notices.len()).min(mine.found.len());
                notices.extend(mine.found.drain(..room));
                Said::Kept { notices, more: mine.must_look || !mine.found.is_empty() }
            }
            (Call::Claim(wants), Said::Claimed(claimed)) => {
                for (want, claimed) in wants.iter().zip(&claimed) {
                    self.begins(lease, &want.resource, *claimed);
                }
                Said::Claimed(claimed)
            }
            (_, answer) => answer,
        }
    }

    /// An ownership begins without the notices of those before it, however they ended.
    fn begins(&mut self, lease: LeaseId, resource: &ResourceName, claimed: Claimed) {
        let Claimed::Granted(grant) = claimed else { return };
        self.mine.entry(lease).or_default().unreleased.remove(resource);
        let known = self.records.get(&Key::Lease(lease)).and_then(Record::lease);
        let stands =
            known.is_none_or(|lease| lease.notices.iter().any(|notice| notice.resource == *resource));
        let settled = &mut self.mine.entry(lease).or_default().settled;
        if stands {
            settled.insert(resource.clone(), Token(grant.token.0.saturating_sub(1)));
        } else {
            settled.remove(resource);
        }
    }
}

impl Operation {
    /// The parts that are to be decided now: all that are open. Where others want the same, everybody tries a few at a
    /// time and begins elsewhere: all at once, each would make all others conflict.
    fn turn(&self) -> Vec<usize> {
        let first = self.crowded.unwrap_or(0);
        let most = self.crowded.map_or(usize::MAX, |_| FEW);
        let parts = (first..self.parts.len()).chain(0..first);
        parts.filter(|part| matches!(self.parts[*part], Part::Open)).take(most).collect()
    }

    /// Whose request it is.
    fn lease(&self) -> Option<LeaseId> {
        match &self.act {
            Act::Call(request, _) => Some(request.lease),
            Act::Job(step) => Some(step.holder.lease),
            _ => None,
        }
    }

    /// The ttl of the lease that it opens.
    fn opens_for(&self) -> Option<Duration> {
        match &self.act {
            Act::Call(Request { call: Call::Open { ttl, .. }, .. }, _) => Some(*ttl),
            _ => None,
        }
    }

    /// What a worker asks is answered as of one life of the store: what an earlier one has said is asked again.
    fn live_in(&mut self, life: Option<Incarnation>) {
        if self.life != life && matches!(self.act, Act::Call(..)) {
            self.parts.fill(Part::Open);
            (self.scan, self.verified) = (None, false);
            self.verify.clear();
        }
        self.life = life;
    }

    /// How many commits were sent for it, and how many conflicts in a row there were.
    #[must_use]
    pub fn attempts(&self) -> (u32, u32) {
        (self.attempts, self.conflicts)
    }

    fn note(&mut self, env: &Env, sent: &Sent, shown: Shown) {
        self.trip = env.at.longest_since(sent.at);
        self.shown = shown.now.or(self.shown);
    }

    /// This is the answer, if the store has compared what was expected, or shows it once more.
    fn settle(
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

    /// By how much the store's clock, as it was shown last, is outside of the window of one of the changes.
    fn out_of_time(&self, changes: &[Change]) -> Option<Duration> {
        let shown = self.shown?;
        let late = changes.iter().filter(|change| !change.window.contains(shown));
        late.map(|change| change.window.from.map_or(Duration::ZERO, |from| from.since(shown))).max()
    }

    /// What is said when the store's clock does not allow what the rules have decided.
    fn held_back(&self, changes: &[Change]) -> PartAnswer {
        let left = self.out_of_time(changes).unwrap_or_default();
        // The own lease has run out by the store's clock: it has to be renewed first.
        let look_again = if left.is_zero() { LONGEST_WAIT } else { left };
        let of_all = |change: &Change| change.put.iter().any(|(key, _)| *key == Key::Meta);
        let why = if changes.iter().any(of_all) { Why::Quarantine } else { Why::Taken };
        let claimed = tickets::waiting(0, look_again, why);
        match &self.act {
            Act::Call(request, _) => match &request.call {
                Call::Claim(_) => PartAnswer::Claimed(claimed),
                // Nothing else is limited in time.
                _ => PartAnswer::Said(Said::Gone),
            },
            Act::Job(_) => PartAnswer::Job(JobSaid::NotOwner),
            Act::Publish(..) => PartAnswer::Published(Published::NotOwner),
            _ => PartAnswer::Onward,
        }
    }
}

impl PartAnswer {
    /// The same, with a look that is so much sooner.
    fn sooner(self, by: Duration) -> Self {
        let claimed = |claimed| match claimed {
            Claimed::Waiting(waiting) => {
                let look_again = waiting.look_again.saturating_sub(by).max(tickets::SOONEST);
                Claimed::Waiting(Waiting { look_again, ..waiting })
            }
            other => other,
        };
        match self {
            Self::Claimed(said) => Self::Claimed(claimed(said)),
            Self::Released(Released::Again(said)) => Self::Released(Released::Again(claimed(said))),
            other => other,
        }
    }

    fn claimed(self) -> Option<Claimed> {
        if let Self::Claimed(claimed) = self { Some(claimed) } else { None }
    }

    fn released(self) -> Option<Released> {
        if let Self::Released(released) = self { Some(released) } else { None }
    }
}

impl OwnLease {
    fn touch(&mut self, name: &ResourceName) {
        if self.touched.len() < MOST_TOUCHED {
            self.touched.insert(name.clone());
        } else if !self.touched.contains(name) {
            self.countless = true;
        }
    }

    fn leave(&mut self, leave: &Leave, at: Order) {
        if self.left.len() >= MOST_TOUCHED {
            // Those of long ago: a request that was under way then is over.
            let mut orders: Vec<Order> = self.left.values().map(|left| left.at).collect();
            orders.sort_unstable();
            self.left.retain(|_, left| left.at > orders[MOST_TOUCHED / 2]);
        }
        let for_good = leave.how != Leaving::SteppedDown;
        self.left.insert(leave.resource.clone(), Left { at, for_good });
    }

    /// Whether the resource was given up after that.
    fn has_left(&self, name: &ResourceName, begun: Order) -> bool {
        self.left.get(name).is_some_and(|left| left.at > begun)
    }

    /// Whether the worker wants nothing of the resource any more.
    fn left_for_good(&self, name: &ResourceName) -> bool {
        self.left.get(name).is_some_and(|left| left.for_good)
    }

    /// A linearizable answer shows this version: a commit that was sent before and expects another is not applied any
    /// more.
    fn see(&mut self, name: &ResourceName, version: Version, asked: Order) {
        if let Some(doubts) = self.doubts.get_mut(name) {
            doubts.retain(|(doubted, sent)| *doubted == version || asked < *sent);
            if doubts.is_empty() {
                self.doubts.remove(name);
            }
        }
    }
}

/// Takes the worker out of the queue of a resource.
fn place_left(view: View<'_>, id: LeaseId, name: &ResourceName) -> Option<Sendable> {
    let (_, resource) = view.resource(name)?;
    resource.filter(|resource| resource.waits(id) && resource.seat_of(id).is_none())?;
    leaving(view, id, name).map(|change| (None, change, PartAnswer::Onward))
}

fn leaving(view: View<'_>, id: LeaseId, name: &ResourceName) -> Option<Change> {
    let leave = Leave { resource: name.clone(), how: Leaving::Released };
    match tickets::release(view, id, &leave, &BTreeSet::new()) {
        Decision::Commit(change, _) => Some(*change),
        _ => None,
    }
}

/// Writes a resource as it is.
fn written_anew(view: View<'_>, id: LeaseId, name: &ResourceName) -> Option<Sendable> {
    let (record, resource) = view.resource(name)?;
    let unchanged = resource.cloned().unwrap_or_else(|| tickets::nobodys(id));
    let change = Change::of(Key::Resource(name.clone()), record.version, unchanged);
    Some((None, Change { essential: true, urgent: true, ..change }, PartAnswer::Onward))
}

fn resources_of(sending: &Sending) -> impl Iterator<Item = (&ResourceName, Version)> {
    let expected = sending.change.expect.iter();
    expected.filter_map(|(key, version)| match key {
        Key::Resource(name) => Some((name, *version)),
        _ => None,
    })
}

fn jittered(env: &Env, span: Duration) -> Duration {
    span * u32::from(env.jitter) / 65_536
}
