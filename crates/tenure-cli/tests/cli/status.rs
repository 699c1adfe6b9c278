//! What `tenure status` shows, and that looking makes nothing.

use super::scene::{Scene, until};

/// Digits become `9`, so that shapes can be compared; runs of blanks one.
pub(crate) fn shape(text: &str) -> String {
    let mut shape = String::new();
    for c in text.chars() {
        let c = if c.is_ascii_digit() { '9' } else { c };
        if !(matches!(c, '9' | ' ') && shape.ends_with(c)) {
            shape.push(c);
        }
    }
    shape
}

// req: O16
#[test]
fn people_see_owners_what_is_free_and_waiters_in_order() {
    let scene = Scene::new();
    let _owner = scene.start("first", &[]);
    scene.life(1);
    let _next = scene.start("second", &[]);
    scene.until_waiting(1);
    let _last = scene.start("third", &[]);
    scene.until_waiting(2);
    assert!(scene.done(&["run", "other", "--tickets", "3", "--", "true"]).status.success());

    let output = scene.done(&["status"]);

    let table = shape(&String::from_utf8(output.stdout).expect("UTF-8"));
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "RESOURCE TICKET WORKER TERM TOKEN OWNED FOR LEASE LEFT");
    let owner = lines[1].replace("9ms", "9s").replace("9.9s", "9s");
    assert_eq!(owner, "job 9/9 first 9 9 9s 9s");
    assert!(lines[2].starts_with(" waits second ") && lines[3].starts_with(" waits third "), "{table}");
    assert_eq!(lines[4..], ["other 9 of 9 free"]);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(said, format!("tenure: store `{}`, namespace `tenure`\n", scene.url()));
}

#[test]
fn programs_see_the_same_as_json_with_spans() {
    let scene = Scene::new();
    let _owner = scene.start("first", &[]);
    scene.life(1);
    let _next = scene.start("second", &[]);
    scene.until_waiting(1);

    let output = scene.done(&["status", "job", "--json"]);

    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let expected = r#"{
 "version": 9,
 "store": "URL",
 "namespace": "tenure",
 "withheld_ms": null,
 "unreadable": [],
 "resources": [
 {
 "resource": "job",
 "tickets": 9,
 "flapping": false,
 "done_by": null,
 "withheld_ms": null,
 "owners": [
 {
 "worker": "first",
 "ticket": 9,
 "term": 9,
 "token": 9,
 "owned_for_ms": 9,
 "lease_left_ms": 9,
 "metadata": {}
 }
 ],
 "waiters": [
 {
 "worker": "second",
 "lease_left_ms": 9,
 "metadata": {}
 }
 ]
 }
 ]
}
"#;
    assert_eq!(shape(&text.replace(&scene.url(), "URL")), expected);
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["version"], 1);
    let left = report["resources"][0]["owners"][0]["lease_left_ms"].as_u64().expect("a span");
    assert!((5_000..=15_000).contains(&left), "{left}");
}

#[test]
fn a_default_store_that_is_not_there_yet_is_empty_and_is_not_made() {
    let scene = Scene::new();
    let look = |arguments: &[&str]| {
        let output = scene.tenure().env_remove("TENURE_STORE").args(arguments).output().expect("it runs");
        assert!(output.status.success());
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(
            said.starts_with("tenure: nothing has been run yet: there is no store at `sqlite:"),
            "{said}"
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    };

    assert_eq!(look(&["status"]), "");
    assert!(look(&["status", "--json"]).contains("\"resources\": []"));
    assert!(!scene.file("state").exists());
}

#[test]
fn that_a_store_is_empty_is_said_to_people() {
    let scene = Scene::new();
    // Whoever waits for nothing and gets nothing leaves nothing behind but the store.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(tenure::admin::Admin::open(&scene.url())).expect("a store");

    for (look, what) in [
        (&["status"][..], "nothing has been claimed yet"),
        (&["history"], "nothing has been claimed yet"),
        (&["cron", "--list"], "no job has run yet"),
    ] {
        let (people, programs) = (scene.done(look), scene.done(&[look, &["--json"]].concat()));

        let store = format!("tenure: store `{}`, namespace `tenure`\n", scene.url());
        assert_eq!(String::from_utf8_lossy(&people.stderr), format!("{store}tenure: {what}\n"));
        assert!(people.status.success() && people.stdout.is_empty());
        assert_eq!(String::from_utf8_lossy(&programs.stderr), store);
        assert!(String::from_utf8_lossy(&programs.stdout).contains("[]"));
    }
}

#[test]
fn where_a_folder_is_missing_both_who_look_and_who_run_are_told_what_to_do() {
    let scene = Scene::new();
    let folder = scene.file("nowhere");
    let store = format!("sqlite:{}/x.db", folder.display());

    for typed in [&["status", "--store", &store][..], &["run", "job", "--store", &store, "--", "true"]] {
        let output = scene.done(typed);

        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125));
        assert!(said.contains(&format!("create it with `mkdir -p {}`", folder.display())), "{said}");
    }
    std::fs::create_dir(&folder).expect("a folder");
    assert!(scene.done(&["run", "job", "--store", &store, "--", "true"]).status.success());
    assert!(scene.done(&["status", "--store", &store]).status.success());
}

