//! What an owner sends to all: who may send, who hears it, and what it carries. A store whose fixture says that it may be
//! silent only has to say who may send.
//!
//! That something did *not* come is shown by a bell: a later message that has to be the first to arrive.

use std::time::Duration;

use tenure_core::{
    Closing, Holder, Message, Payload, Published, Released, ResourceName, StepDownReply, Ticket, Token,
};

use super::Fixture;
use super::reading::HOSTILE;
use super::world::*;
use crate::store::Messages;

/// Longer than any store that works takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Everybody who has subscribed hears it, in the order in which one owner sent it, with its ticket and token.
// req: E15
pub async fn a_message_reaches_every_subscriber_in_order(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    let Some(mut audience) = world.audience([JOB, JOB, JOB]).await else { return };

    for text in ["one", "two", "three"] {
        assert_eq!(world.publish(&a, text.as_bytes()).await, Published::Sent);
    }

    for messages in &mut audience {
        for text in ["one", "two", "three"] {
            let expected = message(&a, 0, text.as_bytes());
            assert_eq!(next(messages).await, expected);
        }
    }
}

/// Any bytes, none at all, and as many as may be.
pub async fn a_message_carries_any_bytes_up_to_4096(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    let every: Vec<u8> = (0..=255).cycle().take(Payload::MOST).collect();
    let samples: [&[u8]; 5] = [b"", b"\0", b"it's \"a\" 'message' \\ $1 {x}", &every, &[0xFF; Payload::MOST]];
    let sent = async |world: &mut World<_>, bytes: &[u8]| {
        assert_eq!(world.publish(&a, bytes).await, Published::Sent, "{} bytes", bytes.len());
    };
    let Some([mut messages]) = world.audience([JOB]).await else {
        for bytes in samples {
            sent(&mut world, bytes).await;
        }
        return;
    };

    for bytes in samples {
        sent(&mut world, bytes).await;
        assert!(next(&mut messages).await.payload.as_bytes() == bytes, "{} bytes", bytes.len());
    }
}

/// A wrong token, another's lease, another resource: nothing is sent.
pub async fn only_the_owner_under_exactly_its_token_publishes(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let (a, b) = (world.holder("a").await, world.wait("b").await);
    let audience = world.audience([JOB]).await;

    let wrong_token = Holder { token: Token(a.token.0 + 1), ..a.clone() };
    let wrong_lease = Holder { lease: b, ..a.clone() };
    let unknown_lease = Holder { lease: fresh(), ..a.clone() };
    let elsewhere = Holder { resource: name("elsewhere"), ..a.clone() };
    for holder in [&wrong_token, &wrong_lease, &unknown_lease, &elsewhere] {
        assert_eq!(world.publish(holder, b"no").await, Published::NotOwner);
    }

    assert_eq!(world.publish(&a, b"bell").await, Published::Sent);
    let Some([mut messages]) = audience else { return };
    assert_eq!(next(&mut messages).await, message(&a, 0, b"bell"));
}

/// What was given up, or taken away, or went with its lease, gives no right to speak.
pub async fn who_has_released_was_evicted_closed_or_ran_out_publishes_nothing(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let audience = world.audience([JOB]).await;
    for end in ["release", "step down", "evict", "close", "run out"] {
        let ttl = if end == "run out" { SHORT } else { LONG };
        let a = world.holder_for("a", ttl).await;
        match end {
            "release" => assert_eq!(world.release(a.lease).await, Released::Free),
            "step down" => assert!(matches!(world.step_down(a.lease).await, Released::Again(_))),
            "evict" => assert_eq!(world.evict(a.token).await, StepDownReply::Done),
            "close" => world.close(a.lease, Closing::Left).await,
            _ => world.pass(SHORT).await,
        }

        assert_eq!(world.publish(&a, b"late").await, Published::NotOwner, "after: {end}");
        world.close(a.lease, Closing::Left).await;
    }

    let b = world.holder("b").await;
    assert_eq!(world.publish(&b, b"bell").await, Published::Sent);
    let Some([mut messages]) = audience else { return };
    assert_eq!(next(&mut messages).await, message(&b, 0, b"bell"));
}

