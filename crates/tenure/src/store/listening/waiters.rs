//! Whom the waiters of this process follow: the first in line subscribe to the ends of the owners' leases.
//!
//! Deaths that are proved are in `deaths`.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use tenure_core::rules::{Key, Record, Value};
use tenure_core::{Hint, LeaseId, ResourceName};

use super::Listening;
use crate::store::backend::{Backend, Stored};
use crate::store::codec;
use crate::store::records::Inner;

/// How many owners a waiter follows.
const FOLLOWED: usize = 8;
/// How many waiters, from the head of the queue, follow owners.
const FOLLOWERS: u32 = 2;
/// How many other workers a waiter watches where deaths can be proved.
const WATCHED: usize = 16;
/// How many waiters, from the head of the queue, watch other workers.
const WATCHERS: u32 = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Waits {
    /// The owners whose end it follows.
    pub(super) owners: BTreeSet<LeaseId>,
    /// The workers whose deaths concern it: the owners, and the waiters before it.
    pub(super) watched: BTreeSet<LeaseId>,
}

impl Listening {
    /// Notes whom a waiter follows and watches, or that it waits no more. Returns what was noted before, and whether
    /// the list of watched workers has changed.
    pub(super) fn note(
        &mut self,
        key: (LeaseId, ResourceName),
        waits: Option<Waits>,
    ) -> (Option<Waits>, bool) {
        let (before, mut changed) = (self.waits.remove(&key), false);
        for lease in waits.iter().flat_map(|waits| &waits.watched) {
            let watched = self.watched.entry(*lease).or_default();
            changed |= watched.waiters == 0;
            watched.waiters += 1;
        }
        for lease in before.iter().flat_map(|before| &before.watched) {
            if let Some(watched) = self.watched.get_mut(lease) {
                watched.waiters -= 1;
                if watched.waiters == 0 {
                    self.watched.remove(lease);
                    changed = true;
                }
            }
        }
        self.waits.extend(waits.map(|waits| (key, waits)));
        (before, changed)
    }
}

impl<B: Backend> Inner<B> {
    /// A lease of this process waits for a resource. The first in line follow the owners, to hear at once when a lease
    /// ends. Where deaths can be proved, they also watch the owners and the waiters before them.
    pub(in crate::store) fn start_waiting(
        self: &Arc<Self>,
        lease: LeaseId,
        resource: &ResourceName,
        ahead: u32,
    ) {
        let follows = ahead < FOLLOWERS;
        let watches = ahead < WATCHERS && self.backend.witness().is_some();
        if !follows && !watches {
            return self.stop_waiting(lease, resource);
        }
        let mut waits = Waits::default();
        {
            let client = self.client();
            let owners = client.owners(resource);
            if watches {
                let is_over = |lease: &LeaseId| {
                    let record = client.seen(&Key::Lease(*lease)).and_then(Record::lease);
                    record.is_some_and(|lease| lease.ended.is_some())
                };
                let before = client.waiters(resource).into_iter().take_while(|waiter| *waiter != lease);
                let watched = owners.iter().copied().chain(before).filter(|lease| !is_over(lease));
                waits.watched = watched.take(WATCHED).collect();
            }
            if follows {
                waits.owners = owners.into_iter().take(FOLLOWED).collect();
            }
        }
        let mut listening = self.listening();
        let owners = waits.owners.clone();
        let (_, watch) = listening.note((lease, resource.clone()), Some(waits));
        let connection = listening
            .connection
            .as_ref()
            .map(|connection| (connection.channels, connection.subscriptions.clone()));
        // Without a connection no owner is followed. After it was lost all have to be followed again.
        let new: Vec<LeaseId> = match &connection {
            Some(_) => owners.into_iter().filter(|owner| listening.followed.insert(*owner)).collect(),
            None => Vec::new(),
        };
        drop(listening);
        if new.is_empty() && !watch {
            return;
        }
        let inner = self.clone();
        tokio::spawn(async move {
            if let Some((channels, subscriptions)) = connection {
                for owner in &new {
                    if subscriptions.follow(channels.end(*owner)).await.is_err() {
                        inner.listening().followed.remove(owner);
                    }
                }
            }
            if watch {
                inner.watch().await;
            }
            inner.look_once(new).await;
        });
    }

    /// An owner that ended before the subscription was made was not heard: look once.
    pub(super) async fn look_once(&self, owners: Vec<LeaseId>) {
        let keys: Vec<Key> = owners.iter().copied().map(Key::Lease).collect();
        if keys.is_empty() {
            return;
        }
        let over = |stored: &Stored| match &stored.value {
            Some(text) => matches!(
                codec::decode(&stored.key, text.as_str()),
                Ok((_, Value::Lease(lease))) if lease.ended.is_some()
            ),
            None => true,
        };
        // If the read fails, all of them may have ended.
        let ended: Vec<LeaseId> = match self.backend.read(&keys).await {
            Ok(snapshot) => {
                let records = snapshot.records.iter().zip(owners);
                records.filter(|(stored, _)| over(stored)).map(|(_, owner)| owner).collect()
            }
            Err(_) => owners,
        };
        self.hint_waiters(&ended);
    }

    /// Wakes the waiters of the resources that these leases own, as far as the client knows.
    pub(super) fn hint_waiters(&self, ended: &[LeaseId]) {
        let waits: Vec<(LeaseId, ResourceName)> = {
            let listening = self.listening();
            let follow = listening.waits.iter().filter(|(_, waits)| !waits.owners.is_empty());
            follow.map(|(key, _)| key.clone()).collect()
        };
        for (lease, resource) in waits {
            let freed = self.client().owners(&resource).iter().filter(|owner| ended.contains(owner)).count();
            if freed > 0 {
                // As after a release: as many waiters as there are free tickets look at once, the next a step later.
                let after = self.client().step_behind(&resource, lease, freed);
                self.listening().hint(Hint { lease, resource, after });
            }
        }
    }

    pub(in crate::store) fn stop_waiting(&self, lease: LeaseId, resource: &ResourceName) {
        let mut listening = self.listening();
        let (before, watch) = listening.note((lease, resource.clone()), None);
        if before.is_none() {
            return;
        }
        let needed: HashSet<LeaseId> =
            listening.waits.values().flat_map(|waits| waits.owners.clone()).collect();
        let needless: Vec<LeaseId> = listening.followed.difference(&needed).copied().collect();
        for owner in needless {
            listening.followed.remove(&owner);
            if let Some(connection) = &listening.connection {
                connection.subscriptions.forget(&connection.channels.end(owner));
            }
        }
        if watch {
            self.watch_vouched(&listening);
        }
    }

    /// A lease of this process is closed.
    pub(in crate::store) fn closed(&self, lease: LeaseId) {
        let resources: Vec<ResourceName> = {
            let listening = self.listening();
            let waits = listening.waits.keys().filter(|(waiter, _)| *waiter == lease);
            waits.map(|(_, resource)| resource.clone()).collect()
        };
        resources.iter().for_each(|resource| self.stop_waiting(lease, resource));
        let mut listening = self.listening();
        listening.hints.remove(&lease);
        listening.early.remove(&lease);
        if let Some(connection) = &listening.connection {
            connection.subscriptions.forget(&connection.channels.lease(lease));
        }
    }
}
