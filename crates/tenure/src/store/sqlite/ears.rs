//! One thread per store that listens: for hints to our leases, and for the deaths of those whom they wait for.
//!
//! A pidfd is the hint of a death; the lock, tried without waiting, is the proof.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tenure_core::{Hint, LeaseId, Message, Namespace, ResourceName};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::desk::Job;
use super::fan::Post;
use super::hints::{self, Hinted};
use super::host::Process;
use super::lock::{self, Verdict};
use super::trouble::refused_by_kernel;
use super::watch::{Role, Target, Watch};
use crate::Error;

/// A lock that is still held is tried again after this, then after twice as long, and so on.
const FIRST_RETRY: Duration = Duration::from_millis(1);
/// But never later than this.
const LAST_RETRY: Duration = Duration::from_millis(100);

/// What the ears are told.
#[derive(Debug)]
pub(super) enum News {
    /// Hints for this lease are wanted there. It takes the place of what was wanted before.
    Listen { lease: LeaseId, to: UnboundedSender<Hint>, reply: oneshot::Sender<Result<(), Error>> },
    /// What the owners of this resource send is wanted there.
    Subscribe {
        namespace: Namespace,
        resource: ResourceName,
        to: UnboundedSender<Message>,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    /// Whom our leases watch now.
    Watch(Vec<Watch>),
    /// A lease of ours was closed.
    Closed(LeaseId),
    /// This lease's worker is dead, and that is written down.
    Over(LeaseId),
    /// The store is dropped.
    Stop,
}

/// How the others speak to them.
#[derive(Debug)]
pub(super) struct Ears {
    to: mpsc::Sender<News>,
    bell: UnixDatagram,
}

/// What the thread needs to begin.
#[derive(Debug)]
pub(super) struct Deaf {
    from: mpsc::Receiver<News>,
    bell: UnixDatagram,
}

impl Ears {
    pub(super) fn new() -> Result<(Self, Deaf), Error> {
        let pair = || -> io::Result<_> {
            let (ring, bell) = UnixDatagram::pair()?;
            ring.set_nonblocking(true)?;
            bell.set_nonblocking(true)?;
            Ok((ring, bell))
        };
        let (ring, bell) =
            pair().map_err(|error| Error::unavailable("cannot make a socket").because(error))?;
        let (to, from) = mpsc::channel();
        Ok((Self { to, bell: ring }, Deaf { from, bell }))
    }

    pub(super) fn tell(&self, news: News) {
        // Without a thread there is nobody to tell; with a full bell it is ringing.
        if self.to.send(news).is_ok() {
            let _ = self.bell.send(&[0]);
        }
    }
}

impl Deaf {
    /// Starts the thread. Deaths that it proves are closed at `desk`.
    pub(super) fn start(
        self,
        folder: PathBuf,
        us: Process,
        hinted: Arc<Hinted>,
        desk: mpsc::Sender<Job>,
    ) -> Result<(), Error> {
        let listening = Listening {
            folder,
            us,
            hinted,
            desk,
            from: self.from,
            bell: self.bell,
            listeners: HashMap::new(),
            subscribers: BTreeMap::new(),
            subscriptions: 0,
            watches: HashMap::new(),
            watched: HashMap::new(),
        };
        let gone = |error| Error::unavailable("cannot start a thread for the store").because(error);
        std::thread::Builder::new()
            .name("tenure-sqlite-ears".to_owned())
            .spawn(move || listening.run())
            .map_err(gone)?;
        Ok(())
    }
}

struct Listening {
    folder: PathBuf,
    us: Process,
    hinted: Arc<Hinted>,
    desk: mpsc::Sender<Job>,
    from: mpsc::Receiver<News>,
    bell: UnixDatagram,
    listeners: HashMap<LeaseId, Listener>,
    subscribers: BTreeMap<u64, Subscriber>,
    /// How many there ever were.
    subscriptions: u64,
    /// By who watches and why, whom.
    watches: HashMap<(LeaseId, ResourceName), (Role, Vec<LeaseId>)>,
    watched: HashMap<LeaseId, Watched>,
}

/// One who wants the hints for a lease.
struct Listener {
    /// Absent when the lease is closed: nothing comes any more, but the stream does not end, or it would be asked for
    /// again.
    socket: Option<UnixDatagram>,
    to: UnboundedSender<Hint>,
}

/// One who wants what the owners of a resource send.
struct Subscriber {
    post: Post,
    to: UnboundedSender<Message>,
}

struct Watched {
    target: Target,
    /// How many watch it.
    by: usize,
    /// Readable when the process is dead. Absent when that is known, or cannot be seen.
    pidfd: Option<OwnedFd>,
    /// When to try the lock, and after how long again.
    next_try: Option<(Instant, Duration)>,
}

impl Listening {
    fn run(mut self) {
        loop {
            let ready = self.wait();
            if ready.bell {
                let mut rings = [0; 1];
                while self.bell.recv(&mut rings).is_ok() {}
            }
            // News first: what is no longer watched need not be tried.
            loop {
                match self.from.try_recv() {
                    Ok(News::Stop) | Err(mpsc::TryRecvError::Disconnected) => return,
                    Ok(news) => self.hear(news),
                    Err(mpsc::TryRecvError::Empty) => break,
                }
            }
            for lease in ready.sockets {
                self.pass_on(lease);
            }
            for subscriber in ready.posts {
                self.deliver(subscriber);
            }
            let now = Instant::now();
            for lease in ready.deaths {
                if let Some(watched) = self.watched.get_mut(&lease) {
                    watched.pidfd = None;
                    watched.next_try = Some((now, FIRST_RETRY));
                }
            }
            self.try_locks(now);
        }
    }

