//! Each rule over records, on a store that does nothing but compare and swap.

mod attacks;
mod bounds;
mod changes;
mod client;
mod contact;
mod costs;
mod doubt;
mod found;
mod leases;
mod operators;
mod ownership;
mod quarantine;
mod records;
mod tickets;
mod world;

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use self::world::*;
use super::leases::TTL_LINGERS;
use super::*;
use crate::HistoryEvent;
use crate::fanout::Payload;
use crate::job::{Begin, Holder, JobAct, JobOutcome, JobStep, Note, Occurrence};
use crate::message::*;
use crate::moment::StoreTime;
use crate::names::{Label, Metadata, Plan};
use crate::planted::{Bug, Planted};

const TTL: Duration = Duration::from_secs(15);
const A: LeaseId = LeaseId(1);
const B: LeaseId = LeaseId(2);
const C: LeaseId = LeaseId(3);
