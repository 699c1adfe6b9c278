//! What `tenure step-down` does and reports.

use serde_json::Value;

use super::scene::{Scene, Tenure};
use super::status::shape;
use super::stores::Server;

fn said(output: &std::process::Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// `a` owns, `b` and `c` wait in that order.
fn three(scene: &Scene) -> [Tenure; 3] {
    let a = scene.start("a", &["--ttl", "3s"]);
    scene.life(1);
    let b = scene.start("b", &["--ttl", "3s"]);
    scene.until_waiting(1);
    let c = scene.start("c", &["--ttl", "3s"]);
    scene.until_waiting(2);
    [a, b, c]
}

fn hands_over(scene: &Scene) {
    let _three = three(scene);

    let (code, told, _) = said(&scene.done(&["step-down", "job"]));
    assert_eq!(code, Some(0));
    assert!(told.starts_with("`b` owns `job` now (ticket 0, term 2, token "), "{told}");

    // Not who is next in line, but who is named.
    let (code, told, _) = said(&scene.done(&["step-down", "job", "--to", "a", "--ticket", "0"]));
    assert_eq!(code, Some(0));
    assert!(told.starts_with("`a` owns `job` now (ticket 0, term 3, token "), "{told}");
    scene.life(3);
    scene.assert_no_two_lived_at_once();
}

// req: H18
#[test]
fn an_owner_hands_over_to_the_next_or_to_whom_is_named_on_sqlite() {
    hands_over(&Scene::new());
}

// req: H18
#[test]
fn an_owner_hands_over_to_the_next_or_to_whom_is_named_on_redis() {
    let server = Server::redis();
    hands_over(&server.scene());
}

// req: H18
#[test]
fn an_owner_hands_over_to_the_next_or_to_whom_is_named_on_postgres() {
    let server = Server::postgres();
    hands_over(&server.scene());
}

#[test]
fn of_several_owners_the_one_that_is_meant_goes_and_whoever_follows_it_is_reported() {
    let scene = Scene::new();
    let options = ["--tickets", "2", "--ttl", "3s"];
    let owns = |count: usize| {
        super::scene::until("owners", || (scene.standing_of("pair").0.len() == count).then_some(()));
    };
    // The file is there before anybody looks at it.
    assert!(scene.done(&["run", "pair", "--tickets", "2", "--ttl", "3s", "--", "true"]).status.success());
    let _x = scene.start_named("pair", "x", &options);
    owns(1);
    let _y = scene.start_named("pair", "y", &options);
    owns(2);
    let _z = scene.start_named("pair", "z", &options);
    super::scene::until("a waiter", || (scene.standing_of("pair").1 == ["z"]).then_some(()));

    let (code, told, error) = said(&scene.done(&["step-down", "pair", "--ticket", "0"]));

    assert_eq!(code, Some(0), "{error}");
    assert!(told.starts_with("`z` owns `pair` now (ticket 0, term 4, "), "{told}");
    assert_eq!(scene.standing_of("pair").0, ["z", "y"]);
}

#[test]
fn an_owner_whom_nobody_follows_owns_again_and_that_is_said() {
    let scene = Scene::new();
    let _only = scene.start("a", &["--ttl", "3s"]);
    scene.life(1);

    let (code, told, asked) = said(&scene.done(&["step-down", "job"]));

    assert_eq!(code, Some(0));
    assert!(told.starts_with("nobody else wanted `job`: `a` owns it again (ticket 0, term 2, "), "{told}");
    assert!(asked.contains("asked `a` to hand over `job` (term 1); waiting until it has"), "{asked}");
}

#[test]
fn of_two_with_one_label_the_other_is_said_to_follow() {
    let scene = Scene::new();
    let _owner = scene.start("same", &["--ttl", "60s"]);
    scene.life(1);
    let mut waiter = scene.start_as("other", "same");
    scene.until_waiting(1);

    let (code, told, _) = said(&scene.done(&["step-down", "job"]));

    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("`same` owns `job` now"), "{told}");
    assert_eq!(waiter.ended().code(), Some(0));
}

#[test]
fn programs_get_the_outcome_as_json() {
    let scene = Scene::new();
    // It ignores SIGTERM.
    let _deaf = scene.start_deaf("a", &["--grace", "3s", "--ttl", "30s"]);
    scene.life(1);
    let next = scene.start("b", &["--ttl", "30s"]);
    scene.until_waiting(1);
    let report = |options: &[&str]| {
        let (code, told, _) = said(&scene.done(&[&["step-down", "job", "--json"], options].concat()));
        let report: Value = serde_json::from_str(&told).expect("JSON");
        (code, told, report)
    };

    let (code, _, late) = report(&["--wait", "100ms"]);
    let (forced, told, handed) = report(&["--force"]);
    drop(next);

    assert_eq!((code, &late["outcome"], &late["to"]), (Some(123), &"not_yet".into(), &Value::Null));
    assert_eq!(late["from"]["worker"], "a");
    assert!(late["took_ms"].as_u64().is_some_and(|took| took >= 100), "{late}");
    let expected = r#"{
 "version": 9,
 "store": "URL",
 "namespace": "tenure",
 "resource": "job",
 "outcome": "handed_over",
 "from": {
 "worker": "a",
 "ticket": 9,
 "term": 9,
 "token": 9
 },
 "to": {
 "worker": "b",
 "ticket": 9,
 "term": 9,
 "token": 9
 },
 "took_ms": 9
}
"#;
    assert_eq!((forced, shape(&told.replace(&scene.url(), "URL"))), (Some(0), expected.to_owned()));
    assert_eq!((&handed["version"], &handed["to"]["term"]), (&1.into(), &2.into()));
}

