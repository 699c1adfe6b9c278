//! Redis URLs: where the server is, how to log in, and how TLS is verified.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::Error;
use crate::store::open::shown;

const FORM: &str = "redis://[USER][:PASSWORD@]HOST[:PORT][/DB], rediss:// or redis+unix:///PATH";

/// A URL taken apart. It may hold a password, and does not print it.
pub(super) struct Url {
    pub(super) address: Address,
    pub(super) login: RedisConnectionInfo,
    pub(super) tls: Option<TlsConnector>,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// The parameters after the `?`.
#[derive(Debug, Default)]
struct Parameters<'a> {
    authority: Option<&'a str>,
    certificate: Option<&'a str>,
    key: Option<&'a str>,
}

impl Url {
    /// Parses a URL. A password that it does not contain is taken from `REDISCLI_AUTH`, as `redis-cli` does.
    ///
    /// # Errors
    /// `Refused`, with a message that quotes no secret.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        Self::parse_with(url, std::env::var("REDISCLI_AUTH").ok())
    }

    fn parse_with(url: &str, password: Option<String>) -> Result<Self, Error> {
        let refused = |why: &str| Error::refused(format!("redis URL: {why}"));
        if url.contains('#') {
            return Err(refused("a fragment (#) is not supported; certificates are always verified"));
        }
        let (scheme, rest) = url.split_once(':').ok_or_else(|| refused("it has no scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_socket = matches!(scheme, "redis+unix" | "unix");
        let parameters = Parameters::parse(query, is_socket)?;
        // The crate's parser would want its own TLS for `rediss`; ours is made below.
        let plain = if is_socket { format!("{scheme}:{rest}?{query}") } else { format!("redis:{rest}") };
        let parsed = plain.as_str().into_connection_info().map_err(|error| {
            // The error itself may quote the URL, and so the password.
            let why = mistake(rest).or(error.detail()).unwrap_or("not understood");
            refused(&format!("it is not {FORM} ({why})"))
        })?;
        let address = match parsed.addr() {
            ConnectionAddr::Tcp(host, port) => Address::Tcp(host.clone(), *port),
            ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
            _ => return Err(refused(&format!("it is not {FORM}"))),
        };
        let secure = scheme == "rediss";
        if !secure && (parameters.authority.is_some() || parameters.certificate.is_some()) {
            return Err(refused("ca, cert and key need rediss://"));
        }
        let tls = if secure { Some(parameters.connector()?) } else { None };
        // The least rights of docs/stores.md do not contain CLIENT SETINFO.
        let mut login = parsed.redis_settings().clone().set_skip_set_lib_name();
        if let (None, Some(password)) = (login.password(), password) {
            login = login.set_password(password);
        }
        Ok(Self { address, login, tls })
    }
}

/// The server's address, without user and password.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        match &self.address {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "{scheme}://[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{scheme}://{host}:{port}"),
            Address::Unix(path) => write!(f, "redis+unix://{}", path.display()),
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

/// Two common mistakes in what follows the scheme. Quotes nothing.
fn mistake(rest: &str) -> Option<&'static str> {
    let (authority, database) = rest.strip_prefix("//")?.split_once('/').unwrap_or((&rest[2..], ""));
    let host = authority.rsplit('@').next().unwrap_or_default();
    // An IPv6 address in brackets has colons of its own.
    let port = host.rsplit(']').next().and_then(|end| end.rsplit_once(':')).map_or("", |(_, port)| port);
    if !port.is_empty() && port.parse::<u16>().is_err() {
        return Some("the port is not a number up to 65535");
    }
    (!database.is_empty() && database.parse::<u32>().is_err()).then_some("the database is not a number")
}

