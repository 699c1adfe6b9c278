//! What an owner sends to all workers of its namespace, and what they make of it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::conformance::Relay;
use tenure::messages::{Losses, Message, Published};
use tenure::store::{MemoryStore, OpenStore, Payload, Pending, Store};
use tenure::testing::ManualClock;
use tenure::types::{ResourceName, Ticket, Token};
use tenure::{Error, ErrorKind, Tickets, Worker};
use testkit::soon;
use tokio::sync::mpsc;

async fn worker_on(store: Arc<dyn Store>) -> Worker {
    Worker::on(OpenStore::new(store).expect("a thread")).connect().await.expect("a worker")
}

/// Three workers on one store: all hear what the owner says, and what the next one says.
async fn all_workers_hear_what_each_owner_says(url: &str) {
    let mut workers = vec![];
    for _ in 0..3 {
        workers.push(Worker::connect(url).await.expect("a worker"));
    }
    let mut audience = vec![];
    for worker in &workers {
        audience.push(soon(worker.subscribe("echo")).await.expect("a subscription"));
    }

    let mut said = vec![];
    for worker in &workers[..2] {
        let own = soon(worker.campaign("echo").acquire()).await.expect("a ticket");
        for text in [&b"one"[..], b"two"] {
            assert_eq!(soon(own.publish(text)).await.expect("an answer"), Published::Sent);
            said.push((own.token(), text));
        }
        own.release().await;
    }

    for messages in &mut audience {
        for (token, text) in &said {
            let message = soon(messages.next()).await.expect("a message");
            assert_eq!((message.token.0, message.bytes()), (*token, *text));
        }
        assert_eq!(messages.losses(), Losses::default());
    }
    for worker in workers {
        worker.shutdown().await;
    }
    for messages in &mut audience {
        assert!(soon(messages.next()).await.is_none(), "the worker has ended");
    }
}

// req: E15
#[tokio::test]
async fn all_workers_hear_what_each_owner_says_in_memory() {
    all_workers_hear_what_each_owner_says("memory:fanout").await;
}

// req: E15
#[cfg(all(feature = "sqlite", target_os = "linux"))]
#[tokio::test]
async fn all_workers_hear_what_each_owner_says_on_sqlite() {
    let folder = testkit::folder();
    all_workers_hear_what_each_owner_says(&format!("sqlite:{}", folder.path().join("tenure.db").display()))
        .await;
}

// req: E15
#[tokio::test]
async fn who_has_lost_publishes_nothing() {
    let clock = ManualClock::new();
    let opened = OpenStore::memory(Arc::new(MemoryStore::by_hand(clock.clone()))).expect("a thread");
    let worker = Worker::on(opened).connect().await.expect("a worker");
    let mut messages = soon(worker.subscribe("echo")).await.expect("a subscription");
    let own = soon(worker.campaign("echo").acquire()).await.expect("a ticket");

    assert_eq!(own.publish(b"hello").await.expect("an answer"), Published::Sent);
    clock.advance(Duration::from_secs(3600));
    assert_eq!(own.publish(b"late").await.expect("an answer"), Published::NotOwner);
    drop(own);
    let next = soon(worker.campaign("echo").acquire()).await.expect("a ticket");
    assert_eq!(next.publish(b"bell").await.expect("an answer"), Published::Sent);

    for expected in [&b"hello"[..], b"bell"] {
        assert_eq!(soon(messages.next()).await.expect("a message").bytes(), expected);
    }
}

// req: E15
#[tokio::test]
async fn a_campaign_publishes_while_it_owns() {
    let worker = Worker::connect("memory:").await.expect("a worker");
    let other = Worker::connect("memory:").await.expect("a worker");
    let mut messages = soon(other.subscribe("echo")).await.expect("a subscription");
    let mut builder = worker.campaign("echo");
    let mut changes = builder.changes();
    let campaign = builder.obtain(async |_| {}, async |_| {}).expect("it competes");
    while !matches!(soon(changes.next()).await.expect("a change"), tenure::Change::Acquired(_)) {}
    let waits = other.campaign("echo").obtain(async |_| {}, async |_| {}).expect("it competes");

    assert_eq!(waits.publish(b"no").await.expect("an answer"), Published::NotOwner);
    assert_eq!(campaign.publish(b"yes").await.expect("an answer"), Published::Sent);

    assert_eq!(soon(messages.next()).await.expect("a message").bytes(), b"yes");
    assert_eq!(waits.publish(&[0; 4097]).await.expect_err("too many").kind(), ErrorKind::Refused);
}

// req: E15
#[tokio::test]
async fn too_many_bytes_are_refused_with_the_limit_and_nobody_speaks_for_a_resource_without_limit() {
    let worker = worker_on(Arc::new(MemoryStore::default())).await;
    let own = soon(worker.campaign("echo").acquire()).await.expect("a ticket");
    let all = soon(worker.campaign("all").tickets(Tickets::All).acquire()).await.expect("a ticket");

    let too_many = own.publish(&[0; 4097]).await.expect_err("too many");
    let nobody = all.publish(b"hello").await.expect_err("nobody owns it alone");

    assert_eq!((too_many.kind(), nobody.kind()), (ErrorKind::Refused, ErrorKind::Refused));
    assert!(too_many.to_string().ends_with("at most 4096 bytes"), "{too_many}");
    assert_eq!(own.publish(&[0; 4096]).await.expect("an answer"), Published::Sent);
}

