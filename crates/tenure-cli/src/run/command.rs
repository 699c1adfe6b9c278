//! One command under one ownership: started by the guard, stopped when the ownership ends.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use tenure::{EndReason, Lead};
use tokio::time::Instant;

use super::state::{Event, State};
use super::{Outcome, Work, words};
use crate::exit::{Exit, Failure};
use crate::guard::client::{Begun, Running};
use crate::output::say_with_hint;
use crate::process::Killing;

impl Work<'_> {
    /// Runs the command under one ownership, with `more` in its environment. Being dropped, at the harder stop, kills it and
    /// waits for its end.
    pub(super) async fn under(&self, lead: &Lead, more: Vec<(String, String)>) -> Outcome {
        let (resource, term) = (self.settings.resource.as_str(), lead.term());
        self.handle(Event::Began(term));
        // Before the ownership is looked at: as long as that holds its lease is this one.
        let lease = self.guard.page().look().number();
        if !lead.holds() {
            lead.lost().await;
            return not_begun();
        }
        // Without the lock the command could be taken for dead while it lives.
        let lock = match lead.lock().await {
            Ok(lock) => lock,
            Err(_) if !lead.holds() => {
                lead.lost().await;
                return not_begun();
            }
            Err(error) => return Outcome::NotRun(error.into()),
        };
        let note_end = |status| self.handle(Event::CommandEnded(status));
        let variables = self.variables(lead, more);
        let mut running = match Running::start(self.guard, lease, variables, lock, &note_end).await {
            Ok(Begun::Running(running)) => running,
            Ok(Begun::NotRun(error)) => return cannot_run(&self.settings.program, &error),
            Ok(Begun::Refused) => {
                lead.lost().await;
                return not_begun();
            }
            Err(lost) => return Outcome::Unguarded(lost),
        };
        let started_at = Instant::now();
        let status = format!("owns `{resource}` (term {term}); runs pid {}", running.pid());
        self.supervisor.status(&status);
        let ending = tokio::select! {
            biased;
            ended = running.ended() => return match ended {
                Ok(status) => Outcome::Ended { status, ran_for: started_at.elapsed() },
                Err(lost) => Outcome::Unguarded(lost),
            },
            ending = lead.lost() => ending,
        };
        self.stop_command(&mut running, lead, ending);
        let mut states = self.state.subscribe();
        tokio::select! {
            biased;
            ended = running.ended() => ended.map_or_else(Outcome::Unguarded, Outcome::Stopped),
            // The state is let go of before it can change again.
            _ = async { states.wait_for(State::is_hurried).await.map(drop) } => {
                Outcome::Stopped(running.kill(Killing::Hurried).unwrap_or(ExitStatus::from_raw(libc::SIGKILL)))
            }
        }
    }

    /// The first stop. The harder one is the library's to time: it drops the work.
    fn stop_command(&self, running: &mut Running<'_>, lead: &Lead, ending: EndReason) {
        let timing = &self.settings.timing;
        self.handle(Event::Ended(ending));
        let limit = match ending {
            // Half of the margin is counted from the end of the trust, which may be a while ago.
            EndReason::Expired => lead.remaining().saturating_sub(timing.margin() / 2),
            ending if ending.is_gentle() => timing.grace(),
            _ => timing.margin() / 2,
        };
        let asked = self.state().asked().filter(|_| ending == EndReason::Left);
        running.has(limit);
        if limit.is_zero() {
            return;
        }
        match asked {
            _ if !ending.is_gentle() => running.lose(),
            // What the terminal sent the command has got already, unless it has gone to a group of its lead.
            Some(asked) if asked.from_terminal && running.is_in_our_group() => {}
            Some(asked) => running.signal(asked.number),
            None => running.signal(libc::SIGTERM),
        }
        let advice = words::advice(ending, timing.trust(), timing.ttl());
        say_with_hint(words::stopping(running.name(), running.pid(), limit, asked), advice.as_deref());
    }

    fn variables(&self, lead: &Lead, more: Vec<(String, String)>) -> Vec<(String, String)> {
        let told = [
            ("TENURE_RESOURCE", lead.resource().as_str().to_owned()),
            ("TENURE_TICKET", lead.ticket().to_string()),
            ("TENURE_TERM", lead.term().to_string()),
            ("TENURE_TOKEN", lead.token().to_string()),
            ("TENURE_WORKER", self.worker.label().to_owned()),
        ];
        told.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(more).collect()
    }
}

/// It was stopped before anything of it ran.
fn not_begun() -> Outcome {
    // As if it had died of it; after a loss, as this is, hardly anybody asks.
    Outcome::Stopped(ExitStatus::from_raw(libc::SIGTERM))
}

fn cannot_run(program: &OsStr, error: &io::Error) -> Outcome {
    let exit = match error.raw_os_error() {
        Some(libc::ENOENT) => Exit::NOT_FOUND,
        // Not the command's fault: no process, memory or descriptor was to be had.
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ESRCH) => Exit::FAILED,
        _ => Exit::CANNOT_RUN,
    };
    let what = format!("cannot run `{}`", program.to_string_lossy());
    Outcome::NotRun(Failure::new(what).because(error).with_exit(exit))
}
