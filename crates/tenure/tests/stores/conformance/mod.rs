//! The suites that every store and every backend pass, on each of them; and stores with a flaw, which they find out.

mod backend_can_fail;
mod can_fail;
mod memory;
mod memory_backend;
mod postgres;
mod redis;
mod sqlite;
