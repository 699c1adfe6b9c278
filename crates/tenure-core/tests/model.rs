//! The smallest cases, exhaustively: every order of events that a few workers, a store and a bounded number
//! of faults can come to. It drives the very `Ledger` and `Worker` that are shipped; what the simulation
//! finds by chance in long runs, this finds by completeness in short ones. // req: H10
//!
//! What is looked at: S1 (at most K believe, no two in one ticket, in every state and again when the store
//! grants), S2 (tokens increase over every grant), S3 (nobody works on a ticket that the store grants to
//! another), S5 (work has ended before its ticket is released or its lease closed), S6 (no ownership is taken
//! up twice), L4 (no work starts beside the old one). That a take-over and a hand-over *can* be reached is
//! checked as well, so that the promises are not kept by idleness.
//!
//! What makes it finite, and what is therefore not seen here:
//! - Time stands still while things happen and then goes on by a quantum, a sixth of the ttl (or to a hard
//!   stop that is due before), up to a horizon a little beyond one ttl. What is due between two quanta is done
//!   at the second.
//! - It begins with open leases: the tickets are owned, in order of the workers, and the last worker waits.
//!   All leases were opened at the same time, so that their renewals meet.
//! - All clocks run at one rate and nobody draws jitter. Drift, suspend and steps of the store's clock are
//!   left to the simulation.
//! - A message arrives within the quantum in which it was sent, unless a fault holds it up; then it arrives
//!   at any later time, or never: so a loss is a fault of that kind, too.
//! - [`Order::Any`] delivers requests, answers, hints and wake-ups in every order. [`Order::Prompt`] is for
//!   the larger cases: a worker does what is due as soon as time goes on, and a request and its answer are
//!   one step; only a fault, out of the bounded number, comes between them.
//! - A store that falls back falls back to its data as of the beginning. A link that is cut loses what is
//!   under way.
//! - Work that was told to stop at once does so before time goes on, which is what the margin is for; work
//!   that was told gently takes as long as it likes. Work does not end by itself.
//! - The only wish is a step-down: nobody leaves, asks or evicts.
//! - A state is remembered by a hash of 64 bits: two that share one would be taken for one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Path, Property};
use tenure_core::oracle::{Here, Ledger};
use tenure_core::*;

// ---- the cases -------------------------------------------------------------------------------------------

#[test]
fn any_two_faults_among_three_workers_and_two_tickets_break_no_promise() {
    let plan = Plan { faults: 2, horizon: in_release_else(7, 4), ..Plan::THREE };

    check(&plan, &[TAKEN_OVER][..in_release_else(1, 0)]);
}

#[test]
fn no_promise_is_broken_by_any_fault_around_a_hand_over_among_three_workers() {
    let plan = Plan { faults: 1, wishes: 1, horizon: in_release_else(5, 4), ..Plan::THREE };

    check(&plan, &[HANDED_OVER]);
}

#[test]
fn no_promise_is_broken_by_any_fault_in_any_order_of_messages_among_three_workers() {
    let plan = Plan { faults: 1, horizon: 8, order: Order::Any, ..Plan::THREE };

    check(&plan, &[TAKEN_OVER]);
}

#[test]
fn no_promise_is_broken_by_two_bad_messages_or_crashes_in_any_order_between_two_workers() {
    let troubles = &[Trouble::Duplicate, Trouble::Hold, Trouble::Crash];
    let horizon = in_release_else(6, 4);
    let plan = Plan { faults: 2, troubles, horizon, order: Order::Any, ..Plan::TWO };

    check(&plan, &[TAKEN_OVER][..in_release_else(1, 0)]);
}

#[test]
fn no_promise_is_broken_by_a_store_that_restarts_around_a_hand_over_in_any_order() {
    let (faults, wishes, horizon) = (1, 1, 8);
    let troubles = &Trouble::OF_THE_STORE;
    let plan = Plan { faults, troubles, wishes, horizon, order: Order::Any, ..Plan::TWO };

    check(&plan, &[HANDED_OVER]);
}

