//! `tenure run`, `tenure cron` and `tenure once`: competes, has the guard run the command only while it owns a ticket,
//! competes again after a loss. `state` is the state machine, `command` runs one command, and `duties` holds what differs
//! between the three.

mod command;
mod duties;
mod state;
mod words;

use std::io::IsTerminal;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use tenure::types::{WaitReason, Waiting};
use tenure::{Change, Changes, Worker};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use self::state::{Effect, Event, State};
use self::words::Silence;
use crate::args::Restart;
use crate::exit::{Exit, Failure};
use crate::guard::client::{Client, GuardLost};
use crate::guard::{self, Posted};
use crate::notify::Supervisor;
use crate::open::patiently;
use crate::output::{say, span};
use crate::process::{Caught, Listening, Signals};
use crate::settings::{self, Duty};
use crate::stall::StallDetector;
use crate::trouble;

/// The first pause before the command is run again; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(crate) fn run(settings: settings::Run) -> Result<Exit, Failure> {
    // Before any thread starts: threads inherit the blocked signals, and the guard must be forked from a process with one
    // thread.
    let signals = Signals::block()?;
    let guard = guard::post(&settings, signals.before())?;
    settings.overruled.iter().for_each(say);
    crate::block_on(trouble::tell_while(compete(settings, signals, guard)))
}

/// Runs the command until all is done, or until a signal stops `tenure`.
async fn compete(settings: settings::Run, signals: Signals, guard: Posted) -> Result<Exit, Failure> {
    let signals = signals.listen()?;
    let guard = Client::new(guard, &settings)?;
    let worker = tokio::select! {
        worker = connect(&settings, &guard) => worker.inspect_err(|_| guard.farewell())?,
        // A store that is waited for may never come.
        asked = asked_to_stop(&signals) => {
            guard.farewell();
            return Ok(Exit::by_signal(asked.number));
        }
    };
    let work = Work {
        settings: &settings,
        signals: &signals,
        guard: &guard,
        worker: &worker,
        supervisor: Supervisor::find(),
        began_at: Instant::now(),
        stall: StallDetector::new(settings.timing.trust()),
        // At a terminal people want to see that it has begun.
        state: watch::Sender::new(State::new(std::io::stderr().is_terminal())),
    };
    work.supervisor.ready(&format!("competes for `{}`", settings.resource));
    let done = work.run_with_restarts().await;
    work.supervisor.stopping();
    // Gives the lease up at once, but does not wait for a store that does not answer.
    worker.shutdown_within(settings.timing.ttl() / 3).await;
    guard.farewell();
    match done {
        Ok(Outcome::Ended { status, .. } | Outcome::Stopped(status)) => Ok(Exit::of(status)),
        Ok(Outcome::Done(exit)) => Ok(exit),
        Ok(Outcome::NotRun(failure)) => Err(failure),
        Ok(Outcome::Unguarded(lost)) => Err(lost.into()),
        Err(error) => work.state().exit().ok_or_else(|| error.into()),
    }
}

async fn connect(settings: &settings::Run, guard: &Client) -> Result<Worker, Failure> {
    settings.store.place.make_folder()?;
    let connect = async || {
        let builder = Worker::builder(settings.store.place.url());
        let mut builder = builder.namespace(settings.store.namespace.as_str()).timing(settings.timing);
        builder = builder.guarded_by(guard.page().clone());
        if let Some(label) = &settings.label {
            builder = builder.label(label.as_str());
        }
        if let Some(metadata) = &settings.metadata {
            builder = builder.metadata(metadata.as_str());
        }
        builder.connect().await
    };
    patiently(&settings.store.place, settings.store.waits, connect).await
}

/// The first signal that asks us to stop; the others are for a command that does not run yet.
async fn asked_to_stop(signals: &Listening) -> Caught {
    loop {
        let signal = signals.next().await;
        if signal.asks_to_stop {
            return signal;
        }
    }
}

/// How the work ended.
enum Outcome {
    /// The command ended by itself.
    Ended { status: ExitStatus, ran_for: Duration },
    /// The ownership ended, and then the command, which was stopped.
    Stopped(ExitStatus),
    /// It never began.
    NotRun(Failure),
    /// The guard is gone.
    Unguarded(GuardLost),
    /// There is nothing left to do; this is the exit code.
    Done(Exit),
}

/// What the command is run with, and the state.
struct Work<'a> {
    settings: &'a settings::Run,
    signals: &'a Listening,
    guard: &'a Client,
    worker: &'a Worker,
    supervisor: Supervisor,
    began_at: Instant,
    stall: StallDetector,
    state: watch::Sender<State>,
}

