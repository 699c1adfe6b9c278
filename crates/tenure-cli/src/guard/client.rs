//! Main's side of the guard: sends orders, and hears what became of the command. Main does what the guard does not do in time.
//!
//! - A guard that is dead, stopped or held by a tracer is killed with the whole tree, and the ticket is given up: there is nobody
//!   to run a command any more.
//! - One that only waits for a processor is left alone for up to a margin, at least 1 s, as long as the lease is good. When that
//!   is over main kills the tree itself, a quarter of the margin later, and the guard finds nothing left to do.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpgid, getpgrp, getpid, kill_process};
use tenure::guard::{Moment, SharedPage, now};
use tokio::io::unix::AsyncFd;

use crate::exit::Failure;
use crate::guard::Posted;
use crate::guard::protocol::{self, How, Order, Received, Told};
use crate::output::{does_not_die, processes, say, span};
use crate::process::{self, Killing};
use crate::{settings, tree};

/// No guard is given up for being late by less: a busy machine does that to anybody.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(50);
/// Nor is one that only waits for a processor for less than this.
const SHORTEST_LENIENCE: Duration = Duration::from_secs(1);
/// How long a guard that has nothing to do may take to end.
const LEAVING: Duration = Duration::from_secs(1);
/// A process that was killed is gone after so long, unless it hangs in the kernel.
const DYING: Duration = Duration::from_secs(1);

/// How often in a row nothing must be found.
const LOOKS: u32 = 10;

/// The guard cannot be relied on any more. Nothing of the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuardLost;

impl From<GuardLost> for Failure {
    fn from(_: GuardLost) -> Self {
        Self::new("the guard process was killed or stopped: there is nobody to run a command")
    }
}

/// The guard, as main deals with it.
#[derive(Debug)]
pub(crate) struct Client {
    socket: AsyncFd<OwnedFd>,
    /// Readable once the guard has ended.
    alive: AsyncFd<OwnedFd>,
    pid: Pid,
    page: Arc<SharedPage>,
    strangers: Vec<Pid>,
    /// The name of the command.
    name: String,
    /// How long the processes have that the command leaves behind.
    grace: Duration,
    /// How late a guard may be: a quarter of the margin.
    patience: Duration,
    /// How late one may be that would go on if it had a processor.
    lenience: Duration,
    state: Cell<State>,
}

/// What main knows of the guard.
#[derive(Clone, Copy, Debug)]
enum State {
    /// There is no command. So many were started.
    Idle {
        runs: u64,
    },
    Busy(Run),
    /// The guard cannot be relied on any more.
    Lost,
}

/// The command that is there.
#[derive(Clone, Copy, Debug)]
struct Run {
    number: u64,
    /// The number of its lease.
    lease: u64,
    lateness: Lateness,
}

/// For how long the guard was late while main was not: who is held up itself cannot tell.
#[derive(Clone, Copy, Debug)]
struct Lateness {
    looked_at: Moment,
    counted: Duration,
}

impl Client {
    /// To be called in a runtime.
    pub(crate) fn new(posted: Posted, settings: &settings::Run) -> Result<Self, Failure> {
        let margin = settings.timing.margin();
        let Posted { pid, socket, page, strangers } = posted;
        let failed = |error: io::Error| Failure::new("cannot watch the guard process").because(&error);
        let alive = process::watch(pid).and_then(process::watched).map_err(failed)?;
        Ok(Self {
            socket: process::watched(socket).map_err(failed)?,
            alive,
            pid,
            page,
            strangers,
            name: settings.program.to_string_lossy().into_owned(),
            grace: settings.timing.grace(),
            patience: (margin / 4).max(SHORTEST_PATIENCE),
            lenience: margin.max(SHORTEST_LENIENCE),
            state: Cell::new(State::Idle { runs: 0 }),
        })
    }

    pub(crate) fn page(&self) -> &Arc<SharedPage> {
        &self.page
    }

    /// Waits until the guard has ended without being asked, while there is no command.
    pub(crate) async fn is_dead(&self) -> GuardLost {
        // Looked at when it has ended: whoever has a command finds out by what it is told, and kills the tree.
        while self.alive.readable().await.is_err() || matches!(self.state.get(), State::Busy(_)) {
            tokio::time::sleep(self.patience).await;
        }
        self.state.set(State::Lost);
        GuardLost
    }

    /// Passes a signal on to the command, if there is one.
    pub(crate) fn pass_on(&self, number: i32) {
        if let State::Busy(Run { number: run, .. }) = self.state.get() {
            self.order(&Order::Signal { run, number }, None);
        }
    }

