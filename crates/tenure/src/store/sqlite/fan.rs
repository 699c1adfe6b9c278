//! What owners send to all: a datagram to the socket of each who has subscribed, in the folder beside the database.
//!
//! The name of a socket begins with a hash of what it is for; the message says it in full, so that two that hash alike are
//! told apart. A socket that nobody listens at any more is removed by whoever finds that out, in sending or when a store is
//! opened: no name is used twice.

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sha2::{Digest, Sha256};
use tenure_core::{Message, Namespace, Payload, ResourceName, Ticket, Token};

use super::hints::Folder;
use crate::engine::random;

/// How long one message waits in all for subscribers whose queues are full: the kernel keeps as few as ten for each.
pub(super) const PATIENCE: Duration = Duration::from_millis(50);
/// More than the longest message needs: the head, two names, and the bytes.
const LONGEST: usize = 8192;

/// Where the messages of one subscription arrive. Its file goes with it.
#[derive(Debug)]
pub(super) struct Post {
    socket: UnixDatagram,
    path: PathBuf,
    namespace: Namespace,
    resource: ResourceName,
}

impl Post {
    pub(super) fn open(folder: &Path, namespace: &Namespace, resource: &ResourceName) -> io::Result<Self> {
        let name = format!("{}-{:032x}.fan", stem(namespace, resource), random::<16>());
        let by_descriptor = Folder::open(folder)?;
        let socket = UnixDatagram::bind(by_descriptor.file(&name))?;
        let path = folder.join(name);
        let (namespace, resource) = (namespace.clone(), resource.clone());
        let post = Self { socket, path, namespace, resource };
        post.socket.set_nonblocking(true)?;
        Ok(post)
    }

    pub(super) fn socket(&self) -> &UnixDatagram {
        &self.socket
    }

    /// Everything that has arrived.
    pub(super) fn receive(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut packed = [0; LONGEST];
        // The socket does not block; its queue is short.
        while let Ok(length) = self.socket.recv(&mut packed) {
            messages.extend(unpack(&packed[..length], &self.namespace, &self.resource));
        }
        messages
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        // One that is gone already is gone.
        let _ = fs::remove_file(&self.path);
    }
}

/// Sends to all who have subscribed and have room. Returns the others, who may have some soon.
pub(super) fn send(folder: &Path, namespace: &Namespace, message: &Message) -> io::Result<Slow> {
    let (prefix, packed) = (stem(namespace, &message.resource), pack(namespace, message));
    let by_descriptor = Folder::open(folder)?;
    let mut waiting = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(&prefix) && name.ends_with(".fan"))
        else {
            continue;
        };
        let to = UnixDatagram::unbound()?;
        to.set_nonblocking(true)?;
        let sent = to.connect(by_descriptor.file(name)).and_then(|()| to.send(&packed));
        match sent.map_err(|error| error.kind()) {
            Err(io::ErrorKind::WouldBlock) => waiting.push(to),
            // Nobody listens there, and nobody will.
            Err(io::ErrorKind::ConnectionRefused) => drop(fs::remove_file(folder.join(name))),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(Slow { waiting, packed })
}

/// Removes the sockets of those who are gone: subscribers that were killed leave them behind.
pub(super) fn clear(folder: &Path) {
    let (Ok(entries), Ok(by_descriptor)) = (fs::read_dir(folder), Folder::open(folder)) else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let connect = || UnixDatagram::unbound()?.connect(by_descriptor.file(&name));
        if name.ends_with(".fan")
            && connect().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            // What cannot be removed stays until the next time.
            let _ = fs::remove_file(folder.join(&name));
        }
    }
}

/// Those whose queues were full.
#[derive(Debug)]
#[must_use = "they are waited for"]
pub(super) struct Slow {
    waiting: Vec<UnixDatagram>,
    packed: Vec<u8>,
}

impl Slow {
    /// Waits until they have room, but not for longer than this in all. Who has none by then does not get it.
    pub(super) fn wait(self, patience: Duration) {
        let until = Instant::now() + patience;
        for to in self.waiting {
            loop {
                let left = until.saturating_duration_since(Instant::now());
                let limit = Timespec::try_from(left).ok();
                // It has room, or it is gone; if the kernel was interrupted, the next round tells.
                let _ = poll(&mut [PollFd::new(&to, PollFlags::OUT)], limit.as_ref());
                let is_full =
                    to.send(&self.packed).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
                if !is_full || left.is_zero() {
                    break;
                }
            }
        }
    }
}

