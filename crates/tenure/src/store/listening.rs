//! What a process hears from a store: hints for its leases, the ends of those whom they wait for, messages.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tenure_core::rules::{Act, Found, Key, Record, Value};
use tenure_core::{Hint, LeaseId, Message, ResourceName};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::backend::{Backend, Channel, Heard, Proof, Signals, Stored, Subscriptions, Text, Witness};
use super::codec::{self, Spoken, Told};
use super::records::Inner;
use super::{Hints, Messages};
use crate::{Error, Kind};

/// How many owners a waiter follows.
const FOLLOWED: usize = 8;
/// How many waiters, from the head of the queue, follow owners.
const FOLLOWERS: u32 = 2;
/// How many others a waiter watches where deaths can be proved.
const WATCHED: usize = 16;
/// How many waiters, from the head of the queue, watch others.
const WATCHERS: u32 = 16;
/// How many numbers of messages are remembered, so that one that comes twice is dropped.
const NUMBERS: usize = 64;

/// Names the channels of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Secret(u128);

impl Secret {
    /// Where the worker of this lease hears hints.
    pub(super) fn lease(self, lease: LeaseId) -> Channel {
        self.channel(b"lease", &lease.0.to_be_bytes())
    }

    /// Where others hear that this lease has ended.
    pub(super) fn end(self, lease: LeaseId) -> Channel {
        self.channel(b"end", &lease.0.to_be_bytes())
    }

    /// Where all hear what the owners of this resource send.
    pub(super) fn messages(self, resource: &ResourceName) -> Channel {
        self.channel(b"messages", resource.as_str().as_bytes())
    }

    fn channel(self, kind: &[u8], name: &[u8]) -> Channel {
        let mut hash = Sha256::new();
        hash.update(self.0.to_be_bytes());
        hash.update(kind);
        hash.update([0]);
        hash.update(name);
        let hash = hash.finalize();
        let mut name = "t_".to_owned();
        for byte in &hash[..20] {
            let _written = write!(name, "{byte:02x}");
        }
        Channel::new(name)
    }
}

/// Whom this process listens to.
#[derive(Debug, Default)]
pub(super) struct Listening {
    line: Option<Line>,
    /// Who hears hints, and on which channel.
    hints: HashMap<LeaseId, (Channel, mpsc::UnboundedSender<Hint>)>,
    /// Who asked for hints before the namespace existed.
    early: HashMap<LeaseId, mpsc::UnboundedSender<Hint>>,
    messages: HashMap<ResourceName, Vec<mpsc::UnboundedSender<Message>>>,
    numbers: VecDeque<u64>,
    /// Who of us waits for what, and who owns it.
    waits: BTreeMap<(LeaseId, ResourceName), Waits>,
    /// Whose ends we hear.
    followed: HashSet<LeaseId>,
    /// Whose deaths we want to be proved.
    watched: BTreeMap<LeaseId, Watched>,
    deaths: Option<JoinHandle<()>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Waits {
    /// Whose ends it follows: the owners.
    owners: BTreeSet<LeaseId>,
    /// Whose deaths concern it: the owners, and those who come first.
    watched: BTreeSet<LeaseId>,
}

#[derive(Debug, Default)]
struct Watched {
    /// How many of our waiters it concerns.
    waiters: usize,
    /// What proves it, once that has been read.
    vouched: Option<Text>,
}

/// A connection over which signals come.
#[derive(Debug)]
struct Line {
    secret: Secret,
    subscriptions: Arc<dyn Subscriptions>,
    task: JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.deaths.iter().for_each(JoinHandle::abort);
    }
}

impl Listening {
    /// The connection was lost, or its channels have other names now: everybody has to subscribe again.
    fn hang_up(&mut self) {
        self.line = None;
        self.hints.clear();
        self.messages.clear();
        self.followed.clear();
    }

