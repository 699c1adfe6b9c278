//! Resources without limit: everybody owns them, and no store is asked. The same inputs and outputs as the machine
//! that asks one, so that a campaign is a campaign.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::{
    Ending, Grant, Input, Moment, Output, Ownership as Granted, ResourceName, Term, Ticket, Timing, Token,
};

/// The campaigns of one worker for resources without limit.
#[derive(Debug)]
pub(crate) struct Unlimited {
    timing: Timing,
    campaigns: HashMap<ResourceName, Campaign>,
    leaving: bool,
}

#[derive(Debug)]
struct Campaign {
    state: State,
    /// The latest term, which is the token, too: nobody else's writes are to be fenced off.
    term: u64,
    failures: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Waiting { until: Moment },
    Owning,
    Stopping { then: Then, hard_at: Option<Moment> },
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Again(Duration),
    Leave,
}

impl Unlimited {
    pub(crate) fn new(timing: Timing) -> Self {
        Self { timing, campaigns: HashMap::new(), leaving: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.campaigns.is_empty()
    }

    pub(crate) fn is_campaigning(&self, resource: &ResourceName) -> bool {
        self.campaigns.contains_key(resource)
    }

    /// Begins a campaign; it owns at the next tick.
    pub(crate) fn enter(&mut self, resource: ResourceName, now: Moment) -> Vec<Output> {
        if self.leaving {
            return vec![Output::Left(resource)];
        }
        let campaign = Campaign { state: State::Waiting { until: now }, term: 0, failures: 0 };
        self.campaigns.insert(resource, campaign);
        self.handle(&Input::Tick, now)
    }

    /// Takes in what happened; what is not about these resources changes nothing.
    pub(crate) fn handle(&mut self, input: &Input, now: Moment) -> Vec<Output> {
        let mut out = Vec::new();
        self.leaving |= matches!(input, Input::Shutdown);
        let timing = &self.timing;
        match input {
            Input::StepDown(resource)
            | Input::Leave(resource)
            | Input::End { resource, .. }
            | Input::Stopped { resource, .. } => {
                if let Some(campaign) = self.campaigns.get_mut(resource)
                    && campaign.on(input, now, timing, resource, &mut out)
                {
                    self.campaigns.remove(resource);
                }
            }
            Input::Shutdown | Input::Tick => {
                self.campaigns
                    .retain(|resource, campaign| !campaign.on(input, now, timing, resource, &mut out));
            }
            _ => {}
        }
        out
    }

    /// How long until there is something to do without any other input.
    pub(crate) fn sleep(&self, now: Moment) -> Option<Duration> {
        let next = self.campaigns.values().filter_map(|campaign| match campaign.state {
            State::Waiting { until } => Some(until),
            State::Stopping { hard_at, .. } => hard_at,
            State::Owning => None,
        });
        next.map(|at| now.until(at)).min()
    }
}

impl Campaign {
    /// One row of the table; true when the campaign has left.
    fn on(
        &mut self,
        input: &Input,
        now: Moment,
        timing: &Timing,
        resource: &ResourceName,
        out: &mut Vec<Output>,
    ) -> bool {
        let token = Token(self.term);
        let is_about = |about: &Token| *about == token;
        match (self.state, input) {
            (State::Waiting { until }, Input::Tick) if now.has_reached(until) => {
                self.term += 1;
                let grant = Grant { ticket: Ticket(0), term: Term(self.term), token: Token(self.term) };
                out.push(Output::Start(Granted { resource: resource.clone(), grant }));
                self.state = State::Owning;
            }
            (State::Waiting { .. }, Input::Leave(_) | Input::Shutdown) => {
                out.push(Output::Left(resource.clone()));
                return true;
            }
            (State::Owning, Input::StepDown(_)) => {
                self.stop(Ending::SteppedDown, now, timing, resource, out);
            }
            (State::Owning, Input::Leave(_) | Input::Shutdown) => {
                self.stop(Ending::Left, now, timing, resource, out);
            }
            (State::Owning, Input::End { token, ending, .. }) if is_about(token) => {
                self.stop(*ending, now, timing, resource, out);
            }
            // Nobody told it to stop, and it says that it has: it came to its end.
            (State::Owning, Input::Stopped { token, .. }) if is_about(token) => {
                self.stop(Ending::Finished, now, timing, resource, out);
                out.push(Output::Left(resource.clone()));
                return true;
            }
            (State::Stopping { hard_at, .. }, Input::Leave(_) | Input::Shutdown) => {
                self.state = State::Stopping { then: Then::Leave, hard_at };
            }
            (State::Stopping { then: Then::Again(wait), .. }, Input::Stopped { token, .. })
                if is_about(token) =>
            {
                self.state = State::Waiting { until: now + wait };
                return self.on(&Input::Tick, now, timing, resource, out);
            }
            (State::Stopping { then: Then::Leave, .. }, Input::Stopped { token, .. }) if is_about(token) => {
                out.push(Output::Left(resource.clone()));
                return true;
            }
            (State::Stopping { then, hard_at: Some(at) }, Input::Tick) if now.has_reached(at) => {
                out.push(Output::StopHard { resource: resource.clone(), token });
                self.state = State::Stopping { then, hard_at: None };
            }
            _ => {}
        }
        false
    }

