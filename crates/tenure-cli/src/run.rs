//! `tenure run`: competes, runs the command only while it owns a ticket, competes again after a loss.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::process::{Command, ExitStatus};

use tenure::{Change, Ending, Grant, Ownership, Why, Worker};

use crate::exit::{Exit, Failure};
use crate::output;
use crate::place;
use crate::process::{Caught, Listening, Running, Signals};
use crate::settings;

/// Runs the command until it ends by itself, or somebody stops `tenure`.
pub(crate) async fn run(settings: settings::Run, signals: Signals) -> Result<Exit, Failure> {
    let signals = signals.listen()?;
    let worker = connect(&settings).await?;
    let limit = settings.timing.ttl() / 3;
    let work = Work {
        settings: &settings,
        signals: &signals,
        worker: worker.label(),
        asked: Cell::new(None),
        waits: Cell::new(false),
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

/// Competes until the work has come to its own end, or a signal asks to stop.
async fn compete(worker: &Worker, work: &Work<'_>) -> Result<Outcome, tenure::Error> {
    let mut campaign =
        worker.campaign(work.settings.resource.as_str()).tickets(work.settings.tickets.count());
    let mut changes = campaign.changes();
    let mut run = std::pin::pin!(campaign.run(async |own| work.under(own).await));
    loop {
        tokio::select! {
            biased;
            // First, so that people read that it was lost before they read what followed.
            Some(change) = changes.next() => work.tell(change),
            done = &mut run => return done,
            asked = work.signals.next(), if work.asked.get().is_none() => {
                work.stop(asked);
                let worker = worker.clone();
                // The work is told by its ownership; `run` ends when all is done.
                tokio::spawn(async move { worker.shutdown().await });
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
    /// The first signal that asked us to stop. More of them ask for nothing more.
    asked: Cell<Option<Caught>>,
    /// Whether people were told that it waits.
    waits: Cell<bool>,
    /// The ownership whose end people were not told yet.
    present: Cell<Option<Grant>>,
    /// How the latest command ended; after a signal only what ended since then.
    ended: Cell<Option<ExitStatus>>,
}

impl Work<'_> {
    /// Runs the command under one ownership. Being dropped, at the harder stop, kills it and waits for its end.
    async fn under(&self, own: Ownership) -> Outcome {
        let (resource, term) = (self.settings.resource.as_str(), own.term());
        if self.waits.replace(false) {
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
        self.stop_command(&running, &own, ending);
        ended_by_itself(running.ended().await)
    }

    /// The first stop. The harder one is the library's to time: it drops the work.
    fn stop_command(&self, running: &Running<'_>, own: &Ownership, ending: Ending) {
        let timing = &self.settings.timing;
        self.tell_ending(ending);
        let limit = match ending {
            // Half of the margin is counted from the end of the trust, which may be a while ago.
            Ending::Expired => own.remaining().saturating_sub(timing.margin() / 2),
            ending if ending.is_gentle() => timing.grace(),
            _ => timing.margin() / 2,
        };
        let asked = self.asked.get().filter(|_| ending == Ending::Left);
        if asked.is_none_or(|asked| !asked.from_terminal) {
            running.signal(asked.map_or(libc::SIGTERM, |asked| asked.number));
            output::stopping(running.name(), running.pid(), limit, asked);
        }
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

    /// Somebody wants us to stop.
    fn stop(&self, asked: Caught) {
        self.asked.set(Some(asked));
        self.ended.set(None);
    }

    /// Says, once, that the ownership has ended and why.
    fn tell_ending(&self, ending: Ending) {
        let (timing, resource) = (&self.settings.timing, self.settings.resource.as_str());
        if let Some(grant) = self.present.take() {
            output::ending(resource, grant.term.0, ending, &self.settings.place, timing.trust());
        }
    }

    /// Says what happens; of a wait only once why.
    fn tell(&self, change: Change) {
        match change {
            Change::Acquired(grant) => self.present.set(Some(grant)),
            Change::Ended(_, ending) => self.tell_ending(ending),
            Change::Waiting(waiting) if waiting.why != Why::Turn && !self.waits.replace(true) => {
                output::waiting(self.settings.resource.as_str(), self.settings.tickets.count(), waiting);
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
