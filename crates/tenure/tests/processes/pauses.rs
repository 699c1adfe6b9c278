//! Processes that are held up: a blocked runtime, SIGSTOP, a clock that jumps as in a suspend. What the first look
//! afterwards says, and who owns meanwhile.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure::admin::Admin;
use tenure::types::OnOverdue;
use tenure::{Change, Event, Ownership, Timing, Worker};
use testkit::child::{Child, say};
use testkit::part::Part;
use testkit::{TempDir, boottime};

use super::child::{command, start};
use super::{LIMIT, await_some};

const TTL: Duration = Duration::from_secs(1);
/// Long beyond any lease of that length.
const BLOCKED: Duration = Duration::from_millis(2500);
/// A lease that is kept although the machine is busy.
const KEPT: Duration = Duration::from_secs(3);

// req: H13 H2
#[test]
fn an_application_that_blocks_its_only_thread_for_longer_than_the_ttl_keeps_its_ownership() {
    let scene = Scene::new();
    let blocked = start(&Part::in_folder("blocked", scene.folder.path(), "first", KEPT));
    assert_eq!(blocked.hears(), "owns term 1");
    let waits = scene.start("waits", "second");
    assert_eq!(waits.hears(), "competes");

    assert_eq!(blocked.hears(), "holds: true");

    let grants: Vec<_> = scene.winners();
    assert_eq!(grants, ["first"], "nobody else was let in");
}

// req: H14
#[test]
fn with_a_beacon_it_loses_and_another_owns_before_it_looks_again() {
    let scene = Scene::new();
    let wedged = scene.start("blocked with a beacon", "first");
    assert_eq!(wedged.hears(), "owns term 1");
    let waits = scene.start("waits", "second");
    assert_eq!(waits.hears(), "competes");

    assert_eq!(waits.hears(), "owns term 2");
    // It is still blocked while the other owns.
    assert!(wedged.line(Duration::ZERO).is_none());
    assert_eq!(wedged.hears(), "holds: false");
}

// req: S3
#[test]
fn a_process_whose_work_does_not_stop_is_gone_before_the_store_lets_another_in_if_that_is_asked_for() {
    let scene = Scene::new();
    let mut command = command(&Part::in_folder("overdue, and exits", scene.folder.path(), "first", KEPT));
    let stderr = scene.folder.path().join("stderr");
    command.stderr(std::fs::File::create(&stderr).expect("a file"));
    let mut wedged = Child::start(command);
    assert_eq!(wedged.hears(), "owns term 1");
    let waits = start(&Part::in_folder("waits", scene.folder.path(), "second", KEPT));
    assert_eq!(waits.hears(), "competes");

    assert_eq!(waits.hears(), "owns term 2");

    assert!(!wedged.is_alive(), "it still runs while another owns");
    assert_eq!(wedged.ends().code(), Some(OnOverdue::EXIT_CODE.into()));
    let said = std::fs::read_to_string(stderr).expect("text");
    assert!(said.contains("tenure: the work of `job`") && said.contains("does not stop"), "{said}");
}

// req: L4
#[test]
fn work_that_does_not_stop_is_reported_and_the_worker_does_not_compete_again_meanwhile() {
    let scene = Scene::new();
    let mut wedged = start(&Part::in_folder("overdue", scene.folder.path(), "first", KEPT));
    assert_eq!(wedged.hears(), "owns term 1");

    assert_eq!(wedged.hears(), "overdue: term 1");
    let waits = start(&Part::in_folder("waits", scene.folder.path(), "second", KEPT));
    assert_eq!((waits.hears(), waits.hears()), ("competes".to_owned(), "owns term 2".to_owned()));

    assert!(wedged.is_alive());
    assert_eq!(scene.winners(), ["first", "second"]);
}

