//! Campaigns: a worker's standing attempts to own a resource, with work that is spawned, run or done by hand.

pub(crate) mod callbacks;
pub(crate) mod candidacy;
pub(crate) mod changes;
pub(crate) mod state;
pub(crate) mod work_guard;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::{EndReason, OwnerView, Payload, Published, ResourceName, Tickets as Count, Want};
use tokio::sync::oneshot;
use tracing::Instrument;

use self::callbacks::{Flag, OnReturn, Wish};
use self::candidacy::Candidacy;
use self::changes::{Changes, Listeners};
use self::state::{CampaignState, Signal};
use self::work_guard::WorkGuard;
use crate::Error;
use crate::lead::Lead;
use crate::outcome::{IntoOutcome, Outcome};
use crate::ownership::Ownership;
use crate::runtime::engine::{Command, Wanted};
use crate::runtime::telemetry;
use crate::worker::Inner;

/// How many may own a resource at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tickets {
    /// At most so many: 1 to 1 000.
    Limited(u32),
    /// Everybody; no store is asked.
    All,
}

impl From<u32> for Tickets {
    fn from(count: u32) -> Self {
        Self::Limited(count)
    }
}

/// A campaign to be. See [`Worker::campaign`](crate::Worker::campaign).
#[derive(Debug)]
#[must_use = "a campaign begins with `spawn`, `obtain`, `run` or `acquire`"]
pub struct CampaignBuilder {
    pub(crate) worker: Arc<Inner>,
    resource: Result<ResourceName, Error>,
    tickets: Tickets,
    priority: i32,
    listeners: Listeners,
}

impl CampaignBuilder {
    pub(crate) fn new(worker: Arc<Inner>, resource: Result<ResourceName, Error>) -> Self {
        Self { worker, resource, tickets: Tickets::Limited(1), priority: 0, listeners: Listeners::default() }
    }

    /// For the resource of a job: `kind:name`.
    pub(crate) fn of_job(worker: Arc<Inner>, kind: &str, name: &str) -> Self {
        let resource = ResourceName::new(name).and_then(|name| ResourceName::new(&format!("{kind}:{name}")));
        Self::new(worker, resource.map_err(Error::from))
    }

    /// The name of the resource, if it is a good one.
    pub(crate) fn named(self) -> Result<(ResourceName, Self), Error> {
        let resource = self.resource?;
        Ok((resource.clone(), Self { resource: Ok(resource), ..self }))
    }

    /// How many may own the resource at once; by default one.
    // req: O2 O3
    pub fn tickets(self, tickets: impl Into<Tickets>) -> Self {
        Self { tickets: tickets.into(), ..self }
    }

    /// Larger is served first; by default 0.
    pub fn priority(self, priority: i32) -> Self {
        Self { priority, ..self }
    }

    /// What happens to the campaign, from its beginning. Nothing is left out.
    #[must_use]
    pub fn changes(&mut self) -> Changes {
        self.listeners.listen()
    }

    /// Competes in the background until stopped, and runs one async function while this worker owns a ticket: the way to run
    /// a service. The function runs in the runtime of the caller, once per win. When the ownership ends it is dropped at
    /// once, at its next await; before each of its steps the ownership is checked.
    ///
    /// When the function returns, its work is done: the ticket is released, and the campaign leaves. When it fails or panics,
    /// the ticket is released, and the campaign competes again after a while.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
    /// # let worker = tenure::Worker::connect("memory:").await?;
    /// let campaign = worker.campaign("echo").spawn(async |lead| {
    ///     while lead.holds() {
    ///         println!("echo, term {}", lead.term());
    ///         tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    ///     }
    /// })?;
    /// # campaign.stop().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When a setting breaks its limit, this worker competes for the resource already, or there is no tokio runtime.
    // req: O7 O10 O13 E8
    pub fn spawn<W, F>(self, mut work: W) -> Result<Campaign, Error>
    where
        W: FnMut(Lead) -> F + Send + 'static,
        F: Future<Output: IntoOutcome> + Send + 'static,
    {
        let work = move |lead: Lead| {
            let work = work(lead.clone());
            async move { lead.run(work).await.map_or(Outcome::Unfinished, IntoOutcome::into_outcome) }
        };
        self.start(|wish, candidacy| {
            callbacks::serve(wish, candidacy, OnReturn::Finish, work, |_| std::future::ready(()))
        })
    }

