//! Many workers, one ledger, a bad network between them, and somebody who wants it to fail.

use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tenure_core::*;

use crate::actor::{Actor, Cut, Work};
use crate::check::{Checker, Marks, Sight};
use crate::plan::{Plan, Restarts};
use crate::rng::Rng;

/// A real point in time, in microseconds since the beginning of the run.
type Real = u64;

const MILLI: u64 = 1_000;

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) at: Real,
    pub(crate) check: Checker,
    pub(crate) actors: Vec<Actor>,
    pub(crate) names: Vec<ResourceName>,
    pub(crate) store: Store,
    pub(crate) faults: u64,
    pub(crate) events: u64,
    pub(crate) calm: bool,
    /// When which resource was last given up, and when its next work started.
    pub(crate) released_at: BTreeMap<ResourceName, Real>,
    pub(crate) starts: Vec<(Real, usize, ResourceName)>,
    /// Every event is printed.
    told: bool,
    planted: Planted,
    queue: BinaryHeap<Entry>,
    serial: u64,
}

pub(crate) struct Store {
    pub(crate) ledger: Ledger,
    pub(crate) rate: u64,
    offset: i64,
    incarnation: u128,
    down: bool,
    /// What the store falls back to when it loses some of its data.
    snapshot: Option<(Ledger, Marks)>,
    /// Whether the ledger knows the longest ttl of the run. One that does not has lost all, as it were.
    knows_longest: bool,
    stepped_at: Real,
}

struct Entry {
    at: Real,
    serial: u64,
    event: Event,
}

#[derive(Debug)]
enum Event {
    ToStore(usize, Request),
    ToWorker(usize, Input),
    Wake(usize, u64),
    WorkEnds(usize, ResourceName, Token),
    Resume(usize),
    Heal(usize),
    Enter(usize, ResourceName),
    StoreBack(Restarts),
    /// Somebody notices that the store's clock went back, and sets it right.
    ClockForward(u64),
    Fault,
    Wish,
}

impl Store {
    fn clock(&self, at: Real) -> StoreTime {
        // An hour and more before it, so that steps back stay positive.
        let run = (10_000_000_000 + at * self.rate / 1_000_000) as i64 + self.offset;
        StoreTime::from_micros(run as u64)
    }

    pub(crate) fn here(&self, at: Real) -> Here {
        let now = self.clock(at);
        Here::new(now, now.as_micros(), Incarnation(self.incarnation)).expect("a sane wall clock")
    }
}

