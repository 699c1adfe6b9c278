//! Books: what each worker writes down about its ownerships. A `kill -9` leaves what was written.
//!
//! One file per process, one line per event, one `write` per line. Times are microseconds of CLOCK_BOOTTIME, which is one
//! clock for the whole host. A time is read *before* the check that it stands for: whoever holds after it held at it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::Micros;

/// Where a worker writes.
#[derive(Debug)]
pub struct Book(File);

impl Book {
    /// A new book of this name.
    ///
    /// # Panics
    /// If there is one already.
    #[must_use]
    pub fn begin(folder: &Path, name: &str) -> Self {
        let mut options = OpenOptions::new();
        Self(options.append(true).create_new(true).open(path(folder, name)).expect("a new book"))
    }

    /// Adds a line.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, line: Line) {
        let text = match line {
            Line::Begin { at, ticket, term, token } => format!("begin {at} {ticket} {term} {token}\n"),
            Line::Held { at, token } => format!("held {at} {token}\n"),
            Line::End { at, token } => format!("end {at} {token}\n"),
            Line::Cleanup { at } => format!("cleanup {at}\n"),
        };
        // In one call: a reader sees all of a line or a piece at the end of the file, which is no line.
        let written = (&self.0).write(text.as_bytes()).expect("it can be written");
        assert_eq!(written, text.len());
    }
}

/// What a worker says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The start callback was called, and the ownership held at this time.
    Begin {
        /// When it held.
        at: Micros,
        /// Which ticket.
        ticket: u32,
        /// The ownership's term.
        term: u64,
        /// The ownership's token.
        token: u64,
    },
    /// It still held at this time.
    Held {
        /// When it held.
        at: Micros,
        /// The ownership's token.
        token: u64,
    },
    /// It did not hold any more when it looked after this time.
    End {
        /// When it looked.
        at: Micros,
        /// The ownership's token.
        token: u64,
    },
    /// The cleanup was over at this time.
    Cleanup {
        /// When.
        at: Micros,
    },
}

/// What stands in a book so far. A line that was not finished says nothing.
///
/// # Panics
/// If something else stands there.
#[must_use]
pub fn read(folder: &Path, name: &str) -> Vec<Line> {
    let text = std::fs::read_to_string(path(folder, name)).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(parse).collect()
}

fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.book"))
}

fn parse(line: &str) -> Line {
    let mut words = line.split(' ');
    let what = words.next().unwrap_or_default();
    let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
    match (what, &numbers[..]) {
        ("begin", &[at, ticket, term, token]) => {
            Line::Begin { at, ticket: u32::try_from(ticket).expect("a ticket"), term, token }
        }
        ("held", &[at, token]) => Line::Held { at, token },
        ("end", &[at, token]) => Line::End { at, token },
        ("cleanup", &[at]) => Line::Cleanup { at },
        _ => panic!("not a line of a book: {line:?}"),
    }
}
