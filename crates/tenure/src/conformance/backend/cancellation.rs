//! Pending answers that are dropped before they are there: the attempt is given up, and nothing else.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tenure_core::Key;

use super::BackendFixture;
use super::harness::*;
use crate::store::Pending;
use crate::store::backend::{Change, Committed, Stored};

/// Looks at a pending answer so many times, then drops it. Says whether it was there.
async fn give_up<T>(mut pending: Pending<'_, T>, looks: u64) -> bool {
    for look in 0..looks {
        if poll_fn(|context| Poll::Ready(pending.as_mut().poll(context).is_ready())).await {
            return true;
        }
        match look % 3 {
            0 => tokio::task::yield_now().await,
            n => tokio::time::sleep(Duration::from_micros(n * 150)).await,
        }
    }
    false
}

pub async fn a_read_that_is_given_up_disturbs_nobody(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let keys: Vec<Key> = (0..50).map(lease).collect();
    let version = store.create(&keys[7], "text").await;

    for round in 0..40 {
        give_up(store.backend.read(&keys), round % 8).await;
        give_up(store.backend.history(None, 10), round % 3).await;

        // What is asked next is answered, and not with what was asked before.
        let record = store.read_one(&keys[7]).await;
        assert_eq!((record.version, text(&record)), (version, Some("text")));
    }
}

/// Whether it was applied is found out by a commit that expects the same: it is applied only if the first never was.
pub async fn a_commit_that_is_given_up_is_applied_as_a_whole_or_not_at_all(fixture: impl BackendFixture) {
    let (store, other) = (Handle::of(&fixture).await, Handle::another(&fixture).await);
    let mut applied = Vec::new();
    for round in 0..60 {
        let keys = [lease(round), resource(&format!("r{round}")), Key::Runs(name(&format!("r{round}")))];
        let records = keys.each_ref().map(|key| (key, NONE));
        let (first, second) = (version(), version());
        let history = vec![entry("job", &round.to_string())];
        let change = Change { history, ..write(first, "first", &records) };
        let looks = u64::try_from(round % 10).expect("small");
        let was_there = give_up(store.backend.commit(store.life, std::slice::from_ref(&change)), looks).await;

        let finder = if round % 2 == 0 { &store } else { &other };
        match finder.commit_one(&write(second, "second", &records)).await {
            Committed::Done { .. } => {
                assert!(!was_there, "round {round}: answered, and not there");
                let after = finder.read(&keys).await;
                assert!(after.iter().all(|record| record.version == second), "round {round}: {after:?}");
            }
            Committed::Conflict(differing) if store.can.together => {
                let whole = differing.len() == 3 && differing.iter().all(|record| record.version == first);
                assert!(whole, "round {round}: half of it is there: {differing:?}");
                applied.push(round.to_string());
            }
            Committed::Conflict(differing) => {
                let known = |record: &Stored| [first, second].contains(&record.version);
                assert!(!differing.is_empty() && differing.iter().all(known), "round {round}: {differing:?}");
            }
        }
    }

    if store.can.together {
        assert_eq!(store.past().await, applied, "the history has what was applied, once");
    }
}

pub async fn listening_that_is_given_up_can_be_begun_again(fixture: impl BackendFixture) {
    let (store, channel) = (Handle::of(&fixture).await, channel());
    for looks in 0..6 {
        give_up(store.backend.listen(), looks).await;
    }

    let mut listener = Listener::on(&store).await;
    for looks in 0..6 {
        give_up(listener.subscriptions.follow(channel.clone()), looks).await;
    }
    listener.follow(&channel).await;
    store.send(&[&channel], "text").await;

    assert_eq!(listener.next().await.text.as_str(), "text");
}
