//! The part of Tenure that decides.
//!
//! Two pure types, and nothing beside them that could surprise: the [`Worker`], the state machine of one competitor,
//! and the [`rules::Client`], which turns what a worker asks into reads and commits of records. Neither reads a clock,
//! sleeps, logs, draws a random number or knows a store; all of that is handed in.
//!
//! ```
//! use core::time::Duration;
//! use tenure_core::rules::{Act, Client, Env, Step};
//! use tenure_core::*;
//!
//! // A worker that wants to own `report`.
//! let at = Moment::new(Duration::ZERO, Duration::ZERO);
//! let now = Now { at, jitter: 0, fresh: LeaseId(7) };
//! let mut worker = Worker::new(Timing::FAST, Label::new("a")?, Metadata::default(), at);
//! let resource = ResourceName::new("report")?;
//! worker.handle(now, Input::Enter(Want { resource, tickets: Tickets::ONE, priority: 0 }));
//!
//! // First it opens a lease.
//! let Some(Output::Send(request)) = worker.poll() else { panic!("a request") };
//! assert!(matches!(request.call, Call::Open { .. }));
//!
//! // The rules want to see some records before they decide. Whoever drives them reads those from a store, hands them
//! // to `Client::read`, and asks for the next step, until the answer is there for the worker.
//! let capabilities =
//!     Capabilities { clock: true, together: true, most_changes: 250, most_signal_bytes: 8_000 };
//! let mut client = Client::new(capabilities);
//! let env = Env { at, wall: 1_000_000, jitter: 0, chance: 11 };
//! let mut operation = client.begin(&env, Act::Call(request, None));
//! assert!(matches!(client.step(&env, &mut operation), Step::Read { .. }));
//! # Ok::<(), LimitError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod campaign;
mod fanout;
mod job;
mod lease;
mod message;
mod moment;
mod names;
#[cfg(feature = "oracle")]
pub mod oracle;
mod output;
mod planted;
pub mod rules;
mod shown;
mod timing;
mod watch;
mod worker;

pub use fanout::{Message, Payload, Published};
pub use job::{
    Begin, HEAD_START, Holder, JOB_RECORDS, JobAct, JobCounts, JobOutcome, JobRecord, JobSaid, JobState,
    JobStep, JobView, Note, Occurrence, WallTime,
};
pub use message::{
    Answer, BATCH, Call, Claimed, Closing, Grant, Hint, Holding, Incarnation, LeaseId, Leave, Leaving,
    NOTICES, Notice, Released, Request, Said, Seq, Stamp, StepDownReply, Term, Ticket, Token, WaitReason,
    Waiting, Want, Wish,
};
pub use moment::{Moment, StoreTime};
pub use names::{Label, LimitError, Metadata, Namespace, Plan, ResourceName, Tickets};
pub use output::{EndReason, HeldBack, Input, Now, Output, Ownership, Report};
pub use planted::{Bug, Planted};
pub use rules::{Capabilities, Key, Version, Window};
pub use shown::{HISTORY, HistoryEvent, OwnerView, ResourceView, WaiterView};
pub use timing::{
    Clock, LARGEST_DRIFT, LONGEST_TTL, SHORTEST_BEACON, SHORTEST_RENEW, SHORTEST_TTL, Timing, TimingError,
};
pub use worker::Worker;
