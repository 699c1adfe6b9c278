//! Private Redis servers: each on a port of its own, with its data in a folder of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::disk::Disk;
use crate::process::{Port, Process, on_a_free_port, tail};
use crate::resp::{Connection, Reply};
use crate::shim::Clock;

const PACKAGE: &str = "redis-server";
/// How long a server may take to answer after its start.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// How long a command may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// How a server is to be started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    settings: Vec<(String, String)>,
    aof: bool,
    cluster: Option<Slots>,
    own_clock: bool,
    disk: Option<u32>,
    tls: Option<Tls>,
}

/// What a node of a cluster is to own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slots {
    All,
    None,
}

/// Where a server finds what it needs to speak TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Its certificate, and those that lead to the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority by which it would judge its clients; it asks them for nothing.
    pub authority: PathBuf,
}

impl Options {
    /// Nothing is written to disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With an append-only file, synced as often as `fsync` says: `always`, `everysec`, `no`.
    #[must_use]
    pub fn aof(mut self, fsync: &str) -> Self {
        self.aof = true;
        self.set("appendfsync", fsync)
    }

    /// With this in its configuration.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A cluster of one node that owns all slots.
    #[must_use]
    pub fn cluster(mut self) -> Self {
        self.cluster = Some(Slots::All);
        self
    }

    /// A node of a cluster that owns nothing; it is to meet another one.
    #[must_use]
    pub fn cluster_without_slots(mut self) -> Self {
        self.cluster = Some(Slots::None);
        self
    }

    /// On a wall clock that the test can step.
    #[must_use]
    pub fn own_clock(mut self) -> Self {
        self.own_clock = true;
        self
    }

    /// With its data on a disk of its own that has room for so many MiB. Needs the right to mount.
    #[must_use]
    pub fn disk(mut self, mebibytes: u32) -> Self {
        self.disk = Some(mebibytes);
        self
    }

    /// With a second port that speaks TLS.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Starts a server.
    ///
    /// # Panics
    /// When `redis-server` is missing, or does not answer.
    #[must_use]
    pub fn start(self) -> Redis {
        let folder = tempfile::Builder::new().prefix("tenure-redis-").tempdir().expect("a folder");
        let data = folder.path().join("data");
        let disk = self.disk.map(|size| Disk::mount(&data, size));
        fs::create_dir_all(&data).expect("a folder for the data");
        let clock = self.own_clock.then(|| Clock::in_folder(folder.path()));
        let tls_port = self.tls.as_ref().map(|_| Port::free());
        let (port, process) = on_a_free_port(|port| {
            let mut process = launch(&self, folder.path(), &port, tls_port.as_ref(), clock.as_ref());
            answers(&mut process, port.number(), folder.path()).then_some((port, process))
        });
        let redis = Redis { process: Some(process), disk, folder, port, tls_port, clock, options: self };
        redis.form_cluster();
        redis
    }
}

/// A server. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct Redis {
    // In this order: the server goes, then its disk, then its folder.
    process: Option<Process>,
    disk: Option<Disk>,
    folder: TempDir,
    port: Port,
    tls_port: Option<Port>,
    clock: Option<Clock>,
    options: Options,
}

