//! Any database as a store: reads records, lets the rules decide, commits.
//!
//! Nothing here decides who owns. `tenure_core::rules` says what to read and what to commit; this file carries it out,
//! and passes on what is heard.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tenure_core::rules::{
    Act, Client, Env, Fate, Found, Key, Lease, Operation, Reader, Reply, Resource, Sending, Shown, Step,
    Value, job_view,
};
use tenure_core::{
    Answer, Asked, BATCH, Call, Claimed, HISTORY, Holder, Incarnation, JobSaid, JobStep, JobView, Label,
    LeaseId, Metadata, Payload, Published, Released, Request, ResourceName, ResourceView, Said, Token,
    Version, Want,
};

use super::backend::{
    self, Backend, Change, Commits, Committed, HistoryEntry, Listing, Put, Snapshot, Stored,
};
use super::codec::{self, Spoken, Told};
use super::listening::Listening;
use super::{Concern, Entry, Hints, Messages, Pending, Store};
use crate::Error;
use crate::clock::Clocks;
use crate::engine::random;

/// A namespace of any database.
pub struct RecordStore<B> {
    inner: Arc<Inner<B>>,
}

pub(super) struct Inner<B> {
    pub(super) backend: B,
    clocks: Clocks,
    client: Mutex<Client>,
    pub(super) listening: Mutex<Listening>,
    swept_at: Mutex<Option<Instant>>,
    lanes: Lanes,
}

/// So many resources may have a lane before those that nobody uses are cleared away.
const MOST_LANES: usize = 256;

/// Claims of one process for one resource go one after the other, as far as that does not take long: else each would
/// make the others conflict, and the unluckiest might wait for ever. Releases do not wait for them.
type Lanes = Mutex<HashMap<ResourceName, Weak<tokio::sync::Mutex<()>>>>;

impl<B: Backend> RecordStore<B> {
    /// A store on this backend, on the system's clocks.
    #[must_use]
    pub fn new(backend: B) -> Self {
        Self::on(backend, Clocks::System)
    }

    pub(crate) fn on(backend: B, clocks: Clocks) -> Self {
        let client = Mutex::new(Client::new(backend.capabilities()));
        let listening = Mutex::new(Listening::default());
        Self {
            inner: Arc::new(Inner {
                backend,
                clocks,
                client,
                listening,
                swept_at: Mutex::new(None),
                lanes: Lanes::default(),
            }),
        }
    }

    /// What keeps the records.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.inner.backend
    }

    pub(crate) fn clocks(&self) -> &Clocks {
        &self.inner.clocks
    }
}

impl<B: fmt::Debug> fmt::Debug for RecordStore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RecordStore").field(&self.inner.backend).finish()
    }
}

