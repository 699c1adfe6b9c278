//! What a store has to offer, and how one is opened by its URL. One file per store beside this one.
//!
//! A store is a [`RecordStore`] on a [`Backend`](backend::Backend): the rules of `tenure-core` decide, the backend keeps
//! records and swaps them if nobody was faster.

pub mod backend;
pub mod codec;
#[cfg(all(test, feature = "sqlite", target_os = "linux"))]
mod fuzz;
mod listening;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
mod records;
#[cfg(all(feature = "redis", unix))]
mod redis;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod sqlite;

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use tenure_core::{
    Answer, Begin, Call, Claimed, Closing, Hint, Holder, Holding, Incarnation, JobAct, JobOutcome, JobSaid,
    JobStep, LeaseId, Leave, Leaving, Message, Namespace, Notice, Payload, Published, Released, Request,
    Said, Seq, Stamp, StoreTime, Tickets, Want, Wish,
};
use tenure_core::{Asked, Grant, Happened, JobView, Label, ResourceName, ResourceView, Token};
use tokio::sync::{Mutex, mpsc};

pub use self::memory::{MemoryBackend, MemoryStore, Saved};
#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresBackend, PostgresStore};
pub use self::records::RecordStore;
#[cfg(all(feature = "redis", unix))]
pub use self::redis::{RedisBackend, RedisStore};
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub use self::sqlite::{SqliteBackend, SqliteStore};
use crate::Error;
use crate::clock::{ClockByHand, Clocks};
use crate::driver::Driver;

/// What a store answers, when it does. Dropping it gives the attempt up, with its connection: a later attempt
/// does not queue behind it, and a late reply is not seen.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The wake-ups for one lease. It may be silent; the claim decides. It ends when the subscription is lost: then
/// the driver subscribes again and, because hints may have been missed, whoever waits looks once.
pub type Hints = mpsc::UnboundedReceiver<Hint>;

/// What the owners of one resource send. It ends when the subscription is lost: then the driver subscribes again, and
/// what was sent meanwhile is lost.
pub type Messages = mpsc::UnboundedReceiver<Message>;

/// A namespace of a store.
///
/// `Err` means only: we do not know. Losing is an answer.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Carries out what a worker asks, in one atomic step per resource, and sends the hints that follow from it
    /// after the change is durable.
    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer>;

    /// Subscribes to the wake-ups for this lease. Called before its first claim; when it is answered, no hint
    /// from then on is lost but by accident.
    fn hints(&self, lease: LeaseId) -> Pending<'_, Hints>;

    /// What the store's configuration takes away from the promises, as of now. Nothing: they hold as they stand.
    fn safety(&self) -> Pending<'_, Vec<Concern>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Owners and waiters of one resource, or of all that were ever claimed, by name.
    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>>;

    /// What happened, oldest first, of one resource or of all.
    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>>;

    /// The operator's wish that the ownership under `token` be handed over gently, to `successor` if named.
    fn ask<'a>(
        &'a self,
        resource: &'a ResourceName,
        token: Token,
        successor: Option<&'a Label>,
    ) -> Pending<'a, Asked>;

    /// Takes the ownership under `token` away at once; until its worker learns of it only the token protects.
    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, Asked>;

    /// Carries out one step of a job, in one atomic step. What it answers is durable, as a grant is.
    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid>;

    /// One job with all its records that are kept, oldest first, or every job with the latest, by name.
    fn jobs<'a>(&'a self, job: Option<&'a ResourceName>) -> Pending<'a, Vec<JobView>>;

    /// Sends to all who have subscribed, if the holder is the owner: looked at in the same step. At most once.
    fn publish<'a>(&'a self, holder: &'a Holder, payload: &'a Payload) -> Pending<'a, Published>;

    /// Subscribes to what the owners of a resource publish. When it is answered, no message from then on is lost but
    /// by accident.
    fn subscribe<'a>(&'a self, resource: &'a ResourceName) -> Pending<'a, Messages>;

    /// The lock by which the death of those who do the work under this lease is proved, for another process that
    /// is to do it; nothing where deaths are not proved. Does not wait.
    ///
    /// # Errors
    /// When there should be such a lock, and it cannot be had: who does the work without it may be taken for dead.
    fn share_lock(&self, lease: LeaseId) -> Result<Option<OwnedFd>, Error> {
        let _ = lease;
        Ok(None)
    }
}

/// One thing about a store's configuration that its users should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concern {
    /// What it costs.
    pub cost: Cost,
    /// What it is, in a sentence without a full stop.
    pub what: String,
    /// What can be done about it.
    pub hint: String,
}

