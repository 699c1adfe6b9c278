//! What happens to a campaign or to a job, told to everybody who listens.

use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use crate::campaign::state::Change;
use crate::runtime::process::{self, Owned};

/// A stream of what happens to a campaign, or to a [job](crate::Worker::cron).
#[derive(Debug)]
pub struct Changes<C = Change> {
    /// Where it comes to an end. In a forked child nobody would say that it has.
    process: u32,
    changes: mpsc::UnboundedReceiver<C>,
}

impl<C> Changes<C> {
    /// What happens next; nothing once the campaign or the job is over.
    pub async fn next(&mut self) -> Option<C> {
        if self.process != process::id() {
            return None;
        }
        self.changes.recv().await
    }
}

impl<C> futures_core::Stream for Changes<C> {
    type Item = C;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<C>> {
        if self.process != process::id() {
            return Poll::Ready(None);
        }
        self.changes.poll_recv(cx)
    }
}

/// Who is told. Nothing is left out: each has a queue without limit.
#[derive(Debug)]
pub(crate) struct Listeners<C = Change> {
    /// None when nothing happens any more.
    all: Owned<Mutex<Option<Vec<mpsc::UnboundedSender<C>>>>>,
}

impl<C> Default for Listeners<C> {
    fn default() -> Self {
        Self { all: Owned::new(Mutex::new(Some(Vec::new()))) }
    }
}

impl<C> Listeners<C> {
    /// One more, from now on. Who comes after the end hears that it is over.
    pub(crate) fn listen(&self) -> Changes<C> {
        let (to, changes) = mpsc::unbounded_channel();
        if let Some(mut all) = self.all() {
            all.iter_mut().for_each(|all| all.push(to.clone()));
        }
        Changes { process: process::id(), changes }
    }

    pub(crate) fn tell(&self, change: &C)
    where
        C: Clone,
    {
        if let Some(mut all) = self.all() {
            all.iter_mut().for_each(|all| all.retain(|to| to.send(change.clone()).is_ok()));
        }
    }

    /// Nothing happens any more.
    pub(crate) fn end(&self) {
        if let Some(mut all) = self.all() {
            *all = None;
        }
    }

    /// Nothing in a forked child: another thread of the parent may have been changing it.
    fn all(&self) -> Option<MutexGuard<'_, Option<Vec<mpsc::UnboundedSender<C>>>>> {
        // No step of it can be left half done.
        self.all.get().ok().map(|all| all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