// req: E8
#[test]
fn the_first_look_after_a_stop_longer_than_the_lease_says_no_and_another_owns() {
    let scene = Scene::new();
    let mut stopped = scene.start_with_shim("watches the clock", "first", TTL);
    assert_eq!(stopped.hears(), "owns term 1");
    let waits = scene.start("waits", "second");
    assert_eq!(waits.hears(), "competes");

    // From here on its driver is slow, so that it is not the driver that notices first.
    scene.put(SLOW);
    stopped.stop();
    let stopped_at = Instant::now();
    assert_eq!(waits.hears(), "owns term 2");
    std::thread::sleep((TTL * 3 / 2).saturating_sub(stopped_at.elapsed()));
    stopped.signal(Signal::CONT);

    assert_eq!(stopped.hears(), "holds: false");
    assert!(stopped.is_alive());
    assert_eq!(scene.winners(), ["first", "second"]);
}

// req: E8 H5
#[test]
fn when_the_clock_that_counts_suspend_jumps_the_first_look_says_no_before_the_driver_has_noticed() {
    let scene = Scene::new();
    let suspended = scene.start_with_shim("jumps", "first", LIMIT);

    assert_eq!(suspended.hears(), "owns term 1");

    // The timers of the kernel know nothing of this jump: the driver sleeps on, and only the check can see it.
    assert_eq!(suspended.hears(), "holds: true, then: false");
}

// req: H5
#[test]
fn the_driver_sleeps_by_the_clock_that_counts_suspend() {
    let scene = Scene::new();
    let worker = scene.start("waits", "first");
    assert_eq!(worker.hears(), "competes");
    assert_eq!(worker.hears(), "owns term 1");

    let clocks = await_some("a timer", || Some(timers(worker.pid())).filter(|timers| !timers.is_empty()));

    // 7 is CLOCK_BOOTTIME.
    assert!(clocks.iter().all(|clock| clock == "7"), "{clocks:?}");
}

/// By which clocks the timers of a process run, as its kernel tells.
fn timers(pid: u32) -> Vec<String> {
    let infos = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("it lives");
    let texts = infos.filter_map(|info| std::fs::read_to_string(info.ok()?.path()).ok());
    let clock = |text: String| {
        text.lines().find_map(|line| line.strip_prefix("clockid:").map(|clock| clock.trim().to_owned()))
    };
    texts.filter_map(clock).collect()
}

// ---- what the other processes do ---------------------------------------------------------------------------

pub(crate) async fn waits(part: &Part) {
    let worker = connect(part, Timing::new(part.ttl).expect("sound")).await;
    say("competes");
    let own = worker.campaign("job").acquire().await.expect("a ticket");
    owns(&own);
    std::future::pending::<()>().await;
}

pub(crate) async fn blocked(part: &Part) {
    let worker = connect(part, Timing::new(part.ttl).expect("sound")).await;
    let own = worker.campaign("job").acquire().await.expect("a ticket");
    owns(&own);
    std::thread::sleep(part.ttl * 3 / 2);
    say(&format!("holds: {}", own.holds()));
    std::future::pending::<()>().await;
}

pub(crate) async fn blocked_with_a_beacon(part: &Part) {
    let timing = Timing::new(part.ttl).and_then(|timing| timing.with_beacon(part.ttl / 2)).expect("sound");
    let worker = connect(part, timing).await;
    let own = worker.campaign("job").acquire().await.expect("a ticket");
    // An application that is well beats, and keeps its ticket for longer than a lease.
    let well_until = Instant::now() + part.ttl * 2;
    while Instant::now() < well_until {
        worker.beat();
        assert!(own.holds());
        tokio::time::sleep(part.ttl / 10).await;
    }
    owns(&own);
    std::thread::sleep(BLOCKED);
    say(&format!("holds: {}", own.holds()));
    std::future::pending::<()>().await;
}

/// Work that blocks its thread for ever, in an application that is wedged with it.
pub(crate) async fn overdue(part: &Part, on_overdue: OnOverdue) {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut events = tenure::events();
            while let Some(event) = events.next().await {
                if let Event::Campaign { change: Change::Overdue(grant), .. } = event {
                    say(&format!("overdue: term {}", grant.term.0));
                }
            }
        });
    });
    // A wide margin: this machine may be busy.
    let timing = Timing::new(part.ttl).and_then(|timing| timing.with_margin(part.ttl / 5)).expect("sound");
    let timing = timing.with_beacon(part.ttl / 2).expect("sound");
    let builder = Worker::builder(&part.url).label(&part.name).timing(timing).on_overdue(on_overdue);
    let worker = builder.connect().await.expect("a worker");
    let own = worker.campaign("job").acquire().await.expect("a ticket");
    owns(&own);
    loop {
        std::thread::sleep(LIMIT);
    }
}

