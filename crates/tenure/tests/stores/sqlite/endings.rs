//! A lease that ends leaves nothing behind for ever: neither a lock, nor a descriptor, nor a file.

use super::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use tenure::store::OpenStore;
use tenure::{Timing, Worker};

async fn worker(store: SqliteStore, ttl: Duration) -> Worker {
    let opened = OpenStore::new(Arc::new(store)).expect("a thread");
    let timing = Timing::new(ttl).expect("sound");
    Worker::on(opened).timing(timing).connect().await.expect("a worker")
}

/// How many descriptors this process has open below `folder`.
fn descriptors(folder: &Folder) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux");
    let paths = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    paths.filter(|path| path.starts_with(folder.path())).count()
}

#[tokio::test]
async fn after_its_file_was_deleted_a_worker_competes_again() {
    let folder = Folder::new();
    let worker = worker(open(&folder.file()), Duration::from_millis(500)).await;
    let own = worker.campaign("job").acquire().await.expect("a ticket");

    replaced::remove(&folder.file());
    tokio::time::timeout(LIMIT, own.lost()).await.expect("it is told");
    drop(own);

    let again = tokio::time::timeout(LIMIT, worker.campaign("job").acquire()).await;
    assert!(again.expect("soon").expect("a ticket").holds());
}

#[tokio::test]
async fn leases_that_could_not_be_opened_leave_no_locks() {
    let folder = Folder::new();
    // The first to use a namespace writes that down before it takes a lock.
    let first = open(&folder.file());
    Asker::opened(&first, "first", LONG).await.close().await;
    let worker = worker(open(&folder.file()), Duration::from_millis(100)).await;
    let writer = rusqlite::Connection::open(folder.file()).expect("SQLite opens it");
    writer.execute_batch("BEGIN IMMEDIATE").expect("it writes");
    let before = descriptors(&folder);

    let acquiring = tokio::spawn(async move { worker.campaign("job").acquire().await.map(drop) });
    // Every one of them is another lease.
    let mut locks = BTreeSet::new();
    let until = Instant::now() + 3 * LIMIT;
    while locks.len() < 12 {
        assert!(Instant::now() < until, "only {} leases were tried", locks.len());
        locks.extend(lock_files(&folder));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    // The one that is being tried, and those to which the farewell is not over. A lock is held through its descriptor; its
    // file is removed when it is old.
    let until = Instant::now() + LIMIT;
    loop {
        let after = descriptors(&folder);
        if after <= before + 6 {
            break;
        }
        assert!(Instant::now() < until, "{before} and then {after} descriptors");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    acquiring.abort();
}

#[tokio::test]
async fn closing_lets_the_lock_go_also_when_it_cannot_be_written_down() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    owner.granted("job").await;
    let writer = rusqlite::Connection::open(folder.file()).expect("SQLite opens it");
    writer.execute_batch("BEGIN IMMEDIATE").expect("it writes");

    let closing = owner.ask(Call::Close(Closing::Left));
    assert!(tokio::time::timeout(Duration::from_millis(20), closing).await.is_err(), "it is busy");
    assert!(!has_lock(&store, owner.lease), "nobody can prove that it is over");
    writer.execute_batch("ROLLBACK").expect("it ends");

    owner.close().await;
    let mut next = Asker::opened(&store, "next", LONG).await;
    next.granted("job").await;
}
