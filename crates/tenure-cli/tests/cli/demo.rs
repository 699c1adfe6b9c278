//! The demo: its script holds, can fail, and its show reacts to keys.

use super::scene::{Scene, is_alive, until};
use super::terminal::Terminal;

fn left_behind(pid: u32) -> bool {
    std::env::temp_dir().join(format!("tenure-demo-{pid}")).exists()
}

// req: O1 O11 O12 E8
#[test]
fn the_script_plays_without_a_terminal_and_the_promises_hold() {
    let scene = Scene::new();

    let child = scene.tenure().args(["demo", "--script"]).stdout(std::process::Stdio::piped()).spawn();
    let child = child.expect("it runs");
    let pid = child.id();
    let output = child.wait_with_output().expect("it ends");

    let told = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{told}");
    let lines: Vec<&str> = told.lines().collect();
    for (line, what) in [
        "is the first to own (term 1)",
        "took over after `w",
        "which was asked to step down, ",
        "which is paused, had run out, ",
        "was resumed, and did not believe that it was the owner",
        "held: at no moment two worked, and each time another worker took over",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(lines[line].contains(what), "{told}");
    }
    assert!(!left_behind(pid));
}

#[test]
fn a_worker_that_nobody_stops_breaks_the_script() {
    let scene = Scene::new();

    let output = scene.done(&["demo", "--script", "--plant"]);

    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("BROKEN: `w") && told.contains(" worked at once\n"), "{told}");
}

#[test]
fn the_show_kills_pauses_resumes_and_adds_by_keys() {
    let scene = Scene::new();
    let mut terminal = Terminal::start(&scene, &["demo"], 80, 24);
    let owner = |term: u64| {
        let shown = terminal.until("an owner", |shown| shown.contains(&format!("term {term} ")));
        let line = shown.lines().find(|line| line.contains(&format!("term {term} "))).expect("it").to_owned();
        line.split_whitespace().nth(1).expect("a label").to_owned()
    };
    terminal.until("all", |shown| shown.contains("2 waiting"));
    let first = owner(1);

    terminal.press("k");
    let second = owner(2);
    assert_ne!(first, second);
    terminal
        .until("the dead", |shown| shown.lines().any(|line| line.contains(&first) && line.ends_with("dead")));

    terminal.press("a");
    terminal.until("another", |shown| shown.contains(" w4 pid ") && shown.contains("2 waiting"));
    terminal.press("s");
    let third = owner(3);
    assert_ne!(second, third);
    terminal.press("p");
    let fourth = owner(4);
    assert_ne!(third, fourth);
    terminal.until("the paused", |shown| {
        shown.lines().any(|line| line.contains(&third) && line.ends_with("paused"))
    });
    terminal.press("r");
    let shown = terminal.until("it waits", |shown| {
        shown.lines().any(|line| line.contains(&third) && line.ends_with("waits"))
    });
    assert!(shown.contains("two at once: never"), "{shown}");
    let pids: Vec<i32> = shown
        .lines()
        .filter_map(|line| line.split_once(" pid ")?.1.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(pids.len(), 4, "{shown}");

    let pid = terminal.pid();
    terminal.press("q");
    assert_eq!(terminal.ended().code(), Some(0));
    terminal.until_restored();
    terminal.until("what it came to", |shown| shown.contains("held: at no moment two worked"));
    until("nobody is left", || pids.iter().all(|pid| !is_alive(*pid)).then_some(()));
    assert!(!left_behind(pid));
}

#[test]
fn a_demo_that_is_killed_leaves_no_worker_behind() {
    let scene = Scene::new();
    let terminal = Terminal::start(&scene, &["demo"], 20, 24);
    let shown = terminal.until("workers", |shown| shown.matches(" pid ").count() == 3);
    let pids: Vec<i32> = shown
        .lines()
        .filter_map(|line| line.split_once(" pid ")?.1.split_whitespace().next()?.parse().ok())
        .collect();
    let folder = std::env::temp_dir().join(format!("tenure-demo-{}", terminal.pid()));

    terminal.signal(rustix::process::Signal::KILL);

    until("nobody is left", || pids.iter().all(|pid| !is_alive(*pid)).then_some(()));
    std::fs::remove_dir_all(folder).expect("it was there");
}

#[test]
fn without_a_terminal_the_show_is_refused_and_the_script_is_named() {
    let scene = Scene::new();

    let output = scene.done(&["demo"]);

    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        said.contains("the demo needs a terminal") && said.contains("hint: `tenure demo --script`"),
        "{said}"
    );
}
