//! `postgres://` A database that is there already: many processes, many hosts.
//!
//! Every operation is one call of a plpgsql function, in one round trip and one transaction (a release that wakes somebody
//! is followed by another one, which waits for the disk), decided by the rules of
//! [`tenure_core::Ledger`]; the functions and their tables live in a schema named like the namespace. Where a transaction
//! pooler may stand in between only unnamed statements are used. Nothing here knows workers or drivers.

mod calls;
mod ears;
#[cfg(test)]
mod fuzz;
mod jobs;
mod known;
mod line;
mod read;
mod schema;
mod tls;
mod trouble;
mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Answer, Asked, Call, Holder, JobAct, JobSaid, JobStep, JobView, Label, LeaseId, Namespace, Payload,
    Published, Request, ResourceName, ResourceView, Token,
};
use tokio_postgres::types::{ToSql, Type};

use self::ears::Ears;
use self::line::{Line, Wire};
use self::schema::{Missing, Quoted};
use self::trouble::Trouble;
use self::url::Target;
use super::{Concern, Cost, Entry, Hints, Messages, Pending, Store};
use crate::Error;

/// A namespace of a PostgreSQL database.
///
/// Its connections are made when they are needed, by whoever needs them, and live on that runtime: renewals on
/// one, claims on another, where a worker also looks at one resource and closes its lease, jobs, messages, reading and
/// operators on a third, and one more to listen.
pub struct PostgresStore {
    target: Arc<Target>,
    namespace: Namespace,
    schema: Quoted,
    /// Renewals, and what a lease holds, which must not wait behind claims.
    renewals: Line,
    claims: Arc<Line>,
    tools: Line,
    ears: Ears,
}

impl PostgresStore {
    /// Connects to `url`, and makes the tables and functions of the namespace if they are not there.
    ///
    /// Beside what libpq knows (`sslmode`, `sslrootcert`, `sslcert`, `target_session_attrs`, ...) a URL may have `listen`:
    /// another URL of the same database, without a transaction pooler, over which hints come. Of several hosts the last
    /// good one is tried first, and one that does not answer is passed over.
    ///
    /// # Errors
    /// `Refused` for a URL that is not understood, a standby, a server or database that Tenure cannot work with, a
    /// newer schema, and rights that are missing. `Unavailable` when the server does not answer.
    pub async fn open(url: &str, namespace: &Namespace) -> Result<Self, Error> {
        let (store, _) = Self::prepare(url, namespace, Missing::Make).await?;
        Ok(store)
    }

    /// The same where its connections are to live, for a worker: it goes on over the one that was made now.
    pub(crate) async fn open_here(url: &str, namespace: &Namespace) -> Result<Self, Error> {
        let (store, wire) = Self::prepare(url, namespace, Missing::Make).await?;
        wire.into_iter().for_each(|wire| store.claims.adopt(wire));
        Ok(store)
    }

