//! One resource on a store, two `tenure` processes that compete for it, and what can be seen of them.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::LIMIT;
use super::fault::{Fault, Victim};
use super::tree::{self, DEAF, FOLDER, Life, ROLE};

pub(crate) const TTL: Duration = Duration::from_secs(2);
/// What a command has when it is stopped gently.
pub(crate) const GRACE: Duration = Duration::from_millis(300);

pub(crate) struct Arena {
    pub(crate) victim: Victim,
    pub(crate) fault: Fault,
    folder: TempDir,
    url: String,
    resource: String,
    planted: Option<&'static str>,
    ttl: &'static str,
    fleet: Vec<Tenure>,
    runtime: tokio::runtime::Runtime,
    store: tenure::admin::Admin,
}

struct Tenure {
    label: String,
    child: Child,
}

impl Arena {
    pub(crate) fn new(url: &str, victim: Victim, fault: Fault) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store = runtime.block_on(tenure::admin::Admin::open(url)).expect("a store");
        // In memory, if there is such a place: a process that waits for a busy disk does not die of SIGKILL in time.
        let shared = Some(Path::new("/dev/shm")).filter(|folder| folder.is_dir());
        let folder = shared.map_or_else(tempfile::tempdir, tempfile::tempdir_in).expect("a folder");
        std::fs::create_dir(folder.path().join("lives")).expect("a folder");
        Self {
            victim,
            fault,
            folder,
            url: url.to_owned(),
            resource: format!("{victim}-{fault}").replace(' ', ""),
            planted: None,
            ttl: "2s",
            fleet: Vec::new(),
            runtime,
            store,
        }
    }

    pub(crate) fn with_planted(mut self, bug: &'static str) -> Self {
        self.planted = Some(bug);
        self
    }

    pub(crate) fn with_ttl(mut self, ttl: &'static str) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sees to it that two compete: one owns, with all its family, the other waits. Says who the owner is.
    pub(crate) fn set_up(&mut self, after: u64) -> Result<Owner, String> {
        let began = Instant::now();
        let family = loop {
            // One of before may just be about to end.
            self.fleet.retain_mut(|tenure| tenure.child.try_wait().expect("an answer").is_none());
            while self.fleet.len() < 2 {
                let tenure = self.start();
                self.fleet.push(tenure);
            }
            match self.family(after).filter(|_| self.view().is_some_and(|view| view.waiters.len() == 1)) {
                Some(family) => break family,
                None if began.elapsed() > LIMIT => {
                    return Err(format!(
                        "waited in vain for an owner and a waiter; they said:\n{}",
                        self.said()
                    ));
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let main = self.main(&family[0].worker).ok_or("the owner is none of ours")?;
        let guard = children(main).into_iter().next().ok_or("there is no guard")?;
        let root = family.iter().find(|life| life.part == "root").ok_or("there is no root")?;
        let command = Pid::from_raw(root.pid).ok_or("no pid")?;
        Ok(Owner { main, guard, command, term: root.term, family })
    }

    /// The three processes of the latest command, if it is a later one than that.
    fn family(&self, after: u64) -> Option<Vec<Life>> {
        let lives = self.lives(after);
        let term = lives.iter().map(|life| life.term).max()?;
        let family: Vec<Life> = lives.into_iter().filter(|life| life.term == term).collect();
        (family.len() == 3).then_some(family)
    }

    fn start(&self) -> Tenure {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let label = format!("w{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let us = std::env::current_exe().expect("a path");
        let said = std::fs::File::create(self.folder.path().join(format!("{label}.stderr"))).expect("a file");
        // A crash leaves no core behind.
        let mut tenure = Command::new("sh");
        let is_deaf = self.victim == Victim::Command && self.fault == Fault::Hang;
        let deaf = if is_deaf { "trap '' TERM; exec \"$0\" \"$@\"" } else { "exec \"$0\" \"$@\"" };
        tenure.args(["-c", "ulimit -c 0; exec \"$0\" \"$@\"", "env", "--default-signal=INT,HUP,QUIT,TERM"]);
        tenure.arg(env!("CARGO_BIN_EXE_tenure")).args([
            "run",
            &self.resource,
            "--label",
            &label,
            "--store",
            &self.url,
        ]);
        tenure.args(["--ttl", self.ttl, "--grace", "300ms", "--", "sh", "-c", deaf]).arg(us).args(ROLE);
        tenure.env(FOLDER, self.folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        if self.victim != Victim::Command {
            tenure.env(DEAF, "1");
        }
        if let Some(bug) = self.planted {
            tenure.env("TENURE_PLANTED", bug);
        }
        Tenure { label, child: tenure.spawn().expect("it runs") }
    }

    fn main(&self, label: &str) -> Option<Pid> {
        self.fleet.iter().find(|tenure| tenure.label == label).map(|tenure| Pid::from_child(&tenure.child))
    }

    /// The lives of commands with later terms.
    pub(crate) fn lives(&self, after: u64) -> Vec<Life> {
        tree::read(self.folder.path(), after)
    }

    fn view(&self) -> Option<tenure::admin::ResourceView> {
        self.runtime.block_on(self.store.read(&self.resource)).expect("an answer")
    }

    /// What is left of the owner's lease.
    pub(crate) fn lease_left(&self) -> Duration {
        self.view().and_then(|view| view.owners.first().map(|owner| owner.left)).unwrap_or_default()
    }

    pub(crate) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if began.elapsed() > LIMIT {
                return Err(format!("waited in vain for {what}; they said:\n{}", self.said()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Everything that runs here: it knows its folder.
    fn processes(&self) -> Vec<Pid> {
        let folder = self.folder.path().as_os_str().as_encoded_bytes();
        let pids = std::fs::read_dir("/proc").expect("it is mounted").flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_here = |pid: &i32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(folder.len()).any(|part| part == folder) && is_alive(*pid)
        };
        pids.filter(is_here).filter_map(Pid::from_raw).collect()
    }

    /// What all of them told people.
    pub(crate) fn said(&self) -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "stderr") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                text += &format!("{name}: {}\n", std::fs::read_to_string(&path).unwrap_or_default());
            }
        }
        text
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for tenure in &mut self.fleet {
            let _gone = kill_process(Pid::from_child(&tenure.child), Signal::KILL);
            let _gone = tenure.child.wait();
        }
        // Their guards end what is left; what a planted bug left behind is ours, also what was just about to start.
        let began = Instant::now();
        let mut left = self.processes();
        while !left.is_empty() && began.elapsed() < Duration::from_secs(5) {
            if self.planted.is_some() {
                for pid in left {
                    let _gone = kill_process(pid, Signal::KILL);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
            left = self.processes();
        }
    }
}

/// Who owns, in processes.
pub(crate) struct Owner {
    pub(crate) main: Pid,
    pub(crate) guard: Pid,
    pub(crate) command: Pid,
    pub(crate) term: u64,
    pub(crate) family: Vec<Life>,
}

impl Owner {
    pub(crate) fn pid(&self, victim: Victim) -> Pid {
        match victim {
            Victim::Main => self.main,
            Victim::Guard => self.guard,
            Victim::Command => self.command,
        }
    }
}

fn children(of: Pid) -> Vec<Pid> {
    let pid = of.as_raw_nonzero();
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Whether a process that is not ours to reap still runs.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    // The name before it, in brackets, may hold anything.
    stat.unwrap_or_default().rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}
