//! The messages between main and guard: one per packet, and one of them may carry a file descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest message: a label of 100 bytes is the longest thing in it.
const LONGEST: usize = 4096;

/// An order of main to the guard. `run` counts the commands; an order about one that is over changes nothing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start the command under this lease, with these in its environment; with the packet comes the lock of the lease, if it
    /// has one. Answered by `Told::Over` in the end, whatever happens.
    Start { run: u64, lease: u64, variables: Vec<(String, String)> },
    /// Pass a signal on to the command.
    Signal { run: u64, number: i32 },
    /// The ownership was lost.
    Lose { run: u64 },
    /// There is no time left.
    Kill { run: u64 },
    /// Main leaves in good order; there is nothing to be closed.
    Farewell,
}

/// A report of the guard.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// The command runs.
    Started { run: u64, pid: i32 },
    /// The command has ended and left so many processes behind. They were told to end, too.
    Left { run: u64, count: usize },
    /// So many processes do not die of SIGKILL.
    Undead { run: u64, count: usize },
    /// Nothing of it runs any more.
    Over { run: u64, how: How },
}

/// How a command came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    /// With this raw status.
    Ended(i32),
    /// It never ran, because of this error of the kernel.
    NotRun(i32),
    /// It was not started: the lease is over.
    Refused,
}

/// Both ends, neither of which a command inherits.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Sends a message. Does not wait: who does not read for so long is not there.
pub(crate) fn send(to: impl AsFd, message: &impl Serialize, handed: Option<&OwnedFd>) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let handed = handed.map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(handed) = &handed {
        control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(handed)));
    }
    loop {
        match sendmsg(&to, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return Ok(sent.map(drop)?),
        }
    }
}

/// What was received.
#[derive(Debug)]
pub(crate) enum Received<T> {
    Message(T, Option<OwnedFd>),
    Nothing,
    /// The other one is gone.
    End,
}

/// Takes the next message, if there is one.
pub(crate) fn receive<T: DeserializeOwned>(from: impl AsFd) -> io::Result<Received<T>> {
    let mut text = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        match recvmsg(&from, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(Errno::CONNRESET) => return Ok(Received::End),
            got => break got?,
        }
    };
    let handed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut handed) => handed.next(),
        _ => None,
    });
    match got.bytes {
        0 => Ok(Received::End),
        length => Ok(Received::Message(serde_json::from_slice(&text[..length])?, handed)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_message_arrives_with_what_was_handed_over_and_the_end_is_seen() {
        let (ours, theirs) = pair().expect("a pair");
        let (mut reader, writer) = io::pipe().expect("a pipe");

        let variables = vec![("A".to_owned(), "\u{1f600}".to_owned())];
        let order = Order::Start { run: 1, lease: u64::MAX, variables };
        send(&ours, &order, Some(&writer.into())).expect("it is sent");
        send(&ours, &Order::Farewell, None).expect("it is sent");
        drop(ours);

        let first = receive::<Order>(&theirs).expect("it arrives");
        let Received::Message(Order::Start { lease, variables, .. }, Some(handed)) = first else {
            panic!("{first:?}")
        };
        assert_eq!((lease, variables[0].1.as_str()), (u64::MAX, "\u{1f600}"));
        drop(handed);
        assert_eq!(reader.read(&mut [0; 1]).expect("the end"), 0);
        let second = receive::<Order>(&theirs).expect("it arrives");
        assert!(matches!(second, Received::Message(Order::Farewell, None)), "{second:?}");
        assert!(matches!(receive::<Order>(&theirs), Ok(Received::End)));
    }
}