    /// Waits until there is something to do, and says what.
    fn wait(&self) -> Ready {
        let mut who = Vec::new();
        let mut fds = vec![PollFd::new(&self.bell, PollFlags::IN)];
        for (lease, listener) in &self.listeners {
            if let Some(socket) = &listener.socket {
                fds.push(PollFd::new(socket, PollFlags::IN));
                who.push(Who::Hinted(*lease));
            }
        }
        for (number, subscriber) in &self.subscribers {
            fds.push(PollFd::new(subscriber.post.socket(), PollFlags::IN));
            who.push(Who::Told(*number));
        }
        for (lease, watched) in &self.watched {
            if let Some(pidfd) = &watched.pidfd {
                fds.push(PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN));
                who.push(Who::Died(*lease));
            }
        }
        let next = self.watched.values().filter_map(|watched| watched.next_try).map(|(at, _)| at).min();
        let limit = next.map(|at| at.saturating_duration_since(Instant::now()));
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        if poll(&mut fds, limit.as_ref()).is_err() {
            // Interrupted, or out of memory for a moment.
            std::thread::sleep(FIRST_RETRY);
        }
        let mut ready = Ready { bell: !fds[0].revents().is_empty(), ..Ready::default() };
        let rung = who.into_iter().zip(&fds[1..]).filter(|(_, fd)| !fd.revents().is_empty());
        for (who, _) in rung {
            match who {
                Who::Hinted(lease) => ready.sockets.push(lease),
                Who::Told(subscriber) => ready.posts.push(subscriber),
                Who::Died(lease) => ready.deaths.push(lease),
            }
        }
        ready
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Listen { lease, to, reply } => self.listen(lease, to, reply),
            News::Subscribe { namespace, resource, to, reply } => {
                self.subscribe(&namespace, &resource, to, reply);
            }
            News::Watch(watches) => watches.into_iter().for_each(|watch| self.watch(watch)),
            News::Closed(lease) => {
                if self.listeners.get_mut(&lease).and_then(|listener| listener.socket.take()).is_some() {
                    hints::remove(&self.folder, lease);
                }
                let over: Vec<_> = self.watches.keys().filter(|(by, _)| *by == lease).cloned().collect();
                for key in over {
                    self.unwatch(&key);
                }
            }
            News::Over(lease) => {
                // An owner's end is hinted by the store itself. Of a waiter's nobody else is told.
                let behind = self.watches.iter();
                let behind = behind.filter(|(_, (role, whom))| *role == Role::Head && whom.contains(&lease));
                for ((by, resource), _) in behind {
                    if let Some(Listener { to, .. }) = self.listeners.get(by) {
                        let hint = Hint { lease: *by, resource: resource.clone(), after: Duration::ZERO };
                        // Who does not listen any more needs no hint.
                        let _ = to.send(hint);
                    }
                }
                self.watched.remove(&lease);
            }
            News::Stop => {}
        }
    }

    /// Makes the socket for a lease, and forgets those whom nobody listens to any more: a lease may end unheard.
    fn listen(
        &mut self,
        lease: LeaseId,
        to: UnboundedSender<Hint>,
        reply: oneshot::Sender<Result<(), Error>>,
    ) {
        let gone = self.listeners.extract_if(|_, listener| listener.to.is_closed());
        gone.for_each(|(lease, _)| hints::remove(&self.folder, lease));
        if reply.is_closed() {
            return;
        }
        let made = hints::listen(&self.folder, lease).map(|socket| {
            let listener = Listener { socket: Some(socket), to };
            let before = self.listeners.insert(lease, listener);
            // What had arrived for the one before is not lost.
            if let Some(socket) = before.and_then(|before| before.socket) {
                self.pass_on_from(lease, &socket);
            }
        });
        let made = made.map_err(|error| refused_by_kernel("make a socket in", &self.folder, error));
        // Who does not wait for it any more is found when the next one listens.
        let _ = reply.send(made);
    }

    /// Makes a socket for one who wants what is sent, and forgets those who do not any more.
    fn subscribe(
        &mut self,
        namespace: &Namespace,
        resource: &ResourceName,
        to: UnboundedSender<Message>,
        reply: oneshot::Sender<Result<(), Error>>,
    ) {
        self.subscribers.retain(|_, subscriber| !subscriber.to.is_closed());
        let made = Post::open(&self.folder, namespace, resource).map(|post| {
            self.subscriptions += 1;
            self.subscribers.insert(self.subscriptions, Subscriber { post, to });
        });
        let made = made.map_err(|error| refused_by_kernel("make a socket in", &self.folder, error));
        // Who does not wait for it any more is found with the next message.
        let _ = reply.send(made);
    }

    /// Hands on what was sent, and forgets who does not want it any more.
    fn deliver(&mut self, number: u64) {
        let Some(Subscriber { post, to }) = self.subscribers.get(&number) else { return };
        if !post.receive().into_iter().all(|message| to.send(message).is_ok()) {
            self.subscribers.remove(&number);
        }
    }

    fn pass_on(&mut self, lease: LeaseId) {
        let Some(socket) = self.listeners.get_mut(&lease).and_then(|listener| listener.socket.take()) else {
            return;
        };
        if self.pass_on_from(lease, &socket) {
            self.listeners.entry(lease).and_modify(|listener| listener.socket = Some(socket));
        } else {
            self.listeners.remove(&lease);
            hints::remove(&self.folder, lease);
        }
    }

    /// Whether anybody wants what arrives there.
    fn pass_on_from(&self, lease: LeaseId, socket: &UnixDatagram) -> bool {
        let Some(Listener { to, .. }) = self.listeners.get(&lease) else { return false };
        let hints = hints::receive(socket, lease);
        if hints.iter().any(|hint| hint.after.is_zero()) {
            // Noted first: the claim follows at once.
            self.hinted.note(lease);
        }
        hints.into_iter().all(|hint| to.send(hint).is_ok())
    }

    fn watch(&mut self, watch: Watch) {
        let key = (watch.lease, watch.resource);
        let us = &self.us;
        // Who dies with us need not be watched by us.
        let others = watch.whom.into_iter().filter(|target| target.process.as_ref() != Some(us));
        let mut whom = Vec::new();
        for target in others {
            whom.push(target.lease);
            let watched = self.watched.entry(target.lease).or_insert_with(|| Watched::begin(target, us));
            watched.by += 1;
        }
        // After the new ones were counted, so that one who stays is not begun anew.
        self.unwatch(&key);
        if !whom.is_empty() {
            self.watches.insert(key, (watch.role, whom));
        }
    }

    fn unwatch(&mut self, key: &(LeaseId, ResourceName)) {
        let Some((_, whom)) = self.watches.remove(key) else { return };
        for lease in whom {
            if let Some(watched) = self.watched.get_mut(&lease) {
                watched.by -= 1;
                if watched.by == 0 {
                    self.watched.remove(&lease);
                }
            }
        }
    }

    /// Tries the locks whose time has come.
    fn try_locks(&mut self, now: Instant) {
        for (lease, watched) in &mut self.watched {
            let Some((_, span)) = watched.next_try.filter(|(at, _)| *at <= now) else { continue };
            let path = lock::path(&self.folder, *lease);
            watched.next_try = match lock::prove(&path, Some(watched.target.lock)) {
                Ok(Verdict::Won(proof)) => {
                    let lease = *lease;
                    // A desk that has gone belongs to a store that is being dropped.
                    let _ = self.desk.send(Box::new(move |desk| desk.close_proved(lease, proof)));
                    // In case that it cannot be written down now.
                    Some((now + LAST_RETRY, LAST_RETRY))
                }
                Ok(Verdict::Held) | Err(_) => Some((now + span, (span * 2).min(LAST_RETRY))),
                // Nothing can be proved any more: the lease runs out.
                Ok(Verdict::NoFile) => None,
            };
        }
    }
}

#[derive(Default)]
struct Ready {
    bell: bool,
    sockets: Vec<LeaseId>,
    posts: Vec<u64>,
    deaths: Vec<LeaseId>,
}

/// To whom something may happen.
enum Who {
    Hinted(LeaseId),
    Told(u64),
    Died(LeaseId),
}

impl Watched {
    fn begin(target: Target, us: &Process) -> Self {
        let pidfd = target.process.as_ref().and_then(|process| watch_process(process, us));
        // A process that is gone, or cannot be seen: only the lock can tell.
        let next_try = pidfd.is_none().then(|| (Instant::now(), FIRST_RETRY));
        Self { target, by: 0, pidfd, next_try }
    }
}

/// A descriptor that becomes readable when this very process dies.
fn watch_process(process: &Process, us: &Process) -> Option<OwnedFd> {
    if process.pid_ns != us.pid_ns {
        return None;
    }
    let pidfd = pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok()?;
    // Looked at after the descriptor is there: from then on the pid cannot become another's unnoticed.
    process.runs().then_some(pidfd)
}