    /// Competes in the background until stopped, with a start and a cleanup. `start` runs once per win, on the winner only; when
    /// it returns, the worker keeps the ticket until the ownership ends. `cleanup` runs once per win, when the ownership has
    /// ended and before the ticket is free. When one of them fails or panics the ownership ends, and the campaign
    /// competes again after a while.
    ///
    /// Both run in the runtime of the caller. If that runtime is so late that the ownership has ended before `start`,
    /// neither of them runs. A runtime that is shut down runs no cleanup.
    ///
    /// # Errors
    /// When a setting breaks its limit, this worker competes for the resource already, or there is no tokio runtime.
    // req: O7 O8 O10 O15
    pub fn obtain<S, F, C, G>(self, start: S, cleanup: C) -> Result<Campaign, Error>
    where
        S: FnMut(Lead) -> F + Send + 'static,
        F: Future<Output: IntoOutcome> + Send + 'static,
        C: FnMut(EndReason) -> G + Send + 'static,
        G: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.start(|wish, candidacy| callbacks::serve(wish, candidacy, OnReturn::Keep, start, cleanup))
    }

    /// Begins to compete; `serve` answers the signals of the campaign, in the runtime of the caller.
    pub(crate) fn start<F>(self, serve: impl FnOnce(Wish, Candidacy) -> F) -> Result<Campaign, Error>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|error| Error::refused("callbacks need a tokio runtime").because(error))?;
        let candidacy = self.enter()?;
        let (state, worker, resource) =
            (candidacy.state.clone(), candidacy.worker().clone(), candidacy.resource.clone());
        let (leave, is_over) = (Arc::<Flag>::default(), Arc::<Flag>::default());
        // Nothing around it: what is moved into another future is there twice.
        runtime.spawn(serve(Wish::new(leave.clone(), is_over.clone()), candidacy));
        Ok(Campaign { state, worker, resource, leave, is_over })
    }

    /// Competes, runs `work` in the task of the caller while this worker owns, and competes again after a loss. When
    /// the work returns, the ticket is released, and its value is the result. On a loss its [`Lead`] tells the work, which
    /// has until the harder stop to wind down; what it returns then does not count. Dropping the future of `run` drops
    /// the work and leaves. A panic of the work frees the ticket and goes on to the caller.
    ///
    /// The work may borrow from the caller. In a task of its own (`tokio::spawn`) it owns what it uses:
    /// `async move |lead| ..`.
    ///
    /// # Errors
    /// When a setting breaks its limit, this worker competes for the resource already, or it was shut down.
    pub async fn run<T>(self, mut work: impl AsyncFnMut(Lead) -> T) -> Result<T, Error> {
        let mut candidacy = self.enter()?;
        loop {
            let guard = match candidacy.signal().await {
                Some(Signal::Start(guard)) => guard,
                Some(_) => continue,
                None => return Err(Error::refused("the worker was shut down")),
            };
            let grant = guard.grant;
            // Boxed, so that it can be dropped before the driver is told that it has ended.
            let (ended, lead) = (AtomicBool::new(false), candidacy.lead(grant));
            let work = async {
                let done = work(lead).await;
                ended.store(true, Ordering::Relaxed);
                done
            };
            let mut work = Box::pin(work.instrument(telemetry::span(&candidacy.resource, grant)));
            if let Ok(done) = candidacy.lead(grant).run(&mut work).await {
                drop(work);
                candidacy.end(grant.token, EndReason::Finished);
                drop(guard);
                candidacy.left().await;
                return Ok(done);
            }
            // The clock may have said so before the driver did.
            candidacy.end(grant.token, EndReason::SteppedDown);
            // It has lost: it may wind down until the harder stop. What it returns now is not its own end.
            while !ended.load(Ordering::Relaxed) {
                tokio::select! {
                    biased;
                    signal = candidacy.signal() => match signal {
                        Some(Signal::StopHard) | None => break,
                        Some(_) => {}
                    },
                    _ = &mut work => {}
                }
            }
            drop(work);
            drop(guard);
        }
    }

    /// Waits for a ticket. It is given up when the ownership is released or dropped.
    ///
    /// # Errors
    /// When a setting breaks its limit, this worker competes for the resource already, or it was shut down.
    // req: E9
    pub async fn acquire(self) -> Result<Ownership, Error> {
        let mut candidacy = self.enter()?;
        loop {
            match candidacy.signal().await {
                Some(Signal::Start(guard)) => return Ok(Ownership::new(candidacy, guard)),
                Some(_) => {}
                None => return Err(Error::refused("the worker was shut down")),
            }
        }
    }

    /// A ticket if one is free now; nothing if one has to wait.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and when the store does not answer within a third of the ttl.
    pub async fn try_acquire(self) -> Result<Option<Ownership>, Error> {
        let (worker, limit) = (self.worker.clone(), self.worker.timing.ttl() / 3);
        let mut candidacy = self.enter()?;
        let answer = async {
            loop {
                match candidacy.signal().await {
                    Some(Signal::Start(guard)) => return Ok(Some(guard)),
                    Some(Signal::Waiting) => return Ok(None),
                    Some(_) => {}
                    None => return Err(Error::refused("the worker was shut down")),
                }
            }
        };
        let answer = tokio::select! {
            answer = answer => answer?,
            () = worker.sleep(limit) => {
                let what = format!("cannot tell whether `{}` is free: the store did not answer", candidacy.resource);
                return Err(Error::unavailable(what));
            }
        };
        Ok(answer.map(|guard| Ownership::new(candidacy, guard)))
    }

    /// Waits for a ticket, but not for longer than `limit`.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and when the time is up: the error says the resource and the time waited.
    // req: E9
    pub async fn acquire_within(self, limit: Duration) -> Result<Ownership, Error> {
        let worker = self.worker.clone();
        let resource = self.resource.as_ref().map(ToString::to_string).unwrap_or_default();
        tokio::select! {
            biased;
            own = self.acquire() => own,
            () = worker.sleep(limit) => {
                Err(Error::unavailable(format!("`{resource}` was not acquired within {limit:?}")))
            }
        }
    }

    pub(crate) fn enter(self) -> Result<Candidacy, Error> {
        let (worker, resource) = (self.worker, self.resource?);
        let wanted = match self.tickets {
            Tickets::All => Wanted::All(resource),
            Tickets::Limited(count) => {
                Wanted::Tickets(Want { resource, tickets: Count::new(count)?, priority: self.priority })
            }
        };
        Candidacy::new(worker, wanted, self.listeners)
    }
}

