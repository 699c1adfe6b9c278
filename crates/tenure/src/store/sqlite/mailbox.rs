//! Messages to a thread that waits in `poll`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};

use rustix::event::{EventfdFlags, eventfd};

use crate::Error;

/// Where messages are put in. The thread ends when it is dropped.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    /// Absent only while it is dropped.
    to: Option<mpsc::Sender<T>>,
    bell: Arc<OwnedFd>,
}

/// Where the thread takes them out.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    from: mpsc::Receiver<T>,
    bell: Arc<OwnedFd>,
}

pub(super) fn mailbox<T>() -> Result<(Mailbox<T>, Inbox<T>), Error> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|error| Error::unavailable("cannot make an eventfd").because(error))?;
    let (bell, (to, from)) = (Arc::new(bell), mpsc::channel());
    Ok((Mailbox { to: Some(to), bell: Arc::clone(&bell) }, Inbox { from, bell }))
}

impl<T> Mailbox<T> {
    pub(super) fn send(&self, message: T) {
        // A thread that has gone answers nothing, which its callers notice.
        let _ = self.to.as_ref().map(|to| to.send(message));
        self.ring();
    }

    fn ring(&self) {
        // It fails only if the bell has rung 2^64 times, unheard.
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        // In this order: the thread that is woken up has to see that nobody can send any more.
        drop(self.to.take());
        self.ring();
    }
}

impl<T> Inbox<T> {
    /// Readable when there is something to take.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// All messages that are there. Nothing when there will be no more.
    pub(super) fn take(&self) -> Option<Vec<T>> {
        // Nothing to read: it was woken up by something else.
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        let mut messages = Vec::new();
        loop {
            match self.from.try_recv() {
                Ok(message) => messages.push(message),
                Err(mpsc::TryRecvError::Empty) => return Some(messages),
                Err(mpsc::TryRecvError::Disconnected) => return None,
            }
        }
    }
}
