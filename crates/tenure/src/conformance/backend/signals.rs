//! Signals: who hears what, and when.

use std::time::Duration;

use tenure_core::Key;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::BackendFixture;
use super::harness::*;
use crate::store::backend::{Change, Committed, Heard, Stored};

pub async fn a_signal_is_heard_by_all_who_follow_its_channel(fixture: impl BackendFixture) {
    let handles = Handle::several(&fixture, 4).await;
    let (followed, other) = (channel(), channel());
    let mut listeners = Vec::new();
    for handle in &handles[1..] {
        listeners.push(Listener::to(handle, &[&followed]).await);
    }
    let mut elsewhere = Listener::to(&handles[0], &[&other]).await;

    for handle in &handles {
        handle.send(&[&followed], "to all").await;
    }
    handles[0].send(&[&followed], "last").await;
    handles[0].send(&[&other], "last").await;

    for listener in &mut listeners {
        assert_eq!(listener.heard_before("last").await, ["to all"; 4]);
    }
    assert_eq!(elsewhere.heard_before("last").await, Vec::<String>::new());
}

pub async fn a_signal_carries_its_text_and_the_stamp_of_its_change(fixture: impl BackendFixture) {
    let (store, channels) = (Handle::of(&fixture).await, [channel(), channel()]);
    let mut listener = Listener::to(&store, &[&channels[0], &channels[1]]).await;
    let texts = [
        "text",
        "",
        " ",
        "null",
        "{\"a\": [1, 2]}",
        "it's \\ \"quoted\"",
        "line\nfeed\t\u{1}\u{7f}",
        HOSTILE,
    ];

    for (index, text) in texts.into_iter().enumerate() {
        let channel = &channels[index % 2];
        let signals = vec![signal(&[channel], text)];
        let change = write(version(), "text", &[(&lease(index as u128), NONE)]);
        let stamp = store.apply(&Change { signals, ..change }).await;

        let expected = Heard { channel: channel.clone(), stamp, text: text.into() };
        let heard = listener.next().await;
        assert_eq!(heard.text.as_str(), text);
        assert_eq!(heard, expected);
    }
}

pub async fn a_signal_of_the_greatest_length_is_heard(fixture: impl BackendFixture) {
    let (store, channel) = (Handle::of(&fixture).await, channel());
    let mut listener = Listener::to(&store, &[&channel]).await;
    let most = store.can.most_signal_bytes.min(1_000_000);

    for text in ["x".repeat(most), "é".repeat(most / 2), "'\\\"".repeat(most / 3)] {
        store.send(&[&channel], &text).await;

        assert!(listener.next().await.text.as_str() == text, "{} bytes came otherwise", text.len());
    }
}

pub async fn only_what_is_sent_after_following_is_heard(fixture: impl BackendFixture) {
    let (store, other) = (Handle::of(&fixture).await, Handle::another(&fixture).await);
    let channel = channel();
    store.send(&[&channel], "before listening").await;
    let mut listener = Listener::on(&other).await;
    store.send(&[&channel], "before following").await;

    listener.follow(&channel).await;
    for text in ["one", "two", "three"] {
        store.send(&[&channel], text).await;
    }

    assert_eq!(listener.heard_before("three").await, ["one", "two"]);
}

