//! The SQLite backend on real files, with real processes and real deaths.
//!
//! What every backend promises is checked by the conformance suite; here is what only this one can get wrong.
#![cfg(all(feature = "sqlite", target_os = "linux"))]

mod child;
mod commits;
mod deaths;
mod life;
mod opening;
mod signals;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::store::SqliteBackend;
use tenure::store::backend::{
    Backend, Change, Commits, Committed, HistoryEntry, Put, Signal, Snapshot, Stored, Text, Witness,
};
use tenure_core::{Incarnation, Key, LeaseId, Namespace, ResourceName, Version};

use crate::sqlite::Folder;

/// Nothing here should ever take so long.
const LIMIT: Duration = Duration::from_secs(10);

fn open(path: &Path) -> SqliteBackend {
    SqliteBackend::open(path, &Namespace::default()).expect("the store opens")
}

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).expect("a name")
}

fn resource(text: &str) -> Key {
    Key::Resource(name(text))
}

/// A number that no test of this program uses twice.
fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    u64::from(std::process::id()) << 32 | NEXT.fetch_add(1, Ordering::Relaxed)
}

fn new_lease() -> LeaseId {
    LeaseId(u128::from(unique()) << 64 | 7)
}

/// Writes one record that is at `expect`.
fn write(key: &Key, expect: Version, value: &str) -> Change {
    let put = Put { key: key.clone(), version: Version(unique()), value: Some(value.into()) };
    Change { expect: vec![(key.clone(), expect)], put: vec![put], ..Change::default() }
}

async fn snapshot(store: &SqliteBackend, keys: &[Key]) -> Snapshot {
    store.read(keys).await.expect("an answer")
}

async fn life(store: &SqliteBackend) -> Incarnation {
    snapshot(store, &[]).await.life
}

async fn find(store: &SqliteBackend, key: &Key) -> Stored {
    snapshot(store, std::slice::from_ref(key)).await.records.remove(0)
}

async fn value(store: &SqliteBackend, key: &Key) -> Option<String> {
    find(store, key).await.value.map(|value| value.as_str().to_owned())
}

/// Commits in the present life.
async fn commit(store: &SqliteBackend, changes: &[Change]) -> Commits {
    store.commit(life(store).await, changes).await.expect("an answer")
}

async fn commit_one(store: &SqliteBackend, change: Change) -> Committed {
    commit(store, &[change]).await.done.remove(0)
}

fn is_done(committed: &Committed) -> bool {
    matches!(committed, Committed::Done { .. })
}

/// SQLite itself on the file, as an operator or another program would use it.
fn sql(path: &Path, batch: &str) -> rusqlite::Connection {
    let db = rusqlite::Connection::open(path).expect("SQLite opens it");
    db.busy_timeout(LIMIT).expect("a limit");
    db.execute_batch(batch).expect("it is SQL");
    db
}

fn witness(store: &SqliteBackend) -> &dyn Witness {
    store.witness().expect("SQLite has one")
}
