//! What `tenure history` tells: who owned, when, why it ended, and how long nobody did.

use super::scene::{Scene, until};
use super::status::shape;
use super::stores::Server;
use super::terminal::Terminal;

fn text(output: std::process::Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn report(scene: &Scene, options: &[&str]) -> serde_json::Value {
    let told = text(scene.done(&[&["history", "--json"], options].concat()));
    serde_json::from_str(&told).expect("JSON")
}

/// One runs and ends, the next runs and is killed, the third goes on.
fn three_owners(scene: &Scene) -> super::scene::Tenure {
    let options = ["--ttl", "3s"];
    assert!(scene.done(&["run", "job", "--label", "a", "--ttl", "3s", "--", "true"]).status.success());
    let mut killed = scene.start("b", &options);
    scene.life(2);
    let last = scene.start("c", &options);
    scene.until_waiting(1);
    killed.kill();
    scene.life(3);
    last
}

fn tells_of_three_owners(scene: &Scene) {
    let _last = three_owners(scene);

    let told = report(scene, &["job"]);

    let job = &told["resources"][0];
    let of = |field: &str| -> Vec<serde_json::Value> {
        job["ownerships"].as_array().expect("a list").iter().map(|one| one[field].clone()).collect()
    };
    assert_eq!(of("worker"), ["a", "b", "c"]);
    assert_eq!(of("term"), [1, 2, 3]);
    assert_eq!(of("ended")[0], "released");
    assert!(matches!(of("ended")[1].as_str(), Some("died" | "expired")), "{job}");
    assert!(of("ended")[2].is_null() && of("ended_ago_ms")[2].is_null() && of("owned_for_ms")[2].is_u64());
    // Between them nobody owned: two gaps, which are over.
    let vacancies = job["vacancies"].as_array().expect("a list");
    assert_eq!(vacancies.len(), 2, "{job}");
    let lasted: u64 = vacancies.iter().map(|one| one["lasted_ms"].as_u64().expect("a span")).sum();
    let vacant = job["vacant_for_ms"].as_u64().expect("a span");
    assert!(lasted <= vacant + 2 && vacant <= lasted + 2, "{job}");
    let ended =
        job["ownerships"][0]["ended_ago_ms"].as_u64().zip(job["ownerships"][1]["began_ago_ms"].as_u64());
    let (ended, began) = ended.expect("both are known");
    assert!(vacancies[0]["lasted_ms"].as_u64().is_some_and(|ms| ms.abs_diff(ended - began) <= 1), "{job}");
}

// req: H19
#[test]
fn who_owned_when_and_why_it_ended_is_told_on_sqlite() {
    tells_of_three_owners(&Scene::new());
}

// req: H19
#[test]
fn who_owned_when_and_why_it_ended_is_told_on_redis() {
    let server = Server::redis();
    tells_of_three_owners(&server.scene());
}

// req: H19
#[test]
fn who_owned_when_and_why_it_ended_is_told_on_postgres() {
    let server = Server::postgres();
    tells_of_three_owners(&server.scene());
}

#[test]
fn people_see_a_bar_a_table_and_what_was_vacant() {
    let scene = Scene::new();
    let _last = three_owners(&scene);

    let told = text(scene.done(&["history"]));

    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("job: owned ") && lines[0].contains("nobody owned it for"), "{told}");
    assert!(lines[0].contains("(2 gaps, the longest "), "{told}");
    let bar = lines[1].strip_prefix("  0 ").expect("a bar");
    assert!(bar.len() == 60 && bar.chars().all(|c| "abc.".contains(c)) && bar.ends_with('c'), "{told}");
    assert_eq!(lines[2..6], ["  a a", "  b b", "  c c", ""]);
    assert_eq!(shape(lines[6]), "TERM TICKET WORKER BEGAN FOR ENDED");
    let rows: Vec<String> = lines[7..].iter().map(|line| shape(line)).collect();
    assert!(rows[0].starts_with("9 9 a ") && rows[0].ends_with(" released"), "{told}");
    assert!(rows[1].starts_with("- - (nobody) "), "{told}");
    assert!(rows[2].starts_with("9 9 b ") && rows[2].ends_with(" it died"), "{told}");
    assert!(rows[4].starts_with("9 9 c ") && rows[4].ends_with(" still owns"), "{told}");
    assert!(!told.contains('\u{1b}') && told.is_ascii(), "not a terminal: {told:?}");
}

