//! What the test program does as another process: it is started again with a role.

use std::process::Command;

use testkit::child::{Child, again, say};

use super::*;
use tenure::store::backend::Channel;

const ROLE: &str = "TENURE_TEST_ROLE";
const FILE: &str = "TENURE_TEST_FILE";
/// The lease of every child.
pub(crate) const LEASE: LeaseId = LeaseId(0xC41D);

/// Another process of this program. It is killed when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// What it said first.
    pub(crate) said: String,
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
        let said = child.hears();
        Self { child, said }
    }

    /// The text that proves its life.
    pub(crate) fn info(&self) -> Text {
        self.said.as_str().into()
    }
}

/// Not a test but the other process; without a role it is over at once.
#[tokio::test]
async fn a_child_plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let file = PathBuf::from(std::env::var_os(FILE).expect("a file"));
    match role.as_str() {
        "worker" => {
            let store = open(&file);
            vouch(&store).await;
        }
        "worker without proof" => {
            let store = SqliteBackend::open_without_proof(&file, &Namespace::default()).expect("it opens");
            vouch(&store).await;
        }
        "helped worker" => {
            let store = open(&file);
            let info = witness(&store).vouch(LEASE).await.expect("a text");
            let lock = witness(&store).share_lock(LEASE).expect("an answer").expect("a lock");
            let mut helper = Command::new("sleep").arg("60").stdin(lock).spawn().expect("a helper");
            say(info.as_str());
            say(&helper.id().to_string());
            // To be killed, both.
            let _ended = helper.wait();
        }
        "listener" => {
            let store = open(&file);
            let (channels, mut signals) = store.listen().await.expect("it listens");
            channels.follow(Channel::new("one")).await.expect("it follows");
            say("ready");
            while let Some(heard) = signals.recv().await {
                say(heard.text.as_str());
            }
        }
        "sender" => {
            let store = open(&file);
            let signal = Signal { to: vec![Channel::new("one")], text: "from another process".into() };
            let change = Change { signals: vec![signal], ..write(&Key::Meta, Version::NONE, "{}") };
            assert!(is_done(&commit_one(&store, change).await));
            say("sent");
            wait_to_be_killed();
        }
        "counter" => {
            let store = open(&file);
            say("ready");
            commits::count(&store, 200).await;
            say("done");
        }
        "clock" => {
            let store = open(&file);
            say(&snapshot(&store, &[]).await.now.expect("a clock").as_micros().to_string());
        }
        "opener" => {
            let error = SqliteBackend::open(&file, &Namespace::default()).expect_err("it must not open");
            say(&format!("{:?}: {error}", error.kind()));
        }
        other => panic!("there is no role {other:?}"),
    }
}

async fn vouch(store: &SqliteBackend) {
    let info = witness(store).vouch(LEASE).await.expect("a text");
    say(info.as_str());
    wait_to_be_killed();
}

fn wait_to_be_killed() {
    std::thread::sleep(Duration::from_secs(60));
}
