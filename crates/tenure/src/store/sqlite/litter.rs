//! Files that no record names any more are removed: a lease may end where nobody can write that down, and leave its
//! lock file and its socket behind.
//!
//! It happens when a store is opened, beside everything else. The files of a lease that has a record go with that.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::LeaseId;

use super::desk::Desk;
use super::fan;
use super::lock::{self, Verdict};
use super::trouble::Outcome;

/// Younger ones are left alone: their leases may be about to be opened.
const AGE: Duration = Duration::from_secs(3600);
/// How many files are looked at each time.
const MOST: usize = 10_000;

const BEARERS: &str = "SELECT bearer FROM lease";

impl Desk {
    /// Removes old files of leases of which this database has no record, and the sockets of subscribers that are gone.
    pub(super) fn clear_litter(&mut self) {
        let folder = &self.shared.place.folder;
        fan::clear(folder);
        let old = old_stems(folder);
        if old.is_empty() {
            return;
        }
        // Read after the folder was: whose record is made later has a younger file, or holds its lock.
        match recorded(&self.db) {
            Ok(recorded) => old.difference(&recorded).for_each(|stem| remove(folder, stem)),
            Err(trouble) => {
                let error = trouble.told("read", &self.shared.place.path);
                tracing::debug!(%error, "old files are not removed");
            }
        }
    }
}

fn old_stems(folder: &Path) -> HashSet<String> {
    let Ok(entries) = fs::read_dir(folder) else { return HashSet::new() };
    let is_old = |entry: &fs::DirEntry| {
        let modified = entry.metadata().and_then(|found| found.modified());
        // By the wall clock: one that steps only finds them sooner, or later.
        modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age >= AGE))
    };
    let old = entries.take(MOST).flatten().filter(is_old);
    old.filter_map(|entry| {
        let path = entry.path();
        let is_ours = path.extension().is_some_and(|extension| extension == "lock" || extension == "sock");
        is_ours.then(|| path.file_stem()?.to_str().map(str::to_owned)).flatten()
    })
    .collect()
}

fn recorded(db: &Connection) -> Outcome<HashSet<String>> {
    let mut read = db.prepare_cached(BEARERS)?;
    let bearers = read.query_map([], |row| row.get(0))?;
    let bearers: Vec<[u8; 16]> = bearers.collect::<Result<_, _>>()?;
    Ok(bearers.into_iter().map(|id| lock::stem(LeaseId(u128::from_be_bytes(id)))).collect())
}

/// Removes both files of a lease, unless somebody holds its lock.
fn remove(folder: &Path, stem: &str) {
    let lock = folder.join(format!("{stem}.lock"));
    let proof = lock::prove(&lock, None);
    if !matches!(proof, Ok(Verdict::Won(_) | Verdict::NoFile)) {
        return;
    }
    // What cannot be removed stays until the next time. The lock is kept until its file is gone.
    let _ = fs::remove_file(folder.join(format!("{stem}.sock")));
    let _ = fs::remove_file(lock);
    drop(proof);
}
