//! Inputs that nobody would think of, by the million, each repeated by its seed; and who judges what became of them.
//!
//! A target is one test: it makes an input and judges what a parser does with it. The environment says how many and from which
//! seed on: `scripts/fuzz` sets it. Without it a test runs a small share in debug mode.

use std::any::Any;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::dice::Dice;

/// What is fuzzed, and its share of all inputs, in thousandths. What costs more to judge has a smaller one.
const TARGETS: [(&str, u64); 14] = [
    ("names", 160),
    ("fences", 160),
    ("store_urls", 100),
    ("redis_urls", 60),
    ("postgres_urls", 20),
    ("records", 160),
    ("signals", 120),
    ("schedules", 20),
    ("time_zones", 1),
    ("hidden_urls", 60),
    ("spans", 60),
    ("settings", 49),
    ("guard_messages", 20),
    ("metadata", 10),
];

/// How many inputs there are in all without a word from outside: some seconds in debug mode.
const FEW: u64 = 100_000;
/// The time on a processor that no input may take.
const LONGEST: Duration = Duration::from_secs(1);
/// An input that takes so long, however busy the machine is, never ends.
const ENDLESS: Duration = Duration::from_secs(60);
/// How often a word about the progress is given, where it goes on for long.
const PROGRESS: Duration = Duration::from_secs(5);
/// From so many inputs on there have to be some that are accepted and some that are refused: a hundredth of each.
const TELLING: u64 = 2_000;

/// What a parser did with an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was understood.
    Accepted,
    /// It was refused with an error.
    Refused,
}

impl Verdict {
    /// Accepted if there is no error.
    #[must_use]
    pub fn of<T, E>(outcome: &Result<T, E>) -> Self {
        if outcome.is_ok() { Self::Accepted } else { Self::Refused }
    }
}

/// Makes inputs by `make` and has each judged by `judge`, which panics when a property does not hold.
///
/// # Panics
/// When `judge` does, an input takes too long, or nearly all are accepted or refused. Prints the input and the command that
/// repeats it.
pub fn fuzz<I: Debug>(target: &str, make: impl Fn(&mut Maker) -> I, judge: impl Fn(&I) -> Verdict) {
    let first = variable("TENURE_FUZZ_SEED").unwrap_or(1);
    let count = share(target, variable("TENURE_FUZZ_INPUTS").unwrap_or(FEW));
    let present = AtomicU64::new(first);
    let (begun, mut accepted, mut told) = (Instant::now(), 0, Instant::now());

    std::thread::scope(|scope| {
        // Dropped at the end, however that comes about; then the watch ends, too.
        let (_done, until) = mpsc::channel::<()>();
        let present = &present;
        scope.spawn(move || watch(target, present, &until));
        let mut spent = processor_time();
        for seed in first..first.saturating_add(count) {
            present.store(seed, Ordering::Relaxed);
            let input = make(&mut Maker::new(seed));
            let verdict = catch_unwind(AssertUnwindSafe(|| judge(&input)))
                .unwrap_or_else(|why| panic!("{}", found(target, seed, &input, &said(why.as_ref()))));
            accepted += u64::from(verdict == Verdict::Accepted);
            let now = processor_time();
            assert!(now - spent < LONGEST, "{}", found(target, seed, &input, &format!("{:?}", now - spent)));
            spent = now;
            if seed % 1024 == 0 && told.elapsed() > PROGRESS {
                told = Instant::now();
                eprintln!("{target}: {} of {count}", seed - first);
            }
        }
    });

    let refused = count - accepted;
    // Read by scripts/fuzz.
    println!("fuzzed {target} {count} {accepted} {refused} {:.3}", begun.elapsed().as_secs_f64());
    if count >= TELLING {
        let least = count / 100;
        assert!(
            accepted >= least && refused >= least,
            "{target} is told little by {count} inputs, of which {accepted} were accepted and {refused} refused"
        );
    }
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}, and has to be a number")))
}

