//! What proves that a worker is dead: its lock was won. A pidfd tells when it is worth trying.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};
use tenure_core::LeaseId;
use tokio::sync::mpsc::UnboundedSender;

use super::connection::Shared;
use super::host::Process;
use super::lock::{self, Tried};
use super::mailbox::Inbox;
use super::place::Identity;
use crate::Error;
use crate::store::backend::{Proof, Text};

/// A lock that is still held is tried again after this, then after twice as long, and so on: children of the dead
/// process may hold it, too.
const FIRST_RETRY: Duration = Duration::from_millis(1);
/// But never later than this.
const LAST_RETRY: Duration = Duration::from_millis(100);

/// What a worker's `info` record tells about its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) boot: String,
    pub(super) process: Process,
    /// The lock file; absent if the worker's death cannot be proved.
    pub(super) lock: Option<Identity>,
}

impl Info {
    pub(super) fn to_text(&self) -> Text {
        let Process { pid, started, pid_namespace } = &self.process;
        let lock = self.lock.map(|lock| json!({ "dev": lock.dev, "ino": lock.ino }));
        let json = json!({
            "boot": self.boot, "pid": pid, "started": started, "pid_namespace": pid_namespace, "lock": lock,
        });
        json.to_string().into()
    }

    /// Nothing if it is not a text of ours.
    pub(super) fn of(text: &Text) -> Option<Self> {
        let json: Value = serde_json::from_str(text.as_str()).ok()?;
        let number = |value: &Value, name| value.get(name)?.as_i64();
        let words = |name| json.get(name)?.as_str().map(str::to_owned);
        let lock = match json.get("lock") {
            None | Some(Value::Null) => None,
            Some(lock) => Some(Identity { dev: number(lock, "dev")?, ino: number(lock, "ino")? }),
        };
        let process = Process {
            pid: i32::try_from(number(&json, "pid")?).ok()?,
            started: number(&json, "started")?,
            pid_namespace: words("pid_namespace")?,
        };
        Some(Self { boot: words("boot")?, process, lock })
    }
}

/// Tries to prove that the worker of this lease is dead. Does not wait.
fn prove(shared: &Shared, lease: LeaseId, info: &Info) -> Tried {
    let Some(lock) = info.lock else { return Tried::Missing };
    // Device numbers may change with a boot.
    let same_boot = info.boot == shared.host.boot;
    let is_it = |found: Identity| found.ino == lock.ino && (found.dev == lock.dev || !same_boot);
    let path = lock::path(&shared.place.folder, lease);
    // A lock that cannot be tried, for instance because too many files are open, may be held.
    lock::try_win(&path, is_it).unwrap_or(Tried::Held)
}

/// The thread that watches other workers.
pub(super) struct Watcher {
    shared: Arc<Shared>,
    /// Each message is the whole list of those to watch.
    inbox: Inbox<Vec<(LeaseId, Text)>>,
    watched: HashMap<LeaseId, Watched>,
    deaths: UnboundedSender<Proof>,
}

struct Watched {
    text: Text,
    info: Info,
    /// Readable when the process is dead. Absent when that is known, or cannot be seen.
    pidfd: Option<OwnedFd>,
    /// When to try the lock, and after how long again.
    next_try: Option<(Instant, Duration)>,
}

impl Watcher {
    pub(super) fn start(
        shared: Arc<Shared>,
        inbox: Inbox<Vec<(LeaseId, Text)>>,
        deaths: UnboundedSender<Proof>,
    ) -> Result<(), Error> {
        let watcher = Self { shared, inbox, watched: HashMap::new(), deaths };
        std::thread::Builder::new()
            .name("tenure-sqlite-witness".to_owned())
            .spawn(move || watcher.run())
            .map_err(|error| Error::unavailable("cannot start a thread for the store").because(error))?;
        Ok(())
    }

    fn run(mut self) {
        loop {
            let dead = self.wait();
            let Some(lists) = self.inbox.take() else { return };
            let now = Instant::now();
            for lease in dead {
                if let Some(watched) = self.watched.get_mut(&lease) {
                    watched.pidfd = None;
                    watched.next_try = Some((now, FIRST_RETRY));
                }
            }
            if let Some(list) = lists.into_iter().next_back() {
                self.watch(list);
            }
            self.try_locks();
        }
    }

