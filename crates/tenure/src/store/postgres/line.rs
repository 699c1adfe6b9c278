//! One line to the server: a connection that requests share, pipelined, and that is replaced when it does not
//! answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use tokio_postgres::{Client, Row};

use super::Param;
use super::trouble::Trouble;
use super::url::Target;

/// Nobody queues behind a request that takes longer: it may be waiting for a lock, or for a reply that never comes.
const QUEUED_AT_MOST: Duration = Duration::from_millis(50);
/// How many connections a line has at most while some of them do not answer.
const MOST: usize = 4;

pub(super) struct Line {
    target: Arc<Target>,
    /// Held while a connection is made, so that all who wait for it get the same.
    current: tokio::sync::Mutex<Option<Arc<Link>>>,
    links: Arc<AtomicUsize>,
}

impl Line {
    pub(super) fn to(target: &Arc<Target>) -> Self {
        Self { target: target.clone(), current: tokio::sync::Mutex::default(), links: Arc::default() }
    }

    /// Sends one statement, unnamed, and waits for its rows. Whoever drops it gives the connection up: a later
    /// request takes a new one.
    pub(super) async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        let link = self.link().await?;
        let attempt = Attempt::begin(&link);
        let rows = link.client.query_typed(sql, params).await;
        attempt.end();
        Ok(rows?)
    }

    async fn link(&self) -> Result<Arc<Link>, Trouble> {
        let mut current = self.current.lock().await;
        if let Some(link) = &*current
            && link.is_usable(self.links.load(Ordering::Relaxed) >= MOST)
        {
            return Ok(link.clone());
        }
        // Requests on the old one keep it until they have ended.
        *current = None;
        let (client, connection) = self.target.connect().await?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL has ended");
            }
        });
        let link = Arc::new(Link::new(client, task.abort_handle(), &self.links));
        *current = Some(link.clone());
        Ok(link)
    }
}

/// A connection. It ends when the last request on it has.
struct Link {
    client: Client,
    task: AbortHandle,
    /// Somebody gave up a request on it.
    is_abandoned: AtomicBool,
    next: AtomicU64,
    /// When the requests under way were sent, in order.
    under_way: Mutex<BTreeMap<u64, Instant>>,
    links: Arc<AtomicUsize>,
}

impl Link {
    fn new(client: Client, task: AbortHandle, links: &Arc<AtomicUsize>) -> Self {
        links.fetch_add(1, Ordering::Relaxed);
        Self {
            client,
            task,
            is_abandoned: AtomicBool::new(false),
            next: AtomicU64::new(0),
            under_way: Mutex::default(),
            links: links.clone(),
        }
    }

    /// Whether the next request may go over it. Where there are too many connections already, it has to wait.
    fn is_usable(&self, must_wait: bool) -> bool {
        if self.client.is_closed() || self.is_abandoned.load(Ordering::Relaxed) {
            return false;
        }
        let oldest = self.under_way().first_key_value().map(|(_, sent_at)| *sent_at);
        must_wait || oldest.is_none_or(|sent_at| sent_at.elapsed() < QUEUED_AT_MOST)
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        // Nothing in here can be left half done.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Not only the client: a connection whose replies do not come would live on until TCP gives up.
        self.task.abort();
        self.links.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request under way.
struct Attempt {
    link: Arc<Link>,
    number: u64,
    has_ended: bool,
}

impl Attempt {
    fn begin(link: &Arc<Link>) -> Self {
        let number = link.next.fetch_add(1, Ordering::Relaxed);
        link.under_way().insert(number, Instant::now());
        Self { link: link.clone(), number, has_ended: false }
    }

    fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.link.under_way().remove(&self.number);
        if !self.has_ended {
            self.link.is_abandoned.store(true, Ordering::Relaxed);
        }
    }
}
