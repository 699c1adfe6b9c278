//! A process that is stopped in mid-ownership, and whose next write comes when somebody else owns.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure::fence::Refusal;
use tenure::fence::postgres::{check, install};
use tenure::fence::redis::Guard;
use tenure::{Ownership, Timing, Worker};
use testkit::child::again;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::http::{self, send};
use super::{PATIENCE, postgres};

const TTL: Duration = Duration::from_secs(1);
const SINK: &str = "TENURE_TEST_SINK";
const STORE: &str = "TENURE_TEST_STORE";
const SAYS: &str = "says: ";

/// Where a text is written, and whether the token is looked at there.
#[derive(Clone, Debug)]
struct Sink {
    kind: &'static str,
    at: String,
    is_fenced: bool,
}

impl Sink {
    fn words(&self) -> String {
        format!("{} {} {}", self.kind, self.is_fenced, self.at)
    }

    fn parse(words: &str) -> Self {
        let parts: Vec<&str> = words.splitn(3, ' ').collect();
        let kind = ["redis", "postgres", "http"].into_iter().find(|kind| *kind == parts[0]).expect("a kind");
        Self { kind, is_fenced: parts[1] == "true", at: parts[2].to_owned() }
    }

    /// Writes, without a look at whether the ownership holds: that look lies in the past. Says whether it was refused.
    async fn write(&self, own: &Ownership, text: &str) -> Result<(), String> {
        let fence = own.fence();
        match (self.kind, self.is_fenced) {
            ("redis", is_fenced) => {
                let client = redis::Client::open(self.at.as_str()).expect("a client");
                // Without limits of its own: stopped in the middle of a write, it is to say what became of that.
                let config = redis::AsyncConnectionConfig::new();
                let config = config.set_connection_timeout(None).set_response_timeout(None);
                let connecting = client.get_multiplexed_async_connection_with_config(&config);
                let mut connection = connecting.await.expect("a connection");
                if !is_fenced {
                    let mut command = redis::cmd("SET");
                    return command
                        .arg("text")
                        .arg(text)
                        .exec_async(&mut connection)
                        .await
                        .map_err(|e| e.to_string());
                }
                match Guard::new(&fence).set(&mut connection, "text", text).await {
                    Err(Refusal::Stale(_)) => Err("stale".to_owned()),
                    other => other.map_err(|error| error.to_string()),
                }
            }
            ("postgres", is_fenced) => {
                let mut client = postgres::connect(&self.at).await;
                let transaction = client.transaction().await.expect("a transaction");
                if is_fenced {
                    match check(&transaction, &fence).await {
                        Err(Refusal::Stale(_)) => return Err("stale".to_owned()),
                        other => other.map_err(|error| error.to_string())?,
                    }
                }
                transaction.execute("UPDATE kept SET text = $1", &[&text]).await.expect("a write");
                transaction.commit().await.map_err(|error| error.to_string())
            }
            (_, is_fenced) => {
                let (path, header) =
                    if is_fenced { ("/write", Some(fence.to_string())) } else { ("/open", None) };
                match send(&self.at, path, header.as_deref(), text).await {
                    (200, _) => Ok(()),
                    (409, _) => Err("stale".to_owned()),
                    other => Err(format!("{other:?}")),
                }
            }
        }
    }
}

async fn acquire(store: &str) -> (Worker, Ownership) {
    let timing = Timing::new(TTL).expect("a timing");
    let worker = Worker::builder(store).timing(timing).connect().await.expect("a worker");
    let own =
        timeout(PATIENCE, worker.campaign("ledger").acquire()).await.expect("in time").expect("a ticket");
    (worker, own)
}

