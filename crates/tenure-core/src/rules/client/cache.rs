//! What this process has seen of the store: its records, its life, its clocks.
//!
//! Every reply passes through here, and so does a record that comes with a hint. Commits in doubt do not belong here:
//! see `own_lease`.

use alloc::vec::Vec;
use core::time::Duration;

use super::Client;
use super::operation::Operation;
use super::protocol::{Act, Env, Fate, Sending, Shown};
use crate::message::{Incarnation, LeaseId};
use crate::moment::{Moment, StoreTime};
use crate::names::ResourceName;
use crate::planted::Bug;
use crate::rules::contact::Before;
use crate::rules::keys::{Key, Version};
use crate::rules::leases;
use crate::rules::records::{Found, Order, Record, Resource, Seen, TtlUse};
use crate::rules::view::View;

/// How many records a client keeps before it drops those it can read again.
const MOST_RECORDS: usize = 50_000;
/// How far the store's clock has to go back to count as a step. Replies that overtake each other are closer together.
const STEP_BACK: Duration = Duration::from_secs(1);

/// The present life of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KnownLife {
    pub(super) life: Incarnation,
    /// When its first reply came.
    pub(super) since: Order,
    /// When its last reply came.
    pub(super) at: Moment,
    /// What the store's clock showed in the last reply.
    pub(super) now: Option<StoreTime>,
}

/// What others may look up.
impl Client {
    /// The latest known version of a record.
    #[must_use]
    pub fn seen(&self, key: &Key) -> Option<&Record> {
        self.records.get(key)
    }

    /// The leases that own this resource, as far as the client knows.
    #[must_use]
    pub fn owners(&self, resource: &ResourceName) -> Vec<LeaseId> {
        self.resource(resource)
            .map_or(Vec::new(), |resource| resource.owners.iter().map(|owner| owner.lease).collect())
    }

    /// The queue of this resource, as far as the client knows.
    #[must_use]
    pub fn waiters(&self, resource: &ResourceName) -> Vec<LeaseId> {
        self.resource(resource)
            .map_or(Vec::new(), |resource| resource.queue.iter().map(|waiter| waiter.lease).collect())
    }

    /// How long this waiter leaves so many free tickets to the waiters before it, as far as the client knows.
    #[must_use]
    pub fn step_behind(&self, resource: &ResourceName, lease: LeaseId, free: usize) -> Duration {
        let queue = self.resource(resource).map_or(&[][..], |resource| &resource.queue);
        let waiter = queue.iter().enumerate().find(|(_, waiter)| waiter.lease == lease);
        waiter.filter(|(position, _)| *position >= free).map_or(Duration::ZERO, |(_, waiter)| waiter.step)
    }

    /// Whether a ttl may be unused, so that it is worth looking at all leases.
    #[must_use]
    pub fn may_have_unused_ttls(&self, env: &Env) -> bool {
        let (meta, record) = (self.records.get(&Key::Meta), self.records.get(&Key::Ttls));
        let known = meta.and_then(Record::meta).zip(record.and_then(|record| Some((record, record.ttls()?))));
        let Some((meta, (record, ttls))) = known else { return false };
        let now = record.seen.now.map(|now| now + env.at.shortest_since(record.seen.at));
        let old = |used: &TtlUse| match (now, used.used) {
            (Some(now), Some(used)) => now.since(used) >= leases::TTL_LINGERS,
            _ => env.at.shortest_since(record.seen.first_at) >= leases::TTL_LINGERS,
        };
        // `longest` may belong to a ttl that is no longer noted, or come from other data.
        let noted = ttls.uses.iter().map(|used| used.ttl).max().unwrap_or_default();
        let may_fall = meta.quarantine.is_none() && meta.longest > noted;
        may_fall || (ttls.uses.len() > 1 && ttls.uses.iter().any(old))
    }

    fn resource(&self, name: &ResourceName) -> Option<&Resource> {
        self.records.get(&Key::Resource(name.clone())).and_then(Record::resource)
    }
}

