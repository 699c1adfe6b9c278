//! TLS: every mode that libpq has, against a real server with a certificate of a private authority.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tenure::Kind;
use tenure::store::{Namespace, PostgresStore};
use testkit::postgres::{Options, Postgres};

/// An authority, and the certificate of a server made out to `localhost`.
struct Papers(TempDir);

impl Papers {
    fn issue() -> Self {
        let papers = Self(tempfile::tempdir().expect("a folder"));
        let at = |name: &str| papers.path(name).display().to_string();
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
        for authority in ["ca", "other"] {
            let (out, secret) = (at(&format!("{authority}.crt")), at(&format!("{authority}.key")));
            let named = format!("/CN={authority}");
            openssl(
                &[&["req", "-x509", "-subj", &named, "-out", &out, "-keyout", &secret][..], &key].concat(),
            );
        }
        let (csr, secret) = (at("server.csr"), at("server.key"));
        openssl(
            &[&["req", "-subj", "/CN=localhost", "-out", &csr, "-keyout", &secret][..], &key[..5]].concat(),
        );
        std::fs::write(at("names"), "subjectAltName=DNS:localhost\n").expect("a file");
        let (ca, ca_key, out, names) = (at("ca.crt"), at("ca.key"), at("server.crt"), at("names"));
        openssl(&[
            "x509",
            "-req",
            "-in",
            &csr,
            "-CA",
            &ca,
            "-CAkey",
            &ca_key,
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            &names,
            "-out",
            &out,
        ]);
        papers
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn openssl(args: &[&str]) {
    let done = Command::new("openssl").args(args).output();
    let done = done.expect("`openssl` is not installed; on Debian: apt-get install openssl");
    assert!(done.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

async fn opened(server: &Postgres, host: &str, parameters: &str) -> Result<(), String> {
    let url = format!("postgres://postgres@{host}:{}/postgres?{parameters}", server.port());
    let namespace = Namespace::new("tls").expect("a name");
    match PostgresStore::open(&url, &namespace).await {
        Ok(_) => Ok(()),
        Err(error) => {
            assert_eq!(error.kind(), Kind::Refused, "{error} {error:?}");
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
    let rules = "hostssl all all 127.0.0.1/32 trust\nhostnossl all all 127.0.0.1/32 reject";
    let server =
        Options::new().tls(&papers.path("server.crt"), &papers.path("server.key")).rules(rules).start();
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