#[test]
fn no_promise_is_broken_by_a_bad_message_or_a_crash_around_a_hand_over_in_any_order() {
    let (faults, wishes, horizon) = (1, 1, in_release_else(5, 4));
    let troubles = &[Trouble::Duplicate, Trouble::Hold, Trouble::Crash];
    let plan = Plan { faults, troubles, wishes, horizon, order: Order::Any, ..Plan::TWO };

    check(&plan, &[HANDED_OVER]);
}

#[test]
fn an_owner_that_believes_for_too_long_is_found() {
    let bug = Some(Bug::BelieveTooLong);
    let plan = Plan { faults: 1, horizon: 7, troubles: &[Trouble::Cut], bug, ..Plan::THREE };

    assert_found(&plan);
}

#[test]
fn a_release_before_the_work_has_ended_is_found() {
    let bug = Some(Bug::ReleaseBeforeStop);
    let plan = Plan { wishes: 1, horizon: 1, bug, ..Plan::THREE };

    assert_found(&plan);
}

#[test]
fn a_store_that_lost_its_data_and_grants_at_once_is_found() {
    let bug = Some(Bug::QuarantineOff);
    let troubles = &[Trouble::Crash, Trouble::LoseAll];
    let plan = Plan { faults: 2, horizon: 1, troubles, bug, ..Plan::THREE };

    assert_found(&plan);
}

/// Without optimization the larger cases stop earlier, so that `cargo test` stays bearable.
fn in_release_else<T>(release: T, debug: T) -> T {
    if cfg!(debug_assertions) { debug } else { release }
}

/// Looks at every state that the plan allows.
fn check(plan: &Plan, reachable: &[&'static str]) {
    let checker = Small::new(plan).checker().threads(2).spawn_bfs().join();

    let Plan { workers, tickets, faults, wishes, horizon, order, .. } = plan;
    let (unique, depth) = (checker.unique_state_count(), checker.max_depth());
    println!(
        "workers: {workers}, tickets: {tickets}, faults: {faults}, wishes: {wishes}, quanta: {horizon}, \
         order: {order:?}; {unique} states, {depth} steps deep"
    );
    for promise in [APART, KEPT] {
        if let Some(path) = checker.discovery(promise) {
            panic!("not {promise}:\n{}", told(path));
        }
    }
    for possible in reachable {
        assert!(checker.discovery(possible).is_some(), "never {possible}");
    }
}

/// Looks until a promise is broken.
fn assert_found(plan: &Plan) {
    let checker =
        Small::new(plan).checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();

    let path = checker.discovery(APART).or_else(|| checker.discovery(KEPT)).expect("a broken promise");
    println!("{:?} is found after {} states\n{}", plan.bug, checker.unique_state_count(), told(path));
}

/// One configuration: who takes part, what may go wrong, and for how long it is looked at.
#[derive(Clone, Debug)]
struct Plan {
    workers: usize,
    tickets: usize,
    /// How many faults there may be, of which kinds.
    faults: u8,
    troubles: &'static [Trouble],
    /// How many times a user may ask an owner to step down.
    wishes: u8,
    /// After how many quanta time stops.
    horizon: u64,
    order: Order,
    /// What is planted.
    bug: Option<Bug>,
}

impl Plan {
    const THREE: Self = Self {
        workers: 3,
        tickets: 2,
        faults: 0,
        troubles: &Trouble::ALL,
        wishes: 0,
        horizon: 0,
        order: Order::Prompt,
        bug: None,
    };
    const TWO: Self = Self { workers: 2, tickets: 1, ..Self::THREE };

    fn planted(&self) -> Planted {
        self.bug.map_or_else(Planted::default, Planted::with)
    }
}

/// How much of the order of events is left open; the head of this file says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Any,
    Prompt,
}

/// What can go wrong. Each time is one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// A message arrives twice, the second time whenever it likes.
    Duplicate,
    /// A message takes as long as it likes. One that takes for ever is lost.
    Hold,
    /// A process dies, and its work with it. Another one under the same label may come at any time.
    Crash,
    /// Nothing passes between a worker and the store, until the link heals at any time.
    Cut,
    /// The store restarts without its data.
    LoseAll,
    /// The store restarts with its data as they were in the beginning.
    FallBack,
    /// The store restarts with all of its data.
    Restart,
}

