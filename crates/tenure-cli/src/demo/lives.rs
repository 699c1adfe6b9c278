//! What the workers wrote down: which of them worked from when to when; and whether two ever worked at once.

use std::fs::File;
use std::io::Read;

use rustix::time::{ClockId, clock_gettime};

use crate::exit::Failure;

/// The boot clock, which all processes of a host share.
pub(super) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000
}

/// The work under one ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) pid: u32,
    pub(super) term: u64,
    pub(super) first_us: u64,
    pub(super) last_us: u64,
}

/// All of them, read as they are written.
#[derive(Debug)]
pub(super) struct Lives {
    file: File,
    /// The beginning of a line that was not whole yet.
    rest: Vec<u8>,
    lives: Vec<Life>,
}

impl Lives {
    pub(super) fn of(file: File) -> Self {
        Self { file, rest: Vec::new(), lives: Vec::new() }
    }

    /// What was written so far, in the order of terms.
    pub(super) fn read(&mut self) -> Result<&[Life], Failure> {
        let read = self.file.read_to_end(&mut self.rest);
        read.map_err(|error| Failure::new("cannot read what the workers wrote").because(&error))?;
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(&self.rest[..whole]).into_owned();
        self.rest.drain(..whole);
        text.lines().for_each(|line| self.note(line));
        Ok(&self.lives)
    }

    fn note(&mut self, line: &str) {
        let mut numbers = line.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
        let (Some(at), Some(pid), Some(term)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return;
        };
        let pid = u32::try_from(pid).unwrap_or(0);
        match self.lives.iter_mut().rev().find(|life| life.pid == pid && life.term == term) {
            Some(life) => {
                life.first_us = life.first_us.min(at);
                life.last_us = life.last_us.max(at);
            }
            None => {
                self.lives.push(Life { pid, term, first_us: at, last_us: at });
                self.lives.sort_by_key(|life| (life.term, life.first_us));
            }
        }
    }

    /// The first two that worked at the same time.
    pub(super) fn two_at_once(&self) -> Option<(Life, Life)> {
        let mut by_time = self.lives.clone();
        by_time.sort_by_key(|life| life.first_us);
        // Not only neighbours: one that never ends overlaps all that follow.
        by_time.iter().enumerate().find_map(|(at, one)| {
            let other = by_time[at + 1..].iter().find(|other| other.first_us <= one.last_us)?;
            Some((*one, *other))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Lives {
        let mut lives = Lives::of(File::open("/dev/null").expect("it is there"));
        lines.iter().for_each(|line| lives.note(line));
        lives
    }

    #[test]
    fn two_that_worked_at_once_are_found_also_when_others_are_between() {
        assert_eq!(of(&["10 1 1", "20 1 1", "21 2 2", "30 2 2", "31 1 3"]).two_at_once(), None);

        let (one, other) =
            of(&["10 1 1", "20 2 2", "20 2 2", "30 3 3", "40 1 1"]).two_at_once().expect("two");
        assert_eq!((one.pid, other.pid), (1, 2));
    }
}