    /// Notes what one of us waits for, or that it waits no more. Returns what was noted before, and whether others are
    /// to be watched now.
    fn note(&mut self, key: (LeaseId, ResourceName), waits: Option<Waits>) -> (Option<Waits>, bool) {
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

    /// Leaves the channels that nobody wants to hear any more.
    fn leave_unheard(&mut self) {
        let Some(line) = &self.line else { return };
        self.hints.retain(|_, (channel, to)| {
            if to.is_closed() {
                line.subscriptions.forget(channel);
            }
            !to.is_closed()
        });
        self.messages.retain(|resource, audience| {
            audience.retain(|to| !to.is_closed());
            if audience.is_empty() {
                line.subscriptions.forget(&line.secret.messages(resource));
            }
            !audience.is_empty()
        });
    }

    /// Hints that lease, and forgets it if nobody listens any more.
    fn hint(&mut self, hint: Hint) {
        let lease = hint.lease;
        if self.hints.get(&lease).is_some_and(|(_, to)| to.send(hint).is_err()) {
            self.leave_unheard();
        }
    }
}

fn is_missing(stored: &Stored) -> bool {
    stored.value.is_none()
}

impl<B: Backend> Inner<B> {
    pub(super) fn secret(&self) -> Option<Secret> {
        let client = self.client();
        client.seen(&Key::Meta).and_then(Record::meta).map(|meta| Secret(meta.secret))
    }

    /// Subscribes to the hints for a lease.
    pub(super) async fn hints(self: &Arc<Self>, lease: LeaseId) -> Result<Hints, Error> {
        let (to, hints) = mpsc::unbounded_channel();
        if self.secret().is_none() && self.backend.read(&[Key::Meta]).await?.records.iter().all(is_missing) {
            // The first contact decides whether a quarantine is needed, and that depends on the ttl: so the opening of a
            // lease makes it.
            self.listening().early.insert(lease, to);
            return Ok(hints);
        }
        self.follow_hints(lease, to).await?;
        Ok(hints)
    }

    /// The namespace exists now: whoever asked for hints before it did is subscribed before the lease is used.
    pub(super) async fn follow_early(self: &Arc<Self>, lease: LeaseId) {
        let early = self.listening().early.remove(&lease);
        if let Some(to) = early
            && let Err(error) = self.follow_hints(lease, to).await
        {
            // The hints end with it, and are asked for again.
            self.listening().hints.remove(&lease);
            tracing::debug!(%error, "cannot subscribe to hints");
        }
    }

    async fn follow_hints(
        self: &Arc<Self>,
        lease: LeaseId,
        to: mpsc::UnboundedSender<Hint>,
    ) -> Result<(), Error> {
        let (secret, subscriptions) = self.listen().await?;
        let channel = secret.lease(lease);
        {
            let mut listening = self.listening();
            listening.leave_unheard();
            listening.hints.insert(lease, (channel.clone(), to));
        }
        match subscriptions.follow(channel).await {
            // Behind a pooler nothing is heard: then those who wait look by themselves.
            Err(error) if error.kind() != Kind::Refused => Err(error),
            _ => Ok(()),
        }
    }

    /// Subscribes to what the owners of a resource send.
    pub(super) async fn subscribe(self: &Arc<Self>, resource: &ResourceName) -> Result<Messages, Error> {
        let (secret, subscriptions) = self.listen().await?;
        let (to, messages) = mpsc::unbounded_channel();
        {
            let mut listening = self.listening();
            listening.leave_unheard();
            listening.messages.entry(resource.clone()).or_default().push(to);
        }
        subscriptions.follow(secret.messages(resource)).await?;
        Ok(messages)
    }

