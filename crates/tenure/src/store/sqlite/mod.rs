//! `sqlite:PATH`: many processes of one host, one file, nothing to install (Linux).
//!
//! A commit is one transaction. The store's clock is BOOTTIME, so steps of the wall clock do not matter. A worker's
//! death is proved by its lock file, so that others need not wait until its lease runs out. Signals are datagrams.
//!
//! - `connection`: the threads that own connections, and what a commit does
//! - `fork`: closing connections before a fork
//! - `schema`: opening the file, and the store's life
//! - `records`: SQL for records and history
//! - `url`: what a URL says
//! - `place`, `host`: checks of the file, its folder and the running system
//! - `lock`, `witness`: lock files, and the proof of a death
//! - `signals`, `outbox`, `listener`: sending and receiving
//! - `cleanup`: removing old files

mod cleanup;
mod connection;
mod error;
mod fork;
mod host;
mod listener;
mod lock;
mod mailbox;
mod outbox;
mod place;
mod records;
mod schema;
mod signals;
#[cfg(test)]
mod tests;
mod url;
mod witness;

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::{Capabilities, Incarnation, Key, LONGEST_TTL, LeaseId, Namespace, ResourceName};
use tokio::sync::mpsc;

use self::connection::{Shared, Thread};
use self::host::Host;
use self::mailbox::{Mailbox, mailbox};
use self::outbox::Outbox;
use self::place::Place;
use self::schema::{Durability, Present};
pub(super) use self::url::Url;
use self::witness::Watcher;
use super::backend::{
    Backend, Change, Commits, History, Listing, Page, Proof, Signals, Snapshot, Stored, Subscriptions, Text,
    Witness,
};
use super::open::{Kind, Missing};
use super::{Impact, Pending, RecordStore, Store, Warning};
use crate::Error;

/// How a SQLite file is opened by its URL.
pub(super) const KIND: Kind = Kind {
    schemes: &["sqlite"],
    open: |url, namespace, missing| {
        Box::pin(async move {
            let Url { path, proved } = Url::parse(&url)?;
            if missing == Missing::Leave && url::is_nothing(&path) {
                return Ok(None);
            }
            let open = move || match proved {
                true => SqliteStore::open(&path, &namespace),
                false => SqliteStore::open_without_proof(&path, &namespace),
            };
            // Opening touches the disk, and may wait for others who write.
            let opened = tokio::task::spawn_blocking(open).await;
            let store =
                opened.map_err(|error| Error::unavailable("cannot open the store").because(error))??;
            Ok(Some(Arc::new(store) as Arc<dyn Store>))
        })
    },
};

/// How many changes one commit may contain.
const MOST_CHANGES: usize = 250;

/// One namespace of a SQLite file. Many processes of one host may open it.
///
/// Its threads end when it is dropped. The locks of leases stay, because their work may still run: they end with
/// [`Witness::let_go`] or with the process.
pub struct SqliteBackend {
    shared: Arc<Shared>,
    /// Reads, and commits that only compare and send.
    reads: Thread,
    /// Commits that survive the end of any process: renewals, releases, places in a queue.
    writes: Thread,
    /// Commits that survive the loss of power: grants, jobs.
    lasting: Thread,
    /// What is not urgent, and may take a while.
    background: Thread,
    watch: Mailbox<Vec<(LeaseId, Text)>>,
    deaths: Mutex<Option<mpsc::UnboundedReceiver<Proof>>>,
}

impl SqliteBackend {
    /// Opens `path`, and creates the file if it does not exist. Its folder has to exist. Blocks for a moment, or for
    /// up to 5 s while others write.
    ///
    /// # Errors
    /// - `Refused`: a path in a missing or read-only folder, a file system that is not known to be safe, a hard link,
    ///   a file mounted by itself, a file that other users can write, another program's database, data of an earlier
    ///   or a newer build, a file in use by systems with different boot ids.
    /// - `Corrupt`: a damaged file.
    /// - `Unavailable`: the disk is full, others write for too long, or workers of an earlier file at this path still
    ///   run.
    pub fn open(path: impl AsRef<Path>, namespace: &Namespace) -> Result<Self, Error> {
        Self::with(path.as_ref(), namespace, lock::Proof::On)
    }

    /// The same for workers whose work may outlive them, in child processes that do not hold their locks. Their death
    /// is never proved; their leases run out instead.
    ///
    /// # Errors
    /// As [`SqliteBackend::open`].
    pub fn open_without_proof(path: impl AsRef<Path>, namespace: &Namespace) -> Result<Self, Error> {
        Self::with(path.as_ref(), namespace, lock::Proof::Off)
    }

    fn with(path: &Path, namespace: &Namespace, proof: lock::Proof) -> Result<Self, Error> {
        let (place, host, namespace) = (Place::find(path)?, Host::new()?, namespace.clone());
        let shared = Arc::new(Shared { place, host, namespace, proof, outbox: Outbox::default() });
        let background = Thread::start(&shared, "background", Durability::Normal, None)?;
        let start = |name, durability| Thread::start(&shared, name, durability, Some(background.clone()));
        let reads = start("reads", Durability::Normal)?;
        let writes = start("writes", Durability::Normal)?;
        let lasting = start("lasting", Durability::Full)?;
        reads.block_on(connection::Client::connect)?;

        let ((watch, inbox), (to, deaths)) = (mailbox()?, mpsc::unbounded_channel());
        Watcher::start(Arc::clone(&shared), inbox, to)?;
        let folder = shared.place.folder.clone();
        background.post(move |client| cleanup::clean_up(client, &folder));
        Ok(Self { shared, reads, writes, lasting, background, watch, deaths: Mutex::new(Some(deaths)) })
    }

