//! One campaign: a worker's standing pursuit of one resource, as a table of (state, event).
//!
//! It knows nothing of renewals and time limits; the worker feeds it events and sends what it wants.

use core::time::Duration;

use crate::message::{Grant, LeaseId, Leave, Leaving, Seq, Term, Ticket, Token, Want};
use crate::moment::Moment;
use crate::names::{ResourceName, Tickets};
use crate::output::{EndReason, Output, Ownership};
use crate::planted::{Bug, Planted};
use crate::timing::Timing;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Campaign {
    pub(crate) want: Want,
    state: State,
    /// How many times in a row the work failed.
    failures: u32,
    reach: Reach,
}

/// Whether the store is asked for a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reach {
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
    Looking {
        at: Moment,
    },
    /// A claim is under way; a hint that came meanwhile is kept.
    Asking {
        seq: Seq,
        hinted: Option<Moment>,
    },
    Owning(Own),
    /// The work was told to stop, and has not ended yet.
    Stopping {
        own: Own,
        then: Then,
        hard_at: Option<Moment>,
    },
    /// The work has ended; the ticket is to be released at this moment.
    Letting {
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

/// An ownership, and the lease that it stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Own {
    pub(crate) lease: LeaseId,
    pub(crate) grant: Grant,
}

/// What follows the end of an ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    /// Queue again in the same step, at the tail.
    Again,
    /// Compete again after a while.
    Later(Duration),
    Leave,
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
pub(crate) struct Scene<'a> {
    pub(crate) now: Moment,
    pub(crate) timing: &'a Timing,
    /// The lease, while it is trusted.
    pub(crate) live: Option<LeaseId>,
    pub(crate) planted: Planted,
    pub(crate) out: &'a mut dyn FnMut(Output),
}

impl Campaign {
    pub(crate) fn new(want: Want, now: Moment) -> Self {
        Self { want, state: State::Looking { at: now }, failures: 0, reach: Reach::Limited }
    }

    /// One for a resource without limit: it owns at the next tick.
    pub(crate) fn unlimited(resource: ResourceName, now: Moment) -> Self {
        let want = Want { resource, tickets: Tickets::ONE, priority: 0 };
        Self { reach: Reach::Unlimited { term: 0 }, ..Self::new(want, now) }
    }

    /// One that only releases what the store says is held, and nobody knows why.
    pub(crate) fn unknown(want: Want, now: Moment) -> Self {
        let state = State::Letting { at: now, then: Then::Leave };
        Self { want, state, failures: 0, reach: Reach::Limited }
    }

    /// When it wants to claim, or to release.
    pub(crate) fn due(&self, batch: Batch) -> Option<Moment> {
        match (batch, &self.state) {
            _ if self.reach != Reach::Limited => None,
            (Batch::Claims, State::Looking { at }) | (Batch::Releases, State::Letting { at, .. }) => {
                Some(*at)
            }
            _ => None,
        }
    }

    /// When a tick changes something: the harder stop is due, or a campaign without limit begins.
    pub(crate) fn tick_at(&self) -> Option<Moment> {
        match (&self.state, self.reach) {
            (State::Stopping { hard_at, .. }, _) => *hard_at,
            (State::Looking { at }, Reach::Unlimited { .. }) => Some(*at),
            _ => None,
        }
    }

