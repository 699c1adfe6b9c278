//! What others wrote into the store never steers the terminal of whoever looks; and disks that are full.

use super::scene::Scene;
use super::terminal::Terminal;

/// Characters that steer a terminal or make text look like other text, and that names and metadata may hold: JSON allows
/// controls of the second set and DEL as they are.
const NAME: &str = "job\u{202e}evil\u{200b}";
const METADATA: &str = "{\"a\": \"\u{9b}31m\u{7f}\u{85}\\u001b]0;owned\\u0007\u{2028}\"}";

/// Somebody owns a resource of that name and tells such things.
fn with_hostile_owner<T>(scene: &Scene, look: impl FnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let builder = tenure::Worker::builder(&scene.url()).label("w\u{2066}x").metadata(METADATA);
        let worker = builder.connect().await.expect("a worker");
        let own = worker.campaign(NAME).acquire().await.expect("it owns");
        let seen = look();
        own.release().await;
        worker.shutdown().await;
        seen
    })
}

/// Nothing but printable characters, line ends, and what we draw with ourselves.
fn is_harmless(text: &str) -> bool {
    let steers = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    !text.chars().any(steers)
}

#[test]
fn names_and_metadata_from_the_store_reach_nobody_raw() {
    let scene = Scene::new();

    with_hostile_owner(&scene, || {
        for arguments in [
            &["status"][..],
            &["status", "--json"],
            &["status", NAME],
            &["history"],
            &["history", "--json"],
            &["explain", NAME],
            &["explain", NAME, "--json"],
            &["explain", "job"],
            &["step-down", "job"],
            &["step-down", NAME, "--ticket", "7"],
            &["step-down", NAME, "--to", "x\u{202e}"],
        ] {
            let output = scene.done(arguments);

            let (told, said) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
            let (told, said) = (told.expect("UTF-8"), said.expect("UTF-8"));
            assert!(is_harmless(&told) && is_harmless(&said), "{arguments:?}: {told:?} {said:?}");
        }
        // Programs get it all the same, escaped.
        let output = scene.done(&["status", "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["resources"][0]["resource"], NAME);
        let expected: serde_json::Value = serde_json::from_str(METADATA).expect("JSON");
        assert_eq!(report["resources"][0]["owners"][0]["metadata"], expected);
    });
}

#[test]
fn the_live_view_is_not_steered_either() {
    let scene = Scene::new();

    with_hostile_owner(&scene, || {
        let mut terminal = Terminal::start(&scene, &["status", "--watch"], 80, 10);
        terminal.until("the owner", |shown| shown.contains("x  term 1"));
        terminal.press("q");
        assert_eq!(terminal.ended().code(), Some(0));

        let raw = String::from_utf8(terminal.raw()).expect("UTF-8");
        assert!(!raw.contains(['\u{9b}', '\u{202e}', '\u{200b}', '\u{2066}', '\u{7f}']), "{raw:?}");
        assert!(!raw.contains("\u{1b}]"), "{raw:?}");
    });
}

#[test]
fn metadata_is_shown_to_people() {
    let scene = Scene::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let told = runtime.block_on(async {
        let builder = tenure::Worker::builder(&scene.url()).label("w").metadata("{\"port\": 8080}");
        let worker = builder.connect().await.expect("a worker");
        let _own = worker.campaign("job").acquire().await.expect("it owns");
        scene.done(&["status"]).stdout
    });

    let told = String::from_utf8(told).expect("UTF-8");
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].ends_with("LEASE LEFT  METADATA") && lines[1].ends_with("{\"port\":8080}"), "{told}");
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let scene = Scene::new();
    assert!(scene.done(&["run", "job", "--", "true"]).status.success());

    for arguments in [
        &["status"][..],
        &["history", "--json"],
        &["explain", "job"],
        &["config"],
        &["man"],
        &["completions", "zsh"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("it is there");
        let output = scene.tenure().args(arguments).stdout(full).output().expect("it runs");

        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(said.contains("cannot write to stdout: No space left on device"), "{arguments:?}: {said}");
    }
}

/// What a shell says in whose world there is a small disk, and `$0` is `tenure` on a store there.
fn on_a_small_disk(script: &str) -> String {
    let scene = Scene::new();
    let prepared = r#"mount -t tmpfs -o size=2m tenure "$1" && cd "$1" || exit 1
        export TENURE_STORE="sqlite:$1/tenure.db"
        fill() { cat /dev/zero > filler 2>/dev/null; }
    "#;
    let script = format!("{prepared}{script}");
    let mut command = std::process::Command::new("timeout");
    command.args(["60", "unshare", "--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_tenure")]);
    let output = command.arg(scene.folder.path()).env("XDG_CONFIG_HOME", scene.file("config")).output();
    String::from_utf8(output.expect("unshare runs").stdout).expect("UTF-8")
}

#[test]
fn on_a_full_disk_owners_are_seen_and_the_doctor_measures_or_says_what_is_wrong() {
    let told = on_a_small_disk(
        r#""$0" run job --ttl 1m -- sleep 60 & owner=$!
        until "$0" status job 2>/dev/null | grep -q 0/1; do sleep 0.02; done
        fill
        "$0" status 2>&1; echo "status $?"
        "$0" doctor 2>&1; echo "doctor $?"
        kill -KILL $owner"#,
    );

    let (status, doctor) = told.split_once("status 0\n").unwrap_or_else(|| panic!("no status: {told}"));
    assert!(status.contains("job ") && status.contains("0/1"), "{told}");
    // Small writes go on for as long as the log has room that it can use again.
    let fails = doctor.contains(": the disk is full") && doctor.contains("doctor 125\n");
    assert!(fails || doctor.contains("doctor 0\n"), "{told}");
}

#[test]
fn a_full_disk_that_nobody_works_on_cannot_be_opened_and_that_is_said() {
    // The index of the log goes with the last who closes the file, if that one has the time.
    let told = on_a_small_disk(
        r#""$0" run job -- true; rm -f tenure.db-shm; fill
        "$0" status 2>&1; echo "status $?"
        "$0" run job -- true 2>&1; echo "run $?""#,
    );

    let (status, run) = told.split_once("status 125\n").unwrap_or_else(|| panic!("no status: {told}"));
    assert!(status.contains("tenure.db`: the disk is full"), "{told}");
    assert!(run.contains("tenure.db`: the disk is full") && run.contains("run 125\n"), "{told}");
}
