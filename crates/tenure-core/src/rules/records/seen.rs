//! A record as a process has seen it: which version, when, and what the store's clock showed.
//!
//! The store's clock may go back. A time in a record that lies after the clock then counts as the time that the clock
//! shows.

use alloc::sync::Arc;

use super::{Lease, Meta, Quarantine, Resource, SetBy, Time, Value};
use crate::moment::{Moment, StoreTime};
use crate::rules::keys::{Key, Version};

/// A record as a process has seen it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its version; [`Version::NONE`] if it does not exist.
    pub version: Version,
    /// How often it was written: orders two versions that this process has seen.
    pub revision: u64,
    /// When the lease was renewed, or the quarantine began, as the store has it. A process that writes the record for
    /// another reason writes this time back.
    stored: Time,
    /// What it says; nothing if it does not exist.
    pub value: Option<Arc<Value>>,
    /// When it was seen.
    pub seen: Seen,
}

/// The order of what a process sends and receives. Unlike two readings of a clock, two of these are never equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(pub u64);

/// When a process has seen a version of a record, on its own clocks and on the store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// When this process asked for it. Absent for a record that came with a hint.
    pub asked: Option<Order>,
    /// When it arrived last.
    pub arrived: Order,
    /// When this version first arrived.
    pub first_at: Moment,
    /// When it arrived last.
    pub at: Moment,
    /// What the store's clock showed then.
    pub now: Option<StoreTime>,
    /// Set if a time in the record was after the clock, because the clock had gone back: the least that the clock has
    /// shown with this version, and when. No time in the record counts as later than that, and it ages from then on.
    pub turned_back: Option<(StoreTime, Moment)>,
    /// When this process first saw the renewal, the free ticket or the quarantine that the record shows.
    pub marked_at: Moment,
}

/// A record on its way from the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// Which.
    pub key: Key,
    /// [`Version::NONE`] if it does not exist.
    pub version: Version,
    /// How often it was written.
    pub revision: u64,
    /// When it was written.
    pub stamp: Option<StoreTime>,
    /// What it says.
    pub value: Option<Value>,
}

impl Found {
    /// The record as it arrives when the store's clock shows `now`. Absent times are filled in; later times count as
    /// `now`.
    #[must_use]
    pub fn timed(self, now: Option<StoreTime>) -> Self {
        self.turned_back(now).0
    }

    /// The same, and whether there was a time after `now`.
    fn turned_back(mut self, now: Option<StoreTime>) -> (Self, bool) {
        let mut after = false;
        let mut latest = |time: Time| match (time, now) {
            (Some(time), Some(now)) => {
                after |= time > now;
                Some(time.min(now))
            }
            (time, _) => time,
        };
        // `opened` orders leases, so it is never lowered.
        if let Some(
            Value::Lease(Lease { opened, .. })
            | Value::Resource(Resource { set_by: SetBy { opened, .. }, .. }),
        ) = &mut self.value
        {
            *opened = opened.or(self.stamp);
        }
        self.stamp = latest(self.stamp);
        if let Some(value) = &mut self.value {
            value.each_time(&mut |time| *time = latest(time.or(self.stamp)));
            if let Value::Lease(lease) = value {
                lease.end_in_time();
            }
        }
        (self, after)
    }
}

impl Record {
    /// A record as it arrives.
    #[must_use]
    pub(in crate::rules) fn arrived(found: Found, seen: Seen) -> Self {
        let stored = match &found.value {
            Some(Value::Lease(lease)) => lease.renewed.or(found.stamp),
            Some(Value::Meta(Meta { quarantine: Some(quarantine), .. })) => quarantine.since.or(found.stamp),
            _ => None,
        };
        let (Found { version, revision, value, .. }, after) = found.turned_back(seen.now);
        let turned_back = seen.now.filter(|_| after).map(|now| (now, seen.at));
        let seen = Seen { turned_back, ..seen };
        Self { version, revision, stored, value: value.map(Arc::new), seen }
    }

    /// The lease as another process writes it back, which does not renew it.
    pub(in crate::rules) fn lease_as_stored(&self, lease: Lease) -> Lease {
        Lease { renewed: self.stored, ..lease }
    }

    /// The record of the namespace as a process writes it back that begins no quarantine.
    pub(in crate::rules) fn meta_as_stored(&self, meta: &Meta) -> Meta {
        let stored = |quarantine: &Quarantine| Quarantine { since: self.stored, ..quarantine.clone() };
        Meta { quarantine: meta.quarantine.as_ref().map(stored), ..meta.clone() }
    }

    /// The store's clock shows `now` in a reply to a later request. If that is earlier than when the record was seen,
    /// the clock went back: from now on later times count as `now`.
    pub(in crate::rules) fn turn_back(&mut self, at: Moment, now: StoreTime) {
        if self.seen.now.is_none_or(|seen| seen <= now) {
            return;
        }
        self.seen = Seen { at, now: Some(now), ..self.seen };
        if let Some(value) = &mut self.value {
            let mut after = false;
            let mut turn_back = |time: &mut Time| {
                after |= *time > Some(now);
                *time = time.map(|time| time.min(now));
            };
            Arc::make_mut(value).each_time(&mut turn_back);
            if after {
                self.seen.turned_back = Some((now, at));
            }
        }
    }

    /// This record, unless it is older than the one that is known. The same version keeps when it was first seen, and
    /// the least that its times have counted for.
    #[must_use]
    pub fn after(self, known: Option<&Self>) -> Option<Self> {
        let Some(known) = known else { return Some(self) };
        if self.version == known.version {
            let seen = Seen { first_at: known.seen.first_at, marked_at: known.seen.marked_at, ..self.seen };
            let seen = Seen { asked: seen.asked.or(known.seen.asked), ..seen };
            let further_back = match (seen.turned_back, known.seen.turned_back) {
                (Some((new, _)), Some((known, _))) => new < known,
                (new, _) => new.is_some(),
            };
            if further_back {
                return Some(Self { seen, ..self });
            }
            let seen = Seen { turned_back: known.seen.turned_back, ..seen };
            return Some(Self { value: known.value.clone(), seen, ..self });
        }
        let asked_later = self.seen.asked.is_some_and(|asked| asked > known.seen.arrived);
        // Revisions of different data cannot be compared.
        let secret = |record: &Self| record.meta().map(|meta| meta.secret);
        let same_data = secret(&self) == secret(known);
        if !asked_later && (self.revision <= known.revision || !same_data) {
            return None;
        }
        let same_generation = match (&self.value, &known.value) {
            (Some(new), Some(old)) => new.generation() == old.generation(),
            _ => false,
        };
        let marked_at = if same_generation { known.seen.marked_at } else { self.seen.marked_at };
        Some(Self { seen: Seen { marked_at, ..self.seen }, ..self })
    }
}
