//! TLS: every mode that libpq has, against a real server with a certificate of a private authority.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tenure::ErrorKind;
use tenure::store::{Namespace, PostgresBackend};
use testkit::postgres::{Options, Postgres};

use super::child::opens;

/// Two authorities; of the first the certificates of a server made out to `localhost`, and of a client named `app`.
struct Papers(TempDir);

impl Papers {
    fn issue() -> Self {
        let papers = Self(tempfile::tempdir().expect("a folder"));
        let ca = papers.authority("ca");
        papers.authority("other");
        papers.certify("server", "localhost", &ca);
        papers.certify("client", "app", &ca);
        papers
    }

    fn authority(&self, name: &str) -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new(vec![]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        let authority = authority.expect("an authority");
        self.write(&format!("{name}.crt"), &authority.pem());
        authority
    }

    /// Its certificate and key are in files of this name.
    fn certify(&self, name: &str, made_out_to: &str, authority: &CertifiedIssuer<'static, KeyPair>) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![made_out_to.to_owned()]).expect("parameters");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, made_out_to);
        let certificate = params.signed_by(&key, authority).expect("a certificate");
        self.write(&format!("{name}.crt"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn write(&self, name: &str, text: &str) {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(self.path(name));
        file.expect("a file").write_all(text.as_bytes()).expect("it can be written");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A server that is reached over TLS only, by these rules.
    fn server(&self, rules: &str) -> Postgres {
        let options = Options::new().tls(&self.path("server.crt"), &self.path("server.key"));
        options.client_authority(&self.path("ca.crt")).rules(rules).start()
    }
}

/// Whoever comes over TLS.
const OVER_TLS: &str = "hostssl all all 127.0.0.1/32 trust\nhostnossl all all 127.0.0.1/32 reject";

async fn opened(server: &Postgres, host: &str, parameters: &str) -> Result<(), String> {
    let url = format!("postgres://postgres@{host}:{}/postgres?{parameters}", server.port());
    let namespace = Namespace::new("tls").expect("a name");
    match PostgresBackend::open(&url, &namespace).await {
        Ok(_) => Ok(()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Refused, "{error} {error:?}");
            Err(error.to_string())
        }
    }
}

fn trusting(mode: &str, roots: &Path) -> String {
    format!("sslmode={mode}&sslrootcert={}", roots.display())
}

#[tokio::test]
async fn each_mode_verifies_what_libpq_says_it_does() {
    let papers = Papers::issue();
    let server = papers.server(OVER_TLS);
    let (ours, other) = (papers.path("ca.crt"), papers.path("other.crt"));

    for mode in ["prefer", "require"] {
        opened(&server, "localhost", &format!("sslmode={mode}")).await.expect(mode);
    }
    opened(&server, "127.0.0.1", &trusting("verify-ca", &ours)).await.expect("the authority is enough");
    opened(&server, "localhost", &trusting("verify-full", &ours)).await.expect("authority and name");

    let plain = opened(&server, "localhost", "sslmode=disable").await.expect_err("the server wants TLS");
    assert!(plain.contains("no encryption") || plain.contains("rejects"), "{plain}");
    let name = opened(&server, "127.0.0.1", &trusting("verify-full", &ours)).await.expect_err("another name");
    assert!(name.contains("TLS"), "{name}");
    for mode in ["require", "verify-ca", "verify-full"] {
        let told =
            opened(&server, "localhost", &trusting(mode, &other)).await.expect_err("another authority");
        assert!(told.contains("TLS"), "{mode}: {told}");
    }
    let told = opened(&server, "localhost", &trusting("verify-full", &papers.path("none"))).await;
    assert!(told.as_ref().is_err_and(|told| told.contains("cannot be read")), "{told:?}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let server = Options::new().start();

    opened(&server, "127.0.0.1", "sslmode=prefer").await.expect("it need not");
    let told = opened(&server, "127.0.0.1", "sslmode=require").await.expect_err("it cannot");

    assert!(told.contains("does not support TLS"), "{told}");
}

/// The same in a process with a home of its own, where `.postgresql/root.crt` is this authority's, if any; and with a
/// system that trusts this one, if any.
fn opened_at_home(
    server: &Postgres,
    host: &str,
    parameters: &str,
    root: Option<&Path>,
    system: Option<&Path>,
) -> String {
    let home = tempfile::tempdir().expect("a folder");
    if let Some(root) = root {
        std::fs::create_dir(home.path().join(".postgresql")).expect("a folder");
        std::fs::copy(root, home.path().join(".postgresql/root.crt")).expect("a copy");
    }
    let url = format!("postgres://postgres@{host}:{}/postgres?{parameters}", server.port());
    let mut environment = vec![("HOME", home.path().as_os_str())];
    environment.extend(system.map(|system| ("SSL_CERT_FILE", system.as_os_str())));
    opens(&url, &environment)
}

#[test]
fn tls_that_is_required_verifies_the_authority_where_one_is_kept_at_home() {
    let papers = Papers::issue();
    let server = papers.server(OVER_TLS);
    let (ours, other) = (papers.path("ca.crt"), papers.path("other.crt"));
    let opened = |host, parameters, root| opened_at_home(&server, host, parameters, root, None);

    assert_eq!(opened("localhost", "sslmode=require", None), "opened");
    assert_eq!(opened("127.0.0.1", "sslmode=require", Some(&*ours)), "opened");
    assert_eq!(opened("localhost", "sslmode=verify-full", Some(&*ours)), "opened");
    assert_eq!(opened("localhost", "sslmode=prefer", Some(&*other)), "opened");

    let told = opened("localhost", "sslmode=require", Some(&*other));
    assert!(told.starts_with("Refused") && told.contains("TLS"), "{told}");
}

#[test]
fn whom_the_system_trusts_is_trusted_by_its_name() {
    let papers = Papers::issue();
    let server = papers.server(OVER_TLS);
    let (ours, other) = (papers.path("ca.crt"), papers.path("other.crt"));
    let opened = |host, parameters, system| opened_at_home(&server, host, parameters, None, Some(system));

    assert_eq!(opened("localhost", "sslrootcert=system", &*ours), "opened");
    assert_eq!(opened("localhost", "sslrootcert=system&sslmode=verify-full", &*ours), "opened");

    let name = opened("127.0.0.1", "sslrootcert=system", &*ours);
    assert!(name.starts_with("Refused") && name.contains("TLS"), "{name}");
    let unknown = opened("localhost", "sslrootcert=system", &*other);
    assert!(unknown.starts_with("Refused") && unknown.contains("TLS"), "{unknown}");
    let weak = opened("localhost", "sslrootcert=system&sslmode=verify-ca", &*ours);
    assert!(weak.contains("needs sslmode=verify-full"), "{weak}");
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_the_server_asks_for_one() {
    let papers = Papers::issue();
    let server = papers.server("hostssl all app 127.0.0.1/32 cert\nhostssl all all 127.0.0.1/32 reject");
    server.sql("CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app");
    let at = |name: &str| papers.path(name).display().to_string();
    let opened = async |parameters: String| {
        let url = format!("postgres://app@localhost:{}/postgres?sslmode=require&{parameters}", server.port());
        let opened = PostgresBackend::open(&url, &Namespace::new("tls").expect("a name")).await;
        opened.map(|_| ()).map_err(|error| {
            assert_eq!(error.kind(), ErrorKind::Refused, "{error} {error:?}");
            error.to_string()
        })
    };

    opened(format!("sslcert={}&sslkey={}", at("client.crt"), at("client.key"))).await.expect("it is known");

    opened(String::new()).await.expect_err("none is shown");
    let others = opened(format!("sslcert={}&sslkey={}", at("server.crt"), at("server.key"))).await;
    others.expect_err("it is made out to somebody else");
    let mixed = opened(format!("sslcert={}&sslkey={}", at("client.crt"), at("server.key"))).await;
    mixed.expect_err("a key of another");
    let none = opened(format!("sslcert={}&sslkey={}", at("client.crt"), at("none"))).await;
    assert!(none.as_ref().is_err_and(|told| told.contains("sslkey: it cannot be read")), "{none:?}");
    std::fs::set_permissions(at("client.key"), std::fs::Permissions::from_mode(0o644)).expect("rights");
    let open = opened(format!("sslcert={}&sslkey={}", at("client.crt"), at("client.key"))).await;
    assert!(open.as_ref().is_err_and(|told| told.contains("others have access to it")), "{open:?}");
}