    fn stop(
        &mut self,
        ending: Ending,
        now: Moment,
        timing: &Timing,
        resource: &ResourceName,
        out: &mut Vec<Output>,
    ) {
        self.failures = if ending == Ending::Failed { self.failures + 1 } else { 0 };
        let then = match ending {
            Ending::Left | Ending::Finished => Then::Leave,
            // As with a store: it doubles from a tenth of a second up to the ttl.
            Ending::Failed => {
                let wait = Duration::from_millis(50) * 2u32.pow(self.failures.min(16));
                Then::Again(wait.min(timing.ttl()))
            }
            _ => Then::Again(Duration::ZERO),
        };
        out.push(Output::Stop { resource: resource.clone(), token: Token(self.term), ending });
        self.state = State::Stopping { then, hard_at: Some(now + timing.grace()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::new(Duration::from_secs(seconds), Duration::from_secs(seconds))
    }

    fn owning() -> (Unlimited, ResourceName) {
        let (mut unlimited, name) =
            (Unlimited::new(Timing::default()), ResourceName::new("r").expect("a name"));
        let out = unlimited.enter(name.clone(), at(1));
        assert!(matches!(&out[..], [Output::Start(own)] if own.grant.term == Term(1)), "{out:?}");
        (unlimited, name)
    }

    // req: O4
    #[test]
    fn work_that_fails_begins_again_after_a_pause() {
        let (mut unlimited, resource) = owning();

        let end = Input::End { resource: resource.clone(), token: Token(1), ending: Ending::Failed };
        assert!(matches!(unlimited.handle(&end, at(2))[..], [Output::Stop { ending: Ending::Failed, .. }]));
        assert_eq!(unlimited.handle(&Input::Stopped { resource, token: Token(1) }, at(2)), []);

        assert_eq!(unlimited.sleep(at(2)), Some(Duration::from_millis(100)));
        let out = unlimited.handle(&Input::Tick, at(3));
        assert!(matches!(&out[..], [Output::Start(own)] if own.grant.term == Term(2)), "{out:?}");
    }

    // req: A2
    #[test]
    fn a_shutdown_waits_for_the_work_and_hurries_it_after_the_grace() {
        let (mut unlimited, resource) = owning();

        assert!(matches!(unlimited.handle(&Input::Shutdown, at(2))[..], [Output::Stop { .. }]));
        assert!(!unlimited.is_empty());
        let later = at(2) + Timing::default().grace();
        assert!(matches!(unlimited.handle(&Input::Tick, later)[..], [Output::StopHard { .. }]));
        let out = unlimited.handle(&Input::Stopped { resource: resource.clone(), token: Token(1) }, later);

        assert_eq!(out, [Output::Left(resource.clone())]);
        assert!(unlimited.is_empty());
        assert_eq!(unlimited.enter(resource.clone(), later), [Output::Left(resource)]);
    }

    #[test]
    fn what_is_said_of_an_earlier_term_changes_nothing() {
        let (mut unlimited, resource) = owning();
        unlimited.handle(&Input::StepDown(resource.clone()), at(2));
        let again = unlimited.handle(&Input::Stopped { resource: resource.clone(), token: Token(1) }, at(2));
        assert!(matches!(&again[..], [Output::Start(own)] if own.grant.term == Term(2)), "{again:?}");

        let end = Input::End { resource: resource.clone(), token: Token(1), ending: Ending::Left };
        assert_eq!(unlimited.handle(&end, at(3)), []);
        assert_eq!(unlimited.handle(&Input::Stopped { resource, token: Token(1) }, at(3)), []);
    }
}
