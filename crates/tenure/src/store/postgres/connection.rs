//! Connections to the server: a small pool. Every attempt has a connection to itself, so that nobody waits behind an
//! answer that does not come.

use crate::runtime::events;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_postgres::types::{IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use tokio_postgres::{Client, Row, Statement};

use super::error::Failure;
use super::url::Target;
use crate::Error;

/// How many connections the attempts of one [`Lane`] have at most.
const MOST_PER_LANE: usize = 16;
/// For how long a connection is kept while nobody uses it.
const KEPT: Duration = Duration::from_secs(60);

/// Which attempts share a limit, so that the urgent ones never wait behind the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Renewals, releases and endings.
    Essential,
    /// Everything else.
    Ordinary,
}

pub(super) struct Pool {
    target: Arc<Target>,
    /// The last one that answered is at the end, and is used next.
    idle: Mutex<Vec<Connection>>,
    essential: Semaphore,
    ordinary: Semaphore,
}

impl Pool {
    pub(super) fn new(target: &Arc<Target>) -> Self {
        Self {
            target: target.clone(),
            idle: Mutex::default(),
            essential: Semaphore::new(MOST_PER_LANE),
            ordinary: Semaphore::new(MOST_PER_LANE),
        }
    }

    /// Sends one statement and waits for its rows. Dropping it closes the connection.
    pub(super) async fn query(
        &self,
        lane: Lane,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Failure> {
        let permits = match lane {
            Lane::Essential => &self.essential,
            Lane::Ordinary => &self.ordinary,
        };
        let _permit = permits.acquire().await.map_err(|_| Error::unavailable("the pool is closed"))?;
        let connection = match self.take_idle() {
            Some(connection) => connection,
            None => Connection::open(&self.target).await?,
        };
        let mut attempt = Attempt { pool: self, began_at: Instant::now(), connection: Some(connection) };
        attempt.query(sql, params).await
    }

    /// Keeps a connection for the next attempt. The last ones that were used are used first, so the others rest.
    pub(super) fn put_back(&self, connection: Connection) {
        let mut idle = self.idle();
        idle.retain(|connection| connection.answered_at.elapsed() < KEPT);
        idle.push(connection);
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle();
        idle.retain(|connection| !connection.client.is_closed());
        idle.pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One statement under way.
struct Attempt<'a> {
    pool: &'a Pool,
    began_at: Instant,
    connection: Option<Connection>,
}

impl Attempt<'_> {
    async fn query(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Failure> {
        let Some(connection) = &mut self.connection else { return Ok(Vec::new()) };
        let prepared = self.pool.target.prepared_statements;
        let rows = connection.query(prepared, sql, params).await.map_err(Failure::from);
        if let Some(mut connection) = self.connection.take() {
            match &rows {
                Ok(_) => {
                    connection.answered_at = Instant::now();
                    self.pool.put_back(connection);
                }
                Err(failure) if failure.is_of_a_standby() => {
                    self.pool.target.avoid(connection.host);
                    // The other connections to it would fail the same way.
                    self.pool.idle().retain(|other| other.host != connection.host);
                }
                // A new connection costs little, and nothing is known of the state of this one.
                Err(_) => {}
            }
        }
        rows
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let Some(abandoned) = self.connection.take() else { return };
        // The host may hang, or the network may have forgotten all connections that were made before.
        self.pool.target.avoid(abandoned.host);
        self.pool.idle().retain(|connection| connection.answered_at > self.began_at);
    }
}

/// A connection. It lives on the runtime that made it, until it is dropped.
pub(super) struct Connection {
    pub(super) client: Client,
    host: usize,
    statements: HashMap<String, Statement>,
    answered_at: Instant,
    task: AbortHandle,
}

impl Connection {
    pub(super) async fn open(target: &Target) -> Result<Self, Error> {
        let (client, connection, host) = target.connect().await?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                events::debug("a connection to PostgreSQL has ended", &error);
            }
        });
        Ok(Self {
            client,
            host,
            statements: HashMap::new(),
            answered_at: Instant::now(),
            task: task.abort_handle(),
        })
    }

    /// Without prepared statements everything goes in one message, which any pooler can hand to any server.
    async fn query(
        &mut self,
        prepared: bool,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if !prepared {
            return self.client.query_typed(sql, params).await;
        }
        if !self.statements.contains_key(sql) {
            let types: Vec<Type> = params.iter().map(|(_, kind)| kind.clone()).collect();
            let statement = self.client.prepare_typed(sql, &types).await?;
            self.statements.insert(sql.to_owned(), statement);
        }
        let values: Vec<_> = params.iter().map(|(value, _)| *value).collect();
        self.client.query(&self.statements[sql], &values).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Dropping the client alone would wait for an answer that may never come.
        self.task.abort();
    }
}

/// A bound value and its type: named, so that nothing has to be prepared to find it out.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// A value that the driver does not show in its log lines.
pub(super) struct Bound<T>(pub(super) T);

impl<T> fmt::Debug for Bound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl<T: ToSql> ToSql for Bound<T> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.0.to_sql(kind, out)
    }

    fn accepts(kind: &Type) -> bool {
        T::accepts(kind)
    }

    to_sql_checked!();
}