impl Trouble {
    const ALL: [Self; 7] =
        [Self::Duplicate, Self::Hold, Self::Crash, Self::Cut, Self::LoseAll, Self::FallBack, Self::Restart];
    const OF_MESSAGES: [Self; 2] = [Self::Duplicate, Self::Hold];
    const OF_WORKERS: [Self; 2] = [Self::Crash, Self::Cut];
    const OF_THE_STORE: [Self; 3] = [Self::LoseAll, Self::FallBack, Self::Restart];
}

// ---- the model -------------------------------------------------------------------------------------------

const APART: &str = "at most K believe, each in a ticket of its own";
const KEPT: &str = "no promise is broken on the way";
const TAKEN_OVER: &str = "the ticket of a crashed worker is taken over";
const HANDED_OVER: &str = "a ticket is handed over";

#[derive(Debug)]
struct Small {
    plan: Plan,
    begin: World,
}

/// What can happen next. A number is that of a worker, or of a message under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Deliver(usize),
    /// A fault of this message.
    Message(Trouble, usize),
    /// This message, a request, is delivered; the fault is of its answer.
    Answer(Trouble, usize),
    Worker(Trouble, usize),
    Store(Trouble),
    /// Another process takes the place of one that died.
    Return(usize),
    Heal(usize),
    /// Work that was told to stop has ended.
    WorkEnds(usize),
    StepDown(usize),
    Tick(usize),
    TimeGoesOn,
}

impl Small {
    fn new(plan: &Plan) -> Self {
        Self { plan: plan.clone(), begin: World::begin(plan) }
    }

    fn add_faults(&self, world: &World, actions: &mut Vec<Action>) {
        let may = |trouble: &Trouble| self.plan.troubles.contains(trouble);
        for (index, packet) in world.different_packets() {
            for trouble in Trouble::OF_MESSAGES.into_iter().filter(may) {
                if !(packet.held && trouble == Trouble::Hold) {
                    actions.push(Action::Message(trouble, index));
                }
                if self.plan.order == Order::Prompt && world.awaits_answer(packet) {
                    actions.push(Action::Answer(trouble, index));
                }
            }
        }
        for (who, actor) in world.actors.iter().enumerate().filter(|(_, actor)| !actor.crashed) {
            let troubles = Trouble::OF_WORKERS.into_iter().filter(may);
            let possible = troubles.filter(|trouble| !(actor.cut && *trouble == Trouble::Cut));
            actions.extend(possible.map(|trouble| Action::Worker(trouble, who)));
        }
        actions.extend(Trouble::OF_THE_STORE.into_iter().filter(may).map(Action::Store));
    }
}

impl Model for Small {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.begin.clone()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        actions.extend(world.different_packets().map(|(index, _)| Action::Deliver(index)));
        for (who, actor) in world.actors.iter().enumerate() {
            if actor.crashed {
                actions.push(Action::Return(who));
                continue;
            }
            if actor.work.as_ref().is_some_and(|work| work.told != Told::Nothing) {
                actions.push(Action::WorkEnds(who));
            }
            if world.wishes > 0 && actor.believes(world.at).is_some() {
                actions.push(Action::StepDown(who));
            }
            if actor.is_due(world.at) {
                actions.push(Action::Tick(who));
            }
            if actor.cut {
                actions.push(Action::Heal(who));
            }
        }
        if world.faults > 0 {
            self.add_faults(world, actions);
        }
        if world.next_at(&self.plan).is_some() {
            actions.push(Action::TimeGoesOn);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let plan = &self.plan;
        let mut world = last.clone();
        match action {
            Action::Deliver(index) => world.deliver(plan, index),
            Action::Message(trouble, index) => world.disturb(trouble, index),
            Action::Answer(trouble, index) => world.deliver_and_disturb(plan, trouble, index),
            Action::Worker(Trouble::Cut, who) => world.cut(who),
            Action::Worker(_, who) => world.crash(who),
            Action::Store(how) => world.restart(self, how),
            Action::Return(who) => world.come_back(plan, who),
            Action::Heal(who) => world.actors[who].change(|actor| actor.cut = false),
            Action::WorkEnds(who) => {
                let Work { grant, .. } = world.actors[who].change(|actor| actor.work.take())?;
                world.tell(who, Input::Stopped { resource: resource(), token: grant.token });
            }
            Action::StepDown(who) => {
                world.wishes -= 1;
                world.actors[who].change(|actor| actor.stepped_down = actor.believes(last.at));
                world.tell(who, Input::StepDown(resource()));
            }
            Action::Tick(who) => world.tell(who, Input::Tick),
            Action::TimeGoesOn => {
                world.at = world.next_at(plan)?;
                if plan.order == Order::Prompt {
                    world.tick_all();
                }
            }
        }
        if let Action::Message(..) | Action::Answer(..) | Action::Worker(..) | Action::Store(_) = action {
            world.faults -= 1;
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(APART, |model: &Self, world: &World| {
                let mut tickets: Vec<Ticket> = world.believed().map(|grant| grant.ticket).collect();
                tickets.sort_unstable();
                tickets.len() <= model.plan.tickets && tickets.windows(2).all(|two| two[0] != two[1])
            }),
            Property::always(KEPT, |_, world: &World| world.broken.is_none()),
            Property::sometimes(TAKEN_OVER, |_, world: &World| {
                let dead = world.actors.iter().filter(|actor| actor.crashed);
                world.is_succeeded(dead.filter_map(|actor| actor.last))
            }),
            Property::sometimes(HANDED_OVER, |_, world: &World| {
                world.is_succeeded(world.actors.iter().filter_map(|actor| actor.stepped_down))
            }),
        ]
    }
}

