//! Runs the callbacks of a campaign, in the user's runtime: start once per win, cleanup once per win.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::{EndReason, Grant};
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle};
use tracing::Instrument;

use crate::campaign::candidacy::Entered;
use crate::campaign::state::{Change, Signal};
use crate::campaign::work_guard::Stint;
use crate::ownership::Ownership;
use crate::runtime::telemetry;

/// What a callback may return: nothing, or a result whose error ends the ownership.
pub trait Outcome: Send + 'static {
    /// What went wrong, if something did.
    fn failure(self) -> Option<String>;
}

impl Outcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: Display + Send + 'static> Outcome for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// Serves a campaign until it is over, or somebody wants to leave.
pub(crate) async fn serve<F, G>(
    mut wish: Wish,
    mut entered: Entered,
    mut start: impl FnMut(Ownership) -> F,
    mut cleanup: impl FnMut(EndReason) -> G,
) where
    F: Future<Output: Outcome> + Send + 'static,
    G: Future<Output: Outcome> + Send + 'static,
{
    while let Some(signal) = next(&mut entered, &mut wish).await {
        let Signal::Start(stint) = signal else { continue };
        let grant = stint.grant;
        if !entered.seat.holds(grant.token) {
            // It waited for this runtime, for longer than the trust lasted: nobody starts what is over.
            entered.end(grant.token, EndReason::SteppedDown);
            continue;
        }
        let work = spawn(&stint, || start(entered.view(grant)));
        let ending = work_on(&mut entered, &mut wish, grant, work).await;
        // Boxed, as everything here that is rare: what a task may ever need it takes for as long as it lives.
        Box::pin(clean_up(&entered, grant, spawn(&stint, || cleanup(ending)))).await;
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

/// The next signal; meanwhile the wish to leave is passed on. On leaving, silence of the store ends it, too.
pub(crate) async fn next(entered: &mut Entered, wish: &mut Wish) -> Option<Signal> {
    let worker = entered.worker().clone();
    let limit = worker.timing.ttl() / 3;
    loop {
        let leaving = wish.leaving;
        let silence = async { Box::pin(worker.sleep(limit)).await };
        tokio::select! {
            biased;
            signal = entered.signal() => return signal,
            () = wish.wants_to_leave() => entered.leave(),
            () = silence, if leaving => return None,
        }
    }
}

/// Lets the work run until the ownership ends and the work with it; says why it ended.
async fn work_on(entered: &mut Entered, wish: &mut Wish, grant: Grant, mut work: Running) -> EndReason {
    let (mut ending, mut is_over) = (None, false);
    loop {
        tokio::select! {
            biased;
            done = work.ended() => match failure(done) {
                Some(what) if ending.is_none() => {
                    entered.seat.publish(Change::WorkFailed { term: grant.term, what });
                    entered.end(grant.token, EndReason::Failed);
                }
                _ => {}
            },
            signal = entered.signal(), if !is_over => match signal {
                Some(Signal::Stop(why)) => ending = Some(why),
                Some(Signal::StopHard) => work.abort(),
                Some(_) => {}
                None => {
                    is_over = true;
                    ending.get_or_insert(EndReason::Expired);
                    work.abort();
                }
            },
            () = wish.wants_to_leave() => entered.leave(),
        }
        if let (Some(ending), true) = (ending, work.has_ended) {
            return ending;
        }
    }
}

/// Awaits the cleanup. One that outlasts the harder stop by a grace is dropped where it stands.
async fn clean_up(entered: &Entered, grant: Grant, mut cleanup: Running) {
    let worker = entered.worker();
    tokio::select! {
        biased;
        done = cleanup.ended() => {
            if let Some(what) = failure(done) {
                entered.seat.publish(Change::CleanupFailed { term: grant.term, what });
            }
        }
        () = worker.sleep(worker.timing.grace()) => {
            entered.seat.publish(Change::CleanupDropped { term: grant.term });
            cleanup.abort();
            cleanup.ended().await.ok();
        }
    }
}

/// A callback that runs in a task of its own, so that a panic in it stays there.
struct Running {
    task: Option<JoinHandle<Option<String>>>,
    panicked: Option<String>,
    has_ended: bool,
}

fn spawn<F: Future<Output: Outcome> + Send + 'static>(
    stint: &Arc<Stint>,
    make: impl FnOnce() -> F,
) -> Running {
    match catch_unwind(AssertUnwindSafe(make)) {
        Ok(future) => {
            // Also when the runtime ends under it, the ticket is not free before this has.
            let stint = stint.clone();
            let span = telemetry::span(&stint.resource, stint.grant);
            let work = async move {
                let failure = future.await.failure();
                drop(stint);
                failure
            };
            let task = tokio::spawn(work.instrument(span));
            Running { task: Some(task), panicked: None, has_ended: false }
        }
        Err(panic) => Running { task: None, panicked: Some(words(&*panic)), has_ended: false },
    }
}

impl Running {
    /// Waits for its end, once; then for ever.
    async fn ended(&mut self) -> Result<Option<String>, JoinError> {
        let done = match &mut self.task {
            _ if self.has_ended => std::future::pending().await,
            Some(task) => task.await,
            None => Ok(self.panicked.take()),
        };
        self.has_ended = true;
        // What is left of it takes as much memory as it did.
        self.task = None;
        done
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

fn failure(done: Result<Option<String>, JoinError>) -> Option<String> {
    match done {
        Ok(failure) => failure,
        Err(error) => error.try_into_panic().ok().map(|panic| words(&*panic)),
    }
}

pub(crate) fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", text.unwrap_or_else(|| "without words".to_owned()))
}
