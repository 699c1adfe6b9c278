//! Wake-ups: who is told, and when to come. A store whose fixture says that it may be silent only has to subscribe.
//!
//! That somebody is *not* told is shown by a bell: a later hint that has to be the first to arrive.

use tenure_core::{Closing, Leaving};

use super::Fixture;
use super::world::*;

/// Rung to show that nothing else came before.
const BELL: &str = "bell";

/// The head may take the ticket at once; the next comes after one step of its own, in case the head is dead.
pub async fn a_release_hints_the_head_at_once_and_the_next_after_one_step_of_its_own(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own("a").await;
    let bell = world.open("bell").await;
    granted(world.claim_at(bell, BELL).await);
    let [b, c, d] = [world.open("b").await, world.open_for("c", HOUR).await, world.open("d").await];
    let mut hints = [world.listen(b).await, world.listen(c).await, world.listen(d).await];
    for waiter in [b, c, d] {
        waiting(world.claim(waiter).await);
    }
    waiting(world.claim_at(d, BELL).await);

    world.release(a).await;
    world.leave(bell, BELL, Leaving::Released).await;

    if world.is_silent() {
        return;
    }
    assert_eq!(next_hint(&mut hints[0]).await, (JOB.into(), ZERO));
    assert_eq!(next_hint(&mut hints[1]).await, (JOB.into(), HOUR / 150));
    assert_eq!(next_hint(&mut hints[2]).await, (BELL.into(), ZERO), "the third has nothing to come for");
}

/// The one who steps down queues last, and need not be told of what it did itself.
pub async fn stepping_down_hints_the_others_and_not_the_worker_itself(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b, bell] = [world.open("a").await, world.open("b").await, world.open("bell").await];
    granted(world.claim_at(bell, BELL).await);
    let (mut to_a, mut to_b) = (world.listen(a).await, world.listen(b).await);
    granted(world.claim(a).await);
    waiting(world.claim(b).await);
    waiting(world.claim_at(a, BELL).await);

    world.step_down(a).await;
    world.leave(bell, BELL, Leaving::Released).await;

    if world.is_silent() {
        return;
    }
    assert_eq!(next_hint(&mut to_b).await, (JOB.into(), ZERO));
    assert_eq!(next_hint(&mut to_a).await, (BELL.into(), ZERO));
}

/// A lease that ends wakes the heads of all that it held.
pub async fn closing_a_lease_hints_the_heads_of_all_that_it_held(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b, c] = [world.open("a").await, world.open("b").await, world.open("c").await];
    let (mut to_b, mut to_c) = (world.listen(b).await, world.listen(c).await);
    for resource in ["x", "y"] {
        granted(world.claim_at(a, resource).await);
        waiting(world.claim_at(b, resource).await);
    }
    waiting(world.claim_at(c, "y").await);

    world.close(a, Closing::Proved).await;

    if world.is_silent() {
        return;
    }
    let mut heard = [next_hint(&mut to_b).await, next_hint(&mut to_b).await];
    heard.sort();
    assert_eq!(heard, [("x".into(), ZERO), ("y".into(), ZERO)]);
    assert_eq!(next_hint(&mut to_c).await, ("y".into(), STEP));
}

/// An eviction frees the ticket at once, so it wakes at once.
pub async fn evicting_hints_the_head(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b] = [world.open("a").await, world.open("b").await];
    let mut to_b = world.listen(b).await;
    let token = granted(world.claim(a).await).token;
    waiting(world.claim(b).await);

    world.evict(token).await;

    if world.is_silent() {
        return;
    }
    assert_eq!(next_hint(&mut to_b).await, (JOB.into(), ZERO));
}

/// Two more tickets: two waiters may come at once, and the next after a step.
pub async fn raising_the_tickets_hints_as_many_as_are_free_now_and_the_next(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own("a").await;
    let waiters = [world.open("b").await, world.open("c").await, world.open("d").await];
    let mut hints = vec![];
    for waiter in waiters {
        hints.push(world.listen(waiter).await);
        waiting(world.claim(waiter).await);
    }
    world.pass(TOLERANCE).await;

    let e = world.open_for("e", HOUR).await;
    waiting(world.claim_with(e, 3, 0).await);

    if world.is_silent() {
        return;
    }
    for (to, after) in hints.iter_mut().zip([ZERO, ZERO, STEP]) {
        assert_eq!(next_hint(to).await, (JOB.into(), after));
    }
}

/// Whoever finds an owner dead, and may not take the ticket itself, wakes the one who may.
pub async fn a_claim_that_finds_the_owner_dead_hints_those_who_come_first(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own_for("a", SHORT).await;
    let [b, c] = [world.open("b").await, world.open_for("c", HOUR).await];
    let mut to_b = world.listen(b).await;
    waiting(world.claim(b).await);
    waiting(world.claim(c).await);
    world.pass(SHORT).await;

    waiting(world.claim(c).await);

    if world.is_silent() {
        return;
    }
    assert_eq!(next_hint(&mut to_b).await, (JOB.into(), ZERO));
}

/// A dead waiter at the head costs the next one a step at most: where the store knows who listens, nothing.
// req: L3
pub async fn a_dead_waiter_at_the_head_costs_the_next_one_a_step_at_most(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own("a").await;
    let [b, c] = [world.open("b").await, world.open("c").await];
    let (_to_b, mut to_c) = (world.listen(b).await, world.listen(c).await);
    waiting(world.claim(b).await);
    waiting(world.claim(c).await);
    world.close(b, Closing::Proved).await;

    world.release(a).await;

    if world.is_silent() {
        return;
    }
    let (resource, after) = next_hint(&mut to_c).await;
    assert_eq!(resource, JOB);
    assert!(after <= STEP, "told to wait for {after:?}");
}

/// What was beyond K is not free for anybody when it is given back.
pub async fn a_release_of_a_surplus_ticket_hints_nobody(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b] = world.crowd(["a", "b"], 2).await;
    granted(world.claim_at(a, BELL).await);
    let c = world.open("c").await;
    let mut to_c = world.listen(c).await;
    waiting(world.claim_with(c, 1, 0).await);
    waiting(world.claim_at(c, BELL).await);

    world.release(b).await;
    world.leave(a, BELL, Leaving::Released).await;

    if world.is_silent() {
        return;
    }
    assert_eq!(next_hint(&mut to_c).await, (BELL.into(), ZERO));
}

/// Waiting costs nothing: nobody is woken while everything stays as it is.
pub async fn nobody_is_hinted_when_nothing_became_free(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b, c] = [world.open("a").await, world.open("b").await, world.open("c").await];
    let (mut to_b, mut to_c) = (world.listen(b).await, world.listen(c).await);
    for resource in [JOB, BELL] {
        granted(world.claim_at(a, resource).await);
    }
    for (waiter, resource) in [(b, JOB), (c, JOB), (b, BELL), (c, BELL)] {
        waiting(world.claim_at(waiter, resource).await);
    }

    granted(world.claim(a).await);
    waiting(world.claim(b).await);
    world.renew(a).await;
    let passer_by = world.wait("d").await;
    world.release(passer_by).await;
    world.close(passer_by, Closing::Left).await;
    world.leave(a, BELL, Leaving::Released).await;

    if world.is_silent() {
        return;
    }
    assert_eq!(next_hint(&mut to_b).await, (BELL.into(), ZERO));
    assert_eq!(next_hint(&mut to_c).await, (BELL.into(), STEP));
}
