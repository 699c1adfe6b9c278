//! Death is proved by the lock, and by nothing else.

use super::child::{LEASE, Process};
use super::*;
use rustix::process::{Pid, Signal as UnixSignal, kill_process};
use tenure::store::backend::Proof;
use tokio::sync::mpsc::UnboundedReceiver;

type Deaths = UnboundedReceiver<Proof>;

/// Long enough to see that nothing happens: a lock is tried at least every 100 ms.
const QUIET: Duration = Duration::from_millis(350);

fn watch(store: &SqliteBackend, info: Text) -> Deaths {
    let deaths = witness(store).deaths().expect("nobody took it");
    witness(store).watch(vec![(LEASE, info)]);
    deaths
}

async fn next(deaths: &mut Deaths) -> Proof {
    tokio::time::timeout(LIMIT, deaths.recv()).await.expect("a death is told").expect("a proof")
}

async fn is_quiet(deaths: &mut Deaths) -> bool {
    tokio::time::timeout(QUIET, deaths.recv()).await.is_err()
}

/// The only lock file in the folder.
fn lock_file(folder: &Folder) -> PathBuf {
    let entries = std::fs::read_dir(folder.beside()).expect("a folder");
    let mut locks = entries.map(|entry| entry.expect("an entry").path());
    locks.find(|path| path.extension().is_some_and(|extension| extension == "lock")).expect("a lock file")
}

#[tokio::test]
async fn a_kill_is_told_within_milliseconds() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start("worker", &folder.file());
    let mut deaths = watch(&store, child.info());
    assert!(is_quiet(&mut deaths).await);

    child.child.signal(UnixSignal::KILL);
    let killed_at = Instant::now();
    let proof = next(&mut deaths).await;

    let took = killed_at.elapsed();
    println!("the death was proved after {took:?}");
    assert!(took < Duration::from_secs(1), "it took {took:?}");
    assert_eq!(proof.lease, LEASE);
    assert!(witness(&store).deaths().is_none(), "they are taken once");
    assert!(child.child.ends().code().is_none());
}

#[tokio::test]
async fn a_death_before_anybody_watched_is_proved_at_once_and_to_one_at_a_time() {
    let folder = Folder::new();
    let (store, other) = (open(&folder.file()), open(&folder.file()));
    let mut child = Process::start("worker", &folder.file());
    let info = child.info();
    child.child.kill();

    let mut first = watch(&store, info.clone());
    let proof = next(&mut first).await;
    let mut second = watch(&other, info);
    assert!(is_quiet(&mut second).await && is_quiet(&mut first).await);
    drop(proof);

    // Its lease may not have been ended with that proof, so both go on trying.
    let proof = tokio::select! {
        Some(proof) = first.recv() => proof,
        Some(proof) = second.recv() => proof,
        () = tokio::time::sleep(LIMIT) => panic!("nobody proves it"),
    };
    assert!(is_quiet(&mut second).await && is_quiet(&mut first).await);
    drop((first, proof));
    drop(next(&mut second).await);
}

#[tokio::test]
async fn as_long_as_a_helper_has_the_lock_nobody_is_called_dead() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start("helped worker", &folder.file());
    let helper: i32 = child.child.hears().parse().expect("a pid");
    let mut deaths = watch(&store, child.info());

    child.child.kill();
    assert!(is_quiet(&mut deaths).await);
    kill_process(Pid::from_raw(helper).expect("a pid"), UnixSignal::KILL).expect("it can be killed");

    assert_eq!(next(&mut deaths).await.lease, LEASE);
}

// The review's planted bug S4.
#[tokio::test]
async fn another_file_at_the_path_of_the_lock_proves_nothing() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let child = Process::start("worker", &folder.file());
    let (lock, kept) = (lock_file(&folder), folder.path().join("kept"));

    // The worker lives, and holds the lock of the file that it made.
    std::fs::rename(&lock, &kept).expect("moved");
    std::fs::write(&lock, "").expect("another file");

    let mut deaths = watch(&store, child.info());
    assert!(is_quiet(&mut deaths).await);
    // Nor does it when the process is gone: that lock may have been given to another process.
    drop(child);
    assert!(is_quiet(&mut deaths).await);
    std::fs::remove_file(&lock).expect("gone");
    assert!(is_quiet(&mut deaths).await);
}

#[tokio::test]
async fn after_a_reboot_the_inode_alone_names_the_file() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start("worker", &folder.file());
    child.child.kill();
    let info: serde_json::Value = serde_json::from_str(&child.said).expect("JSON");
    let with = |boot: &str, ino: i64| -> Text {
        let mut info = info.clone();
        info["lock"]["dev"] = 7.into();
        info["lock"]["ino"] = (info["lock"]["ino"].as_i64().expect("a number") + ino).into();
        if !boot.is_empty() {
            info["boot"] = boot.into();
        }
        info.to_string().into()
    };

    let mut deaths = watch(&store, with("", 0));
    assert!(is_quiet(&mut deaths).await, "within a boot it is another file");
    witness(&store).watch(vec![(LEASE, with("before", 1))]);
    assert!(is_quiet(&mut deaths).await);
    witness(&store).watch(vec![(LEASE, with("before", 0))]);
    assert_eq!(next(&mut deaths).await.lease, LEASE);
}