/// What led to a state, in words.
fn told(path: Path<World, Action>) -> String {
    let broken = path.last_state().broken.unwrap_or(APART);
    let lines = path.into_vec().into_iter().filter_map(|(world, action)| {
        let action = action?;
        let about = match action {
            Action::Deliver(index) | Action::Message(_, index) | Action::Answer(_, index) => {
                world.flight[index].told()
            }
            _ => String::new(),
        };
        let beliefs = world.actors.iter().map(|actor| actor.believes(world.at));
        let beliefs: Vec<_> = beliefs.map(|own| own.map(|own| (own.ticket.0, own.token.0))).collect();
        Some(format!("{:>4} ms {beliefs:?} {action:?} {about}\n", world.at / 1000))
    });
    lines.chain([broken.to_owned()]).collect()
}

// ---- the state -------------------------------------------------------------------------------------------

/// In microseconds, a sixth of the ttl. At 600 ms, a step in the queue is one quantum, too.
const QUANTUM: u64 = 100_000;
const TTL: Duration = Duration::from_micros(6 * QUANTUM);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// In microseconds since the beginning.
    at: u64,
    ledger: Shared<Ledger>,
    incarnation: u128,
    actors: Vec<Shared<Actor>>,
    /// A multiset: ordered by key, so equal ones stand beside each other and equal sets are equal.
    flight: Vec<Packet>,
    /// How many there may still be.
    faults: u8,
    wishes: u8,
    highest: Token,
    broken: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Actor {
    worker: Worker,
    /// The how-manieth process under this label.
    life: u8,
    /// How many leases were asked for under this label; makes their ids.
    leases: u8,
    crashed: bool,
    cut: bool,
    work: Option<Work>,
    /// The last ownership that was taken up under this label.
    last: Option<Grant>,
    /// The last ownership that a user asked to give up.
    stepped_down: Option<Grant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Work {
    grant: Grant,
    lease: Option<LeaseId>,
    told: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Told {
    Nothing,
    Gently,
    AtOnce,
}

/// A message under way, from or to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    key: u64,
    who: usize,
    life: u8,
    /// It may take as long as it likes.
    held: bool,
    message: Arc<Message>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Message {
    ToStore(Request),
    ToWorker(Input),
}

/// A part of a state, shared by all states that have it in common, and hashed once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shared<T> {
    key: u64,
    part: Arc<T>,
}

impl<T: Clone + Hash> Shared<T> {
    fn new(part: T) -> Self {
        Self { key: key(&part), part: Arc::new(part) }
    }

    fn change<R>(&mut self, by: impl FnOnce(&mut T) -> R) -> R {
        let part = Arc::make_mut(&mut self.part);
        let result = by(part);
        self.key = key(part);
        result
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.part
    }
}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl Hash for Packet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

fn key(it: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    it.hash(&mut hasher);
    hasher.finish()
}

fn resource() -> ResourceName {
    ResourceName::new("r").expect("a name")
}

fn moment(at: u64) -> Moment {
    Moment::new(Duration::from_micros(at), Duration::from_micros(at))
}

impl Packet {
    fn new(who: usize, life: u8, held: bool, message: Arc<Message>) -> Self {
        Self { key: key(&(who, life, held, &message)), who, life, held, message }
    }

    fn told(&self) -> String {
        match &*self.message {
            Message::ToStore(Request { seq, call, .. }) => format!("{}, {seq:?}: {call:?}", self.who),
            Message::ToWorker(Input::Answered(Request { seq, .. }, Answer { stamp, said })) => {
                format!("{}, {seq:?}: {said:?} by {:?}", self.who, stamp.incarnation)
            }
            Message::ToWorker(input) => format!("{}: {input:?}", self.who),
        }
    }
}

// ---- workers and their work ------------------------------------------------------------------------------

impl Actor {
    fn new(who: usize, life: u8, leases: u8, at: u64, planted: Planted) -> Self {
        let label = Label::new(&format!("w{who}")).expect("a label");
        let timing = Timing::new(TTL).expect("a sound timing");
        let worker = Worker::new(timing, label, Metadata::default(), moment(at)).with_planted(planted);
        let (crashed, cut) = (false, false);
        Self { worker, life, leases, crashed, cut, work: None, last: None, stepped_down: None }
    }

    /// What `holds()` would say.
    fn believes(&self, at: u64) -> Option<Grant> {
        let until = self.worker.trusted_until().filter(|_| !self.crashed)?;
        let owned = self.worker.owned().map(|(_, grant)| grant).next();
        owned.filter(|_| !moment(at).has_reached(until))
    }

    fn works(&self) -> Option<Grant> {
        self.work.as_ref().map(|work| work.grant)
    }

    /// When it wants to be woken, at the latest.
    fn wakes_at(&self, at: u64) -> Option<u64> {
        let span = self.worker.sleep(moment(at)).filter(|_| !self.crashed)?;
        Some(at + span.as_micros() as u64)
    }

    fn is_due(&self, at: u64) -> bool {
        self.wakes_at(at) == Some(at)
    }

    /// Carries out what does not concern the store. Says which promise that breaks.
    fn carry_out(&mut self, output: &Output) -> Option<&'static str> {
        match output {
            Output::Send(Request { call: Call::Release(_), .. }) if self.work.is_some() => {
                return Some("S5: a ticket is released while its work runs");
            }
            Output::Send(Request { call: Call::Close(_), lease, .. })
                if self.work.as_ref().is_some_and(|work| work.lease == Some(*lease)) =>
            {
                return Some("S5: a lease is closed while work runs under it");
            }
            Output::Start(Ownership { grant, .. }) => {
                let work = Work { grant: *grant, lease: self.worker.lease(), told: Told::Nothing };
                let before = self.last.replace(*grant);
                if self.work.replace(work).is_some() {
                    return Some("L4: work starts while the old work runs");
                } else if before.is_some_and(|before| grant.token <= before.token) {
                    return Some("S6: an ownership is taken up again");
                }
            }
            Output::Stop { token, ending, .. } => {
                self.stop(*token, if ending.is_gentle() { Told::Gently } else { Told::AtOnce });
            }
            Output::StopHard { token, .. } => self.stop(*token, Told::AtOnce),
            _ => {}
        }
        None
    }

    fn stop(&mut self, token: Token, told: Told) {
        if let Some(work) = self.work.as_mut().filter(|work| work.grant.token == token) {
            work.told = told;
        }
    }
}

