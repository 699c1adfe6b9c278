//! The one judgement of life: by the store's clock as far as the caller's own can vouch for it; death is stable.

use std::time::Duration;

use tenure_core::{Call, Closing, Leaving, Said, StoreTime, Wish};

use super::Fixture;
use super::world::*;

/// A store's clock that stepped forward must not kill a lease in front of those who were watching.
pub async fn an_owner_lives_in_front_of_a_worker_that_vouches_for_an_earlier_time(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own_for("a", SHORT).await;
    let b = world.wait("b").await;
    let before = ran_out(&mut world).await;

    world.judged_by = Some(before);
    waiting(world.claim(b).await);
    assert_eq!(world.renew(a).await, kept());

    world.judged_by = None;
    assert_eq!(world.owners().await, ["a"]);
    waiting(world.claim(b).await);
}

/// `open`, `renew`, `claim` and `release` judge their own lease by what the worker vouches for.
pub async fn every_call_judges_its_own_lease_by_what_the_worker_vouches_for(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let mut workers = vec![];
    for label in ["a", "b", "c", "d"] {
        workers.push(world.open_for(label, SHORT).await);
    }
    let before = ran_out(&mut world).await;
    world.judged_by = Some(before);

    assert_eq!(world.open_again(workers[0], "a", SHORT).await, Said::Opened);
    assert_eq!(world.renew(workers[1]).await, kept());
    granted(world.claim_at(workers[2], "x").await);
    assert_eq!(world.leave(workers[3], "y", Leaving::Released).await, tenure_core::Released::Free);
}

/// A claim judges waiters by the same time as owners: one that lives by it comes first.
pub async fn a_waiter_lives_in_front_of_a_worker_that_vouches_for_an_earlier_time(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own("a").await;
    let b = world.wait_for("b", SHORT).await;
    let c = world.wait_for("c", HOUR).await;
    let before = ran_out(&mut world).await;

    world.judged_by = Some(before);
    assert_eq!(waiting(world.claim(c).await).ahead, 1);
    world.release(a).await;
    assert_eq!(waiting(world.claim(c).await).ahead, 1);
    granted(world.claim(b).await);
}

/// What a worker vouches for holds death back; it never brings it forward.
pub async fn a_worker_cannot_vouch_for_more_than_the_clock_of_the_store(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own("a").await;
    let b = world.open("b").await;

    world.judged_by = Some(world.now().await + HOUR);

    waiting(world.claim(b).await);
    assert_eq!(world.renew(b).await, kept());
}

/// An owner found dead stays dead for those who judge by an earlier time: its ticket is another's now.
pub async fn an_owner_found_dead_by_a_claim_stays_dead(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own_for("a", SHORT).await;
    let before = ran_out(&mut world).await;

    world.own("b").await;
    world.judged_by = Some(before);

    assert_eq!(world.renew(a).await, Said::Gone);
    assert_eq!(world.send_next(a, claim_of("elsewhere")).await, Said::Gone);
    assert_eq!(world.owners().await, ["b"]);
}

/// The same for a waiter that was passed over.
pub async fn a_waiter_found_dead_by_a_claim_stays_dead(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own("a").await;
    let b = world.wait_for("b", SHORT).await;
    let before = ran_out(&mut world).await;

    world.wait("c").await;
    world.judged_by = Some(before);

    assert_eq!(world.renew(b).await, Said::Gone);
}

/// Whichever call finds that its own lease has run out marks it.
pub async fn whoever_finds_its_own_lease_run_out_marks_it_dead(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    for call in [Call::Renew, claim_of(JOB), release_of(JOB)] {
        let a = world.open_for("a", SHORT).await;
        let before = ran_out(&mut world).await;

        assert_eq!(world.send_next(a, call.clone()).await, Said::Gone, "{call:?}");
        world.judged_by = Some(before);
        assert_eq!(world.renew(a).await, Said::Gone, "{call:?}");
        world.judged_by = None;
    }
}

/// A renewal that is late does not get to judge: what it vouched for may be from before the clock went back.
pub async fn a_late_renewal_is_stale_before_it_judges_anything(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open_for("a", SHORT).await;
    world.send(a, 90, Call::Renew).await;
    let before = ran_out(&mut world).await;

    assert_eq!(world.send(a, 80, Call::Renew).await, Said::Stale);

    world.judged_by = Some(before);
    assert_eq!(world.send(a, 91, Call::Renew).await, kept());
}

/// A claim that a later renewal has overtaken judges nobody, but takes what is free.
pub async fn an_overtaken_claim_takes_what_is_free_but_judges_nobody(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let owner = world.own_for("owner", SHORT).await;
    let late = world.open("late").await;
    world.send(late, 90, Call::Renew).await;
    let before = ran_out(&mut world).await;

    let look = waiting(only_claimed(world.send(late, 80, claim_of(JOB)).await));
    assert_about(look.look_again, Duration::from_millis(1));
    world.judged_by = Some(before);
    assert_eq!(world.renew(owner).await, kept());

    world.judged_by = None;
    world.close(owner, Closing::Left).await;
    granted(only_claimed(world.send(late, 81, claim_of(JOB)).await));
}

/// The same for its own lease: an overtaken claim or release does not end it. A claim is given nothing, though,
/// if the lease has run out as far as it can tell.
pub async fn an_overtaken_request_does_not_end_its_own_lease(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open_for("a", SHORT).await;
    world.send(a, 90, Call::Renew).await;
    let before = ran_out(&mut world).await;

    waiting(only_claimed(world.send(a, 80, claim_of(JOB)).await));
    only_released(world.send(a, 81, release_of(JOB)).await);

    world.judged_by = Some(before);
    assert_eq!(world.send(a, 91, Call::Renew).await, kept());
}

/// An `open` that comes again after the lease has run out is told so, and marks nobody.
pub async fn a_late_repetition_of_an_open_marks_nobody(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open_for("a", SHORT).await;
    let before = ran_out(&mut world).await;

    assert_eq!(world.open_again(a, "a", SHORT).await, Said::Gone);

    world.judged_by = Some(before);
    assert_eq!(world.renew(a).await, kept());
}

/// Only `renew`, `claim` and `release` mark; and a claim marks only those at the resources that it names.
pub async fn reading_asking_evicting_and_what_others_do_elsewhere_mark_nobody(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open_for("a", SHORT).await;
    let token = granted(world.claim(a).await).token;
    let before = ran_out(&mut world).await;

    world.send(a, 0, Call::Held).await;
    assert!(world.owners().await.is_empty());
    world.history().await;
    let b = world.open("b").await;
    world.claim_at(b, "elsewhere").await;
    world.renew(b).await;
    world.leave(b, "elsewhere", Leaving::Released).await;
    world.close(b, Closing::Left).await;
    world.ask(token, None).await;
    world.evict(token).await;

    world.judged_by = Some(before);
    assert_eq!(world.wishes(a).await, [Wish::Evicted], "its renewal is kept");
}

/// Lets every short lease run out by the store's clock. Gives a time by which they all live.
async fn ran_out<F: Fixture>(world: &mut World<F>) -> StoreTime {
    // Long before any of them was opened, so that it holds also where the store is slow.
    let now = world.now().await;
    world.pass(SHORT).await;
    earlier(now, LONG)
}
