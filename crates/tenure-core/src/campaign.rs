//! One campaign: a worker's standing pursuit of one resource, as a table of (state, event).
//!
//! It knows nothing of renewals and time limits; the worker feeds it events and sends what it wants.

use core::time::Duration;

use crate::message::{Grant, LeaseId, Leave, Leaving, Seq, Term, Ticket, Token, Want};
use crate::moment::Moment;
use crate::names::ResourceName;
use crate::output::{EndReason, Output, Ownership};
use crate::planted::{Bug, Planted};
use crate::timing::Timing;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Campaign {
    pub(crate) want: Want,
    reach: Reach,
    state: State,
    /// How many times in a row the work failed.
    failures: u32,
}

/// Whether the store is asked for a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reach {
    Limited,
    /// Everybody owns the resource, and no store is asked. The latest term, which is the token, too: nobody else's writes
    /// are to be fenced off.
    Unlimited {
        term: u64,
    },
}

/// Where a campaign stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// It will claim at this moment.
    ClaimDue {
        at: Moment,
    },
    /// A claim is under way; a hint that came meanwhile is kept.
    Claiming {
        seq: Seq,
        hinted: Option<Moment>,
    },
    Owning(Own),
    /// The work was told to stop, and has not ended yet.
    Stopping {
        own: Own,
        then: Then,
        told: Told,
    },
    /// The work has ended; the ticket is to be released at this moment.
    ReleaseDue {
        at: Moment,
        then: Then,
    },
    /// A release is under way; a hint that came meanwhile is kept.
    Releasing {
        seq: Seq,
        then: Then,
        hinted: Option<Moment>,
    },
    Left,
}

/// How far the work has been told to stop, and when it is told more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Told {
    Stop {
        hard_at: Moment,
        /// How long the cleanup may take after the harder stop, before the work is overdue.
        cleanup: Duration,
    },
    StopHard {
        overdue_at: Moment,
    },
    /// It has ignored both, and that was reported.
    Overdue,
}

/// An ownership, and the lease that it stands on. One of a resource without limit stands on none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Own {
    pub(crate) lease: Option<LeaseId>,
    pub(crate) grant: Grant,
}

/// What follows the end of an ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    /// Queue again in the same step, at the tail.
    Again,
    /// Compete again after a while.
    Later(Duration),
    /// Leave. The user is told when the ticket is free.
    Leave,
    /// The same while the ticket is released. At this moment the user is told, even if the store has not answered.
    LeaveBy(Moment),
    /// The user was told; the ticket is still to be released.
    Release,
}

/// What goes to the store for many campaigns at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Batch {
    Claims,
    Releases,
}

/// What can happen to a campaign.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The user wants to compete, perhaps again.
    Entered,
    /// Somebody says that a ticket may be free by then.
    Hinted(Moment),
    /// Whoever waits was told to look as much too late.
    Sooner(Duration),
    /// The claim or release that it waited for has left.
    Sent(Seq),
    /// The store gave a ticket, in answer to the request of this number.
    Granted(Seq, Own),
    /// The store said, in answer to the request of this number, when to look again.
    Waiting(Seq, Moment),
    /// The store said, in answer to the request of this number, that nothing is held.
    Released(Seq),
    /// The request of this number came to nothing; try again then.
    Unanswered(Seq, Moment),
    /// The store says that this lease holds the ticket, as the campaign may not know.
    Holds(Option<Grant>),
    /// The ownership is to end.
    End(EndReason),
    /// The lease is over. Whatever stood on it has to be gone by the hard stop.
    LeaseOver {
        ending: EndReason,
        hard_at: Moment,
    },
    /// The work and its cleanup have ended.
    Stopped(Token),
    Tick,
}

/// What a transition looks at beside state and event.
pub(crate) struct Context<'a> {
    pub(crate) now: Moment,
    pub(crate) timing: &'a Timing,
    /// The lease, while it is trusted.
    pub(crate) live: Option<LeaseId>,
    pub(crate) planted: Planted,
    pub(crate) out: &'a mut dyn FnMut(Output),
}

impl Campaign {
    pub(crate) fn new(want: Want, reach: Reach, now: Moment) -> Self {
        Self { want, reach, state: State::ClaimDue { at: now }, failures: 0 }
    }

