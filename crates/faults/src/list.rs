//! The list of a ticket: it is read, an entry is added, and all of it is written back, by whoever owns the ticket. Two who do
//! that at once lose an entry.
//!
//! Where processes are paused, one that was past its check when the pause came writes late, and no lease of any kind can help
//! it. There the token is checked: reading leaves a mark, and what comes under a smaller token than the mark is refused.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// The `number`th entry under this token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) token: u64,
    pub(crate) number: u64,
}

const SIZE: usize = 16;
/// How long the mark is waited for: who is paused while it holds the lock must not hold up the others.
const PATIENCE: Duration = Duration::from_millis(20);

/// Why a list was not changed.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Somebody with a larger token was there.
    Late,
    /// Not now.
    Busy,
    Broken(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// The list of one ticket.
#[derive(Clone, Debug)]
pub(crate) struct List {
    path: PathBuf,
}

impl List {
    /// The one of this round.
    pub(crate) fn of(folder: &Path, round: u64, resource: u32, ticket: u32) -> Self {
        Self { path: folder.join(format!("{round}-r{resource:02}-{ticket}")) }
    }

    /// Removes it, and what belongs to it.
    pub(crate) fn remove(&self) {
        for path in [self.path.clone(), self.path.with_extension("mark")] {
            // Nobody may have written it.
            let _none = fs::remove_file(path);
        }
    }

    /// What is in it; nothing in one that nobody has written yet.
    pub(crate) fn read(&self) -> io::Result<Vec<Entry>> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
        let entry = |bytes: &[u8]| Entry { token: number(&bytes[..8]), number: number(&bytes[8..]) };
        Ok(bytes.chunks_exact(SIZE).map(entry).collect())
    }

    /// Puts another list in its place, whole or not at all.
    pub(crate) fn replace(&self, entries: &[Entry]) -> io::Result<()> {
        let bytes: Vec<u8> = entries
            .iter()
            .flat_map(|entry| [entry.token.to_le_bytes(), entry.number.to_le_bytes()])
            .flatten()
            .collect();
        let new = self.path.with_extension(format!("new-{}", std::process::id()));
        fs::write(&new, bytes)?;
        fs::rename(new, &self.path)
    }

    /// As [`read`](Self::read), and from here on nobody with a smaller token is let in.
    pub(crate) fn read_under(&self, token: u64) -> Result<Vec<Entry>, Refused> {
        let mark = Mark::lock(&self.path)?;
        mark.pass(token)?;
        Ok(self.read()?)
    }

    /// As [`replace`](Self::replace), unless somebody with a larger token was there.
    pub(crate) fn replace_under(&self, token: u64, entries: &[Entry]) -> Result<(), Refused> {
        let mark = Mark::lock(&self.path)?;
        mark.pass(token)?;
        Ok(self.replace(entries)?)
    }
}

/// The largest token that was seen, in a file beside the list that is locked while this lives.
struct Mark(File);

impl Mark {
    fn lock(list: &Path) -> Result<Self, Refused> {
        let mut open = OpenOptions::new();
        let file =
            open.create(true).truncate(false).read(true).write(true).open(list.with_extension("mark"))?;
        let until = Instant::now() + PATIENCE;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() > until {
                return Err(Refused::Busy);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(Self(file))
    }

    fn pass(&self, token: u64) -> Result<(), Refused> {
        let mut word = [0; 8];
        // A file that was just made is empty.
        let mark = self.0.read_exact_at(&mut word, 0).map_or(0, |()| u64::from_le_bytes(word));
        if token < mark {
            return Err(Refused::Late);
        }
        Ok(self.0.write_all_at(&token.to_le_bytes(), 0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(token: u64, number: u64) -> Entry {
        Entry { token, number }
    }

    #[test]
    fn two_who_write_at_once_lose_an_entry() {
        let folder = tempfile::tempdir().expect("a folder");
        let list = List::of(folder.path(), 0, 0, 0);
        let (mut a, mut b) = (list.read().expect("a list"), list.read().expect("a list"));

        a.push(entry(1, 1));
        list.replace(&a).expect("it is written");
        b.push(entry(2, 1));
        list.replace(&b).expect("it is written");

        assert_eq!(list.read().expect("a list"), [entry(2, 1)]);
    }

    #[test]
    fn who_comes_late_is_refused_by_its_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let list = List::of(folder.path(), 0, 0, 0);
        let mut late = list.read_under(1).expect("a list");

        let mut next = list.read_under(2).expect("a list");
        late.push(entry(1, 1));
        assert!(matches!(list.replace_under(1, &late), Err(Refused::Late)));
        next.push(entry(2, 1));
        list.replace_under(2, &next).expect("it is written");

        assert_eq!(list.read().expect("a list"), [entry(2, 1)]);
        assert!(matches!(list.read_under(1), Err(Refused::Late)));
    }
}
