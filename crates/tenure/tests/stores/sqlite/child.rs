//! What the test program does as another process: it is started again with a role.

use std::path::Path;
use std::process::Command;

use testkit::child::{Child, again, say};

use super::*;

const ROLE: &str = "TENURE_TEST_ROLE";
const FILE: &str = "TENURE_TEST_FILE";

/// Another process of this program, which has done what its role tells, and waits to be killed.
pub(crate) struct Process {
    child: Child,
    pub(crate) told: String,
}

impl Process {
    /// Starts one, and waits until it is ready.
    pub(crate) fn start(role: &str, file: &Path) -> Self {
        Self::run(again(module_path!(), &[]), role, file)
    }

    /// The same in a namespace of its own.
    pub(crate) fn start_in(namespace: &[&str], role: &str, file: &Path) -> Self {
        Self::run(again(module_path!(), &[&["unshare"], namespace].concat()), role, file)
    }

    /// The same within a mount namespace, after `mounts` was run there on the file's folder, `$0`.
    pub(crate) fn start_mounted(role: &str, file: &Path, mounts: &str) -> Self {
        let script = format!("{mounts} && exec \"$@\"");
        let folder = file.parent().and_then(Path::to_str).expect("a folder");
        Self::run(again(module_path!(), &["unshare", "--mount", "sh", "-c", &script, folder]), role, file)
    }

    fn run(mut command: Command, role: &str, file: &Path) -> Self {
        command.env(ROLE, role).env(FILE, file);
        let child = Child::start(command);
        let told = child.hears();
        Self { child, told }
    }

    /// What it says next.
    pub(crate) fn hears(&self) -> String {
        self.child.hears()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill();
    }
}

/// Not a test but the other process; without a role it is over at once.
#[tokio::test]
async fn a_child_plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let file = PathBuf::from(std::env::var_os(FILE).expect("a file"));
    match role.as_str() {
        "owner" | "brief owner" | "helped owner" => {
            let store = open(&file);
            let ttl = if role == "brief owner" { BRIEF } else { LONG };
            let mut owner = Asker::opened(&store, "child", ttl).await;
            owner.granted("job").await;
            let helper = if role == "helped owner" { help(&store, owner.lease) } else { 0 };
            wait_to_be_killed(&helper.to_string());
        }
        "owner without proof" => {
            let store = SqliteStore::open_without_proof(&file, &Namespace::default()).expect("it opens");
            let mut owner = Asker::opened(&store, "child", BRIEF).await;
            owner.granted("job").await;
            // Kept alive until the one who waits for this line can see it.
            assert!(matches!(owner.said(Call::Renew).await, Said::Kept { .. }));
            wait_to_be_killed("");
        }
        "waiter" => {
            let store = open(&file);
            let mut waiter = Asker::opened(&store, "child", LONG).await;
            waiter.waits("job").await;
            wait_to_be_killed("");
        }
        "heir" => {
            let store = open(&file);
            let mut heir = Asker::opened(&store, "child", LONG).await;
            let mut hints = heir.hints().await;
            heir.waits("job").await;
            say("waits");
            heir.wins("job", &mut hints).await;
            wait_to_be_killed("owns");
        }
        "working owner" => {
            let worker = tenure::Worker::connect(&format!("sqlite:{}", file.display())).await;
            let worker = worker.expect("a worker");
            let own = worker.campaign("job").acquire().await.expect("a ticket");
            wait_to_be_killed(&own.token().to_string());
        }
        "hurry" => {
            let begun = jobs::hurry(&open(&file), 60).await;
            wait_to_be_killed(&begun.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
        }
        "runner" | "speaker" => {
            let store = open(&file);
            let mut owner = Asker::opened(&store, "child", LONG).await;
            let grant = owner.granted("job").await;
            let holder = owner.holder("job", grant);
            if role == "runner" {
                jobs::step(&store, &holder, jobs::attend()).await;
                let said = jobs::step(&store, &holder, jobs::begin(7)).await;
                assert!(matches!(said, tenure_core::JobSaid::Begun(_)), "{said:?}");
            } else {
                let payload = tenure_core::Payload::new(b"hello").expect("short");
                let said = store.publish(&holder, &payload).await.expect("an answer");
                assert_eq!(said, tenure_core::Published::Sent);
            }
            wait_to_be_killed(&grant.token.0.to_string());
        }
        "subscriber" => {
            let store = open(&file);
            let _messages = store.subscribe(&name("job")).await.expect("a subscription");
            wait_to_be_killed("");
        }
        "filler" => {
            let store = open(&file);
            let mut owner = Asker::opened(&store, "child", LONG).await;
            let error = fill(&mut owner).await;
            let kept = owner.ask(Call::Renew).await.map(|answer| answer.said);
            wait_to_be_killed(&format!("{:?}: {error}; then {kept:?}", error.kind()));
        }
        other => panic!("there is no role {other:?}"),
    }
}

/// A process that holds the lock together with this one. Returns its pid.
fn help(store: &SqliteStore, lease: LeaseId) -> u32 {
    let lock = store.share_lock(lease).expect("an answer").expect("the lock is ours");
    Command::new("sleep").arg("60").stdin(lock).spawn().expect("a helper").id()
}

/// Claims until the disk is full.
async fn fill(owner: &mut Asker<'_>) -> tenure::Error {
    for piece in 0.. {
        let long = "x".repeat(180);
        let want =
            |i| Want { resource: name(&format!("{long}{piece}.{i}")), tickets: Tickets::ONE, priority: 0 };
        if let Err(error) = owner.ask(Call::Claim((0..250).map(want).collect())).await {
            return error;
        }
    }
    unreachable!("the disk never fills")
}

fn wait_to_be_killed(told: &str) {
    say(told);
    std::thread::sleep(Duration::from_secs(60));
}