    /// One that only releases what the store says is held, and nobody knows why.
    pub(crate) fn unknown(want: Want, now: Moment) -> Self {
        let state = State::ReleaseDue { at: now, then: Then::Release };
        Self { want, reach: Reach::Limited, state, failures: 0 }
    }

    /// The user competes again, perhaps for other tickets.
    pub(crate) fn want_again(&mut self, want: Want, reach: Reach) {
        self.want = want;
        if let (Reach::Limited, _) | (_, Reach::Limited) = (self.reach, reach) {
            self.reach = reach;
        }
    }

    /// When it wants to claim, or to release.
    pub(crate) fn due(&self, batch: Batch) -> Option<Moment> {
        match (batch, &self.state) {
            (Batch::Claims, State::ClaimDue { at }) if self.reach == Reach::Limited => Some(*at),
            (Batch::Releases, State::ReleaseDue { at, .. }) => Some(*at),
            _ => None,
        }
    }

    /// When a tick changes something.
    pub(crate) fn tick_at(&self) -> Option<Moment> {
        match &self.state {
            State::ClaimDue { at } if self.reach != Reach::Limited => Some(*at),
            State::Stopping { told: Told::Stop { hard_at: at, .. }, .. }
            | State::Stopping { told: Told::StopHard { overdue_at: at }, .. }
            | State::ReleaseDue { then: Then::LeaveBy(at), .. }
            | State::Releasing { then: Then::LeaveBy(at), .. } => Some(*at),
            _ => None,
        }
    }

    /// What the release says.
    pub(crate) fn leave(&self) -> Leave {
        let how = match self.state {
            State::ReleaseDue { then: Then::Again, .. } => Leaving::SteppedDown,
            State::ReleaseDue { then: Then::Later(wait), .. } if !wait.is_zero() => Leaving::Failed,
            _ => Leaving::Released,
        };
        Leave { resource: self.want.resource.clone(), how }
    }

    /// The ownership whose work runs or winds down.
    pub(crate) fn working(&self) -> Option<Own> {
        match &self.state {
            State::Owning(own) | State::Stopping { own, .. } => Some(*own),
            _ => None,
        }
    }

    /// The ownership that may be relied on while its lease is trusted.
    pub(crate) fn owning(&self) -> Option<Own> {
        if let State::Owning(own) = self.state { Some(own) } else { None }
    }

    pub(crate) fn has_left(&self) -> bool {
        self.state == State::Left
    }

    /// Whether it waits for the answer to this request, and may be told to wait.
    pub(crate) fn awaits(&self, number: Seq) -> bool {
        match self.state {
            State::Claiming { seq, .. } | State::Releasing { seq, then: Then::Again, .. } => seq == number,
            _ => false,
        }
    }

    /// Whether neither the lease nor the store matters to it now.
    pub(crate) fn stands_alone(&self) -> bool {
        match &self.state {
            State::ClaimDue { .. } => self.reach != Reach::Limited,
            State::Owning(own) | State::Stopping { own, .. } => own.lease.is_none(),
            _ => false,
        }
    }

    /// The table.
    pub(crate) fn on(&mut self, event: Event, context: &mut Context<'_>) {
        if event.comes_from_the_store() && self.stands_alone() {
            return;
        }
        let state = core::mem::replace(&mut self.state, State::Left);
        self.state = match event {
            Event::End(..) | Event::LeaseOver { .. } | Event::Stopped(_) | Event::Tick => {
                self.on_ending(state, &event, context)
            }
            _ => self.on_answer(state, &event, context),
        };
    }

