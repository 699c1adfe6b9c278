//! The lock file of a lease: held by every process that may do the lease's work, so that a process that wins
//! the lock has proved that all of them are dead.
//!
//! The lock belongs to the open file (OFD lock). It ends when the last process that has the file open is gone. This
//! process keeps its locks in a table of its own, because the work may go on after the store is dropped.
//!
//! A lock file with text in it belongs to a lease without proof: its work may outlive the lock.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use tenure_core::LeaseId;

use super::place::Identity;
use crate::runtime::process::PerProcess;

/// Whether the end of a lock proves the end of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    On,
    Off,
}

/// The text in the lock file of a lease without proof.
const UNPROVED: &[u8] = b"unproved";
/// How often a lock is tried again whose file was removed meanwhile.
const TRIES: usize = 8;

/// The locks of this process, by path. A forked child has the files open, too: as long as it lives, its parent is not proved dead.
static HELD: PerProcess<Mutex<HashMap<PathBuf, Held>>> = PerProcess::new();

#[derive(Debug)]
struct Held {
    file: File,
    identity: Identity,
    proof: Proof,
}

/// The lock file of a lease. The name is a hash, because paths get into error messages and lease ids must not.
pub(super) fn path(folder: &Path, lease: LeaseId) -> PathBuf {
    folder.join(name(lease))
}

/// The name of that file.
pub(super) fn name(lease: LeaseId) -> String {
    let digest = Sha256::new().chain_update(b"tenure: a lease's files").chain_update(lease.0.to_be_bytes());
    let stem: String = digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    stem + ".lock"
}

/// Takes the lock for this process and keeps it until [`let_go`]. Taking it again changes nothing. Returns nothing
/// if another process has it.
pub(super) fn take(path: &Path, proof: Proof) -> io::Result<Option<Identity>> {
    if let Some(held) = table().get(path) {
        return Ok(Some(held.identity));
    }
    for _ in 0..TRIES {
        let file = options().create(true).truncate(false).open(path)?;
        if !try_lock(&file)? {
            return Ok(None);
        }
        let identity = Identity::of(&file.metadata()?);
        // Old files are removed under their locks: the file that was locked may be gone from the folder.
        if fs::metadata(path).is_ok_and(|found| Identity::of(&found) == identity) {
            file.set_len(0)?;
            if proof == Proof::Off {
                file.write_all_at(UNPROVED, 0)?;
            }
            table().insert(path.to_owned(), Held { file, identity, proof });
            return Ok(Some(identity));
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Lets the lock go, if this process has it: nothing is done under its lease any more.
pub(super) fn let_go(path: &Path) {
    let held = table().remove(path);
    if let Some(Held { file, proof: Proof::Off, .. }) = held {
        // If the text stays, a new database waits for work that has ended.
        let _ = file.set_len(0);
    }
}

/// The lock of this process, for another process that is to hold it, too.
pub(super) fn share(path: &Path) -> Option<File> {
    table().get(path)?.file.try_clone().ok()
}

/// What an attempt to win a lock showed.
#[derive(Debug)]
pub(super) enum Tried {
    /// Nobody had the lock. As long as this file is kept, nobody else can have it.
    Won(File),
    /// Somebody has it.
    Held,
    /// It is not there, or another file has its name: nothing can be proved.
    Missing,
}

/// Tries to win the lock at `path`, if the file there `is` the right one. Never creates it, never waits.
pub(super) fn try_win(path: &Path, is: impl FnOnce(Identity) -> bool) -> io::Result<Tried> {
    let file = match options().open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Tried::Missing),
        Err(error) => return Err(error),
    };
    if !is(Identity::of(&file.metadata()?)) {
        return Ok(Tried::Missing);
    }
    Ok(if try_lock(&file)? { Tried::Won(file) } else { Tried::Held })
}

/// What the lock files in a folder tell together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    /// Some process has a lock.
    pub(super) held: bool,
    /// The work of some lease may go on although nobody has its lock.
    pub(super) unproved: bool,
}

/// Looks at all locks in the folder, without taking any.
pub(super) fn census(folder: &Path) -> io::Result<Census> {
    let mut census = Census::default();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(census),
        other => other?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        let file = match options().open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        census.held |= is_locked(&file)?;
        // Read after the lock was looked at: a holder that ends in between cleared it first.
        census.unproved |= file.metadata()?.len() > 0;
    }
    Ok(census)
}

fn table() -> MutexGuard<'static, HashMap<PathBuf, Held>> {
    // A map is never left half changed.
    HELD.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The standard library opens with CLOEXEC: only a process that is given the lock on purpose has it.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

/// Tries to lock the whole file for this open file alone.
fn try_lock(file: &File) -> io::Result<bool> {
    match ofd_lock(file, libc::F_OFD_SETLK) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether another open file has the lock.
fn is_locked(file: &File) -> io::Result<bool> {
    Ok(ofd_lock(file, libc::F_OFD_GETLK)?.l_type != libc::F_UNLCK as libc::c_short)
}

#[allow(unsafe_code)] // The crates at hand have no safe wrapper for the kernel's OFD locks.
fn ofd_lock(file: &File, command: libc::c_int) -> io::Result<libc::flock> {
    let mut whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        // OFD locks demand it.
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for the whole call, and `whole` is a valid flock that lives as long.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut whole) };
    if done == 0 { Ok(whole) } else { Err(io::Error::last_os_error()) }
}
