//! The worker's state machine: one lease, many campaigns. Inputs in, outputs out, time as an argument.

mod answers;
mod due;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use crate::campaign::{Batch, Campaign, Context, Event, Reach};
use crate::lease::{Attempt, Lease, Live, PendingClose, Tries};
use crate::message::{Call, Grant, LeaseId, Request, Seq, Token, Waiting, Want};
use crate::moment::Moment;
use crate::names::{Label, Metadata, ResourceName, Tickets};
use crate::output::{EndReason, Input, Now, Output, Report};
use crate::planted::{Bug, Planted};
use crate::timing::{Clock, Timing};
use crate::watch::{Vouch, Watch};

/// So many claims, and so many releases, may be under way at once; what becomes due meanwhile goes together.
const AT_ONCE: usize = 4;
/// The pause after the first failure; it doubles up to a third of the ttl.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Nobody looks sooner.
const SOONEST: Duration = Duration::from_millis(1);
/// The most by which the first in a queue is late on purpose: all that a crash leaves behind may have another first one.
const HEAD_SPREAD: Duration = Duration::from_millis(1);

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
    closes: Vec<PendingClose>,
    campaigns: BTreeMap<ResourceName, Campaign>,
    agenda: Agenda,
    under_way: Vec<Asked>,
    seq: Seq,
    longest: Duration,
    watch: Watch,
    /// The least that was vouched for when those who wait were told when to look again.
    looks_by: Option<Vouch>,
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
    /// Everything is told to stop.
    Leaving,
    /// Nothing is done any more; the store is told. At this moment whoever waits is told that it has not answered.
    Closing {
        unheard_at: Option<Moment>,
    },
    Done,
}

/// A batch of claims or releases that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    attempt: Attempt,
    batch: Batch,
}

/// By when no campaign wants anything, so that ten thousand of them need not be looked at with every input.
/// It may be too early, never too late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Agenda {
    claims: Option<Moment>,
    releases: Option<Moment>,
    ticks: Option<Moment>,
}

impl Agenda {
    fn note(&mut self, campaign: &Campaign) {
        self.claims = earlier(self.claims, campaign.due(Batch::Claims));
        self.releases = earlier(self.releases, campaign.due(Batch::Releases));
        self.ticks = earlier(self.ticks, campaign.tick_at());
    }

    fn at(&self, batch: Batch) -> Option<Moment> {
        match batch {
            Batch::Claims => self.claims,
            Batch::Releases => self.releases,
        }
    }

    fn set(&mut self, batch: Batch, at: Option<Moment>) {
        match batch {
            Batch::Claims => self.claims = at,
            Batch::Releases => self.releases = at,
        }
    }
}

fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.or(other)),
        (one, other) => one.or(other),
    }
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
            closes: Vec::new(),
            campaigns: BTreeMap::new(),
            agenda: Agenda::default(),
            under_way: Vec::new(),
            seq: Seq(0),
            longest: timing.ttl(),
            watch: Watch::new(planted),
            looks_by: None,
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
            Input::Enter(want) => self.enter(now, want, Reach::Limited),
            Input::EnterUnlimited(resource) => {
                let want = Want { resource, tickets: Tickets::ONE, priority: 0 };
                self.enter(now, want, Reach::Unlimited { term: 0 });
            }
            Input::StepDown(resource) => self.tell(now, &resource, Event::End(EndReason::SteppedDown)),
            Input::Leave(resource) => self.tell(now, &resource, Event::End(EndReason::Left)),
            Input::End { resource, token, ending }
                if ending.is_gentle() && self.works_under(&resource, token) =>
            {
                self.tell(now, &resource, Event::End(ending));
            }
            Input::End { .. } | Input::Tick => {}
            Input::Stopped { resource, token } => self.tell(now, &resource, Event::Stopped(token)),
            Input::Answered(request, answer) => self.answered(now, &request, answer),
            Input::Failed(request) => self.unanswered(now, request.seq),
            Input::Hinted { resource, .. } if self.works_at(&resource) => self.renew_early(now.at),
            Input::Hinted { resource, after } => self.tell(now, &resource, Event::Hinted(now.at + after)),
            Input::Missed => self.tell_all(now, |_| Event::Hinted(now.at)),
            Input::Ended(lease) if self.lease() == Some(lease) => self.lose(now, EndReason::Expired),
            Input::Ended(_) => {}
            Input::Beat => self.beat_at = now.at,
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
        self.under_way.iter().for_each(|asked| at(now.until(asked.attempt.due)));
        for close in self.closes.iter().filter(|close| self.may_close(close.id)) {
            at(now.until(close.tries.at()));
        }
        for batch in [Batch::Claims, Batch::Releases] {
            let may_send_in = self.may_send_in(now, batch).filter(|_| self.count_under_way(batch) < AT_ONCE);
            if let (Some(wait), Some(due)) = (may_send_in, self.agenda.at(batch)) {
                at(now.until(due).max(wait));
            }
        }
        self.agenda.ticks.into_iter().for_each(|tick_at| at(now.until(tick_at)));
        if let Mode::Closing { unheard_at: Some(unheard_at) } = self.mode {
            at(now.until(unheard_at));
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
        let owning = |campaign: &Campaign| campaign.owning().filter(|own| own.lease.is_some());
        self.campaigns.iter().filter_map(move |(name, campaign)| Some((name, owning(campaign)?.grant)))
    }

    /// The lease, while it is trusted.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        self.live().map(|live| live.id)
    }

    /// The lease on which the ownership under `token` stands, unless that has ended or was told to stop.
    #[must_use]
    pub fn lease_of(&self, resource: &ResourceName, token: Token) -> Option<LeaseId> {
        let own = self.campaigns.get(resource)?.owning()?;
        own.lease.filter(|_| own.grant.token == token)
    }

    fn enter(&mut self, now: Now, want: Want, reach: Reach) {
        let resource = want.resource.clone();
        match self.campaigns.get_mut(&resource) {
            _ if self.mode != Mode::Serving => self.out.push_back(Output::Left(resource)),
            Some(campaign) => {
                campaign.want_again(want, reach);
                self.tell(now, &resource, Event::Entered);
            }
            None => self.add(Campaign::new(want, reach, now.at)),
        }
    }

    fn shut_down(&mut self, now: Now) {
        match self.mode {
            Mode::Serving => {
                self.mode = Mode::Leaving;
                self.tell_all(now, |_| Event::End(EndReason::Left));
            }
            // One more who waits.
            Mode::Closing { unheard_at: None } => {
                self.mode = Mode::Closing { unheard_at: Some(now.at + self.timing.ttl() / 3) };
            }
            Mode::Leaving | Mode::Closing { .. } | Mode::Done => {}
        }
    }

    /// A request came to nothing, as far as we know: it is repeated after a pause.
    fn unanswered(&mut self, now: Now, seq: Seq) {
        if !self.awaits(seq) {
            return;
        }
        let retry_at = now.at + self.backoff(now);
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
        for close in self.closes.iter_mut().filter(|close| close.tries.awaits(seq)) {
            close.tries = Tries::Next(retry_at);
        }
        self.under_way.retain(|asked| asked.attempt.seq != seq);
        self.misses = self.misses.saturating_add(1);
        self.out.push_back(Output::Report(Report::Unanswered(seq)));
        self.tell_all(now, |_| Event::Unanswered(seq, retry_at));
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

    fn live(&self) -> Option<&Live> {
        if let Lease::Live(live) = &self.lease { Some(live) } else { None }
    }

    fn works_under(&self, resource: &ResourceName, token: Token) -> bool {
        let own = self.campaigns.get(resource).and_then(Campaign::working);
        own.is_some_and(|own| own.grant.token == token)
    }

    fn works_at(&self, resource: &ResourceName) -> bool {
        self.campaigns.get(resource).and_then(Campaign::working).is_some_and(|own| own.lease.is_some())
    }

    /// Renews soon, because there is something to hear: at once, but not many times within an interval.
    fn renew_early(&mut self, now: Moment) {
        let (trust, least) = (self.timing.trust(), self.timing.renew() / 8);
        if let Lease::Live(Live { trusted_until, renewal: Tries::Next(next), .. }) = &mut self.lease {
            let since_the_last = trust.saturating_sub(now.until(*trusted_until));
            *next = next.or(now + least.saturating_sub(since_the_last));
        }
    }

    /// Whether the request of this number is under way.
    fn awaits(&self, seq: Seq) -> bool {
        let single = match &self.lease {
            Lease::Absent { .. } => false,
            Lease::Opening(opening) => opening.tries.awaits(seq),
            Lease::Live(live) => live.awaits(seq),
        };
        single
            || self.closes.iter().any(|close| close.tries.awaits(seq))
            || self.under_way.iter().any(|asked| asked.attempt.seq == seq)
    }

    /// Whether any work runs or winds down on a lease.
    fn works(&self) -> bool {
        self.campaigns.values().any(|campaign| campaign.working().is_some_and(|own| own.lease.is_some()))
    }

    fn wants_lease(&self, now: Moment) -> bool {
        let wants = || self.campaigns.values().any(|campaign| !campaign.stands_alone());
        self.mode == Mode::Serving && wants() && self.has_beaten(now)
    }

    /// Whether the application has shown in time that it is not wedged.
    fn has_beaten(&self, now: Moment) -> bool {
        self.timing.beacon().is_none_or(|span| now.longest_since(self.beat_at) < span)
    }

    fn count_under_way(&self, batch: Batch) -> usize {
        self.under_way.iter().filter(|asked| asked.batch == batch).count()
    }

    /// How long until claims or releases may be sent; nothing while that cannot be told.
    fn may_send_in(&self, now: Moment, batch: Batch) -> Option<Duration> {
        let live = self.live()?;
        let serves = self.mode == Mode::Serving;
        match batch {
            // On leaving, what is left goes at once, with the lease.
            Batch::Releases => (serves || self.works()).then_some(Duration::ZERO),
            Batch::Claims if live.unsettled.is_some() || !serves => None,
            Batch::Claims => {
                let forgot = self.held_back_until.map_or(Duration::ZERO, |until| now.surely_until(until));
                Some(forgot.max(self.still_to_watch(now).unwrap_or(Duration::ZERO)))
            }
        }
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
            judged_by: self.watch.judged_by(now.at, self.longest),
            call,
        }));
        attempt
    }

    fn add(&mut self, campaign: Campaign) {
        self.agenda.note(&campaign);
        self.campaigns.insert(campaign.resource().clone(), campaign);
    }

    fn tell(&mut self, now: Now, resource: &ResourceName, event: Event) {
        let live = self.lease();
        let Self { campaigns, agenda, timing, planted, out, .. } = self;
        let Some(campaign) = campaigns.get_mut(resource) else { return };
        let out = &mut |output| out.push_back(output);
        campaign.on(event, &mut Context { now: now.at, timing, live, planted: *planted, out });
        agenda.note(campaign);
        if campaign.has_left() {
            campaigns.remove(resource);
        }
    }

    fn tell_all(&mut self, now: Now, event: impl Fn(&Campaign) -> Event) {
        let live = self.lease();
        let Self { campaigns, agenda, timing, planted, out, .. } = self;
        let out = &mut |output| out.push_back(output);
        *agenda = Agenda::default();
        campaigns.retain(|_, campaign| {
            let event = event(campaign);
            campaign.on(event, &mut Context { now: now.at, timing, live, planted: *planted, out });
            agenda.note(campaign);
            !campaign.has_left()
        });
    }
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
