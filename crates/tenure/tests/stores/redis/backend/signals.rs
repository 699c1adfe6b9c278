//! Who hears what, and when listening ends.

use super::*;
use testkit::proxy::{Link, Proxy};

async fn send(backend: &RedisBackend, signals: Vec<Signal>) -> StoreTime {
    apply(backend, Change { signals, ..Change::default() }).await
}

/// Nothing was sent before this.
async fn hears_nothing_but(backend: &RedisBackend, signals: &mut Signals, channel: &str) {
    send(backend, vec![signal(&[channel], "the end")]).await;
    assert_eq!(hear(signals).await.text.as_str(), "the end");
}

#[tokio::test]
async fn a_signal_is_heard_with_the_stamp_of_its_change() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
    subscriptions.follow(Channel::new("one")).await.expect("a subscription");
    subscriptions.follow(Channel::new("two")).await.expect("a subscription");

    let texts =
        ["", " ", "\0 é\r\n", "18446744073709551616", &"x".repeat(backend.capabilities().most_signal_bytes)];
    for text in texts {
        let stamp = send(&backend, vec![signal(&["two"], text)]).await;
        let heard = hear(&mut signals).await;
        assert_eq!(heard, Heard { channel: Channel::new("two"), stamp: Some(stamp), text: Text::from(text) });
    }
}

#[tokio::test]
async fn a_signal_goes_to_the_first_channel_that_somebody_listens_to() {
    let server = Options::new().start();
    let (backend, another) = (open(&server.url()).await, open(&server.url()).await);
    let (first, mut first_signals) = backend.listen().await.expect("a connection");
    let (second, mut second_signals) = another.listen().await.expect("a connection");
    second.follow(Channel::new("b")).await.expect("a subscription");

    send(&backend, vec![signal(&["a", "b", "c"], "1")]).await;
    assert_eq!(hear(&mut second_signals).await.text.as_str(), "1");

    first.follow(Channel::new("a")).await.expect("a subscription");
    send(&backend, vec![signal(&["a", "b"], "2"), signal(&["x", "y"], "lost"), signal(&[], "lost")]).await;
    assert_eq!(hear(&mut first_signals).await.text.as_str(), "2");
    hears_nothing_but(&backend, &mut second_signals, "b").await;
    hears_nothing_but(&backend, &mut first_signals, "a").await;
}

#[tokio::test]
async fn a_channel_that_is_followed_twice_is_heard_once_and_one_that_is_forgotten_no_more() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
    for channel in ["a", "a", "b"] {
        subscriptions.follow(Channel::new(channel)).await.expect("a subscription");
    }

    send(&backend, vec![signal(&["a"], "1")]).await;
    assert_eq!(hear(&mut signals).await.text.as_str(), "1");
    hears_nothing_but(&backend, &mut signals, "a").await;

    // In this order also if nobody waits in between.
    subscriptions.forget(&Channel::new("a"));
    subscriptions.follow(Channel::new("a")).await.expect("a subscription");
    send(&backend, vec![signal(&["a"], "2")]).await;
    assert_eq!(hear(&mut signals).await.text.as_str(), "2");

    subscriptions.forget(&Channel::new("a"));
    subscriptions.forget(&Channel::new("never followed"));
    until(|| server.command(&["PUBSUB", "CHANNELS"]) == Reply::List(vec![Reply::Text("{tenure}:b".into())]))
        .await;
    send(&backend, vec![signal(&["a", "b"], "3")]).await;
    let heard = hear(&mut signals).await;
    assert_eq!((heard.channel, heard.text.as_str()), (Channel::new("b"), "3"));
}

#[tokio::test]
async fn a_message_in_another_form_is_left_out() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
    subscriptions.follow(Channel::new("a")).await.expect("a subscription");

    for odd in ["", "x", "x y", "-1 y", "99999999999999999999999 y"] {
        server.command(&["PUBLISH", "{tenure}:a", odd]);
    }

    hears_nothing_but(&backend, &mut signals, "a").await;
}

#[tokio::test]
async fn signals_end_when_the_connection_is_lost_or_hangs_and_can_be_heard_again() {
    let server = Options::new().start();
    let proxy = Proxy::to(server.port());
    let backend = open(&format!("redis://127.0.0.1:{}", proxy.port())).await;

    for link in [None, Some(Link::Hang), Some(Link::HalfOpen)] {
        let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
        subscriptions.follow(Channel::new("a")).await.expect("a subscription");
        match link {
            Some(link) => proxy.set(link),
            None => proxy.cut(),
        }
        let ended = tokio::time::timeout(PATIENCE, signals.recv()).await.expect("soon");
        assert_eq!(ended, None);
        assert!(subscriptions.follow(Channel::new("b")).await.is_err());
        proxy.cut();
        proxy.set(Link::Pass);
    }

    let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
    subscriptions.follow(Channel::new("a")).await.expect("a subscription");
    hears_nothing_but(&backend, &mut signals, "a").await;
}

#[tokio::test]
async fn a_subscription_that_is_not_answered_ends_the_signals() {
    let server = Options::new().start();
    let proxy = Proxy::to(server.port());
    let backend = open(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    let (subscriptions, mut signals) = backend.listen().await.expect("a connection");

    proxy.set(Link::Hang);
    let error = subscriptions.follow(Channel::new("a")).await.expect_err("no answer");

    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(tokio::time::timeout(PATIENCE, signals.recv()).await.expect("soon"), None);
}

#[tokio::test]
async fn a_silent_connection_is_kept() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
    subscriptions.follow(Channel::new("a")).await.expect("a subscription");

    let silent = tokio::time::timeout(Duration::from_secs(5), signals.recv()).await;

    assert!(silent.is_err(), "{silent:?}");
    hears_nothing_but(&backend, &mut signals, "a").await;
}

#[tokio::test]
async fn nobody_listens_any_more_once_both_halves_are_dropped() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let (subscriptions, signals) = backend.listen().await.expect("a connection");
    subscriptions.follow(Channel::new("a")).await.expect("a subscription");

    drop((subscriptions, signals));

    until(|| server.command(&["PUBSUB", "CHANNELS"]) == Reply::List(Vec::new())).await;
}