/// What a reply changes.
impl Client {
    /// Notes the life of the store that a reply shows. Returns false for a late reply of an earlier life: it is
    /// ignored.
    pub(super) fn note_life(&mut self, env: &Env, sent: Order, shown: Shown) -> bool {
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
                // A late reply shows an earlier time.
                if let Some(wall) = shown.wall
                    && self.wall.is_none_or(|(latest, _)| latest <= wall)
                {
                    self.wall = Some((wall, env.at));
                }
                true
            }
            Some(heard) if sent < heard.since => false,
            heard => {
                let next = KnownLife { life: shown.life, since: order, at: env.at, now: shown.now };
                if let Some(before) = heard.replace(next) {
                    self.forget_records(before);
                }
                self.wall = shown.wall.map(|wall| (wall, env.at));
                true
            }
        }
    }

    /// The client has taken in everything that a reply told.
    pub(super) fn note_reply_time(&mut self, env: &Env) {
        if let Some(heard) = &mut self.life {
            heard.at = env.at;
        }
    }

    /// The store may have lost what it showed. The client remembers for how long others may rely on it.
    fn forget_records(&mut self, heard: KnownLife) {
        let secret = self.records.get(&Key::Meta).and_then(Record::meta).map(|meta| meta.secret);
        // What was known of an even earlier life, and not written in this one yet, still counts.
        let before = self.before.filter(|_| !self.planted.has(Bug::LongestForgotten));
        let longest = before.map_or(self.longest, |(before, _)| before.longest.max(self.longest));
        self.before = Some((Before { life: heard.life, secret, longest }, heard.at));
        self.records.clear();
    }

    /// Keeps these records, each unless a newer version is known.
    pub(super) fn keep(
        &mut self,
        env: &Env,
        sent: Option<(Order, Moment)>,
        shown: Shown,
        records: Vec<Found>,
    ) {
        if self.records.len() > MOST_RECORDS {
            let own_lease = &self.own_leases;
            self.records.retain(|key, _| match key {
                Key::Meta | Key::Ttls => true,
                Key::Lease(lease) => own_lease.contains_key(lease),
                _ => false,
            });
        }
        let arrived = self.next_order();
        let (asked, asked_at) = (sent.map(|(order, _)| order), sent.map(|(_, at)| at));
        for found in records {
            let (key, version) = (found.key.clone(), found.version);
            let (at, first_at, marked_at) = (env.at, env.at, env.at);
            let (now, turned_back) = (shown.now, None);
            let seen = Seen { asked, arrived, first_at, at, now, turned_back, marked_at };
            let record = Record::arrived(found, seen);
            if let (Key::Resource(name), Some(asked)) = (&key, asked) {
                self.own_leases
                    .values_mut()
                    .for_each(|own_lease| own_lease.resolve_doubts(name, version, asked));
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
                self.forget_records(heard);
                self.own_leases.values_mut().for_each(|own_lease| own_lease.lost = true);
                self.wall = shown.wall.map(|wall| (wall, env.at));
            }
            if let Some(meta) = record.meta() {
                self.longest = meta.longest;
                self.known_meta.asked_at = asked_at;
            }
            self.records.insert(key, record);
        }
    }

    /// Notes what became of a change. Returns its stamp if the store applied it.
    pub(super) fn note_fate(
        &mut self,
        env: &Env,
        sent: (Order, Moment),
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
                self.keep(env, Some(sent), shown, written.collect());
                Some(stamp)
            }
            Fate::Conflict(records) => {
                // A copy of this very commit came first: the store applied that one.
                let written = |key: &Key| records.iter().find(|r| r.key == *key && r.version == *version);
                let applied =
                    !change.put.is_empty() && change.put.iter().all(|(key, _)| written(key).is_some());
                let stamp = change.put.first().and_then(|(key, _)| written(key)?.stamp);
                self.keep(env, Some(sent), shown, records);
                applied.then_some(stamp)
            }
        }
    }

    /// What the store's wall clock shows by now, if the store tells it.
    fn wall_now(&self, env: &Env) -> Option<u64> {
        let (wall, at) = self.wall?;
        Some(wall.saturating_add(u64::try_from(env.at.shortest_since(at).as_micros()).unwrap_or(0)))
    }

    /// What the rules see.
    pub(super) fn view(&self, env: &Env, op: &Operation) -> View<'_> {
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
}
