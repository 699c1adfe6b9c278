//! Many at once, on several handles: every write that was answered is there, and none is there twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::{Key, LeaseId, Version};
use tokio::task::JoinSet;

use super::BackendFixture;
use super::harness::*;
use crate::store::backend::{Change, Committed, Put, Stored};

const TASKS: usize = 8;

pub async fn of_many_who_create_a_record_one_succeeds(fixture: impl BackendFixture) {
    let handles = Handle::several(&fixture, 4).await;
    for round in 0..5 {
        let key = resource(&format!("r{round}"));
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (handle, key) = (handles[task % handles.len()].clone(), key.clone());
            tasks.spawn(async move {
                let written = version();
                (written, handle.commit_one(&write(written, "text", &[(&key, NONE)])).await)
            });
        }
        let results = all_done(tasks).await;

        let winners: Vec<Version> =
            results.iter().filter(|(_, done)| is_done(done)).map(|(version, _)| *version).collect();
        assert_eq!(winners.len(), 1, "{results:?}");
        let record = handles[0].read_one(&key).await;
        assert_eq!(record.version, winners[0]);
        for (_, done) in results {
            assert!(is_done(&done) || done == Committed::Conflict(vec![record.clone()]), "{done:?}");
        }
    }
}

/// Readers beside the writers check that nothing which was answered is missing from a later read.
pub async fn increments_of_one_record_are_all_counted(fixture: impl BackendFixture) {
    const EACH: u64 = 20;
    let handles = Handle::several(&fixture, 4).await;
    let key = resource("counter");
    handles[0].create(&key, "0").await;
    let answered_last = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (handle, key) = (handles[task % handles.len()].clone(), key.clone());
        let answered_last = answered_last.clone();
        tasks.spawn(async move {
            let mut record = handle.read_one(&key).await;
            for _ in 0..EACH {
                answered_last.fetch_max(increment(&handle, record).await, Ordering::SeqCst);
                let floor = answered_last.load(Ordering::SeqCst);
                record = handle.read_one(&key).await;
                assert!(number(&record) >= floor, "{} was read after {floor} was answered", number(&record));
            }
        });
    }

    all_done(tasks).await;

    assert_eq!(number(&handles[0].read_one(&key).await), TASKS as u64 * EACH);
}

/// Adds one to the number in a record, whoever comes first. Says the new number.
async fn increment(handle: &Handle, mut record: Stored) -> u64 {
    // Each conflict is a success of somebody else, and nobody has so many.
    for _ in 0..1_000 {
        let count = number(&record) + 1;
        let change = write(version(), &count.to_string(), &[(&record.key, record.version)]);
        match handle.commit_one(&change).await {
            Committed::Done { .. } => return count,
            Committed::Conflict(mut now) => record = now.remove(0),
        }
    }
    panic!("it never comes first");
}

pub async fn changes_of_several_records_in_different_orders_are_all_kept(fixture: impl BackendFixture) {
    write_concurrently(&fixture, 1, 4).await;
}

/// One commit with several changes: they lock each other's records in different orders.
pub async fn overlapping_batches_in_different_orders_are_all_kept(fixture: impl BackendFixture) {
    write_concurrently(&fixture, 5, 2).await;
}

/// Each task adds lines to several records at a time, by commits of so many changes of up to so many records. In the
/// end every record has each line that was answered once, and no other.
async fn write_concurrently(fixture: &impl BackendFixture, changes: usize, most_records: usize) {
    const ROUNDS: usize = 12;
    let handles = Handle::several(fixture, 4).await;
    let changes = changes.min(handles[0].can.most_changes);
    let keys = journals();
    let empty: Vec<Change> = keys.iter().map(|key| write(version(), "", &[(key, NONE)])).collect();
    handles[0].apply_all(&empty).await;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let mut writer = Writer {
            handle: handles[task % handles.len()].clone(),
            keys: keys.clone(),
            chance: Chance::new(task as u64),
            applied: Vec::new(),
            refused: Vec::new(),
        };
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                writer.write(changes, most_records).await;
            }
            writer
        });
    }

    let writers = all_done(tasks).await;

    for record in handles[0].read(&keys).await {
        let lines: Vec<&str> = text(&record).expect("it exists").lines().collect();
        let of = |changes: &[Change]| lines_of(changes, &record.key);
        let expected: BTreeSet<String> = writers.iter().flat_map(|writer| of(&writer.applied)).collect();
        let refused: BTreeSet<String> = writers.iter().flat_map(|writer| of(&writer.refused)).collect();
        for line in &expected {
            assert!(lines.contains(&&**line), "{:?}: a write that was answered is lost", record.key);
        }
        for line in &lines {
            // A store that writes one by one may have stopped after this record.
            let half = !handles[0].can.together && refused.contains(*line);
            assert!(half || expected.contains(*line), "{:?}: half of a change was applied", record.key);
        }
        assert_eq!(lines.iter().collect::<BTreeSet<_>>().len(), lines.len(), "{:?}: twice", record.key);
    }
    let applied: usize = writers.iter().map(|writer| writer.applied.len()).sum();
    assert_eq!(handles[0].past().await.len(), applied, "one entry of the history for each change");
}

/// What these changes add to a record.
fn lines_of(changes: &[Change], key: &Key) -> Vec<String> {
    let puts = changes.iter().flat_map(|change| &change.put).filter(|put| put.key == *key);
    puts.map(|put| put.version.0.to_string()).collect()
}

struct Writer {
    handle: Handle,
    keys: Vec<Key>,
    chance: Chance,
    applied: Vec<Change>,
    refused: Vec<Change>,
}

impl Writer {
    /// Reads and commits until at least one change is applied.
    async fn write(&mut self, changes: usize, most_records: usize) {
        let before = self.applied.len();
        for _ in 0..1_000 {
            shuffle(&mut self.keys, &mut self.chance);
            let records = self.handle.read(&self.keys).await;
            let mut rest = &records[..];
            let mut batch = Vec::new();
            while batch.len() < changes && !rest.is_empty() {
                let count = usize::try_from(self.chance.below(most_records as u64)).expect("small") + 1;
                let (some, others) = rest.split_at(count.min(rest.len()));
                batch.push(one_line_more(some, &mut self.chance));
                rest = others;
            }

            let done = self.handle.commit(&batch).await;
            for (change, done) in batch.into_iter().zip(done) {
                if is_done(&done) { self.applied.push(change) } else { self.refused.push(change) }
            }
            if self.applied.len() > before {
                return;
            }
        }
        panic!("no change was applied");
    }
}

/// A change that adds its own version to these records; it expects them in another order than it writes them.
fn one_line_more(records: &[Stored], chance: &mut Chance) -> Change {
    let version = version();
    let put = |record: &Stored| {
        let lines = text(record).expect("it exists");
        Put { key: record.key.clone(), version, value: Some(format!("{lines}{}\n", version.0).into()) }
    };
    let mut expect: Vec<_> = records.iter().map(|record| (record.key.clone(), record.version)).collect();
    shuffle(&mut expect, chance);
    let history = vec![entry("journal", "a line")];
    Change { expect, put: records.iter().map(put).collect(), history, ..Change::default() }
}

fn journals() -> Vec<Key> {
    let mut keys = vec![Key::Meta, Key::Info(LeaseId(1))];
    keys.extend((0..5).map(lease));
    keys.extend((0..5).map(|n| resource(&format!("journal {n}"))));
    keys
}

fn number(record: &Stored) -> u64 {
    text(record).and_then(|text| text.parse().ok()).expect("a number")
}
