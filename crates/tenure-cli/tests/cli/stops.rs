//! How a command is stopped: gently, with a grace, or because the ownership was lost; and when the ticket is free.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;

use rustix::process::Signal;

use super::command::now_us;
use super::scene::{Scene, is_alive, until};

/// Notes each SIGTERM with the time, and ends with 5 once it may.
const NOTES_AND_WAITS: &str = "trap 'echo term >> terms' TERM; echo start >> starts; \
    until [ -e go ]; do sleep 0.01; done; exit 5";

fn until_line(scene: &Scene, file: &str) {
    until(file, || (!scene.lines(file).is_empty()).then_some(()));
}

#[test]
fn sigterm_is_passed_on_once_and_the_ticket_is_free_only_when_the_command_has_ended() {
    let scene = Scene::new();
    let mut first = scene.start_script("a", &["--ttl", "60s"], NOTES_AND_WAITS);
    until_line(&scene, "starts");
    let _second = scene.start("b", &["--ttl", "60s"]);
    scene.until_waiting(1);

    first.signal(Signal::TERM);
    until_line(&scene, "terms");
    first.signal(Signal::TERM);
    assert_eq!(scene.standing(), (vec!["a".to_owned()], vec!["b".to_owned()]));
    assert!(!first.has_ended() && scene.lives().is_empty());
    std::fs::write(scene.file("go"), "").expect("a file");

    assert_eq!(first.ended().code(), Some(5));
    assert_eq!(scene.lines("terms").len(), 1);
    assert_eq!(scene.life(2).worker, "b");
    let said = first.said();
    assert!(said.contains("on SIGTERM; it has 1m"), "{said}");
}

#[test]
fn the_signal_that_tenure_gets_is_the_one_that_the_command_gets() {
    for (signal, code) in [(Signal::INT, 130), (Signal::HUP, 129), (Signal::TERM, 143)] {
        let scene = Scene::new();
        let mut tenure = scene.start("a", &[]);
        scene.life(1);

        tenure.signal(signal);

        assert_eq!(tenure.ended().code(), Some(code));
    }
}