/// What a concern costs, from bad to worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Cost {
    /// Time without an owner, after some faults.
    Time,
    /// After some faults it is forgotten what was done once or at set times, and that may be done again.
    Record,
    /// After some faults two may believe to own the same for a while: only the token protects.
    Exclusion,
}

/// A store that is open, and the thread that drives its workers.
#[derive(Clone, Debug)]
pub struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clocks: Clocks,
    pub(crate) driver: Arc<Driver>,
}

impl Opened {
    /// Any store, on the system's clocks.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn new(store: Arc<dyn Store>) -> Result<Self, Error> {
        Ok(Self { store, clocks: Clocks::System, driver: Driver::start()? })
    }

    /// Any store, on a clock that is moved by hand: for tests that put a store of their own in front of one in memory.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn by_hand(store: Arc<dyn Store>, clock: ClockByHand) -> Result<Self, Error> {
        Ok(Self { store, clocks: Clocks::ByHand(clock), driver: Driver::start()? })
    }

    /// A store in this process, on its own clock.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn memory(store: Arc<MemoryStore>) -> Result<Self, Error> {
        let clocks = store.clocks().clone();
        Ok(Self { store, clocks, driver: Driver::start()? })
    }
}

/// What this build can open.
const SCHEMES: &[&str] = &[
    "memory",
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    "sqlite",
    #[cfg(all(feature = "redis", unix))]
    "redis, rediss, redis+unix",
    #[cfg(feature = "postgres")]
    "postgres",
];

/// Opens the store at `url`. Within a process one URL and namespace is one store, with one driver.
///
/// # Errors
/// When the URL is not understood, or the store cannot be opened.
pub(crate) async fn open(url: &str, namespace: &Namespace) -> Result<Opened, Error> {
    let place = Place::of(url)?;
    let open = async {
        match place {
            Place::Memory => Opened::memory(Arc::new(MemoryStore::default())),
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            Place::Sqlite { path, proved } => open_sqlite(path, proved, namespace.clone()).await,
            #[cfg(feature = "postgres")]
            Place::Postgres => {
                let (driver, url, namespace) = (Driver::start()?, url.to_owned(), namespace.clone());
                let store = driver.run(async move { PostgresStore::open(&url, &namespace).await }).await?;
                Ok(Opened { store: Arc::new(store), clocks: Clocks::System, driver })
            }
            #[cfg(all(feature = "redis", unix))]
            Place::Redis => Opened::new(Arc::new(RedisStore::open(url, namespace).await?)),
        }
    };
    share(url, namespace, open).await
}

/// The same, unless there is none yet: nothing is made.
///
/// # Errors
/// As [`open`].
pub(crate) async fn find(url: &str, namespace: &Namespace) -> Result<Option<Opened>, Error> {
    match Place::of(url)? {
        Place::Memory => {
            let key = (url.to_owned(), namespace.clone());
            Ok(SHARED.lock().await.get(&key).and_then(Shared::revive))
        }
        // What cannot be looked at is there, as far as we know: opening it says what is wrong.
        #[cfg(all(feature = "sqlite", target_os = "linux"))]
        Place::Sqlite { path, .. } if is_nothing(&path) => Ok(None),
        #[cfg(feature = "postgres")]
        Place::Postgres => {
            let key = (url.to_owned(), namespace.clone());
            if let Some(opened) = SHARED.lock().await.get(&key).and_then(Shared::revive) {
                return Ok(Some(opened));
            }
            let ((to, space), driver) = (key, Driver::start()?);
            match driver.run(async move { PostgresStore::find(&to, &space).await }).await? {
                Some(store) => {
                    let opened = Opened { store: Arc::new(store), clocks: Clocks::System, driver };
                    share(url, namespace, async { Ok(opened) }).await.map(Some)
                }
                None => Ok(None),
            }
        }
        // A server of Redis is there or not; looking makes nothing in it.
        #[cfg(any(all(feature = "sqlite", target_os = "linux"), all(feature = "redis", unix)))]
        _ => open(url, namespace).await.map(Some),
    }
}

/// Whether no file is there, or one in which nothing stands.
#[cfg(all(feature = "sqlite", target_os = "linux"))]
fn is_nothing(path: &std::path::Path) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => found.is_file() && found.len() == 0,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// The store that others of this process have open already, else this one.
async fn share(
    url: &str,
    namespace: &Namespace,
    open: impl Future<Output = Result<Opened, Error>>,
) -> Result<Opened, Error> {
    let key = (url.to_owned(), namespace.clone());
    // Held while the store is opened, so that two workers that start at once share one.
    let mut shared = SHARED.lock().await;
    if let Some(opened) = shared.get(&key).and_then(Shared::revive) {
        return Ok(opened);
    }
    let opened = open.await?;
    shared.retain(|_, shared| shared.store.strong_count() > 0);
    shared.insert(key, Shared::of(&opened));
    Ok(opened)
}

