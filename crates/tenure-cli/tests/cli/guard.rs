//! The guard: what it ends and when, and what happens when something happens to it.

use std::time::Duration;

use rustix::process::Signal;
use testkit::metronome::Metronome;

use super::command::{ROLE, now_us};
use super::scene::{Scene, Tenure, is_alive, kill, send, until, us};

/// How soon after the end of a guard the next command has to be there. The lease is not waited for. A few milliseconds when
/// nothing else runs.
const SOON_US: u64 = 10_000_000;
/// A quarter of the margin of this lease, 15 s, is how long a guard is waited for that only stands still.
const TEN_MINUTES: &str = "600s";

/// Two that compete; the first owns.
fn pair(scene: &Scene) -> (Tenure, Tenure) {
    pair_with_lease(scene, "60s")
}

fn pair_with_lease(scene: &Scene, ttl: &str) -> (Tenure, Tenure) {
    let first = scene.start("a", &["--ttl", ttl]);
    scene.life(1);
    let second = scene.start("b", &["--ttl", ttl]);
    scene.until_waiting(1);
    (first, second)
}

#[test]
fn when_the_guard_is_killed_or_stopped_the_command_is_killed_and_the_ticket_is_free() {
    // A stopped one is given up after a quarter of a margin of 6 s; for one that has ended nothing is waited for.
    for (signal, ttl) in [(Signal::KILL, TEN_MINUTES), (Signal::SEGV, TEN_MINUTES), (Signal::STOP, "60s")] {
        let scene = Scene::new();
        let (mut first, _second) = pair_with_lease(&scene, ttl);
        let life = scene.life(1);

        let began_us = now_us();
        send(first.guard(), signal);

        let took_us = scene.life(2).first_us - began_us;
        assert!(took_us < SOON_US, "{signal:?}: it took {took_us} us");
        assert!(!is_alive(life.pid));
        scene.assert_no_two_lived_at_once();
        assert_eq!(first.ended().code(), Some(125), "{}", first.said());
        assert!(first.said().contains("tenure: the guard process "), "{}", first.said());
    }
}

#[test]
fn a_job_whose_guard_is_killed_ends_with_its_command_and_the_next_worker_goes_on() {
    let script = "echo \"$TENURE_WORKER $$\" >> begun; exec sleep 1000";
    let once = ["once", "migration", "--ttl", TEN_MINUTES];
    let cron = ["cron", "* * * * * *", "--job", "tick", "--ttl", TEN_MINUTES];
    for (job, resource) in [(&once[..], "once:migration"), (&cron[..], "cron:tick")] {
        let scene = Scene::new();
        let begun = |worker: &str| {
            let of_worker = |line: &String| line.strip_prefix(worker)?.trim().parse::<i32>().ok();
            until(&format!("a run of {worker}"), || scene.lines("begun").iter().find_map(of_worker))
        };
        let mut first = scene.start_other("a", job, script);
        let pid = begun("a ");
        let _second = scene.start_other("b", job, script);
        until("it waits", || (scene.standing_of(resource).1 == ["b"]).then_some(()));

        let began_us = now_us();
        kill(first.guard());

        assert_eq!(first.ended().code(), Some(125), "{}", first.said());
        let took_us = now_us() - began_us;
        assert!(took_us < SOON_US, "{resource}: it took {took_us} us");
        assert!(!is_alive(pid) && first.said().contains("tenure: the guard process "), "{}", first.said());
        begun("b ");
    }
}

#[test]
fn a_worker_that_waits_without_a_guard_leaves_the_queue() {
    let scene = Scene::new();
    let (_first, mut second) = pair(&scene);

    kill(second.guard());

    assert_eq!(second.ended().code(), Some(125));
    assert_eq!(scene.standing(), (vec!["a".to_owned()], vec![]));
}

#[test]
fn a_worker_that_is_killed_while_it_waits_leaves_the_queue_at_once() {
    let scene = Scene::new();
    let (_first, mut second) = pair(&scene);
    let guard = second.guard();

    second.kill();

    until("it has left", || scene.standing().1.is_empty().then_some(()));
    until("its guard has ended", || (!is_alive(guard)).then_some(()));
}

#[test]
fn signals_of_the_terminal_and_of_strangers_go_past_the_guard() {
    let scene = Scene::new();
    let tenure = scene.start("a", &["--ttl", "60s"]);
    let life = scene.life(1);
    let guard = tenure.guard();

    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::TSTP, Signal::USR1] {
        send(guard, signal);
    }

    until("the command goes on", || (scene.life(1).lines > life.lines + 100).then_some(()));
    assert!(is_alive(guard));
    drop(tenure);
    until("the guard ends with what it guards", || (!is_alive(guard)).then_some(()));
}

