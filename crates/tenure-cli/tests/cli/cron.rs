//! `tenure cron`: once per occurrence in the whole cluster, whatever becomes of its owner.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::Value;

use super::scene::{Scene, is_alive, until};
use super::stores::Server;

/// Every second. A new Redis grants nothing for one ttl, so it is short.
const SECONDS: [&str; 6] = ["cron", "* * * * * *", "--job", "tick", "--ttl", "5s"];

/// Writes down what it was given.
const NOTES: &str = "echo \"$TENURE_OCCURRENCE $TENURE_KEY $TENURE_ATTEMPT $TENURE_WORKER $TENURE_JOB $TENURE_RESOURCE\" >> notes";

fn said(output: &std::process::Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// What the store keeps of the job.
fn job(scene: &Scene) -> Value {
    let (code, told, error) = said(&scene.done(&["cron", "--history", "tick", "--json"]));
    assert_eq!(code, Some(0), "{error}");
    serde_json::from_str::<Value>(&told).expect("JSON")["jobs"][0].clone()
}

/// Waits for an occurrence of which this is true.
fn occurrence(scene: &Scene, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    until("the first run", || {
        (!scene.lines("begun").is_empty() || !scene.lines("notes").is_empty()).then_some(())
    });
    until(what, || job(scene)["occurrences"].as_array()?.iter().find(|one| is_it(one)).cloned())
}

// req: E10 E11
#[test]
fn each_occurrence_is_run_once_by_one_of_three_also_when_the_owner_is_killed() {
    one_of_three_runs_it(&Scene::new());
}

// req: E10 E11
#[test]
fn each_occurrence_is_run_once_on_redis_too_and_one_whose_owner_is_killed_is_interrupted() {
    let server = Server::redis();
    one_of_three_runs_it(&server.scene());
    let server = Server::redis();
    interrupted_and_left_so(&server.scene());
}

// req: E10 E11
#[test]
fn each_occurrence_is_run_once_on_postgres_too_and_one_whose_owner_is_killed_is_interrupted() {
    let server = Server::postgres();
    one_of_three_runs_it(&server.scene());
    let server = Server::postgres();
    interrupted_and_left_so(&server.scene());
}

fn one_of_three_runs_it(scene: &Scene) {
    let mut all: Vec<_> = ["a", "b", "c"].map(|label| scene.start_other(label, &SECONDS, NOTES)).into();
    let notes = |count: usize| {
        until("more runs", || Some(scene.lines("notes")).filter(|lines| lines.len() >= count));
    };
    notes(3);

    let owner = scene.standing_of("cron:tick").0.remove(0);
    let at = all.iter().position(|one| one.label == owner).expect("one of them");
    all.remove(at).kill();
    let seen = scene.lines("notes").len();
    notes(seen + 3);

    let lines = scene.lines("notes");
    let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    let column = |at: usize| words.iter().map(|line| line[at]).collect::<BTreeSet<_>>();
    assert_eq!(column(0).len(), lines.len(), "an occurrence was run twice: {lines:?}");
    assert_eq!(column(1).len(), lines.len(), "each has a key of its own: {lines:?}");
    assert!(column(3).len() > 1, "another one has taken over: {lines:?}");
    for line in &words {
        assert!(line[0].len() == 25 && line[0].ends_with("+00:00"), "{line:?}");
        assert!(line[1].starts_with("cron:tick/") && line[1].matches('/').count() == 2, "{line:?}");
        assert_eq!([line[2], line[4], line[5]], ["1", "tick", "cron:tick"]);
    }
}

// req: E11
#[test]
fn an_occurrence_whose_owner_is_killed_is_listed_as_interrupted_and_left_so() {
    interrupted_and_left_so(&Scene::new());
}

fn interrupted_and_left_so(scene: &Scene) {
    let hangs = "echo \"$TENURE_OCCURRENCE $$\" >> begun; exec sleep 1000";
    let mut first = scene.start_other("first", &SECONDS, hangs);
    let begun = until("a run", || scene.lines("begun").first().cloned());
    let (when, pid) = begun.split_once(' ').expect("two words");

    first.kill();
    let _second = scene.start_other("second", &SECONDS, NOTES);

    let interrupted = occurrence(scene, "an interrupted one", |one| one["state"] == "interrupted");
    assert_eq!(
        (interrupted["occurrence"].as_str(), interrupted["worker"].as_str()),
        (Some(when), Some("first"))
    );
    assert_eq!(interrupted["attempt"], 1);
    assert!(!is_alive(pid.parse().expect("a pid")), "the guard has ended it");
    until("the next runs", || (scene.lines("notes").len() >= 2).then_some(()));
    assert!(scene.lines("notes").iter().all(|line| !line.starts_with(when)), "it is not run again");
    assert_eq!(job(scene)["interrupted"], 1);
}

// req: E11
#[test]
fn an_interrupted_occurrence_is_run_again_with_the_same_key_if_that_is_wanted() {
    run_again(&Scene::new());
}

// req: E11
#[test]
fn an_interrupted_occurrence_is_run_again_with_the_same_key_on_servers_too() {
    for server in [Server::redis(), Server::postgres()] {
        run_again(&server.scene());
    }
}

fn run_again(scene: &Scene) {
    let again = [&SECONDS[..], &["--interrupted", "again"]].concat();
    let hangs = "echo \"$TENURE_OCCURRENCE $TENURE_KEY $TENURE_ATTEMPT\" >> begun; exec sleep 1000";
    let mut first = scene.start_other("first", &again, hangs);
    let begun = until("a run", || scene.lines("begun").first().cloned());
    let tried = begun.strip_suffix(" 1").expect("a first attempt").to_owned();

    first.kill();
    let second = scene.start_other("second", &again, NOTES);

    let repeated = until("the same again", || {
        scene.lines("notes").into_iter().find(|line| line.starts_with(&format!("{tried} ")))
    });
    assert!(repeated.starts_with(&format!("{tried} 2 second ")), "{repeated}");
    assert!(second.said().contains("was interrupted: `first` had begun it"), "{}", second.said());
    let ran = occurrence(scene, "it ran", |one| one["attempt"] == 2 && one["state"] == "ran");
    assert!(tried.ends_with(ran["key"].as_str().expect("a key")), "{ran}");
}

// req: E11
#[test]
fn how_the_command_ends_is_written_down_and_the_job_goes_on() {
    let scene = Scene::new();
    let script = "echo x >> notes; case $(wc -l < notes) in 1) exit 3;; 2) kill -9 $$;; esac";
    let mut tenure = scene.start_other("one", &SECONDS, script);

    occurrence(&scene, "one that ran", |one| one["state"] == "ran");

    let states: Vec<(Value, Value)> = job(&scene)["occurrences"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["state"].clone(), one["note"].clone()))
        .collect();
    let expected = [("failed", "code 3"), ("failed", "signal 9"), ("ran", "")];
    assert_eq!(states[..3], expected.map(|(state, note)| (state.into(), note.into())));
    assert!(job(&scene)["occurrences"][2]["took_ms"].is_u64());
    let told = tenure.said();
    assert!(told.contains("failed: code 3\n") && told.contains("failed: signal 9\n"), "{told}");
    every_line_names_the_job(&told);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.ended().code(), Some(143));
}

