//! Tenure elects the owner, or the few owners, of a named responsibility among many workers, tells them, and moves
//! ownership when one of them goes.
//!
//! A service: one async function that runs while you own, and is cancelled when you don't.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
//! let worker = tenure::Worker::connect("memory:").await?;
//! let campaign = worker.campaign("echo").spawn(async |lead| {
//!     println!("started, term {}", lead.term());
//!     loop {
//!         tokio::time::sleep(std::time::Duration::from_secs(1)).await; // the work
//!     }
//! })?;
//! campaign.is_owner(); // sync, never stale
//! campaign.stop().await;
//! # Ok(()) }
//! ```
//!
//! The same with a start and a cleanup of your own:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
//! # let worker = tenure::Worker::connect("memory:").await?;
//! let campaign = worker.campaign("echo").obtain(
//!     async |lead| println!("started, term {}", lead.term()), // on the winner only, once per win
//!     async |why| println!("stopped: {why:?}"),               // once per win, before the ticket is free
//! )?;
//! # campaign.stop().await; Ok(()) }
//! ```
//!
//! Work with a result. It competes again after a loss:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
//! # let worker = tenure::Worker::connect("memory:").await?;
//! let report = worker.campaign("report").run(async |lead| format!("built under token {}", lead.token())).await?;
//! # assert!(report.starts_with("built")); Ok(()) }
//! ```
//!
//! A distributed lock:
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
pub mod app;
mod campaign;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod fence;
#[cfg(test)]
mod fuzz;
pub mod guard;
pub mod jobs;
mod lead;
mod messages;
mod outcome;
mod ownership;
mod resources;
mod runtime;
pub mod store;
pub mod testing;
mod worker;

pub use tenure_core::{
    Clock, EndReason, Grant, HistoryEvent, JobCounts, JobRecord, JobState, JobView, Label, LimitError,
    Message, Metadata, Note, Occurrence, OwnerView, Plan, Published, ResourceName, ResourceView,
    StepDownReply, Term, Ticket, Timing, TimingError, Token, WaitReason, WaiterView, Waiting, WallTime,
};

pub use self::admin::{Admin, Measured, RoundTrip};
pub use self::app::{AnyError, App, Module};
pub use self::campaign::changes::Changes;
pub use self::campaign::state::Change;
pub use self::campaign::{Campaign, CampaignBuilder, Tickets};
pub use self::error::{Error, Kind};
#[cfg(feature = "cron")]
pub use self::jobs::cron;
pub use self::jobs::{Once, OnceBuilder};
pub use self::lead::Lead;
pub use self::messages::{Losses, Messages};
pub use self::outcome::{IntoOutcome, Outcome};
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
