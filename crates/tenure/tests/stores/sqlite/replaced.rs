//! A file that was replaced is another store: what was opened in the old one is gone.

use super::child::Process;
use super::*;
use tenure::{ErrorKind, Timing, Worker};
use tenure_core::{JobSaid, Payload, Published, WaitReason};

pub(crate) fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        std::fs::remove_file(file).expect("it was there");
    }
}

/// A copy of the file, as a backup makes it.
fn copy(path: &Path) -> PathBuf {
    let copy = path.with_extension("copy");
    let db = rusqlite::Connection::open(path).expect("SQLite opens it");
    db.execute("VACUUM INTO ?1", [copy.to_str().expect("a path")]).expect("a copy");
    copy
}

/// Puts the copy in the place of the file.
fn restore(path: &Path, copy: &Path) {
    remove(path);
    std::fs::rename(copy, path).expect("another file");
}

fn open_without_proof(path: &Path) -> SqliteStore {
    SqliteStore::open_without_proof(path, &Namespace::default()).expect("the store opens")
}

/// What kind of error it is that the store cannot be used now.
async fn not_now(owner: &mut Asker<'_>, call: Call) -> ErrorKind {
    owner.ask(call).await.expect_err("it is not used now").kind()
}

/// Closes the lease. Whether that can be written down or not, its lock goes.
async fn let_go(owner: &mut Asker<'_>) {
    let _unavailable = owner.ask(Call::Close(Closing::Left)).await;
    assert!(!has_lock(owner.store, owner.lease));
}

/// Why `path` does not open for now.
fn unavailable(path: &Path) -> String {
    let error = SqliteStore::open(path, &Namespace::default()).expect_err("it must wait");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    error.to_string()
}

#[tokio::test]
async fn where_a_backup_took_the_place_of_the_file_its_owner_begins_nothing_and_says_nothing() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    let grant = owner.granted("job").await;
    let holder = owner.holder("job", grant);
    jobs::step(&store, &holder, jobs::attend()).await;
    let copy = copy(&folder.file());
    assert!(matches!(jobs::step(&store, &holder, jobs::begin(7)).await, JobSaid::Begun(_)));

    restore(&folder.file(), &copy);

    // The copy knows the owner, and does not know that this was begun. It is not used while the owner may work.
    let payload = Payload::new(b"hello").expect("short");
    for occurrence in [7, 8] {
        let step = tenure_core::JobStep { holder: holder.clone(), act: jobs::begin(occurrence) };
        assert_eq!(store.job(&step).await.expect_err("not now").kind(), ErrorKind::Unavailable);
    }
    assert_eq!(store.publish(&holder, &payload).await.expect_err("not now").kind(), ErrorKind::Unavailable);

    // The first farewell lets the lock go, so that the second is written down.
    let_go(&mut owner).await;
    owner.close().await;
    assert_eq!(jobs::step(&store, &holder, jobs::begin(7)).await, JobSaid::NotOwner);
    assert_eq!(store.publish(&holder, &payload).await.expect("an answer"), Published::NotOwner);
}

#[tokio::test]
async fn after_the_file_was_removed_no_lease_is_renewed_and_a_new_file_waits_for_its_lock() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    owner.granted("job").await;

    remove(&folder.file());

    // A new file grants nothing while the old one's worker may work.
    let error = SqliteStore::open(folder.file(), &Namespace::default()).expect_err("it must wait");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("still hold locks"), "{error}");
    assert_eq!(not_now(&mut owner, Call::Renew).await, ErrorKind::Unavailable);
    assert_eq!(not_now(&mut owner, Call::Held).await, ErrorKind::Unavailable);
    let_go(&mut owner).await;

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
    restore(&folder.file(), &copy(&folder.file()));

    assert_eq!(not_now(&mut owner, Call::Renew).await, ErrorKind::Unavailable);
    assert_eq!(not_now(&mut owner, Call::Renew).await, ErrorKind::Unavailable);
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

