//! What tests of an application need: a clock that is moved by hand. See docs/guide.md, "Testing your own service".

pub use crate::runtime::clock::ManualClock;
