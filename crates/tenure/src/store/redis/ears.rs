//! Wake-ups, and what owners publish: one subscribed connection for all workers of the process. Each lease has a channel
//! of its own, and so has what the owners of a resource send.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use sha2::{Digest, Sha256};
use tenure_core::{Hint, LeaseId, Message, Payload, ResourceName, Ticket, Token};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::target::Target;
use super::trouble::{Outcome, Trouble};
use super::wire::{Link, Said};
use crate::store::{Hints, Messages};

/// How often a silent connection is tried, and how long it may take to answer; less where leases are shorter.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);
const SHORTEST_SILENCE: Duration = Duration::from_millis(500);
/// How long subscribing may take. Nobody is held up by it: until then looking again has to do.
const PATIENCE: Duration = Duration::from_secs(2);

/// The channel on which the worker of a lease is woken. Who may subscribe must not learn the id from it.
pub(super) fn channel(namespace: &str, lease: LeaseId) -> String {
    let digest = Sha256::digest(lease.0.to_be_bytes());
    let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{{{namespace}}}:hint:{name}")
}

/// The channel on which the owners of a resource publish.
pub(super) fn fan(namespace: &str, resource: &ResourceName) -> String {
    format!("{{{namespace}}}:fan:{resource}")
}

/// Who listens, by channel. Nothing once the connection is over: nobody joins one that nobody reads any more.
type Listeners = Arc<Mutex<Option<ByChannel>>>;
type ByChannel = HashMap<String, Listener>;

/// Who listens on one channel.
enum Listener {
    Lease(LeaseId, mpsc::UnboundedSender<Hint>),
    Audience(ResourceName, Vec<mpsc::UnboundedSender<Message>>),
}

impl Listener {
    fn is_gone(&self) -> bool {
        match self {
            Self::Lease(_, to) => to.is_closed(),
            Self::Audience(_, all) => all.iter().all(mpsc::UnboundedSender::is_closed),
        }
    }

    /// What is not understood is as good as lost: looking again has to do.
    fn hear(&mut self, payload: &[u8], called: &AtomicBool) {
        match self {
            Self::Lease(lease, to) => {
                if let Some(hint) = hint(*lease, payload) {
                    called.fetch_or(hint.after.is_zero(), Ordering::Relaxed);
                    // Who is gone is noticed later.
                    let _gone = to.send(hint);
                }
            }
            Self::Audience(resource, all) => {
                if let Some(message) = message(resource, payload) {
                    all.retain(|to| to.send(message.clone()).is_ok());
                }
            }
        }
    }
}

/// All who listen in this process.
pub(super) struct Ears {
    target: Arc<Target>,
    namespace: String,
    ear: tokio::sync::Mutex<Option<Arc<Ear>>>,
    /// The shortest ttl of a worker here, in milliseconds.
    shortest_ttl: Arc<AtomicU64>,
    /// Somebody was told that a ticket is free, and has not claimed since.
    called: Arc<AtomicBool>,
}

/// A subscribed connection. When it ends so do the streams of all who listened.
struct Ear {
    link: Arc<Link>,
    listeners: Listeners,
    listening: JoinHandle<()>,
    leaving: Leaving,
    joins: mpsc::UnboundedSender<Join>,
}

/// One who wants to hear what comes on this channel from now on.
struct Join {
    channel: String,
    resource: ResourceName,
    to: mpsc::UnboundedSender<Message>,
    joined: oneshot::Sender<()>,
}

/// Held by whoever leaves channels, or joins one that others may be leaving: the server hears both in that order.
type Leaving = Arc<tokio::sync::Mutex<()>>;

impl Ear {
    /// Waits for the server's answer. Nobody is left behind on a connection that does not give it.
    async fn unless_late(&self, answered: impl Future<Output = Outcome<()>>) -> Outcome<()> {
        let answered = tokio::time::timeout(PATIENCE, answered).await.unwrap_or(Err(Trouble::Late));
        if answered.is_err() {
            self.end();
        }
        answered
    }

    fn end(&self) {
        self.listening.abort();
        *lock(&self.listeners) = None;
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.end();
    }
}

impl Ears {
    pub(super) fn of(target: Arc<Target>, namespace: &str) -> Self {
        Self {
            target,
            namespace: namespace.to_owned(),
            ear: tokio::sync::Mutex::new(None),
            shortest_ttl: Arc::new(AtomicU64::new(u64::MAX)),
            called: Arc::default(),
        }
    }

    /// A worker with this ttl listens here: a link that hangs has to be noticed within a part of it.
    pub(super) fn suit(&self, ttl: Duration) {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.shortest_ttl.fetch_min(millis, Ordering::Relaxed);
    }

