//! The Redis lease, as it is usually written: `SET NX PX`, tried every third of the ttl by those who wait; compare and
//! extend every third of the ttl; compare and delete at the end.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, Script};

use super::beaten::{Beaten, interval};
use crate::peers::protocol::{Peer, Trouble, now};

const EXTEND: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2])";
const DELETE: &str = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])";

#[derive(Clone)]
pub(super) struct Candidate {
    client: Client,
    connection: MultiplexedConnection,
    owner: Arc<str>,
    ttl: Duration,
}

impl Candidate {
    pub(super) async fn connect(url: &str, ttl: Duration) -> Result<Self, Trouble> {
        let client = Client::open(url)?;
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(Self { client, connection, owner: format!("{}-{}", std::process::id(), now()).into(), ttl })
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX)
    }

    async fn take(&self, name: &str) -> Result<bool, Trouble> {
        let mut set = redis::cmd("SET");
        set.arg(name).arg(&*self.owner).arg("NX").arg("PX").arg(self.millis());
        let said: Option<String> = set.query_async(&mut self.connection.clone()).await?;
        Ok(said.is_some())
    }

    /// Runs it on what is ours only; says whether it was.
    async fn on_ours(&self, script: &str, name: &str) -> Result<bool, Trouble> {
        let script = Script::new(script);
        let mut script = script.key(name);
        script.arg(&*self.owner).arg(self.millis());
        let said: Option<u64> = script.invoke_async(&mut self.connection.clone()).await?;
        Ok(said == Some(1))
    }
}

impl Peer for Candidate {
    type Own = Beaten;

    async fn win(&self, name: String) -> Result<Beaten, Trouble> {
        while !self.take(&name).await? {
            tokio::time::sleep(interval(self.ttl)).await;
        }
        let (candidate, kept) = (self.clone(), name.clone());
        Ok(Beaten::begin(name, self.ttl, move || {
            let (candidate, name) = (candidate.clone(), kept.clone());
            async move { candidate.on_ours(EXTEND, &name).await }
        }))
    }

    async fn release(&self, own: Beaten) {
        own.end();
        if let Err(trouble) = self.on_ours(DELETE, &own.name).await {
            eprintln!("cannot release: {trouble}");
        }
    }

    fn holds(&self, own: &Beaten) -> bool {
        own.is_owner()
    }

    fn lease_until(&self, own: &Beaten) -> u64 {
        own.lease_until()
    }

    async fn another(&self) -> Result<Self, Trouble> {
        let connection = self.client.get_multiplexed_async_connection().await?;
        let owner = format!("{}-{}", std::process::id(), now()).into();
        Ok(Self { connection, owner, ..self.clone() })
    }
}
