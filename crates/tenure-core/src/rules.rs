//! The rules of ownership, over records: what a request reads, what it expects, what it writes.
//!
//! A store decides nothing. It keeps records and swaps them if nobody was faster; see [`Change`]. The rules are pure
//! functions over the records that are known; [`Client`] keeps those, and turns requests into reads and commits.

mod change;
mod client;
mod contact;
mod jobs;
mod keys;
mod leases;
mod operators;
mod read;
mod records;
mod tickets;
mod view;

pub use self::change::{Change, Event, Signal};
pub use self::client::{Act, Client, Env, Fate, Operation, Reply, Sending, Shown, Step};
pub use self::keys::{Capabilities, Key, Version, Window};
pub use self::leases::LookedAtLeases;
pub use self::read::{Reader, job_view};
pub use self::records::{
    Ended, Found, Info, Job, Lease, MOST_NOTICES, MOST_TTLS, MOST_WAITERS, Meta, Order, Owner, Quarantine,
    Record, Resource, Rest, Run, Runs, Seen, SetBy, Time, TtlUse, Ttls, Value, Waiter,
};

#[cfg(test)]
mod tests;