/// Forgetting is not waited for; so it may be heard a little longer.
pub async fn a_channel_that_was_forgotten_is_not_heard(fixture: impl BackendFixture) {
    let (store, other) = (Handle::of(&fixture).await, Handle::another(&fixture).await);
    let (kept, forgotten) = (channel(), channel());
    let mut listener = Listener::to(&other, &[&kept, &forgotten]).await;
    let mut staying = Listener::to(&store, &[&forgotten]).await;

    listener.subscriptions.forget(&forgotten);

    let until = Instant::now() + PATIENCE;
    for round in 0.. {
        let (text, last) = (format!("{round}"), format!("{round} last"));
        store.send(&[&forgotten], &text).await;
        store.send(&[&kept], &last).await;
        let heard = listener.heard_before(&last).await;
        assert_eq!(staying.next().await.text.as_str(), text, "others are not concerned");
        if heard.is_empty() {
            break;
        }
        assert!(Instant::now() < until, "it still hears {heard:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    listener.subscriptions.forget(&forgotten);
    listener.subscriptions.forget(&channel());
    store.send(&[&kept], "last").await;
    assert_eq!(listener.heard_before("last").await, Vec::<String>::new());
}

pub async fn a_channel_that_was_forgotten_can_be_followed_again(fixture: impl BackendFixture) {
    let (store, channel) = (Handle::of(&fixture).await, channel());
    let mut listener = Listener::to(&store, &[&channel]).await;

    for round in 0..10 {
        listener.subscriptions.forget(&channel);
        listener.follow(&channel).await;
        let text = round.to_string();
        store.send(&[&channel], &text).await;

        assert_eq!(listener.next().await.text.as_str(), text);
    }
}

pub async fn following_a_channel_twice_changes_nothing(fixture: impl BackendFixture) {
    let (store, channel) = (Handle::of(&fixture).await, channel());
    let mut listener = Listener::to(&store, &[&channel, &channel]).await;
    listener.follow(&channel).await;

    for text in ["one", "two", "three"] {
        store.send(&[&channel], text).await;
    }

    assert_eq!(listener.heard_before("three").await, ["one", "two"]);
    listener.subscriptions.forget(&channel);
    listener.follow(&channel).await;
    store.send(&[&channel], "again").await;
    assert_eq!(listener.next().await.text.as_str(), "again");
}

/// To the first that somebody listens to or, where the store cannot tell, to the first.
pub async fn a_signal_goes_to_one_of_its_channels(fixture: impl BackendFixture) {
    let (store, other) = (Handle::of(&fixture).await, Handle::another(&fixture).await);
    let (nobody, first, second) = (channel(), channel(), channel());
    let mut one = Listener::to(&store, &[&first]).await;
    let mut two = Listener::to(&other, &[&second]).await;

    store.send(&[&first, &second], "both").await;
    store.send(&[&second, &first], "other way round").await;
    store.send(&[&nobody, &first, &second], "one of three").await;
    store.send(&[&nobody], "nobody").await;
    store.send(&[&first, &nobody], "first of two").await;
    for channel in [&first, &second] {
        store.send(&[channel], "last").await;
    }

    let (heard_one, heard_two) = (one.heard_before("last").await, two.heard_before("last").await);
    let mut knows = heard_one.clone();
    knows.retain(|text| text != "one of three");
    assert_eq!(knows, ["both", "first of two"], "{heard_one:?}");
    assert_eq!(heard_two, ["other way round"]);
    if heard_one.len() == 3 {
        assert_eq!(heard_one[1], "one of three");
    }
}

/// If the store can tell.
pub async fn a_signal_passes_over_a_channel_whose_listener_has_gone(fixture: impl BackendFixture) {
    let (store, other) = (Handle::of(&fixture).await, Handle::another(&fixture).await);
    let (nobody, gone, forgotten, here) = (channel(), channel(), channel(), channel());
    let mut listener = Listener::to(&store, &[&here, &forgotten]).await;
    let leaving = Listener::to(&other, &[&gone]).await;
    store.send(&[&nobody, &here], "can it tell?").await;
    store.send(&[&here], "last").await;
    let can_tell = !listener.heard_before("last").await.is_empty();

    drop(leaving);
    listener.subscriptions.forget(&forgotten);

    if !can_tell {
        return;
    }
    let until = Instant::now() + PATIENCE;
    loop {
        store.send(&[&gone, &here], "gone").await;
        store.send(&[&forgotten, &here], "forgotten").await;
        store.send(&[&here], "last").await;
        // It may take a while until the store knows; meanwhile they go to where nobody listens.
        let heard = listener.until("last").await;
        if heard.len() == 2 && heard.iter().all(|heard| heard.channel == here) {
            return;
        }
        assert!(Instant::now() < until, "it goes to those who have gone");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn a_change_that_is_not_applied_sends_nothing(fixture: impl BackendFixture) {
    let (store, channel) = (Handle::of(&fixture).await, channel());
    let mut listener = Listener::to(&store, &[&channel]).await;
    let keys: Vec<Key> = (0..9).map(lease).collect();
    for key in &keys {
        store.create(key, "text").await;
    }
    let change = |(index, record): (usize, &Stored)| {
        let expected = if index % 3 == 1 { version() } else { record.version };
        let signals = vec![signal(&[&channel], &index.to_string())];
        Change { signals, ..write(version(), "next", &[(&record.key, expected)]) }
    };
    let changes: Vec<Change> = store.read(&keys).await.iter().enumerate().map(change).collect();

    let mut sent = Vec::new();
    for (index, some) in changes.chunks(store.can.most_changes).enumerate() {
        let done = store.commit(some).await;
        let indices = done.iter().enumerate().filter(|(_, done)| matches!(done, Committed::Done { .. }));
        sent.extend(indices.map(|(n, _)| (index * store.can.most_changes + n).to_string()));
    }

    store.send(&[&channel], "last").await;
    assert_eq!(sent, ["0", "2", "3", "5", "6", "8"]);
    assert_eq!(listener.heard_before("last").await, sent);
}

/// A signal is sent once its change is durable; so who is woken by it does not look too early.
pub async fn what_a_signal_tells_of_can_be_read(fixture: impl BackendFixture) {
    const ROUNDS: u128 = 40;
    let (store, other) = (Handle::of(&fixture).await, Handle::another(&fixture).await);
    let channel = channel();
    let mut listener = Listener::to(&other, &[&channel]).await;

    let writer = tokio::spawn({
        let (store, channel) = (store.clone(), channel.clone());
        async move {
            for n in 0..ROUNDS {
                let signals = vec![signal(&[&channel], &n.to_string())];
                let change =
                    write(version(), "text", &[(&lease(n), NONE), (&resource(&n.to_string()), NONE)]);
                store.apply(&Change { signals, ..change }).await;
            }
        }
    });
    for n in 0..ROUNDS {
        assert_eq!(listener.next().await.text.as_str(), n.to_string());
        let records = other.read(&[resource(&n.to_string()), lease(n)]).await;
        assert!(records.iter().all(|record| record.version != NONE), "{records:?}");
    }

    writer.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
}

/// Within a change, within a commit, and from one commit to the next, on several channels.
pub async fn signals_of_one_sender_come_in_order(fixture: impl BackendFixture) {
    let (store, other) = (Handle::of(&fixture).await, Handle::another(&fixture).await);
    let channels = [channel(), channel(), channel()];
    let mut listener = Listener::to(&other, &channels.each_ref()).await;
    let mut number = 0..;
    let mut next = || {
        let number: usize = number.next().expect("endless");
        signal(&[&channels[number % 3]], &number.to_string())
    };

    for _ in 0..5 {
        let mut sending = || Change { signals: vec![next(), next()], ..sending(&[], "") };
        let batch: Vec<Change> = (0..10.min(store.can.most_changes)).map(|_| sending()).collect();
        store.apply_all(&batch).await;
        store.apply(&sending()).await;
    }

    let sent = next().text.as_str().parse().expect("a number");
    for number in 0..sent {
        let heard = listener.next().await;
        assert_eq!((heard.text.as_str(), &heard.channel), (&*number.to_string(), &channels[number % 3]));
    }
}

/// In bursts of a whole commit; each sender's in order.
pub async fn many_signals_of_many_senders_are_all_heard(fixture: impl BackendFixture) {
    const SENDERS: usize = 4;
    let handles = Handle::several(&fixture, 3).await;
    let channel = channel();
    let mut listener = Listener::to(&handles[0], &[&channel]).await;
    let burst = handles[0].can.most_changes.min(250);
    let mut tasks = JoinSet::new();
    for sender in 0..SENDERS {
        let (handle, channel) = (handles[sender % handles.len()].clone(), channel.clone());
        tasks.spawn(async move {
            let text = |n: usize| format!("{sender} {n}");
            let batch: Vec<Change> = (0..burst).map(|n| sending(&[&channel], &text(n))).collect();
            handle.apply_all(&batch).await;
            for n in burst..burst + 20 {
                handle.send(&[&channel], &text(n)).await;
            }
        });
    }

    let mut expected = [0; SENDERS];
    for _ in 0..SENDERS * (burst + 20) {
        let heard = listener.next().await;
        let (sender, number) = heard.text.as_str().split_once(' ').expect("two numbers");
        let sender: usize = sender.parse().expect("a number");
        assert_eq!(number, expected[sender].to_string(), "from sender {sender}");
        expected[sender] += 1;
    }

    all_done(tasks).await;
}
