//! What people are told while a store is away, when it is back, and when it has lost or damaged what it knew.

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
            |line: &str| line.contains("store request failed") && line.contains("Connection refused");
        until("the trouble is told", || waiter.said()[before..].lines().any(is_told).then_some(()));
        server.start();
        if outage == 1 {
            says("answers again");
        }
    }

    says("the store is new, was restarted or lost its data, and grants nothing for ");
    assert_eq!(waiter.said().matches("answers again").count(), 1, "{}", waiter.said());
}

#[test]
fn whoever_looks_at_a_store_that_has_lost_all_data_is_told_that_it_grants_nothing() {
    let server = testkit::redis::Options::new().start();
    let scene = Scene::on(server.url());
    // Longer than the test: what is granted after it would be seen.
    let owner = scene.start("a", &["--ttl", "60s"]);
    until("a store", || scene.done(&["status"]).status.success().then_some(()));
    until("it waits", || owner.said().contains("waiting for `job`").then_some(()));
    server.command(&["FLUSHALL"]);
    let another = scene.start("b", &["--ttl", "60s"]);
    until("it waits", || another.said().contains("waiting for `job`").then_some(()));

    let told = "the store is new, was restarted or lost its data, and grants nothing for ";
    for look in [&["status"][..], &["explain", "other"]] {
        let output = scene.done(look);
        let shown = [output.stdout, output.stderr].concat();
        let shown = String::from_utf8_lossy(&shown).replace('\n', " ");
        assert!(shown.contains(told), "{look:?}: {shown}");
    }
    let report = scene.done(&["status", "--json"]).stdout;
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    assert!((1..=60_000).contains(&report["withheld_ms"].as_u64().expect("a span")), "{report}");
}

#[test]
fn a_resource_that_cannot_be_read_is_not_said_to_be_nobodys() {
    let server = testkit::redis::Options::new().start();
    let scene = Scene::on(server.url());
    for resource in ["fine", "job"] {
        let done = scene.done(&["run", resource, "--ttl", "1s", "--", "true"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    server.command(&["HSET", "{tenure}:resource/job", "value", "{garbage"]);

    let people = scene.done(&["status"]);
    let (shown, said) = (String::from_utf8_lossy(&people.stdout), String::from_utf8_lossy(&people.stderr));
    assert_eq!(people.status.code(), Some(125), "{said}");
    assert!(shown.contains("fine") && !said.contains("nothing has been claimed"), "{shown}{said}");
    assert!(said.contains("cannot read the record of `job`"), "{said}");
    assert!(said.contains("`tenure status job` says why"), "{said}");

    let programs = scene.done(&["status", "--json"]);
    assert_eq!(programs.status.code(), Some(125));
    let report: serde_json::Value = serde_json::from_slice(&programs.stdout).expect("JSON");
    assert_eq!(report["unreadable"], serde_json::json!(["job"]));
    assert_eq!(report["resources"][0]["resource"], "fine");
}