/// A campaign that runs in the background. Dropping the handle does not stop it.
#[derive(Clone, Debug)]
pub struct Campaign {
    state: Arc<CampaignState>,
    pub(crate) worker: Arc<Inner>,
    resource: ResourceName,
    leave: Arc<Flag>,
    is_over: Arc<Flag>,
}

impl Campaign {
    /// Whether this worker owns a ticket right now. Never stale, and quick enough for every tick.
    // req: E1
    #[inline]
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.state.owns()
    }

    /// Who owns the resource, where, since when, for how long still.
    ///
    /// # Errors
    /// When the store does not answer within a third of the ttl. Never an old answer.
    // req: O16 E3
    pub async fn owners(&self) -> Result<Vec<OwnerView>, Error> {
        let (answer, answered) = oneshot::channel();
        let resource = self.resource.clone();
        let ask = Command::Ask(Box::new(move |store| {
            Box::pin(async move {
                let _gone = answer.send(store.read(Some(&resource)).await);
            })
        }));
        let unavailable = || Error::unavailable(format!("cannot read the owners of `{}`", self.resource));
        self.worker.commands.send(ask)?;
        tokio::select! {
            answer = answered => Ok(answer.map_err(|_| unavailable())??.into_iter().flat_map(|view| view.owners).collect()),
            () = self.worker.sleep(self.worker.timing.ttl() / 3) => Err(unavailable()),
        }
    }

    /// The ownership, if this worker has one right now, for other schedulers to ask at each tick. It counts the ticks, and
    /// those that are left out by the reason why.
    ///
    /// This is a check, not a claim: when two owners follow each other, both may run the same tick, or neither.
    /// [`Worker::cron`](crate::Worker::cron) claims each occurrence.
    // req: E10
    #[must_use]
    pub fn gate(&self) -> Option<Lead> {
        let lead = self.state.present().map(|guard| self.lead(&guard));
        telemetry::gate(&self.resource, lead.is_some(), self.state.is_silent());
        lead
    }

    /// Runs `work` if this worker owns a ticket. When the ownership ends first, the work is dropped.
    // req: T10
    pub async fn run_if_owner<T>(&self, work: impl AsyncFnOnce(Lead) -> T) -> Option<T> {
        // Kept while the work runs: the ticket is not free before.
        let guard = self.state.present()?;
        let lead = self.lead(&guard);
        lead.run(work(lead.clone())).await.ok()
    }

    /// As [`Lead::step_down`], if this worker owns a ticket.
    pub async fn step_down(&self) {
        if let Some(lead) = self.state.present().map(|guard| self.lead(&guard)) {
            lead.step_down().await;
        }
    }

    /// As [`Lead::publish`], if this worker owns a ticket.
    ///
    /// # Errors
    /// As there.
    // req: E15
    pub async fn publish(&self, bytes: &[u8]) -> Result<Published, Error> {
        // What is too long is refused also where nobody owns: a test of it does not depend on who does.
        Payload::new(bytes)?;
        match self.state.present() {
            Some(guard) => self.lead(&guard).publish(bytes).await,
            None => Ok(Published::NotOwner),
        }
    }

    /// What happens to this campaign, from now on. Nothing is left out; it ends with the campaign.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.state.listen()
    }

    /// Leaves the campaign: stops the work, awaits the cleanup, releases. Once it has returned no callback runs
    /// any more; it returns within two graces and a third of the ttl whatever the store does, and whatever the
    /// callbacks do but block their thread.
    /// Stopping what has stopped returns at once.
    // req: A3
    pub async fn stop(&self) {
        // In a forked child nothing of it runs.
        if self.worker.commands.check().is_ok() {
            self.leave.raise();
            self.is_over.raised().await;
        }
    }

    fn lead(&self, guard: &WorkGuard) -> Lead {
        Lead::new(self.resource.clone(), guard.grant, self.state.clone(), &self.worker.commands)
    }
}
