//! Where a server is and how it is reached: the URL, taken apart once, and the streams to it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::trouble::Outcome;
use crate::Error;
use crate::store::shown;

/// A connection, however it is made.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What a URL says. It holds a password, and does not print it.
pub(super) struct Target {
    first: Place,
    /// Where the keys are now: another node of a cluster may have taken them over.
    place: Mutex<Place>,
    moves: AtomicU64,
    info: RedisConnectionInfo,
    tls: Option<TlsConnector>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// What may follow the `?`.
#[derive(Debug, Default)]
struct Parameters<'a> {
    authority: Option<&'a str>,
    certificate: Option<&'a str>,
    key: Option<&'a str>,
}

impl Target {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// `Refused`, with a sentence that quotes no secret.
    pub(super) fn of(url: &str) -> Result<Self, Error> {
        let refused = |why: &str| Error::refused(format!("redis URL: {why}"));
        if url.contains('#') {
            return Err(refused("a fragment (#) is not known; certificates are always verified"));
        }
        let (scheme, rest) = url.split_once(':').ok_or_else(|| refused("it has no scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_socket = matches!(scheme, "redis+unix" | "unix");
        let parameters = Parameters::of(query, is_socket)?;
        // The parser asks for TLS of its own for `rediss`; ours is made below.
        let plain = match scheme {
            _ if is_socket => format!("{scheme}:{rest}?{query}"),
            _ => format!("redis:{rest}"),
        };
        let parsed = plain.as_str().into_connection_info().map_err(|error| {
            // The cause could quote the URL, and so the password: only its own words are told.
            let why = misfit(rest).or(error.detail()).unwrap_or("not understood");
            refused(&format!("it is not {FORM} ({why})"))
        })?;
        let place = match parsed.addr() {
            ConnectionAddr::Tcp(host, port) => Place::Tcp(host.clone(), *port),
            ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
            _ => return Err(refused(&format!("it is not {FORM}"))),
        };
        let secure = scheme == "rediss";
        if !secure && parameters.any() {
            return Err(refused("ca, cert and key belong to rediss://"));
        }
        let tls = if secure { Some(parameters.connector()?) } else { None };
        let info = parsed.redis_settings().clone();
        Ok(Self { first: place.clone(), place: Mutex::new(place), moves: AtomicU64::new(0), info, tls })
    }

    pub(super) fn info(&self) -> &RedisConnectionInfo {
        &self.info
    }

    /// Connects, and speaks TLS if the URL says so. Waits as long as it takes: the caller limits it.
    pub(super) async fn connect(&self) -> Outcome<Box<dyn Stream>> {
        match self.place() {
            Place::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Place::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), port)).await?;
                stream.set_nodelay(true)?;
                let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
                let name = ServerName::try_from(host).map_err(|_| {
                    Error::refused("redis URL: the host is not a name that a certificate can have")
                })?;
                Ok(Box::new(tls.connect(name, stream).await?))
            }
        }
    }

    /// Goes to where a node of a cluster says that the keys are, if that is elsewhere. One without a host means its own.
    pub(super) fn move_to(&self, address: &str) {
        let Some((host, port)) = address.rsplit_once(':') else { return };
        let Ok(port) = port.parse() else { return };
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Place::Tcp(before, _) = &*place {
            let host =
                if host.is_empty() { before.clone() } else { host.trim_matches(['[', ']']).to_owned() };
            let moved = Place::Tcp(host, port);
            if *place != moved {
                *place = moved;
                self.start_over();
            }
        }
    }

    /// All connections that were made so far are to be replaced.
    pub(super) fn start_over(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Goes back to where the URL points: the node that was moved to does not answer.
    pub(super) fn come_back(&self) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if *place != self.first {
            *place = self.first.clone();
            self.start_over();
        }
    }

    /// Changes whenever connections are to be replaced: with the place, and with the life of the server.
    pub(super) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    fn place(&self) -> Place {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

const FORM: &str = "redis://[USER][:PASSWORD@]HOST[:PORT][/DB], rediss:// or redis+unix:///PATH";

/// What is wrong with a URL, behind its scheme, where that is one of two usual mistakes. Quotes nothing.
fn misfit(rest: &str) -> Option<&'static str> {
    let (authority, database) = rest.strip_prefix("//")?.split_once('/').unwrap_or((&rest[2..], ""));
    let host = authority.rsplit('@').next().unwrap_or_default();
    // What is in brackets has colons of its own.
    let port =
        host.rsplit(']').next().and_then(|behind| behind.rsplit_once(':')).map_or("", |(_, port)| port);
    if !port.is_empty() && port.parse::<u16>().is_err() {
        return Some("its port is not a number up to 65535");
    }
    (!database.is_empty() && database.parse::<u32>().is_err()).then_some("its database is not a number")
}

/// Where it is, without user and password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        match self.place() {
            Place::Tcp(host, port) if host.contains(':') => write!(f, "{scheme}://[{host}]:{port}"),
            Place::Tcp(host, port) => write!(f, "{scheme}://{host}:{port}"),
            Place::Unix(path) => write!(f, "redis+unix://{}", path.display()),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

