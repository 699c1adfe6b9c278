//! `tenure run`: competes, runs the command only while it owns a ticket, competes again after a loss.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::process::{Command, ExitStatus};

use tenure::{Change, Ending, Grant, Ownership, Why, Worker};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::exit::{Exit, Failure};
use crate::output::{self, Silence};
use crate::place;
use crate::process::{Caught, Killing, Listening, Running, Signals};
use crate::settings;
use crate::standstill::Standstill;

/// Runs the command until it ends by itself, or somebody stops `tenure`.
pub(crate) async fn run(settings: settings::Run, signals: Signals) -> Result<Exit, Failure> {
    let (signals, began_at) = (signals.listen()?, Instant::now());
    let worker = connect(&settings).await?;
    let limit = settings.timing.ttl() / 3;
    let work = Work {
        settings: &settings,
        signals: &signals,
        worker: worker.label(),
        began_at,
        standstill: Standstill::new(settings.timing.trust()),
        asked: Cell::new(None),
        hurried: Notify::new(),
        is_queued: Notify::new(),
        was_owner: Cell::new(false),
        waits: Cell::new(false),
        is_news: Cell::new(false),
        present: Cell::new(None),
        ended: Cell::new(None),
    };
    let done = compete(&worker, &work).await;
    // The lease, too, at once; but whoever waits for our end does not wait for a store that does not answer.
    worker.shutdown_within(limit).await;
    match (done, work.asked.get()) {
        (Ok(Outcome::Ended(status)), _) => Ok(Exit::of(status)),
        (Ok(Outcome::NotRun(exit, failure)), _) => {
            output::failed(&failure);
            Ok(exit)
        }
        (Err(_), Some(asked)) => Ok(work.ended.get().map_or_else(|| Exit::by_signal(asked.number), Exit::of)),
        (Err(error), None) => Err(error.into()),
    }
}

async fn connect(settings: &settings::Run) -> Result<Worker, Failure> {
    settings.place.make_folder()?;
    let mut builder =
        Worker::builder(settings.place.url()).namespace(settings.namespace.as_str()).timing(settings.timing);
    if let Some(label) = &settings.label {
        builder = builder.label(label.as_str());
    }
    builder.connect().await.map_err(|error| settings.place.cannot_open(error))
}

/// Competes until the work has come to its own end, a signal asks to stop, or the first ownership is too long in
/// coming.
async fn compete(worker: &Worker, work: &Work<'_>) -> Result<Outcome, tenure::Error> {
    let mut campaign =
        worker.campaign(work.settings.resource.as_str()).tickets(work.settings.tickets.count());
    let mut changes = campaign.changes();
    let mut run = std::pin::pin!(campaign.run(async |own| work.under(own).await));
    let (mut watch, mut patience) =
        (std::pin::pin!(work.standstill.watch()), std::pin::pin!(work.patience()));
    loop {
        tokio::select! {
            biased;
            // First, so that people read that it was lost before they read what followed.
            Some(change) = changes.next() => work.tell(change),
            done = &mut run => return done,
            signal = work.signals.next() => {
                if work.stop(signal) {
                    let worker = worker.clone();
                    // The work is told by its ownership; `run` ends when all is done.
                    tokio::spawn(async move { worker.shutdown().await });
                }
            }
            () = &mut watch => {}
            over = &mut patience, if work.is_without_luck() => {
                // `run` came before it, and may have begun to work just now.
                if work.is_without_luck() {
                    return Ok(over);
                }
            }
        }
    }
}

/// How the work came to its own end.
enum Outcome {
    Ended(ExitStatus),
    /// It never began.
    NotRun(Exit, Failure),
}

/// What the command is run with, and what has happened to it.
struct Work<'a> {
    settings: &'a settings::Run,
    signals: &'a Listening,
    worker: &'a str,
    began_at: Instant,
    standstill: Standstill,
    /// The first signal that asked us to stop. Of those that follow only SIGINT asks for more.
    asked: Cell<Option<Caught>>,
    /// Rung when the command is to be killed at once.
    hurried: Notify,
    /// Rung when the store has answered that there is no ticket for us now.
    is_queued: Notify,
    /// Whether it ever owned.
    was_owner: Cell<bool>,
    /// Whether people were told that it waits.
    waits: Cell<bool>,
    /// Whether they want to know of the next ownership: it was waited for, or the one before was lost.
    is_news: Cell<bool>,
    /// The ownership whose end people were not told yet.
    present: Cell<Option<Grant>>,
    /// How the latest command ended; after a signal only what ended since then.
    ended: Cell<Option<ExitStatus>>,
}