    /// The thread that carries out a commit.
    fn thread_for(&self, changes: &[Change]) -> &Thread {
        if changes.iter().any(|change| change.lasting) {
            &self.lasting
        } else if changes.iter().any(connection::writes) {
            &self.writes
        } else {
            &self.reads
        }
    }
}

impl fmt::Debug for SqliteBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBackend")
            .field("path", &self.shared.place.path)
            .field("namespace", &self.shared.namespace)
            .finish_non_exhaustive()
    }
}

impl Backend for SqliteBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            clock: true,
            together: true,
            most_changes: MOST_CHANGES,
            most_signal_bytes: signals::MOST_TEXT,
        }
    }

    fn read<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Snapshot> {
        Box::pin(async {
            let keys = keys.to_vec();
            let read = move |client: &mut connection::Client| {
                client.read(Missing::Create, |records, present| {
                    let found = keys.iter().map(|key| records.find(key)).collect::<Result<_, _>>()?;
                    Ok(snapshot(present, found))
                })
            };
            self.reads.ask(read).await
        })
    }

    fn commit<'a>(&'a self, within: Incarnation, changes: &'a [Change]) -> Pending<'a, Commits> {
        Box::pin(async move {
            let thread = self.thread_for(changes);
            let changes = changes.to_vec();
            thread.ask(move |client| client.commit(within, &changes)).await
        })
    }

    fn list<'a>(&'a self, of: Listing, after: Option<&'a Key>) -> Pending<'a, Page> {
        Box::pin(async move {
            let after = after.cloned();
            let list = move |client: &mut connection::Client| {
                client.read(Missing::Leave, |records, present| {
                    let (found, more) = records.list(of, after.as_ref())?;
                    Ok(Page { shown: snapshot(present, found), more })
                })
            };
            self.background.ask(list).await
        })
    }

    fn history<'a>(&'a self, of: Option<&'a ResourceName>, most: usize) -> Pending<'a, History> {
        Box::pin(async move {
            let of = of.cloned();
            let read = move |client: &mut connection::Client| {
                client.read(Missing::Leave, |records, present| {
                    let entries = records.history(of.as_ref(), most)?;
                    Ok(History { now: Some(present.now), entries })
                })
            };
            self.background.ask(read).await
        })
    }

    fn listen(&self) -> Pending<'_, (Arc<dyn Subscriptions>, Signals)> {
        let Shared { place, namespace, .. } = &*self.shared;
        Box::pin(listener::listen(signals::folder(&place.folder, namespace)))
    }

    fn lost_nothing(&self, _: Duration) -> Pending<'_, bool> {
        // The caller may not know the ttls of an earlier file, but none was longer than this.
        let read = |client: &mut connection::Client| {
            client.read(Missing::Create, |_, Present { now, uncertain_since, .. }| {
                Ok(uncertain_since.is_none_or(|since| now.since(since) >= LONGEST_TTL))
            })
        };
        Box::pin(self.reads.ask(read))
    }

    fn safety(&self) -> Pending<'_, Vec<Warning>> {
        let place = self.shared.place.clone();
        let look = move |_: &mut connection::Client| {
            let in_memory = place.is_in_memory()?.then(|| Warning {
                cost: Impact::Record,
                what: format!("`{}` lies in memory (tmpfs) and is lost at a reboot", place.path.display()),
                hint: "put the file on a disk".to_owned(),
            });
            Ok(in_memory.into_iter().collect())
        };
        Box::pin(self.background.ask(look))
    }

    fn witness(&self) -> Option<&dyn Witness> {
        Some(self)
    }
}

fn snapshot(present: Present, records: Vec<Stored>) -> Snapshot {
    Snapshot { life: present.life, now: Some(present.now), wall: Some(Host::wall_us()), records }
}

impl Witness for SqliteBackend {
    fn vouch(&self, lease: LeaseId) -> Pending<'_, Text> {
        Box::pin(self.writes.ask(move |client| client.vouch(lease)))
    }

    fn let_go(&self, lease: LeaseId) {
        let path = lock::path(&self.shared.place.folder, lease);
        lock::let_go(&path);
        // An attempt to vouch that was given up may be under way, and take the lock once more.
        self.writes.post(move |_| lock::let_go(&path));
    }

    fn watch(&self, whom: Vec<(LeaseId, Text)>) {
        self.watch.send(whom);
    }

    fn deaths(&self) -> Option<mpsc::UnboundedReceiver<Proof>> {
        self.deaths.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn share_lock(&self, lease: LeaseId) -> Result<Option<OwnedFd>, Error> {
        if self.shared.proof == lock::Proof::Off {
            // There it proves nothing.
            return Ok(None);
        }
        let lock = lock::share(&lock::path(&self.shared.place.folder, lease));
        let missing = || {
            Error::unavailable(format!(
                "cannot share the lock of a lease in `{}`: this process does not hold it, or has too many files open",
                self.shared.place.path.display()
            ))
        };
        lock.map(|lock| Some(lock.into())).ok_or_else(missing)
    }
}

/// A store in a SQLite file: `sqlite:PATH`.
pub type SqliteStore = RecordStore<SqliteBackend>;

impl RecordStore<SqliteBackend> {
    /// See [`SqliteBackend::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(path: impl AsRef<Path>, namespace: &Namespace) -> Result<Self, Error> {
        SqliteBackend::open(path, namespace).map(Self::new)
    }

    /// See [`SqliteBackend::open_without_proof`].
    ///
    /// # Errors
    /// As there.
    pub fn open_without_proof(path: impl AsRef<Path>, namespace: &Namespace) -> Result<Self, Error> {
        SqliteBackend::open_without_proof(path, namespace).map(Self::new)
    }
}