    /// Waits until there is something to do, and returns whose process has died.
    fn wait(&self) -> Vec<LeaseId> {
        let mut leases = Vec::new();
        let mut fds = vec![PollFd::from_borrowed_fd(self.inbox.bell(), PollFlags::IN)];
        for (lease, watched) in &self.watched {
            if let Some(pidfd) = &watched.pidfd {
                fds.push(PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN));
                leases.push(*lease);
            }
        }
        let next = self.watched.values().filter_map(|watched| watched.next_try).map(|(at, _)| at).min();
        let limit = next.map(|at| at.saturating_duration_since(Instant::now()));
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        if poll(&mut fds, limit.as_ref()).is_err() {
            // Interrupted, or out of memory for a moment.
            std::thread::sleep(FIRST_RETRY);
        }
        let dead = leases.into_iter().zip(&fds[1..]).filter(|(_, fd)| !fd.revents().is_empty());
        dead.map(|(lease, _)| lease).collect()
    }

    fn watch(&mut self, list: Vec<(LeaseId, Text)>) {
        let mut before = std::mem::take(&mut self.watched);
        for (lease, text) in list {
            let known = before.remove(&lease).filter(|watched| watched.text == text);
            let watched = known.or_else(|| Watched::new(text, &self.shared.host.process));
            self.watched.extend(watched.map(|watched| (lease, watched)));
        }
    }

    /// Tries the locks whose time has come.
    fn try_locks(&mut self) {
        let now = Instant::now();
        for (lease, watched) in &mut self.watched {
            let Some((_, after)) = watched.next_try.filter(|(at, _)| *at <= now) else { continue };
            watched.next_try = match prove(&self.shared, *lease, &watched.info) {
                Tried::Won(lock) => {
                    // If nobody takes it the store is being dropped.
                    let _ = self.deaths.send(Proof { lease: *lease, held: lock.into() });
                    // As long as it is watched, the end of its lease is not written down. Then it is proved again.
                    Some((now + LAST_RETRY, LAST_RETRY))
                }
                Tried::Held => Some((now + after, (after * 2).min(LAST_RETRY))),
                // Nothing can be proved any more: the lease runs out.
                Tried::Missing => None,
            };
        }
    }
}

impl Watched {
    /// Nothing for a worker of this process, which dies with it, and for one whose death cannot be proved.
    fn new(text: Text, this: &Process) -> Option<Self> {
        let info = Info::of(&text).filter(|info| info.lock.is_some() && info.process != *this)?;
        let pidfd = watch_process(&info.process, this);
        // If the process is gone, or cannot be seen, only the lock can tell.
        let next_try = pidfd.is_none().then(|| (Instant::now(), FIRST_RETRY));
        Some(Self { text, info, pidfd, next_try })
    }
}

/// A descriptor that becomes readable when this very process dies.
fn watch_process(process: &Process, this: &Process) -> Option<OwnedFd> {
    if process.pid_namespace != this.pid_namespace {
        return None;
    }
    let pidfd = pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok()?;
    // Checked after the descriptor was opened: from then on the pid cannot belong to another process unnoticed.
    process.runs().then_some(pidfd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_survives_its_text_and_garbage_is_no_info() {
        let process = Process { pid: 7, started: i64::MAX, pid_namespace: "pid:[1]".to_owned() };
        let proved = Info { boot: "b".to_owned(), process, lock: Some(Identity { dev: -1, ino: i64::MIN }) };
        let unproved = Info { lock: None, ..proved.clone() };
        for info in [proved, unproved] {
            assert_eq!(Info::of(&info.to_text()), Some(info));
        }
        for garbage in
            ["", "{}", "7", r#"{"boot":"b","pid":7,"started":1,"pid_namespace":"","lock":{"dev":1}}"#]
        {
            assert_eq!(Info::of(&garbage.into()), None, "{garbage}");
        }
    }
}
