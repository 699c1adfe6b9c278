//! A command for `tenure run` that writes down its life: one line when it starts, one every millisecond.
//!
//! Times are the boot clock's, so that lives in different processes can be compared. Who was killed cannot say
//! so; its last line is the last moment at which it surely lived.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Where to write; without it this is not a command but a test, and over at once.
pub(crate) const LIVES: &str = "LIVES";

/// The arguments that make this very program the command.
pub(crate) const ROLE: [&str; 3] = ["command::lives", "--exact", "--nocapture"];

#[test]
fn lives() {
    let Some(file) = std::env::var_os(LIVES) else { return };
    let told = |name: &str| std::env::var(name).unwrap_or_default();
    let line = format!("{} {} {}", std::process::id(), told("TENURE_TERM"), told("TENURE_WORKER"));
    let mut file = OpenOptions::new().append(true).create(true).open(file).expect("a file");
    loop {
        // One write each: lines of several processes do not mix.
        file.write_all(format!("{} {line}\n", now_us()).as_bytes()).expect("it can be written");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The boot clock.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000
}

/// The life of one command.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) pid: i32,
    pub(crate) term: u64,
    pub(crate) worker: String,
    pub(crate) first_us: u64,
    pub(crate) last_us: u64,
    pub(crate) lines: usize,
}

/// All lives that were written down so far, in the order of their beginning.
pub(crate) fn read(file: &Path) -> Vec<Life> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut lives: Vec<Life> = Vec::new();
    // The last line may be half written.
    for line in text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines() {
        let mut words = line.split(' ');
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
        let (at, pid, term) = (number(), i32::try_from(number()).expect("a pid"), number());
        let worker = words.next().expect("a label").to_owned();
        match lives.iter_mut().find(|life| life.pid == pid && life.term == term) {
            Some(life) => (life.last_us, life.lines) = (at, life.lines + 1),
            None => lives.push(Life { pid, term, worker, first_us: at, last_us: at, lines: 1 }),
        }
    }
    lives
}
