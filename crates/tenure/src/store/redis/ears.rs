//! Wake-ups: one subscribed connection for all workers of the process, each with a channel of its own.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_core::Stream;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use sha2::{Digest, Sha256};
use tenure_core::{Hint, LeaseId, ResourceName};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::target::Target;
use super::trouble::{Outcome, Trouble};
use crate::store::Hints;

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

/// Who listens, by channel. Nothing once the connection is over: nobody joins one that nobody reads any more.
type Listeners = Arc<Mutex<Option<ByChannel>>>;
type ByChannel = HashMap<String, (LeaseId, mpsc::UnboundedSender<Hint>)>;

/// All who listen in this process.
pub(super) struct Ears {
    target: Arc<Target>,
    namespace: String,
    ear: tokio::sync::Mutex<Option<Arc<Ear>>>,
    /// The shortest ttl of a worker here, in milliseconds.
    shortest_ttl: Arc<AtomicU64>,
}

/// A subscribed connection. When it ends so do the streams of all who listened.
struct Ear {
    sink: PubSubSink,
    listeners: Listeners,
    listening: JoinHandle<()>,
}

impl Ear {
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
        }
    }

    /// A worker with this ttl listens here: a link that hangs has to be noticed within a part of it.
    pub(super) fn suit(&self, ttl: Duration) {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.shortest_ttl.fetch_min(millis, Ordering::Relaxed);
    }

    /// Subscribes to the wake-ups for this lease.
    pub(super) async fn listen(&self, lease: LeaseId) -> Outcome<Hints> {
        let channel = channel(&self.namespace, lease);
        let (to, hints) = mpsc::unbounded_channel();
        let ear = tokio::time::timeout(PATIENCE, self.ear()).await.unwrap_or(Err(Trouble::Late))?;
        let gone = leave_the_gone(&ear.listeners);
        match &mut *lock(&ear.listeners) {
            Some(listeners) => drop(listeners.insert(channel.clone(), (lease, to))),
            None => return Err(Trouble::Late),
        }
        // Side by side with others who subscribe: many at once do not wait for each other's answers.
        let mut sink = ear.sink.clone();
        let subscribed = tokio::time::timeout(PATIENCE, async {
            if !gone.is_empty() {
                sink.unsubscribe(&gone).await?;
            }
            Ok(sink.subscribe(&channel).await?)
        });
        match subscribed.await.unwrap_or(Err(Trouble::Late)) {
            Ok(()) => Ok(hints),
            Err(trouble) => {
                // Nobody is left behind on a connection that does not answer.
                ear.end();
                Err(trouble)
            }
        }
    }

    /// The connection, made if there is none.
    async fn ear(&self) -> Outcome<Arc<Ear>> {
        let mut ear = self.ear.lock().await;
        match ear.as_ref().filter(|ear| !ear.listening.is_finished() && lock(&ear.listeners).is_some()) {
            Some(ear) => Ok(ear.clone()),
            None => Ok(ear.insert(Arc::new(self.connect().await?)).clone()),
        }
    }

    async fn connect(&self) -> Outcome<Ear> {
        let moves = self.target.moves();
        let stream = self.target.connect().await?;
        let (sink, stream) = PubSub::new(self.target.info(), stream).await?.split();
        let listeners: Listeners = Arc::new(Mutex::new(Some(ByChannel::new())));
        let listening = Listening {
            target: self.target.clone(),
            moves,
            sink: sink.clone(),
            stream,
            listeners: listeners.clone(),
            shortest_ttl: self.shortest_ttl.clone(),
        };
        Ok(Ear { sink, listeners, listening: tokio::spawn(listening.run()) })
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
    sink: PubSubSink,
    stream: PubSubStream,
    listeners: Listeners,
    shortest_ttl: Arc<AtomicU64>,
}

impl Listening {
    async fn run(mut self) {
        loop {
            let next = poll_fn(|cx| Pin::new(&mut self.stream).poll_next(cx));
            match tokio::time::timeout(silence(&self.shortest_ttl), next).await {
                Ok(Some(message)) => self.pass_on(message.get_channel_name(), message.get_payload_bytes()),
                Ok(None) => break,
                Err(_) if self.is_well().await => {}
                Err(_) => break,
            }
        }
        *lock(&self.listeners) = None;
    }

    fn pass_on(&self, channel: &str, payload: &[u8]) {
        let mut listeners = lock(&self.listeners);
        let Some(listeners) = &mut *listeners else { return };
        let Some((lease, to)) = listeners.get(channel) else { return };
        // What is not understood is as good as lost: looking again has to do.
        let Some(hint) = hint(*lease, payload) else { return };
        if to.send(hint).is_err() {
            listeners.remove(channel);
        }
    }

    /// After a silence: whether the server still answers, and is still the one to listen to. Leaves the channels of
    /// those who are gone.
    async fn is_well(&mut self) -> bool {
        let gone = leave_the_gone(&self.listeners);
        let asked = async {
            if !gone.is_empty() {
                self.sink.unsubscribe(&gone).await?;
            }
            self.sink.ping::<redis::Value>().await
        };
        let answered = tokio::time::timeout(silence(&self.shortest_ttl), asked).await;
        matches!(answered, Ok(Ok(_))) && self.moves == self.target.moves()
    }
}

/// The channels of those who listen no more.
fn leave_the_gone(listeners: &Listeners) -> Vec<String> {
    let mut listeners = lock(listeners);
    let Some(listeners) = &mut *listeners else { return Vec::new() };
    let gone = listeners.iter().filter(|(_, (_, to))| to.is_closed());
    let gone: Vec<String> = gone.map(|(channel, _)| channel.clone()).collect();
    gone.iter().for_each(|channel| drop(listeners.remove(channel)));
    gone
}

/// `SPAN NAME`: in nanoseconds, how long to leave it to those who come first.
fn hint(lease: LeaseId, payload: &[u8]) -> Option<Hint> {
    let (after, name) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
    let after = Duration::from_nanos(after.parse().ok()?);
    Some(Hint { lease, resource: ResourceName::new(name).ok()?, after })
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
}
