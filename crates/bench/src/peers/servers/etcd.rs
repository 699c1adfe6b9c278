//! A private etcd of one member.

use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use testkit::process::{Port, Process};

use super::answer;
use crate::Failure;

/// Dropping it kills it and removes its folder.
#[derive(Debug)]
pub(in crate::peers) struct Etcd {
    _process: Process,
    _folder: TempDir,
    port: Port,
    _peer_port: Port,
}

impl Etcd {
    pub(super) fn start() -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("tenure-etcd-").tempdir()?;
        let (port, peer_port) = (Port::free(), Port::free());
        let clients = format!("http://127.0.0.1:{}", port.number());
        let peers = format!("http://127.0.0.1:{}", peer_port.number());
        let mut command = Command::new("etcd");
        command.args(["--name", "one", "--log-level", "error", "--initial-cluster", &format!("one={peers}")]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.arg("--data-dir").arg(folder.path().join("data")).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(command, "etcd-server");
        let etcd = Self { _process: process, _folder: folder, port, _peer_port: peer_port };
        testkit::eventually(Duration::from_secs(30), "a private etcd answers", || {
            etcd.get("/health").is_ok_and(|text| text.contains("true"))
        });
        Ok(etcd)
    }

    pub(super) fn port(&self) -> u16 {
        self.port.number()
    }

    /// All that clients have sent it.
    pub(super) fn messages(&self) -> Result<u64, Failure> {
        let metrics = self.get("/metrics")?;
        let counts = metrics.lines().filter(|line| line.starts_with("grpc_server_msg_received_total{"));
        let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(counts.sum::<f64>() as u64)
    }

    fn get(&self, path: &str) -> Result<String, Failure> {
        answer(self.port(), format!("GET {path} HTTP/1.0\r\nHost: etcd\r\n\r\n").as_bytes())
    }
}

pub(super) fn version() -> String {
    let said = Command::new("etcd").arg("--version").output().map(|said| said.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    let version = said.lines().next().and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
    format!("etcd {version}")
}
