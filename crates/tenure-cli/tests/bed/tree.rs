//! A command with a family: a shell with a child, and a daemon (two forks and a session of its own). All of them write down
//! every 20 ms that they live, and hold one lock together, which the next command has to win.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use testkit::boottime;

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
    let first_us = boottime();
    let lock = (part == "root").then(|| File::create(folder.join("alive")).expect("a file"));
    let is_alone = |lock: &File| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    let overlaps = !lock.as_ref().is_none_or(is_alone);
    let book = Book::new(folder, &part, first_us, overlaps);
    if let Some(lock) = lock {
        // Inherited by everybody below, and never let go.
        fcntl_setfd(&lock, FdFlags::empty()).expect("a flag");
        std::mem::forget(lock);
        start_family();
    }
    loop {
        std::thread::sleep(EVERY);
        book.note(boottime());
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

/// What one process writes down, in a file of its own whose name says who it is.
struct Book {
    file: File,
    first_us: u64,
    rest: String,
}

impl Book {
    fn new(folder: &Path, part: &str, first_us: u64, overlaps: bool) -> Self {
        let told = |name: &str| std::env::var(name).unwrap_or_default();
        let name = format!("{} {part} {}", told("TENURE_TERM"), std::process::id());
        let (unfinished, path) = (folder.join(format!("{name}.new")), folder.join("lives").join(name));
        let file = File::create(&unfinished).expect("a file");
        let book = Self { file, first_us, rest: format!("{} {overlaps}", told("TENURE_WORKER")) };
        book.note(first_us);
        // Whoever sees it sees all of it.
        std::fs::rename(unfinished, path).expect("it is there");
        book
    }

    /// Always as long as before: one write, seen whole or not at all.
    fn note(&self, last_us: u64) {
        let line = format!("{:020} {last_us:020} {}", self.first_us, self.rest);
        self.file.write_all_at(line.as_bytes(), 0).expect("it can be written");
    }
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

/// The lives of commands with later terms that were written down so far.
pub(crate) fn read(folder: &Path, after: u64) -> Vec<Life> {
    let mut lives = Vec::new();
    for entry in std::fs::read_dir(folder.join("lives")).expect("a folder").flatten() {
        let name = entry.file_name().into_string().expect("UTF-8");
        let [term, part, pid] = name.split(' ').collect::<Vec<_>>()[..] else { panic!("no name: {name}") };
        let term: u64 = term.parse().expect("a term");
        if term > after {
            let text = std::fs::read_to_string(entry.path()).expect("it is there");
            let [first, last, worker, overlaps] = text.split(' ').collect::<Vec<_>>()[..] else {
                panic!("no record: {text}")
            };
            lives.push(Life {
                part: part.to_owned(),
                pid: pid.parse().expect("a pid"),
                term,
                worker: worker.to_owned(),
                first_us: first.parse().expect("a time"),
                last_us: last.parse().expect("a time"),
                overlaps: overlaps == "true",
            });
        }
    }
    lives
}