/// So many of all are for this target, but at least one.
fn share(target: &str, all: u64) -> u64 {
    let known = TARGETS.iter().find(|(name, _)| *name == target);
    let (_, share) = known.unwrap_or_else(|| panic!("the target {target:?} has no share of the inputs"));
    // Who asks for one target wants all for it.
    let is_alone = std::env::var_os("TENURE_FUZZ_ONLY").is_some();
    if is_alone { all } else { (all.saturating_mul(*share) / 1000).max(1) }
}

/// Ends the process when one input is worked on for too long: a test cannot be ended otherwise.
fn watch(target: &str, present: &AtomicU64, until: &mpsc::Receiver<()>) {
    let mut before = None;
    while until.recv_timeout(ENDLESS) == Err(mpsc::RecvTimeoutError::Timeout) {
        let now = present.load(Ordering::Relaxed);
        if before.replace(now) == Some(now) {
            eprintln!("{target}: seed {now} does not end within {ENDLESS:?}\n{}", repeats(target, now));
            std::process::exit(101);
        }
    }
}

/// Of this thread only: how busy the machine is does not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn found(target: &str, seed: u64, input: &impl Debug, why: &str) -> String {
    let shown = format!("{input:?}");
    let begins: String = shown.chars().take(4000).collect();
    let cut = if begins.len() < shown.len() { " .." } else { "" };
    format!("{target} fails: {why}\n  input: {begins}{cut}\n  {}", repeats(target, seed))
}

fn repeats(target: &str, seed: u64) -> String {
    format!("again: scripts/fuzz --only {target} --seed {seed} --inputs 1")
}

/// What a panic said.
fn said(why: &(dyn Any + Send)) -> String {
    let text = why.downcast_ref::<String>().map(String::as_str).or_else(|| why.downcast_ref().copied());
    text.unwrap_or("a panic without a word").to_owned()
}

/// Makes inputs: the same of the same seed.
#[derive(Debug)]
pub struct Maker(Dice);

/// Numbers at which something ends.
const EDGES: [u64; 18] = [
    0,
    1,
    9,
    10,
    59,
    60,
    100,
    200,
    255,
    4096,
    10_000,
    65_535,
    u32::MAX as u64,
    (1 << 53) - 1,
    1 << 53,
    7_258_118_400_000,
    i64::MAX as u64,
    u64::MAX,
];

/// Signs that mean something to one parser or another, or to a terminal, or take more than one byte.
const SIGNS: &[&str] = &[
    "\0",
    "\n",
    "\r\n",
    "\t",
    " ",
    "\u{1b}[31m",
    "\u{7f}",
    "\u{85}",
    "\u{ad}",
    "\u{202e}",
    "\u{feff}",
    "\u{2028}",
    "\u{fffd}",
    "ä",
    "ß",
    "İ",
    "日本",
    "\u{1f600}",
    "e\u{301}",
    "\u{10ffff}",
    ":",
    "//",
    "/",
    "@",
    "?",
    "&",
    "=",
    "%",
    "%2",
    "%00",
    "%ff",
    "%25",
    "%3A",
    "#",
    "*",
    "-",
    "+",
    ",",
    ".",
    "..",
    ";",
    "\\",
    "\"",
    "'",
    "`",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    "!",
    "|",
    "$",
    "~",
    "^",
    "_",
    "L",
    "W",
    "true",
    "null",
    "nan",
    "inf",
    "1e309",
    "0x10",
    "-1",
    "-0",
];