    /// The connection over which signals come; made if there is none, or if the namespace names its channels anew.
    async fn listen(self: &Arc<Self>) -> Result<(Secret, Arc<dyn Subscriptions>), Error> {
        let secret = match self.secret() {
            Some(secret) => secret,
            None => {
                // Any question makes the first contact.
                self.run(Act::Wishes(LeaseId(0))).await?;
                self.secret().ok_or_else(|| {
                    Error::unavailable("the store was replaced or restarted during the request")
                })?
            }
        };
        if let Some(line) = &self.listening().line
            && line.secret == secret
            && !line.task.is_finished()
        {
            return Ok((secret, line.subscriptions.clone()));
        }
        let (subscriptions, signals) = self.backend.listen().await?;
        let mut listening = self.listening();
        if let Some(line) = &listening.line
            && line.secret == secret
            && !line.task.is_finished()
        {
            // Somebody else was quicker.
            return Ok((secret, line.subscriptions.clone()));
        }
        listening.hang_up();
        let inner = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let mut signals: Signals = signals;
            while let Some(heard) = signals.recv().await {
                let Some(inner) = inner.upgrade() else { return };
                inner.hear(&heard);
            }
            if let Some(inner) = inner.upgrade() {
                inner.listening().hang_up();
            }
        });
        listening.line = Some(Line { secret, subscriptions: subscriptions.clone(), task });
        Ok((secret, subscriptions))
    }

    fn hear(&self, heard: &Heard) {
        let Some(spoken) = codec::decode_signal(heard.text.as_str()) else { return };
        match spoken {
            Spoken::Look { resource, after, told } => {
                if let Some(told) = told {
                    self.told(&resource, &told, heard);
                }
                self.hint(heard, resource, after);
            }
            Spoken::Changed { resource, told } => self.told(&resource, &told, heard),
            Spoken::Ended(ended) => {
                self.listening().followed.remove(&ended);
                self.hint_waiters(&[ended]);
            }
            Spoken::Knock(resource) => self.hint(heard, resource, Duration::ZERO),
            Spoken::Message { message, number } => {
                let mut listening = self.listening();
                if listening.numbers.contains(&number) {
                    return;
                }
                listening.numbers.push_back(number);
                if listening.numbers.len() > NUMBERS {
                    listening.numbers.pop_front();
                }
                if let Some(audience) = listening.messages.get_mut(&message.resource) {
                    audience.retain(|to| to.send(message.clone()).is_ok());
                }
            }
        }
    }

    /// Wakes the worker whose channel this was heard on.
    fn hint(&self, heard: &Heard, resource: ResourceName, after: Duration) {
        let mut listening = self.listening();
        let to = listening.hints.iter().find(|(_, (channel, _))| *channel == heard.channel);
        let to = to.map(|(lease, _)| *lease);
        if let Some(lease) = to {
            listening.hint(Hint { lease, resource, after });
        }
    }

    /// A record that came with a hint saves a read.
    fn told(&self, resource: &ResourceName, told: &Told, heard: &Heard) {
        let key = Key::Resource(resource.clone());
        let Ok((revision, value)) = codec::decode(&key, told.text.as_str()) else { return };
        let found = Found { key, version: told.version, revision, stamp: heard.stamp, value: Some(value) };
        let env = self.env();
        self.client().told(&env, told.life, found);
    }

    // ---- whom waiters follow -------------------------------------------------------------------------------

    /// Somebody waits for a resource. The first in line follow the owners: whose lease ends is heard at once. Where deaths
    /// can be proved they also watch the owners, and those who come before them.
    pub(super) fn waits(self: &Arc<Self>, lease: LeaseId, resource: &ResourceName, ahead: u32) {
        let follows = ahead < FOLLOWERS;
        let watches = ahead < WATCHERS && self.backend.witness().is_some();
        if !follows && !watches {
            return self.waits_no_more(lease, resource);
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
        let line = listening.line.as_ref().map(|line| (line.secret, line.subscriptions.clone()));
        // Without a connection nobody is followed, and after it was lost everybody has to be followed again.
        let new: Vec<LeaseId> = match &line {
            Some(_) => owners.into_iter().filter(|owner| listening.followed.insert(*owner)).collect(),
            None => Vec::new(),
        };
        drop(listening);
        if new.is_empty() && !watch {
            return;
        }
        let inner = self.clone();
        tokio::spawn(async move {
            if let Some((secret, subscriptions)) = line {
                for owner in &new {
                    if subscriptions.follow(secret.end(*owner)).await.is_err() {
                        inner.listening().followed.remove(owner);
                    }
                }
            }
            if watch {
                inner.watch().await;
            }
            inner.look_back(new).await;
        });
    }

    /// Who ended before it was followed was not heard.
    async fn look_back(&self, owners: Vec<LeaseId>) {
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
        // If it cannot be told they may all have ended.
        let ended: Vec<LeaseId> = match self.backend.read(&keys).await {
            Ok(snapshot) => {
                let records = snapshot.records.iter().zip(owners);
                records.filter(|(stored, _)| over(stored)).map(|(_, owner)| owner).collect()
            }
            Err(_) => owners,
        };
        self.hint_waiters(&ended);
    }

    /// Has those look who wait for what these leases own, as far as is known.
    fn hint_waiters(&self, ended: &[LeaseId]) {
        let waits: Vec<(LeaseId, ResourceName)> = {
            let listening = self.listening();
            let follow = listening.waits.iter().filter(|(_, waits)| !waits.owners.is_empty());
            follow.map(|(key, _)| key.clone()).collect()
        };
        for (lease, resource) in waits {
            let freed = self.client().owners(&resource).iter().filter(|owner| ended.contains(owner)).count();
            if freed > 0 {
                // As after a release: as many as there are tickets come at once, the next a step later.
                let after = self.client().step_behind(&resource, lease, freed);
                self.listening().hint(Hint { lease, resource, after });
            }
        }
    }

    pub(super) fn waits_no_more(&self, lease: LeaseId, resource: &ResourceName) {
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
            if let Some(line) = &listening.line {
                line.subscriptions.forget(&line.secret.end(owner));
            }
        }
        if watch {
            self.watch_vouched(&listening);
        }
    }

    /// A lease of this process is closed.
    pub(super) fn closed(&self, lease: LeaseId) {
        let resources: Vec<ResourceName> = {
            let listening = self.listening();
            let waits = listening.waits.keys().filter(|(waiter, _)| *waiter == lease);
            waits.map(|(_, resource)| resource.clone()).collect()
        };
        resources.iter().for_each(|resource| self.waits_no_more(lease, resource));
        let mut listening = self.listening();
        listening.hints.remove(&lease);
        listening.early.remove(&lease);
        if let Some(line) = &listening.line {
            line.subscriptions.forget(&line.secret.lease(lease));
        }
    }

    /// Has the witness watch those whose deaths concern our waiters.
    async fn watch(self: &Arc<Self>) {
        self.hear_deaths();
        let keys: Vec<Key> = {
            let listening = self.listening();
            let unread = listening.watched.iter().filter(|(_, watched)| watched.vouched.is_none());
            unread.map(|(lease, _)| Key::Info(*lease)).collect()
        };
        let read = self.backend.read(&keys).await;
        let mut listening = self.listening();
        match read {
            Ok(snapshot) => {
                for Stored { key, value, .. } in snapshot.records {
                    let (Key::Info(lease), Some(text)) = (&key, value) else { continue };
                    let Ok((_, Value::Info(info))) = codec::decode(&key, text.as_str()) else { continue };
                    if let (Some(watched), Some(witness)) = (listening.watched.get_mut(lease), info.witness) {
                        watched.vouched = Some(witness.into());
                    }
                }
            }
            // Those who look again are noted again.
            Err(_) => {
                listening.waits.values_mut().for_each(|waits| waits.watched.clear());
                listening.watched.clear();
            }
        }
        self.watch_vouched(&listening);
    }

    /// The same for those of whom it is known what proves it. Under the lock, so that the last list is the latest.
    fn watch_vouched(&self, listening: &Listening) {
        let vouched = listening.watched.iter().filter_map(|(lease, watched)| {
            let vouched = watched.vouched.clone()?;
            Some((*lease, vouched))
        });
        self.backend.witness().iter().for_each(|witness| witness.watch(vouched.clone().collect()));
    }

    /// Begins to end the leases of those whose death is proved.
    fn hear_deaths(self: &Arc<Self>) {
        let mut listening = self.listening();
        let Some(mut deaths) = self.backend.witness().and_then(Witness::deaths) else { return };
        let inner = Arc::downgrade(self);
        listening.deaths = Some(tokio::spawn(async move {
            while let Some(proof) = deaths.recv().await {
                let Some(inner) = inner.upgrade() else { return };
                inner.died(proof).await;
            }
        }));
    }

    async fn died(&self, proof: Proof) {
        let dead = proof.lease;
        // The proof is kept until it is written down: nobody else proves the same meanwhile.
        if let Err(error) = self.run(Act::Prove(dead)).await {
            // It is proved again in a moment, as long as it is watched.
            tracing::debug!(%error, "cannot write down that a worker is dead");
            return;
        }
        drop(proof);
        let mut listening = self.listening();
        listening.watched.remove(&dead);
        let mut concerned = Vec::new();
        for ((lease, resource), waits) in &mut listening.waits {
            if waits.watched.remove(&dead) {
                concerned.push(Hint { lease: *lease, resource: resource.clone(), after: Duration::ZERO });
            }
        }
        self.watch_vouched(&listening);
        concerned.into_iter().for_each(|hint| listening.hint(hint));
    }
}
