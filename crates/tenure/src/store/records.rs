//! Any database as a store: [`RecordStore`] reads records, lets the rules decide, and commits.
//!
//! `run` carries one request out, `outgoing` turns changes and signals into text, `views` reads for people,
//! `claim_locks` orders the claims of one process, `sweep` removes old leases. Nothing here decides who owns:
//! `tenure_core::rules` does.

mod claim_locks;
mod outgoing;
mod run;
mod sweep;
mod views;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tenure_core::rules::{Act, Client, Env, Reply};
use tenure_core::{
    Answer, Call, Claimed, Holder, JobSaid, JobStep, JobView, Label, LeaseId, Payload, Published, Released,
    Request, ResourceName, ResourceView, Said, StepDownReply, Token,
};

use self::claim_locks::ClaimLocks;
use super::backend::Backend;
use super::listening::Listening;
use super::{Condition, Entry, Hints, Known, Messages, Pending, Store, Warning};
use crate::Error;
use crate::runtime::clock::Clocks;
use crate::runtime::engine::random;

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
    claim_locks: ClaimLocks,
}

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
                claim_locks: ClaimLocks::default(),
            }),
        }
    }

    /// The backend that keeps the records.
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
        // A panic cannot leave a step of the client half done.
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn listening(&self) -> MutexGuard<'_, Listening> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn env(&self) -> Env {
        let chance = random::<16>();
        Env { at: self.clocks.now(), wall: self.clocks.wall(), jitter: (chance >> 100) as u16, chance }
    }

    async fn call(self: &Arc<Self>, request: &Request) -> Result<Answer, Error> {
        let witness = match (&request.call, self.backend.witness()) {
            (Call::Open { .. }, Some(witness)) => Some(witness.vouch(request.lease).await?.as_str().into()),
            _ => None,
        };
        let _guard = matches!(request.call, Call::Close(_)).then(|| CloseGuard(self, request.lease));
        let _locks = match &request.call {
            Call::Claim(wants) => self.lock_claims(wants, request.limit / 2).await,
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

    /// What else follows from an answer: whom to listen to, and work in the background.
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
                        Released::Free => self.stop_waiting(lease, &leave.resource),
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
            (Call::Open { .. }, Said::Opened) => self.sweep_if_due(),
            (Call::Renew, Said::Kept { .. }) => self.sweep_if_due(),
            _ => {}
        }
    }

    fn claimed(self: &Arc<Self>, lease: LeaseId, resource: &ResourceName, claimed: &Claimed) {
        match claimed {
            Claimed::Waiting(waiting) => self.start_waiting(lease, resource, waiting.ahead),
            Claimed::Granted(_) => self.stop_waiting(lease, resource),
        }
    }
}

/// Ends what this process does for a lease when the attempt to close it is over, whether or not the attempt succeeded:
/// no work runs under the lease any more.
struct CloseGuard<'a, B: Backend>(&'a Inner<B>, LeaseId);

impl<B: Backend> Drop for CloseGuard<'_, B> {
    fn drop(&mut self) {
        let Self(inner, lease) = *self;
        inner.backend.witness().iter().for_each(|witness| witness.let_go(lease));
        inner.closed(lease);
    }
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

    fn known(&self, lease: LeaseId, resource: &ResourceName) -> Known {
        self.inner.known(lease, resource)
    }

    fn safety(&self) -> Pending<'_, Vec<Warning>> {
        self.inner.backend.safety()
    }

    fn condition(&self) -> Pending<'_, Condition> {
        Box::pin(self.inner.condition())
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
    ) -> Pending<'a, StepDownReply> {
        Box::pin(async move {
            match self.inner.run(Act::Ask(resource.clone(), token, successor.cloned())).await? {
                Reply::Asked(asked) => Ok(asked),
                _ => Err(unexpected()),
            }
        })
    }

    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, StepDownReply> {
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
