//! Settings from the environment and from a file, and what `tenure config` says of them.

use super::scene::Scene;
use super::status::shape;

fn said(output: &std::process::Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn write(scene: &Scene, text: &str) {
    std::fs::write(scene.file("tenure.toml"), text).expect("a file");
}

/// Value and origin of one setting.
fn setting(told: &str, key: &str) -> (serde_json::Value, serde_json::Value, serde_json::Value) {
    let report: serde_json::Value = serde_json::from_str(told).expect("JSON");
    let all = report["settings"].as_array().expect("a list").clone();
    let one = all.into_iter().find(|one| one["setting"] == key).expect("it is there");
    (one["value"].clone(), one["from"].clone(), one["where"].clone())
}

#[test]
fn what_is_typed_comes_first_then_the_variable_then_the_file() {
    let scene = Scene::new();
    write(
        &scene,
        "ttl = \"3s\"\ntickets = 2\ngrace = '4s'\n\nlabel = \"from-file\"\nwait-for-store = true\n",
    );
    let mut tenure = scene.tenure();
    tenure.env("TENURE_GRACE", "5s").env("TENURE_LABEL", "").env("TENURE_WAIT", "6s");

    let (code, told, error) =
        said(&tenure.args(["config", "--json", "--wait", "7s"]).output().expect("it runs"));

    assert_eq!(code, Some(0), "{error}");
    let of = |key| setting(&told, key);
    assert_eq!(of("ttl"), ("3s".into(), "file".into(), "tenure.toml line 1".into()));
    assert_eq!(of("tickets"), ("2".into(), "file".into(), "tenure.toml line 2".into()));
    assert_eq!(of("grace"), ("5s".into(), "environment".into(), "TENURE_GRACE".into()));
    // An empty variable is as if there were none.
    assert_eq!(of("label"), ("from-file".into(), "file".into(), "tenure.toml line 5".into()));
    assert_eq!(of("wait"), ("7s".into(), "flag".into(), "--wait".into()));
    assert_eq!(of("wait-for-store"), ("true".into(), "file".into(), "tenure.toml line 6".into()));
    assert_eq!(of("namespace"), ("tenure".into(), "default".into(), serde_json::Value::Null));
    assert_eq!(of("store"), (scene.url().into(), "environment".into(), "TENURE_STORE".into()));
}

#[test]
fn the_settings_are_those_that_run_goes_by() {
    let scene = Scene::new();
    write(&scene, "tickets = 2\nlabel = \"from-file\"\n");
    let run = |arguments: &[&str]| {
        let mut tenure = scene.tenure();
        tenure.env("TENURE_NAMESPACE", "elsewhere").arg("run").arg("job").args(arguments);
        tenure.args(["--", "sh", "-c", "echo $TENURE_WORKER"]).output().expect("it runs")
    };

    assert_eq!(run(&[]).stdout, b"from-file\n");
    assert_eq!(run(&["--label", "typed"]).stdout, b"typed\n");

    let (_, told, _) = said(&scene.done(&["status", "--namespace", "elsewhere"]));
    assert!(told.contains("2 of 2 free"), "{told}");
}

#[test]
fn what_was_typed_comes_before_what_a_file_wants_also_where_they_exclude_each_other() {
    let scene = Scene::new();
    write(&scene, "restart = \"always\"\nmetadata = '{\"port\": 1}'\npriority = -3\nexit-on-loss = true\n");

    // It would run for ever.
    let once = scene.done(&["run", "job", "--once", "--", "true"]);
    let never = scene.done(&["run", "job", "--restart", "never", "--", "true"]);

    assert_eq!((once.status.code(), never.status.code()), (Some(0), Some(0)));
    write(&scene, "once = true\n");
    let script = "test -e tried || { touch tried; exit 7; }";
    let again = scene.done(&["run", "job", "--restart", "on-failure", "--", "sh", "-c", script]);
    assert_eq!(again.status.code(), Some(0));
    assert_eq!(scene.done(&["run", "job", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    // A word that stands where another command has a setting of that name is not touched.
    let schema = scene.done(&["schema", "postgres"]);
    assert!(schema.status.success() && String::from_utf8_lossy(&schema.stdout).contains("CREATE SCHEMA"));
}

#[test]
fn settings_that_contradict_each_other_are_refused_or_the_first_counts_and_says_so() {
    let scene = Scene::new();
    let run = |variables: &[(&str, &str)], options: &[&str], script: &str| {
        let mut tenure = scene.tenure();
        tenure.envs(variables.iter().copied()).args(["run", "job"]).args(options);
        said(&tenure.args(["--", "sh", "-c", script]).output().expect("it runs"))
    };
    let again = "test -e tried || { touch tried; exit 7; }";

    let (code, _, error) = run(&[("TENURE_ONCE", "true")], &["--restart", "on-failure"], again);
    assert_eq!(code, Some(0), "{error}");
    assert!(
        error
            .starts_with("tenure: `once` (TENURE_ONCE) does not count: `--restart on-failure` comes first\n"),
        "{error}"
    );
    let (code, _, error) = run(&[("TENURE_RESTART", "always")], &["--once"], "exit 6");
    assert_eq!(code, Some(6), "{error}");
    assert!(error.contains("`restart` (TENURE_RESTART) does not count: `--once` comes first"), "{error}");
    // What wants nothing contradicts nothing.
    let (code, _, error) = run(&[("TENURE_ONCE", "true")], &["--restart", "never"], "exit 5");
    assert_eq!((code, error.as_str()), (Some(5), ""));

    let both = [("TENURE_ONCE", "true"), ("TENURE_RESTART", "always")];
    let (code, _, error) = run(&both, &[], "touch begun");
    assert_eq!(code, Some(125));
    assert!(error.contains("contradict each other: TENURE_RESTART, TENURE_ONCE"), "{error}");
    write(&scene, "once = true\n\nrestart = \"always\"\n");
    let (code, _, error) = run(&[], &[], "touch begun");
    assert_eq!(code, Some(125));
    assert!(error.contains("contradict each other: tenure.toml line 3, tenure.toml line 1"), "{error}");
    assert!(!scene.file("begun").exists());

    write(&scene, "restart = \"always\"\n");
    let (code, _, error) = run(&[("TENURE_ONCE", "true")], &[], "exit 4");
    assert_eq!(code, Some(4), "{error}");
    assert!(
        error.contains("`restart` (tenure.toml line 1) does not count: `TENURE_ONCE=true` comes first"),
        "{error}"
    );
    let (_, told, _) = said(
        &scene.tenure().env("TENURE_ONCE", "true").args(["config", "--json"]).output().expect("it runs"),
    );
    assert_eq!(setting(&told, "restart"), ("never".into(), "default".into(), serde_json::Value::Null));
}

#[test]
fn programs_see_where_each_value_came_from() {
    let scene = Scene::new();

    let (code, told, _) = said(&scene.done(&["config", "--json"]));

    let expected = r#"{
 "version": 9,
 "file": null,
 "settings": [
 {
 "setting": "store",
 "value": "URL",
 "from": "environment",
 "where": "TENURE_STORE"
 },
 {
 "setting": "namespace",
 "value": "tenure",
 "from": "default",
 "where": null
 },
"#;
    let shaped = shape(&told.replace(&scene.url(), "URL"));
    assert!(code == Some(0) && shaped.starts_with(expected), "{shaped}");
    assert_eq!(setting(&told, "grace"), (serde_json::Value::Null, "default".into(), serde_json::Value::Null));
}

#[test]
fn people_see_a_table_and_no_password() {
    let scene = Scene::new();
    write(&scene, "store = \"redis://me:sesame@cache/0\"\nttl = \"3s\"\n");
    let mut tenure = scene.tenure();

    let (code, told, error) =
        said(&tenure.env_remove("TENURE_STORE").arg("config").output().expect("it runs"));

    assert_eq!(code, Some(0), "{error}");
    assert_eq!(error, "tenure: settings from `tenure.toml`\n");
    let lines: Vec<String> =
        told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines[0], "SETTING VALUE FROM");
    assert_eq!(lines[1], "store redis://me:***@cache/0 tenure.toml line 1");
    assert!(lines.contains(&"ttl 3s tenure.toml line 2".to_owned()), "{told}");
    assert!(lines.contains(&"grace (one ttl) default".to_owned()), "{told}");
    let (_, json, _) = said(
        &scene.tenure().env_remove("TENURE_STORE").args(["config", "--json"]).output().expect("it runs"),
    );
    let flag = scene.done(&["config", "--store", "postgres://me:sesame@db/x?password=sesame"]);
    for shown in [told, json, said(&flag).1] {
        assert!(!shown.contains("sesame") && shown.contains("me"), "{shown}");
    }
}

#[test]
fn a_label_is_shown_as_it_is_and_a_store_that_there_cannot_be_is_no_error() {
    let scene = Scene::new();
    let mut tenure = scene.tenure();
    tenure.env_remove("TENURE_STORE").env_remove("XDG_STATE_HOME").env_remove("HOME");

    let (code, told, error) =
        said(&tenure.args(["config", "--label", "x://a:b@c"]).output().expect("it runs"));

    assert_eq!(code, Some(0), "{error}");
    assert!(told.contains("(none: there is no home)") && told.contains("x://a:b@c"), "{told}");
}

#[test]
fn the_file_is_the_named_one_else_the_folders_else_the_users() {
    let scene = Scene::new();
    let ttl = |change: &dyn Fn(std::process::Command) -> std::process::Command| {
        let mut tenure = change(scene.tenure());
        let (code, told, error) = said(&tenure.args(["config", "--json"]).output().expect("it runs"));
        assert_eq!(code, Some(0), "{error}");
        setting(&told, "ttl").0
    };
    let nothing = |tenure: std::process::Command| tenure;
    let with = |mut tenure: std::process::Command, name: &str, value: &str| {
        tenure.env(name, value);
        tenure
    };
    assert_eq!(ttl(&nothing), "15s");

    std::fs::create_dir_all(scene.file("config/tenure")).expect("a folder");
    std::fs::write(scene.file("config/tenure/tenure.toml"), "ttl = '1s'").expect("a file");
    assert_eq!(ttl(&nothing), "1s");
    std::fs::create_dir_all(scene.file("home/.config/tenure")).expect("a folder");
    std::fs::write(scene.file("home/.config/tenure/tenure.toml"), "ttl = '2s'").expect("a file");
    let home = scene.file("home").display().to_string();
    // A path that is not absolute is none.
    assert_eq!(ttl(&|tenure| with(with(tenure, "XDG_CONFIG_HOME", "x"), "HOME", &home)), "2s");
    write(&scene, "ttl = '3s'");
    assert_eq!(ttl(&nothing), "3s");
    std::fs::write(scene.file("other"), "ttl = '4s'").expect("a file");
    assert_eq!(ttl(&|tenure| with(tenure, "TENURE_CONFIG", "other")), "4s");
    assert_eq!(ttl(&|tenure| with(tenure, "TENURE_CONFIG", "/dev/null")), "15s");
}

// req: H11
#[test]
fn what_cannot_be_a_setting_is_refused_with_file_line_and_limit() {
    for (text, what) in [
        ("\nttl = \"1ms\"", "`tenure.toml` line 2: `ttl`: must be from 100ms to 1h"),
        ("ttl = 15", "`tenure.toml` line 1: `ttl` has the type integer; write text in quotation marks"),
        ("ttl = \"15\"", "line 1: `ttl`: a unit is missing: write 15s or 15ms"),
        ("# x\n\ntickets = \"3\"", "line 3: `tickets` has the type string; write a number"),
        ("tickets = 0", "line 1: `tickets`: must be a number from 1 to 1000"),
        ("tickets = -1", "line 1: `tickets`: must be a number from 1 to 1000"),
        ("tickets = 0x10000", "line 1: `tickets`: must be a number from 1 to 1000"),
        ("tickets = 99999999999999999999", "line 1: `tickets`: must be a number from 1 to 1000"),
        ("wait-for-store = 1", "line 1: `wait-for-store` has the type integer; write true or false"),
        (
            "restart = \"sometimes\"",
            "line 1: `restart`: \"sometimes\" is not one of never, on-failure, always",
        ),
        ("priority = 9999999999", "line 1: `priority`: must be a number from -2147483648 to 2147483647"),
        ("metadata = \"{\"", "line 1: `metadata`: must be JSON, such as '{\"zone\":\"b\"}'"),
        ("store = \"memory:\"", "line 1: `store`: `memory:` belongs to one process"),
        ("namespace = \"A\"", "line 1: `namespace`: namespace \"A\" is not 1 to 40 of a-z 0-9 _ -"),
        ("tickts = 3", "line 1: there is no setting `tickts`\n\nhint: did you mean `tickets`?"),
        ("tll = \"5s\"", "hint: did you mean `ttl`?"),
        ("wait_for_store = true", "hint: did you mean `wait-for-store`?"),
        ("qqq = 3", "there is no setting `qqq`\n\nhint: there are store, namespace, "),
        ("[run]\nttl = '3s'", "line 1: there is no setting `run`"),
        ("ttl = '3s'\nttl = '4s'", "`tenure.toml` line 2: this is not TOML: "),
        ("ttl = ", "`tenure.toml` line 1: this is not TOML: "),
        ("\"\\u001b[31m\" = 1", "there is no setting `\u{fffd}[31m`"),
    ] {
        let scene = Scene::new();
        write(&scene, text);

        for arguments in [&["config"][..], &["run", "job", "--", "touch", "begun"], &["status"]] {
            let (code, told, error) = said(&scene.done(arguments));

            assert_eq!((code, told.as_str()), (Some(125), ""), "{text:?}: {error}");
            assert!(error.starts_with("tenure: ") && error.contains(what), "{text:?}: {error}");
        }
        assert!(!scene.file("begun").exists() && !scene.file("tenure.db").exists());
    }
}

#[test]
fn a_file_that_cannot_be_read_is_refused_and_help_is_given_all_the_same() {
    let scene = Scene::new();
    let fails = |what: &str| {
        let (code, _, error) = said(&scene.done(&["status"]));
        assert_eq!(code, Some(125));
        assert!(error.contains(what), "{error}");
        for helped in
            [&["--help"][..], &["run", "--help"], &["--version"], &["completions", "bash"], &["man"]]
        {
            assert_eq!(scene.done(helped).status.code(), Some(0), "{helped:?}");
        }
    };
    std::fs::create_dir(scene.file("tenure.toml")).expect("a folder");
    fails("cannot read `tenure.toml`: Is a directory");
    std::fs::remove_dir(scene.file("tenure.toml")).expect("it goes");
    std::fs::write(scene.file("tenure.toml"), b"label = \"\xff\"").expect("a file");
    fails("cannot read `tenure.toml`: stream did not contain valid UTF-8");
    std::fs::write(scene.file("tenure.toml"), "#".repeat(70_000)).expect("a file");
    fails("`tenure.toml` is larger than 64 KiB");
    std::fs::remove_file(scene.file("tenure.toml")).expect("it goes");
    let (code, _, error) =
        said(&scene.tenure().env("TENURE_CONFIG", "nowhere").arg("status").output().expect("it runs"));
    assert_eq!(code, Some(125));
    assert!(error.contains("there is no file `nowhere`, which TENURE_CONFIG names"), "{error}");
}

// req: H11
#[test]
fn a_variable_that_breaks_a_limit_or_is_misspelt_is_refused_and_others_are_left_alone() {
    use std::os::unix::ffi::OsStrExt;
    let scene = Scene::new();
    for (name, value, what) in [
        ("TENURE_TTL", &b"1ms"[..], "TENURE_TTL: must be from 100ms to 1h"),
        ("TENURE_TICKETS", b"many", "TENURE_TICKETS: must be a number from 1 to 1000"),
        ("TENURE_WAIT_FOR_STORE", b"yes", "TENURE_WAIT_FOR_STORE: \"yes\" is not true or false"),
        ("TENURE_LABEL", b"\xff", "TENURE_LABEL is not UTF-8"),
        ("TENURE_TLL", b"3s", "there is no setting TENURE_TLL\n\nhint: did you mean TENURE_TTL?"),
        ("TENURE_TICKET_", b"3", "did you mean TENURE_TICKETS?"),
    ] {
        let value = std::ffi::OsStr::from_bytes(value);
        let (code, _, error) =
            said(&scene.tenure().env(name, value).arg("config").output().expect("it runs"));

        assert_eq!(code, Some(125), "{name}");
        assert!(error.contains(what), "{name}: {error}");
    }
    // What a command of `tenure run` is given, and what an orchestrator sets for a service of that name.
    let mut tenure = scene.tenure();
    for name in ["TENURE_TICKET", "TENURE_TERM", "TENURE_TOKEN", "TENURE_WORKER", "TENURE_RESOURCE"] {
        tenure.env(name, "1");
    }
    tenure.env("TENURE_SERVICE_HOST", "10.0.0.1").env("TENURE_PORT", "tcp://10.0.0.1:80");
    assert_eq!(tenure.arg("config").output().expect("it runs").status.code(), Some(0));
}

#[test]
fn a_flag_of_config_is_checked_as_well() {
    let scene = Scene::new();

    let (code, _, error) = said(&scene.done(&["config", "--ttl", "1ms"]));

    assert_eq!(code, Some(125));
    assert!(error.contains("'--ttl <DURATION>': must be from 100ms to 1h"), "{error}");
}
