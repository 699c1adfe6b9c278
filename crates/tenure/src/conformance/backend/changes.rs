//! When a change is applied, and what is answered when it is not.

use tenure_core::{Key, LeaseId, Version};

use super::BackendFixture;
use super::harness::*;
use crate::store::backend::{Change, Committed, Stored};

/// Five records of different kinds under this number, one of which does not exist, at their versions.
async fn five(store: &Handle, number: u128) -> Vec<(Key, Version)> {
    let (id, job) = (LeaseId(number), name(&format!("job {number}")));
    let keys = [Key::Resource(job.clone()), Key::Info(id), lease(number), Key::Runs(job)];
    let mut records: Vec<(Key, Version)> = keys.into_iter().map(|key| (key, version())).collect();
    let creations: Vec<Change> =
        records.iter().map(|(key, version)| write(*version, "before", &[(key, NONE)])).collect();
    store.apply_all(&creations).await;
    records.insert(2, (resource(&format!("absent {number}")), NONE));
    records
}

fn borrowed(records: &[(Key, Version)]) -> Vec<(&Key, Version)> {
    records.iter().map(|(key, version)| (key, *version)).collect()
}

fn keys(records: &[(Key, Version)]) -> Vec<Key> {
    records.iter().map(|(key, _)| key.clone()).collect()
}

fn sorted(mut records: Vec<Stored>) -> Vec<Stored> {
    records.sort_by(|a, b| a.key.cmp(&b.key));
    records
}

/// Each position is tried, with an old version, with none, and with one where there is no record. A store that swaps
/// records together writes nothing, remembers nothing and sends nothing; another one stops at that record.
pub async fn a_change_with_one_wrong_expectation_is_not_applied(fixture: impl BackendFixture) {
    let (store, channel) = (Handle::of(&fixture).await, channel());
    let mut listener = Listener::to(&store, &[&channel]).await;
    for round in 0..25_usize {
        let (position, turned) = (round % 5, round / 5);
        let records = five(&store, round as u128).await;
        let before = store.read(&keys(&records)).await;
        let mut wrong = borrowed(&records);
        let expects_none = round % 2 == 1 && wrong[position].1 != NONE;
        wrong[position].1 = if expects_none { NONE } else { version() };
        let written = version();
        let mut change = Change {
            history: vec![entry("job", "it happened")],
            signals: vec![signal(&[&channel], "it happened")],
            ..write(written, "after", &wrong)
        };
        // The order of the expectations means nothing.
        change.expect.rotate_left(turned);

        let differing = store.refused(&change).await;

        let after = store.read(&keys(&records)).await;
        let stays_from = if store.can.together { 0 } else { position };
        assert_eq!(after[stays_from..], before[stays_from..], "position {position}");
        for record in &after[..stays_from] {
            assert_eq!((record.version, text(record)), (written, Some("after")), "position {position}");
        }
        let shown = if store.can.together { position } else { 0 };
        assert_eq!(differing, sorted(after[shown..=position].to_vec()), "position {position}");
    }

    assert_eq!(store.past().await, Vec::<String>::new());
    store.send(&[&channel], "last").await;
    assert_eq!(listener.heard_before("last").await, Vec::<String>::new());
}

pub async fn a_conflict_shows_exactly_the_records_that_differ(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    for mask in 1..32_u32 {
        let records = five(&store, mask.into()).await;
        let before = store.read(&keys(&records)).await;
        let is_wrong = |index: usize| mask >> index & 1 == 1;
        let mut expected = borrowed(&records);
        for (index, record) in expected.iter_mut().enumerate() {
            record.1 = if is_wrong(index) { version() } else { record.1 };
        }

        let differing = store.refused(&write(version(), "after", &expected)).await;

        if store.can.together {
            let wrong = before.into_iter().enumerate().filter(|(index, _)| is_wrong(*index));
            assert_eq!(differing, sorted(wrong.map(|(_, record)| record).collect()), "{mask:b}");
        } else {
            // Up to the first that is wrong; what comes behind it may be shown, too.
            let after = store.read(&keys(&records)).await;
            let stopped_at = mask.trailing_zeros() as usize;
            for record in &after[..=stopped_at] {
                assert!(differing.contains(record), "{mask:b}: {record:?} is not shown");
            }
            assert_eq!(after[stopped_at..], before[stopped_at..]);
        }
    }
}

