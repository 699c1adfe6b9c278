//! `tenure run`, `tenure cron` and `tenure once`: competes, has the guard run the command only while it owns a ticket,
//! competes again after a loss. How a command is run is in `command`, what differs between the three in `duties`.

mod command;
mod duties;

use std::cell::Cell;
use std::io::IsTerminal;
use std::process::ExitStatus;
use std::time::Duration;

use tenure::{Change, Changes, Ending, Grant, Waiting, Why, Worker};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::args::Restart;
use crate::exit::{Exit, Failure};
use crate::guard::Posted;
use crate::link::{GuardLost, Link};
use crate::neighbours;
use crate::notify::Supervisor;
use crate::output::{self, Silence};
use crate::process::{Caught, Listening, Signals};
use crate::reading::patiently;
use crate::settings::{self, Again, Duty};
use crate::standstill::Standstill;

/// The first pause before the command is run again; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Runs the command until all is done, or somebody stops `tenure`.
pub(crate) async fn run(settings: settings::Run, signals: Signals, guard: Posted) -> Result<Exit, Failure> {
    let signals = signals.listen()?;
    let link = Link::new(guard, settings.timing.margin())?;
    let worker = tokio::select! {
        worker = connect(&settings, &link) => worker.inspect_err(|_| link.farewell())?,
        // A store that is waited for may never come.
        asked = asked_to_stop(&signals) => {
            link.farewell();
            return Ok(Exit::by_signal(asked.number));
        }
    };
    let (limit, began_at) = (settings.timing.ttl() / 3, Instant::now());
    let work = Work {
        settings: &settings,
        signals: &signals,
        link: &link,
        supervisor: Supervisor::find(),
        worker: worker.label(),
        began_at,
        standstill: Standstill::new(settings.timing.trust()),
        asked: Cell::new(None),
        gives_up: Cell::new(None),
        hurried: Notify::new(),
        is_queued: Notify::new(),
        refused: Cell::new(None),
        was_owner: Cell::new(false),
        waits: Cell::new(None),
        // At a terminal somebody wants to see that it has begun.
        is_news: Cell::new(std::io::stderr().is_terminal()),
        has_looked: Cell::new(false),
        present: Cell::new(None),
        started_at: Cell::new(None),
        ended: Cell::new(None),
    };
    work.supervisor.ready(&format!("competes for `{}`", settings.resource));
    let done = work.compete_again_and_again(&worker).await;
    work.supervisor.stopping();
    // The lease, too, at once; but whoever waits for our end does not wait for a store that does not answer.
    worker.shutdown_within(limit).await;
    link.farewell();
    match (done, work.gives_up.get(), work.asked.get()) {
        (Ok(Outcome::Ended(status) | Outcome::Stopped(status)), ..) => Ok(Exit::of(status)),
        (Ok(Outcome::Done(exit)), ..) => Ok(exit),
        (Ok(Outcome::NotRun(exit, failure)), ..) => {
            output::failed(&failure);
            Ok(exit)
        }
        (Ok(Outcome::Unguarded(lost)), ..) => Err(lost.into()),
        (Err(_), Some(exit), _) => Ok(exit),
        (Err(_), None, Some(asked)) => {
            Ok(work.ended.get().map_or_else(|| Exit::by_signal(asked.number), Exit::of))
        }
        (Err(error), None, None) => Err(error.into()),
    }
}

async fn connect(settings: &settings::Run, link: &Link) -> Result<Worker, Failure> {
    settings.place.make_folder()?;
    let connect = async || {
        let builder = Worker::builder(settings.place.url());
        let mut builder = builder.namespace(settings.namespace.as_str()).timing(settings.timing);
        builder = builder.guarded_by(link.page().clone());
        if let Some(label) = &settings.label {
            builder = builder.label(label.as_str());
        }
        if let Some(metadata) = &settings.metadata {
            builder = builder.metadata(metadata.as_str());
        }
        builder.connect().await
    };
    patiently(&settings.place, settings.waits_for_store, connect).await
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

/// How the work came to its end.
enum Outcome {
    /// The command ended by itself.
    Ended(ExitStatus),
    /// The ownership ended, and then the command, which was told to.
    Stopped(ExitStatus),
    /// It never began.
    NotRun(Exit, Failure),
    /// There is no guard any more.
    Unguarded(GuardLost),
    /// There is nothing left to do, and the code is this.
    Done(Exit),
}

/// What the command is run with, and what has happened to it.
struct Work<'a> {
    settings: &'a settings::Run,
    signals: &'a Listening,
    link: &'a Link,
    supervisor: Supervisor,
    worker: &'a str,
    began_at: Instant,
    standstill: Standstill,
    /// The first signal that asked us to stop. Of those that follow only SIGINT asks for more.
    asked: Cell<Option<Caught>>,
    /// What to end with because of a loss, if there was one and it is to be the end.
    gives_up: Cell<Option<Exit>>,
    /// Rung when the command is to be killed at once.
    hurried: Notify,
    /// Rung when the store has answered that there is no ticket for us now.
    is_queued: Notify,
    /// What it answered then, and when.
    refused: Cell<Option<(Instant, Waiting)>>,
    /// Whether it ever owned.
    was_owner: Cell<bool>,
    /// Why it waits, as people were told.
    waits: Cell<Option<Why>>,
    /// Whether they want to know of the next ownership: they sit at a terminal, it was waited for, or the one before was lost.
    is_news: Cell<bool>,
    /// Whether it has looked at those who compete with it.
    has_looked: Cell<bool>,
    /// The ownership whose end people were not told yet.
    present: Cell<Option<Grant>>,
    /// When the latest command was started.
    started_at: Cell<Option<Instant>>,
    /// How the latest command ended; after a signal only what ended since then.
    ended: Cell<Option<ExitStatus>>,
}