    /// The same, unless the tables and functions of the namespace are not there. Makes nothing.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn find(url: &str, namespace: &Namespace) -> Result<Option<Self>, Error> {
        let (store, wire) = Self::prepare(url, namespace, Missing::Leave).await?;
        Ok(wire.map(|_| store))
    }

    /// The same where its connections are to live, for who reads: it goes on over the one that was made now.
    pub(crate) async fn find_here(url: &str, namespace: &Namespace) -> Result<Option<Self>, Error> {
        let (store, wire) = Self::prepare(url, namespace, Missing::Leave).await?;
        Ok(wire.map(|wire| {
            store.tools.adopt(wire);
            store
        }))
    }

    /// The store, and if it is there the connection that showed it.
    async fn prepare(
        url: &str,
        namespace: &Namespace,
        missing: Missing,
    ) -> Result<(Self, Option<Wire>), Error> {
        let (target, schema) = (Arc::new(Target::parse(url)?), Quoted::of(namespace)?);
        let wire = schema::prepare(&target, &schema, missing).await?;
        let claims = Arc::new(Line::to(&target));
        let store = Self {
            namespace: namespace.clone(),
            renewals: Line::to(&target),
            ears: Ears::new(&target, &claims),
            claims,
            tools: Line::to(&target),
            schema,
            target,
        };
        Ok((store, wire))
    }

    /// The SQL that makes the tables and functions of a namespace, for those who apply it themselves. A worker then
    /// needs nothing but USAGE on the schema and EXECUTE on the functions that the text lists at its end.
    ///
    /// # Errors
    /// When the namespace cannot be a schema of ours.
    pub fn schema(namespace: &Namespace) -> Result<String, Error> {
        Ok(schema::script(&Quoted::of(namespace)?))
    }

    async fn carry_out(&self, request: &Request) -> Result<Answer, Error> {
        let (line, doing): (&Line, &str) = match request.call {
            Call::Renew => (&self.renewals, "renew the lease"),
            Call::Held => (&self.renewals, "ask what the lease holds"),
            Call::Open { .. } => (&self.claims, "open the lease"),
            Call::Claim(_) => (&self.claims, "claim"),
            Call::Release(_) => (&self.claims, "release"),
            Call::Close(_) => (self.for_closing(), "close the lease"),
        };
        let said = calls::carry_out(line, &self.schema, request).await;
        said.map_err(|trouble| trouble.told(doing, &self.target))
    }

    /// A lease is closed where that was rehearsed, because others are waiting for it; unless nothing came from there for long,
    /// and so perhaps nothing will. Whoever closes the lease of another, who is dead, has only looked for it.
    fn for_closing(&self) -> &Line {
        let lines: [&Line; 3] = [&self.claims, &self.renewals, &self.tools];
        let there = || lines.into_iter().filter_map(|line| Some((line, line.answered_at()?)));
        let lately = there().find(|(_, answered_at)| answered_at.elapsed() < LATELY);
        let (line, _) = lately.or_else(|| there().max_by_key(|(_, answered_at)| *answered_at)).unzip();
        line.unwrap_or(&self.claims)
    }

    /// A worker that looks at one resource needs no connection for that.
    fn for_reading(&self, resource: Option<&ResourceName>) -> &Line {
        let is_worker = || self.claims.answered_at().is_some() && self.tools.answered_at().is_none();
        if resource.is_some() && is_worker() { &self.claims } else { &self.tools }
    }

    async fn wish(&self, doing: &str, sql: String, params: &[Param<'_>]) -> Result<Asked, Error> {
        let asked = async {
            let rows = self.tools.query(PATIENCE, &sql, params).await?;
            let row = rows.first().ok_or_else(|| Trouble::damaged("nothing was answered"))?;
            let tokens: Option<Vec<i64>> = row.try_get("tokens")?;
            let tokens = tokens.unwrap_or_default().into_iter();
            Ok(match row.try_get::<_, i16>("asked")? {
                0 => Asked::Done,
                1 => Asked::OtherOwners(tokens.map(|token| Token(token.unsigned_abs())).collect()),
                _ => Asked::NotWaiting,
            })
        };
        asked.await.map_err(|trouble: Trouble| trouble.told(doing, &self.target))
    }
}