#[test]
fn a_command_that_there_is_not_fails_every_time() {
    let scene = Scene::new();
    let mut tenure = scene.tenure();
    tenure.args(SECONDS).args(["--", "./nowhere"]).stderr(std::process::Stdio::null());
    let mut tenure = tenure.spawn().expect("it runs");

    until("two that failed", || {
        let told = said(&scene.done(&["cron", "--list", "--json"])).1;
        let report: Value = serde_json::from_str(&told).ok()?;
        (report["jobs"][0]["failed"].as_u64()? >= 2).then_some(())
    });

    let note = job(&scene)["occurrences"][0]["note"].clone();
    assert!(note.as_str().expect("text").starts_with("cannot run `./nowhere`: No such file"), "{note}");
    tenure.kill().and_then(|()| tenure.wait()).expect("it ends");
}

// req: E11 H7
#[test]
fn a_command_that_is_stopped_with_tenure_has_not_failed_and_is_found_interrupted() {
    let scene = Scene::new();
    let mut first = scene.start_other("first", &SECONDS, "echo $$ >> begun; exec sleep 1000");
    let pid = until("a run", || scene.lines("begun").first().cloned());

    first.signal(Signal::TERM);
    assert_eq!(first.ended().code(), Some(143));

    assert!(!is_alive(pid.parse().expect("a pid")));
    assert!(first.said().contains("was stopped; the next owner finds it interrupted"), "{}", first.said());
    assert_eq!(
        (job(&scene)["failed"].clone(), job(&scene)["occurrences"][0]["state"].clone()),
        (0.into(), "running".into())
    );
    let second = scene.start_other("second", &SECONDS, NOTES);
    occurrence(&scene, "an interrupted one", |one| one["state"] == "interrupted");
    until("that is said", || second.said().contains("was interrupted: `first` had begun it").then_some(()));
    every_line_names_the_job(&first.said());
    every_line_names_the_job(&second.said());
}

