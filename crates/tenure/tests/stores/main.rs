//! Every store on real files and real servers: what each promises, what it needs, and what it survives.

mod conformance;
mod fences;
mod forks;
mod postgres;
mod redis;
mod sqlite;

/// Workers in processes of their own.
#[cfg(target_os = "linux")]
mod competitor;
#[cfg(target_os = "linux")]
#[path = "../processes/worker.rs"]
mod worker;
