//! Real processes on one SQLite file, killed, stopped and held up as people and machines do.
#![cfg(all(feature = "sqlite", target_os = "linux"))]

mod child;
mod cron;
mod examples;
mod hello;
mod pauses;
mod rounds;
mod signals;
mod worker;

use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a condition may take to come true. Nothing here should ever come near it.
const LIMIT: Duration = Duration::from_secs(30);

/// Looks again and again until there is something.
fn await_some<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    testkit::find(LIMIT, what, look)
}

/// Where cargo puts an example: beside the folder of this test's binary.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let target = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/NAME");
    target.join("examples").join(name)
}
