//! A store in front of another one, for tests that count what is asked of a store, or have it fail, hang or lie.

use std::fmt;
use std::os::fd::OwnedFd;

use tenure_core::{
    Answer, Holder, JobSaid, JobStep, JobView, Label, LeaseId, Payload, Published, Request, ResourceName,
    ResourceView, StepDownReply, Token,
};

use crate::Error;
use crate::store::{Condition, Entry, Hints, Known, Messages, Pending, Store, Warning};

/// A [`Store`] that hands on to another whatever it does not answer itself. Who implements this is a store: write
/// what is to be different, and nothing else.
pub trait Relay: fmt::Debug + Send + Sync + 'static {
    /// The store behind this one.
    fn behind(&self) -> &dyn Store;

    /// See [`Store::call`].
    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        self.behind().call(request)
    }

    /// See [`Store::hints`].
    fn hints(&self, lease: LeaseId) -> Pending<'_, Hints> {
        self.behind().hints(lease)
    }

    /// See [`Store::known`].
    fn known(&self, lease: LeaseId, resource: &ResourceName) -> Known {
        self.behind().known(lease, resource)
    }

    /// See [`Store::safety`].
    fn safety(&self) -> Pending<'_, Vec<Warning>> {
        self.behind().safety()
    }

    /// See [`Store::condition`].
    fn condition(&self) -> Pending<'_, Condition> {
        self.behind().condition()
    }

    /// See [`Store::read`].
    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>> {
        self.behind().read(resource)
    }

    /// See [`Store::history`].
    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>> {
        self.behind().history(resource)
    }

    /// See [`Store::ask`].
    fn ask<'a>(
        &'a self,
        resource: &'a ResourceName,
        token: Token,
        successor: Option<&'a Label>,
    ) -> Pending<'a, StepDownReply> {
        self.behind().ask(resource, token, successor)
    }

    /// See [`Store::evict`].
    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, StepDownReply> {
        self.behind().evict(resource, token)
    }

    /// See [`Store::job`].
    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid> {
        self.behind().job(step)
    }

    /// See [`Store::jobs`].
    fn jobs<'a>(&'a self, job: Option<&'a ResourceName>) -> Pending<'a, Vec<JobView>> {
        self.behind().jobs(job)
    }

    /// See [`Store::publish`].
    fn publish<'a>(&'a self, holder: &'a Holder, payload: &'a Payload) -> Pending<'a, Published> {
        self.behind().publish(holder, payload)
    }

    /// See [`Store::subscribe`].
    fn subscribe<'a>(&'a self, resource: &'a ResourceName) -> Pending<'a, Messages> {
        self.behind().subscribe(resource)
    }

    /// See [`Store::share_lock`].
    ///
    /// # Errors
    /// As there.
    fn share_lock(&self, lease: LeaseId) -> Result<Option<OwnedFd>, Error> {
        self.behind().share_lock(lease)
    }
}

impl<R: Relay> Store for R {
    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Relay::call(self, request)
    }

    fn hints(&self, lease: LeaseId) -> Pending<'_, Hints> {
        Relay::hints(self, lease)
    }

    fn known(&self, lease: LeaseId, resource: &ResourceName) -> Known {
        Relay::known(self, lease, resource)
    }

    fn safety(&self) -> Pending<'_, Vec<Warning>> {
        Relay::safety(self)
    }

    fn condition(&self) -> Pending<'_, Condition> {
        Relay::condition(self)
    }

    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>> {
        Relay::read(self, resource)
    }

    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>> {
        Relay::history(self, resource)
    }

    fn ask<'a>(
        &'a self,
        resource: &'a ResourceName,
        token: Token,
        successor: Option<&'a Label>,
    ) -> Pending<'a, StepDownReply> {
        Relay::ask(self, resource, token, successor)
    }

    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, StepDownReply> {
        Relay::evict(self, resource, token)
    }

    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid> {
        Relay::job(self, step)
    }

    fn jobs<'a>(&'a self, job: Option<&'a ResourceName>) -> Pending<'a, Vec<JobView>> {
        Relay::jobs(self, job)
    }

    fn publish<'a>(&'a self, holder: &'a Holder, payload: &'a Payload) -> Pending<'a, Published> {
        Relay::publish(self, holder, payload)
    }

    fn subscribe<'a>(&'a self, resource: &'a ResourceName) -> Pending<'a, Messages> {
        Relay::subscribe(self, resource)
    }

    fn share_lock(&self, lease: LeaseId) -> Result<Option<OwnedFd>, Error> {
        Relay::share_lock(self, lease)
    }
}
