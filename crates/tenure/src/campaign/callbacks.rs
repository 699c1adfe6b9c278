//! Runs the callbacks of a campaign, in the user's runtime: start once per win, cleanup once per win.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::{EndReason, Grant};
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle};
use tracing::Instrument;

use crate::campaign::candidacy::Candidacy;
use crate::campaign::state::{Change, Signal};
use crate::campaign::work_guard::WorkGuard;
use crate::lead::Lead;
use crate::outcome::{IntoOutcome, Outcome, panic_message};
use crate::runtime::telemetry;

/// What becomes of the ownership when the work returns without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnReturn {
    /// It goes on: the work has only started something.
    Keep,
    /// It has served its purpose: the campaign leaves.
    Finish,
}

/// Serves a campaign until it is over, or its handle asks it to leave: `work` runs once per win, then `cleanup`.
pub(crate) async fn serve<F, G>(
    mut wish: Wish,
    mut candidacy: Candidacy,
    on_return: OnReturn,
    mut work: impl FnMut(Lead) -> F,
    mut cleanup: impl FnMut(EndReason) -> G,
) where
    F: Future<Output: IntoOutcome> + Send + 'static,
    G: Future<Output: IntoOutcome> + Send + 'static,
{
    while let Some(signal) = next(&mut candidacy, &mut wish).await {
        let Signal::Start(guard) = signal else { continue };
        let grant = guard.grant;
        if !candidacy.state.holds(grant.token) {
            // It waited for this runtime for longer than the trust lasted. Work does not start under an expired ownership.
            candidacy.end(grant.token, EndReason::SteppedDown);
            continue;
        }
        let running = Running::start(&guard, || work(candidacy.lead(grant)));
        let ending = work_on(&mut candidacy, &mut wish, grant, running, on_return).await;
        // Boxed, as everything here that is rare: what a task may ever need it takes for as long as it lives.
        Box::pin(clean_up(&candidacy, grant, Running::start(&guard, || cleanup(ending)))).await;
    }
}

/// Whether the handle of the campaign wants to leave. When this is dropped, after everything that serves the
/// campaign, no callback runs any more.
#[derive(Debug)]
pub(crate) struct Wish {
    leave: Arc<Flag>,
    is_over: Arc<Flag>,
    leaving: bool,
}

impl Wish {
    pub(crate) fn new(leave: Arc<Flag>, is_over: Arc<Flag>) -> Self {
        Self { leave, is_over, leaving: false }
    }

    /// Waits until it does, once; then for ever.
    pub(crate) async fn wants_to_leave(&mut self) {
        if self.leaving {
            std::future::pending::<()>().await;
        }
        self.leave.raised().await;
        self.leaving = true;
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        self.is_over.raise();
    }
}

/// Something that happens once, and can be waited for.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    is_raised: AtomicBool,
    raised: Notify,
}

impl Flag {
    pub(crate) fn raise(&self) {
        self.is_raised.store(true, Ordering::Release);
        self.raised.notify_waiters();
    }

    pub(crate) async fn raised(&self) {
        // Before the look, so that nothing is missed.
        let raised = self.raised.notified();
        if !self.is_raised.load(Ordering::Acquire) {
            raised.await;
        }
    }
}

/// The next signal; meanwhile the wish to leave is passed on. Whoever leaves does not wait for work that blocks its thread.
pub(crate) async fn next(candidacy: &mut Candidacy, wish: &mut Wish) -> Option<Signal> {
    let worker = candidacy.worker().clone();
    let limit = worker.timing.ttl() / 3;
    loop {
        let leaving = wish.leaving;
        let blocked = async { Box::pin(worker.sleep(limit)).await };
        tokio::select! {
            biased;
            signal = candidacy.signal() => return signal,
            () = wish.wants_to_leave() => candidacy.leave(),
            () = blocked, if leaving => return None,
        }
    }
}

