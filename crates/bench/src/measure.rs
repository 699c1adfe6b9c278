//! The measurements, one file each.

mod contention;
mod crash;
mod expiry;
mod hand_over;
mod holds;
mod many;
mod start;
mod waiters;
mod workers;

use testkit::StoreKind;

use crate::Failure;
use crate::figure::Figure;
use crate::ground::Ground;

pub(crate) use self::start::NOW;

/// Measures one thing on a store.
pub(crate) type Measure = fn(&Ground) -> Result<Vec<Figure>, Failure>;

/// All of them, by name, and on which stores.
pub(crate) const ALL: [(&str, &[StoreKind], Measure); 9] = [
    // Asks no store.
    ("holds", &[StoreKind::Sqlite], holds::measure),
    ("hand-over", &StoreKind::ALL, hand_over::measure),
    // Where the kernel proves a death, and where a lease has to end.
    ("crash", &[StoreKind::Sqlite], crash::measure),
    ("crash", &[StoreKind::Redis, StoreKind::Postgres], expiry::measure),
    ("start", &[StoreKind::Sqlite], start::measure),
    ("many", &StoreKind::ALL, many::measure),
    ("waiters", &StoreKind::ALL, waiters::measure),
    ("contention", &StoreKind::ALL, contention::measure),
    ("workers", &[StoreKind::Redis, StoreKind::Postgres], workers::measure),
];