/// A store that swaps records one by one compares only what it writes.
pub async fn a_record_that_is_only_expected_is_compared(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let (job, absent) = (resource("job"), resource("absent"));
    let meta = store.create(&Key::Meta, "meta").await;
    let mut last = store.create(&job, "job").await;

    for (key, right, wrong) in
        [(&Key::Meta, meta, version()), (&absent, NONE, version()), (&Key::Meta, meta, NONE)]
    {
        for at_end in [false, true] {
            let change = |expected: Version, written: Version| {
                let mut change = write(written, "next", &[(&job, last)]);
                let index = if at_end { 1 } else { 0 };
                change.expect.insert(index, (key.clone(), expected));
                change
            };

            if store.can.together {
                assert_eq!(store.refused(&change(wrong, version())).await, [store.read_one(key).await]);
                assert_eq!(store.read_one(&job).await.version, last);
            }
            let next = version();
            store.apply(&change(if store.can.together { right } else { wrong }, next)).await;
            last = next;
        }
    }

    let untouched = store.read(&[Key::Meta, absent]).await;
    assert_eq!([untouched[0].version, untouched[1].version], [meta, NONE]);
}

pub async fn a_record_is_created_only_where_there_is_none(fixture: impl BackendFixture) {
    let (store, other) = (Handle::of(&fixture).await, Handle::another(&fixture).await);
    let key = resource("job");
    let missing = store.refused(&write(version(), "late", &[(&key, version())])).await;
    assert_eq!(missing, [store.read_one(&key).await]);
    assert_eq!(missing[0].version, NONE);

    let first = store.create(&key, "first").await;

    for handle in [&store, &other] {
        let there = handle.refused(&write(version(), "second", &[(&key, NONE)])).await;
        assert_eq!((there[0].version, text(&there[0])), (first, Some("first")));
    }
}

/// As publishing does: look at a record, and send.
pub async fn a_change_may_write_nothing(fixture: impl BackendFixture) {
    let (store, channel) = (Handle::of(&fixture).await, channel());
    let mut listener = Listener::to(&store, &[&channel]).await;
    let job = resource("job");
    let owned = store.create(&job, "owned").await;
    let publish = |expected, text: &str| Change {
        expect: vec![(job.clone(), expected)],
        signals: vec![signal(&[&channel], text)],
        ..Change::default()
    };

    if store.can.together {
        store.refused(&publish(version(), "not the owner")).await;
        store.refused(&publish(NONE, "not the owner")).await;
    }
    store.apply(&publish(owned, "the owner")).await;

    assert_eq!(listener.next().await.text.as_str(), "the owner");
    assert_eq!(store.read_one(&job).await.version, owned);
}

pub async fn a_commit_without_changes_is_answered(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;

    assert_eq!(store.commit(&[]).await, []);
}

/// Every third one conflicts, in one way or another; the others are applied all the same.
pub async fn a_batch_of_250_is_answered_in_order(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let count = store.can.most_changes.min(250);
    let keys: Vec<Key> = (0..count).map(|n| resource(&format!("r{}", n * 7919 % 1000))).collect();
    let create = |key| write(version(), "before", &[(key, NONE)]);
    let created: Vec<Change> = keys.iter().map(create).collect();
    store.apply_all(&created).await;
    let expected = |index: usize| match index % 9 {
        2 => version(),
        5 => NONE,
        8 => Version(created[index].put[0].version.0 ^ 1),
        _ => created[index].put[0].version,
    };
    let change = |(index, key): (usize, &Key)| Change {
        history: vec![entry(&format!("r{index}"), &format!("entry {index}"))],
        ..write(version(), &format!("after {index}"), &[(key, expected(index))])
    };
    let changes: Vec<Change> = keys.iter().enumerate().map(change).collect();

    let done = store.commit(&changes).await;

    let records = store.read(&keys).await;
    for (index, (record, done)) in records.into_iter().zip(done).enumerate() {
        if index % 3 == 2 {
            assert_eq!(record.version, created[index].put[0].version, "change {index}");
            assert_eq!(done, Committed::Conflict(vec![record]), "change {index}");
        } else {
            assert_eq!(text(&record), Some(&*format!("after {index}")));
            assert_eq!(done, Committed::Done { stamp: record.stamp }, "change {index}");
        }
    }
    let applied = (0..count).filter(|index| index % 3 != 2).map(|index| format!("entry {index}"));
    assert_eq!(store.past().await, applied.collect::<Vec<_>>());
}

