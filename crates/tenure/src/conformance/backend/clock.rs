//! Windows and stamps: what a store with a clock does by it, and that a store without one does nothing of it.

use std::time::Duration;

use tenure_core::{StoreTime, Version, Window};
use tokio::task::JoinSet;

use super::BackendFixture;
use super::harness::*;
use crate::store::backend::{Change, Committed, Listing};

const HOUR: Duration = Duration::from_secs(3600);
const STEP: Duration = Duration::from_millis(20);
/// More than a store's clock can show.
const NEVER: StoreTime = StoreTime::from_micros(u64::MAX);
const BEGINNING: StoreTime = StoreTime::from_micros(0);

fn window(from: Option<StoreTime>, until: Option<StoreTime>) -> Window {
    Window { from, until }
}

fn within(window: Window, change: Change) -> Change {
    Change { window, ..change }
}

/// Now: the clock of the store, or some time for a store that has none and ignores windows.
async fn now(store: &Handle) -> StoreTime {
    if store.can.clock { store.now().await } else { StoreTime::from_micros(1_000_000) }
}

/// The beginning belongs to the window, the end does not.
pub async fn a_change_is_applied_only_within_its_window(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let key = resource("job");
    let mut last = store.create(&key, "first").await;
    let now = now(&store).await;
    let later = now + HOUR;
    let open = [
        window(None, None),
        window(Some(now), None),
        window(None, Some(later)),
        window(Some(now), Some(later)),
        window(Some(BEGINNING), Some(NEVER)),
    ];
    let shut = [
        window(None, Some(now)),
        window(Some(later), None),
        window(Some(now), Some(now)),
        window(Some(later), Some(now)),
        window(Some(later), Some(later + HOUR)),
        window(None, Some(BEGINNING)),
        window(Some(NEVER), None),
    ];

    for (window, is_open) in
        open.map(|window| (window, true)).into_iter().chain(shut.map(|window| (window, false)))
    {
        let next = version();
        let change = within(window, write(next, "next", &[(&key, last)]));
        if is_open || !store.can.clock {
            store.apply(&change).await;
            last = next;
        } else {
            assert_eq!(store.refused(&change).await, [], "{window:?} at {now:?}");
        }
        assert_eq!(store.read_one(&key).await.version, last, "{window:?} at {now:?}");
    }
}

pub async fn a_change_outside_of_its_window_changes_nothing(fixture: impl BackendFixture) {
    let (store, channel) = (Handle::of(&fixture).await, channel());
    let mut listener = Listener::to(&store, &[&channel]).await;
    let (old, new, gone) = (resource("old"), resource("new"), resource("gone"));
    let keys = [old.clone(), new.clone(), gone.clone()];
    let (before, doomed) = (store.create(&old, "before").await, store.create(&gone, "doomed").await);
    let shown = store.read(&keys).await;
    let mut change = write(version(), "after", &[(&old, before), (&new, NONE)]);
    let deletion = delete(&[(&gone, doomed)]);
    change.expect.extend(deletion.expect);
    change.put.extend(deletion.put);
    change.history.push(entry("old", "it happened"));
    change.signals.push(signal(&[&channel], "it happened"));

    let committed = store.commit_one(&within(window(None, Some(now(&store).await)), change)).await;

    store.send(&[&channel], "last").await;
    let heard = listener.heard_before("last").await;
    if store.can.clock {
        assert_eq!(committed, Committed::Conflict(vec![]));
        assert_eq!(store.read(&keys).await, shown);
        assert_eq!((store.past().await.len(), heard.len()), (0, 0));
    } else {
        assert_eq!(committed, Committed::Done { stamp: None });
        assert_eq!((store.past().await.len(), heard.len()), (1, 1));
    }
}

pub async fn a_window_that_opens_lets_the_change_in_from_then_on(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let key = resource("job");
    let from = now(&store).await + STEP * 10;
    let change = within(window(Some(from), None), write(version(), "text", &[(&key, NONE)]));

    for _ in 0..1_000 {
        match store.commit_one(&change).await {
            Committed::Done { stamp } => {
                assert!(stamp.is_none_or(|stamp| stamp >= from), "{stamp:?} is before {from:?}");
                assert_eq!(store.read_one(&key).await.version, change.put[0].version);
                return;
            }
            Committed::Conflict(differing) => {
                assert!(store.can.clock && differing.is_empty(), "{differing:?}");
                assert_eq!(store.read_one(&key).await.version, NONE);
                fixture.pass(STEP).await;
            }
        }
    }
    panic!("the window never opened");
}

