//! What people are told while a store is away, and when it is back.

use super::scene::{Scene, until};

#[test]
fn whoever_waits_is_told_that_the_store_answers_again_and_why_it_waits_then() {
    let mut server = testkit::redis::Options::new().aof("everysec").start();
    let scene = Scene::on(server.url());
    let _owner = scene.start("a", &["--ttl", "3s"]);
    scene.life(1);
    let waiter = scene.start("b", &["--ttl", "3s"]);
    scene.until_waiting(1);
    let says = |words: &str| until(words, || waiter.said().contains(words).then_some(()));

    for outage in 1..=2 {
        let before = waiter.said().len();
        server.kill();
        // Also the second time, though it is the same trouble, for the same reason, within half a minute.
        let is_told =
            |line: &str| line.contains("did not answer as hoped") && line.contains("Connection refused");
        until("the trouble is told", || waiter.said()[before..].lines().any(is_told).then_some(()));
        server.start();
        if outage == 1 {
            says("answers again");
        }
    }

    says("the store is new, was restarted or lost its data, and grants nothing for ");
    assert_eq!(waiter.said().matches("answers again").count(), 1, "{}", waiter.said());
}
