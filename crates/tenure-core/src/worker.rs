//! The worker's state machine: one lease, many campaigns. Inputs in, outputs out, time as an argument.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use crate::campaign::{Campaign, Event, Own, Scene};
use crate::lease::{Attempt, Farewell, Lease, Live, Opening, Tries, Unsettled};
use crate::ledger::BATCH;
use crate::message::{
    Answer, Call, Claimed, Closing, Grant, Holding, LeaseId, Notice, Released, Request, Said, Seq, Stamp,
    Waiting, Want, Wish,
};
use crate::moment::Moment;
use crate::names::{Label, Metadata, ResourceName, Tickets};
use crate::output::{Ending, HeldBack, Input, Now, Output, Report};
use crate::planted::{Bug, Planted};
use crate::timing::{Clock, Timing};
use crate::watch::Watch;

/// So many claims, and so many releases, may be under way at once; what becomes due meanwhile goes together.
const AT_ONCE: usize = 4;
/// The pause after the first failure; it doubles up to a third of the ttl.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The most by which the first in a queue is late on purpose.
const HEAD_SPREAD: Duration = Duration::from_millis(10);

/// One competitor.
///
/// [`handle`](Self::handle) takes in what happened, [`poll`](Self::poll) gives out what is to be done, and
/// [`sleep`](Self::sleep) says when to come back with [`Input::Tick`] at the latest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    timing: Timing,
    label: Label,
    metadata: Metadata,
    mode: Mode,
    lease: Lease,
    farewells: Vec<Farewell>,
    campaigns: BTreeMap<ResourceName, Campaign>,
    claims: Vec<Attempt>,
    releases: Vec<Attempt>,
    seq: Seq,
    longest: Duration,
    watch: Watch,
    /// The store forgot a lease that should have lived: no claims before this moment has surely come.
    held_back_until: Option<Moment>,
    /// How many requests in a row got no answer.
    misses: u32,
    beat_at: Moment,
    planted: Planted,
    out: VecDeque<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mode {
    Serving,
    Leaving,
    Done,
}

impl Worker {
    /// A worker that competes for nothing yet. It asks for a lease with its first campaign.
    #[must_use]
    pub fn new(timing: Timing, label: Label, metadata: Metadata, now: Moment) -> Self {
        let planted = Planted::default();
        Self {
            timing,
            label,
            metadata,
            mode: Mode::Serving,
            lease: Lease::Absent { open_at: now },
            farewells: Vec::new(),
            campaigns: BTreeMap::new(),
            claims: Vec::new(),
            releases: Vec::new(),
            seq: Seq(0),
            longest: timing.ttl(),
            watch: Watch::new(planted),
            held_back_until: None,
            misses: 0,
            beat_at: now,
            planted,
            out: VecDeque::new(),
        }
    }

    /// The same with a bug in it, for tests.
    #[must_use]
    pub fn with_planted(self, planted: Planted) -> Self {
        Self { planted, watch: Watch::new(planted), ..self }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Now, input: Input) {
        // Before anything else: a late Kept must not revive what has run out.
        self.expire(now);
        match input {
            Input::Enter(want) => self.enter(now, want),
            Input::StepDown(resource) => self.tell(now, &resource, Event::End(Ending::SteppedDown)),
            Input::Leave(resource) => self.tell(now, &resource, Event::End(Ending::Left)),
            Input::End { resource, token, ending } => {
                let own = self.campaigns.get(&resource).and_then(Campaign::working);
                if own.is_some_and(|own| own.grant.token == token) {
                    self.tell(now, &resource, Event::End(ending));
                }
            }
            Input::Stopped { resource, token } => self.tell(now, &resource, Event::Stopped(token)),
            Input::Answered(request, answer) => self.answered(now, &request, answer),
            Input::Failed(request) => self.unanswered(now, request.seq),
            Input::Hinted { resource, after } => self.tell(now, &resource, Event::Hinted(now.at + after)),
            Input::Beat => self.beat_at = now.at,
            Input::Tick => {}
            Input::Shutdown => self.shut_down(now),
        }
        self.advance(now);
    }

