//! What an operation knows when it decides: the records that this process has seen, and what time it is.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::keys::Key;
use super::records::{Ended, Lease, Meta, Order, Record, Resource, Time};
use crate::message::{Closing, LeaseId};
use crate::moment::{Moment, StoreTime};
use crate::names::ResourceName;
use crate::planted::{Bug, Planted};

/// 2200-01-01, in microseconds: tokens stay below 2^53, so that every language can hold them.
const LATEST_WALL: u64 = 7_258_118_400_000_000;

/// How long to wait before looking again at a quarantine whose length nobody knows yet.
const UNKNOWN_LONGEST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) records: &'a BTreeMap<Key, Record>,
    pub(super) planted: Planted,
    /// Now, on the worker's clocks.
    pub(super) at: Moment,
    /// What was asked for after this is fresh.
    pub(super) fresh_from: Order,
    /// The latest store time that the worker's own clock can vouch for.
    pub(super) judged_by: Option<StoreTime>,
    /// The store's wall clock, as far as it is known, in microseconds since 1970.
    pub(super) wall: u64,
    /// A random number for what needs one.
    pub(super) chance: u64,
}

/// Whether a lease lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It does, for so long still without a renewal.
    Alive(Duration),
    /// It has run out, and nobody has ended it yet; since then, where the store has a clock.
    RunOut(Time),
    Ended(Ended),
    /// The store has no such lease.
    Missing,
}

