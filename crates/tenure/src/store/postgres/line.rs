//! One line to the server: a connection that requests share, pipelined, and that is replaced when it does not
//! answer.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_postgres::{Client, Row};

use super::Param;
use super::known::Known;
use super::trouble::Trouble;
use super::url::Target;
use crate::Error;

/// Nobody queues behind a request that takes longer: it may be waiting for a lock, or for a reply that never comes.
const QUEUED_AT_MOST: Duration = Duration::from_millis(50);
/// How many connections a line has at most while some of them do not answer, and how many are made at a time.
const MOST: usize = 4;

pub(super) struct Line {
    target: Arc<Target>,
    state: Mutex<State>,
    /// Told whenever a connection was made, or could not be.
    news: watch::Sender<()>,
    links: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Link>>,
    /// How many make one now.
    dials: usize,
}

impl Line {
    pub(super) fn to(target: &Arc<Target>) -> Self {
        Self {
            target: target.clone(),
            state: Mutex::default(),
            news: watch::Sender::default(),
            links: Arc::default(),
        }
    }

    /// Sends one statement and waits for its rows; the caller waits for `limit`. Whoever drops it gives the connection up: a
    /// later request takes a new one. The first time it is unnamed; from then on the server knows it, unless it is not the
    /// server that we speak to.
    pub(super) async fn query(
        &self,
        limit: Duration,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Trouble> {
        let link = self.link(limit).await?;
        let attempt = Attempt::begin(&link);
        let rows = link.ask(sql, params).await.map_err(Trouble::from);
        // One that has become a standby is not asked again: another host may be the primary now.
        if !rows.as_ref().is_err_and(Trouble::is_of_a_standby) {
            *link.answered_at() = Instant::now();
            attempt.end();
        }
        rows
    }

    /// The same over a connection of its own, for one that may take long: nobody queues behind it, unless there are too
    /// many already, or the server has none left.
    pub(super) async fn query_apart(
        &self,
        limit: Duration,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Trouble> {
        if self.links.load(Ordering::Relaxed) >= MOST {
            return self.query(limit, sql, params).await;
        }
        match Link::make(&self.target, &self.links, limit).await {
            Ok(link) => Ok(link.wire.client.query_typed(sql, params).await?),
            Err(_) => self.query(limit, sql, params).await,
        }
    }

    /// Goes on over a connection that was made for something else.
    pub(super) fn adopt(&self, wire: Wire) {
        let link = Link::over(wire, &self.target, &self.links);
        self.state().current = Some(Arc::new(link));
    }

    /// When its connection has last answered, or was made, if the next request needs no new one.
    pub(super) fn answered_at(&self) -> Option<Instant> {
        let state = self.state();
        let link = state.current.as_ref().filter(|link| link.is_usable(false))?;
        Some(*link.answered_at())
    }

    /// The connection to use.
    async fn link(&self, limit: Duration) -> Result<Arc<Link>, Error> {
        match self.usable() {
            Some(link) => Ok(link),
            None => self.new_link(limit).await,
        }
    }

    /// A connection that is made now. While another makes one it is waited for, but not for longer than half of the
    /// limit: the other may have more time than we do.
    async fn new_link(&self, limit: Duration) -> Result<Arc<Link>, Error> {
        let (began, mut news) = (Instant::now(), self.news.subscribe());
        let (mut patience, mut others) = (pin!(tokio::time::sleep(limit / 2)), 1);
        let dial = loop {
            if let Some(link) = self.usable() {
                return Ok(link);
            }
            if let Some(dial) = Dial::begin(self, others) {
                break dial;
            }
            tokio::select! {
                _ = news.changed() => {}
                () = patience.as_mut(), if others == 1 => others = MOST,
            }
        };
        let mut made = pin!(dial.make(limit.saturating_sub(began.elapsed())));
        loop {
            tokio::select! {
                made = made.as_mut() => return made,
                // Somebody else, who had to begin anew, was faster.
                _ = news.changed() => if let Some(link) = self.usable() { return Ok(link) },
            }
        }
    }

    fn usable(&self) -> Option<Arc<Link>> {
        let mut state = self.state();
        let must_wait = self.links.load(Ordering::Relaxed) >= MOST;
        // Requests on one that is not usable keep it until they have ended.
        state.current = state.current.take().filter(|link| link.is_usable(must_wait));
        state.current.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here can be left half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is being made.
struct Dial<'a>(&'a Line);

impl<'a> Dial<'a> {
    /// Unless as many are being made already.
    fn begin(line: &'a Line, most: usize) -> Option<Self> {
        let mut state = line.state();
        (state.dials < most).then(|| {
            state.dials += 1;
            Self(line)
        })
    }

    async fn make(self, limit: Duration) -> Result<Arc<Link>, Error> {
        let link = Arc::new(Link::make(&self.0.target, &self.0.links, limit).await?);
        self.0.state().current = Some(link.clone());
        Ok(link)
    }
}

impl Drop for Dial<'_> {
    fn drop(&mut self) {
        self.0.state().dials -= 1;
        self.0.news.send_replace(());
    }
}

/// A connection as it was made. It lives on the runtime of whoever made it, until this is dropped.
pub(super) struct Wire {
    client: Arc<Client>,
    host: usize,
    task: AbortHandle,
}

impl Wire {
    pub(super) async fn make(target: &Target, limit: Duration) -> Result<Self, Error> {
        let (client, connection, host) = target.connect(limit).await?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL has ended");
            }
        });
        Ok(Self { client: Arc::new(client), host, task: task.abort_handle() })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Not only the client: a connection whose replies do not come would live on until TCP gives up.
        self.task.abort();
    }
}