/// Sending marks nobody dead: whoever vouches for an earlier time finds the lease alive still.
pub async fn publishing_marks_nobody(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder_for("a", SHORT).await;
    let in_time = world.now().await;
    world.pass(SHORT).await;

    assert_eq!(world.publish(&a, b"late").await, Published::NotOwner);

    world.judged_by = Some(in_time);
    assert_eq!(world.renew(a.lease).await, kept());
}

/// Each of several owners speaks under its own ticket and token.
pub async fn each_of_several_owners_is_heard_under_its_ticket(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let mut holders = vec![];
    for label in ["a", "b"] {
        let lease = world.open(label).await;
        let token = granted(world.claim_with(lease, 2, 0).await).token;
        holders.push(Holder { lease, resource: name(JOB), token });
    }
    let Some([mut messages]) = world.audience([JOB]).await else { return };

    for (ticket, holder) in holders.iter().enumerate() {
        assert_eq!(world.publish(holder, b"hello").await, Published::Sent);
        assert_eq!(next(&mut messages).await, message(holder, ticket as u32, b"hello"));
    }
}

/// Who has subscribed to one resource does not hear what is sent for another, whatever they are called.
pub async fn a_message_is_heard_for_its_resource_only(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let (longest, wide) = ("n".repeat(200), "é".repeat(100));
    let alike = ["job", "Job", "job ", "1", "01"];
    let names: Vec<&str> = HOSTILE.into_iter().chain([&*longest, &*wide]).chain(alike).collect();
    if world.is_silent() {
        return;
    }
    let mut audience = vec![];
    for resource in &names {
        audience.push(world.subscribe(resource).await);
    }
    let lease = world.open_for("a", HOUR).await;

    let mut expected = vec![];
    for resource in &names {
        let token = granted(world.claim_at(lease, resource).await).token;
        let holder = Holder { lease, resource: name(resource), token };
        // Twice: were one of them heard by another, it would be the first thing that this one hears.
        for text in [b"one", b"two"] {
            assert_eq!(world.publish(&holder, text).await, Published::Sent, "{resource:?}");
        }
        expected.push((message(&holder, 0, b"one"), message(&holder, 0, b"two")));
    }

    for (messages, (one, two)) in audience.iter_mut().zip(expected) {
        assert_eq!(next(messages).await, one);
        assert_eq!(next(messages).await, two);
    }
}

/// One who does not listen any more costs the others nothing.
pub async fn who_stops_listening_disturbs_nobody(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    let Some([gone, mut stays]) = world.audience([JOB, JOB]).await else { return };
    drop(gone);

    assert_eq!(world.publish(&a, b"one").await, Published::Sent);
    // Heard first: a message that is still on its way reaches those, too, who subscribe meanwhile.
    assert_eq!(next(&mut stays).await, message(&a, 0, b"one"));
    let Some([mut comes]) = world.audience([JOB]).await else { return };
    assert_eq!(world.publish(&a, b"two").await, Published::Sent);

    assert_eq!(next(&mut stays).await, message(&a, 0, b"two"));
    assert_eq!(next(&mut comes).await, message(&a, 0, b"two"));
}

// Short words.

impl<F: Fixture> World<F> {
    async fn publish(&mut self, holder: &Holder, bytes: &[u8]) -> Published {
        let payload = Payload::new(bytes).expect("not too much");
        answered(self.store.publish(holder, &payload)).await
    }

    async fn subscribe(&mut self, resource: &str) -> Messages {
        let resource: ResourceName = name(resource);
        answered(self.store.subscribe(&resource)).await
    }

    /// Those who have subscribed to these; nobody where the store may be silent.
    async fn audience<const N: usize>(&mut self, resources: [&str; N]) -> Option<[Messages; N]> {
        if self.is_silent() {
            return None;
        }
        let mut audience = vec![];
        for resource in resources {
            audience.push(self.subscribe(resource).await);
        }
        audience.try_into().ok()
    }
}

fn message(holder: &Holder, ticket: u32, bytes: &[u8]) -> Message {
    let payload = Payload::new(bytes).expect("not too much");
    Message { resource: holder.resource.clone(), ticket: Ticket(ticket), token: holder.token, payload }
}

/// The next message, waited for with a limit.
async fn next(messages: &mut Messages) -> Message {
    match tokio::time::timeout(PATIENCE, messages.recv()).await {
        Ok(Some(message)) => message,
        Ok(None) => panic!("the stream of messages ended"),
        Err(_) => panic!("no message came within {PATIENCE:?}"),
    }
}
