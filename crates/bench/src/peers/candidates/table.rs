//! The heartbeat table, as it is usually written: one row per resource with its owner and the time of the last beat, one
//! statement that takes or keeps it, tried every third of the ttl by everybody.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};

use super::beaten::{Beaten, interval};
use crate::peers::protocol::{Peer, Trouble, now};

/// What the server needs before.
pub(crate) const TABLE: &str =
    "CREATE TABLE leader (name text PRIMARY KEY, owner text NOT NULL, beat timestamptz NOT NULL)";

const BEAT: &str = "INSERT INTO leader VALUES ($1, $2, now())
    ON CONFLICT (name) DO UPDATE SET owner = $2, beat = now()
    WHERE leader.owner = $2 OR leader.beat < now() - $3::float8 * interval '1 second'
    RETURNING true";

#[derive(Clone)]
pub(super) struct Candidate {
    url: Arc<str>,
    client: Arc<Client>,
    owner: Arc<str>,
    ttl: Duration,
}

impl Candidate {
    pub(super) async fn connect(url: &str, ttl: Duration) -> Result<Self, Trouble> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // What goes wrong there is told to who waits for an answer.
        tokio::spawn(connection);
        let owner = format!("{}-{}", std::process::id(), now()).into();
        Ok(Self { url: url.into(), client: Arc::new(client), owner, ttl })
    }

    /// Takes it or keeps it; says whether it is ours.
    async fn beat(&self, name: &str) -> Result<bool, Trouble> {
        let kept = self.client.query_opt(BEAT, &[&name, &&*self.owner, &self.ttl.as_secs_f64()]).await?;
        Ok(kept.is_some())
    }
}

impl Peer for Candidate {
    type Own = Beaten;

    async fn win(&self, name: String) -> Result<Beaten, Trouble> {
        while !self.beat(&name).await? {
            tokio::time::sleep(interval(self.ttl)).await;
        }
        let (candidate, kept) = (self.clone(), name.clone());
        Ok(Beaten::begin(name, self.ttl, move || {
            let (candidate, name) = (candidate.clone(), kept.clone());
            async move { candidate.beat(&name).await }
        }))
    }

    async fn release(&self, own: Beaten) {
        own.end();
        let sql = "DELETE FROM leader WHERE name = $1 AND owner = $2";
        if let Err(error) = self.client.execute(sql, &[&own.name, &&*self.owner]).await {
            eprintln!("cannot release: {error}");
        }
    }

    fn holds(&self, own: &Beaten) -> bool {
        own.is_owner()
    }

    fn lease_until(&self, own: &Beaten) -> u64 {
        own.lease_until()
    }

    async fn another(&self) -> Result<Self, Trouble> {
        Self::connect(&self.url, self.ttl).await
    }
}
