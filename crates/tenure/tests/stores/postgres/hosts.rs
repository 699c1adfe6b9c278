//! Several hosts, some of which do not answer; and connections that take too long to make.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::store::{Call, Namespace, PostgresStore, Said, Store};
use tenure::{ErrorKind, Timing, Worker};
use testkit::postgres::Options;
use testkit::proxy::{Link, Proxy};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::words::{Asker, SOON};

/// What a host gets at most while there are others, and something for a machine that is busy.
const PASSED_OVER: Duration = Duration::from_secs(5);

fn namespace(name: &str) -> Namespace {
    Namespace::new(name).expect("a namespace")
}

/// A URL of these ports, in this order.
fn url(ports: &[u16]) -> String {
    let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("postgres://postgres@{}/postgres", hosts.join(","))
}

/// Somebody who takes connections, and never says a word.
fn mute() -> (std::net::TcpListener, u16) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

/// Somebody to whom no connection can be made, and who refuses none: its queue is full.
async fn deaf() -> (TcpListener, Vec<TcpStream>, u16) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let listener = socket.listen(1).expect("it listens");
    let at = listener.local_addr().expect("an address");
    let mut waiting = Vec::new();
    while let Ok(made) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(at)).await {
        waiting.push(made.expect("it is taken, or nobody answers"));
        assert!(waiting.len() < 100, "its queue is never full");
    }
    (listener, waiting, at.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_never_answer_and_standbys_are_passed_over() {
    let server = Options::new().start();
    let standby = server.standby();
    let ((_mute, silent), (_deaf, _queue, full)) = (mute(), deaf().await);
    let name = namespace("passed-over");

    for ports in [[silent, server.port()], [full, server.port()], [standby.port(), server.port()]] {
        let asked = Instant::now();
        PostgresStore::open(&url(&ports), &name).await.expect("the primary is among them");
        assert!(asked.elapsed() < PASSED_OVER, "{ports:?}: {:?}", asked.elapsed());
    }
    let all = url(&[silent, full, standby.port(), server.port()]);
    let worker = Worker::builder(&all)
        .namespace("passed-over")
        .timing(Timing::new(Duration::from_secs(2)).expect("a timing"))
        .connect()
        .await
        .expect("a worker");
    let own = tokio::time::timeout(SOON, worker.campaign("job").acquire()).await.expect("in time");
    assert!(own.expect("an ownership").holds());
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_before_a_host_answers_leaves_no_connection_behind() {
    let (mute, port) = mute();
    let opening = tokio::spawn(async move { Worker::connect(&url(&[port])).await });
    let (mut taken, _) = mute.accept().expect("a connection");

    opening.abort();

    // What it said, and then its end, long before it would have given up by itself.
    taken.set_read_timeout(Some(PASSED_OVER)).expect("a limit");
    std::io::copy(&mut taken, &mut std::io::sink()).expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_host_answers_it_is_said_within_the_share_of_each() {
    let ((_mute, silent), (_deaf, _queue, full)) = (mute(), deaf().await);

    let asked = Instant::now();
    let error = PostgresStore::open(&url(&[silent, full]), &namespace("none")).await.expect_err("nobody");

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(asked.elapsed() < PASSED_OVER, "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_good_host_is_tried_first() {
    let server = Options::new().start();
    let hung = Proxy::to(server.port());
    hung.set(Link::Hang);
    let store = PostgresStore::open(&url(&[hung.port(), server.port()]), &namespace("first")).await;
    let store: Arc<dyn Store> = Arc::new(store.expect("a store"));
    let mut worker = Asker::open(&store, "a", SOON * 10).await;
    assert_eq!(hung.accepted(), 1, "it was tried once, and passed over");

    for _ in 0..3 {
        server
            .sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenure'");
        testkit::eventually(SOON, "a renewal comes through", || {
            let renewed = worker.ask(Call::Renew);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(renewed)).is_ok()
        });
    }

    assert_eq!(hung.accepted(), 1, "it was not tried again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_stops_answering_costs_no_lease_where_there_is_another() {
    let server = Options::new().start();
    let (one, other) = (Proxy::to(server.port()), Proxy::to(server.port()));
    let worker = Worker::builder(&url(&[one.port(), other.port()]))
        .namespace("moves")
        .timing(Timing::new(Duration::from_secs(9)).expect("a timing"))
        .connect()
        .await
        .expect("a worker");
    let own = tokio::time::timeout(SOON, worker.campaign("job").acquire()).await;
    let own = own.expect("in time").expect("an ownership");

    for (hangs, passes) in [(&one, &other), (&other, &one)] {
        passes.set(Link::Pass);
        hangs.set(Link::Hang);
        let until = Instant::now() + Duration::from_secs(9);
        while Instant::now() < until {
            assert!(own.holds(), "one of two hosts answers all the time");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_cannot_be_written_to_any_more_is_left_for_another() {
    let (one, other) = (Options::new().start(), Options::new().start());
    let name = namespace("left");
    drop(PostgresStore::open(&other.url(), &name).await.expect("a schema there, too"));
    let store = PostgresStore::open(&url(&[one.port(), other.port()]), &name).await.expect("a store");
    let store: Arc<dyn Store> = Arc::new(store);
    let mut worker = Asker::open(&store, "a", SOON * 10).await;
    assert!(matches!(worker.renew().await, Said::Kept { .. }));

    one.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    one.sql("SELECT pg_reload_conf()");
    testkit::eventually(SOON, "it is read only", || one.sql("SHOW default_transaction_read_only") == "on");

    let first = worker.ask(Call::Renew).await;
    assert!(first.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable), "{first:?}");
    let second = worker.ask(Call::Renew).await.expect("an answer of the other");
    assert_eq!(second.said, Said::Gone);
}
