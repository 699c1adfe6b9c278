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
//!
//! The rest has modules of its own: [`jobs`] at set times or once, [`app`] for services of several modules, [`messages`]
//! from owners to everybody, [`fence`] for writes that come too late, [`admin`] for tools, [`testing`], [`types`] for the values
//! in events and results, [`store`] for stores of your own, and [`guard`].

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
pub mod messages;
mod outcome;
mod ownership;
mod resources;
mod runtime;
pub mod store;
pub mod testing;
pub mod types;
mod worker;

pub use tenure_core::{EndReason, Timing};

pub use self::campaign::changes::Changes;
pub use self::campaign::state::Change;
pub use self::campaign::{Campaign, CampaignBuilder, Tickets};
pub use self::error::{Error, ErrorKind};
pub use self::lead::Lead;
pub use self::outcome::{IntoOutcome, Outcome};
pub use self::ownership::{Lost, Ownership};
pub use self::runtime::events::{Event, events};
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

#[cfg(doctest)]
#[doc = include_str!("../../../docs/state-in-callbacks.md")]
mod state_in_callbacks {}
