//! PostgreSQL's advisory locks, by hand: who waits sits in `pg_advisory_lock` on a connection of its own; the lock goes
//! with the connection. There is no lease, and the check is a flag that falls when the connection ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::{Client, NoTls};

use crate::peers::protocol::{Peer, Trouble};

#[derive(Clone)]
pub(super) struct Candidate {
    url: Arc<str>,
    /// For locks that are taken without waiting; any number of them.
    shared: Arc<Link>,
}

struct Link {
    client: Client,
    is_open: Arc<AtomicBool>,
}

pub(super) struct Lock {
    link: Arc<Link>,
    name: String,
}

impl Candidate {
    pub(super) async fn connect(url: &str) -> Result<Self, Trouble> {
        Ok(Self { url: url.into(), shared: Arc::new(Link::open(url).await?) })
    }
}

impl Link {
    async fn open(url: &str) -> Result<Self, Trouble> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let is_open = Arc::new(AtomicBool::new(true));
        let noted = is_open.clone();
        tokio::spawn(async move {
            // However it ends, the lock is gone with it.
            let _ended = connection.await;
            noted.store(false, Ordering::Release);
        });
        Ok(Self { client, is_open })
    }
}

impl Peer for Candidate {
    type Own = Lock;

    async fn win(&self, name: String) -> Result<Lock, Trouble> {
        let link = Arc::new(Link::open(&self.url).await?);
        link.client.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", &[&name]).await?;
        Ok(Lock { link, name })
    }

    async fn hold(&self, name: String) -> Result<Lock, Trouble> {
        let sql = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))";
        let is_taken: bool = self.shared.client.query_one(sql, &[&name]).await?.try_get(0)?;
        if !is_taken {
            return Err("somebody else has the lock".into());
        }
        Ok(Lock { link: self.shared.clone(), name })
    }

    async fn release(&self, lock: Lock) {
        let sql = "SELECT pg_advisory_unlock(hashtextextended($1, 0))";
        if let Err(error) = lock.link.client.execute(sql, &[&lock.name]).await {
            eprintln!("cannot unlock: {error}");
        }
    }

    fn holds(&self, lock: &Lock) -> bool {
        lock.link.is_open.load(Ordering::Acquire)
    }

    fn lease_until(&self, _: &Lock) -> u64 {
        0
    }

    async fn another(&self) -> Result<Self, Trouble> {
        Ok(self.clone())
    }
}
