//! Hostile and mistaken input: an error that names the limit, 125, and nothing begun.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::scene::Scene;

// req: T5
#[test]
fn what_breaks_a_limit_is_refused_with_the_limit_and_nothing_is_begun() {
    let scene = Scene::new();
    let long = "x".repeat(201);
    let resource = "is not 1 to 200 bytes without control characters";
    let label = "is not 1 to 100 bytes without control characters";

    for (arguments, limit) in [
        (&["run", ""][..], resource),
        (&["run", "a\nb"], resource),
        (&["run", "\u{1b}[31m"], resource),
        (&["run", &long], resource),
        (&["run", &long], "xxx\u{2026}\" is not"),
        (&["run", "job", "--\u{1b}[31m"], "unexpected argument"),
        (&["run", "job", "--label", ""], label),
        (&["run", "job", "--label", &long], label),
        (&["run", "job", "--tickets", "0"], "'--tickets <K>': must be a number from 1 to 1000"),
        (&["run", "job", "--tickets", "1001"], "'--tickets <K>': must be a number from 1 to 1000"),
        (&["run", "job", "--tickets", "-1"], "must be a number from 1 to 1000"),
        (&["run", "job", "--tickets", "many"], "'--tickets <K>': must be a number from 1 to 1000"),
        (&["run", "job", "--ttl", "1ms"], "'1ms' for '--ttl <DURATION>': must be from 100ms to 1h"),
        (&["run", "job", "--ttl", "2h"], "'2h' for '--ttl <DURATION>': must be from 100ms to 1h"),
        (&["run", "job", "--wait", "-1s"], "'-1s' for '--wait': a duration cannot be negative"),
        (&["run", "job", "--wait", "--ttl", "5s"], "a value is required for '--wait <DURATION>'"),
        (&["history", "--since=-1h"], "'-1h' for '--since <DURATION>': a duration cannot be negative"),
        (&["run", "job", "--metadata", "foo"], "must be JSON, such as '{\"zone\":\"b\"}'"),
        (&["demo", "--workers", "20"], "'--workers <N>': must be a number from 1 to 9"),
        (&["demo", "--script", "--workers", "1"], "the script needs at least 3 workers"),
        (
            &["run", "job", "--store", "mysql://db"],
            "known: sqlite, redis, rediss, redis+unix, unix, postgres, postgresql\n",
        ),
        (&["run", "job", "--ttl", "15"], "a unit is missing: write 15s or 15ms"),
        (&["run", "job", "--ttl", "soon"], "write a number and ms, s, m, h or d"),
        (&["run", "job", "--wait", "now"], "write a number and ms, s, m, h or d"),
        (&["run", "job", "--namespace", "A"], "is not 1 to 40 of a-z 0-9 _ -"),
        (&["run", "job", "--namespace", "pg_x"], "not beginning with pg_"),
        (&["run", "job", "--store", "memory:"], "belongs to one process, and protects nothing"),
        (&["run", "job", "--store", "memory:x"], "hint: name a store that all of them use"),
        (&["status", "--store", "memory:"], "belongs to one process"),
        (&["run", "job", "--store", "tenure.db"], "hint: a SQLite file is named sqlite:PATH"),
        (&["run", "job", "--tickts", "2"], "hint: a similar argument exists: '--tickets'"),
        (&["stats"], "hint: a similar subcommand exists: 'status'"),
        (&[], "requires a subcommand"),
    ] {
        let mut typed = arguments.to_vec();
        if typed.first() == Some(&"run") {
            typed.extend(["--", "touch", "begun"]);
        }

        let output = scene.done(&typed);

        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {said}");
        assert!(said.starts_with("tenure: ") && said.contains(limit), "{arguments:?}: {said}");
        assert!(said.len() < 700 && !said.contains('\u{1b}'), "{arguments:?}: {said:?}");
    }
    assert_eq!(std::fs::read_dir(&scene.folder).expect("a folder").count(), 0);
}

#[test]
fn a_command_is_required() {
    let scene = Scene::new();

    let output = scene.done(&["run", "job"]);

    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("<COMMAND>"));
}

#[test]
fn whoever_forgets_the_dashes_is_reminded() {
    let scene = Scene::new();

    for typed in [&["run", "job", "echo", "hi"][..], &["run", "job", "--ttl", "5s", "echo", "-n"]] {
        let output = scene.done(typed);

        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125));
        assert!(
            said.contains("hint: the command follows `--`") && !said.contains("tip:"),
            "{typed:?}: {said}"
        );
    }
}

#[test]
fn where_the_dashes_begin_the_command_nobody_is_told_to_put_an_option_behind_them() {
    let scene = Scene::new();

    for typed in [&["run", "job", "--tll", "5s", "--", "true"][..], &["once", "job", "--tll", "--", "true"]] {
        let output = scene.done(typed);

        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("hint: a similar argument exists: '--ttl'"), "{said}");
        assert!(!said.contains("as a value"), "{said}");
    }
}

#[test]
fn each_form_of_cron_has_a_line_of_its_own() {
    let scene = Scene::new();
    let forms = "tenure cron [OPTIONS] <SPEC> --job <NAME> -- <COMMAND>...
       tenure cron --list [--json] [OPTIONS]
       tenure cron --history <JOB> [--json] [OPTIONS]";

    let (help, refused) = (scene.done(&["cron", "--help"]), scene.done(&["cron", "--list", "0 6 * * *"]));

    assert!(String::from_utf8_lossy(&help.stdout).contains(forms));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(125) && said.contains(forms), "{said}");
}

#[test]
fn bytes_that_are_no_text_are_refused_in_names_and_passed_on_to_the_command() {
    let scene = Scene::new();
    let strange = OsString::from(OsStr::from_bytes(b"a\xffb"));

    let refused = scene.tenure().arg("run").arg(&strange).args(["--", "true"]).output().expect("it runs");
    let passed =
        scene.tenure().args(["run", "job", "--", "printf", "%s"]).arg(&strange).output().expect("it runs");

    assert_eq!(refused.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&refused.stderr).starts_with("tenure: invalid UTF-8"));
    assert_eq!(passed.stdout, b"a\xffb");
}

#[test]
fn what_follows_the_dashes_is_the_commands() {
    let scene = Scene::new();

    let output = scene.done(&["run", "job", "--", "echo", "--ttl", "--help", "--"]);

    assert_eq!(String::from_utf8_lossy(&output.stdout), "--ttl --help --\n");
}

#[test]
fn help_and_version_are_data() {
    let scene = Scene::new();
    for (arguments, part) in [
        (&["--help"][..], "Exit codes:"),
        (&["run", "--help"], "tenure run nightly-report --wait 0s -- ./report.sh"),
        (&["status", "--help"], "tenure status --json"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let output = scene.done(arguments);

        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(part), "{arguments:?}");
    }
}
