//! Bugs that a test can plant, one at a time, to show that the simulation finds them.
//!
//! Without the feature `planted` there are none: [`Planted::has`] is constant, and the compiler drops what
//! hangs on it.

/// A mistake, each once thought to be good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// Trust is counted from when the answer came, not from when it was asked for.
    TrustFromTheReply,
    /// Clocks are taken to run at one rate.
    NoDriftAllowance,
    /// The ticket is released while the work still winds down.
    ReleaseBeforeStop,
    /// A grant that answers an old claim is taken up, although the ownership was given up since.
    ReadoptAfterRelease,
    /// Term and token start again after a release.
    TokenResetOnRelease,
    /// A renewal brings a dead lease back to life.
    RenewalRecreatesLease,
    /// A store that lost its data grants at once.
    QuarantineOff,
    /// A renewal kept by a new incarnation counts before `held` has settled what is owned.
    ConfirmationOff,
    /// Life is judged by the store's clock alone.
    JudgedByOff,
    /// A free ticket is granted however many are owned.
    TicketsNotCounted,
    /// After a loss the campaign claims again while the old work still runs.
    ClaimWhileWorkRuns,
    /// The campaign claims again before its release was answered.
    ClaimBeforeReleaseAnswered,
    /// Slow answers are left out of `judged_by` although nothing earlier vouches for the store's clock.
    SlowAnswersForgotten,
    /// A freed ticket wakes nobody.
    NobodyIsHinted,
    /// The head looks for a dead owner a ttl too late.
    LookTooLate,
    /// The one behind the head is not told to look a step later.
    NextIsNotTold,
    /// After a loss the worker does not compete again.
    NeverAgain,
    /// A lease is ended by what the worker vouches for alone, without asking the store's clock.
    BoundAlone,
    /// A worker is told to wait by what was read for an earlier request.
    WaitingFromCache,
    /// Without a clock at the store, a lease is watched on the faster of the own clocks.
    WatchedByFasterClock,
    /// A worker leaves although a claim of its own may still be applied.
    LeaveInDoubt,
    /// Leases that run out are ended in a quarantine.
    EndedInQuarantine,
    /// A ticket is taken before the lease of its owner is ended.
    TakeBeforeEnd,
    /// The end of a lease and the tickets that it held are changes of one commit.
    BatchLeans,
    /// A full queue is written all the same.
    FullQueueIsWritten,
    /// Renewals and grants do not expect the record of the namespace.
    MetaNotExpected,
    /// A ticket that is found under the own lease counts, although nobody has looked at the record of the namespace
    /// since it was taken.
    FoundCounts,
    /// An owner that was not told of a wish is not told again.
    WishWithoutKnock,
    /// Every write of a resource sets anew when its ticket was freed.
    FreedRestamped,
    /// A ttl is forgotten while a lease uses it.
    TtlDroppedInUse,
    /// A renewal that finds its own number, or a later one, goes on.
    ClonesAreOurselves,
    /// A renewal that conflicts with an older one of its own counts.
    OlderRenewalCounts,
    /// On an eviction the ticket is freed before the owner is told.
    SeatBeforeNotice,
    /// A commit is sent after a wait without reading.
    CommitAfterWait,
    /// Owners that release wait like those who join.
    AllWaitAlike,
    /// After a new incarnation the worker asks only for what it believes to own.
    HeldAsksOnlyForOwned,
    /// The store applies a commit whatever life its records were read in.
    CommitWithoutLife,
    /// The version of a record is how often it was written: after a fallback it comes back.
    VersionsAreCounters,
    /// A lease that was seen while the store's clock was back looks old when the clock is right again.
    ClockSeenBack,
    /// A process that writes a notice into a lease while the clock is back also writes the lowered time of its renewal.
    NoticeAgesLease,
    /// A process that raises the longest ttl while the clock is back also writes the lowered time of the quarantine.
    NewTtlAgesQuarantine,
    /// One request is answered with grants of two lives of the store.
    PartsOfTwoLives,
    /// Data that were wiped within one life of the store are not noticed.
    WipeUnnoticed,
    /// What a process knows of the longest ttl is forgotten when two lives begin in a row.
    LongestForgotten,
    /// A worker that comes late from the life before trusts a quarantine that is over already.
    OldQuarantineStands,
    /// A claim that is under way takes a ticket after the worker has left.
    ClaimAfterRelease,
    /// A renewal that has to be verified again is taken for that of a clone.
    OwnRenewalIsClones,
    /// A lease that was lost, and written again for the tickets that name it, is renewed by its worker.
    AdoptedIsRenewed,
    /// After a new incarnation a worker stays in the queues that it has left.
    PlacesNotLeft,
    /// The control: an owner that believes for 1.15 ttl.
    BelieveTooLong,
}

/// The bug that is planted, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Planted {
    #[cfg(feature = "planted")]
    bug: Option<Bug>,
}

impl Planted {
    /// With `bug` planted.
    #[cfg(feature = "planted")]
    #[must_use]
    pub const fn with(bug: Bug) -> Self {
        Self { bug: Some(bug) }
    }

    /// Whether `bug` is planted.
    #[cfg(feature = "planted")]
    #[must_use]
    pub fn has(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether `bug` is planted. It never is.
    #[cfg(not(feature = "planted"))]
    #[must_use]
    pub const fn has(self, _: Bug) -> bool {
        false
    }
}
