//! A state of the model, and what happens to it.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::time::Duration;

use tenure_core::rules::{Act, Client, Fate, Found, Sending, Shown, Signal, Step};
use tenure_core::*;

use crate::actor::{Actor, Next, Told, Trip, Work, env, moment, resource};
use crate::plan::{Begin, Order, Plan, QUANTUM, Trouble, Wish};
use crate::shared::{Renaming, Shared};
use crate::store::{Applied, Ask, Reply, Store};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct World {
    /// In microseconds since the beginning.
    pub(crate) at: u64,
    pub(crate) store: Shared<Store>,
    pub(crate) actors: Vec<Shared<Actor>>,
    /// A multiset: ordered by key, so equal ones stand beside each other and equal sets are equal.
    pub(crate) flight: Vec<Shared<Packet>>,
    /// How many there may still be.
    pub(crate) faults: u8,
    pub(crate) wishes: u8,
    highest: Token,
    /// What operators have taken away, and when.
    evicted: Vec<(Token, u64)>,
    /// What operators have done so far; makes their versions.
    operated: u8,
    /// When the store restarted last, or a link healed.
    calm_since: u64,
    pub(crate) broken: Option<&'static str>,
    /// What the workers are told before anything else happens: nothing between two steps.
    told: VecDeque<(usize, Input)>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut parts = Renaming::default();
        parts.add(&self.store);
        self.actors.iter().for_each(|actor| parts.add(actor));
        self.flight.iter().for_each(|packet| parts.add(packet));
        let Self { at, faults, wishes, highest, evicted, operated, calm_since, broken, .. } = self;
        (at, faults, wishes, highest, evicted, operated, calm_since, broken).hash(&mut parts);
        parts.finish().hash(state);
    }
}

/// A message under way, from or to this process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Packet {
    pub(crate) who: usize,
    pub(crate) life: u8,
    /// It may take as long as it likes.
    pub(crate) held: bool,
    pub(crate) message: Message,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    ToStore(Trip),
    Answer {
        seq: Seq,
        trip: u8,
        shown: Shown,
        reply: Reply,
    },
    /// A ticket may be free; the record may come with it.
    Hint {
        life: Incarnation,
        record: Option<Box<Found>>,
        after: Duration,
    },
    /// From a guard.
    Ended(LeaseId),
}

impl Packet {
    pub(crate) fn told(&self) -> String {
        match &self.message {
            Message::ToStore(Trip { seq, ask, .. }) => format!("{}, {seq:?}: {ask:?}", self.who),
            Message::Answer { seq, shown, reply, .. } => {
                format!("{}, {seq:?}: {reply:?} by {:?}", self.who, shown.life)
            }
            Message::Hint { after, .. } => format!("{}: a hint to look in {after:?}", self.who),
            Message::Ended(_) => format!("{}: its guard has ended its lease", self.who),
        }
    }
}

impl World {
    pub(crate) fn begin(plan: &Plan) -> Self {
        let actors = (0..plan.workers).map(|who| Shared::new(Actor::new(plan, who, 0, 0, 0)));
        let mut world = Self {
            at: 0,
            store: Shared::new(Store::new(plan)),
            actors: actors.collect(),
            flight: Vec::new(),
            faults: plan.faults,
            wishes: plan.wishes,
            highest: Token(0),
            evicted: Vec::new(),
            operated: 0,
            calm_since: 0,
            broken: None,
            told: VecDeque::new(),
        };
        for who in 0..plan.workers {
            world.enter(plan, who);
            world.work_off(plan);
            while let Some(index) = world.flight.iter().position(|packet| match &packet.message {
                Message::ToStore(Trip { seq, .. }) | Message::Answer { seq, .. } => {
                    plan.begin == Begin::Owned || world.actors[packet.who].opens(*seq)
                }
                _ => true,
            }) {
                world.deliver(plan, index);
                world.work_off(plan);
            }
        }
        let owned = if plan.begin == Begin::Owned { plan.tickets.min(plan.workers) } else { 0 };
        assert_eq!(world.believed().count(), owned, "who owns in the beginning");
        assert_eq!(world.broken, None);
        world
    }

