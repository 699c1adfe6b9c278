//! Many workers, one store, a bad network between them, and somebody who wants it to fail.

use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tenure_core::rules::{
    Act, Capabilities, Client, Env, Event as Past, Fate, Found, Key, Reply as Answered, Sending, Signal,
    Step, Value, Version,
};
use tenure_core::*;

use crate::actor::{Actor, Asking, Clocks, News, Reply, Work};
use crate::check::{Checker, Sight};
use crate::plan::{Plan, Restarts, Theme};
use crate::rng::Rng;
use crate::store::{Applied, Store};
use crate::trouble::Trouble;

/// A real point in time, in microseconds since the beginning of the run.
pub(crate) type Real = u64;

pub(crate) const MILLI: u64 = 1_000;

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) at: Real,
    pub(crate) check: Checker,
    pub(crate) actors: Vec<Actor>,
    pub(crate) names: Vec<ResourceName>,
    pub(crate) store: Store,
    /// One per process. Several workers may share one.
    pub(crate) clients: Vec<Client>,
    pub(crate) trouble: Trouble,
    pub(crate) faults: u64,
    pub(crate) events: u64,
    pub(crate) calm: bool,
    /// When which resource was last given up, and when its next work started.
    pub(crate) released_at: BTreeMap<ResourceName, Real>,
    pub(crate) starts: Vec<(Real, usize, ResourceName)>,
    /// Every event is printed.
    told: bool,
    pub(crate) planted: Planted,
    queue: BinaryHeap<Entry>,
    serial: u64,
    /// Who asks and evicts, proves deaths and looks after the store, from a process without workers.
    pub(crate) operator: Client,
}

struct Entry {
    at: Real,
    serial: u64,
    event: Event,
}

#[derive(Debug)]
pub(crate) enum Event {
    ToStore(usize, Box<Sent>),
    ToProcess(usize, Box<News>),
    Wake(usize, u64),
    WorkEnds(usize, ResourceName, Token),
    Resume(usize),
    Heal(usize),
    Enter(usize, ResourceName),
    StoreBack(Restarts),
    /// Somebody notices that the store's clock is wrong, and sets it right.
    ClockRight(i64),
    /// The old primary of the store is heard no more, or some reach the new one for a moment.
    OldPrimaryEnds,
    Ping,
    Fault,
    Wish,
    Chore,
    OneChore,
    OneWish,
    Newcomer,
    Look(usize),
    /// Hints that mean nothing reach everybody.
    Rumour,
    /// The clock is wrong for a moment.
    Blink(i64, u64),
    Leave(usize, ResourceName),
}

/// A message to the store.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    asking: u64,
    trip: u64,
    what: Message,
}

