//! What the library tells: one typed stream of events. Log lines and metrics are made from it (`telemetry`), on a thread of
//! their own: a subscriber or a recorder of the application that blocks costs no lease.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use tenure_core::{Label, ResourceName};
use tokio::sync::oneshot;

use crate::Error;
use crate::campaign::changes::{Changes, Listeners};
use crate::campaign::state::Change;
use crate::runtime::telemetry::{self, Figure};
use crate::store::Warning;

/// Something that happened to a campaign, a job or a store. [`events`] tells all of them as they happen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A campaign waits, owns, has to stop, or its work failed.
    Campaign {
        /// The label of the worker that competes.
        worker: Label,
        /// What it competes for.
        resource: ResourceName,
        /// What happened.
        change: Change,
    },
    /// A run of a job began or ended, or was left out.
    #[cfg(feature = "cron")]
    Job {
        /// The resource of the job: `cron:` and its name.
        resource: ResourceName,
        /// What happened.
        change: crate::jobs::cron::Change,
    },
    /// Work that is done once was begun.
    OnceBegan {
        /// The resource of the work: `once:` and its name.
        resource: ResourceName,
        /// 1 for the first attempt; more if earlier ones failed or were interrupted.
        attempt: u32,
    },
    /// Work that is done once was begun by a worker that did not finish it.
    OnceInterrupted {
        /// The resource of the work: `once:` and its name.
        resource: ResourceName,
        /// The label of the worker that began it.
        by: Label,
    },
    /// A request to the store failed, the store recovered, was restarted, or is not as safe as it could be.
    Store {
        /// The label of the worker that noticed, where it was one.
        worker: Option<Label>,
        /// The resource that the request was about, if it was one.
        resource: Option<ResourceName>,
        /// What happened.
        change: StoreChange,
    },
    /// Tenure itself has panicked. Everything that the worker owned has ended.
    Panicked {
        /// The message of the panic.
        what: String,
    },
    /// The application's log or metrics were too slow: so many events were not logged and not counted.
    Dropped {
        /// How many.
        count: u64,
    },
}

/// Something that happened between a worker and its store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreChange {
    /// A request failed. Ownerships stay for as long as they are trusted.
    Failed {
        /// What was asked: `open`, `renew`, `claim`, `release`, `held`, `close` or `job`.
        call: &'static str,
        /// What could not be done.
        error: String,
        /// Why; may be empty.
        cause: String,
    },
    /// A request got no reply in time.
    Silent {
        /// As above.
        call: &'static str,
    },
    /// After one of these a renewal was answered.
    Recovered,
    /// The store was restarted, or is another one. The worker confirms what it owns before it relies on it again.
    Restarted,
    /// The store forgot a lease that should have lived. The worker does not compete for a while.
    ForgotLease {
        /// For how long.
        left: Duration,
    },
    /// The worker watches the store's clock before it competes ([`Clock::Strict`](crate::Clock::Strict)).
    ClockWatched {
        /// For how long.
        left: Duration,
    },
    /// The store is new or lost its data. It grants nothing until every earlier owner has stopped.
    Quarantine {
        /// For how long.
        left: Duration,
    },
    /// The store grants tickets again.
    QuarantineOver,
    /// The store does not tell when a ticket is free. Waiting workers look again by themselves, up to one ttl later.
    HintsLost {
        /// What could not be done.
        error: String,
        /// Why; may be empty.
        cause: String,
    },
    /// The store tells again when a ticket is free.
    HintsRestored,
    /// Messages of this resource do not arrive. What is published meanwhile is lost.
    MessagesLost {
        /// What could not be done.
        error: String,
        /// Why; may be empty.
        cause: String,
    },
    /// The configuration of the store has a weakness.
    Warned(Warning),
    /// A record cannot be read, and is left out.
    Unreadable {
        /// Which one, and why.
        error: String,
    },
}

