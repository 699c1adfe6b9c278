//! Datagrams to listeners whose queues are full. The kernel queues as few as ten for a socket, and a sender must not
//! wait for a listener that is slow or stopped.
//!
//! A thread is started when something has to wait, and ends when nothing waits any more.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What waits for a listener is dropped when it has read nothing for so long: it is stopped, or stuck.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many bytes may wait for one listener.
const MOST_BYTES: usize = 16 << 20;
/// How often the thread looks for more to send, while something waits.
const TICK: Duration = Duration::from_millis(5);

/// What has to wait, by the id of the listener.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    queues: HashMap<String, Queue>,
    has_thread: bool,
}

#[derive(Debug)]
struct Queue {
    socket: Arc<UnixDatagram>,
    datagrams: VecDeque<Arc<[u8]>>,
    bytes: usize,
    /// When it was begun, or something in it was sent.
    moved_at: Instant,
}

impl Outbox {
    /// Sends the datagram, now or as soon as the listener has room, but never before what already waits for it.
    pub(super) fn send(&self, listener: &str, address: &Path, datagram: &Arc<[u8]>) -> io::Result<()> {
        let mut state = self.state();
        if let Some(queue) = state.queues.get_mut(listener) {
            if queue.bytes + datagram.len() <= MOST_BYTES {
                queue.push(datagram);
            }
            return Ok(());
        }
        let socket = connect(address)?;
        match socket.send(datagram) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return sent.map(drop),
        }
        if !state.has_thread {
            let (outbox, name) = (self.clone(), "tenure-sqlite-outbox".to_owned());
            // It begins when the state is unlocked.
            std::thread::Builder::new().name(name).spawn(move || outbox.run())?;
            state.has_thread = true;
        }
        let socket = Arc::new(socket);
        let mut queue = Queue { socket, datagrams: VecDeque::new(), bytes: 0, moved_at: Instant::now() };
        queue.push(datagram);
        state.queues.insert(listener.to_owned(), queue);
        Ok(())
    }

    fn run(self) {
        loop {
            let sockets: Vec<_> = self.state().queues.values().map(|queue| queue.socket.clone()).collect();
            let mut fds: Vec<_> =
                sockets.iter().map(|socket| PollFd::new(&**socket, PollFlags::OUT)).collect();
            // Until the first has room. If it is interrupted all are tried all the same.
            let _ = poll(&mut fds, Timespec::try_from(TICK).ok().as_ref());
            let mut state = self.state();
            state.queues.retain(|_, queue| queue.flush());
            if state.queues.is_empty() {
                state.has_thread = false;
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn push(&mut self, datagram: &Arc<[u8]>) {
        self.bytes += datagram.len();
        self.datagrams.push_back(Arc::clone(datagram));
    }

    /// Sends as much as there is room for. Returns whether anything has to wait.
    fn flush(&mut self) -> bool {
        while let Some(datagram) = self.datagrams.front() {
            match self.socket.send(datagram) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.moved_at.elapsed() < PATIENCE;
                }
                // Nobody listens there any more.
                Err(_) => return false,
                Ok(_) => {
                    self.bytes -= datagram.len();
                    self.datagrams.pop_front();
                    self.moved_at = Instant::now();
                }
            }
        }
        false
    }
}

/// A socket that sends to this address only: a shared socket's buffer would be used up by a listener that reads
/// nothing.
pub(super) fn connect(address: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(address)?;
    Ok(socket)
}