    /// Who believes, and in what.
    pub(crate) fn believed(&self) -> impl Iterator<Item = (usize, Grant)> {
        let actors = self.actors.iter().filter(|actor| !self.is_excused(actor));
        actors.filter_map(|actor| Some((actor.who, actor.believes(self.at)?)))
    }

    /// Whether somebody else believes in the ticket of this ownership, under a later one.
    pub(crate) fn is_succeeded(&self, who: usize, own: Grant) -> bool {
        let later = |heir: Grant| heir.ticket == own.ticket && heir.token > own.token;
        self.believed().any(|(heir, grant)| heir != who && later(grant))
    }

    /// Whether an operator has taken its ownership away, and it could not know that, or does and stops at once.
    fn is_excused(&self, actor: &Actor) -> bool {
        let own = |token: Token| actor.last.is_some_and(|own| own.token == token);
        let Some((_, at)) = self.evicted.iter().find(|(token, _)| own(*token)) else { return false };
        let stops = actor.work.as_ref().is_some_and(|work| work.told == Told::AtOnce);
        stops || actor.worker.trusted_until().is_none_or(|until| until.boot_micros() <= at + TRUST)
    }

    fn fail(&mut self, promise: &'static str) {
        self.broken.get_or_insert(promise);
    }

    fn enter(&mut self, plan: &Plan, who: usize) {
        let tickets = Tickets::new(plan.tickets as u32).expect("a few tickets");
        self.tell(who, Input::Enter(Want { resource: resource(), tickets, priority: 0 }));
    }

    pub(crate) fn tell(&mut self, who: usize, input: Input) {
        self.told.push_back((who, input));
    }

    /// Tells the workers what they are to be told, and does what they want.
    pub(crate) fn work_off(&mut self, plan: &Plan) {
        while let Some((who, input)) = self.told.pop_front() {
            let at = moment(self.at);
            let outputs = self.actors[who].change(|actor| {
                let fresh = actor.fresh();
                actor.worker.handle(Now { at, jitter: 0, fresh }, input);
                let outputs: Vec<Output> = std::iter::from_fn(|| actor.worker.poll()).collect();
                let opens =
                    |output: &Output| matches!(output, Output::Send(request) if request.lease == fresh);
                actor.leases += u8::from(outputs.iter().any(opens));
                outputs
            });
            for output in outputs {
                if let Some(promise) = self.actors[who].change(|actor| actor.carry_out(&output)) {
                    self.fail(promise);
                }
                match output {
                    Output::Send(request) => self.ask(plan, who, request),
                    Output::Start(Ownership { grant, .. }) if !plan.capabilities().together => {
                        self.granted(plan, who, grant);
                    }
                    // A guard was faster.
                    Output::Stop { resource, token, .. } if self.actors[who].work.is_none() => {
                        self.tell(who, Input::Stopped { resource, token });
                    }
                    _ => {}
                }
            }
        }
        self.actors.iter_mut().for_each(Shared::settle);
        self.store.settle();
    }

    fn ask(&mut self, plan: &Plan, who: usize, request: Request) {
        let (at, seq) = (self.at, request.seq);
        self.actors[who].change(|actor| actor.begin(at, request));
        if let Some(trip) = self.go_on(plan, who, seq) {
            self.send(who, Message::ToStore(trip));
        }
    }

