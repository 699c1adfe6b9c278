//! What `tenure doctor` finds, and what its exit code says.

use std::time::{Duration, Instant};

use super::scene::Scene;
use super::status::shape;
use super::stores::Server;

fn said(output: &std::process::Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn report(scene: &Scene, options: &[&str]) -> (Option<i32>, serde_json::Value) {
    let (code, told, error) = said(&scene.done(&[&["doctor", "--json"], options].concat()));
    (code, serde_json::from_str(&told).unwrap_or_else(|_| panic!("no JSON: {told} {error}")))
}

/// A file that somebody has used.
fn used() -> Scene {
    let scene = Scene::new();
    assert!(scene.done(&["run", "job", "--ttl", "5s", "--", "true"]).status.success());
    scene
}

#[test]
fn a_file_is_safe_and_the_figures_follow_from_the_ttl() {
    let scene = used();

    let (code, told, error) = said(&scene.done(&["doctor"]));

    assert_eq!(code, Some(0), "{told}{error}");
    assert!(error.contains(&format!("store `{}`, namespace `tenure`", scene.url())), "{error}");
    let lines: Vec<&str> = told.lines().collect();
    let begins = |at: usize, with: &str| assert!(lines[at].starts_with(with), "{told}");
    begins(0, "safe      yes, as far as the store tells");
    begins(1, "asking    median ");
    begins(2, "renewing  median ");
    begins(3, "clock     this host's own; steps of the wall clock do not matter");
    begins(4, "lease     ttl 15s, renewed every 5s, trusted for 12s; this namespace has seen one of 5s");
    begins(5, "failover  milliseconds after a process dies; at most 1");
    begins(6, "outage    the store may be away for ");
    begins(7, "ttl       ");
    assert!(told.is_ascii() && !told.contains('\u{1b}'));
    // The lease that it renewed is closed, and nobody competed.
    assert_eq!(scene.standing(), (vec![], vec![]));
}

#[test]
fn programs_see_the_same_as_json() {
    let scene = used();

    let (code, told, _) = said(&scene.done(&["doctor", "--json", "--ttl", "6s"]));

    let expected = r#"{
 "version": 9,
 "store": "URL",
 "namespace": "tenure",
 "safe": true,
 "concerns": [],
 "asking": {
 "count": 9,
 "median_us": 9,
 "p9_us": 9,
 "slowest_us": 9
 },
 "renewing": {
 "count": 9,
 "median_us": 9,
 "p9_us": 9,
 "slowest_us": 9
 },
 "clock": {
 "whose": "host",
 "ahead_us": null,
 "ahead_uncertain_us": null,
 "rate_percent": null,
 "rate_uncertain_percent": null
 },
 "ttl_ms": 9,
 "renew_ms": 9,
 "trust_ms": 9,
 "longest_ttl_seen_ms": 9,
 "proves_deaths": true,
 "worst_failover_ms": 9,
 "survived_outage_ms": 9,
 "suggested_ttl_ms": 9
}
"#;
    assert_eq!((code, shape(&told.replace(&scene.url(), "URL")).as_str()), (Some(0), expected));
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(
        (&told["ttl_ms"], &told["renew_ms"], &told["trust_ms"]),
        (&6000.into(), &2000.into(), &4800.into())
    );
    assert_eq!(told["longest_ttl_seen_ms"], 5000);
    // On a busy machine answers are slow; what follows from them is the same sum.
    let micros = |kind: &str, field: &str| told[kind][field].as_u64().expect("a span");
    let slowest = micros("asking", "slowest_us").max(micros("renewing", "slowest_us"));
    assert_eq!(told["worst_failover_ms"], (6_000_000 + 50_000 + slowest) / 1_000, "{told}");
    let outage = 4_800_000_u64.saturating_sub(micros("renewing", "p99_us")).saturating_sub(2_000_000);
    assert_eq!(told["survived_outage_ms"], outage / 1_000, "{told}");
    assert!(told["suggested_ttl_ms"].as_u64().is_some_and(|ttl| ttl >= 2_000), "{told}");
    assert!(told["renewing"]["count"].as_u64().is_some_and(|count| count >= 5), "{told}");
}

#[test]
fn a_redis_without_a_file_costs_the_record_of_jobs_which_does_not_fail() {
    let server = Server::redis();
    let scene = server.scene();

    let (code, told) = report(&scene, &[]);

    assert_eq!((code, &told["safe"]), (Some(0), &true.into()), "{told}");
    assert_eq!(told["concerns"][0]["cost"], "record");
    assert_eq!((&told["clock"]["whose"], &told["proves_deaths"]), (&"server".into(), &false.into()));
    // It runs on this very host: the clocks differ by no more than a busy machine needs to ask.
    let ahead = told["clock"]["ahead_us"].as_i64().expect("a difference");
    assert!(ahead.abs() < 1_000_000, "{told}");
    assert!(told["clock"]["rate_percent"].as_f64().is_some_and(|rate| rate < 10.0), "{told}");
    let (_, text, _) = said(&scene.done(&["doctor"]));
    assert!(text.contains("forgets jobs: the server has no append-only file"), "{text}");
    assert!(text.contains("hint: set appendonly yes"), "{text}");
    assert!(
        text.contains("clock     the server's, ") && text.contains("Not known: how it runs over hours"),
        "{text}"
    );
}

#[test]
fn a_clock_that_is_ahead_is_measured() {
    let server = testkit::redis::Options::new().own_clock().start();
    server.clock().step(testkit::shim::Step::Forward(Duration::from_secs(3600)));
    let scene = Scene::on(server.url());

    let (_, told) = report(&scene, &[]);

    let ahead = told["clock"]["ahead_us"].as_i64().expect("a difference");
    assert!((3_599_000_000..3_601_000_000).contains(&ahead), "{told}");
}

