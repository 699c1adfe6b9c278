//! What can go wrong with the database, in words that name the path and the reason.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

use crate::Error;

/// Why a step did not come about.
#[derive(Debug)]
pub(super) enum Trouble {
    Sql(rusqlite::Error),
    /// A value in the database that Tenure never wrote.
    Damaged(String),
    Told(Error),
}

pub(super) type Outcome<T> = Result<T, Trouble>;

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl Trouble {
    /// Whether it was only that somebody else was writing.
    pub(super) fn is_busy(&self) -> bool {
        let Self::Sql(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }

    /// Whether a value in the database is none of ours.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Sql(error) => error.sqlite_error_code().is_none(),
            Self::Told(_) => false,
        }
    }

    /// The error that the caller sees: what could not be done, and why.
    pub(super) fn told(self, doing: &str, path: &Path) -> Error {
        let what = format!("cannot {doing} `{}`", path.display());
        let error = match self {
            Self::Told(error) => return error,
            Self::Damaged(how) => return Error::corrupt(format!("{what}: the file is damaged: {how}")),
            Self::Sql(error) => error,
        };
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Error::unavailable(format!("{what}: another process is writing to it"))
            }
            // There is no room for the index of the log, which the first who comes makes.
            _ if extended(&error) == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE) => {
                Error::unavailable(format!("{what}: the disk is full"))
            }
            Some(ErrorCode::DiskFull) => Error::unavailable(format!("{what}: the disk is full")),
            Some(ErrorCode::NotADatabase) => Error::corrupt(format!("{what}: it is not a SQLite database")),
            Some(ErrorCode::DatabaseCorrupt) => Error::corrupt(format!("{what}: the file is damaged")),
            Some(ErrorCode::ReadOnly) => Error::refused(format!("{what}: it cannot be written to")),
            Some(ErrorCode::PermissionDenied) => Error::refused(format!("{what}: no right to it")),
            Some(ErrorCode::CannotOpen) => {
                Error::refused(format!("{what}: SQLite can neither open it nor make it"))
            }
            Some(_) => Error::unavailable(format!("{what}: SQLite failed")),
            // Not SQLite but a value that it gave us.
            None => Error::corrupt(format!("{what}: a value in it is none of ours")),
        }
        .because(error)
    }
}

fn extended(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}

/// What a text in the database should have been.
pub(super) fn damaged(limit: &tenure_core::LimitError) -> Trouble {
    Trouble::Damaged(limit.to_string())
}

/// What the kernel refused about a file.
pub(super) fn refused_by_kernel(doing: &str, path: &Path, error: io::Error) -> Error {
    let what = format!("cannot {doing} `{}`: {}", path.display(), reason(&error));
    let told = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::Interrupted => {
            Error::unavailable(what)
        }
        // EMFILE and ENFILE have no kind of their own.
        _ if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => Error::unavailable(what),
        _ => Error::refused(what),
    };
    told.because(error)
}

fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist",
        io::ErrorKind::PermissionDenied => "no right to it",
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only",
        io::ErrorKind::StorageFull => "the disk is full",
        io::ErrorKind::NotADirectory => "a part of its path is not a folder",
        io::ErrorKind::AlreadyExists => "something else has that name",
        _ => "the system refused",
    }
}
