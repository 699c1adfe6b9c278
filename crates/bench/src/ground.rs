//! The store that is measured: where it lies, one raw round trip to it, what it counts itself, and what is demanded on
//! it. One file per store beside this one.
//!
//! Another store is another arm here; the measurements know none by name, but where a store has one of its own.

mod redis;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use tenure::store::{Namespace, RedisStore, SqliteStore, Store};

use crate::Failure;

/// Which store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Redis,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Sqlite, Self::Redis];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
        }
    }

    pub(crate) fn of(name: &str) -> Result<Self, Failure> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("store {name:?} is not known here; known: {names}").into()
        })
    }
}

/// How long the measurements that could go on for ever go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Usual,
    Long,
}

/// A place for the data of this run, which goes with it.
#[derive(Debug)]
pub(crate) struct Ground {
    place: Place,
    pub(crate) length: Length,
}

#[derive(Debug)]
enum Place {
    Sqlite(sqlite::Folder),
    Redis(Box<redis::Server>),
}

/// What is demanded on a store where stores differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The median of a hand-over, in baselines.
    pub(crate) hand_over: f64,
    /// In seconds.
    pub(crate) hand_over_p99: Option<f64>,
    /// Of ten thousand resources, in seconds.
    pub(crate) claiming: f64,
    /// Requests that are no renewals, the release with them.
    pub(crate) requests_per_release: f64,
}

impl Ground {
    pub(crate) fn open(kind: Kind, length: Length) -> Result<Self, Failure> {
        let place = match kind {
            Kind::Sqlite => Place::Sqlite(sqlite::Folder::new()?),
            Kind::Redis => Place::Redis(Box::new(redis::Server::start())),
        };
        Ok(Self { place, length })
    }

    pub(crate) fn limits(&self) -> Limits {
        match self.place {
            Place::Sqlite(_) => {
                Limits { hand_over: 4.0, hand_over_p99: None, claiming: 2.0, requests_per_release: 4.0 }
            }
            Place::Redis(_) => Limits {
                hand_over: 10.0,
                hand_over_p99: Some(0.005),
                claiming: 1.0,
                requests_per_release: 5.0,
            },
        }
    }

    /// A fresh part of the store, which no other measurement uses, for leases of this length. Comes back when a
    /// first claim there can be granted at once.
    pub(crate) fn site(&self, name: &str, ttl: Duration) -> Site {
        match &self.place {
            Place::Sqlite(folder) => Site::at(&folder.url(name), Namespace::default().as_str()),
            Place::Redis(server) => {
                server.wait_until_trusted(ttl);
                Site::at(&server.url(), name)
            }
        }
    }

    /// What one raw round trip is compared with.
    pub(crate) fn baseline(&self, name: &str) -> Result<Box<dyn Baseline>, Failure> {
        Ok(match &self.place {
            Place::Sqlite(folder) => Box::new(folder.update(name)?),
            Place::Redis(server) => Box::new(server.ping()?),
        })
    }

    /// How long the server of the store has been running on a core so far; nothing where there is none.
    pub(crate) fn server_cpu(&self) -> Result<Option<Duration>, Failure> {
        match &self.place {
            Place::Sqlite(_) => Ok(None),
            Place::Redis(server) => server.cpu().map(Some),
        }
    }
}

/// One part of the store: also what worker processes are told.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    url: String,
    namespace: String,
}

impl Site {
    pub(crate) fn at(url: &str, namespace: &str) -> Self {
        Self { url: url.to_owned(), namespace: namespace.to_owned() }
    }

    pub(crate) fn words(&self) -> [&str; 2] {
        [&self.url, &self.namespace]
    }

    /// The store, to be wrapped or used as it is.
    pub(crate) async fn store(&self) -> Result<Arc<dyn Store>, Failure> {
        let namespace = Namespace::new(&self.namespace)?;
        Ok(match sqlite::path(&self.url) {
            Some(path) => Arc::new(SqliteStore::open(path, &namespace)?),
            None => Arc::new(RedisStore::open(&self.url, &namespace).await?),
        })
    }

    /// How many writes the store has seen so far, by its own count: transactions of SQLite, scripts of Redis. Not to
    /// be asked in a process that has the store open: closing a descriptor of its files would drop SQLite's locks.
    pub(crate) fn writes(&self) -> Result<u64, Failure> {
        match sqlite::path(&self.url) {
            Some(path) => sqlite::transactions(path),
            None => redis::scripts_run(&self.url),
        }
    }
}

/// One raw round trip to the store, without Tenure: what it costs at least to be told that a change is kept, or to be
/// told anything.
pub(crate) trait Baseline {
    /// What it is, in a word or two.
    fn name(&self) -> &'static str;

    /// Does it once, and says how long it took.
    fn once(&mut self) -> Result<Duration, Failure>;
}
