//! The worker's own lease: opened, renewed while there is trust, dead for ever once it has run out.

use core::time::Duration;

use crate::message::{Closing, Incarnation, LeaseId, Seq};
use crate::moment::Moment;

/// No attempt gets less: below it even a healthy store could not answer.
const SHORTEST_TRY: Duration = Duration::from_millis(10);

/// Where the lease stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lease {
    /// There is none; one may be opened at this moment.
    Absent { open_at: Moment },
    /// It was asked for.
    Opening(Opening),
    /// It is trusted.
    Live(Live),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Opening {
    pub(crate) id: LeaseId,
    /// Repeating `open` changes nothing at the store, so trust counts from the first sending.
    pub(crate) first_asked_at: Moment,
    pub(crate) tries: Tries,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Live {
    pub(crate) id: LeaseId,
    pub(crate) trusted_until: Moment,
    pub(crate) renewal: Tries,
    /// The life of the store in which everything owned is known to be written down.
    pub(crate) confirmed: Incarnation,
    pub(crate) unsettled: Option<Unsettled>,
}

/// A renewal that another life of the store has kept. It counts once `held` has settled what is owned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unsettled {
    pub(crate) incarnation: Incarnation,
    pub(crate) asked_at: Moment,
    pub(crate) held: Tries,
}

/// A request that is repeated until it is answered, one attempt at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tries {
    /// The next attempt is made at this moment.
    Next(Moment),
    /// One is under way.
    Out(Attempt),
}

/// One request that is under way, and when it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    pub(crate) seq: Seq,
    pub(crate) due: Moment,
}

/// A lease that is over for the worker, and that the store has still to be told of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PendingClose {
    pub(crate) id: LeaseId,
    pub(crate) why: Closing,
    pub(crate) tries: Tries,
    /// By then the store has let go of it by itself. Absent before the first attempt: it waits for the work under the
    /// lease, however long that takes.
    pub(crate) until: Option<Moment>,
}

impl Live {
    /// How long an attempt to renew may take: a third of what is left.
    pub(crate) fn patience(&self, now: Moment) -> Duration {
        (now.until(self.trusted_until) / 3).max(SHORTEST_TRY)
    }

    /// The requests about the lease itself that are under way.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = Seq> {
        let held = self.unsettled.as_ref().and_then(|unsettled| unsettled.held.under_way());
        self.renewal.under_way().into_iter().chain(held)
    }

    pub(crate) fn awaits(&self, seq: Seq) -> bool {
        self.under_way().any(|under_way| under_way == seq)
    }

    /// How long to wait after an attempt that failed at once.
    pub(crate) fn pause(&self, now: Moment) -> Duration {
        (now.until(self.trusted_until) / 8).max(SHORTEST_TRY)
    }
}

impl Tries {
    /// When this wants attention.
    pub(crate) fn at(&self) -> Moment {
        match self {
            Self::Next(at) | Self::Out(Attempt { due: at, .. }) => *at,
        }
    }

    /// The attempt under way.
    pub(crate) fn under_way(&self) -> Option<Seq> {
        if let Self::Out(attempt) = self { Some(attempt.seq) } else { None }
    }

    /// Whether the attempt of this number is the one under way.
    pub(crate) fn awaits(&self, seq: Seq) -> bool {
        self.under_way() == Some(seq)
    }

    /// The attempt under way, if its time is up.
    pub(crate) fn overdue(&self, now: Moment) -> Option<Seq> {
        match self {
            Self::Out(attempt) if now.has_reached(attempt.due) => Some(attempt.seq),
            _ => None,
        }
    }

    /// Whether the next attempt is to be made.
    pub(crate) fn is_next(&self, now: Moment) -> bool {
        matches!(self, Self::Next(at) if now.has_reached(*at))
    }
}
