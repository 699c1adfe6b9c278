//! How the server is reached, and what becomes of requests when a connection goes bad.

use super::*;
use std::sync::Arc;
use testkit::process::Port;
use testkit::proxy::{Link, Proxy};

async fn open_over(proxy: &Proxy) -> Arc<RedisBackend> {
    Arc::new(open(&format!("redis://127.0.0.1:{}", proxy.port())).await)
}

/// What a request gets that is given up after a while.
async fn given_up(backend: &RedisBackend, life: Incarnation, change: &Change) -> bool {
    let changes = [change.clone()];
    tokio::time::timeout(Duration::from_millis(200), backend.commit(life, &changes)).await.is_err()
}

#[tokio::test]
async fn a_request_does_not_queue_behind_one_that_was_given_up() {
    let server = Options::new().start();
    let proxy = Proxy::to(server.port());
    let backend = open_over(&proxy).await;
    let life = life(&backend).await;

    proxy.set(Link::HalfOpen);
    assert!(given_up(&backend, life, &creation(resource("a"), "lost")).await);
    proxy.set(Link::Pass);
    let commits = backend.commit(life, &[creation(resource("a"), "a")]).await.expect("an answer");

    assert!(matches!(commits.done[0], Committed::Done { .. }));
}

/// There are as many connections as are kept, and requests share them; but not those that may hang.
#[tokio::test]
async fn a_request_does_not_queue_behind_many_that_hang() {
    let server = Options::new().start();
    let proxy = Proxy::to(server.port());
    let backend = open_over(&proxy).await;
    proxy.set(Link::Delay { requests: Duration::from_millis(20), replies: Duration::ZERO });
    let ask_many = |tasks: &mut tokio::task::JoinSet<_>| {
        for _ in 0..40 {
            let backend = backend.clone();
            tasks.spawn(async move { backend.read(&[Key::Meta]).await.map(drop) });
        }
    };
    let mut tasks = tokio::task::JoinSet::new();
    ask_many(&mut tasks);
    tasks.join_all().await.into_iter().for_each(|answer| answer.expect("an answer"));

    proxy.set(Link::Hang);
    let mut tasks = tokio::task::JoinSet::new();
    ask_many(&mut tasks);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = proxy.accepted();
    let one_more = backend.clone();
    tasks.spawn(async move { one_more.read(&[Key::Meta]).await.map(drop) });
    until(|| proxy.accepted() > before).await;

    proxy.set(Link::Pass);
    tasks.join_all().await.into_iter().for_each(|answer| answer.expect("an answer"));
}

#[tokio::test]
async fn a_request_that_was_given_up_may_be_applied_and_shows_as_a_conflict() {
    let server = Options::new().start();
    let proxy = Proxy::to(server.port());
    let backend = open_over(&proxy).await;
    let life = life(&backend).await;
    let lost = creation(resource("a"), "a");
    // So that the server knows the script.
    apply(&backend, creation(resource("b"), "b")).await;

    proxy.set(Link::DropReplies);
    assert!(given_up(&backend, life, &lost).await);
    proxy.set(Link::Pass);
    let again = backend.commit(life, std::slice::from_ref(&lost)).await.expect("an answer");

    let Committed::Conflict(differing) = &again.done[0] else { panic!("applied twice") };
    assert_eq!(differing[0].version, lost.put[0].version);
}

#[tokio::test]
async fn a_request_that_comes_late_changes_nothing() {
    let server = Options::new().start();
    let proxy = Proxy::to(server.port());
    let backend = open_over(&proxy).await;
    let life = life(&backend).await;
    let direct = open(&server.url()).await;
    apply(&direct, creation(resource("b"), "b")).await;

    proxy.set(Link::Hang);
    let mut late = creation(resource("a"), "late");
    late.history.push(entry("a", "late"));
    assert!(given_up(&backend, life, &late).await);
    apply(&direct, creation(resource("a"), "first")).await;
    proxy.set(Link::Pass);

    until(|| {
        // Its connection is closed once it was answered.
        server.command(&["CLIENT", "LIST"]).text().lines().count() <= 3
    })
    .await;
    assert_eq!(text(&backend, resource("a")).await.as_deref(), Some("first"));
    assert!(history(&backend, None, 10).await.is_empty());
}

#[tokio::test]
async fn a_cut_costs_one_answer_at_most() {
    let server = Options::new().start();
    let proxy = Proxy::to(server.port());
    let backend = open_over(&proxy).await;
    // Several that are idle.
    proxy.set(Link::Delay { requests: Duration::from_millis(20), replies: Duration::ZERO });
    tokio::join!(life(&backend), life(&backend), life(&backend), life(&backend));
    proxy.set(Link::Pass);

    proxy.cut();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(backend.read(&[Key::Meta]).await.is_ok());

    proxy.set(Link::Refuse);
    let error = backend.read(&[Key::Meta]).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", chain(&error));
    proxy.set(Link::Pass);
    assert!(backend.read(&[Key::Meta]).await.is_ok());
}

#[tokio::test]
async fn many_requests_share_a_few_connections() {
    let server = Options::new().start();
    let proxy = Proxy::to(server.port());
    let backend = open_over(&proxy).await;
    let life = life(&backend).await;
    proxy.set(Link::Delay { requests: Duration::from_millis(5), replies: Duration::from_millis(5) });

    for round in 0..3 {
        let mut tasks = tokio::task::JoinSet::new();
        for index in 0..1000 {
            let backend = backend.clone();
            tasks.spawn(async move {
                let change = creation(resource(&format!("r{round} {index}")), "x");
                let commits = backend.commit(life, &[change]).await.expect("an answer");
                assert!(matches!(commits.done[0], Committed::Done { .. }));
            });
        }
        tasks.join_all().await;
    }

    let made = proxy.accepted();
    // Mostly 17. A machine that is busy elsewhere takes longer, and then some requests do not wait.
    assert!(made < 500, "{made} connections for 3 x 1000 requests");
}

