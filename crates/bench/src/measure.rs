//! The measurements, one file each.

mod crash;
mod expiry;
mod hand_over;
mod holds;
mod many;
mod start;
mod waiters;
mod workers;

use crate::Failure;
use crate::figure::Figure;
use crate::ground::{Ground, Kind};

pub(crate) use self::start::NOW;

/// Measures one thing on a store.
pub(crate) type Measure = fn(&Ground) -> Result<Vec<Figure>, Failure>;

/// All of them, by name, and on which stores.
pub(crate) const ALL: [(&str, &[Kind], Measure); 8] = [
    // Asks no store.
    ("holds", &[Kind::Sqlite], holds::measure),
    ("hand-over", &Kind::ALL, hand_over::measure),
    // Where the kernel proves a death, and where a lease has to end.
    ("crash", &[Kind::Sqlite], crash::measure),
    ("crash", &[Kind::Redis, Kind::Postgres], expiry::measure),
    ("start", &[Kind::Sqlite], start::measure),
    ("many", &Kind::ALL, many::measure),
    ("waiters", &Kind::ALL, waiters::measure),
    ("workers", &[Kind::Redis, Kind::Postgres], workers::measure),
];