#[test]
fn a_signal_that_tenure_was_started_to_ignore_stops_nothing() {
    let scene = Scene::new();
    let mut tenure = scene.start_without_hangup("a");
    scene.life(1);

    // Signals are delivered in any order, but one that is ignored is never seen.
    tenure.signal(Signal::HUP);
    tenure.signal(Signal::TERM);

    assert_eq!(tenure.ended().code(), Some(143));
    assert!(!tenure.said().contains("SIGHUP"), "{}", tenure.said());
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_after_the_grace_and_only_then_is_the_ticket_free() {
    let scene = Scene::new();
    let mut first = scene.start_deaf("a", &["--ttl", "60s", "--grace", "400ms"]);
    let life = scene.life(1);
    let _second = scene.start("b", &["--ttl", "60s"]);
    scene.until_waiting(1);

    let asked_us = now_us();
    first.signal(Signal::TERM);

    assert_eq!(first.ended().code(), Some(137));
    let next = scene.life(2);
    let lived_us = scene.life(1).last_us - asked_us;
    assert!((350_000..2_000_000).contains(&lived_us), "it lived for {lived_us} us");
    assert!(!is_alive(life.pid) && next.worker == "b");
    scene.assert_no_two_lived_at_once();
    assert!(first.said().contains("it did not end in time"), "{}", first.said());
}

#[test]
fn a_second_sigint_kills_at_once() {
    let scene = Scene::new();
    let deaf = "trap '' INT TERM; echo $$ >> starts; exec sleep 600";
    for first in [Signal::INT, Signal::TERM] {
        let mut tenure = scene.start_script("a", &["--ttl", "60s"], deaf);
        until_line(&scene, "starts");
        tenure.signal(first);
        until("it is told", || tenure.said().contains("; it has 1m").then_some(()));

        tenure.signal(Signal::INT);

        assert_eq!(tenure.ended().code(), Some(137));
        assert!(tenure.said().contains("): SIGINT came again"), "{}", tenure.said());
        std::fs::remove_file(scene.file("starts")).expect("it was there");
    }
    assert_eq!(scene.standing(), (vec![], vec![]));
}

#[test]
fn ctrl_c_is_not_sent_twice_is_told_of_and_hurries_the_second_time() {
    let scene = Scene::new();
    let script = "trap 'echo int >> ints' INT; echo start >> starts; while :; do sleep 0.01; done";
    let (mut tenure, mut terminal) = scene.start_on_terminal("a", &["--ttl", "60s"], script);
    until_line(&scene, "starts");

    terminal.write_all(b"\x03").expect("it takes it");
    until_line(&scene, "ints");
    until("it is told", || tenure.said().contains("on SIGINT; it has 1m").then_some(()));
    assert_eq!(scene.lines("ints").len(), 1);
    terminal.write_all(b"\x03").expect("it takes it");

    assert_eq!(tenure.ended().code(), Some(137));
    assert!(tenure.said().contains("): SIGINT came again"), "{}", tenure.said());
}

#[test]
fn without_a_grace_the_command_is_killed_at_once() {
    let scene = Scene::new();
    let mut tenure = scene.start("a", &["--ttl", "60s", "--grace", "0s"]);
    scene.life(1);

    tenure.signal(Signal::TERM);

    assert_eq!(tenure.ended().code(), Some(137));
    assert!(tenure.said().contains("): no time is left"), "{}", tenure.said());
}

#[test]
fn a_reader_of_stderr_who_does_not_read_keeps_no_command_alive() {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let scene = Scene::new();
    let (_reader, mut full) = std::io::pipe().expect("a pipe");
    let flags = fcntl_getfl(&full).expect("flags");
    fcntl_setfl(&full, flags | OFlags::NONBLOCK).expect("it can be set");
    while full.write(&[b'x'; 4096]).is_ok() {}
    while full.write(b"x").is_ok() {}
    fcntl_setfl(&full, flags).expect("it can be set");
    let mut tenure = scene.start_deaf_to("a", &["--grace", "100ms"], Stdio::from(full));
    let life = scene.life(1);

    tenure.signal(Signal::TERM);

    assert_eq!(tenure.ended().code(), Some(137));
    assert!(!is_alive(life.pid));
}

#[test]
fn tenure_that_is_stopped_while_it_waits_ends_at_once_and_leaves_the_queue() {
    let scene = Scene::new();
    let _first = scene.start("a", &["--ttl", "60s"]);
    scene.life(1);
    let mut second = scene.start("b", &["--ttl", "60s"]);
    scene.until_waiting(1);

    second.signal(Signal::TERM);

    assert_eq!(second.ended().code(), Some(143));
    assert_eq!(scene.standing(), (vec!["a".to_owned()], vec![]));
}

// req: H18
#[test]
fn when_an_operator_asks_the_command_is_stopped_the_next_runs_and_the_first_waits_again() {
    let scene = Scene::new();
    let first = scene.start("a", &["--ttl", "2s"]);
    let life = scene.life(1);
    let _second = scene.start("b", &["--ttl", "2s"]);
    scene.until_waiting(1);

    ask_for_a_hand_over(&scene);

    assert_eq!(scene.life(2).worker, "b");
    assert!(!is_alive(life.pid));
    scene.assert_no_two_lived_at_once();
    let both = (vec!["b".to_owned()], vec!["a".to_owned()]);
    until("the first waits again", || (scene.standing() == both).then_some(()));
    assert!(first.said().contains("giving up `job` (term 1): an operator asks"), "{}", first.said());
}

#[test]
fn how_a_command_ended_long_ago_is_not_how_tenure_ends() {
    let scene = Scene::new();
    let script = "trap 'exit 3' TERM; echo start >> starts; while :; do sleep 0.01; done";
    let mut first = scene.start_script("a", &["--ttl", "2s"], script);
    until_line(&scene, "starts");
    let _second = scene.start("b", &["--ttl", "2s"]);
    scene.until_waiting(1);
    ask_for_a_hand_over(&scene);
    scene.life(2);
    let both = (vec!["b".to_owned()], vec!["a".to_owned()]);
    until("the first waits again", || (scene.standing() == both).then_some(()));

    first.signal(Signal::TERM);

    assert_eq!(first.ended().code(), Some(143));
}

fn ask_for_a_hand_over(scene: &Scene) {
    scene.wish(async |tools, token| drop(tools.ask("job", token, None).await.expect("an answer")));
}

/// Writes the time of a SIGTERM, and that it lives; never ends. The shell reads the time itself: another process might
/// take long to start.
const OBSTINATE: &str = "trap 'read at _ < /proc/uptime; echo \"term $at\" >> log' TERM; \
    echo \"start $$\" >> log; while :; do read now _ < /proc/uptime; echo \"beat $now\" >> log; sleep 0.005; done";

// req: O13
#[test]
fn when_the_store_is_gone_the_command_gets_sigterm_then_sigkill_and_it_competes_again() {
    let scene = Scene::new();
    // A margin of 600 ms, of which half is the command's.
    let tenure = scene.start_script("a", &["--ttl", "6s"], OBSTINATE);
    let told = |lines: &[String], what: &str| -> Vec<f64> {
        let of_kind = lines.iter().filter_map(|line| line.strip_prefix(what));
        of_kind.map(|number| number.trim().parse().expect("a number")).collect()
    };
    until("a beat", || (!told(&scene.lines("log"), "beat").is_empty()).then_some(()));
    let pid = told(&scene.lines("log"), "start")[0] as i32;

    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(scene.file(&format!("tenure.db{suffix}"))).expect("it was there");
    }

    until("the end of the command", || (!is_alive(pid)).then_some(()));
    // The next one may live already.
    let log = scene.lines("log");
    let of_first = log[1..].split(|line| line.starts_with("start")).next().expect("its lines");
    let terms = told(of_first, "term");
    assert_eq!(terms.len(), 1, "{of_first:?}");
    let after = of_first.iter().rposition(|line| line.starts_with("term")).expect("its line");
    let beats = told(&of_first[after..], "beat");
    let lived = beats.last().expect("it lived on after SIGTERM") - terms[0];
    assert!(lived < 0.6, "it lived for {lived} s after SIGTERM");
    let said = tenure.said();
    // As long as the command lives its lock is held, and nobody makes a new file.
    assert!(said.contains("tenure: lost `job` (term 1): no renewal was answered by `sqlite:"), "{said}");
    // Half of the margin, or what a busy machine has left of it.
    let limit = said.split_once("it has ").and_then(|(_, rest)| rest.split_once("ms"));
    let limit: u64 = limit.expect("it was told").0.parse().expect("a number");
    assert!((1..=300).contains(&limit), "{said}");
    until("it competes again, in a new file", || {
        (told(&scene.lines("log"), "start").len() == 2).then_some(())
    });
}

