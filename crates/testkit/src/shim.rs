//! Clocks of a process's own: a small library, preloaded into it, adds offsets that the test moves.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

const SOURCE: &str = include_str!("shim.c");

/// The clocks of one process or of several. Their steps are seen at once; CLOCK_MONOTONIC stays as it is.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    page: PathBuf,
    offsets: Mutex<(File, Offsets)>,
}

/// What is added to a clock, in microseconds, in the order in which the library has them.
type Offsets = [i64; 3];
const WALL: usize = 0;
const RAW: usize = 1;
const BOOT: usize = 2;

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
        Self::with(library, folder.join("clock"))
    }

    /// Others that are moved apart from these, for another process, in a file of this name.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn another(&self, name: &str) -> Self {
        Self::with(self.library.clone(), self.page.with_file_name(name))
    }

    fn with(library: PathBuf, page: PathBuf) -> Self {
        let mut open = OpenOptions::new();
        let file = open.create(true).truncate(true).read(true).write(true).open(&page).expect("a file");
        file.set_len(size_of::<Offsets>() as u64).expect("a file of that size");
        Self { library, page, offsets: Mutex::new((file, Offsets::default())) }
    }

    /// Has `command` run on this clock.
    pub fn wind(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("TESTKIT_CLOCK", &self.page);
    }

    /// Sets the wall clock forward or back from where it is.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn step(&self, step: Step) {
        self.add(WALL, step);
    }

    /// The clock that does not count suspend (CLOCK_MONOTONIC_RAW) has stood still for so long.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn stand_still(&self, span: Duration) {
        self.add(RAW, Step::Back(span));
    }

    /// The clock that counts suspend (CLOCK_BOOTTIME) is so much further, as when the machine wakes up.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn suspend(&self, span: Duration) {
        self.add(BOOT, Step::Forward(span));
    }

    fn add(&self, clock: usize, step: Step) {
        let micros =
            |span: Duration| i64::try_from(span.as_micros()).expect("a span of less than 292 000 years");
        let by = match step {
            Step::Forward(span) => micros(span),
            Step::Back(span) => -micros(span),
        };
        let mut offsets = self.offsets.lock().expect("nobody panics in here");
        offsets.1[clock] += by;
        let (word, at) = (offsets.1[clock].to_ne_bytes(), (clock * size_of::<i64>()) as u64);
        // One aligned word, written at once: whoever reads it reads the old or the new one.
        offsets.0.write_all_at(&word, at).expect("the offset of the clock");
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

    #[test]
    fn a_suspended_program_sees_its_raw_clock_stand_still_and_boottime_leap() {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::in_folder(folder.path()).another("of-one");
        let (source, program) = (folder.path().join("clocks.c"), folder.path().join("clocks"));
        let text = "#include <stdio.h>\n#include <time.h>\nint main(void) { struct timespec b, r;\
            clock_gettime(CLOCK_BOOTTIME, &b); clock_gettime(CLOCK_MONOTONIC_RAW, &r);\
            return printf(\"%ld %ld\", (long)b.tv_sec, (long)r.tv_sec) < 0; }";
        std::fs::write(&source, text).expect("a source");
        let built = Command::new("cc").arg("-o").arg(&program).arg(&source).status().expect("cc runs");
        assert!(built.success());
        let shown = || -> [i64; 2] {
            let mut command = Command::new(&program);
            clock.wind(&mut command);
            let shown = command.output().expect("it runs").stdout;
            let text = String::from_utf8_lossy(&shown).into_owned();
            let mut seconds = text.split(' ').map(|word| word.parse().expect("seconds"));
            [seconds.next().expect("boottime"), seconds.next().expect("raw")]
        };
        let before = shown();

        clock.stand_still(Duration::from_secs(100));
        clock.suspend(Duration::from_secs(1_000));
        let after = shown();

        assert!((1_000..1_010).contains(&(after[0] - before[0])), "{before:?} {after:?}");
        assert!((-100..-90).contains(&(after[1] - before[1])), "{before:?} {after:?}");
    }
}
