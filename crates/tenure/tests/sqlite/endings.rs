//! A lease that ends leaves nothing behind for ever: neither a lock, nor a descriptor, nor a file.

use super::*;
use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::Arc;
use tenure::store::Opened;
use tenure::{Timing, Worker};

async fn worker(store: SqliteStore, ttl: Duration) -> Worker {
    let opened = Opened::new(Arc::new(store)).expect("a thread");
    let timing = Timing::new(ttl).expect("sound");
    Worker::on(opened).timing(timing).connect().await.expect("a worker")
}

/// The files of leases.
fn files(folder: &Folder) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder.0.join("tenure.db-tenure")).expect("the folder");
    files.map(|file| file.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// How many descriptors this process has open below `folder`.
fn descriptors(folder: &Folder) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux");
    let paths = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    paths.filter(|path| path.starts_with(&folder.0)).count()
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
async fn leases_that_could_not_be_opened_leave_neither_descriptors_nor_files() {
    let folder = Folder::new();
    let worker = worker(open(&folder.file()), Duration::from_millis(100)).await;
    let writer = rusqlite::Connection::open(folder.file()).expect("SQLite opens it");
    writer.execute_batch("BEGIN IMMEDIATE").expect("it writes");
    let before = descriptors(&folder);

    let acquiring = tokio::spawn(async move { worker.campaign("job").acquire().await.map(drop) });
    // Every one of them is another lease.
    let mut sockets = BTreeSet::new();
    let until = Instant::now() + 3 * LIMIT;
    while sockets.len() < 12 {
        assert!(Instant::now() < until, "only {} leases were tried", sockets.len());
        sockets.extend(files(&folder).into_iter().filter(|file| file.ends_with(".sock")));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    // The one that is being tried, and those to which the farewell is not over.
    let until = Instant::now() + LIMIT;
    loop {
        let (left, after) = (files(&folder), descriptors(&folder));
        if left.len() <= 6 && after <= before + 6 {
            break;
        }
        assert!(Instant::now() < until, "{before} and then {after} descriptors, and {left:?}");
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

    let closed = owner.ask_within(Duration::from_millis(20), Call::Close(Closing::Left)).await;
    assert_eq!(closed.expect_err("it is busy").kind(), tenure::Kind::Unavailable);
    assert!(store.lock(owner.lease).is_none(), "nobody can prove that it is over");
    writer.execute_batch("ROLLBACK").expect("it ends");

    owner.close().await;
    let mut next = Asker::opened(&store, "next", LONG).await;
    next.granted("job").await;
}

#[tokio::test]
async fn old_files_without_a_record_are_removed_when_the_store_is_opened() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut recorded = Asker::opened(&store, "recorded", LONG).await;
    recorded.close().await;
    let unopened = Asker::new(&store);
    let _held = store.take_lock(unopened.lease).expect("the lock");
    let kept = files(&folder);
    let beside = |name: &str| folder.0.join("tenure.db-tenure").join(name);
    std::fs::write(beside("left.lock"), "").expect("a file");
    drop(UnixDatagram::bind(beside("left.sock")).expect("a socket"));
    std::fs::write(beside("young.lock"), "").expect("a file");
    for file in files(&folder).into_iter().filter(|file| !file.starts_with("young")) {
        let touched = Command::new("touch").args(["-d", "2 hours ago"]).arg(beside(&file)).status();
        assert!(touched.expect("touch runs").success());
    }

    let _again = open(&folder.file());

    let until = Instant::now() + LIMIT;
    while files(&folder).iter().any(|file| file.starts_with("left")) {
        assert!(Instant::now() < until, "{:?}", files(&folder));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut expected = kept;
    expected.insert("young.lock".to_owned());
    assert_eq!(files(&folder), expected);
}