#[test]
fn that_there_is_no_store_is_said_once() {
    let scene = Scene::new();

    for typed in [&["explain", "job"][..], &["step-down", "job"], &["cron", "--history", "job"]] {
        let output = scene.tenure().env_remove("TENURE_STORE").args(typed).output().expect("it runs");

        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125));
        assert!(said.matches("there is no store at").count() == 1, "{said}");
        assert!(said.ends_with("hint: nothing has been run yet; `tenure run` creates it\n"), "{said}");
    }
}

#[test]
fn the_first_command_on_a_fresh_machine_works() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    let plainly = |arguments: &[&str]| {
        scene.tenure().env_remove("TENURE_STORE").args(arguments).output().expect("it runs")
    };

    assert!(plainly(&["run", "job", "--", "true"]).status.success());

    let folder = std::fs::metadata(scene.file("state/tenure")).expect("it was made");
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    assert!(String::from_utf8_lossy(&plainly(&["status"]).stdout).contains("job"));
    // Without XDG_STATE_HOME it lies below HOME; without either there is none.
    let mut at_home = scene.tenure();
    at_home.env_remove("TENURE_STORE").env_remove("XDG_STATE_HOME").env("HOME", scene.file("home"));
    assert!(at_home.args(["run", "job", "--", "true"]).status().expect("it runs").success());
    assert!(scene.file("home/.local/state/tenure/tenure.db").exists());
    let mut nowhere = scene.tenure();
    nowhere.env_remove("TENURE_STORE").env_remove("XDG_STATE_HOME").env_remove("HOME");
    let output = nowhere.args(["run", "job", "--", "true"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("hint: name a store with --store"));
}

#[test]
fn a_named_store_that_is_not_there_is_an_error_and_is_not_made() {
    let scene = Scene::new();

    let output = scene.done(&["status"]);

    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.starts_with(&format!("tenure: there is no store at `{}`\n\nhint: ", scene.url())), "{said}");
    assert_eq!(std::fs::read_dir(&scene.folder).expect("a folder").count(), 0);
}

#[test]
fn a_resource_that_was_never_claimed_is_told_apart() {
    let scene = Scene::new();
    assert!(scene.done(&["run", "job", "--", "true"]).status.success());

    let output = scene.done(&["status", "jbo"]);

    assert!(output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).ends_with("tenure: `jbo` was never claimed\n"));
}

#[test]
fn a_namespace_is_a_world_of_its_own() {
    let scene = Scene::new();
    let _owner = scene.start("a", &["--namespace", "one"]);
    scene.life(1);

    // Elsewhere the same resource is free.
    assert!(scene.done(&["run", "job", "--namespace", "two", "--", "true"]).status.success());

    let output = scene.done(&["status", "--namespace", "one", "--json"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"worker\": \"a\""));
}

#[test]
fn a_password_in_the_store_is_not_shown() {
    let scene = Scene::new();

    let output = scene.done(&["status", "--store", "postgres://me:secret@db/x?password=secret"]);

    assert_eq!(output.status.code(), Some(125));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("secret"));
}

#[test]
fn the_number_of_tickets_is_what_the_latest_worker_wants() {
    let scene = Scene::new();
    let _first = scene.start("first", &["--tickets", "3"]);
    scene.life(1);
    let shown = || String::from_utf8(scene.done(&["status"]).stdout).expect("UTF-8");
    assert!(shown().contains("0/3") && shown().contains("2 of 3 free"), "{}", shown());

    let later = scene.start("later", &["--tickets", "1"]);
    scene.until_waiting(1);

    assert!(shown().contains("0/1") && !shown().contains("free"), "{}", shown());
    assert!(later.said().contains("all its tickets are owned"), "{}", later.said());
}

// req: T11
#[test]
fn two_workers_with_one_label_are_told_by_the_later_one_and_by_status() {
    let scene = Scene::new();
    let _owner = scene.start("twin", &[]);
    scene.life(1);
    let later = scene.done(&["run", "job", "--label", "single", "--wait", "200ms", "--", "true"]);
    assert!(!String::from_utf8_lossy(&later.stderr).contains("labelled"));

    let _later = scene.start_as("later", "twin");
    scene.until_waiting(1);

    let told = "tenure: more than one worker of `job` is labelled `twin`";
    let is_told = |line: &String| line.starts_with(told);
    until("the later one says it", || scene.lines("later.stderr").iter().any(is_told).then_some(()));
    let status = String::from_utf8(scene.done(&["status"]).stderr).expect("UTF-8");
    assert!(status.lines().any(|line| line.starts_with(told)), "{status}");
}
