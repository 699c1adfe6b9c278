//! The host as the store sees it: which boot this is, what time it is, and which process this is.

use std::fs;
use std::path::Path;

use super::error::io_error;
use crate::Error;
use crate::runtime::clock::Clocks;

/// The running system.
#[derive(Clone, Debug)]
pub(super) struct Host {
    /// The kernel draws it at random when it boots.
    pub(super) boot: String,
    /// By how much BOOTTIME in this process's time namespace is ahead of the host's, in microseconds.
    offset_us: i64,
    /// This process.
    pub(super) process: Process,
}

/// A process, so that another one of the same pid namespace can recognise it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// In ticks since the boot. Together with the pid it names one process.
    pub(super) started: i64,
    pub(super) pid_namespace: String,
}

impl Host {
    pub(super) fn new() -> Result<Self, Error> {
        let boot_id = Path::new("/proc/sys/kernel/random/boot_id");
        let boot = fs::read_to_string(boot_id).map_err(|error| io_error("read", boot_id, error))?;
        let pid = i32::try_from(std::process::id()).map_err(|_| Error::refused("this process has no pid"))?;
        let started = started(pid).ok_or_else(|| Error::refused("cannot read `/proc/self/stat`"))?;
        let process = Process { pid, started, pid_namespace: link("/proc/self/ns/pid")? };
        Ok(Self { boot: boot.trim().to_owned(), offset_us: offset()?, process })
    }

    /// The host's BOOTTIME in microseconds, the same in every time namespace.
    pub(super) fn boottime_us(&self) -> i64 {
        let shown = i64::try_from(Clocks::System.now().boot_micros()).unwrap_or(i64::MAX);
        shown.saturating_sub(self.offset_us)
    }

    /// The wall clock, in microseconds since 1970.
    pub(super) fn wall_us() -> u64 {
        Clocks::System.wall()
    }
}

impl Process {
    /// Whether this very process still exists. The pid alone could belong to another process by now.
    pub(super) fn runs(&self) -> bool {
        started(self.pid) == Some(self.started)
    }
}

/// When the process started, if it exists. The process name in the second field may contain anything, so the fields
/// are counted from the last parenthesis.
fn started(pid: i32) -> Option<i64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, fields) = stat.rsplit_once(')')?;
    // The start time is field 22; the first one after the name is field 3.
    fields.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// What this process's time namespace adds to BOOTTIME, in microseconds.
fn offset() -> Result<i64, Error> {
    let Ok(offsets) = fs::read_to_string("/proc/self/timens_offsets") else {
        // A kernel without time namespaces.
        return Ok(0);
    };
    // The file describes the namespace of future children. If that is not ours, ours cannot be found out.
    if link("/proc/self/ns/time")? != link("/proc/self/ns/time_for_children")? {
        return Err(Error::refused(
            "this process has a time namespace for its children only: its clock cannot be compared with others",
        ));
    }
    parse_offset(&offsets).ok_or_else(|| Error::refused("cannot parse `/proc/self/timens_offsets`"))
}

/// The offset of `boottime`, which older kernels call 7.
fn parse_offset(offsets: &str) -> Option<i64> {
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

fn link(path: &str) -> Result<String, Error> {
    let target = fs::read_link(path).map_err(|error| io_error("read", Path::new(path), error))?;
    Ok(target.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_read_by_name_and_by_number() {
        assert_eq!(parse_offset("monotonic 5 0\nboottime -7 500000000\n"), Some(-6_500_000));
        assert_eq!(parse_offset("1 5 0\n7 3 0\n"), Some(3_000_000));
        assert_eq!(parse_offset("boottime x 0"), None);
    }

    #[test]
    fn this_process_runs_and_another_with_its_pid_does_not() {
        let host = Host::new().expect("Linux");
        let other = Process { started: host.process.started + 1, ..host.process.clone() };

        assert!(host.process.runs() && !other.runs());
    }
}
