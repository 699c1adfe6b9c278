//! A store that does nothing but compare and swap, on a clock to set, and processes that ask it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::leases::TTL_LINGERS;
use super::super::*;
use crate::message::*;
use crate::moment::{Moment, StoreTime};
use crate::names::{Label, Metadata, ResourceName, Tickets};
use crate::planted::Planted;

use super::{A, B, TTL};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) reads: u32,
    pub(super) commits: u32,
    pub(super) writes: u32,
}

/// A store, and one process for each lease.
#[derive(Clone)]
pub(super) struct World {
    pub(super) records: BTreeMap<Key, Found>,
    pub(super) clients: BTreeMap<LeaseId, Client>,
    pub(super) operator: Client,
    pub(super) life: Incarnation,
    pub(super) now: StoreTime,
    /// Whether the store has a clock: it stamps what it writes, and shows the time.
    pub(super) clock: bool,
    /// The store's wall clock, in microseconds since 1970.
    pub(super) wall: u64,
    /// What the clocks of all processes show, in microseconds.
    pub(super) own: u64,
    pub(super) lost_nothing: bool,
    pub(super) doubled: bool,
    pub(super) chance: u128,
    pub(super) seq: u64,
    pub(super) cost: Cost,
    pub(super) written: Vec<Key>,
    /// What was read last.
    pub(super) read_last: Vec<Key>,
    pub(super) history: Vec<Event>,
    pub(super) signals: Vec<Signal>,
    /// In every process that begins from now on.
    pub(super) planted: Planted,
    /// What every process that begins from now on believes the store can do.
    pub(super) capabilities: Capabilities,
    /// Resources whose records are damaged.
    pub(super) unreadable: BTreeSet<ResourceName>,
}

pub(super) const CAPABILITIES: Capabilities =
    Capabilities { clock: true, together: true, most_changes: 250, most_signal_bytes: 8_000 };

pub(super) const ONE_BY_ONE: Capabilities = Capabilities { together: false, ..CAPABILITIES };

impl World {
    pub(super) fn new() -> Self {
        Self {
            records: BTreeMap::new(),
            clients: BTreeMap::new(),
            operator: Client::new(CAPABILITIES),
            life: Incarnation(1),
            now: StoreTime::from_micros(5_000_000_000),
            clock: true,
            wall: 1_700_000_000_000_000,
            own: 1_000_000,
            lost_nothing: true,
            doubled: false,
            chance: 0,
            seq: 0,
            cost: Cost::default(),
            written: Vec::new(),
            read_last: Vec::new(),
            history: Vec::new(),
            signals: Vec::new(),
            planted: Planted::default(),
            capabilities: CAPABILITIES,
            unreadable: BTreeSet::new(),
        }
    }

    /// A owns, B has a lease.
    pub(super) fn owned_by_a() -> Self {
        let mut world = Self::new();
        world.open(A, TTL);
        assert_eq!(granted(world.claim(A)).term, Term(1));
        world.open(B, TTL);
        world
    }

