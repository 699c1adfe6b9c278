//! The measurements, one file each.

mod crash;
mod hand_over;
mod holds;
mod many;
mod waiters;

use crate::Failure;
use crate::figure::Figure;
use crate::ground::Ground;

/// Measures one thing on a store.
pub(crate) type Measure = fn(&Ground) -> Result<Vec<Figure>, Failure>;

/// All of them, by name.
pub(crate) const ALL: [(&str, Measure); 5] = [
    ("holds", holds::measure),
    ("hand-over", hand_over::measure),
    ("crash", crash::measure),
    ("many", many::measure),
    ("waiters", waiters::measure),
];
