//! The running command with all its descendants: under which lease, and until when.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use tenure::guard::{Look, Moment};
use tenure::store::LeaseId;

use super::protocol::How;
use crate::process::{self, Forked};
use crate::{notify, place, settings, tree};

/// A tree that is being killed is looked at again so soon, and later less often.
const NEXT_LOOK: Duration = Duration::from_millis(2);
/// How long what was killed may take to be gone before it is reported, where no lease runs out meanwhile.
const DYING: Duration = Duration::from_secs(1);
/// No guard has to be faster than the scheduler of a busy machine.
const SHORTEST_BEAT: Duration = Duration::from_millis(10);
/// What a child says that found the lease over: no error of the kernel has this number.
pub(super) const REFUSED: i32 = i32::MAX;

pub(super) struct Present {
    pub(super) run: u64,
    pub(super) root: Pid,
    pub(super) lease: LeaseId,
    /// Which of main's leases that is.
    pub(super) number: u64,
    /// The deadline and margin that were seen last.
    pub(super) until: Moment,
    pub(super) margin: Duration,
    /// Held until nothing of the command is left.
    _lock: Option<OwnedFd>,
    /// From the child that is to become the command: its end, or why it did not.
    pub(super) becoming: Option<File>,
    not_run: Option<How>,
    /// How the command itself ended.
    pub(super) status: Option<i32>,
    is_lost: bool,
    /// The guard has ended the lease, so it closes it.
    pub(super) is_ended_here: bool,
    pub(super) kill_at: Option<Moment>,
    killed_at: Option<Moment>,
    is_undead: bool,
}

/// What a child has become.
pub(super) enum Becoming {
    Command,
    Nothing,
}

impl Present {
    /// Forks a child that becomes the command, under the lease that was looked at.
    pub(super) fn start(
        run: u64,
        look: &Look,
        lock: Option<OwnedFd>,
        become_command: impl FnOnce(Option<&OwnedFd>, File),
    ) -> io::Result<Self> {
        let (becoming, told) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let root = match process::fork()? {
            Forked::Parent { child } => child,
            Forked::Child => {
                become_command(lock.as_ref(), told.into());
                process::leave(127)
            }
        };
        Ok(Self {
            run,
            root,
            lease: look.lease(),
            number: look.number(),
            until: look.until(),
            margin: look.margin(),
            _lock: lock,
            becoming: Some(becoming.into()),
            not_run: None,
            status: None,
            is_lost: false,
            is_ended_here: false,
            kill_at: None,
            killed_at: None,
            is_undead: false,
        })
    }

    /// What the child has become, once.
    pub(super) fn look_at_start(&mut self) -> Option<Becoming> {
        let mut errno = [0; 4];
        // An error means: nothing yet.
        let length = self.becoming.as_mut()?.read(&mut errno).ok()?;
        self.becoming = None;
        if length == 0 {
            return Some(Becoming::Command);
        }
        self.not_run = Some(match i32::from_ne_bytes(errno) {
            REFUSED => How::Refused,
            errno => How::NotRun(errno),
        });
        Some(Becoming::Nothing)
    }

    /// How it came to its end.
    pub(super) fn how(&self) -> How {
        self.not_run.unwrap_or(How::Ended(self.status.unwrap_or_default()))
    }

    /// A signal for the command itself; when that is gone, for what it left behind.
    pub(super) fn pass_on(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        if self.status.is_some() {
            return tree::signal_all(signal);
        }
        // Who is to end has to run; who is only to know something stays as it is.
        let then = matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT).then_some(Signal::CONT);
        for signal in [Some(signal), then].into_iter().flatten() {
            // It is our child, and was not buried: the pid is its own.
            let _gone = kill_process(self.root, signal);
        }
    }

    /// The ownership was lost: everything is told to end, once, and has half a margin from the end of the trust on.
    pub(super) fn lose(&mut self, now: Moment) {
        if self.is_lost {
            return;
        }
        self.is_lost = true;
        let kill_at = self.until.or(now) + self.margin / 2;
        self.has_until(kill_at);
        if !now.has_reached(kill_at) {
            tree::signal_all(Signal::TERM);
        }
    }

    /// It has no more time than that.
    pub(super) fn has_until(&mut self, kill_at: Moment) {
        self.kill_at = Some(self.kill_at.map_or(kill_at, |before| before.or(kill_at)));
    }

    /// Kills what has no time left. Whether something will not die, and that is new.
    pub(super) fn enforce(&mut self, now: Moment) -> bool {
        if !self.kill_at.is_some_and(|at| now.has_reached(at)) {
            return false;
        }
        tree::kill_children(&[]);
        let killed_at = *self.killed_at.get_or_insert(now);
        let limit = if self.is_lost { self.margin / 2 } else { DYING };
        now.longest_since(killed_at) >= limit && !std::mem::replace(&mut self.is_undead, true)
    }

    /// How long nothing has to be done about it.
    pub(super) fn nap(&self, now: Moment) -> Duration {
        let until = (!self.is_lost).then_some(self.until);
        let kill_at = self.kill_at.filter(|_| self.killed_at.is_none());
        let due = [until, kill_at].into_iter().flatten().map(|at| now.until(at));
        let soon = self.killed_at.map(|at| (now.longest_since(at) / 8).max(NEXT_LOOK));
        due.chain(soon).fold((self.margin / 8).max(SHORTEST_BEAT), Duration::min)
    }
}

/// The command, with what it is told and without what it must not know.
pub(super) fn command(settings: &settings::Run, variables: &[(String, String)]) -> Command {
    let mut command = Command::new(&settings.program);
    command.args(&settings.arguments).env_remove(place::VARIABLE).env_remove(notify::VARIABLE);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

/// Tells why there is no command, and ends the child that was to become it.
pub(super) fn give_up(errno: i32, mut told: File) -> ! {
    let _gone = told.write_all(&errno.to_ne_bytes());
    process::leave(127)
}