    /// Goes on with a request up to its next message to the store. In any order, that is the next commit.
    fn go_on(&mut self, plan: &Plan, who: usize, seq: Seq) -> Option<Trip> {
        loop {
            let at = self.at;
            match self.actors[who].change(|actor| actor.go_on(at, seq))? {
                Next::Nowhere => {
                    self.fail("cost: a request gets nowhere");
                    return None;
                }
                Next::Answer(request, answer) => {
                    self.tell(who, Input::Answered(request, answer));
                    return None;
                }
                Next::Send(trip) if plan.order == Order::Prompt || matches!(trip.ask, Ask::Commit(..)) => {
                    return Some(trip);
                }
                Next::Send(_) if self.actors[who].cut => return None,
                Next::Send(trip) => drop(self.exchange(plan, who, &trip)),
            }
        }
    }

    // ---- messages ----

    /// One of each, with its place.
    pub(crate) fn different_packets(&self) -> impl Iterator<Item = (usize, &Packet)> {
        let all = self.flight.iter().enumerate();
        let first = all.filter(|(index, packet)| *index == 0 || self.flight[index - 1] != **packet);
        first.map(|(index, packet)| (index, &**packet))
    }

    fn send(&mut self, who: usize, message: Message) {
        if !self.actors[who].cut {
            self.put(who, self.actors[who].life, false, message);
        }
    }

    fn put(&mut self, who: usize, life: u8, held: bool, message: Message) {
        let packet = Shared::new(Packet { who, life, held, message });
        let place = self.flight.partition_point(|other| other.key() < packet.key());
        self.flight.insert(place, packet);
    }

    pub(crate) fn listens(&self, who: usize, life: u8) -> bool {
        let actor = &self.actors[who];
        !actor.crashed && !actor.cut && actor.life == life
    }

    pub(crate) fn deliver(&mut self, plan: &Plan, index: usize) {
        let packet = self.flight.remove(index);
        let Packet { who, life, ref message, .. } = *packet;
        match message.clone() {
            Message::ToStore(trip) => match plan.order {
                Order::Any => self.answer(plan, who, life, &trip, false),
                Order::Commits => {
                    if let Some(next) = self.run(plan, (who, life), trip, 1) {
                        self.send(who, Message::ToStore(next));
                    }
                }
                Order::Prompt => drop(self.run(plan, (who, life), trip, usize::MAX)),
            },
            Message::Answer { seq, trip, shown, reply } => {
                if self.actors[who].awaits(seq, trip) {
                    self.hear(who, seq, shown, reply);
                    if let Some(trip) = self.go_on(plan, who, seq) {
                        self.send(who, Message::ToStore(trip));
                    }
                }
            }
            Message::Hint { life, record, after } => {
                let env = env(self.at, (who, 0), Seq(0), 0);
                if let Some(record) = record {
                    self.actors[who].change(|actor| actor.client.told(&env, life, *record));
                }
                self.tell(who, Input::Hinted { resource: resource(), after });
            }
            Message::Ended(lease) => self.tell(who, Input::Ended(lease)),
        }
    }

    /// The store gets a message; its answer is under way.
    fn answer(&mut self, plan: &Plan, who: usize, life: u8, trip: &Trip, held: bool) {
        let reply = self.store_gets(plan, Some(who), &trip.ask);
        if self.listens(who, life) {
            let (seq, trip, shown) = (trip.seq, trip.trip, self.store.shown(self.at));
            self.put(who, life, held, Message::Answer { seq, trip, shown, reply });
        }
    }

    fn hear(&mut self, who: usize, seq: Seq, shown: Shown, reply: Reply) {
        let at = self.at;
        self.actors[who].change(|actor| actor.hear(at, seq, shown, reply));
    }

    /// The store gets a message, and its process the answer. Stops if that is not awaited any more.
    fn exchange(&mut self, plan: &Plan, who: usize, trip: &Trip) -> ControlFlow<()> {
        let reply = self.store_gets(plan, Some(who), &trip.ask);
        if !self.actors[who].awaits(trip.seq, trip.trip) {
            return ControlFlow::Break(());
        }
        self.hear(who, trip.seq, self.store.shown(self.at), reply);
        ControlFlow::Continue(())
    }