/// What the library says of a job is not said beside what `cron` says of it.
fn every_line_names_the_job(told: &str) {
    let own = |line: &str| line.contains("tick`") || line.starts_with("tenure: stopping `sh` (pid ");
    assert!(told.lines().all(own), "{told}");
}

// req: E11
#[test]
fn a_command_that_comes_to_its_end_when_it_is_told_to_stop_has_run() {
    let scene = Scene::new();
    let script = "trap 'exit 0' TERM; echo $$ >> begun; while :; do sleep 0.02; done";
    let mut tenure = scene.start_other("one", &SECONDS, script);
    until("a run", || scene.lines("begun").first().cloned());

    tenure.signal(Signal::TERM);

    assert_eq!(tenure.ended().code(), Some(143));
    assert_eq!(job(&scene)["occurrences"][0]["state"], "ran");
}

#[test]
fn a_job_never_overlaps_itself_and_what_is_left_out_is_counted() {
    let scene = Scene::new();
    let script = "mkdir running || echo twice >> notes; echo x >> begun; sleep 2.2; rmdir running";
    let tenure = scene.start_other("one", &SECONDS, script);

    let left_out = occurrence(&scene, "one after those that were skipped", |one| {
        one["skipped_before"].as_u64() >= Some(1)
    });

    assert!(left_out["missed_before"] == 0 && scene.lines("notes").is_empty(), "{left_out}");
    assert!(tenure.said().contains("left out: the one before was still running"), "{}", tenure.said());
    every_line_names_the_job(&tenure.said());
}

#[test]
fn another_plan_for_the_same_name_is_said() {
    let scene = Scene::new();
    let mut first = scene.start_other("first", &SECONDS, NOTES);
    until("a run", || scene.lines("notes").first().cloned());
    first.signal(Signal::TERM);
    first.ended();

    let other = ["cron", "0 6 * * *", "--job", "tick", "--tz", "Europe/Berlin"];
    let second = scene.start_other("second", &other, "true");

    let expected =
        "`tick` had another plan until now: `* * * * * * UTC`; from now on it is `0 6 * * * Europe/Berlin`";
    until("that is said", || second.said().contains(expected).then_some(()));
    assert_eq!(job(&scene)["plan"], "0 6 * * * Europe/Berlin");
    assert!(job(&scene)["next"].as_str().expect("a time").contains("T06:00:00+0"), "{}", job(&scene));
}

