//! Real processes on one SQLite file: the workers of `examples/hello.rs`, killed as people kill them.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The default lease is 15 s: what comes sooner was not waited for.
const LEASE: Duration = Duration::from_secs(15);

// req: O12 A5
#[test]
fn when_the_owner_is_killed_another_goes_on_long_before_the_lease_runs_out() {
    let scene = Scene::new("killed");
    let mut workers: Vec<Child> = (0..3).map(|_| scene.worker()).collect();
    let first = scene.hears("a first owner");
    assert_eq!(first.term, 1);

    for term in 2..=3 {
        let owner = scene.last_pid();
        let index = workers.iter().position(|worker| worker.id() == owner).expect("one of ours");
        let killed = Instant::now();
        // `Child::kill` is SIGKILL.
        workers.remove(index).kill().expect("it was alive");

        let next = scene.hears_term(term);
        assert_ne!(next.pid, owner);
        assert!(killed.elapsed() < LEASE / 3, "it took {:?}", killed.elapsed());
    }
    for mut worker in workers {
        worker.kill().expect("it was alive");
        worker.wait().expect("it ends");
    }
}

// req: E8 O13
#[test]
fn an_owner_that_is_stopped_keeps_others_out_only_while_its_lease_lasts_and_then_yields() {
    let scene = Scene::new("stopped");
    let mut workers: Vec<Child> = (0..2).map(|_| scene.worker()).collect();
    let first = scene.hears("a first owner");
    let stopped = i32::try_from(first.pid).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");

    rustix::process::kill_process(stopped, rustix::process::Signal::STOP).expect("it was alive");
    let began = Instant::now();
    let second = scene.hears_term(2);
    let waited = began.elapsed();
    rustix::process::kill_process(stopped, rustix::process::Signal::CONT).expect("it is stopped");

    assert_ne!(second.pid, first.pid);
    // Alive, though stopped: nothing but the lease proves anything.
    assert!(waited > LEASE / 2 && waited < LEASE * 2, "{waited:?}");
    // From here on only the second speaks: the first look of the other, after its pause, said no.
    for _ in 0..2 {
        assert_eq!(scene.hears("the second owner").pid, second.pid);
    }
    for worker in &mut workers {
        assert!(worker.try_wait().expect("an answer").is_none(), "after a loss it competes again");
        worker.kill().expect("it was alive");
        worker.wait().expect("it ends");
    }
}

#[test]
fn the_log_that_workers_leave_who_die_young_stays_small() {
    let scene = Scene::new("young");

    for term in 1..=12 {
        let mut worker = scene.worker();
        scene.hears_term(term);
        worker.kill().expect("it was alive");
        worker.wait().expect("it ends");
    }

    // Each leaves about 85 KB; whoever comes next moves it into the database.
    let log = std::fs::metadata(scene.folder.join("tenure.db-wal")).expect("a log").len();
    assert!(log < 400_000, "{log} bytes");
}

/// One line of the example.
#[derive(Clone, Copy, Debug)]
struct Greeting {
    pid: u32,
    term: u64,
}

struct Scene {
    folder: PathBuf,
    said: mpsc::Sender<Greeting>,
    heard: mpsc::Receiver<Greeting>,
    last: std::cell::Cell<u32>,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tenure-processes-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let (said, heard) = mpsc::channel();
        Self { folder, said, heard, last: std::cell::Cell::new(0) }
    }

    fn worker(&self) -> Child {
        let mut command = Command::new(example("hello"));
        command.arg("worker").arg(self.folder.join("tenure.db")).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the example runs: cargo builds it with the tests");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let said = self.said.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let numbers: Vec<u64> =
                    line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
                let [pid, term] = numbers[..] else { continue };
                let pid = u32::try_from(pid).expect("a pid");
                if said.send(Greeting { pid, term }).is_err() {
                    return;
                }
            }
        });
        child
    }

    fn hears(&self, what: &str) -> Greeting {
        let greeting = self.heard.recv_timeout(LEASE * 3).unwrap_or_else(|_| panic!("never heard {what}"));
        self.last.set(greeting.pid);
        greeting
    }

    fn hears_term(&self, term: u64) -> Greeting {
        loop {
            let greeting = self.hears("a later owner");
            if greeting.term >= term {
                assert_eq!(greeting.term, term);
                return greeting;
            }
        }
    }

    fn last_pid(&self) -> u32 {
        self.last.get()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // A folder that stays behind harms nobody.
        let _left = std::fs::remove_dir_all(&self.folder);
    }
}

/// Where cargo puts an example: beside the folder of this test's binary.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let target = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/NAME");
    target.join("examples").join(name)
}
