//! The PostgreSQL store, on a private server, obeys the rules.
#![cfg(all(feature = "postgres", target_os = "linux"))]

#[path = "postgres/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

tenure::conformance!(fixture::Fresh::start().await);
