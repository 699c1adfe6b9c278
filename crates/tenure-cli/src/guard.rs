//! The guard: a small process beside main that starts the command, outlives main, and ends the whole process tree in time.
//!
//! Invariants, whatever happens to one of main, guard and command:
//!
//! 1. Nobody else starts the command, and it is started only while main lives, its lease is live, and now is before the deadline.
//! 2. The lease is ended in the page *before* the first signal of a loss is sent; after that main cannot extend it.
//! 3. While main lives, the guard acts at the deadline and not before: a hang of main is a deadline that is not moved any
//!    more. When main is dead it acts at once.
//! 4. On a loss everything below the guard has SIGTERM at the end of the trust and SIGKILL half a margin later.
//! 5. Main is told that the command is over, the lock of the lease is let go and the lease is closed only when the
//!    kernel says that nothing is left (ECHILD). What SIGKILL does not end is reported, and its lease is not closed.
//! 6. As long as there is a command the guard beats in the page. Main, which is the next subreaper, kills guard and tree if the
//!    beat is late.
//!
//! It is forked before there is any thread, and stays without one until it closes a lease, which is the last thing it does,
//! or is done by a child. It takes no signal but those that cannot be blocked; the terminal's go past it.

pub(crate) mod client;
mod present;
pub(crate) mod protocol;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_child_subreaper};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tenure::guard::{SharedPage, Standing, now};
use tenure::store::{Closing, LeaseId};

use self::present::{Becoming, Present};
use self::protocol::{How, Order, Received, Told};
use crate::exit::Failure;
use crate::process::{self, Forked, Mask};
use crate::{output, settings, tree};

/// How long the closing of a lease may take. Then it runs out by itself.
const CLOSING: Duration = Duration::from_secs(5);

/// A guard as main has it, before there is a runtime.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) pid: Pid,
    pub(crate) socket: OwnedFd,
    pub(crate) page: Arc<SharedPage>,
    /// Children that main had before. They are not killed.
    pub(crate) strangers: Vec<Pid>,
}

/// Makes the guard. Comes back in main only. To be called when the signals are blocked, and before any thread is started.
pub(crate) fn post(settings: &settings::Run, mask: Mask) -> Result<Posted, Failure> {
    let failed = |error: io::Error| Failure::new("cannot start the guard process").because(&error);
    let page = Arc::new(SharedPage::map().map_err(failed)?);
    let (ours, theirs) = protocol::pair().map_err(failed)?;
    let (main, strangers) = (getpid(), tree::children(getpid()));
    // Whatever loses the guard comes to us.
    set_child_subreaper(Some(main)).map_err(|error| failed(error.into()))?;
    match process::fork().map_err(failed)? {
        Forked::Parent { child } => Ok(Posted { pid: child, socket: ours, page, strangers }),
        Forked::Child => {
            drop(ours);
            match Guard::new(settings, mask, main, &page, theirs) {
                Ok(guard) => guard.stand(),
                // Main finds out by the end of the socket.
                Err(_) => process::leave(1),
            }
        }
    }
}

struct Guard<'a> {
    settings: &'a settings::Run,
    mask: Mask,
    page: &'a SharedPage,
    us: Pid,
    /// Readable once main is dead.
    main: OwnedFd,
    socket: OwnedFd,
    children: File,
    timer: OwnedFd,
    present: Option<Present>,
    /// Main leaves in good order.
    farewell: bool,
    /// Main is dead.
    bereaved: bool,
    /// The child that closes a lease.
    closer: Option<Pid>,
    /// The lease of a command that main did not live to close.
    unclosed: Option<LeaseId>,
    /// The message about main's death, printed at the end, because printing may block.
    obituary: Option<String>,
}

impl<'a> Guard<'a> {
    fn new(
        settings: &'a settings::Run,
        mask: Mask,
        main: Pid,
        page: &'a SharedPage,
        socket: OwnedFd,
    ) -> io::Result<Self> {
        let children = process::block_everything()?;
        set_child_subreaper(Some(getpid()))?;
        // What people see among the processes.
        rustix::thread::set_name(c"tenure-guard")?;
        let alive = process::watch(main)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        Ok(Self {
            settings,
            mask,
            page,
            us: getpid(),
            main: alive,
            socket,
            children,
            timer,
            present: None,
            farewell: false,
            // Looked at after the descriptor is there: from then on its death is seen.
            bereaved: getppid() != Some(main),
            closer: None,
            unclosed: None,
            obituary: None,
        })
    }

    fn stand(mut self) -> ! {
        loop {
            self.judge();
            self.listen();
            if self.bereaved {
                self.mourn();
            }
            self.bury();
            self.enforce();
            if self.present.is_none() && (self.bereaved || self.farewell) {
                self.leave();
            }
            self.sleep();
        }
    }

