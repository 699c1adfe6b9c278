//! A wall clock of a server's own: a small library, preloaded into the server, adds an offset that the test moves.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

const SOURCE: &str = include_str!("shim.c");

/// The wall clock of one server. Its steps are seen at once, its monotonic clocks stay as they are.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    page: PathBuf,
    offset: Mutex<(File, i64)>,
}

/// Which way a clock is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Into the future.
    Forward(Duration),
    /// Into the past.
    Back(Duration),
}

impl Clock {
    /// Builds the library in `folder`, with an offset of nothing.
    ///
    /// # Panics
    /// When there is no C compiler.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
        std::fs::write(&source, SOURCE).expect("the source of the clock");
        let mut build = Command::new("cc");
        build.args(["-O2", "-Wall", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        let built = build.output().expect("`cc` is not installed; on Debian: apt-get install gcc libc6-dev");
        assert!(built.status.success(), "cc: {}", String::from_utf8_lossy(&built.stderr));
        let page = folder.join("clock");
        let mut open = OpenOptions::new();
        let file = open.create(true).truncate(true).read(true).write(true).open(&page).expect("a file");
        let clock = Self { library, page, offset: Mutex::new((file, 0)) };
        clock.step(Step::Forward(Duration::ZERO));
        clock
    }

    /// Has `command` run on this clock.
    pub fn wind(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("TESTKIT_CLOCK", &self.page);
    }

    /// Sets it forward or back from where it is.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn step(&self, step: Step) {
        let micros =
            |span: Duration| i64::try_from(span.as_micros()).expect("a span of less than 292 000 years");
        let by = match step {
            Step::Forward(span) => micros(span),
            Step::Back(span) => -micros(span),
        };
        let mut offset = self.offset.lock().expect("nobody panics in here");
        offset.1 += by;
        // One aligned word, written at once: the server reads the old or the new one.
        offset.0.write_all_at(&offset.1.to_ne_bytes(), 0).expect("the offset of the clock");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(clock: &Clock) -> i64 {
        let mut date = Command::new("date");
        date.arg("+%s");
        clock.wind(&mut date);
        let shown = date.output().expect("`date` runs").stdout;
        String::from_utf8_lossy(&shown).trim().parse().expect("seconds")
    }

    #[test]
    fn a_program_on_the_clock_sees_its_steps() {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::in_folder(folder.path());
        let before = shown(&clock);

        clock.step(Step::Forward(Duration::from_secs(1_000)));
        let later = shown(&clock);
        clock.step(Step::Back(Duration::from_secs(2_000)));
        let earlier = shown(&clock);

        assert!((1_000..1_010).contains(&(later - before)), "{before} {later}");
        assert!((-1_000..-990).contains(&(earlier - before)), "{before} {earlier}");
    }
}
