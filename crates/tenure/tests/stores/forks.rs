//! A process with an open worker forks: what its handles say in the child, what a new connection does there, and that the
//! parent does not notice.
#![cfg(all(feature = "sqlite", feature = "redis", feature = "postgres", target_os = "linux"))]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use tenure::messages::Published;
use tenure::{Campaign, ErrorKind, Ownership, Timing, Worker};
use testkit::child::{Child, again, say};
use testkit::redis::Options;

use super::postgres::fixture;

const ROLE: &str = "TENURE_TEST_ROLE";
const URL: &str = "TENURE_TEST_URL";
const VERDICT: &str = "TENURE_TEST_VERDICT";

const TTL: Duration = Duration::from_secs(3);
/// What must not hang ends within this.
const SOON: Duration = Duration::from_secs(10);
/// Some of them come while another thread of the parent talks to the store.
const FORKS: u32 = 8;

#[test]
fn on_memory() {
    survives_forks("memory:forks");
}

#[test]
fn on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    survives_forks(&format!("sqlite:{}", folder.path().join("tenure.db").display()));
}

#[test]
fn on_redis() {
    let server = Options::new().start();
    survives_forks(&server.url());
}

#[test]
fn on_postgres() {
    let server = fixture::shared();
    let url = fixture::lock(&server).url();
    survives_forks(&url);
}

fn survives_forks(url: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command: Command = again(module_path!(), &[]);
    command.env(ROLE, "forks").env(URL, url).env(VERDICT, folder.path().join("verdict"));
    let mut process = Child::start(command);

    for _ in 0..FORKS {
        assert_eq!(process.hears(), "in the child: all is well");
    }
    assert_eq!(process.hears(), "in the parent: all is well");
    assert!(process.ends().success());
}

/// Not a test but the other process; without a role it is over at once.
#[test]
fn a_child_plays_its_role() {
    if std::env::var(ROLE).is_ok_and(|role| role == "forks") {
        forks(
            &std::env::var(URL).expect("a URL"),
            &PathBuf::from(std::env::var_os(VERDICT).expect("a path")),
        );
    }
}

struct Handles {
    worker: Worker,
    own: Ownership,
    campaign: Campaign,
    changes: tenure::Changes,
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

async fn connect(url: &str, label: &str) -> Worker {
    let timing = Timing::new(TTL).expect("sound");
    Worker::builder(url).label(label).timing(timing).connect().await.expect("a worker")
}

#[allow(unsafe_code)]
fn forks(url: &str, verdict: &PathBuf) {
    let runtime = runtime();
    let handles = runtime.block_on(async {
        let worker = connect(url, "parent").await;
        let own = worker.campaign("job").acquire().await.expect("a ticket");
        let campaign = worker.campaign("echo").obtain(async |_| (), async |_| ()).expect("it competes");
        let changes = campaign.changes();
        testkit::eventually(SOON * 2, "it owns", || campaign.is_owner());
        Handles { worker, own, campaign, changes }
    });
    // The store is busy while the process forks.
    let busy = runtime.spawn({
        let worker = handles.worker.clone();
        async move {
            loop {
                worker.campaign("busy").acquire().await.expect("a ticket").release().await;
            }
        }
    });
    for number in 0..FORKS {
        let _left_behind = std::fs::remove_file(verdict);
        // SAFETY: the child is as any program that forks without exec: it goes on with one thread. It leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let said =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| in_child(url, number, handles)));
            let said = said.unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
            });
            let _unsaid = std::fs::write(verdict, said);
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        let until = Instant::now() + SOON * 3;
        // SAFETY: waits for the child just made; `status` is valid for the call.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            if Instant::now() > until {
                // SAFETY: the child has not been waited for, so its pid is nobody else's.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let said = std::fs::read_to_string(verdict);
        say(&format!("in the child: {}", said.unwrap_or_else(|_| format!("it hung or died: {status}"))));
        assert!(handles.own.holds() && handles.campaign.is_owner(), "fork {number} costs the parent nothing");
    }
    // Longer than a lease: it is renewed.
    let until = Instant::now() + TTL * 3 / 2;
    while Instant::now() < until {
        assert!(handles.own.holds() && handles.campaign.is_owner(), "the parent has lost");
        std::thread::sleep(Duration::from_millis(10));
    }
    busy.abort();
    runtime.block_on(async {
        let Handles { worker, own, campaign, .. } = handles;
        assert_eq!(own.publish(b"hello").await.expect("an answer"), Published::Sent);
        own.release().await;
        campaign.stop().await;
        assert!(worker.shutdown_within(SOON).await, "the store knows");
    });
    say("in the parent: all is well");
}

/// With the handles of the parent.
fn in_child(url: &str, number: u32, handles: Handles) -> String {
    let Handles { worker, own, campaign, mut changes } = handles;
    assert!(!own.holds() && !campaign.is_owner() && campaign.gate().is_none() && own.remaining().is_zero());
    let runtime = runtime();
    runtime.block_on(async {
        let refused = worker.campaign("late").acquire().await.expect_err("it is the parent's");
        assert_eq!(refused.kind(), ErrorKind::Forked);
        assert!(refused.to_string().contains("forked"), "{refused}");
        assert_eq!(
            worker.subscribe("job").await.map(drop).map_err(|error| error.kind()),
            Err(ErrorKind::Forked)
        );
        assert_eq!(campaign.owners().await.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Forked));
        own.lost().await;
        assert_eq!(changes.next().await, None);
        campaign.step_down().await;
        campaign.stop().await;
        assert!(!worker.shutdown_within(SOON).await, "it was not done here");
        own.release().await;
        drop((worker, campaign, changes));

        let label = format!("child-{number}");
        let worker = connect(url, &label).await;
        let own = worker.campaign(&label).acquire_within(SOON).await.expect("a ticket");
        assert!(own.holds());
        let other = worker.campaign("job").try_acquire().await.expect("an answer");
        // A store in memory is in the memory of one process.
        assert_eq!(other.is_some(), url.starts_with("memory:"), "the parent owns it");
        own.release().await;
        drop(other);
        assert!(worker.shutdown_within(SOON).await);
    });
    "all is well".to_owned()
}
