//! Real servers on free ports in temporary folders, and the bad things that happen to them: they are stopped,
//! killed, paused, restarted and wiped, their clocks jump, and the link to them delays, drops, cuts and hangs.
//!
//! A server that is not installed is a failure with the name of the package, never a skipped test. Everything here
//! panics with a sentence when it cannot do what it is asked: a test has no use for a kit that half works.

#[cfg(target_os = "linux")]
pub mod child;
pub mod dice;
#[cfg(target_os = "linux")]
pub mod disk;
pub mod fuzz;
mod kind;
#[cfg(target_os = "linux")]
pub mod metronome;
pub mod observer;
#[cfg(target_os = "linux")]
pub mod postgres;
#[cfg(target_os = "linux")]
pub mod process;
#[cfg(target_os = "linux")]
pub mod proxy;
#[cfg(target_os = "linux")]
pub mod redis;
#[cfg(test)]
mod requirements;
#[cfg(target_os = "linux")]
pub mod resp;
#[cfg(target_os = "linux")]
pub mod shim;

use std::time::{Duration, Instant};

pub use self::kind::StoreKind;

/// A point in time on the host's clock that counts suspend, in microseconds: one clock for all its processes.
pub type Micros = u64;

/// What it shows. Not by way of the C library: a shim in front of that does not move it.
///
/// # Panics
/// Before the machine has booted.
#[cfg(target_os = "linux")]
#[must_use]
pub fn boottime() -> Micros {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec).expect("after boot") * 1_000_000
        + u64::try_from(time.tv_nsec / 1000).expect("positive")
}

/// Waits until `happened` says so, and panics with `what` when it has not within `limit`.
///
/// # Panics
/// When it takes longer.
pub fn eventually(limit: Duration, what: &str, mut happened: impl FnMut() -> bool) {
    let until = Instant::now() + limit;
    while !happened() {
        assert!(Instant::now() < until, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
