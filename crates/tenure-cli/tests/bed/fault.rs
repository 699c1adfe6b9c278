//! What is done to whom.
#![allow(unsafe_code)] // Tracing, which holds a process up without a signal, has no safe interface.

use std::fmt;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Main,
    Guard,
    Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9`.
    Kill,
    /// A crash.
    Segv,
    /// SIGSTOP.
    Stop,
    /// It does not move, and nobody stopped it: held by a tracer. A command that hangs is deaf to SIGTERM.
    Hang,
}

impl Victim {
    pub(crate) const ALL: [Self; 3] = [Self::Main, Self::Guard, Self::Command];
}

impl Fault {
    pub(crate) const ALL: [Self; 4] = [Self::Kill, Self::Segv, Self::Stop, Self::Hang];

    /// Whether the victim is dead at once.
    pub(crate) fn is_deadly(self) -> bool {
        matches!(self, Self::Kill | Self::Segv)
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Main => "main",
            Self::Guard => "guard",
            Self::Command => "command",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill -9",
            Self::Segv => "SIGSEGV",
            Self::Stop => "SIGSTOP",
            Self::Hang => "hang",
        })
    }
}

/// What was done, until it is undone.
pub(crate) enum Done {
    Once,
    Stopped(Pid),
    Held(Held),
}

/// Does it. An error means that the victim is gone.
pub(crate) fn inflict(fault: Fault, victim: Pid) -> Done {
    let send = |signal| {
        let _gone = kill_process(victim, signal);
    };
    match fault {
        Fault::Kill => send(Signal::KILL),
        // A program of Rust takes the first one for a warning, and those that come together are one.
        Fault::Segv => {
            let pid = victim.as_raw_nonzero().get();
            while super::arena::is_alive(pid) {
                send(Signal::SEGV);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        Fault::Stop => {
            send(Signal::STOP);
            return Done::Stopped(victim);
        }
        Fault::Hang => return Done::Held(Held::hold(victim, Burial::AtOnce)),
    }
    Done::Once
}

impl Done {
    pub(crate) fn undo(self) {
        match self {
            Self::Once => {}
            // It may be dead by now.
            Self::Stopped(victim) => {
                let _gone = kill_process(victim, Signal::CONT);
            }
            Self::Held(held) => held.let_go(),
        }
    }
}

/// A process whose threads do not move, because one of ours traces them.
pub(crate) struct Held {
    let_go: mpsc::Sender<()>,
    tracer: JoinHandle<()>,
}

/// When those who are traced and die are buried; their parents learn of it only then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Burial {
    AtOnce,
    /// For the kernel they are as good as undead until they are let go.
    WhenLetGo,
}

impl Held {
    pub(crate) fn hold(victim: Pid, burial: Burial) -> Self {
        let (let_go, is_let_go) = mpsc::channel::<()>();
        let (held, is_held) = mpsc::channel();
        let tracer = std::thread::spawn(move || {
            let threads = threads(victim);
            for thread in &threads {
                // SAFETY: takes numbers; an error means that the thread has ended.
                unsafe {
                    libc::ptrace(libc::PTRACE_SEIZE, *thread, 0, 0);
                    libc::ptrace(libc::PTRACE_INTERRUPT, *thread, 0, 0);
                }
            }
            held.send(()).expect("somebody waits");
            let tick = std::time::Duration::from_millis(2);
            while is_let_go.recv_timeout(tick) == Err(mpsc::RecvTimeoutError::Timeout) {
                while burial == Burial::AtOnce && is_one_buried() {}
            }
            for thread in &threads {
                // SAFETY: takes numbers; an error means that the thread has ended.
                unsafe { libc::ptrace(libc::PTRACE_DETACH, *thread, 0, 0) };
            }
        });
        is_held.recv().expect("it is held");
        Self { let_go, tracer }
    }

    pub(crate) fn let_go(self) {
        drop(self.let_go);
        self.tracer.join().expect("the tracer ends");
    }
}

/// Buries one that this thread traced and that has ended, if there is one.
fn is_one_buried() -> bool {
    let flags = libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: the status is not asked for.
    unsafe { libc::waitpid(-1, std::ptr::null_mut(), flags) > 0 }
}

fn threads(of: Pid) -> Vec<i32> {
    let listed = std::fs::read_dir(format!("/proc/{}/task", of.as_raw_nonzero()));
    let listed = listed.into_iter().flatten().flatten();
    listed.filter_map(|thread| thread.file_name().to_str()?.parse().ok()).collect()
}
