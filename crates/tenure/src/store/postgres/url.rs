//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS`: where the server is, and how to connect to it.
//!
//! Parameters have the names that libpq gives them; `listen` and `prepared_statements` are ours. Unknown parameters are
//! refused by name, so that a misspelt `sslmode` does not go unnoticed. Nothing here prints a user or a password.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::Failure;
use super::password;
use super::tls::{self, Mode};
use crate::{Error, ErrorKind};

/// Parameters that tokio-postgres understands.
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
/// Those of them that name hosts.
const PLACES: [&str; 3] = ["host", "hostaddr", "port"];
/// How long connecting to the only host may take, unless `connect_timeout` says otherwise.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);
/// The same for one of several hosts. A host that accepts connections and never answers must not keep us from the
/// others.
const HOST_WITHIN: Duration = Duration::from_secs(1);

/// The part of a connection that does the I/O.
pub(super) type Connected = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// A database, and how to reach it.
pub(super) struct Target {
    /// How to connect to each of its hosts, in the order of the URL.
    hosts: Vec<Config>,
    /// Which of them is tried first: the last that worked, or the next after one that did not.
    first: AtomicUsize,
    /// How long one host may take.
    host_within: Duration,
    tls: MakeRustlsConnect,
    /// Whether the server is the same for all requests on one connection, so that it can keep prepared statements.
    pub(super) prepared_statements: bool,
    /// Where to listen for signals, if not here.
    pub(super) listen: Option<Box<Self>>,
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let (target, listen) = Self::without_listen(url)?;
        let Some(listen) = listen else { return Ok(target) };
        let url = if listen.contains("://") { listen } else { at_host(url, &listen) };
        match Self::without_listen(&url)? {
            (listen, None) => Ok(Self { listen: Some(Box::new(listen)), ..target }),
            (_, Some(_)) => {
                Err(Error::refused("the `listen` URL of a postgres URL has a `listen` of its own"))
            }
        }
    }

    /// What a URL says, and the value of its `listen`.
    fn without_listen(url: &str) -> Result<(Self, Option<String>), Error> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        // The first @ would end the password, and the rest of the password would be shown as a host.
        if base.matches('@').count() > 1 {
            return Err(Error::refused("postgres URL: more than one @; write an @ in a password as %40"));
        }
        let (mut handed_on, mut listen, mut tls) = (Vec::new(), None, tls::Options::default());
        let mut prepared_statements = false;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "listen" => listen = Some(decoded(name, value)?),
                "prepared_statements" => {
                    prepared_statements = match value {
                        "on" => true,
                        "off" => false,
                        _ => {
                            return Err(Error::refused(
                                "postgres URL: `prepared_statements` is not on or off",
                            ));
                        }
                    }
                }
                "sslmode" => tls.mode = Some(Mode::named(&decoded(name, value)?)?),
                "sslrootcert" => tls.roots = Some(decoded(name, value)?),
                "sslcert" => tls.certificate = Some(decoded(name, value)?),
                "sslkey" => tls.key = Some(decoded(name, value)?),
                name if KNOWN.contains(&name) => handed_on.push(pair),
                // A question mark in a password makes the rest of it a parameter.
                unknown
                    if query.contains('@')
                        || !unknown.chars().all(|c| c.is_ascii_lowercase() || c == '_') =>
                {
                    return Err(Error::refused(
                        "postgres URL: unknown parameter; write a ? or & in a password as %3F or %26",
                    ));
                }
                unknown => {
                    let unknown: String = unknown.chars().take(40).collect();
                    return Err(Error::refused(format!("postgres URL: unknown parameter {unknown:?}")));
                }
            }
        }
        let (mode, tls) = tls.connector()?;
        let named =
            |pair: &&str, names: &[&str]| pair.split('=').next().is_some_and(|name| names.contains(&name));
        let given = |name: &str| handed_on.iter().any(|pair| named(pair, &[name]));
        let all = configured(&format!("{base}?{}", handed_on.join("&")))?;
        let common: Vec<&str> = handed_on.iter().copied().filter(|pair| !named(pair, &PLACES)).collect();
        // Without credentials in front, an @ would end them.
        let mut common = configured(&format!("postgres://?{}", common.join("&").replace('@', "%40")))?;
        if let Some(user) = all.get_user() {
            common.user(user);
        }
        if let Some(password) = all.get_password() {
            common.password(password);
        }
        if let Some(name) = all.get_dbname() {
            common.dbname(name);
        }
        common.ssl_mode(match mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        });
        if !given("application_name") {
            common.application_name("tenure");
        }
        // Firewalls forget idle connections, and the kernel's own default is to look after two hours.
        if !given("keepalives_idle") {
            common.keepalives_idle(Duration::from_secs(60));
        }
        if !given("keepalives_interval") {
            common.keepalives_interval(Duration::from_secs(10));
        }
        if !given("keepalives_retries") {
            common.keepalives_retries(3);
        }
        let mut hosts = each_host(&all, &common)?;
        let default = if hosts.len() > 1 { HOST_WITHIN } else { CONNECTS_WITHIN };
        let host_within = common.get_connect_timeout().copied().unwrap_or(default);
        // Otherwise the first host that answers is taken, even a standby.
        if !given("target_session_attrs") && hosts.len() > 1 {
            for host in &mut hosts {
                host.target_session_attrs(TargetSessionAttrs::ReadWrite);
            }
        }
        let first = match all.get_load_balance_hosts() {
            LoadBalanceHosts::Random => getrandom::u32().unwrap_or(0) as usize % hosts.len(),
            _ => 0,
        };
        let first = AtomicUsize::new(first);
        Ok((Self { hosts, first, host_within, tls, prepared_statements, listen: None }, listen))
    }

    /// Connects to one of the hosts, the last good one first, and says which.
    pub(super) async fn connect(&self) -> Result<(Client, Connected, usize), Error> {
        let (count, first) = (self.hosts.len(), self.first.load(Ordering::Relaxed));
        let mut why: Option<Error> = None;
        for index in (first..first + count).map(|index| index % count) {
            // Until this host has answered, other attempts begin with the next one; also if this attempt is dropped.
            self.avoid(index);
            let connecting = self.hosts[index].connect(self.tls.clone());
            let error = match tokio::time::timeout(self.host_within, connecting).await {
                Ok(Ok((client, connection))) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok((client, connection, index));
                }
                Ok(Err(error)) => self.refusal(error),
                Err(_) => {
                    let limit = self.host_within;
                    Error::unavailable(format!("cannot connect to {self}: no answer within {limit:?}"))
                }
            };
            // As long as one of the hosts may come back, trying again may help.
            why = why.filter(|_| error.kind() == ErrorKind::Refused).or(Some(error));
        }
        Err(why.unwrap_or_else(|| Error::refused(format!("cannot connect to {self}: the URL names no host"))))
    }

    /// The next connection is not made to this host first.
    pub(super) fn avoid(&self, host: usize) {
        let next = (host + 1) % self.hosts.len();
        // Another attempt may have found a better one meanwhile.
        let _other = self.first.compare_exchange(host, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The error for a host that cannot be used; `Refused` where trying again does not help.
    fn refusal(&self, error: tokio_postgres::Error) -> Error {
        if let Some(why) = tls::refusal(&error) {
            return Error::refused(format!("cannot connect to {self}: {why}"));
        }
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        if source.contains("password missing") {
            return Error::refused(format!(
                "cannot connect to {self}: the server asks for a password, and there is none in the URL, \
                 PGPASSWORD or ~/.pgpass"
            ));
        }
        if source.contains("does not allow writes") {
            return Error::unavailable(format!("cannot connect to {self}: no host can be written to"));
        }
        Failure::Sql(error).worded(format!("cannot connect to {self}"))
    }
}

/// The URL for `listen=HOST:PORT`: the same with another host.
fn at_host(url: &str, host: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = base.split_once("://").unwrap_or(("postgres", base));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let credentials =
        authority.rsplit_once('@').map_or(String::new(), |(credentials, _)| format!("{credentials}@"));
    let kept =
        |pair: &&str| !["listen", "host", "hostaddr", "port"].contains(&pair.split('=').next().unwrap_or(""));
    let query: Vec<&str> = query.split('&').filter(kept).collect();
    format!("{scheme}://{credentials}{host}/{database}?{}", query.join("&"))
}

/// The configuration of each host, with its password.
fn each_host(all: &Config, common: &Config) -> Result<Vec<Config>, Error> {
    let (names, addresses, ports) = (all.get_hosts(), all.get_hostaddrs(), all.get_ports());
    let count = names.len().max(addresses.len());
    let fits = |length: usize| length == count || length == 0;
    if count == 0 {
        return Err(Error::refused("invalid postgres URL: it names no host"));
    }
    if !fits(names.len()) || !fits(addresses.len()) || !(ports.len() < 2 || ports.len() == count) {
        return Err(Error::refused("invalid postgres URL: the numbers of hosts, addresses and ports differ"));
    }
    let host = |index: usize| {
        let mut host = common.clone();
        match names.get(index) {
            Some(Host::Tcp(name)) => host.host(name),
            Some(Host::Unix(path)) => host.host_path(path),
            None => &mut host,
        };
        if let Some(address) = addresses.get(index) {
            host.hostaddr(*address);
        }
        if let Some(port) = ports.get(index).or(ports.first()) {
            host.port(*port);
        }
        if let (None, Some(password)) = (host.get_password(), password::of(&host)) {
            host.password(password);
        }
        host
    };
    Ok((0..count).map(host).collect())
}

fn configured(url: &str) -> Result<Config, Error> {
    // The mistake may be in the password, so it is not repeated.
    let refused = |why: &str| Error::refused(format!("invalid postgres URL: {why}"));
    url.parse().map_err(|error: tokio_postgres::Error| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        refused(if source.starts_with("invalid value for option") { &source } else { "it is malformed" })
    })
}

