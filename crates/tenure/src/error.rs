//! What can go wrong, sorted by what the caller can do about it. Losing an election is not among it.

use std::error::Error as StdError;
use std::fmt;

use tenure_core::{LimitError, TimingError};

/// What we could not do, and why. The cause, if there is one, is the [`source`](StdError::source).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    what: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store did not answer, or not in time. Try again.
    Unavailable,
    /// A setting, a right or the store itself stands against it. Trying again changes nothing.
    Refused,
    /// The store's data cannot be read.
    Corrupt,
    /// The work that was to be done failed. Its own error is the source.
    Failed,
    /// The process was forked after this was opened. Connect again in the child.
    Forked,
}

impl Error {
    /// The store did not answer, or not in time.
    #[must_use]
    pub fn unavailable(what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Unavailable, what: what.into(), source: None }
    }

    /// It is not going to work.
    #[must_use]
    pub fn refused(what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Refused, what: what.into(), source: None }
    }

    /// The store's data cannot be read.
    #[must_use]
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Corrupt, what: what.into(), source: None }
    }

    /// The handle belongs to the parent of this process.
    pub(crate) fn forked() -> Self {
        let what = "the process was forked after this was opened: connect again in the child";
        Self { kind: ErrorKind::Forked, what: what.to_owned(), source: None }
    }

    /// The work failed.
    #[must_use]
    pub fn failed(what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Failed, what: what.into(), source: None }
    }

    /// The same, with its cause.
    #[must_use]
    pub fn because(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<LimitError> for Error {
    fn from(limit: LimitError) -> Self {
        Self::refused(limit.to_string())
    }
}

impl From<TimingError> for Error {
    fn from(timing: TimingError) -> Self {
        Self::refused(timing.to_string())
    }
}
