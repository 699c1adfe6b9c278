//! What can be seen only from inside: which thread does what, and how they go on after a panic.

use tempfile::TempDir;
use tenure_core::{Key, Version};

use super::connection::Client;
use super::*;
use crate::store::backend::{Committed, HistoryEntry, Put, Signal};

fn open() -> (TempDir, SqliteBackend) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteBackend::open(folder.path().join("t.db"), &Namespace::default()).expect("it opens");
    (folder, store)
}

fn write(expect: Version, version: u64, lasting: bool) -> Change {
    let put = Put { key: Key::Meta, version: Version(version), value: Some("{}".into()) };
    Change { expect: vec![(Key::Meta, expect)], put: vec![put], lasting, ..Change::default() }
}

/// SQLite's level of synchronisation on this thread's connection: 1 is NORMAL, 2 is FULL.
async fn level(thread: &Thread) -> i64 {
    let level = |client: &mut Client| {
        client.read(Missing::Leave, |records, _| {
            Ok(records.db.query_row("PRAGMA synchronous", [], |row| row.get(0))?)
        })
    };
    thread.ask(level).await.expect("a level")
}

// The review's planted bug S1b.
#[tokio::test]
async fn what_is_lasting_is_synced_and_what_is_not_does_not_wait_for_that() {
    let (_folder, store) = open();
    let life = store.read(&[]).await.expect("an answer").life;
    let (lasting, plain) = (write(Version::NONE, 1, true), write(Version(1), 2, false));
    let resource = ResourceName::new("r").expect("a name");
    let told = HistoryEntry { resource, at: None, text: "{}".into() };
    let history = Change { history: vec![told], ..Change::default() };
    let message = Change { signals: vec![Signal { to: Vec::new(), text: "{}".into() }], ..Change::default() };
    let is = |changes: &[&Change], thread: &Thread| {
        let changes: Vec<Change> = changes.iter().map(|change| (*change).clone()).collect();
        std::ptr::eq(store.thread_for(&changes), thread)
    };

    assert!(is(&[&lasting], &store.lasting) && is(&[&plain, &lasting, &message], &store.lasting));
    assert!(is(&[&plain], &store.writes) && is(&[&message, &history], &store.writes));
    assert!(is(&[&message], &store.reads));
    for change in [lasting, plain] {
        let commits = store.commit(life, &[change]).await.expect("an answer");
        assert!(matches!(commits.done[..], [Committed::Done { .. }]));
    }
    assert_eq!((level(&store.writes).await, level(&store.lasting).await), (1, 2));
}

#[tokio::test]
async fn after_a_panic_the_thread_answers_again() {
    let (_folder, store) = open();
    let life = store.read(&[]).await.expect("an answer").life;

    for (round, thread) in
        [&store.reads, &store.writes, &store.lasting, &store.background].into_iter().enumerate()
    {
        let panics = |client: &mut Client| {
            client.read(Missing::Leave, |_, _| -> Result<(), error::Failure> { panic!("on purpose") })
        };
        let error = thread.ask(panics).await.expect_err("nobody can answer");
        assert_eq!(error.kind(), crate::ErrorKind::Unavailable);
        assert_eq!(
            thread.ask(|client| client.read(Missing::Leave, |_, now| Ok(now.life))).await.expect("a life"),
            life
        );
        assert!(store.read(&[Key::Meta]).await.is_ok(), "round {round}");
    }
    assert!(store.commit(life, &[write(Version::NONE, 1, true)]).await.is_ok());
}
