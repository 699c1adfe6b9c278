//! The PostgreSQL store on real servers: how it is opened, what it needs, and what it survives.
#![cfg(all(feature = "postgres", target_os = "linux"))]

mod agreement;
mod apart;
mod child;
mod failover;
mod faults;
mod fixture;
mod hosts;
mod jobs;
mod locking;
mod opening;
mod planted;
mod pooling;
mod rights;
mod safety;
mod scene;
mod tls;
mod words;

// What workers in other processes write down, and how it is judged, is the same on every store.
#[path = "../processes/book.rs"]
mod book;
#[path = "../processes/checker.rs"]
mod checker;
#[path = "../processes/worker.rs"]
mod worker;
