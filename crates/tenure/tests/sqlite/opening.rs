//! What cannot be opened safely is refused, with the path and the reason.

use super::child::Process;
use super::*;
use rusqlite::Connection;
use tenure::Kind;
use tenure_core::JobSaid;

/// Why `path` does not open.
fn refused(path: &Path) -> (Kind, String) {
    let error = SqliteStore::open(path, &Namespace::default()).expect_err("it must not open");
    let told = error.to_string();
    assert!(told.contains(&path.display().to_string()), "{told:?} does not name {path:?}");
    (error.kind(), told)
}

#[test]
fn a_path_in_a_missing_folder_or_below_a_file_is_refused() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("file"), "").expect("a file");

    let (kind, told) = refused(&folder.0.join("missing/tenure.db"));
    assert!(kind == Kind::Refused && told.ends_with("does not exist"), "{told}");
    let (kind, told) = refused(&folder.0.join("file/tenure.db"));
    assert!(kind == Kind::Refused, "{told}");
    let (kind, told) = refused(&folder.0);
    assert!(kind == Kind::Refused && told.ends_with("it is not a file"), "{told}");
}

#[test]
fn rubbish_and_damage_are_corrupt_and_stay_as_they_are() {
    let folder = Folder::new();
    let rubbish = "no database at all ".repeat(100);
    std::fs::write(folder.file(), &rubbish).expect("a file");

    let (kind, told) = refused(&folder.file());

    assert!(kind == Kind::Corrupt && told.ends_with("it is not a SQLite database"), "{told}");
    assert_eq!(std::fs::read_to_string(folder.file()).expect("still there"), rubbish);
    assert_eq!(names(&folder), ["tenure.db"], "nothing is left beside it");

    let damaged = folder.0.join("damaged.db");
    drop(open(&damaged));
    // The last connection that closes takes the log with it.
    let until = Instant::now() + LIMIT;
    while folder.0.join("damaged.db-wal").exists() {
        assert!(Instant::now() < until, "the store is not closed within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut bytes = std::fs::read(&damaged).expect("a database");
    bytes[4096..].fill(0xA5);
    std::fs::write(&damaged, bytes).expect("damage");

    let (kind, told) = refused(&damaged);
    assert!(kind == Kind::Corrupt && told.ends_with("the file is damaged"), "{told}");
}

#[test]
fn a_newer_version_and_another_programs_database_are_refused_and_stay_as_they_are() {
    let folder = Folder::new();
    drop(open(&folder.file()));
    let db = Connection::open(folder.file()).expect("SQLite opens it");
    db.execute_batch("PRAGMA user_version = 3").expect("a newer version");

    let (kind, told) = refused(&folder.file());
    assert!(kind == Kind::Refused && told.contains("a newer Tenure made it (tables of version 3"), "{told}");

    let other = folder.0.join("other.db");
    Connection::open(&other).expect("a database").execute_batch("CREATE TABLE t (x)").expect("a table");
    let (kind, told) = refused(&other);
    assert!(kind == Kind::Refused && told.ends_with("it is the database of another program"), "{told}");
    assert!(!names(&folder).iter().any(|name| name.starts_with("other.db-")), "{:?}", names(&folder));
}

#[tokio::test]
async fn whoever_looks_at_a_file_in_which_nothing_stands_finds_nothing_and_makes_nothing() {
    let folder = Folder::new();
    std::fs::write(folder.file(), "").expect("a file");
    let url = format!("sqlite:{}", folder.file().display());

    assert!(tenure::Namespace::find(&url, "tenure").await.expect("an answer").is_none());

    assert_eq!(
        (names(&folder), std::fs::read(folder.file()).expect("still there").len()),
        (vec!["tenure.db".to_owned()], 0)
    );
}

/// What lies in the folder, in order.
fn names(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(&folder.0).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_file_of_an_earlier_version_gets_what_it_has_not_and_keeps_what_it_knows() {
    let folder = Folder::new();
    let earlier = open(&folder.file());
    let mut owner = Asker::opened(&earlier, "owner", LONG).await;
    let grant = owner.granted("job").await;
    let db = Connection::open(folder.file()).expect("SQLite opens it");
    db.execute_batch("DROP TABLE run; DROP TABLE job; PRAGMA user_version = 1")
        .expect("as version 1 made it");

    let store = open(&folder.file());

    let holder = owner.holder("job", grant);
    assert!(store.jobs(None).await.expect("views").is_empty());
    assert!(matches!(jobs::step(&store, &holder, jobs::attend()).await, JobSaid::Attended { .. }));
    assert!(matches!(owner.said(Call::Renew).await, Said::Kept { .. }));
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("a version");
    assert_eq!(version, 2);
}

#[test]
fn a_hard_link_is_refused_and_a_symbolic_link_leads_to_the_same_store() {
    let folder = Folder::new();
    let file = folder.file();
    let kept = open(&file);
    let symbolic = folder.0.join("symbolic.db");
    std::os::unix::fs::symlink(&file, &symbolic).expect("a link");
    open(&symbolic);
    assert!(!folder.0.join("symbolic.db-tenure").exists());

    std::fs::hard_link(&file, folder.0.join("hard.db")).expect("a link");

    let (kind, told) = refused(&file);
    assert!(kind == Kind::Refused && told.contains("hard links"), "{told}");
    drop(kept);
}

#[test]
fn what_holds_lease_ids_is_for_this_user_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let _store = open(&folder.file());

    let mode = |file: &str| {
        let found = std::fs::metadata(folder.0.join(file)).expect("it is there");
        found.permissions().mode() & 0o777
    };
    assert_eq!((mode("tenure.db"), mode("tenure.db-wal"), mode("tenure.db-tenure")), (0o600, 0o600, 0o700));
}

#[test]
fn a_folder_for_locks_that_is_not_ours_alone_is_refused() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let folder = Folder::new();
    let locks = folder.0.join("tenure.db-tenure");
    std::fs::create_dir(&locks).expect("a folder");
    let mode =
        |mode| std::fs::set_permissions(&locks, std::fs::Permissions::from_mode(mode)).expect("a mode");

    for others in [0o755, 0o710, 0o702] {
        mode(others);
        let (kind, told) = refused(&folder.file());
        assert!(kind == Kind::Refused && told.contains("others have rights to it"), "{told}");
    }
    mode(0o700);
    drop(open(&folder.file()));
    chown(&locks, Some(12_345), None).expect("these tests run as root");

    let (kind, told) = refused(&folder.file());
    assert!(kind == Kind::Refused && told.ends_with("it belongs to another user"), "{told}");
}

#[test]
fn a_file_system_that_is_not_known_to_be_safe_is_refused_by_name() {
    let (kind, told) = refused(Path::new("/proc/tenure.db"));

    assert!(kind == Kind::Refused && told.contains("it lies on a file system (0x9fa0)"), "{told}");
}

#[test]
fn a_read_only_folder_and_a_single_file_mount_are_refused() {
    let folder = Folder::new();
    let read_only = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\"";
    let child = Process::start_mounted("opener", &folder.file(), read_only);
    assert!(child.told.starts_with("Refused: ") && child.told.contains("read-only"), "{}", child.told);

    drop(open(&folder.file()));
    let child = Process::start_mounted("opener", &folder.file(), read_only);
    assert!(child.told.starts_with("Refused: ") && child.told.contains("read-only"), "{}", child.told);

    let single = "mount --bind \"$0/tenure.db\" \"$0/tenure.db\"";
    let child = Process::start_mounted("opener", &folder.file(), single);
    assert!(
        child.told.starts_with("Refused: ") && child.told.contains("mounted as a single file"),
        "{}",
        child.told
    );
}

#[test]
fn a_full_disk_is_unavailable_and_says_so() {
    let folder = Folder::new();

    let child = Process::start_mounted("filler", &folder.file(), "mount -t tmpfs -o size=2m tenure \"$0\"");

    assert!(child.told.starts_with("Unavailable: cannot claim in"), "{}", child.told);
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
        db.execute_batch("UPDATE meta SET boot = 'before'; UPDATE lease SET boot = 'before'")
            .expect("another boot");
    };

    // Its lock is held: two systems share the file.
    as_if_rebooted();
    let (kind, told) = refused(&folder.file());
    assert!(kind == Kind::Refused && told.contains("different boot ids"), "{told}");
    let mut stranger = Asker::new(&store);
    assert_eq!(stranger.ask(Call::Renew).await.expect_err("refused").kind(), Kind::Refused);

    // Its lock can be won: it is dead.
    child.kill();
    let mut next = Asker::opened(&store, "next", LONG).await;
    next.granted("job").await;

    // There is no file: it lives on for a full ttl.
    as_if_rebooted();
    for entry in std::fs::read_dir(folder.0.join("tenure.db-tenure")).expect("the folder") {
        std::fs::remove_file(entry.expect("an entry").path()).expect("gone");
    }
    let again = open(&folder.file());
    let mut last = Asker::opened(&again, "last", LONG).await;
    let waiting = last.waits("job").await;
    assert!(waiting.look_again > LONG / 2 && waiting.look_again <= LONG, "{waiting:?}");
}