impl Maker {
    /// The maker of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Seeds follow each other, and what is made of them should not.
        let mixed =
            (seed ^ seed >> 30).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mut dice = Dice::new(mixed ^ mixed >> 27);
        let _first = dice.below(2);
        Self(dice)
    }

    /// A number below this bound, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.below(bound as u64)).unwrap_or(0)
    }

    /// Whether one of so many cases is this one.
    pub fn is_one_of(&mut self, cases: usize) -> bool {
        self.below(cases) == 0
    }

    /// One of these.
    ///
    /// # Panics
    /// When there are none.
    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Any number: small, large, or at an edge.
    pub fn number(&mut self) -> u64 {
        let any = self.0.below(1 << 31) << 33 ^ self.0.below(1 << 31) << 16 ^ self.0.below(1 << 31);
        match self.below(4) {
            0 => EDGES[self.below(EDGES.len())],
            1 => EDGES[self.below(EDGES.len())].wrapping_add(any % 3).wrapping_sub(1),
            2 => any % 100,
            _ => any >> self.below(64),
        }
    }

    /// Text that is like one of these, mostly; the whole of it now and then, and sometimes like nothing at all.
    pub fn text(&mut self, like: &[&str]) -> String {
        if like.is_empty() || self.is_one_of(20) {
            return self.any_text();
        }
        let mut text: Vec<char> = self.pick(like).chars().collect();
        for _ in 0..self.changes() {
            let other: Vec<char> = self.pick(like).chars().collect();
            let fresh = self.fresh();
            self.change(&mut text, &other, &fresh.chars().collect::<Vec<char>>());
        }
        text.into_iter().collect()
    }

    /// The same with bytes.
    pub fn bytes(&mut self, like: &[&[u8]]) -> Vec<u8> {
        if like.is_empty() || self.is_one_of(20) {
            return (0..self.length()).map(|_| self.0.below(256) as u8).collect();
        }
        let mut bytes = self.pick(like).to_vec();
        for _ in 0..self.changes() {
            let other = self.pick(like);
            let fresh =
                if self.is_one_of(2) { vec![self.0.below(256) as u8] } else { self.fresh().into_bytes() };
            self.change(&mut bytes, other, &fresh);
        }
        bytes
    }

    /// Signs and letters, like nothing at all.
    pub fn any_text(&mut self) -> String {
        (0..self.length()).map(|_| self.fresh()).collect()
    }

    /// None in one of four cases, else a few.
    fn changes(&mut self) -> usize {
        self.below(4) + if self.is_one_of(16) { self.below(16) } else { 0 }
    }

    /// Short, mostly.
    fn length(&mut self) -> usize {
        match self.below(40) {
            0 => self.below(5_000),
            1..=9 => self.below(200),
            _ => self.below(24),
        }
    }

    /// A sign, a letter, a number, or any character.
    fn fresh(&mut self) -> String {
        match self.below(8) {
            0 => self.number().to_string(),
            1 => char::from_u32(self.0.below(0x11_0000) as u32).unwrap_or('\u{fffd}').to_string(),
            2 | 3 => char::from(b' ' + self.0.below(95) as u8).to_string(),
            _ => self.pick(SIGNS).to_owned(),
        }
    }

    fn change<T: Copy>(&mut self, of: &mut Vec<T>, other: &[T], fresh: &[T]) {
        let (from, to) = {
            let (a, b) = (self.below(of.len() + 1), self.below(of.len() + 1));
            (a.min(b), a.max(b))
        };
        // Mostly a small part: what is far from everything is refused at once.
        let to = if self.is_one_of(3) { to } else { to.min(from + 1 + self.below(3)) };
        match self.below(16) {
            0..=3 => drop(of.drain(from..to)),
            4..=7 => drop(of.splice(from..to, fresh.iter().copied())),
            8..=11 => drop(of.splice(from..from, fresh.iter().copied())),
            12 | 13 => {
                let at = self.below(other.len() + 1);
                of.truncate(from);
                of.extend_from_slice(&other[at..]);
            }
            14 => {
                let part = of[from..to].to_vec();
                drop(of.splice(to..to, part));
            }
            _ => {
                // Very long now and then.
                let most = if self.is_one_of(20) { 5_000 } else { 60 };
                let times = self.below(most / (to - from).max(1) + 2);
                let part = of[from..to].repeat(times);
                drop(of.splice(to..to, part));
            }
        }
    }
}

/// Checks what is said of an input that was refused: a sentence that is not too long, and that no terminal is steered by.
///
/// # Panics
/// When it is not.
pub fn is_a_sentence(said: &str) {
    assert!(!said.is_empty() && said.len() <= 1_500, "{} bytes: {said:?}", said.len());
    assert!(!said.chars().any(char::is_control), "{said:?} has control characters");
}

