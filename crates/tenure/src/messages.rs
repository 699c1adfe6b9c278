//! What the owners of a resource send, as a worker receives it: in order, without what comes too late, and bounded.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub use tenure_core::{Message, Published};
use tenure_core::{ResourceName, Ticket, Token};
use tokio::sync::{Notify, oneshot};

use crate::Error;
use crate::runtime::clock::Clocks;
use crate::runtime::engine::Command;
use crate::runtime::events::{self, Event, StoreChange};
use crate::runtime::process::Owned;
use crate::runtime::subscription::{SHORTEST_PAUSE, jittered};
use crate::store::Store;
use crate::worker::Inner;

/// How many messages wait for one who does not take them. Beyond that the oldest goes.
const MOST: usize = 1024;

/// A subscription to what the owners of a resource send. See [`Worker::subscribe`](crate::Worker::subscribe).
///
/// At most once: a message may be lost, and is never doubled; [`losses`](Self::losses) says what is known of that.
#[derive(Debug)]
#[must_use = "a subscription ends when this is dropped"]
pub struct Messages {
    inbox: Owned<Arc<Inbox>>,
    /// The worker stays as long as somebody listens.
    _worker: Arc<Inner>,
}

/// What did not arrive, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// Messages that went because more than 1024 waited to be taken: the oldest first.
    pub dropped: u64,
    /// Messages of earlier owners that came after those of a later one.
    pub stale: u64,
    /// How often the subscription was interrupted: what was sent meanwhile is lost.
    pub interruptions: u64,
}

/// What both threads share.
#[derive(Debug, Default)]
struct Inbox {
    inner: Mutex<Held>,
    /// Rung when nobody wants to receive any more.
    left: Notify,
}

#[derive(Debug, Default)]
struct Held {
    messages: VecDeque<Message>,
    /// The highest token of each ticket so far.
    highest: HashMap<Ticket, Token>,
    losses: Losses,
    waiting: Option<Waker>,
    is_over: bool,
}

impl Messages {
    /// Subscribes, and waits until the store has done so.
    pub(crate) async fn subscribe(worker: Arc<Inner>, resource: ResourceName) -> Result<Self, Error> {
        let messages = Self { inbox: Owned::new(Arc::default()), _worker: worker.clone() };
        let (first, subscribed) = oneshot::channel();
        let (clocks, limit) = (worker.clocks.clone(), worker.timing.ttl() / 3);
        let (inbox, of) = (messages.inbox.get()?.clone(), resource.clone());
        let keep = move |store| -> crate::runtime::driver::Job {
            Box::pin(keep(store, clocks, of, limit, first, inbox))
        };
        let shut_down = || Error::refused("the worker has been shut down");
        worker.commands.send(Command::Keep(Box::new(keep)))?;
        tokio::select! {
            subscribed = subscribed => subscribed.map_err(|_| shut_down())??,
            () = worker.sleep(limit) => {
                let what = format!("cannot subscribe to `{resource}`: the store did not answer within {limit:?}");
                return Err(Error::unavailable(what));
            }
        }
        Ok(messages)
    }

    /// What comes next; nothing once the worker was shut down. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Message> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// What did not arrive so far.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.inbox.get().map(|inbox| inbox.held().losses).unwrap_or_default()
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        // A forked child receives nothing.
        self.inbox.get().map_or(Poll::Ready(None), |inbox| inbox.poll(cx))
    }
}

impl futures_core::Stream for Messages {
    type Item = Message;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        self.poll(cx)
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.inbox.get().iter().for_each(|inbox| inbox.left.notify_one());
    }
}

impl Inbox {
    fn held(&self) -> MutexGuard<'_, Held> {
        // No step of it can be left half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut held = self.held();
        match held.messages.pop_front() {
            Some(message) => Poll::Ready(Some(message)),
            None if held.is_over => Poll::Ready(None),
            None => {
                held.waiting = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Takes a message in, unless an owner of the same ticket has spoken under a higher token.
    fn take_in(&self, message: Message) {
        let mut held = self.held();
        let highest = held.highest.entry(message.ticket).or_default();
        if message.token < *highest {
            held.losses.stale += 1;
            return;
        }
        *highest = message.token;
        if held.messages.len() >= MOST {
            held.messages.pop_front();
            held.losses.dropped += 1;
        }
        held.messages.push_back(message);
        wake(held);
    }

    fn is_interrupted(&self) {
        self.held().losses.interruptions += 1;
    }
}

fn wake(mut held: MutexGuard<'_, Held>) {
    let waiting = held.waiting.take();
    drop(held);
    waiting.iter().for_each(Waker::wake_by_ref);
}

/// Whatever happens to the one who fills it, the one who waits is told that nothing comes any more.
struct Filling(Arc<Inbox>);

impl Drop for Filling {
    fn drop(&mut self) {
        let mut held = self.0.held();
        held.is_over = true;
        wake(held);
    }
}

/// Subscribes, and whenever the subscription ends subscribes again, until nobody wants to receive any more. `first` learns
/// how the first try went; one that fails is the last.
async fn keep(
    store: Arc<dyn Store>,
    clocks: Clocks,
    resource: ResourceName,
    longest_pause: Duration,
    first: oneshot::Sender<Result<(), Error>>,
    inbox: Arc<Inbox>,
) {
    let filling = Filling(inbox.clone());
    let receive = async {
        let mut messages = match store.subscribe(&resource).await {
            Ok(messages) => messages,
            // Whoever waited for it may have given up.
            Err(error) => return drop(first.send(Err(error))),
        };
        let _given_up = first.send(Ok(()));
        let mut pause = SHORTEST_PAUSE;
        loop {
            while let Some(message) = messages.recv().await {
                filling.0.take_in(message);
            }
            filling.0.is_interrupted();
            messages = loop {
                clocks.sleep(jittered(pause)).await;
                match store.subscribe(&resource).await {
                    Ok(messages) => break messages,
                    Err(error) => events::tell(Event::Store {
                        worker: None,
                        resource: Some(resource.clone()),
                        change: StoreChange::messages_lost(&error),
                    }),
                }
                pause = (pause * 2).min(longest_pause).max(SHORTEST_PAUSE);
            };
            pause = SHORTEST_PAUSE;
        }
    };
    tokio::select! {
        () = receive => {}
        () = inbox.left.notified() => {}
    }
}
