//! A standing pursuit of one resource, in three styles on one engine: callbacks, work, and by hand.

pub(crate) mod callbacks;
pub(crate) mod candidacy;
pub(crate) mod changes;
pub(crate) mod state;
pub(crate) mod work_guard;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::{Grant, OwnerView, Payload, Published, ResourceName, Tickets as Count, Want};
use tokio::sync::oneshot;
use tracing::Instrument;

use self::callbacks::{Flag, Outcome, Wish};
use self::candidacy::Entered;
use self::changes::{Changes, Listeners};
use self::state::{Seat, Signal};
use crate::Error;
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
#[must_use = "a campaign begins with `obtain`, `run` or `acquire`"]
pub struct CampaignBuilder {
    worker: Arc<Inner>,
    resource: Result<ResourceName, Error>,
    tickets: Tickets,
    priority: i32,
    listeners: Listeners,
}

/// A campaign to be, with what its callbacks work on.
#[derive(Debug)]
#[must_use = "a campaign begins with `obtain`"]
pub struct CampaignWith<A> {
    builder: CampaignBuilder,
    state: A,
}

impl CampaignBuilder {
    pub(crate) fn new(worker: Arc<Inner>, resource: Result<ResourceName, Error>) -> Self {
        Self { worker, resource, tickets: Tickets::Limited(1), priority: 0, listeners: Listeners::default() }
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

    /// What the callbacks of [`obtain`](CampaignWith::obtain) are handed, cloned for each: async closures that
    /// capture nothing can be called again and again, so state comes this way.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
    /// # let worker = tenure::Worker::connect("memory:").await?;
    /// let greeting = "hello".to_owned();
    /// let campaign = worker.campaign("echo").with(greeting).obtain(
    ///     async |own, greeting| println!("{greeting}, term {}", own.term()),
    ///     async |_, greeting| println!("no more {greeting}"),
    /// )?;
    /// # campaign.stop().await; Ok(()) }
    /// ```
    pub fn with<A: Clone + Send + 'static>(self, state: A) -> CampaignWith<A> {
        CampaignWith { builder: self, state }
    }

    /// Competes from now on, in the background, until stopped. `start` runs once per win, on the winner only, and
    /// may return at once: the ticket stays until the ownership ends. `cleanup` runs once per win, when it has
    /// ended, before the ticket is free. Both run in the runtime of the caller: an ownership that is over before this
    /// runtime came to start it has neither, and a runtime that is shut down runs no cleanup. One that fails or
    /// panics ends the ownership, and the campaign competes again after a while.
    ///
    /// # Errors
    /// When a setting breaks its limit, this worker competes for the resource already, or there is no runtime.
    // req: O7 O8 O10 O15
    pub fn obtain<S, F, C, G>(self, mut start: S, mut cleanup: C) -> Result<Campaign, Error>
    where
        S: FnMut(Ownership) -> F + Send + 'static,
        F: Future<Output: Outcome> + Send + 'static,
        C: FnMut(crate::EndReason) -> G + Send + 'static,
        G: Future<Output: Outcome> + Send + 'static,
    {
        self.with(()).obtain(move |own, ()| start(own), move |ending, ()| cleanup(ending))
    }

