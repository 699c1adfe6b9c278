//! Connections to the server. Each request has a connection of its own while there are few, so that none waits for
//! another; a connection whose reply was given up is closed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Cmd, Value};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{self, Handle};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::Failure;
use super::scripts::Call;
use super::server::Info;
use super::url::{Address, Url};
use crate::Error;

/// How many connections a runtime keeps, and how many are made at the same time. Beyond it, requests share them.
const KEPT: usize = 16;
/// A connection that owes a reply for so long may hang: no further request is sent over it. Nor does a request wait
/// longer for its turn to connect. Not shorter, because a busy machine would answer late replies with more connections.
const SUSPICIOUS: Duration = Duration::from_millis(250);

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// All connections of one store.
pub(super) struct Connections {
    url: Url,
    /// Where the keys are, if a node of a cluster has said so.
    moved_to: Mutex<Option<Address>>,
    open: Mutex<Vec<Arc<Connection>>>,
    making: Semaphore,
    /// Raised when all connections have to be replaced.
    generation: watch::Sender<u64>,
}

struct Connection {
    link: MultiplexedConnection,
    driver: JoinHandle<()>,
    /// Where the driver runs. A request from elsewhere does not use it: that runtime may be blocked.
    runtime: runtime::Id,
    generation: u64,
    /// When the last reply came, or the first request after a pause was sent.
    heard_at: Mutex<Instant>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Otherwise it would wait for replies that nobody wants any more.
        self.driver.abort();
    }
}

impl Connection {
    /// How many requests use it. The list of open connections counts as one.
    fn requests(self: &Arc<Self>) -> usize {
        Arc::strong_count(self) - 1
    }

    fn may_hang(self: &Arc<Self>) -> bool {
        self.requests() > 0 && lock(&self.heard_at).elapsed() > SUSPICIOUS
    }

    async fn send(&self, command: &Cmd) -> Result<Value, Failure> {
        let value = command.query_async(&mut self.link.clone()).await;
        *lock(&self.heard_at) = Instant::now();
        Ok(value?)
    }
}

impl Connections {
    pub(super) fn new(url: Url) -> Self {
        Self {
            url,
            moved_to: Mutex::default(),
            open: Mutex::default(),
            making: Semaphore::new(KEPT),
            generation: watch::Sender::new(0),
        }
    }

    /// The server's address, without user and password.
    pub(super) fn server(&self) -> String {
        self.url.to_string()
    }

