//! Real servers on free ports in temporary folders, and the bad things that happen to them: they are stopped,
//! killed, paused, restarted and wiped, their clocks jump, and the link to them delays, drops, cuts and hangs.
//!
//! A server that is not installed is a failure with the name of the package, never a skipped test.

#[cfg(target_os = "linux")]
pub mod postgres;
#[cfg(target_os = "linux")]
pub mod redis;
