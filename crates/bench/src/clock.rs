//! BOOTTIME, the one clock that all processes of a host share, read as the library reads it.

use std::time::Duration;

/// What the clock shows.
pub(crate) fn boottime() -> Duration {
    let time = read();
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// One `clock_gettime`, and nothing else.
#[inline]
#[allow(unsafe_code)] // Reading a clock of the kernel.
pub(crate) fn read() -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for one timespec, and lives for the whole call.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time
}

/// How many nanoseconds it is ahead of MONOTONIC, for those who can read only that.
#[allow(unsafe_code)] // Reading a clock of the kernel.
pub(crate) fn boottime_ahead() -> i64 {
    let mut monotonic = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let boottime = read();
    // SAFETY: `monotonic` is a valid place for one timespec, and lives for the whole call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut monotonic) };
    (boottime.tv_sec - monotonic.tv_sec) * 1_000_000_000 + boottime.tv_nsec - monotonic.tv_nsec
}
