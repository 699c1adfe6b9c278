//! A candidate as the runner sees it: a process that is told words and says words, and that things happen to.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;

/// Longer than anything takes that does not wait for a lease.
pub(super) const SOON: Duration = Duration::from_secs(30);

/// Dropping it kills it.
#[derive(Debug)]
pub(super) struct Candidate {
    child: Child,
    ear: ChildStdin,
    said: Receiver<(String, Vec<u64>)>,
}

impl Candidate {
    /// Starts it; what it complains about goes to the end of a file.
    pub(super) fn start(mut command: Command, complaints: File) -> Result<Self, Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints);
        let mut child = command.spawn()?;
        let (ear, mouth) = (child.stdin.take(), child.stdout.take());
        let (Some(ear), Some(mouth)) = (ear, mouth) else { return Err("a process without pipes".into()) };
        let (saying, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(mouth).lines().map_while(Result::ok) {
                let mut words = line.split(' ').map(str::to_owned);
                let word = words.next().unwrap_or_default();
                if saying.send((word, words.filter_map(|word| word.parse().ok()).collect())).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, ear, said })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn tell(&mut self, line: &str) -> Result<(), Failure> {
        Ok(writeln!(self.ear, "{line}")?)
    }

    /// The numbers of the next line with this word, if it says one within `limit`; other lines are passed over.
    pub(super) fn hear_within(&self, word: &str, limit: Duration) -> Result<Option<Vec<u64>>, Failure> {
        let until = Instant::now() + limit;
        loop {
            use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
            match self.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((said, numbers)) if said == word => return Ok(Some(numbers)),
                Ok(_) => {}
                Err(Timeout) => return Ok(None),
                Err(Disconnected) => {
                    return Err(format!("a candidate ended instead of saying {word:?}").into());
                }
            }
        }
    }

    /// The first number of it.
    pub(super) fn hear(&self, word: &str) -> Result<u64, Failure> {
        let numbers = self.hear_within(word, SOON)?;
        let numbers = numbers.ok_or_else(|| format!("a candidate did not say {word:?} for {SOON:?}"))?;
        Ok(numbers.first().copied().unwrap_or(0))
    }

    /// Tells it something, and hears what it says to that.
    pub(super) fn ask(&mut self, line: &str, word: &str) -> Result<u64, Failure> {
        self.tell(line)?;
        self.hear(word)
    }

    /// `kill -9`, and returns when the kernel says that it is gone.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGSTOP.
    pub(super) fn pause(&self) -> Result<(), Failure> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub(super) fn resume(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).ok_or("no pid")?;
        Ok(kill_process(pid, signal)?)
    }

    /// How much of its memory is in RAM.
    pub(super) fn resident_bytes(&self) -> Result<usize, Failure> {
        crate::usage::resident_bytes_of(&self.pid().to_string())
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, and that is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
