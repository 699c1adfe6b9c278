//! The threads that own the connections. Each carries out one job after the other on a connection of its own.
//!
//! The caller awaits the answer without blocking. Dropping the answer gives the job up: one that has not begun is
//! skipped, and one that waits for another writer stops waiting.

use crate::runtime::events;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rusqlite::{Transaction, TransactionBehavior};
use tenure_core::{Incarnation, LeaseId, Namespace};
use tokio::sync::oneshot;

use super::error::{Failure, io_error};
use super::fork::{self, Slot};
use super::host::Host;
use super::lock::{self, Proof};
use super::outbox::Outbox;
use super::place::Place;
use super::records::Records;
use super::schema::{self, Durability, Opened, Present};
use super::signals;
use super::witness::Info;
use crate::Error;
use crate::store::backend::{Change, Commits, Committed, Text};
use crate::store::open::Missing;

/// How long a job waits for other writers.
const PATIENCE: Duration = Duration::from_secs(5);
/// A job that waits for another writer first looks so often without sleeping, which takes about as long as a commit
/// without a sync.
const SPINS: i32 = 40;
/// Then it sleeps for this long, then for twice as long, and so on.
const FIRST_SLEEP: Duration = Duration::from_micros(100);
/// But never for longer than this.
const LONGEST_SLEEP: Duration = Duration::from_millis(2);
/// After so many commits the log is moved into the database, in the background.
const CHECKPOINT: u32 = 250;
/// A log of so many pages is too long: somebody wrote whenever it was moved, so that it could not begin anew.
const LONG_LOG: i64 = 2000;
/// How long all writers wait for that in the worst case, because some process is in the middle of a read.
const RESTART_PATIENCE: Duration = Duration::from_millis(20);

/// What the threads of one backend have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) place: Place,
    pub(super) host: Host,
    pub(super) namespace: Namespace,
    pub(super) proof: Proof,
    pub(super) outbox: Outbox,
}

type Job = Box<dyn FnOnce(&mut Client) + Send>;

/// A thread with a connection. It ends when all its handles are dropped.
#[derive(Clone)]
pub(super) struct Thread(mpsc::Sender<Job>);

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Thread")
    }
}

impl Thread {
    /// Starts it. It connects with its first job.
    pub(super) fn start(
        shared: &Arc<Shared>,
        name: &str,
        durability: Durability,
        background: Option<Self>,
    ) -> Result<Self, Error> {
        let (to, jobs) = mpsc::channel();
        let (shared, patience) = (Arc::clone(shared), Patience::default());
        let slot = fork::slot()?;
        let client = Client { shared, durability, patience, opened: None, background, commits: 0 };
        std::thread::Builder::new()
            .name(format!("tenure-sqlite-{name}"))
            .spawn(move || client.run(jobs, &slot))
            .map_err(|error| Error::unavailable("cannot start a thread for the store").because(error))?;
        Ok(Self(to))
    }

    /// Has the job done, and waits for its result.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Client) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let attempt = GiveUp::default();
        let given_up = Arc::clone(&attempt.0);
        self.post(move |client| {
            if !given_up.load(Ordering::Relaxed) {
                client.patience.begin(PATIENCE, Some(given_up));
                // A caller that has gone does not hear it.
                let _ = reply.send(job(client));
            }
        });
        answer.await.unwrap_or_else(|_| Err(Error::unavailable("a thread of the store failed")))
    }

    /// Has the job done. Nobody waits for it.
    pub(super) fn post(&self, job: impl FnOnce(&mut Client) + Send + 'static) {
        // The thread ends only when the store is dropped.
        let _ = self.0.send(Box::new(job));
    }

    /// Has the job done, and blocks until then.
    pub(super) fn block_on<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Client) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = mpsc::channel();
        self.post(move |client| {
            let _ = reply.send(job(client));
        });
        answer.recv().unwrap_or_else(|_| Err(Error::unavailable("a thread of the store failed")))
    }
}