pub async fn a_window_that_closes_keeps_the_change_out_from_then_on(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let key = resource("job");
    let until = now(&store).await + STEP * 10;
    let mut last = NONE;

    for round in 0..1_000 {
        let next = version();
        let change = within(window(None, Some(until)), write(next, "text", &[(&key, last)]));
        match store.commit_one(&change).await {
            Committed::Done { stamp } => {
                assert!(stamp.is_none_or(|stamp| stamp < until), "{stamp:?} is not before {until:?}");
                last = next;
                fixture.pass(STEP).await;
            }
            Committed::Conflict(differing) => {
                assert!(store.can.clock && differing.is_empty(), "{differing:?}");
                assert!(now(&store).await >= until, "closed before its time");
                assert_eq!(store.read_one(&key).await.version, last);
                return;
            }
        }
        if !store.can.clock && round > 20 {
            return;
        }
    }
    panic!("the window never closed");
}

/// Whether the records that differ are shown, too, is left to the store.
pub async fn a_conflict_outside_of_the_window_changes_nothing_either(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let key = resource("job");
    store.create(&key, "before").await;
    let before = store.read_one(&key).await;

    let shut = window(Some(now(&store).await + HOUR), None);
    let differing = store.refused(&within(shut, write(version(), "after", &[(&key, version())]))).await;

    assert!(differing.is_empty() && store.can.clock || differing == [before.clone()], "{differing:?}");
    assert_eq!(store.read_one(&key).await, before);
}

pub async fn each_change_of_a_batch_has_its_own_window(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let now = now(&store).await;
    let shut =
        |n: u128| if n.is_multiple_of(2) { window(Some(now + HOUR), None) } else { window(None, Some(now)) };
    let is_shut = |n: u128| n % 3 == 1;
    let window_of = |n: u128| if is_shut(n) { shut(n) } else { window(Some(now), Some(now + HOUR)) };
    let change = |n| within(window_of(n), write(version(), "text", &[(&lease(n), NONE)]));
    let changes: Vec<Change> = (0..20).map(change).collect();

    let done = store.commit(&changes).await;

    for (n, done) in (0..20).zip(done) {
        let applied = !is_shut(n) || !store.can.clock;
        assert_eq!(is_done(&done), applied, "change {n}: {done:?}");
        assert_eq!(store.read_one(&lease(n)).await.version != NONE, applied, "change {n}");
    }
}

/// All records of a change have one stamp; where a store writes them one by one, stamps that do not go back.
pub async fn the_stamp_is_what_a_later_read_shows(fixture: impl BackendFixture) {
    let (store, other) = (Handle::of(&fixture).await, Handle::another(&fixture).await);
    let keys = [resource("b"), lease(1), resource("a"), lease(0)];
    let mut versions = [NONE; 4];

    for _ in 0..5 {
        let before = store.snapshot(&[]).await.now;
        let records: Vec<_> = keys.iter().zip(versions).collect();
        let next = version();
        let stamp = store.apply(&write(next, "text", &records)).await;

        assert!(stamp >= before, "{stamp:?} is before {before:?}, which was told earlier");
        for handle in [&store, &other] {
            let stamps: Vec<_> = handle.read(&keys).await.into_iter().map(|record| record.stamp).collect();
            assert_eq!(stamps.last(), Some(&stamp), "the record that was written last");
            assert!(stamps.is_sorted() && stamps[0] >= before, "{stamps:?}");
            assert!(!store.can.together || stamps == [stamp; 4], "{stamps:?} of one change at {stamp:?}");
        }
        let listed = store.list(Listing::Leases).await;
        assert_eq!(listed[0], store.read_one(&keys[3]).await);
        versions = [next; 4];
        fixture.pass(Duration::from_millis(2)).await;
    }
}

