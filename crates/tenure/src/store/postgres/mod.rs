//! `postgres://` A PostgreSQL database that keeps the records of a namespace.
//!
//! Each request is one call of a function, in one round trip and one transaction. The tables and functions live in a
//! schema named like the namespace: schema.sql, functions.sql.

mod commit;
mod connection;
mod error;
#[cfg(test)]
mod fuzz;
mod listener;
mod password;
mod rows;
mod schema;
mod tls;
mod url;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::{Capabilities, Incarnation, Key, Namespace, ResourceName};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use self::commit::CommitCall;
use self::connection::{Bound, Lane, Param, Pool};
use self::error::Failure;
use self::schema::Quoted;
use self::url::Target;
use super::backend::{
    Backend, Change, Commits, History, Listing, Page, Signals, Snapshot, Stored, Subscriptions,
};
use super::codec::key_name;
use super::open::{Kind, Missing};
use super::{Impact, Pending, RecordStore, Store, Warning};
use crate::Error;
use crate::runtime::events::{self, StoreChange};

/// How a PostgreSQL database is opened by its URL.
pub(super) const KIND: Kind = Kind {
    schemes: &["postgres", "postgresql"],
    open: |url, namespace, missing| {
        Box::pin(async move {
            let (backend, exists) = PostgresBackend::prepare(&url, &namespace, missing).await?;
            Ok(exists.then(|| Arc::new(PostgresStore::new(backend)) as Arc<dyn Store>))
        })
    },
};

/// How many records a page of a listing has.
const PAGE: i32 = 250;
/// How many changes one commit takes: a batch holds its row locks until the disk has it.
const MOST_CHANGES: usize = 250;
/// NOTIFY carries less than 8 000 bytes, of which the stamp takes up to 21.
const MOST_SIGNAL_BYTES: usize = 7_900;

/// A namespace of a PostgreSQL database.
///
/// Its connections are made when they are needed and live on the runtime of the caller that needs them.
pub struct PostgresBackend {
    target: Arc<Target>,
    namespace: Namespace,
    schema: Quoted,
    pool: Pool,
    /// Signals do not arrive.
    is_deaf: AtomicBool,
}

impl PostgresBackend {
    /// Connects to `url`, and creates the tables and functions of the namespace if they do not exist.
    ///
    /// Besides libpq's parameters (`sslmode`, `sslrootcert`, `target_session_attrs`, ...) a URL may have
    /// `listen`, another host or URL of the same database over which signals arrive, for use with a transaction pooler;
    /// and `prepared_statements=on`, which saves the server some work but does not go through such a pooler. Of several
    /// hosts the last good one is tried first, and one that does not answer is passed over.
    ///
    /// # Errors
    /// `Refused` for an invalid URL, a standby, a server or database that Tenure cannot work with, a schema of another
    /// version, and missing rights. `Unavailable` when the server does not answer.
    pub async fn open(url: &str, namespace: &Namespace) -> Result<Self, Error> {
        let (backend, _) = Self::prepare(url, namespace, Missing::Create).await?;
        Ok(backend)
    }

    /// The SQL that creates the tables and functions of a namespace, for those who apply it themselves. A worker then
    /// needs only the rights that stand as a comment at its end.
    ///
    /// # Errors
    /// When the namespace cannot be the name of a schema.
    pub fn schema(namespace: &Namespace) -> Result<String, Error> {
        schema::script(&Quoted::of(namespace)?, None)
    }

    /// The same script; it also grants to `role` the rights that a worker needs, and no others.
    ///
    /// # Errors
    /// As [`schema`](Self::schema), and when `role` cannot be the name of a role.
    pub fn schema_for_role(namespace: &Namespace, role: &str) -> Result<String, Error> {
        schema::script(&Quoted::of(namespace)?, Some(role))
    }

    async fn prepare(url: &str, namespace: &Namespace, missing: Missing) -> Result<(Self, bool), Error> {
        let (target, schema) = (Arc::new(Target::parse(url)?), Quoted::of(namespace)?);
        let pool = Pool::new(&target);
        let connection = schema::prepare(&target, &schema, missing).await?;
        let exists = connection.is_some();
        connection.into_iter().for_each(|connection| pool.put_back(connection));
        let backend =
            Self { target, namespace: namespace.clone(), schema, pool, is_deaf: AtomicBool::new(false) };
        Ok((backend, exists))
    }

