//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS`: where the server is, and how to speak to it.
//!
//! What libpq knows goes by libpq's names; `listen` is ours. What is not known is refused by name, so that a
//! misspelt `sslmode` does not go unnoticed. Nothing here prints a user or a password.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::tls::{self, Mode};
use super::trouble::Trouble;
use crate::{Error, Kind};

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
/// What says which hosts there are.
const PLACES: [&str; 3] = ["host", "hostaddr", "port"];
/// Longer than any lease should wait for a server; each attempt has its own limit below.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);
/// How long one of several hosts may take, unless `connect_timeout` says otherwise. One that takes connections and
/// never answers must not keep us from the others.
const PASSED_OVER_AFTER: Duration = Duration::from_secs(1);

/// A connection that carries what its client sends.
pub(super) type Connected = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// A database, and how to reach it.
pub(super) struct Target {
    /// Each of its hosts, in the order of the URL.
    hosts: Vec<Config>,
    /// Which of them is tried first: the last that was good, or the next after one that was not.
    first: AtomicUsize,
    /// How long one of several may take.
    passed_over_after: Duration,
    tls: MakeRustlsConnect,
    /// Where to listen for hints, if not here.
    pub(super) listen: Option<Box<Self>>,
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        Self::taken_apart(url, false)
    }

    /// A URL in which another `listen` may not stand: each would lead to the next.
    fn taken_apart(url: &str, is_listen: bool) -> Result<Self, Error> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        // The first would end the password, and the rest of it would be told as a host.
        if base.matches('@').count() > 1 {
            return Err(Error::refused("postgres URL: it has more than one @; an @ in a password is %40"));
        }
        let (mut handed_on, mut listen, mut tls) = (Vec::new(), None, tls::Wanted::default());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "listen" if is_listen => {
                    return Err(Error::refused(
                        "the `listen` URL of a postgres URL has a `listen` of its own",
                    ));
                }
                "listen" => listen = Some(Box::new(Self::taken_apart(&decoded(name, value)?, true)?)),
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
                        "postgres URL: a parameter is not known; a ? or & in a password is %3F or %26",
                    ));
                }
                unknown => {
                    let unknown: String = unknown.chars().take(40).collect();
                    return Err(Error::refused(format!("postgres URL parameter {unknown:?} is not known")));
                }
            }
        }
        let (mode, tls) = tls.connector()?;
        let named =
            |pair: &&str, names: &[&str]| pair.split('=').next().is_some_and(|name| names.contains(&name));
        let given = |name: &str| handed_on.iter().any(|pair| named(pair, &[name]));
        let all = configured(&format!("{base}?{}", handed_on.join("&")))?;
        let common: Vec<&str> = handed_on.iter().copied().filter(|pair| !named(pair, &PLACES)).collect();
        // Without credentials in front an @ would end them.
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
        // One that rests for long is not forgotten by what stands in between, and one that was is noticed.
        // The kernel's own defaults begin after two hours.
        if !given("keepalives_idle") {
            common.keepalives_idle(Duration::from_secs(60));
        }
        if !given("keepalives_interval") {
            common.keepalives_interval(Duration::from_secs(10));
        }
        if !given("keepalives_retries") {
            common.keepalives_retries(3);
        }
        let passed_over_after = common.get_connect_timeout().copied().unwrap_or(PASSED_OVER_AFTER);
        if !given("connect_timeout") {
            common.connect_timeout(CONNECTS_WITHIN);
        }
        let mut hosts = each(&all, &common)?;
        // Without it the first host that answers is taken, be it a standby.
        if !given("target_session_attrs") && hosts.len() > 1 {
            for host in &mut hosts {
                host.target_session_attrs(TargetSessionAttrs::ReadWrite);
            }
        }
        let first = match all.get_load_balance_hosts() {
            LoadBalanceHosts::Random => getrandom::u32().unwrap_or(0) as usize % hosts.len(),
            _ => 0,
        };
        Ok(Self { hosts, first: AtomicUsize::new(first), passed_over_after, tls, listen })
    }

    /// Connects to one of the hosts, the last good one first, and says which. Each gets a fair share of `limit`, and one
    /// is left for what is to be asked then.
    pub(super) async fn connect(&self, limit: Duration) -> Result<(Client, Connected, usize), Error> {
        let (count, first) = (self.hosts.len(), self.first.load(Ordering::Relaxed));
        let mut why: Option<Error> = None;
        for index in (first..first + count).map(|index| index % count) {
            let error = match self.connect_to(&self.hosts[index], self.share(limit, count)).await {
                Ok((client, connection)) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok((client, connection, index));
                }
                Err(error) => error,
            };
            tracing::debug!(%error, host = index, "a host of PostgreSQL is passed over");
            self.doubt(index);
            // As long as one of them may come back it is worth trying again.
            why = why.filter(|_| error.kind() == Kind::Refused).or(Some(error));
        }
        Err(why.unwrap_or_else(|| Error::refused(format!("cannot connect to {self}: it names no host"))))
    }

    /// The next connection is not made to this host first.
    pub(super) fn doubt(&self, host: usize) {
        let next = (host + 1) % self.hosts.len();
        // Somebody else may have found a better one meanwhile.
        let _other = self.first.compare_exchange(host, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Connects to this host, by whichever of its addresses answers.
    async fn connect_to(&self, host: &Config, limit: Duration) -> Result<(Client, Connected), Error> {
        let late =
            |limit| Error::unavailable(format!("cannot connect to {self}: no answer within {limit:?}"));
        let attempt = async {
            let addresses = addresses(host).await.map_err(|error| {
                Error::unavailable(format!("cannot connect to {self}: {}", error.kind())).because(error)
            })?;
            let share = self.share(limit, addresses.len());
            let mut why = None;
            for address in &addresses {
                let mut host = host.clone();
                if let Some(address) = *address {
                    host.hostaddr(address);
                }
                let error = match tokio::time::timeout(share, host.connect(self.tls.clone())).await {
                    Ok(Ok(connected)) => return Ok(connected),
                    Ok(Err(error)) => self.refusal(error),
                    Err(_) => late(share),
                };
                // What the host itself says counts more than an address where it is not.
                why = why.filter(|why: &Error| why.kind() == Kind::Refused).or(Some(error));
            }
            Err(why.unwrap_or_else(|| late(limit)))
        };
        tokio::time::timeout(limit, attempt).await.unwrap_or_else(|_| Err(late(limit)))
    }

    /// How long one of so many may take: all, if there is no other to try.
    fn share(&self, limit: Duration, count: usize) -> Duration {
        let shares = u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1);
        if count > 1 { (limit / shares).min(self.passed_over_after) } else { limit }
    }

    /// What trying again does not change is told as such.
    fn refusal(&self, error: tokio_postgres::Error) -> Error {
        if let Some(why) = tls::refusal(&error) {
            return Error::refused(format!("cannot connect to {self}: {why}"));
        }
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        if source.contains("password missing") {
            return Error::refused(format!(
                "cannot connect to {self}: the server asks for a password, and the URL has none"
            ));
        }
        if source.contains("does not allow writes") {
            return Error::unavailable(format!("cannot connect to {self}: no host can be written to"));
        }
        Trouble::Sql(error).told_of(format!("cannot connect to {self}"))
    }
}