pub async fn a_record_keeps_its_stamp_until_it_is_written(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let (kept, written) = (resource("kept"), resource("written"));
    let version_kept = store.create(&kept, "kept").await;
    let before = store.read_one(&kept).await;
    fixture.pass(Duration::from_millis(5)).await;

    let mut beside = write(version(), "text", &[(&written, NONE)]);
    beside.expect.push((kept.clone(), version_kept));
    store.apply(&beside).await;
    store.refused(&write(version(), "late", &[(&kept, NONE)])).await;

    assert_eq!(store.read_one(&kept).await, before);
    if store.can.clock {
        assert!(store.read_one(&written).await.stamp > before.stamp, "time has gone by");
        // The same text, written again, is a new stamp all the same: that is what a renewal is.
        store.apply(&write(version(), "kept", &[(&kept, version_kept)])).await;
        assert!(store.read_one(&kept).await.stamp > before.stamp, "it was written again");
    }
}

pub async fn stamps_do_not_run_backwards(fixture: impl BackendFixture) {
    let handles = Handle::several(&fixture, 2).await;
    let mut newest = None;

    for round in 0..60_usize {
        let store = &handles[round % 2];
        let stamp = store.apply(&write(version(), "text", &[(&lease(round as u128), NONE)])).await;
        assert!(stamp >= newest, "{stamp:?} comes after {newest:?}");
        let told = handles[(round + 1) % 2].snapshot(&[]).await.now;
        assert!(told >= stamp, "the clock shows {told:?} after {stamp:?}");
        newest = told;
        if round % 10 == 0 {
            fixture.pass(Duration::from_millis(1)).await;
        }
    }
}

/// A chain of changes, each of which expects what the one before it writes, all sent at once and by several handles.
/// Every other one comes last in a batch, so that others overtake it. They are applied in the order of the chain,
/// and so must their stamps be.
pub async fn the_stamp_is_taken_after_waiting_for_others(fixture: impl BackendFixture) {
    const LINKS: usize = 24;
    let handles = Handle::several(&fixture, 3).await;
    let key = resource("chain");
    let mut versions = vec![handles[0].create(&key, "first").await];
    versions.resize_with(LINKS + 1, version);
    let mut tasks = JoinSet::new();
    let mut links: Vec<_> = versions.windows(2).enumerate().collect();
    shuffle(&mut links, &mut Chance::new(1));
    for (index, link) in links {
        let (handle, from, to) = (handles[index % handles.len()].clone(), link[0], link[1]);
        tasks.spawn(add_link(handle, index as u128, from, to));
    }

    let all = all_done(tasks);
    tokio::pin!(all);
    let mut stamps = loop {
        tokio::select! {
            stamps = &mut all => break stamps,
            () = tokio::time::sleep(Duration::from_millis(1)) => fixture.pass(Duration::from_millis(1)).await,
        }
    };

    stamps.sort_unstable();
    assert!(stamps.is_sorted_by_key(|(_, stamp)| stamp), "stamps in the order of the changes: {stamps:?}");
}

async fn add_link(handle: Handle, index: u128, from: Version, to: Version) -> (u128, Option<StoreTime>) {
    let (key, mut chance) = (resource("chain"), Chance::new(u64::try_from(index).expect("small")));
    for round in 0..2_000 {
        let beside = |n| write(version(), "beside", &[(&lease((index << 64) + (round << 32) + n), NONE)]);
        let count = if index.is_multiple_of(2) { 0 } else { 30.min(handle.can.most_changes as u128 - 1) };
        let mut changes: Vec<Change> = (0..count).map(beside).collect();
        changes.push(write(to, "text", &[(&key, from)]));
        if let Some(Committed::Done { stamp }) = handle.commit(&changes).await.pop() {
            return (index, stamp);
        }
        tokio::time::sleep(Duration::from_micros(500 + chance.below(4_000))).await;
    }
    panic!("link {index} was never applied");
}

/// Of reads, conflicts, listings and histories; the first three are checked with every answer of every case.
pub async fn the_clock_of_an_answer_is_not_before_any_stamp(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    for n in 0..10 {
        let key = lease(n);
        let change =
            Change { history: vec![entry("job", "text")], ..write(version(), "text", &[(&key, NONE)]) };
        let stamp = store.apply(&change).await;

        assert!(store.snapshot(&[]).await.now >= stamp);
        let page = answered(store.backend.list(Listing::Leases, None)).await;
        assert!(page.shown.now >= stamp, "{page:?}");
        let history = answered(store.backend.history(None, 100)).await;
        assert!(
            history.now >= stamp && history.entries.iter().all(|(at, _)| *at <= history.now),
            "{history:?}"
        );
        assert_eq!(store.refused(&change).await.len(), 1);
    }
}
