//! Commands that elect: `etcdctl elect`, and `tenure run`. Each campaign is a process of its own; it owns from when it, or
//! the work that it starts, says so, and gives up on SIGINT. There is nothing that could be asked whether it owns.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use crate::peers::protocol::{Peer, Trouble, now, say};

/// The hidden subcommand that is the work of `tenure run`: says when it began, and goes on until it is ended.
pub(crate) const WORK: &str = "work";

pub(crate) fn work() -> ! {
    say("began", &[now()]);
    loop {
        std::thread::park();
    }
}

#[derive(Clone)]
pub(super) struct Candidate {
    /// The name of the resource stands where this has `NAME`.
    words: Arc<[String]>,
}

/// Ends with the candidate.
pub(super) struct Elected(Child);

impl Candidate {
    pub(super) fn etcdctl(url: &str) -> Self {
        Self {
            words: ["etcdctl", "--endpoints", url, "elect", "NAME", "candidate"].map(str::to_owned).into(),
        }
    }

    pub(super) fn tenure_run(url: &str, ttl: Duration, space: &str) -> Result<Self, Trouble> {
        let bench = std::env::current_exe()?;
        let tenure: PathBuf = bench.with_file_name("tenure");
        let ttl = format!("{}ms", ttl.as_millis());
        let (tenure, bench) = (tenure.display().to_string(), bench.display().to_string());
        let words =
            [&tenure, "run", "NAME", "--store", url, "--namespace", space, "--ttl", &ttl, "--", &bench, WORK];
        Ok(Self { words: words.map(str::to_owned).into() })
    }
}

impl Peer for Candidate {
    type Own = Elected;

    async fn win(&self, name: String) -> Result<Elected, Trouble> {
        // The command dies with this process, also when that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        command.args(self.words.iter().map(|word| if word == "NAME" { &name } else { word }));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mouth = BufReader::new(child.stdout.take().ok_or("a process without a pipe")?);
        let (heard, first) = oneshot::channel();
        std::thread::spawn(move || {
            let mut lines = mouth.lines().map_while(Result::ok);
            // Who waits for it is gone only when the process ends; the rest is read so that nothing blocks.
            let _gone = lines.next().map(|line| heard.send(line));
            lines.for_each(drop);
        });
        first.await.map_err(|_| "the command ended before it was elected")?;
        Ok(Elected(child))
    }

    async fn release(&self, mut elected: Elected) {
        let pid = i32::try_from(elected.0.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // One that has ended already has released.
            let _gone = kill_process(pid, Signal::INT);
        }
        // To the end, so that none is left behind.
        let _ended = elected.0.wait();
    }

    fn holds(&self, _: &Elected) -> bool {
        false
    }

    fn lease_until(&self, _: &Elected) -> u64 {
        0
    }

    async fn another(&self) -> Result<Self, Trouble> {
        Ok(self.clone())
    }
}