    // ---- what main says ------------------------------------------------------------------------------------

    fn listen(&mut self) {
        loop {
            match protocol::receive(&self.socket) {
                Ok(Received::Message(order, handed)) => self.obey(order, handed),
                Ok(Received::Nothing) => return,
                Ok(Received::End) | Err(_) => {
                    self.bereaved = true;
                    return;
                }
            }
        }
    }

    fn obey(&mut self, order: Order, handed: Option<OwnedFd>) {
        match order {
            Order::Start { run, lease, variables } => self.start(run, lease, &variables, handed),
            Order::Signal { run, number } => self.with(run, |present| present.pass_on(number)),
            Order::Lose { run } => self.with(run, |present| present.lose(now())),
            Order::Kill { run } => self.with(run, |present| present.has_until(now())),
            Order::Farewell => self.farewell = true,
        }
    }

    /// Does something with this command, if it is the one that is there.
    fn with(&mut self, run: u64, act: impl FnOnce(&mut Present)) {
        if let Some(present) = self.present.as_mut().filter(|present| present.run == run) {
            act(present);
        }
    }

    fn tell(&self, told: &Told) {
        // Main is gone, or does not move; what it missed it finds out by asking.
        let _gone = protocol::send(&self.socket, told, None);
    }

    fn start(&mut self, run: u64, number: u64, variables: &[(String, String)], lock: Option<OwnedFd>) {
        // What that one was to close main closes itself, now that it moves again.
        if let Some(closer) = self.closer.take() {
            let _gone = kill_process(closer, Signal::KILL);
            while !tree::reap().is_empty {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        let look = self.page.look();
        let lock = lock.filter(|_| !is_planted());
        // Main may have died after it said so.
        let may_start = self.present.is_none() && !self.is_main_dead() && look.allows(number, now());
        let started = match may_start {
            true => Present::start(run, &look, lock, |lock, told| {
                self.become_command(number, variables, lock, told)
            }),
            false => return self.tell(&Told::Over { run, how: How::Refused }),
        };
        match started {
            Ok(present) => self.present = Some(present),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                self.tell(&Told::Over { run, how: How::NotRun(errno) });
            }
        }
    }

    fn is_main_dead(&self) -> bool {
        let mut polled = [PollFd::new(&self.main, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// In the child.
    fn become_command(
        &self,
        number: u64,
        variables: &[(String, String)],
        lock: Option<&OwnedFd>,
        told: File,
    ) -> ! {
        // The guard may have been held up between its look and the fork.
        if !self.page.look().allows(number, now()) {
            present::give_up(present::REFUSED, told);
        }
        let command = present::command(self.settings, variables);
        let error = process::become_command(command, self.us, lock, self.mask);
        present::give_up(error.raw_os_error().unwrap_or(libc::EIO), told)
    }

    // ---- the end -------------------------------------------------------------------------------------------

    /// Whether the command may go on, as the page tells.
    fn judge(&mut self) {
        let Some(present) = &mut self.present else { return };
        loop {
            let (look, now) = (self.page.look(), now());
            if look.number() != present.number || look.standing() != Standing::Live {
                // Main itself says that it is over.
                return present.lose(now);
            }
            (present.until, present.margin) = (look.until(), look.margin());
            if !now.has_reached(look.until()) {
                return;
            }
            if self.page.end(&look) {
                present.is_ended_here = true;
                return present.lose(now);
            }
        }
    }

    /// Main is dead. Nobody renews the lease, and nobody waits for the command.
    fn mourn(&mut self) {
        while !self.page.end(&self.page.look()) {}
        if is_planted() {
            process::leave(1);
        }
        let Some(present) = &mut self.present else { return };
        if present.kill_at.is_none() {
            let (name, pid) = (self.settings.program.to_string_lossy(), present.root.as_raw_nonzero());
            self.obituary = Some(format!("the main process was killed; so was `{name}` (pid {pid})"));
        }
        present.has_until(now());
    }

    /// Buries who has ended, and sees whether that was all.
    fn bury(&mut self) {
        self.look_at_start();
        while self.children.read(&mut [0; size_of::<libc::signalfd_siginfo>()]).is_ok_and(|read| read > 0) {}
        let reaped = tree::reap();
        if reaped.ended.iter().any(|(pid, _)| Some(*pid) == self.closer) {
            self.closer = None;
        }
        let Some(present) = &mut self.present else { return };
        let ended = reaped.ended.iter().find(|(pid, _)| *pid == present.root).map(|(_, status)| *status);
        present.status = present.status.or(ended);
        if reaped.is_empty {
            // What it had to say it has said before it ended.
            self.look_at_start();
            self.over();
        } else if ended.is_some() && present.kill_at.is_none() {
            present.has_until(now() + self.settings.timing.grace());
            let run = present.run;
            tree::signal_all(Signal::TERM);
            self.tell(&Told::Left { run, count: tree::count() });
        }
    }

    fn look_at_start(&mut self) {
        let Some(present) = &mut self.present else { return };
        if let Some(Becoming::Command) = present.look_at_start() {
            let (run, pid) = (present.run, present.root.as_raw_nonzero().get());
            self.tell(&Told::Started { run, pid });
        }
    }

    /// Nothing of the command is left.
    fn over(&mut self) {
        let Some(present) = self.present.take() else { return };
        let (run, lease, how) = (present.run, present.lease, present.how());
        let is_to_close = present.is_ended_here && !self.bereaved;
        self.unclosed = self.bereaved.then_some(lease);
        // With the lock: nobody has to wait for the child below.
        drop(present);
        // Main does not move, perhaps; so that nobody waits for it, either.
        if is_to_close && let Ok(Forked::Parent { child }) = self.close_aside(lease) {
            self.closer = Some(child);
        }
        self.tell(&Told::Over { run, how });
    }

    /// Kills what has no time left, again and again until nothing is left.
    fn enforce(&mut self) {
        let Some(present) = &mut self.present else { return };
        if !present.enforce(now()) {
            return;
        }
        let (run, count) = (present.run, tree::count());
        match self.bereaved {
            false => self.tell(&Told::Undead { run, count }),
            true => {
                output::from_guard(&format!(
                    "{count} of its processes cannot be killed; the lease is not closed"
                ));
            }
        }
    }

    // ---- the lease -----------------------------------------------------------------------------------------

    /// There is nothing left to guard.
    fn leave(&self) -> ! {
        let look = self.page.look();
        if !self.farewell && look.number() > 0 {
            // Main may have asked for the next one while it gave up the one before.
            let before = self.unclosed.filter(|lease| *lease != look.lease());
            // First the one that held the ticket.
            close(self.settings, &[before, Some(look.lease())], Closing::Proved);
        }
        self.obituary.iter().for_each(|line| output::from_guard(line));
        process::leave(0)
    }

    /// Closes the lease in a child, because the guard goes on.
    fn close_aside(&self, lease: LeaseId) -> io::Result<Forked> {
        let forked = process::fork()?;
        if let Forked::Child = forked {
            close(self.settings, &[Some(lease)], Closing::Expired);
            process::leave(0);
        }
        Ok(forked)
    }

    // ---- waiting -------------------------------------------------------------------------------------------

    /// Waits until there is something to do, and promises main to look again.
    fn sleep(&mut self) {
        let (now, nap) = (now(), self.present.as_ref().map(|present| present.nap(now())));
        nap.into_iter().for_each(|nap| self.page.beat(now + nap));
        // Zero disarms it.
        let span = nap.map_or(Duration::ZERO, |nap| nap.max(Duration::from_nanos(1)));
        let setting = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(span).unwrap_or_default(),
        };
        let _set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting);
        let becoming = self.present.as_ref().and_then(|present| present.becoming.as_ref());
        let watched =
            [self.children.as_fd(), self.timer.as_fd()].into_iter().chain(becoming.map(AsFd::as_fd));
        // Once it is gone there is no more news of it.
        let main = [self.main.as_fd(), self.socket.as_fd()].into_iter().filter(|_| !self.bereaved);
        let polled = main.chain(watched).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = polled.collect();
        let ready = poll(&mut polled, None);
        self.bereaved |= !self.bereaved && ready.is_ok() && !polled[0].revents().is_empty();
        let _fired = rustix::io::read(&self.timer, &mut [0; 8]);
    }
}

/// Closes leases over a connection of one's own. What fails runs out.
fn close(settings: &settings::Run, leases: &[Option<LeaseId>], why: Closing) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let close = async {
            // Nothing is made where the store has gone.
            let store =
                tenure::admin::Admin::find(settings.store.place.url(), settings.store.namespace.as_str())
                    .await;
            let Ok(Some(store)) = store else { return };
            for lease in leases.iter().flatten() {
                let _runs_out = store.close(*lease, why).await;
            }
        };
        // The store is away, or does not answer: nothing more can be done.
        let _runs_out = tokio::time::timeout(CLOSING, close).await;
    });
    // A thread of the store may hang; nobody waits for it.
    std::mem::forget(runtime);
}

/// The bug that the test bed has to find: a lock that proves the death of main while the guard does nothing, and neither
/// guard nor command hold it.
fn is_planted() -> bool {
    cfg!(debug_assertions) && std::env::var_os("TENURE_PLANTED").is_some_and(|bug| bug == "no-guard")
}
