//! What `tenure explain` says.

use super::scene::Scene;
use super::status::shape;
use super::stores::Server;

fn told(scene: &Scene, resource: &str) -> String {
    let output = scene.done(&["explain", resource]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn why_who_is_next_and_what_if_are_said_in_sentences() {
    let scene = Scene::new();
    assert!(scene.done(&["run", "job", "--label", "z", "--", "true"]).status.success());
    let free = told(&scene, "job");
    assert!(free.starts_with("`job` has one ticket; nobody owns it.\n"), "{free}");
    assert!(free.contains("Nobody waits: the next worker that claims it owns it at once."), "{free}");
    let _owner = scene.start("a", &[]);
    scene.life(2);
    let alone = told(&scene, "job");
    assert!(alone.contains("Nobody waits: when an owner goes, nobody follows"), "{alone}");
    let _next = scene.start("b", &[]);
    scene.until_waiting(1);
    let one = told(&scene, "job");
    assert!(one.contains("Next is `b`, the only waiting worker."), "{one}");
    let _last = scene.start("c", &[]);
    scene.until_waiting(2);

    let all = told(&scene, "job");

    assert!(all.starts_with("`job` has one ticket; it is owned.\n"), "{all}");
    assert!(all.contains("\n`a` has owned ticket 0 for ") && all.contains(": term 2, token "), "{all}");
    assert!(all.contains("Before it, `z` (term 1) released it. The ticket was free for "), "{all}");
    assert!(
        all.contains(
            "Next is `b`, the first of 2 waiting workers, by priority and then by arrival: `b`, `c`."
        ),
        "{all}"
    );
    assert!(
        all.contains("If `a` died now, `b` would own the ticket within milliseconds, because a lock"),
        "{all}"
    );
    assert!(all.contains(", plus 50ms and one reply of the store"), "{all}");
    assert!(all.is_ascii());
}

#[test]
fn on_a_server_the_end_of_the_lease_is_what_counts() {
    for server in [Server::redis(), Server::postgres()] {
        let scene = server.scene();
        let _owner = scene.start("a", &["--ttl", "2s"]);
        scene.life(1);

        let all = told(&scene, "job");

        assert!(all.contains("It was the first to claim."), "{all}");
        let first =
            "If `a` died now, the ticket would be free within milliseconds if it runs under `tenure run`";
        assert!(
            all.contains(first) && all.contains("died with it, when its lease has run out, in at most 1."),
            "{all}"
        );
    }
}

#[test]
fn who_owns_another_ticket_first_is_said_to_be_its_first_owner() {
    let scene = Scene::new();
    let _first = scene.start("a", &["--tickets", "2"]);
    scene.life(1);
    let _second = scene.start("b", &["--tickets", "2"]);
    scene.life(2);

    let all = told(&scene, "job");

    assert!(all.contains("It was the first to claim."), "{all}");
    assert!(all.contains("It is the first to own this ticket."), "{all}");
    assert!(!all.contains("does not remember"), "{all}");
}

#[test]
fn programs_see_the_same_as_json_with_spans() {
    let scene = Scene::new();
    assert!(scene.done(&["run", "job", "--label", "z", "--", "true"]).status.success());
    let _owner = scene.start("a", &[]);
    scene.life(2);
    let _next = scene.start("b", &[]);
    scene.until_waiting(1);

    let output = scene.done(&["explain", "job", "--json"]);

    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let expected = r#"{
 "version": 9,
 "store": "URL",
 "namespace": "tenure",
 "resource": "job",
 "tickets": 9,
 "flapping": false,
 "done_by": null,
 "withheld_ms": null,
 "proves_deaths": true,
 "owners": [
 {
 "worker": "a",
 "ticket": 9,
 "term": 9,
 "token": 9,
 "owned_for_ms": 9,
 "lease_left_ms": 9,
 "metadata": {},
 "before": {
 "worker": "z",
 "term": 9,
 "token": 9,
 "ended": "released",
 "free_for_ms": 9
 },
 "free_within_ms": 9
 }
 ],
 "waiters": [
 {
 "worker": "b",
 "lease_left_ms": 9,
 "metadata": {}
 }
 ]
}
"#;
    assert_eq!(shape(&text.replace(&scene.url(), "URL")), expected);
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let owner = &report["owners"][0];
    let span = |field: &str| owner[field].as_u64().expect("a span");
    assert_eq!((&report["version"], span("free_within_ms")), (&1.into(), span("lease_left_ms") + 50));
    assert_eq!((&owner["term"], &owner["before"]["term"]), (&2.into(), &1.into()));
}

#[test]
fn what_is_owned_for_the_first_time_or_by_nobody_has_no_before_for_programs() {
    let server = Server::redis();
    let scene = server.scene();
    let explained = || -> serde_json::Value {
        serde_json::from_slice(&scene.done(&["explain", "job", "--json"]).stdout).expect("JSON")
    };
    let mut owner = scene.start("a", &["--ttl", "2s"]);
    scene.life(1);

    let owned = explained();
    owner.signal(rustix::process::Signal::TERM);
    owner.ended();
    let free = explained();

    assert!(owned["owners"][0]["before"].is_null() && owned["proves_deaths"] == false, "{owned}");
    assert_eq!((&free["owners"], &free["waiters"]), (&serde_json::json!([]), &serde_json::json!([])));
}

#[test]
fn what_was_never_claimed_cannot_be_explained() {
    let scene = Scene::new();
    assert!(scene.done(&["run", "nightly", "--", "true"]).status.success());

    let output = scene.done(&["explain", "nighly"]);

    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.ends_with("tenure: `nighly` was never claimed\n\nhint: did you mean `nightly`?\n"),
        "{said}"
    );
    assert!(scene.done(&["once", "42", "--", "true"]).status.success());
    let output = scene.done(&["explain", "42"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.ends_with("`42` was never claimed\n\nhint: did you mean `once:42`?\n"), "{said}");
}
