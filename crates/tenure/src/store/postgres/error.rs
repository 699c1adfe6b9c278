//! What can go wrong with the server, as an [`Error`] that names the server and the reason, and never a secret.

use std::error::Error as StdError;

use tokio_postgres::error::SqlState;

use super::url::Target;
use crate::Error;

/// The codes of our own functions: transactions are not read committed; the schema is in use by something else.
const ISOLATION: &str = "TN001";
const IN_USE: &str = "TN002";

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server refused it, or the connection was lost.
    Sql(tokio_postgres::Error),
    /// The server answered what Tenure never wrote.
    Corrupt(String),
    /// An error that is already worded.
    Worded(Error),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Worded(error)
    }
}

impl Failure {
    pub(super) fn corrupt(how: impl Into<String>) -> Self {
        Self::Corrupt(how.into())
    }

    pub(super) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Sql(error) => error.code(),
            Self::Corrupt(_) | Self::Worded(_) => None,
        }
    }

    /// What the caller is told: what could not be done, where, and why.
    pub(super) fn told(self, doing: &str, target: &Target) -> Error {
        self.worded(format!("cannot {doing} at {target}"))
    }

    /// The same, beginning with these words.
    pub(super) fn worded(self, what: String) -> Error {
        if self.is_of_a_standby() {
            return Error::unavailable(format!("{what}: the server is a standby"));
        }
        let error = match self {
            Self::Worded(error) => return error,
            Self::Corrupt(how) => {
                return Error::corrupt(format!("{what}: unexpected reply from the server: {how}"));
            }
            Self::Sql(error) => error,
        };
        let Some(server) = error.as_db_error() else {
            // Only the kind of an I/O error: a source may repeat what we sent.
            let why = match error.source().and_then(|source| source.downcast_ref::<std::io::Error>()) {
                Some(io) => format!("{what}: {}", io.kind()),
                None if error.is_closed() => format!("{what}: the connection is closed"),
                None => what,
            };
            return Error::unavailable(why).because(error);
        };
        // The server's message without its detail and context, which may quote values.
        let why = format!("{what}: {}", server.message());
        match server.code() {
            &SqlState::LOCK_NOT_AVAILABLE => {
                Error::unavailable(format!("{what}: another transaction holds a record that it needs"))
            }
            &SqlState::INVALID_SQL_STATEMENT_NAME => Error::refused(format!(
                "{why}; behind a transaction pooler, remove `prepared_statements=on` from the URL"
            )),
            // The first 60 characters of a malformed text may be in the message.
            &SqlState::CHARACTER_NOT_IN_REPERTOIRE | &SqlState::UNTRANSLATABLE_CHARACTER => {
                Error::refused(format!("{what}: PostgreSQL cannot store a text that contains a zero byte"))
            }
            code if [ISOLATION, IN_USE].contains(&code.code()) => Error::refused(why),
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

    /// Whether the server cannot be written to: another host may be the primary now.
    pub(super) fn is_of_a_standby(&self) -> bool {
        // A standby has no position in the log of its own, and so no life.
        let codes = [SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, SqlState::READ_ONLY_SQL_TRANSACTION];
        self.code().is_some_and(|code| codes.contains(code))
    }
}
