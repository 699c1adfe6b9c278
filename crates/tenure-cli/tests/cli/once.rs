//! `tenure once`: one of all does it, and then nobody any more.

use rustix::process::Signal;

use super::scene::{Scene, until};
use super::stores::Server;

/// A new Redis grants nothing for one ttl, so it is short.
const MIGRATION: [&str; 4] = ["once", "migration-42", "--ttl", "5s"];

fn said(output: &std::process::Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8(output.stderr.clone()).expect("UTF-8"))
}

fn once(scene: &Scene, options: &[&str], script: &str) -> (Option<i32>, String) {
    let arguments = [&MIGRATION[..], options, &["--", "sh", "-c", script]].concat();
    said(&scene.done(&arguments))
}

// req: E13
#[test]
fn what_is_done_is_not_done_again_and_people_are_told_who_did_it() {
    done_once(&Scene::new());
}

// req: E13
#[test]
fn on_servers_too_it_is_done_once_waited_for_and_taken_over() {
    for server in [Server::redis(), Server::postgres()] {
        done_once(&server.scene());
    }
    for server in [Server::redis(), Server::postgres()] {
        waited_for(&server.scene());
    }
    for server in [Server::redis(), Server::postgres()] {
        taken_over(&server.scene());
    }
}

fn done_once(scene: &Scene) {
    let script = "echo \"$TENURE_JOB $TENURE_RESOURCE\" >> done";

    let first = once(scene, &["--label", "first"], script);
    let second = once(scene, &["--label", "second"], script);

    assert!(first.0 == Some(0) && !first.1.contains("was done"), "{}", first.1);
    assert_eq!(scene.lines("done"), ["migration-42 once:migration-42"]);
    assert_eq!(second.0, Some(0));
    assert!(second.1.contains("tenure: `once:migration-42` was done by `first`, "), "{}", second.1);
}

// req: E13
#[test]
fn one_that_fails_is_tried_by_the_next() {
    let scene = Scene::new();

    let (code, error) = once(&scene, &[], "exit 7");
    assert_eq!(code, Some(7));
    assert!(error.contains("`once:migration-42` failed: code 7"), "{error}");
    assert_eq!(once(&scene, &[], "kill -9 $$").0, Some(137));
    assert_eq!(said(&scene.done(&["once", "migration-42", "--", "./nowhere"])).0, Some(127));

    assert_eq!(once(&scene, &[], "touch done").0, Some(0));
    assert!(scene.file("done").exists());
    assert_eq!(once(&scene, &[], "exit 7").0, Some(0), "it is done");
}

// req: E13
#[test]
fn those_who_come_meanwhile_wait_for_it_or_go_on() {
    waited_for(&Scene::new());
}

fn waited_for(scene: &Scene) {
    let mut first =
        scene.start_other("first", &MIGRATION, "touch begun; until test -e go; do sleep 0.01; done");
    until("it runs", || scene.file("begun").exists().then_some(()));

    let (code, error) = once(scene, &["--go-on"], "touch twice");
    assert_eq!(code, Some(0));
    assert!(error.contains("another one is at `once:migration-42`; going on"), "{error}");
    let (code, error) = once(scene, &["--wait", "200ms"], "touch twice");
    assert_eq!(code, Some(123));
    assert!(error.contains("has not done it within 200ms"), "{error}");

    let mut waits = scene.start_other("waits", &MIGRATION, "touch twice");
    until("it waits", || (scene.standing_of("once:migration-42").1 == ["waits"]).then_some(()));
    std::fs::write(scene.file("go"), "").expect("a file");
    assert_eq!((first.ended().code(), waits.ended().code()), (Some(0), Some(0)));
    assert!(waits.said().contains("was done by `first`"), "{}", waits.said());
    assert!(!scene.file("twice").exists());
}

// req: E13
#[test]
fn when_the_one_who_is_at_it_is_killed_or_stopped_the_next_one_does_it() {
    taken_over(&Scene::new());
}

fn taken_over(scene: &Scene) {
    let hangs = "echo $TENURE_WORKER >> begun; exec sleep 1000";
    let begun = |count: usize| until("a run", || (scene.lines("begun").len() == count).then_some(()));
    let mut killed = scene.start_other("killed", &MIGRATION, hangs);
    begun(1);
    let mut stopped = scene.start_other("stopped", &MIGRATION, hangs);
    until("it waits", || (scene.standing_of("once:migration-42").1 == ["stopped"]).then_some(()));

    killed.kill();
    begun(2);
    stopped.signal(Signal::TERM);

    assert_eq!(stopped.ended().code(), Some(143));
    assert_eq!(once(scene, &[], "echo third >> begun").0, Some(0));
    assert_eq!(scene.lines("begun"), ["killed", "stopped", "third"]);
}
