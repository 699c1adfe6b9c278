//! SQLite: a folder with files. What it counts itself stands in the index of its log.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::Baseline;
use crate::Failure;

/// Goes with what is in it.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("tenure-bench-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("sqlite:{}", self.path(name).display())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name).with_extension("db")
    }

    /// In a file of its own on the same disk.
    pub(super) fn update(&self, name: &str) -> Result<Update, Failure> {
        let db = Connection::open(self.0.join(format!("baseline-{name}.db")))?;
        db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        db.execute_batch(
            "PRAGMA synchronous = FULL;
            CREATE TABLE one (id INTEGER PRIMARY KEY, number INTEGER NOT NULL);
            INSERT INTO one VALUES (1, 0);",
        )?;
        Ok(Update(db))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays behind harms nobody.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn path(url: &str) -> Option<&str> {
    url.strip_prefix("sqlite:")
}

/// How many have been committed so far.
pub(crate) fn transactions(path: &str) -> Result<u64, Failure> {
    // The index of the log counts transactions in its header; twice, and while it is written the two differ.
    const COUNT: u64 = 8;
    const SECOND: u64 = 48;
    let index = File::open(format!("{path}-shm"))?;
    for _ in 0..100 {
        let (first, second) = (number(&index, COUNT)?, number(&index, COUNT + SECOND)?);
        if first == second {
            return Ok(first.into());
        }
    }
    Err("the store is written to all the time".into())
}

fn number(file: &File, at: u64) -> io::Result<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at)?;
    Ok(u32::from_ne_bytes(bytes))
}

/// One update of one row, committed with `synchronous=FULL`.
pub(super) struct Update(Connection);

impl Baseline for Update {
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
