//! The number of tickets, and how it changes while workers own and wait.

use tenure_core::{Ticket, WaitReason, Wish};

use super::Fixture;
use super::world::*;

/// A newer deployment decides; an older worker that claims later does not set K back.
pub async fn a_claim_changes_the_tickets_only_if_its_lease_was_opened_later(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let old = world.open("old").await;
    world.pass(TOLERANCE).await;
    let new = world.open("new").await;
    world.claim_with(new, 2, 0).await;

    world.claim_with(old, 5, 0).await;
    assert_eq!(world.view().await.tickets, 2);

    world.pass(TOLERANCE).await;
    let newest = world.open("newest").await;
    world.claim_with(newest, 3, 0).await;
    assert_eq!(world.view().await.tickets, 3);
    world.claim_with(new, 2, 0).await;
    assert_eq!(world.view().await.tickets, 3);
}

/// The worker that set K may change its mind.
pub async fn a_later_claim_of_the_lease_that_set_the_tickets_changes_them(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    world.claim_with(a, 2, 0).await;

    world.claim_with(a, 4, 0).await;

    assert_eq!(world.view().await.tickets, 4);
}

/// A newer lease that agrees with K sets it all the same: an older one does not change it afterwards.
pub async fn a_claim_that_confirms_the_tickets_sets_them(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    world.claim_with(a, 2, 0).await;
    world.pass(TOLERANCE).await;
    let b = world.open("b").await;
    world.claim_with(b, 2, 0).await;

    world.claim_with(a, 1, 0).await;

    assert_eq!(world.view().await.tickets, 2);
}

/// Lowering K takes nothing away: the owners of the highest tickets are asked.
pub async fn lowering_the_tickets_asks_the_owners_of_the_highest_to_step_down(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let owners = world.crowd(["a", "b", "c"], 3).await;
    world.pass(TOLERANCE).await;

    let d = world.open("d").await;
    world.claim_with(d, 1, 0).await;

    let mut wishes = vec![];
    for owner in owners {
        wishes.push(world.wishes(owner).await);
    }
    assert_eq!(wishes, [vec![], vec![Wish::Lowered], vec![Wish::Lowered]]);
    assert_eq!(world.owners().await, ["a", "b", "c"]);
}

/// Owners of surplus tickets count: there are never more than K new owners beside them.
pub async fn after_lowering_nobody_is_granted_until_fewer_than_k_own(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, _, c] = world.crowd(["a", "b", "c"], 3).await;
    world.pass(TOLERANCE).await;
    let d = world.open_for("d", HOUR).await;
    world.claim_with(d, 2, 0).await;

    world.release(a).await;
    let look = waiting(world.claim_with(d, 2, 0).await);
    assert_eq!(look.why, WaitReason::Taken);
    // A number is free, but not to be had: it looks when the first of the owners would run out, and not at once.
    assert!(look.look_again > LONG / 2, "{look:?}");

    world.release(c).await;
    assert_eq!(granted(world.claim_with(d, 2, 0).await).ticket, Ticket(0));
    assert_eq!(world.owners().await, ["d", "b"]);
}

/// Raising K gives the new tickets to those who wait.
pub async fn raising_the_tickets_lets_waiters_in(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own("a").await;
    let b = world.wait_for("b", HOUR).await;
    world.pass(TOLERANCE).await;

    let c = world.open_for("c", HOUR).await;
    assert_eq!(waiting(world.claim_with(c, 2, 0).await).why, WaitReason::Turn);

    assert_eq!(granted(world.claim(b).await).ticket, Ticket(1));
    assert_eq!((world.owners().await, world.view().await.tickets), (vec!["a".into(), "b".into()], 2));
}

/// New tickets are free from when they were added, however long ago the last one was given back: those who come first
/// have their steps.
// req: L3
pub async fn raised_tickets_are_left_to_those_who_come_first(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    granted(world.claim(a).await);
    let b = world.wait("b").await;
    let c = world.wait("c").await;
    world.pass(STEP * 12).await;

    granted(world.claim_with(a, 2, 0).await);

    let next = waiting(world.claim_with(c, 2, 0).await);
    assert_eq!((next.ahead, next.why), (1, WaitReason::Turn));
    assert_eq!(granted(world.claim_with(b, 2, 0).await).ticket, Ticket(1));
}

/// Lowered and raised again: the surplus ticket that was given back is a ticket again.
pub async fn raising_the_tickets_again_gives_those_that_were_left(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [_, b] = world.crowd(["a", "b"], 2).await;
    world.pass(TOLERANCE).await;
    let c = world.open_for("c", HOUR).await;
    world.claim_with(c, 1, 0).await;
    world.release(b).await;
    assert_eq!(waiting(world.claim_with(c, 1, 0).await).why, WaitReason::Taken);

    let grant = granted(world.claim_with(c, 2, 0).await);

    assert_eq!(grant.ticket, Ticket(1));
}