#[tokio::test]
async fn a_worker_in_another_pid_namespace_is_proved_dead_by_its_lock() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start_in(&["--pid", "--fork", "--kill-child"], "worker", &folder.file());
    let mut deaths = watch(&store, child.info());
    assert!(is_quiet(&mut deaths).await);

    child.child.kill();

    assert_eq!(next(&mut deaths).await.lease, LEASE);
}

#[tokio::test]
async fn without_proof_nobody_is_called_dead() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start("worker without proof", &folder.file());
    let mut deaths = watch(&store, child.info());

    child.child.kill();

    assert!(is_quiet(&mut deaths).await);
    let without = SqliteBackend::open_without_proof(folder.file(), &Namespace::default()).expect("it opens");
    witness(&without).vouch(new_lease()).await.expect("a text");
    assert!(witness(&without).share_lock(LEASE).expect("an answer").is_none());
}

#[tokio::test]
async fn only_those_are_watched_who_are_named_last() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start("worker", &folder.file());
    let mut deaths = watch(&store, child.info());
    let stranger = new_lease();

    witness(&store).watch(vec![(stranger, child.info())]);
    child.child.kill();
    assert!(is_quiet(&mut deaths).await, "the lock of the stranger is not there");
    witness(&store).watch(vec![(stranger, child.info()), (LEASE, child.info())]);

    assert_eq!(next(&mut deaths).await.lease, LEASE);
}

#[tokio::test]
async fn a_proof_of_life_is_the_same_whenever_it_is_asked_for_and_outlives_the_store() {
    let folder = Folder::new();
    let (store, other) = (open(&folder.file()), open(&folder.file()));
    let lease = new_lease();
    let info = witness(&store).vouch(lease).await.expect("a text");
    assert_eq!(witness(&store).vouch(lease).await.expect("a text"), info);
    assert!(witness(&store).share_lock(lease).expect("an answer").is_some());

    drop(store);

    // The work may still run: this process has not let it go.
    assert!(witness(&other).share_lock(lease).expect("an answer").is_some());
    assert_eq!(witness(&other).vouch(lease).await.expect("a text"), info);
    witness(&other).let_go(lease);
    assert!(witness(&other).share_lock(lease).is_err());
}

#[tokio::test]
async fn an_attempt_to_vouch_that_was_given_up_leaves_no_lock() {
    let folder = Folder::new();
    let store = open(&folder.file());
    for _ in 0..200 {
        let lease = new_lease();
        let attempt =
            tokio::time::timeout(Duration::from_micros(unique() % 300), witness(&store).vouch(lease));
        let _given_up = attempt.await;
        witness(&store).let_go(lease);
        // Answered by the same thread, after all that went before.
        witness(&store).vouch(LEASE).await.expect("a text");

        assert!(witness(&store).share_lock(lease).is_err());
    }
    witness(&store).let_go(LEASE);
}

#[tokio::test]
async fn a_text_that_is_not_ours_proves_nothing() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start("worker", &folder.file());
    let info = child.info();
    child.child.kill();
    let mut deaths = watch(&store, info.clone());
    assert_eq!(next(&mut deaths).await.lease, LEASE);
    witness(&store).watch(Vec::new());
    while !is_quiet(&mut deaths).await {}

    for text in ["", "null", "[]", "{\"lock\":{\"dev\":0,\"ino\":0}}", &"[".repeat(100_000)] {
        witness(&store).watch(vec![(LEASE, text.into())]);
        assert!(is_quiet(&mut deaths).await, "{text:.50}");
    }
    witness(&store).watch(vec![(new_lease(), info)]);
    assert!(is_quiet(&mut deaths).await, "it is another lease's");
}

#[tokio::test]
async fn lock_files_without_a_record_are_removed_when_they_are_old() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let other = Namespace::new("other").expect("a name");
    let other = SqliteBackend::open(folder.file(), &other).expect("it opens");
    let leases: Vec<LeaseId> = (0..4).map(|_| new_lease()).collect();
    let [gone, recorded, held, young] = leases[..] else { unreachable!() };
    let locks = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder.beside()).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "lock")).collect()
    };
    let old = std::time::SystemTime::now() - Duration::from_secs(3700);
    for lease in [gone, recorded, held] {
        witness(&store).vouch(lease).await.expect("a text");
    }
    for path in locks() {
        std::fs::File::open(path).and_then(|file| file.set_modified(old)).expect("it is old");
    }
    witness(&store).vouch(young).await.expect("a text");
    [gone, recorded, young].into_iter().for_each(|lease| witness(&store).let_go(lease));
    assert!(is_done(&commit_one(&other, write(&Key::Lease(recorded), Version::NONE, "{}")).await));
    assert_eq!(locks().len(), 4);

    let _cleans_up = open(&folder.file());

    testkit::eventually(LIMIT, "one is removed", || locks().len() == 3);
    std::thread::sleep(QUIET);
    assert_eq!(locks().len(), 3, "and no other");
    witness(&store).let_go(held);
}
