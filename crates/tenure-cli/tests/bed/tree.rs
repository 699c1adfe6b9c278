//! A command with a family: a shell with a child, and a daemon (two forks and a session of its own). All of them write down
//! every 20 ms that they live, and hold one lock together, which the next command has to win.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::time::{ClockId, clock_gettime};

/// The folder in which a tree plays; without it this is not a command but a test, and over at once.
pub(crate) const FOLDER: &str = "BED_FOLDER";
/// Which part of it a process plays.
const PART: &str = "BED_PART";
/// Whether SIGTERM means nothing to the daemon.
pub(crate) const DEAF: &str = "BED_DEAF";

/// The arguments that make this very program a part.
pub(crate) const ROLE: [&str; 3] = ["tree::lives", "--exact", "--nocapture"];

const EVERY: Duration = Duration::from_millis(20);

#[test]
fn lives() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let part = std::env::var(PART).unwrap_or_else(|_| "root".to_owned());
    // The first thing of all: from here on it counts as alive.
    let began_us = now_us();
    if part == "root" {
        let lock = File::create(folder.join("alive")).expect("a file");
        let is_alone = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        record(folder, &part, began_us, if is_alone { "starts" } else { "overlaps" });
        // Inherited by everybody below, and never let go.
        fcntl_setfd(&lock, FdFlags::empty()).expect("a flag");
        std::mem::forget(lock);
        start_family();
    } else {
        record(folder, &part, began_us, "starts");
    }
    loop {
        std::thread::sleep(EVERY);
        record(folder, &part, now_us(), "lives");
    }
}

fn start_family() {
    let us = std::env::current_exe().expect("a path");
    let deaf = if std::env::var_os(DEAF).is_some() { "trap '' TERM; " } else { "" };
    let child = "\"$0\" \"$@\" & wait".to_owned();
    let daemon = format!("{deaf}(setsid \"$0\" \"$@\" &)");
    for (part, script) in [("grandchild", child), ("daemon", daemon)] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).arg(&us).args(ROLE).env(PART, part);
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = shell.spawn().expect("a shell");
        // The one of the daemon leaves its child alone at once.
        std::thread::spawn(move || shell.wait());
    }
}

/// The boot clock.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000
}

/// One write each: lines of several processes do not mix.
fn record(folder: &Path, part: &str, at_us: u64, what: &str) {
    let told = |name: &str| std::env::var(name).unwrap_or_default();
    let (pid, term, worker) = (std::process::id(), told("TENURE_TERM"), told("TENURE_WORKER"));
    let line = format!("{at_us} {what} {part} {pid} {term} {worker}\n");
    let file = OpenOptions::new().append(true).create(true).open(folder.join("lives"));
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("it can be written");
}

/// One process of a command.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) part: String,
    pub(crate) pid: i32,
    pub(crate) term: u64,
    pub(crate) worker: String,
    pub(crate) first_us: u64,
    pub(crate) last_us: u64,
    /// Whether another command was alive when it started.
    pub(crate) overlaps: bool,
}

/// All lives that were written down so far, in the order of their beginning.
pub(crate) fn read(folder: &Path) -> Vec<Life> {
    let text = std::fs::read_to_string(folder.join("lives")).unwrap_or_default();
    let mut lives: Vec<Life> = Vec::new();
    // The last line may be half written.
    for line in text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [at, what, part, pid, term, worker] = words[..] else { panic!("no record: {line}") };
        let (at, pid, term) =
            (at.parse().expect("a time"), pid.parse().expect("a pid"), term.parse().expect("a term"));
        match lives.iter_mut().find(|life| (life.pid, life.term) == (pid, term)) {
            Some(life) => life.last_us = at,
            None => lives.push(Life {
                part: part.to_owned(),
                pid,
                term,
                worker: worker.to_owned(),
                first_us: at,
                last_us: at,
                overlaps: what == "overlaps",
            }),
        }
    }
    lives
}