#[test]
fn programs_learn_that_nobody_else_wanted_it_or_nobody_at_all() {
    let scene = Scene::new();
    let report = |resource: &str, options: &[&str]| -> Value {
        let (code, told, error) = said(&scene.done(&[&["step-down", resource, "--json"], options].concat()));
        assert_eq!(code, Some(0), "{error}");
        serde_json::from_str(&told).expect("JSON")
    };
    let _only = scene.start("a", &["--ttl", "3s"]);
    scene.life(1);
    let _leaves = scene.start_named("other", "x", &["--once"]);
    super::scene::until("an owner", || (scene.standing_of("other").0 == ["x"]).then_some(()));

    let (again, free) = (report("job", &[]), report("other", &["--force"]));

    assert_eq!((&again["outcome"], &again["to"]["worker"]), (&"owned_again".into(), &"a".into()));
    assert_eq!((&free["outcome"], &free["to"]), (&"free".into(), &Value::Null));
}

#[test]
fn what_is_forced_is_taken_away_at_once_and_the_risk_is_said() {
    let scene = Scene::new();
    // It ignores SIGTERM, and has an hour: nobody would hand over.
    let _deaf = scene.start_deaf("a", &["--grace", "1h", "--ttl", "30s"]);
    scene.life(1);
    let _next = scene.start("b", &["--ttl", "30s"]);
    scene.until_waiting(1);

    let (code, _, told) = said(&scene.done(&["step-down", "job", "--wait", "300ms"]));
    assert_eq!(code, Some(123), "{told}");
    assert!(told.contains("`a` has not handed over `job` within 300ms; it stays asked"), "{told}");
    assert!(told.contains("hint: `tenure step-down --force`"), "{told}");

    let (code, told, warned) = said(&scene.done(&["step-down", "job", "--force"]));
    assert_eq!(code, Some(0), "{warned}");
    assert!(told.starts_with("`b` owns `job` now (ticket 0, term 2, "), "{told}");
    assert!(warned.contains("only the token protects"), "{warned}");
}

#[test]
fn what_is_not_there_is_an_error_that_says_what_is() {
    let scene = Scene::new();
    let _three = three(&scene);
    assert!(scene.done(&["run", "over", "--", "true"]).status.success());
    let _two = scene.start_named("pair", "x", &["--tickets", "2"]);
    let _other = scene.start_named("pair", "y", &["--tickets", "2"]);
    super::scene::until("two owners", || (scene.standing_of("pair").0.len() == 2).then_some(()));

    for (arguments, what, hint) in [
        (&["jop"][..], "`jop` was never claimed", "did you mean `job`?"),
        (&["zzz"], "`zzz` was never claimed", "`tenure status` lists what was claimed"),
        (&["job", "--ticket", "3"], "nobody owns ticket 3 of `job`", "these tickets are owned: 0 (`a`)"),
        (&["job", "--to", "nobody"], "`nobody` does not wait for `job`", "these workers wait: `b`, `c`"),
        (&["job", "--to", "a"], "`a` does not wait for `job`", "these workers wait: `b`, `c`"),
        (&["over"], "nobody owns `over` now; nobody waits for it", ""),
        (&["pair"], "`pair` has 2 owners", "name a ticket with --ticket: 0 (`"),
        (&["job", "--to", ""], "label \"\" is not 1 to 100 bytes", ""),
        (&["job", "--to", "b", "--force"], "cannot be used with", ""),
        (&["job", "--ticket", "x"], "invalid value 'x' for '--ticket <N>'", ""),
    ] {
        let (code, told, error) = said(&scene.done(&[&["step-down"], arguments].concat()));

        assert_eq!((code, told.as_str()), (Some(125), ""), "{arguments:?}: {error}");
        assert!(error.contains(what) && error.contains(hint), "{arguments:?}: {error}");
    }
    // Nobody was asked to go.
    assert_eq!(scene.standing().0, ["a"]);
}

#[test]
fn a_store_that_is_not_there_is_an_error_also_if_it_is_the_default_one() {
    let scene = Scene::new();

    for mut tenure in [scene.tenure(), {
        let mut plain = scene.tenure();
        plain.env_remove("TENURE_STORE");
        plain
    }] {
        let (code, _, told) = said(&tenure.args(["step-down", "job"]).output().expect("it runs"));

        assert_eq!(code, Some(125));
        assert!(told.contains("there is no store at `sqlite:"), "{told}");
    }
}