    /// Goes on with a request for so many messages. Says which one is next, if there is one.
    fn run(
        &mut self,
        plan: &Plan,
        (who, life): (usize, u8),
        mut trip: Trip,
        messages: usize,
    ) -> Option<Trip> {
        for _ in 0..messages {
            if !self.listens(who, life) {
                drop(self.store_gets(plan, Some(who), &trip.ask));
                return None;
            }
            if self.exchange(plan, who, &trip).is_break() {
                return None;
            }
            trip = self.go_on(plan, who, trip.seq)?;
        }
        Some(trip)
    }

    /// The messages that this request would still send, from this one on, if nothing came between.
    pub(crate) fn messages(&self, plan: &Plan, packet: &Packet) -> Vec<Ask> {
        let Message::ToStore(trip) = &packet.message else { return Vec::new() };
        let mut messages = vec![trip.ask.clone()];
        if plan.order == Order::Prompt {
            let mut world = self.clone();
            let mut run = |trip: Trip| world.run(plan, (packet.who, packet.life), trip, 1);
            let following = std::iter::successors(run(trip.clone()), |trip| run(trip.clone()));
            messages.extend(following.map(|trip| trip.ask));
        }
        messages
    }

    /// A fault of this message, or of the one that follows it after so many others.
    pub(crate) fn disturb(
        &mut self,
        plan: &Plan,
        begin: &Self,
        trouble: Trouble,
        index: usize,
        after: usize,
    ) {
        let packet = self.flight.remove(index);
        let Packet { who, life, held, ref message } = *packet;
        let Message::ToStore(trip) = message.clone() else {
            return self.put(who, life, true, message.clone());
        };
        let Some(trip) = self.run(plan, (who, life), trip, after) else { return };
        let held = held && after == 0;
        match (trouble, &trip.ask) {
            (Trouble::Hold, _) => self.put(who, life, true, Message::ToStore(trip)),
            (Trouble::HoldAnswer, _) => self.answer(plan, who, life, &trip, true),
            (Trouble::Duplicate, _) => {
                self.put(who, life, true, Message::ToStore(trip.clone()));
                match plan.order {
                    Order::Any | Order::Commits => self.put(who, life, held, Message::ToStore(trip)),
                    Order::Prompt => drop(self.run(plan, (who, life), trip, usize::MAX)),
                }
            }
            (Trouble::Refuse, Ask::Commit(_, sendings)) => {
                let reply = Reply::Committed(sendings.iter().map(|_| Fate::Conflict(Vec::new())).collect());
                let (seq, trip, shown) = (trip.seq, trip.trip, self.store.shown(self.at));
                self.put(who, life, false, Message::Answer { seq, trip, shown, reply });
            }
            (Trouble::Half, Ask::Commit(within, sendings)) => {
                let (within, sending) = (*within, sendings[0].clone());
                if matches!(self.half(plan, Some(who), within, &sending), Fate::Done(_)) {
                    let rest = Trip { ask: Ask::Rest(within, sending, 1), ..trip };
                    self.put(who, life, true, Message::ToStore(rest));
                }
            }
            _ => {
                self.put(who, life, held, Message::ToStore(trip));
                self.befall(plan, begin, trouble, who);
            }
        }
    }

    // ---- the store ----

    fn store_gets(&mut self, plan: &Plan, by: Option<usize>, ask: &Ask) -> Reply {
        if let Some(reply) = self.store.look(ask) {
            return reply;
        }
        let at = self.at;
        let (reply, applied) = self.store.change(|store| store.write(at, ask));
        self.applied(plan, by, applied);
        reply
    }

    /// The first record of a change is written, and no other.
    fn half(&mut self, plan: &Plan, by: Option<usize>, life: Incarnation, sending: &Sending) -> Fate {
        let (at, mut applied) = (self.at, Applied::default());
        let fate = self.store.change(|store| store.commit(at, life, sending, 0..1, &mut applied));
        self.applied(plan, by, applied);
        fate
    }

