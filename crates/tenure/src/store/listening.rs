//! What a process hears from a store: hints for its leases, and messages.
//!
//! `channels` names the channels, `waiters` follows the owners that the process waits for, `deaths` watches for proof
//! that a worker is dead. What the signals say is in `codec/signal.rs`.

mod channels;
mod deaths;
mod waiters;

use crate::runtime::events;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::rules::{Act, Found, Key, Record};
use tenure_core::{Hint, LeaseId, Message, ResourceName};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::channels::ChannelNames;
use self::deaths::Watched;
use self::waiters::Waits;
use super::backend::{Backend, Channel, Heard, Signals, Stored, Subscriptions};
use super::codec::{self, SentRecord, SentSignal};
use super::records::Inner;
use super::{Hints, Messages};
use crate::{Error, ErrorKind};

/// How many numbers of messages are remembered, to drop a message that arrives twice.
const NUMBERS: usize = 64;

/// What this process listens to.
#[derive(Debug, Default)]
pub(super) struct Listening {
    connection: Option<Connection>,
    /// The leases that get hints, each with its channel.
    hints: HashMap<LeaseId, (Channel, mpsc::UnboundedSender<Hint>)>,
    /// The leases that asked for hints before the namespace existed.
    early: HashMap<LeaseId, mpsc::UnboundedSender<Hint>>,
    messages: HashMap<ResourceName, Vec<mpsc::UnboundedSender<Message>>>,
    numbers: VecDeque<u64>,
    /// Which lease of this process waits for which resource.
    waits: BTreeMap<(LeaseId, ResourceName), Waits>,
    /// The leases whose end this process hears.
    followed: HashSet<LeaseId>,
    /// The leases whose workers the witness watches.
    watched: BTreeMap<LeaseId, Watched>,
    deaths: Option<JoinHandle<()>>,
}

/// The connection that signals arrive on.
#[derive(Debug)]
struct Connection {
    channels: ChannelNames,
    subscriptions: Arc<dyn Subscriptions>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.deaths.iter().for_each(JoinHandle::abort);
    }
}

impl Listening {
    /// The connection was lost, or the channels got other names: every subscription has to be made again.
    fn disconnect(&mut self) {
        self.connection = None;
        self.hints.clear();
        self.messages.clear();
        self.followed.clear();
    }

    /// Unsubscribes from the channels that nobody listens to any more.
    fn unsubscribe_unused(&mut self) {
        let Some(connection) = &self.connection else { return };
        self.hints.retain(|_, (channel, to)| {
            if to.is_closed() {
                connection.subscriptions.forget(channel);
            }
            !to.is_closed()
        });
        self.messages.retain(|resource, audience| {
            audience.retain(|to| !to.is_closed());
            if audience.is_empty() {
                connection.subscriptions.forget(&connection.channels.messages(resource));
            }
            !audience.is_empty()
        });
    }

    /// Sends the hint to its lease, and cleans up if nobody listens any more.
    fn hint(&mut self, hint: Hint) {
        let lease = hint.lease;
        if self.hints.get(&lease).is_some_and(|(_, to)| to.send(hint).is_err()) {
            self.unsubscribe_unused();
        }
    }
}

impl<B: Backend> Inner<B> {
    pub(super) fn channels(&self) -> Option<ChannelNames> {
        let client = self.client();
        client.seen(&Key::Meta).and_then(Record::meta).map(|meta| ChannelNames(meta.secret))
    }

    /// Subscribes to the hints for a lease.
    pub(super) async fn hints(self: &Arc<Self>, lease: LeaseId) -> Result<Hints, Error> {
        let (to, hints) = mpsc::unbounded_channel();
        if self.channels().is_none() && self.backend.read(&[Key::Meta]).await?.records.iter().all(is_missing)
        {
            // The first contact decides whether a quarantine is needed, which depends on the ttl. Opening the lease
            // makes that contact.
            self.listening().early.insert(lease, to);
            return Ok(hints);
        }
        self.follow_hints(lease, to).await?;
        Ok(hints)
    }

    /// The namespace exists now: a lease that asked for hints earlier is subscribed before it is used.
    pub(super) async fn follow_early(self: &Arc<Self>, lease: LeaseId) {
        let early = self.listening().early.remove(&lease);
        if let Some(to) = early
            && let Err(error) = self.follow_hints(lease, to).await
        {
            // This ends the stream of hints, and the driver subscribes again.
            self.listening().hints.remove(&lease);
            events::debug("cannot subscribe to hints", &error);
        }
    }

