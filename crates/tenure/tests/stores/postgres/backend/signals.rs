//! Signals: who hears them, when, and what ends them.

use std::time::Duration;

use tenure::store::PostgresBackend;
use tenure::store::backend::{Backend, Channel, Heard, Signals};
use tenure_core::{StoreTime, Version};
use testkit::proxy::{Link, Proxy};

use super::fixture::{
    Fresh, SOON, Words, apply, commit, is_done, lease, open, read, resource, set, text, write,
};

async fn hears(signals: &mut Signals) -> Heard {
    tokio::time::timeout(SOON, signals.recv()).await.expect("in time").expect("the connection is not lost")
}

async fn sends(backend: &PostgresBackend, channel: &Channel, text: &str) {
    let version = read(backend, &resource("sender")).await.version;
    apply(backend, write(&resource("sender"), version, text).and_signal(channel, text)).await;
}

#[tokio::test]
async fn a_signal_of_a_commit_is_heard_with_its_stamp_when_the_record_can_be_read() {
    let fresh = Fresh::start().await;
    let (subscriptions, mut signals) = fresh.backend.listen().await.expect("it listens");
    let channel = Channel::new("a_1");
    subscriptions.follow(channel.clone()).await.expect("it follows");
    subscriptions.follow(channel.clone()).await.expect("twice changes nothing");
    let other = fresh.another().await;
    for text_sent in ["plain", "", "with space  and ' quote \" \\ 🦀\nline", &"x".repeat(7_900)] {
        let version = read(&other, &lease(1)).await.version;

        let stamp = apply(&other, write(&lease(1), version, text_sent).and_signal(&channel, text_sent)).await;

        let heard = hears(&mut signals).await;
        assert_eq!((&heard.channel, heard.text.as_str()), (&channel, text_sent));
        assert_eq!(heard.stamp, Some(StoreTime::from_micros(stamp)));
        assert_eq!(text(&read(&fresh.backend, &lease(1)).await), Some(text_sent));
    }
}

#[tokio::test]
async fn only_what_is_followed_and_applied_is_heard_and_only_in_its_namespace() {
    let fresh = Fresh::start().await;
    let other = Fresh::start().await;
    let (subscriptions, mut signals) = fresh.backend.listen().await.expect("it listens");
    let (a, b, end) = (Channel::new("a"), Channel::new("b"), Channel::new("end"));
    for channel in [&a, &end] {
        subscriptions.follow(channel.clone()).await.expect("it follows");
    }

    sends(&fresh.backend, &b, "not followed").await;
    sends(&other.backend, &a, "another namespace").await;
    let lost = write(&resource("x"), Version(5), "conflict").and_signal(&a, "not applied");
    assert!(!is_done(&commit(&fresh.backend, &[lost]).await.done[0]));
    sends(&fresh.backend, &a, "heard").await;
    assert_eq!(hears(&mut signals).await.text.as_str(), "heard");
    subscriptions.forget(&a);
    sends(&fresh.backend, &a, "forgotten").await;
    sends(&fresh.backend, &end, "end").await;

    assert_eq!(hears(&mut signals).await.text.as_str(), "end");
    subscriptions.follow(a.clone()).await.expect("it follows again");
    sends(&fresh.backend, &a, "again").await;
    assert_eq!(hears(&mut signals).await.text.as_str(), "again");
}

#[tokio::test]
async fn a_signal_goes_to_the_first_of_its_channels_in_the_order_of_the_changes() {
    let fresh = Fresh::start().await;
    let (subscriptions, mut signals) = fresh.backend.listen().await.expect("it listens");
    let channels = ["first", "second"].map(Channel::new);
    for channel in &channels {
        subscriptions.follow(channel.clone()).await.expect("it follows");
    }
    let mut one = write(&lease(1), Version::NONE, "x").and_signal(&channels[0], "1");
    one.signals[0].to.push(channels[1].clone());
    let two =
        write(&lease(2), Version::NONE, "x").and_signal(&channels[1], "2").and_signal(&channels[0], "3");

    assert!(commit(&fresh.backend, &[one, two]).await.done.iter().all(is_done));

    let mut heard = Vec::new();
    for _ in 0..3 {
        let signal = hears(&mut signals).await;
        heard.push((signal.channel, signal.text.as_str().to_owned()));
    }
    assert_eq!(
        heard,
        [(0, "1"), (1, "2"), (0, "3")].map(|(to, text)| (channels[to].clone(), text.to_owned()))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_server_ends_the_signals_and_listening_begins_again() {
    let fresh = Fresh::alone().await;
    let (subscriptions, mut signals) = fresh.backend.listen().await.expect("it listens");
    subscriptions.follow(Channel::new("a")).await.expect("it follows");

    fresh.server().stop();
    let ended = tokio::time::timeout(SOON, signals.recv()).await.expect("in time");
    assert_eq!(ended, None);
    subscriptions.follow(Channel::new("b")).await.expect_err("the connection is lost");
    fresh.backend.listen().await.expect_err("nobody is there");
    fresh.server().start();

    let (subscriptions, mut signals) = fresh.backend.listen().await.expect("it listens");
    subscriptions.follow(Channel::new("a")).await.expect("it follows");
    sends(&fresh.backend, &Channel::new("a"), "hello").await;
    assert_eq!(hears(&mut signals).await.text.as_str(), "hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_dies_silently_ends_the_signals() {
    let fresh = Fresh::start().await;
    let proxy = Proxy::to(fresh.server().port());
    let url = fresh.server().url_at(proxy.port());
    let backend = open(&url, &fresh.namespace).await;
    let (_subscriptions, mut signals) = backend.listen().await.expect("it listens");

    proxy.set(Link::HalfOpen);

    assert_eq!(tokio::time::timeout(SOON, signals.recv()).await.expect("in time"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_listen_any_more_leaves_no_connection_behind() {
    let fresh = Fresh::alone().await;
    set(&fresh.backend, &lease(1), "x").await;
    let (subscriptions, signals) = fresh.backend.listen().await.expect("it listens");
    let listens = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'";
    assert_eq!(fresh.sql(listens), "2");

    drop((subscriptions, signals));

    tokio::task::block_in_place(|| {
        testkit::eventually(SOON, "it is closed", || fresh.sql(listens) == "1");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_does_not_send_for_long_what_was_forgotten() {
    let fresh = Fresh::start().await;
    let (subscriptions, mut signals) = fresh.backend.listen().await.expect("it listens");
    for number in 0..50 {
        subscriptions.follow(Channel::new(format!("c{number}"))).await.expect("it follows");
    }
    for number in 0..49 {
        subscriptions.forget(&Channel::new(format!("c{number}")));
    }

    // Longer than it takes until the server is told.
    tokio::time::sleep(Duration::from_secs(6)).await;
    sends(&fresh.backend, &Channel::new("c3"), "forgotten").await;
    sends(&fresh.backend, &Channel::new("c49"), "followed").await;

    assert_eq!(hears(&mut signals).await.text.as_str(), "followed");
}