/// A bound value and its type: named, so that nothing has to be prepared to find it out.
type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// What has answered within this time will.
const LATELY: Duration = Duration::from_secs(30);
/// How long operators and readers wait: for a connection, or for a resource that somebody else holds.
const PATIENCE: Duration = Duration::from_secs(5);

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("server", &self.target)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Store for PostgresStore {
    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Box::pin(self.carry_out(request))
    }

    fn hints(&self, lease: LeaseId) -> Pending<'_, Hints> {
        Box::pin(async move {
            self.ears.listen(lease).await.map_err(|trouble| trouble.told("listen for hints", &self.target))
        })
    }

    fn safety(&self) -> Pending<'_, Vec<Concern>> {
        Box::pin(async move {
            let sql = format!("SELECT * FROM {}.setup()", self.schema);
            let read = async {
                let rows = self.tools.query(PATIENCE, &sql, &[]).await?;
                let row = rows.first().ok_or_else(|| Trouble::damaged("nothing was answered"))?;
                read::concerns(row)
            };
            let mut concerns: Vec<Concern> =
                read.await.map_err(|trouble| trouble.told("read the settings", &self.target))?;
            if self.ears.are_deaf() {
                concerns.push(Concern {
                    cost: Cost::Time,
                    what: "hints do not come through: a transaction pooler stands in between".into(),
                    hint: "give the URL of the server itself as `listen`; until then waiters look again by themselves"
                        .into(),
                });
            }
            Ok(concerns)
        })
    }

    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>> {
        Box::pin(async move {
            let sql = format!("SELECT * FROM {}.look($1)", self.schema);
            let name = resource.map(ResourceName::as_str);
            let rows = self.for_reading(resource).query(PATIENCE, &sql, &[(&name, Type::TEXT)]).await;
            let views = rows.and_then(|rows| read::views(&rows));
            views.map_err(|trouble| trouble.told("read", &self.target))
        })
    }

    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>> {
        Box::pin(async move {
            let sql = format!("SELECT * FROM {}.past($1)", self.schema);
            let name = resource.map(ResourceName::as_str);
            let rows = self.tools.query(PATIENCE, &sql, &[(&name, Type::TEXT)]).await;
            let entries = rows.and_then(|rows| rows.iter().map(read::entry).collect());
            entries.map_err(|trouble| trouble.told("read the history", &self.target))
        })
    }

    fn ask<'a>(
        &'a self,
        resource: &'a ResourceName,
        token: Token,
        successor: Option<&'a Label>,
    ) -> Pending<'a, Asked> {
        Box::pin(async move {
            let sql = format!("SELECT * FROM {}.ask($1, $2, $3, $4)", self.schema);
            let successor = successor.map(Label::as_str);
            let params: [Param<'_>; 4] = [
                (&resource.as_str(), Type::TEXT),
                (&calls::signed(token.0), Type::INT8),
                (&successor, Type::TEXT),
                (&calls::millis(PATIENCE), Type::INT4),
            ];
            self.wish("ask", sql, &params).await
        })
    }

    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, Asked> {
        Box::pin(async move {
            let sql = format!("SELECT * FROM {}.evict($1, $2, $3)", self.schema);
            let params: [Param<'_>; 3] = [
                (&resource.as_str(), Type::TEXT),
                (&calls::signed(token.0), Type::INT8),
                (&calls::millis(PATIENCE), Type::INT4),
            ];
            self.wish("evict", sql, &params).await
        })
    }

    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid> {
        Box::pin(async move {
            let said = jobs::carry_out(&self.tools, &self.schema, step).await;
            let doing = match step.act {
                JobAct::Attend { .. } => "attend to the job",
                JobAct::Begin(_) => "begin the job",
                JobAct::Finish { .. } => "finish the job",
            };
            said.map_err(|trouble| trouble.told(doing, &self.target))
        })
    }

    fn jobs<'a>(&'a self, job: Option<&'a ResourceName>) -> Pending<'a, Vec<JobView>> {
        Box::pin(async move {
            let sql = format!("SELECT * FROM {}.jobs($1)", self.schema);
            let name = job.map(ResourceName::as_str);
            let rows = self.tools.query(PATIENCE, &sql, &[(&name, Type::TEXT)]).await;
            let views = rows.and_then(|rows| jobs::views(&rows, job.is_some()));
            views.map_err(|trouble| trouble.told("read the jobs", &self.target))
        })
    }

    fn publish<'a>(&'a self, holder: &'a Holder, payload: &'a Payload) -> Pending<'a, Published> {
        Box::pin(async move {
            let published = jobs::publish(&self.tools, &self.schema, holder, payload).await;
            published.map_err(|trouble| trouble.told("publish", &self.target))
        })
    }

    fn subscribe<'a>(&'a self, resource: &'a ResourceName) -> Pending<'a, Messages> {
        Box::pin(async move {
            let subscribed = async {
                let channel = jobs::channel(&self.tools, &self.schema, resource).await?;
                self.ears.subscribe(&channel, resource).await
            };
            subscribed.await.map_err(|trouble| trouble.told("subscribe", &self.target))
        })
    }
}
