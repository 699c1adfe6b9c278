//! Private PostgreSQL servers: each with a cluster in a folder of its own, on a port and a socket of its own.
//!
//! PostgreSQL refuses to run as root; then the servers run as `postgres`, or as `nobody` where there is no such user.

mod bouncer;
mod cluster;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use self::bouncer::{Bouncer, Pooling};
use self::cluster::{copy, program, template};
use crate::disk::Disk;
use crate::process::{Port, Process, on_a_free_port, tail};
use crate::shim::Clock;

const PACKAGE: &str = "postgresql";
/// How long a server may take to start, recovery included.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// How a server is to be started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    settings: Vec<(String, String)>,
    rules: Option<String>,
    own_clock: bool,
    disk: Option<u32>,
    tls: Option<(PathBuf, PathBuf)>,
    client_authority: Option<PathBuf>,
}

impl Options {
    /// A new cluster that trusts everybody on this machine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With this in its configuration.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With these lines in its `pg_hba.conf`, for connections over TCP; over the socket everybody is trusted.
    #[must_use]
    pub fn rules(mut self, lines: &str) -> Self {
        self.rules = Some(lines.to_owned());
        self
    }

    /// On a wall clock that the test can step.
    #[must_use]
    pub fn own_clock(mut self) -> Self {
        self.own_clock = true;
        self
    }

    /// On a disk of its own that has room for so many MiB. Needs the right to mount.
    #[must_use]
    pub fn disk(mut self, mebibytes: u32) -> Self {
        self.disk = Some(mebibytes);
        self
    }

    /// With TLS, by this certificate and key.
    #[must_use]
    pub fn tls(mut self, certificate: &Path, key: &Path) -> Self {
        self.tls = Some((certificate.to_owned(), key.to_owned()));
        self
    }

    /// With this authority for the certificates of clients; which of them need one is for the rules to say.
    #[must_use]
    pub fn client_authority(mut self, certificate: &Path) -> Self {
        self.client_authority = Some(certificate.to_owned());
        self
    }

    /// Starts a server.
    ///
    /// # Panics
    /// When PostgreSQL is missing, or does not answer.
    #[must_use]
    pub fn start(self) -> Postgres {
        self.start_from(&template())
    }

    /// Starts one on a copy of this cluster.
    fn start_from(self, cluster: &Path) -> Postgres {
        let folder = cluster::folder();
        let clock = self.own_clock.then(|| Clock::in_folder(folder.path()));
        let disk = self.disk.map(|size| Disk::mount(&folder.path().join("data"), size));
        copy(cluster, &folder.path().join("data"));
        if let Some((certificate, key)) = &self.tls {
            for (from, to) in [(certificate, "server.crt"), (key, "server.key")] {
                cluster::give(from, &folder.path().join(to));
            }
        }
        if let Some(authority) = &self.client_authority {
            cluster::give(authority, &folder.path().join("clients.crt"));
        }
        let (port, process) = on_a_free_port(|port| {
            let mut process = launch(&self, folder.path(), &port, clock.as_ref());
            answers(&mut process, &port, folder.path()).then_some((port, process))
        });
        Postgres { process: Some(process), disk, folder, port, clock, options: self }
    }
}

/// A server. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct Postgres {
    // In this order: the server goes, then its disk, then its folder.
    process: Option<Process>,
    disk: Option<Disk>,
    folder: TempDir,
    port: Port,
    clock: Option<Clock>,
    options: Options,
}

