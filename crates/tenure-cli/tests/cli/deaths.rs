//! Who owns when somebody is killed: never two commands at once, and soon the next one.

use super::command::ROLE;
use super::scene::{Scene, Tenure, is_alive, until, us};

/// How soon after `kill -9` the next command has to be there. A lease of 15 s that is renewed every 5 s has at least 10 s
/// left: it was not waited for. A few milliseconds when nothing else runs.
const SOON_US: u64 = 5_000_000;

// req: O1 C1
#[test]
fn of_three_only_one_runs_the_command() {
    let scene = Scene::new();
    let started: Vec<Tenure> = ["a", "b", "c"].iter().map(|label| scene.start(label, &[])).collect();

    let life = scene.life(1);
    scene.until_waiting(2);

    let later = until("it goes on", || scene.lives().into_iter().find(|later| later.lines > life.lines + 50));
    assert_eq!((later.pid, scene.lives().len()), (life.pid, 1));
    assert_eq!(scene.standing().0, std::slice::from_ref(&life.worker));
    for waiter in started.iter().filter(|tenure| tenure.label != life.worker) {
        let expected = format!("tenure: waiting for `job` on `{}`: all its tickets are owned", scene.url());
        assert!(waiter.said().contains(&expected), "{}", waiter.said());
    }
}

#[test]
fn of_three_two_run_the_command_with_two_tickets() {
    let scene = Scene::new();
    let _started: Vec<Tenure> =
        ["a", "b", "c"].iter().map(|label| scene.start(label, &["--tickets", "2"])).collect();

    let (one, two) = (scene.life(1), scene.life(2));
    scene.until_waiting(1);

    assert_ne!(one.worker, two.worker);
    assert_eq!(scene.lives().len(), 2);
}

// req: O12
#[test]
fn when_tenure_is_killed_its_command_dies_and_the_next_one_starts_at_once() {
    let scene = Scene::new();
    let start = |label: &&str| scene.start(label, &[]);
    take_over_twice(&scene, ["a", "b", "c"].iter().map(start).collect());
}

#[test]
fn when_tenure_is_killed_a_command_that_ignores_sigterm_dies_too() {
    let scene = Scene::new();
    let start = |label: &&str| scene.start_deaf(label, &[]);
    take_over_twice(&scene, ["a", "b", "c"].iter().map(start).collect());
}

fn take_over_twice(scene: &Scene, mut started: Vec<Tenure>) {
    for term in 1..=2 {
        let life = scene.life(term);
        scene.until_waiting(3 - term as usize);
        let owner = started.iter().position(|tenure| tenure.label == life.worker).expect("one of ours");

        let killed_us = started.remove(owner).kill();

        let next = scene.life(term + 1);
        let took_us = next.first_us - killed_us;
        assert!(took_us < SOON_US, "it took {took_us} us");
        assert!(!is_alive(life.pid), "the command outlived tenure");
        assert_eq!(how_it_ended(scene, term), "died");
    }
    scene.assert_no_two_lived_at_once();
}

/// What the history says of the end of this term.
fn how_it_ended(scene: &Scene, term: u64) -> String {
    let output = scene.done(&["history", "job", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let ownerships = report["resources"][0]["ownerships"].as_array().expect("a list");
    let of_term = ownerships.iter().find(|ownership| ownership["term"] == term).expect("it is told");
    of_term["ended"].as_str().expect("it has ended").to_owned()
}

#[test]
fn when_tenure_is_killed_so_is_all_that_its_command_started_before_the_next_one_begins() {
    let scene = Scene::new();
    let us = us();
    // The shell's child, deaf to SIGTERM, in a session of its own, with a parent that is gone.
    let parent = ["sh", "-c", "trap '' TERM; (setsid \"$0\" \"$@\" &); sleep 600", us.as_str()];
    let start = |label: &&str| scene.start_with(label, &[], &[&parent, &ROLE[..]].concat());
    take_over_twice(&scene, ["a", "b", "c"].iter().map(start).collect());
}
