//! Where one measurement of one peer takes place: its server, and how its candidates are started.

use std::fs::OpenOptions;
use std::process::Command;
use std::time::Duration;

use super::candidate::Candidate;
use super::candidates::SUBCOMMAND;
use super::install::Kit;
use super::roster::{Peer, Program};
use super::servers::Server;
use crate::{Failure, clock};

/// No measurement has longer leases of Tenure.
const LONGEST: Duration = Duration::from_secs(15);
/// Between the beginnings of those who wait.
const APART: Duration = Duration::from_millis(70);

#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) peer: &'a Peer,
    pub(super) server: &'a Server,
    kit: &'a Kit,
    /// Nobody else uses it.
    pub(super) space: String,
}

/// Two that want the same: one owns, one waits.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) name: String,
    pub(super) owner: Candidate,
    pub(super) waiter: Candidate,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        peer: &'a Peer,
        server: &'a Server,
        kit: &'a Kit,
        measurement: &str,
    ) -> Result<Self, Failure> {
        let space = format!("{}-{measurement}", peer.id);
        if peer.is_ours() {
            server.make_space(&space, LONGEST)?;
        }
        Ok(Self { peer, server, kit, space })
    }

    /// A candidate that has connected, directly or through a port.
    pub(super) fn start(&self, ttl: Duration, through: Option<u16>) -> Result<Candidate, Failure> {
        let candidate = self.spawn(ttl, through)?;
        candidate.hear("ready")?;
        Ok(candidate)
    }

    /// So many pairs in place; the owners connect through that port, if any.
    pub(super) fn pairs(
        &self,
        count: usize,
        ttl: Duration,
        through: Option<u16>,
    ) -> Result<Vec<Pair>, Failure> {
        self.pairs_named("pair", count, ttl, through)
    }

    /// The same where a measurement needs pairs more than once.
    pub(super) fn pairs_named(
        &self,
        names: &str,
        count: usize,
        ttl: Duration,
        through: Option<u16>,
    ) -> Result<Vec<Pair>, Failure> {
        let mut pairs = Vec::new();
        for number in 0..count {
            let name = format!("{}.{names}.{number}", self.space);
            pairs.push(Pair { name, owner: self.spawn(ttl, through)?, waiter: self.spawn(ttl, None)? });
        }
        for pair in &mut pairs {
            pair.owner.hear("ready")?;
            pair.waiter.hear("ready")?;
            pair.owner.ask(&format!("campaign {}", pair.name), "own")?;
        }
        for pair in &mut pairs {
            // Who tries every so often does so at another phase of the owner's renewals in each pair.
            std::thread::sleep(APART);
            pair.waiter.tell(&format!("campaign {}", pair.name))?;
        }
        Ok(pairs)
    }

    fn spawn(&self, ttl: Duration, through: Option<u16>) -> Result<Candidate, Failure> {
        let mut command = match self.peer.program {
            Program::Bench(name) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args([SUBCOMMAND, name]);
                command
            }
            Program::Rust(name) => {
                let mut command = Command::new(self.kit.rust_program());
                command.arg(name);
                command
            }
            Program::Python(file) => {
                let mut command = Command::new(self.kit.python());
                command.arg("-B").arg(self.kit.sources("python").join(file));
                command
            }
            Program::Node(file) => {
                let mut command = Command::new("node");
                command.arg(self.kit.sources("node").join(file)).env("NODE_PATH", self.kit.node_modules());
                command.env("BOOTTIME_AHEAD", clock::boottime_ahead().to_string());
                command
            }
        };
        command.arg(self.server.url(&self.space, through)).arg(ttl.as_millis().to_string());
        if matches!(self.peer.program, Program::Bench(_)) {
            command.arg(&self.space);
        }
        let log = self.kit.log(self.peer.id);
        Candidate::start(command, OpenOptions::new().create(true).append(true).open(log)?)
    }
}
