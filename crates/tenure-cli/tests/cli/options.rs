//! After which ends it competes again, whom the store serves first, and what the others may know.

use super::scene::{Scene, until};

/// Ends with 3 when it is told to.
const TELLS: &str = "trap 'exit 3' TERM; echo start >> starts; while :; do sleep 0.01; done";

fn start_and_take_away(options: &[&str], take: impl Fn(&Scene)) -> (Option<i32>, usize) {
    let scene = Scene::new();
    let mut tenure = scene.start_script("a", &[&["--ttl", "2s"], options].concat(), TELLS);
    until("the command", || (!scene.lines("starts").is_empty()).then_some(()));
    take(&scene);
    (tenure.ended().code(), scene.lines("starts").len())
}

fn evict(scene: &Scene) {
    scene.wish(async |tools, token| drop(tools.evict("job", token).await.expect("an answer")));
}

fn ask(scene: &Scene) {
    scene.wish(async |tools, token| drop(tools.ask("job", token, None).await.expect("an answer")));
}

#[test]
fn a_loss_is_the_end_if_it_is_to_be() {
    assert_eq!(start_and_take_away(&["--exit-on-loss"], evict), (Some(124), 1));
    assert_eq!(start_and_take_away(&["--once"], evict), (Some(124), 1));
    assert_eq!(start_and_take_away(&["--once"], ask), (Some(124), 1));
}

#[test]
fn after_a_hand_over_it_competes_again_unless_it_is_to_run_once() {
    let scene = Scene::new();
    let _tenure = scene.start_script("a", &["--ttl", "2s", "--exit-on-loss"], TELLS);
    until("the command", || (!scene.lines("starts").is_empty()).then_some(()));

    ask(&scene);

    until("the command again", || (scene.lines("starts").len() == 2).then_some(()));
}

#[test]
fn a_command_is_run_again_after_a_failure_until_it_succeeds() {
    let scene = Scene::new();
    let script = "echo $TENURE_TERM >> terms; [ $(wc -l < terms) = 3 ] || exit 9";

    let output = scene.done(&["run", "job", "--restart", "on-failure", "--", "sh", "-c", script]);

    assert_eq!(output.status.code(), Some(0));
    assert_eq!(scene.lines("terms"), ["1", "2", "3"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("`sh` ended with code 9; competing again in 100ms"), "{said}");
    assert!(said.contains("`sh` ended with code 9; competing again in 200ms"), "{said}");
}

#[test]
fn a_command_that_is_always_run_again_ends_when_tenure_is_stopped() {
    let scene = Scene::new();
    let mut tenure = scene.start_script("a", &["--restart", "always"], "echo run >> runs; exit 6");
    until("the third run", || (scene.lines("runs").len() == 3).then_some(()));

    tenure.signal(rustix::process::Signal::TERM);

    let code = tenure.ended().code();
    assert!(matches!(code, Some(6 | 143)), "{code:?}");
    assert_eq!(scene.standing(), (vec![], vec![]));
}

#[test]
fn one_that_is_run_again_stands_behind_those_who_waited() {
    let scene = Scene::new();
    let wait = "echo a >> turns; until [ -e go ]; do sleep 0.01; done; exit 1";
    let _first = scene.start_script("a", &["--ttl", "60s", "--restart", "always"], wait);
    until("the first", || (!scene.lines("turns").is_empty()).then_some(()));
    let _second = scene.start_script("b", &["--ttl", "60s"], "echo b >> turns; sleep 0.2");
    scene.until_waiting(1);

    std::fs::write(scene.file("go"), "").expect("a file");

    until("three turns", || (scene.lines("turns").len() >= 3).then_some(()));
    assert_eq!(scene.lines("turns")[..3], ["a", "b", "a"]);
}

#[test]
fn the_larger_priority_is_served_first_and_metadata_is_shown() {
    let scene = Scene::new();
    let mut owner = scene.start_script("a", &["--ttl", "60s"], TELLS);
    until("the command", || (!scene.lines("starts").is_empty()).then_some(()));
    let _low = scene.start("low", &["--ttl", "60s"]);
    scene.until_waiting(1);
    let _high = scene.start("high", &["--ttl", "60s", "--priority", "5", "--metadata", "{\"zone\":\"b\"}"]);
    scene.until_waiting(2);

    owner.signal(rustix::process::Signal::TERM);
    owner.ended();

    assert_eq!(scene.life(2).worker, "high");
    let output = scene.done(&["status", "job", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["resources"][0]["owners"][0]["metadata"]["zone"], "b");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let scene = Scene::new();
    for wrong in [&["--once", "--restart", "always"][..], &["--restart", "sometimes"], &["--metadata", "{"]] {
        let output = scene.done(&[&["run", "job"], wrong, &["--", "true"]].concat());

        assert_eq!(output.status.code(), Some(125), "{wrong:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
