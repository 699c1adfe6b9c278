//! The store that is measured: where it lies, one raw round trip to it, what it counts itself, and what is demanded on
//! it. One file per store beside this one.
//!
//! Another store is another arm here; the measurements know none by name, but where a store has one of its own.

mod postgres;
mod redis;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use tenure::store::{Namespace, PostgresStore, RedisStore, SqliteStore, Store};
use testkit::StoreKind;

pub(crate) use self::postgres::{Leftovers, make as make_postgres};
pub(crate) use self::sqlite::{Folder, transactions};
use crate::Failure;

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
    Sqlite(Folder),
    Redis(Box<redis::Server>),
    Postgres(Box<postgres::Server>),
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
    /// Until 64 who join at once are queued, in seconds.
    pub(crate) joining: f64,
    /// The p99 of a release among them, in seconds.
    pub(crate) release_among_many: Option<f64>,
    /// Until 64 who claim the same 250 resources at once are answered, in seconds.
    pub(crate) settling: Option<f64>,
}

/// Many workers on one server, and what is demanded of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    /// In each of the processes.
    pub(crate) workers: usize,
    pub(crate) ttl: Duration,
    /// How many cores the server may use.
    pub(crate) cores: Option<f64>,
}

impl Ground {
    pub(crate) fn open(kind: StoreKind, length: Length) -> Result<Self, Failure> {
        let place = match kind {
            StoreKind::Sqlite => Place::Sqlite(Folder::new()?),
            StoreKind::Redis => Place::Redis(Box::new(redis::Server::start())),
            StoreKind::Postgres => Place::Postgres(Box::new(postgres::Server::start()?)),
        };
        Ok(Self { place, length })
    }

    pub(crate) fn limits(&self) -> Limits {
        match self.place {
            Place::Sqlite(_) => Limits {
                hand_over: 4.0,
                hand_over_p99: None,
                claiming: 2.0,
                requests_per_release: 4.0,
                joining: 1.0,
                release_among_many: None,
                settling: None,
            },
            Place::Redis(_) => Limits {
                hand_over: 10.0,
                hand_over_p99: Some(0.005),
                claiming: 1.0,
                requests_per_release: 5.0,
                joining: 1.0,
                release_among_many: Some(0.010),
                settling: Some(3.0),
            },
            Place::Postgres(_) => Limits {
                hand_over: 5.0,
                hand_over_p99: Some(0.010),
                claiming: 3.0,
                requests_per_release: 5.0,
                joining: 2.0,
                release_among_many: Some(0.060),
                settling: Some(10.0),
            },
        }
    }

    /// How many workers one server is to bear; nothing where there is none.
    pub(crate) fn fleet(&self) -> Option<Fleet> {
        match self.place {
            Place::Sqlite(_) => None,
            Place::Redis(_) => Some(Fleet { workers: 250, ttl: Duration::from_secs(3), cores: Some(0.5) }),
            Place::Postgres(_) => Some(Fleet { workers: 125, ttl: Duration::from_secs(5), cores: None }),
        }
    }

    /// A fresh part of the store, which no other measurement uses, for leases of this length. Comes back when a
    /// first claim there can be granted at once.
    pub(crate) fn site(&self, name: &str, ttl: Duration) -> Result<Site, Failure> {
        Ok(match &self.place {
            Place::Sqlite(folder) => Site::at(&folder.url(name), Namespace::default().as_str()),
            Place::Redis(server) => {
                server.wait_until_trusted(ttl);
                Site::at(&server.url(), name)
            }
            Place::Postgres(server) => {
                server.make(name)?;
                Site::at(&format!("{}?prepared_statements=on", server.url()), name)
            }
        })
    }

    /// The same by the URL that needs no setting and that every transaction pooler passes on; nothing where there is no
    /// difference.
    pub(crate) fn plain_site(&self, name: &str) -> Result<Option<Site>, Failure> {
        let Place::Postgres(server) = &self.place else { return Ok(None) };
        server.make(name)?;
        Ok(Some(Site::at(&server.url(), name)))
    }

    /// What one raw round trip is compared with.
    pub(crate) fn baseline(&self, name: &str) -> Result<Box<dyn Baseline>, Failure> {
        Ok(match &self.place {
            Place::Sqlite(folder) => Box::new(folder.update(name)?),
            Place::Redis(server) => Box::new(server.ping()?),
            Place::Postgres(server) => Box::new(server.update(name)?),
        })
    }

    /// How long the server of the store has been running on a core so far; nothing where there is none.
    pub(crate) fn server_cpu(&self) -> Result<Option<Duration>, Failure> {
        match &self.place {
            Place::Sqlite(_) => Ok(None),
            Place::Redis(server) => server.cpu().map(Some),
            Place::Postgres(server) => server.cpu().map(Some),
        }
    }

    /// Has the server clear up now what claims left behind, and not by itself until [`lets_itself_clear_up`]; how long that
    /// took on a core. Nothing where nothing is left behind.
    ///
    /// [`lets_itself_clear_up`]: Self::lets_itself_clear_up
    pub(crate) fn clear_up(&self, site: &Site) -> Result<Option<Duration>, Failure> {
        match &self.place {
            Place::Sqlite(_) | Place::Redis(_) => Ok(None),
            Place::Postgres(server) => server.clear_up(&site.namespace).map(Some),
        }
    }

    /// As it does on its own, again.
    pub(crate) fn lets_itself_clear_up(&self) {
        if let Place::Postgres(server) = &self.place {
            server.lets_itself_clear_up();
        }
    }

    /// How many requests this part of the store has seen so far, by its own count: transactions of SQLite, scripts of
    /// Redis, calls of functions in PostgreSQL. Not to be asked in a process that has the store open: closing a
    /// descriptor of its files would drop SQLite's locks.
    pub(crate) fn requests(&self, site: &Site) -> Result<u64, Failure> {
        match &self.place {
            Place::Sqlite(_) => transactions(sqlite::path(&site.url).ok_or("not a file of SQLite")?),
            Place::Redis(server) => server.scripts_run(),
            Place::Postgres(server) => server.calls(&site.namespace),
        }
    }

    /// What renewals leave behind until it is cleared; nothing where they write over what was there.
    pub(crate) fn leftovers(&self, site: &Site) -> Result<Option<Leftovers>, Failure> {
        match &self.place {
            Place::Sqlite(_) | Place::Redis(_) => Ok(None),
            Place::Postgres(server) => server.leftovers(&site.namespace).map(Some),
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
        Ok(match (sqlite::path(&self.url), self.url.starts_with("postgres:")) {
            (Some(path), _) => Arc::new(SqliteStore::open(path, &namespace)?),
            (None, true) => Arc::new(PostgresStore::open(&self.url, &namespace).await?),
            (None, false) => Arc::new(RedisStore::open(&self.url, &namespace).await?),
        })
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