impl Work<'_> {
    /// Competes; and again, after a pause, when the command has ended by itself and is to be run again.
    async fn compete_again_and_again(&self, worker: &Worker) -> Result<Outcome, tenure::Error> {
        let mut pause = FIRST_PAUSE / 2;
        loop {
            let done = self.compete(worker).await?;
            // One that ran for long enough starts anew.
            let ran_for = self.started_at.get().map_or(Duration::ZERO, |at| at.elapsed());
            pause = if ran_for > pause * 10 { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            let is_over = self.asked.get().is_some() || self.gives_up.get().is_some();
            let exit = match done {
                Outcome::Ended(status) if !is_over && self.is_to_restart(status) => Exit::of(status),
                done => return Ok(done),
            };
            output::restarting(&self.settings.program.to_string_lossy(), exit, pause);
            self.supervisor.status(&format!("pauses: the command ended with {exit}"));
            if let Some(ended) = self.pause(pause).await {
                return Ok(Outcome::Ended(ended));
            }
        }
    }

    /// Competes until the work has come to its own end.
    async fn compete(&self, worker: &Worker) -> Result<Outcome, tenure::Error> {
        match &self.settings.duty {
            Duty::Command => self.serve(worker).await,
            Duty::Cron(cron) => self.keep_time(worker, cron).await,
            Duty::Once { name, goes_on } => self.do_once(worker, name, *goes_on).await,
        }
    }

    async fn serve(&self, worker: &Worker) -> Result<Outcome, tenure::Error> {
        let mut campaign = worker
            .campaign(self.settings.resource.as_str())
            .tickets(self.settings.tickets.count())
            .priority(self.settings.priority);
        let changes = campaign.changes();
        self.see_through(worker, changes, campaign.run(async |own| self.under(&own, Vec::new()).await)).await
    }

    /// Sees a campaign through until it has come to its end, a signal asks to stop, or the first ownership is too long in
    /// coming.
    async fn see_through(
        &self,
        worker: &Worker,
        mut changes: Changes,
        run: impl Future<Output = Result<Outcome, tenure::Error>>,
    ) -> Result<Outcome, tenure::Error> {
        let mut run = std::pin::pin!(run);
        let (mut watch, mut patience) =
            (std::pin::pin!(self.standstill.watch()), std::pin::pin!(self.patience()));
        let mut guard = std::pin::pin!(self.link.is_dead());
        let shut_down = || {
            let worker = worker.clone();
            // The work is told by its ownership; `run` ends when all is done.
            tokio::spawn(async move { worker.shutdown().await });
        };
        loop {
            tokio::select! {
                biased;
                // First, so that people read that it was lost before they read what followed.
                Some(change) = changes.next() => {
                    if self.tell(change) {
                        shut_down();
                    }
                }
                done = &mut run => return done,
                signal = self.signals.next() => {
                    if self.take(signal) {
                        shut_down();
                    }
                }
                lost = &mut guard => return Ok(Outcome::Unguarded(lost)),
                () = &mut watch => {}
                over = &mut patience, if self.is_without_luck() => {
                    // `run` came before it, and may have begun to work just now.
                    if self.is_without_luck() {
                        return Ok(over);
                    }
                }
            }
        }
    }

    /// It has come so far; people are told if they waited for it.
    fn owns(&self, term: u64) {
        self.was_owner.set(true);
        self.waits.set(None);
        if self.is_news.replace(false) {
            output::owns(self.settings.resource.as_str(), term);
        }
    }

    /// Waits until the first ownership is too long in coming; for ever if it may take for ever.
    async fn patience(&self) -> Outcome {
        let Some(wait) = self.settings.wait else { return std::future::pending().await };
        let (resource, place) = (&self.settings.resource, &self.settings.place);
        sleep_until(self.began_at + wait).await;
        // At least one answer: else no time at all would always be too short.
        if timeout(self.settings.timing.ttl() / 3, self.is_queued.notified()).await.is_err() {
            let what = format!("cannot tell whether `{resource}` is free: no answer from `{place}`");
            return Outcome::NotRun(Exit::FAILED, Failure::new(what));
        }
        let refused = self.refused.get().filter(|(_, waiting)| waiting.why == Why::Quarantine);
        let what = match wait.is_zero() {
            _ if refused.is_none() && matches!(self.settings.duty, Duty::Once { .. }) => {
                format!(
                    "another one is at `{resource}` on `{place}`, and has not done it within {}",
                    output::span(wait)
                )
            }
            true => format!("no ticket of `{resource}` is free on `{place}`"),
            false => format!("got no ticket of `{resource}` on `{place}` within {}", output::span(wait)),
        };
        let what = match refused {
            Some((at, waiting)) => {
                let look_again = waiting.look_again.saturating_sub(at.elapsed());
                format!("{what}: {}", output::why(Waiting { look_again, ..waiting }))
            }
            None => what,
        };
        Outcome::NotRun(Exit::NOT_ELECTED, Failure::new(what))
    }

    /// Whether it never owned, and still wants to.
    fn is_without_luck(&self) -> bool {
        !self.was_owner.get() && self.asked.get().is_none()
    }

    fn is_to_restart(&self, status: ExitStatus) -> bool {
        match self.settings.restart {
            Restart::Never => false,
            Restart::OnFailure => !status.success(),
            Restart::Always => true,
        }
    }

    /// Waits. If somebody wants us to stop meanwhile, it says how the command had ended.
    async fn pause(&self, span: Duration) -> Option<ExitStatus> {
        let ended = self.ended.get();
        let mut over = std::pin::pin!(sleep(span));
        loop {
            tokio::select! {
                () = &mut over => return None,
                signal = self.signals.next() => {
                    if self.take(signal) {
                        return ended.or(Some(ExitStatus::default()));
                    }
                }
            }
        }
    }

    /// A signal is for us, or for the command. Says whether somebody wants us to stop, and that is new.
    fn take(&self, signal: Caught) -> bool {
        if !signal.asks_to_stop {
            // What the terminal sent the command has got already.
            if !signal.from_terminal {
                self.link.pass_on(signal.number);
            }
            return false;
        }
        let is_first = self.asked.get().is_none();
        if is_first {
            self.asked.set(Some(signal));
            self.ended.set(None);
            self.supervisor.stopping();
        } else if signal.number == libc::SIGINT {
            self.hurried.notify_one();
        }
        is_first
    }

    /// Says, once, that the ownership has ended and why.
    fn tell_ending(&self, ending: Ending) {
        let (timing, resource) = (&self.settings.timing, self.settings.resource.as_str());
        if let Some(grant) = self.present.take() {
            let silence = self.standstill.just_now().map_or(Silence::Store(timing.trust()), Silence::Ours);
            output::ending(resource, grant.term.0, ending, &self.settings.place, silence);
            self.is_news.set(true);
        }
    }

    /// Says what happens; of a wait only once why. Whether this is to be the end, and that is new.
    fn tell(&self, change: Change) -> bool {
        match change {
            Change::Acquired(grant) => {
                self.was_owner.set(true);
                self.present.set(Some(grant));
                // The only owner of the only ticket has nobody beside it; who waits will look.
                if self.settings.tickets.count() > 1 || grant.ticket.0 > 0 {
                    self.look_around();
                }
                // Its first command may be a long time off.
                if let Duty::Cron(_) = self.settings.duty {
                    self.owns(grant.term.0);
                    self.supervisor
                        .status(&format!("owns `{}` (term {})", self.settings.resource, grant.term.0));
                }
            }
            Change::Ended(_, ending) => {
                self.tell_ending(ending);
                return self.is_end(ending) && self.gives_up.replace(Some(Exit::LOST)).is_none();
            }
            Change::Waiting(waiting) => {
                self.look_around();
                self.refused.set(Some((Instant::now(), waiting)));
                self.is_queued.notify_one();
                self.supervisor.status(&format!("waits for `{}`", self.settings.resource));
                // Not at all if it never wanted to wait.
                let waits = self.was_owner.get() || !self.goes_on_when(waiting.why);
                let why = Some(waiting.why).filter(|why| *why != Why::Turn);
                if waits && why.is_some() && self.waits.replace(why) != why {
                    self.is_news.set(true);
                    output::waiting(self.settings.resource.as_str(), &self.settings.place, waiting);
                }
            }
            _ => {}
        }
        false
    }

    /// Whether it does not wait for its first ownership, for this reason.
    fn goes_on_when(&self, why: Why) -> bool {
        let goes_on = matches!(self.settings.duty, Duty::Once { goes_on: true, .. });
        self.settings.wait.is_some_and(|wait| wait.is_zero()) || (goes_on && why == Why::Taken)
    }

    /// Once.
    fn look_around(&self) {
        if !self.has_looked.replace(true) {
            neighbours::look(self.settings, self.worker);
        }
    }

    /// Whether such an end of an ownership is the end of `tenure`.
    fn is_end(&self, ending: Ending) -> bool {
        match self.settings.again {
            _ if matches!(ending, Ending::Left | Ending::Finished) => false,
            Again::Always => false,
            Again::AfterHandOver => !ending.is_gentle(),
            Again::Never => true,
        }
    }
}
