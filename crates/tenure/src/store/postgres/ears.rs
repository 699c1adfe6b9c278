//! Hints: one connection per process that listens for all its leases.
//!
//! Behind a transaction pooler LISTEN is accepted, and nothing ever comes. So whoever listens first has another
//! connection ring a bell, and if that is not heard says so and waits in silence: looking again has to do.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tenure_core::{Hint, LeaseId, ResourceName};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::AbortHandle;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Notification};

use super::line::Line;
use super::trouble::Trouble;
use super::url::{Connected, Target};
use crate::Error;
use crate::store::Hints;

/// How long the bell may take.
const BELL_WITHIN: Duration = Duration::from_millis(500);
/// After so long in silence the bell is rung again: the pooler may be gone.
const SILENCE: Duration = Duration::from_secs(60);
/// How often the connection is asked whether it is still there, and how long it may take to say so. A link that is
/// dead without a word is found by this only.
const PULSE: Duration = Duration::from_secs(5);

pub(super) struct Ears {
    target: Arc<Target>,
    tools: Arc<Line>,
    /// Held while a connection is made, so that all who wait for it get the same.
    open: tokio::sync::Mutex<Option<Arc<Listening>>>,
    deaf_since: Mutex<Option<Instant>>,
}

/// A connection that listens. When it ends, so do the streams of all who subscribed.
struct Listening {
    client: Arc<Client>,
    state: Arc<State>,
    tasks: [AbortHandle; 2],
}

#[derive(Default)]
struct State {
    /// Who is told of what, by channel.
    subscribers: Mutex<HashMap<String, (LeaseId, UnboundedSender<Hint>)>>,
    is_over: AtomicBool,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Ears {
    pub(super) fn new(target: &Arc<Target>, tools: &Arc<Line>) -> Self {
        Self {
            target: target.clone(),
            tools: tools.clone(),
            open: tokio::sync::Mutex::default(),
            deaf_since: Mutex::default(),
        }
    }

    /// Whether the bell was not heard.
    pub(super) fn are_deaf(&self) -> bool {
        lock(&self.deaf_since).is_some()
    }

    pub(super) async fn listen(&self, lease: LeaseId) -> Result<Hints, Trouble> {
        let (to, hints) = mpsc::unbounded_channel();
        let Some(listening) = self.listening().await? else {
            // Ends by itself, so that the bell is rung again.
            tokio::spawn(async move {
                tokio::select! {
                    () = to.closed() => {}
                    () = tokio::time::sleep(SILENCE) => {}
                }
            });
            return Ok(hints);
        };
        let channel = channel(lease);
        lock(&listening.state.subscribers).insert(channel.clone(), (lease, to));
        // A name of letters and digits.
        listening.client.batch_execute(&format!("LISTEN {channel}")).await?;
        Ok(hints)
    }

    /// The connection that listens; none where nothing comes through.
    async fn listening(&self) -> Result<Option<Arc<Listening>>, Trouble> {
        let mut open = self.open.lock().await;
        if let Some(listening) = open.as_ref().filter(|listening| listening.is_well()) {
            return Ok(Some(listening.clone()));
        }
        *open = None;
        if lock(&self.deaf_since).is_some_and(|since| since.elapsed() < SILENCE) {
            return Ok(None);
        }
        let target = self.target.listen.as_deref().unwrap_or(&self.target);
        let listening = Arc::new(Listening::start(target).await?);
        if self.hears_the_bell(&listening).await? {
            *lock(&self.deaf_since) = None;
            *open = Some(listening.clone());
            return Ok(Some(listening));
        }
        if lock(&self.deaf_since).replace(Instant::now()).is_none() {
            tracing::warn!(
                server = %target,
                "hints do not come through: a transaction pooler stands in between; waiters look again by themselves"
            );
        }
        Ok(None)
    }

    /// Whether what is sent over another connection arrives. On the same one it would, also behind a pooler.
    async fn hears_the_bell(&self, listening: &Listening) -> Result<bool, Trouble> {
        let bell = channel(fresh()?);
        let (to, mut rung) = mpsc::unbounded_channel();
        lock(&listening.state.subscribers).insert(bell.clone(), (LeaseId(0), to));
        listening.client.batch_execute(&format!("LISTEN {bell}")).await?;
        self.tools.query(PULSE, "SELECT pg_notify($1, '0 bell')", &[(&bell, Type::TEXT)]).await?;
        let heard = tokio::time::timeout(BELL_WITHIN, rung.recv()).await;
        lock(&listening.state.subscribers).remove(&bell);
        listening.client.batch_execute(&format!("UNLISTEN {bell}")).await?;
        Ok(matches!(heard, Ok(Some(_))))
    }
}

impl Listening {
    async fn start(target: &Target) -> Result<Self, Trouble> {
        let (client, connection, _) = target.connect(PULSE).await?;
        let (client, state) = (Arc::new(client), Arc::new(State::default()));
        let ears = tokio::spawn(hear(connection, state.clone())).abort_handle();
        let pulse = tokio::spawn(pulse(client.clone(), state.clone(), ears.clone())).abort_handle();
        Ok(Self { client, state, tasks: [ears, pulse] })
    }

    fn is_well(&self) -> bool {
        !self.state.is_over.load(Ordering::Relaxed) && !self.client.is_closed()
    }
}

impl State {
    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Their streams end, and they subscribe again.
        lock(&self.subscribers).clear();
    }

    fn pass_on(&self, notification: &Notification) {
        let mut subscribers = lock(&self.subscribers);
        let Some((lease, to)) = subscribers.get(notification.channel()) else { return };
        let Some((after, name)) = notification.payload().split_once(' ') else { return };
        let (Ok(after), Ok(resource)) = (after.parse(), ResourceName::new(name)) else { return };
        let hint = Hint { lease: *lease, resource, after: Duration::from_micros(after) };
        if to.send(hint).is_err() {
            subscribers.remove(notification.channel());
        }
    }

    /// The channels whose subscribers are gone.
    fn deserted(&self) -> Vec<String> {
        let mut deserted = Vec::new();
        lock(&self.subscribers).retain(|channel, (_, to)| {
            if to.is_closed() {
                deserted.push(channel.clone());
            }
            !to.is_closed()
        });
        deserted
    }
}

/// Carries the connection, and passes on what comes over it.
async fn hear(mut connection: Connected, state: Arc<State>) {
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => state.pass_on(&notification),
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "the connection that listens has ended");
                break;
            }
            None => break,
        }
    }
    state.end();
}

/// Sees that the connection is alive, and lets go of channels that nobody wants any more.
async fn pulse(client: Arc<Client>, state: Arc<State>, ears: AbortHandle) {
    loop {
        tokio::time::sleep(PULSE).await;
        let unlisten: String =
            state.deserted().iter().map(|channel| format!("UNLISTEN {channel};")).collect();
        let alive = tokio::time::timeout(PULSE, client.batch_execute(&format!("{unlisten}SELECT 1"))).await;
        if !matches!(alive, Ok(Ok(()))) {
            ears.abort();
            state.end();
            return;
        }
    }
}

/// An id that nobody else has.
fn fresh() -> Result<LeaseId, Trouble> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::unavailable(format!("the system gives no random numbers: {error}")))?;
    Ok(LeaseId(u128::from_le_bytes(bytes)))
}

/// The channel of a lease: the id itself is a right, and never printed.
fn channel(lease: LeaseId) -> String {
    let hash = Sha256::digest(lease.0.to_be_bytes());
    let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("tenure_{hex}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here can be left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