#[test]
fn a_postgres_is_safe_and_without_fsync_it_is_not() {
    let server = Server::postgres();
    let (code, told) = report(&server.scene(), &[]);
    assert_eq!(
        (code, &told["safe"], &told["concerns"]),
        (Some(0), &true.into(), &serde_json::json!([])),
        "{told}"
    );
    assert_eq!(told["clock"]["whose"], "server");

    let reckless = testkit::postgres::Options::new().set("fsync", "off").start();
    let scene = Scene::on(reckless.url());
    let (code, told) = report(&scene, &[]);
    assert_eq!((code, &told["safe"]), (Some(1), &false.into()), "{told}");
    let (code, text, _) = said(&scene.done(&["doctor"]));
    assert_eq!(code, Some(1));
    assert!(text.starts_with("safe      no, after some faults two workers may own at once\n"), "{text}");
    assert!(text.contains("not safe: fsync is off") && text.contains("hint: set fsync = on"), "{text}");
}

#[test]
fn the_default_store_is_made_and_examined_and_a_named_one_is_not_made() {
    let scene = Scene::new();

    let plain = scene.tenure().env_remove("TENURE_STORE").arg("doctor").output().expect("it runs");
    let (code, told, error) = said(&plain);
    assert_eq!(code, Some(0), "{told}{error}");
    assert!(scene.file("state/tenure/tenure.db").exists());

    let (code, _, error) = said(&scene.done(&["doctor"]));
    assert_eq!(code, Some(125));
    assert!(error.contains("there is no store at `sqlite:"), "{error}");
    assert!(!scene.file("tenure.db").exists());
}

#[test]
fn a_store_that_is_not_there_or_does_not_answer_is_reported_within_five_seconds() {
    let scene = Scene::new();
    // One that takes connections and never answers, one that nobody listens at.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let closed = testkit::process::Port::free();

    let urls = [
        format!("redis://127.0.0.1:{port}"),
        format!("postgres://me@127.0.0.1:{port}/x"),
        format!("redis://127.0.0.1:{}", closed.number()),
        format!("postgres://me@127.0.0.1:{}/x", closed.number()),
    ];
    let is_reported = |command: &str, url: &str| {
        let mut tenure = scene.tenure();
        tenure.args([command, "--store", url]);
        match command {
            "run" => drop(tenure.args(["job", "--", "true"])),
            "step-down" | "explain" => drop(tenure.arg("job")),
            _ => {}
        }
        let began = Instant::now();
        let (code, told, error) = said(&tenure.output().expect("it runs"));

        assert!(began.elapsed() < Duration::from_secs(5), "{command} {url}: {:?}", began.elapsed());
        assert_eq!((code, told.as_str()), (Some(125), ""), "{command} {url}: {error}");
        assert!(error.starts_with("tenure: cannot "), "{command} {url}: {error}");
    };
    // They wait most of the time. A few at once, so that none of them waits for a core.
    for commands in [["doctor", "status", "history"], ["run", "step-down", "explain"]] {
        std::thread::scope(|scope| {
            for (command, url) in
                commands.iter().flat_map(|command| urls.iter().map(move |url| (command, url)))
            {
                scope.spawn(move || is_reported(command, url));
            }
        });
    }
}

#[test]
fn a_store_that_is_not_there_yet_is_waited_for_on_request() {
    let mut server = testkit::redis::Options::new().start();
    let url = server.url();
    server.kill();
    let scene = Scene::on(url);
    let mut waits = scene.start("a", &["--wait-for-store", "--ttl", "1s"]);
    super::scene::until("it is said", || {
        waits.said().contains("tenure: waiting for the store: ").then_some(())
    });
    let mut looks = scene.tenure();
    looks.args(["status", "--wait-for-store", "--json"]).stdout(std::process::Stdio::piped());
    let looks = looks.stderr(std::process::Stdio::null()).spawn().expect("it runs");

    server.start();

    scene.life(1);
    assert!(!waits.has_ended());
    let looked = looks.wait_with_output().expect("it ends");
    assert!(looked.status.success() && String::from_utf8_lossy(&looked.stdout).contains("\"version\": 1"));
    // Whoever waits for a store that never comes can be stopped.
    server.kill();
    let mut vain = scene.start("b", &["--wait-for-store"]);
    super::scene::until("it is said", || vain.said().contains("waiting for the store").then_some(()));
    vain.signal(rustix::process::Signal::TERM);
    assert_eq!(vain.ended().code(), Some(143));
}

#[test]
fn a_file_that_is_not_there_yet_is_waited_for_on_request() {
    let scene = Scene::new();
    let mut looks = scene.tenure();
    looks.args(["history", "--wait-for-store", "--json"]).stdout(std::process::Stdio::piped());
    let looks = looks.stderr(std::process::Stdio::null()).spawn().expect("it runs");

    assert!(scene.done(&["run", "job", "--", "true"]).status.success());

    assert!(looks.wait_with_output().expect("it ends").status.success());
    // Also for its folder; and without being asked to wait it fails.
    let url = format!("sqlite:{}", scene.file("mounted/later.db").display());
    assert_eq!(scene.done(&["run", "job", "--store", &url, "--", "true"]).status.code(), Some(125));
    let mut runs = scene.start("a", &["--store", &url, "--wait-for-store"]);
    super::scene::until("it is said", || runs.said().contains("waiting for the store").then_some(()));
    std::fs::create_dir(scene.file("mounted")).expect("a folder");
    scene.life(1);
    assert!(!runs.has_ended());
}
