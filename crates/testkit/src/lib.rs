//! Real servers on free ports in temporary folders, and the bad things that happen to them: they are stopped,
//! killed, paused, restarted and wiped, their clocks jump, and the link to them delays, drops, cuts and hangs.
//!
//! A server that is not installed is a failure with the name of the package, never a skipped test. Everything here
//! panics with a sentence when it cannot do what it is asked: a test has no use for a kit that half works.

pub mod book;
#[cfg(target_os = "linux")]
pub mod child;
pub mod dice;
#[cfg(target_os = "linux")]
pub mod disk;
pub mod fuzz;
#[cfg(target_os = "linux")]
pub mod judge;
mod kind;
#[cfg(target_os = "linux")]
pub mod metronome;
pub mod observer;
#[cfg(target_os = "linux")]
pub mod part;
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

use std::panic::Location;
use std::time::{Duration, Instant};

pub use tempfile::TempDir;

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

/// How long [`until`] and [`soon`] wait. Nothing that works should ever come near it.
const LIMIT: Duration = Duration::from_secs(120);

/// Waits until `happened` says so, and panics with `what` when it has not within `limit`.
///
/// # Panics
/// When it takes longer.
pub fn eventually(limit: Duration, what: &str, mut happened: impl FnMut() -> bool) {
    find(limit, what, || happened().then_some(()));
}

/// Looks until there is something, and panics with `what` when there is nothing within `limit`.
///
/// # Panics
/// When it takes longer.
pub fn find<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let pause = Duration::from_millis(2);
    let mut until = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "not within {limit:?}: {what}");
        let began = Instant::now();
        std::thread::sleep(pause);
        // A machine that stood still did not let anything else go on, either.
        until += began.elapsed().saturating_sub(pause);
    }
}

/// Waits in a task until `is_so`, and panics with the caller's line when it takes too long.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) -> impl Future<Output = ()> {
    soon(async move {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
}

/// What a future comes to, which must not take long. Panics with the caller's line when it does.
#[track_caller]
pub fn soon<T>(coming: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let came = tokio::time::timeout(LIMIT, coming).await;
        came.unwrap_or_else(|_| panic!("not within {LIMIT:?}: what {caller} waits for"))
    }
}

/// A folder that goes with the test.
///
/// # Panics
/// When there is no place for one.
#[must_use]
pub fn folder() -> TempDir {
    tempfile::Builder::new().prefix("tenure-test-").tempdir().expect("a folder")
}