    /// The half of the table that is about asking: hints, requests and what the store says to them.
    fn on_answer(&mut self, state: State, event: &Event, context: &mut Context<'_>) -> State {
        use State::{ClaimDue, Claiming, Owning, ReleaseDue, Releasing, Stopping};
        let now = context.now;
        match (state, *event) {
            (ClaimDue { at }, Event::Hinted(soon)) => ClaimDue { at: at.or(soon) },
            (Claiming { seq, hinted }, Event::Hinted(soon)) => {
                Claiming { seq, hinted: Some(sooner(hinted, soon)) }
            }
            (Releasing { seq, then, hinted }, Event::Hinted(soon)) => {
                Releasing { seq, then, hinted: Some(sooner(hinted, soon)) }
            }

            (ClaimDue { at }, Event::Sooner(by)) => {
                ClaimDue { at: at.or(now + now.until(at).saturating_sub(by)) }
            }

            (ClaimDue { .. }, Event::Entered) => ClaimDue { at: now },
            (Stopping { own, then, told }, Event::Entered) if then.leaves() => {
                Stopping { own, then: Then::Later(Duration::ZERO), told }
            }
            (ReleaseDue { at, then }, Event::Entered) if then.leaves() => {
                ReleaseDue { at, then: Then::Later(Duration::ZERO) }
            }
            (Releasing { seq, then, hinted }, Event::Entered) if then.leaves() => {
                Releasing { seq, then: Then::Later(Duration::ZERO), hinted }
            }

            (ClaimDue { .. }, Event::Sent(seq)) => Claiming { seq, hinted: None },
            (ReleaseDue { then, .. }, Event::Sent(_)) if impatient(then, context) => ClaimDue { at: now },
            (ReleaseDue { then, .. }, Event::Sent(seq)) => Releasing { seq, then, hinted: None },

            (Claiming { seq, .. }, Event::Granted(to, own)) if seq == to => self.start(own, context),
            (Releasing { seq, then: Then::Again, .. }, Event::Granted(to, own)) if seq == to => {
                self.start(own, context)
            }
            (ClaimDue { .. } | ReleaseDue { .. } | Releasing { .. }, Event::Granted(_, own))
                if context.planted.has(Bug::ReadoptAfterRelease) =>
            {
                self.start(own, context)
            }
            (Claiming { seq, hinted }, Event::Waiting(to, at)) if seq == to => {
                ClaimDue { at: sooner(hinted, at) }
            }
            (Releasing { seq, then: Then::Again, hinted }, Event::Waiting(to, at)) if seq == to => {
                ClaimDue { at: sooner(hinted, at) }
            }
            // The release said that it would queue again, and since then the campaign was told otherwise.
            (Releasing { seq, then, .. }, Event::Granted(to, _) | Event::Waiting(to, _)) if seq == to => {
                ReleaseDue { at: now, then }
            }
            (Releasing { seq, then, .. }, Event::Released(to)) if seq == to => self.after(then, context),
            (Claiming { seq, .. }, Event::Unanswered(to, at)) if seq == to => ClaimDue { at },
            (Releasing { seq, then, .. }, Event::Unanswered(to, at)) if seq == to => ReleaseDue { at, then },

            (Owning(own), Event::Holds(grant)) if grant != Some(own.grant) => {
                self.stop(own, EndReason::Missing, now + context.timing.margin() / 2, context)
            }
            (Stopping { own, then, told }, Event::Holds(grant)) if grant != Some(own.grant) => {
                Stopping { own, then, told: told.by(now + context.timing.margin() / 2, context.timing) }
            }
            (ClaimDue { .. } | Claiming { .. }, Event::Holds(Some(_))) => {
                ReleaseDue { at: now, then: Then::Later(Duration::ZERO) }
            }
            // The release that is under way may have been for a life of the store that is over.
            (Releasing { then, .. }, Event::Holds(Some(_))) => ReleaseDue { at: now, then },

            (unchanged, _) => unchanged,
        }
    }