/// Not a test but the other process: writes again and again, until a write is refused or its ownership has ended by
/// what it hears. Without a part it is over at once.
#[tokio::test]
async fn a_child_plays_its_role() {
    let (Ok(sink), Ok(store)) = (std::env::var(SINK), std::env::var(STORE)) else { return };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("the kernel agrees");
    let (sink, (_worker, own)) = (Sink::parse(&sink), acquire(&store).await);
    let mut is_first = true;
    loop {
        let (held, wrote) = (own.holds(), sink.write(&own, "from the first").await);
        match wrote {
            Ok(()) if is_first => println!("{SAYS}wrote"),
            // It did not hold any more when it wrote, and was not refused.
            Ok(()) if !held => return println!("{SAYS}wrote late"),
            Ok(()) => {}
            Err(why) => return println!("{SAYS}refused: {why}"),
        }
        is_first = false;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

struct First {
    child: Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl First {
    fn start(sink: &Sink, store: &str) -> Self {
        let mut command = Command::from(again(module_path!(), &[]));
        command.env(SINK, sink.words()).env(STORE, store).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    async fn hears(&mut self) -> String {
        loop {
            let line = timeout(PATIENCE, self.lines.next_line()).await.expect("in time").expect("a line");
            if let Some((_, said)) = line.expect("it has something to say").split_once(SAYS) {
                return said.to_owned();
            }
        }
    }

    async fn stop_between_writes(&self, is_at_it: impl Fn() -> bool) {
        loop {
            self.signal(Signal::CONT);
            tokio::time::sleep(Duration::from_millis(3)).await;
            // Nor with SQLite's lock for writing, or the second could not write either.
            testkit::process::stop_between_writes(self.child.id().expect("it lives"));
            if !is_at_it() {
                return;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it lives");
        kill_process(pid, signal).expect("it has not been waited for");
    }
}

/// The first owner is stopped for longer than its lease; a second one owns and writes; the first goes on. Returns what
/// the first one then says. `is_at_it` says whether it was stopped in the middle of a write, for which the second would wait.
async fn play(sink: &Sink, folder: &Path, is_at_it: impl Fn() -> bool) -> String {
    let store = format!("sqlite:{}", folder.join("tenure.db").display());
    let mut first = First::start(sink, &store);
    assert_eq!(first.hears().await, "wrote");
    first.stop_between_writes(is_at_it).await;
    let (_worker, own) = timeout(PATIENCE, acquire(&store)).await.expect("in time");
    sink.write(&own, "from the second").await.expect("it owns");
    first.signal(Signal::CONT);
    first.hears().await
}

/// For a write that is one request: it has arrived, or it has not.
fn never() -> bool {
    false
}

// req: T4
#[tokio::test]
async fn what_a_paused_owner_writes_to_redis_too_late_is_refused() {
    let server = testkit::redis::Options::new().start();
    let mut sink = Sink { kind: "redis", at: server.url(), is_fenced: true };

    assert_eq!(play(&sink, testkit::folder().path(), never).await, "refused: stale");
    assert_eq!(server.command(&["GET", "text"]).text(), "from the second");

    sink.is_fenced = false;
    assert_eq!(play(&sink, testkit::folder().path(), never).await, "wrote late", "the control has to fail");
}

// req: T4
#[tokio::test]
async fn what_a_paused_owner_writes_to_postgresql_too_late_is_refused() {
    let server = testkit::postgres::Options::new().start();
    server.sql("CREATE TABLE kept (text text); INSERT INTO kept VALUES ('')");
    install(&postgres::connect(&server.url()).await).await.expect("the schema");
    let mut sink = Sink { kind: "postgres", at: server.url(), is_fenced: true };
    let is_at_it = || {
        let begun = "SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() \
                     AND backend_type = 'client backend'";
        server.sql(begun).trim() != "0"
    };

    assert_eq!(play(&sink, testkit::folder().path(), is_at_it).await, "refused: stale");
    assert_eq!(server.sql("SELECT text FROM kept").trim(), "from the second");

    sink.is_fenced = false;
    assert_eq!(
        play(&sink, testkit::folder().path(), is_at_it).await,
        "wrote late",
        "the control has to fail"
    );
}

// req: T4
#[tokio::test]
async fn what_a_paused_owner_sends_by_http_too_late_is_refused() {
    let server = http::Server::start().await;
    let mut sink = Sink { kind: "http", at: server.address.clone(), is_fenced: true };

    assert_eq!(play(&sink, testkit::folder().path(), never).await, "refused: stale");
    assert_eq!(server.kept(), "from the second");

    sink.is_fenced = false;
    assert_eq!(play(&sink, testkit::folder().path(), never).await, "wrote late", "the control has to fail");
}
