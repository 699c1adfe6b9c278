//! Wake-ups between processes: one datagram socket per lease, in the folder beside the database.
//!
//! They are sent after the COMMIT and never waited for. They may be lost, late or forged; the claim decides.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tenure_core::{Hint, LeaseId, ResourceName};

use super::burial::Unheard;
use super::lock;
use super::tickets::Wake;

/// The delay, then the name.
const DELAY: usize = size_of::<u64>();
/// More than the longest name needs.
const LONGEST: usize = 256;

/// Sends the wake-ups that follow from a step. Where nobody listens the hint goes on to the next at once. Returns
/// whom it did not reach.
pub(super) fn send(folder: &Path, wakes: &[Wake]) -> Vec<Unheard> {
    let mut unheard = Vec::new();
    if wakes.iter().all(|wake| wake.waiters.is_empty()) {
        return unheard;
    }
    let (Ok(folder), Ok(from)) = (Folder::open(folder), UnixDatagram::unbound()) else { return unheard };
    if from.set_nonblocking(true).is_err() {
        return unheard;
    }
    for wake in wakes {
        let mut reached = 0;
        for sleeper in &wake.waiters {
            if reached > wake.free {
                break;
            }
            let after = if reached < wake.free { Duration::ZERO } else { sleeper.step };
            let heard = sleeper.is_awake || {
                let sent = from.send_to(&pack(&wake.resource, after), folder.socket(sleeper.lease));
                // One whose queue is full listens, too.
                sent.map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |_| true)
            };
            if heard {
                reached += 1;
            } else {
                unheard.push(Unheard { lease: sleeper.lease, resource: wake.resource.clone() });
            }
        }
    }
    unheard
}

/// The socket on which the hints for this lease arrive.
pub(super) fn listen(folder: &Path, lease: LeaseId) -> io::Result<UnixDatagram> {
    let folder = Folder::open(folder)?;
    let path = folder.socket(lease);
    // A subscription that is repeated takes the place of the earlier one.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixDatagram::bind(&path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Removes the socket of a lease that is over.
pub(super) fn remove(folder: &Path, lease: LeaseId) {
    // One that was never there is gone, too.
    let _ = fs::remove_file(folder.join(lock::stem(lease) + ".sock"));
}

/// Everything that has arrived.
pub(super) fn receive(socket: &UnixDatagram, lease: LeaseId) -> Vec<Hint> {
    let mut hints = Vec::new();
    let mut packed = [0; LONGEST];
    // The socket does not block; its queue is short.
    while let Ok(length) = socket.recv(&mut packed) {
        hints.extend(unpack(&packed[..length], lease));
    }
    hints
}

pub(super) fn pack(resource: &ResourceName, after: Duration) -> Vec<u8> {
    let after = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
    let mut packed = after.to_le_bytes().to_vec();
    packed.extend_from_slice(resource.as_str().as_bytes());
    packed
}

pub(super) fn unpack(packed: &[u8], lease: LeaseId) -> Option<Hint> {
    let (after, name) = packed.split_first_chunk::<DELAY>()?;
    let resource = ResourceName::new(str::from_utf8(name).ok()?).ok()?;
    Some(Hint { lease, resource, after: Duration::from_micros(u64::from_le_bytes(*after)) })
}

/// Leases of which a claim will probably be granted something, because a hint came for them. A wrong guess costs
/// time, nothing else.
#[derive(Debug, Default)]
pub(super) struct Hinted(Mutex<HashSet<LeaseId>>);

impl Hinted {
    pub(super) fn note(&self, lease: LeaseId) {
        self.leases().insert(lease);
    }

    pub(super) fn take(&self, lease: LeaseId) -> bool {
        self.leases().remove(&lease)
    }

    fn leases(&self) -> MutexGuard<'_, HashSet<LeaseId>> {
        // No step of it can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The folder by a descriptor: the address of a socket has room for 107 bytes only.
pub(super) struct Folder(OwnedFd);

impl Folder {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(folder, flags, Mode::empty())?))
    }

    fn socket(&self, lease: LeaseId) -> PathBuf {
        self.file(&(lock::stem(lease) + ".sock"))
    }

    /// A file in it, as long as the folder is open.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_arrives_as_it_was_packed_and_rubbish_does_not() {
        let resource = ResourceName::new("naïve job").expect("a name");
        let after = Duration::from_millis(100);

        let hint = unpack(&pack(&resource, after), LeaseId(7)).expect("a hint");

        assert_eq!((hint.lease, hint.resource, hint.after), (LeaseId(7), resource, after));
        assert!(unpack(b"short", LeaseId(7)).is_none());
        assert!(unpack(b"12345678\xff", LeaseId(7)).is_none() && unpack(b"12345678", LeaseId(7)).is_none());
    }
}
