//! A file that was replaced is another store: what was opened in the old one is gone.

use super::*;
use tenure::{Kind, Timing, Worker};

fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        std::fs::remove_file(file).expect("it was there");
    }
}

#[tokio::test]
async fn after_the_file_was_replaced_the_lease_is_gone_and_the_new_file_waits_for_its_lock() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    owner.granted("job").await;

    remove(&folder.file());

    // A new file grants nothing while the old one's worker may work.
    let error = SqliteStore::open(folder.file(), &Namespace::default()).expect_err("it must wait");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("still hold locks"), "{error}");
    assert_eq!(owner.said(Call::Renew).await, Said::Gone);
    assert_eq!(owner.said(Call::Held).await, Said::Gone);
    owner.close().await;

    let fresh = open(&folder.file());
    let mut next = Asker::opened(&fresh, "next", LONG).await;
    next.granted("job").await;
    // The old handle follows to the new file.
    let mut again = Asker::opened(&store, "again", LONG).await;
    assert_eq!(again.waits("job").await.ahead, 0);
}

#[tokio::test]
async fn a_copy_in_the_files_place_does_not_keep_the_lease_either() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    owner.granted("job").await;
    let copy = folder.0.join("copy.db");
    let db = rusqlite::Connection::open(folder.file()).expect("SQLite opens it");
    db.execute("VACUUM INTO ?1", [copy.to_str().expect("a path")]).expect("a copy");
    drop(db);

    remove(&folder.file());
    std::fs::rename(&copy, folder.file()).expect("another file");

    assert_eq!(owner.said(Call::Renew).await, Said::Gone);
    assert_eq!(owner.said(Call::Renew).await, Said::Gone);
}

// req: O13
#[tokio::test]
async fn a_worker_whose_file_was_removed_owns_again_in_a_new_one() {
    let folder = Folder::new();
    let timing = Timing::new(SHORT).expect("sound");
    let url = format!("sqlite:{}", folder.file().display());
    let worker = Worker::builder(&url).timing(timing).connect().await.expect("a worker");
    let mut tokens = Vec::new();

    let run = worker.campaign("job").run(async |own| {
        tokens.push(own.token());
        if tokens.len() == 1 {
            remove(&folder.file());
            own.lost().await;
        }
    });
    tokio::time::timeout(LIMIT, run).await.expect("it owns again").expect("it ran");

    assert!(tokens.is_sorted() && tokens.len() == 2, "{tokens:?}");
}