#[tokio::test]
async fn looking_for_a_store_that_is_not_there_makes_none() {
    let folder = Folder::new();
    for path in [folder.file(), folder.0.join("missing/tenure.db")] {
        let url = format!("sqlite:{}", path.display());
        assert!(tenure::Namespace::find(&url, "tenure").await.expect("an answer").is_none());
    }
    assert_eq!(std::fs::read_dir(&folder.0).expect("a folder").count(), 0);
    assert!(tenure::Namespace::find("memory:nobody-uses-it", "tenure").await.expect("an answer").is_none());
    assert!(tenure::Namespace::find("nix:", "tenure").await.is_err());

    drop(open(&folder.file()));

    let url = format!("sqlite:{}", folder.file().display());
    assert!(tenure::Namespace::find(&url, "tenure").await.expect("an answer").is_some());
}

#[test]
fn those_who_open_a_new_file_at_once_all_succeed() {
    for round in 0..40 {
        let folder = Folder::new();
        let (file, gate) = (folder.file(), std::sync::Barrier::new(4));

        let opened: Vec<_> = std::thread::scope(|scope| {
            let open = || {
                gate.wait();
                SqliteStore::open(&file, &Namespace::default()).map(drop)
            };
            let openers: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            openers.into_iter().map(|opener| opener.join().expect("no panic")).collect()
        });

        assert!(opened.iter().all(Result::is_ok), "round {round}: {opened:?}");
    }
}
