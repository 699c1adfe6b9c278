//! Prints what the library reports of the store and of other workers, beside what `run`, `cron` and `once` say themselves. The
//! same line is printed once in a while, not at every attempt.

use std::collections::HashMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use tenure::store::StoreChange;
use tenure::{Change, Event};

use crate::output::{same_label, say, say_with_hint};

/// For so long the same line is not printed again.
const QUIET: Duration = Duration::from_secs(30);
/// How many lines are remembered. Then all are forgotten.
const REMEMBERED: usize = 64;

/// Does the work, and meanwhile prints the events.
pub(crate) async fn tell_while<T>(work: impl Future<Output = T>) -> T {
    let (mut events, mut work) = (tenure::events(), pin!(work));
    let mut said = Said::default();
    let mut done = None;
    loop {
        tokio::select! {
            // First, so that people read why before they read what followed.
            biased;
            Some(event) = events.next() => said.tell(&event),
            ended = &mut work, if done.is_none() => done = Some(ended),
            () = std::future::ready(()), if done.is_some() => {
                if let Some(done) = done.take() {
                    return done;
                }
            }
        }
    }
}

/// What was printed of the store, and when.
#[derive(Debug, Default)]
struct Said(HashMap<String, Instant>);

impl Said {
    fn tell(&mut self, event: &Event) {
        match event {
            Event::Campaign { resource, change: Change::Flapping { .. }, .. } => {
                say(format!("`{resource}` changes its owner too often"));
            }
            Event::Campaign { resource, change: Change::TicketsChanged { tickets, asked }, .. } => {
                let what = format!("`{resource}` has {tickets} tickets, this worker asked for {asked}");
                say(format!("{what}: the worker that joined last decides"));
            }
            Event::Campaign { worker, resource, change: Change::DuplicateLabel } => {
                same_label(resource.as_str(), worker.as_str());
            }
            Event::OnceInterrupted { resource, .. } => say(format!("`{resource}` was interrupted")),
            Event::Store { resource, change, .. } => {
                let about = resource.as_ref().map(|resource| format!("`{resource}`: ")).unwrap_or_default();
                let line = line(change).map(|line| format!("{about}{line}"));
                if let Some(line) = line.filter(|line| self.is_news(change, line, Instant::now())) {
                    let hint = match change {
                        StoreChange::Warned(warning) => Some(warning.hint.as_str()),
                        _ => None,
                    };
                    say_with_hint(line, hint.filter(|hint| !hint.is_empty()));
                }
            }
            Event::Panicked { what } => say(format!("an internal error: {what}")),
            _ => {}
        }
    }

    /// Whether a line is news; from now on it is not.
    fn is_news(&mut self, change: &StoreChange, line: &str, now: Instant) -> bool {
        // The same cause makes the same trouble, whatever was tried.
        let same_as = match change.error() {
            Some((_, cause)) if !cause.is_empty() => format!("{change}: {cause}"),
            _ => line.to_owned(),
        };
        if self.0.get(&same_as).is_some_and(|at| now.duration_since(*at) < QUIET) {
            return false;
        }
        let is_recovery = matches!(change, StoreChange::Recovered | StoreChange::HintsRestored);
        if self.0.len() >= REMEMBERED || is_recovery {
            // What comes now is another trouble.
            self.0.clear();
        }
        self.0.insert(same_as, now);
        true
    }
}

/// Nothing for what the commands say themselves.
fn line(change: &StoreChange) -> Option<String> {
    match change {
        StoreChange::ForgotLease { .. }
        | StoreChange::ClockWatched { .. }
        | StoreChange::Quarantine { .. }
        | StoreChange::QuarantineOver
        | StoreChange::MessagesLost { .. } => None,
        change => Some(match change.error() {
            Some((error, "")) => format!("{change}: {error}"),
            Some((error, cause)) => format!("{change}: {error}: {cause}"),
            None => change.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(error: &str, cause: &str) -> StoreChange {
        StoreChange::Failed { call: "renew", error: error.into(), cause: cause.into() }
    }

    fn is_news(said: &mut Said, change: &StoreChange, now: Instant) -> bool {
        said.is_news(change, &line(change).expect("it is printed"), now)
    }

    #[test]
    fn the_same_cause_is_printed_again_only_after_a_while() {
        let (mut said, began) = (Said::default(), Instant::now());
        let (renew, open) = (failed("cannot renew", "no such file"), failed("cannot open", "no such file"));

        assert!(is_news(&mut said, &renew, began));
        assert!(!is_news(&mut said, &open, began + QUIET / 2));
        assert!(is_news(&mut said, &failed("cannot renew", "not allowed"), began + QUIET / 2));
        assert!(is_news(&mut said, &open, began + QUIET));
        assert!(is_news(&mut said, &failed("cannot open", ""), began));
        assert!(is_news(&mut said, &failed("cannot renew", ""), began));
    }

    #[test]
    fn after_a_recovery_a_trouble_is_news_again_and_a_recovery_is_not() {
        let (mut said, began) = (Said::default(), Instant::now());
        let full = failed("cannot renew", "the disk is full");
        assert!(is_news(&mut said, &full, began) && is_news(&mut said, &StoreChange::Recovered, began));

        assert!(is_news(&mut said, &full, began));
        assert!(!is_news(&mut said, &StoreChange::Recovered, began));
    }

    #[test]
    fn a_line_has_the_error_and_its_cause_and_what_the_commands_say_is_left_to_them() {
        let text = line(&failed("cannot renew at `redis://cache`", "connection reset"));
        let expected = "store request failed: cannot renew at `redis://cache`: connection reset";
        assert_eq!(text.as_deref(), Some(expected));

        assert_eq!(line(&StoreChange::Quarantine { left: Duration::from_secs(1) }), None);
    }
}