impl Postgres {
    /// Its TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The folder with its unix socket.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The URL of its first database, over TCP, as its superuser.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The same through another port, of a proxy or a pooler.
    #[must_use]
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres")
    }

    /// The same over its unix socket.
    #[must_use]
    pub fn socket_url(&self) -> String {
        format!("postgres:///postgres?host={}&port={}&user=postgres", self.folder().display(), self.port())
    }

    /// The pids of all its processes.
    ///
    /// # Panics
    /// When it is down.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let server = self.process().pid();
        std::iter::once(server).chain(children(server)).collect()
    }

    /// Its wall clock.
    ///
    /// # Panics
    /// When it runs on the machine's.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.clock.as_ref().expect("a server that was started with a clock of its own")
    }

    /// The disk of its own that its data lies on.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("a server that was started on a disk of its own")
    }

    /// Has its superuser carry out some statements, and gives back what they say: one line per row.
    ///
    /// # Panics
    /// When they fail.
    pub fn sql(&self, statements: &str) -> String {
        let done = self.try_sql(statements);
        done.unwrap_or_else(|told| {
            panic!("cannot carry out {statements:?} on the private PostgreSQL: {told}")
        })
    }

    /// The same where they may fail: then what is told instead.
    ///
    /// # Errors
    /// When they fail.
    pub fn try_sql(&self, statements: &str) -> Result<String, String> {
        let said = psql(&self.socket_url(), statements).output();
        let said = said.unwrap_or_else(|error| cluster::missing("psql", &error));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if said.status.success() { Ok(text(&said.stdout)) } else { Err(text(&said.stderr)) }
    }

    /// A transaction that carries out `statements` and then stays open until it is dropped.
    ///
    /// # Panics
    /// When they fail.
    #[must_use]
    pub fn hold(&self, statements: &str) -> Hold {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mark = format!("held-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new(program("psql"));
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d"]).arg(self.socket_url());
        command.args(["-c", "BEGIN", "-c", &format!("SET application_name = '{mark}'")]);
        command.args(["-c", statements, "-c", "SELECT pg_sleep(600)"]).stdout(Stdio::null());
        let process = Process::start(command, PACKAGE);
        let of_it = format!("FROM pg_stat_activity WHERE application_name = '{mark}'");
        let sleeps = format!("SELECT count(*) {of_it} AND wait_event = 'PgSleep'");
        crate::eventually(STARTS_WITHIN, "a transaction is held open", || self.sql(&sleeps) == "1");
        let end = psql(&self.socket_url(), &format!("SELECT pg_terminate_backend(pid) {of_it}"));
        Hold { end, _process: process }
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_up(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_none())
    }

    /// Gives back what filled its disk. A server whose log could not be written stops by itself, at once or a moment
    /// later; then it is started again. Returns when it can be written to.
    ///
    /// # Panics
    /// When it has no disk of its own, or cannot be written to.
    pub fn free_disk(&mut self) {
        self.disk().free();
        crate::eventually(STARTS_WITHIN, "a server with room on its disk can be written to", || {
            if !self.is_up() {
                self.start();
            }
            self.try_sql("SELECT pg_logical_emit_message(true, 'testkit', 'room')").is_ok()
        });
    }

    /// Kills the server and every process of it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            let children = children(process.pid());
            process.kill();
            children.iter().for_each(|child| send(*child, Signal::KILL));
            crate::eventually(STARTS_WITHIN, "every process of a killed server is gone", || {
                children.iter().all(|child| !Path::new(&format!("/proc/{child}")).exists())
            });
        }
    }

    /// Shuts it down at once, without a checkpoint: the next start recovers from the log.
    ///
    /// # Panics
    /// When it does not end.
    pub fn stop_immediately(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop(Signal::QUIT);
        }
    }

    /// Shuts it down cleanly, and ends all connections.
    ///
    /// # Panics
    /// When it does not end.
    pub fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop(Signal::INT);
        }
    }

    /// Starts it again, on the same port, with what is in its folder.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn start(&mut self) {
        self.kill();
        // Left behind by a kill; its process is gone.
        let _none = fs::remove_file(self.data().join("postmaster.pid"));
        let folder = self.folder.path();
        let mut process = launch(&self.options, folder, &self.port, self.clock.as_ref());
        let started = answers(&mut process, &self.port, folder);
        assert!(started, "PostgreSQL does not start again on its port:\n{}", tail(&folder.join("log")));
        self.process = Some(process);
    }

    /// Stops every process of it with SIGSTOP.
    ///
    /// # Panics
    /// When it is down.
    pub fn pause(&self) {
        let process = self.process();
        // First the one that starts others.
        process.pause();
        children(process.pid()).iter().for_each(|child| send(*child, Signal::STOP));
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it is down.
    pub fn resume(&self) {
        let process = self.process();
        children(process.pid()).iter().for_each(|child| send(*child, Signal::CONT));
        process.resume();
    }

    /// Copies its cluster to a folder beside it. It must be down.
    ///
    /// # Panics
    /// When it runs.
    pub fn keep(&self) {
        assert!(self.process.is_none(), "the files of a server that runs are no copy of it");
        let kept = self.folder().join("kept");
        let _none = fs::remove_dir_all(&kept);
        copy(&self.data(), &kept);
    }

    /// Takes a base backup of the running server, to the same place.
    ///
    /// # Panics
    /// When it fails.
    pub fn back_up(&self) {
        let kept = self.folder().join("kept");
        let _none = fs::remove_dir_all(&kept);
        let mut command = cluster::as_server(program("pg_basebackup"));
        command.args(["--checkpoint=fast", "--no-sync", "-X", "stream", "-U", "postgres", "-h"]);
        command.arg(self.folder()).arg("-p").arg(self.port().to_string()).arg("-D").arg(kept);
        cluster::run(command);
    }

    /// Puts what was kept in the place of its cluster. It must be down.
    ///
    /// # Panics
    /// When it runs, or nothing was kept.
    pub fn restore(&self) {
        assert!(self.process.is_none(), "a server that runs cannot be restored");
        crate::disk::empty(&self.data()).expect("an old cluster can be removed");
        copy(&self.folder().join("kept"), &self.data());
    }

    /// A standby of it, which follows it from now on.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn standby(&self) -> Self {
        self.back_up();
        let kept = self.folder().join("kept");
        let from = format!(
            "primary_conninfo = 'host={} port={} user=postgres'\n",
            self.folder().display(),
            self.port()
        );
        fs::write(kept.join("postgresql.auto.conf"), from).expect("a configuration");
        fs::write(kept.join("standby.signal"), "").expect("a mark");
        Options { disk: None, ..self.options.clone() }.start_from(&kept)
    }

    /// Has a standby take over.
    ///
    /// # Panics
    /// When it does not.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t");
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("a server that runs")
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
        drop(self.disk.take());
    }
}

