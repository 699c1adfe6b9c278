//! A child server: it starts, can be paused and killed by its pid, and dies with the test.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// How long a process may take to do what a signal told it.
const OBEYS_WITHIN: Duration = Duration::from_secs(10);

/// A running child. Dropping it kills it; so does the end of the test's process, however it comes.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `command`. `package` is what to install where its program is missing.
    ///
    /// # Panics
    /// When the program is missing, or cannot be started.
    #[must_use]
    pub fn start(mut command: Command, package: &str) -> Self {
        command.stdin(Stdio::null());
        let program = command.get_program().to_string_lossy().into_owned();
        match spawn(command) {
            Ok(child) => Self { child },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                panic!("`{program}` is not installed; on Debian: apt-get install {package}")
            }
            Err(error) => panic!("cannot start `{program}`: {error}"),
        }
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output, where that is piped, once.
    pub(crate) fn take_output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// How it ended, if it has.
    ///
    /// # Panics
    /// When the kernel does not know the child.
    #[must_use]
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Stops it with SIGSTOP, and comes back when every thread of it has stopped.
    ///
    /// # Panics
    /// When it is gone, or does not stop.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let state = || self.state();
        crate::eventually(OBEYS_WITHIN, "a process stops on SIGSTOP", || state() == Some('T'));
    }

    /// Lets a stopped one go on.
    ///
    /// # Panics
    /// When it is gone.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end with `signal`, and waits until it has.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn stop(mut self, signal: Signal) {
        self.signal(signal);
        crate::eventually(OBEYS_WITHIN, "a process ends on a signal", || self.ended().is_some());
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub fn kill(self) {
        drop(self);
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("a child takes signals");
    }

    /// As in the third field of /proc/PID/stat.
    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already; and SIGKILL ends a stopped one, too.
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Stops a process with SIGSTOP, but not in the middle of a write: the lock of SQLite would be stopped with it, and nobody
/// could write until it is continued or killed. Comes back when every thread of it has stopped.
///
/// # Panics
/// When it is gone, or is never seen between two writes.
pub fn stop_between_writes(pid: u32) {
    let send = |signal| {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("a process that lives");
    };
    crate::eventually(OBEYS_WITHIN, "a pause between two writes", || {
        send(Signal::STOP);
        crate::eventually(OBEYS_WITHIN, "all threads stop on SIGSTOP", || is_stopped(pid));
        let writes = is_writing(pid);
        if writes {
            send(Signal::CONT);
        }
        !writes
    });
}

fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process that lives");
    let mut states =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    // The state stands behind the name, which is in brackets.
    states.all(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
}

/// Whether it has a lock for itself alone, as the kernel tells.
fn is_writing(pid: u32) -> bool {
    let (locks, pid) = (std::fs::read_to_string("/proc/locks").expect("a list"), pid.to_string());
    locks.lines().any(|lock| {
        let words: Vec<&str> = lock.split_whitespace().collect();
        matches!(words[..], [_, "POSIX", _, "WRITE", by, ..] if by == pid)
    })
}

type Spawned = (Command, mpsc::Sender<io::Result<Child>>);

/// Spawns on one thread that lives as long as this process: the kernel sends the parent-death signal when the
/// *thread* that forked ends, and the threads of tests end before those who share a server do.
fn spawn(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<Spawned>>> = OnceLock::new();
    let parent = rustix::process::getpid();
    let die_with_us = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before this was set.
        match rustix::process::getppid() == Some(parent) {
            true => Ok(()),
            false => Err(io::Error::other("the test has ended")),
        }
    };
    #[allow(unsafe_code)] // A child that outlives a killed test would hold its port for ever.
    // SAFETY: between fork and exec this calls prctl and getppid only, and allocates nothing unless it fails.
    unsafe {
        command.pre_exec(die_with_us);
    }
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, arriving) = mpsc::channel::<Spawned>();
        let serve = move || {
            for (mut command, answer) in arriving {
                // Who ordered it waits for it.
                let _gone = answer.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("testkit-spawner".into()).spawn(serve).expect("a thread");
        Mutex::new(orders)
    });
    let (answer, answered) = mpsc::channel();
    let order = spawner.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer));
    order.expect("the spawner lives as long as the process");
    answered.recv().expect("the spawner answers")
}

/// A TCP port of 127.0.0.1 that no other test takes while this lives.
///
/// It lies below the range from which the kernel gives ports to clients, so that a server that is down for a
/// moment finds its port again.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// A port on which nobody listens now.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn free() -> Self {
        let folder = std::env::temp_dir().join("tenure-testkit-ports");
        std::fs::create_dir_all(&folder).expect("a folder for the locks of ports");
        for _ in 0..1_000 {
            let number = 12_000 + random_u16() % 20_000;
            let path = folder.join(number.to_string());
            let open = OpenOptions::new().create(true).truncate(false).write(true).open(path);
            let Ok(lock) = open else { continue };
            if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Self { number, _lock: lock };
            }
        }
        panic!("no port between 12000 and 32000 is free");
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}

fn random_u16() -> u16 {
    let mut bytes = [0; 2];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).expect("random bytes");
    u16::from_le_bytes(bytes)
}

/// Starts a server on a free port, again on another one if something else took that meanwhile. `start` gives back
/// nothing where its server ended at once because the port is taken.
///
/// # Panics
/// When it never starts.
pub fn on_a_free_port<T>(mut start: impl FnMut(Port) -> Option<T>) -> T {
    (0..10).find_map(|_| start(Port::free())).expect("a server starts on one of ten free ports")
}

/// The end of a log file, for messages about a server that does not do what it should.
#[must_use]
pub fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Process {
        let mut command = Command::new("sleep");
        command.arg("600");
        Process::start(command, "coreutils")
    }

    #[test]
    fn a_child_is_paused_resumed_and_killed() {
        let mut child = sleeper();
        assert!(child.ended().is_none());

        child.pause();
        assert_eq!(child.state(), Some('T'));
        child.resume();
        crate::eventually(OBEYS_WITHIN, "it goes on", || child.state() == Some('S'));

        let pid = child.pid();
        child.kill();
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_child_outlives_the_thread_that_started_it() {
        let mut child = std::thread::spawn(sleeper).join().expect("a child");

        std::thread::sleep(Duration::from_millis(50));

        assert!(child.ended().is_none());
    }

    #[test]
    #[should_panic(expected = "apt-get install no-such-package")]
    fn a_missing_program_names_its_package() {
        let _never = Process::start(Command::new("no-such-program-anywhere"), "no-such-package");
    }

    #[test]
    fn two_ports_are_two() {
        let (a, b) = (Port::free(), Port::free());
        assert_ne!(a.number(), b.number());
    }
}