/// How the names of the sockets of one resource begin.
fn stem(namespace: &Namespace, resource: &ResourceName) -> String {
    let digest = Sha256::new()
        .chain_update(b"tenure: who listens\0")
        .chain_update(namespace.as_str())
        .chain_update(b"\0")
        .chain_update(resource.as_str());
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Token, ticket, both names with their lengths, and the bytes.
pub(super) fn pack(namespace: &Namespace, message: &Message) -> Vec<u8> {
    let mut packed = message.token.0.to_le_bytes().to_vec();
    packed.extend(message.ticket.0.to_le_bytes());
    for name in [namespace.as_str(), message.resource.as_str()] {
        // No name is longer than 200 bytes.
        packed.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        packed.extend(name.as_bytes());
    }
    packed.extend(message.payload.as_bytes());
    packed
}

pub(super) fn unpack(packed: &[u8], namespace: &Namespace, resource: &ResourceName) -> Option<Message> {
    let (token, rest) = packed.split_first_chunk::<8>()?;
    let (ticket, mut rest) = rest.split_first_chunk::<4>()?;
    for expected in [namespace.as_str(), resource.as_str()] {
        let (length, named) = rest.split_first()?;
        let (name, after) = named.split_at_checked(usize::from(*length))?;
        if name != expected.as_bytes() {
            return None;
        }
        rest = after;
    }
    Some(Message {
        resource: resource.clone(),
        ticket: Ticket(u32::from_le_bytes(*ticket)),
        token: Token(u64::from_le_bytes(*token)),
        payload: Payload::new(rest).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> Message {
        let resource = ResourceName::new("naïve job").expect("a name");
        let payload = Payload::new(bytes).expect("not too much");
        Message { resource, ticket: Ticket(3), token: Token(u64::MAX), payload }
    }

    #[test]
    fn a_message_arrives_as_it_was_packed_and_rubbish_does_not() {
        let (space, other) = (Namespace::default(), Namespace::new("other").expect("a name"));
        for bytes in [&[][..], &[0; Payload::MOST][..]] {
            let sent = message(bytes);
            let packed = pack(&space, &sent);

            assert_eq!(unpack(&packed, &space, &sent.resource), Some(sent.clone()));
            assert_eq!(unpack(&packed, &other, &sent.resource), None);
            assert_eq!(unpack(&packed, &space, &ResourceName::new("job").expect("a name")), None);
            for length in 0..30 {
                assert_eq!(unpack(&packed[..length], &space, &sent.resource), None, "{length} bytes of it");
            }
        }
        assert_eq!(unpack(&[0xFF; LONGEST], &space, &message(b"").resource), None);
    }

    #[test]
    fn who_is_slow_is_waited_for_and_who_is_gone_is_forgotten() {
        let folder = std::env::temp_dir().join(format!("tenure-fan-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        let (space, sent) = (Namespace::default(), message(b"hello"));
        let post = Post::open(&folder, &space, &sent.resource).expect("a socket");
        let gone = Post::open(&folder, &space, &sent.resource).expect("a socket");
        // As `kill -9` leaves it: the file stays.
        fs::rename(&gone.path, folder.join("kept")).expect("moved");
        let name = gone.path.clone();
        drop(gone);
        fs::rename(folder.join("kept"), &name).expect("moved back");

        let (begun, mut sent_at_once) = (Instant::now(), 0);
        let slow = loop {
            assert!(begun.elapsed() < Duration::from_secs(10), "its queue is never full");
            let slow = send(&folder, &space, &sent).expect("a folder");
            if !slow.waiting.is_empty() {
                break slow;
            }
            sent_at_once += 1;
        };
        assert!(!name.exists(), "nobody listens there");
        let reader = std::thread::spawn(move || {
            let (begun, mut count) = (Instant::now(), 0);
            while count <= sent_at_once && begun.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(1));
                count += post.receive().len();
            }
            count
        });
        slow.wait(Duration::from_secs(10));

        assert_eq!(reader.join().expect("a count"), sent_at_once + 1);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
