//! What the library tells of the store, for people: it does not answer, answers again, is not as safe as it could be. The
//! same thing is said once in a while, not at every attempt.

use std::collections::HashMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use tenure::store::StoreChange;
use tenure::{Change, Event};

use crate::output;

/// For so long nothing is said again.
const QUIET: Duration = Duration::from_secs(30);
/// So many different things are remembered; after that it starts anew.
const REMEMBERED: usize = 64;

/// Does the work, and meanwhile says what is told of this store.
pub(crate) async fn tell_while<T>(store: String, work: impl Future<Output = T>) -> T {
    let (mut events, mut work) = (tenure::events(), pin!(work));
    let mut said = Said::default();
    let mut say = |event: &Event| {
        if let Some(line) = Line::of(event, &store)
            && said.is_news(&line, Instant::now())
        {
            output::trouble(&line.text, line.hint.as_deref());
        }
    };
    let done = loop {
        tokio::select! {
            // First, so that people read why before they read what followed.
            biased;
            Some(event) = events.next() => say(&event),
            done = &mut work => break done,
        }
    };
    // What was told while it came to its end.
    loop {
        tokio::select! {
            biased;
            Some(event) = events.next() => say(&event),
            () = std::future::ready(()) => return done,
        }
    }
}

/// One line for people.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    text: String,
    hint: Option<String>,
    /// What makes it the same as another: its cause, whatever was tried meanwhile; without one, all that it says.
    same_as: String,
    /// After it every trouble is news again.
    is_recovery: bool,
}

impl Line {
    /// Nothing for what `run`, `cron` and `once` say themselves.
    fn of(event: &Event, store: &str) -> Option<Self> {
        match event {
            Event::Campaign { resource, change: Change::Flapping { .. }, .. } => {
                Some(Self::plain(format!("`{resource}` changes its owner too often")))
            }
            Event::OnceInterrupted { resource, .. } => {
                Some(Self::plain(format!("`{resource}` was interrupted")))
            }
            Event::Store { resource, change, .. } => {
                let about = resource.as_ref().map(|resource| format!("`{resource}`: ")).unwrap_or_default();
                Self::of_store(&format!("{about}the store `{store}`"), change)
            }
            Event::Panicked { what } => Some(Self::plain(format!("an internal error: {what}"))),
            _ => None,
        }
    }

    fn of_store(store: &str, change: &StoreChange) -> Option<Self> {
        let line = match change {
            StoreChange::Failed { call: "job", error, cause } => {
                Self::because(&format!("{store} did not answer about a job"), error, cause)
            }
            StoreChange::Failed { error, cause, .. } => {
                Self::because(&format!("{store} did not answer as hoped"), error, cause)
            }
            StoreChange::Silent { .. } => Self::plain(format!("{store} did not answer in time")),
            StoreChange::Recovered => {
                Self { is_recovery: true, ..Self::plain(format!("{store} answers again")) }
            }
            StoreChange::Restarted => Self::plain(format!("{store} was restarted; confirming what is owned")),
            StoreChange::HintsLost { error, cause } => {
                let what = "does not tell when a ticket is free; this worker finds out by itself, up to a lease later";
                Self::because(&format!("{store} {what}"), error, cause)
            }
            StoreChange::HintsRestored => Self {
                is_recovery: true,
                ..Self::plain(format!("{store} tells again when a ticket is free"))
            },
            StoreChange::Warned(warning) => {
                let hint = Some(warning.hint.clone()).filter(|hint| !hint.is_empty());
                Self { hint, ..Self::plain(warning.what.clone()) }
            }
            StoreChange::Unreadable { error } => {
                Self::because(&format!("{store} has a record that cannot be read"), error, "")
            }
            _ => return None,
        };
        Some(line)
    }

    fn plain(text: String) -> Self {
        Self { same_as: text.clone(), text, hint: None, is_recovery: false }
    }

    fn because(what: &str, error: &str, cause: &str) -> Self {
        match cause {
            "" => Self::plain(format!("{what}: {error}")),
            cause => Self {
                same_as: format!("{what}: {cause}"),
                ..Self::plain(format!("{what}: {error}: {cause}"))
            },
        }
    }
}

/// What was said, and when.
#[derive(Debug, Default)]
struct Said(HashMap<String, Instant>);

impl Said {
    /// Whether it is news, and from now on it is not.
    fn is_news(&mut self, line: &Line, now: Instant) -> bool {
        if self.0.get(&line.same_as).is_some_and(|at| now.duration_since(*at) < QUIET) {
            return false;
        }
        if self.0.len() >= REMEMBERED || line.is_recovery {
            // What comes now is another trouble.
            self.0.clear();
        }
        self.0.insert(line.same_as.clone(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use tenure::types::ResourceName;

    use super::*;

    fn line(change: StoreChange) -> Line {
        line_about(None, change)
    }

    fn line_about(resource: Option<&str>, change: StoreChange) -> Line {
        let resource = resource.map(|name| ResourceName::new(name).expect("a name"));
        Line::of(&Event::Store { worker: None, resource, change }, "redis://cache").expect("it is said")
    }

    fn failed(call: &'static str, error: &str, cause: &str) -> StoreChange {
        StoreChange::Failed { call, error: error.into(), cause: cause.into() }
    }

    #[test]
    fn the_same_is_said_again_only_after_a_while() {
        let (mut said, began) = (Said::default(), Instant::now());
        let (full, gone) = (Line::plain("the disk is full".into()), Line::plain("the disk is gone".into()));

        assert!(said.is_news(&full, began) && said.is_news(&gone, began));
        assert!(!said.is_news(&full, began + QUIET / 2));
        assert!(said.is_news(&full, began + QUIET));
    }

    #[test]
    fn after_a_recovery_a_trouble_is_news_again_and_a_recovery_is_not() {
        let (mut said, began) = (Said::default(), Instant::now());
        let (full, recovered) = (Line::plain("the disk is full".into()), line(StoreChange::Recovered));
        assert!(said.is_news(&full, began) && said.is_news(&recovered, began));

        assert!(said.is_news(&full, began));
        assert!(!said.is_news(&recovered, began));
    }

    #[test]
    fn what_was_tried_makes_no_other_cause() {
        let same_as = |error: &str, cause: &str| line(failed("renew", error, cause)).same_as;

        assert_eq!(same_as("cannot renew", "no such file"), same_as("cannot open", "no such file"));
        assert_ne!(same_as("cannot renew", "no such file"), same_as("cannot renew", "not allowed"));
        assert_ne!(same_as("cannot renew", ""), same_as("cannot open", ""));
    }

    #[test]
    fn a_line_names_the_store_the_resource_the_error_and_its_cause() {
        let text = line(failed("renew", "cannot renew the lease", "connection reset")).text;
        let expected =
            "the store `redis://cache` did not answer as hoped: cannot renew the lease: connection reset";
        assert_eq!(text, expected);

        let text = line_about(Some("cron:x"), failed("job", "cannot ask", "")).text;
        assert_eq!(text, "`cron:x`: the store `redis://cache` did not answer about a job: cannot ask");
    }

    #[test]
    fn what_the_commands_say_themselves_is_left_to_them() {
        let resource = ResourceName::new("job").expect("a name");
        let lost = StoreChange::Quarantine { left: Duration::from_secs(1) };

        assert_eq!(Line::of(&Event::Store { worker: None, resource: None, change: lost }, "S"), None);
        assert_eq!(Line::of(&Event::OnceBegan { resource, attempt: 1 }, "S"), None);
    }
}