impl<B: Backend> Inner<B> {
    pub(super) fn client(&self) -> MutexGuard<'_, Client> {
        // A client has no step that a panic could leave half done.
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn listening(&self) -> MutexGuard<'_, Listening> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn env(&self) -> Env {
        let chance = random::<16>();
        Env { at: self.clocks.now(), wall: self.clocks.wall(), jitter: (chance >> 100) as u16, chance }
    }

    /// Carries out what is asked. Given up half-way, what became of a commit that was under way is in doubt, and the client
    /// knows.
    pub(super) async fn run(&self, act: Act) -> Result<Reply, Error> {
        let env = self.env();
        let mut operation = self.client().begin(&env, act);
        loop {
            let env = self.env();
            let step = self.client().step(&env, &mut operation);
            match step {
                Step::Done(reply) => return Ok(reply),
                Step::Wait(span) => self.clocks.sleep(span).await,
                Step::Read(keys) => self.read_for(&mut operation, &keys).await?,
                Step::Commit(life, sendings) => self.commit_for(&mut operation, life, &sendings).await?,
                Step::LostNothing(within) => {
                    let lost_nothing = self.backend.lost_nothing(within).await?;
                    self.client().lost_nothing(&mut operation, lost_nothing);
                }
                Step::List => {
                    let records = self.list(Listing::Resources).await?.1;
                    let names = records.into_iter().filter_map(|stored| match stored.key {
                        Key::Resource(name) => Some(name),
                        _ => None,
                    });
                    let names = names.collect();
                    self.client().listed(&mut operation, names);
                }
            }
        }
    }

    async fn read_for(&self, operation: &mut Operation, keys: &[Key]) -> Result<(), Error> {
        let (shown, records) = self.fetch(keys).await?;
        let records = self.readable_for(operation, records)?;
        let env = self.env();
        self.client().read(&env, operation, shown, records);
        Ok(())
    }

    /// What was read for a request. A resource that cannot be read costs the others of the request nothing.
    fn readable_for(&self, operation: &mut Operation, records: Vec<Stored>) -> Result<Vec<Found>, Error> {
        let mut readable = Vec::with_capacity(records.len());
        for stored in records {
            let key = stored.key.clone();
            match (decoded(stored), &key) {
                (Ok(found), _) => readable.push(found),
                (Err(error), Key::Resource(name)) if self.client().unreadable(operation, name) => {
                    tracing::warn!(resource = %name, %error, "the record of a resource cannot be read");
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(readable)
    }

    async fn commit_for(
        &self,
        operation: &mut Operation,
        life: Incarnation,
        sendings: &[Sending],
    ) -> Result<(), Error> {
        let changes: Vec<Change> = sendings.iter().map(|sending| self.change(life, sending)).collect();
        let Commits { life, now, done } = self.backend.commit(life, &changes).await?;
        if done.len() != changes.len() {
            return Err(Error::corrupt("unexpected reply from the store: not one result per change"));
        }
        let fates = done.into_iter().map(|committed| match committed {
            Committed::Done { stamp } => Ok(Fate::Done(stamp)),
            Committed::Conflict(records) => Ok(Fate::Conflict(self.readable_for(operation, records)?)),
        });
        let fates = fates.collect::<Result<Vec<Fate>, Error>>()?;
        let env = self.env();
        self.client().committed(&env, operation, Shown { life, now, wall: None }, fates);
        Ok(())
    }

    /// The present state of these records.
    async fn read(&self, keys: &[Key]) -> Result<(Shown, Vec<Found>), Error> {
        let (shown, records) = self.fetch(keys).await?;
        Ok((shown, records.into_iter().map(decoded).collect::<Result<_, _>>()?))
    }

    async fn fetch(&self, keys: &[Key]) -> Result<(Shown, Vec<Stored>), Error> {
        let Snapshot { life, now, wall, records } = self.backend.read(keys).await?;
        if records.len() != keys.len() || records.iter().zip(keys).any(|(record, key)| record.key != *key) {
            return Err(Error::corrupt("unexpected reply from the store: other records than requested"));
        }
        Ok((Shown { life, now, wall }, records))
    }

    /// All records of a kind, and what the store said of itself with the last of them.
    async fn list(&self, of: Listing) -> Result<(Shown, Vec<Stored>), Error> {
        let mut all = Vec::new();
        let mut after: Option<Key> = None;
        loop {
            let backend::Page { shown, more } = self.backend.list(of, after.as_ref()).await?;
            let Snapshot { life, now, wall, records } = shown;
            all.extend(records);
            match all.last() {
                Some(last) if more => after = Some(last.key.clone()),
                _ => return Ok((Shown { life, now, wall }, all)),
            }
        }
    }

    /// A change as the backend takes it.
    fn change(&self, life: Incarnation, sending: &Sending) -> Change {
        let Sending { change, version, revisions } = sending;
        let put: Vec<Put> = change
            .put
            .iter()
            .zip(revisions)
            .map(|((key, value), revision)| Put {
                key: key.clone(),
                version: *version,
                value: value.as_ref().map(|value| codec::encode(value, *revision)),
            })
            .collect();
        let told = |resource: &ResourceName| {
            let put = put.iter().find(|put| put.key == Key::Resource(resource.clone()))?;
            Some(Told { life, version: *version, text: put.value.clone()? })
        };
        let signals = change.signals.iter().filter_map(|signal| self.signal(signal, &told)).collect();
        let history = change.history.iter().map(|event| HistoryEntry {
            resource: event.resource.clone(),
            at: event.at,
            text: codec::encode_event(event),
        });
        Change {
            expect: change.expect.clone(),
            window: change.window,
            history: history.collect(),
            put,
            signals,
            lasting: change.lasting,
            essential: change.essential,
        }
    }

    fn signal(
        &self,
        signal: &tenure_core::rules::Signal,
        told: &dyn Fn(&ResourceName) -> Option<Told>,
    ) -> Option<backend::Signal> {
        use tenure_core::rules::Signal;
        let secret = self.secret()?;
        let most = self.backend.capabilities().most_signal_bytes;
        let (to, spoken) = match signal {
            Signal::Look { to, resource, after } => {
                let channels = to.iter().map(|lease| secret.lease(*lease)).collect();
                (channels, Spoken::Look { resource: resource.clone(), after: *after, told: told(resource) })
            }
            Signal::Changed(lease, resource) => {
                let told = told(resource)?;
                (vec![secret.lease(*lease)], Spoken::Changed { resource: resource.clone(), told })
            }
            Signal::Ended(lease) => (vec![secret.end(*lease)], Spoken::Ended(*lease)),
            Signal::Knock(lease, resource) => (vec![secret.lease(*lease)], Spoken::Knock(resource.clone())),
            Signal::Message { resource, ticket, token, number, payload } => {
                let (resource, ticket, token) = (resource.clone(), *ticket, *token);
                let channel = secret.messages(&resource);
                let message = tenure_core::Message { resource, ticket, token, payload: payload.clone() };
                (vec![channel], Spoken::Message { message, number: *number })
            }
        };
        Some(backend::Signal { to, text: codec::encode_signal(&spoken, most)? })
    }

    async fn call(self: &Arc<Self>, request: &Request) -> Result<Answer, Error> {
        let witness = match (&request.call, self.backend.witness()) {
            (Call::Open { .. }, Some(witness)) => Some(witness.vouch(request.lease).await?.as_str().into()),
            _ => None,
        };
        let _farewell = matches!(request.call, Call::Close(_)).then(|| Farewell(self, request.lease));
        let _lanes = match &request.call {
            Call::Claim(wants) => self.lanes(wants, request.limit / 2).await,
            _ => Vec::new(),
        };
        let reply = self.run(Act::Call(request.clone(), witness)).await?;
        let Reply::Answer(answer) = reply else { return Err(unexpected()) };
        if answer.said == Said::Opened {
            self.follow_early(request.lease).await;
        }
        self.follow_up(request, &answer);
        Ok(answer)
    }

    /// Waits until the others of this process are done with these resources, but not for longer than `limit`.
    async fn lanes(&self, wants: &[Want], limit: Duration) -> Vec<tokio::sync::OwnedMutexGuard<()>> {
        // Everybody takes them in the same order, so no two wait for each other.
        let resources: BTreeSet<&ResourceName> = wants.iter().map(|want| &want.resource).collect();
        let lanes: Vec<_> = {
            let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            if lanes.len() >= MOST_LANES {
                lanes.retain(|_, lane| lane.strong_count() > 0);
            }
            let lane = |resource: &ResourceName| match lanes.get(resource).and_then(Weak::upgrade) {
                Some(lane) => lane,
                None => {
                    let lane = Arc::new(tokio::sync::Mutex::new(()));
                    lanes.insert(resource.clone(), Arc::downgrade(&lane));
                    lane
                }
            };
            resources.into_iter().map(lane).collect()
        };
        let mut taken = Vec::with_capacity(lanes.len());
        // Real time, whatever the clock of the store: it only limits how long others hold it up.
        let late = tokio::time::sleep(limit);
        tokio::pin!(late);
        for lane in lanes {
            tokio::select! {
                guard = lane.lock_owned() => taken.push(guard),
                () = &mut late => break,
            }
        }
        taken
    }

    /// What follows from an answer outside of the records: whom to listen to, what to look after.
    fn follow_up(self: &Arc<Self>, request: &Request, answer: &Answer) {
        let lease = request.lease;
        match (&request.call, &answer.said) {
            (Call::Claim(wants), Said::Claimed(claimed)) => {
                let each = wants.iter().map(|want| &want.resource).zip(claimed);
                each.for_each(|(resource, claimed)| self.claimed(lease, resource, claimed));
            }
            (Call::Release(leaves), Said::Released(released)) => {
                for (leave, released) in leaves.iter().zip(released) {
                    match released {
                        Released::Again(claimed) => self.claimed(lease, &leave.resource, claimed),
                        Released::Free => self.waits_no_more(lease, &leave.resource),
                    }
                }
            }
            (Call::Renew, Said::Kept { more: true, .. }) if self.client().must_look(lease) => {
                let inner = self.clone();
                tokio::spawn(async move {
                    if inner.run(Act::Wishes(lease)).await.is_err() {
                        inner.client().look_again(lease);
                    }
                });
            }
            (Call::Open { .. }, Said::Opened) => self.look_after(),
            (Call::Renew, Said::Kept { .. }) => self.look_after(),
            _ => {}
        }
    }

    fn claimed(self: &Arc<Self>, lease: LeaseId, resource: &ResourceName, claimed: &Claimed) {
        match claimed {
            Claimed::Waiting(waiting) => self.waits(lease, resource, waiting.ahead),
            Claimed::Granted(_) => self.waits_no_more(lease, resource),
        }
    }

    // ---- what people read ----------------------------------------------------------------------------------

    /// These resources, or all, with the leases that they name.
    async fn resources(
        &self,
        resource: Option<&ResourceName>,
    ) -> Result<(Reader, Vec<(ResourceName, Resource)>), Error> {
        let (shown, found) = match resource {
            Some(resource) => self.read(&[Key::Resource(resource.clone())]).await?,
            None => {
                let (shown, records) = self.list(Listing::Resources).await?;
                (shown, readable(records))
            }
        };
        let mut named = BTreeSet::new();
        let mut resources = Vec::new();
        for found in found {
            let Found { key, value, .. } = found.timed(shown.now);
            if let (Key::Resource(name), Some(Value::Resource(resource))) = (key, value) {
                named.extend(resource.seats.iter().map(|seat| seat.lease));
                named.extend(resource.queue.iter().map(|place| place.lease));
                resources.push((name, resource));
            }
        }
        let mut keys = vec![Key::Meta];
        keys.extend(named.iter().flat_map(|lease| [Key::Lease(*lease), Key::Info(*lease)]));
        let mut reader = Reader::default();
        let mut leases: BTreeMap<LeaseId, Lease> = BTreeMap::new();
        let mut said: BTreeMap<LeaseId, Metadata> = BTreeMap::new();
        for some in keys.chunks(2 * BATCH) {
            let (shown, found) = self.read(some).await?;
            reader.now = shown.now;
            for found in found {
                let Found { key, value, .. } = found.timed(shown.now);
                match (key, value) {
                    (Key::Lease(id), Some(Value::Lease(lease))) => drop(leases.insert(id, lease)),
                    (Key::Info(id), Some(Value::Info(info))) => drop(said.insert(id, info.metadata)),
                    (Key::Meta, Some(Value::Meta(meta))) => {
                        reader.withheld = Reader::withheld(Some(&meta), shown.life, shown.now);
                    }
                    _ => {}
                }
            }
        }
        let with_metadata = |(id, lease): (LeaseId, Lease)| {
            let metadata = said.get(&id).cloned().unwrap_or_default();
            (id, (lease, metadata))
        };
        reader.leases = leases.into_iter().map(with_metadata).collect();
        resources.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok((reader, resources))
    }

    async fn views(&self, resource: Option<&ResourceName>) -> Result<Vec<ResourceView>, Error> {
        let (reader, resources) = self.resources(resource).await?;
        Ok(resources.iter().map(|(name, resource)| reader.view(name, resource)).collect())
    }

    async fn history(&self, resource: Option<&ResourceName>) -> Result<Vec<Entry>, Error> {
        let backend::History { now, entries } = self.backend.history(resource, HISTORY).await?;
        let (reader, resources) = self.resources(resource).await?;
        let events = entries.into_iter().map(|(at, text)| codec::decode_event(at, text.as_str()));
        let mut events = events.collect::<Result<Vec<_>, Error>>()?;
        events.extend(resources.iter().flat_map(|(name, resource)| reader.endings(name, resource)));
        let now = reader.now.max(now);
        events.sort_by_key(|event| event.at);
        let entry = |event: tenure_core::rules::Event| Entry {
            ago: now.zip(event.at).map_or(Duration::ZERO, |(now, at)| now.since(at)),
            resource: event.resource,
            worker: event.worker,
            grant: event.grant,
            what: event.what,
        };
        Ok(events.into_iter().map(entry).collect())
    }

    async fn jobs(&self, job: Option<&ResourceName>) -> Result<Vec<JobView>, Error> {
        let found = match job {
            Some(job) => self.read(&[Key::Resource(job.clone()), Key::Runs(job.clone())]).await?.1,
            None => readable(self.list(Listing::Resources).await?.1),
        };
        let runs = found.iter().find_map(|found| match &found.value {
            Some(Value::Runs(runs)) => Some(runs),
            _ => None,
        });
        let view = |found: &Found| match (&found.key, &found.value) {
            (Key::Resource(name), Some(Value::Resource(resource))) => job_view(name, resource, runs),
            _ => None,
        };
        let mut views: Vec<JobView> = found.iter().filter_map(view).collect();
        views.sort_by(|a, b| a.job.cmp(&b.job));
        Ok(views)
    }

    // ---- what has to be looked after -----------------------------------------------------------------------

    /// Now and then somebody clears old leases away, and looks which ttls are in use.
    fn look_after(self: &Arc<Self>) {
        {
            // Real time, whatever the clock of the store: it only limits the work.
            let mut swept_at = self.swept_at.lock().unwrap_or_else(PoisonError::into_inner);
            if swept_at.is_some_and(|at| at.elapsed() < SWEPT_EVERY) {
                return;
            }
            *swept_at = Some(Instant::now());
        }
        let inner = self.clone();
        tokio::spawn(async move {
            if let Err(error) = inner.sweep().await {
                tracing::debug!(%error, "cannot remove old leases");
            }
        });
    }

    /// Clears a page of old leases away, beginning anywhere, and going on at the beginning if that was the last.
    async fn sweep(&self) -> Result<(), Error> {
        let somewhere = Key::Lease(LeaseId(random::<16>()));
        let backend::Page { shown: mut page, more } =
            self.backend.list(Listing::Leases, Some(&somewhere)).await?;
        if !more {
            let first = self.backend.list(Listing::Leases, None).await?.shown;
            page = Snapshot { records: page.records.into_iter().chain(first.records).collect(), ..first };
        }
        let over = readable(page.records).into_iter().filter_map(|found| {
            let Found { key: Key::Lease(id), value: Some(Value::Lease(lease)), .. } = found.timed(page.now)
            else {
                return None;
            };
            // Where the store has no clock, every lease is watched for a while.
            let run_out =
                page.now.zip(lease.renewed).is_none_or(|(now, renewed)| now.since(renewed) >= lease.ttl);
            (lease.ended.is_some() || run_out).then_some(id)
        });
        let over: BTreeSet<LeaseId> = over.take(BATCH).collect();
        if !over.is_empty() {
            self.run(Act::Sweep(over.into_iter().collect())).await?;
        }
        if self.client().may_have_unused_ttls(&self.env()) {
            let (_, leases) = self.list(Listing::Leases).await?;
            // One that cannot be read may use any of them.
            let leases = leases.into_iter().map(decoded).collect::<Result<Vec<_>, _>>()?;
            let in_use = leases.into_iter().filter_map(|found| match found.value {
                Some(Value::Lease(lease)) if lease.ended.is_none() => Some(lease.ttl),
                _ => None,
            });
            let in_use = in_use.collect();
            self.run(Act::DropTtls(in_use, tenure_core::rules::TTL_LINGERS)).await?;
        }
        Ok(())
    }
}

/// Ends what this process does for a lease when the attempt to close it is over. The store may not have been told, and
/// the caller may have given the attempt up: either way no work runs under the lease any more.
struct Farewell<'a, B: Backend>(&'a Inner<B>, LeaseId);

impl<B: Backend> Drop for Farewell<'_, B> {
    fn drop(&mut self) {
        let Self(inner, lease) = *self;
        inner.backend.witness().iter().for_each(|witness| witness.let_go(lease));
        inner.closed(lease);
    }
}