    pub(super) fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
        self.own += span.as_micros() as u64;
        self.wall += span.as_micros() as u64;
    }

    pub(super) fn env(&mut self) -> Env {
        self.chance += 0x1_0000_0000_0000_0001;
        let at = Duration::from_micros(self.own);
        Env { at: Moment::new(at, at), wall: self.wall, jitter: 0, chance: self.chance }
    }

    pub(super) fn shown(&self) -> Shown {
        Shown { life: self.life, now: self.time(), wall: Some(self.wall) }
    }

    /// What the store's clock shows, if it has one.
    fn time(&self) -> Option<StoreTime> {
        self.clock.then_some(self.now)
    }

    pub(super) fn find(&self, key: &Key) -> Found {
        let missing =
            Found { key: key.clone(), version: Version::NONE, revision: 0, stamp: None, value: None };
        self.records.get(key).cloned().unwrap_or(missing)
    }

    /// What a record says, with its times.
    pub(super) fn value(&self, key: &Key) -> Option<Value> {
        self.find(key).timed(self.time()).value
    }

    pub(super) fn version(&self, key: &Key) -> Version {
        self.find(key).version
    }

    /// Whether the store compares this record when it applies the change.
    fn compares(&self, change: &Change, key: &Key) -> bool {
        self.capabilities.together || change.put.iter().any(|(put, _)| put == key)
    }

    /// Compares and swaps. Says which of the changes were applied.
    pub(super) fn apply(&mut self, sendings: &[Sending]) -> Vec<bool> {
        let mut applied = Vec::new();
        for Sending { change, version, revisions } in sendings {
            let compared = |(key, _): &&(Key, Version)| self.compares(change, key);
            let fits =
                change.expect.iter().filter(compared).all(|(key, expected)| self.version(key) == *expected);
            let done = fits && self.time().is_none_or(|now| change.window.contains(now));
            if done {
                for ((key, value), revision) in change.put.iter().zip(revisions) {
                    self.cost.writes += 1;
                    self.written.push(key.clone());
                    let (stamp, revision) = (self.time(), *revision);
                    match value.clone() {
                        Some(value) => {
                            let value = Some(value);
                            let found = Found { key: key.clone(), version: *version, revision, stamp, value };
                            self.records.insert(key.clone(), found);
                        }
                        None => drop(self.records.remove(key)),
                    }
                }
                let now = self.time();
                let stamped = |event: &Event| Event { at: event.at.or(now), ..event.clone() };
                self.history.extend(change.history.iter().map(stamped));
                self.signals.extend(change.signals.clone());
            }
            applied.push(done);
        }
        applied
    }

    pub(super) fn commit(&mut self, life: Incarnation, sendings: &[Sending]) -> Vec<Fate> {
        // A store that swaps records one by one compares only those that it writes, and no life.
        let applied = match life == self.life || !self.capabilities.together {
            true => self.apply(sendings),
            false => vec![false; sendings.len()],
        };
        let fate = |(sending, applied): (&Sending, bool)| match applied {
            true => Fate::Done(self.time()),
            false => {
                let differ = sending.change.expect.iter().filter(|(key, version)| {
                    self.compares(&sending.change, key) && self.version(key) != *version
                });
                Fate::Conflict(differ.map(|(key, _)| self.find(key)).collect())
            }
        };
        sendings.iter().zip(applied).map(fate).collect()
    }

    pub(super) fn run(&mut self, mut client: Client, act: Act) -> (Client, Reply) {
        let operation = client.begin(&self.env(), act);
        let reply = self.finish(&mut client, operation);
        (client, reply)
    }

    /// A request up to its first commit, which is not applied yet.
    pub(super) fn begin(
        &mut self,
        client: &mut Client,
        request: Request,
    ) -> (Operation, Incarnation, Vec<Sending>) {
        self.begin_act(client, Act::Call(request, None))
    }

    /// The same for everything that may be asked.
    pub(super) fn begin_act(
        &mut self,
        client: &mut Client,
        act: Act,
    ) -> (Operation, Incarnation, Vec<Sending>) {
        let mut operation = client.begin(&self.env(), act);
        loop {
            let env = self.env();
            match client.step(&env, &mut operation) {
                Step::Read(keys) => self.read(client, &env, &mut operation, &keys),
                Step::Commit(life, sendings) => return (operation, life, sendings),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Hands the client what it wants to read, except what nobody can read.
    pub(super) fn read(&mut self, client: &mut Client, env: &Env, operation: &mut Operation, keys: &[Key]) {
        self.read_last = keys.to_vec();
        let readable = keys.iter().filter(|key| match key {
            Key::Resource(name) if self.unreadable.contains(name) => {
                assert!(client.unreadable(operation, name), "the request fails");
                false
            }
            _ => true,
        });
        let found = readable.map(|key| self.find(key)).collect();
        client.read(env, operation, self.shown(), found);
    }

    /// The rest of a request.
    pub(super) fn finish(&mut self, client: &mut Client, mut operation: Operation) -> Reply {
        for _ in 0..100 {
            let env = self.env();
            match client.step(&env, &mut operation) {
                Step::Done(reply) => return reply,
                Step::Wait(_) => {}
                Step::Read(keys) => {
                    self.cost.reads += 1;
                    self.read(client, &env, &mut operation, &keys);
                }
                Step::LostNothing(_) => client.lost_nothing(&mut operation, self.lost_nothing),
                Step::List => client.listed(&mut operation, self.names()),
                Step::Commit(life, sendings) => {
                    self.cost.commits += 1;
                    let mut fates = self.commit(life, &sendings);
                    if self.doubled {
                        fates = self.commit(life, &sendings);
                    }
                    // What is known of the wall clock comes from reads.
                    client.committed(&env, &mut operation, Shown { wall: None, ..self.shown() }, fates);
                }
            }
        }
        panic!("it gets nowhere");
    }

    /// All resources that the store has.
    pub(super) fn names(&self) -> Vec<ResourceName> {
        let name = |key: &Key| match key {
            Key::Resource(name) => Some(name.clone()),
            _ => None,
        };
        self.records.keys().filter_map(name).collect()
    }

    pub(super) fn act(&mut self, act: Act) -> Reply {
        let (operator, reply) = self.run(self.operator.clone(), act);
        self.operator = operator;
        reply
    }

    /// A look at all leases, which finds these ttls in use.
    pub(super) fn looked(&self, in_use: &[Duration]) -> LookedAtLeases {
        let [meta, ttls] = [Key::Meta, Key::Ttls].map(|key| self.version(&key));
        LookedAtLeases { in_use: in_use.iter().copied().collect(), meta, ttls, linger: TTL_LINGERS }
    }

    /// Both steps, each after such a look.
    pub(super) fn drop_ttls(&mut self, in_use: &[Duration]) {
        for _ in 0..2 {
            let looked = self.looked(in_use);
            self.act(Act::DropTtls(looked));
        }
    }

    /// The process of a lease, to be put back.
    pub(super) fn client(&mut self, lease: LeaseId) -> Client {
        let (planted, capabilities) = (self.planted, self.capabilities);
        self.clients.remove(&lease).unwrap_or_else(|| Client::new(capabilities).with_planted(planted))
    }

    /// The same by the process of a lease.
    pub(super) fn act_as(&mut self, lease: LeaseId, act: Act) -> Reply {
        let client = self.client(lease);
        let (client, reply) = self.run(client, act);
        self.clients.insert(lease, client);
        reply
    }

    pub(super) fn request(&mut self, lease: LeaseId, call: Call) -> Request {
        self.seq += 1;
        let at = self.env().at;
        let (seq, judged_by) = (Seq(self.seq), None);
        Request { lease, seq, asked_at: at, limit: TTL, judged_by, call }
    }

    pub(super) fn send(&mut self, request: Request) -> Said {
        match self.act_as(request.lease, Act::Call(request, None)) {
            Reply::Answer(answer) => answer.said,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn call(&mut self, lease: LeaseId, call: Call) -> Said {
        let request = self.request(lease, call);
        self.send(request)
    }

    pub(super) fn open(&mut self, lease: LeaseId, ttl: Duration) {
        let label = Label::new("worker").unwrap();
        let said = self.call(lease, Call::Open { ttl, label, metadata: Metadata::default() });
        assert_eq!(said, Said::Opened);
    }

    pub(super) fn renew(&mut self, lease: LeaseId) -> Said {
        self.call(lease, Call::Renew)
    }

    pub(super) fn renew_as(&mut self, lease: LeaseId, seq: u64) -> Said {
        let request = self.request(lease, Call::Renew);
        self.send(Request { seq: Seq(seq), ..request })
    }

    pub(super) fn close(&mut self, lease: LeaseId) -> Said {
        self.call(lease, Call::Close(Closing::Left))
    }

    pub(super) fn claim(&mut self, lease: LeaseId) -> Claimed {
        self.claim_with(lease, 1, 0)
    }

    pub(super) fn claim_with(&mut self, lease: LeaseId, tickets: u32, priority: i32) -> Claimed {
        claimed(self.call(lease, claim_of(tickets, priority)))
    }

    /// A claim by a worker that vouches for that time, plus so many microseconds.
    pub(super) fn claim_judging(&mut self, lease: LeaseId, judged: StoreTime, more: i64) -> Claimed {
        self.renew(lease);
        let request = self.request(lease, claim_of(1, 0));
        let judged = StoreTime::from_micros(judged.as_micros().saturating_add_signed(more));
        claimed(self.send(Request { judged_by: Some(judged), ..request }))
    }

    pub(super) fn release(&mut self, lease: LeaseId) -> Released {
        let leave = Leave { resource: name(), how: Leaving::Released };
        match self.call(lease, Call::Release(vec![leave])) {
            Said::Released(released) => released[0],
            other => panic!("{other:?}"),
        }
    }

    /// The commit that a request leads to, given up before it is answered.
    pub(super) fn commit_of(&mut self, lease: LeaseId, call: Call) -> Vec<Sending> {
        let request = self.request(lease, call);
        let mut client = self.client(lease);
        let (_, _, sendings) = self.begin(&mut client, request);
        self.clients.insert(lease, client);
        sendings
    }

    /// A hint brings the record.
    pub(super) fn tell(&mut self, lease: LeaseId, _resource: &str) {
        let (env, found, life) = (self.env(), self.find(&Key::Resource(name())), self.life);
        self.clients.get_mut(&lease).unwrap().told(&env, life, found);
    }

    pub(super) fn count(&mut self) -> Cost {
        core::mem::take(&mut self.cost)
    }

    pub(super) fn resource(&self) -> Resource {
        match self.value(&Key::Resource(name())) {
            Some(Value::Resource(resource)) => resource,
            other => panic!("{other:?}"),
        }
    }

    /// Somebody else writes this record.
    pub(super) fn write(&mut self, key: &Key, value: Value) {
        let found = self.find(key);
        let (version, revision) = (Version(found.version.0 ^ 0xffff), found.revision + 1);
        let (stamp, value) = (self.time(), Some(value));
        self.records.insert(key.clone(), Found { key: key.clone(), version, revision, stamp, value });
    }

    pub(super) fn edit_resource(&mut self, edit: impl FnOnce(&mut Resource)) {
        let mut resource = self.resource();
        edit(&mut resource);
        let found = self.records.get_mut(&Key::Resource(name())).unwrap();
        found.value = Some(resource.into());
        found.version = Version(found.version.0 ^ 0xffff);
        found.revision += 1;
    }

    pub(super) fn lease(&self, id: LeaseId) -> Lease {
        match self.value(&Key::Lease(id)) {
            Some(Value::Lease(lease)) => lease,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn meta(&self) -> Meta {
        match self.value(&Key::Meta) {
            Some(Value::Meta(meta)) => meta,
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn name() -> ResourceName {
    ResourceName::new("r").unwrap()
}

pub(super) fn want(resource: &ResourceName) -> Want {
    Want { resource: resource.clone(), tickets: Tickets::ONE, priority: 0 }
}

pub(super) fn leave(resource: &ResourceName, how: Leaving) -> Leave {
    Leave { resource: resource.clone(), how }
}

pub(super) fn claim_of(tickets: u32, priority: i32) -> Call {
    Call::Claim(vec![Want { resource: name(), tickets: Tickets::new(tickets).unwrap(), priority }])
}

pub(super) fn claimed(said: Said) -> Claimed {
    match said {
        Said::Claimed(claimed) => claimed[0],
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(super) fn granted(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

pub(super) fn waits(claimed: Claimed) -> Waiting {
    match claimed {
        Claimed::Waiting(waiting) => waiting,
        other => panic!("{other:?}"),
    }
}

pub(super) fn notices(said: Said) -> Vec<(Token, Wish)> {
    match said {
        Said::Kept { notices, .. } => notices.iter().map(|notice| (notice.token, notice.wish)).collect(),
        other => panic!("{other:?}"),
    }
}
