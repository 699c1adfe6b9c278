//! What work may return, and what that means for the ownership under which it ran.

use crate::app::AnyError;
use crate::ownership::Lost;

/// How work ended.
#[derive(Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It failed with this error.
    Failed(AnyError),
    /// The ownership ended before the work did. The next owner finds it unfinished.
    Unfinished,
}

/// What the async functions of [`obtain`](crate::CampaignBuilder::obtain), [`spawn`](crate::CampaignBuilder::spawn),
/// [`cron`](crate::Worker::cron) and [`once`](crate::Worker::once) may return: nothing, or a result without a value.
///
/// The error may be any `std::error::Error`, a `String` or an `anyhow::Error`. [`Lost`] is no failure: work that returns it
/// counts as unfinished.
pub trait IntoOutcome {
    /// How the work ended.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl<E: Into<AnyError>> IntoOutcome for Result<(), E> {
    fn into_outcome(self) -> Outcome {
        match self.map_err(Into::into) {
            Ok(()) => Outcome::Done,
            Err(error) if error.is::<Lost>() => Outcome::Unfinished,
            Err(error) => Outcome::Failed(error),
        }
    }
}

/// Gives the type of `loop {}` a name: `<fn() -> ! as Returns>::Type`.
#[doc(hidden)]
pub trait Returns {
    type Type;
}

impl<T> Returns for fn() -> T {
    type Type = T;
}

/// Work that never returns: `async |lead| loop { .. }`.
impl IntoOutcome for <fn() -> ! as Returns>::Type {
    fn into_outcome(self) -> Outcome {
        self
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", text.unwrap_or_else(|| "without a message".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndReason;

    #[test]
    fn errors_of_every_kind_are_failures_and_a_lost_ownership_is_none() {
        let failure = |outcome| match outcome {
            Outcome::Failed(error) => Some(error.to_string()),
            Outcome::Done | Outcome::Unfinished => None,
        };
        let io = std::io::Error::other("disk full");

        assert_eq!(failure(Err::<(), _>("no").into_outcome()).as_deref(), Some("no"));
        assert_eq!(failure(Err::<(), _>("no".to_owned()).into_outcome()).as_deref(), Some("no"));
        assert_eq!(failure(Err::<(), _>(io).into_outcome()).as_deref(), Some("disk full"));
        assert!(matches!(Err::<(), _>(Lost(EndReason::Expired)).into_outcome(), Outcome::Unfinished));
        assert!(matches!(().into_outcome(), Outcome::Done));
    }
}
