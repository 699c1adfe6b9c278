//! The lock file of a lease: held by all who could do its work, won by nobody else before they are gone.
//!
//! The lock belongs to the open file (OFD), so it ends when the last process that has the file open is gone,
//! and only then. Locks are kept per process, not per store: dropping a store does not end the work.
//!
//! What stands in the file says how much the lock tells. Nothing: all who do the work hold it. `new`: the lease is not
//! opened yet, so there is no work. A number: the work may outlive all who hold it, by so many milliseconds.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
    /// Absent before the lease is opened.
    opening: Option<Opening>,
}

/// The lease that is to be opened under a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    /// The database in which it is opened.
    pub(super) database: Identity,
    /// How long its work may outlive all who hold the lock, if it may.
    pub(super) unproved: Option<Duration>,
}

/// What stands in the file of a lock whose lease is not opened yet.
const NEW: &str = "new";
/// What is made of a file that says nothing sensible: no lease is longer.
const LONGEST: Duration = Duration::from_secs(3600);
/// How often a lock is taken again whose file was removed meanwhile.
const TRIES: usize = 8;

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

/// Takes the lock at `path` for this process, making the file if need be, and keeps it until [`let_go`]. Without an
/// `opening` it is taken for a lease that will be opened later.
pub(super) fn take(path: &Path, opening: Option<Opening>) -> io::Result<Taken> {
    // No file is touched under the registry's lock: renewals look there, and a disk may be slow.
    let before = registry().as_ref().and_then(|held| held.get(path)).map(|held| {
        let unopened = opening.is_some() && held.opening.is_none();
        (held.identity, unopened.then(|| held.file.try_clone()))
    });
    if let Some((identity, unopened)) = before {
        if let Some(file) = unopened {
            note(&file?, opening)?;
            if let Some(held) = registry().as_mut().and_then(|held| held.get_mut(path)) {
                held.opening = opening;
            }
        }
        return Ok(Taken::Before(identity));
    }
    for _ in 0..TRIES {
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
        // Whoever clears old files removes them under their locks: what was locked may no longer lie there.
        if fs::metadata(path).is_ok_and(|found| Identity::of(&found) == identity) {
            note(&file, opening)?;
            registry().get_or_insert_default().insert(path.to_owned(), Held { file, identity, opening });
            return Ok(Taken::Now(identity));
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Writes down how much the lock tells.
fn note(file: &File, opening: Option<Opening>) -> io::Result<()> {
    let told = match opening {
        None => NEW.to_owned(),
        Some(Opening { unproved: None, .. }) => String::new(),
        Some(Opening { unproved: Some(ttl), .. }) => ttl.as_millis().to_string(),
    };
    file.set_len(0)?;
    file.write_all_at(told.as_bytes(), 0)
}

/// Lets the lock at `path` go, if this process holds it: there is no work under its lease any more.
pub(super) fn let_go(path: &Path) {
    let held = registry().as_mut().and_then(|held| held.remove(path));
    if let Some(Held { file, opening: Some(Opening { unproved: Some(_), .. }), .. }) = held {
        // If it stays, somebody may wait for a work that has ended.
        let _ = file.set_len(0);
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
    registry().as_ref()?.get(path)?.opening.map(|opening| opening.database)
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

/// What the locks in a folder say together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    /// Whether one is held under which there may be work.
    pub(super) is_held: bool,
    /// How long work may outlive all who hold its lock, if some may.
    pub(super) unproved: Option<Duration>,
}

/// Looks at all locks in the folder. One that is not there holds none.
pub(super) fn census(folder: &Path) -> io::Result<Census> {
    let mut census = Census::default();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(census),
        Err(error) => return Err(error),
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
        // Tried before it is read: what a holder is about to write down is not missed.
        let is_held = !try_lock(&file)?;
        let mut told = [0; 32];
        let length = file.read_at(&mut told, 0)?;
        match &told[..length] {
            told if told == NEW.as_bytes() => {}
            [] => census.is_held |= is_held,
            told => {
                let millis = str::from_utf8(told).ok().and_then(|told| told.parse().ok());
                let ttl = millis.map_or(LONGEST, Duration::from_millis);
                census.is_held |= is_held;
                census.unproved = census.unproved.max(Some(ttl));
            }
        }
    }
    Ok(census)
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