    /// Whether the next claim is likely to be that of one who was called. Said once per call, of whoever claims first.
    pub(super) fn was_called(&self) -> bool {
        self.called.swap(false, Ordering::Relaxed)
    }

    /// Subscribes to the wake-ups for this lease.
    pub(super) async fn listen(&self, lease: LeaseId) -> Outcome<Hints> {
        let channel = channel(&self.namespace, lease);
        let (to, hints) = mpsc::unbounded_channel();
        let ear = tokio::time::timeout(PATIENCE, self.ear()).await.unwrap_or(Err(Trouble::Late))?;
        match &mut *lock(&ear.listeners) {
            Some(listeners) => drop(listeners.insert(channel.clone(), Listener::Lease(lease, to))),
            None => return Err(Trouble::Late),
        }
        // Side by side with others who subscribe: many at once do not wait for each other's answers.
        let subscribed = async {
            leave_the_gone(&ear.listeners, &ear.leaving, &ear.link).await?;
            subscribe(&ear.link, &channel).await
        };
        ear.unless_late(subscribed).await.map(|()| hints)
    }

    /// Subscribes to what the owners of this resource publish.
    pub(super) async fn attend(&self, resource: &ResourceName) -> Outcome<Messages> {
        let channel = fan(&self.namespace, resource);
        let (to, messages) = mpsc::unbounded_channel();
        let ear = tokio::time::timeout(PATIENCE, self.ear()).await.unwrap_or(Err(Trouble::Late))?;
        let subscribed = async {
            let _nobody_leaves = ear.leaving.lock().await;
            // Also where others listen already: the server answers each.
            subscribe(&ear.link, &channel).await?;
            let (joined, answered) = oneshot::channel();
            let join = Join { channel, resource: resource.clone(), to, joined };
            ear.joins.send(join).map_err(|_| Trouble::Late)?;
            answered.await.map_err(|_| Trouble::Late)
        };
        ear.unless_late(subscribed).await.map(|()| messages)
    }

    /// The connection, made if there is none.
    async fn ear(&self) -> Outcome<Arc<Ear>> {
        let mut ear = self.ear.lock().await;
        match ear.as_ref().filter(|ear| !ear.listening.is_finished() && lock(&ear.listeners).is_some()) {
            Some(ear) => Ok(ear.clone()),
            None => {
                // Before another one is made: as long as the server counts it, hints go there in vain.
                *ear = None;
                Ok(ear.insert(Arc::new(self.connect().await?)).clone())
            }
        }
    }

    async fn connect(&self) -> Outcome<Ear> {
        let moves = self.target.moves();
        let (said, messages) = mpsc::unbounded_channel();
        let link = Arc::new(Link::to(&self.target, Some(said)).await?);
        let listeners: Listeners = Arc::new(Mutex::new(Some(ByChannel::new())));
        let leaving = Leaving::default();
        let (joins, joining) = mpsc::unbounded_channel();
        let listening = Listening {
            target: self.target.clone(),
            moves,
            link: link.clone(),
            messages,
            listeners: listeners.clone(),
            leaving: leaving.clone(),
            joining,
            shortest_ttl: self.shortest_ttl.clone(),
            called: self.called.clone(),
        };
        Ok(Ear { link, listeners, listening: tokio::spawn(listening.run()), leaving, joins })
    }
}

fn silence(shortest_ttl: &AtomicU64) -> Duration {
    let third = Duration::from_millis(shortest_ttl.load(Ordering::Relaxed)) / 3;
    third.clamp(SHORTEST_SILENCE, LONGEST_SILENCE)
}

/// The one who reads what comes.
struct Listening {
    target: Arc<Target>,
    moves: u64,
    link: Arc<Link>,
    messages: mpsc::UnboundedReceiver<Said>,
    listeners: Listeners,
    leaving: Leaving,
    joining: mpsc::UnboundedReceiver<Join>,
    shortest_ttl: Arc<AtomicU64>,
    called: Arc<AtomicBool>,
}

impl Listening {
    async fn run(mut self) {
        // Set again only when it has rung: most of the time something was said meanwhile.
        let (mut quiet, mut heard_at) =
            (pin!(tokio::time::sleep(silence(&self.shortest_ttl))), Instant::now());
        loop {
            tokio::select! {
                // What came before one joins is not for that one.
                biased;
                said = self.messages.recv() => match said {
                    Some([_, Value::BulkString(channel), Value::BulkString(payload)]) => {
                        heard_at = Instant::now();
                        self.pass_on(&channel, &payload);
                    }
                    // What is not understood is as good as lost.
                    Some(_) => {}
                    None => break,
                },
                Some(join) = self.joining.recv() => self.join(join),
                () = &mut quiet => {
                    let silence = silence(&self.shortest_ttl);
                    if heard_at.elapsed() >= silence {
                        if !self.is_well().await {
                            break;
                        }
                        heard_at = Instant::now();
                    }
                    quiet.as_mut().reset(heard_at + silence);
                }
            }
        }
        *lock(&self.listeners) = None;
    }

