//! What the kernel says of a process: how long it has been running on a core, and how much memory it has in RAM.

use std::time::Duration;

use crate::Failure;

/// How long all threads of a process have been running on a core so far. To the nanosecond, where /proc/PID/stat counts
/// in hundredths of a second. What threads did that have ended since is not in it.
pub(crate) fn on_cpu(pid: u32) -> Result<Duration, Failure> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// How long the children that this process has reaped had been running on a core, in all. To a hundredth of a second,
/// and only when one of them has been reaped does it change.
pub(crate) fn of_reaped_children(pid: u32) -> Result<Duration, Failure> {
    /// What the kernel counts in for users, whatever it ticks at.
    const PER_SECOND: u64 = 100;
    /// After the name, which stands in brackets and may hold anything: user and system time of the children.
    const FIELDS: [usize; 2] = [13, 14];
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, stat) = stat.rsplit_once(") ").ok_or("a process without a name")?;
    let fields: Vec<&str> = stat.split(' ').collect();
    let mut ticks = 0;
    for field in FIELDS {
        ticks += fields.get(field).ok_or("too few fields")?.parse::<u64>()?;
    }
    Ok(Duration::from_millis(ticks * 1_000 / PER_SECOND))
}

/// How much memory of this process is in RAM.
pub(crate) fn resident_bytes() -> Result<usize, Failure> {
    resident_bytes_of("self")
}

/// The same of another one, by its pid.
pub(crate) fn resident_bytes_of(pid: &str) -> Result<usize, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in the status")?;
    let kilobytes: usize = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}
