//! Real processes on one SQLite file, killed, stopped and held up as people and machines do.
#![cfg(all(feature = "sqlite", target_os = "linux"))]

mod book;
mod checker;
mod checker_can_fail;
mod child;
mod cron;
mod examples;
mod hello;
mod pauses;
mod rounds;
mod signals;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a condition may take to come true. Nothing here should ever come near it.
const LIMIT: Duration = Duration::from_secs(30);

/// A folder that goes with the test, for one database and the books of its workers.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("tenure-processes-{name}-{unique}"));
        std::fs::create_dir(&folder).expect("a folder");
        Self(folder)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays behind harms nobody.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// Looks again and again until there is something, and says so if there never is.
fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let pause = Duration::from_millis(1);
    let mut until = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "never saw {what}");
        let began = Instant::now();
        std::thread::sleep(pause);
        // A machine that stood still did not let what is awaited go on, either.
        until += began.elapsed().saturating_sub(pause);
    }
}

/// Where cargo puts an example: beside the folder of this test's binary.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let target = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/NAME");
    target.join("examples").join(name)
}