// What the receiver makes of a store that is late, silent or gone.

/// A store whose subscriptions are in the hands of the test.
struct ByHand {
    inner: MemoryStore,
    prepared: Mutex<VecDeque<Result<tenure::store::Messages, Error>>>,
}

impl ByHand {
    /// A store with so many subscriptions, and what they are told by.
    fn with(count: usize) -> (Arc<Self>, Vec<mpsc::UnboundedSender<Message>>) {
        let (to, prepared): (Vec<_>, VecDeque<_>) =
            (0..count).map(|_| mpsc::unbounded_channel()).map(|(to, messages)| (to, Ok(messages))).unzip();
        (Arc::new(Self { inner: MemoryStore::default(), prepared: Mutex::new(prepared) }), to)
    }
}

impl fmt::Debug for ByHand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByHand")
    }
}

impl Relay for ByHand {
    fn behind(&self) -> &dyn Store {
        &self.inner
    }

    fn subscribe<'a>(&'a self, _: &'a ResourceName) -> Pending<'a, tenure::store::Messages> {
        let next = self.prepared.lock().expect("no panic").pop_front();
        Box::pin(async move { next.unwrap_or_else(|| Err(Error::unavailable("there is no more"))) })
    }
}

fn message(ticket: u32, token: u64, bytes: &[u8]) -> Message {
    let resource = ResourceName::new("echo").expect("a name");
    let payload = Payload::new(bytes).expect("not too much");
    Message { resource, ticket: Ticket(ticket), token: Token(token), payload }
}

// req: E15
#[tokio::test]
async fn what_comes_under_a_lower_token_of_the_same_ticket_is_left_out() {
    let (store, to) = ByHand::with(1);
    let worker = worker_on(store).await;
    let mut messages = soon(worker.subscribe("echo")).await.expect("a subscription");

    let sent = [(0, 5), (0, 4), (1, 2), (0, 5), (0, 6), (0, 5), (1, 1), (1, 3)];
    for (ticket, token) in sent {
        to[0].send(message(ticket, token, b"")).expect("it listens");
    }

    for (ticket, token) in [(0, 5), (1, 2), (0, 5), (0, 6), (1, 3)] {
        let heard = soon(messages.next()).await.expect("a message");
        assert_eq!((heard.ticket.0, heard.token.0), (ticket, token));
    }
    assert_eq!(messages.losses().stale, 3);
}

#[tokio::test]
async fn a_subscription_that_is_lost_is_made_again_and_remembers_the_tokens() {
    let (store, mut to) = ByHand::with(2);
    store.prepared.lock().expect("no panic").insert(1, Err(Error::unavailable("not yet")));
    let worker = worker_on(store.clone()).await;
    let mut messages = soon(worker.subscribe("echo")).await.expect("a subscription");
    let (first, second) = (to.remove(0), to.remove(0));
    first.send(message(0, 5, b"before")).expect("it listens");
    assert_eq!(soon(messages.next()).await.expect("a message").bytes(), b"before");

    drop(first);
    second.send(message(0, 4, b"late")).expect("it will listen");
    second.send(message(0, 6, b"after")).expect("it will listen");

    assert_eq!(soon(messages.next()).await.expect("a message").bytes(), b"after");
    let losses = messages.losses();
    assert_eq!((losses.interruptions, losses.stale, losses.dropped), (1, 1, 0));
    assert!(store.prepared.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn who_does_not_take_its_messages_loses_the_oldest_and_learns_how_many() {
    let (store, to) = ByHand::with(1);
    let worker = worker_on(store).await;
    let mut messages = soon(worker.subscribe("echo")).await.expect("a subscription");

    for number in 0..2_000_u32 {
        to[0].send(message(0, 1, &number.to_le_bytes())).expect("it listens");
    }
    to[0].send(message(0, 1, b"bell")).expect("it listens");
    let all_came = async {
        while messages.losses().dropped < 2_001 - 1_024 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(all_came).await;

    for number in 2_001 - 1_024..2_000_u32 {
        assert_eq!(soon(messages.next()).await.expect("a message").bytes(), number.to_le_bytes());
    }
    assert_eq!(soon(messages.next()).await.expect("a message").bytes(), b"bell");
    assert_eq!(messages.losses().dropped, 2_001 - 1_024);
}

#[tokio::test]
async fn a_subscription_ends_at_the_store_when_it_is_dropped_and_is_refused_after_a_shutdown() {
    let (store, to) = ByHand::with(1);
    let worker = worker_on(store).await;
    let messages = soon(worker.subscribe("echo")).await.expect("a subscription");
    assert!(!to[0].is_closed());

    drop(messages);
    soon(to[0].closed()).await;

    let error = soon(worker.subscribe("echo")).await.expect_err("there is no more");
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unavailable, "there is no more"));
    worker.shutdown().await;
    assert_eq!(soon(worker.subscribe("echo")).await.expect_err("it is over").kind(), ErrorKind::Refused);
}