/// Each of the hosts, with what is common to all.
fn each(all: &Config, common: &Config) -> Result<Vec<Config>, Error> {
    let (names, addresses, ports) = (all.get_hosts(), all.get_hostaddrs(), all.get_ports());
    let count = names.len().max(addresses.len());
    let fits = |length: usize, least: usize| length == count || length == least;
    if count == 0 {
        return Err(Error::refused("the postgres URL is not understood: it names no host"));
    }
    if !fits(names.len(), 0) || !fits(addresses.len(), 0) || !(ports.len() < 2 || ports.len() == count) {
        return Err(Error::refused(
            "the postgres URL is not understood: not as many hosts, addresses and ports",
        ));
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
        host
    };
    Ok((0..count).map(host).collect())
}

/// Where a host is: each address of its name, or nothing where there is nothing to look up.
async fn addresses(host: &Config) -> std::io::Result<Vec<Option<IpAddr>>> {
    let (Some(Host::Tcp(name)), []) = (host.get_hosts().first(), host.get_hostaddrs()) else {
        return Ok(vec![None]);
    };
    let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
    let mut addresses: Vec<Option<IpAddr>> = Vec::new();
    for address in found.map(|found| Some(found.ip())) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn configured(url: &str) -> Result<Config, Error> {
    // What is wrong with it may be in the password, so it is not repeated.
    let refused = |why: &str| Error::refused(format!("the postgres URL is not understood: {why}"));
    url.parse().map_err(|error: tokio_postgres::Error| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        refused(if source.starts_with("invalid value for option") { &source } else { "it is malformed" })
    })
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
