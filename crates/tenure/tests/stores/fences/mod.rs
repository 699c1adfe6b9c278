//! Fenced writes on real servers: what a paused owner writes too late is refused, by each kind of receiver.
#![cfg(all(
    feature = "sqlite",
    feature = "redis",
    feature = "postgres",
    feature = "tower",
    target_os = "linux"
))]

mod http;
mod late;
mod postgres;
mod redis;

use std::time::Duration;

use tenure::fence::Fence;

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(20);

fn fence(resource: &str, ticket: u32, token: u64) -> Fence {
    Fence::new(resource, ticket, token).expect("a fence")
}
