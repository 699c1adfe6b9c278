//! The one judgement of life: by the store's clock as far as the caller's own can vouch for it; death is stable.

use tenure_core::{Call, Closing, Leaving, Released, Said, StoreTime, Wish};

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

/// A worker whose lease has run out by the store's clock is given nothing before it has renewed, whatever it vouches
/// for. Asking does not end its lease.
pub async fn a_worker_that_ran_out_is_given_nothing_until_it_renews(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    for vouches in [true, false] {
        let a = world.open_for("a", SHORT).await;
        let before = ran_out(&mut world).await;
        world.judged_by = vouches.then_some(before);

        assert_eq!(world.open_again(a, "a", SHORT).await, Said::Opened);
        waiting(world.claim(a).await);
        assert_eq!(world.leave(a, "other", Leaving::Released).await, Released::Free);
        assert!(world.held(a).await.is_empty());

        assert_eq!(world.renew(a).await, kept());
        granted(world.claim(a).await);
        world.judged_by = None;
        world.close(a, Closing::Left).await;
    }
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
    assert_eq!(world.renew(b).await, kept());
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

/// A waiter that ran out loses its place to whoever comes across it, but its lease is not ended: it queues again.
pub async fn a_waiter_that_ran_out_is_dropped_and_not_ended(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own("a").await;
    let b = world.wait_for("b", SHORT).await;
    ran_out(&mut world).await;

    let c = world.open("c").await;
    assert_eq!(waiting(world.claim(c).await).ahead, 0);

    assert_eq!(world.renew(b).await, kept());
    assert_eq!(world.waiters().await, ["c"]);
    assert_eq!(waiting(world.claim(b).await).ahead, 1);
    assert_eq!(world.waiters().await, ["c", "b"]);
}

/// A renewal that is late neither extends nor ends a lease that has run out.
pub async fn a_late_renewal_of_a_lease_that_ran_out_changes_nothing(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own_for("a", SHORT).await;
    world.send(a, 90, Call::Renew).await;
    ran_out(&mut world).await;

    assert_eq!(world.send(a, 80, Call::Renew).await, Said::Stale);

    assert!(world.owners().await.is_empty(), "it has run out still");
    assert_eq!(world.send(a, 91, Call::Renew).await, kept());
    assert_eq!(world.owners().await, ["a"]);
}

/// Only a claim ends others, and only owners of the resources that it names.
pub async fn reading_asking_evicting_and_what_others_do_elsewhere_end_nobody(fixture: impl Fixture) {
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
