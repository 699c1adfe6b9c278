//! Leases, tickets, the queue and jobs, one test for each rule, on the `Store` of `store.rs`.

mod claims;
mod history;
mod jobs;
mod judging;
mod leases;
mod operators;
mod quarantine;
mod releases;
mod resizing;
mod store;
mod turns;

use alloc::format;

use self::store::{
    Store, claim_of, kept, label, name, notice_of, only_claimed, release_of, secs, tickets, waiting, want,
};
use super::*;
use crate::message::{Claimed, Leave, Leaving, Released, Term, Ticket, WaitReason, Waiting, Want};
use crate::names::{Label, Metadata, ResourceName, Tickets};
use crate::shown::{OwnerView, ResourceView, WaiterView};

/// What a waiter with this ttl leaves to each one before it: 100 ms, which is also 15 s / 150.
const STEP: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3600);
const MICRO: Duration = Duration::from_micros(1);
const ZERO: Duration = Duration::ZERO;
