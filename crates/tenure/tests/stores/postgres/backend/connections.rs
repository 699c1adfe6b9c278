//! Connections that hang, break and are refused, and what an attempt that is given up leaves behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::ErrorKind;
use tenure::store::PostgresBackend;
use tenure::store::backend::{Backend, Change};
use tenure_core::Version;
use testkit::proxy::{Link, Proxy};

use super::fixture::{Fresh, SOON, lease, life, open, read, resource, set, write};

/// Much less than anything that hangs takes, and enough for a busy machine.
const AT_ONCE: Duration = Duration::from_secs(2);

async fn behind_a_proxy() -> (Fresh, Proxy, Arc<PostgresBackend>) {
    let fresh = Fresh::start().await;
    let proxy = Proxy::to(fresh.server().port());
    let url = fresh.server().url_at(proxy.port());
    let backend = Arc::new(open(&url, &fresh.namespace).await);
    (fresh, proxy, backend)
}

async fn gives_up<T>(attempt: impl Future<Output = T>) {
    assert!(tokio::time::timeout(Duration::from_millis(200), attempt).await.is_err(), "it hangs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_hangs_does_not_hold_up_the_next() {
    let (_fresh, proxy, backend) = behind_a_proxy().await;
    read(&backend, &lease(1)).await;
    for link in [Link::DropReplies, Link::DropRequests, Link::Hang, Link::HalfOpen] {
        proxy.set(link);
        gives_up(backend.read(&[])).await;
        gives_up(backend.read(&[])).await;
        let before = proxy.accepted();

        proxy.set(Link::Pass);

        let answer = tokio::time::timeout(AT_ONCE, backend.read(&[])).await;
        answer.expect("at once").expect("an answer");
        assert!(proxy.accepted() > before, "{link:?}: over a connection that was given up");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_may_have_been_applied_and_is_not_applied_twice() {
    let (_fresh, proxy, backend) = behind_a_proxy().await;
    let life = life(&backend).await;
    let change = write(&lease(1), Version::NONE, "once");

    proxy.set(Link::DropReplies);
    gives_up(backend.commit(life, std::slice::from_ref(&change))).await;
    proxy.cut();
    proxy.set(Link::Pass);

    let stored = read(&backend, &lease(1)).await;
    assert_eq!(stored.version, change.put[0].version, "the request had arrived");
    let again = backend.commit(life, &[change]).await.expect("an answer");
    assert_eq!(again.done, [tenure::store::backend::Committed::Conflict(vec![stored])]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_died_silently_are_given_up_together() {
    let (_fresh, proxy, backend) = behind_a_proxy().await;
    let reads = async || {
        let all: Vec<_> = (0..4)
            .map(|_| {
                tokio::spawn({
                    let backend = backend.clone();
                    async move { backend.read(&[]).await.map(|_| ()) }
                })
            })
            .collect();
        for one in all {
            one.await.expect("a task").expect("an answer");
        }
    };
    reads().await;

    // Nothing comes over connections that were made before.
    proxy.set(Link::HalfOpen);
    gives_up(backend.read(&[])).await;
    proxy.set(Link::Pass);

    tokio::time::timeout(AT_ONCE, reads()).await.expect("over new connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_do_not_wait_behind_claims() {
    let fresh = Fresh::start().await;
    let (held, own) =
        (set(&fresh.backend, &resource("held"), "1").await, set(&fresh.backend, &lease(1), "1").await);
    let life = life(&fresh.backend).await;
    let _hold =
        fresh.server().hold(&fresh.in_schema("SELECT FROM @.record WHERE key = 'resource/held' FOR UPDATE"));
    let claims: Vec<_> = (0..40)
        .map(|_| {
            let backend = fresh.backend.clone();
            tokio::spawn(async move { backend.commit(life, &[write(&resource("held"), held, "2")]).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;

    let renewal = Change { essential: true, ..write(&lease(1), own, "2") };
    let renewed = tokio::time::timeout(AT_ONCE, fresh.backend.commit(life, &[renewal])).await;

    renewed.expect("at once").expect("an answer");
    assert!(claims.iter().all(|claim| !claim.is_finished()));
    claims.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_given_up_leaves_no_connection_behind() {
    let fresh = Fresh::alone().await;
    let held = set(&fresh.backend, &resource("held"), "1").await;
    let life = life(&fresh.backend).await;
    let hold = fresh.server().hold(&fresh.in_schema("SELECT FROM @.record FOR UPDATE"));
    for _ in 0..20 {
        gives_up(fresh.backend.commit(life, &[write(&resource("held"), held, "2")])).await;
    }
    drop(hold);

    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'";
    tokio::task::block_in_place(|| {
        testkit::eventually(SOON, "they are closed", || {
            fresh.sql(ours).parse::<u32>().expect("a number") <= 1
        });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_one_after_the_other_share_a_connection() {
    let (_fresh, proxy, backend) = behind_a_proxy().await;

    for number in 0..20 {
        set(&backend, &lease(number), "x").await;
    }

    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_is_unavailable_and_comes_back() {
    let (_fresh, proxy, backend) = behind_a_proxy().await;

    proxy.set(Link::Refuse);
    let began = Instant::now();
    let told = backend.read(&[]).await.expect_err("nobody is there");
    assert_eq!(told.kind(), ErrorKind::Unavailable, "{told}");
    assert!(began.elapsed() < AT_ONCE);
    proxy.set(Link::Pass);

    backend.read(&[]).await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_does_not_answer_is_passed_over() {
    let fresh = Fresh::start().await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (silent, port) = (silent.local_addr().expect("an address").port(), fresh.server().port());
    let url = format!("postgres://postgres@127.0.0.1:{silent},127.0.0.1:{port}/postgres");
    let began = Instant::now();

    let backend = open(&url, &fresh.namespace).await;

    assert!(began.elapsed() < SOON);
    let began = Instant::now();
    backend.read(&[]).await.expect("an answer");
    assert!(began.elapsed() < Duration::from_millis(900), "the good host is remembered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_before_the_first_host_answers_gets_to_the_second() {
    let fresh = Fresh::start().await;
    let proxy = Proxy::to(fresh.server().port());
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres",
        proxy.port(),
        fresh.server().port()
    );
    let backend = open(&url, &fresh.namespace).await;

    proxy.set(Link::Hang);
    gives_up(backend.read(&[])).await;

    tokio::time::timeout(AT_ONCE, backend.read(&[])).await.expect("at once").expect("an answer");
}
