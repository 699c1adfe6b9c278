//! Commits whose outcome is unknown.

use super::*;

// req: S6
#[test]
fn a_release_makes_sure_that_a_claim_of_before_cannot_be_applied_any_more() {
    let mut world = World::new();
    world.open(A, TTL);
    let late = world.commit_of(A, claim_of(1, 0));

    assert_eq!(world.release(A), Released::Free);

    assert_eq!(world.apply(&late), [false], "the claim comes too late");
    assert!(world.resource().owners.is_empty());
}

#[test]
fn a_release_of_what_a_lost_reply_has_granted_gives_it_up() {
    let mut world = World::new();
    world.open(A, TTL);
    let late = world.commit_of(A, claim_of(1, 0));
    assert_eq!(world.apply(&late), [true]);

    assert_eq!(world.release(A), Released::Free);

    assert!(world.resource().owners.is_empty());
}

#[test]
fn without_doubt_a_release_of_nothing_writes_nothing() {
    let mut world = World::owned_by_a();
    world.count();

    assert_eq!(world.release(B), Released::Free);

    assert_eq!(world.count().writes, 0);
}