impl Redis {
    /// Its TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its TLS port.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.tls_port.as_ref().expect("a server that was started with TLS").number()
    }

    /// Its unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Its URL, over TCP.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
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

    /// Its process.
    ///
    /// # Panics
    /// When it is down.
    #[must_use]
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("a server that runs")
    }

    /// A connection to it, with the rights of the default user.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn connect(&self) -> io::Result<Connection> {
        Connection::open(self.port(), ANSWERS_WITHIN)
    }

    /// Has it carry out one command, on a connection of its own.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn command(&self, words: &[&str]) -> Reply {
        let said = self.connect().and_then(|mut connection| connection.command(words));
        said.unwrap_or_else(|error| panic!("cannot {words:?} on the private Redis: {error}"))
    }

    /// One line of its INFO, without the name.
    #[must_use]
    pub fn info(&self, section: &str, name: &str) -> Option<String> {
        let text = self.command(&["INFO", section]).text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::to_owned)
    }

    /// Which life it is in, as Tenure's scripts write it: the beginning of its replication id.
    ///
    /// # Panics
    /// When it does not tell.
    #[must_use]
    pub fn life(&self) -> String {
        let id = self.info("replication", "master_replid").expect("a replication id");
        id.get(..32).expect("a long id").to_owned()
    }

    /// Makes it a replica of another, and waits until it has all that the other has.
    ///
    /// # Panics
    /// When it does not come to that.
    pub fn follow(&self, primary: &Self) {
        self.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        crate::eventually(STARTS_WITHIN, "a replica follows", || {
            let offset = |server: &Self, name: &str| server.info("replication", name);
            offset(self, "master_link_status").is_some_and(|status| status == "up")
                && offset(self, "slave_repl_offset") == offset(primary, "master_repl_offset")
        });
    }

    /// Makes it a primary again, with the data that it has.
    pub fn promote(&self) {
        self.command(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Shuts it down with SIGTERM, as a system does.
    ///
    /// # Panics
    /// When it does not end.
    pub fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop(Signal::TERM);
        }
    }

    /// Starts it again, on the same port, with what is in its folder.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn start(&mut self) {
        self.kill();
        let (folder, tls) = (self.folder.path(), self.tls_port.as_ref());
        let mut process = launch(&self.options, folder, &self.port, tls, self.clock.as_ref());
        let started = answers(&mut process, self.port(), folder);
        assert!(started, "Redis does not start again on its port:\n{}", tail(&folder.join("log")));
        self.process = Some(process);
        self.form_cluster();
    }

    /// Removes all that it has written. It must be down.
    ///
    /// # Panics
    /// When it runs.
    pub fn wipe(&self) {
        assert!(self.process.is_none(), "a server that runs cannot be wiped");
        crate::disk::empty(&self.data()).expect("an empty folder");
    }

    /// Copies all that it has written so far to a folder beside its data.
    ///
    /// # Panics
    /// When it cannot.
    pub fn keep(&self) {
        let kept = self.folder.path().join("kept");
        let _none = fs::remove_dir_all(&kept);
        copy(&self.data(), &kept).expect("a copy of the data");
    }

    /// Puts what was kept in the place of its data. It must be down.
    ///
    /// # Panics
    /// When it runs, or nothing was kept.
    pub fn restore(&self) {
        self.wipe();
        copy(&self.folder.path().join("kept"), &self.data()).expect("the data that was kept");
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Gives all slots to the one node, unless it has them already.
    fn form_cluster(&self) {
        if self.options.cluster == Some(Slots::All) {
            let _taken = self.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
            crate::eventually(STARTS_WITHIN, "the cluster is formed", || {
                self.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok")
            });
        }
    }
}

fn launch(
    options: &Options,
    folder: &Path,
    port: &Port,
    tls: Option<&Port>,
    clock: Option<&Clock>,
) -> Process {
    let mut lines = format!(
        "port {}\nbind 127.0.0.1\nunixsocket {}\ndir {}\nlogfile {}\nsave \"\"\nappendonly {}\n\
         daemonize no\nprotected-mode no\nrepl-diskless-sync-delay 0\n",
        port.number(),
        folder.join("socket").display(),
        folder.join("data").display(),
        folder.join("log").display(),
        if options.aof { "yes" } else { "no" },
    );
    if options.cluster.is_some() {
        lines.push_str("cluster-enabled yes\n");
    }
    if let (Some(tls), Some(port)) = (&options.tls, tls) {
        let Tls { certificate, key, authority } = tls;
        lines.push_str(&format!(
            "tls-port {}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\ntls-auth-clients no\n",
            port.number(),
            certificate.display(),
            key.display(),
            authority.display(),
        ));
    }
    for (name, value) in &options.settings {
        lines.push_str(&format!("{name} {value}\n"));
    }
    let file = folder.join("redis.conf");
    fs::write(&file, lines).expect("a configuration");
    let mut command = Command::new("redis-server");
    command.arg(file).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    if let Some(clock) = clock {
        clock.wind(&mut command);
    }
    Process::start(command, PACKAGE)
}

