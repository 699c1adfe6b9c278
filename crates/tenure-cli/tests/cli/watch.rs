//! `tenure status --watch` in a real terminal.

use rustix::process::Signal;

use super::scene::Scene;
use super::terminal::Terminal;

#[test]
fn owners_waiters_and_bars_are_drawn_and_follow_a_change_and_q_quits() {
    let scene = Scene::new();
    let mut first = scene.start("first", &[]);
    scene.life(1);
    let _second = scene.start("second", &[]);
    scene.until_waiting(1);

    let mut terminal = Terminal::start(&scene, &["status", "--watch"], 80, 24);
    let shown = terminal.until("the owner", |shown| shown.contains("first  term 1"));
    assert!(shown.contains("job  owned") && shown.contains("1 waiting: second"), "{shown}");
    assert!(shown.contains("bars: the last 1m") && shown.contains("q quit"), "{shown}");
    // Half of a column is not yet half a second.
    terminal.until("the bar", |shown| {
        shown.lines().any(|line| line.len() == 80 && line.starts_with("0 ..") && line.ends_with('a'))
    });
    assert!(terminal.raw().windows(2).any(|bytes| bytes == b"\x1b["), "it is in colour");

    first.kill();
    let shown = terminal.until("the next owner", |shown| shown.contains("second  term 2"));
    assert!(!shown.contains("waiting"), "{shown}");
    terminal.press("-");
    terminal.until("a shorter span", |shown| shown.contains("bars: the last 30s"));
    let bar = terminal.until("both in the bar", |shown| {
        shown
            .lines()
            .any(|line| line.starts_with("0 ") && line.contains('a') && line.trim_end().ends_with('b'))
    });
    assert!(!bar.contains('\u{fffd}'));

    terminal.press("q");
    assert_eq!(terminal.ended().code(), Some(0));
    terminal.until_restored();
}

#[test]
fn a_terminal_of_twenty_columns_and_one_that_is_resized_are_drawn_on() {
    let scene = Scene::new();
    let _owner = scene.start("a-worker-with-a-long-label", &[]);
    scene.life(1);

    let mut terminal = Terminal::start(&scene, &["status", "--watch"], 20, 8);
    let shown = terminal.until("the owner", |shown| shown.contains("a-worker"));
    assert!(shown.lines().all(|line| line.chars().count() <= 20), "{shown}");
    assert!(shown.contains("job  owned") && shown.contains("q quit"), "{shown}");

    terminal.resize(100, 30);
    terminal.until("all of the label", |shown| shown.contains("a-worker-with-a-long-label  term 1  for "));
    terminal.resize(3, 2);
    terminal.until("little", |shown| shown.lines().all(|line| line.chars().count() <= 3));
    terminal.resize(20, 8);
    terminal.until("the owner again", |shown| shown.contains("a-worker"));

    terminal.press("\x03");
    assert_eq!(terminal.ended().code(), Some(130));
    terminal.until_restored();
}

#[test]
fn whatever_ends_it_the_terminal_is_as_it_was_before() {
    let scene = Scene::new();
    assert!(scene.done(&["run", "job", "--", "true"]).status.success());
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let mut terminal = Terminal::start(&scene, &["status", "--watch"], 60, 10);
        terminal.until("something", |shown| shown.contains("job  nobody owns it"));
        assert!(!terminal.is_restored());

        terminal.signal(signal);

        assert_eq!(terminal.ended().code(), Some(code));
        terminal.until_restored();
    }
}

#[test]
fn whoever_suspends_it_gets_the_terminal_back_and_it_draws_again_when_continued() {
    let scene = Scene::new();
    assert!(scene.done(&["run", "job", "--", "true"]).status.success());
    let mut terminal = Terminal::start(&scene, &["status", "--watch"], 60, 10);
    terminal.until("something", |shown| shown.contains("job  nobody owns it"));
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", terminal.pid())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T')).then_some(())
    };

    terminal.press("\x1a");
    super::scene::until("it is stopped", is_stopped);
    terminal.until_restored();

    terminal.signal(Signal::CONT);
    terminal.until("it draws again", |shown| shown.contains("job  nobody owns it"));
    terminal.press("q");
    assert_eq!(terminal.ended().code(), Some(0));
    terminal.until_restored();
}

#[test]
fn a_store_that_goes_away_makes_the_picture_old_and_says_so() {
    let mut server = testkit::redis::Options::new().start();
    let scene = Scene::on(server.url());
    let terminal = Terminal::start(&scene, &["status", "--watch"], 80, 10);
    terminal.until("something", |shown| shown.contains("nothing has been claimed yet"));

    server.kill();
    terminal.until("that it is old", |shown| shown.contains("NOT CURRENT, "));

    server.start();
    terminal.until("that it is current", |shown| shown.contains("bars: the last"));
}

#[test]
fn without_a_terminal_it_is_refused() {
    let scene = Scene::new();
    assert!(scene.done(&["run", "job", "--", "true"]).status.success());

    let output = scene.done(&["status", "--watch"]);

    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), &b""[..]));
    assert!(
        said.contains("--watch needs a terminal, and stdout is none\n\nhint: `tenure status --json`"),
        "{said}"
    );
    let mut dumb = Terminal::start_with(&scene, &["status", "--watch"], 120, 10, |tenure| {
        tenure.env("TERM", "dumb");
    });
    assert_eq!(dumb.ended().code(), Some(125));
    dumb.until("why", |shown| shown.contains("TERM does not name one"));
    assert!(!dumb.raw().contains(&0x1b));
}

#[test]
fn tables_fit_a_terminal_of_twenty_columns_and_colours_can_be_turned_off() {
    let scene = Scene::new();
    let _owner = scene.start("a", &[]);
    scene.life(1);

    let mut narrow = Terminal::start(&scene, &["status"], 20, 40);
    assert_eq!(narrow.ended().code(), Some(0));
    narrow.until("lines", |shown| shown.contains("resource: job\nticket: 0/1\nworker: a\nterm: 1\n"));

    let mut wide = Terminal::start(&scene, &["history"], 120, 40);
    assert_eq!(wide.ended().code(), Some(0));
    wide.until("the table", |shown| shown.contains("still owns"));
    assert!(wide.raw().contains(&0x1b), "colours on a terminal");
    let mut plain = Terminal::start_with(&scene, &["history"], 120, 40, |tenure| {
        tenure.env("NO_COLOR", "1");
    });
    assert_eq!(plain.ended().code(), Some(0));
    plain.until("the table", |shown| shown.contains("still owns"));
    assert!(!plain.raw().contains(&0x1b), "none with NO_COLOR");
}