    /// Main leaves. The guard does, too; nobody has to find it after us.
    pub(crate) fn farewell(&self) {
        self.order(&Order::Farewell, None);
        if !is_readable_within(&self.alive, LEAVING) {
            // It stands still, and nobody would ever wake it.
            let _gone = kill_process(self.pid, Signal::KILL);
            is_readable_within(&self.alive, LEAVING);
        }
        tree::reap();
    }

    fn order(&self, order: &Order, handed: Option<&OwnedFd>) {
        // Whether it got there is seen by what comes back.
        let _gone = protocol::send(self.socket.get_ref(), order, handed);
    }

    /// What the guard says next about this command.
    async fn told(&self) -> Result<Told, GuardLost> {
        loop {
            if let Some(told) = self.received()? {
                return Ok(told);
            }
            tokio::select! {
                ready = self.socket.readable() => {
                    if let Ok(mut ready) = ready {
                        ready.clear_ready();
                    }
                }
                () = tokio::time::sleep(self.patience / 2) => {}
            }
            self.check_beat()?;
        }
    }

    /// The same, and blocks.
    fn told_now(&self) -> Result<Told, GuardLost> {
        loop {
            if let Some(told) = self.received()? {
                return Ok(told);
            }
            is_readable_within(&self.socket, self.patience / 2);
            self.check_beat()?;
        }
    }

    fn received(&self) -> Result<Option<Told>, GuardLost> {
        match protocol::receive(self.socket.get_ref()) {
            Ok(Received::Message(told, _)) => Ok(Some(told)),
            Ok(Received::Nothing) => Ok(None),
            Ok(Received::End) | Err(_) => Err(self.take_over("has ended")),
        }
    }

    fn check_beat(&self) -> Result<(), GuardLost> {
        let State::Busy(run) = self.state.get() else { return Ok(()) };
        let (now, Lateness { looked_at, counted }) = (now(), run.lateness);
        // Of one look no more is counted than a look that came in time would have.
        let seen = now.longest_since(looked_at).min(self.patience * 5 / 8);
        let late = self.page.late_by(now);
        let counted = if late.is_zero() { Duration::ZERO } else { (counted + seen).min(late) };
        self.state.set(State::Busy(Run { lateness: Lateness { looked_at: now, counted }, ..run }));
        if counted < self.patience {
            return Ok(());
        }
        if counted >= self.lenience || tree::stands_still(self.pid) {
            return Err(self.take_over("stands still"));
        }
        if !self.page.look().allows(run.lease, now) {
            tree::kill_below(self.pid);
        }
        Ok(())
    }

