//! The workers of `examples/hello.rs`, killed as people kill them.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::TempDir;
use testkit::child::Child;

use super::{await_some, example};

/// The default lease is 15 s: what comes sooner was not waited for.
const LEASE: Duration = Duration::from_secs(15);

// req: O12 A5
#[test]
fn when_the_owner_is_killed_another_goes_on_long_before_the_lease_runs_out() {
    let mut scene = Scene::new(3);
    let mut last = scene.hears("a first owner");
    assert_eq!(last.term, 1);

    for term in 2..=3 {
        let killed = Instant::now();
        scene.worker(last.pid).kill();

        let next = scene.hears_term(term);
        assert_ne!(next.pid, last.pid);
        assert!(killed.elapsed() < LEASE / 3, "it took {:?}", killed.elapsed());
        last = next;
    }
}

// req: E8 O13
#[test]
fn an_owner_that_is_stopped_keeps_others_out_only_while_its_lease_lasts_and_then_yields() {
    let mut scene = Scene::new(2);
    let first = scene.hears("a first owner");

    scene.worker(first.pid).stop();
    let began = Instant::now();
    let second = scene.hears_term(2);
    let waited = began.elapsed();
    scene.worker(first.pid).signal(Signal::CONT);

    assert_ne!(second.pid, first.pid);
    // Alive, though stopped: nothing but the lease proves anything.
    assert!(waited > LEASE / 2 && waited < LEASE * 2, "{waited:?}");
    // From here on only the second speaks: the work of the other was cancelled before its next step.
    for _ in 0..2 {
        assert_eq!(scene.hears("the second owner").pid, second.pid);
    }
    assert!(scene.worker(first.pid).is_alive(), "after a loss it competes again");
}

#[test]
fn the_log_that_workers_leave_who_die_young_stays_small() {
    let mut scene = Scene::new(0);

    for term in 1..=12 {
        scene.start_worker();
        let pid = scene.hears_term(term).pid;
        scene.worker(pid).kill();
    }

    // Each leaves about 85 KB; whoever comes next moves it into the database.
    let log = std::fs::metadata(scene.folder.path().join("hello.db-wal")).expect("a log").len();
    assert!(log < 400_000, "{log} bytes");
}

// req: A2 A5
#[test]
fn an_owner_that_is_interrupted_hands_over_and_ends_well() {
    let mut scene = Scene::new(2);
    let first = scene.hears("a first owner");

    let interrupted = Instant::now();
    scene.worker(first.pid).signal(Signal::INT);

    assert_ne!(scene.hears_term(2).pid, first.pid);
    assert!(interrupted.elapsed() < LEASE / 3, "it took {:?}", interrupted.elapsed());
    assert!(scene.worker(first.pid).ends().success());
}

#[test]
fn the_first_program_of_the_readme_is_this_example() {
    let (readme, example) = (include_str!("../../../../README.md"), include_str!("../../examples/hello.rs"));

    let shown =
        readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a program");
    assert_eq!(example.split_once("// req: A5\n\n").expect("a head").1, shown);
}

/// One line of the example.
#[derive(Clone, Copy, Debug)]
struct Greeting {
    pid: u32,
    term: u64,
}

struct Scene {
    folder: TempDir,
    workers: Vec<Child>,
}

impl Scene {
    fn new(workers: usize) -> Self {
        let mut scene = Self { folder: testkit::folder(), workers: Vec::new() };
        (0..workers).for_each(|_| scene.start_worker());
        scene
    }

    fn start_worker(&mut self) {
        let mut command = Command::new(example("hello"));
        command.current_dir(self.folder.path());
        self.workers.push(Child::start(command));
    }

    fn worker(&mut self, pid: u32) -> &mut Child {
        self.workers.iter_mut().find(|worker| worker.pid() == pid).expect("one of ours")
    }

    /// What one of them says next.
    fn hears(&self, what: &str) -> Greeting {
        await_some(what, || self.workers.iter().find_map(|worker| greeting(&worker.line(Duration::ZERO)?)))
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
}

fn greeting(line: &str) -> Option<Greeting> {
    let numbers: Vec<u64> =
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let [pid, term] = numbers[..] else { return None };
    Some(Greeting { pid: u32::try_from(pid).ok()?, term })
}
