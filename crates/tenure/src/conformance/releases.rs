//! `release`, for good and to step down.

use tenure_core::{Call, Closing, Leave, Leaving, Released, Said, Term, WaitReason};

use super::Fixture;
use super::world::*;

/// What was given up is free for the next.
pub async fn a_release_frees_the_ticket(fixture: impl Fixture) {
    let mut world = World::of(fixture);

    for (how, term) in [(Leaving::Released, 2), (Leaving::Failed, 3)] {
        let a = world.open("a").await;
        granted(world.claim(a).await);

        assert_eq!(world.leave(a, JOB, how).await, Released::Free);

        assert!(world.held(a).await.is_empty() && world.owners().await.is_empty());
        let b = world.open("b").await;
        assert!(granted(world.claim(b).await).term >= Term(term));
        world.release(b).await;
    }
}

/// Who no longer wants a resource stands in nobody's way.
pub async fn a_release_leaves_the_queue(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own("a").await;
    let (b, c) = (world.wait("b").await, world.wait("c").await);

    assert_eq!(world.release(b).await, Released::Free);

    assert_eq!(world.waiters().await, ["c"]);
    assert_eq!(waiting(world.claim(c).await).ahead, 0);
}

/// A release says something about its own worker only, and makes no resource.
pub async fn a_release_of_what_is_not_held_ends_nobody_elses_ownership(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own("a").await;
    let b = world.open("b").await;

    assert_eq!(world.release(b).await, Released::Free);
    assert_eq!(world.leave(b, "never-claimed", Leaving::Released).await, Released::Free);

    assert_eq!(world.owners().await, ["a"]);
    assert_eq!(world.all_names().await, [JOB]);
}

/// A release that arrives twice changes nothing, whoever owns by then.
// req: S6
pub async fn a_repeated_release_changes_nothing(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own("a").await;
    assert_eq!(world.release(a).await, Released::Free);
    let b = world.own("b").await;
    world.wait("c").await;

    assert_eq!(world.release(a).await, Released::Free);

    assert_eq!((world.owners().await, world.waiters().await), (vec!["b".into()], vec!["c".into()]));
    assert_eq!(world.held(b).await, [JOB]);
    assert_eq!(world.history().await.len(), 3, "two grants and one release");
}

/// One answer per resource, in the order of the release, whatever the worker holds, awaits or never claimed.
pub async fn a_release_is_answered_per_resource(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let (a, b) = (world.open("a").await, world.open("b").await);
    for resource in ["held", "kept", "stepped"] {
        granted(world.claim_at(a, resource).await);
    }
    granted(world.claim_at(b, "awaited").await);
    waiting(world.claim_at(a, "awaited").await);

    let leave = |(resource, how): (&str, Leaving)| Leave { resource: name(resource), how };
    let leaves = [
        ("never", Leaving::Released),
        ("stepped", Leaving::SteppedDown),
        ("awaited", Leaving::Released),
        ("held", Leaving::Failed),
    ];
    let said = world.send_next(a, Call::Release(leaves.map(leave).to_vec())).await;

    let Said::Released(released) = said else { panic!("a release was answered {said:?}") };
    let [Released::Free, Released::Again(again), Released::Free, Released::Free] = released[..] else {
        panic!("a release was answered {released:?}")
    };
    assert_eq!(granted(again).term, Term(2));
    assert_eq!(world.held(a).await, ["kept", "stepped"]);
    world.leave(b, "awaited", Leaving::Released).await;
    let c = world.open("c").await;
    granted(world.claim_at(c, "awaited").await);
}

/// Handing over puts the worker behind everybody who waits, whatever their priority, until later ones come.
pub async fn a_worker_that_steps_down_queues_at_the_tail_with_the_lowest_priority_waiting(
    fixture: impl Fixture,
) {
    let mut world = World::of(fixture);
    let [a, b, c, d] = [
        world.open_for("a", HOUR).await,
        world.open("b").await,
        world.open("c").await,
        world.open_for("d", HOUR).await,
    ];
    for (worker, priority) in [(a, 9), (b, 3), (c, -2)] {
        world.claim_with(worker, 1, priority).await;
    }

    let Released::Again(claimed) = world.step_down(a).await else { panic!("not answered like a claim") };
    let left = (world.answered_at() + HOUR / 150 * 2).since(world.shown_at());
    let place = waiting(claimed);
    assert_eq!((place.ahead, place.why), (2, WaitReason::Turn));
    world.assert_about(place.look_again, left);

    world.claim_with(d, 1, -1).await;
    assert_eq!(world.waiters().await, ["b", "d", "c", "a"]);
    assert_eq!(granted(world.claim(b).await).term, Term(2));
}

/// Nobody else wants it: the worker goes on, under the next term.
pub async fn stepping_down_with_nobody_waiting_is_answered_with_the_next_term(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let first = granted(world.claim(a).await);

    let Released::Again(claimed) = world.step_down(a).await else { panic!("not answered like a claim") };

    let second = granted(claimed);
    assert_eq!(second.term, Term(2));
    assert!(second.token > first.token);
    assert_eq!(world.held(a).await, [JOB]);
}

/// The lowest priority is that of those who live: nobody is put back behind the dead.
pub async fn the_priority_of_a_dead_waiter_does_not_count_for_who_steps_down(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own_for("a", HOUR).await;
    let dead = world.open("dead").await;
    world.claim_with(dead, 1, -5).await;
    world.wait("b").await;
    world.close(dead, Closing::Left).await;

    world.step_down(a).await;
    let c = world.open_for("c", HOUR).await;
    world.claim_with(c, 1, -1).await;

    assert_eq!(world.waiters().await, ["b", "a", "c"]);
}

/// A step-down finds the tickets of owners whose leases were ended, as a claim does.
pub async fn stepping_down_counts_the_tickets_of_owners_that_were_closed(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b] = world.crowd(["a", "b"], 2).await;
    let c = world.open("c").await;
    waiting(world.claim_with(c, 2, 0).await);
    world.close(b, Closing::Proved).await;

    let Released::Again(again) = world.step_down(a).await else { panic!("not answered like a claim") };

    granted(again);
    granted(world.claim_with(c, 2, 0).await);
    assert_eq!(world.owners().await, ["a", "c"]);
}

/// A waiter that steps down goes to the tail, and looks a step later for each one before it.
pub async fn a_waiter_that_steps_down_goes_to_the_tail(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own("a").await;
    world.renew(a).await;
    let ends_at = world.answered_at() + LONG;
    let (b, _, _) = (world.wait("b").await, world.wait("c").await, world.wait("d").await);

    let Released::Again(again) = world.step_down(b).await else { panic!("not answered like a claim") };

    let place = waiting(again);
    assert_eq!((place.ahead, place.why), (2, WaitReason::Taken));
    world.assert_about(place.look_again, ends_at.since(world.shown_at()) + STEP * 2);
    assert_eq!(world.waiters().await, ["c", "d", "b"]);
}
