//! Connections that break or hang, scripts that are forgotten, memory that runs out.

use super::*;
use std::sync::atomic::AtomicBool;
use testkit::proxy::{Link, Proxy};

const SHORT: Duration = Duration::from_millis(300);

async fn through(proxy: &Proxy) -> RedisStore {
    open(&format!("redis://127.0.0.1:{}", proxy.port())).await.expect("a store")
}

/// The same with a limit: as a worker does, the request is given up then.
async fn ask_within(store: &RedisStore, limit: Duration, lease: LeaseId, call: Call) -> Option<Answer> {
    let request = Request { limit, ..request(lease, call) };
    let answered = tokio::time::timeout(limit, store.call(&request)).await;
    answered.ok().map(|answer| answer.expect("an answer"))
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_replaced_unnoticed() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    said(&store, lease, Call::Renew).await;
    let clients = || server.command(&["CLIENT", "LIST"]).text().lines().count();
    let before = clients();

    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    testkit::eventually(PATIENCE, "the connections are closed", || clients() < before);
    // The client has to notice it, too.
    tokio::time::sleep(Duration::from_millis(50)).await;

    assert!(matches!(said(&store, lease, Call::Renew).await, Said::Kept { .. }));
}

/// An attempt that hangs gives its connection up: the next one does not queue behind it.
#[tokio::test]
async fn a_connection_that_hangs_is_replaced() {
    let server = fresh(Options::new());
    let proxy = Proxy::to(server.port());
    let store = through(&proxy).await;
    let lease = opened(&store).await;
    assert!(matches!(said(&store, lease, Call::Renew).await, Said::Kept { .. }));
    let before = proxy.accepted();

    proxy.set(Link::DropReplies);
    assert_eq!(ask_within(&store, SHORT, lease, Call::Renew).await, None);
    assert_eq!(proxy.accepted(), before);
    assert_eq!(ask_within(&store, SHORT, lease, Call::Renew).await, None);
    assert!(proxy.accepted() > before, "the second attempt has a connection of its own");

    proxy.set(Link::Pass);
    assert!(matches!(said(&store, lease, Call::Renew).await, Said::Kept { .. }));
}

/// A way to the server over which a connection comes to nothing when it is told so, and nobody hears of it.
async fn way_with_holes(server: &Redis) -> (u16, Arc<AtomicBool>) {
    let (port, swallows) = (server.port(), Arc::new(AtomicBool::new(false)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (ours, told) = (listener.local_addr().expect("an address").port(), swallows.clone());
    tokio::spawn(async move {
        let mut swallowed = vec![];
        while let Ok((mut client, _)) = listener.accept().await {
            if told.swap(false, Ordering::SeqCst) {
                swallowed.push(client);
                continue;
            }
            tokio::spawn(async move {
                let mut server =
                    tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("the server");
                // However it ends.
                let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (ours, swallows)
}

/// One who has time to wait for a connection that hangs as it is made does not hold up those who have not.
#[tokio::test]
async fn a_patient_caller_that_connects_does_not_hold_up_an_impatient_one() {
    let server = fresh(Options::new());
    let (port, swallows) = way_with_holes(&server).await;
    let store = Arc::new(open(&format!("redis://127.0.0.1:{port}")).await.expect("a store"));
    let lease = opened(&store).await;
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    // The client has to notice it.
    tokio::time::sleep(Duration::from_millis(50)).await;

    swallows.store(true, Ordering::SeqCst);
    let patient = tokio::spawn({
        let store = store.clone();
        async move { ask(&store, lease, Call::Held).await }
    });
    let dials = async {
        while swallows.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, dials).await.expect("it dials");

    let kept = ask_within(&store, Duration::from_secs(2), lease, Call::Renew).await;
    assert!(matches!(kept.as_ref().map(|answer| &answer.said), Some(Said::Kept { .. })), "{kept:?}");
    assert!(!patient.is_finished(), "nothing was waited for");
    patient.abort();
}

#[tokio::test]
async fn a_subscription_that_hangs_or_breaks_ends_and_can_be_made_again() {
    let server = fresh(Options::new());
    let proxy = Proxy::to(server.port());
    let store = through(&proxy).await;
    let lease = LeaseId(7);
    said(&store, lease, opening(Duration::from_secs(60))).await;

    for fault in [Link::Refuse, Link::Hang, Link::HalfOpen] {
        let mut hints = store.hints(lease).await.expect("a subscription");
        proxy.set(fault);
        let ended = tokio::time::timeout(PATIENCE, hints.recv()).await.expect("it is noticed");
        assert!(ended.is_none(), "{fault:?}");
        proxy.set(Link::Pass);
    }

    let mut hints = store.hints(lease).await.expect("a subscription");
    let direct = open(&server.url()).await.expect("a store");
    let owner = opened(&direct).await;
    claimed(&direct, owner, "job").await;
    assert!(matches!(said(&store, lease, Call::Renew).await, Said::Kept { .. }));
    assert!(matches!(claimed(&store, lease, "job").await, Claimed::Waiting(_)));
    said(&direct, owner, releasing(&["job"], Leaving::Released)).await;
    let hint = tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
    assert_eq!(hint.resource, name("job"));
}

/// On a slow link those who subscribe at the same moment do not wait for each other's answers.
#[tokio::test]
async fn many_subscribe_side_by_side() {
    let server = fresh(Options::new());
    let proxy = Proxy::to(server.port());
    let store = Arc::new(through(&proxy).await);
    let _first = store.hints(LeaseId(0)).await.expect("a subscription");

    proxy.set(Link::Delay { requests: Duration::ZERO, replies: Duration::from_millis(150) });
    let mut subscriptions = tokio::task::JoinSet::new();
    for lease in 1..=40 {
        let store = store.clone();
        subscriptions.spawn(async move { store.hints(LeaseId(lease)).await });
    }

    let mut kept = vec![];
    while let Some(subscribed) = subscriptions.join_next().await {
        kept.push(subscribed.expect("no panic").expect("a subscription"));
    }
    assert_eq!(kept.len(), 40);
}

/// What is owned can be kept and given up also when nothing more fits in.
#[tokio::test]
async fn at_the_memory_limit_leases_are_renewed_released_and_closed() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [a, b] = [opened(&store).await, opened(&store).await];
    let mut hints = store.hints(b).await.expect("a subscription");
    claimed(&store, a, "job").await;
    claimed(&store, b, "job").await;

    server.command(&["CONFIG", "SET", "maxmemory", "1"]);

    assert_eq!(server.command(&["SET", "x", "y"]).text().split(' ').next(), Some("OOM"));
    let full = ask(&store, a, claiming("another")).await.expect_err("nothing fits in");
    assert_eq!(
        (full.kind(), full.to_string().ends_with("it is at its memory limit")),
        (ErrorKind::Unavailable, true)
    );
    assert!(matches!(said(&store, a, Call::Renew).await, Said::Kept { .. }));
    assert!(matches!(said(&store, a, releasing(&["job"], Leaving::Released)).await, Said::Released(_)));
    tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
    let full = ask(&store, b, claiming("job")).await.expect_err("nothing fits in");
    assert!(full.to_string().ends_with("it is at its memory limit"), "{}", chain(&full));
    assert_eq!(said(&store, b, Call::Held).await, Said::Held(vec![]));
    assert_eq!(said(&store, a, Call::Close(tenure::store::Closing::Left)).await, Said::Closed);
    assert_eq!(said(&store, a, Call::Renew).await, Said::Gone);

    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(matches!(claimed(&store, b, "job").await, Claimed::Granted(_)));
}
