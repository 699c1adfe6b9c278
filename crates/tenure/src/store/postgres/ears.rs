//! Hints and messages: one connection per process that listens for all its leases, and to all that it subscribed to.
//!
//! Behind a transaction pooler LISTEN is accepted, and nothing ever comes. So whoever listens first has another
//! connection ring a bell, and if that is not heard says so and waits in silence: looking again has to do. Messages have
//! no such way around it, and are refused there.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};
use tenure_core::{Hint, LeaseId, Message, Payload, ResourceName, Ticket, Token};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::AbortHandle;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Notification};

use super::Param;
use super::line::Line;
use super::trouble::Trouble;
use super::url::{Connected, Target};
use crate::Error;
use crate::store::{Hints, Messages};

/// How long the bell may take.
const BELL_WITHIN: Duration = Duration::from_millis(500);
/// After so long in silence the bell is rung again: the pooler may be gone.
const SILENCE: Duration = Duration::from_secs(60);
/// How often the connection is asked whether it is still there, and how long it may take to say so. A link that is
/// dead without a word is found by this only.
const PULSE: Duration = Duration::from_secs(5);

pub(super) struct Ears {
    target: Arc<Target>,
    claims: Arc<Line>,
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
    subscribers: Mutex<HashMap<String, Subscriber>>,
    /// Held from a change of these until the server knows of it: a channel that is wanted again is not let go of after.
    turn: tokio::sync::Mutex<()>,
    is_over: AtomicBool,
}

enum Subscriber {
    Hints(LeaseId, UnboundedSender<Hint>),
    Messages(ResourceName, Vec<UnboundedSender<Message>>),
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Ears {
    pub(super) fn new(target: &Arc<Target>, claims: &Arc<Line>) -> Self {
        Self {
            target: target.clone(),
            claims: claims.clone(),
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
        let channel = channel(&lease.0.to_be_bytes());
        listening.listen(&channel, |_| Subscriber::Hints(lease, to)).await?;
        Ok(hints)
    }

    pub(super) async fn subscribe(
        &self,
        channel: &str,
        resource: &ResourceName,
    ) -> Result<Messages, Trouble> {
        let (to, messages) = mpsc::unbounded_channel();
        let Some(listening) = self.listening().await? else {
            return Err(Error::refused(
                "cannot subscribe: a transaction pooler stands in between, and messages do not come through; give the \
                 URL of the server itself as `listen`",
            )
            .into());
        };
        let add = |before| {
            let mut audience = match before {
                Some(Subscriber::Messages(_, audience)) => audience,
                _ => Vec::new(),
            };
            audience.push(to);
            Subscriber::Messages(resource.clone(), audience)
        };
        listening.listen(channel, add).await?;
        Ok(messages)
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

    /// Whether what is sent over another connection arrives. On the same one it would, also behind a pooler. The one for claims
    /// is needed anyway, by whoever listens for hints.
    async fn hears_the_bell(&self, listening: &Listening) -> Result<bool, Trouble> {
        let bell = channel(&fresh()?);
        let (to, mut rung) = mpsc::unbounded_channel();
        listening.listen(&bell, |_| Subscriber::Hints(LeaseId(0), to)).await?;
        let ring = "SELECT pg_notify($1, '0 bell')";
        let silent = |_| Error::unavailable(format!("no answer within {PULSE:?}"));
        let named: [Param<'_>; 1] = [(&bell, Type::TEXT)];
        let rings = self.claims.query(PULSE, ring, &named);
        tokio::time::timeout(PULSE, rings).await.map_err(silent)??;
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

    /// Listens on a channel, for one more than those who do already.
    async fn listen(
        &self,
        channel: &str,
        add: impl FnOnce(Option<Subscriber>) -> Subscriber,
    ) -> Result<(), Trouble> {
        let _turn = self.state.turn.lock().await;
        // A name of letters and digits. Others wait for this turn, so a link that is dead without a word must not hold it.
        let listen = format!("LISTEN {channel}");
        let Ok(listened) = tokio::time::timeout(PULSE, self.client.batch_execute(&listen)).await else {
            self.state.end();
            return Err(Error::unavailable("the connection that listens does not answer").into());
        };
        listened?;
        {
            // After that, so that nobody hears what was sent before it came: the server sends such things first.
            let mut subscribers = lock(&self.state.subscribers);
            let added = add(subscribers.remove(channel));
            subscribers.insert(channel.to_owned(), added);
        }
        if self.is_well() {
            Ok(())
        } else {
            Err(Error::unavailable("the connection that listens has ended").into())
        }
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
        // Who does not listen any more is let go of with the next pulse.
        match lock(&self.subscribers).get(notification.channel()) {
            Some(Subscriber::Hints(lease, to)) => {
                let _gone = hint(*lease, notification.payload()).map(|hint| to.send(hint));
            }
            Some(Subscriber::Messages(resource, audience)) => {
                let Some(message) = message(resource, notification.payload()) else { return };
                for to in audience {
                    let _gone = to.send(message.clone());
                }
            }
            None => {}
        }
    }

    /// The channels whose subscribers are gone.
    fn deserted(&self) -> Vec<String> {
        let mut deserted = Vec::new();
        lock(&self.subscribers).retain(|channel, subscriber| {
            let is_wanted = match subscriber {
                Subscriber::Hints(_, to) => !to.is_closed(),
                Subscriber::Messages(_, audience) => {
                    audience.retain(|to| !to.is_closed());
                    !audience.is_empty()
                }
            };
            if !is_wanted {
                deserted.push(channel.clone());
            }
            is_wanted
        });
        deserted
    }
}

/// What a release has to say: when to look, and where.
pub(super) fn hint(lease: LeaseId, payload: &str) -> Option<Hint> {
    let (after, name) = payload.split_once(' ')?;
    let after = Duration::from_micros(after.parse().ok()?);
    Some(Hint { lease, resource: ResourceName::new(name).ok()?, after })
}

/// What an owner has to say: its ticket, its token, and the bytes.
pub(super) fn message(resource: &ResourceName, payload: &str) -> Option<Message> {
    let (ticket, rest) = payload.split_once(' ')?;
    let (token, bytes) = rest.split_once(' ')?;
    Some(Message {
        resource: resource.clone(),
        ticket: Ticket(ticket.parse().ok()?),
        token: Token(token.parse().ok()?),
        payload: Payload::new(&BASE64.decode(bytes).ok()?).ok()?,
    })
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
        let turn = state.turn.lock().await;
        let unlisten: String =
            state.deserted().iter().map(|channel| format!("UNLISTEN {channel};")).collect();
        let alive = tokio::time::timeout(PULSE, client.batch_execute(&format!("{unlisten}SELECT 1"))).await;
        drop(turn);
        if !matches!(alive, Ok(Ok(()))) {
            ears.abort();
            state.end();
            return;
        }
    }
}

/// What nobody else has.
fn fresh() -> Result<[u8; 16], Trouble> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::unavailable(format!("the system gives no random numbers: {error}")))?;
    Ok(bytes)
}

/// The channel of a lease, whose id is a right and never printed.
fn channel(of: &[u8]) -> String {
    let hash = Sha256::digest(of);
    let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("tenure_{hex}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here can be left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
