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
    // Side by side: a new server grants nothing for one ttl.
    std::thread::scope(|scope| {
        for case in [done_once, waited_for, taken_over] {
            for start in [Server::redis, Server::postgres] {
                scope.spawn(move || {
                    let server = start();
                    case(&server.scene());
                });
            }
        }
    });
}

fn done_once(scene: &Scene) {
    let script = "test \"$TENURE_TOKEN\" -gt 1000 && \
                  echo \"$TENURE_JOB $TENURE_RESOURCE $TENURE_TICKET $TENURE_TERM $TENURE_WORKER\" >> done";

    let first = once(scene, &["--label", "first"], script);
    let second = once(scene, &["--label", "second"], script);

    assert!(first.0 == Some(0) && !first.1.contains("` was done by"), "{}", first.1);
    assert_eq!(scene.lines("done"), ["migration-42 once:migration-42 0 1 first"]);
    assert_eq!(second.0, Some(0));
    assert!(second.1.contains("tenure: `once:migration-42` was done by `first`, "), "{}", second.1);
    for one in [&["status"][..], &["status", "once:migration-42"]] {
        let status = String::from_utf8(scene.done(one).stdout).expect("UTF-8");
        let row: Vec<&str> = status.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(row, ["once:migration-42", "done", "first"]);
    }
    let explained = String::from_utf8(scene.done(&["explain", "once:migration-42"]).stdout).expect("UTF-8");
    assert!(explained.contains("\nIt is done, by `first`: "), "{explained}");
    assert!(!explained.contains("at once"), "{explained}");
}

// req: E13
#[test]
fn one_that_fails_is_tried_by_the_next() {
    let scene = Scene::new();

    let (code, error) = once(&scene, &[], "exit 7");
    assert_eq!(code, Some(7));
    assert!(error.contains("`once:migration-42` failed: code 7"), "{error}");
    assert!(!error.contains("giving up"), "{error}");
    assert_eq!(done_by(&scene), serde_json::Value::Null);
    assert_eq!(once(&scene, &[], "kill -9 $$").0, Some(137));
    assert_eq!(said(&scene.done(&["once", "migration-42", "--", "./nowhere"])).0, Some(127));

    assert_eq!(once(&scene, &[], "touch done").0, Some(0));
    assert!(scene.file("done").exists());
    assert_eq!(once(&scene, &[], "exit 7").0, Some(0), "it is done");
    assert!(done_by(&scene).is_string());
}

/// Who has done it, as programs are told.
fn done_by(scene: &Scene) -> serde_json::Value {
    let status = scene.done(&["status", "once:migration-42", "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
    status["resources"][0]["done_by"].clone()
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
    assert!(error.contains("another worker runs `once:migration-42`; going on without waiting"), "{error}");
    assert!(!error.contains("waiting for `once:"), "{error}");
    let (code, error) = once(scene, &["--wait", "200ms"], "touch twice");
    assert_eq!(code, Some(123));
    assert!(error.contains("has not finished it within 200ms"), "{error}");

    let mut waits = scene.start_other("waits", &MIGRATION, "touch twice");
    until("it waits", || (scene.standing_of("once:migration-42").1 == ["waits"]).then_some(()));
    std::fs::write(scene.file("go"), "").expect("a file");
    assert_eq!((first.ended().code(), waits.ended().code()), (Some(0), Some(0)));
    assert!(waits.said().contains("was done by `first`"), "{}", waits.said());
    assert!(!scene.file("twice").exists());
}

// req: E13
#[test]
fn a_command_that_is_told_to_stop_is_taken_at_its_word_by_its_code() {
    let scene = Scene::new();
    let stopped_with = |label: &str, code: u8| {
        let script = format!("trap 'exit {code}' TERM; echo {label} >> begun; while :; do sleep 0.02; done");
        let mut tenure = scene.start_other(label, &MIGRATION, &script);
        until("it runs", || scene.lines("begun").iter().any(|line| line == label).then_some(()));
        tenure.signal(Signal::TERM);
        tenure.ended().code()
    };

    assert_eq!(stopped_with("halfway", 3), Some(3));
    assert_eq!(stopped_with("done", 0), Some(0));

    let (code, told) = once(&scene, &[], "touch twice");
    assert!(code == Some(0) && told.contains("was done by `done`"), "{told}");
    assert!(!scene.file("twice").exists());
}

// req: E13
#[test]
fn who_owns_in_time_has_not_waited_for_too_long_however_slow_the_store_is_after_that() {
    let server = testkit::postgres::Options::new().start();
    let scene = Scene::on(server.url());
    assert!(scene.done(&["once", "something", "--", "true"]).status.success());
    // It can be owned, and nobody can begin it.
    server.sql(
        "CREATE FUNCTION wait_here() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$;
         CREATE TRIGGER jobs_wait BEFORE UPDATE ON tenure.record FOR EACH ROW
         WHEN (NEW.value LIKE '%\"job\":%') EXECUTE FUNCTION wait_here();",
    );
    let held = server.hold("SELECT pg_advisory_xact_lock(7)");

    let options = ["once", "migration-42", "--ttl", "3s", "--wait", "100ms"];
    let mut tenure = scene.start_other("slow", &options, "touch done");
    until("it owns", || (scene.standing_of("once:migration-42").0 == ["slow"]).then_some(()));
    // Longer than `--wait` and the third of the ttl for which an answer is waited for.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(!tenure.has_ended(), "{}", tenure.said());
    drop(held);

    assert_eq!(tenure.ended().code(), Some(0), "{}", tenure.said());
    assert!(scene.file("done").exists());
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
