//! The embedded store as its users meet it: real files, real processes, real deaths.
//!
//! The rules are checked by the conformance suite, and the backend by `backend`; here is what only workers in
//! real processes can show.
#![cfg(all(feature = "sqlite", target_os = "linux"))]

mod backend;
mod child;
mod deaths;
mod endings;
mod hints;
mod jobs;
mod opening;
mod replaced;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::store::{Hints, SqliteStore, Store};
use tenure_core::{
    Answer, Call, Claimed, Closing, Grant, Label, LeaseId, Leave, Leaving, Metadata, Moment, Namespace,
    Released, Request, ResourceName, Said, Seq, StoreTime, Tickets, Waiting, Want,
};
use testkit::TempDir;

/// A lease that does not run out while a test looks elsewhere.
const LONG: Duration = Duration::from_secs(60);
/// A lease that runs out while a test waits for it.
const SHORT: Duration = Duration::from_millis(300);
/// One that also does, but not while another process starts.
const BRIEF: Duration = Duration::from_millis(1200);
/// Nothing here should ever take so long.
const LIMIT: Duration = Duration::from_secs(10);

/// A folder that goes with the test, and the path of a database in it.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(testkit::folder())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.path().join("tenure.db")
    }

    /// The folder for lock files and sockets.
    pub(crate) fn beside(&self) -> PathBuf {
        self.path().join("tenure.db-tenure")
    }
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, &Namespace::default()).expect("the store opens")
}

/// The lock files of leases.
fn lock_files(folder: &Folder) -> Vec<PathBuf> {
    files(&folder.beside(), "lock")
}

/// The sockets of those who listen.
fn sockets(folder: &Folder) -> usize {
    let folders = std::fs::read_dir(folder.beside()).expect("the folder");
    let folders = folders.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir());
    folders.map(|folder| files(&folder, "sock").len()).sum()
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("an entry").path());
    files.filter(|file| file.extension() == Some(extension.as_ref())).collect()
}

/// Whether this process has the lock of a lease.
fn has_lock(store: &SqliteStore, lease: LeaseId) -> bool {
    store.share_lock(lease).is_ok_and(|lock| lock.is_some())
}

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).expect("a name")
}

/// One worker's side of a store: a lease, and its requests in order.
struct Asker<'s> {
    store: &'s SqliteStore,
    lease: LeaseId,
    seq: u64,
    judged_by: Option<StoreTime>,
}

impl<'s> Asker<'s> {
    fn new(store: &'s SqliteStore) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let unique = u128::from(std::process::id()) << 64 | u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
        Self { store, lease: LeaseId(unique), seq: 0, judged_by: None }
    }

    /// A new worker with a lease.
    async fn opened(store: &'s SqliteStore, label: &str, ttl: Duration) -> Self {
        let mut asker = Self::new(store);
        assert_eq!(asker.open(label, ttl).await, Said::Opened);
        asker
    }

    async fn ask(&mut self, call: Call) -> Result<Answer, tenure::Error> {
        self.ask_within(LIMIT, call).await
    }

    async fn ask_within(&mut self, limit: Duration, call: Call) -> Result<Answer, tenure::Error> {
        self.seq += 1;
        let request = Request {
            lease: self.lease,
            seq: Seq(self.seq),
            asked_at: Moment::new(Duration::ZERO, Duration::ZERO),
            limit,
            judged_by: self.judged_by,
            call,
        };
        self.store.call(&request).await
    }

    async fn said(&mut self, call: Call) -> Said {
        self.ask(call).await.expect("an answer").said
    }

    async fn open(&mut self, label: &str, ttl: Duration) -> Said {
        let label = Label::new(label).expect("a label");
        self.said(Call::Open { ttl, label, metadata: Metadata::default() }).await
    }

    async fn claim(&mut self, resource: &str) -> Claimed {
        let want = Want { resource: name(resource), tickets: Tickets::ONE, priority: 0 };
        match self.said(Call::Claim(vec![want])).await {
            Said::Claimed(claimed) => claimed[0],
            other => panic!("a claim was answered {other:?}"),
        }
    }

    async fn granted(&mut self, resource: &str) -> Grant {
        match self.claim(resource).await {
            Claimed::Granted(grant) => grant,
            other => panic!("no grant but {other:?}"),
        }
    }

    async fn waits(&mut self, resource: &str) -> Waiting {
        match self.claim(resource).await {
            Claimed::Waiting(waiting) => waiting,
            other => panic!("no wait but {other:?}"),
        }
    }

    async fn release(&mut self, resource: &str) -> Released {
        let leave = Leave { resource: name(resource), how: Leaving::Released };
        match self.said(Call::Release(vec![leave])).await {
            Said::Released(released) => released[0],
            other => panic!("a release was answered {other:?}"),
        }
    }

    async fn close(&mut self) {
        assert_eq!(self.said(Call::Close(Closing::Left)).await, Said::Closed);
    }

    async fn hints(&self) -> Hints {
        self.store.hints(self.lease).await.expect("a subscription")
    }

