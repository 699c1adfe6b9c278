//! The PostgreSQL backend on real servers: what it promises, what it needs, and what it survives.
#![cfg(all(feature = "postgres", target_os = "linux"))]

mod child;
mod clocks;
mod commits;
mod connections;
mod costs;
mod fixture;
mod lives;
mod locks;
mod logging;
mod opening;
mod passwords;
mod pooling;
mod rights;
mod safety;
mod signals;
mod tls;
