//! How the command ends, and `tenure` with it; what the command is given.

use std::process::Stdio;

use super::scene::Scene;
use super::stores::Server;
use super::terminal::Terminal;

#[test]
fn whoever_gets_no_ticket_within_the_wait_ends_with_123_and_has_run_nothing() {
    let scene = Scene::new();
    let owner = scene.start("a", &["--ttl", "60s"]);
    scene.life(1);

    for (resource, wait, code, said) in [
        ("job", "0s", 123, "tenure: no ticket of `job` is free on `sqlite:"),
        ("job", "300ms", 123, "` within 300ms\n"),
        ("other", "0s", 7, ""),
        ("other", "300ms", 7, ""),
    ] {
        let output =
            scene.done(&["run", resource, "--wait", wait, "--", "sh", "-c", "echo x >> ran; exit 7"]);

        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{resource} {wait}: {shown}");
        assert!(shown.contains(said), "{resource} {wait}: {shown}");
    }
    assert_eq!(scene.lines("ran").len(), 2);
    // They left the queue, too.
    assert_eq!(scene.standing(), (vec!["a".to_owned()], vec![]));

    // Within the wait it becomes free.
    let mut waiter = scene.start_script("b", &["--ttl", "60s", "--wait", "20s"], "exit 8");
    scene.until_waiting(1);
    owner.signal(rustix::process::Signal::TERM);
    assert_eq!(waiter.ended().code(), Some(8));
}

#[test]
fn whoever_gets_no_ticket_because_the_store_is_new_is_told_so() {
    let server = Server::redis();
    let scene = server.scene();

    for wait in ["0s", "300ms"] {
        let output = scene.done(&["run", "job", "--ttl", "60s", "--wait", wait, "--", "true"]);

        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(123), "{wait}: {shown}");
        assert!(
            shown.contains(": the store is new, was restarted or lost its data, and grants nothing for "),
            "{shown}"
        );
        assert!(shown.contains("no ticket of `job`"), "{shown}");
    }

    // And so is whoever looks.
    let told = "the store is new, was restarted or lost its data, and grants nothing for ";
    for look in [&["status"][..], &["explain", "job"]] {
        let output = scene.done(look);
        let shown = String::from_utf8_lossy(&output.stdout).replace('\n', " ");
        assert!(shown.contains(told), "{look:?}: {shown}");
    }
    let json = scene.done(&["status", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let withheld = json["resources"][0]["withheld_ms"].as_u64().expect("a number");
    assert!((1..=60_000).contains(&withheld), "{withheld}");
}

#[test]
fn the_wait_counts_only_until_the_first_ownership() {
    let scene = Scene::new();
    let script = "until [ -e go ]; do echo beat >> beats; sleep 0.01; done; exit 6";
    let mut tenure = scene.start_script("a", &["--ttl", "60s", "--wait", "200ms"], script);

    // It runs for longer than it would have waited.
    super::scene::until("many beats", || (scene.lines("beats").len() > 60).then_some(()));
    assert!(!tenure.has_ended());
    std::fs::write(scene.file("go"), "").expect("a file");

    assert_eq!(tenure.ended().code(), Some(6));
}

// req: A1
#[test]
fn tenure_ends_with_the_code_that_says_what_happened() {
    let scene = Scene::new();
    std::fs::write(scene.file("plain"), "no program\n").expect("a file");
    let shelf = |name: &str| {
        std::fs::create_dir(scene.file(name)).expect("a folder");
        format!("sqlite:{}/{name}/tenure.db", scene.folder.path().display())
    };
    let (lost, once) = (shelf("lost"), shelf("once"));
    let nowhere = format!("sqlite:{}/missing/tenure.db", scene.folder.path().display());
    let perhaps = format!("{}?proof=perhaps", scene.url());
    // Somebody owns that one for as long as this lasts.
    let _owner = scene.start("owner", &[]);
    scene.life(1);

    for (resource, options, command, code) in [
        // The command's own, and how it died.
        ("mine", &[][..], &["true"][..], 0),
        ("mine", &[], &["sh", "-c", "exit 7"], 7),
        ("mine", &[], &["sh", "-c", "exit 255"], 255),
        ("mine", &[], &["sh", "-c", "kill -TERM $$"], 143),
        ("mine", &[], &["sh", "-c", "kill -KILL $$"], 137),
        ("mine", &["--restart", "on-failure"], &["sh", "-c", "[ -e again ] || { touch again; exit 7; }"], 0),
        // Of `tenure`, by a signal that the command gets, too.
        ("mine", &[], &["sh", "-c", "kill -TERM $(cut -d' ' -f4 /proc/$PPID/stat); sleep 60"], 143),
        (
            "mine",
            &[],
            &["sh", "-c", "trap 'exit 9' INT; kill -INT $(cut -d' ' -f4 /proc/$PPID/stat); sleep 60 & wait"],
            9,
        ),
        // No ticket in time.
        ("job", &["--wait", "0s"], &["true"], 123),
        ("job", &["--wait", "50ms"], &["true"], 123),
        // Lost: the store is gone.
        (
            "mine",
            &["--exit-on-loss", "--ttl", "500ms", "--store", &lost],
            &["sh", "-c", "rm -r lost; sleep 60"],
            124,
        ),
        ("mine", &["--once", "--ttl", "500ms", "--store", &once], &["sh", "-c", "rm -r once; sleep 60"], 124),
        // Something is wrong with `tenure`: what it is told, its store, its guard.
        ("mine", &["--store", &nowhere], &["true"], 125),
        ("mine", &["--store", "nix:x"], &["true"], 125),
        ("mine", &["--store", &perhaps], &["true"], 125),
        ("mine", &["--ttl", "5ms"], &["true"], 125),
        ("mine", &["--no-such-option"], &["true"], 125),
        ("mine", &[], &["sh", "-c", "kill -KILL $PPID; sleep 60"], 125),
        // Something is wrong with the command.
        ("mine", &[], &["./plain"], 126),
        ("mine", &[], &["/"], 126),
        ("mine", &[], &["no-such-command-anywhere"], 127),
        ("mine", &[], &["./missing"], 127),
    ] {
        let output = scene.done(&[&["run", resource], options, &["--"], command].concat());

        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options:?} {command:?}: {said}");
        assert!(!(123..128).contains(&code) || said.starts_with("tenure: "), "{command:?}: {said}");
        assert!(output.stdout.is_empty(), "stdout is the command's");
        // Whatever happened, the ticket is free, and nobody waits.
        let left = scene.done(&["status", "mine", "--json"]);
        assert!(
            !String::from_utf8_lossy(&left.stdout).contains("\"worker\""),
            "after {options:?} {command:?}"
        );
    }
}