    /// Looks until it owns, as hints tell and at the latest when the store says.
    async fn wins(&mut self, resource: &str, hints: &mut Hints) -> Grant {
        let until = Instant::now() + LIMIT;
        loop {
            let look_again = match self.claim(resource).await {
                Claimed::Granted(grant) => return grant,
                Claimed::Waiting(waiting) => waiting.look_again,
            };
            assert!(Instant::now() < until, "`{resource}` was not won within {LIMIT:?}");
            let _hinted = tokio::time::timeout(look_again, hints.recv()).await;
        }
    }

    /// The same with a short lease: it is renewed before every look.
    async fn wins_in_time(&mut self, resource: &str, hints: &mut Hints) -> Grant {
        let until = Instant::now() + LIMIT;
        loop {
            assert!(matches!(self.said(Call::Renew).await, Said::Kept { .. }));
            let look_again = match self.claim(resource).await {
                Claimed::Granted(grant) => return grant,
                Claimed::Waiting(waiting) => waiting.look_again,
            };
            assert!(Instant::now() < until, "`{resource}` was not won within {LIMIT:?}");
            let _hinted = tokio::time::timeout(look_again.min(BRIEF / 4), hints.recv()).await;
        }
    }
}

#[tokio::test]
async fn two_handles_on_one_file_see_each_other() {
    let folder = Folder::new();
    let (one, two) = (open(&folder.file()), open(&folder.file()));
    let mut first = Asker::opened(&one, "first", LONG).await;
    let mut second = Asker::opened(&two, "second", LONG).await;

    let before = first.granted("job").await;
    assert_eq!(second.waits("job").await.ahead, 0);
    let seen = two.read(Some(&name("job"))).await.expect("a view");
    assert_eq!((seen[0].owners[0].worker.as_str(), seen[0].waiters[0].worker.as_str()), ("first", "second"));
    assert_eq!(first.release("job").await, Released::Free);
    let after = second.granted("job").await;

    assert!(after.token > before.token && after.term.0 == before.term.0 + 1);
    assert_eq!(one.history(None).await.expect("a history").len(), 3);
}

#[tokio::test]
async fn a_process_has_the_lock_of_a_lease_from_its_opening_to_its_close() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::new(&store);
    assert!(!has_lock(&store, owner.lease));

    assert_eq!(owner.open("owner", LONG).await, Said::Opened);
    assert!(has_lock(&store, owner.lease));
    owner.close().await;

    assert!(!has_lock(&store, owner.lease));
}

#[tokio::test]
async fn an_attempt_that_is_given_up_does_no_harm() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    let writer = rusqlite::Connection::open(folder.file()).expect("SQLite opens it");
    writer.execute_batch("BEGIN IMMEDIATE").expect("it writes");

    let given_up = tokio::time::timeout(Duration::from_millis(50), owner.ask(Call::Renew)).await;
    assert!(given_up.is_err(), "it waits for the other");
    writer.execute_batch("ROLLBACK").expect("it ends");

    assert!(matches!(owner.said(Call::Renew).await, Said::Kept { .. }));
}

#[tokio::test]
async fn namespaces_in_one_file_do_not_meet() {
    let folder = Folder::new();
    let one = open(&folder.file());
    let two = SqliteStore::open(folder.file(), &Namespace::new("two").expect("a name")).expect("it opens");
    let mut first = Asker::opened(&one, "first", LONG).await;
    let mut second = Asker::opened(&two, "second", LONG).await;

    first.granted("job").await;
    second.granted("job").await;

    let mut stranger = Asker { store: &two, lease: first.lease, seq: 50, judged_by: None };
    assert_eq!(stranger.said(Call::Renew).await, Said::Gone);
    assert_eq!(two.read(None).await.expect("views")[0].owners.len(), 1);
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_runs_out_and_one_that_is_does_not() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut waiter = Asker::opened(&store, "waiter", LONG).await;
    let mut hints = waiter.hints().await;
    // Long enough for a grant and a renewal on a disk that is busy.
    let ttl = Duration::from_secs(2);
    let mut owner = Asker::opened(&store, "owner", ttl).await;
    owner.granted("job").await;
    let renewed_at = Instant::now();
    assert!(matches!(owner.said(Call::Renew).await, Said::Kept { .. }));

    waiter.wins("job", &mut hints).await;

    assert!(renewed_at.elapsed() >= ttl, "it was let in early");
    assert_eq!(owner.said(Call::Renew).await, Said::Gone);
}

#[tokio::test]
async fn ten_thousand_resources_are_claimed_in_pieces() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;

    for piece in 0..40 {
        let want = |i| Want { resource: name(&format!("job {i}")), tickets: Tickets::ONE, priority: 0 };
        let wants = (piece * 250..(piece + 1) * 250).map(want).collect();
        let Said::Claimed(claimed) = owner.said(Call::Claim(wants)).await else { panic!("no claim") };
        assert!(claimed.iter().all(|claimed| matches!(claimed, Claimed::Granted(_))));
    }

    let Said::Held(held) = owner.said(Call::Held).await else { panic!("nothing held") };
    assert_eq!(held.len(), 10_000);
    owner.close().await;
}
