//! What an owner sends to all workers of its namespace, on the memory store.

use std::sync::Arc;
use std::time::Duration;

use tenure::store::{MemoryStore, Opened, Store};
use tenure::{ClockByHand, Kind, Published, ResourceName, Tickets, Worker};

struct Stage {
    clock: ClockByHand,
    store: Arc<MemoryStore>,
    opened: Opened,
}

impl Stage {
    fn new() -> Self {
        let clock = ClockByHand::new();
        let store = Arc::new(MemoryStore::by_hand(clock.clone()));
        let opened = Opened::memory(store.clone()).expect("a thread");
        Self { clock, store, opened }
    }

    async fn worker(&self) -> Worker {
        Worker::on(self.opened.clone()).connect().await.expect("a worker")
    }
}

// req: E15
#[tokio::test]
async fn what_the_owner_publishes_carries_its_token_and_who_has_lost_publishes_nothing() {
    let stage = Stage::new();
    let name = ResourceName::new("echo").expect("a name");
    let mut messages = stage.store.subscribe(&name).await.expect("a subscription");
    let own = stage.worker().await.campaign("echo").acquire().await.expect("a ticket");

    assert_eq!(own.publish(b"hello").await.expect("an answer"), Published::Sent);
    stage.clock.advance(Duration::from_secs(3600));
    assert_eq!(own.publish(b"late").await.expect("an answer"), Published::NotOwner);

    let heard = messages.recv().await.expect("a message");
    assert_eq!((heard.token.0, heard.payload.as_bytes()), (own.token(), &b"hello"[..]));
    assert!(messages.try_recv().is_err());
}

// req: E15
#[tokio::test]
async fn too_many_bytes_are_refused_with_the_limit_and_nobody_speaks_for_a_resource_without_limit() {
    let stage = Stage::new();
    let worker = stage.worker().await;
    let own = worker.campaign("echo").acquire().await.expect("a ticket");
    let all = worker.campaign("all").tickets(Tickets::All).acquire().await.expect("a ticket");

    let too_many = own.publish(&[0; 4097]).await.expect_err("too many");
    let nobody = all.publish(b"hello").await.expect_err("nobody owns it alone");

    assert_eq!((too_many.kind(), nobody.kind()), (Kind::Refused, Kind::Refused));
    assert!(too_many.to_string().ends_with("at most 4096 bytes"), "{too_many}");
    assert_eq!(own.publish(&[0; 4096]).await.expect("an answer"), Published::Sent);
}
