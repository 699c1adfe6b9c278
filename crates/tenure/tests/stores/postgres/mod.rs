//! The PostgreSQL store on real servers: how it is opened, what it needs, and what it survives.
#![cfg(all(feature = "postgres", target_os = "linux"))]

mod apart;
mod backend;
mod clocks;
mod contention;
mod failover;
mod faults;
pub(crate) mod fixture;
mod hints;
mod hosts;
mod jobs;
mod opening;
mod pooling;
mod rights;
mod scene;
mod words;
