//! A private PgBouncer in front of a private server.

use std::fs;
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;

use super::{Postgres, cluster};
use crate::process::{Port, Process, on_a_free_port, tail};

/// How long it may take to listen.
const STARTS_WITHIN: Duration = Duration::from_secs(10);

/// For how long a client has a connection of the server to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// For each transaction.
    Transactions,
    /// As long as it stays.
    Sessions,
}

/// A pooler. Dropping it kills it.
#[derive(Debug)]
pub struct Bouncer {
    _process: Process,
    _folder: TempDir,
    port: Port,
}

impl Bouncer {
    /// Starts one before `server`.
    ///
    /// # Panics
    /// When `pgbouncer` is missing, or does not listen.
    #[must_use]
    pub fn before(server: &Postgres, pooling: Pooling) -> Self {
        let folder = cluster::folder();
        let (port, process) = on_a_free_port(|port| {
            let mode = match pooling {
                Pooling::Transactions => "transaction",
                Pooling::Sessions => "session",
            };
            let path = folder.path().display();
            let lines = format!(
                "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
                 unix_socket_dir = \nauth_type = trust\nauth_file = {path}/users\npool_mode = {mode}\n\
                 default_pool_size = 4\nlogfile = {path}/log\n",
                server.port(),
                port.number(),
            );
            fs::write(folder.path().join("users"), "\"postgres\" \"\"\n").expect("a file of users");
            fs::write(folder.path().join("pgbouncer.ini"), lines).expect("a configuration");
            let mut command = cluster::as_server("pgbouncer");
            command.arg("-q").arg(folder.path().join("pgbouncer.ini"));
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut process = Process::start(command, "pgbouncer");
            let mut ended = false;
            crate::eventually(STARTS_WITHIN, "a private PgBouncer listens", || {
                ended = process.ended().is_some();
                ended || TcpStream::connect(("127.0.0.1", port.number())).is_ok()
            });
            let log = tail(&folder.path().join("log"));
            assert!(!ended || log.contains("Address already in use"), "PgBouncer ended:\n{log}");
            (!ended).then_some((port, process))
        });
        Self { _process: process, _folder: folder, port }
    }

    /// Its TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}
