//! What a worker process is told: its part when it starts, and orders later. Orders lie in a file, so that giving one never
//! waits for a process that is stopped.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What a worker is, and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) label: String,
    pub(crate) url: String,
    pub(crate) namespace: String,
    pub(crate) scene: PathBuf,
    pub(crate) ttl_ms: u64,
    /// The tickets of each resource.
    pub(crate) tickets: Vec<u32>,
    /// Those whose application has to beat within this span.
    pub(crate) beacon_ms: Option<u64>,
    /// Whether it watches the store's clock before it claims.
    pub(crate) strict: bool,
    /// The order in which it enters its campaigns.
    pub(crate) seed: u64,
    pub(crate) plant: Option<Plant>,
}

/// What is wrong with a worker, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Plant {
    /// It goes on after it has lost.
    GoesOn,
    /// It believes for 1.5 ttl.
    BelievesTooLong,
    /// It writes to lists without owning.
    Intrudes,
    /// It leaves the token check out.
    NoTokenCheck,
    /// It numbers its ownerships itself.
    OwnNumbers,
    /// It begins two ttl after it was let in.
    BeginsLate,
}

/// What it is told while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Give this resource up, and stay a candidate.
    StepDown(u32),
    /// Block the application's only thread for so many milliseconds.
    Block(u64),
    /// Give everything up, and end.
    Leave,
}

impl Order {
    fn words(self) -> [u64; 2] {
        match self {
            Self::StepDown(resource) => [1, resource.into()],
            Self::Block(millis) => [2, millis],
            Self::Leave => [3, 0],
        }
    }

    fn of(words: [u64; 2]) -> Option<Self> {
        Some(match words {
            [1, resource] => Self::StepDown(u32::try_from(resource).ok()?),
            [2, millis] => Self::Block(millis),
            [3, _] => Self::Leave,
            _ => return None,
        })
    }
}

/// The orders of one worker, from both ends.
#[derive(Debug)]
pub(crate) struct Orders {
    file: File,
    read: u64,
}

impl Orders {
    pub(crate) fn of(scene: &Path, label: &str) -> io::Result<Self> {
        let path = scene.join(format!("{label}.orders"));
        let file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
        Ok(Self { file, read: 0 })
    }

    pub(crate) fn give(&mut self, order: Order) -> io::Result<()> {
        let bytes: Vec<u8> = order.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        self.file.write_all(&bytes)
    }

    /// The next that has not been taken yet.
    pub(crate) fn take(&mut self) -> Option<Order> {
        let mut bytes = [0; 16];
        self.file.read_exact_at(&mut bytes, self.read).ok()?;
        self.read += 16;
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or_default();
        Order::of([word(0), word(8)])
    }
}

/// What holds for all of them at once: which round it is, and whether tokens are checked where lists are written.
#[derive(Debug)]
pub(crate) struct Rule(File);

/// The rule as it was when somebody looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ruling {
    /// Every round has lists of its own.
    pub(crate) round: u64,
    pub(crate) checks_tokens: bool,
}

impl Rule {
    pub(crate) fn of(scene: &Path) -> io::Result<Self> {
        let path = scene.join("rule");
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        Ok(Self(file))
    }

    pub(crate) fn look(&self) -> Ruling {
        let mut bytes = [0; 8];
        // Nothing stands there before the first one is set.
        let _short = self.0.read_exact_at(&mut bytes, 0);
        let word = u64::from_le_bytes(bytes);
        Ruling { round: word >> 1, checks_tokens: word & 1 == 1 }
    }

    pub(crate) fn set(&self, ruling: Ruling) -> io::Result<()> {
        let word = ruling.round << 1 | u64::from(ruling.checks_tokens);
        self.0.write_all_at(&word.to_le_bytes(), 0)
    }
}

pub(crate) fn books(scene: &Path) -> PathBuf {
    scene.join("books")
}

pub(crate) fn lists(scene: &Path) -> PathBuf {
    scene.join("lists")
}

pub(crate) fn name(resource: u32) -> String {
    format!("r{resource:02}")
}

/// The number in the name of a resource.
pub(crate) fn number(name: &str) -> Option<u32> {
    name.strip_prefix('r')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_taken_once_and_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut given = Orders::of(folder.path(), "w").expect("a file");
        let mut taken = Orders::of(folder.path(), "w").expect("a file");
        assert_eq!(taken.take(), None);

        let all = [Order::StepDown(7), Order::Block(1_500), Order::Leave];
        all.iter().for_each(|order| given.give(*order).expect("it is given"));

        let next: Vec<Option<Order>> = (0..4).map(|_| taken.take()).collect();
        assert_eq!(next, [Some(all[0]), Some(all[1]), Some(all[2]), None]);
    }

    #[test]
    fn a_rule_is_seen_by_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) =
            (Rule::of(folder.path()).expect("a file"), Rule::of(folder.path()).expect("a file"));
        assert_eq!(one.look(), Ruling::default());

        let ruling = Ruling { round: 7, checks_tokens: true };
        other.set(ruling).expect("it is set");

        assert_eq!(one.look(), ruling);
    }
}