/// Lets the work run until the ownership ends and the work with it; says why it ended.
async fn work_on(
    candidacy: &mut Candidacy,
    wish: &mut Wish,
    grant: Grant,
    mut work: Running,
    on_return: OnReturn,
) -> EndReason {
    let (mut ending, mut is_over) = (None, false);
    loop {
        tokio::select! {
            biased;
            outcome = work.ended() => match outcome {
                _ if ending.is_some() => {}
                Outcome::Done if on_return == OnReturn::Keep => {}
                Outcome::Done => {
                    candidacy.end(grant.token, EndReason::Finished);
                    // It leaves also if the ownership was lost in this very moment.
                    candidacy.leave();
                }
                Outcome::Failed(error) => {
                    let what = error.to_string();
                    candidacy.state.publish(Change::WorkFailed { term: grant.term, what });
                    candidacy.end(grant.token, EndReason::Failed);
                }
                Outcome::Unfinished => candidacy.end(grant.token, EndReason::SteppedDown),
            },
            signal = candidacy.signal(), if !is_over => match signal {
                Some(Signal::Stop(why)) => ending = Some(why),
                Some(Signal::StopHard) => work.abort(),
                Some(_) => {}
                None => {
                    is_over = true;
                    ending.get_or_insert(EndReason::Expired);
                    work.abort();
                }
            },
            () = wish.wants_to_leave() => candidacy.leave(),
        }
        if let (Some(ending), true) = (ending, work.has_ended) {
            return ending;
        }
    }
}

/// Awaits the cleanup. One that outlasts the harder stop by a grace is dropped where it stands.
async fn clean_up(candidacy: &Candidacy, grant: Grant, mut cleanup: Running) {
    let worker = candidacy.worker();
    tokio::select! {
        biased;
        outcome = cleanup.ended() => {
            if let Outcome::Failed(error) = outcome {
                candidacy.state.publish(Change::CleanupFailed { term: grant.term, what: error.to_string() });
            }
        }
        () = worker.sleep(worker.timing.grace()) => {
            candidacy.state.publish(Change::CleanupDropped { term: grant.term });
            cleanup.abort();
            cleanup.ended().await;
        }
    }
}

/// Work or a cleanup in a task of its own, so that a panic in it stays there. Dropping this drops it at its next await.
pub(crate) struct Running {
    task: Option<JoinHandle<Outcome>>,
    /// Instead of a task: it panicked before there was a future.
    panicked: Option<Outcome>,
    has_ended: bool,
}

impl Running {
    /// Starts what `make` makes, under the ownership of `guard`.
    pub(crate) fn start<F: Future<Output: IntoOutcome> + Send + 'static>(
        guard: &Arc<WorkGuard>,
        make: impl FnOnce() -> F,
    ) -> Self {
        match catch_unwind(AssertUnwindSafe(make)) {
            Ok(future) => {
                // Also when the runtime is shut down, the ticket is not free before this has ended.
                let guard = guard.clone();
                let span = telemetry::span(&guard.resource, guard.grant);
                let work = async move {
                    let outcome = future.await.into_outcome();
                    drop(guard);
                    outcome
                };
                let task = Some(tokio::spawn(work.instrument(span)));
                Self { task, panicked: None, has_ended: false }
            }
            Err(panic) => Self { task: None, panicked: Some(failed(&*panic)), has_ended: false },
        }
    }

    /// Waits for its end, once; then for ever.
    pub(crate) async fn ended(&mut self) -> Outcome {
        let ended = match &mut self.task {
            _ if self.has_ended => std::future::pending().await,
            Some(task) => task.await,
            None => Ok(self.panicked.take().unwrap_or(Outcome::Unfinished)),
        };
        self.has_ended = true;
        // A task that has ended still takes its memory.
        self.task = None;
        let panic =
            |error: JoinError| error.try_into_panic().map_or(Outcome::Unfinished, |panic| failed(&*panic));
        ended.unwrap_or_else(panic)
    }

    /// Drops it at its next await.
    fn abort(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.abort();
    }
}

fn failed(panic: &(dyn std::any::Any + Send)) -> Outcome {
    Outcome::Failed(panic_message(panic).into())
}
