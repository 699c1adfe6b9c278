//! The Redis backend on real servers: what it keeps, how it is reached, and what it survives.
#![cfg(all(feature = "redis", target_os = "linux"))]

mod connections;
mod figures;
mod limits;
mod lives;
mod logs;
mod records;
mod secured;
mod signals;

use std::time::Duration;

use tenure::store::backend::{
    Backend, Change, Channel, Commits, Committed, Heard, HistoryEntry, Listing, Put, Signal, Signals, Stored,
    Text,
};
use tenure::store::{Incarnation, LeaseId, Namespace, RedisBackend, StoreTime};
use tenure::{Error, ErrorKind};
use tenure_core::{Key, ResourceName, Version, Window};
use testkit::redis::{Options, Redis};
use testkit::resp::Reply;
use testkit::until;

use super::chain;

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(20);

async fn open(url: &str) -> RedisBackend {
    match RedisBackend::open(url, &Namespace::default()).await {
        Ok(backend) => backend,
        Err(error) => panic!("cannot open: {}", chain(&error)),
    }
}

async fn refused(url: &str) -> String {
    let error = RedisBackend::open(url, &Namespace::default()).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Refused, "{}", chain(&error));
    error.to_string()
}

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).expect("a name")
}

fn resource(text: &str) -> Key {
    Key::Resource(name(text))
}

/// A version that was never used before.
fn version() -> Version {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("random bytes");
    Version(u64::from_le_bytes(bytes) | 1 << 63)
}

/// Writes this text, if the record is at that version.
fn change(key: Key, expected: Version, text: &str) -> Change {
    let put = Put { key: key.clone(), version: version(), value: Some(Text::from(text)) };
    Change { expect: vec![(key, expected)], put: vec![put], ..Change::default() }
}

/// Writes a new record.
fn creation(key: Key, text: &str) -> Change {
    change(key, Version::NONE, text)
}

fn entry(resource: &str, text: &str) -> HistoryEntry {
    HistoryEntry { resource: name(resource), at: None, text: Text::from(text) }
}

fn signal(channels: &[&str], text: &str) -> Signal {
    Signal { to: channels.iter().map(|name| Channel::new(*name)).collect(), text: Text::from(text) }
}

async fn life(backend: &RedisBackend) -> Incarnation {
    backend.read(&[Key::Meta]).await.expect("an answer").life
}

async fn commit(backend: &RedisBackend, changes: &[Change]) -> Commits {
    let life = life(backend).await;
    match backend.commit(life, changes).await {
        Ok(commits) => commits,
        Err(error) => panic!("cannot commit: {}", chain(&error)),
    }
}

/// Commits one change that has to be applied.
async fn apply(backend: &RedisBackend, change: Change) -> StoreTime {
    match commit(backend, &[change]).await.done.as_slice() {
        [Committed::Done { stamp: Some(stamp) }] => *stamp,
        other => panic!("not applied: {other:?}"),
    }
}

async fn read(backend: &RedisBackend, key: Key) -> Stored {
    let mut records = backend.read(&[key]).await.expect("an answer").records;
    assert_eq!(records.len(), 1);
    records.remove(0)
}

async fn text(backend: &RedisBackend, key: Key) -> Option<String> {
    read(backend, key).await.value.map(|text| text.as_str().to_owned())
}

async fn history(backend: &RedisBackend, of: Option<&str>, most: usize) -> Vec<String> {
    let of = of.map(name);
    let history = backend.history(of.as_ref(), most).await.expect("an answer");
    history.entries.into_iter().map(|(_, text)| text.as_str().to_owned()).collect()
}

async fn hear(signals: &mut Signals) -> Heard {
    tokio::time::timeout(PATIENCE, signals.recv()).await.expect("soon").expect("a signal")
}
