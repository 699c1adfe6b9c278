//! What the peers need: packages by their names, in a folder of this program's own (`target/peers`) but for those of the
//! system. What cannot be installed is a reason, not a failure: its peers are reported as not measured.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::roster::{Peer, Program, Store};
use super::servers::JAR;
use crate::Failure;

/// Where it all is.
#[derive(Debug)]
pub(super) struct Kit {
    folder: PathBuf,
    /// What was installed already in this run, and what came of it.
    done: HashMap<&'static str, Result<(), String>>,
}

type Installed = Result<(), Failure>;

impl Kit {
    pub(super) fn new() -> Result<Self, Failure> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
        std::fs::create_dir_all(folder.join("log"))?;
        Ok(Self { folder: folder.canonicalize()?, done: HashMap::new() })
    }

    /// Installs what this peer needs, unless it is there.
    pub(super) fn provide(&mut self, peer: &Peer) -> Result<(), String> {
        let of_store = match peer.store {
            Store::Etcd => self.once("etcd", |_| {
                apt("etcd", "etcd-server")?;
                apt("etcdctl", "etcd-client")
            }),
            Store::ZooKeeper => self.once("zookeeper", |_| apt(JAR, "zookeeper")),
            Store::File | Store::Redis | Store::Postgres => Ok(()),
        };
        of_store?;
        match peer.program {
            Program::Bench(_) => Ok(()),
            Program::Rust(_) => self.once("rust", Self::build_rust),
            Program::Python(_) => self.once("python", Self::make_python),
            Program::Node(_) => self.once("node", Self::make_node),
        }
    }

    fn once(&mut self, what: &'static str, install: impl FnOnce(&Self) -> Installed) -> Result<(), String> {
        if !self.done.contains_key(what) {
            let done = install(self).map_err(|failure| failure.to_string());
            self.done.insert(what, done);
        }
        self.done[what].clone()
    }

    /// The folder with the candidates in this language.
    pub(super) fn sources(&self, language: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(language)
    }

    pub(super) fn rust_program(&self) -> PathBuf {
        self.folder.join("rust/release/tenure-bench-peers")
    }

    pub(super) fn python(&self) -> PathBuf {
        self.folder.join("venv/bin/python")
    }

    pub(super) fn node_modules(&self) -> PathBuf {
        self.folder.join("node/node_modules")
    }

    /// What the candidates of a peer complain about.
    pub(super) fn log(&self, peer: &str) -> PathBuf {
        self.folder.join("log").join(peer).with_extension("log")
    }

    fn build_rust(&self) -> Installed {
        // One of them makes code of the definitions of etcd's messages.
        apt("protoc", "protobuf-compiler")?;
        apt("/usr/include/google/protobuf/descriptor.proto", "libprotobuf-dev")?;
        let mut command = Command::new("cargo");
        command.args(["build", "--release", "--locked", "--manifest-path"]);
        command.arg(self.sources("rust").join("Cargo.toml"));
        command.arg("--target-dir").arg(self.folder.join("rust"));
        run(command)
    }

    fn make_python(&self) -> Installed {
        let is_there =
            Command::new(self.python()).args(["-c", "import redis, kazoo"]).stderr(Stdio::null()).status();
        if is_there.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        let make = || {
            let mut command = Command::new("python3");
            command.args(["-m", "venv", "--clear"]).arg(self.folder.join("venv"));
            run(command)
        };
        make().or_else(|_| apt("/usr/share/doc/python3-venv", "python3-venv").and_then(|()| make()))?;
        let mut command = Command::new(self.python());
        command.args(["-m", "pip", "install", "--quiet", "redis", "kazoo"]);
        run(command)
    }

    fn make_node(&self) -> Installed {
        if self.node_modules().join("redlock").exists() && self.node_modules().join("ioredis").exists() {
            return Ok(());
        }
        apt("node", "nodejs")?;
        apt("npm", "npm")?;
        let mut command = Command::new("npm");
        command
            .args(["install", "--silent", "--no-fund", "--no-audit", "--prefix"])
            .arg(self.folder.join("node"));
        command.args(["redlock", "ioredis"]);
        run(command)
    }

    /// The version of the package that a peer is, where it is one.
    pub(super) fn version(&self, peer: &Peer) -> Option<String> {
        let python = |package: &str| {
            let code = format!("import importlib.metadata as m; print(m.version('{package}'))");
            said(Command::new(self.python()).args(["-c", &code]))
        };
        let node = |package: &str| {
            let text =
                std::fs::read_to_string(self.node_modules().join(package).join("package.json")).ok()?;
            let value: serde_json::Value = serde_json::from_str(&text).ok()?;
            value["version"].as_str().map(str::to_owned)
        };
        let rust = |package: &str| {
            let lock = std::fs::read_to_string(self.sources("rust").join("Cargo.lock")).ok()?;
            let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
            rest.split('"').next().map(str::to_owned)
        };
        match peer.id {
            "rslock" => Some(format!("rslock {}", rust("rslock")?)),
            "etcd-client" => Some(format!("etcd-client {}", rust("etcd-client")?)),
            "redis-py" => Some(format!("redis-py {}", python("redis")?)),
            "kazoo" => Some(format!("kazoo {}", python("kazoo")?)),
            "redlock" => Some(format!("redlock {} with ioredis {}", node("redlock")?, node("ioredis")?)),
            _ => None,
        }
    }
}

fn said(command: &mut Command) -> Option<String> {
    let said = command.output().ok().filter(|said| said.status.success())?;
    Some(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

/// Installs a package of the system, unless a program or file of it is there.
fn apt(of_it: &str, package: &str) -> Installed {
    let mut look = Command::new("sh");
    look.args(["-c", "command -v \"$0\" || test -e \"$0\"", of_it]).stdout(Stdio::null());
    if look.status()?.success() {
        return Ok(());
    }
    // What the machine knows of packages may be old.
    apt_get(&["install", "-y", "-qq", "--no-install-recommends", package]).or_else(|_| {
        apt_get(&["update", "-qq"])?;
        apt_get(&["install", "-y", "-qq", "--no-install-recommends", package])
    })
}

fn apt_get(words: &[&str]) -> Installed {
    let mut command = match rustix::process::geteuid().is_root() {
        true => Command::new("apt-get"),
        false => {
            let mut command = Command::new("sudo");
            command.args(["--non-interactive", "apt-get"]);
            command
        }
    };
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    run(command)
}

/// Runs it to its end. What it says last is the reason when it fails.
fn run(mut command: Command) -> Installed {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|error| format!("`{program}`: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&done.stderr);
    let last = told.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
    Err(format!("`{program}` failed: {}", last.trim()).into())
}
