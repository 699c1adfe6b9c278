//! The lock file of a lease: held by all who could do its work, won by nobody else before they are gone.
//!
//! The lock belongs to the open file (OFD), so it ends when the last process that has the file open is gone,
//! and only then. Locks are kept per process, not per store: dropping a store does not end the work.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use tenure_core::LeaseId;

/// Which file it is, as long as the host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) dev: i64,
    pub(super) ino: i64,
}

impl Identity {
    pub(super) fn of(metadata: &fs::Metadata) -> Self {
        // Both are only ever compared.
        Self { dev: metadata.dev().cast_signed(), ino: metadata.ino().cast_signed() }
    }
}

/// A lock that this process holds.
#[derive(Debug)]
struct Held {
    file: File,
    identity: Identity,
    /// The database in which the lease was opened.
    database: Identity,
}

static HELD: Mutex<Option<HashMap<PathBuf, Held>>> = Mutex::new(None);

/// How [`take`] came by the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Just now.
    Now(Identity),
    /// By an earlier attempt of this process.
    Before(Identity),
    /// Not at all: another process has it.
    ByOthers,
}

/// The name of a lease's files. It says nothing about the lease id, which is the bearer's right.
pub(super) fn stem(lease: LeaseId) -> String {
    let digest = Sha256::new().chain_update(b"tenure: a lease's files").chain_update(lease.0.to_be_bytes());
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn path(folder: &Path, lease: LeaseId) -> PathBuf {
    folder.join(stem(lease) + ".lock")
}

/// Makes the folder for locks and sockets, if it is not there: for this user only.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if fs::symlink_metadata(folder)?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Takes the lock at `path` for this process, making the file if need be, and keeps it until [`let_go`].
pub(super) fn take(path: &Path, database: Identity) -> io::Result<Taken> {
    if let Some(held) = registry().as_ref().and_then(|held| held.get(path)) {
        return Ok(Taken::Before(held.identity));
    }
    // Not under the registry's lock: renewals look there, and a disk may be slow.
    let file = match options().create(true).truncate(false).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), make_folder)?;
            options().create(true).truncate(false).open(path)?
        }
        other => other?,
    };
    if !try_lock(&file)? {
        return Ok(Taken::ByOthers);
    }
    let identity = Identity::of(&file.metadata()?);
    registry().get_or_insert_default().insert(path.to_owned(), Held { file, identity, database });
    Ok(Taken::Now(identity))
}

/// Lets the lock at `path` go, if this process holds it.
pub(super) fn let_go(path: &Path) {
    if let Some(held) = registry().as_mut() {
        held.remove(path);
    }
}

/// Undoes a [`take`] whose lease was never made: nobody can know of the file.
pub(super) fn discard(path: &Path) {
    let mut held = registry();
    let held = held.as_mut().and_then(|held| held.remove(path));
    if held.is_some() {
        // Still locked while it is removed. What stays behind harms nobody.
        let _ = fs::remove_file(path);
    }
}

/// The lock at `path`, for those who are to hold it together with this process.
pub(super) fn share(path: &Path) -> Option<File> {
    registry().as_ref()?.get(path)?.file.try_clone().ok()
}

/// In which database the lease of this lock was opened, if this process opened it.
pub(super) fn database_of(path: &Path) -> Option<Identity> {
    registry().as_ref()?.get(path).map(|held| held.database)
}

/// Where an attempt to prove a death ended.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Nobody holds the lock. As long as this file is kept nobody can.
    Won(File),
    /// Somebody does.
    Held,
    /// There is no such file: nothing can be proved.
    NoFile,
}

/// Opens the lock file, never making it, and tries the lock without waiting. With an `identity` it must be that
/// very file.
pub(super) fn prove(path: &Path, identity: Option<Identity>) -> io::Result<Verdict> {
    let file = match options().open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Verdict::NoFile),
        Err(error) => return Err(error),
    };
    if identity.is_some_and(|identity| file.metadata().map_or(true, |found| Identity::of(&found) != identity))
    {
        return Ok(Verdict::NoFile);
    }
    Ok(if try_lock(&file)? { Verdict::Won(file) } else { Verdict::Held })
}

/// Removes the lock file, unless somebody holds it.
pub(super) fn remove(path: &Path) {
    // What cannot be removed stays behind, and harms nobody.
    if let Ok(Verdict::Won(_still_ours)) = prove(path, None) {
        let _ = fs::remove_file(path);
    }
}

/// Whether any lock in the folder is held. A folder that is not there holds none.
pub(super) fn any_held(folder: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "lock")
            && matches!(prove(&path, None)?, Verdict::Held)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn registry() -> MutexGuard<'static, Option<HashMap<PathBuf, Held>>> {
    // No step of it can be left half done.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The standard library opens with CLOEXEC: only who is handed the lock on purpose holds it, too.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

/// Tries to lock the whole file for this open file alone. Never waits.
#[allow(unsafe_code)] // The kernel's OFD locks have no safe wrapper in the crates at hand.
fn try_lock(file: &File) -> io::Result<bool> {
    use std::os::fd::AsRawFd;

    let whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        // OFD locks demand it.
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for the whole call, and `whole` is a valid flock that the kernel only reads.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) };
    if done == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}
