//! Opening a store: where there is none, on a full disk, after a reboot. What is refused: `backend`.

use super::child::Process;
use super::*;
use rusqlite::Connection;
use tenure::ErrorKind;

/// Why `path` does not open.
fn refused(path: &Path) -> (ErrorKind, String) {
    let error = SqliteStore::open(path, &Namespace::default()).expect_err("it must not open");
    let told = error.to_string();
    assert!(told.contains(&path.display().to_string()), "{told:?} does not name {path:?}");
    (error.kind(), told)
}

#[tokio::test]
async fn whoever_looks_at_a_file_in_which_nothing_stands_finds_nothing_and_makes_nothing() {
    let folder = Folder::new();
    std::fs::write(folder.file(), "").expect("a file");
    let url = format!("sqlite:{}", folder.file().display());

    assert!(tenure::admin::Admin::find(&url, "tenure").await.expect("an answer").is_none());

    assert_eq!(
        (names(&folder), std::fs::read(folder.file()).expect("still there").len()),
        (vec!["tenure.db".to_owned()], 0)
    );
}

/// What lies in the folder, in order.
fn names(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_full_disk_is_unavailable_and_says_so() {
    let folder = Folder::new();

    let child = Process::start_mounted("filler", &folder.file(), "mount -t tmpfs -o size=2m tenure \"$0\"");

    assert!(child.told.starts_with("Unavailable: cannot write to"), "{}", child.told);
    assert!(child.told.contains("the disk is full"), "{}", child.told);
}

#[tokio::test]
async fn leases_of_another_boot_are_dead_only_by_their_locks() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start("owner", &folder.file());
    let as_if_rebooted = || {
        let db = Connection::open(folder.file()).expect("SQLite opens it");
        db.busy_timeout(LIMIT).expect("a limit");
        db.execute_batch("UPDATE host SET boot = 'before'").expect("another boot");
    };

    // Its lock is held: two systems share the file.
    as_if_rebooted();
    let (kind, told) = refused(&folder.file());
    assert!(kind == ErrorKind::Refused && told.contains("different boot ids"), "{told}");
    let mut stranger = Asker::new(&store);
    assert_eq!(stranger.ask(Call::Renew).await.expect_err("refused").kind(), ErrorKind::Refused);

    // Its lock can be won: it is dead.
    child.kill();
    let mut next = Asker::opened(&store, "next", LONG).await;
    let mut hints = next.hints().await;
    next.wins("job", &mut hints).await;

    // There is no file: it lives on for a full ttl.
    as_if_rebooted();
    for lock in lock_files(&folder) {
        std::fs::remove_file(lock).expect("gone");
    }
    let again = open(&folder.file());
    let mut last = Asker::opened(&again, "last", LONG).await;
    let waiting = last.waits("job").await;
    assert!(waiting.look_again > LONG / 2 && waiting.look_again <= LONG, "{waiting:?}");
}

#[tokio::test]
async fn looking_for_a_store_that_is_not_there_makes_none() {
    let folder = Folder::new();
    for path in [folder.file(), folder.path().join("missing/tenure.db")] {
        let url = format!("sqlite:{}", path.display());
        assert!(tenure::admin::Admin::find(&url, "tenure").await.expect("an answer").is_none());
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    assert!(
        tenure::admin::Admin::find("memory:nobody-uses-it", "tenure").await.expect("an answer").is_none()
    );
    assert!(tenure::admin::Admin::find("nix:", "tenure").await.is_err());

    drop(open(&folder.file()));

    let url = format!("sqlite:{}", folder.file().display());
    assert!(tenure::admin::Admin::find(&url, "tenure").await.expect("an answer").is_some());
}
