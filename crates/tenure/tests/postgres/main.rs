//! The PostgreSQL store on real servers: how it is opened, what it needs, and what it survives.
#![cfg(all(feature = "postgres", target_os = "linux"))]

mod agreement;
mod faults;
mod fixture;
mod locking;
mod opening;
mod planted;
mod pooling;
mod rights;
mod safety;
mod scene;
mod speed;
mod tls;
mod words;
