//! What cannot be used safely is refused, with the path and the reason.

use std::os::unix::fs::{PermissionsExt, chown};

use super::child::Process;
use super::*;
use tenure::{Error, ErrorKind};

fn refused(path: &Path) -> (ErrorKind, String) {
    let error = SqliteBackend::open(path, &Namespace::default()).expect_err("it must not open");
    let told = error.to_string();
    assert!(told.contains(&path.display().to_string()), "{told:?} does not name {path:?}");
    (error.kind(), told)
}

/// What lies in the folder, in order.
fn names(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).expect("a folder");
    let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries.map(|entry| name(entry.expect("an entry"))).collect();
    names.sort();
    names
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn a_path_in_a_missing_folder_or_below_a_file_is_refused() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("file"), "").expect("a file");

    let (kind, told) = refused(&folder.path().join("missing/tenure.db"));
    assert!(kind == ErrorKind::Refused && told.ends_with("does not exist"), "{told}");
    let (kind, told) = refused(&folder.path().join("file/tenure.db"));
    assert!(kind == ErrorKind::Refused, "{told}");
    let (kind, told) = refused(folder.path());
    assert!(kind == ErrorKind::Refused && told.ends_with("it is not a file"), "{told}");
}

#[test]
fn garbage_and_damage_are_corrupt_and_stay_as_they_are() {
    let folder = Folder::new();
    let garbage = "no database at all ".repeat(100);
    std::fs::write(folder.file(), &garbage).expect("a file");

    let (kind, told) = refused(&folder.file());

    assert!(kind == ErrorKind::Corrupt && told.ends_with("it is not a SQLite database"), "{told}");
    assert_eq!(std::fs::read_to_string(folder.file()).expect("still there"), garbage);
    assert_eq!(names(&folder), ["tenure.db"], "nothing is left beside it");

    let damaged = folder.path().join("damaged.db");
    drop(open(&damaged));
    testkit::eventually(LIMIT, "the last connection takes the log with it", || {
        !folder.path().join("damaged.db-wal").exists()
    });
    let mut bytes = std::fs::read(&damaged).expect("a database");
    bytes[4096..].fill(0xA5);
    std::fs::write(&damaged, bytes).expect("damage");

    let (kind, told) = refused(&damaged);
    assert!(kind == ErrorKind::Corrupt && told.ends_with("the file is damaged"), "{told}");
}

#[tokio::test]
async fn a_value_of_the_wrong_kind_is_corrupt() {
    let folder = Folder::new();
    let store = open(&folder.file());
    assert!(is_done(&commit_one(&store, write(&Key::Meta, Version::NONE, "{}")).await));

    sql(&folder.file(), "UPDATE record SET value = CAST(x'ff' AS TEXT)");

    assert_eq!(store.read(&[Key::Meta]).await.expect_err("it is no text").kind(), ErrorKind::Corrupt);
}

#[test]
fn data_of_other_builds_and_of_other_programs_is_refused_and_stays_as_it_is() {
    let folder = Folder::new();
    drop(open(&folder.file()));
    sql(&folder.file(), "PRAGMA user_version = 2");

    let (kind, told) = refused(&folder.file());
    assert!(kind == ErrorKind::Refused && told.contains("an earlier build of Tenure made it"), "{told}");
    assert!(told.contains("remove the file, or choose another path"), "{told}");

    let newer = folder.path().join("newer.db");
    drop(open(&newer));
    sql(&newer, "PRAGMA user_version = 4");
    let (kind, told) = refused(&newer);
    assert!(kind == ErrorKind::Refused && told.contains("a newer build of Tenure made it"), "{told}");
    sql(&newer, "PRAGMA user_version = -1");
    assert_eq!(refused(&newer).0, ErrorKind::Corrupt);

    let other = folder.path().join("other.db");
    sql(&other, "CREATE TABLE t (x)");
    set_mode(&other, 0o600);
    let (kind, told) = refused(&other);
    assert!(kind == ErrorKind::Refused && told.ends_with("it is the database of another program"), "{told}");
    assert!(!names(&folder).iter().any(|name| name.starts_with("other.db-")), "{:?}", names(&folder));
}

#[test]
fn a_hard_link_is_refused_and_a_symbolic_link_leads_to_the_same_store() {
    let folder = Folder::new();
    let kept = open(&folder.file());
    let symbolic = folder.path().join("symbolic.db");
    std::os::unix::fs::symlink(folder.file(), &symbolic).expect("a link");
    drop(open(&symbolic));
    assert!(!folder.path().join("symbolic.db-tenure").exists());

    std::fs::hard_link(folder.file(), folder.path().join("hard.db")).expect("a link");

    let (kind, told) = refused(&folder.file());
    assert!(kind == ErrorKind::Refused && told.contains("hard links"), "{told}");
    drop(kept);
}

#[test]
fn what_the_store_makes_is_for_this_user_only() {
    let folder = Folder::new();
    let _store = open(&folder.file());

    for file in ["tenure.db", "tenure.db-wal", "tenure.db-shm"] {
        assert_eq!(mode(&folder.path().join(file)), 0o600, "{file}");
    }
    assert_eq!(mode(&folder.beside()), 0o700);
}