    /// Looks at what changes did, and passes on what they say. `by` is a worker, or somebody else.
    fn applied(&mut self, plan: &Plan, by: Option<usize>, applied: Applied) {
        if applied.revived {
            self.fail("S6: a lease is written that has ended");
        }
        for lease in applied.ended {
            let whose = Actor::of(lease);
            if by.is_some_and(|by| by != whose) && self.actors[whose].trusts(self.at) == Some(lease) {
                self.fail("S3: a lease is ended while its worker trusts it");
            }
        }
        for event in &applied.history {
            if let (HistoryEvent::Granted, Some(by)) = (event.what, by) {
                self.seated(plan, by, event.grant);
                if plan.capabilities().together {
                    self.granted(plan, by, event.grant);
                }
            }
        }
        for signal in applied.signals {
            self.pass_on(by, signal, &applied.written);
        }
        if !plan.capabilities().clock {
            // Without a clock those who wait watch the leases of the owners.
            let (env, life) = (env(self.at, (0, 0), Seq(0), 0), self.store.life());
            for actor in self.actors.iter_mut().filter(|actor| !actor.crashed && !actor.cut) {
                if Some(actor.who) == by
                    || !applied.written.iter().any(|r| actor.client.seen(&r.key).is_some())
                {
                    continue;
                }
                actor.change(|actor| {
                    for found in &applied.written {
                        if actor.client.seen(&found.key).is_some() {
                            actor.client.told(&env, life, found.clone());
                        }
                    }
                });
            }
        }
    }

    fn pass_on(&mut self, by: Option<usize>, signal: Signal, written: &[Found]) {
        let life = self.store.life();
        match signal {
            Signal::Look { to, resource, after } => {
                let listens = |lease: &LeaseId| {
                    let actor = &self.actors[Actor::of(*lease)];
                    (!actor.crashed && !actor.cut && actor.worker.lease() == Some(*lease))
                        .then_some(actor.who)
                };
                if let Some(who) = to.iter().find_map(listens) {
                    let key = Key::Resource(resource);
                    let record = written.iter().find(|found| found.key == key).cloned().map(Box::new);
                    self.send(who, Message::Hint { life, record, after });
                }
            }
            Signal::Ended(lease) => {
                let follows = |actor: &&Shared<Actor>| {
                    let others = Some(actor.who) != by && !actor.crashed;
                    others && actor.client.owners(&resource()).contains(&lease)
                };
                let followers: Vec<usize> =
                    self.actors.iter().filter(follows).map(|actor| actor.who).collect();
                for who in followers {
                    self.send(who, Message::Hint { life, record: None, after: Duration::ZERO });
                }
            }
            Signal::Changed(..) | Signal::Knock(..) | Signal::Message { .. } => {}
        }
    }

    /// Nobody is given what it has said that it does not want. A store that does not compare its lives may do so when
    /// it has fallen back; whoever looks then finds it.
    fn seated(&mut self, plan: &Plan, to: usize, grant: Grant) {
        if self.store.life() != Incarnation(1) && !plan.capabilities().together {
            return;
        }
        let actor = &self.actors[to];
        let left = actor.trusts(self.at).is_some() && !actor.worker.is_campaigning(&resource());
        let own = self.store.seat_under(&resource(), grant.token);
        if left && own == actor.worker.lease() {
            self.fail("S6: a ticket is given to a worker that has left");
        }
    }

    /// By now, whoever had the ticket must have stopped. Where the store cannot compare all that a grant expects, it is
    /// one only when its worker takes it up.
    fn granted(&mut self, plan: &Plan, to: usize, grant: Grant) {
        let crowded = |own: &dyn Fn(&Actor) -> Option<Grant>| {
            let others = self.actors.iter().filter(|actor| actor.who != to && !self.is_excused(actor));
            let owns: Vec<Grant> = others.filter_map(|actor| own(actor)).collect();
            owns.len() >= plan.tickets || owns.iter().any(|own| own.ticket == grant.ticket)
        };
        let broken = if grant.token <= self.highest {
            Some("S2: a token is not above the last")
        } else if crowded(&|actor| actor.believes(self.at)) {
            Some("S1: a ticket is granted while another believes")
        } else if crowded(&Actor::works) {
            Some("S3: a ticket is granted while another works")
        } else {
            None
        };
        self.highest = grant.token;
        if let Some(promise) = broken {
            self.fail(promise);
        }
    }

