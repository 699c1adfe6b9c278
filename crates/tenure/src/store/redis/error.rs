//! What can go wrong with the server, as an [`Error`] that names the server and the reason, and never a secret.

use std::io;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::Error;

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server answered with an error, or the connection broke while it was asked.
    Redis(RedisError),
    /// No connection could be made.
    Connection(io::Error),
    /// The server did not answer in time.
    TimedOut,
    /// The reply has another form than our scripts give it. It may quote records, so only its kind is told.
    Unexpected(&'static str),
    Other(Error),
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Failure {
    /// Whether the server does not have the script. It has not run anything.
    pub(super) fn is_unknown_script(&self) -> bool {
        matches!(self, Self::Redis(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
    }

    /// The node that has the keys, if this one says that it does not. It has not run anything.
    pub(super) fn moved_to(&self) -> Option<&str> {
        match self {
            Self::Redis(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) => {
                error.redirect_node().map(|(address, _)| address)
            }
            _ => None,
        }
    }

    /// Whether the server has become a replica.
    pub(super) fn is_demoted(&self) -> bool {
        matches!(self, Self::Redis(error) if error.code() == Some("READONLY"))
    }

    /// Whether the connection is of no more use.
    pub(super) fn breaks_connection(&self) -> bool {
        match self {
            Self::Redis(error) => error.is_io_error() || error.is_unrecoverable_error(),
            Self::Connection(_) | Self::TimedOut => true,
            Self::Unexpected(_) | Self::Other(_) => false,
        }
    }

    /// The error that the caller sees.
    pub(super) fn describe(self, doing: &str, server: &str) -> Error {
        let what = format!("cannot {doing} `{server}`");
        match self {
            Self::Other(error) => error,
            Self::TimedOut if server.starts_with("rediss:") => {
                Error::unavailable(format!("{what}: it did not answer in time; does it speak TLS there?"))
            }
            Self::TimedOut => Error::unavailable(format!("{what}: it did not answer in time")),
            Self::Unexpected(how) => Error::corrupt(format!("{what}: unexpected reply: {how}")),
            Self::Connection(error) => describe_connection(&what, error),
            Self::Redis(error) => describe_reply(&what, &error),
        }
    }
}

fn describe_connection(what: &str, error: io::Error) -> Error {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::NotFound => "no such socket",
        // What rustls reports about a certificate.
        io::ErrorKind::InvalidData => {
            return Error::refused(format!("{what}: no secure connection")).because(error);
        }
        _ => "it cannot be reached",
    };
    Error::unavailable(format!("{what}: {why}")).because(error)
}

fn describe_reply(what: &str, error: &RedisError) -> Error {
    let detail = error.detail().unwrap_or_default();
    // Since 7.0 a script that lacks a right fails with a sentence instead of NOPERM.
    let lacks_right = error.code() == Some("NOPERM")
        || detail.contains("can't run this command")
        || detail.contains("can't access");
    let refused = |why: &str| Error::refused(format!("{what}: {why}"));
    let unavailable = |why: &str| Error::unavailable(format!("{what}: {why}"));
    let told = match error.code().unwrap_or_default() {
        _ if lacks_right => {
            refused("the user lacks a right that Tenure needs; docs/stores.md has the ACL rule")
        }
        "NOAUTH" => refused("it needs a password, and the URL has none"),
        "TENURELIFE" => refused("its INFO does not contain master_replid"),
        "TENURECLOCK" => refused("its clock is beyond the year 2200"),
        "READONLY" => unavailable("it has become a replica"),
        "OOM" => unavailable("it is at its memory limit"),
        "MISCONF" => unavailable("it cannot write to its disk"),
        "LOADING" => unavailable("it is still loading its data"),
        "BUSY" => unavailable("another script keeps it busy"),
        "NOREPLICAS" => unavailable("it has fewer replicas than its configuration requires"),
        "CLUSTERDOWN" | "TRYAGAIN" | "ASK" | "MOVED" | "MASTERDOWN" => {
            unavailable("the cluster is being reconfigured")
        }
        "WRONGTYPE" => Error::corrupt(format!("{what}: keys of the namespace hold another program's data")),
        // Without the server's words: one that does not know AUTH quotes what it was given.
        "WRONGPASS" => return refused("wrong user or password"),
        _ if error.kind() == ErrorKind::AuthenticationFailed => return refused("wrong user or password"),
        _ if error.is_io_error() => unavailable("the connection broke"),
        _ => unavailable("the request failed"),
    };
    // As text, because the error would name itself as its own cause. Without the arguments that a server quotes of a
    // command that it does not know.
    let text = error.to_string();
    told.because(io::Error::other(text.split(", with args beginning").next().unwrap_or_default().to_owned()))
}