/// Many renewals and grants in one commit all expect `meta`.
pub async fn changes_of_one_commit_may_expect_the_same_record(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let meta = store.create(&Key::Meta, "meta").await;
    let keys: Vec<Key> = (0..20).map(lease).collect();
    let change = |(index, key): (usize, &Key)| {
        let mut change = write(version(), "lease", &[(key, NONE)]);
        // One in four knows an older one.
        change.expect.push((Key::Meta, if index % 4 == 3 { version() } else { meta }));
        change
    };
    let changes: Vec<Change> = keys.iter().enumerate().map(change).collect();

    let done = store.commit(&changes).await;

    for (index, done) in done.iter().enumerate() {
        assert_eq!(is_done(done), index % 4 != 3 || !store.can.together, "change {index}: {done:?}");
    }
    assert_eq!(store.read_one(&Key::Meta).await.version, meta);
}

pub async fn a_change_of_many_records_is_applied(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let keys: Vec<Key> = (0..40).map(lease).chain((0..40).map(|n| resource(&format!("r{n}")))).collect();
    let written = version();
    let records: Vec<(&Key, Version)> = keys.iter().rev().map(|key| (key, NONE)).collect();

    store.apply(&write(written, "text", &records)).await;

    for record in store.read(&keys).await {
        assert_eq!((record.version, text(&record)), (written, Some("text")), "{:?}", record.key);
    }
}

/// A library or a network may deliver a commit twice. The second one is told from others by its own version.
pub async fn a_doubled_commit_conflicts_and_shows_its_own_version(fixture: impl BackendFixture) {
    let (store, other) = (Handle::of(&fixture).await, Handle::another(&fixture).await);
    let (old, new, gone) = (resource("old"), resource("new"), resource("gone"));
    let (before, doomed) = (store.create(&old, "before").await, store.create(&gone, "doomed").await);
    let written = version();
    let mut change = write(written, "after", &[(&old, before), (&new, NONE)]);
    let deletion = delete(&[(&gone, doomed)]);
    change.expect.extend(deletion.expect);
    change.put.extend(deletion.put);
    change.history.push(entry("old", "once"));

    store.apply(&change).await;
    let after = store.read(&[new, old, gone]).await;
    for handle in [&store, &other] {
        let differing = handle.refused(&change).await;

        assert_eq!(differing, sorted(after.clone()));
        assert_eq!(differing.iter().filter(|record| record.version == written).count(), 2);
    }

    assert_eq!(store.past().await, ["once"]);
}

pub async fn lasting_and_essential_changes_are_changes_like_others(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let key = resource("job");
    let mut last = store.create(&key, "first").await;

    for (lasting, essential) in [(true, false), (false, true), (true, true)] {
        let wrong = Change { lasting, essential, ..write(version(), "wrong", &[(&key, NONE)]) };
        assert_eq!(store.refused(&wrong).await[0].version, last);
        let next = version();
        let text_now = format!("{lasting} {essential}");
        store.apply(&Change { lasting, essential, ..write(next, &text_now, &[(&key, last)]) }).await;

        let record = store.read_one(&key).await;
        assert_eq!((record.version, text(&record)), (next, Some(&*text_now)));
        last = next;
    }
}