    /// What is to be done next; nothing when all is done.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// How long until there is something to do without any other input.
    #[must_use]
    pub fn sleep(&self, now: Moment) -> Option<Duration> {
        let mut soonest: Option<Duration> = None;
        let mut at = |span: Duration| soonest = Some(soonest.map_or(span, |soonest| soonest.min(span)));
        match &self.lease {
            Lease::Absent { open_at } if self.wants_lease(now) => at(now.until(*open_at)),
            Lease::Absent { .. } => {}
            Lease::Opening(opening) => at(now.until(opening.tries.at())),
            Lease::Live(live) => {
                at(now.until(live.trusted_until));
                if self.has_beaten(now) || matches!(live.renewal, Tries::Out(_)) {
                    at(now.until(live.renewal.at()));
                }
                live.unsettled.iter().for_each(|unsettled| at(now.until(unsettled.held.at())));
            }
        }
        for attempt in self.claims.iter().chain(&self.releases) {
            at(now.until(attempt.due));
        }
        for farewell in self.farewells.iter().filter(|farewell| self.may_close(farewell.id)) {
            at(now.until(farewell.tries.at()));
        }
        let claims_in = self.claims_in(now).filter(|_| self.claims.len() < AT_ONCE);
        let may_release = self.live().is_some() && self.releases.len() < AT_ONCE;
        for campaign in self.campaigns.values() {
            campaign.hard_at().into_iter().for_each(|hard_at| at(now.until(hard_at)));
            if let (Some(look_at), Some(held_back)) = (campaign.claims_at(), claims_in) {
                at(now.until(look_at).max(held_back));
            }
            if let (Some(let_at), true) = (campaign.releases_at(), may_release) {
                at(now.until(let_at));
            }
        }
        soonest
    }

    /// Whether the worker competes for the resource, or has not quite left it.
    #[must_use]
    pub fn is_campaigning(&self, resource: &ResourceName) -> bool {
        self.campaigns.contains_key(resource)
    }

    /// Until when what is owned may be relied on.
    #[must_use]
    pub fn trusted_until(&self) -> Option<Moment> {
        self.live().map(|live| live.trusted_until)
    }

    /// What is owned and not told to stop. It holds only before [`trusted_until`](Self::trusted_until).
    pub fn owned(&self) -> impl Iterator<Item = (&ResourceName, Grant)> {
        self.campaigns.iter().filter_map(|(name, campaign)| Some((name, campaign.owning()?.grant)))
    }

