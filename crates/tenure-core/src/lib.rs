//! The part of Tenure that decides.
//!
//! Two pure types, and nothing beside them that could surprise: the [`Ledger`], which is the rules that
//! every store obeys, and the [`Worker`], which is the state machine of one competitor. Neither reads a
//! clock, sleeps, logs, draws a random number or knows a store; all of that is handed in.
//!
//! ```
//! use core::time::Duration;
//! use tenure_core::*;
//!
//! // A store in one line, and its clocks.
//! let mut ledger = Ledger::new(Incarnation(1));
//! let here = Here::new(StoreTime::from_micros(5_000_000), 1_000_000, Incarnation(1))?;
//!
//! // A worker that wants to own `report`.
//! let at = Moment::new(Duration::ZERO, Duration::ZERO);
//! let now = Now { at, jitter: 0, fresh: LeaseId(7) };
//! let mut worker = Worker::new(Timing::FAST, Label::new("a")?, Metadata::default(), at);
//! let resource = ResourceName::new("report")?;
//! worker.handle(now, Input::Enter(Want { resource, tickets: Tickets::ONE, priority: 0 }));
//!
//! // Carry its outputs out until it starts the work: it opens a lease, then claims.
//! let ownership = loop {
//!     match worker.poll() {
//!         Some(Output::Send(request)) => {
//!             let answer = ledger.apply(here, &request);
//!             worker.handle(now, Input::Answered(request, answer));
//!         }
//!         Some(Output::Start(ownership)) => break ownership,
//!         _ => {}
//!     }
//! };
//! assert_eq!(ownership.grant.term, Term(1));
//! # Ok::<(), LimitError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod campaign;
mod fanout;
mod job;
mod lease;
mod ledger;
mod message;
mod moment;
mod names;
mod output;
mod planted;
pub mod rules;
mod timing;
mod watch;
mod worker;

pub use fanout::{Message, Payload, Published};
pub use job::{
    Begin, HEAD_START, Holder, JOB_RECORDS, JobAct, JobCounts, JobOutcome, JobRecord, JobSaid, JobState,
    JobStep, JobView, Note, Occurrence, WallTime,
};
pub use ledger::{
    Asked, BATCH, HISTORY, Happened, Here, Ledger, NOTICES, OwnerView, Record, ResourceView, WaiterView,
};
pub use message::{
    Answer, Call, Claimed, Closing, Grant, Hint, Holding, Incarnation, LeaseId, Leave, Leaving, Notice,
    Released, Request, Said, Seq, Stamp, Term, Ticket, Token, Waiting, Want, Why, Wish,
};
pub use moment::{Moment, StoreTime};
pub use names::{Label, LimitError, Metadata, Namespace, Plan, ResourceName, Tickets};
pub use output::{Ending, HeldBack, Input, Now, Output, Ownership, Report};
pub use planted::{Bug, Planted};
pub use rules::{Capabilities, Key, Version, Window};
pub use timing::{
    Clock, LARGEST_DRIFT, LONGEST_TTL, SHORTEST_BEACON, SHORTEST_RENEW, SHORTEST_TTL, Timing, TimingError,
};
pub use worker::Worker;