// ---- what happens ----------------------------------------------------------------------------------------

impl World {
    /// The leases are open, the tickets owned in order of the workers, and whoever is left waits.
    fn begin(plan: &Plan) -> Self {
        let ledger = Ledger::new(Incarnation(1)).with_history(0).with_planted(plan.planted());
        let actors = (0..plan.workers).map(|who| Shared::new(Actor::new(who, 0, 0, 0, plan.planted())));
        let mut world = Self {
            at: 0,
            ledger: Shared::new(ledger),
            incarnation: 1,
            actors: actors.collect(),
            flight: Vec::new(),
            faults: plan.faults,
            wishes: plan.wishes,
            highest: Token(0),
            broken: None,
        };
        for who in 0..plan.workers {
            world.enter(plan, who);
            while !world.flight.is_empty() {
                world.deliver(plan, 0);
            }
        }
        assert_eq!(world.believed().count(), plan.tickets, "the tickets are owned in the beginning");
        world
    }

    fn believed(&self) -> impl Iterator<Item = Grant> {
        self.actors.iter().filter_map(|actor| actor.believes(self.at))
    }

    /// Whether somebody believes in the ticket of one of these ownerships, under a later one.
    fn is_succeeded(&self, mut owns: impl Iterator<Item = Grant>) -> bool {
        owns.any(|own| self.believed().any(|heir| heir.ticket == own.ticket && heir.token > own.token))
    }

