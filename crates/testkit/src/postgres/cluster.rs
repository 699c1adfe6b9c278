//! Clusters as files: where the programs are, as whom they run, and how a new cluster comes about quickly.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::PACKAGE;

/// Where Debian keeps the versions of PostgreSQL.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The path of a program of the newest PostgreSQL that is installed; else its name, for the system to find.
pub(super) fn program(name: &str) -> PathBuf {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            let path = entry.path().join("bin").join(name);
            path.exists().then_some((version, path))
        })
        .collect();
    found.sort();
    found.pop().map_or_else(|| PathBuf::from(name), |(_, path)| path)
}

pub(super) fn missing(program: &str, error: &io::Error) -> ! {
    panic!("`{program}` cannot be started ({error}); on Debian: apt-get install {PACKAGE}")
}

/// As whom the servers run: as ourselves, unless that is root.
fn identity() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    Some(named("postgres").or_else(|| named("nobody")).expect("a user other than root"))
}

/// A command that runs as the servers do.
pub(super) fn as_server(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = identity() {
        command.uid(user).gid(group);
    }
    // Where it cannot read the folder of the test it would complain.
    command.current_dir("/").env("LC_ALL", "C");
    command
}

/// Runs it to its end.
pub(super) fn run(mut command: Command) {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().unwrap_or_else(|error| missing(&program, &error));
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A folder that the servers may write to.
pub(super) fn folder() -> TempDir {
    let folder = tempfile::Builder::new().prefix("tenure-postgres-").tempdir().expect("a folder");
    own(folder.path());
    folder
}

fn own(path: &Path) {
    if let Some((user, group)) = identity() {
        chown(path, Some(user), Some(group)).expect("root gives files away");
    }
}

/// Copies a file, for the eyes of the server only.
pub(super) fn give(from: &Path, to: &Path) {
    fs::copy(from, to).expect("a copy");
    fs::set_permissions(to, fs::Permissions::from_mode(0o600)).expect("rights");
    own(to);
}

/// Copies a cluster, with its owner and rights.
pub(super) fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    // Into a folder that may be there already, because a disk is mounted on it.
    command.arg("-a").arg("-T").arg(from).arg(to);
    run(command);
}

/// A cluster that nobody has used, made once per machine and kept: making one takes seconds, copying it does not.
pub(super) fn template() -> PathBuf {
    let initdb = program("initdb");
    let version = initdb.parent().and_then(Path::parent).and_then(Path::file_name);
    let version = version.map_or_else(|| "any".into(), |name| name.to_string_lossy().into_owned());
    let user = identity().map_or_else(|| rustix::process::geteuid().as_raw(), |(user, _)| user);
    let home = std::env::temp_dir().join(format!("tenure-testkit-postgres-{version}-{user}"));
    fs::create_dir_all(&home).expect("a folder");
    own(&home);
    let lock = File::create(home.join("lock")).expect("a file");
    lock.lock().expect("a lock");
    let (made, cluster) = (home.join("made"), home.join("cluster"));
    if !cluster.exists() {
        let _half = fs::remove_dir_all(&made);
        let mut command = as_server(initdb);
        command.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
        command.args(["--wal-segsize=1", "-D"]).arg(&made);
        run(command);
        fs::rename(&made, &cluster).expect("a cluster in its place");
    }
    cluster
}
