//! The temporary store of the demo and its worker processes. Dropping the stage removes both.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tenure::Timing;
use tenure::admin::Admin;

use super::lives::Lives;
use crate::exit::Failure;

/// The file in which the workers write down when they work.
pub(super) const LIVES: &str = "lives";

/// The store in the folder of the demo.
pub(super) fn store_in(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("tenure.db").display())
}

pub(super) struct Stage {
    folder: PathBuf,
    pub(super) timing: Timing,
    pub(super) store: Admin,
    pub(super) lives: Lives,
    pub(super) workers: Vec<Player>,
    is_planted: bool,
}

/// One worker process.
pub(super) struct Player {
    child: Child,
    pub(super) name: String,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Runs,
    Paused,
    Dead,
}

impl Player {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Stage {
    pub(super) async fn build(timing: Timing, is_planted: bool) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("tenure-demo-{}", std::process::id()));
        let built = std::fs::DirBuilder::new().mode(0o700).create(&folder).and_then(|()| {
            File::create_new(folder.join(LIVES))?;
            File::open(folder.join(LIVES))
        });
        let lives = Lives::of(built.map_err(|error| {
            Failure::new(format!("cannot set the demo up in `{}`", folder.display())).because(&error)
        })?);
        let store = Admin::open(&store_in(&folder)).await.inspect_err(|_| {
            let _left = std::fs::remove_dir_all(&folder);
        })?;
        Ok(Self { folder, timing, store, lives, workers: Vec::new(), is_planted })
    }

    /// Starts another worker.
    pub(super) fn add(&mut self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::new("cannot start a worker").because(&error);
        let name = format!("w{}", self.workers.len() + 1);
        let ttl = format!("{}ms", self.timing.ttl().as_millis());
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["demo-worker", "--name", &name, "--ttl", &ttl, "--folder"]).arg(&self.folder);
        command.args(self.is_planted.then_some("--plant"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        self.workers.push(Player { child, name, state: State::Runs });
        Ok(())
    }

    pub(super) fn kill(&mut self, at: usize) {
        self.send(at, Signal::KILL, State::Dead);
    }

    pub(super) fn pause(&mut self, at: usize) {
        if self.workers[at].state == State::Runs {
            self.send(at, Signal::STOP, State::Paused);
        }
    }

    pub(super) fn resume_all(&mut self) {
        for at in 0..self.workers.len() {
            if self.workers[at].state == State::Paused {
                self.send(at, Signal::CONT, State::Runs);
            }
        }
    }

    fn send(&mut self, at: usize, signal: Signal, then: State) {
        let player = &mut self.workers[at];
        // Not reaped yet, so the pid is still this worker's.
        if player.state != State::Dead {
            let _dead = kill_process(Pid::from_child(&player.child), signal);
            player.state = then;
        }
        if then == State::Dead {
            let _reaped = player.child.wait();
        }
    }

    /// Notices those who died by themselves.
    pub(super) fn look_after(&mut self) {
        for player in &mut self.workers {
            if player.state != State::Dead && matches!(player.child.try_wait(), Ok(Some(_)) | Err(_)) {
                player.state = State::Dead;
            }
        }
    }

    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.workers.iter().position(|player| player.name == name)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        (0..self.workers.len()).for_each(|at| self.kill(at));
        let _left = std::fs::remove_dir_all(&self.folder);
    }
}