impl<'a> View<'a> {
    pub(super) fn get(&self, key: &Key) -> Option<&'a Record> {
        self.records.get(key)
    }

    /// Whether the record was read for this request.
    pub(super) fn is_fresh(&self, record: &Record) -> bool {
        let fresh = |asked: Order| asked > self.fresh_from;
        record.seen.asked.is_some_and(fresh) || self.planted.has(Bug::WaitingFromCache)
    }

    pub(super) fn has_fresh(&self, key: &Key) -> bool {
        self.get(key).is_some_and(|record| self.is_fresh(record))
    }

    /// The namespace's own record. An operation begins with it, so it is known.
    pub(super) fn meta(&self) -> Option<(&'a Record, &'a Meta)> {
        let record = self.get(&Key::Meta)?;
        Some((record, record.meta()?))
    }

    pub(super) fn lease(&self, id: LeaseId) -> Option<(&'a Record, &'a Lease)> {
        let record = self.get(&Key::Lease(id))?;
        Some((record, record.lease()?))
    }

    pub(super) fn resource(&self, name: &ResourceName) -> Option<(&'a Record, Option<&'a Resource>)> {
        let record = self.get(&Key::Resource(name.clone()))?;
        Some((record, record.resource()))
    }

    /// What the store's clock shows at least, since it showed what it did with this record.
    pub(super) fn now_by(&self, record: &Record) -> Option<StoreTime> {
        record.seen.now.map(|now| now + self.at.shortest_since(record.seen.at))
    }

    /// By what time the worker judges whether this record's time is over: as far as its own clock can vouch for the
    /// store's, and never later than the store's clock as it was seen together with the record.
    pub(super) fn judged(&self, record: &Record) -> Option<StoreTime> {
        let now = self.now_by(record)?;
        if self.planted.has(Bug::JudgedByOff) {
            return Some(now);
        }
        if self.planted.has(Bug::BoundAlone) {
            return Some(self.judged_by.unwrap_or(now));
        }
        // The clock was back, and the record's times were lowered to what it showed. When it goes forward again they
        // must not look older than they are: they have aged only by what our own clock has counted since.
        let since = record.seen.turned_back.map(|(least, at)| least + self.at.shortest_since(at));
        let since = since.filter(|_| !self.planted.has(Bug::ClockSeenBack));
        let now = since.map_or(now, |since| since.min(now));
        Some(self.judged_by.map_or(now, |judged_by| judged_by.min(now)))
    }

    /// How long ago this was, by what the worker can vouch for. Without a clock: since it was first seen.
    pub(super) fn since(&self, record: &Record, time: Time, seen_at: Moment) -> Duration {
        match (self.judged(record), time) {
            (Some(judged), Some(time)) => judged.since(time),
            _ => self.at.shortest_since(seen_at),
        }
    }

    /// How long ago this was, by the store's clock: good enough where it is about order, not about life.
    pub(super) fn ago(&self, record: &Record, time: Time, seen_at: Moment) -> Duration {
        match (self.now_by(record), time) {
            (Some(now), Some(time)) => now.since(time),
            _ => self.at.shortest_since(seen_at),
        }
    }

    /// How the lease stands; nothing if it was not read yet.
    pub(super) fn standing(&self, id: LeaseId) -> Option<Standing> {
        let record = self.get(&Key::Lease(id))?;
        let Some(lease) = record.lease() else { return Some(Standing::Missing) };
        if let Some(ended) = lease.ended {
            return Some(Standing::Ended(ended));
        }
        let (end, gone) = match (lease.renewed, self.judged(record)) {
            (Some(renewed), Some(judged)) => (lease.runs_out_at(), judged.since(renewed)),
            _ => (None, self.watched(record)),
        };
        let left = lease.ttl.saturating_sub(gone);
        Some(if left.is_zero() { Standing::RunOut(end) } else { Standing::Alive(left) })
    }

    /// For how long the lease has been seen without another renewal: on the slower clock, from when that arrived.
    pub(super) fn watched(&self, record: &Record) -> Duration {
        match self.planted.has(Bug::WatchedByFasterClock) {
            true => self.at.longest_since(record.seen.marked_at),
            false => self.at.shortest_since(record.seen.marked_at),
        }
    }

    /// How long nothing is granted still, by what the worker can vouch for; nothing if there is no quarantine.
    pub(super) fn quarantine(&self) -> Option<Duration> {
        self.quarantine_after(|record, since| self.since(record, since, record.seen.marked_at))
    }

    /// The least that may be left of it, for any process. Without a clock, or after one went back, only the age of a
    /// quarantine that this process began itself is known.
    pub(super) fn shortest_quarantine(&self, known: &KnownMeta) -> Option<Duration> {
        let mark = self.meta()?.1.quarantine.as_ref()?.mark;
        let own = known.own_quarantine.filter(|(drawn, _)| *drawn == mark);
        self.quarantine_after(|record, since| {
            let by_clock = || {
                let now = record.seen.now.filter(|_| record.seen.turned_back.is_none())?;
                Some((now + self.at.longest_since(known.asked_at?)).since(since?))
            };
            let own = || own.map(|(_, at)| self.at.longest_since(at));
            by_clock().or_else(own).unwrap_or(Duration::MAX)
        })
    }

    fn quarantine_after(&self, gone: impl FnOnce(&Record, Time) -> Duration) -> Option<Duration> {
        let (record, meta) = self.meta()?;
        let quarantine = meta.quarantine.as_ref()?;
        if meta.longest.is_zero() {
            // Nobody has said yet how long owners of before may rely on their leases.
            return Some(UNKNOWN_LONGEST);
        }
        Some(meta.longest.saturating_sub(gone(record, quarantine.since)))
    }

    /// Until when the own lease lives, by the store's clock.
    pub(super) fn own_end(&self, id: LeaseId) -> Time {
        self.lease(id)?.1.runs_out_at()
    }

    /// The wall clock for a token: one beyond the year 2200 does not count.
    pub(super) fn wall_for_token(&self) -> u64 {
        if self.wall < LATEST_WALL { self.wall } else { 0 }
    }
}

/// What a process knows of the namespace's own record beside what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct KnownMeta {
    /// When it was asked for as it is known: what the answer shows is not older. Nothing if it came with a hint.
    pub(super) asked_at: Option<Moment>,
    /// The mark of the last quarantine that this process has begun, and when that was sent.
    pub(super) own_quarantine: Option<(u64, Moment)>,
}

/// Collects what has to be read before anything can be decided.
#[derive(Default)]
pub(super) struct Wanted(pub(super) BTreeSet<Key>);

impl Wanted {
    pub(super) fn unless_fresh(&mut self, view: &View<'_>, key: Key) {
        if !view.has_fresh(&key) {
            self.0.insert(key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Why a lease ended, for one that has run out.
pub(super) fn run_out(at: Time) -> Ended {
    Ended { at, why: Closing::Expired, clean: false }
}