/// Parts of passwords. Whatever stands beside them, none is ever told.
const SECRETS: [&str; 3] = ["swordfish", "SwordfiSh", "hunter22"];

/// A URL with a user and a password, in which there may be signs that somebody forgot to escape.
///
/// # Panics
/// When there is no scheme.
pub fn url_with_a_secret(make: &mut Maker, schemes: &[&str]) -> String {
    let signs =
        ["", "", "", "", "?", "&", "#", "/", "%", "%3F", "%zz", ":", "@", "=", "ä", "\n", "[", "?a=", "&b="];
    let [before, within, after] = [(); 3].map(|()| make.pick(&signs));
    let (first, second) = (make.pick(&SECRETS), make.pick(&SECRETS));
    let user = make.pick(&["", "me", "a%40b"]);
    let host = make.pick(&["cache", "10.0.0.1:7000", "[::1]:99", "host:port", "a,b:5433", "", "h:99999"]);
    let rest = make.pick(&[
        "",
        "/0",
        "/3",
        "/jobs",
        "/x",
        "?db=1",
        "/d?user=x",
        "/d?connect_timeout=5",
        "/d?fnord=1",
    ]);
    let scheme = make.pick(schemes);
    format!("{scheme}://{user}:{before}{first}{within}{second}{after}@{host}{rest}")
}

/// Checks what is said of a URL: no secret that stands in the place of one. What a change has made a host or a path of may be
/// told: it is none any more.
///
/// # Panics
/// When one is told.
pub fn keeps_secrets(told: &str, url: &str) {
    let is_password = |secret: &str| {
        let (scheme, rest) = url.split_once("://")?;
        let (before, after) = (&rest[..rest.find(secret)?], &rest[rest.rfind(secret)?..]);
        // The value of a parameter that there may be is a path, a host or the like.
        let parameter = before.split_once('?').and_then(|(_, parameters)| parameters.rsplit('&').next());
        let name = parameter.and_then(|last| last.split_once('=')).map_or("", |(name, _)| name);
        let is_value =
            name.len() > 1 && !name.starts_with("pass") && name.bytes().all(|byte| byte.is_ascii_lowercase());
        // These have none: what follows is a path or a name.
        let is_scheme = !["memory", "sqlite", "unix"].contains(&scheme)
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
        Some(is_scheme && !is_value && before.contains(':') && after.contains('@'))
    };
    for secret in SECRETS {
        assert!(!told.contains(secret) || is_password(secret) != Some(true), "{secret:?} is told: {told}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_all_there_is() {
        assert_eq!(TARGETS.iter().map(|(_, share)| share).sum::<u64>(), 1000);
    }

    #[test]
    fn a_seed_repeats_what_is_made_and_the_next_makes_another() {
        let text = |seed| Maker::new(seed).text(&["redis://user:pass@host:6379/0", "memory:"]);
        let all: Vec<String> = (0..1000).map(text).collect();

        assert_eq!(all, (0..1000).map(text).collect::<Vec<_>>());
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert!(different.len() > 600, "{}", different.len());
    }

    #[test]
    fn what_fails_is_told_with_its_seed() {
        let judge = |number: &u64| {
            assert!(*number != 59, "the number is odd");
            if number.is_multiple_of(2) { Verdict::Accepted } else { Verdict::Refused }
        };
        let fails = || fuzz("names", Maker::number, judge);

        let why = said(catch_unwind(fails).expect_err("a panic").as_ref());

        assert!(why.starts_with("names fails: the number is odd\n  input: 59\n"), "{why}");
        assert!(why.contains("again: scripts/fuzz --only names --seed "), "{why}");
    }

    #[test]
    fn a_target_that_refuses_nearly_everything_is_a_failure() {
        let fails = || fuzz("names", Maker::number, |_| Verdict::Refused);

        let why = said(catch_unwind(fails).expect_err("a panic").as_ref());

        assert!(why.contains("is told little by"), "{why}");
    }
}