/// A connection that requests share. It ends when the last request on it has.
struct Link {
    target: Arc<Target>,
    wire: Wire,
    known: Arc<Known>,
    /// Somebody gave up a request on it.
    is_abandoned: AtomicBool,
    next: AtomicU64,
    /// When the requests under way were sent, in order.
    under_way: Mutex<BTreeMap<u64, Instant>>,
    answered_at: Mutex<Instant>,
    links: Arc<AtomicUsize>,
}

impl Link {
    async fn make(target: &Arc<Target>, links: &Arc<AtomicUsize>, limit: Duration) -> Result<Self, Error> {
        Ok(Self::over(Wire::make(target, limit).await?, target, links))
    }

    fn over(wire: Wire, target: &Arc<Target>, links: &Arc<AtomicUsize>) -> Self {
        links.fetch_add(1, Ordering::Relaxed);
        Self {
            target: target.clone(),
            wire,
            known: Arc::default(),
            is_abandoned: AtomicBool::new(false),
            next: AtomicU64::new(0),
            under_way: Mutex::default(),
            answered_at: Mutex::new(Instant::now()),
            links: links.clone(),
        }
    }

    async fn ask(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, tokio_postgres::Error> {
        if let Some(statement) = self.known.statement(sql) {
            let values: Vec<_> = params.iter().map(|(value, _)| *value).collect();
            match self.wire.client.query(&statement, &values).await {
                // It has changed nothing: its transaction was undone.
                Err(error) if Known::is_refused(&error) => self.known.give_up(),
                rows => return rows,
            }
        }
        let rows = self.wire.client.query_typed(sql, params).await?;
        let types = params.iter().map(|(_, kind)| kind.clone()).collect();
        self.known.learn(&self.wire.client, sql, types);
        Ok(rows)
    }

    /// Whether the next request may go over it. Where there are too many connections already, it has to wait.
    fn is_usable(&self, must_wait: bool) -> bool {
        if self.wire.client.is_closed() || self.is_abandoned.load(Ordering::Relaxed) {
            return false;
        }
        let oldest = self.under_way().first_key_value().map(|(_, sent_at)| *sent_at);
        must_wait || oldest.is_none_or(|sent_at| sent_at.elapsed() < QUEUED_AT_MOST)
    }

    fn answered_at(&self) -> MutexGuard<'_, Instant> {
        self.answered_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        // Nothing in here can be left half done.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
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
            // Its host may hang, and another may not.
            self.link.target.doubt(self.link.wire.host);
        }
    }
}