// req: E8
#[test]
fn when_tenure_is_stopped_beyond_its_lease_the_guard_ends_the_command_and_it_waits_again() {
    let scene = Scene::new();
    let first = scene.start("a", &["--ttl", "1s"]);
    let life = scene.life(1);
    let _second = scene.start("b", &["--ttl", "1s"]);
    scene.until_waiting(1);

    testkit::process::stop_between_writes(first.pid().unsigned_abs());
    scene.life(2);
    assert!(!is_alive(life.pid), "the guard ends the command before the next one begins");
    scene.assert_no_two_lived_at_once();
    first.signal(Signal::CONT);

    let both = (vec!["b".to_owned()], vec!["a".to_owned()]);
    until("the first waits again", || (scene.standing() == both).then_some(()));
    assert_eq!(scene.lives().len(), 2);
    let said = first.said();
    assert!(said.contains("tenure: lost `job` (term 1): this process was held up for "), "{said}");
}

#[test]
fn a_store_that_cannot_be_opened_is_told_of_once_and_so_is_the_next_ownership() {
    let scene = Scene::new();
    std::fs::create_dir(scene.file("shelf")).expect("a folder");
    let url = format!("sqlite:{}", scene.file("shelf/tenure.db").display());
    let tenure = scene.start("a", &["--ttl", "3s", "--store", &url]);
    scene.life(1);

    std::fs::rename(scene.file("shelf"), scene.file("gone")).expect("it was there");
    let cannot = "tenure: store request failed: ".to_owned();
    until("it is told", || tenure.said().contains(&cannot).then_some(()));
    // Some attempts later it was said once for each cause.
    let told = now_us();
    until("some attempts", || (now_us() > told + 4_000_000).then_some(()));
    let said = tenure.said();
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with(&cannot)).collect();
    assert_eq!(lines.iter().collect::<BTreeSet<_>>().len(), lines.len(), "{said}");
    // A machine that is busy may find a cause or two more, but not one for each attempt.
    assert!(lines.len() < 4, "{said}");
    std::fs::create_dir(scene.file("shelf")).expect("a folder");

    until("the next ownership", || tenure.said().contains("tenure: owns `job` (term ").then_some(()));
    assert!(tenure.said().contains("tenure: lost `job` (term 1): "), "{}", tenure.said());
}
