//! How `tenure` ends: exit codes, and failures.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// The code that the shell sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    /// All is well.
    pub(crate) const OK: Self = Self(0);
    /// What was examined does not keep every promise.
    pub(crate) const UNSAFE: Self = Self(1);
    /// No ticket within the time that was given.
    pub(crate) const NOT_ELECTED: Self = Self(123);
    /// The ownership was lost, and `tenure` was told not to compete again.
    pub(crate) const LOST: Self = Self(124);
    /// `tenure` itself failed, or did not understand its arguments.
    pub(crate) const FAILED: Self = Self(125);
    /// The command is there and cannot be run.
    pub(crate) const CANNOT_RUN: Self = Self(126);
    /// There is no such command.
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// The code by which shells report a death by signal.
    pub(crate) fn by_signal(number: i32) -> Self {
        Self(u8::try_from(128 + number).unwrap_or(u8::MAX))
    }

    /// The command's own.
    pub(crate) fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self(code.to_le_bytes()[0]),
            (None, Some(signal)) => Self::by_signal(signal),
            (None, None) => Self::FAILED,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "code {}", self.0)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

/// What we could not do, why, and what may help.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    hint: Option<String>,
    exit: Exit,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, exit: Exit::FAILED }
    }

    /// Adds a cause and the causes of that, but none that repeats what was said.
    pub(crate) fn because(mut self, cause: &dyn std::error::Error) -> Self {
        let (mut cause, mut before) = (Some(cause), None);
        while let Some(error) = cause {
            let told = error.to_string();
            if before.as_ref().is_none_or(|before: &String| !told.contains(before)) {
                self.what = format!("{}: {told}", self.what);
            }
            (cause, before) = (error.source(), Some(told));
        }
        self
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Another exit code than that of a failure of `tenure` itself.
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Suggests the name in `known` that is closest to `typed`; if none is close, hints at `otherwise`.
    pub(crate) fn did_you_mean(
        self,
        typed: &str,
        known: &[&str],
        otherwise: impl FnOnce() -> String,
    ) -> Self {
        match nearest(typed, known) {
            Some(near) => self.hint(format!("did you mean `{near}`?")),
            None => self.hint(otherwise()),
        }
    }

    pub(crate) fn hinted(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<tenure::Error> for Failure {
    fn from(error: tenure::Error) -> Self {
        let failure = Self::new(error.to_string());
        match std::error::Error::source(&error) {
            Some(cause) => failure.because(cause),
            None => failure,
        }
    }
}

impl From<tenure::types::LimitError> for Failure {
    fn from(limit: tenure::types::LimitError) -> Self {
        Self::new(limit.to_string())
    }
}

/// Which of `known` was meant, if one is near enough.
fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = known.iter().map(|name| (*name, strsim::jaro_winkler(typed, name)));
    let (best, likeness) = likeness.max_by(|a, b| a.1.total_cmp(&b.1))?;
    // As close as clap wants options to be, or one wrong letter.
    let is_near = likeness > 0.8 || (typed.chars().count() > 2 && strsim::osa_distance(typed, best) == 1);
    is_near.then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_the_commands_own_or_tells_the_signal() {
        assert_eq!(Exit::of(ExitStatus::from_raw(7 << 8)), Exit(7));
        assert_eq!(Exit::of(ExitStatus::from_raw(9)), Exit(137));
    }

    #[test]
    fn a_failure_tells_the_whole_chain_of_causes() {
        let inner = tenure::Error::unavailable("the disk is full");
        let failure = Failure::from(tenure::Error::unavailable("cannot open").because(inner));

        assert_eq!(failure.to_string(), "cannot open: the disk is full");
    }

    #[test]
    fn a_cause_that_says_the_same_again_is_left_out() {
        let last = tenure::Error::unavailable("no room is left");
        let again = tenure::Error::unavailable("code 13: the disk is full").because(last);
        let inner = tenure::Error::unavailable("the disk is full").because(again);
        let failure = Failure::from(tenure::Error::unavailable("cannot open").because(inner));

        assert_eq!(failure.to_string(), "cannot open: the disk is full: no room is left");
    }
}