    /// Calls a function, which answers one row.
    async fn call(&self, lane: Lane, function: &str, params: &[Param<'_>]) -> Result<Row, Failure> {
        let places: Vec<String> = (1..=params.len()).map(|place| format!("${place}")).collect();
        let sql = format!("SELECT * FROM {}.{function}({})", self.schema, places.join(", "));
        let rows = self.pool.query(lane, &sql, params).await?;
        rows.into_iter().next().ok_or_else(|| Failure::corrupt("no row"))
    }

    async fn try_read(&self, keys: &[Key]) -> Result<Snapshot, Failure> {
        let names = Bound(keys.iter().map(key_name).collect::<Vec<_>>());
        let row = self.call(Lane::Ordinary, "read", &[(&names, Type::TEXT_ARRAY)]).await?;
        let mut records: Vec<Stored> = keys.iter().cloned().map(Stored::absent).collect();
        for stored in rows::stored_at_places(&row, keys)? {
            let (place, stored) = stored?;
            records[place] = stored;
        }
        rows::snapshot(&row, records)
    }

    async fn try_commit(&self, within: Incarnation, changes: &[Change]) -> Result<Commits, Failure> {
        let call = CommitCall::new(within, changes, &self.schema)?;
        let is_essential = changes.iter().any(|change| change.essential);
        let lane = if is_essential { Lane::Essential } else { Lane::Ordinary };
        let row = self.call(lane, "commit", &call.params()).await?;
        call.answer(&row)
    }

    async fn try_list(&self, of: Listing, after: Option<&Key>) -> Result<Page, Failure> {
        let kind = match of {
            Listing::Leases => "lease",
            Listing::Resources => "resource",
        };
        // In ASCII, `0` follows `/`.
        let (after, before) = (Bound(after.map_or_else(|| format!("{kind}/"), key_name)), format!("{kind}0"));
        // One more than a page shows whether there are more.
        let params: [Param<'_>; 3] = [(&after, Type::TEXT), (&before, Type::TEXT), (&(PAGE + 1), Type::INT4)];
        let row = self.call(Lane::Ordinary, "list", &params).await?;
        let mut records = rows::listed(&row)?;
        let page = PAGE.unsigned_abs() as usize;
        let more = records.len() > page;
        records.truncate(page);
        Ok(Page { shown: rows::snapshot(&row, records)?, more })
    }

    async fn try_history(&self, of: Option<&ResourceName>, most: usize) -> Result<History, Failure> {
        let (of, most) = (Bound(of.map(ResourceName::as_str)), i64::try_from(most).unwrap_or(i64::MAX));
        let params: [Param<'_>; 2] = [(&of, Type::TEXT), (&most, Type::INT8)];
        let row = self.call(Lane::Ordinary, "history", &params).await?;
        rows::history(&row)
    }

    async fn try_safety(&self) -> Result<Vec<Warning>, Failure> {
        let row = self.call(Lane::Ordinary, "settings", &[]).await?;
        let is_off = |column| Ok::<_, Failure>(row.try_get::<_, &str>(column)? == "off");
        let mut concerns = Vec::new();
        let mut add = |cost, what: &str, hint: &str| {
            concerns.push(Warning { cost, what: what.into(), hint: hint.into() });
        };
        if is_off("fsync")? {
            let what = "fsync is off: a crash of the machine can undo grants that were answered";
            add(Impact::Exclusion, what, "set fsync = on");
        }
        if is_off("full_page_writes")? {
            let what = "full_page_writes is off: a crash of the machine can damage pages";
            add(Impact::Exclusion, what, "set full_page_writes = on");
        }
        let commit: &str = row.try_get("synchronous_commit")?;
        let standby_names: &str = row.try_get("standby_names")?;
        if commit == "local" && !standby_names.is_empty() {
            let what =
                "synchronous_commit is local: a standby that takes over may not know the latest grants";
            add(Impact::Exclusion, what, "set synchronous_commit = on");
        }
        if standby_names.is_empty() && row.try_get::<_, i64>("standbys")? > 0 {
            let what = "the standbys are asynchronous: one that takes over may not know the latest grants";
            let hint = "set synchronous_standby_names; until then only the token protects after a failover";
            add(Impact::Exclusion, what, hint);
        }
        if self.is_deaf.load(Ordering::Relaxed) {
            let Warning { cost, what, hint } = signals_do_not_arrive();
            add(cost, &what, &hint);
        }
        Ok(concerns)
    }

    async fn try_listen(&self) -> Result<(Arc<dyn Subscriptions>, Signals), Failure> {
        let listening = listener::listen(&self.target, &self.pool, &self.schema).await?;
        let was_deaf = self.is_deaf.swap(listening.is_none(), Ordering::Relaxed);
        if listening.is_none() && !was_deaf {
            events::store(StoreChange::Warned(signals_do_not_arrive()));
        }
        Ok(listening.unwrap_or_else(|| listener::silence(&self.target)))
    }
}

fn signals_do_not_arrive() -> Warning {
    Warning {
        cost: Impact::Time,
        what: "signals do not arrive: there is a transaction pooler in front of the server".to_owned(),
        hint: "give the server itself as `listen` in the URL; until then waiters look again by themselves"
            .to_owned(),
    }
}

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBackend")
            .field("server", &self.target)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Backend for PostgresBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            clock: true,
            together: true,
            most_changes: MOST_CHANGES,
            most_signal_bytes: MOST_SIGNAL_BYTES,
        }
    }

