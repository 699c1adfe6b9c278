//! TLS by rustls, with the modes that libpq has, and a provider of our own: an application's choice of another one
//! cannot make this panic.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Error;

/// libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Never.
    Disable,
    /// If the server can; whoever it is.
    Prefer,
    /// Always; whoever the server is. With `sslrootcert`, as [`Mode::VerifyCa`].
    Require,
    /// A server with a certificate of an authority that is trusted.
    VerifyCa,
    /// And one that is made out to its host name.
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

/// How to speak TLS in this mode, and which mode that is.
pub(super) fn connector(mode: Option<Mode>, roots: Option<&str>) -> Result<(Mode, MakeRustlsConnect), Error> {
    let mode = match (mode.unwrap_or(Mode::Prefer), roots) {
        (Mode::Require, Some(_)) => Mode::VerifyCa,
        (mode, _) => mode,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match mode {
        Mode::Disable | Mode::Prefer | Mode::Require => Arc::new(Anybody(provider.clone())),
        Mode::VerifyCa => Arc::new(AnyName(authorities(roots, &provider)?)),
        Mode::VerifyFull => authorities(roots, &provider)?,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::refused("cannot set up TLS").because(error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok((mode, MakeRustlsConnect::new(config)))
}

/// Who is trusted: the authorities in the file, or in the one where libpq looks.
fn authorities(
    roots: Option<&str>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let default = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".postgresql/root.crt"));
    let path = roots.map(PathBuf::from).or_else(default).unwrap_or_default();
    let refused = |why: &str| {
        let hint = "sslrootcert names a file of PEM certificates";
        Error::refused(format!("cannot trust the authorities in `{}`: {why}; {hint}", path.display()))
    };
    let mut trusted = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(&path).map_err(|_| refused("it cannot be read"))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|_| refused("it is not of PEM"))?;
        trusted.add(certificate).map_err(|_| refused("a certificate in it is not one of an authority"))?;
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), provider.clone())
        .build()
        .map_err(|_| refused("there are none"))
}

/// Why the server cannot be spoken to, where TLS is the reason: trying again would not help.
pub(super) fn refusal(error: &tokio_postgres::Error) -> Option<String> {
    let source = std::error::Error::source(error)?;
    if let Some(io) = source.downcast_ref::<std::io::Error>() {
        let tls = io.get_ref()?.downcast_ref::<TlsError>()?;
        return Some(format!("TLS: {tls}"));
    }
    let told = source.to_string();
    told.contains("server does not support TLS").then_some(told)
}

/// Whoever answers; that it has the key of its certificate is checked all the same.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A certificate of a trusted authority, whatever name it is made out to.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        // The name is compared last, when everything else has been found in order.
        match self.0.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
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
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
