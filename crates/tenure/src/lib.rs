//! Tenure elects the owner, or the few owners, of a named responsibility among many workers, tells them, and moves
//! ownership when one of them goes.
//!
//! Three styles on one engine. Callbacks, as a service is started and stopped:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
//! let worker = tenure::Worker::connect("memory:").await?;
//! let campaign = worker.campaign("echo").obtain(
//!     async |own| println!("started, term {}", own.term()), // on the winner only, once per win
//!     async |ending| println!("stopped: {ending:?}"),       // once per win, before the ticket is free
//! )?;
//! campaign.is_owner(); // sync, never stale
//! campaign.stop().await;
//! # Ok(()) }
//! ```
//!
//! Work that competes, works while it owns, and competes again after a loss; its own end is the result:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
//! # let worker = tenure::Worker::connect("memory:").await?;
//! let report = worker.campaign("report").run(async |own| format!("built under token {}", own.token())).await?;
//! # assert!(report.starts_with("built")); Ok(()) }
//! ```
//!
//! And by hand, which is also a distributed lock:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
//! # let worker = tenure::Worker::connect("memory:").await?;
//! let own = worker.campaign("migrate").acquire().await?;
//! assert!(own.holds()); // false after a pause that outlasts the lease, at the first look
//! own.release().await;
//! worker.shutdown().await;
//! # Ok(()) }
//! ```

pub mod admin;
mod app;
mod campaign;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod fence;
#[cfg(test)]
mod fuzz;
pub mod guard;
pub mod jobs;
mod messages;
mod ownership;
mod resources;
mod runtime;
pub mod store;
mod worker;

pub use tenure_core::{
    Clock, EndReason, Grant, HistoryEvent, JobCounts, JobRecord, JobState, JobView, Label, LimitError,
    Message, Metadata, Note, Occurrence, OwnerView, Plan, Published, ResourceName, ResourceView,
    StepDownReply, Term, Ticket, Timing, TimingError, Token, WaitReason, WaiterView, Waiting, WallTime,
};

pub use self::admin::{Admin, Measured, RoundTrip};
pub use self::app::{AnyError, App, Module};
pub use self::campaign::callbacks::Outcome;
pub use self::campaign::changes::Changes;
pub use self::campaign::state::Change;
pub use self::campaign::{Campaign, CampaignBuilder, CampaignWith, Tickets};
pub use self::error::{Error, Kind};
#[cfg(feature = "cron")]
pub use self::jobs::cron;
pub use self::jobs::{Once, OnceBuilder, Tried};
pub use self::messages::{Losses, Messages};
pub use self::ownership::{Lost, Ownership};
pub use self::runtime::clock::ManualClock;
pub use self::runtime::events::{Event, StoreChange, events};
pub use self::runtime::flapping::FlapLimit;
pub use self::worker::{Worker, WorkerBuilder};

// What the documents show is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/observability.md")]
mod observability {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/fencing.md")]
mod fencing {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
mod guide {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/modules.md")]
mod modules {}

#[cfg(all(doctest, feature = "cron"))]
#[doc = include_str!("../../../docs/cron.md")]
mod cron_page {}

#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../../../docs/migrating.md")]
mod migrating {}
