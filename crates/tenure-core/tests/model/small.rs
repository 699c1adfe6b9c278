//! The model as stateright sees it: what can happen next, what it leads to, what must hold.

use stateright::{Model, Path, Property};
use tenure_core::{Input, Ticket};

use crate::actor::{Told, Work, resource};
use crate::plan::{Order, Plan, Trouble, Warnings, Wish};
use crate::store::Ask;
use crate::world::{Message, Packet, World};

pub(crate) const APART: &str = "at most K believe, each in a ticket of its own";
pub(crate) const KEPT: &str = "no promise is broken on the way";
pub(crate) const TAKEN_OVER: &str = "the ticket of a crashed worker is taken over";
pub(crate) const HANDED_OVER: &str = "a ticket is handed over";

#[derive(Debug)]
pub(crate) struct Small {
    plan: Plan,
    begin: World,
}

/// What can happen next. A number is that of a worker, or of a message under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Deliver(usize),
    /// A fault of this message, or of the one that its request sends after so many others.
    Disturb(Trouble, usize, usize),
    Befall(Trouble, usize),
    /// Another process takes the place of one that died.
    Return(usize),
    Heal(usize),
    /// Work that was told to stop has ended.
    WorkEnds(usize),
    Wish(Wish, usize),
    Tick(usize),
    TimeGoesOn,
}

impl Small {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { plan: plan.clone(), begin: World::begin(plan) }
    }

    fn add_faults(&self, world: &World, actions: &mut Vec<Action>) {
        for (index, packet) in world.different_packets() {
            match packet.message {
                Message::ToStore(_) => self.add_faults_of(world, index, packet, actions),
                _ if packet.held => {}
                _ if self.plan.troubles.contains(&Trouble::HoldAnswer) => {
                    actions.push(Action::Disturb(Trouble::HoldAnswer, index, 0));
                }
                _ => {}
            }
        }
        for trouble in self.plan.troubles {
            match trouble.concerns() {
                Warnings::Message => {}
                Warnings::Store => actions.push(Action::Befall(*trouble, 0)),
                Warnings::Worker => {
                    let may = |who: &usize| match trouble {
                        Trouble::Cut => !world.actors[*who].cut,
                        Trouble::Guard => world.actors[*who].trusts(world.at).is_some(),
                        _ => true,
                    };
                    let alive = (0..self.plan.workers).filter(|who| !world.actors[*who].crashed);
                    actions.extend(alive.filter(may).map(|who| Action::Befall(*trouble, who)));
                }
            }
        }
    }

    /// The faults of a request that is about to go on with this message.
    fn add_faults_of(&self, world: &World, index: usize, packet: &Packet, actions: &mut Vec<Action>) {
        let awaited = world.listens(packet.who, packet.life);
        for (after, ask) in world.messages(&self.plan, packet).iter().enumerate() {
            let may = |trouble: &&Trouble| match (trouble, ask) {
                (Trouble::Hold, _) => after > 0 || !packet.held,
                (Trouble::HoldAnswer, _) => awaited && self.plan.order != Order::Any,
                (Trouble::Duplicate, Ask::Commit(..)) => true,
                (Trouble::Refuse, Ask::Commit(..)) => awaited,
                (Trouble::Half, Ask::Commit(_, sendings)) => {
                    sendings.len() == 1 && sendings[0].change.put.len() > 1
                }
                (Trouble::Duplicate | Trouble::Refuse | Trouble::Half, _) => false,
                // Before the first message it is the same as at any other time.
                _ => after > 0,
            };
            let troubles = self.plan.troubles.iter().filter(may);
            actions.extend(troubles.map(|trouble| Action::Disturb(*trouble, index, after)));
        }
    }

    fn add_wishes(&self, world: &World, who: usize, actions: &mut Vec<Action>) {
        let actor = &world.actors[who];
        for wish in self.plan.wish {
            let may = match wish {
                Wish::StepDown | Wish::Evict | Wish::EvictHalf => actor.believes(world.at).is_some(),
                Wish::Leave | Wish::Shutdown => actor.worker.is_campaigning(&resource()),
            };
            if may {
                actions.push(Action::Wish(*wish, who));
            }
        }
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
            if world.wishes > 0 {
                self.add_wishes(world, who, actions);
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
            Action::Disturb(trouble, index, after) => {
                world.disturb(plan, &self.begin, trouble, index, after);
                world.faults -= 1;
            }
            Action::Befall(trouble, who) => {
                world.befall(plan, &self.begin, trouble, who);
                world.faults -= 1;
            }
            Action::Return(who) => world.come_back(plan, who),
            Action::Heal(who) => world.heal(plan, who),
            Action::WorkEnds(who) => {
                let Work { grant, .. } = world.actors[who].change(|actor| actor.work.take())?;
                world.tell(who, Input::Stopped { resource: resource(), token: grant.token });
            }
            Action::Wish(wish, who) => world.wish(plan, wish, who),
            Action::Tick(who) => world.tell(who, Input::Tick),
            Action::TimeGoesOn => {
                world.look_for_leftovers(plan);
                world.at = world.next_at(plan)?;
                if plan.order == Order::Prompt {
                    world.tick_all();
                }
            }
        }
        world.work_off(plan);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(APART, |model: &Self, world: &World| {
                let mut tickets: Vec<Ticket> = world.believed().map(|(_, grant)| grant.ticket).collect();
                tickets.sort_unstable();
                tickets.len() <= model.plan.tickets && tickets.windows(2).all(|two| two[0] != two[1])
            }),
            Property::always(KEPT, |_, world: &World| world.broken.is_none()),
            Property::sometimes(TAKEN_OVER, |_, world: &World| {
                let mut dead = world.actors.iter().filter(|actor| actor.crashed);
                dead.any(|actor| actor.last.is_some_and(|own| world.is_succeeded(actor.who, own)))
            }),
            Property::sometimes(HANDED_OVER, |_, world: &World| {
                let mut actors = world.actors.iter();
                actors.any(|actor| actor.stepped_down.is_some_and(|own| world.is_succeeded(actor.who, own)))
            }),
        ]
    }
}

/// What led to a state, in words.
pub(crate) fn told(path: Path<World, Action>) -> String {
    let broken = path.last_state().broken.unwrap_or(APART);
    let lines = path.into_vec().into_iter().filter_map(|(world, action)| {
        let action = action?;
        let about = match action {
            Action::Deliver(index) | Action::Disturb(_, index, _) => world.flight[index].told(),
            _ => String::new(),
        };
        let beliefs = world.actors.iter().map(|actor| actor.believes(world.at));
        let beliefs: Vec<_> = beliefs.map(|own| own.map(|own| (own.ticket.0, own.token.0))).collect();
        Some(format!("{:>4} ms {beliefs:?} {action:?} {about}\n", world.at / 1000))
    });
    lines.chain([broken.to_owned()]).collect()
}
