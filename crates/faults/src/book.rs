//! The books: what a worker process writes down of its ownerships, in records of one size in a file of its own. What was
//! written is kept by the kernel, whatever becomes of the process.
//!
//! Times are those of the host's clock that counts suspend. A time is read *before* the check that it stands for: whoever
//! holds after it held at it. So a record never claims more than there was, and what overlaps in the books did overlap.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure::EndReason;
use testkit::Micros;

/// Words of eight bytes in a record.
const WORDS: usize = 8;
const SIZE: u64 = (WORDS * 8) as u64;
/// In every record, so that one that was never written is known.
const MARK: u64 = 0x7E << 56;

/// One ownership, or what was done without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) resource: u32,
    pub(crate) ticket: u32,
    pub(crate) term: u64,
    pub(crate) token: u64,
    /// It held at this time.
    pub(crate) began: Micros,
    /// And at this, for the last time that is known.
    pub(crate) last: Micros,
    /// When the cleanup was over.
    pub(crate) ended: Option<(Micros, How)>,
    /// How many entries it has written to the list of its ticket, each acknowledged.
    pub(crate) written: u64,
    /// How many writes came too late and were refused.
    pub(crate) refused: u64,
    /// How many took longer than the margin from the check before them to their end: the machine held them up for longer
    /// than work may go on after it was told to stop.
    pub(crate) slow: u64,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ownership,
    /// Planted: writes without owning.
    Intrusion,
}

/// How an ownership ended, as far as it matters to who judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The work and its cleanup come first, and then the ticket is free.
    Gently,
    /// It was lost.
    Lost,
}

impl How {
    pub(crate) fn of(ending: EndReason) -> Self {
        if ending.is_gentle() { Self::Gently } else { Self::Lost }
    }
}

/// Where a process writes.
#[derive(Debug)]
pub(crate) struct Book {
    file: Arc<File>,
    records: AtomicU64,
}

/// The place of one record.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    file: Arc<File>,
    at: u64,
}

const LAST: u64 = 4;
const ENDED: u64 = 5;
const WRITTEN: u64 = 6;
const TROUBLED: u64 = 7;
/// In the time of an end: it was lost.
const IS_LOST: u64 = 1 << 63;

impl Book {
    pub(crate) fn begin(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create_new(true).write(true).open(path)?;
        Ok(Self { file: Arc::new(file), records: AtomicU64::new(0) })
    }

    /// An ownership that began, or an intrusion.
    pub(crate) fn enter(&self, record: &Record) -> io::Result<Page> {
        let at = self.records.fetch_add(1, Ordering::Relaxed) * SIZE;
        let kind = if record.kind == Kind::Intrusion { 1 << 48 } else { 0 };
        let place = MARK | kind | u64::from(record.resource) << 16 | u64::from(record.ticket);
        let words = [place, record.term, record.token, record.began, record.last, 0, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // In one call, within one page of memory: a reader sees all of it or nothing.
        self.file.write_all_at(&bytes, at)?;
        Ok(Page { file: self.file.clone(), at })
    }
}

impl Page {
    /// It held at this time.
    pub(crate) fn held(&self, at: Micros) -> io::Result<()> {
        self.set(LAST, at)
    }

    pub(crate) fn ended(&self, at: Micros, how: How) -> io::Result<()> {
        self.set(ENDED, at | if how == How::Lost { IS_LOST } else { 0 })
    }

    /// So many entries are in the list.
    pub(crate) fn written(&self, entries: u64) -> io::Result<()> {
        self.set(WRITTEN, entries)
    }

    /// So many writes were refused, and so many were slow.
    pub(crate) fn troubled(&self, refused: u64, slow: u64) -> io::Result<()> {
        self.set(TROUBLED, slow << 32 | refused)
    }

    fn set(&self, word: u64, value: u64) -> io::Result<()> {
        self.file.write_all_at(&value.to_le_bytes(), self.at + word * 8)
    }
}

/// What stands in a book so far; nothing in one that was never begun.
pub(crate) fn read(path: &Path) -> Vec<Record> {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.chunks_exact(WORDS * 8).filter_map(parse).collect()
}

fn parse(bytes: &[u8]) -> Option<Record> {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    let [place, term, token, began, last, ended, written, troubled] = words;
    let low = |word: u64| u32::try_from(word & 0xFFFF).unwrap_or_default();
    (place >> 56 == MARK >> 56).then(|| Record {
        kind: if place & 1 << 48 == 0 { Kind::Ownership } else { Kind::Intrusion },
        resource: low(place >> 16),
        ticket: low(place),
        term,
        token,
        began,
        last,
        ended: (ended != 0)
            .then_some((ended & !IS_LOST, if ended & IS_LOST == 0 { How::Gently } else { How::Lost })),
        written,
        refused: troubled & 0xFFFF_FFFF,
        slow: troubled >> 32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("book");
        let book = Book::begin(&path).expect("a book");
        let first = Record {
            kind: Kind::Ownership,
            resource: 19,
            ticket: 2,
            term: 7,
            token: 1 << 50,
            began: 1_000,
            last: 1_000,
            ended: None,
            written: 0,
            refused: 0,
            slow: 0,
        };
        let page = book.enter(&first).expect("it is written");
        let second = Record { kind: Kind::Intrusion, ..first.clone() };
        book.enter(&second).expect("it is written");

        page.held(2_000).and_then(|()| page.ended(3_000, How::Lost)).expect("it is written");
        page.written(5).and_then(|()| page.troubled(1, 2)).expect("it is written");

        let first =
            Record { last: 2_000, ended: Some((3_000, How::Lost)), written: 5, refused: 1, slow: 2, ..first };
        assert_eq!(read(&path), [first, second]);
    }

    #[test]
    fn a_record_that_was_never_finished_says_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("book");
        std::fs::write(&path, [0; 100]).expect("a file");

        assert_eq!(read(&path), []);
    }
}
