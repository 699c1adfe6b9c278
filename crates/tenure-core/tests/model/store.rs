//! The store: records, versions, a clock. It decides nothing.

use std::collections::BTreeMap;
use std::ops::Range;

use tenure_core::rules::{Event, Fate, Found, Sending, Shown, Signal, Value};
use tenure_core::{
    Bug, Capabilities, Incarnation, Key, LeaseId, Planted, ResourceName, StoreTime, Token, Version,
};

use crate::plan::{Plan, TTL};

/// Apart from the workers' clocks, so that one cannot be mistaken for the other.
const START: u64 = 7_000_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    capabilities: Capabilities,
    planted: Planted,
    life: u128,
    /// By how many leases its clock was set forward or back.
    offset: i32,
    /// It was found without data: it cannot show that nothing was lost.
    bereft: bool,
    records: BTreeMap<Key, Kept>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept {
    version: Version,
    revision: u64,
    stamp: Option<StoreTime>,
    value: Value,
}

/// A message to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    Read(Vec<Key>),
    Commit(Incarnation, Vec<Sending>),
    /// The records of a change from this one on, where they are written one by one.
    Rest(Incarnation, Sending, usize),
    LostNothing,
    List,
}

/// What it says to that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Read(Vec<Found>),
    Committed(Vec<Fate>),
    LostNothing(bool),
    Listed(Vec<ResourceName>),
}

/// What changes did, as an outsider sees it.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) history: Vec<Event>,
    pub(crate) signals: Vec<Signal>,
    pub(crate) written: Vec<Found>,
    /// Leases that were ended.
    pub(crate) ended: Vec<LeaseId>,
    /// A lease was written that had ended before.
    pub(crate) revived: bool,
}

impl Store {
    pub(crate) fn new(plan: &Plan) -> Self {
        let (capabilities, planted) = (plan.capabilities(), plan.planted());
        Self { capabilities, planted, life: 1, offset: 0, bereft: false, records: BTreeMap::new() }
    }

    pub(crate) fn wall(at: u64) -> u64 {
        START + at
    }

    fn clock(&self, at: u64) -> StoreTime {
        let offset = i64::from(self.offset) * TTL.as_micros() as i64;
        StoreTime::from_micros(Self::wall(at).saturating_add_signed(offset))
    }

    pub(crate) fn life(&self) -> Incarnation {
        Incarnation(self.life)
    }

    pub(crate) fn shown(&self, at: u64) -> Shown {
        let now = self.capabilities.clock.then(|| self.clock(at));
        Shown { life: self.life(), now, wall: now.map(StoreTime::as_micros) }
    }

    // ---- trouble ---------------------------------------------------------------------------------------------

    pub(crate) fn restart(&mut self) {
        self.life += 1;
    }

    pub(crate) fn lose_all(&mut self) {
        self.restart();
        self.records.clear();
        self.bereft = true;
    }

    pub(crate) fn fall_back(&mut self, to: &Self) {
        self.restart();
        self.records.clone_from(&to.records);
    }

    /// Sets the clock by so many leases.
    pub(crate) fn step(&mut self, by: i32) {
        self.offset += by;
    }

    // ---- messages --------------------------------------------------------------------------------------------

    /// The answer to a message that changes nothing.
    pub(crate) fn look(&self, ask: &Ask) -> Option<Reply> {
        match ask {
            Ask::Read(keys) => Some(Reply::Read(keys.iter().map(|key| self.found(key)).collect())),
            Ask::LostNothing => Some(Reply::LostNothing(!self.bereft)),
            Ask::List => Some(Reply::Listed(self.names())),
            Ask::Commit(..) | Ask::Rest(..) => None,
        }
    }

    pub(crate) fn write(&mut self, at: u64, ask: &Ask) -> (Reply, Applied) {
        let mut applied = Applied::default();
        let fates = match ask {
            Ask::Commit(life, sendings) => {
                let all = |sending: &Sending| 0..sending.change.put.len();
                let fates = sendings
                    .iter()
                    .map(|sending| self.commit(at, *life, sending, all(sending), &mut applied));
                fates.collect()
            }
            Ask::Rest(life, sending, from) => {
                let rest = *from..sending.change.put.len();
                vec![self.commit(at, *life, sending, rest, &mut applied)]
            }
            Ask::Read(_) | Ask::LostNothing | Ask::List => Vec::new(),
        };
        (Reply::Committed(fates), applied)
    }