pub(crate) async fn watches_the_clock(part: &Part) {
    let worker = connect(part, Timing::new(part.ttl).expect("sound")).await;
    let own = worker.campaign("job").acquire().await.expect("a ticket");
    owns(&own);
    // Nothing but clock readings, so that the first thing after a pause is the look.
    let mut last = boottime();
    loop {
        let now = boottime();
        if Duration::from_micros(now - last) > part.ttl {
            break;
        }
        last = now;
    }
    let holds = own.holds();
    say(&format!("holds: {holds}"));
    std::future::pending::<()>().await;
}

pub(crate) async fn jumps(part: &Part) {
    let worker = connect(part, Timing::new(part.ttl).expect("sound")).await;
    let own = worker.campaign("job").acquire().await.expect("a ticket");
    owns(&own);
    let before = own.holds();
    std::fs::write(part.folder.join(JUMP), "").expect("it can be written");
    let after = own.holds();
    say(&format!("holds: {before}, then: {after}"));
    std::future::pending::<()>().await;
}

fn owns(own: &Ownership) {
    say(&format!("owns term {}", own.term()));
}

async fn connect(part: &Part, timing: Timing) -> Worker {
    let builder = Worker::builder(&part.url).label(&part.name).timing(timing);
    builder.connect().await.expect("a worker")
}

// ---- the scene ---------------------------------------------------------------------------------------------

struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { folder: testkit::folder() }
    }

    fn start(&self, role: &str, name: &str) -> Child {
        start(&Part::in_folder(role, self.folder.path(), name, TTL))
    }

    /// Who was ever let in, in order.
    fn winners(&self) -> Vec<String> {
        let url = Part::in_folder("", self.folder.path(), "", TTL).url;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let entries = runtime.block_on(async {
            Admin::open(&url).await.expect("the store opens").history("job").await.expect("an answer")
        });
        let grants = entries.into_iter().filter(|entry| entry.what == tenure::admin::HistoryEvent::Granted);
        grants.map(|entry| entry.worker.as_str().to_owned()).collect()
    }

    /// The same with the shim between it and the C library.
    fn start_with_shim(&self, role: &str, name: &str, ttl: Duration) -> Child {
        let mut command = command(&Part::in_folder(role, self.folder.path(), name, ttl));
        command.env("LD_PRELOAD", shim(self.folder.path()));
        Child::start(command)
    }

    /// Makes the shim do something from now on.
    fn put(&self, what: &str) {
        std::fs::write(self.folder.path().join(what), "").expect("it can be written");
    }
}

/// Once this file is there, a process with the shim reads CLOCK_BOOTTIME an hour ahead.
const JUMP: &str = "jump";
/// Once this file is there, whoever waits for timers and sockets in such a process is two seconds late.
const SLOW: &str = "slow";

/// Builds the shim.
fn shim(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    std::fs::write(&source, SHIM).expect("it can be written");
    let mut compiler = Command::new("cc");
    for name in [JUMP, SLOW] {
        let path = folder.join(name);
        compiler.arg(format!("-D{}={:?}", name.to_uppercase(), path.to_str().expect("a plain path")));
    }
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
    let status = compiler.status().expect("a C compiler, `cc` (on Debian: apt-get install gcc)");
    assert!(status.success(), "cc: {status}");
    library
}

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && clock == CLOCK_BOOTTIME && access(JUMP, F_OK) == 0)
        time->tv_sec += 3600;
    return failed;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    long ready = syscall(SYS_epoll_pwait, epoll, events, most, timeout, NULL, 8);
    if (access(SLOW, F_OK) == 0)
        sleep(2);
    return ready;
}
"#;
