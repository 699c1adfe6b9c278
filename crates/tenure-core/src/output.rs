//! What the worker's state machine takes in and gives out.

use core::time::Duration;

use crate::message::{Answer, Grant, LeaseId, Request, Seq, Token, Waiting, Want};
use crate::moment::Moment;
use crate::names::ResourceName;

/// What the machine needs of the world for one step: the time, and chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Now {
    /// The worker's clocks, read just now.
    pub at: Moment,
    /// How much of a spread is used, in parts of 65 536. Drawn anew for every step.
    pub jitter: u16,
    /// A random id, should this step open a lease. Drawn anew for every step.
    pub fresh: LeaseId,
}

/// What happens to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Compete for a resource. If the worker does already, its next claim asks for these tickets and this
    /// priority. If it was about to leave, it stays: it competes once the old work has ended and the old ticket is free.
    Enter(Want),
    /// Own a resource without limit: everybody does, and no store is asked. Otherwise as [`Enter`](Self::Enter).
    EnterUnlimited(ResourceName),
    /// Give up the ownership, if there is one, and stay a candidate.
    StepDown(ResourceName),
    /// Give up the ownership and the campaign.
    Leave(ResourceName),
    /// The ownership under this token ends for a reason of its own: [`EndReason::Finished`], [`EndReason::Failed`],
    /// [`EndReason::SteppedDown`] or [`EndReason::Left`]. Another token or another
    /// reason: nothing happens.
    End {
        /// Of which resource.
        resource: ResourceName,
        /// Which ownership.
        token: Token,
        /// Why.
        ending: EndReason,
    },
    /// The work of this ownership and its cleanup have ended.
    Stopped {
        /// Of which resource.
        resource: ResourceName,
        /// Which ownership.
        token: Token,
    },
    /// The store answered.
    Answered(Request, Answer),
    /// The request came to nothing, as far as we know.
    Failed(Request),
    /// The store hints that a ticket may be free. For an owner: that there is something to tell it, with a renewal.
    Hinted {
        /// Of which resource.
        resource: ResourceName,
        /// How long to leave it to those who come first.
        after: Duration,
    },
    /// Hints may have been missed: whoever waits looks once.
    Missed,
    /// Whoever watches over the work has ended this lease: as if its trust had run out. Another lease: nothing happens.
    Ended(LeaseId),
    /// The application shows that it is not wedged.
    Beat,
    /// Time has gone by.
    Tick,
    /// Leave every campaign, then close the lease.
    Shutdown,
}

/// What a worker wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Send this to the store.
    Send(Request),
    /// Give up the request of this number, with its connection; a late answer changes nothing.
    Abandon(Seq),
    /// Everything owned may be relied on until then.
    Trust(Moment),
    /// The lease is over: nothing owned may be relied on.
    Distrust {
        /// Before then the store lets nobody else in, if the lease ran out. One that was withdrawn protects nothing.
        protected_until: Option<Moment>,
    },
    /// Start the work.
    Start(Ownership),
    /// Tell the work to stop, clean up, and say so. From here on the ownership does not hold.
    Stop {
        /// Of which resource.
        resource: ResourceName,
        /// Which ownership.
        token: Token,
        /// Why.
        ending: EndReason,
    },
    /// The work was told and has not ended: end it now, by force.
    StopHard {
        /// Of which resource.
        resource: ResourceName,
        /// Which ownership.
        token: Token,
    },
    /// The work was told by force, too, and has not ended. Told once per ownership; after a loss, while there is still a quarter of
    /// the margin left to end the process.
    Overdue(Ownership),
    /// The campaign is over: its work has ended, and nothing is held. Or the store has not answered the release for a third of
    /// the ttl; then the release goes on, but nobody has to wait for it.
    Left(ResourceName),
    /// Something that people may want to know.
    Report(Report),
    /// Nothing is done any more, but the store has not said for a third of the ttl that it knows. The shutdown goes on, but
    /// nobody has to wait for it.
    Unheard,
    /// The shutdown is complete.
    Done,
}

/// Something that people may want to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Report {
    /// A claim has to wait.
    Queued(ResourceName, Waiting),
    /// No claims are made for so long, and why.
    HeldBack(HeldBack, Duration),
    /// The store began a new life; what is owned is confirmed before the trust goes on.
    NewIncarnation,
    /// A request got no answer in time.
    Unanswered(Seq),
}

/// Why a worker does not claim although it wants to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeldBack {
    /// The store forgot a lease that should have lived: others may own what it forgot, too.
    StoreForgot,
    /// The store's clock has to be watched first ([`Clock::Strict`](crate::Clock::Strict)).
    Watching,
}

/// An ownership, as the work sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ownership {
    /// Of which resource.
    pub resource: ResourceName,
    /// Its ticket, term and token.
    pub grant: Grant,
}

/// Why an ownership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The work came to its end.
    Finished,
    /// The work, or a callback, failed.
    Failed,
    /// The worker gave it up and stays a candidate.
    SteppedDown,
    /// The worker left the campaign.
    Left,
    /// The operator asked for a hand-over.
    Asked,
    /// The resource has fewer tickets now.
    Lowered,
    /// The operator took it away.
    Evicted,
    /// No renewal was answered in time.
    Expired,
    /// The store does not know the lease any more.
    Gone,
    /// A new incarnation of the store does not know the ownership.
    Missing,
    /// Somebody else uses this worker's lease.
    Cloned,
}

impl EndReason {
    /// Whether the work may take its time: the lease is renewed until it has ended.
    #[must_use]
    pub const fn is_gentle(self) -> bool {
        matches!(
            self,
            Self::Finished | Self::Failed | Self::SteppedDown | Self::Left | Self::Asked | Self::Lowered
        )
    }
}