#[test]
fn programs_see_the_same_as_json_with_spans() {
    let scene = Scene::new();
    let _last = three_owners(&scene);

    let told = text(scene.done(&["history", "job", "--since", "1h", "--json"]));

    let first_ownership = r#" "ownerships": [
 {
 "worker": "a",
 "ticket": 9,
 "term": 9,
 "token": 9,
 "began_ago_ms": 9,
 "ended_ago_ms": 9,
 "owned_for_ms": 9,
 "ended": "released"
 },
"#;
    let head = r#"{
 "version": 9,
 "store": "URL",
 "namespace": "tenure",
 "since_ms": 9,
 "resources": [
 {
 "resource": "job",
 "vacant_for_ms": 9,
 "changes": 9,
 "flapping": false,
"#;
    let tail = r#" "vacancies": [
 {
 "began_ago_ms": 9,
 "ended_ago_ms": 9,
 "lasted_ms": 9
 },
 {
 "began_ago_ms": 9,
 "ended_ago_ms": 9,
 "lasted_ms": 9
 }
 ]
 }
 ]
}
"#;
    let shaped = shape(&told.replace(&scene.url(), "URL"));
    assert!(shaped.starts_with(&format!("{head}{first_ownership}")), "{shaped}");
    assert!(shaped.ends_with(tail), "{shaped}");
    let report: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&report["version"], &report["since_ms"]), (&1.into(), &3_600_000.into()));
    assert_eq!(report["resources"][0]["changes"], 2);
}

#[test]
fn only_the_latest_is_shown_on_request() {
    let scene = Scene::new();
    for label in ["a", "b"] {
        assert!(scene.done(&["run", "job", "--label", label, "--", "true"]).status.success());
    }

    // Both have ended long before the last millisecond, as far as a process takes that long to start.
    let nothing = until("a moment passes", || {
        let told = report(&scene, &["--since", "1ms"]);
        told["resources"][0]["ownerships"].as_array().is_some_and(Vec::is_empty).then_some(told)
    });

    assert_eq!(nothing["since_ms"], 1);
    assert_eq!(
        report(&scene, &["--since", "1h"])["resources"][0]["ownerships"].as_array().map(Vec::len),
        Some(2)
    );
    // Nobody owned it in all that time, which is worth telling.
    assert_eq!(
        (&nothing["resources"][0]["vacant_for_ms"], &nothing["resources"][0]["changes"]),
        (&1.into(), &0.into())
    );
    let told = text(scene.done(&["history", "--since", "1ms"]));
    assert!(told.starts_with("job: owned 0 % of the last 1ms; nobody owned it for 1ms\n"), "{told}");
    assert!(told.trim_end().ends_with("nobody owns it"), "{told}");
}

// req: T12
#[test]
fn flapping_is_pointed_out_and_a_few_changes_are_not() {
    let scene = Scene::new();
    let run =
        |label: &str| assert!(scene.done(&["run", "job", "--label", label, "--", "true"]).status.success());
    ["a", "b", "c", "d", "e", "f"].into_iter().for_each(run);
    assert!(!text(scene.done(&["history"])).contains("flapping"));
    assert!(!text(scene.done(&["status"])).contains("flapping"));

    run("g");

    assert!(text(scene.done(&["history"])).contains("flapping: the owner changed 6 times within 10m\n"));
    assert_eq!(report(&scene, &[])["resources"][0]["flapping"], true);
    assert!(
        text(scene.done(&["explain", "job"])).contains("Flapping: the owner changed 6 times within 10m.")
    );
    // Another resource that does not is not touched by it.
    assert!(scene.done(&["run", "other", "--", "true"]).status.success());
    let told = text(scene.done(&["status"]));
    assert!(told.ends_with("\n\n`job` is flapping: the owner changed 6 times within 10m\n"), "{told}");
    let told: serde_json::Value =
        serde_json::from_str(&text(scene.done(&["status", "--json"]))).expect("JSON");
    let flapping =
        |at: usize| (told["resources"][at]["resource"].clone(), told["resources"][at]["flapping"].clone());
    assert_eq!([flapping(0), flapping(1)], [("job".into(), true.into()), ("other".into(), false.into())]);
    let mut terminal = Terminal::start(&scene, &["status", "--watch"], 80, 10);
    terminal.until("that it flaps", |shown| {
        shown.contains("job  nobody owns it  flapping: the owner changed 6 times within 10m")
    });
    terminal.press("q");
    assert_eq!(terminal.ended().code(), Some(0));
}

#[test]
fn a_resource_that_was_never_claimed_has_no_history() {
    let scene = Scene::new();
    assert!(scene.done(&["run", "job", "--", "true"]).status.success());

    let output = scene.done(&["history", "jbo"]);

    assert!(output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).ends_with("tenure: `jbo` was never claimed\n"));
}
