//! Another process that a test starts, often its own program again with a role to play, and what it says.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{Process, stop_between_writes};

/// How long it may take to say something, or to end. Nothing should ever come near it.
const LIMIT: Duration = Duration::from_secs(30);
/// What it has to say begins with this; the rest of its output is the test harness's.
const SAYS: &str = "says: ";
/// The test that plays the role, in each module that starts its program again.
const PLAYS: &str = "a_child_plays_its_role";
/// Set in a process that runs one test only.
const ALONE: &str = "TENURE_TEST_ALONE";

/// A process. It is killed with `kill -9` when dropped, and dies with the test.
#[derive(Debug)]
pub struct Child {
    process: Process,
    lines: mpsc::Receiver<String>,
}

impl Child {
    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped());
        let mut process = Process::start(command, "what it belongs to");
        let output = BufReader::new(process.take_output().expect("piped"));
        let (to, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // What nobody wants to hear is read all the same: else it would wait for that.
            output.lines().map_while(Result::ok).for_each(|line| drop(to.send(line)));
        });
        Self { process, lines }
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// SIGSTOP, but not in the middle of a write to a SQLite file.
    ///
    /// # Panics
    /// When it is gone, or is never seen between two writes.
    pub fn stop(&self) {
        stop_between_writes(self.pid());
    }

    /// `kill -9`. Comes back when it is gone.
    ///
    /// # Panics
    /// When it was gone already.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.ends();
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_alive(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not come.
    pub fn ends(&mut self) -> ExitStatus {
        let mut status = None;
        crate::eventually(LIMIT, "the process ends", || {
            status = self.process.ended();
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// The next line of its output, if one comes within the limit.
    #[must_use]
    pub fn line(&self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// The next that it has to [`say`].
    ///
    /// # Panics
    /// When it says nothing.
    #[must_use]
    pub fn hears(&self) -> String {
        loop {
            let line = self.line(LIMIT).expect("it has something to say");
            // libtest writes the name of the test before what it prints.
            if let Some((_, said)) = line.split_once(SAYS) {
                return said.to_owned();
            }
        }
    }
}

/// Says something to the test that started this process.
pub fn say(words: &str) {
    println!("{SAYS}{words}");
}

/// This program, to be started again as the other process: with `wrapper` before it, if there is one. What it does there is
/// the test `a_child_plays_its_role` in `module`, a `module_path!()`.
///
/// # Panics
/// When the program cannot be found.
#[must_use]
pub fn again(module: &str, wrapper: &[&str]) -> Command {
    one_test(module, PLAYS, wrapper)
}

/// Whether this process runs nothing but this test. If it does not, the test is run in a process of its own, and the caller
/// has nothing left to do. For tests that look at what belongs to a whole process: its logger, its metrics, its memory.
///
/// # Panics
/// When the test fails in the other process.
#[must_use]
pub fn is_alone(module: &str, test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let status = one_test(module, test, &[]).env(ALONE, "yes").status().expect("this program starts");
    assert!(status.success(), "{test} failed in a process of its own: {status}");
    false
}

fn one_test(module: &str, test: &str, wrapper: &[&str]) -> Command {
    let program = std::env::current_exe().expect("this program");
    let mut command = match wrapper.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    };
    // libtest names tests by their path within the crate.
    let (_, module) = module.split_once("::").unwrap_or_default();
    let test = [module, test].join(if module.is_empty() { "" } else { "::" });
    command.args(["--exact", &test, "--nocapture", "--test-threads=1"]);
    command
}

/// Not a test but the other process; without a role it is over at once.
#[test]
fn a_child_plays_its_role() {
    match std::env::var("TENURE_TEST_ROLE").as_deref() {
        Ok("speaks") => {
            say("one");
            println!("something else");
            say("two");
        }
        Ok("stays") => {
            say("here");
            std::thread::sleep(LIMIT);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(wrapper: &[&str], role: &str) -> Child {
        let mut command = again(module_path!().trim_end_matches("::tests"), wrapper);
        command.env("TENURE_TEST_ROLE", role);
        Child::start(command)
    }

    #[test]
    fn what_it_says_is_heard_and_its_end_is_seen() {
        let mut child = child(&["env", "--"], "speaks");

        assert_eq!((child.hears(), child.hears()), ("one".to_owned(), "two".to_owned()));
        assert!(child.ends().success() && !child.is_alive());
    }

    #[test]
    fn a_killed_one_is_gone() {
        let mut child = child(&[], "stays");
        assert_eq!(child.hears(), "here");
        assert!(child.is_alive());
        let pid = child.pid();

        child.kill();

        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
