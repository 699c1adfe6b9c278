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
    /// The store does not remember up to which request a resource was released.
    ReleaseWithoutSeq,
    /// A store that lost its data grants at once.
    QuarantineOff,
    /// A renewal kept by a new incarnation counts before `held` has settled what is owned.
    ConfirmationOff,
    /// Life is judged by the store's clock alone.
    JudgedByOff,
    /// A renewal judges its own lease by the store's clock alone.
    JudgedByMissingInRenew,
    /// A release judges its own lease by the store's clock alone.
    JudgedByMissingInRelease,
    /// A repeated renewal extends the lease again.
    RepeatedRenewalKept,
    /// A free ticket is granted however many are owned.
    TicketsNotCounted,
    /// After a loss the campaign claims again while the old work still runs.
    ClaimWhileWorkRuns,
    /// The campaign claims again before its release was answered.
    ClaimBeforeReleaseAnswered,
    /// Slow answers are left out of `judged_by` although nothing earlier vouches for the store's clock.
    SlowAnswersForgotten,
    /// A repeated `open` marks its lease dead by the store's clock alone.
    RepeatedOpenMarks,
    /// A late request judges life by what it vouched for when it was sent.
    OvertakenJudges,
    /// A freed ticket wakes nobody.
    NobodyIsHinted,
    /// The head looks for a dead owner a ttl too late.
    LookTooLate,
    /// The one behind the head is not told to look a step later.
    NextIsNotTold,
    /// After a loss the worker does not compete again.
    NeverAgain,
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