/// How often one process clears old leases away.
const SWEPT_EVERY: Duration = Duration::from_secs(60);

fn decoded(Stored { key, version, stamp, value }: Stored) -> Result<Found, Error> {
    let Some(text) = value else {
        return Ok(Found { key, version: Version::NONE, revision: 0, stamp, value: None });
    };
    let (revision, value) = codec::decode(&key, text.as_str())?;
    Ok(Found { key, version, revision, stamp, value: Some(value) })
}

/// Those of many records that can be read: damage to one does not hide the others from people.
fn readable(records: Vec<Stored>) -> Vec<Found> {
    let read = |stored: Stored| match decoded(stored) {
        Ok(found) => Some(found),
        Err(error) => {
            tracing::warn!(%error, "skipping a record that cannot be read");
            None
        }
    };
    records.into_iter().filter_map(read).collect()
}

fn unexpected() -> Error {
    Error::corrupt("internal error: a reply of the wrong kind")
}

impl<B: Backend> Store for RecordStore<B> {
    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Box::pin(self.inner.call(request))
    }

    fn hints(&self, lease: LeaseId) -> Pending<'_, Hints> {
        Box::pin(self.inner.hints(lease))
    }

    fn safety(&self) -> Pending<'_, Vec<Concern>> {
        self.inner.backend.safety()
    }

    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>> {
        Box::pin(self.inner.views(resource))
    }

    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>> {
        Box::pin(self.inner.history(resource))
    }

    fn ask<'a>(
        &'a self,
        resource: &'a ResourceName,
        token: Token,
        successor: Option<&'a Label>,
    ) -> Pending<'a, Asked> {
        Box::pin(async move {
            match self.inner.run(Act::Ask(resource.clone(), token, successor.cloned())).await? {
                Reply::Asked(asked) => Ok(asked),
                _ => Err(unexpected()),
            }
        })
    }

    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, Asked> {
        Box::pin(async move {
            match self.inner.run(Act::Evict(resource.clone(), token)).await? {
                Reply::Asked(asked) => Ok(asked),
                _ => Err(unexpected()),
            }
        })
    }

    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid> {
        Box::pin(async move {
            match self.inner.run(Act::Job(step.clone())).await? {
                Reply::Job(said) => Ok(said),
                _ => Err(unexpected()),
            }
        })
    }

    fn jobs<'a>(&'a self, job: Option<&'a ResourceName>) -> Pending<'a, Vec<JobView>> {
        Box::pin(self.inner.jobs(job))
    }

    fn publish<'a>(&'a self, holder: &'a Holder, payload: &'a Payload) -> Pending<'a, Published> {
        Box::pin(async move {
            match self.inner.run(Act::Publish(holder.clone(), payload.clone())).await? {
                Reply::Published(published) => Ok(published),
                _ => Err(unexpected()),
            }
        })
    }

    fn subscribe<'a>(&'a self, resource: &'a ResourceName) -> Pending<'a, Messages> {
        Box::pin(self.inner.subscribe(resource))
    }

    fn share_lock(&self, lease: LeaseId) -> Result<Option<OwnedFd>, Error> {
        self.inner.backend.witness().map_or(Ok(None), |witness| witness.share_lock(lease))
    }
}

#[cfg(test)]
mod tests;