    /// Writes these of the records of a change, if it finds what it expects. A store that writes one by one compares
    /// nothing else, and does not know in which of its lives the change was decided.
    pub(crate) fn commit(
        &mut self,
        at: u64,
        life: Incarnation,
        sending: &Sending,
        puts: Range<usize>,
        applied: &mut Applied,
    ) -> Fate {
        let Capabilities { clock, together, .. } = self.capabilities;
        let change = &sending.change;
        let compares = |key: &Key| together || change.put[puts.clone()].iter().any(|(put, _)| put == key);
        let differ = |(key, version): &&(Key, Version)| compares(key) && self.version(key) != *version;
        let other_life = together && life != self.life() && !self.planted.has(Bug::CommitWithoutLife);
        if other_life || (clock && !change.window.contains(self.clock(at))) {
            return Fate::Conflict(Vec::new());
        }
        let conflicts: Vec<Found> =
            change.expect.iter().filter(differ).map(|(key, _)| self.found(key)).collect();
        if !conflicts.is_empty() {
            return Fate::Conflict(conflicts);
        }
        let stamp = clock.then(|| self.clock(at));
        for (key, value) in &change.put[puts.clone()] {
            self.note(key, value.as_ref(), applied);
            let revision = self.records.get(key).map_or(0, |kept| kept.revision) + 1;
            let version = match self.planted.has(Bug::VersionsAreCounters) {
                true => Version(revision),
                false => sending.version,
            };
            match value.clone() {
                Some(value) => {
                    drop(self.records.insert(key.clone(), Kept { version, revision, stamp, value }));
                }
                None => drop(self.records.remove(key)),
            }
            applied.written.push(self.found(key));
        }
        if puts.end == change.put.len() {
            applied.history.extend(change.history.iter().cloned());
            applied.signals.extend(change.signals.iter().cloned());
        }
        Fate::Done(stamp)
    }

    /// Takes note of what becomes of a lease.
    fn note(&self, key: &Key, value: Option<&Value>, applied: &mut Applied) {
        if let (Key::Lease(id), Some(Value::Lease(after))) = (key, value) {
            let before = match self.records.get(key).map(|kept| &kept.value) {
                Some(Value::Lease(lease)) => lease.ended,
                _ => None,
            };
            applied.revived |= before.is_some();
            if before.is_none() && after.ended.is_some() {
                applied.ended.push(*id);
            }
        }
    }

    fn found(&self, key: &Key) -> Found {
        let key = key.clone();
        match self.records.get(&key).cloned() {
            Some(Kept { version, revision, stamp, value }) => {
                Found { key, version, revision, stamp, value: Some(value) }
            }
            None => Found { key, version: Version::NONE, revision: 0, stamp: None, value: None },
        }
    }

    fn version(&self, key: &Key) -> Version {
        self.records.get(key).map_or(Version::NONE, |kept| kept.version)
    }

    /// Who holds the ticket under this token.
    pub(crate) fn seat_under(&self, name: &ResourceName, token: Token) -> Option<LeaseId> {
        match &self.records.get(&Key::Resource(name.clone()))?.value {
            Value::Resource(resource) => resource.owner_under(token).map(|owner| owner.lease),
            _ => None,
        }
    }

    pub(crate) fn has_seat(&self, name: &ResourceName, lease: LeaseId) -> bool {
        match self.records.get(&Key::Resource(name.clone())).map(|kept| &kept.value) {
            Some(Value::Resource(resource)) => resource.owner_with(lease).is_some(),
            _ => false,
        }
    }

    fn names(&self) -> Vec<ResourceName> {
        let resources = self.records.keys().filter_map(|key| match key {
            Key::Resource(name) => Some(name.clone()),
            _ => None,
        });
        resources.collect()
    }
}
