//! One seed from beginning to end: a storm, then calm, then a look at whether all goes on.

use tenure_core::{Input, Label, LeaseId, Planted, ResourceName, Token};

use crate::actor::Actor;
use crate::check::Violation;
use crate::world::{Event, World};

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
    /// How often a hand-over, a death and a dead head of a queue could be tried.
    pub(crate) trials: [u64; 3],
}

pub(crate) fn simulate(seed: u64, planted: Planted) -> Outcome {
    let mut world = World::new(seed, planted);
    world.run_until(world.plan.storm);
    world.calm_down();
    // Late messages, pauses, a quarantine, what the store forgot, and a watch all have to pass.
    let longest = world.plan.longest();
    // Without a clock it takes one ttl to know a waiter dead, and eight are watched at a time.
    let watched = if world.plan.clock { 0 } else { 30 * longest };
    world.run_until(world.at + 10 * longest + watched);
    all_is_owned(&mut world);
    let trials =
        [hand_over(&mut world), lose_an_owner(&mut world), lose_the_next_in_line(&mut world)].map(u64::from);
    // Whoever stood still goes on.
    let resumes = world.actors.iter().filter_map(|actor| actor.frozen_until).max();
    world.run_until(resumes.unwrap_or(0).max(world.at));
    settle(&mut world);
    all_is_owned(&mut world);
    let World { check, faults, events, at, .. } = world;
    let (grants, takeovers) = (check.grants, check.takeovers);
    Outcome { seed, violation: check.violation, grants, takeovers, faults, events, simulated: at, trials }
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
        let Some(view) = world.store.view(world.at, &resource) else {
            continue;
        };
        let (owners, others) = standing(world, &resource);
        let expected = (view.tickets as usize).min(owners.len() + others.len());
        let beyond = view.owners.iter().any(|owner| owner.grant.ticket.0 >= view.tickets);
        let mut believed: Vec<Token> = owners
            .iter()
            .filter_map(|index| world.actors[*index].believes(world.at, &resource))
            .map(|own| own.token)
            .collect();
        believed.sort();
        // A ticket of a dead lease that nobody wants stays until somebody looks.
        let seats = world.store.resource(&resource).into_iter().flat_map(|resource| &resource.owners);
        let written = seats.filter(|seat| living(world, seat.lease).is_some());
        let mut written: Vec<Token> = written.map(|seat| seat.grant.token).collect();
        written.sort();
        let differ = believed != written || queue(world, &resource).len() != others.len();
        if owners.len() != expected || beyond || differ {
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

/// Runs until somebody starts work on the resource, at most until `limit`; says when, and who.
fn await_start(world: &mut World, resource: &ResourceName, limit: u64) -> Option<(u64, Label)> {
    let seen = world.starts.len();
    while world.at < limit && world.check.violation.is_none() {
        world.run_until((world.at + MILLI).min(limit));
        if let Some((at, actor, _)) = world.starts[seen..].iter().find(|(_, _, started)| started == resource)
        {
            return Some((*at, world.actors[*actor].label.clone()));
        }
    }
    None
}

/// Who waits and lives, in the store's order.
fn queue(world: &World, resource: &ResourceName) -> Vec<Label> {
    let queue = world.store.resource(resource).into_iter().flat_map(|resource| &resource.queue);
    queue.filter_map(|place| living(world, place.lease)).collect()
}

/// Whose lease it is now.
fn living(world: &World, lease: LeaseId) -> Option<Label> {
    let mut actors = world.actors.iter().filter(|actor| !actor.crashed);
    actors.find(|actor| actor.worker.lease() == Some(lease)).map(|actor| actor.label.clone())
}

/// Fails unless somebody, or `next` if that is known, started by the time that is allowed.
fn demand(
    world: &mut World,
    promise: &'static str,
    next: Option<&Label>,
    by: u64,
    started: &Option<(u64, Label)>,
) {
    let kept = started.as_ref().is_some_and(|(at, who)| *at <= by && next.is_none_or(|next| who == next));
    if !kept && world.check.violation.is_none() {
        let what = format!("{next:?} was to start by {by} us; what started was {started:?}");
        world.check.fail(promise, world.at, what);
    }
}

/// L1: what is given up is taken, by the first in line, within about two round trips.
fn hand_over(world: &mut World) -> bool {
    let Some((resource, owner)) = contended(world, 1) else { return false };
    let next = queue(world, &resource)[0].clone();
    world.worker_gets(owner, Input::StepDown(resource.clone()));
    let started = await_start(world, &resource, world.at + 500 * MILLI);
    let released = world.released_at.get(&resource).copied().unwrap_or_default();
    // Release, hint, claim, grant; and one round trip more if a claim was under way when the hint came, one if the hint
    // did not bring the record, and one where a grant has to be verified.
    let verified = if world.plan.together { 0 } else { 4 * HOP };
    demand(world, "L1", Some(&next), released + 8 * HOP + verified, &started);
    true
}

/// L2: what a dead worker had is taken, by the first in line, within its remaining lease, and little more.
fn lose_an_owner(world: &mut World) -> bool {
    settle(world);
    let Some((resource, owner)) = contended(world, 1) else { return false };
    let (killed, next) = (world.at, queue(world, &resource)[0].clone());
    let lease = world.actors[owner].worker.lease();
    world.kill(owner);
    // A renewal that was on its way still counts.
    world.run_until(killed + HOP);
    let expiry = lease.and_then(|lease| world.store.expiry(lease));
    let left = match world.plan.clock {
        true => expiry.map_or(0, |expiry| expiry.since(world.store.clock(world.at)).as_micros() as u64),
        // Without a clock it counts from when those who wait have seen the last renewal.
        false => world.actors[owner].timing.ttl().as_micros() as u64 + HOP,
    };
    let left = HOP + left * 1_000_000 / world.store.rate;
    // With unequal clocks, what the candidates vouch for lags behind, and their own waiting takes longer.
    let slowest = world.actors.iter().filter(|actor| !actor.crashed).map(Actor::slowest_rate).min();
    let lag = world.store.rate.max(1_000_000).saturating_sub(slowest.unwrap_or(1_000_000));
    let verified = if world.plan.together { 0 } else { 4 * HOP };
    let allowed = left + 50 * MILLI + 2 * HOP + verified + 4 * world.plan.longest() * lag / 1_000_000;
    let started = await_start(world, &resource, killed + 4 * world.plan.longest());
    // A head whose clock is slow by more than a step leaves the ticket to the next.
    demand(world, "L2", (lag == 0).then_some(&next), killed + allowed, &started);
    true
}

/// L3: a dead waiter at the head costs the next one one step.
fn lose_the_next_in_line(world: &mut World) -> bool {
    settle(world);
    let Some((resource, owner)) = contended(world, 2) else { return false };
    let line = queue(world, &resource);
    let Some(head) = world.actors.iter().position(|actor| actor.label == line[0]) else { return false };
    let alone = |index: usize| {
        world.actors.iter().filter(|mate| mate.process == world.actors[index].process).count() == 1
    };
    if alone(head) && world.rng.chance(500) {
        // It listens, and does nothing.
        world.freeze_for(head, 2_500 * MILLI, false);
    } else {
        world.kill(head);
    }
    // A claim that was on its way could still win a ticket for the dead.
    world.run_until(world.at + HOP);
    world.worker_gets(owner, Input::StepDown(resource.clone()));
    let others: Vec<usize> = standing(world, &resource).1;
    let mut others = others
        .into_iter()
        .filter(|index| !line[..2].contains(&world.actors[*index].label) && *index != owner);
    if let Some(other) = others.next_back() {
        // Somebody comes and goes behind them.
        for n in 1..4 {
            world.after(30 * n * MILLI, Event::Leave(other, resource.clone()));
            world.after(30 * n * MILLI + 10 * MILLI, Event::Enter(other, resource.clone()));
        }
    }
    let started = await_start(world, &resource, world.at + 2_000 * MILLI);
    let released = world.released_at.get(&resource).copied().unwrap_or_default();
    let step = 100 * MILLI;
    let verified = if world.plan.together { 0 } else { 4 * HOP };
    let allowed = step + step / 10 + 10 * HOP + 10 * MILLI + verified;
    demand(world, "L3", Some(&line[1]), released + allowed, &started);
    true
}

fn settle(world: &mut World) {
    if world.check.violation.is_none() {
        world.run_until(world.at + 3 * world.plan.longest());
    }
}
