//! The command as a process of the kernel, and the signals that are meant for it. The one file with `unsafe`.
//!
//! The command is a child of the main thread, in the same process group and session: what the terminal sends
//! reaches it without us. It holds the lock of the lease, and dies with the thread that started it.
#![allow(unsafe_code)] // Signals, and what happens in the child before the command, have no safe interface.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::exit::Failure;
use crate::output;

/// A process that was killed is gone after so long, unless it hangs in the kernel.
const DYING: Duration = Duration::from_secs(1);
/// What asks a command to stop.
const STOPPING: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// A signal that was sent to `tenure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caught {
    pub(crate) number: i32,
    /// The terminal sent it, and not only to us: the command has got it, too.
    pub(crate) from_terminal: bool,
}

/// Why a command is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Killing {
    /// It was asked to end, and did not.
    Late,
    /// There was no time to ask.
    NoTime,
    /// Somebody does not want to wait.
    Hurried,
}

/// The signals that ask `tenure` to stop, to be read one after the other instead of interrupting it.
#[derive(Debug)]
pub(crate) struct Signals {
    file: File,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks them for this thread and those that it starts; so it comes first. A signal that whoever started us
    /// has us ignore (as `nohup` does) stays ignored, for us and for the command.
    pub(crate) fn block() -> Result<Self, Failure> {
        Self::try_block().map_err(|error| Failure::new("cannot listen for signals").because(&error))
    }

    fn try_block() -> io::Result<Self> {
        // SAFETY: both sets are made valid by `sigemptyset` before anything reads them.
        let (mut set, mut before) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: the pointers are to two valid sets, for the length of the calls.
        unsafe {
            libc::sigemptyset(&raw mut set);
            libc::sigemptyset(&raw mut before);
        }
        for number in STOPPING {
            if !is_ignored(number)? {
                // SAFETY: the set is valid, and the number that of a signal.
                unsafe { libc::sigaddset(&raw mut set, number) };
            }
        }
        // If our parent ignored it we would inherit that, and never learn how the command ended.
        // SAFETY: sets the default action, which runs no code of ours.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        // SAFETY: both sets are valid; only the mask of this thread changes.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
        if blocked != 0 {
            return Err(io::Error::from_raw_os_error(blocked));
        }
        // SAFETY: the set is valid; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else knows of it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self { file, before })
    }

    /// What is sent from now on. To be called in a runtime.
    pub(crate) fn listen(self) -> Result<Listening, Failure> {
        let failed = |error| Failure::new("cannot listen for signals").because(&error);
        Ok(Listening { file: watched(self.file).map_err(failed)?, before: self.before })
    }
}

#[derive(Debug)]
pub(crate) struct Listening {
    file: AsyncFd<File>,
    /// What was blocked when we were started; the command is to start with the same.
    before: libc::sigset_t,
}

impl Listening {
    /// The next signal. Waits for ever if signals cannot be read any more.
    pub(crate) async fn next(&self) -> Caught {
        // The kernel's `signalfd_siginfo`: the number first, an errno, the code; each of four bytes.
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        let read = self.file.async_io(Interest::READABLE, |mut file| file.read_exact(&mut info));
        if read.await.is_err() {
            std::future::pending::<()>().await;
        }
        let word = |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        Caught { number: word(0), from_terminal: word(8) == libc::SI_KERNEL }
    }
}

/// Has the runtime watch a descriptor until it is readable.
fn watched<T: AsRawFd + Into<OwnedFd>>(file: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: the value owns its descriptor, stays as it is inside, and is never swapped for another.
    unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }.map_err(Into::into)
}

fn is_ignored(number: libc::c_int) -> io::Result<bool> {
    // SAFETY: all zero is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set; the present action is written to a valid place.
    if unsafe { libc::sigaction(number, std::ptr::null(), &raw mut action) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

/// A command that runs. When this value is gone, so is the command: dropping it kills, and waits for the end.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    child: Child,
    /// Readable once the command has ended.
    pidfd: AsyncFd<OwnedFd>,
    name: String,
    ended: &'a Cell<Option<ExitStatus>>,
    /// It knows that it has to end, and has or had some time to.
    is_stopping: bool,
    is_over: bool,
}

impl<'a> Running<'a> {
    /// Starts the command as a child of this thread; it dies with it. `lock` is held by the command as long as it
    /// lives. How it ends is noted in `ended`.
    pub(crate) fn start(
        mut command: Command,
        lock: Option<OwnedFd>,
        signals: &Listening,
        ended: &'a Cell<Option<ExitStatus>>,
    ) -> io::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let (us, before) = (std::process::id().cast_signed(), signals.before);
        let shared = lock.as_ref().map(AsRawFd::as_raw_fd);
        // SAFETY: between fork and exec only calls that are safe in a signal handler, no memory is taken, and no
        // lock of another thread is needed.
        unsafe { command.pre_exec(move || prepare(us, shared, before)) };
        let mut child = command.spawn()?;
        drop(lock);
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(io::Error::from);
        match pidfd.and_then(watched) {
            Ok(pidfd) => Ok(Self { child, pidfd, name, ended, is_stopping: false, is_over: false }),
            Err(error) => {
                // Not to be watched, so not to be left running either.
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        loop {
            let mut ready = self.pidfd.readable().await?;
            if let Some(status) = self.child.try_wait()? {
                self.is_over = true;
                self.ended.set(Some(status));
                return Ok(status);
            }
            ready.clear_ready();
        }
    }

    /// Sends a signal, and lets a stopped command run so that it can obey.
    pub(crate) fn signal(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        for signal in [signal, Signal::CONT] {
            // An error means that it has ended.
            let _gone = pidfd_send_signal(&self.pidfd, signal);
        }
    }

    /// It has been told to end, by us or by the terminal, within this time.
    pub(crate) fn has(&mut self, limit: Duration) {
        self.is_stopping = limit > Duration::ZERO;
    }

    /// Kills it, and waits for its end. The ticket must not be free before; so this blocks. Leases are renewed
    /// elsewhere.
    pub(crate) fn kill(&mut self, why: Killing) {
        output::killing(&self.name, self.pid(), why);
        // An error means that it has ended.
        let _gone = self.child.kill();
        if !self.ends_within(DYING) {
            output::does_not_die(&self.name, self.pid());
        }
        self.is_over = true;
        self.ended.set(self.child.wait().ok());
    }

    /// Whether it has ended within `limit`. Blocks.
    fn ends_within(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).ok();
        let mut polled = [PollFd::new(self.pidfd.get_ref(), PollFlags::IN)];
        poll(&mut polled, limit.as_ref()).is_ok_and(|ready| ready > 0)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.kill(if self.is_stopping { Killing::Late } else { Killing::NoTime });
        }
    }
}

/// What the child does before it becomes the command.
fn prepare(parent: libc::pid_t, lock: Option<libc::c_int>, mask: libc::sigset_t) -> io::Result<()> {
    let done = |code: libc::c_int| if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: concerns only this process, and takes a number.
    done(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
    // SAFETY: takes nothing.
    if unsafe { libc::getppid() } != parent {
        // It died before we asked to die with it.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    if let Some(lock) = lock {
        // SAFETY: the descriptor was copied by fork; only its flag in this process changes: exec leaves it open.
        done(unsafe { libc::fcntl(lock, libc::F_SETFD, 0) })?;
    }
    // SAFETY: the set is valid; the old one is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
