//! Sessions in a real terminal, and the signals that are the command's business.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;

use super::scene::{Scene, open_terminal, until};

/// An interactive shell on a terminal of its own.
struct Session {
    shell: Child,
    terminal: File,
    seen: String,
}

impl Session {
    fn new(scene: &Scene) -> Self {
        let (ours, theirs) = open_terminal();
        let flags = fcntl_getfl(&ours).expect("flags");
        fcntl_setfl(&ours, flags | OFlags::NONBLOCK).expect("it can be set");
        let mut shell = Command::new("setsid");
        shell.args(["--ctty", "env", "--default-signal", "bash", "--norc", "--noprofile", "-i"]);
        shell
            .env("PS1", "$ ")
            .env("TERM", "dumb")
            .env("TENURE_STORE", scene.url())
            .current_dir(&scene.folder);
        shell.env("T", env!("CARGO_BIN_EXE_tenure"));
        let copy = || theirs.try_clone().expect("a descriptor");
        let shell = shell.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("a shell");
        Self { shell, terminal: ours, seen: String::new() }
    }

    fn types(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).expect("it takes it");
    }

    /// Waits until this is shown, after what was waited for before.
    fn shows(&mut self, text: &str) {
        let what = format!("{text:?} on the terminal");
        let seen = std::cell::RefCell::new(std::mem::take(&mut self.seen));
        let terminal = &self.terminal;
        until(&what, || {
            let (mut bytes, mut terminal) = ([0; 4096], terminal);
            while let Ok(length) = terminal.read(&mut bytes) {
                seen.borrow_mut().push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
            let mut seen = seen.borrow_mut();
            let found = seen.find(text)? + text.len();
            seen.drain(..found);
            Some(())
        });
        self.seen = seen.into_inner();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _gone = self.shell.kill();
        let _gone = self.shell.wait();
    }
}

/// Says what it reads.
const READS: &str = "sh -c 'while read line; do echo \"got <$line>\"; done'";

#[test]
fn a_job_is_stopped_continued_and_read_from_as_a_plain_command() {
    let scene = Scene::new();
    let mut session = Session::new(&scene);

    session.types(&format!("$T run job --ttl 60s -- {READS}\n"));
    session.types("one\n");
    session.shows("got <one>");
    session.types("\x1a");
    session.shows("Stopped");
    session.types("bg\n");
    // It reads the terminal, which is not its own now.
    session.shows("$T run job");
    session.types("until jobs -s | grep -q .; do sleep 0.05; done; echo it stands\n");
    session.shows("\nit stands");
    session.types("fg\n");
    session.types("two\n");
    session.shows("got <two>");
    session.types("\x03");
    session.shows("$ ");
    session.types("echo code=$?\n");
    session.shows("code=130");
}

// req: E8
#[test]
fn a_job_that_is_stopped_beyond_its_lease_loses_the_ticket_and_competes_again() {
    let scene = Scene::new();
    let mut session = Session::new(&scene);
    session.types(&format!("$T run job --ttl 1s --label here -- {READS}\n"));
    session.types("one\n");
    session.shows("got <one>");
    let _other = scene.start("there", &["--ttl", "1s"]);
    scene.until_waiting(1);

    session.types("\x1a");
    session.shows("Stopped");

    assert_eq!(scene.life(2).worker, "there");
    session.types("fg\n");
    session.shows("lost `job` (term 1): this process was held up for");
    let both = (vec!["there".to_owned()], vec!["here".to_owned()]);
    until("it waits again", || (scene.standing() == both).then_some(()));
    session.types("\x03");
    session.shows("$ ");
}

#[test]
fn when_the_terminal_is_gone_so_is_the_job() {
    let scene = Scene::new();
    let script = "trap '' HUP; echo start >> starts; while :; do sleep 0.01; done";
    let (mut tenure, terminal) = scene.start_on_terminal("a", &["--ttl", "60s", "--grace", "200ms"], script);
    until("the command", || (!scene.lines("starts").is_empty()).then_some(()));

    drop(terminal);

    assert_eq!(tenure.ended().code(), Some(137), "{}", tenure.said());
    assert!(tenure.said().contains("on SIGHUP; it has 200ms"), "{}", tenure.said());
}

#[test]
fn a_shell_whose_terminal_is_gone_takes_its_jobs_along() {
    let scene = Scene::new();
    let mut session = Session::new(&scene);
    // One that works in the background, and one that waits.
    let script = "trap \"\" HUP; echo start >> starts; sleep 600";
    session.types(&format!("$T run job --label works --grace 300ms -- sh -c '{script}' &\n"));
    until("the command", || (!scene.lines("starts").is_empty()).then_some(()));
    session.types("$T run job --label waits -- true &\n");
    scene.until_waiting(1);

    let Session { shell, terminal, .. } = &mut session;
    *terminal = File::open("/dev/null").expect("nothing");
    shell.wait().expect("it ends");

    until("nobody is left", || (scene.standing() == (vec![], vec![])).then_some(()));
}

#[test]
fn signals_that_are_the_commands_business_are_passed_on_and_stop_nothing() {
    let scene = Scene::new();
    let script = "for s in HUP USR1 USR2 WINCH; do trap \"echo $s >> signals\" $s; done; echo start >> starts; \
        until [ -e go ]; do sleep 0.01; done; exit 4";
    let mut tenure = scene.start_script("a", &["--ttl", "60s"], script);
    until("the command", || (!scene.lines("starts").is_empty()).then_some(()));
    let mut waiter = scene.start("b", &["--ttl", "60s"]);
    scene.until_waiting(1);

    for (count, signal) in [Signal::HUP, Signal::USR1, Signal::USR2, Signal::WINCH].into_iter().enumerate() {
        tenure.signal(signal);
        waiter.signal(signal);
        until("it is passed on", || (scene.lines("signals").len() == count + 1).then_some(()));
    }

    assert_eq!(scene.lines("signals"), ["HUP", "USR1", "USR2", "WINCH"]);
    assert!(!tenure.has_ended() && !waiter.has_ended());
    std::fs::write(scene.file("go"), "").expect("a file");
    assert_eq!(tenure.ended().code(), Some(4));
    assert_eq!(scene.life(2).worker, "b");
}
