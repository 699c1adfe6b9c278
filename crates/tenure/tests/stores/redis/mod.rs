//! The Redis store on real servers: what it refuses, how it is reached, and what it survives.
#![cfg(all(feature = "redis", target_os = "linux"))]

mod arena;
mod backend;
mod clocks;
mod connections;
mod crowds;
mod damage;
mod failover;
mod faults;
mod fleet;
mod hints;
mod jobs;
mod lives;
mod opening;
mod secured;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::store::{
    Answer, Call, Claimed, LeaseId, Leave, Leaving, Namespace, RedisStore, Request, Said, Seq, Store, Want,
};
use tenure::{Error, ErrorKind};
use tenure_core::{Label, Metadata, Moment, ResourceName, StoreTime, Tickets};
use testkit::redis::{Options, Redis};
use testkit::resp::Reply;

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(20);

async fn open(url: &str) -> Result<RedisStore, Error> {
    RedisStore::open(url, &Namespace::default()).await
}

/// A server of its own that is known to be new, so that nothing waits for a quarantine.
fn fresh(options: Options) -> Redis {
    let server = options.start();
    vouch_for(&server);
    server
}

/// Has the namespace believe that this life of the server is the one that it knows.
fn vouch_for(server: &Redis) {
    vouch_for_namespace(server, "tenure");
}

fn vouch_for_namespace(server: &Redis, namespace: &str) {
    let key = format!("{{{namespace}}}:meta");
    let mut meta = match server.command(&["HGET", &key, "value"]) {
        Reply::Nil => {
            serde_json::json!({ "format": 1, "rev": 1, "longest_us": 0, "floor": 0, "secret": hex_of(random()) })
        }
        known => serde_json::from_str(&known.text()).expect("a record"),
    };
    meta["life"] = server.life().into();
    meta.as_object_mut().expect("an object").remove("quarantine");
    write_record(server, &key, &meta.to_string());
}

/// Writes a record as if somebody else had committed it, under a version of its own.
fn write_record(server: &Redis, key: &str, value: &str) {
    let version = &hex_of(random())[..16];
    let Reply::List(clock) = server.command(&["TIME"]) else { panic!("no time") };
    let stamp = format!("{}{:0>6}", clock[0].text(), clock[1].text());
    server.command(&["HSET", key, "version", version, "stamp", &stamp, "value", value]);
}

/// What a record says.
fn record(server: &Redis, name: &str) -> serde_json::Value {
    let said = server.command(&["HGET", &format!("{{tenure}}:{name}"), "value"]);
    serde_json::from_str(&said.text()).unwrap_or_else(|error| panic!("{name}: {said:?}: {error}"))
}

/// How many wait for a resource.
fn queued(server: &Redis, resource: &str) -> usize {
    match server.command(&["HGET", &format!("{{tenure}}:resource/{resource}"), "value"]) {
        Reply::Nil => 0,
        said => {
            let said: serde_json::Value = serde_json::from_str(&said.text()).expect("a record");
            said["queue"].as_array().map_or(0, Vec::len)
        }
    }
}

fn hex_of(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_le_bytes(bytes))
}

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).expect("a name")
}

fn request(lease: LeaseId, call: Call) -> Request {
    static SEQ: AtomicU64 = AtomicU64::new(1);
    Request {
        lease,
        seq: Seq(SEQ.fetch_add(1, Ordering::Relaxed)),
        asked_at: Moment::new(Duration::ZERO, Duration::ZERO),
        limit: PATIENCE,
        judged_by: None,
        call,
    }
}

fn opening(ttl: Duration) -> Call {
    Call::Open { ttl, label: Label::new("a").expect("a label"), metadata: Metadata::default() }
}

fn claiming(resource: &str) -> Call {
    claiming_all(&[resource], 1)
}

fn claiming_all(resources: &[&str], tickets: u32) -> Call {
    let tickets = Tickets::new(tickets).expect("a number of tickets");
    Call::Claim(
        resources.iter().map(|resource| Want { resource: name(resource), tickets, priority: 0 }).collect(),
    )
}

fn releasing(resources: &[&str], how: Leaving) -> Call {
    Call::Release(resources.iter().map(|resource| Leave { resource: name(resource), how }).collect())
}

async fn ask(store: &RedisStore, lease: LeaseId, call: Call) -> Result<Answer, Error> {
    store.call(&request(lease, call)).await
}

/// The same over connections of which some may have broken: the request is repeated.
async fn answered(store: &RedisStore, lease: LeaseId, call: Call) -> Answer {
    let latest = std::time::Instant::now() + PATIENCE;
    loop {
        match ask(store, lease, call.clone()).await {
            Ok(answer) => return answer,
            Err(error) => {
                let broke = error.kind() == ErrorKind::Unavailable && std::time::Instant::now() < latest;
                assert!(broke, "{}", chain(&error));
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn said(store: &RedisStore, lease: LeaseId, call: Call) -> Said {
    ask(store, lease, call).await.expect("an answer").said
}

/// A lease that is open, for a minute.
async fn opened(store: &RedisStore) -> LeaseId {
    let lease = LeaseId(u128::from_le_bytes(random()));
    assert_eq!(said(store, lease, opening(Duration::from_secs(60))).await, Said::Opened);
    lease
}

/// The same with this ttl and label.
async fn opened_as(store: &RedisStore, label: &str, ttl: Duration) -> LeaseId {
    let lease = LeaseId(u128::from_le_bytes(random()));
    let label = Label::new(label).expect("a label");
    let call = Call::Open { ttl, label, metadata: Metadata::default() };
    assert_eq!(said(store, lease, call).await, Said::Opened);
    lease
}

/// As the keys have it.
fn hex(lease: LeaseId) -> String {
    format!("{:032x}", lease.0)
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("random bytes");
    bytes
}

async fn claimed(store: &RedisStore, lease: LeaseId, resource: &str) -> Claimed {
    match said(store, lease, claiming(resource)).await {
        Said::Claimed(answers) => answers[0],
        other => panic!("a claim was answered {other:?}"),
    }
}

/// The whole chain of an error, as a log would show it.
fn chain(error: &Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