    fn fail(&mut self, promise: &'static str) {
        self.broken.get_or_insert(promise);
    }

    fn enter(&mut self, plan: &Plan, who: usize) {
        let tickets = Tickets::new(plan.tickets as u32).expect("a few tickets");
        self.tell(who, Input::Enter(Want { resource: resource(), tickets, priority: 0 }));
    }

    fn tell(&mut self, who: usize, input: Input) {
        let at = moment(self.at);
        let (requests, broken) = self.actors[who].change(|actor| {
            let fresh = LeaseId((who as u128 + 1) << 8 | u128::from(actor.leases));
            actor.worker.handle(Now { at, jitter: 0, fresh }, input);
            let (mut requests, mut broken) = (Vec::new(), None);
            while let Some(output) = actor.worker.poll() {
                let breaks = actor.carry_out(&output);
                broken = broken.or(breaks);
                if let Output::Send(request) = output {
                    actor.leases += u8::from(request.lease == fresh);
                    requests.push(request);
                }
            }
            (requests, broken)
        });
        if let Some(promise) = broken {
            self.fail(promise);
        }
        let life = self.actors[who].life;
        for request in requests {
            self.send(who, life, Message::ToStore(request));
        }
    }

    // ---- messages ----

    /// One of each, with its place.
    fn different_packets(&self) -> impl Iterator<Item = (usize, &Packet)> {
        let all = self.flight.iter().enumerate();
        all.filter(|(index, packet)| *index == 0 || self.flight[index - 1] != **packet)
    }

    fn send(&mut self, who: usize, life: u8, message: Message) {
        if !self.actors[who].cut {
            self.put(Packet::new(who, life, false, Arc::new(message)));
        }
    }

    fn put(&mut self, packet: Packet) {
        let place = self.flight.partition_point(|other| other.key < packet.key);
        self.flight.insert(place, packet);
    }

    fn disturb(&mut self, trouble: Trouble, index: usize) {
        let Packet { who, life, held, message, .. } = self.flight.remove(index);
        if trouble == Trouble::Duplicate {
            self.put(Packet::new(who, life, held, message.clone()));
        }
        self.put(Packet::new(who, life, true, message));
    }

    /// Whether it is a request that can still be answered.
    fn awaits_answer(&self, packet: &Packet) -> bool {
        matches!(*packet.message, Message::ToStore(_)) && self.listens(packet.who, packet.life)
    }

    fn listens(&self, who: usize, life: u8) -> bool {
        let actor = &self.actors[who];
        !actor.crashed && !actor.cut && actor.life == life
    }

    fn deliver(&mut self, plan: &Plan, index: usize) {
        let Packet { who, life, message, .. } = self.flight.remove(index);
        match &*message {
            Message::ToWorker(input) => self.tell(who, input.clone()),
            Message::ToStore(request) => {
                let answer = self.apply(plan, who, request);
                match plan.order {
                    _ if !self.listens(who, life) => {}
                    Order::Any => self.send(who, life, Message::ToWorker(answer)),
                    Order::Prompt => self.tell(who, answer),
                }
            }
        }
    }

    fn deliver_and_disturb(&mut self, plan: &Plan, trouble: Trouble, index: usize) {
        let Packet { who, life, message, .. } = self.flight.remove(index);
        let Message::ToStore(request) = &*message else { return };
        let answer = self.apply(plan, who, request);
        let late = Message::ToWorker(answer.clone());
        self.put(Packet::new(who, life, true, Arc::new(late)));
        if trouble == Trouble::Duplicate {
            self.tell(who, answer);
        }
    }