#[tokio::test]
async fn few_requests_have_connections_of_their_own_and_keep_them() {
    let server = Options::new().start();
    let proxy = Proxy::to(server.port());
    let backend = open_over(&proxy).await;
    proxy.set(Link::Delay { requests: Duration::from_millis(5), replies: Duration::ZERO });

    for _ in 0..3 {
        tokio::join!(life(&backend), life(&backend), life(&backend));
        assert_eq!(proxy.accepted(), 3);
    }
}

/// As an application whose runtime is blocked, and the driver of its workers.
#[tokio::test]
async fn a_runtime_that_is_blocked_holds_up_no_requests_from_another() {
    let server = Options::new().start();
    let backend = Arc::new(open(&server.url()).await);
    let (blocked, is_blocked) = std::sync::mpsc::channel();
    let (ended, end) = std::sync::mpsc::channel::<()>();
    let other = backend.clone();
    let blocking = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            tokio::join!(life(&other), life(&other), life(&other));
            blocked.send(()).expect("somebody waits");
            // It ends when the test does.
            let _gone = end.recv();
        });
    });
    is_blocked.recv().expect("it is blocked");

    for _ in 0..10 {
        let answers = async { tokio::join!(life(&backend), life(&backend), life(&backend)) };
        tokio::time::timeout(PATIENCE, answers).await.expect("in time");
    }

    drop(ended);
    blocking.join().expect("it ends");
    life(&backend).await;
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_gets_them_again() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    apply(&backend, creation(resource("a"), "a")).await;

    server.command(&["SCRIPT", "FLUSH"]);

    apply(&backend, creation(resource("b"), "b")).await;
    assert_eq!(text(&backend, resource("a")).await.as_deref(), Some("a"));
}

#[tokio::test]
async fn nobody_there_is_unavailable_and_named_without_the_password() {
    let port = Port::free();
    let url = format!("redis://user:secret@127.0.0.1:{}", port.number());

    let error = RedisBackend::open(&url, &Namespace::default()).await.expect_err("nobody is there");

    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let named = format!("`redis://127.0.0.1:{}`: connection refused", port.number());
    assert!(error.to_string().contains(&named), "{error}");
    assert!(!chain(&error).contains("secret"), "{}", chain(&error));
}

#[tokio::test]
async fn a_unix_socket_serves_as_well() {
    let server = Options::new().start();
    let backend = open(&format!("redis+unix://{}?db=2", server.socket().display())).await;
    let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
    subscriptions.follow(Channel::new("c")).await.expect("a subscription");

    let mut created = creation(resource("a"), "a");
    created.signals.push(signal(&["c"], "hello"));
    apply(&backend, created).await;

    assert_eq!(hear(&mut signals).await.text.as_str(), "hello");
    assert_eq!(text(&backend, resource("a")).await.as_deref(), Some("a"));
}

/// All keys of a namespace lie in one slot, also with hostile names.
#[tokio::test]
async fn a_cluster_serves_as_well() {
    let server = Options::new().cluster().start();
    let backend = open(&server.url()).await;
    let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
    subscriptions.follow(Channel::new("c")).await.expect("a subscription");

    let mut all = creation(Key::Meta, "meta");
    for key in [resource("{x}"), resource("}:{y}"), Key::Lease(LeaseId(1)), Key::Runs(name("{z}"))] {
        let more = creation(key, "x");
        all.expect.extend(more.expect);
        all.put.extend(more.put);
    }
    all.history.push(entry("{x}", "granted"));
    all.signals.push(signal(&["nobody", "c"], "hello"));
    apply(&backend, all).await;

    assert_eq!(hear(&mut signals).await.text.as_str(), "hello");
    assert_eq!(backend.list(Listing::Resources, None).await.expect("a page").shown.records.len(), 2);
    assert_eq!(history(&backend, Some("{x}"), 1).await, ["granted"]);
}

#[tokio::test]
async fn the_node_that_has_the_keys_is_found_and_left_when_it_is_gone() {
    let mut owner = Options::new().cluster().start();
    let other = Options::new().cluster_without_slots().start();
    other.command(&["CLUSTER", "MEET", "127.0.0.1", &owner.port().to_string()]);
    until(|| other.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok")).await;
    let backend = open(&other.url()).await;
    apply(&backend, creation(resource("a"), "a")).await;
    assert_eq!(owner.command(&["HGET", "{tenure}:resource/a", "value"]).text(), "a");
    let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
    subscriptions.follow(Channel::new("c")).await.expect("a subscription");
    tokio::join!(life(&backend), life(&backend), life(&backend), life(&backend));
    let mut created = creation(resource("b"), "b");
    created.signals.push(signal(&["c"], "hello"));
    apply(&backend, created).await;
    assert_eq!(hear(&mut signals).await.text.as_str(), "hello");

    owner.kill();
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        // Once the node is found gone, the one of the URL is asked, which says that the cluster is down or where the keys are.
        let error = backend.read(&[Key::Meta]).await.expect_err("the keys are gone");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", chain(&error));
        if chain(&error).contains("ClusterDown") || chain(&error).contains("Moved") {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "{}", chain(&error));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
