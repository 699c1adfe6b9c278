//! A file that was replaced is another store: what was opened in the old one is gone.

use super::*;
use tenure::Kind;

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
