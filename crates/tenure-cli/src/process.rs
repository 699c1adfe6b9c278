//! Processes and signals, where the standard library has no function for them. The only file with `unsafe`.
//!
//! Main, guard and command share one process group and session, so the command gets the terminal's signals without our help.
#![allow(unsafe_code)] // Forks, signals, and what happens in a child before the command, have no safe interface.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::exit::Failure;

/// Signals that ask a command to stop.
const STOPPING: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT];
/// Signals that are passed on to the command and stop nothing, except a hang-up of the terminal.
const PASSED_ON: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH];
/// Signals that end the guard too: they mean that the process has gone wrong.
const FATAL: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];

/// A signal that was sent to `tenure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caught {
    pub(crate) number: i32,
    /// The terminal sent it, so the command has got it too.
    pub(crate) from_terminal: bool,
    /// It asks `tenure` to stop.
    pub(crate) asks_to_stop: bool,
}

/// Why a command is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Killing {
    /// It was asked to end, and did not.
    Late,
    /// There was no time to ask.
    NoTime,
    /// The user does not want to wait.
    Hurried,
}

/// The signals for `tenure` or its command. They are read one after the other instead of interrupting the process.
#[derive(Debug)]
pub(crate) struct Signals {
    file: File,
    before: libc::sigset_t,
    has_terminal: bool,
}

impl Signals {
    /// Blocks the signals for this thread and those that it starts, so call it first. A signal that our parent made us ignore
    /// (as `nohup` does) stays ignored, for us and for the command.
    pub(crate) fn block() -> Result<Self, Failure> {
        Self::try_block().map_err(|error| Failure::new("cannot listen for signals").because(&error))
    }

    fn try_block() -> io::Result<Self> {
        let mut wanted = Vec::new();
        for number in STOPPING.into_iter().chain(PASSED_ON) {
            if !is_ignored(number)? {
                wanted.push(number);
            }
        }
        // If our parent ignored it we would inherit that, and never learn how the command ended.
        // SAFETY: sets the default action, which runs no code of ours.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        let set = set_of(&wanted);
        let before = mask(libc::SIG_BLOCK, &set)?;
        Ok(Self { file: signal_file(&set)?, before, has_terminal: has_terminal() })
    }

    /// What was blocked when we were started; the command is to start with the same.
    pub(crate) fn before(&self) -> Mask {
        Mask(self.before)
    }

    /// What is sent from now on. To be called in a runtime.
    pub(crate) fn listen(self) -> Result<Listening, Failure> {
        let failed = |error| Failure::new("cannot listen for signals").because(&error);
        Ok(Listening { file: watched(self.file).map_err(failed)?, has_terminal: self.has_terminal })
    }
}

/// A set of blocked signals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mask(libc::sigset_t);

#[derive(Debug)]
pub(crate) struct Listening {
    file: AsyncFd<File>,
    /// Whether there was a terminal at the start.
    has_terminal: bool,
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
        let (number, from_terminal) = (word(0), word(8) == libc::SI_KERNEL);
        let asks_to_stop = match number {
            // The shell sends it on when its terminal is gone; from anybody else it is a wish to the command.
            libc::SIGHUP => from_terminal || (self.has_terminal && !has_terminal()),
            number => STOPPING.contains(&number),
        };
        Caught { number, from_terminal, asks_to_stop }
    }
}

/// Whether this session has a terminal that is still there.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Has the runtime watch a descriptor until it is readable.
pub(crate) fn watched<T: AsRawFd + Into<OwnedFd>>(file: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: the value owns its descriptor, stays as it is inside, and is never swapped for another.
    unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }.map_err(Into::into)
}

fn set_of(numbers: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: the set is made valid by `sigemptyset` before anything reads it; the numbers are those of signals.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for number in numbers {
            libc::sigaddset(&raw mut set, *number);
        }
        set
    }
}

/// Changes what this thread has blocked, and says what it was.
fn mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = set_of(&[]);
    // SAFETY: both sets are valid; only the mask of this thread changes.
    match unsafe { libc::pthread_sigmask(how, &raw const *set, &raw mut before) } {
        0 => Ok(before),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn signal_file(set: &libc::sigset_t) -> io::Result<File> {
    // SAFETY: the set is valid; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const *set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else knows of it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
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

// ---- the guard -----------------------------------------------------------------------------------------------

/// Which of two processes this is, after a fork.
pub(crate) enum Forked {
    Child,
    Parent { child: Pid },
}

/// Makes a copy of this process. Only for one without other threads: then the child may do whatever its parent may.
pub(crate) fn fork() -> io::Result<Forked> {
    debug_assert!(std::fs::read_dir("/proc/self/task").map_or(true, |tasks| tasks.count() == 1));
    // SAFETY: no other thread is there that could hold a lock which the child needs.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        child => match Pid::from_raw(child) {
            Some(child) if child.as_raw_nonzero().get() > 0 => Ok(Forked::Parent { child }),
            _ => Err(io::Error::last_os_error()),
        },
    }
}

/// Ends this process, and nothing else: what its parent has to clean up is not cleaned up here.
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: ends the process; nothing of it runs any more.
    unsafe { libc::_exit(code) }
}

/// Blocks everything that can be, the terminal's signals above all, but for what says that this process has gone wrong.
/// Tells when a child has ended by being readable.
pub(crate) fn block_everything() -> io::Result<File> {
    let mut all = set_of(&[]);
    // SAFETY: the set is valid, and the numbers are those of signals.
    unsafe {
        libc::sigfillset(&raw mut all);
        for number in FATAL {
            libc::sigdelset(&raw mut all, number);
        }
    }
    for number in FATAL {
        // The standard library takes a SIGSEGV from outside as a warning.
        // SAFETY: sets the default action, which runs no code of ours.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    mask(libc::SIG_SETMASK, &all)?;
    signal_file(&set_of(&[libc::SIGCHLD]))
}

/// A descriptor that is readable once this process has ended.
pub(crate) fn watch(process: Pid) -> io::Result<OwnedFd> {
    Ok(pidfd_open(process, PidfdFlags::empty())?)
}

/// Becomes the command, in a child of `parent`, as its main thread started it. It dies with it, starts with the signals that
/// `tenure` was started with, and holds `lock` for as long as it lives. Comes back only if that cannot be.
pub(crate) fn become_command(
    mut command: Command,
    parent: Pid,
    lock: Option<&OwnedFd>,
    mask: Mask,
) -> io::Error {
    let prepared = || -> io::Result<()> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(parent) {
            // It died before we asked to die with it.
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if let Some(lock) = lock {
            rustix::io::fcntl_setfd(lock, rustix::io::FdFlags::empty())?;
        }
        Ok(())
    };
    if let Err(error) = prepared() {
        return error;
    }
    // The last thing before exec, because the standard library sets a mask of its own.
    // SAFETY: called in this very process, which has one thread.
    unsafe { command.pre_exec(move || self::mask(libc::SIG_SETMASK, &mask.0).map(drop)) };
    command.exec()
}