    /// Kills the guard and everything below it, and comes back when nothing is left. Blocks.
    fn take_over(&self, why: &str) -> GuardLost {
        if let State::Lost = self.state.replace(State::Lost) {
            return GuardLost;
        }
        say(format!("the guard process {why}; killing it and the command"));
        // Then all that it had is ours.
        let _gone = kill_process(self.pid, Signal::KILL);
        let (began, mut is_told, mut quiet) = (now(), false, 0);
        loop {
            tree::kill_children(&self.strangers);
            if tree::reap().is_empty {
                return GuardLost;
            }
            // With children of before that stay, what is left can only be looked for, and may be missed once.
            let is_quiet = !self.strangers.is_empty()
                && tree::children(getpid()).iter().all(|child| self.strangers.contains(child));
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet > LOOKS {
                return GuardLost;
            }
            if !is_told && now().longest_since(began) > DYING {
                is_told = true;
                does_not_die("the guard or the command", tree::count());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn is_readable_within(fd: &AsyncFd<OwnedFd>, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).ok();
    let mut polled = [PollFd::new(fd.get_ref(), PollFlags::IN)];
    poll(&mut polled, limit.as_ref()).is_ok_and(|ready| ready > 0)
}

/// A command that runs. When this value is gone, so is the command and all that it started: dropping it kills, and waits for
/// the end.
pub(crate) struct Running<'a> {
    client: &'a Client,
    run: u64,
    pid: i32,
    note_end: &'a dyn Fn(ExitStatus),
    /// How the command itself ended.
    status: Option<ExitStatus>,
    /// It knows that it has to end, and has or had some time to.
    is_stopping: bool,
    is_over: bool,
}

/// What came of a start.
pub(crate) enum Begun<'a> {
    Running(Running<'a>),
    NotRun(io::Error),
    /// The lease is over.
    Refused,
}

impl<'a> Running<'a> {
    /// Has the guard start the command, under the lease of this number. The guard and the command hold `lock` until nothing of
    /// the command is left. Calls `note_end` when the command has ended, even if that happens in `drop`.
    pub(crate) async fn start(
        client: &'a Client,
        lease: u64,
        variables: Vec<(String, String)>,
        lock: Option<OwnedFd>,
        note_end: &'a dyn Fn(ExitStatus),
    ) -> Result<Begun<'a>, GuardLost> {
        let run = match client.state.get() {
            State::Idle { runs: number } | State::Busy(Run { number, .. }) => number + 1,
            State::Lost => return Err(GuardLost),
        };
        let lateness = Lateness { looked_at: now(), counted: Duration::ZERO };
        client.state.set(State::Busy(Run { number: run, lease, lateness }));
        // The guard has so long to beat for the first time.
        client.page.beat(now() + client.patience);
        let mut running =
            Self { client, run, pid: 0, note_end, status: None, is_stopping: false, is_over: false };
        client.order(&Order::Start { run, lease, variables }, lock.as_ref());
        drop(lock);
        loop {
            match client.told().await.inspect_err(|GuardLost| running.lost())? {
                Told::Started { run, pid } if run == running.run => {
                    running.pid = pid;
                    return Ok(Begun::Running(running));
                }
                Told::Over { run, how } if run == running.run => {
                    running.over(how);
                    return Ok(match how {
                        How::Ended(_) => Begun::Running(running),
                        How::NotRun(errno) => Begun::NotRun(io::Error::from_raw_os_error(errno)),
                        How::Refused => Begun::Refused,
                    });
                }
                told => running.note(&told),
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.client.name
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until nothing of it is left, and says how the command itself ended.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus, GuardLost> {
        while !self.is_over {
            let told = self.client.told().await.inspect_err(|GuardLost| self.lost())?;
            self.note(&told);
        }
        Ok(self.status.unwrap_or_default())
    }

    /// Passes a signal on to it.
    pub(crate) fn signal(&self, number: i32) {
        self.client.order(&Order::Signal { run: self.run, number }, None);
    }

    /// Whether what the terminal sends to us is sent to it, too.
    pub(crate) fn is_in_our_group(&self) -> bool {
        Pid::from_raw(self.pid).is_none_or(|pid| getpgid(Some(pid)) == Ok(getpgrp()))
    }

    /// The ownership was lost: all of it is told to end.
    pub(crate) fn lose(&self) {
        self.client.order(&Order::Lose { run: self.run }, None);
    }

    /// It has been told to end, by us or by the terminal, within this time.
    pub(crate) fn has(&mut self, limit: Duration) {
        self.is_stopping = limit > Duration::ZERO;
    }

    /// Has it killed, and waits until nothing is left of it. The ticket must not be free before; so this blocks. Leases are
    /// renewed elsewhere. Says how it ended.
    pub(crate) fn kill(&mut self, why: Killing) -> Option<ExitStatus> {
        let why = match why {
            Killing::Late => "it did not end in time",
            Killing::NoTime => "no time is left",
            Killing::Hurried => "SIGINT came again",
        };
        say(format!("killing `{}` (pid {}): {why}", self.client.name, self.pid));
        self.client.order(&Order::Kill { run: self.run }, None);
        while !self.is_over {
            match self.client.told_now() {
                Ok(told) => self.note(&told),
                Err(GuardLost) => self.lost(),
            }
        }
        self.status
    }

    fn note(&mut self, told: &Told) {
        match *told {
            Told::Left { run, count } if run == self.run => {
                self.is_stopping = true;
                let (name, left, grace) = (&self.client.name, processes(count), span(self.client.grace));
                say(format!("`{name}` has ended and left {left} behind; stopping it all within {grace}"));
            }
            Told::Undead { run, count } if run == self.run => does_not_die(&self.client.name, count),
            Told::Over { run, how } if run == self.run => self.over(how),
            // About one that is over.
            _ => {}
        }
    }

    fn over(&mut self, how: How) {
        if let How::Ended(status) = how {
            let status = ExitStatus::from_raw(status);
            self.status = Some(status);
            (self.note_end)(status);
        }
        self.lost();
    }

    /// Nothing of it runs, whatever became of the guard.
    fn lost(&mut self) {
        self.is_over = true;
        if let State::Busy(Run { number: runs, .. }) = self.client.state.get() {
            self.client.state.set(State::Idle { runs });
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.kill(if self.is_stopping { Killing::Late } else { Killing::NoTime });
        }
    }
}
