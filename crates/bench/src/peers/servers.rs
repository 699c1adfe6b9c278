//! The servers: one of each, started by this program on ports and in folders of their own. Each says how many commands it
//! has been given so far, by its own count.

mod etcd;
mod zookeeper;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::postgres::Postgres;
use testkit::redis::Redis;

pub(super) use self::zookeeper::JAR;
use super::candidates::TABLE;
use super::roster::Store;
use crate::Failure;
use crate::ground::{Folder, make_postgres, transactions};

/// A running server, or a folder where there is none.
#[derive(Debug)]
pub(super) enum Server {
    File(Folder),
    Redis(Box<Redis>, Instant),
    Postgres(Box<Postgres>),
    Etcd(etcd::Etcd),
    ZooKeeper(zookeeper::ZooKeeper),
}

impl Server {
    pub(super) fn start(store: Store) -> Result<Self, Failure> {
        Ok(match store {
            Store::File => Self::File(Folder::new()?),
            Store::Redis => Self::Redis(Box::new(start_redis()), Instant::now()),
            Store::Postgres => Self::Postgres(Box::new(start_postgres())),
            Store::Etcd => Self::Etcd(etcd::Etcd::start()?),
            Store::ZooKeeper => Self::ZooKeeper(zookeeper::ZooKeeper::start()?),
        })
    }

    /// Before every measurement. Of etcd a fresh one: its election waits in the server, and after some clients were killed
    /// there it may serve nobody any more.
    pub(super) fn refresh(&mut self) -> Result<(), Failure> {
        if let Self::Etcd(etcd) = self {
            *etcd = etcd::Etcd::start()?;
        }
        Ok(())
    }

    /// Where it listens; nothing where there is no server.
    pub(super) fn port(&self) -> Option<u16> {
        match self {
            Self::File(_) => None,
            Self::Redis(redis, _) => Some(redis.port()),
            Self::Postgres(postgres) => Some(postgres.port()),
            Self::Etcd(etcd) => Some(etcd.port()),
            Self::ZooKeeper(zookeeper) => Some(zookeeper.port()),
        }
    }

    /// What a candidate is told, through this port or directly. `space` is for Tenure.
    pub(super) fn url(&self, space: &str, through: Option<u16>) -> String {
        let at = through.or(self.port()).unwrap_or(0);
        match self {
            Self::File(folder) => folder.url(space),
            Self::Redis(..) => format!("redis://127.0.0.1:{at}"),
            Self::Postgres(postgres) => postgres.url_at(at),
            Self::Etcd(_) => format!("http://127.0.0.1:{at}"),
            Self::ZooKeeper(_) => format!("127.0.0.1:{at}"),
        }
    }

    /// A namespace for Tenure in which a first claim with leases of this length is granted at once.
    pub(super) fn make_space(&self, space: &str, ttl: Duration) -> Result<(), Failure> {
        /// The rule asks for two seconds more than a ttl; the server counts whole ones.
        const MORE: Duration = Duration::from_secs(4);
        match self {
            // A new server is trusted when no lease can be left of a life before.
            Self::Redis(_, started) => std::thread::sleep((ttl + MORE).saturating_sub(started.elapsed())),
            Self::Postgres(postgres) => make_postgres(postgres, space)?,
            Self::File(_) | Self::Etcd(_) | Self::ZooKeeper(_) => {}
        }
        Ok(())
    }

    /// Its version, in its own words.
    pub(super) fn version(&self) -> String {
        match self {
            Self::File(_) => format!("SQLite {}", rusqlite::version()),
            Self::Redis(redis, _) => {
                format!("Redis {}", redis.info("server", "redis_version").unwrap_or_default())
            }
            Self::Postgres(postgres) => {
                let version = postgres.sql("SHOW server_version");
                format!("PostgreSQL {}", version.split(' ').next().unwrap_or_default())
            }
            Self::Etcd(_) => etcd::version(),
            Self::ZooKeeper(zookeeper) => zookeeper.version(),
        }
    }

