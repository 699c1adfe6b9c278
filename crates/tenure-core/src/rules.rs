//! The rules of ownership, over records: what a request reads, what it expects, what it writes.

mod keys;

pub use self::keys::{Capabilities, Key, Version, Window};
