//! Runs the callbacks of a campaign, in the user's runtime: start once per win, cleanup once per win.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tenure_core::{Ending, Grant};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use crate::campaign::Wish;
use crate::entered::Entered;
use crate::ownership::Ownership;
use crate::seat::Signal;

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

/// Serves a campaign until it is over.
pub(crate) async fn serve<F, G>(
    mut entered: Entered,
    mut wishes: mpsc::UnboundedReceiver<Wish>,
    mut start: impl FnMut(Ownership) -> F,
    mut cleanup: impl FnMut(Ending) -> G,
) where
    F: Future<Output: Outcome> + Send + 'static,
    G: Future<Output: Outcome> + Send + 'static,
{
    let mut leaving = false;
    while let Some(signal) = next(&mut entered, &mut wishes, &mut leaving).await {
        if let Signal::Start(grant) = signal {
            let work = spawn(|| start(entered.view(grant)));
            let ending = work_on(&mut entered, &mut wishes, &mut leaving, grant, work).await;
            clean_up(&mut entered, grant, spawn(|| cleanup(ending))).await;
            entered.stopped(grant.token);
        }
    }
}

/// The next signal; meanwhile wishes are passed on. On leaving, silence of the store ends it, too.
async fn next(
    entered: &mut Entered,
    wishes: &mut mpsc::UnboundedReceiver<Wish>,
    leaving: &mut bool,
) -> Option<Signal> {
    let (clocks, limit) = (entered.worker().clocks.clone(), entered.worker().timing.ttl() / 3);
    loop {
        tokio::select! {
            biased;
            signal = entered.signal() => return signal,
            Some(wish) = wishes.recv(), if !*leaving => {
                *leaving = wish == Wish::Leave;
                match wish {
                    Wish::Leave => entered.leave(),
                    Wish::StepDown => entered.step_down(),
                }
            }
            () = clocks.sleep(limit), if *leaving => return None,
        }
    }
}

/// Lets the work run until the ownership ends and the work with it; says why it ended.
async fn work_on(
    entered: &mut Entered,
    wishes: &mut mpsc::UnboundedReceiver<Wish>,
    leaving: &mut bool,
    grant: Grant,
    mut work: Running,
) -> Ending {
    let mut ending = None;
    loop {
        tokio::select! {
            biased;
            done = work.ended() => match failure(done) {
                Some(what) if ending.is_none() => {
                    let (resource, term) = (&entered.resource, grant.term.0);
                    tracing::error!(%resource, term, what, "the work failed");
                    entered.end(grant.token, Ending::Failed);
                }
                _ => {}
            },
            signal = entered.signal() => match signal {
                Some(Signal::Stop(why)) => ending = Some(why),
                Some(Signal::StopHard) => work.abort(),
                Some(_) => {}
                None => {
                    ending.get_or_insert(Ending::Expired);
                    work.abort();
                }
            },
            Some(wish) = wishes.recv(), if !*leaving => {
                *leaving = wish == Wish::Leave;
                match wish {
                    Wish::Leave => entered.leave(),
                    Wish::StepDown => entered.step_down(),
                }
            }
        }
        if let (Some(ending), true) = (ending, work.has_ended) {
            return ending;
        }
    }
}

/// Awaits the cleanup. One that outlasts the harder stop by a grace is dropped where it stands.
async fn clean_up(entered: &mut Entered, grant: Grant, mut cleanup: Running) {
    let (clocks, grace) = (entered.worker().clocks.clone(), entered.worker().timing.grace());
    let limit = clocks.sleep(grace);
    tokio::select! {
        biased;
        done = cleanup.ended() => {
            if let Some(what) = failure(done) {
                tracing::error!(resource = %entered.resource, term = grant.term.0, what, "the cleanup failed");
            }
        }
        () = limit => {
            tracing::error!(resource = %entered.resource, term = grant.term.0, "the cleanup hangs; it is dropped");
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

fn spawn<F: Future<Output: Outcome> + Send + 'static>(make: impl FnOnce() -> F) -> Running {
    match catch_unwind(AssertUnwindSafe(make)) {
        Ok(future) => {
            let task = tokio::spawn(async move { future.await.failure() });
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

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", text.unwrap_or_else(|| "without words".to_owned()))
}