// The review's finding D8.
#[tokio::test]
async fn a_database_that_other_users_can_write_is_refused() {
    let folder = Folder::new();
    std::fs::write(folder.file(), "").expect("an empty file");

    for others in [0o666, 0o620, 0o602] {
        set_mode(&folder.file(), others);
        let (kind, told) = refused(&folder.file());
        assert!(kind == ErrorKind::Refused && told.contains("other users can write to it"), "{told}");
        assert_eq!(mode(&folder.file()), others, "it stays as it is");
    }
    set_mode(&folder.file(), 0o600);
    chown(folder.file(), Some(12_345), None).expect("these tests run as root");
    let (kind, told) = refused(&folder.file());
    assert!(kind == ErrorKind::Refused && told.ends_with("it belongs to another user"), "{told}");
}

// The review's finding D8.
#[tokio::test]
async fn a_database_that_other_users_can_read_is_hidden_from_them() {
    let folder = Folder::new();
    let first = open(&folder.file());
    for file in ["tenure.db", "tenure.db-wal", "tenure.db-shm"] {
        set_mode(&folder.path().join(file), 0o644);
    }

    let second = open(&folder.file());

    for file in ["tenure.db", "tenure.db-wal", "tenure.db-shm"] {
        assert_eq!(mode(&folder.path().join(file)), 0o600, "{file}");
    }
    assert_eq!(life(&first).await, life(&second).await);
}

#[test]
fn a_folder_for_locks_that_is_not_ours_alone_is_refused() {
    let folder = Folder::new();
    std::fs::create_dir(folder.beside()).expect("a folder");

    for others in [0o755, 0o710, 0o702] {
        set_mode(&folder.beside(), others);
        let (kind, told) = refused(&folder.file());
        assert!(kind == ErrorKind::Refused && told.contains("other users have rights to it"), "{told}");
    }
    set_mode(&folder.beside(), 0o700);
    drop(open(&folder.file()));
    chown(folder.beside(), Some(12_345), None).expect("these tests run as root");
    let (kind, told) = refused(&folder.file());
    assert!(kind == ErrorKind::Refused && told.ends_with("it belongs to another user"), "{told}");

    std::fs::remove_dir_all(folder.beside()).expect("removed");
    std::os::unix::fs::symlink(folder.path(), folder.beside()).expect("a link");
    let (kind, told) = refused(&folder.file());
    assert!(kind == ErrorKind::Refused && told.ends_with("it is not a folder"), "{told}");
}

#[test]
fn a_file_system_that_is_not_known_to_be_safe_is_refused_by_name() {
    let (kind, told) = refused(Path::new("/proc/tenure.db"));

    assert!(kind == ErrorKind::Refused && told.contains("it lies on a file system (0x9fa0)"), "{told}");
}

#[test]
fn a_read_only_folder_and_a_single_file_mount_are_refused() {
    let folder = Folder::new();
    let read_only = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\"";
    for _ in 0..2 {
        let child = Process::start_mounted("opener", &folder.file(), read_only);
        assert!(child.said.starts_with("Refused: ") && child.said.contains("read-only"), "{}", child.said);
        // Then with a file that is there.
        drop(open(&folder.file()));
    }

    let single = "mount --bind \"$0/tenure.db\" \"$0/tenure.db\"";
    let child = Process::start_mounted("opener", &folder.file(), single);
    assert!(child.said.starts_with("Refused: "), "{}", child.said);
    assert!(child.said.contains("mounted as a single file"), "{}", child.said);
}

#[test]
fn a_full_disk_is_unavailable_and_not_a_damaged_file() {
    let folder = Folder::new();
    let full = "mount -t tmpfs -o size=16k tenure \"$0\"";

    let child = Process::start_mounted("opener", &folder.file(), full);

    assert!(child.said.starts_with("Unavailable: "), "{}", child.said);
    assert!(child.said.ends_with("the disk is full"), "{}", child.said);
}

#[test]
fn those_who_open_a_new_file_at_once_all_succeed() {
    for round in 0..30 {
        let folder = Folder::new();
        let (file, gate) = (folder.file(), std::sync::Barrier::new(4));

        let opened: Vec<Result<(), Error>> = std::thread::scope(|scope| {
            let open = || {
                gate.wait();
                SqliteBackend::open(&file, &Namespace::default()).map(drop)
            };
            let openers: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            openers.into_iter().map(|opener| opener.join().expect("no panic")).collect()
        });

        assert!(opened.iter().all(Result::is_ok), "round {round}: {opened:?}");
    }
}

#[tokio::test]
async fn a_file_in_memory_is_a_concern_and_one_on_a_disk_is_none() {
    let folder = Folder::new();
    assert_eq!(open(&folder.file()).safety().await.expect("an answer"), []);

    let _disk = testkit::disk::Disk::mount(&folder.path().join("disk"), 4);
    let store = open(&folder.path().join("disk/tenure.db"));

    let concerns = store.safety().await.expect("an answer");
    assert_eq!(concerns.len(), 1);
    assert_eq!(concerns[0].cost, tenure::store::Impact::Record);
}

#[tokio::test]
async fn nothing_that_is_printed_shows_a_value() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let lease = new_lease();
    let info = witness(&store).vouch(lease).await.expect("a text");
    let change = write(&Key::Info(lease), Version::NONE, "secret");

    let printed = format!("{store:?} {info:?} {change:?} {:?}", commit_one(&store, change.clone()).await);
    let error = witness(&store).share_lock(new_lease()).expect_err("it is not ours");

    assert!(!printed.contains("secret") && !printed.contains("boot"), "{printed}");
    assert!(!format!("{error:?} {error}").contains(".lock"), "{error:?}");
}