    /// The lease, while it is trusted.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        self.live().map(|live| live.id)
    }

    // ---- inputs ------------------------------------------------------------------------------------------

    fn enter(&mut self, now: Now, want: Want) {
        if self.mode != Mode::Serving {
            return;
        }
        match self.campaigns.get_mut(&want.resource) {
            Some(campaign) => {
                let resource = want.resource.clone();
                campaign.want = want;
                self.tell(now, &resource, Event::Hinted(now.at));
            }
            None => drop(self.campaigns.insert(want.resource.clone(), Campaign::new(want, now.at))),
        }
    }

    fn shut_down(&mut self, now: Now) {
        if self.mode == Mode::Serving {
            self.mode = Mode::Leaving;
            self.tell_all(now, |_| Event::End(Ending::Left));
        }
    }

    fn answered(&mut self, now: Now, request: &Request, answer: Answer) {
        let Answer { stamp, said } = answer;
        self.misses = 0;
        self.longest = self.longest.max(stamp.longest);
        let took = now.at.longest_since(request.asked_at);
        self.watch.note(now.at, took, stamp.now, self.timing.ttl(), self.longest);
        if matches!(request.call, Call::Close(_)) {
            self.farewells.retain(|farewell| farewell.id != request.lease);
            return;
        }
        self.claims.retain(|attempt| attempt.seq != request.seq);
        self.releases.retain(|attempt| attempt.seq != request.seq);
        match &mut self.lease {
            Lease::Opening(opening) if opening.id == request.lease => match said {
                Said::Opened => self.opened(now, stamp),
                _ => self.lease = Lease::Absent { open_at: now.at },
            },
            Lease::Live(live) if live.id == request.lease => match said {
                Said::Kept { notices, .. } if live.renewal.awaits(request.seq) => {
                    self.kept(now, request.asked_at, stamp, notices);
                }
                Said::Claimed(answers) => self.claimed(now, request, stamp, answers),
                Said::Released(answers) => self.released(now, request, stamp, answers),
                Said::Held(holdings) => self.settle(now, request.seq, stamp, &holdings),
                Said::Gone => self.gone(now),
                Said::Stale if live.renewal.awaits(request.seq) => self.lose(now, Ending::Cloned),
                Said::Kept { .. } | Said::Stale | Said::Opened | Said::Closed => {}
            },
            _ => {}
        }
    }

    fn opened(&mut self, now: Now, stamp: Stamp) {
        let Lease::Opening(Opening { id, first_asked_at, .. }) = self.lease else { return };
        let trusted_until = first_asked_at + self.trust();
        let renewal = Tries::Next(first_asked_at + self.timing.renew());
        self.lease =
            Lease::Live(Live { id, trusted_until, renewal, confirmed: stamp.incarnation, unsettled: None });
        self.out.push_back(Output::Trust(Some(trusted_until)));
        if let Some(left) = self.still_to_watch(now.at) {
            self.out.push_back(Output::Report(Report::HeldBack(HeldBack::Watching, left)));
        }
        self.expire(now);
    }

    fn kept(&mut self, now: Now, asked_at: Moment, stamp: Stamp, notices: Vec<Notice>) {
        let confirmation_off = self.planted.has(Bug::ConfirmationOff);
        let Lease::Live(live) = &mut self.lease else { return };
        live.renewal = Tries::Next(asked_at + self.timing.renew());
        if live.confirmed == stamp.incarnation || confirmation_off {
            live.unsettled = None;
            self.extend(now, if self.planted.has(Bug::TrustFromTheReply) { now.at } else { asked_at });
        } else {
            match &mut live.unsettled {
                Some(unsettled) if unsettled.incarnation == stamp.incarnation => {
                    unsettled.asked_at = asked_at;
                }
                unsettled => {
                    let held = Tries::Next(now.at);
                    *unsettled = Some(Unsettled { incarnation: stamp.incarnation, asked_at, held });
                    self.out.push_back(Output::Report(Report::NewIncarnation));
                }
            }
        }
        for Notice { resource, token, wish } in notices {
            let own = self.campaigns.get(&resource).and_then(Campaign::working);
            if own.is_some_and(|own| own.grant.token == token) {
                let ending = match wish {
                    Wish::Asked => Ending::Asked,
                    Wish::Lowered => Ending::Lowered,
                    Wish::Evicted => Ending::Evicted,
                };
                self.tell(now, &resource, Event::End(ending));
            }
        }
    }

    /// `held` has answered: what agrees goes on, what is missing ends, what is not known is released.
    fn settle(&mut self, now: Now, seq: Seq, stamp: Stamp, holdings: &[Holding]) {
        let Lease::Live(live) = &mut self.lease else { return };
        let id = live.id;
        let Some(unsettled) = live.unsettled.take_if(|unsettled| unsettled.held.awaits(seq)) else { return };
        if unsettled.incarnation != stamp.incarnation {
            // Yet another life: the next renewal will tell which, and ask again.
            return;
        }
        live.confirmed = stamp.incarnation;
        let held: BTreeMap<&ResourceName, &Holding> =
            holdings.iter().map(|held| (&held.resource, held)).collect();
        self.tell_all(now, |campaign| {
            let mine = campaign.working().filter(|own| own.lease == id).map(|own| own.grant);
            let agreed = held.get(campaign.resource()).map(|held| match mine {
                Some(grant) if (grant.ticket, grant.token) == (held.ticket, held.token) => grant,
                _ => Grant { ticket: held.ticket, token: held.token, term: Default::default() },
            });
            Event::Holds(agreed)
        });
        for Holding { resource, .. } in holdings {
            if !self.campaigns.contains_key(resource) {
                let want = Want { resource: resource.clone(), tickets: Tickets::ONE, priority: 0 };
                self.campaigns.insert(resource.clone(), Campaign::unknown(want, now.at));
            }
        }
        self.extend(now, unsettled.asked_at);
    }

    fn claimed(&mut self, now: Now, request: &Request, stamp: Stamp, answers: Vec<Claimed>) {
        let Call::Claim(wants) = &request.call else { return };
        for (want, claimed) in wants.iter().zip(answers) {
            self.claim_answered(now, request, stamp, &want.resource, claimed);
        }
    }

    fn claim_answered(
        &mut self,
        now: Now,
        request: &Request,
        stamp: Stamp,
        resource: &ResourceName,
        claimed: Claimed,
    ) {
        let Lease::Live(live) = &self.lease else { return };
        let own = |grant| Own { lease: live.id, grant };
        let event = match claimed {
            Claimed::Granted(grant)
                if live.confirmed == stamp.incarnation || self.planted.has(Bug::ConfirmationOff) =>
            {
                Event::Granted(request.seq, own(grant))
            }
            // Another life of the store granted it: not taken up, and asked for again when that is confirmed.
            Claimed::Granted(_) => Event::Waiting(request.seq, now.at + self.backoff(now)),
            Claimed::Waiting(waiting) => {
                self.out.push_back(Output::Report(Report::Queued(resource.clone(), waiting)));
                Event::Waiting(request.seq, now.at + spread(now, waiting))
            }
            Claimed::Stale => return self.stale(now, request.seq, resource),
        };
        self.tell(now, resource, event);
    }

    fn released(&mut self, now: Now, request: &Request, stamp: Stamp, answers: Vec<Released>) {
        let Call::Release(leaves) = &request.call else { return };
        for (leave, released) in leaves.iter().zip(answers) {
            match released {
                Released::Free => self.tell(now, &leave.resource, Event::Released(request.seq)),
                Released::Again(claimed) => {
                    self.claim_answered(now, request, stamp, &leave.resource, claimed);
                }
                Released::Stale => self.stale(now, request.seq, &leave.resource),
            }
        }
    }

    /// Stale, in answer to one's newest request: somebody else uses this lease.
    fn stale(&mut self, now: Now, seq: Seq, resource: &ResourceName) {
        if self.campaigns.get(resource).is_some_and(|campaign| campaign.awaits(seq)) {
            self.lose(now, Ending::Cloned);
        }
    }

    /// The store does not know a lease that should live: it forgot, and may have forgotten others, too.
    fn gone(&mut self, now: Now) {
        self.held_back_until = Some(now.at + self.longest);
        self.out.push_back(Output::Report(Report::HeldBack(HeldBack::StoreForgot, self.longest)));
        self.lose(now, Ending::Gone);
    }

    fn unanswered(&mut self, now: Now, seq: Seq) {
        let pause = self.backoff(now);
        let retry_at = now.at + pause;
        match &mut self.lease {
            Lease::Opening(opening) if opening.tries.awaits(seq) => opening.tries = Tries::Next(retry_at),
            Lease::Live(live) if live.renewal.awaits(seq) => {
                live.renewal = Tries::Next(now.at + live.pause(now.at));
            }
            Lease::Live(Live { unsettled: Some(unsettled), .. }) if unsettled.held.awaits(seq) => {
                unsettled.held = Tries::Next(retry_at);
            }
            _ => {}
        }
        for farewell in self.farewells.iter_mut().filter(|farewell| farewell.tries.awaits(seq)) {
            farewell.tries = Tries::Next(retry_at);
        }
        self.claims.retain(|attempt| attempt.seq != seq);
        self.releases.retain(|attempt| attempt.seq != seq);
        self.misses = self.misses.saturating_add(1);
        self.out.push_back(Output::Report(Report::Unanswered(seq)));
        self.tell_all(now, |_| Event::Unanswered(seq, retry_at));
    }

    // ---- time --------------------------------------------------------------------------------------------

    fn expire(&mut self, now: Now) {
        if self.live().is_some_and(|live| now.at.has_reached(live.trusted_until)) {
            self.lose(now, Ending::Expired);
        }
    }

    /// Does what is due.
    fn advance(&mut self, now: Now) {
        self.give_up_overdue(now);
        self.tell_all(now, |_| Event::Tick);
        self.tend_lease(now);
        self.send_claims(now);
        self.send_releases(now);
        self.campaigns.retain(|_, campaign| !campaign.has_left());
        self.finish_leaving(now);
        self.send_farewells(now);
    }

    fn give_up_overdue(&mut self, now: Now) {
        let mut overdue: Vec<Seq> = Vec::new();
        match &self.lease {
            Lease::Opening(opening) => overdue.extend(opening.tries.overdue(now.at)),
            Lease::Live(live) => {
                overdue.extend(live.unsettled.iter().filter_map(|unsettled| unsettled.held.overdue(now.at)));
            }
            Lease::Absent { .. } => {}
        }
        overdue.extend(self.farewells.iter().filter_map(|farewell| farewell.tries.overdue(now.at)));
        let asked = self.claims.iter().chain(&self.releases);
        overdue.extend(asked.filter(|attempt| now.at.has_reached(attempt.due)).map(|attempt| attempt.seq));
        for seq in overdue {
            self.out.push_back(Output::Abandon(seq));
            self.unanswered(now, seq);
        }
        if let Lease::Live(live) = &mut self.lease
            && let Some(seq) = live.renewal.overdue(now.at)
        {
            // It has waited long enough already: the next attempt at once, on another connection.
            live.renewal = Tries::Next(now.at);
            self.out.push_back(Output::Abandon(seq));
            self.out.push_back(Output::Report(Report::Unanswered(seq)));
        }
    }

    fn tend_lease(&mut self, now: Now) {
        match &self.lease {
            Lease::Absent { open_at } if now.at.has_reached(*open_at) && self.wants_lease(now.at) => {
                let opening = Opening { id: now.fresh, first_asked_at: now.at, tries: Tries::Next(now.at) };
                self.lease = Lease::Opening(opening);
                self.try_open(now);
            }
            Lease::Opening(opening) if now.at.has_reached(opening.first_asked_at + self.timing.trust()) => {
                // Whatever the store may say now, nothing is left of it.
                self.lease = Lease::Absent { open_at: now.at + self.backoff(now) };
            }
            Lease::Opening(opening) if opening.tries.is_next(now.at) => self.try_open(now),
            Lease::Live(live) => {
                let ask_held =
                    live.unsettled.as_ref().is_some_and(|unsettled| unsettled.held.is_next(now.at));
                if live.renewal.is_next(now.at) && self.has_beaten(now.at) {
                    self.try_renew(now);
                }
                if ask_held {
                    self.try_held(now);
                }
            }
            Lease::Absent { .. } | Lease::Opening(_) => {}
        }
    }

    fn try_open(&mut self, now: Now) {
        let Lease::Opening(Opening { id, .. }) = self.lease else { return };
        let (label, metadata, ttl) = (self.label.clone(), self.metadata.clone(), self.timing.ttl());
        let limit = self.timing.trust() / 4;
        let attempt = self.send(now, id, limit, Call::Open { ttl, label, metadata });
        if let Lease::Opening(opening) = &mut self.lease {
            opening.tries = Tries::Out(attempt);
        }
    }

    fn try_renew(&mut self, now: Now) {
        let Lease::Live(live) = &self.lease else { return };
        let (id, limit) = (live.id, live.patience(now.at));
        let attempt = self.send(now, id, limit, Call::Renew);
        if let Lease::Live(live) = &mut self.lease {
            live.renewal = Tries::Out(attempt);
        }
    }

    fn try_held(&mut self, now: Now) {
        let Lease::Live(live) = &self.lease else { return };
        let (id, limit) = (live.id, live.patience(now.at));
        let attempt = self.send(now, id, limit, Call::Held);
        if let Lease::Live(Live { unsettled: Some(unsettled), .. }) = &mut self.lease {
            unsettled.held = Tries::Out(attempt);
        }
    }

    fn send_claims(&mut self, now: Now) {
        if self.claims_in(now.at).is_none_or(|wait| !wait.is_zero()) {
            return;
        }
        while self.claims.len() < AT_ONCE {
            let due = self.campaigns.values().filter(|campaign| is_due(campaign.claims_at(), now));
            let wants: Vec<Want> = due.take(BATCH).map(|campaign| campaign.want.clone()).collect();
            let Some(id) = self.lease().filter(|_| !wants.is_empty()) else { return };
            let names: Vec<ResourceName> = wants.iter().map(|want| want.resource.clone()).collect();
            let attempt = self.send(now, id, self.timing.ttl() / 4, Call::Claim(wants));
            self.claims.push(attempt);
            for name in names {
                self.tell(now, &name, Event::Sent(attempt.seq));
            }
        }
    }

    fn send_releases(&mut self, now: Now) {
        while self.releases.len() < AT_ONCE {
            let due = self.campaigns.values().filter(|campaign| is_due(campaign.releases_at(), now));
            let leaves: Vec<_> = due.take(BATCH).map(Campaign::leave).collect();
            let Some(id) = self.lease().filter(|_| !leaves.is_empty()) else { return };
            let names: Vec<ResourceName> = leaves.iter().map(|leave| leave.resource.clone()).collect();
            let attempt = self.send(now, id, self.timing.ttl() / 4, Call::Release(leaves));
            self.releases.push(attempt);
            for name in names {
                self.tell(now, &name, Event::Sent(attempt.seq));
            }
        }
    }

    /// Once nothing is owned any more, the lease goes with all that is still queued.
    fn finish_leaving(&mut self, now: Now) {
        if self.mode != Mode::Leaving {
            return;
        }
        if self.campaigns.values().any(|campaign| campaign.working().is_some()) {
            return;
        }
        for (resource, _) in core::mem::take(&mut self.campaigns) {
            self.out.push_back(Output::Left(resource));
        }
        let open_at = now.at;
        match core::mem::replace(&mut self.lease, Lease::Absent { open_at }) {
            Lease::Live(live) => {
                self.out.push_back(Output::Trust(None));
                self.bid_farewell(now, live.id, Closing::Left);
            }
            Lease::Opening(opening) => self.bid_farewell(now, opening.id, Closing::Left),
            Lease::Absent { .. } => {}
        }
        if self.farewells.is_empty() {
            self.mode = Mode::Done;
            self.out.push_back(Output::Done);
        }
    }

    fn send_farewells(&mut self, now: Now) {
        self.farewells.retain(|farewell| !now.at.has_surely_reached(farewell.until));
        for index in 0..self.farewells.len() {
            let Farewell { id, why, ref tries, .. } = self.farewells[index];
            if tries.is_next(now.at) && self.may_close(id) {
                let attempt = self.send(now, id, self.timing.ttl() / 4, Call::Close(why));
                self.farewells[index].tries = Tries::Out(attempt);
            }
        }
    }

    // ---- the lease's end, and what stands on it ----------------------------------------------------------

    /// The lease is over for this worker, for ever.
    fn lose(&mut self, now: Now, ending: Ending) {
        let open_at = now.at;
        let Lease::Live(live) = core::mem::replace(&mut self.lease, Lease::Absent { open_at }) else {
            return;
        };
        self.out.push_back(Output::Trust(None));
        if let Tries::Out(attempt) = live.renewal {
            self.out.push_back(Output::Abandon(attempt.seq));
        }
        for attempt in self.claims.drain(..).chain(self.releases.drain(..)) {
            self.out.push_back(Output::Abandon(attempt.seq));
        }
        let over_at = if ending == Ending::Expired { live.trusted_until } else { now.at };
        let hard_at = over_at + self.timing.margin() / 2;
        self.tell_all(now, |_| Event::LeaseOver { ending, hard_at });
        // Gone: nobody waits for its expiry. Cloned: the clone may trust it still.
        if ending == Ending::Expired {
            self.bid_farewell(now, live.id, Closing::Expired);
        }
    }

    fn bid_farewell(&mut self, now: Now, id: LeaseId, why: Closing) {
        let until = now.at + self.timing.ttl() * 2;
        self.farewells.push(Farewell { id, why, tries: Tries::Next(now.at), until });
    }

    /// A lease is closed only when the last work under it has ended.
    fn may_close(&self, id: LeaseId) -> bool {
        !self.campaigns.values().any(|campaign| campaign.working().is_some_and(|own| own.lease == id))
    }

    fn extend(&mut self, now: Now, asked_at: Moment) {
        let trusted_until = asked_at + self.trust();
        let Lease::Live(live) = &mut self.lease else { return };
        live.trusted_until = trusted_until;
        self.out.push_back(Output::Trust(Some(trusted_until)));
        self.expire(now);
    }

    fn trust(&self) -> Duration {
        if self.planted.has(Bug::BelieveTooLong) {
            self.timing.ttl() * 115 / 100
        } else if self.planted.has(Bug::NoDriftAllowance) {
            self.timing.ttl().saturating_sub(self.timing.margin())
        } else {
            self.timing.trust()
        }
    }

    // ---- small things ------------------------------------------------------------------------------------

    fn live(&self) -> Option<&Live> {
        if let Lease::Live(live) = &self.lease { Some(live) } else { None }
    }

    fn wants_lease(&self, now: Moment) -> bool {
        self.mode == Mode::Serving && !self.campaigns.is_empty() && self.has_beaten(now)
    }

    /// Whether the application has shown in time that it is not wedged.
    fn has_beaten(&self, now: Moment) -> bool {
        self.timing.beacon().is_none_or(|span| now.longest_since(self.beat_at) < span)
    }

    /// How long until this worker may claim; nothing while it cannot tell.
    fn claims_in(&self, now: Moment) -> Option<Duration> {
        let live = self.live()?;
        if live.unsettled.is_some() || self.mode != Mode::Serving {
            return None;
        }
        let forgot = self.held_back_until.map_or(Duration::ZERO, |until| now.surely_until(until));
        Some(forgot.max(self.still_to_watch(now).unwrap_or(Duration::ZERO)))
    }

    fn still_to_watch(&self, now: Moment) -> Option<Duration> {
        match self.timing.clock() {
            Clock::Sane => None,
            Clock::Strict => self.watch.still_to_watch(now, self.longest),
        }
    }

    /// A pause after failures, doubled with each, jittered.
    fn backoff(&self, now: Now) -> Duration {
        let pause = (FIRST_PAUSE * 2u32.pow(self.misses.min(10))).min(self.timing.ttl() / 3);
        pause / 2 + part(now, pause / 2)
    }

    fn send(&mut self, now: Now, lease: LeaseId, limit: Duration, call: Call) -> Attempt {
        self.seq = Seq(self.seq.0 + 1);
        let attempt = Attempt { seq: self.seq, due: now.at + limit };
        self.out.push_back(Output::Send(Request {
            lease,
            seq: self.seq,
            asked_at: now.at,
            limit,
            judged_by: self.watch.judged_by(now.at),
            longest: self.longest,
            call,
        }));
        attempt
    }

    fn tell(&mut self, now: Now, resource: &ResourceName, event: Event) {
        let live = self.lease();
        let Self { campaigns, timing, planted, out, .. } = self;
        let Some(campaign) = campaigns.get_mut(resource) else { return };
        let out = &mut |output| out.push_back(output);
        campaign.on(event, &mut Scene { now: now.at, timing, live, planted: *planted, out });
    }

    fn tell_all(&mut self, now: Now, event: impl Fn(&Campaign) -> Event) {
        let live = self.lease();
        let Self { campaigns, timing, planted, out, .. } = self;
        let out = &mut |output| out.push_back(output);
        for campaign in campaigns.values_mut() {
            let event = event(campaign);
            campaign.on(event, &mut Scene { now: now.at, timing, live, planted: *planted, out });
        }
    }
}

fn is_due(at: Option<Moment>, now: Now) -> bool {
    at.is_some_and(|at| now.at.has_reached(at))
}

/// When to look again, a little later than told: waiters must not come all at once. The first in a queue
/// is spread least, for it is the one that takes over.
fn spread(now: Now, waiting: Waiting) -> Duration {
    let most = waiting.look_again / 16;
    let most = if waiting.ahead == 0 { most.min(HEAD_SPREAD) } else { most };
    waiting.look_again + part(now, most)
}

fn part(now: Now, span: Duration) -> Duration {
    span * u32::from(now.jitter) / 65_536
}

#[cfg(test)]
mod tests;