#[tokio::test]
async fn a_backup_in_the_files_place_grants_nothing_while_an_owner_trusts() {
    for boot in ["", "UPDATE host SET boot = 'before'"] {
        let folder = Folder::new();
        let store = open(&folder.file());
        // The backup does not know the owner.
        let backup = copy(&folder.file());
        rusqlite::Connection::open(&backup).and_then(|db| db.execute_batch(boot)).expect("of that boot");
        let mut owner = Asker::opened(&store, "owner", LONG).await;
        let before = owner.granted("job").await;

        restore(&folder.file(), &backup);

        let told = unavailable(&folder.file());
        assert!(told.contains("it is not the file that was here before"), "{told}");
        assert_eq!(not_now(&mut owner, Call::Renew).await, ErrorKind::Unavailable);
        assert!(unavailable(&folder.file()).contains("still hold locks"), "its work may not have ended");
        let_go(&mut owner).await;

        let restored = open(&folder.file());
        let mut next = Asker::opened(&restored, "next", LONG).await;
        assert!(next.granted("job").await.token > before.token);
        // It is known now, also while it is in use.
        let _another = open(&folder.file());
    }
}

#[tokio::test]
async fn a_backup_that_is_restored_while_nobody_runs_grants_after_a_quarantine() {
    let folder = Folder::new();
    let mut child = Process::start("brief owner", &folder.file());
    let backup = copy(&folder.file());
    child.kill();

    restore(&folder.file(), &backup);

    let store = open(&folder.file());
    let mut next = Asker::opened(&store, "next", BRIEF).await;
    let waiting = next.waits("job").await;
    assert_eq!(waiting.why, WaitReason::Quarantine);
    assert!(waiting.look_again <= 2 * BRIEF, "{waiting:?}");
    let mut hints = next.hints().await;
    next.wins_in_time("job", &mut hints).await;
}

#[tokio::test]
async fn without_proofs_another_file_grants_nothing_either_while_an_owner_trusts() {
    let folder = Folder::new();
    let store = open_without_proof(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    owner.granted("job").await;
    // The backup knows the owner, and would keep its lease for ever.
    let backup = copy(&folder.file());

    restore(&folder.file(), &backup);

    assert!(unavailable(&folder.file()).contains("still hold locks"));
    assert_eq!(not_now(&mut owner, Call::Renew).await, ErrorKind::Unavailable);
    let_go(&mut owner).await;
    // It said farewell: nobody has to wait for its work.
    std::fs::remove_file(folder.file()).expect("it was there");
    let empty = open(&folder.file());
    Asker::opened(&empty, "next", LONG).await.granted("job").await;
}

#[tokio::test]
async fn without_proofs_another_file_grants_nothing_while_the_work_of_the_dead_may_go_on() {
    for is_empty in [true, false] {
        let folder = Folder::new();
        let backup = folder.path().join("backup.db");
        drop(open(&backup));
        let mut child = Process::start("owner without proof", &folder.file());
        child.kill();
        match is_empty {
            true => std::fs::remove_file(folder.file()).expect("it was there"),
            false => std::fs::rename(&backup, folder.file()).expect("another file"),
        }
        for log in ["tenure.db-wal", "tenure.db-shm"] {
            std::fs::remove_file(folder.path().join(log)).expect("it was there");
        }

        let opened_at = Instant::now();
        let store = open(&folder.file());
        let mut next = Asker::opened(&store, "next", BRIEF).await;
        let mut hints = next.hints().await;
        let waiting = next.waits("job").await;
        assert_eq!(waiting.why, WaitReason::Quarantine);
        let withheld = async || store.read(Some(&name("job"))).await.expect("a view")[0].withheld;
        let left = withheld().await.expect("a quarantine is told");
        assert!(left <= BRIEF && left <= waiting.look_again, "{left:?} of {waiting:?}");
        next.wins_in_time("job", &mut hints).await;

        let after = opened_at.elapsed();
        assert!(after >= BRIEF, "the lease of the dead was longer than {after:?}");
        assert_eq!(withheld().await, None);
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_looked_at_costs_no_lease() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    owner.granted("job").await;
    let away = folder.path().with_extension("away");

    // A path that leads nowhere, for ever.
    std::fs::rename(folder.path(), &away).expect("moved");
    std::os::unix::fs::symlink(folder.path(), folder.path()).expect("a link to itself");
    let error = owner.ask(Call::Renew).await.expect_err("nobody knows");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    std::fs::remove_file(folder.path()).expect("the link goes");
    std::fs::rename(&away, folder.path()).expect("moved back");

    assert!(matches!(owner.said(Call::Renew).await, Said::Kept { .. }));
}
