//! What can go wrong with the database, as errors that name the path and the reason.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

use crate::Error;

/// Why a transaction failed.
#[derive(Debug)]
pub(super) enum Failure {
    Sql(rusqlite::Error),
    /// The error for the caller is made already.
    Known(Error),
    /// A system with another boot id has used the file since it was opened here.
    OtherBoot,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Known(error)
    }
}

impl Failure {
    /// Whether another connection was writing for too long.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }

    /// Whether the disk is full.
    pub(super) fn is_full(&self) -> bool {
        let Self::Sql(error) = self else { return false };
        // Without room for the index of the log SQLite reports an I/O error.
        let extended = error.sqlite_error().map(|error| error.extended_code);
        self.code() == Some(ErrorCode::DiskFull) || extended == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
    }

    fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sql(error) => error.sqlite_error_code(),
            Self::Known(_) | Self::OtherBoot => None,
        }
    }

    /// The error for the caller: what could not be done, and why.
    pub(super) fn into_error(self, doing: &str, path: &Path) -> Error {
        let what = format!("cannot {doing} `{}`", path.display());
        let (busy, full) = (self.is_busy(), self.is_full());
        let error = match self {
            Self::Known(error) => return error,
            Self::OtherBoot => {
                return Error::refused(format!(
                    "{what}: systems (containers) that see different boot ids use it at the same time"
                ));
            }
            Self::Sql(error) => error,
        };
        match error.sqlite_error_code() {
            _ if busy => Error::unavailable(format!("{what}: another process is writing to it")),
            _ if full => Error::unavailable(format!("{what}: the disk is full")),
            Some(ErrorCode::NotADatabase) => Error::corrupt(format!("{what}: it is not a SQLite database")),
            Some(ErrorCode::DatabaseCorrupt) => Error::corrupt(format!("{what}: the file is damaged")),
            Some(ErrorCode::ReadOnly) => Error::refused(format!("{what}: it is read-only")),
            Some(ErrorCode::PermissionDenied) => Error::refused(format!("{what}: permission denied")),
            Some(ErrorCode::CannotOpen) => Error::refused(format!("{what}: SQLite cannot open it")),
            Some(_) => Error::unavailable(format!("{what}: SQLite failed")),
            // Not SQLite failed, but the conversion of a value that it returned.
            None => Error::corrupt(format!("{what}: unexpected value in the database")),
        }
        .because(error)
    }
}

/// The error for a system call on `path` that failed.
pub(super) fn io_error(doing: &str, path: &Path, error: io::Error) -> Error {
    let what = format!("cannot {doing} `{}`: {}", path.display(), reason(&error));
    let known = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::Interrupted => {
            Error::unavailable(what)
        }
        // Too many open files. These have no kind of their own.
        _ if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => Error::unavailable(what),
        _ => Error::refused(what),
    };
    known.because(error)
}

fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist",
        io::ErrorKind::PermissionDenied => "permission denied",
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only",
        io::ErrorKind::StorageFull => "the disk is full",
        io::ErrorKind::NotADirectory => "a part of its path is not a folder",
        io::ErrorKind::AlreadyExists => "something else has that name",
        _ => "the system call failed",
    }
}