/// A value of the query, percent-decoded.
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
        .map_err(|_| Error::refused(format!("postgres URL parameter `{name}` is not UTF-8")))
}

/// Hosts and database; neither user nor password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`postgres://")?;
        for (index, host) in self.hosts.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            match (host.get_hosts().first(), host.get_hostaddrs().first()) {
                (Some(Host::Tcp(name)), _) => f.write_str(name)?,
                (Some(Host::Unix(path)), _) => write!(f, "{}", path.display())?,
                (None, Some(address)) => write!(f, "{address}")?,
                (None, None) => {}
            }
            if let Some(port) = host.get_ports().first() {
                write!(f, ":{port}")?;
            }
        }
        write!(f, "/{}`", self.hosts.first().and_then(Config::get_dbname).unwrap_or_default())
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
    fn listen_takes_a_url_or_a_host() {
        let listen =
            |url: &str| Target::parse(url).expect("a URL").listen.expect("a place to listen").to_string();

        assert_eq!(listen("postgres://me:x@pool:6432/d?listen=db:5433"), "`postgres://db:5433/d`");
        assert_eq!(listen("postgres:///d?host=a&port=1&listen=db"), "`postgres://db:5432/d`");
        assert_eq!(listen("postgres://pool/d?listen=postgres://c:7/e"), "`postgres://c:7/e`");
    }

    #[test]
    fn a_listen_within_a_listen_is_refused_however_many_there_are() {
        let nested = "postgres://h/d?listen=".repeat(20_000);

        assert!(refusal(&nested).contains("a `listen` of its own"));
    }

    #[test]
    fn a_refusal_does_not_repeat_the_password() {
        let told = refusal("postgres://me:hunter2%zz@h:port/d");
        assert!(!told.contains("hunter2"), "{told}");
        let told = refusal("postgres://me:hun@ter2@h/d");
        assert!(told.contains("%40") && !told.contains("ter2"), "{told}");
    }

    #[test]
    fn of_several_hosts_the_one_that_can_be_written_to_is_wanted() {
        let attrs = |url: &str| Target::parse(url).expect("a URL").hosts[0].get_target_session_attrs();

        assert_eq!(attrs("postgres://a,b/d"), TargetSessionAttrs::ReadWrite);
        assert_eq!(attrs("postgres://a/d"), TargetSessionAttrs::Any);
        assert_eq!(attrs("postgres://a,b/d?target_session_attrs=any"), TargetSessionAttrs::Any);
    }
}