impl World {
    pub(crate) fn new(seed: u64, planted: Planted) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::of(&mut rng);
        let ledger = Ledger::new(Incarnation(1)).with_history(8).with_planted(planted);
        let rate = match rng.range(0, 3) {
            0 => 1_000_000 - plan.band,
            1 => 1_000_000 + plan.band,
            _ => rng.range(1_000_000 - plan.band, 1_000_000 + plan.band + 1),
        };
        let (snapshot, knows_longest) = (None, false);
        let store = Store {
            ledger,
            rate,
            offset: 0,
            incarnation: 1,
            down: false,
            snapshot,
            knows_longest,
            stepped_at: 0,
        };
        let names =
            (0..plan.resources).map(|n| ResourceName::new(&format!("r{n}")).expect("a name")).collect();
        let mut world = Self {
            plan,
            rng,
            at: 0,
            check: Checker::default(),
            actors: Vec::new(),
            names,
            store,
            faults: 0,
            events: 0,
            calm: false,
            released_at: BTreeMap::new(),
            starts: Vec::new(),
            told: std::env::var_os("TENURE_SIM_TRACE").is_some(),
            planted,
            queue: BinaryHeap::new(),
            serial: 0,
        };
        for _ in 0..world.plan.workers {
            world.join();
        }
        world.after_random(world.plan.fault_every, Event::Fault);
        world.after_random(world.plan.wish_every, Event::Wish);
        world
    }

    /// Runs until `end`, or until a promise is broken.
    pub(crate) fn run_until(&mut self, end: Real) {
        while self.check.violation.is_none() {
            if self.queue.peek().is_none_or(|entry| entry.at > end) {
                self.at = end;
                return;
            }
            let Some(entry) = self.queue.pop() else { return };
            self.at = entry.at;
            self.events += 1;
            self.happen(entry.event);
        }
    }

    fn happen(&mut self, event: Event) {
        if self.told && self.events == 1 {
            println!("{:?}", self.plan);
        }
        if self.told {
            println!("{:>10} us  {event:?}", self.at);
        }
        match event {
            Event::ToStore(actor, request) => self.store_gets(actor, request),
            Event::ToWorker(actor, input) => self.worker_gets(actor, input),
            Event::Wake(actor, wake) if self.actors[actor].wake == wake => {
                self.worker_gets(actor, Input::Tick);
            }
            Event::Wake(..) => {}
            Event::WorkEnds(actor, resource, token) => self.work_ends(actor, resource, token),
            Event::Resume(actor) => self.resume(actor),
            Event::Heal(actor) => self.actors[actor].cut = Cut::default(),
            Event::Enter(actor, resource) => self.enter(actor, &resource),
            Event::StoreBack(how) => self.store_back(how),
            Event::ClockForward(by) if !self.calm => {
                self.step_by(by as i64);
            }
            Event::ClockForward(_) => {}
            Event::Fault => self.fault(),
            Event::Wish => self.wish(),
        }
    }

    // ---- messages ----------------------------------------------------------------------------------------

    fn store_gets(&mut self, actor: usize, request: Request) {
        if self.store.down {
            if self.rng.chance(500) {
                self.send_to_worker(actor, Input::Failed(request));
            }
            return;
        }
        let before = self.store.ledger.expiry(request.lease);
        let here = self.store.here(self.at);
        let answer = self.store.ledger.apply(here, &request);
        self.store.knows_longest = answer.stamp.longest.as_micros() as u64 >= self.plan.longest();
        if matches!(answer.said, Said::Kept { .. }) {
            let moved = before.is_some() && before != self.store.ledger.expiry(request.lease);
            self.check.kept(self.at, request.lease, request.seq, moved);
        }
        self.see_grants(actor, &request, &answer);
        self.pass_hints_on();
        // At times the link breaks after the store has acted.
        let broken = !self.calm && self.rng.chance(self.plan.loss / 4);
        let input = if broken { Input::Failed(request) } else { Input::Answered(request, answer) };
        self.send_to_worker(actor, input);
    }

    fn pass_hints_on(&mut self) {
        for Hint { lease, resource, after } in self.store.ledger.take_hints() {
            let waiter = self.actors.iter().position(|actor| actor.worker.lease() == Some(lease));
            if let Some(waiter) = waiter {
                self.send_to_worker(waiter, Input::Hinted { resource, after });
            }
        }
    }

    /// Every grant is checked when the store makes it: by then, whoever had the ticket must have stopped.
    fn see_grants(&mut self, actor: usize, request: &Request, answer: &Answer) {
        match (&request.call, &answer.said) {
            (Call::Claim(wants), Said::Claimed(claimed)) => {
                for (want, claimed) in wants.iter().zip(claimed) {
                    self.see_grant(actor, request.lease, &want.resource, claimed);
                }
            }
            (Call::Release(leaves), Said::Released(released)) => {
                for (leave, released) in leaves.iter().zip(released) {
                    if let Released::Again(claimed) = released {
                        self.see_grant(actor, request.lease, &leave.resource, claimed);
                    }
                }
            }
            _ => {}
        }
    }

    fn see_grant(&mut self, actor: usize, lease: LeaseId, resource: &ResourceName, claimed: &Claimed) {
        let Claimed::Granted(grant) = claimed else { return };
        let tickets = self
            .store
            .ledger
            .read(self.store.here(self.at), resource.as_str())
            .map_or(1, |view| view.tickets);
        let believing = self.sights(actor, |other| other.believes(self.at, resource));
        let working = self.sights(actor, |other| other.works(resource));
        let own = (lease, Sight { actor, grant: *grant });
        self.check.granted(self.at, resource, tickets, own, &believing, &working);
    }

    fn sights(&self, except: usize, of: impl Fn(&Actor) -> Option<Grant>) -> Vec<Sight> {
        let others = self.actors.iter().enumerate().filter(|(index, _)| *index != except);
        others.filter_map(|(actor, other)| of(other).map(|grant| Sight { actor, grant })).collect()
    }

    fn send_to_store(&mut self, actor: usize, request: Request) {
        if self.actors[actor].cut.requests {
            return;
        }
        let (send, again, delay, other) = self.weather();
        if again {
            self.after(other, Event::ToStore(actor, request.clone()));
        }
        if send {
            self.after(delay, Event::ToStore(actor, request));
        }
    }

    fn send_to_worker(&mut self, actor: usize, input: Input) {
        if self.actors[actor].cut.answers {
            return;
        }
        let (send, again, delay, other) = self.weather();
        if again {
            self.after(other, Event::ToWorker(actor, input.clone()));
        }
        if send {
            self.after(delay, Event::ToWorker(actor, input));
        }
    }

    /// Whether a message arrives, whether it arrives twice, and how late each.
    fn weather(&mut self) -> (bool, bool, u64, u64) {
        if self.calm {
            return (true, false, self.rng.range(100, MILLI), 0);
        }
        let Plan { loss, duplication, slowness, .. } = self.plan;
        let longest = self.plan.longest();
        let delay = |rng: &mut Rng| match rng.chance(slowness) {
            // From a hang that ends just in time to one that outlasts every lease.
            true => {
                let most = *rng.pick(&[longest / 4, longest / 4, longest, 6 * longest]);
                rng.range(0, most)
            }
            false => rng.range(100, 3 * MILLI),
        };
        let arrives = !self.rng.chance(loss);
        let twice = self.rng.chance(duplication);
        let (first, second) = (delay(&mut self.rng), delay(&mut self.rng));
        (arrives, twice, first, second)
    }

    // ---- workers -----------------------------------------------------------------------------------------

    pub(crate) fn worker_gets(&mut self, index: usize, input: Input) {
        let mut early = Vec::new();
        let now = {
            let actor = &mut self.actors[index];
            if actor.crashed {
                return;
            }
            if actor.frozen_until.is_some() {
                actor.backlog.push(input);
                return;
            }
            // Who carries on what was sent ahead has its answer only then.
            if let Input::Answered(request, _) | Input::Failed(request) = &input
                && actor.ahead.contains(&request.seq)
            {
                actor.early.push(input);
                return;
            }
            if let Input::Departed { request, .. } = &input {
                actor.ahead.remove(&request.seq);
                early = std::mem::take(&mut actor.early);
            }
            let fresh = LeaseId((u128::from(self.rng.next()) << 64) | u128::from(self.rng.next()));
            Now { at: actor.moment(self.at), jitter: self.rng.next() as u16, fresh }
        };
        self.actors[index].worker.handle(now, input);
        while let Some(output) = self.actors[index].worker.poll() {
            self.carry_out(index, output);
        }
        let actor = &mut self.actors[index];
        actor.wake += 1;
        if let Some(span) = actor.worker.sleep(now.at) {
            let wake = Event::Wake(index, actor.wake);
            let late = if self.calm { 0 } else { self.rng.range(0, MILLI) };
            self.after(self.actors[index].real(span).max(1) + late, wake);
        }
        early.into_iter().for_each(|input| self.worker_gets(index, input));
    }

    fn carry_out(&mut self, index: usize, output: Output) {
        match output {
            Output::Send(request) => {
                self.check_send(index, &request);
                if request.call == Call::Renew {
                    self.actors[index].reserve();
                }
                self.send_to_store(index, request);
            }
            Output::Trust(until) => {
                self.actors[index].trust = until;
                self.actors[index].reserve();
                if until.is_some() {
                    for (resource, grant) in self.actors[index].owned.clone() {
                        self.check_belief(index, &resource, grant);
                    }
                }
            }
            Output::Start(Ownership { resource, grant }) => self.start(index, &resource, grant),
            Output::Stop { resource, token, ending } => self.stop(index, resource, token, ending),
            Output::StopHard { resource, token } => {
                // The other half of the margin is for dying.
                let dying = self.actors[index].timing.margin() / 2 * self.plan.margin_use as u32 / 1000;
                self.work_ends_within(index, dying, resource, token);
            }
            Output::Left(resource) => {
                let again = self.rng.range(1, self.plan.longest());
                self.after(again, Event::Enter(index, resource));
            }
            Output::Done => {
                self.kill(index);
                self.join();
            }
            Output::Abandon(_) | Output::Report(_) => {}
        }
    }

    fn check_send(&mut self, index: usize, request: &Request) {
        let actor = &self.actors[index];
        let running = match &request.call {
            Call::Release(leaves) => {
                leaves.iter().map(|leave| leave.resource.clone()).find(|name| actor.works.contains_key(name))
            }
            Call::Close(_) => {
                let under = |work: &Work| work.lease == Some(request.lease);
                actor.works.iter().find(|(_, work)| under(work)).map(|(name, _)| name.clone())
            }
            _ => None,
        };
        if let Some(resource) = running {
            self.check.fail("S5", self.at, format!("{resource}: {index} lets go while its work runs"));
        }
        if let Call::Release(leaves) = &request.call {
            for leave in leaves {
                self.released_at.insert(leave.resource.clone(), self.at);
                if let Some(view) = self.store.ledger.read(self.store.here(self.at), leave.resource.as_str())
                {
                    let mine = view.owners.iter().filter(|owner| {
                        self.store.ledger.owner_of(leave.resource.as_str(), owner.grant.token)
                            == Some(request.lease)
                    });
                    mine.for_each(|owner| self.check.given_up(&leave.resource, owner.grant.token));
                }
            }
        }
    }

    fn check_belief(&mut self, index: usize, resource: &ResourceName, grant: Grant) {
        if self.actors[index].believes(self.at, resource).is_some() {
            let others = self.sights(index, |other| other.believes(self.at, resource));
            self.check.believes(self.at, resource, Sight { actor: index, grant }, &others);
        }
    }

    fn start(&mut self, index: usize, resource: &ResourceName, grant: Grant) {
        self.actors[index].reserve();
        self.check.started(self.at, resource, Sight { actor: index, grant });
        if self.actors[index].works.contains_key(resource) {
            self.check.fail(
                "L4",
                self.at,
                format!("{resource}: {index} starts again while its old work runs"),
            );
        }
        let actor = &mut self.actors[index];
        let lease = actor.worker.lease();
        actor.owned.insert(resource.clone(), grant);
        actor.works.insert(resource.clone(), Work { grant, lease, overtaken: false });
        self.check_belief(index, resource, grant);
        self.starts.push((self.at, index, resource.clone()));
        let others = self.sights(index, |other| other.works(resource));
        let own = Sight { actor: index, grant };
        for other in others.iter().filter(|other| other.grant.ticket == grant.ticket) {
            if !self.check.is_evicted(resource, other.grant.token) {
                let what = format!(
                    "{resource}: {} starts while {} works on the same ticket",
                    own.actor, other.actor
                );
                self.check.fail("S3", self.at, what);
            }
        }
    }

    fn stop(&mut self, index: usize, resource: ResourceName, token: Token, ending: Ending) {
        let actor = &mut self.actors[index];
        actor.owned.remove(&resource);
        let span = if ending.is_gentle() {
            // Mostly quick, at times slower than the grace, so that the harder stop comes.
            let slow = self.rng.chance(if self.calm { 0 } else { 100 });
            if slow { actor.timing.grace() * 2 } else { Duration::from_micros(self.rng.range(0, 3 * MILLI)) }
        } else {
            actor.timing.margin() * self.plan.margin_use as u32 / 1000
        };
        self.work_ends_within(index, span, resource, token);
    }

    /// The work ends at some time within `span` of its own clock, more often than not at the very end.
    fn work_ends_within(&mut self, index: usize, span: Duration, resource: ResourceName, token: Token) {
        let most = self.actors[index].real(span);
        let when = if self.rng.chance(500) { most } else { self.rng.range(0, most + 1) };
        self.after(when, Event::WorkEnds(index, resource, token));
    }

    fn work_ends(&mut self, index: usize, resource: ResourceName, token: Token) {
        let actor = &mut self.actors[index];
        if actor.crashed || !actor.has_work(&resource, token) {
            return;
        }
        if let Some(until) = actor.frozen_until {
            self.queue_at(until + 1, Event::WorkEnds(index, resource, token));
            return;
        }
        actor.works.remove(&resource);
        self.worker_gets(index, Input::Stopped { resource, token });
    }

    fn enter(&mut self, index: usize, resource: &ResourceName) {
        if self.actors[index].crashed || self.actors[index].worker.is_campaigning(resource) {
            return;
        }
        let tickets = match self.plan.tickets_change && !self.calm && self.rng.chance(300) {
            true => self.rng.range(1, 5) as u32,
            false => self.plan.tickets,
        };
        let priority = if self.rng.chance(200) { 1 } else { 0 };
        let tickets = Tickets::new(tickets).expect("a few tickets");
        self.worker_gets(index, Input::Enter(Want { resource: resource.clone(), tickets, priority }));
    }

    fn join(&mut self) {
        let timing = self.plan.timing(&mut self.rng);
        let label = Label::new(&format!("w{}", self.actors.len())).expect("a label");
        let actor = Actor::new(timing, label, self.plan.band, &mut self.rng, self.planted, self.at);
        self.actors.push(actor);
        for resource in self.names.clone() {
            if self.rng.chance(850) {
                self.enter(self.actors.len() - 1, &resource);
            }
        }
    }

    fn resume(&mut self, index: usize) {
        let at = self.at;
        let actor = &mut self.actors[index];
        if actor.frozen_until.take().is_none() || actor.crashed {
            return;
        }
        actor.wake_up(at);
        let trusts = actor.trust.is_some_and(|until| !actor.moment(at).has_reached(until));
        actor.works.values_mut().for_each(|work| work.overtaken |= !trusts);
        let mut backlog = std::mem::take(&mut actor.backlog);
        backlog.push(Input::Tick);
        if self.rng.chance(500) {
            backlog.reverse();
        }
        for input in backlog {
            self.worker_gets(index, input);
        }
    }

    // ---- trouble -----------------------------------------------------------------------------------------

    fn fault(&mut self) {
        if self.calm {
            return;
        }
        self.faults += 1;
        let actor = self.rng.range(0, self.actors.len() as u64) as usize;
        match self.rng.range(0, 12) {
            0..=2 => self.cut_off(actor),
            3 | 4 => self.freeze(actor, false),
            5 => self.freeze(actor, true),
            6 | 7 => self.crash(actor),
            8 | 9 if self.plan.restarts != Restarts::Never && !self.store.down => self.store_down(),
            10 | 11 if self.plan.steps => self.step(),
            _ => self.cut_off(actor),
        }
        if self.plan.restarts >= Restarts::SomeLost && self.store.knows_longest && self.rng.chance(300) {
            self.store.snapshot = Some((self.store.ledger.clone(), self.check.marks()));
        }
        // A newcomer at the worst moment.
        if self.rng.chance(100) && self.actors.iter().filter(|actor| !actor.crashed).count() < 8 {
            self.join();
        }
        self.after_random(self.plan.fault_every, Event::Fault);
    }

    fn cut_off(&mut self, index: usize) {
        let both = self.rng.chance(400);
        let requests = self.rng.chance(500);
        self.actors[index].cut = Cut { requests: both || requests, answers: both || !requests };
        let span = self.rng.range(0, 3 * self.plan.longest());
        self.after(span, Event::Heal(index));
    }

    fn freeze(&mut self, index: usize, asleep: bool) {
        let span = self.rng.range(MILLI, 3 * self.plan.longest());
        let until = self.at + span;
        let actor = &mut self.actors[index];
        if !actor.is_up() {
            return;
        }
        actor.frozen_until = Some(until);
        if asleep {
            actor.fall_asleep(self.at);
        }
        self.queue_at(until, Event::Resume(index));
    }

    fn crash(&mut self, index: usize) {
        if self.actors[index].crashed {
            return;
        }
        let lease = self.actors[index].worker.lease();
        self.kill(index);
        // At times somebody can prove it.
        if let Some(lease) = lease.filter(|_| !self.store.down && self.rng.chance(200)) {
            let (now, longest) = (self.actors[index].moment(self.at), Duration::ZERO);
            let call = Call::Close(Closing::Proved);
            let (limit, judged_by) = (longest, None);
            let request = Request { lease, seq: Seq(0), asked_at: now, limit, judged_by, longest, call };
            let _closed = self.store.ledger.apply(self.store.here(self.at), &request);
            self.pass_hints_on();
        }
        self.join();
    }

    /// The process is gone, and its work with it.
    pub(crate) fn kill(&mut self, index: usize) {
        let actor = &mut self.actors[index];
        actor.crashed = true;
        actor.trust = None;
        actor.owned.clear();
        actor.works.clear();
    }

    fn store_down(&mut self) {
        self.store.down = true;
        let span = self.rng.range(0, 2 * self.plan.longest());
        let kinds: &[Restarts] = match self.plan.restarts {
            Restarts::AllLost => &[Restarts::Whole, Restarts::SomeLost, Restarts::AllLost],
            Restarts::SomeLost => &[Restarts::Whole, Restarts::SomeLost],
            _ => &[Restarts::Whole],
        };
        let mut how = *self.rng.pick(kinds);
        if how == Restarts::SomeLost && self.store.snapshot.is_none() {
            how = Restarts::Whole;
        }
        self.after(span, Event::StoreBack(how));
    }

    fn store_back(&mut self, how: Restarts) {
        self.store.down = false;
        self.store.incarnation += 1;
        let sane_clock = !self.plan.steps;
        match how {
            Restarts::SomeLost => {
                let (ledger, marks) = self.store.snapshot.clone().expect("a snapshot");
                self.store.ledger = ledger;
                self.check.data_lost(&marks, sane_clock);
            }
            Restarts::AllLost => {
                self.store.ledger = Ledger::bereft().with_history(8).with_planted(self.planted);
                self.check.data_lost(&Marks::new(), sane_clock);
                // An older life of the store does not come back from here on.
                self.store.snapshot = None;
            }
            Restarts::Never | Restarts::Whole => {}
        }
    }

    /// The store's clock steps, more often forward; what went back is often set right later.
    fn step(&mut self) {
        let longest = self.plan.longest();
        let by = self.rng.range(1, 4 * longest);
        if self.rng.chance(500) {
            self.step_by(by as i64);
        } else if self.step_by(-(by as i64)) && self.rng.chance(700) {
            let soon = 2 * longest + self.rng.range(1, longest / 2);
            self.after(soon, Event::ClockForward(by));
        }
    }

    /// Not twice within two leases: nobody could have seen the time in between. Says whether it did.
    fn step_by(&mut self, by: i64) -> bool {
        let may = self.at >= self.store.stepped_at + 2 * self.plan.longest();
        if may {
            self.store.stepped_at = self.at;
            self.store.offset += by;
        }
        may
    }

    fn wish(&mut self) {
        if self.calm {
            return;
        }
        let resource = self.rng.pick(&self.names).clone();
        let owners: Vec<(usize, Grant)> = self
            .actors
            .iter()
            .enumerate()
            .filter_map(|(index, actor)| Some((index, *actor.owned.get(&resource)?)))
            .collect();
        if !owners.is_empty() && self.rng.chance(800) {
            let (index, grant) = *self.rng.pick(&owners);
            self.wish_about(index, resource, grant);
        } else {
            let index = self.rng.range(0, self.actors.len() as u64) as usize;
            self.wish_for(index, resource);
        }
        self.after_random(self.plan.wish_every, Event::Wish);
    }

    /// Something that a user may want of a worker in any state.
    fn wish_for(&mut self, index: usize, resource: ResourceName) {
        match self.rng.range(0, 12) {
            0..=3 => self.worker_gets(index, Input::Leave(resource)),
            4..=7 => self.worker_gets(index, Input::StepDown(resource)),
            8..=10 => {
                let tickets = Tickets::new(self.plan.tickets).expect("a few tickets");
                self.worker_gets(index, Input::Enter(Want { resource, tickets, priority: 0 }));
            }
            _ => self.worker_gets(index, Input::Shutdown),
        }
    }

    fn wish_about(&mut self, index: usize, resource: ResourceName, grant: Grant) {
        let token = grant.token;
        let here = self.store.here(self.at);
        match self.rng.range(0, 20) {
            0..=11 => self.worker_gets(index, Input::StepDown(resource)),
            12 => self.worker_gets(index, Input::Leave(resource)),
            13 => self.depart(index, &resource, token),
            14 => self.worker_gets(index, Input::End { resource, token, ending: Ending::Failed }),
            15 => self.worker_gets(index, Input::End { resource, token, ending: Ending::Finished }),
            16 | 17 if !self.store.down => {
                let label = self.rng.pick(&self.actors).label.clone();
                let successor = self.rng.chance(500).then_some(&label);
                let _answer = self.store.ledger.ask(here, resource.as_str(), token, successor);
            }
            18 if !self.store.down => {
                if self.store.ledger.evict(here, resource.as_str(), token) == Asked::Done {
                    self.check.evicted(&resource, token);
                }
            }
            19 => self.worker_gets(index, Input::Shutdown),
            _ => self.worker_gets(index, Input::StepDown(resource)),
        }
    }

    /// Whoever does the work ends it, and sends the release by itself; its worker learns of that some time later.
    fn depart(&mut self, index: usize, resource: &ResourceName, token: Token) {
        let actor = &mut self.actors[index];
        if actor.crashed || actor.frozen_until.is_some() || !actor.has_work(resource, token) {
            return;
        }
        if actor.believes(self.at, resource).is_none() {
            return;
        }
        let Some(departure) = actor.departure.take() else { return };
        let request = departure.request(actor.moment(self.at), resource.clone());
        actor.owned.remove(resource);
        actor.works.remove(resource);
        actor.ahead.insert(request.seq);
        self.check_send(index, &request);
        self.send_to_store(index, request.clone());
        let most = if self.rng.chance(100) { self.plan.longest() } else { MILLI };
        let late = self.rng.range(0, most);
        self.after(late, Event::ToWorker(index, Input::Departed { request, token }));
    }

    /// All faults stop: links heal, everybody wakes up, the store is there.
    pub(crate) fn calm_down(&mut self) {
        self.calm = true;
        if self.store.down {
            self.store_back(Restarts::Whole);
        }
        for index in 0..self.actors.len() {
            self.actors[index].cut = Cut::default();
        }
    }

    // ---- time --------------------------------------------------------------------------------------------

    fn after(&mut self, span: u64, event: Event) {
        self.queue_at(self.at + span, event);
    }

    fn after_random(&mut self, mean: u64, event: Event) {
        let span = self.rng.range(1, 2 * mean);
        self.after(span, event);
    }

    fn queue_at(&mut self, at: Real, event: Event) {
        self.serial += 1;
        self.queue.push(Entry { at, serial: self.serial, event });
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}

impl Eq for Entry {}
