//! Many workers, one store, a bad network between them, and somebody who wants it to fail.

use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tenure_core::rules::{
    Act, Capabilities, Client, Env, Event as Past, Fate, Found, Reply as Answered, Sending, Signal, Step,
};
use tenure_core::*;

use crate::actor::{Actor, Asking, Cut, News, Reply, Work};
use crate::check::{Checker, Marks, Sight};
use crate::plan::{Plan, Restarts};
use crate::rng::Rng;
use crate::store::{Applied, Store};

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
    /// Who asks and evicts, proves deaths and looks after the store.
    operator: Client,
}

struct Entry {
    at: Real,
    serial: u64,
    event: Event,
}

#[derive(Debug)]
enum Event {
    ToStore(usize, Sent),
    ToProcess(usize, Box<News>),
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

/// A message to the store.
#[derive(Clone, Debug)]
struct Sent {
    asking: u64,
    trip: u64,
    what: Message,
}

#[derive(Clone, Debug)]
enum Message {
    Read(Vec<Key>),
    Commit(Incarnation, Vec<Sending>),
    /// The records of a change from this one on, where the store writes them one by one.
    Rest(Incarnation, Sending, usize),
    LostNothing,
    List,
}

impl World {
    pub(crate) fn new(seed: u64, planted: Planted) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::of(&mut rng);
        let rate = match rng.range(0, 3) {
            0 => 1_000_000 - plan.band,
            1 => 1_000_000 + plan.band,
            _ => rng.range(1_000_000 - plan.band, 1_000_000 + plan.band + 1),
        };
        let (most_changes, most_signal_bytes) = (250, 8_000);
        let capabilities =
            Capabilities { clock: plan.clock, together: plan.together, most_changes, most_signal_bytes };
        let store = Store::new(capabilities, rate, planted);
        let operator = Client::new(capabilities).with_planted(planted);
        let names =
            (0..plan.resources).map(|n| ResourceName::new(&format!("r{n}")).expect("a name")).collect();
        let mut world = Self {
            rng,
            at: 0,
            check: Checker::new(!plan.together),
            plan,
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
            operator,
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
            Event::ToStore(actor, sent) => self.store_gets(actor, sent),
            Event::ToProcess(actor, news) => self.process_gets(actor, *news),
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

    fn store_gets(&mut self, actor: usize, sent: Sent) {
        let Sent { asking, trip, what } = sent;
        let answer = |shown, said| News::Reply { asking, trip, shown, said };
        if self.store.down {
            if self.rng.chance(500) {
                let failed = answer(self.store.shown(self.at), Reply::Failed);
                self.send_to_process(actor, failed);
            }
            return;
        }
        let said = match what {
            Message::Read(keys) => Reply::Read(self.store.read(self.at, &keys).1),
            Message::LostNothing => Reply::LostNothing(self.store.lost_nothing()),
            Message::List => Reply::Listed(self.store.names()),
            Message::Commit(life, sendings) => {
                // At times a store that is alone with its records says no for no reason.
                if !self.calm && self.rng.chance(self.plan.loss / 8) {
                    Reply::Committed(sendings.iter().map(|_| Fate::Conflict(Vec::new())).collect())
                } else {
                    match self.commit(actor, asking, trip, life, sendings) {
                        Some(fates) => Reply::Committed(fates),
                        None => return,
                    }
                }
            }
            Message::Rest(life, sending, from) => {
                let to = sending.change.put.len();
                let (fate, applied) = self.store.commit(self.at, life, &sending, from..to);
                self.applied(actor, life, applied);
                Reply::Committed(vec![fate])
            }
        };
        // At times the link breaks after the store has acted.
        let broken = !self.calm && self.rng.chance(self.plan.loss / 4);
        let said = if broken { Reply::Failed } else { said };
        let answer = answer(self.store.shown(self.at), said);
        self.send_to_process(actor, answer);
    }

    /// Applies the changes one after the other. A change of several records that are written one by one goes on later.
    fn commit(
        &mut self,
        actor: usize,
        asking: u64,
        trip: u64,
        life: Incarnation,
        sendings: Vec<Sending>,
    ) -> Option<Vec<Fate>> {
        let mut fates = Vec::new();
        let alone = sendings.len() == 1;
        for sending in sendings {
            let puts = sending.change.put.len();
            if alone && !self.plan.together && puts > 1 {
                let (fate, applied) = self.store.commit(self.at, life, &sending, 0..1);
                self.applied(actor, life, applied);
                if matches!(fate, Fate::Done(_)) {
                    let (_, _, delay, _) = self.weather();
                    let sent = Sent { asking, trip, what: Message::Rest(life, sending, 1) };
                    self.after(delay, Event::ToStore(actor, sent));
                    return None;
                }
                fates.push(fate);
            } else {
                let (fate, applied) = self.store.commit(self.at, life, &sending, 0..puts);
                self.applied(actor, life, applied);
                fates.push(fate);
            }
        }
        Some(fates)
    }

    /// Looks at what a change did, and passes on what it says.
    fn applied(&mut self, actor: usize, life: Incarnation, applied: Applied) {
        if let Some(what) = applied.forbidden {
            self.check.fail("S6", self.at, what);
        }
        for event in &applied.history {
            self.see_grant(actor, event);
        }
        for signal in applied.signals {
            self.pass_on(life, signal, &applied.written);
        }
        if !self.plan.clock {
            // Without a clock those who wait watch the leases of the owners.
            for found in applied.written {
                let knows = |other: &Actor| !other.crashed && other.client.seen(&found.key).is_some();
                let watching = self.actors.iter().enumerate().filter(|(_, other)| knows(other));
                let watching: Vec<usize> = watching.map(|(index, _)| index).collect();
                for index in watching {
                    self.send_to_process(index, News::Told(life, found.clone()));
                }
            }
        }
    }

    fn pass_on(&mut self, life: Incarnation, signal: Signal, written: &[Found]) {
        match signal {
            Signal::Look { to, resource, after } => {
                let listens = |lease: &LeaseId| {
                    self.actors
                        .iter()
                        .position(|actor| !actor.crashed && actor.worker.lease() == Some(*lease))
                };
                if let Some(index) = to.iter().find_map(listens) {
                    let key = Key::Resource(resource.clone());
                    let told = written.iter().find(|found| found.key == key).cloned();
                    if let Some(found) = told.filter(|_| self.rng.chance(800)) {
                        self.send_to_process(index, News::Told(life, found));
                    }
                    self.send_to_process(index, News::Input(Input::Hinted { resource, after }));
                }
            }
            Signal::Ended(lease) => {
                for index in 0..self.actors.len() {
                    let follows = |name: &&ResourceName| {
                        let actor = &self.actors[index];
                        !actor.crashed && actor.client.owners(name).contains(&lease)
                    };
                    let names: Vec<ResourceName> = self.names.iter().filter(follows).cloned().collect();
                    for resource in names {
                        let after = Duration::ZERO;
                        self.send_to_process(index, News::Input(Input::Hinted { resource, after }));
                    }
                }
            }
            Signal::Changed(..) | Signal::Knock(..) | Signal::Message { .. } => {}
        }
    }

    /// Every grant is checked when the store makes it: by then, whoever had the ticket must have stopped. Where the store
    /// cannot compare all that a grant expects, it is one only when its worker takes it up.
    fn see_grant(&mut self, actor: usize, event: &Past) {
        if event.what == Happened::Granted && self.plan.together {
            let record = self.store.resource(&event.resource);
            let lease = record.and_then(|record| record.seat_under(event.grant.token)).map(|seat| seat.lease);
            if let Some(lease) = lease {
                self.check_grant(actor, lease, &event.resource, event.grant);
            }
        }
    }

    fn check_grant(&mut self, actor: usize, lease: LeaseId, resource: &ResourceName, grant: Grant) {
        // When a grant is seen only as its work starts, K may have been lowered since.
        let tickets = self.store.resource(resource).filter(|_| self.plan.together);
        let tickets = tickets.map_or(u32::MAX, |record| record.tickets);
        let believing = self.sights(actor, |other| other.believes(self.at, resource));
        let working = self.sights(actor, |other| other.works(resource));
        let own = (lease, Sight { actor, grant });
        self.check.granted(self.at, resource, tickets, own, &believing, &working);
    }

    fn sights(&self, except: usize, of: impl Fn(&Actor) -> Option<Grant>) -> Vec<Sight> {
        let others = self.actors.iter().enumerate().filter(|(index, _)| *index != except);
        others.filter_map(|(actor, other)| of(other).map(|grant| Sight { actor, grant })).collect()
    }

    fn send_to_store(&mut self, actor: usize, sent: Sent) {
        if self.actors[actor].cut.requests {
            return;
        }
        let (send, again, delay, other) = self.weather();
        if again {
            self.after(other, Event::ToStore(actor, sent.clone()));
        }
        if send {
            self.after(delay, Event::ToStore(actor, sent));
        }
    }

    fn send_to_process(&mut self, actor: usize, news: News) {
        if self.actors[actor].cut.answers {
            return;
        }
        let (send, again, delay, other) = self.weather();
        if again {
            self.after(other, Event::ToProcess(actor, Box::new(news.clone())));
        }
        if send {
            self.after(delay, Event::ToProcess(actor, Box::new(news)));
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

    fn process_gets(&mut self, index: usize, news: News) {
        let actor = &mut self.actors[index];
        if actor.crashed {
            return;
        }
        if actor.frozen_until.is_some() {
            actor.backlog.push(news);
            return;
        }
        match news {
            News::Input(input) => self.worker_gets(index, input),
            News::Told(life, found) => {
                let env = self.env(index);
                self.actors[index].client.told(&env, life, found);
            }
            News::Go { asking, trip } => {
                if self.actors[index].asking.get(&asking).is_some_and(|asking| asking.trip == trip) {
                    self.ask_on(index, asking);
                }
            }
            News::Reply { asking, trip, shown, said } => {
                let env = self.env(index);
                let actor = &mut self.actors[index];
                let Some(mut held) = actor.asking.remove(&asking) else { return };
                if held.trip != trip {
                    actor.asking.insert(asking, held);
                    return;
                }
                match said {
                    Reply::Read(found) => actor.client.read(&env, &mut held.operation, shown, found),
                    Reply::Committed(fates) => {
                        actor.client.committed(&env, &mut held.operation, shown, fates);
                    }
                    Reply::LostNothing(lost) => actor.client.lost_nothing(&mut held.operation, lost),
                    Reply::Listed(names) => actor.client.listed(&mut held.operation, names),
                    Reply::Failed => {
                        if let Act::Call(request, _) = held.act {
                            self.worker_gets(index, Input::Failed(request));
                        }
                        return;
                    }
                }
                // An answer to this message that comes once more is not heard.
                held.trip += 1;
                actor.asking.insert(asking, held);
                self.ask_on(index, asking);
            }
        }
    }

    fn env(&mut self, index: usize) -> Env {
        let at = self.actors[index].moment(self.at);
        let wall = 100_000_000_000 + self.at;
        let chance = (u128::from(self.rng.next()) << 64) | u128::from(self.rng.next());
        Env { at, wall, jitter: self.rng.next() as u16, chance }
    }

    /// Begins to ask the store for something.
    fn ask(&mut self, index: usize, act: Act) {
        let env = self.env(index);
        self.serial += 1;
        let (asking, actor) = (self.serial, &mut self.actors[index]);
        let operation = actor.client.begin(&env, act.clone());
        actor.asking.insert(asking, Asking { act, operation, trip: 0 });
        self.ask_on(index, asking);
    }

    /// Does what has to be done next for what is asked.
    fn ask_on(&mut self, index: usize, asking: u64) {
        let env = self.env(index);
        let actor = &mut self.actors[index];
        let Some(mut held) = actor.asking.remove(&asking) else { return };
        held.trip += 1;
        let (trip, step) = (held.trip, actor.client.step(&env, &mut held.operation));
        let what = match step {
            Step::Done(reply) => return self.answered(index, held, reply),
            Step::Wait(span) => {
                let span = actor.real(span);
                actor.asking.insert(asking, held);
                return self.after(span, Event::ToProcess(index, Box::new(News::Go { asking, trip })));
            }
            Step::Read(keys) => Message::Read(keys),
            Step::Commit(life, sendings) => Message::Commit(life, sendings),
            Step::LostNothing(_) => Message::LostNothing,
            Step::List => Message::List,
        };
        self.costs(index, &held);
        self.actors[index].asking.insert(asking, held);
        self.send_to_store(index, Sent { asking, trip, what });
    }

    fn answered(&mut self, index: usize, held: Asking, reply: Answered) {
        if let (Act::Call(request, _), Answered::Answer(answer)) = (held.act, reply) {
            let lease = request.lease;
            self.worker_gets(index, Input::Answered(request, answer));
            if self.actors[index].client.must_look(lease) {
                self.ask(index, Act::Wishes(lease));
            }
        }
    }

    /// In calm weather nothing takes many attempts.
    fn costs(&mut self, index: usize, held: &Asking) {
        let (attempts, _) = held.operation.attempts();
        if attempts > 200 {
            let what = format!("{index} needs {attempts} attempts for {:?}", held.act);
            self.check.fail("cost", self.at, what);
        }
    }

    pub(crate) fn worker_gets(&mut self, index: usize, input: Input) {
        let now = {
            let actor = &mut self.actors[index];
            if actor.crashed {
                return;
            }
            if actor.frozen_until.is_some() {
                actor.backlog.push(News::Input(input));
                return;
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
    }

    fn carry_out(&mut self, index: usize, output: Output) {
        match output {
            Output::Send(request) => {
                self.check_send(index, &request);
                self.ask(index, Act::Call(request, None));
            }
            Output::Trust(until) => {
                self.actors[index].trust = until;
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
            Output::Abandon(seq) => {
                let given_up =
                    |asking: &Asking| matches!(&asking.act, Act::Call(request, _) if request.seq == seq);
                self.actors[index].asking.retain(|_, asking| !given_up(asking));
            }
            Output::Report(_) => {}
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
                let seat = self.store.resource(&leave.resource).and_then(|r| r.seat_of(request.lease));
                if let Some(token) = seat.map(|seat| seat.grant.token) {
                    self.check.given_up(&leave.resource, token);
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
        if !self.plan.together
            && let Some(lease) = self.actors[index].worker.lease()
        {
            self.check_grant(index, lease, resource, grant);
        }
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
        let here = (self.at, self.store.capabilities);
        let actor = Actor::new(timing, label, self.plan.band, &mut self.rng, self.planted, here);
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
        backlog.push(News::Input(Input::Tick));
        if self.rng.chance(500) {
            backlog.reverse();
        }
        for news in backlog {
            self.process_gets(index, news);
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
        if self.plan.restarts >= Restarts::SomeLost && self.knows_longest() && self.rng.chance(300) {
            self.store.snapshot = Some((self.store.records(), self.check.marks()));
        }
        if self.rng.chance(200) && !self.store.down {
            self.drop_ttls();
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
            self.operate(Act::Prove(lease));
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
                let (records, marks) = self.store.snapshot.clone().expect("a snapshot");
                self.store.fall_back(records);
                self.check.data_lost(&marks, sane_clock);
            }
            Restarts::AllLost => {
                // An older life of the store does not come back from here on.
                self.store.lose_all();
                self.check.data_lost(&Marks::new(), sane_clock);
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
        match self.rng.range(0, 20) {
            0..=11 => self.worker_gets(index, Input::StepDown(resource)),
            12 | 13 => self.worker_gets(index, Input::Leave(resource)),
            14 => self.worker_gets(index, Input::End { resource, token, ending: Ending::Failed }),
            15 => self.worker_gets(index, Input::End { resource, token, ending: Ending::Finished }),
            16 | 17 if !self.store.down => {
                let label = self.rng.pick(&self.actors).label.clone();
                let successor = self.rng.chance(500).then_some(label);
                self.operate(Act::Ask(resource, token, successor));
            }
            18 if !self.store.down => {
                // From here on: where records are written one by one it may stop in the middle.
                self.check.evicted(&resource, token);
                self.operate(Act::Evict(resource, token));
            }
            19 => self.worker_gets(index, Input::Shutdown),
            _ => self.worker_gets(index, Input::StepDown(resource)),
        }
    }

    /// An operator does something, in one go. Where the store writes records one by one it may stop after the first.
    fn operate(&mut self, act: Act) -> Option<Answered> {
        let (at, clock) = (self.at, Duration::from_micros(self.at));
        let mut operator = self.operator.clone();
        let env = |rng: &mut Rng| Env {
            at: Moment::new(clock, clock),
            wall: 100_000_000_000 + at,
            jitter: 0,
            chance: (u128::from(rng.next()) << 64) | u128::from(rng.next()),
        };
        let mut operation = operator.begin(&env(&mut self.rng), act);
        for _ in 0..100 {
            let now = env(&mut self.rng);
            match operator.step(&now, &mut operation) {
                Step::Done(reply) => {
                    self.operator = operator;
                    return Some(reply);
                }
                Step::Wait(_) => {}
                Step::Read(keys) => {
                    let (shown, found) = self.store.read(at, &keys);
                    operator.read(&now, &mut operation, shown, found);
                }
                Step::LostNothing(_) => operator.lost_nothing(&mut operation, self.store.lost_nothing()),
                Step::List => operator.listed(&mut operation, self.store.names()),
                Step::Commit(life, sendings) => {
                    let mut fates = Vec::new();
                    for sending in &sendings {
                        let puts = sending.change.put.len();
                        let stops = !self.plan.together && puts > 1 && !self.calm && self.rng.chance(300);
                        let until = if stops { 1 } else { puts };
                        let (fate, applied) = self.store.commit(at, life, sending, 0..until);
                        self.applied(usize::MAX, life, applied);
                        if stops {
                            return None;
                        }
                        fates.push(fate);
                    }
                    let shown = self.store.shown(at);
                    operator.committed(&now, &mut operation, shown, fates);
                }
            }
        }
        self.check.fail("cost", at, "an operator gets nowhere".to_owned());
        None
    }

    /// Whether the store knows the longest ttl of the run. One that does not has lost all, as it were.
    fn knows_longest(&self) -> bool {
        self.store.longest().is_some_and(|longest| longest.as_micros() as u64 >= self.plan.longest())
    }

    /// Somebody looks which ttls are in use.
    fn drop_ttls(&mut self) {
        let in_use = self.store.ttls_in_use();
        let linger = Duration::from_micros(self.plan.longest());
        self.operate(Act::DropTtls(in_use, linger));
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
