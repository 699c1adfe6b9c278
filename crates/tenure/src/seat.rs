//! What the driver's thread and the user's share of one campaign: whether it owns, since when, and why not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::{Ending, Grant, Ticket, Token, Waiting};
use tokio::sync::{mpsc, watch};

use crate::clock::Clocks;
use crate::page::Page;

/// What the driver tells whoever does the work of a campaign.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Start(Grant),
    Stop(Ending),
    StopHard,
    /// A claim has to wait.
    Waiting,
}

/// Where the changes of a campaign go.
pub(crate) type Listener = mpsc::UnboundedSender<Change>;

/// What happens to a campaign, as its [`changes`](crate::Campaign::changes) tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It owns a ticket.
    Acquired(Grant),
    /// It does not any more.
    Ended(Token, Ending),
    /// It waits, and why.
    Waiting(Waiting),
}

/// Whether a store is asked at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Limited,
    Unlimited,
}

/// The state of a campaign that can be read from any thread.
#[derive(Debug)]
pub(crate) struct Seat {
    page: Arc<Page>,
    clocks: Clocks,
    reach: Reach,
    /// The token of the present ownership; zero when there is none or it was told to stop.
    token: AtomicU64,
    /// The latest ownership, and how it ended.
    latest: watch::Sender<Option<(Grant, Option<Ending>)>>,
    listeners: Mutex<Vec<Listener>>,
}

impl Seat {
    pub(crate) fn new(page: Arc<Page>, clocks: Clocks, listeners: Vec<Listener>) -> Arc<Self> {
        Self::with(Reach::Limited, page, clocks, listeners)
    }

    /// A ticket of a resource without limit: it is owned from the beginning, and no store is asked.
    pub(crate) fn unlimited(clocks: Clocks, listeners: Vec<Listener>) -> std::io::Result<Arc<Self>> {
        let page = Page::new()?;
        let ever = tenure_core::Moment::new(Duration::MAX, Duration::MAX);
        page.trust(ever, ever);
        Ok(Self::with(Reach::Unlimited, Arc::new(page), clocks, listeners))
    }

    fn with(reach: Reach, page: Arc<Page>, clocks: Clocks, listeners: Vec<Listener>) -> Arc<Self> {
        let ((latest, _), listeners) = (watch::channel(None), Mutex::new(listeners));
        Arc::new(Self { page, clocks, reach, token: AtomicU64::new(0), latest, listeners })
    }

    // ---- read by users -------------------------------------------------------------------------------------

    /// Whether the campaign owns right now.
    #[inline]
    pub(crate) fn owns(&self) -> bool {
        self.token.load(Ordering::Acquire) != 0 && self.page.is_trusted(self.clocks.now())
    }

    /// Whether the ownership under `token` holds right now: three loads and two clock reads.
    #[inline]
    pub(crate) fn holds(&self, token: Token) -> bool {
        self.token.load(Ordering::Acquire) == token.0 && self.page.is_trusted(self.clocks.now())
    }

    pub(crate) fn is_unlimited(&self) -> bool {
        self.reach == Reach::Unlimited
    }

    /// How long the ownership is still protected from the next one.
    pub(crate) fn remaining(&self) -> Duration {
        self.page.protected_for(self.clocks.now())
    }

    /// The present ownership, if it holds.
    pub(crate) fn present(&self) -> Option<Grant> {
        let (grant, _) = (*self.latest.borrow())?;
        self.holds(grant.token).then_some(grant)
    }

    /// Waits for the end of the ownership under `token`.
    pub(crate) async fn lost(&self, token: Token) -> Ending {
        let mut latest = self.latest.subscribe();
        let ended = |latest: &Option<(Grant, Option<Ending>)>| match latest {
            Some((grant, ending)) if grant.token == token => ending.is_some(),
            // A later one began, so this one has ended; its ending is not remembered.
            _ => true,
        };
        let seen = latest.wait_for(ended).await.map(|latest| *latest);
        match seen {
            Ok(Some((grant, Some(ending)))) if grant.token == token => ending,
            _ => Ending::Expired,
        }
    }

    pub(crate) fn listen(&self) -> mpsc::UnboundedReceiver<Change> {
        let (to, changes) = mpsc::unbounded_channel();
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(to);
        changes
    }

    // ---- written by the driver -----------------------------------------------------------------------------

    pub(crate) fn begin(&self, grant: Grant) {
        self.latest.send_replace(Some((grant, None)));
        self.token.store(grant.token.0, Ordering::Release);
        self.publish(Change::Acquired(grant));
    }

    /// From here on the ownership does not hold, and everybody who waits for its end knows why.
    pub(crate) fn end(&self, token: Token, ending: Ending) {
        self.token.store(0, Ordering::Release);
        self.latest.send_modify(|latest| {
            if let Some((grant, ended)) = latest
                && grant.token == token
            {
                ended.get_or_insert(ending);
            }
        });
        self.publish(Change::Ended(token, ending));
    }

    /// The driver has ended, for whatever reason.
    pub(crate) fn abandon(&self) {
        let latest = *self.latest.borrow();
        if let Some((grant, None)) = latest {
            self.end(grant.token, Ending::Expired);
        }
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Tells everybody who listens. Nothing is left out: each has a queue without limit.
    pub(crate) fn publish(&self, change: Change) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.send(change).is_ok());
    }
}

/// The one grant of a resource without limit.
pub(crate) const UNLIMITED: Grant = Grant { ticket: Ticket(0), term: tenure_core::Term(1), token: Token(1) };
