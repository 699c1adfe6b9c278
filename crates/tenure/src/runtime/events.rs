//! What the library reports: one typed stream of events. Log lines and metrics are made from it (`telemetry`) on a thread of
//! their own, so that a subscriber or a recorder of the application that blocks costs no lease.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tenure_core::{Label, ResourceName};
use tokio::sync::oneshot;

use crate::Error;
use crate::campaign::changes::{Changes, Listeners};
use crate::campaign::state::Change;
use crate::runtime::process::PerProcess;
use crate::runtime::telemetry::{self, Figure};
use crate::store::Warning;

/// Something that happened to a campaign, a job or a store. [`events`] reports them as they happen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A campaign waits, owns, stops, or its work failed.
    Campaign {
        /// The label of the worker that competes.
        worker: Label,
        /// What it competes for.
        resource: ResourceName,
        /// What happened.
        change: Change,
    },
    /// A run of a job started, ended or was skipped.
    #[cfg(feature = "cron")]
    Job {
        /// The resource of the job: `cron:` and its name.
        resource: ResourceName,
        /// What happened.
        change: crate::jobs::cron::Change,
    },
    /// One-time work was started.
    OnceBegan {
        /// The resource of the work: `once:` and its name.
        resource: ResourceName,
        /// 1 for the first attempt; more if earlier ones failed or were interrupted.
        attempt: u32,
    },
    /// A worker started one-time work and did not finish it.
    OnceInterrupted {
        /// The resource of the work: `once:` and its name.
        resource: ResourceName,
        /// The label of that worker.
        by: Label,
    },
    /// A request to the store failed, the store recovered, was restarted, or is not as safe as it could be.
    Store {
        /// The label of the worker that noticed it, if a worker did.
        worker: Option<Label>,
        /// The resource that the request was about, if it was about one.
        resource: Option<ResourceName>,
        /// What happened.
        change: StoreChange,
    },
    /// Tenure itself panicked. Everything that the worker owned has ended.
    Panicked {
        /// The message of the panic.
        what: String,
    },
    /// The application's log or metrics were too slow. These events were neither logged nor counted.
    Dropped {
        /// How many.
        count: u64,
    },
}

/// Something that happened between a worker and its store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreChange {
    /// A request failed. Ownerships last for as long as they are trusted.
    Failed {
        /// The request: `open`, `renew`, `claim`, `release`, `held`, `close` or `job`.
        call: &'static str,
        /// What could not be done.
        error: String,
        /// Why; may be empty.
        cause: String,
    },
    /// A request got no reply in time.
    Silent {
        /// The request, as above.
        call: &'static str,
    },
    /// A renewal succeeded, the first since a request failed or got no reply.
    Recovered,
    /// The store was restarted or replaced. The worker confirms what it owns before it relies on it again.
    Restarted,
    /// The store forgot a lease that should have lived. The worker does not compete for a while.
    ForgotLease {
        /// For how long.
        left: Duration,
    },
    /// The worker watches the store's clock before it competes ([`Clock::Strict`](crate::types::Clock::Strict)).
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
    /// Notifications from the store do not arrive. Waiting workers poll, and notice a free ticket up to one ttl later.
    HintsLost {
        /// What could not be done.
        error: String,
        /// Why; may be empty.
        cause: String,
    },
    /// Notifications from the store arrive again.
    HintsRestored,
    /// Messages of this resource do not arrive. Those that are published meanwhile are lost.
    MessagesLost {
        /// What could not be done.
        error: String,
        /// Why; may be empty.
        cause: String,
    },
    /// The configuration of the store has a weakness.
    Warned(Warning),
    /// A record cannot be read, and is skipped.
    Unreadable {
        /// Which one, and why.
        error: String,
    },
}

/// All events of this process, from now on. None is dropped; read them, because they are queued without a limit.
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

/// Reports an event to all listeners, and has it logged and counted. Never blocks.
pub(crate) fn tell(event: Event) {
    let hub = hub();
    hub.listeners.tell(&event);
    hub.render(Item::Event(event));
}

/// Reports something that happened to a store, if no particular worker noticed it.
pub(crate) fn store(change: StoreChange) {
    tell(Event::Store { worker: None, resource: None, change });
}

/// Counts a figure.
pub(crate) fn count(figure: Figure) {
    hub().render(Item::Figure(figure));
}

/// Logs a line for those who debug the library itself.
pub(crate) fn debug(what: &'static str, error: &dyn fmt::Display) {
    hub().render(Item::Debug(what, error.to_string()));
}

/// Returns when every event so far has been logged and counted.
pub(crate) async fn rendered() {
    let (done, is_done) = oneshot::channel();
    hub().render(Item::Flush(done));
    // Does not wait if the queue is full.
    let _dropped = is_done.await;
}

/// What happened, in a sentence without a full stop; without the error.
impl fmt::Display for StoreChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed { .. } => "store request failed",
            Self::Silent { .. } => "no reply from the store in time",
            Self::Recovered => "the store answers again",
            Self::Restarted => "the store was restarted; confirming what is owned",
            Self::ForgotLease { .. } => "the store forgot a live lease; not competing for a while",
            Self::ClockWatched { .. } => "watching the store's clock before competing",
            Self::Quarantine { .. } => {
                "the store is new, was restarted or lost its data; it grants nothing until earlier owners have stopped"
            }
            Self::QuarantineOver => "the store grants tickets again",
            Self::HintsLost { .. } => {
                "no notifications from the store; this worker polls, and notices a free ticket up to one ttl later"
            }
            Self::HintsRestored => "notifications from the store arrive again",
            Self::MessagesLost { .. } => "no messages from the store; those sent meanwhile are lost",
            Self::Warned(warning) => &warning.what,
            Self::Unreadable { .. } => "skipping a record that cannot be read",
        })
    }
}

impl StoreChange {
    /// What could not be done, and why, for those that tell of an error.
    #[must_use]
    pub fn error(&self) -> Option<(&str, &str)> {
        match self {
            Self::Failed { error, cause, .. }
            | Self::HintsLost { error, cause }
            | Self::MessagesLost { error, cause } => Some((error, cause)),
            Self::Unreadable { error } => Some((error, "")),
            _ => None,
        }
    }

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

/// Work for the rendering thread.
enum Item {
    Event(Event),
    Figure(Figure),
    Debug(&'static str, String),
    Flush(oneshot::Sender<()>),
}

/// How many items wait for a slow log. Further ones are dropped and counted.
const QUEUE: usize = 4096;

/// The listeners of this process, and its rendering thread. A forked child has its own: threads are not inherited.
struct Hub {
    listeners: Listeners<Event>,
    to_render: mpsc::SyncSender<Item>,
    dropped: Arc<AtomicU64>,
}

fn hub() -> &'static Hub {
    static HUB: PerProcess<Hub> = PerProcess::new();
    HUB.get(Hub::start)
}

impl Hub {
    fn start() -> Self {
        let (to_render, items) = mpsc::sync_channel(QUEUE);
        let dropped = Arc::<AtomicU64>::default();
        let lost = dropped.clone();
        // Without the thread nothing is logged, but listeners still get every event.
        let _started = std::thread::Builder::new()
            .name("tenure-events".into())
            .spawn(move || items.into_iter().for_each(|item| render(item, &lost)));
        Self { listeners: Listeners::default(), to_render, dropped }
    }

    fn render(&self, item: Item) {
        if self.to_render.try_send(item).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn render(item: Item, dropped: &AtomicU64) {
    let count = dropped.swap(0, Ordering::Relaxed);
    // A subscriber or recorder that panics loses this line only.
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
