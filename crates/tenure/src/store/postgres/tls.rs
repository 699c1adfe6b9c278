//! TLS with rustls, in the modes that libpq has. The crypto provider is named here, so that it does not matter which
//! one the application has installed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Error;
use crate::store::open::shown;

/// The `sslrootcert` for the authorities that this system trusts.
const SYSTEM: &str = "system";

/// libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Never.
    Disable,
    /// If the server offers it; its certificate is not verified.
    Prefer,
    /// Always; the certificate is not verified, unless there is a file of trusted authorities.
    Require,
    /// The certificate is from a trusted authority.
    VerifyCa,
    /// And it names the host.
    VerifyFull,
}

impl Mode {
    pub(super) fn named(name: &str) -> Result<Self, Error> {
        Ok(match name {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            other => {
                let other: String = other.chars().take(40).collect();
                let known = "disable, prefer, require, verify-ca or verify-full";
                return Err(Error::refused(format!("sslmode {other:?} is not {known}")));
            }
        })
    }
}

/// What a URL says about TLS. Defaults are those of libpq.
#[derive(Default)]
pub(super) struct Options {
    pub(super) mode: Option<Mode>,
    /// A file of trusted authorities, or `system`.
    pub(super) roots: Option<String>,
    /// Files with our own certificate and its key.
    pub(super) certificate: Option<String>,
    pub(super) key: Option<String>,
}

impl Options {
    /// The mode, and what makes the connections.
    pub(super) fn connector(&self) -> Result<(Mode, MakeRustlsConnect), Error> {
        let mode = self.mode()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match mode {
            Mode::Disable | Mode::Prefer | Mode::Require => Arc::new(AnyName::unverified(&provider)),
            Mode::VerifyCa => Arc::new(AnyName::signed_by(self.authorities(&provider)?, &provider)),
            Mode::VerifyFull => self.authorities(&provider)?,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::refused("cannot set up TLS").because(error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match self.own_certificate(mode)? {
            Some((certificates, key)) => config
                .with_client_auth_cert(certificates, key)
                .map_err(|error| Error::refused("cannot use the certificate of `sslcert`").because(error))?,
            None => config.with_no_client_auth(),
        };
        Ok((mode, MakeRustlsConnect::new(config)))
    }

    fn mode(&self) -> Result<Mode, Error> {
        match (self.mode, self.roots.as_deref()) {
            (None | Some(Mode::VerifyFull), Some(SYSTEM)) => Ok(Mode::VerifyFull),
            // Anybody can get a certificate for a name of their own from one of them.
            (Some(_), Some(SYSTEM)) => Err(Error::refused(
                "sslrootcert=system needs sslmode=verify-full: anybody can get a certificate for another name",
            )),
            (Some(Mode::Require), Some(_)) => Ok(Mode::VerifyCa),
            (Some(Mode::Require), None) if existing("root.crt").is_some() => Ok(Mode::VerifyCa),
            (mode, _) => Ok(mode.unwrap_or(Mode::Prefer)),
        }
    }

    /// The trusted authorities: those in the file, else in the file where libpq looks, or those of the system.
    fn authorities(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, Error> {
        let mut trusted = RootCertStore::empty();
        let named = match self.roots.as_deref() {
            Some(SYSTEM) => {
                let found = rustls_native_certs::load_native_certs();
                // Some of them may be of kinds that rustls does not support.
                trusted.add_parsable_certificates(found.certs);
                "this system".to_owned()
            }
            roots => {
                let path = roots.map(PathBuf::from).or_else(|| at_home("root.crt")).unwrap_or_default();
                for certificate in certificates(&path, "sslrootcert")? {
                    let refused = "it contains a certificate that is not of an authority";
                    trusted.add(certificate).map_err(|_| unusable(&path, "sslrootcert", refused))?;
                }
                format!("`{}`", shown(&path.to_string_lossy()))
            }
        };
        WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), provider.clone())
            .build()
            .map_err(|_| Error::refused(format!("{named} contains no authority to trust")))
    }

    /// Our certificate and key, if the URL names them or they are where libpq looks.
    fn own_certificate(&self, mode: Mode) -> Result<Option<OwnCertificate>, Error> {
        let certificate = self.certificate.as_ref().map(PathBuf::from).or_else(|| existing("postgresql.crt"));
        let Some(certificate) = certificate.filter(|_| mode != Mode::Disable) else { return Ok(None) };
        let key =
            self.key.as_ref().map(PathBuf::from).or_else(|| at_home("postgresql.key")).unwrap_or_default();
        is_secret(&key)?;
        let chain = certificates(&certificate, "sslcert")?;
        let key = PrivateKeyDer::from_pem_file(&key).map_err(|_| {
            unusable(&key, "sslkey", "it is not a PEM file with a key, or the key has a password")
        })?;
        Ok(Some((chain, key)))
    }
}

type OwnCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Where libpq looks for a file of this name.
fn at_home(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(".postgresql").join(name))
}

fn existing(name: &str) -> Option<PathBuf> {
    at_home(name).filter(|path| path.exists())
}

fn certificates(path: &Path, parameter: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found =
        CertificateDer::pem_file_iter(path).map_err(|_| unusable(path, parameter, "it cannot be read"))?;
    let found: Result<Vec<_>, _> = found.collect();
    let found = found.map_err(|_| unusable(path, parameter, "it is not a PEM file"))?;
    if found.is_empty() { Err(unusable(path, parameter, "it contains no certificate")) } else { Ok(found) }
}

fn unusable(path: &Path, parameter: &str, why: &str) -> Error {
    Error::refused(format!("cannot use `{}` as {parameter}: {why}", shown(&path.to_string_lossy())))
}

/// A key that others can read is refused, as by libpq. The group may read it if it belongs to root.
fn is_secret(key: &Path) -> Result<(), Error> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let file = key.metadata().map_err(|_| unusable(key, "sslkey", "it cannot be read"))?;
        let forbidden = if file.uid() == 0 { 0o037 } else { 0o077 };
        if file.mode() & forbidden != 0 {
            return Err(unusable(key, "sslkey", "others have access to it; chmod it to 0600"));
        }
    }
    Ok(())
}

/// The reason, if TLS is why a connection failed: trying again would not help.
pub(super) fn refusal(error: &tokio_postgres::Error) -> Option<String> {
    let source = std::error::Error::source(error)?;
    if let Some(io) = source.downcast_ref::<std::io::Error>() {
        let tls = io.get_ref()?.downcast_ref::<TlsError>()?;
        return Some(format!("TLS: {tls}"));
    }
    let told = source.to_string();
    told.contains("server does not support TLS").then_some(told)
}

/// Accepts a certificate of a trusted authority, or any, whatever name it is for. The server still has to prove that it
/// has the key.
#[derive(Debug)]
struct AnyName {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl AnyName {
    fn unverified(provider: &Arc<CryptoProvider>) -> Self {
        Self { authorities: None, provider: provider.clone() }
    }

    fn signed_by(authorities: Arc<WebPkiServerVerifier>, provider: &Arc<CryptoProvider>) -> Self {
        Self { authorities: Some(authorities), provider: provider.clone() }
    }
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        // The name is compared last, after everything else was verified.
        match authorities.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(TlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
