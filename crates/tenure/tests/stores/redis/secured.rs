//! TLS, passwords and rights.

use super::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::{Path, PathBuf};
use tenure::jobs::{Note, Occurrence, Plan};
use tenure::store::{Begin, Holder, JobAct, JobOutcome, JobSaid, JobStep, Payload, Published};
use testkit::redis::Tls;

/// An authority, and a certificate of it for `host`.
pub(super) fn certificates(folder: &Path, host: &str) -> Tls {
    let mut params = CertificateParams::new(vec![]).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let write = |name: &str, text: String| -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    Tls {
        certificate: write("server.pem", certificate.pem()),
        key: write("server.key", key.serialize_pem()),
        authority: write("ca.pem", authority.pem()),
    }
}

#[tokio::test]
async fn tls_works_with_the_authority_that_the_url_names_and_is_verified() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = certificates(folder.path(), "localhost");
    let server = fresh(Options::new().tls(tls.clone()));
    let url = format!("rediss://localhost:{}", server.tls_port());
    let named = format!("{url}?ca={}", tls.authority.display());

    let store = open(&named).await.expect("a store");
    let lease = opened(&store).await;
    let _hints = store.hints(lease).await.expect("a subscription");
    assert!(matches!(claimed(&store, lease, "job").await, Claimed::Granted(_)));

    // Unknown to the world, for another name, and without TLS on a port that speaks it.
    let unknown = open(&url).await.expect_err("nobody vouches for it");
    assert_eq!(unknown.kind(), ErrorKind::Refused, "{}", chain(&unknown));
    let address = named.replace("localhost", "127.0.0.1");
    assert_eq!(open(&address).await.expect_err("another name").kind(), ErrorKind::Refused);
    let plain = format!("redis://127.0.0.1:{}", server.tls_port());
    assert_eq!(open(&plain).await.expect_err("no TLS").kind(), ErrorKind::Unavailable);
    // With TLS on a port that does not: the server waits for the rest of a word that it does not know.
    let secure = format!("rediss://localhost:{}?ca={}", server.port(), tls.authority.display());
    let told = open(&secure).await.expect_err("no TLS there").to_string();
    assert!(told.contains("does it speak TLS there?"), "{told}");
}

/// The rule of docs/stores.md.
fn rule() -> Vec<String> {
    let docs = include_str!("../../../../../docs/stores.md");
    let rule =
        docs.split("ACL SETUSER tenure").nth(1).expect("the rule").split("```").next().expect("its end");
    rule.replace('\\', " ").split_whitespace().map(str::to_owned).collect()
}

fn with_rights() -> Redis {
    let server = fresh(Options::new());
    let rule = rule();
    let mut words = vec!["ACL", "SETUSER", "tenure"];
    words.extend(rule.iter().map(String::as_str));
    assert_eq!(server.command(&words).text(), "OK");
    server
}

fn url_of(server: &Redis) -> String {
    format!("redis://tenure:PASSWORD@127.0.0.1:{}", server.port())
}

#[tokio::test]
async fn with_the_documented_rights_everything_works() {
    let server = with_rights();
    let store = open(&url_of(&server)).await.expect("a store");
    let [a, b] = [opened(&store).await, opened(&store).await];
    let mut hints = store.hints(b).await.expect("a subscription");
    let Claimed::Granted(grant) = claimed(&store, a, "job").await else { panic!("not granted") };
    assert!(matches!(claimed(&store, b, "job").await, Claimed::Waiting(_)));
    let successor = Label::new("a").expect("a label");

    assert!(matches!(said(&store, a, Call::Renew).await, Said::Kept { .. }));
    assert!(matches!(said(&store, a, Call::Held).await, Said::Held(held) if held.len() == 1));
    store.ask(&name("job"), grant.token, Some(&successor)).await.expect("asked");
    store.evict(&name("job"), grant.token).await.expect("evicted");
    let stepped_down = said(&store, a, releasing(&["job"], Leaving::SteppedDown)).await;
    assert!(matches!(stepped_down, Said::Released(_)));
    tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
    assert!(matches!(claimed(&store, b, "job").await, Claimed::Granted(_)));
    assert_eq!(store.read(None).await.expect("views").len(), 1);
    assert!(store.history(None).await.expect("entries").len() >= 3);
    assert!(store.safety().await.is_ok());

    let token = store.read(Some(&name("job"))).await.expect("a view")[0].owners[0].grant.token;
    let holder = Holder { lease: b, resource: name("job"), token };
    let mut messages = store.subscribe(&name("job")).await.expect("a subscription");
    let first = Occurrence::new(1).expect("an occurrence");
    for act in [
        JobAct::Attend { plan: Plan::new("once").expect("a plan"), from: Occurrence::default() },
        JobAct::Begin(Begin { occurrence: first, missed: 0, skipped: 0, again: false }),
        JobAct::Finish { occurrence: first, outcome: JobOutcome::Ran, note: Note::default() },
    ] {
        let said = store.job(&JobStep { holder: holder.clone(), act }).await.expect("an answer");
        assert!(
            matches!(said, JobSaid::Attended { .. } | JobSaid::Begun(_) | JobSaid::Finished(_)),
            "{said:?}"
        );
    }
    assert_eq!(store.jobs(None).await.expect("views")[0].counts.ran, 1);
    assert_eq!(store.jobs(Some(&name("job"))).await.expect("a view")[0].records.len(), 1);
    let hello = Payload::new(b"hello").expect("not too much");
    assert_eq!(store.publish(&holder, &hello).await.expect("an answer"), Published::Sent);
    let heard = tokio::time::timeout(PATIENCE, messages.recv()).await.expect("soon").expect("a message");
    assert_eq!(heard.payload, hello);

    assert_eq!(said(&store, b, Call::Close(tenure::store::Closing::Left)).await, Said::Closed);
}

#[tokio::test]
async fn outside_the_namespace_the_documented_rights_are_worth_nothing() {
    let server = with_rights();
    let mut connection = server.connect().expect("a connection");
    connection.command(&["AUTH", "tenure", "PASSWORD"]).expect("an answer");

    for words in [
        &["GET", "{tenure}:meta"][..],
        &["HGET", "{other}:meta", "value"],
        &["HSET", "x", "a", "b"],
        &["SUBSCRIBE", "{other}:t_1"],
        &["PUBLISH", "{other}:t_1", "x"],
        &["EVAL", "return redis.call('HGET', KEYS[1], 'a')", "1", "{other}:meta"],
        &["FLUSHALL"],
        &["KEYS", "*"],
        &["CONFIG", "GET", "*"],
        &["ACL", "LIST"],
    ] {
        let said = connection.command(words).expect("an answer");
        assert!(said.text().contains("NOPERM") || said.text().contains("can't"), "{words:?}: {said:?}");
    }
    let elsewhere = Namespace::new("other").expect("a namespace");
    let error = RedisStore::open(&url_of(&server), &elsewhere).await.expect_err("no rights there");
    assert_eq!(error.kind(), ErrorKind::Refused, "{}", chain(&error));
    assert!(error.to_string().contains("docs/stores.md has the ACL rule"), "{error}");
}