    // ---- wishes ----

    pub(crate) fn wish(&mut self, plan: &Plan, wish: Wish, who: usize) {
        self.wishes -= 1;
        match wish {
            Wish::StepDown => {
                let at = self.at;
                self.actors[who].change(|actor| actor.stepped_down = actor.believes(at));
                self.tell(who, Input::StepDown(resource()));
            }
            Wish::Leave => self.tell(who, Input::Leave(resource())),
            Wish::Shutdown => self.tell(who, Input::Shutdown),
            Wish::Evict | Wish::EvictHalf => {
                if let Some(Grant { token, .. }) = self.actors[who].believes(self.at) {
                    self.evicted.push((token, self.at));
                    self.operate(plan, Act::Evict(resource(), token), wish == Wish::EvictHalf);
                }
            }
        }
    }

    /// Somebody who knows nothing of the store does something, in one go or up to the first record that it writes.
    fn operate(&mut self, plan: &Plan, act: Act, half: bool) {
        self.operated += 1;
        let (at, by, seq) = (self.at, (plan.workers, 0), Seq(self.operated.into()));
        let mut client = Client::new(plan.capabilities()).with_planted(plan.planted());
        let mut operation = client.begin(&env(at, by, seq, 0), act);
        loop {
            let env = env(at, by, seq, operation.attempts().0);
            let ask = match client.step(&env, &mut operation) {
                Step::Done(_) => return,
                Step::Wait(_) => continue,
                Step::Read(keys) => Ask::Read(keys),
                Step::LostNothing(_) => Ask::LostNothing,
                Step::List => Ask::List,
                Step::Commit(life, sendings) if half && sendings[0].change.put.len() > 1 => {
                    drop(self.half(plan, None, life, &sendings[0]));
                    return;
                }
                Step::Commit(life, sendings) => Ask::Commit(life, sendings),
            };
            let reply = self.store_gets(plan, None, &ask);
            let shown = self.store.shown(at);
            match reply {
                Reply::Read(found) => client.read(&env, &mut operation, shown, found),
                Reply::Committed(fates) => client.committed(&env, &mut operation, shown, fates),
                Reply::LostNothing(lost) => client.lost_nothing(&mut operation, lost),
                Reply::Listed(names) => client.listed(&mut operation, names),
            }
        }
    }

    // ---- trouble ----

    /// What happens to a worker, or to the store.
    pub(crate) fn befall(&mut self, plan: &Plan, begin: &Self, trouble: Trouble, who: usize) {
        match trouble {
            Trouble::Crash => self.crash(plan, who),
            Trouble::Cut => {
                self.actors[who].change(|actor| actor.cut = true);
                self.flight.retain(|packet| packet.who != who);
            }
            Trouble::Guard => self.guard(plan, who),
            Trouble::LoseAll | Trouble::FallBack | Trouble::Restart => self.restart(plan, begin, trouble),
            Trouble::StepForward => self.store.change(|store| store.step(2)),
            Trouble::StepBack => self.store.change(|store| store.step(-2)),
            Trouble::Duplicate | Trouble::Hold | Trouble::HoldAnswer | Trouble::Refuse | Trouble::Half => {}
        }
    }

    fn restart(&mut self, plan: &Plan, begin: &Self, how: Trouble) {
        self.note_end_of_calm(plan);
        self.store.change(|store| match how {
            Trouble::LoseAll => store.lose_all(),
            Trouble::FallBack => store.fall_back(&begin.store),
            _ => store.restart(),
        });
    }