#[test]
fn what_a_command_leaves_behind_is_stopped_before_the_ticket_is_free() {
    let scene = Scene::new();
    let us = us();
    // It ends with 7 as soon as its daemon lives, which is deaf to SIGTERM.
    let script = "trap '' TERM; (setsid \"$0\" \"$@\" &); until [ -e lives ]; do sleep 0.01; done; exit 7";
    let parent = ["sh", "-c", script, us.as_str()];
    let mut first = scene.start_with("a", &["--grace", "400ms"], &[&parent, &ROLE[..]].concat());

    assert_eq!(first.ended().code(), Some(7));

    assert!(!is_alive(scene.life(1).pid));
    let said = first.said();
    assert!(said.contains("tenure: `sh` has ended and left 1 process behind"), "{said}");
    assert_eq!(scene.standing(), (vec![], vec![]));
}

#[test]
fn a_loss_ends_the_whole_tree_with_sigterm_first() {
    let scene = Scene::new();
    // Each of the three notes the signal; the daemon never ends by itself.
    let note = "trap 'echo $PART >> terms; [ $PART = daemon ] || exit' TERM; echo $$ >> pids; while :; do sleep 0.01; done";
    let script =
        format!("PART=child sh -c \"$NOTE\" & (PART=daemon setsid sh -c \"$NOTE\" &); PART=root; {note}");
    std::fs::create_dir(scene.file("shelf")).expect("a folder");
    let url = format!("sqlite:{}", scene.file("shelf/tenure.db").display());
    let script = format!("export NOTE=\"{}\"; {script}", note.replace('$', "\\$"));
    // A margin of 1.5 s: half of it, as long as SIGTERM is given, is enough for three shells on a machine that is busy.
    let tenure = scene.start_script("a", &["--ttl", "15s", "--store", &url], &script);
    until("three processes", || (scene.lines("pids").len() == 3).then_some(()));

    std::fs::rename(scene.file("shelf"), scene.file("gone")).expect("it was there");

    let pids: Vec<i32> = scene.lines("pids").iter().map(|pid| pid.parse().expect("a pid")).collect();
    until("the end of all", || (!pids.iter().any(|pid| is_alive(*pid))).then_some(()));
    let mut terms = scene.lines("terms");
    terms.sort();
    assert_eq!(terms, ["child", "daemon", "root"], "{}", tenure.said());
}

#[test]
fn the_command_is_a_child_of_the_guard_in_the_process_group_of_tenure() {
    let scene = Scene::new();
    let tenure = scene.start("a", &["--ttl", "60s"]);
    let life = scene.life(1);
    let of = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        let (_, fields) = stat.rsplit_once(") ").expect("fields");
        let numbers: Vec<i32> =
            fields.split(' ').skip(1).take(3).map(|field| field.parse().expect("a number")).collect();
        (numbers[0], numbers[1], numbers[2])
    };

    let (main, guard) = (tenure.pid(), tenure.guard());

    let (_, group, session) = of(main);
    assert_eq!(of(guard), (main, group, session));
    assert_eq!(of(life.pid), (guard, group, session));
    let name = std::fs::read_to_string(format!("/proc/{guard}/comm")).expect("it lives");
    assert_eq!(name.trim(), "tenure-guard");
}

#[test]
fn the_command_itself_dies_with_tenure_and_guard_in_one_stroke() {
    let scene = Scene::new();
    let mut tenure = scene.start_deaf("a", &["--ttl", "60s"]);
    let life = scene.life(1);
    let guard = tenure.guard();
    // Neither of them can do anything any more.
    for pid in [guard, tenure.pid()] {
        send(pid, Signal::STOP);
    }

    kill(guard);
    tenure.kill();

    until("the end of the command", || (!is_alive(life.pid)).then_some(()));
}

#[test]
fn a_command_is_not_started_for_a_tenure_that_has_died_since_it_asked() {
    let scene = Scene::new();
    let (mut first, mut second) = pair(&scene);
    let guard = second.guard();

    send(guard, Signal::STOP);
    first.kill();
    // It has asked by then, and gives a stopped guard a quarter of its margin of 6 s.
    until("it owns", || (scene.standing().0 == ["b"]).then_some(()));
    second.kill();
    send(guard, Signal::CONT);

    until("the guard has closed the lease and ended", || (!is_alive(guard)).then_some(()));
    assert_eq!((scene.lives().len(), scene.standing()), (1, (vec![], vec![])));
}

#[test]
fn a_command_is_not_started_by_a_guard_that_comes_too_late() {
    let scene = Scene::new();
    let mut first = scene.start("a", &["--ttl", "1s"]);
    scene.life(1);
    let mut second = scene.start("b", &["--ttl", "1s"]);
    scene.until_waiting(1);

    // It cannot start what it is told to, and is given up.
    send(second.guard(), Signal::STOP);
    first.kill();

    assert_eq!(second.ended().code(), Some(125), "{}", second.said());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(scene.lives().len(), 1);
}

#[test]
fn a_guard_that_was_held_up_beyond_the_trust_starts_nothing() {
    // If main notices in time that the guard stands still, the round proves nothing.
    assert!((0..4).any(|_| is_refused_after_the_trust()), "main was faster each time");
}

