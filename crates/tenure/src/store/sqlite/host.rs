//! The host as the store sees it: which boot this is, what time it is, and which process asks.

use std::fs;
use std::path::Path;

use tenure_core::StoreTime;

use crate::Error;
use crate::clock::Clocks;

/// Which boot this is and how its clock is read.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) boot: String,
    /// By how much this time namespace's BOOTTIME is ahead of the host's, in microseconds.
    shifted_us: i64,
    pub(super) process: Process,
}

/// A process, so that another one of the same pid namespace can recognise it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// In ticks since the boot. With the pid it names one process.
    pub(super) started: i64,
    pub(super) pid_ns: String,
}

impl Host {
    pub(super) fn new() -> Result<Self, Error> {
        let boot = read("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let pid = i32::try_from(std::process::id()).map_err(|_| Error::refused("this process has no pid"))?;
        let started = started(pid).ok_or_else(|| Error::refused("cannot read `/proc/self/stat`"))?;
        let pid_ns = link("/proc/self/ns/pid")?;
        Ok(Self { boot, shifted_us: shift()?, process: Process { pid, started, pid_ns } })
    }

    /// The host's BOOTTIME, the same in every time namespace, in microseconds.
    pub(super) fn boottime_us(&self) -> i64 {
        let shown = i64::try_from(Clocks::System.now().boot_micros()).unwrap_or(i64::MAX);
        shown.saturating_sub(self.shifted_us)
    }

    /// The store's time, which is `ahead_us` ahead of BOOTTIME.
    pub(super) fn now(&self, ahead_us: i64) -> StoreTime {
        super::rows::time(self.boottime_us().saturating_add(ahead_us))
    }

    pub(super) fn wall() -> u64 {
        Clocks::System.wall()
    }
}

impl Process {
    /// Whether this very process is to be seen from here: the pid alone may be another's by now.
    pub(super) fn runs(&self) -> bool {
        started(self.pid) == Some(self.started)
    }
}

/// When the process started, if it is there. The name in the second field may hold anything, so it is read from
/// the last parenthesis on.
fn started(pid: i32) -> Option<i64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, fields) = stat.rsplit_once(')')?;
    // The 22nd field of all; the first after the name is the third.
    fields.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// What the time namespace adds to BOOTTIME.
fn shift() -> Result<i64, Error> {
    let Ok(offsets) = fs::read_to_string("/proc/self/timens_offsets") else {
        // A kernel without time namespaces.
        return Ok(0);
    };
    // The file tells of the namespace that children will be in. That is our own, or we cannot know our own.
    if link("/proc/self/ns/time")? != link("/proc/self/ns/time_for_children")? {
        return Err(Error::refused(
            "this process left its time namespace for its children only: its clock cannot be compared with others",
        ));
    }
    parse_shift(&offsets).ok_or_else(|| Error::refused("cannot make sense of `/proc/self/timens_offsets`"))
}

/// The offset of `boottime` (which older kernels call 7), in microseconds.
pub(super) fn parse_shift(offsets: &str) -> Option<i64> {
    for line in offsets.lines() {
        let mut fields = line.split_whitespace();
        if matches!(fields.next()?, "boottime" | "7") {
            let seconds: i64 = fields.next()?.parse().ok()?;
            let nanos: i64 = fields.next()?.parse().ok()?;
            return seconds.checked_mul(1_000_000)?.checked_add(nanos / 1000);
        }
    }
    Some(0)
}

fn read(path: &str) -> Result<String, Error> {
    fs::read_to_string(path)
        .map_err(|error| super::trouble::refused_by_kernel("read", Path::new(path), error))
}

fn link(path: &str) -> Result<String, Error> {
    let target = fs::read_link(path)
        .map_err(|error| super::trouble::refused_by_kernel("read", Path::new(path), error))?;
    Ok(target.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shift_of_a_time_namespace_is_read_by_name_and_by_number() {
        assert_eq!(parse_shift("monotonic 5 0\nboottime -7 500000000\n"), Some(-6_500_000));
        assert_eq!(parse_shift("1 5 0\n7 3 0\n"), Some(3_000_000));
        assert_eq!(parse_shift("boottime x 0"), None);
    }

    #[test]
    fn this_process_runs_and_another_of_its_pid_does_not() {
        let host = Host::new().expect("Linux");
        let other = Process { started: host.process.started + 1, ..host.process.clone() };

        assert!(host.process.runs() && !other.runs());
    }
}
