//! The simulated store: records, versions, a clock that may step. It decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::rules::{
    Capabilities, Event, Fate, Found, Key, Meta, Reader, Resource, Sending, Shown, Signal, Value, Version,
};
use tenure_core::{
    Bug, Closing, Incarnation, LeaseId, Metadata, Planted, ResourceName, ResourceView, StoreTime,
};

use crate::check::Marks;
use crate::transitions;

/// A real point in time, in microseconds since the beginning of the run.
type Real = u64;

#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) capabilities: Capabilities,
    records: BTreeMap<Key, Kept>,
    pub(crate) rate: u64,
    pub(crate) offset: i64,
    pub(crate) incarnation: u128,
    pub(crate) down: bool,
    /// It was found without data: it cannot show that nothing was lost.
    bereft: bool,
    /// What the store falls back to when it loses some of its data.
    pub(crate) snapshot: Option<(BTreeMap<Key, Kept>, Marks)>,
    /// When its clock stepped last, and when somebody last began to count a span by it: a lease or a quarantine.
    pub(crate) stepped_at: Real,
    pub(crate) span_began_at: Real,
    /// When each quarantine began.
    quarantines: BTreeMap<u64, Real>,
    pub(crate) planted: Planted,
    pub(crate) commits: u64,
    pub(crate) conflicts: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Kept {
    version: Version,
    revision: u64,
    stamp: Option<StoreTime>,
    value: Value,
}

/// What one change did, as an outsider sees it.
#[derive(Default)]
pub(crate) struct Applied {
    pub(crate) history: Vec<Event>,
    pub(crate) signals: Vec<Signal>,
    pub(crate) written: Vec<Found>,
    /// An ended lease was written, or something else that never happens.
    pub(crate) forbidden: Option<String>,
    /// A resource has become what it never should: which promise that breaks, and how.
    pub(crate) mistake: Option<(&'static str, String)>,
    /// A quarantine was over too soon.
    pub(crate) too_short: Option<String>,
    /// Leases that were ended for having run out.
    pub(crate) ended: Vec<LeaseId>,
}

impl Store {
    pub(crate) fn new(capabilities: Capabilities, rate: u64, planted: Planted) -> Self {
        Self {
            capabilities,
            records: BTreeMap::new(),
            rate,
            offset: 0,
            incarnation: 1,
            down: false,
            bereft: false,
            snapshot: None,
            stepped_at: 0,
            span_began_at: 0,
            quarantines: BTreeMap::new(),
            planted,
            commits: 0,
            conflicts: 0,
        }
    }

    pub(crate) fn clock(&self, at: Real) -> StoreTime {
        // Hours before it, so that steps back stay positive.
        let run = (100_000_000_000 + at * self.rate / 1_000_000) as i64 + self.offset;
        StoreTime::from_micros(run as u64)
    }

    pub(crate) fn shown(&self, at: Real) -> Shown {
        let now = self.capabilities.clock.then(|| self.clock(at));
        Shown { life: Incarnation(self.incarnation), now, wall: now.map(StoreTime::as_micros) }
    }

    pub(crate) fn lost_nothing(&self) -> bool {
        !self.bereft
    }

    pub(crate) fn records(&self) -> BTreeMap<Key, Kept> {
        self.records.clone()
    }

    pub(crate) fn lose_all(&mut self) {
        self.records.clear();
        self.bereft = true;
        self.snapshot = None;
    }

    /// Whether what it falls back to would know how long this lease may be relied upon.
    pub(crate) fn would_know(&self, lease: LeaseId, ttl: Duration) -> bool {
        let Some((records, _)) = &self.snapshot else { return false };
        let longest = match records.get(&Key::Meta).map(|kept| &kept.value) {
            Some(Value::Meta(meta)) => meta.longest,
            _ => Duration::ZERO,
        };
        longest >= ttl || records.contains_key(&Key::Lease(lease))
    }

    /// Whether the lease was last written by whoever renews it.
    pub(crate) fn is_as_renewed(&self, lease: LeaseId) -> bool {
        let kept = self.records.get(&Key::Lease(lease)).map(|kept| &kept.value);
        matches!(kept, Some(Value::Lease(lease)) if lease.renewed.is_none())
    }

    pub(crate) fn leases(&self) -> Vec<LeaseId> {
        let leases = self.records.keys().filter_map(|key| match key {
            Key::Lease(lease) => Some(*lease),
            _ => None,
        });
        leases.collect()
    }

    pub(crate) fn fall_back(&mut self, records: BTreeMap<Key, Kept>) {
        self.records = records;
    }

    pub(crate) fn read(&self, at: Real, keys: &[Key]) -> (Shown, Vec<Found>) {
        (self.shown(at), keys.iter().map(|key| self.found(key)).collect())
    }

    pub(crate) fn names(&self) -> Vec<ResourceName> {
        let resources = self.records.keys().filter_map(|key| match key {
            Key::Resource(name) => Some(name.clone()),
            _ => None,
        });
        resources.collect()
    }

    fn found(&self, key: &Key) -> Found {
        match self.records.get(key) {
            Some(Kept { version, revision, stamp, value }) => Found {
                key: key.clone(),
                version: *version,
                revision: *revision,
                stamp: *stamp,
                value: Some(value.clone()),
            },
            None => Found { key: key.clone(), version: Version::NONE, revision: 0, stamp: None, value: None },
        }
    }

    fn version(&self, key: &Key) -> Version {
        self.records.get(key).map_or(Version::NONE, |kept| kept.version)
    }