    /// Counts commands from now on, or since the server began.
    pub(super) fn count(&self, space: &str) -> Result<Count<'_>, Failure> {
        Ok(match self {
            Self::File(folder) => Count::Transactions(folder.path(space)),
            Self::Redis(redis, _) => Count::Redis(Monitor::of(redis.port())?),
            Self::Postgres(postgres) => Count::Postgres(postgres),
            Self::Etcd(etcd) => Count::Etcd(etcd),
            Self::ZooKeeper(zookeeper) => Count::ZooKeeper(zookeeper),
        })
    }
}

/// Durable by the second, as is advised for Tenure; the same for all.
fn start_redis() -> Redis {
    testkit::redis::Options::new().aof("everysec").start()
}

fn start_postgres() -> Postgres {
    let options = testkit::postgres::Options::new().set("shared_preload_libraries", "pg_stat_statements");
    let postgres = options.set("max_connections", "400").start();
    postgres.sql("CREATE EXTENSION pg_stat_statements");
    postgres.sql(TABLE);
    postgres
}

/// Who counts.
pub(super) enum Count<'a> {
    /// Committed, by the index of SQLite's log. Reading is not counted.
    Transactions(PathBuf),
    /// By MONITOR: what clients send, not what scripts call.
    Redis(Monitor),
    /// By `pg_stat_statements`: what clients send, not what functions call.
    Postgres(&'a Postgres),
    /// By `grpc_server_msg_received_total`: every message of a stream counts.
    Etcd(&'a etcd::Etcd),
    /// By `zk_packets_received`, pings included.
    ZooKeeper(&'a zookeeper::ZooKeeper),
}

impl Count<'_> {
    pub(super) fn so_far(&self) -> Result<u64, Failure> {
        const STATEMENTS: &str = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
            WHERE query NOT LIKE '%pg_stat_statements%'";
        match self {
            Self::Transactions(path) => transactions(&path.display().to_string()),
            Self::Redis(monitor) => Ok(monitor.seen.load(Ordering::Relaxed)),
            Self::Postgres(postgres) => Ok(postgres.sql(STATEMENTS).parse()?),
            Self::Etcd(etcd) => etcd.messages(),
            Self::ZooKeeper(zookeeper) => zookeeper.packets(),
        }
    }
}

/// Hears every command that a Redis server carries out.
pub(super) struct Monitor {
    stream: TcpStream,
    seen: Arc<AtomicU64>,
}

impl Monitor {
    fn of(port: u16) -> Result<Self, Failure> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"MONITOR\r\n")?;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        match lines.next() {
            Some(Ok(ok)) if ok == "+OK" => {}
            other => return Err(format!("the server answers {other:?} to MONITOR").into()),
        }
        let seen = Arc::new(AtomicU64::new(0));
        let count = seen.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                count.fetch_add(u64::from(is_by_a_client(&line)), Ordering::Relaxed);
            }
        });
        Ok(Self { stream, seen })
    }
}

/// Whether MONITOR tells of a command that a client sent: `+TIME [DB CLIENT] "COMMAND" ...`, where the client of a command that
/// a script calls is `lua`.
fn is_by_a_client(line: &str) -> bool {
    line.split('"').next().is_some_and(|head| head.starts_with('+') && !head.contains(" lua]"))
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // The thread that reads ends with it.
        let _gone = self.stream.shutdown(Shutdown::Both);
    }
}

/// What a server on this machine answers to these bytes, until it closes.
fn answer(port: u16, request: &[u8]) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(request)?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_calls_is_not_counted() {
        assert!(is_by_a_client("+1339518083.107412 [0 127.0.0.1:60866] \"evalsha\" \"[0 lua]\""));
        assert!(!is_by_a_client("+1339518083.107412 [0 lua] \"get\" \"key\""));
    }
}
