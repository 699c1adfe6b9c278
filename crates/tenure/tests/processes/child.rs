//! Other processes: this program, started again with a role to play, or an example.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{LIMIT, await_some};

const ROLE: &str = "TENURE_TEST_ROLE";
const FOLDER: &str = "TENURE_TEST_FOLDER";
const NAME: &str = "TENURE_TEST_NAME";
const TICKETS: &str = "TENURE_TEST_TICKETS";
const TTL: &str = "TENURE_TEST_TTL_MS";
/// What a process has to say begins with this; the rest of its output is the test harness's.
const SAYS: &str = "says: ";

/// What another process is to do.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) role: String,
    /// Where the database is, and the books.
    pub(crate) folder: PathBuf,
    /// The label of its worker, and the name of its book.
    pub(crate) name: String,
    pub(crate) tickets: u32,
    pub(crate) ttl: Duration,
}

impl Part {
    pub(crate) fn new(role: &str, folder: &Path, name: &str, ttl: Duration) -> Self {
        Self { role: role.to_owned(), folder: folder.to_owned(), name: name.to_owned(), tickets: 1, ttl }
    }

    /// This program, to be started with the part.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "child::a_child_plays_its_role", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, &self.role).env(FOLDER, &self.folder).env(NAME, &self.name);
        command.env(TICKETS, self.tickets.to_string()).env(TTL, self.ttl.as_millis().to_string());
        command
    }

    pub(crate) fn start(&self) -> Process {
        Process::start(self.command())
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.folder.join("tenure.db").display())
    }

    fn from_environment() -> Option<Self> {
        let text = |name| std::env::var(name).expect(name);
        let number = |name| text(name).parse::<u32>().expect(name);
        Some(Self {
            role: std::env::var(ROLE).ok()?,
            folder: PathBuf::from(text(FOLDER)),
            name: text(NAME),
            tickets: number(TICKETS),
            ttl: Duration::from_millis(number(TTL).into()),
        })
    }
}

/// Another process. It is killed with `kill -9` when dropped.
pub(crate) struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (to, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("it has not been waited for");
    }

    /// SIGSTOP, but not in the middle of a write.
    pub(crate) fn stop(&self) {
        testkit::process::stop_between_writes(self.pid());
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it has not been waited for");
        self.child.wait().expect("it ends");
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("an answer").is_none()
    }

    /// Waits for its end.
    pub(crate) fn ends(&mut self) -> ExitStatus {
        await_some("the end of the process", || self.child.try_wait().expect("an answer"))
    }

    /// The next line of its output, if one comes within the limit.
    pub(crate) fn line(&self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// The next that it has to say.
    pub(crate) fn hears(&self) -> String {
        loop {
            let line = self.line(LIMIT).expect("it has something to say");
            // libtest writes the name of the test before what it prints.
            if let Some((_, said)) = line.split_once(SAYS) {
                return said.to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Says something to the process that started this one.
pub(crate) fn say(words: &str) {
    println!("{SAYS}{words}");
}

/// Not a test but the other process; without a role it is over at once.
#[test]
fn a_child_plays_its_role() {
    let Some(part) = Part::from_environment() else { return };
    // Whatever becomes of the test, nothing of it stays behind.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("the kernel agrees");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match part.role.as_str() {
            "worker" => super::worker::works(&part).await,
            "application" => super::signals::applies(&part).await,
            "broken worker" => super::worker::works_for_ever(&part).await,
            "waits" => super::pauses::waits(&part).await,
            "blocked" => super::pauses::blocked(&part).await,
            "blocked with a beacon" => super::pauses::blocked_with_a_beacon(&part).await,
            "watches the clock" => super::pauses::watches_the_clock(&part).await,
            "jumps" => super::pauses::jumps(&part).await,
            other => panic!("there is no role {other:?}"),
        }
    });
}
