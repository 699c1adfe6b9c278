//! Redis: a private server, which dies with this process. What it counts itself stands in its INFO.

use std::time::{Duration, Instant};

use testkit::redis::{Options, Redis};
use testkit::resp::{Connection, Reply};

use super::Baseline;
use crate::{Failure, usage};

/// On a port of its own, with its data in a folder of its own. Its file is synced as the default has it, every second:
/// without a file every restart would cost a quarantine, so that is what Tenure advises.
#[derive(Debug)]
pub(super) struct Server {
    redis: Redis,
    started: Instant,
}

impl Server {
    pub(super) fn start() -> Self {
        let redis = Options::new().aof("everysec").start();
        Self { redis, started: Instant::now() }
    }

    pub(super) fn url(&self) -> String {
        self.redis.url()
    }

    /// Waits until a lease of this length that the server might have lost would be over: before that a new namespace
    /// begins with a quarantine.
    pub(super) fn wait_until_trusted(&self, ttl: Duration) {
        // The rule asks for two seconds more; the server counts whole ones.
        const MORE: Duration = Duration::from_secs(4);
        std::thread::sleep((ttl + MORE).saturating_sub(self.started.elapsed()));
    }

    pub(super) fn ping(&self) -> Result<Ping, Failure> {
        Ok(Ping(self.redis.connect()?))
    }

    pub(super) fn cpu(&self) -> Result<Duration, Failure> {
        usage::on_cpu(self.redis.process().pid())
    }

    /// How often it has run one of our scripts; what those call themselves is not counted.
    pub(super) fn scripts_run(&self) -> Result<u64, Failure> {
        let stats = self.redis.connect()?.command(&["INFO", "commandstats"])?.text();
        let calls = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_")?.strip_prefix(name));
            let calls =
                line.and_then(|line| line.strip_prefix(":calls=")?.split(',').next()?.parse::<u64>().ok());
            calls.unwrap_or(0)
        };
        Ok(calls("evalsha") + calls("eval"))
    }
}

/// One PING over a blocking connection.
pub(super) struct Ping(Connection);

impl Baseline for Ping {
    fn name(&self) -> &'static str {
        "PING"
    }

    fn once(&mut self) -> Result<Duration, Failure> {
        let began = Instant::now();
        match self.0.command(&["PING"])? {
            Reply::Text(pong) if pong == "PONG" => Ok(began.elapsed()),
            other => Err(format!("the server answers {other:?} to a PING").into()),
        }
    }
}
