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

/// How much memory of this process is in RAM.
pub(crate) fn resident_bytes() -> Result<usize, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in the status")?;
    let kilobytes: usize = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}