    fn join(&self, Join { channel, resource, to, joined }: Join) {
        let mut listeners = lock(&self.listeners);
        let Some(listeners) = &mut *listeners else { return };
        let nobody = || Listener::Audience(resource, Vec::new());
        if let Listener::Audience(_, all) = listeners.entry(channel).or_insert_with(nobody) {
            all.push(to);
        }
        // Whoever waited for it may have given up.
        let _gone = joined.send(());
    }

    fn pass_on(&self, channel: &[u8], payload: &[u8]) {
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        let mut listeners = lock(&self.listeners);
        if let Some(listener) = listeners.as_mut().and_then(|listeners| listeners.get_mut(channel)) {
            listener.hear(payload, &self.called);
        }
    }

    /// After a silence: whether the server still answers, and is still the one to listen to. Leaves the channels of
    /// those who are gone.
    async fn is_well(&mut self) -> bool {
        let asked = async {
            leave_the_gone(&self.listeners, &self.leaving, &self.link).await?;
            self.link.ask(&redis::cmd("PING"), 1).await
        };
        let answered = tokio::time::timeout(silence(&self.shortest_ttl), asked).await;
        matches!(answered, Ok(Ok(_))) && self.moves == self.target.moves()
    }
}

/// Leaves the channels on which nobody listens any more; another time, if somebody is at it.
async fn leave_the_gone(listeners: &Listeners, leaving: &Leaving, link: &Link) -> Outcome<()> {
    let Ok(_nobody_joins) = leaving.try_lock() else { return Ok(()) };
    let gone: Vec<String> = match &mut *lock(listeners) {
        Some(listeners) => {
            listeners.extract_if(|_, listener| listener.is_gone()).map(|(name, _)| name).collect()
        }
        None => Vec::new(),
    };
    for channel in gone {
        link.ask(redis::cmd("UNSUBSCRIBE").arg(channel), 1).await?;
    }
    Ok(())
}

async fn subscribe(link: &Link, channel: &str) -> Outcome<()> {
    link.ask(redis::cmd("SUBSCRIBE").arg(channel), 1).await.map(drop)
}

/// `SPAN NAME`: in nanoseconds, how long to leave it to those who come first.
pub(super) fn hint(lease: LeaseId, payload: &[u8]) -> Option<Hint> {
    let (after, name) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
    let after = Duration::from_nanos(after.parse().ok()?);
    Some(Hint { lease, resource: ResourceName::new(name).ok()?, after })
}

/// `TICKET TOKEN BYTES`.
pub(super) fn message(resource: &ResourceName, payload: &[u8]) -> Option<Message> {
    let mut parts = payload.splitn(3, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
    let (ticket, token) = (Ticket(number()?.try_into().ok()?), Token(number()?));
    let payload = Payload::new(parts.next()?).ok()?;
    Some(Message { resource: resource.clone(), ticket, token, payload })
}

fn lock(listeners: &Mutex<Option<ByChannel>>) -> MutexGuard<'_, Option<ByChannel>> {
    // There is no step in it that a panic could leave half done.
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_told_by_the_lease_and_does_not_tell_it() {
        let (a, b) = (LeaseId(0x1234_5678_9abc_def0), LeaseId(1));

        let name = channel("tenure", a);

        assert!(name.starts_with("{tenure}:hint:") && name.len() == 14 + 32, "{name}");
        assert!(!name.contains("12345678") && name != channel("tenure", b));
    }

    #[test]
    fn what_is_no_hint_is_left() {
        let told = hint(LeaseId(1), b"24000000000 night ly").expect("it is understood");
        assert_eq!((told.resource.as_str(), told.after), ("night ly", Duration::from_secs(24)));

        for bad in [&b"x y"[..], b"5", b"5 ", b"-1 a", b"\xff \xff"] {
            assert!(hint(LeaseId(1), bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_message_is_its_ticket_its_token_and_whatever_bytes_follow() {
        let job = ResourceName::new("job").expect("a name");
        let told = message(&job, b"2 1763228625123500 a \xff\0").expect("it is understood");
        assert_eq!((told.ticket, told.token), (Ticket(2), Token(1_763_228_625_123_500)));
        assert_eq!((told.resource, told.payload.as_bytes()), (job.clone(), &b"a \xff\0"[..]));
        assert_eq!(message(&job, b"0 1 ").expect("it is understood").payload.as_bytes(), b"");

        for bad in [&b""[..], b"0", b"0 1", b"x 1 a", b"0 -1 a", b"99999999999 1 a"] {
            assert!(message(&job, bad).is_none(), "{bad:?}");
        }
    }
}