/// Waits until it answers; says no when it ended because its port is taken.
fn answers(process: &mut Process, port: u16, folder: &Path) -> bool {
    let pid = process.pid().to_string();
    let until = Instant::now() + STARTS_WITHIN;
    while !is_ready(port, &pid) {
        let log = || tail(&folder.join("log"));
        if let Some(status) = process.ended() {
            assert!(log().contains("Address already in use"), "Redis ended with {status}:\n{}", log());
            return false;
        }
        assert!(
            Instant::now() < until,
            "a private Redis does not answer within {STARTS_WITHIN:?}:\n{}",
            log()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Whether the process with this pid answers there, and has read its data. One that wants a password answers, too.
fn is_ready(port: u16, pid: &str) -> bool {
    let Ok(mut connection) = Connection::open(port, ANSWERS_WITHIN) else { return false };
    match connection.command(&["INFO"]) {
        Ok(Reply::Text(info)) => {
            info.contains(&format!("process_id:{pid}\r\n")) && info.contains("\r\nloading:0\r\n")
        }
        Ok(Reply::Error(refusal)) => refusal.starts_with("NOAUTH"),
        _ => false,
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::Step;

    #[test]
    fn a_server_with_a_file_keeps_its_data_over_a_kill_and_loses_it_when_wiped() {
        let mut redis = Options::new().aof("always").start();
        redis.command(&["SET", "a", "1"]);
        redis.keep();
        redis.command(&["SET", "a", "2"]);

        redis.kill();
        redis.start();
        assert_eq!(redis.command(&["GET", "a"]), Reply::Text("2".into()));

        redis.kill();
        redis.restore();
        redis.start();
        assert_eq!(redis.command(&["GET", "a"]), Reply::Text("1".into()));

        redis.stop();
        redis.wipe();
        redis.start();
        assert_eq!(redis.command(&["GET", "a"]), Reply::Nil);
    }

    #[test]
    fn a_server_has_a_clock_of_its_own() {
        let redis = Options::new().own_clock().start();
        let now = || match redis.command(&["TIME"]) {
            Reply::List(parts) => parts[0].text().parse::<i64>().expect("seconds"),
            other => panic!("{other:?}"),
        };
        let before = now();

        redis.clock().step(Step::Forward(Duration::from_secs(60)));

        assert!((60..70).contains(&(now() - before)));
    }

    #[test]
    fn a_primary_that_was_a_replica_meanwhile_has_other_data_and_another_life() {
        let (a, b) = (Options::new().start(), Options::new().start());
        b.follow(&a);
        let (process, life) = (a.info("server", "run_id"), a.life());
        b.promote();
        a.command(&["SET", "x", "1"]);
        assert_eq!(a.life(), life);

        a.follow(&b);
        a.promote();

        assert_eq!((a.command(&["GET", "x"]), a.info("server", "run_id")), (Reply::Nil, process));
        assert!(a.life() != life && a.life() != b.life());
    }

    #[test]
    fn every_start_is_another_life_with_a_snapshot_with_a_file_and_without_data() {
        let with_snapshot = || Options::new().set("save", "3600 1000000");
        for options in [with_snapshot(), with_snapshot().aof("always"), Options::new()] {
            let mut redis = options.start();
            // Only one that has had a replica writes its replication id into a snapshot.
            Options::new().start().follow(&redis);
            redis.command(&["SET", "x", "1"]);
            redis.command(&["SAVE"]);
            let life = redis.life();

            redis.kill();
            redis.start();

            assert_ne!(redis.life(), life, "{redis:?}");
        }
    }

    #[test]
    fn a_cluster_of_one_refuses_keys_of_two_slots() {
        let redis = Options::new().cluster().start();

        assert_eq!(redis.command(&["MSET", "{a}1", "x", "{a}2", "y"]), Reply::Text("OK".into()));
        let refused = redis.command(&["MSET", "a", "x", "b", "y"]);
        assert!(refused.text().starts_with("CROSSSLOT"), "{refused:?}");
    }

    #[test]
    fn a_server_that_is_killed_under_a_test_starts_on_the_same_port() {
        let mut redis = Options::new().start();
        let (port, run_id) = (redis.port(), redis.info("server", "run_id"));

        redis.kill();
        assert!(redis.connect().is_err());
        redis.start();

        assert_eq!(redis.port(), port);
        assert_ne!(redis.info("server", "run_id"), run_id);
    }
}
