//! The Redis store on real servers: what it refuses, how it is reached, and what it survives.
#![cfg(all(feature = "redis", target_os = "linux"))]

mod agreement;
mod arena;
mod clocks;
mod connections;
mod crowds;
mod damage;
mod failover;
mod faults;
mod fleet;
mod jobs;
mod lives;
mod opening;
mod secured;
mod usual;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::store::{
    Answer, Call, Claimed, LeaseId, Leave, Leaving, Namespace, RedisStore, Request, Said, Seq, Store, Want,
};
use tenure::{Error, Kind};
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
    let state = format!("{{{namespace}}}:state");
    server.command(&["HSET", &state, "run", &server.life()]);
    // A request that was under way may have come before, and found a server that it does not know.
    server.command(&["HDEL", &state, "quarantine"]);
}

/// The fields of the state that begin with `kind`.
fn fields(server: &Redis, kind: &str) -> Vec<String> {
    let Reply::List(all) = server.command(&["HKEYS", "{tenure}:state"]) else { panic!("no fields") };
    all.iter().map(Reply::text).filter(|field| field.starts_with(kind)).collect()
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
        longest: Duration::ZERO,
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