    /// Competes, works while it owns, and competes again after a loss. The work's own end releases the ticket,
    /// and is the result. On a loss the work is told by its [`Ownership`], and dropped at the harder stop; what
    /// it returns after that is dropped too. Dropping the future of `run` ends the work and leaves; a panic of the
    /// work goes on to the caller, and frees the ticket.
    ///
    /// The work may borrow from the caller. In a task of its own (`tokio::spawn`) it has to own what it uses:
    /// `async move |own| ..`, or [`with`](Self::with).
    ///
    /// # Errors
    /// When a setting breaks its limit, this worker competes for the resource already, or it was shut down.
    pub async fn run<T>(self, mut work: impl AsyncFnMut(Ownership) -> T) -> Result<T, Error> {
        let mut entered = self.enter()?;
        loop {
            let stint = match entered.signal().await {
                Some(Signal::Start(stint)) => stint,
                Some(_) => continue,
                None => return Err(Error::refused("the worker was shut down")),
            };
            let grant = stint.grant;
            // Boxed, so that it can be dropped before the driver is told that it has ended.
            let (ended, view) = (AtomicBool::new(false), entered.view(grant));
            let work = async {
                let done = work(view).await;
                ended.store(true, Ordering::Relaxed);
                done
            };
            let mut work = Box::pin(work.instrument(telemetry::span(&entered.resource, grant)));
            if let Ok(done) = entered.view(grant).run(&mut work).await {
                drop(work);
                entered.end(grant.token, crate::EndReason::Finished);
                drop(stint);
                entered.is_over().await;
                return Ok(done);
            }
            // The clock may have said so before the driver did.
            entered.end(grant.token, crate::EndReason::SteppedDown);
            // It has lost: it may wind down until the harder stop. What it returns now is not its own end.
            while !ended.load(Ordering::Relaxed) {
                tokio::select! {
                    biased;
                    signal = entered.signal() => match signal {
                        Some(Signal::StopHard) | None => break,
                        Some(_) => {}
                    },
                    _ = &mut work => {}
                }
            }
            drop(work);
            drop(stint);
        }
    }

    /// Waits for a ticket. It is given up when the ownership is released or dropped.
    ///
    /// # Errors
    /// When a setting breaks its limit, this worker competes for the resource already, or it was shut down.
    // req: E9
    pub async fn acquire(self) -> Result<Ownership, Error> {
        let mut entered = self.enter()?;
        loop {
            match entered.signal().await {
                Some(Signal::Start(stint)) => return Ok(Ownership::by_hand(entered, stint)),
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
        let mut entered = self.enter()?;
        let answer = async {
            loop {
                match entered.signal().await {
                    Some(Signal::Start(stint)) => return Ok(Some(stint)),
                    Some(Signal::Waiting) => return Ok(None),
                    Some(_) => {}
                    None => return Err(Error::refused("the worker was shut down")),
                }
            }
        };
        let answer = tokio::select! {
            answer = answer => answer?,
            () = worker.sleep(limit) => {
                let what = format!("cannot tell whether `{}` is free: the store did not answer", entered.resource);
                return Err(Error::unavailable(what));
            }
        };
        Ok(answer.map(|stint| Ownership::by_hand(entered, stint)))
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

    pub(crate) fn enter(self) -> Result<Entered, Error> {
        let (worker, resource) = (self.worker, self.resource?);
        let wanted = match self.tickets {
            Tickets::All => Wanted::All(resource),
            Tickets::Limited(count) => {
                Wanted::Tickets(Want { resource, tickets: Count::new(count)?, priority: self.priority })
            }
        };
        Entered::new(worker, wanted, self.listeners)
    }
}

impl<A: Clone + Send + 'static> CampaignWith<A> {
    /// As [`CampaignBuilder::run`]; the work is handed a clone of the state. This is the way in a task of its own:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let worker = tenure::Worker::connect("memory:").await?;
    /// let jobs = std::sync::Arc::new(tokio::sync::Mutex::new(vec![1, 2, 3]));
    /// let done = tokio::spawn(async move {
    ///     worker.campaign("sum").with(jobs).run(async |own, jobs| {
    ///         assert!(own.holds());
    ///         jobs.lock().await.iter().sum::<i32>()
    ///     }).await
    /// });
    /// assert_eq!(done.await??, 6); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`CampaignBuilder::run`].
    pub async fn run<F: Future>(self, mut work: impl FnMut(Ownership, A) -> F) -> Result<F::Output, Error> {
        let state = self.state;
        self.builder.run(async move |own| work(own, state.clone()).await).await
    }

    /// As [`CampaignBuilder::obtain`]; the callbacks are handed a clone of the state.
    ///
    /// # Errors
    /// As [`CampaignBuilder::obtain`].
    pub fn obtain<S, F, C, G>(self, mut start: S, mut cleanup: C) -> Result<Campaign, Error>
    where
        S: FnMut(Ownership, A) -> F + Send + 'static,
        F: Future<Output: Outcome> + Send + 'static,
        C: FnMut(crate::EndReason, A) -> G + Send + 'static,
        G: Future<Output: Outcome> + Send + 'static,
    {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|error| Error::refused("callbacks need a tokio runtime").because(error))?;
        let entered = self.builder.enter()?;
        let (seat, worker, resource) =
            (entered.seat.clone(), entered.worker().clone(), entered.resource.clone());
        let (leave, is_over) = (Arc::<Flag>::default(), Arc::<Flag>::default());
        let wish = Wish::new(leave.clone(), is_over.clone());
        let state = self.state;
        let (start_state, cleanup_state) = (state.clone(), state);
        // Nothing around it: what is moved into another future is there twice.
        runtime.spawn(callbacks::serve(
            wish,
            entered,
            move |own| start(own, start_state.clone()),
            move |ending| cleanup(ending, cleanup_state.clone()),
        ));
        Ok(Campaign { seat, worker, resource, leave, is_over })
    }
}

/// A campaign that runs in the background. Dropping the handle does not stop it.
#[derive(Clone, Debug)]
pub struct Campaign {
    seat: Arc<Seat>,
    worker: Arc<Inner>,
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
        self.seat.owns()
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
        self.worker.commands.send(ask).map_err(|_| unavailable())?;
        tokio::select! {
            answer = answered => Ok(answer.map_err(|_| unavailable())??.into_iter().flat_map(|view| view.owners).collect()),
            () = self.worker.sleep(self.worker.timing.ttl() / 3) => Err(unavailable()),
        }
    }