    fn read<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Snapshot> {
        Box::pin(
            async move { self.try_read(keys).await.map_err(|failure| failure.told("read", &self.target)) },
        )
    }

    fn commit<'a>(&'a self, within: Incarnation, changes: &'a [Change]) -> Pending<'a, Commits> {
        Box::pin(async move {
            self.try_commit(within, changes).await.map_err(|failure| failure.told("commit", &self.target))
        })
    }

    fn list<'a>(&'a self, of: Listing, after: Option<&'a Key>) -> Pending<'a, Page> {
        Box::pin(async move {
            self.try_list(of, after).await.map_err(|failure| failure.told("list", &self.target))
        })
    }

    fn history<'a>(&'a self, of: Option<&'a ResourceName>, most: usize) -> Pending<'a, History> {
        Box::pin(async move {
            self.try_history(of, most).await.map_err(|failure| failure.told("read the history", &self.target))
        })
    }

    fn listen(&self) -> Pending<'_, (Arc<dyn Subscriptions>, Signals)> {
        Box::pin(
            async move { self.try_listen().await.map_err(|failure| failure.told("listen", &self.target)) },
        )
    }

    /// Never: a schema that is empty may have been dropped, or the server may have been restored from a backup, while
    /// owners were at work.
    fn lost_nothing(&self, _: Duration) -> Pending<'_, bool> {
        Box::pin(async { Ok(false) })
    }

    fn safety(&self) -> Pending<'_, Vec<Warning>> {
        Box::pin(async move {
            self.try_safety().await.map_err(|failure| failure.told("read the settings", &self.target))
        })
    }
}

/// A store in PostgreSQL: `postgres://`.
pub type PostgresStore = RecordStore<PostgresBackend>;

impl RecordStore<PostgresBackend> {
    /// See [`PostgresBackend::open`].
    ///
    /// # Errors
    /// As there.
    pub async fn open(url: &str, namespace: &Namespace) -> Result<Self, Error> {
        PostgresBackend::open(url, namespace).await.map(Self::new)
    }

    /// See [`PostgresBackend::schema`].
    ///
    /// # Errors
    /// As there.
    pub fn schema(namespace: &Namespace) -> Result<String, Error> {
        PostgresBackend::schema(namespace)
    }

    /// See [`PostgresBackend::schema_for_role`].
    ///
    /// # Errors
    /// As there.
    pub fn schema_for_role(namespace: &Namespace, role: &str) -> Result<String, Error> {
        PostgresBackend::schema_for_role(namespace, role)
    }
}