/// A transaction that is open. Dropping it rolls it back.
#[derive(Debug)]
pub struct Hold {
    /// The server does not notice by itself that its client is gone.
    end: Command,
    _process: Process,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // It may be gone, with its server.
        let _ended = self.end.output();
    }
}

fn psql(url: &str, statements: &str) -> Command {
    let mut command = Command::new(program("psql"));
    command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", statements]).stdin(Stdio::null());
    command
}

fn launch(options: &Options, folder: &Path, port: &Port, clock: Option<&Clock>) -> Process {
    let mut lines = format!(
        "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\nshared_buffers = 16MB\n\
         max_connections = 200\nmax_wal_senders = 5\nwal_keep_size = 64MB\nlogging_collector = off\n",
        port.number(),
        folder.display(),
    );
    if options.tls.is_some() {
        let (crt, key) = (folder.join("server.crt"), folder.join("server.key"));
        lines.push_str(&format!(
            "ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'\n",
            crt.display(),
            key.display()
        ));
    }
    if options.client_authority.is_some() {
        lines.push_str(&format!("ssl_ca_file = '{}'\n", folder.join("clients.crt").display()));
    }
    for (name, value) in &options.settings {
        lines.push_str(&format!("{name} = '{value}'\n"));
    }
    let file = folder.join("postgresql.conf");
    fs::write(&file, lines).expect("a configuration");
    let rules = options.rules.as_deref().unwrap_or("host all all 127.0.0.1/32 trust");
    let local = "local all all trust\nlocal replication all trust\n";
    let hba = folder.join("pg_hba.conf");
    fs::write(&hba, format!("{local}{rules}\n")).expect("a configuration");
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).expect("a log");
    let mut command = cluster::as_server(program("postgres"));
    command.arg("-D").arg(folder.join("data")).arg("-c").arg(format!("config_file={}", file.display()));
    command.arg("-c").arg(format!("hba_file={}", hba.display()));
    command.stdout(Stdio::null()).stderr(log);
    if let Some(clock) = clock {
        clock.wind(&mut command);
    }
    Process::start(command, PACKAGE)
}

/// Waits until it answers; says no when it ended because its port is taken.
fn answers(process: &mut Process, port: &Port, folder: &Path) -> bool {
    let mut ended = false;
    crate::eventually(STARTS_WITHIN, "a private PostgreSQL answers", || {
        if let Some(status) = process.ended() {
            let log = tail(&folder.join("log"));
            assert!(log.contains("Address already in use"), "PostgreSQL ended with {status}:\n{log}");
            ended = true;
            return true;
        }
        let mut command = Command::new(program("pg_isready"));
        command.arg("-q").arg("-h").arg(folder).arg("-p").arg(port.number().to_string());
        command.status().is_ok_and(|status| status.success())
    });
    !ended
}

/// The processes that this one has started.
fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _gone = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests;