    pub(crate) fn heal(&mut self, plan: &Plan, who: usize) {
        self.note_end_of_calm(plan);
        self.actors[who].change(|actor| actor.cut = false);
    }

    /// Only those who may leave are looked at by it, so it tells no other states apart.
    fn note_end_of_calm(&mut self, plan: &Plan) {
        if plan.wish.contains(&Wish::Leave) {
            self.calm_since = self.at;
        }
    }

    fn crash(&mut self, plan: &Plan, who: usize) {
        let Actor { life, leases, last, stepped_down, .. } = *self.actors[who];
        // Nothing of it is left, so two that died are the same.
        let dead = Actor::new(plan, who, life, leases, 0);
        self.actors[who] = Shared::new(Actor { crashed: true, last, stepped_down, ..dead });
        // What it asked may still arrive.
        self.flight.retain(|packet| packet.who != who || matches!(packet.message, Message::ToStore(_)));
    }

    pub(crate) fn come_back(&mut self, plan: &Plan, who: usize) {
        let Actor { life, leases, last, .. } = *self.actors[who];
        let actor = Actor::new(plan, who, life + 1, leases, self.at);
        self.actors[who] = Shared::new(Actor { last, ..actor });
        self.enter(plan, who);
    }

    fn guard(&mut self, plan: &Plan, who: usize) {
        let Some(lease) = self.actors[who].trusts(self.at) else { return };
        self.actors[who].change(|actor| (actor.guarded, actor.work) = (Some(lease), None));
        self.operate(plan, Act::Prove(lease), false);
        self.put(who, self.actors[who].life, false, Message::Ended(lease));
    }

    // ---- time ----

    /// The next point in time, if it may come.
    pub(crate) fn next_at(&self, plan: &Plan) -> Option<u64> {
        let hurries = |actor: &Actor| actor.work.as_ref().is_some_and(|work| work.told == Told::AtOnce);
        let acts = self.actors.iter().any(|actor| actor.is_due(self.at) || hurries(actor));
        if acts || self.flight.iter().any(|packet| !packet.held) {
            return None;
        }
        let quantum = (self.at / QUANTUM + 1) * QUANTUM;
        let next = self.actors.iter().filter_map(|actor| self.stops_at(actor)).fold(quantum, u64::min);
        (next <= plan.horizon * QUANTUM).then_some(next)
    }

    /// When work is told to stop, it is told in time, not a quantum later.
    fn stops_at(&self, actor: &Actor) -> Option<u64> {
        let Work { lease, .. } = actor.work.as_ref()?;
        if *lease != actor.worker.lease() {
            return actor.wakes_at(self.at);
        }
        actor.worker.trusted_until().map(Moment::boot_micros).filter(|until| *until > self.at)
    }

    /// Whoever has left, and has had the time to look what a restarted store thinks, holds nothing.
    pub(crate) fn look_for_leftovers(&mut self, plan: &Plan) {
        let settled = self.at >= self.calm_since + 4 * plan.renew * QUANTUM;
        let left = |actor: &&Shared<Actor>| {
            let at_rest = !actor.cut && self.flight.iter().all(|packet| packet.who != actor.who);
            at_rest && !actor.worker.is_campaigning(&resource())
        };
        let mut gone = self.actors.iter().filter(left).filter_map(|actor| actor.trusts(self.at));
        if settled && gone.any(|lease| self.store.has_seat(&resource(), lease)) {
            self.fail("L1: a ticket stays with a worker that has left");
        }
    }

    pub(crate) fn tick_all(&mut self) {
        for who in 0..self.actors.len() {
            if self.actors[who].is_due(self.at) {
                self.tell(who, Input::Tick);
            }
        }
    }
}

/// For how long a renewal is relied on, in microseconds: a ttl less a drift and a margin of a hundredth each.
const TRUST: u64 = QUANTUM * 6 * 98 / 100;