#[test]
fn people_see_tables_and_an_empty_store_is_empty() {
    let scene = Scene::new();
    let mut tenure = scene.tenure();
    tenure.env_remove("TENURE_STORE").args(["cron", "--list"]);
    assert_eq!(said(&tenure.output().expect("it runs")).1, "");

    let _running = scene.start_other("one", &SECONDS, NOTES);
    occurrence(&scene, "one that ran", |one| one["state"] == "ran");

    let (_, list, _) = said(&scene.done(&["cron", "--list"]));
    let head: Vec<&str> = list.lines().next().expect("a head").split_whitespace().collect();
    assert_eq!(head, ["JOB", "PLAN", "NEXT", "LATEST", "STATE", "RAN"], "{list}");
    assert!(list.lines().nth(1).expect("a row").starts_with("tick  * * * * * * UTC  20"), "{list}");
    let (_, history, _) = said(&scene.done(&["cron", "--history", "tick"]));
    let head: Vec<&str> = history.lines().next().expect("a head").split_whitespace().collect();
    assert_eq!(head, ["OCCURRENCE", "STATE", "WORKER", "BEGAN", "TOOK"], "{history}");
    assert!(history.contains("  ran    one     ") || history.contains("  ran      one     "), "{history}");

    let (code, told, error) = said(&scene.done(&["cron", "--history", "tik"]));
    assert_eq!((code, told.as_str()), (Some(125), ""));
    assert!(
        error.contains("there is no job `tik`: nobody has run it yet\n\nhint: did you mean `tick`?"),
        "{error}"
    );
}

// req: E12
#[test]
fn what_cannot_be_a_job_is_refused_before_anything_is_begun() {
    for (arguments, what) in [
        (&["cron", "0 0 30 2 *", "--job", "x", "--", "true"][..], "never comes"),
        (
            &["cron", "* * *", "--job", "x", "--", "true"],
            "it takes five fields (minute hour day month weekday)",
        ),
        (&["cron", "61 * * * *", "--job", "x", "--", "true"], "61"),
        (
            &["cron", "@daily", "--job", "x", "--tz", "Europe/Berln", "--", "true"],
            "did you mean \"Europe/Berlin\"?",
        ),
        (&["cron", "@daily", "--job", "", "--", "true"], "resource name \"\" is not 1 to 200 bytes"),
        (
            &["cron", "@daily", "--job", "x", "--misfire", "all", "--", "true"],
            "must be skip, once, or all: and a span",
        ),
        (&["cron", "@daily", "--job", "x"], "<COMMAND>"),
        (&["cron", "@daily", "--", "true"], "--job <NAME>"),
        (&["cron", "--list", "--", "true"], "cannot be used with"),
        (&["cron", "--list", "--history", "x"], "cannot be used with"),
    ] {
        let scene = Scene::new();

        let (code, told, error) = said(&scene.done(arguments));

        assert_eq!((code, told.as_str()), (Some(125), ""), "{arguments:?}: {error}");
        assert!(error.starts_with("tenure: ") && error.contains(what), "{arguments:?}: {error}");
        assert!(!scene.file("tenure.db").exists());
    }
}

#[test]
fn the_time_zone_can_be_a_setting() {
    let scene = Scene::new();
    let mut tenure = scene.tenure();
    tenure.env("TENURE_TZ", "Asia/Tokyo").args(["config", "--json"]);
    let (code, told, error) = said(&tenure.output().expect("it runs"));
    assert_eq!(code, Some(0), "{error}");
    assert!(told.contains("\"value\": \"Asia/Tokyo\""), "{told}");

    let mut tenure = scene.tenure();
    tenure.env("TENURE_TZ", "Asia/Tokio").args(["config"]);
    let (code, _, error) = said(&tenure.output().expect("it runs"));
    assert_eq!(code, Some(125));
    assert!(error.contains("TENURE_TZ: time zone \"Asia/Tokio\""), "{error}");
}
