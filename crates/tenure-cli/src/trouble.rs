//! What the library warns of, for people: the store cannot be opened, does not answer, is not as safe as it could be.
//! The same thing is said once in a while, not at every attempt.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::output;

/// For so long nothing is said again.
const QUIET: Duration = Duration::from_secs(30);
/// So many different things are remembered; after that it starts anew.
const REMEMBERED: usize = 64;
/// The field of what is told though it is no warning: that a trouble is over.
const RECOVERED: &str = "recovered";

/// Listens from now on, in all threads, to what is said of this store.
pub(crate) fn listen(store: String) {
    // Nobody else listens in this program.
    let _first = tracing::subscriber::set_global_default(Listener { store, ..Listener::default() });
}

#[derive(Default)]
struct Listener {
    /// As people may see it.
    store: String,
    said: Mutex<HashMap<String, Instant>>,
}

impl Listener {
    /// Whether it is news, and from now on it is not.
    fn is_news(&self, text: &str, now: Instant) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.get(text).is_some_and(|at| now.duration_since(*at) < QUIET) {
            return false;
        }
        if said.len() >= REMEMBERED {
            said.clear();
        }
        said.insert(text.to_owned(), now);
        true
    }

    /// What comes now is another trouble, and news.
    fn forget_all_but(&self, text: &str) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).retain(|said, _| said == text);
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_ours = metadata.target().split("::").next() == Some("tenure");
        let is_worth_it = *metadata.level() <= Level::WARN || metadata.fields().field(RECOVERED).is_some();
        is_ours && metadata.is_event() && is_worth_it
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn event(&self, event: &Event<'_>) {
        let mut told = Told::default();
        event.record(&mut told);
        if let Some(text) = told.text(&self.store)
            && self.is_news(&told.cause_or(&text), Instant::now())
        {
            output::trouble(&text, told.hint.as_deref());
            if told.is_recovery {
                self.forget_all_but(&text);
            }
        }
    }

    // No span is ever enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// What an event says, of that which people can use.
#[derive(Default)]
struct Told {
    message: String,
    resource: String,
    error: Option<String>,
    cause: Option<String>,
    hint: Option<String>,
    /// The end of an ownership, or a time of waiting: `run` tells both itself.
    is_told_elsewhere: bool,
    is_recovery: bool,
}

/// What `cron` tells itself, with the name of the job and the time.
const ABOUT_JOBS: [&str; 7] = [
    "was interrupted",
    "the job failed",
    "the ownership ended before the job did",
    "nobody began them in time",
    "left out, because the one before was still running",
    "the clock of this worker is more than a minute ahead of the store's",
    "had another plan",
];

impl Told {
    /// Without what differs from attempt to attempt.
    fn text(&self, store: &str) -> Option<String> {
        let is_of_cron = self.resource.starts_with("cron:") && ABOUT_JOBS.contains(&self.message.as_str());
        if self.is_told_elsewhere || is_of_cron {
            return None;
        }
        let mut text = match (self.message.strip_prefix("the store "), self.resource.as_str()) {
            (Some(rest), "") => format!("the store `{store}` {rest}"),
            (Some(rest), resource) => format!("`{resource}`: the store `{store}` {rest}"),
            (None, "") => self.message.clone(),
            // It says what the resource does, or what became of it.
            (None, resource) if self.message.starts_with("was ") || self.message.starts_with("changes ") => {
                format!("`{resource}` {}", self.message)
            }
            (None, resource) => format!("`{resource}`: {}", self.message),
        };
        for part in [&self.error, &self.cause].into_iter().flatten().filter(|part| !part.is_empty()) {
            write!(text, ": {part}").ok()?;
        }
        Some(text)
    }

    /// What makes it the same as another: the cause, whatever was tried meanwhile; without one all that it says.
    fn cause_or(&self, text: &str) -> String {
        match self.cause.as_deref().filter(|cause| !cause.is_empty()) {
            Some(cause) => format!("{}: {cause}", self.message),
            None => text.to_owned(),
        }
    }

    fn note(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            "resource" => self.resource = value,
            "error" => self.error = Some(value),
            "cause" => self.cause = Some(value),
            "hint" => self.hint = Some(value).filter(|hint| !hint.is_empty()),
            "reason" | "left" => self.is_told_elsewhere = true,
            RECOVERED => self.is_recovery = true,
            _ => {}
        }
    }
}

impl Visit for Told {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.note(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_again_only_after_a_while() {
        let (listener, began) = (Listener::default(), Instant::now());

        assert!(listener.is_news("the disk is full", began));
        assert!(listener.is_news("the disk is gone", began));
        assert!(!listener.is_news("the disk is full", began + QUIET / 2));
        assert!(listener.is_news("the disk is full", began + QUIET));
    }

    #[test]
    fn after_a_recovery_a_trouble_is_news_again_and_a_recovery_is_not() {
        let (listener, began) = (Listener::default(), Instant::now());
        assert!(listener.is_news("the disk is full", began) && listener.is_news("it answers again", began));

        listener.forget_all_but("it answers again");

        assert!(listener.is_news("the disk is full", began));
        assert!(!listener.is_news("it answers again", began));
    }

    #[test]
    fn what_was_tried_makes_no_other_cause() {
        let told = |error: &str, cause: &str| {
            let told = Told { error: Some(error.into()), cause: Some(cause.into()), ..Told::default() };
            told.cause_or(&told.text("").unwrap_or_default())
        };

        assert_eq!(told("cannot renew", "no such file"), told("cannot open", "no such file"));
        assert_ne!(told("cannot renew", "no such file"), told("cannot renew", "not allowed"));
        assert_ne!(told("cannot renew", ""), told("cannot open", ""));
    }

    #[test]
    fn an_event_is_its_message_with_error_and_cause() {
        let told = Told {
            message: "the store did not answer as hoped".into(),
            error: Some("cannot renew the lease".into()),
            cause: Some(String::new()),
            ..Told::default()
        };

        let expected = "the store `redis://cache` did not answer as hoped: cannot renew the lease";
        assert_eq!(told.text("redis://cache").as_deref(), Some(expected));
    }

    #[test]
    fn what_is_about_a_resource_names_it_and_what_cron_tells_itself_is_left_to_it() {
        let told = |resource: &str, message: &str| {
            Told { message: message.into(), resource: resource.into(), ..Told::default() }.text("S")
        };

        assert_eq!(told("once:x", "was interrupted").as_deref(), Some("`once:x` was interrupted"));
        let unanswered = told("cron:x", "the store did not answer about a job");
        assert_eq!(unanswered.as_deref(), Some("`cron:x`: the store `S` did not answer about a job"));
        for message in ABOUT_JOBS {
            assert_eq!(told("cron:x", message), None);
        }
    }
}
