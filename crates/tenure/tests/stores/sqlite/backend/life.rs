//! The store's life: it goes on over restarts and reboots, and ends when another file takes this one's place.

use super::child::{LEASE, Process};
use super::*;
use tenure::ErrorKind;
use tenure::store::backend::Listing;

const LONG: Duration = Duration::from_secs(60);

fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        let _gone = std::fs::remove_file(file);
    }
}

/// A copy of the file, as a backup makes it.
fn copy(path: &Path) -> PathBuf {
    let copy = path.with_extension("copy");
    let into = copy.to_str().expect("a path");
    sql(path, "").execute("VACUUM INTO ?1", [into]).expect("a copy");
    copy
}

/// Puts the copy in the place of the file.
fn restore(path: &Path, copy: &Path) {
    remove(path);
    std::fs::rename(copy, path).expect("another file");
}

/// Why `path` does not open for now.
fn unavailable(path: &Path) -> String {
    let error = SqliteBackend::open(path, &Namespace::default()).expect_err("it must wait");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    error.to_string()
}

fn reboot(path: &Path) {
    sql(path, "UPDATE host SET boot = 'before'");
}

#[tokio::test]
async fn one_file_has_one_life_for_everybody_who_opens_it() {
    let folder = Folder::new();
    let first = open(&folder.file());
    let life_before = life(&first).await;
    let without = SqliteBackend::open_without_proof(folder.file(), &Namespace::new("x").expect("a name"));
    assert_eq!(life(&without.expect("it opens")).await, life_before);
    drop(first);

    assert_eq!(life(&open(&folder.file())).await, life_before);
    assert!(open(&folder.file()).lost_nothing(LONG).await.expect("an answer"));
    assert_ne!(life(&open(&folder.path().join("other.db"))).await, life_before);
}

#[tokio::test]
async fn a_commit_of_another_life_changes_nothing() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let (now, key) = (life(&store).await, resource("job"));

    let change = Change {
        history: vec![HistoryEntry { resource: name("job"), at: None, text: "{}".into() }],
        ..write(&key, Version::NONE, "{}")
    };
    let commits = store.commit(Incarnation(now.0 ^ 1), &[change]).await.expect("an answer");

    assert_eq!((commits.life, commits.done), (now, vec![Committed::Conflict(Vec::new())]));
    assert_eq!(find(&store, &key).await.version, Version::NONE);
    assert!(store.history(None, 10).await.expect("a history").entries.is_empty());
}

#[tokio::test]
async fn a_copy_in_the_files_place_is_another_life_once_the_earlier_workers_have_gone() {
    for boot in ["", "UPDATE host SET boot = 'before'"] {
        let folder = Folder::new();
        let store = open(&folder.file());
        let (before, lease) = (life(&store).await, new_lease());
        assert!(is_done(&commit_one(&store, write(&Key::Meta, Version::NONE, "old")).await));
        let backup = copy(&folder.file());
        sql(&backup, boot);
        witness(&store).vouch(lease).await.expect("a text");

        restore(&folder.file(), &backup);

        // Its worker may be at work under what only the earlier file knew.
        let told = unavailable(&folder.file());
        assert!(told.contains("it is not the file that was here before"), "{told}");
        assert_eq!(store.read(&[]).await.expect_err("not now").kind(), ErrorKind::Unavailable);
        assert_eq!(store.commit(before, &[]).await.expect_err("not now").kind(), ErrorKind::Unavailable);
        assert_eq!(
            witness(&store).vouch(new_lease()).await.expect_err("not now").kind(),
            ErrorKind::Unavailable
        );
        witness(&store).let_go(lease);

        let commits =
            store.commit(before, &[write(&Key::Ttls, Version::NONE, "{}")]).await.expect("an answer");
        assert_eq!(commits.done, [Committed::Conflict(Vec::new())]);
        assert_ne!(commits.life, before);
        let again = open(&folder.file());
        assert_eq!(life(&again).await, commits.life);
        assert_eq!(value(&again, &Key::Meta).await.as_deref(), Some("old"));
    }
}

#[tokio::test]
async fn a_removed_file_is_made_anew_once_the_earlier_workers_have_gone() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let (before, lease) = (life(&store).await, new_lease());
    assert!(is_done(&commit_one(&store, write(&Key::Meta, Version::NONE, "old")).await));
    witness(&store).vouch(lease).await.expect("a text");

    remove(&folder.file());

    assert!(unavailable(&folder.file()).contains("it was removed"));
    assert_eq!(store.read(&[Key::Meta]).await.expect_err("not now").kind(), ErrorKind::Unavailable);
    assert!(!folder.file().exists(), "somebody may be about to restore a backup");
    witness(&store).let_go(lease);
    // Those who only look make nothing.
    assert_eq!(store.list(Listing::Leases, None).await.expect_err("no file").kind(), ErrorKind::Unavailable);
    assert!(!folder.file().exists());

    assert_eq!(value(&store, &Key::Meta).await, None);
    assert_ne!(life(&store).await, before);
    assert!(store.lost_nothing(LONG).await.expect("an answer"));
}