/// What a URL means.
enum Place {
    Memory,
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    Sqlite {
        path: std::path::PathBuf,
        proved: bool,
    },
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(all(feature = "redis", unix))]
    Redis,
}

impl Place {
    fn of(url: &str) -> Result<Self, Error> {
        match url.split_once(':') {
            Some(("memory", name)) => {
                let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                let refused = || {
                    Error::refused(format!("memory store name {:?} is not of a-z A-Z 0-9 _ -", shown(name)))
                };
                if name.chars().all(fits) { Ok(Self::Memory) } else { Err(refused()) }
            }
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            Some(("sqlite", rest)) => Self::sqlite(rest),
            #[cfg(feature = "postgres")]
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres),
            #[cfg(all(feature = "redis", unix))]
            Some(("redis" | "rediss" | "redis+unix" | "unix", _)) => Ok(Self::Redis),
            _ => {
                let known = SCHEMES.join(", ");
                let what = match url.split_once(':') {
                    // What comes after it may be a secret.
                    Some((scheme, _)) => format!("no store has the URL scheme {:?}", beginning(scheme)),
                    None => format!("{:?} is not the URL of a store: it has no scheme", beginning(url)),
                };
                Err(Error::refused(format!("{what}; known: {known}")))
            }
        }
    }

    /// `PATH`, or `PATH?proof=off` for work that lives in processes which do not hold the lock of the lease.
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    fn sqlite(rest: &str) -> Result<Self, Error> {
        let (path, proved) = match rest.split_once('?') {
            None => (rest, true),
            Some((path, "proof=on")) => (path, true),
            Some((path, "proof=off")) => (path, false),
            Some((_, unknown)) => {
                let unknown: String = unknown.chars().take(60).collect();
                return Err(Error::refused(format!(
                    "sqlite URL parameter {unknown:?} is not proof=on or proof=off"
                )));
            }
        };
        if path.is_empty() || path == ":memory:" || path.starts_with("//") {
            let hint = match path.trim_start_matches('/') {
                "" | ":memory:" => {
                    "a sqlite URL is sqlite:PATH; for a store in memory use memory:".to_owned()
                }
                plain if path.starts_with("///") => format!("write sqlite:/{}", shown(plain)),
                plain => format!("write sqlite:{0}, or sqlite:/{0}", shown(plain)),
            };
            let path = shown(path);
            return Err(Error::refused(format!("sqlite path {path:?} is not the path of a file: {hint}")));
        }
        Ok(Self::Sqlite { path: path.into(), proved })
    }
}

/// So much of a text as shows what it is.
fn beginning(text: &str) -> String {
    let mut short: String = text.chars().take(20).collect();
    if short.len() < text.len() {
        short += "...";
    }
    short
}

/// What stands in a URL, as it may be told: its beginning, without what steers a terminal.
fn shown(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(all(feature = "sqlite", target_os = "linux"))]
async fn open_sqlite(path: std::path::PathBuf, proved: bool, namespace: Namespace) -> Result<Opened, Error> {
    let open = move || match proved {
        true => SqliteStore::open(&path, &namespace),
        false => SqliteStore::open_without_proof(&path, &namespace),
    };
    // Opening touches the disk, and may wait for others who write.
    let opened = tokio::task::spawn_blocking(open).await;
    let store = opened.map_err(|error| Error::unavailable("cannot open the store").because(error))??;
    Opened::new(Arc::new(store))
}

/// The stores that this process has open, as long as somebody uses them.
static SHARED: Mutex<BTreeMap<(String, Namespace), Shared>> = Mutex::const_new(BTreeMap::new());

#[derive(Debug)]
struct Shared {
    store: Weak<dyn Store>,
    driver: Weak<Driver>,
    clocks: Clocks,
}

impl Shared {
    fn of(opened: &Opened) -> Self {
        let (store, driver) = (Arc::downgrade(&opened.store), Arc::downgrade(&opened.driver));
        Self { store, driver, clocks: opened.clocks.clone() }
    }

    fn revive(&self) -> Option<Opened> {
        Some(Opened {
            store: self.store.upgrade()?,
            driver: self.driver.upgrade()?,
            clocks: self.clocks.clone(),
        })
    }
}

/// One thing that happened to an ownership, as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How long ago.
    pub ago: Duration,
    /// To which resource.
    pub resource: ResourceName,
    /// Whose ownership.
    pub worker: Label,
    /// Its ticket, term and token.
    pub grant: Grant,
    /// What.
    pub what: Happened,
}