    async fn follow_hints(
        self: &Arc<Self>,
        lease: LeaseId,
        to: mpsc::UnboundedSender<Hint>,
    ) -> Result<(), Error> {
        let (channels, subscriptions) = self.listen().await?;
        let channel = channels.lease(lease);
        {
            let mut listening = self.listening();
            listening.unsubscribe_unused();
            listening.hints.insert(lease, (channel.clone(), to));
        }
        match subscriptions.follow(channel).await {
            // Behind a connection pooler no signal arrives: then waiters look by themselves.
            Err(error) if error.kind() != ErrorKind::Refused => Err(error),
            _ => Ok(()),
        }
    }

    /// Subscribes to what the owners of a resource send.
    pub(super) async fn subscribe(self: &Arc<Self>, resource: &ResourceName) -> Result<Messages, Error> {
        let (channels, subscriptions) = self.listen().await?;
        let (to, messages) = mpsc::unbounded_channel();
        {
            let mut listening = self.listening();
            listening.unsubscribe_unused();
            listening.messages.entry(resource.clone()).or_default().push(to);
        }
        subscriptions.follow(channels.messages(resource)).await?;
        Ok(messages)
    }

    /// The connection that signals arrive on. Makes one if there is none, or if the channels got other names.
    async fn listen(self: &Arc<Self>) -> Result<(ChannelNames, Arc<dyn Subscriptions>), Error> {
        let channels = match self.channels() {
            Some(channels) => channels,
            None => {
                // Any request makes the first contact.
                self.run(Act::Wishes(LeaseId(0))).await?;
                self.channels().ok_or_else(|| {
                    Error::unavailable("the store was replaced or restarted during the request")
                })?
            }
        };
        if let Some(connection) = &self.listening().connection
            && connection.channels == channels
            && !connection.task.is_finished()
        {
            return Ok((channels, connection.subscriptions.clone()));
        }
        let (subscriptions, signals) = self.backend.listen().await?;
        let mut listening = self.listening();
        if let Some(connection) = &listening.connection
            && connection.channels == channels
            && !connection.task.is_finished()
        {
            // Another task was quicker.
            return Ok((channels, connection.subscriptions.clone()));
        }
        listening.disconnect();
        let inner = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let mut signals: Signals = signals;
            while let Some(heard) = signals.recv().await {
                let Some(inner) = inner.upgrade() else { return };
                inner.handle_signal(&heard);
            }
            if let Some(inner) = inner.upgrade() {
                inner.listening().disconnect();
            }
        });
        listening.connection = Some(Connection { channels, subscriptions: subscriptions.clone(), task });
        Ok((channels, subscriptions))
    }

    fn handle_signal(&self, heard: &Heard) {
        let Some(signal) = codec::decode_signal(heard.text.as_str()) else { return };
        match signal {
            SentSignal::Look { resource, after, record } => {
                if let Some(record) = record {
                    self.take_record(&resource, &record, heard);
                }
                self.hint(heard, resource, after);
            }
            SentSignal::Changed { resource, record } => self.take_record(&resource, &record, heard),
            SentSignal::Ended(ended) => {
                self.listening().followed.remove(&ended);
                self.hint_waiters(&[ended]);
            }
            SentSignal::Knock(resource) => self.hint(heard, resource, Duration::ZERO),
            SentSignal::Message { message, number } => {
                let mut listening = self.listening();
                if listening.numbers.contains(&number) {
                    return;
                }
                listening.numbers.push_back(number);
                if listening.numbers.len() > NUMBERS {
                    listening.numbers.pop_front();
                }
                if let Some(audience) = listening.messages.get_mut(&message.resource) {
                    audience.retain(|to| to.send(message.clone()).is_ok());
                }
            }
        }
    }

    /// Wakes the worker whose channel the signal came on.
    fn hint(&self, heard: &Heard, resource: ResourceName, after: Duration) {
        let mut listening = self.listening();
        let to = listening.hints.iter().find(|(_, (channel, _))| *channel == heard.channel);
        let to = to.map(|(lease, _)| *lease);
        if let Some(lease) = to {
            listening.hint(Hint { lease, resource, after });
        }
    }

    /// Keeps a record that came with a signal: it saves a read.
    fn take_record(&self, resource: &ResourceName, sent: &SentRecord, heard: &Heard) {
        let key = Key::Resource(resource.clone());
        let Ok((revision, value)) = codec::decode(&key, sent.text.as_str()) else { return };
        let found = Found { key, version: sent.version, revision, stamp: heard.stamp, value: Some(value) };
        let env = self.env();
        self.client().told(&env, sent.life, found);
    }
}

fn is_missing(stored: &Stored) -> bool {
    stored.value.is_none()
}
