//! How signals travel between processes: as datagrams to the socket of every process that follows the channel.
//!
//! Each namespace has a folder. In it are the sockets of the listeners, `ID.sock`, and a folder per channel that
//! somebody follows, with a link `ID` to the socket of each listener. Ids are random and never used twice, so the next
//! sender removes what a dead listener left behind.
//!
//! Signals are sent after COMMIT. They may be lost; no promise depends on them.

use crate::runtime::events;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use tenure_core::{Namespace, StoreTime};

use super::outbox::{Outbox, connect};
use crate::store::backend::{Channel, Heard, Signal, Text};

/// How much text a signal may carry.
pub(super) const MOST_TEXT: usize = 64 * 1024;
/// More than the stamp and the name of a channel take.
pub(super) const MOST_BYTES: usize = MOST_TEXT + 128;

/// The folder of a namespace.
pub(super) fn folder(folder: &Path, namespace: &Namespace) -> PathBuf {
    let digest = Sha256::new().chain_update(b"tenure: signals").chain_update(namespace.as_str()).finalize();
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    folder.join(format!("signals-{name}"))
}

/// The name of a listener's socket.
pub(super) fn socket_name(id: &str) -> String {
    format!("{id}.sock")
}

/// Sends each signal to the first of its channels that somebody follows.
pub(super) fn send<'s>(
    outbox: &Outbox,
    folder: &Path,
    signals: impl Iterator<Item = &'s Signal>,
    stamp: StoreTime,
) {
    let mut signals = signals.peekable();
    if signals.peek().is_none() {
        return;
    }
    // Without the folder nobody has ever listened.
    let Ok(folder) = Folder::open(folder) else { return };
    for signal in signals {
        // The first to which it is sent ends the search.
        let _ = signal.to.iter().find(|channel| folder.send(outbox, channel, stamp, &signal.text));
    }
}

/// A folder by its descriptor: the address of a socket has room for 107 bytes only.
pub(super) struct Folder {
    path: PathBuf,
    descriptor: OwnedFd,
}

impl Folder {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { path: path.to_owned(), descriptor: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// The address of a socket in it, as long as the folder is open.
    pub(super) fn address(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.descriptor.as_raw_fd()))
    }

    /// Sends to all who follow the channel. Returns whether anybody does.
    fn send(&self, outbox: &Outbox, channel: &Channel, stamp: StoreTime, text: &Text) -> bool {
        let Ok(followers) = fs::read_dir(self.path.join(channel.as_str())) else { return false };
        let packed: Arc<[u8]> = pack(channel, stamp, text).into();
        let mut followed = false;
        for id in followers.flatten().filter_map(|follower| follower.file_name().into_string().ok()) {
            let link = format!("{}/{id}", channel.as_str());
            match outbox.send(&id, &self.address(&link), &packed) {
                Ok(()) => followed = true,
                Err(error) if is_dead(&error) => self.remove(&id, &link),
                Err(error) => events::debug("a signal was not sent", &error),
            }
        }
        followed
    }

    /// Removes what a dead listener left behind. What cannot be removed is found again.
    fn remove(&self, id: &str, link: &str) {
        let link = self.path.join(link);
        let _ = fs::remove_file(self.path.join(socket_name(id)));
        let _ = fs::remove_file(&link);
        // Others may follow the channel: then the folder is not empty.
        let _ = link.parent().map(fs::remove_dir);
    }

    /// Removes what dead listeners left behind.
    pub(super) fn clear(&self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if let Some(id) = name.strip_suffix(".sock") {
                if connect(&self.address(&name)).is_err_and(|error| is_dead(&error)) {
                    let _ = fs::remove_file(self.path.join(socket_name(id)));
                }
                continue;
            }
            for follower in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let Ok(id) = follower.file_name().into_string() else { continue };
                let link = format!("{name}/{id}");
                if connect(&self.address(&link)).is_err_and(|error| is_dead(&error)) {
                    self.remove(&id, &link);
                }
            }
        }
    }
}

/// Whether nobody reads there any more: the process was killed, or its socket is removed.
fn is_dead(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

/// The stamp, the name of the channel with its length, and the text.
fn pack(channel: &Channel, stamp: StoreTime, text: &Text) -> Vec<u8> {
    let name = channel.as_str();
    let mut packed = stamp.as_micros().to_le_bytes().to_vec();
    // No name has more than 60 bytes.
    packed.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    packed.extend(name.as_bytes());
    packed.extend(text.as_str().as_bytes());
    packed
}

pub(super) fn unpack(packed: &[u8]) -> Option<Heard> {
    let (stamp, rest) = packed.split_first_chunk()?;
    let (length, rest) = rest.split_first()?;
    let (channel, text) = rest.split_at_checked(usize::from(*length))?;
    Some(Heard {
        channel: Channel::new(str::from_utf8(channel).ok()?),
        stamp: Some(StoreTime::from_micros(u64::from_le_bytes(*stamp))),
        text: str::from_utf8(text).ok()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_arrives_as_it_was_sent_and_garbage_does_not() {
        let (channel, stamp) = (Channel::new("a_channel"), StoreTime::from_micros(u64::MAX));
        for text in [String::new(), "ä".repeat(MOST_TEXT / 2)] {
            let heard = Heard { channel: channel.clone(), stamp: Some(stamp), text: text.into() };
            let packed = pack(&channel, stamp, &heard.text);

            assert!(packed.len() <= MOST_BYTES);
            assert_eq!(unpack(&packed), Some(heard));
        }
        assert_eq!(unpack(b""), None);
        assert_eq!(unpack(b"12345678"), None);
        assert_eq!(unpack(b"12345678\x05four"), None);
        assert_eq!(unpack(b"12345678\x04four\xff"), None);
        assert_eq!(unpack(b"12345678\x04f\xffur"), None);
    }
}