/// Tells the job that its caller dropped the answer.
#[derive(Default)]
struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a job works with.
#[derive(Debug)]
pub(super) struct Client {
    shared: Arc<Shared>,
    durability: Durability,
    patience: Patience,
    /// Only while a job runs; otherwise it is in the slot of the thread.
    opened: Option<Opened>,
    /// The thread for work that no request should wait for. Absent in that thread itself.
    background: Option<Thread>,
    /// Since the last checkpoint.
    commits: u32,
}

impl Client {
    fn run(mut self, jobs: mpsc::Receiver<Job>, slot: &Slot) {
        for job in jobs {
            let mut idle = slot.blocking_lock();
            self.opened = idle.take();
            self.patience.begin(PATIENCE, None);
            if panic::catch_unwind(AssertUnwindSafe(|| job(&mut self))).is_err() {
                // Nothing is known about the connection any more. The next job opens another.
                self.opened = None;
            }
            *idle = self.opened.take();
        }
        // Closed under the lock: a fork waits for it.
        let mut last = slot.blocking_lock();
        drop(last.take());
    }

    /// Opens the file, if it is not open.
    pub(super) fn connect(&mut self) -> Result<(), Error> {
        self.opened(Missing::Create).map(drop)
    }

    /// Reads from one snapshot.
    pub(super) fn read<T>(
        &mut self,
        missing: Missing,
        read: impl Fn(Records<'_>, Present) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let deferred = TransactionBehavior::Deferred;
        let done = self.transact(missing, deferred, read);
        done.map_err(|failure| failure.into_error("read", &self.shared.place.path))
    }

    /// Applies the changes that find what they expect, and sends their signals.
    pub(super) fn commit(&mut self, within: Incarnation, changes: &[Change]) -> Result<Commits, Error> {
        let mut done = self.apply(within, changes);
        // Once the log is in the database its place can be used again, which is enough for what only overwrites.
        if done.as_ref().is_err_and(Failure::is_full) && changes.iter().any(|change| change.essential) {
            self.checkpoint();
            done = self.apply(within, changes);
        }
        let commits = done.map_err(|failure| failure.into_error("write to", &self.shared.place.path))?;
        self.signal(changes, &commits);
        self.commits += 1;
        if self.commits >= CHECKPOINT {
            self.commits = 0;
            self.in_background(Self::checkpoint);
        }
        Ok(commits)
    }

    fn apply(&mut self, within: Incarnation, changes: &[Change]) -> Result<Commits, Failure> {
        // What only compares and sends does not need the write lock.
        let behavior = match changes.iter().any(writes) {
            true => TransactionBehavior::Immediate,
            false => TransactionBehavior::Deferred,
        };
        self.transact(Missing::Create, behavior, |records, Present { life, now, .. }| {
            let apply = |change| match life == within {
                true => records.apply(change, now),
                false => Ok(Committed::Conflict(Vec::new())),
            };
            let done = changes.iter().map(apply).collect::<Result<_, _>>()?;
            Ok(Commits { life, now: Some(now), done })
        })
    }

    fn signal(&self, changes: &[Change], commits: &Commits) {
        let done = changes.iter().zip(&commits.done);
        let sent = done.filter(|(_, done)| matches!(done, Committed::Done { .. }));
        let signals = sent.flat_map(|(change, _)| &change.signals);
        let Shared { place, namespace, outbox, .. } = &*self.shared;
        if let Some(now) = commits.now {
            signals::send(outbox, &signals::folder(&place.folder, namespace), signals, now);
        }
    }

    /// Makes the proof of life for a lease.
    pub(super) fn vouch(&mut self, lease: LeaseId) -> Result<Text, Error> {
        // A file in place of another waits until all locks are let go, so none is taken while it waits. And in a
        // folder that was made anew nobody sees the locks of the one before, which settling the file deals with.
        let folder = self.shared.place.make_folder()?;
        if self.opened.as_ref().is_some_and(|opened| opened.folder != folder) {
            self.opened = None;
        }
        self.opened(Missing::Create)?;
        let Shared { place, host, proof, .. } = &*self.shared;
        let path = lock::path(&place.folder, lease);
        let taken =
            lock::take(&path, *proof).map_err(|error| io_error("make the lock file", &path, error))?;
        let Some(identity) = taken else {
            let path = path.display();
            return Err(Error::refused(format!("cannot take the lock `{path}`: another process has it")));
        };
        let lock = (*proof == Proof::On).then_some(identity);
        Ok(Info { boot: host.boot.clone(), process: host.process.clone(), lock }.to_text())
    }

    /// Moves the log into the database.
    fn checkpoint(&mut self) {
        if let Err(failure) = self.try_checkpoint() {
            let error = failure.into_error("move the log of", &self.shared.place.path);
            events::debug("no checkpoint", &error);
        }
    }

    fn try_checkpoint(&mut self) -> Result<(), Failure> {
        let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
        let pages: i64 = self.opened(Missing::Leave)?.db.query_row(checkpoint, [], |row| row.get(1))?;
        if pages > LONG_LOG {
            self.patience.begin(RESTART_PATIENCE, None);
            let restart = "PRAGMA wal_checkpoint(RESTART)";
            self.opened(Missing::Leave)?.db.query_row(restart, [], |_| Ok(()))?;
        }
        Ok(())
    }

    fn in_background(&mut self, job: impl FnOnce(&mut Self) + Send + 'static) {
        match &self.background {
            Some(background) => background.post(job),
            None => job(self),
        }
    }

    fn transact<T>(
        &mut self,
        missing: Missing,
        behavior: TransactionBehavior,
        act: impl Fn(Records<'_>, Present) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let shared = Arc::clone(&self.shared);
        let once = |client: &mut Self| {
            let transaction: Transaction<'_> =
                client.opened(missing)?.db.transaction_with_behavior(behavior)?;
            let present = Present::of(&transaction, &shared.host)?;
            let done = act(Records { db: &transaction, namespace: &shared.namespace }, present)?;
            transaction.commit()?;
            Ok(done)
        };
        match once(self) {
            // Opening it again takes the file over, or says why it must not.
            Err(Failure::OtherBoot) => {
                self.opened = None;
                once(self)
            }
            done => done,
        }
    }

    /// The connection to the file that lies at the path now.
    fn opened(&mut self, missing: Missing) -> Result<&mut Opened, Error> {
        let Self { shared, durability, patience, opened, .. } = self;
        let place = &shared.place;
        if let Some(open) = opened {
            let found = place.files().map_err(|error| {
                let what = format!("cannot look for `{}`: the system call failed", place.path.display());
                Error::unavailable(what).because(error)
            })?;
            if found != Some(open.files) {
                *opened = None;
            }
        }
        match opened {
            Some(opened) => Ok(opened),
            none => Ok(none.insert(schema::connect(place, &shared.host, missing, *durability, patience)?)),
        }
    }
}

/// Whether the change writes anything.
pub(super) fn writes(change: &Change) -> bool {
    !change.put.is_empty() || !change.history.is_empty()
}

/// How long the present job may wait for other writers.
#[derive(Clone, Debug, Default)]
pub(super) struct Patience(Arc<Mutex<Limit>>);

#[derive(Debug, Default)]
struct Limit {
    until: Option<Instant>,
    given_up: Option<Arc<AtomicBool>>,
}

impl Patience {
    fn begin(&self, limit: Duration, given_up: Option<Arc<AtomicBool>>) {
        *self.limit() = Limit { until: Some(Instant::now() + limit), given_up };
    }

    pub(super) fn is_over(&self) -> bool {
        let limit = self.limit();
        limit.until.is_none_or(|until| Instant::now() >= until)
            || limit.given_up.as_ref().is_some_and(|given_up| given_up.load(Ordering::Relaxed))
    }

    /// SQLite's own handler sleeps for up to 100 ms at a time. A commit takes a few.
    pub(super) fn handler(&self) -> impl FnMut(i32) -> bool + Send + 'static + use<> {
        let patience = self.clone();
        move |tries| {
            if patience.is_over() {
                return false;
            }
            match u32::try_from(tries - SPINS) {
                Err(_) => std::thread::yield_now(),
                Ok(sleeps) => std::thread::sleep((FIRST_SLEEP * (1 << sleeps.min(10))).min(LONGEST_SLEEP)),
            }
            true
        }
    }

    fn limit(&self) -> MutexGuard<'_, Limit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