fn is_refused_after_the_trust() -> bool {
    let scene = Scene::new();
    let (mut first, mut second) = pair_with_lease(&scene, "10s");
    let guard = second.guard();
    send(guard, Signal::STOP);
    first.kill();
    until("it owns", || second.said().contains("owns `job`").then_some(()));
    // Main asks the guard for the command now. Once it is stopped as well, nobody gives up the guard.
    std::thread::sleep(Duration::from_millis(20));
    second.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(10));

    let (slept, faults) = (naps(guard), faults_of_children(guard));
    send(guard, Signal::CONT);
    until("the guard has answered", || (naps(guard) > slept).then_some(()));
    second.signal(Signal::CONT);

    let goes_on = until("the next command, or an end", || {
        let goes_on = scene.lives().iter().any(|life| life.term > 2);
        (goes_on || second.has_ended()).then_some(goes_on)
    });
    assert!(scene.lives().iter().all(|life| life.term != 2), "it was started after the trust");
    if goes_on {
        assert_eq!(
            faults_of_children(guard),
            faults,
            "a process was started after the trust, and killed again"
        );
    } else {
        assert_eq!(second.ended().code(), Some(125), "{}", second.said());
    }
    goes_on
}

/// How many page faults those children of a process had that have ended.
fn faults_of_children(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = stat.rsplit_once(") ").expect("fields");
    fields.split(' ').nth(8).and_then(|count| count.parse().ok()).expect("a count")
}

/// How often a process has gone to sleep.
fn naps(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).expect("a count")
}

#[test]
fn while_main_stands_still_the_guard_kills_a_deaf_command_after_half_the_margin() {
    let scene = Scene::new();
    // The margin is 2 s: half of it for the command to end, half for what was killed to be gone.
    let script = "trap 'echo told >> told' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let tenure = scene.start_script("a", &["--ttl", "20s"], script);
    let pid = until("the command", || scene.lines("pid").first()?.parse::<i32>().ok());

    tenure.signal(Signal::STOP);
    until("it is told", || (!scene.lines("told").is_empty()).then_some(()));
    let (told_at, metronome) = (now_us(), Metronome::start());
    until("its end", || (!is_alive(pid)).then_some(()));
    let killed_at = now_us();
    // The guard wakes up, the command is killed, and its end is seen.
    let late = metronome.stop().worst() * 3;

    let took = Duration::from_micros(killed_at - told_at);
    assert!(took > Duration::from_millis(500), "it had {took:?} to end");
    assert!(
        took < Duration::from_millis(1500) + late,
        "it took {took:?}, and the machine was late by {late:?}"
    );
}

#[test]
fn a_guard_that_was_stopped_is_not_left_behind_by_a_worker_that_waits() {
    let scene = Scene::new();
    let (_first, mut second) = pair(&scene);
    let guard = second.guard();

    send(guard, Signal::STOP);
    second.signal(Signal::TERM);

    assert_eq!(second.ended().code(), Some(128 + 15));
    assert!(!is_alive(guard));
}

#[test]
fn a_signal_that_is_not_to_end_it_does_not_wake_a_stopped_command() {
    let scene = Scene::new();
    let script = "trap 'echo usr1 >> signals' USR1; echo $$ > pid; while :; do sleep 0.01; done";
    let tenure = scene.start_script("a", &["--ttl", "60s"], script);
    let pid = until("the command", || scene.lines("pid").first()?.parse::<i32>().ok());
    let state =
        || std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?.rsplit_once(") ")?.1.chars().next();
    let pending = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"))?.trim().to_owned();
        (u64::from_str_radix(&mask, 16).ok()? != 0).then_some(())
    };
    send(pid, Signal::STOP);
    until("it is stopped", || (state() == Some('T')).then_some(()));

    tenure.signal(Signal::USR1);

    until("the signal has come", pending);
    assert_eq!((state(), scene.lines("signals")), (Some('T'), vec![]));
    send(pid, Signal::CONT);
    until("it is told", || (scene.lines("signals") == ["usr1"]).then_some(()));
}

#[test]
fn more_processes_than_there_are_descriptors_are_all_told_to_end() {
    let scene = Scene::new();
    // Each is deaf but for writing down that it was told.
    let script = "for i in $(seq 300); do sh -c 'trap \"echo $$ >> told; exit\" TERM; echo $$ >> lives; \
        while :; do sleep 0.1; done' & done; until [ \"$(wc -l < lives)\" = 300 ]; do sleep 0.02; done; exit 3";
    let mut command = std::process::Command::new("prlimit");
    command.args([
        "--nofile=200:200",
        env!("CARGO_BIN_EXE_tenure"),
        "run",
        "job",
        "--ttl",
        "60s",
        "--",
        "sh",
        "-c",
        script,
    ]);
    command.env("TENURE_STORE", scene.url()).current_dir(scene.file(""));

    let status = command.stderr(std::process::Stdio::null()).status().expect("it runs");

    assert_eq!(status.code(), Some(3));
    assert_eq!(scene.lines("told").len(), 300);
}