impl Work<'_> {
    /// Competes; and again, after a pause, when the command has ended by itself and is to be run again.
    async fn run_with_restarts(&self) -> Result<Outcome, tenure::Error> {
        let mut pause = FIRST_PAUSE / 2;
        loop {
            let done = match &self.settings.duty {
                Duty::Command => self.run_command().await?,
                Duty::Cron(cron) => self.run_cron(cron).await?,
                Duty::Once { name, goes_on } => self.run_once(name, *goes_on).await?,
            };
            let Outcome::Ended { status, ran_for } = done else { return Ok(done) };
            if self.state().is_leaving() || !self.is_to_restart(status) {
                return Ok(done);
            }
            // The campaign may be over before it reported the end of its ownership.
            self.handle(Event::Ended(tenure::EndReason::Finished));
            // After a long run the pauses start anew.
            pause = if ran_for > pause * 10 { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            let exit = Exit::of(status);
            let name = self.settings.program.to_string_lossy();
            say(format!("`{name}` ended with {exit}; competing again in {}", span(pause)));
            self.supervisor.status(&format!("pauses: the command ended with {exit}"));
            self.pause(pause).await;
            if self.state().is_leaving() {
                return Ok(done);
            }
        }
    }

    async fn run_command(&self) -> Result<Outcome, tenure::Error> {
        let mut campaign = self
            .worker
            .campaign(self.settings.resource.as_str())
            .tickets(self.settings.tickets.count())
            .priority(self.settings.priority);
        let changes = campaign.changes();
        self.drive(changes, campaign.run(async |lead| self.under(&lead, Vec::new()).await)).await
    }

    /// Feeds events into the state machine until the campaign has ended or `--wait` is over.
    async fn drive(
        &self,
        mut changes: Changes,
        run: impl Future<Output = Result<Outcome, tenure::Error>>,
    ) -> Result<Outcome, tenure::Error> {
        let (mut run, mut stalls) = (pin!(run), pin!(self.stall.watch()));
        let mut guard = pin!(self.guard.is_dead());
        loop {
            let limit = self.waits_until();
            tokio::select! {
                biased;
                // First, so that people read of a loss before they read of what follows.
                Some(change) = changes.next() => self.changed(&change),
                done = &mut run => return done,
                signal = self.signals.next() => self.handle(Event::Signal(signal)),
                lost = &mut guard => return Ok(Outcome::Unguarded(lost)),
                () = &mut stalls => {}
                () = sleep_until(limit.unwrap_or(self.began_at)), if limit.is_some() => {
                    self.handle(Event::WaitOver);
                }
            }
            if let State::TimedOut(answer) = self.state() {
                return Ok(self.timed_out(answer));
            }
        }
    }

    async fn pause(&self, span: Duration) {
        let mut over = pin!(sleep(span));
        while !self.state().is_leaving() {
            tokio::select! {
                () = &mut over => return,
                signal = self.signals.next() => self.handle(Event::Signal(signal)),
            }
        }
    }

    fn is_to_restart(&self, status: ExitStatus) -> bool {
        match self.settings.restart {
            Restart::Never => false,
            Restart::OnFailure => !status.success(),
            Restart::Always => true,
        }
    }

    // ---- the first ownership -------------------------------------------------------------------------------

    /// When to stop waiting for the first ownership, if there is a limit. The store gets time for at least one answer, so that
    /// `--wait 0s` can succeed.
    fn waits_until(&self) -> Option<Instant> {
        let limit = self.began_at + self.settings.wait?;
        match self.state() {
            State::Candidate(wait) if wait.answer.is_some() => Some(limit),
            State::Candidate(_) => Some(limit + self.settings.timing.ttl() / 3),
            _ => None,
        }
    }

    fn timed_out(&self, answer: Option<(Instant, Waiting)>) -> Outcome {
        let (resource, place) = (&self.settings.resource, &self.settings.store.place);
        let Some((at, waiting)) = answer else {
            let what = format!("cannot tell whether `{resource}` is free: no answer from `{place}`");
            return Outcome::NotRun(Failure::new(what));
        };
        let is_withheld = waiting.why == WaitReason::Quarantine;
        let wait = self.settings.wait.unwrap_or_default();
        let mut what = match self.settings.duty {
            Duty::Once { .. } if !is_withheld => format!(
                "another worker runs `{resource}` on `{place}`, and has not finished it within {}",
                span(wait)
            ),
            _ if wait.is_zero() => format!("no ticket of `{resource}` is free on `{place}`"),
            _ => format!("got no ticket of `{resource}` on `{place}` within {}", span(wait)),
        };
        if is_withheld {
            let look_again = waiting.look_again.saturating_sub(at.elapsed());
            what = format!("{what}: {}", words::reason(Waiting { look_again, ..waiting }));
        }
        Outcome::NotRun(Failure::new(what).with_exit(Exit::NOT_ELECTED))
    }

    // ---- the state -----------------------------------------------------------------------------------------

    fn state(&self) -> State {
        *self.state.borrow()
    }

    fn changed(&self, change: &Change) {
        match *change {
            Change::Acquired(grant) => {
                self.handle(Event::Acquired(grant));
                // The first command of a job may be a long time off.
                if let Duty::Cron(_) = self.settings.duty {
                    self.handle(Event::Began(grant.term.0));
                    self.show_owned(grant.term.0);
                }
            }
            Change::Ended(_, ending) => self.handle(Event::Ended(ending)),
            Change::Waiting(waiting) => self.handle(Event::Waiting(waiting)),
            _ => {}
        }
    }

    fn handle(&self, event: Event) {
        let mut effects = Vec::new();
        self.state.send_modify(|state| effects = state.handle(event, self.settings));
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    fn carry_out(&self, effect: Effect) {
        let (resource, place) = (self.settings.resource.as_str(), &self.settings.store.place);
        match effect {
            Effect::SayOwns(term) => say(format!("owns `{resource}` (term {term})")),
            Effect::SayEnded(term, ending) => {
                let trust = self.settings.timing.trust();
                let silence = self.stall.just_now().map_or(Silence::Store(trust), Silence::Ours);
                words::ending(resource, term, ending, place, silence).iter().for_each(say);
            }
            Effect::SayWaiting(waiting) => say(words::waiting(resource, place, waiting)),
            Effect::ShowWaiting => self.supervisor.status(&format!("waits for `{resource}`")),
            Effect::ShowStopping => self.supervisor.stopping(),
            Effect::PassOn(signal) => self.guard.pass_on(signal),
            Effect::ShutDown => {
                let worker = self.worker.clone();
                // The work is told by its ownership; the campaign ends when all is done.
                tokio::spawn(async move { worker.shutdown().await });
            }
        }
    }

    fn show_owned(&self, term: u64) {
        self.supervisor.status(&format!("owns `{}` (term {term})", self.settings.resource));
    }
}