impl Work<'_> {
    /// Runs the command under one ownership. Being dropped, at the harder stop, kills it and waits for its end.
    async fn under(&self, own: Ownership) -> Outcome {
        let (resource, term) = (self.settings.resource.as_str(), own.term());
        self.was_owner.set(true);
        self.waits.set(false);
        if self.is_news.replace(false) {
            output::owns(resource, term);
        }
        // Without the lock the command could be taken for dead while it lives.
        let lock = match own.lock().await {
            Ok(lock) => lock,
            Err(error) => return Outcome::NotRun(Exit::FAILED, error.into()),
        };
        let running = Running::start(self.command(&own), lock, self.signals, &self.ended);
        let mut running = match running {
            Ok(running) => running,
            Err(error) => return cannot_run(&self.settings.program, &error),
        };
        let ending = tokio::select! {
            biased;
            ended = running.ended() => return ended_by_itself(ended),
            ending = own.lost() => ending,
        };
        self.stop_command(&mut running, &own, ending);
        tokio::select! {
            biased;
            ended = running.ended() => return ended_by_itself(ended),
            () = self.hurried.notified() => running.kill(Killing::Hurried),
        }
        // After a loss, as this is, nobody asks for the outcome.
        ended_by_itself(self.ended.get().ok_or_else(|| io::ErrorKind::NotFound.into()))
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
        let what = match wait.is_zero() {
            true => format!("no ticket of `{resource}` is free on `{place}`"),
            false => format!("got no ticket of `{resource}` on `{place}` within {}", output::span(wait)),
        };
        Outcome::NotRun(Exit::NOT_ELECTED, Failure::new(what))
    }

    /// Whether it never owned, and still wants to.
    fn is_without_luck(&self) -> bool {
        !self.was_owner.get() && self.asked.get().is_none()
    }

    /// The first stop. The harder one is the library's to time: it drops the work.
    fn stop_command(&self, running: &mut Running<'_>, own: &Ownership, ending: Ending) {
        let timing = &self.settings.timing;
        self.tell_ending(ending);
        let limit = match ending {
            // Half of the margin is counted from the end of the trust, which may be a while ago.
            Ending::Expired => own.remaining().saturating_sub(timing.margin() / 2),
            ending if ending.is_gentle() => timing.grace(),
            _ => timing.margin() / 2,
        };
        let asked = self.asked.get().filter(|_| ending == Ending::Left);
        running.has(limit);
        if limit.is_zero() {
            return;
        }
        // What the terminal sent the command has got already.
        if asked.is_none_or(|asked| !asked.from_terminal) {
            running.signal(asked.map_or(libc::SIGTERM, |asked| asked.number));
        }
        output::stopping(running.name(), running.pid(), limit, asked);
        output::hint_on(ending, timing.trust(), timing.ttl());
    }

    fn command(&self, own: &Ownership) -> Command {
        let mut command = Command::new(&self.settings.program);
        command
            .args(&self.settings.arguments)
            .env_remove(place::VARIABLE)
            .env("TENURE_RESOURCE", own.resource().as_str())
            .env("TENURE_TICKET", own.ticket().to_string())
            .env("TENURE_TERM", own.term().to_string())
            .env("TENURE_TOKEN", own.token().to_string())
            .env("TENURE_WORKER", self.worker);
        command
    }

    /// Somebody wants us to stop. Says whether that is new.
    fn stop(&self, signal: Caught) -> bool {
        let is_first = self.asked.get().is_none();
        if is_first {
            self.asked.set(Some(signal));
            self.ended.set(None);
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

    /// Says what happens; of a wait only once why.
    fn tell(&self, change: Change) {
        match change {
            Change::Acquired(grant) => self.present.set(Some(grant)),
            Change::Ended(_, ending) => self.tell_ending(ending),
            Change::Waiting(waiting) => {
                self.is_queued.notify_one();
                // Not at all if it never wanted to wait.
                let waits = self.was_owner.get() || self.settings.wait.is_none_or(|wait| !wait.is_zero());
                if waits && waiting.why != Why::Turn && !self.waits.replace(true) {
                    self.is_news.set(true);
                    output::waiting(self.settings.resource.as_str(), &self.settings.place, waiting);
                }
            }
            _ => {}
        }
    }
}

fn ended_by_itself(ended: io::Result<ExitStatus>) -> Outcome {
    match ended {
        Ok(status) => Outcome::Ended(status),
        Err(error) => {
            let failure = Failure::new("cannot tell how the command ended").because(&error);
            Outcome::NotRun(Exit::FAILED, failure)
        }
    }
}

fn cannot_run(program: &OsStr, error: &io::Error) -> Outcome {
    let exit = match error.raw_os_error() {
        Some(libc::ENOENT) => Exit::NOT_FOUND,
        // Not the command's fault: no process, memory or descriptor was to be had.
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ESRCH) => Exit::FAILED,
        _ => Exit::CANNOT_RUN,
    };
    let what = format!("cannot run `{}`", program.to_string_lossy());
    Outcome::NotRun(exit, Failure::new(what).because(error))
}