    /// The half of the table that is about the end of what is owned.
    fn on_ending(&mut self, state: State, event: &Event, context: &mut Context<'_>) -> State {
        use State::{ClaimDue, Claiming, Owning, ReleaseDue, Releasing, Stopping};
        let (now, hurry) = (context.now, context.now + context.timing.margin() / 2);
        match (state, *event) {
            (Owning(own), Event::End(ending)) => {
                let hard_at = if ending.is_gentle() { now + context.timing.grace() } else { hurry };
                self.stop(own, ending, hard_at, context)
            }
            // Another reason to end what is ending already: the work is told once, but it may have to hurry.
            (Stopping { own, then, told }, Event::End(ending)) => {
                let then =
                    if matches!(ending, EndReason::Left | EndReason::Finished) { Then::Leave } else { then };
                Stopping {
                    own,
                    then,
                    told: if ending.is_gentle() { told } else { told.by(hurry, context.timing) },
                }
            }
            (ClaimDue { .. }, Event::End(EndReason::Left)) if self.reach != Reach::Limited => {
                self.after(Then::Leave, context)
            }
            (ClaimDue { .. } | Claiming { .. }, Event::End(EndReason::Left)) => {
                self.release(context.live, Then::Leave, context)
            }
            (ReleaseDue { at, then }, Event::End(EndReason::Left)) if !then.leaves() => {
                ReleaseDue { at, then: Then::Leave.limited(context) }
            }
            (Releasing { seq, then, hinted }, Event::End(EndReason::Left)) if !then.leaves() => {
                Releasing { seq, then: Then::Leave.limited(context), hinted }
            }

            (Owning(own), Event::LeaseOver { ending, hard_at }) => {
                let stopping = self.stop(own, ending, hard_at, context);
                if context.planted.has(Bug::ClaimWhileWorkRuns) { ClaimDue { at: now } } else { stopping }
            }
            (Stopping { own, then, told }, Event::LeaseOver { hard_at, .. }) => {
                Stopping { own, then, told: told.by(hard_at, context.timing) }
            }
            (ClaimDue { .. } | Claiming { .. }, Event::LeaseOver { .. })
                if context.planted.has(Bug::NeverAgain) =>
            {
                ClaimDue { at: now + Duration::from_secs(3600) }
            }
            (ClaimDue { .. } | Claiming { .. }, Event::LeaseOver { .. }) => ClaimDue { at: now },
            (ReleaseDue { then, .. } | Releasing { then, .. }, Event::LeaseOver { .. }) => {
                self.after(then, context)
            }

            (Stopping { own, then, .. }, Event::Stopped(token)) if own.grant.token == token => {
                self.release(own.lease, then, context)
            }
            // Nobody told it to stop, and it says that it has: it came to its end.
            (Owning(own), Event::Stopped(token)) if own.grant.token == token => {
                self.stop(own, EndReason::Finished, hurry, context);
                self.release(own.lease, Then::Leave, context)
            }

            (unchanged, Event::Tick) => self.on_tick(unchanged, context),
            (unchanged, _) => unchanged,
        }
    }

    /// The part of the table that is about time.
    fn on_tick(&mut self, state: State, context: &mut Context<'_>) -> State {
        use State::{ClaimDue, ReleaseDue, Releasing, Stopping};
        let (now, resource) = (context.now, self.want.resource.clone());
        match state {
            ClaimDue { at } if now.has_reached(at) => match self.reach {
                Reach::Limited => ClaimDue { at },
                Reach::Unlimited { term } => self.start_unlimited(term + 1, context),
            },
            Stopping { own, then, told: Told::Stop { hard_at, cleanup } } if now.has_reached(hard_at) => {
                (context.out)(Output::StopHard { resource, token: own.grant.token });
                let (margin, half) = (context.timing.margin(), context.timing.margin() / 2);
                // Told in time, it has half of what is left of the margin. Told only after the margin, because the process
                // stood still, it has as long as that: nothing can be saved by haste.
                let told_at = if now.has_reached(hard_at + half) { now } else { hard_at };
                Stopping { own, then, told: Told::StopHard { overdue_at: told_at + cleanup + margin / 4 } }
            }
            Stopping { own, then, told: Told::StopHard { overdue_at } } if now.has_reached(overdue_at) => {
                (context.out)(Output::Overdue(Ownership { resource, grant: own.grant }));
                Stopping { own, then, told: Told::Overdue }
            }
            ReleaseDue { at, then: Then::LeaveBy(by) } if now.has_reached(by) => {
                (context.out)(Output::Left(resource));
                ReleaseDue { at, then: Then::Release }
            }
            Releasing { seq, then: Then::LeaveBy(by), hinted } if now.has_reached(by) => {
                (context.out)(Output::Left(resource));
                Releasing { seq, then: Then::Release, hinted }
            }
            unchanged => unchanged,
        }
    }

    fn start(&mut self, own: Own, context: &mut Context<'_>) -> State {
        (context.out)(Output::Start(Ownership { resource: self.want.resource.clone(), grant: own.grant }));
        State::Owning(own)
    }

