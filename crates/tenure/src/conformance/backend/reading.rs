//! What a read shows.

use tenure_core::{Key, LeaseId};
use tokio::task::JoinSet;

use super::BackendFixture;
use super::harness::*;
use crate::store::Impact;

pub async fn a_record_that_was_never_written_is_at_version_none(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let info = Key::Info(LeaseId(1));

    let records =
        store.read(&[Key::Meta, Key::Ttls, lease(1), info, resource("job"), Key::Runs(name("job"))]).await;

    assert!(records.iter().all(|record| record.version == NONE), "{records:?}");
}

pub async fn records_come_in_the_order_of_the_keys(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let mut keys: Vec<Key> = (0..120).map(|n| resource(&format!("r{n}"))).collect();
    keys.extend((0..120).map(lease));
    let written: Vec<_> =
        keys.iter().step_by(3).map(|key| write(version(), &format!("{key:?}"), &[(key, NONE)])).collect();
    store.apply_all(&written).await;

    // One in three exists; neither the names nor the kinds are in order.
    shuffle(&mut keys, &mut Chance::new(1));
    let records = store.read(&keys).await;

    let version_of = |key: &Key| written.iter().find(|change| change.put[0].key == *key);
    for (key, record) in keys.iter().zip(records) {
        let expected = version_of(key).map(|change| (change.put[0].version, change.put[0].value.clone()));
        assert_eq!((record.version, record.value), expected.unwrap_or((NONE, None)), "{key:?}");
    }
}

pub async fn reading_no_records_tells_the_life(fixture: impl BackendFixture) {
    let (store, other) = (Handle::of(&fixture).await, Handle::another(&fixture).await);

    let snapshot = store.snapshot(&[]).await;

    assert_eq!((snapshot.life, snapshot.records), (other.life, vec![]));
}

/// From one handle to the other and back, each time at once.
pub async fn a_write_is_seen_by_every_handle_once_it_is_answered(fixture: impl BackendFixture) {
    let handles = [Handle::of(&fixture).await, Handle::another(&fixture).await];
    let (key, beside) = (resource("ball"), resource("beside"));

    let mut last = NONE;
    for round in 0..40 {
        let (writer, reader) = (&handles[round % 2], &handles[(round + 1) % 2]);
        let (next, text_now) = (version(), format!("round {round}"));
        writer.apply(&write(next, &text_now, &[(&key, last)])).await;

        for handle in [reader, writer] {
            let record = handle.read(&[beside.clone(), key.clone()]).await.remove(1);
            assert_eq!((record.version, text(&record)), (next, Some(&*text_now)));
        }
        last = next;
    }
}

pub async fn many_reads_at_once_are_all_answered(fixture: impl BackendFixture) {
    let handles = Handle::several(&fixture, 2).await;
    let mut tasks = JoinSet::new();
    for n in 0..100_usize {
        let handle = handles[n % handles.len()].clone();
        let key = resource(&format!("r{n}"));
        tasks.spawn(async move {
            let text_now = format!("text {n}");
            let version = handle.create(&key, &text_now).await;
            for _ in 0..3 {
                let record = handle.read_one(&key).await;
                assert_eq!((record.version, text(&record)), (version, Some(&*text_now)));
            }
        });
    }

    all_done(tasks).await;
}

pub async fn the_concerns_about_the_configuration_can_be_read(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;

    for concern in answered(store.backend.safety()).await {
        assert!(!concern.what.is_empty() && !concern.what.ends_with('.'), "{concern:?}");
        assert!(!concern.hint.is_empty() && concern.cost >= Impact::Time, "{concern:?}");
    }
}