    /// Runs a script, and waits for the reply. If a node of a cluster says that the keys are elsewhere, runs it there.
    /// Dropping the future closes the connection.
    pub(super) async fn run(&self, call: &Call<'_>) -> Result<Value, Failure> {
        let failure = match self.try_run(call).await {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        let Some(address) = failure.moved_to() else { return Err(failure) };
        self.move_to(address);
        self.try_run(call).await
    }

    async fn try_run(&self, call: &Call<'_>) -> Result<Value, Failure> {
        let mut attempt = Attempt { connection: self.connection().await?, of: self, answered: false };
        let mut said = attempt.connection.send(&call.by_hash()).await;
        if said.as_ref().is_err_and(Failure::is_unknown_script) {
            // After a restart or SCRIPT FLUSH. Nothing was run.
            said = attempt.connection.send(&call.with_code()).await;
        }
        attempt.answered = !said.as_ref().is_err_and(Failure::breaks_connection);
        if said.as_ref().is_err_and(Failure::is_demoted) {
            self.replace_all();
        }
        said
    }

    /// All connections that exist now are replaced: they may lead to a server that is no longer the right one.
    pub(super) fn replace_all(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// A connection that hears what is published, and what tells when it has to be replaced.
    pub(super) async fn subscribe(&self) -> Result<(PubSub, watch::Receiver<u64>), Failure> {
        let replaced = self.generation.subscribe();
        let stream = self.stream().await?;
        Ok((PubSub::new(&self.url.login, stream).await?, replaced))
    }

    /// An idle connection, a new one or, where there are many, one that others use, too.
    async fn connection(&self) -> Result<Arc<Connection>, Failure> {
        if let Some(connection) = self.take() {
            return Ok(connection);
        }
        let _turn = timeout(SUSPICIOUS, self.making.acquire()).await;
        // Another request may have made one meanwhile.
        if let Some(connection) = self.take() {
            return Ok(connection);
        }
        let connection = Arc::new(self.connect().await?);
        self.keep(&connection);
        Ok(connection)
    }

    fn take(&self) -> Option<Arc<Connection>> {
        let (generation, here) = (*self.generation.borrow(), Handle::current().id());
        let mut open = lock(&self.open);
        open.retain(|connection| !connection.driver.is_finished() && connection.generation == generation);
        let ours = || open.iter().filter(|connection| connection.runtime == here);
        let sound = ours().filter(|connection| !connection.may_hang());
        let least_used = sound.min_by_key(|connection| connection.requests())?;
        if least_used.requests() == 0 {
            *lock(&least_used.heard_at) = Instant::now();
        } else if ours().count() < KEPT {
            return None;
        }
        Some(least_used.clone())
    }

    fn keep(&self, connection: &Arc<Connection>) {
        let mut open = lock(&self.open);
        if open.iter().filter(|other| other.runtime == connection.runtime).count() < KEPT {
            open.push(connection.clone());
        }
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let generation = *self.generation.borrow();
        let stream = self.stream().await?;
        // The caller limits how long it waits; the crate's own limit is half a second.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (link, driver) = MultiplexedConnection::new_with_config(&self.url.login, stream, config).await?;
        let driver = tokio::spawn(driver);
        let (runtime, heard_at) = (Handle::current().id(), Mutex::new(Instant::now()));
        let connection = Connection { link, driver, runtime, generation, heard_at };
        let info = Info::parse(connection.send(&redis::cmd("INFO")).await?)?;
        if info.may_evict() {
            self.replace_all();
        }
        info.check(&self.server())?;
        Ok(connection)
    }

    async fn stream(&self) -> Result<Box<dyn Stream>, Failure> {
        let moved_to = lock(&self.moved_to).clone();
        let mut reaching = Reaching { of: self, address: moved_to.as_ref(), reached: false };
        let stream: Box<dyn Stream> = match moved_to.as_ref().unwrap_or(&self.url.address) {
            Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Address::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                match &self.url.tls {
                    None => Box::new(stream),
                    Some(tls) => {
                        let name = ServerName::try_from(host.clone()).map_err(|_| {
                            Error::refused("redis URL: the host is no name for a certificate")
                        })?;
                        Box::new(tls.connect(name, stream).await?)
                    }
                }
            }
        };
        reaching.reached = true;
        Ok(stream)
    }

    /// Goes to the node of a cluster that has the keys. One without a host means the host that was asked.
    fn move_to(&self, address: &str) {
        let Some((host, port)) = address.rsplit_once(':') else { return };
        let Ok(port) = port.parse() else { return };
        let mut moved_to = lock(&self.moved_to);
        let Address::Tcp(asked, _) = moved_to.as_ref().unwrap_or(&self.url.address) else { return };
        let host = if host.is_empty() { asked } else { host.trim_matches(['[', ']']) };
        let address = Address::Tcp(host.to_owned(), port);
        if moved_to.as_ref() != Some(&address) {
            *moved_to = Some(address);
            self.replace_all();
        }
    }

    /// Sends no further request over this connection. Those that are under way go on waiting for their replies.
    fn retire(&self, connection: &Arc<Connection>) {
        lock(&self.open).retain(|open| !Arc::ptr_eq(open, connection));
    }
}

/// The node of a cluster that a connection is made to. If it is not reached, the next one begins at the URL again.
struct Reaching<'a> {
    of: &'a Connections,
    address: Option<&'a Address>,
    reached: bool,
}

impl Drop for Reaching<'_> {
    fn drop(&mut self) {
        let mut moved_to = lock(&self.of.moved_to);
        if !self.reached && self.address.is_some() && moved_to.as_ref() == self.address {
            *moved_to = None;
            drop(moved_to);
            self.of.replace_all();
        }
    }
}

/// A request under way. If it is dropped without a reply, its connection may hang.
struct Attempt<'a> {
    connection: Arc<Connection>,
    of: &'a Connections,
    answered: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.of.retire(&self.connection);
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here is left half done by a panic.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