#[test]
fn the_commands_own_end_frees_the_ticket_at_once() {
    let scene = Scene::new();
    let script = "echo start >> first; until [ -e go ]; do sleep 0.01; done";
    let mut first = scene.start_script("a", &["--ttl", "60s"], script);
    super::scene::until("the first command", || (!scene.lines("first").is_empty()).then_some(()));
    let _second = scene.start("b", &["--ttl", "60s"]);
    scene.until_waiting(1);

    std::fs::write(scene.file("go"), "").expect("a file");

    assert_eq!(first.ended().code(), Some(0));
    assert_eq!(scene.life(2).worker, "b");
}

#[test]
fn the_command_is_told_what_it_owns_and_no_secrets() {
    let scene = Scene::new();
    let script = "env | grep ^TENURE_ | sort; ls -l /proc/self/fd | grep -c '/[0-9a-f]*\\.lock$'";
    let mut tenure = scene.tenure();
    tenure.args(["run", "nightly report", "--label", "me", "--", "sh", "-c", script]);

    let output = tenure.output().expect("it runs");

    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("TENURE_RESOURCE=nightly report"));
    assert_eq!(lines.next(), Some("TENURE_TERM=1"));
    assert_eq!(lines.next(), Some("TENURE_TICKET=0"));
    let token = lines.next().and_then(|line| line.strip_prefix("TENURE_TOKEN=")).expect("a token");
    assert!(token.parse::<u64>().expect("a number") > 1_000_000_000_000_000);
    assert_eq!(lines.next(), Some("TENURE_WORKER=me"));
    // TENURE_STORE, which may hold a password, is not among them; the lock of the lease is inherited.
    assert_eq!((lines.next(), lines.next()), (Some("1"), None));
}

#[test]
fn the_token_grows_and_the_term_counts() {
    let scene = Scene::new();
    for _ in 0..3 {
        let script = "echo $TENURE_TERM $TENURE_TOKEN >> numbers";
        assert!(scene.done(&["run", "job", "--", "sh", "-c", script]).status.success());
    }

    let lines = scene.lines("numbers");
    let numbers: Vec<(u64, u64)> = lines
        .iter()
        .filter_map(|line| line.split_once(' '))
        .map(|(term, token)| (term.parse().expect("a term"), token.parse().expect("a token")))
        .collect();
    assert!(numbers.is_sorted_by(|one, next| one.0 + 1 == next.0 && one.1 < next.1), "{numbers:?}");
    assert_eq!(numbers.len(), 3);
}

#[test]
fn stdin_stdout_and_stderr_are_the_commands() {
    let scene = Scene::new();
    std::fs::write(scene.file("in"), "typed\n").expect("a file");
    let mut tenure = scene.tenure();
    tenure.args(["run", "job", "--", "sh", "-c", "cat; echo aside >&2"]);
    tenure.stdin(std::fs::File::open(scene.file("in")).expect("a file"));

    let output = tenure.stdout(Stdio::piped()).output().expect("it runs");

    assert_eq!(String::from_utf8_lossy(&output.stdout), "typed\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "aside\n");
}

#[test]
fn the_command_starts_with_the_signals_that_tenure_was_started_with() {
    let scene = Scene::new();
    // Without the two signals that belong to the C library.
    let masks = "sed -nE 's/^Sig(Blk|Ign):.*([0-7].{7})$/\\1 \\2/p' /proc/self/status";
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let plainly = format!("exec {masks}");
    let through = format!("exec {tenure} run job -- {masks}");

    for trap in ["", "trap '' HUP INT; "] {
        let shown = |script: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &format!("{trap}{script}")]).env("TENURE_STORE", scene.url());
            String::from_utf8(shell.output().expect("it runs").stdout).expect("UTF-8")
        };
        let expected = shown(&plainly);
        assert!(expected.contains("Blk 0"), "{expected}");
        assert_eq!(shown(&through), expected, "after {trap:?}");
    }
}

#[test]
fn that_it_owns_is_said_to_whoever_sits_at_a_terminal() {
    let scene = Scene::new();
    let told = |shown: &str| shown.contains("tenure: owns `job` (term ");

    let mut tenure = Terminal::start(&scene, &["run", "job", "--", "true"], 80, 24);
    tenure.until("it owns", told);
    assert!(tenure.ended().success());

    let output = scene.done(&["run", "job", "--", "true"]);
    assert!(output.status.success() && !told(&String::from_utf8_lossy(&output.stderr)));
}