#[derive(Clone, Debug)]
pub(crate) enum Message {
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
            _ if plan.theme == Theme::SlowAnswers => 1_000_000 + plan.band,
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
            clients: Vec::new(),
            trouble: Trouble::default(),
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
        world.after_random(world.plan.chore_every, Event::Chore);
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
            Event::ToStore(actor, sent) => self.store_gets(actor, *sent),
            Event::ToProcess(actor, news) => self.process_gets(actor, *news),
            Event::Wake(actor, wake) if self.actors[actor].wake == wake => {
                self.worker_gets(actor, Input::Tick);
            }
            Event::Wake(..) => {}
            Event::WorkEnds(actor, resource, token) => self.work_ends(actor, resource, token),
            Event::Resume(actor) => self.resume(actor),
            Event::Heal(actor) => self.heal(actor),
            Event::Enter(actor, resource) => self.enter(actor, &resource),
            Event::StoreBack(how) => self.store_back(how),
            Event::ClockRight(by) => self.clock_right(by),
            Event::OldPrimaryEnds => self.old_primary_ends(),
            Event::Ping => self.ping(),
            Event::Fault => self.fault(),
            Event::Wish => self.wish(),
            Event::Chore => self.chore(),
            Event::OneChore => self.one_chore(),
            Event::OneWish => self.one_wish(),
            Event::Look(actor) => self.look(actor),
            Event::Newcomer => self.longer_newcomer(),
            Event::Rumour => self.rumour(),
            Event::Blink(by, span) => self.blink(by, span),
            Event::Leave(actor, resource) => self.worker_gets(actor, Input::Leave(resource)),
        }
    }

    // ---- messages ----------------------------------------------------------------------------------------

    fn store_gets(&mut self, actor: usize, sent: Sent) {
        match self.route(actor) {
            Route::Store => self.store_acts(actor, sent),
            Route::NewPrimary => self.at_the_new_primary(|world| world.store_acts(actor, sent)),
            Route::Nowhere => {}
        }
    }

    fn store_acts(&mut self, actor: usize, sent: Sent) {
        let Sent { asking, trip, what } = sent;
        let made_at = self.at;
        let answer = |shown, said| News::Reply { asking, trip, made_at, shown, said };
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
                if !self.is_calm() && self.rng.chance(self.plan.loss / 8) {
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
        let broken = !self.is_calm() && self.rng.chance(self.plan.loss / 4);
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
                    let (_, _, delay, _) = self.weather_of(actor, self.plan.slowness);
                    let sent = Sent { asking, trip, what: Message::Rest(life, sending, 1) };
                    self.after(delay, Event::ToStore(actor, Box::new(sent)));
                    return None;
                }
                fates.push(fate);
            } else if !alone && self.plan.theme == Theme::Fallbacks && !self.calm && self.rng.chance(150) {
                // One of several is refused for no reason.
                fates.push(Fate::Conflict(Vec::new()));
            } else {
                let (fate, applied) = self.store.commit(self.at, life, &sending, 0..puts);
                self.applied(actor, life, applied);
                fates.push(fate);
            }
        }
        Some(fates)
    }

    /// Looks at what a change did, and passes on what it says.
    pub(crate) fn applied(&mut self, actor: usize, life: Incarnation, applied: Applied) {
        if let Some(what) = applied.forbidden {
            self.check.fail("S6", self.at, what);
        }
        if let Some((promise, what)) = applied.mistake {
            self.check.fail(promise, self.at, what);
        }
        if let Some(what) = applied.too_short {
            self.check.fail("S3", self.at, what);
        }
        for lease in applied.ended {
            self.see_end(lease);
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
                let knows = |process: &usize| self.clients[*process].seen(&found.key).is_some();
                let watching: Vec<usize> = (0..self.clients.len()).filter(knows).collect();
                for index in
                    watching.into_iter().filter_map(|process| self.somebody_in(process)).collect::<Vec<_>>()
                {
                    self.send_to_process(index, News::Told(life, found.clone()));
                }
            }
        }
    }

    /// Nobody ends a lease that its worker relies on. Where the store cannot compare its life it may have lost the
    /// renewal.
    fn see_end(&mut self, lease: LeaseId) {
        let relies = |actor: &Actor| {
            let trusts = actor.trust.is_some_and(|until| !actor.moment(self.at).has_reached(until));
            !actor.crashed && actor.worker.lease() == Some(lease) && trusts
        };
        if self.plan.together
            && let Some(actor) = self.actors.iter().find(|actor| relies(actor))
        {
            let what = format!("the lease of {} is ended while it relies on it", actor.label);
            self.check.fail("S3", self.at, what);
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
                        let found = self.as_it_may_be_told(found);
                        self.send_to_process(index, News::Told(life, found));
                    }
                    self.send_to_process(index, News::Input(Input::Hinted { resource, after }));
                }
            }
            Signal::Ended(lease) => {
                for index in 0..self.actors.len() {
                    let follows = |name: &&ResourceName| {
                        let actor = &self.actors[index];
                        !actor.crashed && self.clients[actor.process].owners(name).contains(&lease)
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

    /// Every grant is checked when the store makes it: by then, whoever had the ticket must have stopped. Where the
    /// store cannot compare all that a grant expects, it is one only when its worker takes it up.
    fn see_grant(&mut self, actor: usize, event: &Past) {
        if event.what == HistoryEvent::Granted && self.plan.together {
            let record = self.store.resource(&event.resource);
            let lease =
                record.and_then(|record| record.owner_under(event.grant.token)).map(|owner| owner.lease);
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

    /// A record that comes with a hint is true most of the time. It may be an old one, or an invention.
    fn as_it_may_be_told(&mut self, found: Found) -> Found {
        if self.is_calm() {
            return found;
        }
        let told = match self.rng.range(0, 10) {
            0 => self
                .trouble
                .old_record
                .clone()
                .filter(|old| old.key == found.key)
                .unwrap_or_else(|| found.clone()),
            1 => invented(&mut self.rng, found.clone()),
            _ => found.clone(),
        };
        if self.rng.chance(300) {
            self.trouble.old_record = Some(found);
        }
        told
    }

    fn send_to_store(&mut self, actor: usize, sent: Box<Sent>) {
        if self.actors[actor].cut.requests {
            return;
        }
        let (send, again, delay, other) = self.weather_of(actor, self.plan.slowness);
        if again {
            self.after(other, Event::ToStore(actor, sent.clone()));
        }
        // One that was about to be answered when the store fell back takes its time.
        let lags = self.trouble.lagging == Some(sent.asking) && !self.calm;
        let lags = lags && self.store.incarnation != self.trouble.lagging_from;
        let delay = if lags { self.rng.range(0, self.plan.longest() / 5) } else { delay };
        if send {
            self.after(delay, Event::ToStore(actor, sent));
        }
    }

    pub(crate) fn send_to_process(&mut self, actor: usize, news: News) {
        if self.actors[actor].cut.answers {
            return;
        }
        let (send, again, delay, other) = self.weather_of(actor, self.plan.slow_answers);
        if again {
            self.after(other, Event::ToProcess(actor, Box::new(news.clone())));
        }
        if send {
            self.after(delay, Event::ToProcess(actor, Box::new(news)));
        }
    }

    /// Whether a message arrives, whether it arrives twice, and how late each.
    fn weather_of(&mut self, actor: usize, slowness: u64) -> (bool, bool, u64, u64) {
        if self.is_calm() || self.is_sheltered(actor) {
            return (true, false, self.rng.range(100, MILLI), 0);
        }
        let Plan { loss, duplication, .. } = self.plan;
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
                let process = self.actors[index].process;
                self.clients[process].told(&env, life, found);
            }
            News::Go { asking, trip } => {
                if self.actors[index].asking.get(&asking).is_some_and(|asking| asking.trip == trip) {
                    self.ask_on(index, asking);
                }
            }
            News::Reply { asking, trip, made_at, shown, said } => {
                let env = self.env(index);
                let actor = &mut self.actors[index];
                let client = &mut self.clients[actor.process];
                let Some(mut held) = actor.asking.remove(&asking) else { return };
                if held.trip != trip {
                    actor.asking.insert(asking, held);
                    return;
                }
                if said.is_shown() {
                    self.trouble.note_heard(actor.process, shown.life, made_at);
                }
                match said {
                    Reply::Read(found) => client.read(&env, &mut held.operation, shown, found),
                    Reply::Committed(fates) => {
                        client.committed(&env, &mut held.operation, shown, fates);
                    }
                    Reply::LostNothing(lost) => client.lost_nothing(&mut held.operation, lost),
                    Reply::Listed(names) => client.listed(&mut held.operation, names),
                    Reply::Failed => {
                        if let Act::Call(request, _) = held.act {
                            self.worker_gets(index, Input::Failed(request));
                        }
                        return;
                    }
                }
                let cut = self.plan.theme == Theme::SlowAnswers && !self.calm && self.rng.chance(30);
                // An answer to this message that comes once more is not heard.
                held.trip += 1;
                actor.asking.insert(asking, held);
                self.ask_on(index, asking);
                if cut {
                    self.cut_for(index, 3 * self.plan.longest() / 2);
                }
            }
        }
    }

    fn env(&mut self, index: usize) -> Env {
        let at = self.actors[index].moment(self.at);
        let wall = 100_000_000_000 + self.at;
        let chance = (u128::from(self.rng.next()) << 64) | u128::from(self.rng.next());
        Env { at, wall, jitter: self.rng.next() as u16, chance }
    }

    /// The number of what is asked next.
    pub(crate) fn next_asking(&self) -> u64 {
        self.serial + 1
    }

    /// Begins to ask the store for something.
    pub(crate) fn ask(&mut self, index: usize, act: Act) {
        let env = self.env(index);
        self.serial += 1;
        let (asking, actor) = (self.serial, &mut self.actors[index]);
        let operation = self.clients[actor.process].begin(&env, act.clone());
        actor.asking.insert(asking, Box::new(Asking { act, operation, trip: 0 }));
        self.ask_on(index, asking);
    }

    /// Does what has to be done next for what is asked.
    fn ask_on(&mut self, index: usize, asking: u64) {
        let env = self.env(index);
        let actor = &mut self.actors[index];
        let Some(mut held) = actor.asking.remove(&asking) else { return };
        held.trip += 1;
        let client = &mut self.clients[actor.process];
        let (trip, step) = (held.trip, client.step(&env, &mut held.operation));
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
        self.send_to_store(index, Box::new(Sent { asking, trip, what }));
    }

    fn answered(&mut self, index: usize, held: Box<Asking>, reply: Answered) {
        if let (Act::Call(request, _), Answered::Answer(answer)) = (held.act, reply) {
            let lease = request.lease;
            self.worker_gets(index, Input::Answered(request, answer));
            let process = self.actors[index].process;
            if self.clients[process].must_look(lease) {
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
                self.leave_soon(index, &request);
                self.fall_back_soon(&request);
                self.claim_late(index, &request);
                self.ask(index, Act::Call(request, None));
            }
            Output::Trust(until) => {
                self.actors[index].trust = Some(until);
                for (resource, grant) in self.actors[index].owned.clone() {
                    self.check_belief(index, &resource, grant);
                }
            }
            Output::Distrust { .. } => self.actors[index].trust = None,
            Output::Start(Ownership { resource, grant }) => self.start(index, &resource, grant),
            Output::Stop { resource, token, ending } => self.stop(index, resource, token, ending),
            Output::StopHard { resource, token } => {
                // The other half of the margin is for dying.
                let dying = self.actors[index].timing.margin() / 2 * self.plan.margin_use as u32 / 1000;
                self.work_ends_within(index, dying, resource, token);
            }
            Output::Left(resource) => {
                // Some do not come back. What they leave behind shows at the end.
                if self.calm || !self.rng.chance(self.plan.stays_away) {
                    let again = self.rng.range(1, self.plan.longest());
                    self.after(again, Event::Enter(index, resource));
                }
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
            // All work ends here when it is stopped hard, or its process stands still.
            Output::Overdue(_) | Output::Unheard | Output::Report(_) => {}
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
                let owner = self.store.resource(&leave.resource).and_then(|r| r.owner_with(request.lease));
                if let Some(token) = owner.map(|owner| owner.grant.token) {
                    self.released_at.insert(leave.resource.clone(), self.at);
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

    fn stop(&mut self, index: usize, resource: ResourceName, token: Token, ending: EndReason) {
        // A notice that comes between a renewal and another attempt at it looks like one.
        let lease = self.actors[index].works.get(&resource).and_then(|work| work.lease);
        let renewed = lease.is_some_and(|lease| self.store.is_as_renewed(lease));
        if ending == EndReason::Cloned && self.plan.together && renewed {
            self.check.fail("S6", self.at, format!("{resource}: {index} takes itself for a clone"));
        }
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
        // In calm weather nobody changes K.
        let present = self.store.resource(resource).filter(|_| self.calm).map(|resource| resource.tickets);
        let tickets = match self.plan.tickets_change && !self.calm && self.rng.chance(300) {
            true => self.rng.range(1, 5) as u32,
            false => present.unwrap_or(self.plan.tickets),
        };
        let priority = if self.rng.chance(200) && !self.calm { 1 } else { 0 };
        let tickets = Tickets::new(tickets).expect("a few tickets");
        self.worker_gets(index, Input::Enter(Want { resource: resource.clone(), tickets, priority }));
    }

    pub(crate) fn join(&mut self) {
        let timing = self.plan.timing(&mut self.rng);
        let label = Label::new(&format!("w{}", self.actors.len())).expect("a label");
        let up: Vec<usize> = (0..self.actors.len()).filter(|index| self.actors[*index].is_up()).collect();
        let shares = !up.is_empty() && self.rng.chance(self.plan.shared);
        let actor = if shares {
            let mate = *self.rng.pick(&up);
            Actor::beside(&self.actors[mate], timing, label, self.at, self.planted)
        } else {
            self.clients.push(Client::new(self.store.capabilities).with_planted(self.planted));
            let process = self.clients.len() - 1;
            let clocks = Clocks::of(&self.plan, &mut self.rng);
            Actor::new(timing, label, clocks, self.at, process, self.planted)
        };
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

    // ---- time --------------------------------------------------------------------------------------------

    /// Nothing fails now.
    pub(crate) fn is_calm(&self) -> bool {
        self.calm || self.at < self.trouble.calm_until
    }

    pub(crate) fn after(&mut self, span: u64, event: Event) {
        self.queue_at(self.at + span, event);
    }

    pub(crate) fn after_random(&mut self, mean: u64, event: Event) {
        let span = self.rng.range(1, 2 * mean);
        self.after(span, event);
    }

    pub(crate) fn queue_at(&mut self, at: Real, event: Event) {
        self.serial += 1;
        self.queue.push(Entry { at, serial: self.serial, event });
    }
}

/// Where a message to the store goes.
pub(crate) enum Route {
    Store,
    NewPrimary,
    Nowhere,
}

/// A record that nobody wrote, of a version that does not exist.
fn invented(rng: &mut Rng, mut found: Found) -> Found {
    (found.version, found.revision) = (Version(rng.next().max(1)), found.revision + rng.range(0, 3));
    if let Some(Value::Resource(resource)) = &mut found.value {
        match rng.range(0, 3) {
            0 => resource.owners.clear(),
            1 => resource.queue.clear(),
            _ => resource.tickets += 1,
        }
    }
    found
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
