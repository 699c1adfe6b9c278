//! `release`, for good and to step down.

use tenure_core::{Call, Claimed, Closing, Leave, Leaving, Released, Said, Term, Why};

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

/// A release that arrives twice, or late, changes nothing.
pub async fn a_release_not_above_the_newest_release_is_stale(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    assert_eq!(only_released(world.send(a, 5, release_of(JOB)).await), Released::Free);

    for late in [4, 5] {
        assert_eq!(only_released(world.send(a, late, release_of(JOB)).await), Released::Stale);
    }

    granted(only_claimed(world.send(a, 6, claim_of(JOB)).await));
}

/// A late release must not free what was granted since.
pub async fn a_release_below_the_newest_claim_is_stale(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    granted(only_claimed(world.send(a, 5, claim_of(JOB)).await));

    for late in [4, 5] {
        assert_eq!(only_released(world.send(a, late, release_of(JOB)).await), Released::Stale);
    }

    assert_eq!(world.held(a).await, [JOB]);
}

/// A late release must not take the place in the queue either.
pub async fn a_stale_release_leaves_no_queue(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own("a").await;
    let b = world.open("b").await;
    waiting(only_claimed(world.send(b, 5, claim_of(JOB)).await));

    assert_eq!(only_released(world.send(b, 4, release_of(JOB)).await), Released::Stale);

    assert_eq!(world.waiters().await, ["b"]);
}

/// A release of resources that were asked for at different times frees what it may, and says so per resource.
pub async fn a_release_is_answered_per_resource(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    world.send(a, 5, claim_of("x")).await;
    world.send(a, 9, claim_of("y")).await;
    world.send(a, 6, claim_of("z")).await;

    let leave = |resource: &str| Leave { resource: name(resource), how: Leaving::Released };
    let said = world.send(a, 7, Call::Release(vec![leave("z"), leave("y"), leave("x")])).await;

    assert_eq!(said, Said::Released(vec![Released::Free, Released::Stale, Released::Free]));
    assert_eq!(world.held(a).await, ["y"]);
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
    world.claim_with(d, 1, -1).await;

    let place = waiting(claimed);
    assert_eq!((place.ahead, place.why), (2, Why::Turn));
    assert_about(place.look_again, left);
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

/// A step-down is a release: it is stale by the same numbers, and remembered by the same.
pub async fn a_late_step_down_is_stale_and_a_newer_one_is_remembered(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let (a, b) = (world.open_for("a", HOUR).await, world.open("b").await);
    world.send(a, 5, claim_of(JOB)).await;
    waiting(world.claim(b).await);
    let step_down = Call::Release(vec![Leave { resource: name(JOB), how: Leaving::SteppedDown }]);

    assert_eq!(only_released(world.send(a, 5, step_down.clone()).await), Released::Stale);
    assert_eq!(world.owners().await, ["a"]);
    let again = only_released(world.send(a, 6, step_down).await);

    assert!(matches!(again, Released::Again(Claimed::Waiting(_))), "{again:?}");
    assert_eq!(only_claimed(world.send(a, 6, claim_of(JOB)).await), Claimed::Stale);
    assert_eq!(world.waiters().await, ["b", "a"]);
}
