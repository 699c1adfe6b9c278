//! Removing files that nobody needs any more: what dead listeners left behind, and the lock files of leases that
//! have no record.
//!
//! It happens in the background when a store is opened.

use crate::runtime::events;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::connection::Client;
use super::lock::{self, Tried};
use super::signals::Folder;
use crate::Error;
use crate::store::open::Missing;

/// Younger lock files stay: their leases may be about to be opened.
const AGE: Duration = Duration::from_secs(3600);
/// How many files are looked at each time.
const MOST: usize = 10_000;

/// Removes what is left in the folder beside the database.
pub(super) fn clean_up(client: &mut Client, folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|found| found.is_dir()) {
            let _ = Folder::open(&entry.path()).map(|signals| signals.clear());
        }
    }
    if let Err(error) = remove_locks(client, folder) {
        events::debug("old lock files are not removed", &error);
    }
}

fn remove_locks(client: &mut Client, folder: &Path) -> Result<(), Error> {
    let old = old_locks(folder);
    if old.is_empty() {
        return Ok(());
    }
    // Read after the folder: a lease that is opened later has a younger file, or its lock is held.
    let leases = client.read(Missing::Leave, |records, _| records.all_leases())?;
    let needed: HashSet<String> = leases.into_iter().map(lock::name).collect();
    for path in old.difference(&needed).map(|name| folder.join(name)) {
        if let Ok(Tried::Won(lock)) = lock::try_win(&path, |_| true) {
            // What cannot be removed stays until the next time. The lock is kept until the file is gone.
            let _ = fs::remove_file(path);
            drop(lock);
        }
    }
    Ok(())
}

fn old_locks(folder: &Path) -> HashSet<String> {
    let is_old = |entry: &fs::DirEntry| {
        let modified = entry.metadata().and_then(|found| found.modified());
        // By the wall clock: if it steps, files are removed sooner or later, but never one that is needed.
        modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age >= AGE))
    };
    let entries = fs::read_dir(folder).into_iter().flatten().take(MOST).flatten();
    let names = entries.filter(is_old).filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.ends_with(".lock")).collect()
}