    /// Applies one change if it finds what it expects. A store that writes one by one compares and writes the puts from
    /// `put` on, up to `until`.
    pub(crate) fn commit(
        &mut self,
        at: Real,
        life: Incarnation,
        sending: &Sending,
        puts: std::ops::Range<usize>,
    ) -> (Fate, Applied) {
        let Capabilities { clock, together, .. } = self.capabilities;
        let change = &sending.change;
        let compares = |key: &Key| together || change.put[puts.clone()].iter().any(|(put, _)| put == key);
        let differ = |(key, version): &&(Key, Version)| compares(key) && self.version(key) != *version;
        let conflicts: Vec<Found> =
            change.expect.iter().filter(differ).map(|(key, _)| self.found(key)).collect();
        let other_life = together && life.0 != self.incarnation && !self.planted.has(Bug::CommitWithoutLife);
        let outside = clock && !change.window.contains(self.clock(at));
        let none = Applied::default;
        if other_life || outside {
            return (Fate::Conflict(Vec::new()), none());
        }
        if !conflicts.is_empty() {
            self.conflicts += 1;
            return (Fate::Conflict(conflicts), none());
        }
        self.commits += 1;
        let stamp = clock.then(|| self.clock(at));
        let mut applied = Applied::default();
        for index in puts.clone() {
            let (key, value) = &change.put[index];
            if let Some(before) = self.records.get(key)
                && let (Value::Lease(before), Some(Value::Lease(after))) = (&before.value, value)
                && before.ended.is_some()
            {
                applied.forbidden = Some(format!("an ended lease is written: {before:?} -> {after:?}"));
            }
            if let (Key::Lease(id), Some(Value::Lease(after))) = (key, value)
                && after.ended.is_some_and(|ended| ended.why == Closing::Expired)
            {
                applied.ended.push(*id);
            }
            if let (Key::Resource(name), Some(Value::Resource(after))) = (key, value) {
                let of_it = change.history.iter().filter(|event| event.resource == *name).cloned();
                let history: Option<Vec<Event>> = together.then(|| of_it.collect());
                applied.mistake = transitions::mistake(self.resource(name), after, history.as_deref());
            }
            if let (Key::Meta, Some(Value::Meta(after))) = (key, value) {
                applied.too_short = self.note_quarantine(at, after).or(applied.too_short);
            }
            if begins_span(value.as_ref()) {
                self.span_began_at = at;
            }
            let revision = self.records.get(key).map_or(0, |kept| kept.revision) + 1;
            match value {
                Some(value) => {
                    let version = match self.planted.has(Bug::VersionsAreCounters) {
                        true => Version(revision),
                        false => sending.version,
                    };
                    self.records.insert(key.clone(), Kept { version, revision, stamp, value: value.clone() });
                }
                None => drop(self.records.remove(key)),
            }
            applied.written.push(self.found(key));
        }
        if puts.end == change.put.len() {
            applied.history = change.history.clone();
            applied.signals = change.signals.clone();
        }
        (Fate::Done(stamp), applied)
    }

    /// A quarantine lasts for the longest ttl, by any clock; that of a new namespace ends at once if nothing was ever
    /// lost.
    fn note_quarantine(&mut self, at: Real, after: &Meta) -> Option<String> {
        if let Some(quarantine) = &after.quarantine {
            self.quarantines.entry(quarantine.mark).or_insert(at);
            return None;
        }
        let Value::Meta(before) = &self.records.get(&Key::Meta)?.value else { return None };
        let quarantine = before.quarantine.as_ref()?;
        if quarantine.from.is_none() && self.lost_nothing() {
            return None;
        }
        let began = self.quarantines.get(&quarantine.mark)?;
        let lasted = Duration::from_micros(at - began);
        let least = before.longest * 88 / 100;
        (lasted < least).then(|| format!("a quarantine of {:?} is over after {lasted:?}", before.longest))
    }

    // ---- for those who look from outside ---------------------------------------------------------------------

    pub(crate) fn resource(&self, name: &ResourceName) -> Option<&Resource> {
        match &self.records.get(&Key::Resource(name.clone()))?.value {
            Value::Resource(resource) => Some(resource),
            _ => None,
        }
    }

    /// When the lease ends by the store's clock, if it has not ended yet.
    pub(crate) fn expiry(&self, lease: LeaseId) -> Option<StoreTime> {
        let kept = self.records.get(&Key::Lease(lease))?;
        match &kept.value {
            Value::Lease(lease) if lease.ended.is_none() => Some(lease.renewed.or(kept.stamp)? + lease.ttl),
            _ => None,
        }
    }

    /// The ttls of all leases that are not ended.
    pub(crate) fn ttls_in_use(&self) -> BTreeSet<Duration> {
        let leases = self.records.values().filter_map(|kept| match &kept.value {
            Value::Lease(lease) if lease.ended.is_none() => Some(lease.ttl),
            _ => None,
        });
        leases.collect()
    }

    /// Owners and waiters, as people would read them.
    pub(crate) fn view(&self, at: Real, name: &ResourceName) -> Option<ResourceView> {
        let resource = self.resource(name)?;
        let named = resource.owners.iter().map(|owner| owner.lease);
        let named = named.chain(resource.queue.iter().map(|waiter| waiter.lease));
        let mut reader = Reader { now: self.shown(at).now, ..Reader::default() };
        for id in named {
            let found = self.found(&Key::Lease(id));
            if let (Some(Value::Lease(mut lease)), stamp) = (found.value, found.stamp) {
                lease.renewed = lease.renewed.or(stamp);
                reader.leases.insert(id, (lease, Metadata::default()));
            }
        }
        Some(reader.view(name, resource))
    }
}

/// Whether a lease or a quarantine counts from the stamp of this record.
fn begins_span(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Lease(lease)) => lease.renewed.is_none() && lease.ended.is_none(),
        Some(Value::Meta(meta)) => {
            meta.quarantine.as_ref().is_some_and(|quarantine| quarantine.since.is_none())
        }
        _ => false,
    }
}