impl<'a> Parameters<'a> {
    fn of(query: &'a str, is_socket: bool) -> Result<Self, Error> {
        let mut known = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "ca" if !is_socket => known.authority = Some(value),
                "cert" if !is_socket => known.certificate = Some(value),
                "key" if !is_socket => known.key = Some(value),
                // Those the parser takes up.
                "db" | "user" | "pass" if is_socket => {}
                // A question mark in a password makes the rest of it a parameter.
                _ if query.contains('@') || !name.chars().all(|c| c.is_ascii_lowercase() || c == '_') => {
                    return Err(Error::refused(
                        "redis URL: a parameter is not known; a ? in a password is %3F",
                    ));
                }
                _ => {
                    let name: String = name.chars().take(20).collect();
                    let which = if is_socket { "db, user and pass" } else { "ca, cert and key" };
                    return Err(Error::refused(format!(
                        "redis URL parameter {name:?} is not known; there are {which}"
                    )));
                }
            }
        }
        if known.certificate.is_some() != known.key.is_some() {
            return Err(Error::refused("redis URL: cert and key come together"));
        }
        Ok(known)
    }

    fn any(&self) -> bool {
        self.authority.is_some() || self.certificate.is_some()
    }

    /// Certificates are verified: by the authority that the URL names, else by those that browsers trust.
    fn connector(&self) -> Result<TlsConnector, Error> {
        let mut roots = RootCertStore::empty();
        match self.authority {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(path) => {
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| unusable("certificate", path).because(error))?;
                }
            }
        }
        // A provider of our own: the process may have another one, or two, and then the default is a panic.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::refused("cannot speak TLS").because(error))?
            .with_root_certificates(roots);
        let config = match (self.certificate, self.key) {
            (Some(path), Some(key_path)) => {
                let key = PrivateKeyDer::from_pem_file(Path::new(key_path))
                    .map_err(|error| unusable("private key", key_path).because(error))?;
                config
                    .with_client_auth_cert(certificates(path)?, key)
                    .map_err(|error| unusable("certificate", path).because(error))?
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
        Ok(found) if found.is_empty() => Err(unusable("certificate", path)),
        Ok(found) => Ok(found),
        Err(error) => Err(unusable("certificate", path).because(error)),
    }
}

fn unusable(what: &str, path: &str) -> Error {
    Error::refused(format!("cannot read a {what} from `{}`", shown(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        let error = Target::of(url).expect_err("it is refused");
        assert!(!format!("{error:?} {error}").contains("secret"), "{error:?}");
        error.to_string()
    }

    #[test]
    fn a_url_is_taken_apart_and_shown_without_its_secrets() {
        let target = Target::of("redis://user:s%65cret@cache:7000/3").expect("it is understood");

        assert_eq!(target.to_string(), "redis://cache:7000");
        assert_eq!((target.info().username(), target.info().password()), (Some("user"), Some("secret")));
        assert_eq!(target.info().db(), 3);
        assert!(!format!("{target:?}").contains("secret"));
        assert_eq!(
            Target::of("rediss://[::1]").expect("it is understood").to_string(),
            "rediss://[::1]:6379"
        );
        assert_eq!(
            Target::of("redis+unix:///run/redis.sock?db=2&user=u&pass=secret")
                .expect("it is understood")
                .to_string(),
            "redis+unix:///run/redis.sock"
        );
    }

    #[test]
    fn what_is_not_known_is_refused_without_quoting_secrets() {
        assert!(refused("redis://:secret@cache?protocol=resp3").contains("\"protocol\" is not known"));
        let odd = refused("redis://:abc?secret@cache");
        assert!(odd.contains("%3F") && !odd.contains("secret"), "{odd}");
        assert!(refused("rediss://:secret@cache/#insecure").contains("always verified"));
        assert!(refused("redis://:secret@cache?ca=/tmp/x").contains("belong to rediss"));
        assert!(refused("rediss://:secret@cache?cert=/tmp/x").contains("come together"));
        assert!(refused("rediss://:secret@cache?ca=/nowhere/at/all").contains("cannot read a certificate"));
        assert!(refused("redis://:secret@cache/three").contains("is not redis://"));
        assert!(refused("redis:").contains("is not redis://"));
        for (url, why) in [
            ("redis://:secret@cache:99999", "its port is not a number up to 65535"),
            ("redis://:secret@[::1]:x/3", "its port is not a number up to 65535"),
            ("redis://:secret@cache:6379/three", "its database is not a number"),
        ] {
            assert!(refused(url).contains(why), "{}", refused(url));
        }
        assert!(refused("redis+unix:///s?ca=x").contains("there are db, user and pass"));
    }

    #[test]
    fn a_node_that_moved_is_followed_and_left_again() {
        let target = Target::of("redis://cache:7000").expect("it is understood");

        target.move_to("10.0.0.2:7001");
        assert_eq!((target.to_string(), target.moves()), ("redis://10.0.0.2:7001".into(), 1));
        target.move_to(":7002");
        assert_eq!(target.to_string(), "redis://10.0.0.2:7002");
        target.come_back();
        assert_eq!((target.to_string(), target.moves()), ("redis://cache:7000".into(), 3));
    }

    /// Nobody's connection is replaced for it.
    #[test]
    fn a_node_that_is_where_it_was_has_not_moved() {
        let target = Target::of("redis://cache:7000").expect("it is understood");

        target.move_to("cache:7000");
        target.move_to(":7000");
        target.come_back();

        assert_eq!((target.to_string(), target.moves()), ("redis://cache:7000".into(), 0));
    }
}
