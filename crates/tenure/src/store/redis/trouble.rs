//! What can go wrong with the server, in words that name it and the reason, and never a secret.

use std::io;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::Error;

/// Why an operation did not come about.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The server refused.
    Redis(RedisError),
    /// The connection ended, or brought what is no answer.
    Broken(io::Error),
    /// There is no connection.
    Connection(io::Error),
    /// It took too long.
    Late,
    /// What it said is none of ours.
    Odd(String),
    /// A part of what belongs to this resource is gone or cannot be read.
    Damaged(String),
    Told(Error),
}

pub(super) type Outcome<T> = Result<T, Trouble>;

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl Trouble {
    /// Whether the server does not have the script. Then it has run nothing.
    pub(super) fn is_unknown_script(&self) -> bool {
        matches!(self, Self::Redis(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
    }

    /// Where the keys live now, if the server says that they are not its own. Then it has run nothing.
    pub(super) fn moved_to(&self) -> Option<&str> {
        match self {
            Self::Redis(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) => {
                error.redirect_node().map(|(address, _)| address)
            }
            _ => None,
        }
    }

    /// Whether nothing more will come over this connection.
    pub(super) fn breaks_connection(&self) -> bool {
        match self {
            Self::Connection(_) | Self::Broken(_) | Self::Late => true,
            Self::Redis(error) => error.is_unrecoverable_error() || error.code() == Some("READONLY"),
            Self::Odd(_) | Self::Damaged(_) | Self::Told(_) => false,
        }
    }

    /// The error that the caller sees: what could not be done, and why.
    pub(super) fn told(self, doing: &str, place: &str) -> Error {
        let what = format!("cannot {doing} `{place}`");
        match self {
            Self::Told(error) => error,
            Self::Late if doing == "open" && place.starts_with("rediss:") => {
                Error::unavailable(format!("{what}: it did not answer in time; does it speak TLS there?"))
            }
            Self::Late => Error::unavailable(format!("{what}: it did not answer in time")),
            Self::Odd(how) => Error::corrupt(format!("{what}: it said what Tenure never wrote: {how}")),
            Self::Damaged(name) => damaged(&what, &name),
            Self::Connection(error) => refused_connection(&what, error),
            Self::Broken(error) => Error::unavailable(format!("{what}: the connection broke")).because(error),
            Self::Redis(error) => refused_by_server(&what, &error),
        }
    }
}

fn damaged(what: &str, which: &str) -> Error {
    Error::corrupt(format!("{what}: a part of what it knew is gone or cannot be read: {which}"))
}

fn refused_connection(what: &str, error: io::Error) -> Error {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => "nobody listens there",
        io::ErrorKind::NotFound => "there is no such socket",
        // What rustls has to say about a certificate.
        io::ErrorKind::InvalidData => "no secure connection comes about",
        _ => "it cannot be reached",
    };
    let told = format!("{what}: {why}");
    match error.kind() {
        io::ErrorKind::InvalidData => Error::refused(told).because(error),
        _ => Error::unavailable(told).because(error),
    }
}

fn refused_by_server(what: &str, error: &RedisError) -> Error {
    let code = error.code().unwrap_or_default().to_owned();
    let detail = error.detail().unwrap_or_default();
    // Since 7.0 a script that lacks a right fails with a sentence instead of NOPERM.
    let lacks_right =
        code == "NOPERM" || detail.contains("can't run this command") || detail.contains("can't access");
    let told = match code.as_str() {
        _ if lacks_right => {
            let hint = "docs/stores.md has the ACL rule";
            Error::refused(format!("{what}: the user lacks a right that Tenure needs; {hint}"))
        }
        "TENUREDAMAGED" => damaged(what, detail),
        "TENURELIFE" => Error::refused(format!("{what}: its INFO does not tell its master_replid")),
        "NOAUTH" => Error::refused(format!("{what}: it wants a password, and the URL has none")),
        "WRONGPASS" => Error::refused(format!("{what}: it does not accept this user and password")),
        "READONLY" => Error::unavailable(format!("{what}: it has become a replica")),
        "OOM" => Error::unavailable(format!("{what}: it is at its memory limit")),
        "MISCONF" => Error::unavailable(format!("{what}: it cannot write to its disk")),
        "LOADING" => Error::unavailable(format!("{what}: it is still reading its data")),
        "BUSY" => Error::unavailable(format!("{what}: somebody's script keeps it busy")),
        "NOREPLICAS" => Error::unavailable(format!("{what}: it has fewer replicas than it wants")),
        "CLUSTERDOWN" | "TRYAGAIN" | "ASK" | "MOVED" | "MASTERDOWN" => {
            Error::unavailable(format!("{what}: the cluster is being changed"))
        }
        "WRONGTYPE" => Error::corrupt(format!("{what}: keys of the namespace hold another program's data")),
        "TENURECLOCK" => Error::refused(format!("{what}: its clock is beyond the year 2200")),
        _ if error.kind() == ErrorKind::AuthenticationFailed => {
            Error::refused(format!("{what}: it does not accept this user and password"))
        }
        _ => Error::unavailable(format!("{what}: it refused")),
    };
    // As a text: it would name itself as its own cause, too.
    told.because(io::Error::other(error.to_string()))
}