#[tokio::test]
async fn work_that_may_outlive_its_lock_makes_a_new_file_uncertain_for_an_hour() {
    for is_empty in [true, false] {
        let folder = Folder::new();
        let backup = folder.path().join("backup.db");
        drop(open(&backup));
        testkit::eventually(LIMIT, "it is closed", || !folder.path().join("backup.db-wal").exists());
        let mut child = Process::start("worker without proof", &folder.file());
        remove(&folder.file());
        if !is_empty {
            std::fs::rename(&backup, folder.file()).expect("another file");
        }
        assert!(unavailable(&folder.file()).contains("still hold locks"));

        child.child.kill();

        let store = open(&folder.file());
        // Whoever asks may not know how long the lease was.
        for within in [Duration::ZERO, LONG] {
            assert!(!store.lost_nothing(within).await.expect("an answer"));
        }
        for (seconds, lost_nothing) in [(3590, false), (20, true)] {
            sql(&folder.file(), &format!("UPDATE host SET ahead_us = ahead_us + {seconds}000000"));
            assert_eq!(store.lost_nothing(Duration::ZERO).await.expect("an answer"), lost_nothing);
        }
        // Whoever said farewell leaves no doubt.
        witness(&store).let_go(LEASE);
    }
}

#[tokio::test]
async fn a_worker_without_proof_that_says_farewell_leaves_nothing_uncertain() {
    let folder = Folder::new();
    let store = SqliteBackend::open_without_proof(folder.file(), &Namespace::default()).expect("it opens");
    let lease = new_lease();
    witness(&store).vouch(lease).await.expect("a text");
    remove(&folder.file());
    assert!(unavailable(&folder.file()).contains("still hold locks"));

    witness(&store).let_go(lease);

    assert!(open(&folder.file()).lost_nothing(LONG).await.expect("an answer"));
}

#[tokio::test]
async fn a_reboot_changes_neither_the_life_nor_turns_the_clock_back() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let before = snapshot(&store, &[]).await;
    assert!(is_done(&commit_one(&store, write(&Key::Meta, Version::NONE, "{}")).await));
    // As if the host had run for an hour longer, or for less long, than it has now.
    for stamp in ["stamp + 3600000000", "stamp - 3600500000"] {
        sql(&folder.file(), &format!("UPDATE record SET stamp = {stamp}"));
        reboot(&folder.file());

        let after = snapshot(&store, &[Key::Meta]).await;

        assert_eq!(after.life, before.life);
        let stamp = after.records[0].stamp.expect("a stamp");
        let age = after.now.expect("a clock").since(stamp);
        assert!(
            after.now >= Some(stamp) && age < LIMIT,
            "the clock goes on where it stopped, not {age:?} later"
        );
        assert_eq!(life(&open(&folder.file())).await, before.life);
    }
}

#[tokio::test]
async fn systems_with_different_boot_ids_do_not_share_a_file() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let life_before = life(&store).await;
    let mut child = Process::start("worker", &folder.file());

    // Somebody with the boot id that the file names holds a lock, so it did not die with a reboot.
    reboot(&folder.file());
    let error = SqliteBackend::open(folder.file(), &Namespace::default()).expect_err("it is in use");
    assert!(
        error.kind() == ErrorKind::Refused && error.to_string().contains("different boot ids"),
        "{error}"
    );
    let error = store.commit(life_before, &[write(&Key::Meta, Version::NONE, "{}")]).await;
    assert_eq!(error.expect_err("it is in use").kind(), ErrorKind::Refused);

    child.child.kill();
    assert_eq!(life(&store).await, life_before);
    assert!(is_done(&commit_one(&store, write(&Key::Meta, Version::NONE, "{}")).await));
}

#[test]
fn a_process_in_another_time_namespace_has_the_same_clock() {
    let folder = Folder::new();
    let away = ["--time", "--boottime", "100000", "--fork", "--kill-child"];
    let begun = testkit::boottime();

    let child = Process::start_in(&away, "clock", &folder.file());

    let clock: u64 = child.said.parse().expect("a number");
    assert!((begun..=testkit::boottime()).contains(&clock), "{clock} is not its time");
}

#[tokio::test]
async fn a_file_that_cannot_be_looked_at_is_not_another_one() {
    let folder = Folder::new();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).expect("a folder");
    let store = open(&inner.join("tenure.db"));
    let before = life(&store).await;
    let away = folder.path().join("away");

    // A path that leads nowhere, for ever.
    std::fs::rename(&inner, &away).expect("moved");
    std::os::unix::fs::symlink(&inner, &inner).expect("a link to itself");
    assert_eq!(store.read(&[]).await.expect_err("nobody knows").kind(), ErrorKind::Unavailable);
    std::fs::remove_file(&inner).expect("the link goes");
    std::fs::rename(&away, &inner).expect("moved back");

    assert_eq!(life(&store).await, before);
}

#[tokio::test]
async fn a_folder_of_locks_that_was_removed_is_another_life() {
    let folder = Folder::new();
    let (store, lease) = (open(&folder.file()), new_lease());
    let before = life(&store).await;
    witness(&store).vouch(lease).await.expect("a text");

    // Its locks cannot be seen any more.
    std::fs::remove_dir_all(folder.beside()).expect("removed");
    witness(&store).vouch(new_lease()).await.expect("a text");

    assert_ne!(life(&store).await, before);
}
