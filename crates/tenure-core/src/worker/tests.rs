//! The worker's promises, one by one, against replies that a test makes up.

mod batches;
mod ending;
mod incarnation;
mod leaving;
mod replies;
mod stage;
mod trust;
mod unlimited;

use self::stage::*;
use super::*;
use crate::message::BATCH;
use crate::message::{
    Answer, Claimed, Closing, Grant, Holding, Incarnation, Leaving, Notice, Released, Said, Stamp, Term,
    Ticket, Token, WaitReason, Wish,
};
use crate::moment::StoreTime;
use crate::names::Tickets;
use crate::output::{HeldBack, Ownership};
use alloc::format;
use alloc::string::String;
use alloc::vec;

const TTL: Duration = Duration::from_secs(9);
const TRUST: u64 = 7_200;
const MARGIN: u64 = 900;
