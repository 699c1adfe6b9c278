//! The process tree below this process, which is its subreaper: an orphan becomes our child.
//!
//! - Killed is by children, never by group: kill the children until none is left. Only a child's pid cannot become another's
//!   while we look.
//! - Gone is the tree when the kernel says that there are no children (ECHILD), and not before.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal, wait,
};

/// So often it is looked for processes that were not told yet. One that starts others faster is killed later.
const ROUNDS: usize = 32;
/// So many are held at a time: descriptors are scarce, and looking takes some, too.
const MOST_HELD: usize = 128;

/// What became of the children, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Reaped {
    /// Those that have ended, with their raw statuses.
    pub(crate) ended: Vec<(Pid, i32)>,
    /// Whether none is left.
    pub(crate) is_empty: bool,
}

/// Buries the children that have ended. Does not wait.
pub(crate) fn reap() -> Reaped {
    let mut reaped = Reaped::default();
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => reaped.ended.push((pid, status.as_raw())),
            Ok(None) => return reaped,
            Err(Errno::INTR) => {}
            Err(error) => {
                reaped.is_empty = error == Errno::CHILD;
                return reaped;
            }
        }
    }
}

/// Kills every child but these. What they leave behind becomes ours: come again until none is left.
pub(crate) fn kill_children(but: &[Pid]) {
    for child in children(getpid()).into_iter().filter(|child| !but.contains(child)) {
        // An error means that it has ended, or is not ours to kill.
        let _gone = kill_process(child, Signal::KILL);
    }
}

/// Sends a signal to everything below this process, once, and lets what is stopped run so that it can obey.
pub(crate) fn signal_all(signal: Signal) {
    let mut told: Vec<Pid> = Vec::new();
    // Who loses its parent by the signal is found in another place.
    for _ in 0..ROUNDS {
        // All are held before the first one is told.
        let found = below(getpid(), &told);
        if found.is_empty() {
            return;
        }
        for (pid, held) in found {
            for signal in [signal, Signal::CONT] {
                let _gone = pidfd_send_signal(&held, signal);
            }
            told.push(pid);
        }
    }
}

/// Kills everything below another process, which is its subreaper: come again until that one says that nothing is left.
pub(crate) fn kill_below(process: Pid) {
    for (_, held) in below(process, &[]) {
        let _gone = pidfd_send_signal(&held, Signal::KILL);
    }
}

/// What is below a process, but for those who know already: as many as can be held at a time. A pid may become another's
/// between two looks; so a child counts only while both, it and its parent, are seen to be what they were.
fn below(process: Pid, knowing: &[Pid]) -> Vec<(Pid, OwnedFd)> {
    let (mut parents, mut below) = (vec![(process, None)], Vec::<(Pid, OwnedFd)>::new());
    while let Some((parent, place)) = parents.pop() {
        for child in children(parent) {
            if knowing.contains(&child) {
                parents.push((child, None));
                continue;
            }
            if below.len() == MOST_HELD {
                return below;
            }
            let held = pidfd_open(child, PidfdFlags::empty()).ok();
            let is_ours = || {
                parent_of(child) == Some(parent)
                    && place.is_none_or(|place: usize| !has_ended(&below[place].1))
            };
            if let Some(held) = held.filter(|_| is_ours()) {
                parents.push((child, Some(below.len())));
                below.push((child, held));
            }
        }
    }
    below
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// How many there are below this process.
pub(crate) fn count() -> usize {
    let (mut parents, mut count) = (vec![getpid()], 0);
    while let Some(parent) = parents.pop() {
        let children = children(parent);
        count += children.len();
        parents.extend(children);
    }
    count
}

/// The children of a process. Those that come and go meanwhile may be missing.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    by_thread(parent).unwrap_or_else(|_| by_parent(parent))
}

/// As the kernel lists them, where it does (CONFIG_PROC_CHILDREN).
fn by_thread(parent: Pid) -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero()))? {
        let listed = std::fs::read_to_string(thread?.path().join("children"))?;
        children.extend(listed.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Ok(children)
}

/// All whose parent it is.
fn by_parent(parent: Pid) -> Vec<Pid> {
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = all.flatten().filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// Whether a process was stopped, is held by a tracer, or is dead: it does not go on by itself.
pub(crate) fn stands_still(pid: Pid) -> bool {
    field(pid, 0).is_none_or(|state| matches!(state.as_str(), "T" | "t" | "Z" | "X"))
}

fn parent_of(pid: Pid) -> Option<Pid> {
    Pid::from_raw(field(pid, 1)?.parse().ok()?)
}

/// What the kernel says of a process: its state, its parent, ...
fn field(pid: Pid, number: usize) -> Option<String> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name before it, in brackets, may hold anything.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[end + 1..]).ok()?;
    fields.split_whitespace().nth(number).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use super::*;

    /// Of a process with one thread: while threads end, the kernel's list may be missing one, which is why there are two ways.
    #[test]
    fn children_are_found_by_both_ways_of_looking() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 600 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut said = String::new();
        io::BufReader::new(shell.stdout.take().expect("a pipe")).read_line(&mut said).expect("a line");
        let (parent, child) = (Pid::from_child(&shell), said.trim().parse().ok().and_then(Pid::from_raw));
        let child = child.expect("a pid");

        let (by_thread, by_parent) = (by_thread(parent), by_parent(parent));
        let ran = [parent, child].map(|pid| !stands_still(pid));
        kill_process(child, Signal::KILL).expect("it dies");
        shell.wait().expect("it ends");

        assert_eq!(by_thread.expect("a list"), [child]);
        assert_eq!(by_parent, [child]);
        assert_eq!(ran, [true, true]);
        assert!(parent_of(parent).is_none() && stands_still(parent));
    }
}