/// All events of this process, from now on. Nothing is left out as long as somebody reads them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use tenure::{Change, Event};
///
/// let mut events = tenure::events();
/// let worker = tenure::Worker::connect("memory:").await?;
/// let own = worker.campaign("report").acquire().await?;
/// while let Some(event) = events.next().await {
///     if let Event::Campaign { resource, change: Change::Acquired(grant), .. } = event {
///         println!("{resource} is ours, term {}", grant.term.0);
///         break;
///     }
/// }
/// # own.release().await; worker.shutdown().await; Ok(()) }
/// ```
#[must_use]
pub fn events() -> Changes<Event> {
    hub().listeners.listen()
}

/// Tells everybody who listens, and has it logged and counted. Never blocks.
pub(crate) fn tell(event: Event) {
    let hub = hub();
    hub.listeners.tell(&event);
    hub.render(Item::Event(event));
}

/// Something that happened to a store, noticed by no worker in particular.
pub(crate) fn store(change: StoreChange) {
    tell(Event::Store { worker: None, resource: None, change });
}

/// A figure that is counted and not told.
pub(crate) fn count(figure: Figure) {
    hub().render(Item::Figure(figure));
}

/// A line for whoever looks into the library itself.
pub(crate) fn debug(what: &'static str, error: &dyn std::fmt::Display) {
    hub().render(Item::Debug(what, error.to_string()));
}

/// Returns when everything told so far has been logged and counted.
pub(crate) async fn rendered() {
    let (done, is_done) = oneshot::channel();
    hub().render(Item::Flush(done));
    // A queue that is full is not waited for.
    let _dropped = is_done.await;
}

impl StoreChange {
    pub(crate) fn failed(call: &'static str, error: &Error) -> Self {
        Self::Failed { call, error: error.to_string(), cause: cause(error) }
    }

    pub(crate) fn hints_lost(error: &Error) -> Self {
        Self::HintsLost { error: error.to_string(), cause: cause(error) }
    }

    pub(crate) fn messages_lost(error: &Error) -> Self {
        Self::MessagesLost { error: error.to_string(), cause: cause(error) }
    }
}

fn cause(error: &Error) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

/// What the rendering thread is given.
enum Item {
    Event(Event),
    Figure(Figure),
    Debug(&'static str, String),
    Flush(oneshot::Sender<()>),
}

/// So many items wait for a log that is slow; more are dropped, and counted.
const QUEUE: usize = 4096;

/// Who is told in this process. A forked child has its own: threads are not inherited.
struct Hub {
    process: u32,
    listeners: Listeners<Event>,
    to_render: mpsc::SyncSender<Item>,
    dropped: Arc<AtomicU64>,
}

fn hub() -> Arc<Hub> {
    static HUB: Mutex<Option<Arc<Hub>>> = Mutex::new(None);
    let mut hub = HUB.lock().unwrap_or_else(PoisonError::into_inner);
    match &*hub {
        Some(hub) if hub.process == std::process::id() => hub.clone(),
        _ => hub.insert(Hub::start()).clone(),
    }
}

impl Hub {
    fn start() -> Arc<Self> {
        let (to_render, items) = mpsc::sync_channel(QUEUE);
        let dropped = Arc::<AtomicU64>::default();
        let lost = dropped.clone();
        // Without a thread nothing is logged; whoever listens is still told.
        let _started = std::thread::Builder::new()
            .name("tenure-events".into())
            .spawn(move || items.into_iter().for_each(|item| render(item, &lost)));
        Arc::new(Self { process: std::process::id(), listeners: Listeners::default(), to_render, dropped })
    }

    fn render(&self, item: Item) {
        if self.to_render.try_send(item).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn render(item: Item, dropped: &AtomicU64) {
    let count = dropped.swap(0, Ordering::Relaxed);
    // A subscriber or recorder that panics loses this line, and no other.
    let _panicked = catch_unwind(AssertUnwindSafe(|| {
        if count > 0 {
            telemetry::event(&Event::Dropped { count });
        }
        match item {
            Item::Event(event) => telemetry::event(&event),
            Item::Figure(figure) => telemetry::figure(&figure),
            Item::Debug(what, error) => tracing::debug!(error, "{what}"),
            Item::Flush(done) => drop(done),
        }
    }));
}