    /// What the release says.
    pub(crate) fn leave(&self) -> Leave {
        let how = match self.state {
            State::Letting { then: Then::Again, .. } => Leaving::SteppedDown,
            State::Letting { then: Then::Later(wait), .. } if !wait.is_zero() => Leaving::Failed,
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

    /// The table.
    pub(crate) fn on(&mut self, event: Event, scene: &mut Scene<'_>) {
        let state = core::mem::replace(&mut self.state, State::Left);
        self.state = match event {
            Event::End(..) | Event::LeaseOver { .. } | Event::Stopped(_) | Event::Tick => {
                self.on_ending(state, &event, scene)
            }
            _ => self.on_answer(state, &event, scene),
        };
    }

    /// The half of the table that is about asking: hints, requests and what the store says to them.
    fn on_answer(&mut self, state: State, event: &Event, scene: &mut Scene<'_>) -> State {
        use State::{Asking, Letting, Looking, Owning, Releasing, Stopping};
        let now = scene.now;
        match (state, *event) {
            (Looking { at }, Event::Hinted(soon)) => Looking { at: at.or(soon) },
            (Asking { seq, hinted }, Event::Hinted(soon)) => {
                Asking { seq, hinted: Some(sooner(hinted, soon)) }
            }
            (Releasing { seq, then, hinted }, Event::Hinted(soon)) => {
                Releasing { seq, then, hinted: Some(sooner(hinted, soon)) }
            }

            (Looking { at }, Event::Sooner(by)) => {
                Looking { at: at.or(now + now.until(at).saturating_sub(by)) }
            }

            (Looking { .. }, Event::Entered) => Looking { at: now },
            (Stopping { own, then: Then::Leave, hard_at }, Event::Entered) => {
                Stopping { own, then: Then::Later(Duration::ZERO), hard_at }
            }
            (Letting { at, then: Then::Leave }, Event::Entered) => {
                Letting { at, then: Then::Later(Duration::ZERO) }
            }
            (Releasing { seq, then: Then::Leave, hinted }, Event::Entered) => {
                Releasing { seq, then: Then::Later(Duration::ZERO), hinted }
            }

            (Looking { .. }, Event::Sent(seq)) => Asking { seq, hinted: None },
            (Letting { then, .. }, Event::Sent(_)) if impatient(then, scene) => Looking { at: now },
            (Letting { then, .. }, Event::Sent(seq)) => Releasing { seq, then, hinted: None },

            (Asking { seq, .. }, Event::Granted(to, own)) if seq == to => self.start(own, scene),
            (Releasing { seq, then: Then::Again, .. }, Event::Granted(to, own)) if seq == to => {
                self.start(own, scene)
            }
            (Looking { .. } | Letting { .. } | Releasing { .. }, Event::Granted(_, own))
                if scene.planted.has(Bug::ReadoptAfterRelease) =>
            {
                self.start(own, scene)
            }
            (Asking { seq, hinted }, Event::Waiting(to, at)) if seq == to => {
                Looking { at: sooner(hinted, at) }
            }
            (Releasing { seq, then: Then::Again, hinted }, Event::Waiting(to, at)) if seq == to => {
                Looking { at: sooner(hinted, at) }
            }
            // The release said that it would queue again, and since then the campaign was told otherwise.
            (Releasing { seq, then, .. }, Event::Granted(to, _) | Event::Waiting(to, _)) if seq == to => {
                Letting { at: now, then }
            }
            (Releasing { seq, then, .. }, Event::Released(to)) if seq == to => self.after(then, scene),
            (Asking { seq, .. }, Event::Unanswered(to, at)) if seq == to => Looking { at },
            (Releasing { seq, then, .. }, Event::Unanswered(to, at)) if seq == to => Letting { at, then },

            (Owning(own), Event::Holds(grant)) if grant != Some(own.grant) => {
                self.stop(own, EndReason::Missing, now + scene.timing.margin() / 2, scene)
            }
            (Stopping { own, then, hard_at }, Event::Holds(grant)) if grant != Some(own.grant) => {
                let hurry = now + scene.timing.margin() / 2;
                Stopping { own, then, hard_at: hard_at.map(|at| at.or(hurry)) }
            }
            (Looking { .. } | Asking { .. }, Event::Holds(Some(_))) => {
                Letting { at: now, then: Then::Later(Duration::ZERO) }
            }
            // The release that is under way may have been for a life of the store that is over.
            (Releasing { then, .. }, Event::Holds(Some(_))) => Letting { at: now, then },

            (unchanged, _) => unchanged,
        }
    }

    /// The half of the table that is about the end of what is owned.
    fn on_ending(&mut self, state: State, event: &Event, scene: &mut Scene<'_>) -> State {
        use State::{Asking, Letting, Looking, Owning, Releasing, Stopping};
        let (now, hurry) = (scene.now, scene.now + scene.timing.margin() / 2);
        match (state, *event) {
            (Owning(own), Event::End(ending)) => {
                let hard_at = if ending.is_gentle() { now + scene.timing.grace() } else { hurry };
                self.stop(own, ending, hard_at, scene)
            }
            // Another reason to end what is ending already: the work is told once, but it may have to hurry.
            (Stopping { own, then, hard_at }, Event::End(ending)) => {
                let then =
                    if matches!(ending, EndReason::Left | EndReason::Finished) { Then::Leave } else { then };
                let hard_at = hard_at.map(|at| if ending.is_gentle() { at } else { at.or(hurry) });
                Stopping { own, then, hard_at }
            }
            (Looking { .. } | Asking { .. }, Event::End(EndReason::Left)) => match scene.live {
                Some(_) => Letting { at: now, then: Then::Leave },
                None => self.after(Then::Leave, scene),
            },
            (Letting { at, .. }, Event::End(EndReason::Left)) => Letting { at, then: Then::Leave },
            (Releasing { seq, hinted, .. }, Event::End(EndReason::Left)) => {
                Releasing { seq, then: Then::Leave, hinted }
            }

            (Owning(own), Event::LeaseOver { ending, hard_at }) => {
                let stopping = self.stop(own, ending, hard_at, scene);
                if scene.planted.has(Bug::ClaimWhileWorkRuns) { Looking { at: now } } else { stopping }
            }
            (Stopping { own, then, hard_at }, Event::LeaseOver { hard_at: latest, .. }) => {
                Stopping { own, then, hard_at: hard_at.map(|at| at.or(latest)) }
            }
            (Looking { .. } | Asking { .. }, Event::LeaseOver { .. })
                if scene.planted.has(Bug::NeverAgain) =>
            {
                Looking { at: now + Duration::from_secs(3600) }
            }
            (Looking { .. } | Asking { .. }, Event::LeaseOver { .. }) => Looking { at: now },
            (Letting { then, .. } | Releasing { then, .. }, Event::LeaseOver { .. }) => {
                self.after(then, scene)
            }

            (Stopping { own, then, .. }, Event::Stopped(token)) if own.grant.token == token => {
                if scene.live == Some(own.lease) {
                    Letting { at: now, then }
                } else {
                    self.after(then, scene)
                }
            }
            // Nobody told it to stop, and it says that it has: it came to its end.
            (Owning(own), Event::Stopped(token)) if own.grant.token == token => {
                self.stop(own, EndReason::Finished, hurry, scene);
                match self.reach {
                    Reach::Limited => Letting { at: now, then: Then::Leave },
                    Reach::Unlimited { .. } => self.after(Then::Leave, scene),
                }
            }
            (Looking { at }, Event::Tick) if now.has_reached(at) => match self.reach {
                Reach::Limited => Looking { at },
                Reach::Unlimited { term } => self.start_unlimited(term + 1, scene),
            },
            (Stopping { own, then, hard_at: Some(at) }, Event::Tick) if now.has_reached(at) => {
                (scene.out)(Output::StopHard {
                    resource: self.want.resource.clone(),
                    token: own.grant.token,
                });
                Stopping { own, then, hard_at: None }
            }

            (unchanged, _) => unchanged,
        }
    }

    fn start(&mut self, own: Own, scene: &mut Scene<'_>) -> State {
        (scene.out)(Output::Start(Ownership { resource: self.want.resource.clone(), grant: own.grant }));
        State::Owning(own)
    }

    fn start_unlimited(&mut self, term: u64, scene: &mut Scene<'_>) -> State {
        self.reach = Reach::Unlimited { term };
        let grant = Grant { ticket: Ticket(0), term: Term(term), token: Token(term) };
        self.start(Own { lease: LeaseId(0), grant }, scene)
    }

    /// The first stop: from here on the ownership is not relied on.
    fn stop(&mut self, own: Own, ending: EndReason, hard_at: Moment, scene: &mut Scene<'_>) -> State {
        let resource = self.want.resource.clone();
        (scene.out)(Output::Stop { resource, token: own.grant.token, ending });
        let then = self.then(ending, scene.timing);
        if scene.planted.has(Bug::ReleaseBeforeStop) && ending.is_gentle() {
            return State::Letting { at: scene.now, then };
        }
        State::Stopping { own, then, hard_at: Some(hard_at) }
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

    /// Nothing is held any more: what now?
    fn after(&mut self, then: Then, scene: &mut Scene<'_>) -> State {
        match then {
            Then::Again => State::Looking { at: scene.now },
            Then::Later(wait) => State::Looking { at: scene.now + wait },
            Then::Leave => {
                (scene.out)(Output::Left(self.want.resource.clone()));
                State::Left
            }
        }
    }

    /// The name of the resource.
    pub(crate) fn resource(&self) -> &ResourceName {
        &self.want.resource
    }
}

/// The earlier of two moments, of which one may not be.
fn sooner(hinted: Option<Moment>, at: Moment) -> Moment {
    hinted.map_or(at, |soon| at.or(soon))
}

fn impatient(then: Then, scene: &Scene<'_>) -> bool {
    scene.planted.has(Bug::ClaimBeforeReleaseAnswered) && then != Then::Leave
}