impl<'a> Parameters<'a> {
    fn parse(query: &'a str, is_socket: bool) -> Result<Self, Error> {
        let mut known = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "ca" if !is_socket => known.authority = Some(value),
                "cert" if !is_socket => known.certificate = Some(value),
                "key" if !is_socket => known.key = Some(value),
                // The crate's parser reads these.
                "db" | "user" | "pass" if is_socket => {}
                // A question mark in a password makes the rest of it a parameter.
                _ if query.contains('@') || !name.chars().all(|c| c.is_ascii_lowercase() || c == '_') => {
                    return Err(Error::refused(
                        "redis URL: unknown parameter; write a ? in a password as %3F",
                    ));
                }
                _ => {
                    let name: String = name.chars().take(20).collect();
                    let known = if is_socket { "db, user and pass" } else { "ca, cert and key" };
                    return Err(Error::refused(format!(
                        "redis URL: unknown parameter {name:?}; known are {known}"
                    )));
                }
            }
        }
        if known.certificate.is_some() != known.key.is_some() {
            return Err(Error::refused("redis URL: cert and key need each other"));
        }
        Ok(known)
    }

    /// Verifies certificates by the authority that the URL names, else by those that browsers trust.
    fn connector(&self) -> Result<TlsConnector, Error> {
        let mut roots = RootCertStore::empty();
        match self.authority {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(path) => {
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| unreadable("certificate", path).because(error))?;
                }
            }
        }
        // Named, because the default panics in a process that has two providers. The crate's own TLS uses the default.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::refused("cannot set up TLS").because(error))?
            .with_root_certificates(roots);
        let config = match (self.certificate, self.key) {
            (Some(path), Some(key_path)) => {
                let key = PrivateKeyDer::from_pem_file(Path::new(key_path))
                    .map_err(|error| unreadable("private key", key_path).because(error))?;
                config
                    .with_client_auth_cert(certificates(path)?, key)
                    .map_err(|error| unreadable("certificate", path).because(error))?
            }
            _ => config.with_no_client_auth(),
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read =
        CertificateDer::pem_file_iter(Path::new(path)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(unreadable("certificate", path)),
        Ok(found) => Ok(found),
        Err(error) => Err(unreadable("certificate", path).because(error)),
    }
}

fn unreadable(what: &str, path: &str) -> Error {
    Error::refused(format!("cannot read a {what} from `{}`", shown(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Url {
        Url::parse_with(url, None).expect("a URL")
    }

    fn refused(url: &str) -> String {
        let error = Url::parse_with(url, None).expect_err("it is refused");
        assert!(!format!("{error:?} {error}").contains("secret"), "{error:?}");
        error.to_string()
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        let url = parse("redis://user:s%65cret@cache:7000/3");

        assert_eq!(url.to_string(), "redis://cache:7000");
        assert_eq!((url.login.username(), url.login.password()), (Some("user"), Some("secret")));
        assert_eq!(url.login.db(), 3);
        assert!(!format!("{url:?}").contains("secret"));
        assert_eq!(parse("rediss://[::1]").to_string(), "rediss://[::1]:6379");
        let socket = parse("redis+unix:///run/redis.sock?db=2&user=u&pass=secret");
        assert_eq!(socket.to_string(), "redis+unix:///run/redis.sock");
    }

    #[test]
    fn the_environment_gives_only_a_missing_password() {
        let password = |url: &str| {
            let url = Url::parse_with(url, Some("from env".into())).expect("a URL");
            url.login.password().map(str::to_owned)
        };

        assert_eq!(password("redis://cache").as_deref(), Some("from env"));
        assert_eq!(password("redis://user@cache").as_deref(), Some("from env"));
        assert_eq!(password("redis://:own@cache").as_deref(), Some("own"));
    }

    #[test]
    fn unknown_parts_are_refused_without_quoting_secrets() {
        assert!(refused("redis://:secret@cache?protocol=resp3").contains("unknown parameter \"protocol\""));
        let odd = refused("redis://:abc?secret@cache");
        assert!(odd.contains("%3F"), "{odd}");
        assert!(refused("rediss://:secret@cache/#insecure").contains("always verified"));
        assert!(refused("redis://:secret@cache?ca=/tmp/x").contains("need rediss"));
        assert!(refused("rediss://:secret@cache?cert=/tmp/x").contains("need each other"));
        assert!(refused("rediss://:secret@cache?ca=/nowhere/at/all").contains("cannot read a certificate"));
        assert!(refused("redis://:secret@cache/three").contains("is not redis://"));
        assert!(refused("redis:").contains("is not redis://"));
        for (url, why) in [
            ("redis://:secret@cache:99999", "the port is not a number up to 65535"),
            ("redis://:secret@[::1]:x/3", "the port is not a number up to 65535"),
            ("redis://:secret@cache:6379/three", "the database is not a number"),
        ] {
            assert!(refused(url).contains(why), "{}", refused(url));
        }
        assert!(refused("redis+unix:///s?ca=x").contains("known are db, user and pass"));
    }
}
