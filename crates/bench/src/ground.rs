//! The store that is measured: where it lies, one raw round trip to it, and how many writes it has seen.
//!
//! Another store is another arm here; the measurements know none by name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tenure::store::{Namespace, SqliteStore, Store};

use crate::Failure;

/// A place for the data of this run, which goes with it.
#[derive(Debug)]
pub(crate) struct Ground {
    folder: PathBuf,
}

impl Ground {
    pub(crate) fn open(store: &str) -> Result<Self, Failure> {
        if store != "sqlite" {
            return Err(format!("store {store:?} is not known here; known: sqlite").into());
        }
        let folder = std::env::temp_dir().join(format!("tenure-bench-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        Ok(Self { folder })
    }

    /// A fresh part of the store, which no other measurement uses.
    pub(crate) fn site(&self, name: &str) -> Site {
        Site { url: format!("sqlite:{}", self.folder.join(name).with_extension("db").display()) }
    }

    /// What one raw round trip is compared with, in a place of its own on the same disk.
    pub(crate) fn baseline(&self, name: &str) -> Result<Box<dyn Baseline>, Failure> {
        Ok(Box::new(SqliteUpdate::new(&self.folder.join(format!("baseline-{name}.db")))?))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // A folder that stays behind harms nobody.
        let _left = std::fs::remove_dir_all(&self.folder);
    }
}

/// One part of the store, by its URL: also what worker processes are told.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    url: String,
}

impl Site {
    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The store, to be wrapped or used as it is.
    pub(crate) fn store(&self) -> Result<Arc<dyn Store>, Failure> {
        Ok(Arc::new(SqliteStore::open(self.path()?, &Namespace::default())?))
    }

    /// How many writes the store has committed so far, by its own count. Not to be asked in a process that has the
    /// store open: closing a descriptor of its files would drop SQLite's locks.
    pub(crate) fn writes(&self) -> Result<u64, Failure> {
        // The index of the log counts transactions in its header; twice, and while it is written the two differ.
        const COUNT: u64 = 8;
        const SECOND: u64 = 48;
        let index = File::open(format!("{}-shm", self.path()?))?;
        for _ in 0..100 {
            let (first, second) = (number(&index, COUNT)?, number(&index, COUNT + SECOND)?);
            if first == second {
                return Ok(first.into());
            }
        }
        Err("the store is written to all the time".into())
    }

    fn path(&self) -> Result<&str, Failure> {
        self.url.strip_prefix("sqlite:").ok_or_else(|| format!("{} is not a known store", self.url).into())
    }
}

fn number(file: &File, at: u64) -> io::Result<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at)?;
    Ok(u32::from_ne_bytes(bytes))
}

/// One raw round trip to the store, without Tenure: what it costs at least to be told that a change is kept.
pub(crate) trait Baseline {
    /// What it is, in a word or two.
    fn name(&self) -> &'static str;

    /// Does it once, and says how long it took.
    fn once(&mut self) -> Result<Duration, Failure>;
}

/// One update of one row, committed with `synchronous=FULL`.
struct SqliteUpdate(Connection);

impl SqliteUpdate {
    fn new(path: &std::path::Path) -> Result<Self, Failure> {
        let db = Connection::open(path)?;
        db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        db.execute_batch(
            "PRAGMA synchronous = FULL;
            CREATE TABLE one (id INTEGER PRIMARY KEY, number INTEGER NOT NULL);
            INSERT INTO one VALUES (1, 0);",
        )?;
        Ok(Self(db))
    }
}

impl Baseline for SqliteUpdate {
    fn name(&self) -> &'static str {
        "FULL update"
    }

    fn once(&mut self) -> Result<Duration, Failure> {
        let mut update = self.0.prepare_cached("UPDATE one SET number = number + 1 WHERE id = 1")?;
        let began = Instant::now();
        update.execute([])?;
        Ok(began.elapsed())
    }
}