    // ---- the store ----

    fn apply(&mut self, plan: &Plan, who: usize, request: &Request) -> Input {
        // Apart from the workers' clocks, so that one cannot be mistaken for the other.
        let now = 7_000_000 + self.at;
        let here = Here::new(StoreTime::from_micros(now), now, Incarnation(self.incarnation));
        let here = here.expect("a sane wall clock");
        let before = self.ledger.clone();
        let (answer, hints) = self.ledger.change(|ledger| (ledger.apply(here, request), ledger.take_hints()));
        let claimed = match &answer.said {
            Said::Claimed(claimed) => claimed.first(),
            Said::Released(released) => match released.first() {
                Some(Released::Again(claimed)) => Some(claimed),
                _ => None,
            },
            _ => None,
        };
        if let Some(Claimed::Granted(grant)) = claimed
            && before.owner_of("r", grant.token) != Some(request.lease)
        {
            self.granted(plan, who, *grant);
        }
        for Hint { lease, resource, after } in hints {
            let waiter = self.actors.iter().position(|actor| actor.worker.lease() == Some(lease));
            if let Some((waiter, life)) = waiter.map(|waiter| (waiter, self.actors[waiter].life))
                && self.listens(waiter, life)
            {
                self.send(waiter, life, Message::ToWorker(Input::Hinted { resource, after }));
            }
        }
        Input::Answered(request.clone(), answer)
    }

    /// By now, whoever had the ticket must have stopped.
    fn granted(&mut self, plan: &Plan, to: usize, grant: Grant) {
        let crowded = |own: &dyn Fn(&Actor) -> Option<Grant>| {
            let others = self.actors.iter().enumerate().filter(|(who, _)| *who != to);
            let owns: Vec<Grant> = others.filter_map(|(_, actor)| own(actor)).collect();
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

    // ---- trouble ----

    fn crash(&mut self, who: usize) {
        self.actors[who].change(|actor| (actor.crashed, actor.work) = (true, None));
        // What it asked may still arrive.
        self.flight.retain(|packet| packet.who != who || matches!(*packet.message, Message::ToStore(_)));
    }

    fn come_back(&mut self, plan: &Plan, who: usize) {
        let Actor { life, leases, last, .. } = *self.actors[who];
        let actor = Actor::new(who, life + 1, leases, self.at, plan.planted());
        self.actors[who] = Shared::new(Actor { last, ..actor });
        self.enter(plan, who);
    }

    fn cut(&mut self, who: usize) {
        self.actors[who].change(|actor| actor.cut = true);
        self.flight.retain(|packet| packet.who != who);
    }

    fn restart(&mut self, model: &Small, how: Trouble) {
        self.incarnation += 1;
        match how {
            Trouble::LoseAll => {
                let ledger = Ledger::bereft().with_history(0).with_planted(model.plan.planted());
                self.ledger = Shared::new(ledger);
            }
            Trouble::FallBack => self.ledger = model.begin.ledger.clone(),
            _ => {}
        }
    }

    // ---- time ----

    /// The next point in time, if it may come.
    fn next_at(&self, plan: &Plan) -> Option<u64> {
        let hurries = |actor: &Actor| actor.work.as_ref().is_some_and(|work| work.told == Told::AtOnce);
        let acts = self.actors.iter().any(|actor| actor.is_due(self.at) || hurries(actor));
        if acts || self.flight.iter().any(|packet| !packet.held) {
            return None;
        }
        // Work that winds down while its lease is lost gets its hard stop in time, not a quantum later.
        let lost = |work: &Work, actor: &Actor| work.lease != actor.worker.lease();
        let winding = self.actors.iter().filter(|a| a.work.as_ref().is_some_and(|work| lost(work, a)));
        let quantum = (self.at / QUANTUM + 1) * QUANTUM;
        let next = winding.filter_map(|actor| actor.wakes_at(self.at)).fold(quantum, u64::min);
        (next <= plan.horizon * QUANTUM).then_some(next)
    }

    fn tick_all(&mut self) {
        for who in 0..self.actors.len() {
            if self.actors[who].is_due(self.at) {
                self.tell(who, Input::Tick);
            }
        }
    }
}