    /// The ownership, if this worker has one right now; asked by other schedulers at each tick. It counts the ticks, and those
    /// that are left out by the reason why.
    ///
    /// This is a gate, not a claim: when two owners follow each other, both may run the same tick, or neither.
    /// [`Worker::cron`](crate::Worker::cron) claims each occurrence.
    // req: E10
    #[must_use]
    pub fn gate(&self) -> Option<Ownership> {
        let own = self.seat.present().map(|stint| self.view(stint.grant));
        telemetry::gate(&self.resource, own.is_some(), self.seat.is_silent());
        own
    }

    /// Runs `work` if this worker owns a ticket; when the ownership ends first the work is dropped.
    // req: T10
    pub async fn run_if_owner<T>(&self, work: impl AsyncFnOnce(Ownership) -> T) -> Option<T> {
        // Kept while the work runs: the ticket is not free before.
        let stint = self.seat.present()?;
        let own = || self.view(stint.grant);
        own().run(work(own())).await.ok()
    }

    /// Gives the ownership up, if there is one, and stays a candidate. Returns when it has been told to stop; the
    /// ticket is free when the work and its cleanup have ended.
    pub async fn step_down(&self) {
        if let Some(grant) = self.seat.present().map(|stint| stint.grant) {
            self.view(grant).release().await;
        }
    }

    /// As [`Ownership::publish`], if this worker owns a ticket.
    ///
    /// # Errors
    /// As there.
    // req: E15
    pub async fn publish(&self, bytes: &[u8]) -> Result<Published, Error> {
        // What is too long is refused also where nobody owns: a test of it does not depend on who does.
        Payload::new(bytes)?;
        match self.seat.present() {
            Some(stint) => self.view(stint.grant).publish(bytes).await,
            None => Ok(Published::NotOwner),
        }
    }

    /// What happens to this campaign, from now on. Nothing is left out; it ends with the campaign.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.seat.listen()
    }

    /// Leaves the campaign: stops the work, awaits the cleanup, releases. Once it has returned no callback runs
    /// any more; it returns within two graces and a third of the ttl whatever the store does, and whatever the
    /// callbacks do but block their thread.
    /// Stopping what has stopped returns at once.
    // req: A3
    pub async fn stop(&self) {
        self.leave.raise();
        self.is_over.raised().await;
    }

    fn view(&self, grant: Grant) -> Ownership {
        Ownership::view(self.resource.clone(), grant, self.seat.clone(), self.worker.commands.clone())
    }
}
