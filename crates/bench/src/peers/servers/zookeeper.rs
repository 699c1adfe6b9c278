//! A private ZooKeeper of one server, with ticks short enough for the leases that are measured.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use testkit::process::{Port, Process};

use super::answer;
use crate::Failure;

/// Where Debian's package puts it; the jar names what it needs.
pub(in crate::peers) const JAR: &str = "/usr/share/java/zookeeper.jar";

/// Dropping it kills it and removes its folder.
#[derive(Debug)]
pub(in crate::peers) struct ZooKeeper {
    _process: Process,
    _folder: TempDir,
    port: Port,
}

impl ZooKeeper {
    pub(super) fn start() -> Result<Self, Failure> {
        if !Path::new(JAR).exists() {
            return Err(format!("{JAR} is not there").into());
        }
        let folder = tempfile::Builder::new().prefix("tenure-zookeeper-").tempdir()?;
        let (port, file) = (Port::free(), folder.path().join("zoo.cfg"));
        // A session lasts at least two ticks.
        let lines = format!(
            "tickTime=500\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nmaxSessionTimeout=60000\n\
             admin.enableServer=false\n4lw.commands.whitelist=mntr,ruok\n",
            folder.path().join("data").display(),
            port.number(),
        );
        std::fs::write(&file, lines)?;
        let mut command = Command::new("java");
        command.args(["-cp", JAR, "org.apache.zookeeper.server.ZooKeeperServerMain"]).arg(file);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(command, "zookeeper");
        let zookeeper = Self { _process: process, _folder: folder, port };
        testkit::eventually(Duration::from_secs(60), "a private ZooKeeper answers", || {
            answer(zookeeper.port(), b"ruok").is_ok_and(|text| text == "imok")
        });
        Ok(zookeeper)
    }

    pub(super) fn port(&self) -> u16 {
        self.port.number()
    }

    /// All that clients have sent it; who asks for the count is no client.
    pub(super) fn packets(&self) -> Result<u64, Failure> {
        Ok(self.line("zk_packets_received")?.parse()?)
    }

    pub(super) fn version(&self) -> String {
        let version = self.line("zk_version").unwrap_or_default();
        format!("ZooKeeper {}", version.split(['-', ',']).next().unwrap_or_default())
    }

    fn line(&self, name: &str) -> Result<String, Failure> {
        let text = answer(self.port(), b"mntr")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
        Ok(line.ok_or_else(|| format!("ZooKeeper does not tell {name}"))?.to_owned())
    }
}
