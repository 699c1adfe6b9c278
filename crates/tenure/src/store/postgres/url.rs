//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS`: where the server is, and how to speak to it.
//!
//! What libpq knows goes by libpq's names; `listen` is ours. What is not known is refused by name, so that a
//! misspelt `sslmode` does not go unnoticed. Nothing here prints a user or a password.

use std::fmt;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::tls::{self, Mode};
use super::trouble::Trouble;
use crate::Error;

/// What is handed on as it is.
const KNOWN: [&str; 17] = [
    "user",
    "password",
    "dbname",
    "host",
    "hostaddr",
    "port",
    "options",
    "application_name",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];
/// Longer than any lease should wait for a server; each attempt has its own limit below.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);

/// A connection that carries what its client sends.
pub(super) type Connected = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// A database, and how to reach it.
pub(super) struct Target {
    config: Config,
    tls: MakeRustlsConnect,
    /// Where to listen for hints, if not here.
    pub(super) listen: Option<Box<Self>>,
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut handed_on, mut listen, mut mode, mut roots) = (Vec::new(), None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "listen" => listen = Some(Box::new(Self::parse(&decoded(name, value)?)?)),
                "sslmode" => mode = Some(Mode::named(&decoded(name, value)?)?),
                "sslrootcert" => roots = Some(decoded(name, value)?),
                name if KNOWN.contains(&name) => handed_on.push(pair),
                // A question mark in a password makes the rest of it a parameter.
                unknown
                    if query.contains('@')
                        || !unknown.chars().all(|c| c.is_ascii_lowercase() || c == '_') =>
                {
                    return Err(Error::refused(
                        "postgres URL: a parameter is not known; a ? or & in a password is %3F or %26",
                    ));
                }
                unknown => {
                    let unknown: String = unknown.chars().take(40).collect();
                    return Err(Error::refused(format!("postgres URL parameter {unknown:?} is not known")));
                }
            }
        }
        if listen.as_ref().is_some_and(|listen| listen.listen.is_some()) {
            return Err(Error::refused("the `listen` URL of a postgres URL has a `listen` of its own"));
        }
        let (mode, tls) = tls::connector(mode, roots.as_deref())?;
        let mut config = configured(&format!("{base}?{}", handed_on.join("&")))?;
        config.ssl_mode(match mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        });
        let given = |name: &str| handed_on.iter().any(|pair| pair.split('=').next() == Some(name));
        if !given("application_name") {
            config.application_name("tenure");
        }
        if !given("connect_timeout") {
            config.connect_timeout(CONNECTS_WITHIN);
        }
        // Without it the first host that answers is taken, be it a standby.
        if !given("target_session_attrs") && config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(Self { config, tls, listen })
    }

    pub(super) async fn connect(&self) -> Result<(Client, Connected), Trouble> {
        match self.config.connect(self.tls.clone()).await {
            Ok(connected) => Ok(connected),
            Err(error) => Err(self.refusal(error)),
        }
    }

    /// What trying again does not change is told as such.
    fn refusal(&self, error: tokio_postgres::Error) -> Trouble {
        if let Some(why) = tls::refusal(&error) {
            return Trouble::Told(Error::refused(format!("cannot connect to {self}: {why}")));
        }
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        if source.contains("password missing") {
            return Trouble::Told(Error::refused(format!(
                "cannot connect to {self}: the server asks for a password, and the URL has none"
            )));
        }
        Trouble::Sql(error)
    }
}

fn configured(url: &str) -> Result<Config, Error> {
    // What is wrong with it may be in the password, so it is not repeated.
    let refused = |why: &str| Error::refused(format!("the postgres URL is not understood: {why}"));
    let config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        refused(if source.starts_with("invalid value for option") { &source } else { "it is malformed" })
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(refused("it names no host"));
    }
    Ok(config)
}

/// A value of the query, with `%XX` as the byte that it stands for.
fn decoded(name: &str, value: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let escaped = (*byte == b'%').then(|| after.split_at_checked(2)).flatten();
        match escaped {
            Some((digits, after)) => {
                let digits = std::str::from_utf8(digits).ok();
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                bytes.push(byte.ok_or_else(|| {
                    Error::refused(format!("postgres URL parameter `{name}` has a % without two digits"))
                })?);
                rest = after;
            }
            None => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes)
        .map_err(|_| Error::refused(format!("postgres URL parameter `{name}` is not of UTF-8")))
}

/// Where it is, and neither as whom nor with which password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`postgres://")?;
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            match host {
                Host::Tcp(name) => write!(f, "{separator}{name}")?,
                Host::Unix(path) => write!(f, "{separator}{}", path.display())?,
            }
            if let Some(port) = self.config.get_ports().get(index).or(self.config.get_ports().first()) {
                write!(f, ":{port}")?;
            }
        }
        write!(f, "/{}`", self.config.get_dbname().unwrap_or_default())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        Target::parse(url).map(|_| ()).expect_err("a URL that is refused").to_string()
    }

    #[test]
    fn a_url_is_shown_without_user_and_password() {
        let target = Target::parse(
            "postgres://alice:hunter2@a,b:5433/jobs?listen=postgres%3A%2F%2Fcarol:swordfish@c%2Fjobs",
        )
        .expect("a URL");

        let shown = format!("{target} {target:?} {:?}", target.listen);
        for secret in ["alice", "hunter2", "carol", "swordfish"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(shown.contains("`postgres://a:5432,b:5433/jobs`"), "{shown}");
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        assert!(refusal("postgres://h/d?sslmod=require").contains("\"sslmod\""));
        assert!(refusal("postgres://h/d?sslmode=verify").contains("verify-full"));
        let odd = refusal("postgres://me:hun?ter2@h/d");
        assert!(odd.contains("%3F") && !odd.contains("ter2"), "{odd}");
        assert!(refusal("postgres://h/d?listen=postgres://h/d?fnord=1").contains("\"fnord\""));
        assert!(refusal("postgres://h/d?sslmode=%zz").contains("two digits"));
        assert!(refusal("postgres://h/d?port=x").contains("port"));
        assert!(refusal("postgres:///d").contains("no host"));
    }

    #[test]
    fn a_refusal_does_not_repeat_the_password() {
        let told = refusal("postgres://me:hunter2%zz@h:port/d");
        assert!(!told.contains("hunter2"), "{told}");
    }

    #[test]
    fn of_several_hosts_the_one_that_can_be_written_to_is_wanted() {
        let attrs = |url: &str| Target::parse(url).expect("a URL").config.get_target_session_attrs();

        assert_eq!(attrs("postgres://a,b/d"), TargetSessionAttrs::ReadWrite);
        assert_eq!(attrs("postgres://a/d"), TargetSessionAttrs::Any);
        assert_eq!(attrs("postgres://a,b/d?target_session_attrs=any"), TargetSessionAttrs::Any);
    }
}