    fn start_unlimited(&mut self, term: u64, context: &mut Context<'_>) -> State {
        self.reach = Reach::Unlimited { term };
        let grant = Grant { ticket: Ticket(0), term: Term(term), token: Token(term) };
        self.start(Own { lease: None, grant }, context)
    }

    /// The first stop: from here on the ownership is not relied on.
    fn stop(&mut self, own: Own, ending: EndReason, hard_at: Moment, context: &mut Context<'_>) -> State {
        let resource = self.want.resource.clone();
        (context.out)(Output::Stop { resource, token: own.grant.token, ending });
        let then = self.then(ending, context.timing);
        if context.planted.has(Bug::ReleaseBeforeStop) && ending.is_gentle() {
            return self.release(own.lease, then, context);
        }
        let cleanup = if ending.is_gentle() { context.timing.grace() } else { Duration::ZERO };
        State::Stopping { own, then, told: Told::Stop { hard_at, cleanup } }
    }

    fn then(&mut self, ending: EndReason, timing: &Timing) -> Then {
        self.failures = if ending == EndReason::Failed { self.failures + 1 } else { 0 };
        match ending {
            EndReason::Finished | EndReason::Left => Then::Leave,
            // It doubles from a tenth of a second up to the ttl.
            EndReason::Failed => {
                Then::Later((Duration::from_millis(50) * 2u32.pow(self.failures.min(16))).min(timing.ttl()))
            }
            EndReason::Missing => Then::Later(Duration::ZERO),
            _ => Then::Again,
        }
    }

    /// Nothing is done any more under this lease: the ticket goes back, unless it went with the lease.
    fn release(&mut self, lease: Option<LeaseId>, then: Then, context: &mut Context<'_>) -> State {
        match lease {
            Some(_) if context.live == lease => {
                State::ReleaseDue { at: context.now, then: then.limited(context) }
            }
            _ => self.after(then, context),
        }
    }

    /// Nothing is held any more: what now?
    fn after(&mut self, then: Then, context: &mut Context<'_>) -> State {
        match then {
            Then::Again => State::ClaimDue { at: context.now },
            Then::Later(wait) => State::ClaimDue { at: context.now + wait },
            Then::Leave | Then::LeaveBy(_) => {
                (context.out)(Output::Left(self.want.resource.clone()));
                State::Left
            }
            Then::Release => State::Left,
        }
    }

    /// The name of the resource.
    pub(crate) fn resource(&self) -> &ResourceName {
        &self.want.resource
    }
}

impl Event {
    /// Whether only those that depend on the lease have to know.
    fn comes_from_the_store(&self) -> bool {
        matches!(self, Self::Hinted(_) | Self::Sooner(_) | Self::Holds(_) | Self::LeaseOver { .. })
    }
}

impl Then {
    fn leaves(self) -> bool {
        matches!(self, Self::Leave | Self::LeaveBy(_) | Self::Release)
    }

    /// The same from here on, where only the store is waited for: a user who leaves does not wait longer than this.
    fn limited(self, context: &Context<'_>) -> Self {
        if self == Self::Leave { Self::LeaveBy(context.now + context.timing.ttl() / 3) } else { self }
    }
}

impl Told {
    /// The lease is lost: the harder stop comes by then at the latest, and a cleanup has no time of its own after it.
    fn by(self, latest: Moment, timing: &Timing) -> Self {
        match self {
            Self::Stop { hard_at, .. } => Self::Stop { hard_at: hard_at.or(latest), cleanup: Duration::ZERO },
            Self::StopHard { overdue_at } => {
                Self::StopHard { overdue_at: overdue_at.or(latest + timing.margin() / 4) }
            }
            Self::Overdue => Self::Overdue,
        }
    }
}

/// The earlier of two moments, of which one may not be.
fn sooner(hinted: Option<Moment>, at: Moment) -> Moment {
    hinted.map_or(at, |soon| at.or(soon))
}

fn impatient(then: Then, context: &Context<'_>) -> bool {
    context.planted.has(Bug::ClaimBeforeReleaseAnswered) && !then.leaves()
}
