//! Lives of a store: what is refused to those who come from another one, and what outlives a restart.

use std::time::Duration;

use tenure_core::{Incarnation, Key, Version};
use tokio::time::Instant;

use super::super::Restarted;
use super::BackendFixture;
use super::harness::*;
use crate::store::backend::{Change, Committed, Listing};

/// Others come from the past, from the future, from next door.
pub async fn a_commit_for_another_life_changes_nothing_and_tells_the_life(fixture: impl BackendFixture) {
    let (store, channel) = (Handle::of(&fixture).await, channel());
    let mut listener = Listener::to(&store, &[&channel]).await;
    let (old, new, other) = (resource("old"), resource("new"), resource("other"));
    let before = store.create(&old, "before").await;
    store.create(&other, "before").await;
    let (shown, life) = (store.read_one(&old).await, store.life.0);
    let change = Change {
        history: vec![entry("old", "it happened")],
        signals: vec![signal(&[&channel], "it happened")],
        ..write(version(), "after", &[(&old, before)])
    };
    let wrong = write(version(), "after", &[(&other, version())]);
    let create = write(version(), "after", &[(&new, NONE)]);
    let changes = [change.clone(), wrong, create, sending(&[&channel], "it happened")];

    for wrong_life in [0, 1, life ^ 1, life ^ (1 << 64), life ^ (1 << 127), !life, u128::MAX] {
        let commits = answered(store.backend.commit(Incarnation(wrong_life), &changes)).await;

        assert_eq!(commits.life, store.life, "in the life {wrong_life:x}");
        assert_eq!(commits.now.is_some(), store.can.clock);
        assert_eq!(commits.done, vec![Committed::Conflict(vec![]); 4], "in the life {wrong_life:x}");
        assert_eq!(store.read_one(&old).await, shown);
        assert_eq!(store.read_one(&new).await.version, NONE);
    }
    let none = answered(store.backend.commit(Incarnation(!life), &[])).await;
    assert_eq!((none.life, none.done), (store.life, vec![]));

    assert_eq!(store.past().await, Vec::<String>::new());
    store.send(&[&channel], "last").await;
    assert_eq!(listener.heard_before("last").await, Vec::<String>::new());
    store.apply(&change).await;
}

/// In the same life nothing is lost. In another one anything may be, but what is there is what was once written, and
/// nobody changes it with what he knows from before.
pub async fn a_restart_keeps_everything_or_begins_another_life(mut fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let keys: Vec<Key> = (0..30).map(lease).chain((0..30).map(|n| resource(&format!("r{n}")))).collect();
    let mut written: Vec<Vec<Version>> = vec![Vec::new(); keys.len()];
    for round in 0..2 {
        for (key, versions) in keys.iter().zip(&mut written) {
            let (next, last) = (version(), versions.last().copied().unwrap_or(NONE));
            let text_now = format!("{key:?} {}", next.0);
            let record = write(next, &text_now, &[(key, last)]);
            let lasting = round == 1;
            store.apply(&Change { history: vec![entry("job", &text_now)], lasting, ..record }).await;
            versions.push(next);
        }
    }
    store.apply(&delete(&[(&keys[0], written[0][1])])).await;
    let before = (store.read(&keys).await, store.list(Listing::Leases).await, store.history(None, 100).await);
    let newest = store.snapshot(&[]).await.now;

    let restarted = fixture.restart().await;

    let after = Handle::of(&fixture).await;
    assert_eq!(after.life == store.life, restarted == Restarted::SameLife, "the fixture says {restarted:?}");
    let shown = (after.read(&keys).await, after.list(Listing::Leases).await, after.history(None, 100).await);
    let next = |index: usize| write(version(), "next", &[(&keys[index], before.0[index].version)]);
    let late = answered(after.backend.commit(store.life, &[next(1), next(40)])).await;
    assert_eq!(late.life, after.life);
    match restarted {
        Restarted::SameLife => {
            assert_eq!(shown, before);
            assert!(after.snapshot(&[]).await.now >= newest, "the clock went back in the same life");
            assert!(late.done.iter().all(is_done), "{late:?}");
        }
        Restarted::NewLife => {
            assert_eq!(late.done, vec![Committed::Conflict(vec![]); 2]);
            for (record, versions) in shown.0.iter().zip(&written) {
                let known = record.version == NONE || versions.contains(&record.version);
                assert!(known, "{record:?} was never written");
                let text_then = format!("{:?} {}", record.key, record.version.0);
                assert!(text(record).is_none_or(|text| text == text_then), "{record:?} has another text");
            }
            let record = &shown.0[40];
            after.apply(&write(version(), "next", &[(&record.key, record.version)])).await;
        }
    }
}

pub async fn a_handle_from_before_a_restart_works_again(mut fixture: impl BackendFixture) {
    let before = Handle::of(&fixture).await;
    let key = resource("job");
    before.create(&key, "text").await;

    fixture.restart().await;

    let after = Handle::of(&fixture).await;
    let until = Instant::now() + PATIENCE;
    let snapshot = loop {
        // It may have to notice first that its connection is lost.
        match tokio::time::timeout(PATIENCE, before.backend.read(std::slice::from_ref(&key))).await {
            Ok(Ok(snapshot)) => break snapshot,
            Ok(Err(error)) => assert!(Instant::now() < until, "it does not recover: {error} ({error:?})"),
            Err(_) => panic!("the store did not answer within {PATIENCE:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((snapshot.life, &snapshot.records[0]), (after.life, &after.read_one(&key).await));
    let change = write(version(), "next", &[(&key, snapshot.records[0].version)]);
    let commits = answered(before.backend.commit(after.life, std::slice::from_ref(&change))).await;
    assert!(is_done(&commits.done[0]), "{commits:?}");
    assert_eq!(after.read_one(&key).await.version, change.put[0].version);
}

/// The signals of before end, or they go on. Either way one can listen again.
pub async fn after_a_restart_a_listener_hears_or_knows_that_it_does_not(mut fixture: impl BackendFixture) {
    let (before, channel, anew) = (Handle::of(&fixture).await, channel(), channel());
    let mut listener = Listener::to(&before, &[&channel]).await;
    before.send(&[&channel], "before").await;
    assert_eq!(listener.next().await.text.as_str(), "before");

    fixture.restart().await;

    let after = Handle::of(&fixture).await;
    let until = Instant::now() + PATIENCE;
    loop {
        after.send(&[&channel], "after").await;
        // Short, because what was sent may be lost with the connection; then it is sent again.
        let heard = tokio::time::timeout(Duration::from_millis(100), listener.signals.recv()).await;
        match heard {
            Ok(None) => break,
            Ok(Some(heard)) if heard.text.as_str() == "after" => break,
            _ => assert!(Instant::now() < until, "it hears nothing, and was not told so"),
        }
    }
    let mut again = Listener::to(&after, &[&anew]).await;
    after.send(&[&anew], "anew").await;
    assert_eq!(again.next().await.text.as_str(), "anew");
}

/// Who finds no `meta` record makes one, and asks whether there was one before.
pub async fn a_store_that_lost_data_does_not_say_that_it_lost_nothing(mut fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let hour = Duration::from_secs(3600);
    answered(store.backend.lost_nothing(hour)).await;
    store.create(&Key::Meta, "meta").await;

    fixture.restart().await;

    let after = Handle::of(&fixture).await;
    let lost = after.read_one(&Key::Meta).await.version == NONE;
    let says_so = answered(after.backend.lost_nothing(hour)).await;
    assert!(!(lost && says_so), "the record is lost, and the store says that it lost nothing");
}
