//! A worker's lease with its notices, and what the worker says of itself.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Rest, Time};
use crate::message::{Closing, Notice, Seq, Token, Wish};
use crate::names::{Label, Metadata, ResourceName};

/// A worker's lease. It lives for its ttl from when it was renewed, and is dead for ever once it is ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// How long it lives without a renewal.
    pub ttl: Duration,
    /// What people call the worker.
    pub label: Label,
    /// When it was opened.
    pub opened: Time,
    /// When it was opened or renewed last. Only its worker changes that.
    pub renewed: Time,
    /// The sequence number of the request that opened or renewed it.
    pub seq: Seq,
    /// Drawn at random for that request, so that a clone of the worker has another one. Zero until the first renewal.
    pub mark: u64,
    /// What its worker has to be told; at most [`MOST_NOTICES`], evictions apart.
    pub notices: Vec<Notice>,
    /// There are more notices than fit. The resources say what their owners are asked to do.
    pub more_notices: bool,
    /// Set when it is dead.
    pub ended: Option<Ended>,
    /// What this version does not know.
    pub rest: Rest,
}

/// How many notices a lease holds.
pub const MOST_NOTICES: usize = 16;

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ended {
    /// When.
    pub at: Time,
    /// Why.
    pub why: Closing,
    /// Everything it held was released before.
    pub clean: bool,
}

/// What a worker says of itself when it opens a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Info {
    /// What it tells the others.
    pub metadata: Metadata,
    /// How its death can be proved, where it can be.
    pub witness: Option<Arc<str>>,
    /// What this version does not know.
    pub rest: Rest,
}

/// The sequence number of an adopted lease: it was lost, and written again because a resource names it. Nobody renews
/// it.
pub(in crate::rules) const ADOPTED: Seq = Seq((1 << 53) - 2);

impl Lease {
    /// Whether the lease was lost, and written again only to run out.
    pub(in crate::rules) fn is_adopted(&self) -> bool {
        self.seq == ADOPTED
    }

    /// When the lease runs out unless it is renewed. Absent where the store has no clock.
    pub(in crate::rules) fn runs_out_at(&self) -> Time {
        self.renewed.map(|renewed| renewed + self.ttl)
    }

    /// A lease that was ended after it ran out counts as ended when it ran out.
    pub(super) fn end_in_time(&mut self) {
        let run_out = self.runs_out_at();
        if let Some(ended) = &mut self.ended
            && let (Some(at), Some(run_out)) = (ended.at, run_out)
        {
            ended.at = Some(at.min(run_out));
        }
    }
}

/// Tells a worker about one of its ownerships. A stronger notice stays, and so does one about a later ownership: the
/// sender has not seen the end of the earlier one.
pub(in crate::rules) fn notify(lease: &mut Lease, resource: &ResourceName, token: Token, wish: Wish) {
    let room = lease.notices.len() < MOST_NOTICES;
    match lease.notices.iter_mut().find(|notice| notice.resource == *resource) {
        Some(standing) if standing.token > token => {}
        Some(standing) if standing.token == token => standing.wish = standing.wish.max(wish),
        Some(standing) => (standing.token, standing.wish) = (token, wish),
        // An eviction is always told by name: the resource may still name the worker as its owner.
        None if room || wish == Wish::Evicted => {
            lease.notices.push(Notice { resource: resource.clone(), token, wish });
        }
        None => lease.more_notices = true,
    }
}

/// Whether the worker was told of this wish or of one about a later ownership, or will look at all its resources.
pub(in crate::rules) fn is_told(lease: &Lease, resource: &ResourceName, token: Token, wish: Wish) -> bool {
    let told = |notice: &Notice| notice.resource == *resource && (notice.token, notice.wish) >= (token, wish);
    lease.more_notices || lease.notices.iter().any(told)
}
