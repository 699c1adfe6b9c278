//! What can go wrong with the server, in words that name it and the reason, and never a password.

use std::error::Error as StdError;

use tokio_postgres::error::SqlState;

use super::url::Target;
use crate::Error;

/// Why a request did not come about.
#[derive(Debug)]
pub(super) enum Trouble {
    Sql(tokio_postgres::Error),
    /// Another transaction holds what is needed, and was waited for long enough.
    Locked,
    /// A value in the database that Tenure never wrote.
    Damaged(String),
    Told(Error),
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Self::Locked,
            _ => Self::Sql(error),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl Trouble {
    pub(super) fn damaged(how: impl Into<String>) -> Self {
        Self::Damaged(how.into())
    }

    pub(super) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Sql(error) => error.code(),
            Self::Locked | Self::Damaged(_) | Self::Told(_) => None,
        }
    }

    /// Whether the server chose this transaction to make way for another: it can be done again at once.
    pub(super) fn made_way(&self) -> bool {
        matches!(self.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE))
    }

    /// Whether the server cannot be written to. It may be promoted, or another one has been.
    pub(super) fn is_of_a_standby(&self) -> bool {
        let code = self.code();
        code.is_some_and(|code| code.code() == "TN001" || *code == SqlState::READ_ONLY_SQL_TRANSACTION)
    }

    /// The error that the caller sees: what could not be done, and why.
    pub(super) fn told(self, doing: &str, target: &Target) -> Error {
        self.told_of(format!("cannot {doing} at {target}"))
    }

    /// The same in these words.
    pub(super) fn told_of(self, what: String) -> Error {
        let error = match self {
            Self::Told(error) => return error,
            Self::Locked => {
                return Error::unavailable(format!("{what}: another transaction holds what it needs"));
            }
            Self::Damaged(how) => {
                return Error::corrupt(format!("{what}: a value in it is none of ours: {how}"));
            }
            Self::Sql(error) => error,
        };
        let Some(server) = error.as_db_error() else {
            // Only the kind of what failed on the way: a source may repeat what we sent.
            let why = match error.source().and_then(|source| source.downcast_ref::<std::io::Error>()) {
                Some(io) => format!("{what}: {}", io.kind()),
                None if error.is_closed() => format!("{what}: the connection is closed"),
                None => what,
            };
            return Error::unavailable(why).because(error);
        };
        // The message of the server, without its detail: that may quote values.
        let why = format!("{what}: {}", server.message());
        match server.code() {
            code if code.code() == "TN002" => Error::refused(why),
            &SqlState::INSUFFICIENT_PRIVILEGE
            | &SqlState::INVALID_PASSWORD
            | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION
            | &SqlState::INVALID_CATALOG_NAME
            | &SqlState::UNDEFINED_FUNCTION
            | &SqlState::UNDEFINED_TABLE
            | &SqlState::INVALID_SCHEMA_NAME => Error::refused(why),
            &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED => Error::corrupt(why),
            _ => Error::unavailable(why),
        }
    }
}

/// What a value in the database should have been.
impl From<tenure_core::LimitError> for Trouble {
    fn from(limit: tenure_core::LimitError) -> Self {
        Self::Damaged(limit.to_string())
    }
}
