//! The statements that the server's end of a connection knows by name, so that it need not read and plan them again with
//! every request.
//!
//! Only where that end is the server itself. A pooler hands every transaction to another one, which does not know the name,
//! or knows something else by it that a stranger left there: there statements are sent whole.

use std::collections::HashMap;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::types::Type;
use tokio_postgres::{CancelToken, Client, NoTls, Statement};

/// How long the server has to learn a statement: beside everything else, and nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the server knows over one connection.
#[derive(Default)]
pub(super) struct Known(Mutex<State>);

#[derive(Default)]
struct State {
    statements: HashMap<String, Statement>,
    phase: Phase,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// Somebody teaches it one.
    Learning,
    /// It is not the server that we speak to, or it does not want to learn.
    Never,
}

impl Known {
    pub(super) fn statement(&self, sql: &str) -> Option<Statement> {
        self.state().statements.get(sql).cloned()
    }

    /// Whether the server says that what it is asked by name it does not know, or not like that any more.
    pub(super) fn is_refused(error: &tokio_postgres::Error) -> bool {
        let refusals = [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::FEATURE_NOT_SUPPORTED];
        error.code().is_some_and(|code| refusals.contains(code))
    }

    /// From here on everything is sent whole.
    pub(super) fn give_up(&self) {
        let mut state = self.state();
        state.statements.clear();
        state.phase = Phase::Never;
    }

    /// Has the server learn a statement for the next time.
    pub(super) fn learn(self: &Arc<Self>, client: &Arc<Client>, sql: &str, types: Vec<Type>) {
        {
            let mut state = self.state();
            // Whoever asked before it was learned may hear the answer only afterwards.
            if state.phase != Phase::Idle || state.statements.contains_key(sql) {
                return;
            }
            state.phase = Phase::Learning;
        }
        let (known, client, sql) = (self.clone(), client.clone(), sql.to_owned());
        tokio::spawn(async move {
            let taught = async {
                let is_first = known.state().statements.is_empty();
                match !is_first || is_direct(&client).await {
                    true => client.prepare_typed(&sql, &types).await.ok(),
                    false => None,
                }
            };
            let taught = tokio::time::timeout(PATIENCE, taught).await.ok().flatten();
            let mut state = known.state();
            // Somebody may have given up meanwhile.
            match taught.filter(|_| state.phase == Phase::Learning) {
                Some(statement) => {
                    state.statements.insert(sql, statement);
                    state.phase = Phase::Idle;
                }
                None => state.phase = Phase::Never,
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the process that answers is the one that we were told of when we connected. A pooler tells a number of its own.
async fn is_direct(client: &Client) -> bool {
    let answers = client.query_typed("SELECT pg_backend_pid()", &[]).await;
    let answers = answers.ok().and_then(|rows| rows.first()?.try_get::<_, i32>(0).ok());
    answers.is_some() && answers == told(&client.cancel_token()).await
}

/// The number of the server's process, as it was told when the connection was made: it stands in the request by which a
/// statement would be cancelled, which is read here instead of being sent.
async fn told(token: &CancelToken) -> Option<i32> {
    let (near, far) = tokio::io::duplex(64);
    let (_, number) = tokio::join!(token.cancel_query_raw(near, NoTls), read_request(far));
    if number.is_some() {
        return number;
    }
    // Where TLS is required it is not sent without.
    let (near, far) = tokio::io::duplex(64);
    let (_, number) = tokio::join!(token.cancel_query_raw(near, InTheOpen), read_request(far));
    number
}

/// Reads a request of 16 bytes: its length, its kind, the process, a secret. The wish for TLS may come before it, has 8, and
/// is granted.
async fn read_request(mut far: DuplexStream) -> Option<i32> {
    loop {
        let (length, _kind) = (far.read_i32().await.ok()?, far.read_i32().await.ok()?);
        match length {
            8 => far.write_u8(b'S').await.ok()?,
            16 => return far.read_i32().await.ok(),
            _ => return None,
        }
    }
}

/// What passes for TLS where nothing leaves this process.
struct InTheOpen;

struct Open(DuplexStream);

impl TlsConnect<DuplexStream> for InTheOpen {
    type Stream = Open;
    type Error = io::Error;
    type Future = Ready<io::Result<Open>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(Open(stream)))
    }
}

impl TlsStream for Open {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Open {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Open {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use testkit::postgres::{Bouncer, Options, Pooling};

    use super::super::line::Line;
    use super::super::url::Target;
    use super::*;

    /// How many statements the server's end knows by name, each time it was asked, at most so often.
    async fn counts(url: &str, most: usize) -> Vec<i64> {
        let line = Line::to(&Arc::new(Target::parse(url).expect("a URL")));
        let mut counts = Vec::new();
        while counts.len() < most && !counts.ends_with(&[1, 1]) {
            let sql = "SELECT count(*) FROM pg_prepared_statements";
            let rows = line.query(PATIENCE, sql, &[]).await.expect("an answer");
            counts.push(rows[0].get(0));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        counts
    }

    #[tokio::test]
    async fn the_server_itself_learns_what_it_is_asked_again() {
        let server = Options::new().start();

        let counts = counts(&server.url(), 10_000).await;

        assert_eq!(counts.first(), Some(&0));
        assert!(counts.ends_with(&[1, 1]), "{:?} at last, asked {} times", counts.last(), counts.len());
    }

    #[tokio::test]
    async fn it_learns_over_tls_too() {
        let papers = tempfile::tempdir().expect("a folder");
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let (certificate, key) = (papers.path().join("server.crt"), papers.path().join("server.key"));
        std::fs::write(&certificate, made.cert.pem()).expect("a file");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
        let only_over_tls = "hostssl all all 127.0.0.1/32 trust\nhostnossl all all 127.0.0.1/32 reject";
        let server = Options::new().tls(&certificate, &key).rules(only_over_tls).start();

        for mode in ["prefer", "require"] {
            let url = format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode={mode}", server.port());
            let counts = counts(&url, 10_000).await;

            assert!(counts.ends_with(&[1, 1]), "{mode}: {:?} at last", counts.last());
        }
    }

    #[tokio::test]
    async fn nothing_is_left_in_a_pooler() {
        let server = Options::new().start();
        let pooler = Bouncer::before(&server, Pooling::Transactions);

        let counts = counts(&server.url_at(pooler.port()), 200).await;

        assert_eq!(counts.iter().find(|count| **count != 0), None);
    }

    #[tokio::test]
    async fn what_the_server_has_forgotten_is_sent_whole() {
        let server = Options::new().start();
        let line = Line::to(&Arc::new(Target::parse(&server.url()).expect("a URL")));
        // Of others nothing is said: what makes it forget is learned, too.
        let sql = "SELECT name FROM pg_prepared_statements WHERE statement LIKE 'SELECT name%'";
        let ask = async || line.query(PATIENCE, sql, &[]).await.expect("an answer").len();
        let learned = async {
            while ask().await == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), learned).await.expect("it learns in time");

        line.query(PATIENCE, "DEALLOCATE ALL", &[]).await.expect("an answer");

        assert_eq!(ask().await, 0);
    }
}
