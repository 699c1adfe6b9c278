//! A new life of the store, or lost data: nothing is granted or ended for one longest ttl.

use super::*;

// req: S1
#[test]
fn in_a_new_life_nothing_is_granted_or_ended_for_one_longest() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.life = Incarnation(2);
    world.pass(TTL);

    world.renew(B);
    assert_eq!(waits(world.claim(B)).why, WaitReason::Quarantine);
    assert!(world.lease(A).ended.is_none());

    world.pass(TTL);
    world.renew(B);
    assert_eq!(granted(world.claim(B)).term, Term(2));
}

#[test]
fn in_a_new_life_a_waiter_that_ran_out_keeps_its_place_for_one_longest() {
    let mut world = World::owned_by_a();
    world.open(C, TTL);
    waits(world.claim(C));
    waits(world.claim(B));
    world.pass(TTL / 2);
    world.life = Incarnation(2);
    world.renew(B);
    world.pass(TTL / 2);

    let waiting = waits(world.claim(B));

    assert_eq!((waiting.ahead, waiting.why, world.resource().waits(C)), (1, WaitReason::Quarantine, true));
}

#[test]
fn who_brings_a_longer_ttl_from_another_life_has_it_respected() {
    let mut world = World::new();
    world.open(A, TTL * 4);
    world.records.clear();
    (world.life, world.lost_nothing) = (Incarnation(2), false);

    assert_eq!(world.renew(A), Said::Gone);

    assert_eq!(world.meta().longest, TTL * 4);
}

// req: S1
#[test]
fn what_was_wiped_within_a_life_is_noticed_and_a_longer_ttl_respected() {
    let mut world = World::new();
    world.open(A, TTL * 4);
    granted(world.claim(A));

    world.records.clear();
    world.lost_nothing = false;
    world.open(B, TTL);
    world.pass(TTL / 2);
    assert_eq!(world.renew(A), Said::Gone);

    assert_eq!(world.meta().longest, TTL * 4);
    world.pass(TTL * 4 - Duration::from_micros(1));
    world.renew(B);
    assert_eq!(waits(world.claim(B)).why, WaitReason::Quarantine);
    world.pass(Duration::from_micros(1));
    granted(world.claim(B));
}

#[test]
fn who_knew_what_was_wiped_does_not_believe_that_nothing_was_lost() {
    let mut world = World::owned_by_a();

    world.records.clear();
    world.renew(A);
    world.open(C, TTL);

    assert_eq!(waits(world.claim(C)).why, WaitReason::Quarantine);
}
