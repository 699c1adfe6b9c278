//! The thread that receives signals: one socket for all channels that this process follows in a namespace.

use std::collections::HashSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::error::io_error;
use super::mailbox::{Inbox, Mailbox, mailbox};
use super::signals::{self, Folder, MOST_BYTES, socket_name};
use crate::Error;
use crate::runtime::engine::random;
use crate::store::Pending;
use crate::store::backend::{Channel, Heard, Signals, Subscriptions};

/// How often the folder of a channel is made again that somebody removes at the same time, because it is empty.
const TRIES: usize = 8;

/// Starts to listen in the folder of a namespace. The disk is touched by the new thread only, because it may hang.
pub(super) async fn listen(folder: PathBuf) -> Result<(Arc<dyn Subscriptions>, Signals), Error> {
    let (mailbox, inbox) = mailbox()?;
    let (to, signals) = unbounded_channel();
    let (ready, is_ready) = oneshot::channel();
    let run = move || match Listener::bind(folder, inbox, to) {
        Ok(listener) => {
            // A caller that has gone drops the mailbox, which ends the thread.
            let _ = ready.send(Ok(()));
            listener.run();
        }
        Err(error) => drop(ready.send(Err(error))),
    };
    std::thread::Builder::new()
        .name("tenure-sqlite-listener".to_owned())
        .spawn(run)
        .map_err(|error| Error::unavailable("cannot start a thread for the store").because(error))?;
    is_ready.await.unwrap_or_else(|_| Err(stopped()))?;
    Ok((Arc::new(Followed(mailbox)), signals))
}

fn stopped() -> Error {
    Error::unavailable("the thread that listens for signals has stopped")
}

#[derive(Debug)]
enum Command {
    Follow(Channel, oneshot::Sender<Result<(), Error>>),
    Forget(Channel),
}

#[derive(Debug)]
struct Followed(Mailbox<Command>);

impl Subscriptions for Followed {
    fn follow(&self, channel: Channel) -> Pending<'_, ()> {
        Box::pin(async {
            let (reply, answer) = oneshot::channel();
            self.0.send(Command::Follow(channel, reply));
            answer.await.unwrap_or_else(|_| Err(stopped()))
        })
    }

    fn forget(&self, channel: &Channel) {
        self.0.send(Command::Forget(channel.clone()));
    }
}

/// The socket and what is followed. Dropping it removes both from the disk.
struct Listener {
    path: PathBuf,
    id: String,
    socket: UnixDatagram,
    followed: HashSet<Channel>,
    inbox: Inbox<Command>,
    to: UnboundedSender<Heard>,
}

impl Listener {
    fn bind(path: PathBuf, inbox: Inbox<Command>, to: UnboundedSender<Heard>) -> Result<Self, Error> {
        let id = format!("{:016x}", random::<8>());
        let bind = || {
            make(&path)?;
            let socket = UnixDatagram::bind(Folder::open(&path)?.address(&socket_name(&id)))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = bind().map_err(|error| io_error("make a socket in", &path, error))?;
        Ok(Self { path, id, socket, followed: HashSet::new(), inbox, to })
    }

    fn run(mut self) {
        let mut buffer = vec![0; MOST_BYTES];
        while !self.to.is_closed() {
            let bell = PollFd::from_borrowed_fd(self.inbox.bell(), PollFlags::IN);
            if poll(&mut [bell, PollFd::new(&self.socket, PollFlags::IN)], None).is_err() {
                // Interrupted, or out of memory for a moment.
                std::thread::sleep(Duration::from_millis(1));
            }
            let Some(commands) = self.inbox.take() else { return };
            for command in commands {
                match command {
                    Command::Follow(channel, reply) => {
                        let followed = self.follow(&channel);
                        let is_lost = followed.is_err() && !self.is_reachable();
                        let error = |error| io_error("follow a channel in", &self.path, error);
                        // A caller that has gone follows it all the same, until it forgets it.
                        let _ = reply.send(followed.map_err(error));
                        if is_lost {
                            return;
                        }
                    }
                    Command::Forget(channel) => self.forget(&channel),
                }
            }
            // The socket does not block.
            while let Ok(length) = self.socket.recv(&mut buffer) {
                let heard = signals::unpack(&buffer[..length]);
                if let Some(heard) = heard.filter(|heard| self.followed.contains(&heard.channel)) {
                    // The loop ends when nobody listens any more.
                    let _ = self.to.send(heard);
                }
            }
        }
    }

    fn follow(&mut self, channel: &Channel) -> io::Result<()> {
        if !self.is_reachable() {
            // Somebody removed the folder: no signal arrives here any more.
            return Err(io::ErrorKind::NotFound.into());
        }
        if self.followed.contains(channel) {
            return Ok(());
        }
        let folder = self.path.join(channel.as_str());
        let target = PathBuf::from("..").join(socket_name(&self.id));
        for _ in 0..TRIES {
            make(&folder)?;
            match symlink(&target, folder.join(&self.id)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    self.followed.insert(channel.clone());
                    return Ok(());
                }
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    fn forget(&mut self, channel: &Channel) {
        if self.followed.remove(channel) {
            self.unlink(channel);
        }
    }

    fn unlink(&self, channel: &Channel) {
        let folder = self.path.join(channel.as_str());
        // The next sender removes what stays.
        let _ = fs::remove_file(folder.join(&self.id));
        let _ = fs::remove_dir(folder);
    }

    /// Whether the socket still lies where senders look for it.
    fn is_reachable(&self) -> bool {
        fs::symlink_metadata(self.path.join(socket_name(&self.id))).is_ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // First, so that nobody finds it by a link.
        let _ = fs::remove_file(self.path.join(socket_name(&self.id)));
        self.followed.iter().for_each(|channel| self.unlink(channel));
    }
}

/// Makes a folder for this user only, unless it is there.
fn make(folder: &PathBuf) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
