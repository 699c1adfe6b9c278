//! Who listens to a store in memory: a set of channels, and where their signals go.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::Error;
use crate::store::Pending;
use crate::store::backend::{Channel, Heard, Signals, Subscriptions};

/// One listener and the channels it follows.
#[derive(Debug)]
pub(super) struct Listener(Mutex<Followed>);

#[derive(Debug)]
struct Followed {
    channels: HashSet<Channel>,
    /// `None` once the connection is lost.
    to: Option<mpsc::UnboundedSender<Heard>>,
}

impl Listener {
    /// A listener that follows nothing yet, and what it hears.
    pub(super) fn new() -> (Self, Signals) {
        let (to, signals) = mpsc::unbounded_channel();
        (Self(Mutex::new(Followed { channels: HashSet::new(), to: Some(to) })), signals)
    }

    /// The connection is lost: the signals end.
    pub(super) fn hang_up(&self) {
        self.lock().to = None;
    }

    fn lock(&self) -> MutexGuard<'_, Followed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.lock().to.as_ref().is_some_and(|to| !to.is_closed())
    }

    /// Sends it the signal. Returns whether it follows the channel.
    pub(super) fn hear(&self, heard: &Heard) -> bool {
        let followed = self.lock();
        let follows = followed.channels.contains(&heard.channel);
        follows && followed.to.as_ref().is_some_and(|to| to.send(heard.clone()).is_ok())
    }
}

impl Subscriptions for Listener {
    fn follow(&self, channel: Channel) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut followed = self.lock();
            if followed.to.is_none() {
                return Err(Error::unavailable("cannot follow the channel: the connection was lost"));
            }
            followed.channels.insert(channel);
            Ok(())
        })
    }

    fn forget(&self, channel: &Channel) {
        self.lock().channels.remove(channel);
    }
}
