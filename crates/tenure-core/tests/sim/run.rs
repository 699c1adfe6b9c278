//! One seed from beginning to end: a storm, then calm, then a look at whether all goes on.

use tenure_core::{Input, Planted, ResourceName};

use crate::actor::Actor;
use crate::check::Violation;
use crate::world::World;

const MILLI: u64 = 1_000;
/// In calm weather a message takes at most this long.
const HOP: u64 = MILLI;

#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) violation: Option<Violation>,
    pub(crate) grants: u64,
    pub(crate) takeovers: u64,
    pub(crate) faults: u64,
    pub(crate) events: u64,
    pub(crate) simulated: u64,
}

pub(crate) fn simulate(seed: u64, planted: Planted) -> Outcome {
    let mut world = World::new(seed, planted);
    world.run_until(world.plan.storm);
    world.calm_down();
    // Late messages, pauses, a quarantine, what the store forgot, a watch, and steps back all have to pass.
    let longest = world.plan.longest();
    let steps_back = if world.plan.steps { 8 * longest } else { 0 };
    world.run_until(world.at + 10 * longest + steps_back);
    all_is_owned(&mut world);
    hand_over(&mut world);
    lose_an_owner(&mut world);
    lose_the_next_in_line(&mut world);
    settle(&mut world);
    all_is_owned(&mut world);
    let World { check, faults, events, at, .. } = world;
    let (grants, takeovers) = (check.grants, check.takeovers);
    Outcome { seed, violation: check.violation, grants, takeovers, faults, events, simulated: at }
}

/// Who owns a resource, and who wants to.
fn standing(world: &World, resource: &ResourceName) -> (Vec<usize>, Vec<usize>) {
    let candidates = (0..world.actors.len()).filter(|index| {
        let actor = &world.actors[*index];
        !actor.crashed && actor.worker.is_campaigning(resource)
    });
    candidates.partition(|index| world.actors[*index].believes(world.at, resource).is_some())
}

/// L2, L4, O2: with at least K live candidates exactly K own, on the tickets 0 to K-1, and the rest waits.
fn all_is_owned(world: &mut World) {
    for resource in world.names.clone() {
        if world.check.violation.is_some() {
            return;
        }
        let Some(view) = world.store.ledger.read(world.store.here(world.at), resource.as_str()) else {
            continue;
        };
        let (owners, others) = standing(world, &resource);
        let expected = (view.tickets as usize).min(owners.len() + others.len());
        let beyond = view.owners.iter().any(|owner| owner.grant.ticket.0 >= view.tickets);
        if owners.len() != expected || beyond || view.waiters.len() != others.len() {
            let what = format!(
                "{resource}: {owners:?} own {} tickets, {others:?} want to; the store says {view:?}",
                view.tickets
            );
            world.check.fail("L2/L4", world.at, what);
        }
    }
}

/// A resource that somebody owns and `waiting` others want.
fn contended(world: &World, waiting: usize) -> Option<(ResourceName, usize)> {
    if world.check.violation.is_some() {
        return None;
    }
    world.names.iter().find_map(|resource| {
        let (owners, others) = standing(world, resource);
        (others.len() >= waiting).then(|| owners.first().map(|owner| (resource.clone(), *owner)))?
    })
}

/// Runs until somebody starts work on the resource, at most until `limit`.
fn await_start(world: &mut World, resource: &ResourceName, limit: u64) -> Option<u64> {
    let seen = world.starts.len();
    while world.at < limit && world.check.violation.is_none() {
        world.run_until((world.at + MILLI).min(limit));
        if let Some((at, ..)) = world.starts[seen..].iter().find(|(_, _, started)| started == resource) {
            return Some(*at);
        }
    }
    None
}

/// L1: what is given up is taken within about two round trips.
fn hand_over(world: &mut World) {
    let Some((resource, owner)) = contended(world, 1) else { return };
    world.worker_gets(owner, Input::StepDown(resource.clone()));
    let started = await_start(world, &resource, world.at + 500 * MILLI);
    let released = world.released_at.get(&resource).copied().unwrap_or_default();
    // Release, hint, claim, grant; and one round trip more if a claim was under way when the hint came.
    if started.is_none_or(|at| at > released + 6 * HOP) && world.check.violation.is_none() {
        world.check.fail("L1", world.at, format!("{resource}: released at {released}, taken at {started:?}"));
    }
}

/// L2: what a dead worker had is taken within its remaining lease, and little more.
fn lose_an_owner(world: &mut World) {
    settle(world);
    let Some((resource, owner)) = contended(world, 1) else { return };
    let killed = world.at;
    world.kill(owner);
    // A renewal that was on its way still counts.
    world.run_until(killed + HOP);
    let here = world.store.here(world.at);
    let view = world.store.ledger.read(here, resource.as_str());
    let left = view.into_iter().flat_map(|view| view.owners).map(|owner| owner.left.as_micros() as u64).max();
    let left = HOP + left.unwrap_or(0) * 1_000_000 / world.store.rate;
    // With unequal clocks, what the candidates vouch for lags behind, and their own waiting takes longer.
    let slowest = world.actors.iter().filter(|actor| !actor.crashed).map(Actor::slowest_rate).min();
    let lag = world.store.rate.max(1_000_000).saturating_sub(slowest.unwrap_or(1_000_000));
    let allowed = left + 50 * MILLI + 2 * HOP + 4 * world.plan.longest() * lag / 1_000_000;
    let started = await_start(world, &resource, killed + 4 * world.plan.longest());
    if started.is_none_or(|at| at > killed + allowed) && world.check.violation.is_none() {
        let what = format!(
            "{resource}: owner {owner} died at {killed} with {left} left, taken at {started:?}, allowed {allowed}"
        );
        world.check.fail("L2", world.at, what);
    }
}

/// L3: a dead waiter at the head costs the next one one step.
fn lose_the_next_in_line(world: &mut World) {
    settle(world);
    let Some((resource, owner)) = contended(world, 2) else { return };
    let here = world.store.here(world.at);
    let Some(head) =
        world.store.ledger.read(here, resource.as_str()).and_then(|view| view.waiters.into_iter().next())
    else {
        return;
    };
    let (_, waiting) = standing(world, &resource);
    let heads: Vec<usize> =
        waiting.into_iter().filter(|index| world.actors[*index].label == head.worker).collect();
    let [head] = heads[..] else { return };
    world.kill(head);
    world.worker_gets(owner, Input::StepDown(resource.clone()));
    let started = await_start(world, &resource, world.at + 2_000 * MILLI);
    let released = world.released_at.get(&resource).copied().unwrap_or_default();
    let step = 100 * MILLI;
    let allowed = step + step / 10 + 8 * HOP + 10 * MILLI;
    if started.is_none_or(|at| at > released + allowed) && world.check.violation.is_none() {
        world.check.fail("L3", world.at, format!("{resource}: released at {released}, taken at {started:?}"));
    }
}

fn settle(world: &mut World) {
    if world.check.violation.is_none() {
        world.run_until(world.at + 3 * world.plan.longest());
    }
}
