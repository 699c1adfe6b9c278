//! Behind PgBouncer: requests work in any mode; signals need sessions, or a way around it.

use tenure::ErrorKind;
use tenure::store::backend::{Backend, Channel};
use tenure::store::{Impact, PostgresBackend};
use tenure_core::Version;
use testkit::postgres::{Bouncer, Pooling};

use super::fixture::{Fresh, SOON, Words, apply, commit, is_done, lease, open, read, set, write};

async fn hears_itself(backend: &PostgresBackend) {
    let (subscriptions, mut signals) = backend.listen().await.expect("it listens");
    let channel = Channel::new("a");
    subscriptions.follow(channel.clone()).await.expect("it follows");
    let version = read(backend, &lease(1)).await.version;
    apply(backend, write(&lease(1), version, "x").and_signal(&channel, "hello")).await;
    let heard = tokio::time::timeout(SOON, signals.recv()).await.expect("in time").expect("a signal");
    assert_eq!(heard.text.as_str(), "hello");
    assert_eq!(backend.safety().await.expect("an answer"), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_transaction_pooler_requests_work_and_missing_signals_are_reported() {
    let fresh = Fresh::start().await;
    let pooler = Bouncer::before(&fresh.server(), Pooling::Transactions);
    let url = fresh.server().url_at(pooler.port());
    // Also the schema is created through the pooler.
    let name = super::fixture::namespace("pooled");
    let backend = std::sync::Arc::new(open(&url, &name).await);

    let racing: Vec<_> = (0..12_u128)
        .map(|number| {
            let backend = backend.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    set(&backend, &lease(number), "x").await;
                }
            })
        })
        .collect();
    for one in racing {
        one.await.expect("all requests work");
    }
    assert_eq!(backend.safety().await.expect("an answer"), []);
    let (subscriptions, mut signals) = backend.listen().await.expect("a stream, though a silent one");

    let told = subscriptions.follow(Channel::new("a")).await.expect_err("nothing would arrive");
    assert_eq!(told.kind(), ErrorKind::Refused);
    assert!(told.to_string().contains("`listen`"), "{told}");
    let concerns = backend.safety().await.expect("an answer");
    assert!(
        matches!(&concerns[..], [concern] if concern.cost == Impact::Time && concern.what.contains("pooler")),
        "{concerns:?}"
    );
    assert!(signals.try_recv().is_err());
    // Other clients of the pooler do not inherit the channel.
    let change = write(&lease(99), Version::NONE, "x").and_signal(&Channel::new("a"), "hello");
    assert!(is_done(&commit(&backend, &[change]).await.done[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listen_url_or_host_around_the_pooler_brings_the_signals_back() {
    let fresh = Fresh::start().await;
    let pooler = Bouncer::before(&fresh.server(), Pooling::Transactions);
    let pooled = fresh.server().url_at(pooler.port());
    let direct = fresh.url.clone();
    let host = format!("127.0.0.1:{}", fresh.server().port());

    for listen in [direct, host] {
        hears_itself(&open(&format!("{pooled}?listen={listen}"), &fresh.namespace).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_session_pooler_signals_arrive() {
    let fresh = Fresh::start().await;
    let pooler = Bouncer::before(&fresh.server(), Pooling::Sessions);

    let url = fresh.server().url_at(pooler.port());
    hears_itself(&open(&url, &fresh.namespace).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_are_used_when_asked_for() {
    let fresh = Fresh::alone().await;
    let url = format!("{}?prepared_statements=on", fresh.url);
    let backend = open(&url, &fresh.namespace).await;
    set(&backend, &lease(1), "x").await;
    let log = fresh.server().folder().join("log");
    let is_named = || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("execute s"));
    fresh.sql("ALTER SYSTEM SET log_statement = 'all'");
    fresh.sql("SELECT pg_reload_conf()");
    let until = tokio::time::Instant::now() + SOON;
    while !is_named() {
        assert!(tokio::time::Instant::now() < until, "no statement is named");
        set(&backend, &lease(1), "x").await;
    }
}
