//! `open`, `renew`, `close`, `held`, and what every answer tells.

use tenure_core::{Call, Closing, HistoryEvent, Holding, Metadata, Released, Said, Ticket};

use super::Fixture;
use super::world::*;

/// A renewal extends the lease by its own ttl, again and again.
pub async fn a_lease_lives_as_long_as_it_is_renewed(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open_for("a", SHORT * 4).await;

    for _ in 0..2 {
        world.pass(SHORT * 5 / 2).await;
        assert_eq!(world.renew(a).await, kept());
    }
}

/// A lease that ran out, and that nobody has ended, goes on with its next renewal, and keeps what it holds.
pub async fn a_lease_that_ran_out_and_was_not_ended_is_renewed(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open_for("a", SHORT).await;
    let grant = granted(world.claim(a).await);
    world.pass(SHORT * 2).await;
    assert!(world.owners().await.is_empty(), "it has run out");

    assert_eq!(world.renew(a).await, kept());

    assert_eq!((world.owners().await, world.held(a).await), (vec!["a".into()], vec![JOB.into()]));
    assert_eq!(granted(world.claim(a).await), grant);
    let b = world.open("b").await;
    waiting(world.claim(b).await);
}

/// The claim that takes over from an owner that ran out ends its lease. From then on it is gone, for every call.
pub async fn an_owner_that_ran_out_is_ended_by_the_claim_that_takes_over(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own_for("a", SHORT).await;
    granted(world.claim_at(a, "other").await);
    world.pass(SHORT).await;

    let b = world.own("b").await;

    for call in [Call::Renew, claim_of(JOB), claim_of("third"), Call::Held] {
        assert_eq!(world.send_next(a, call.clone()).await, Said::Gone, "{call:?}");
    }
    assert_eq!(world.open_again(a, "a", SHORT).await, Said::Gone);
    assert_eq!(world.owners().await, ["b"]);
    granted(world.claim_at(b, "other").await);
}

/// The new expiry is the store's time of the renewal plus the ttl that the lease was opened with.
pub async fn a_renewal_counts_from_the_clock_of_the_store(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own_for("a", LONG * 2).await;
    let b = world.open("b").await;

    world.pass(SHORT / 5).await;
    assert_eq!(world.renew(a).await, kept());
    let expires_at = world.answered_at() + LONG * 2;

    let head = waiting(world.claim(b).await);
    world.assert_about(head.look_again, expires_at.since(world.shown_at()));
}

/// An `open` that is sent again, because its answer was lost, neither extends the lease nor renames it.
pub async fn opening_a_lease_again_changes_nothing(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let b = world.open("b").await;
    let a = world.open_for("a", SHORT * 2).await;
    let expires_at = world.answered_at() + SHORT * 2;
    granted(world.claim(a).await);

    world.pass(SHORT).await;
    assert_eq!(world.open_again(a, "another", LONG).await, Said::Opened);

    assert_eq!((world.owners().await, world.held(a).await), (vec!["a".into()], vec![JOB.into()]));
    world.pass_until(expires_at).await;
    granted(world.claim(b).await);
    assert_eq!(world.renew(a).await, Said::Gone);
}

/// A late `open` is not a second life: neither for a lease that was closed, nor for one that ran out and was ended.
pub async fn a_late_open_does_not_make_a_dead_lease_again(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let (closed, run_out) = (world.open("closed").await, world.own_for("run out", SHORT).await);
    world.close(closed, Closing::Left).await;
    world.pass(SHORT).await;
    world.own("next").await;

    for dead in [closed, run_out] {
        assert_eq!(world.open_again(dead, "late", LONG).await, Said::Gone);
        assert_eq!(world.renew(dead).await, Said::Gone);
    }
    assert_eq!(world.owners().await, ["next"]);
}

/// An unknown lease is gone, and asking in its name creates neither a lease nor a resource. It holds nothing, so a
/// release finds nothing to do.
pub async fn an_unknown_lease_is_gone_and_nothing_is_created(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let unknown = fresh();

    for call in [Call::Renew, claim_of(JOB), step_down_of(JOB), Call::Held] {
        assert_eq!(world.send_next(unknown, call.clone()).await, Said::Gone, "{call:?}");
    }
    assert_eq!(world.release(unknown).await, Released::Free);
    assert_eq!(world.send_next(unknown, Call::Close(Closing::Left)).await, Said::Closed);

    assert_eq!(world.renew(unknown).await, Said::Gone);
    assert!(world.all_names().await.is_empty());
}

/// A lease that was never opened is not marked dead by closing it: its `open` may be on the way still.
pub async fn closing_an_unknown_lease_does_not_forbid_it(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let unknown = fresh();

    world.close(unknown, Closing::Left).await;

    assert_eq!(world.open_again(unknown, "a", LONG).await, Said::Opened);
}

/// A renewal whose number is not above the last one's extends nothing: it is late, or somebody else renews this lease.
// req: S6
pub async fn a_repeated_or_older_renewal_is_stale_and_extends_nothing(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let b = world.open("b").await;
    let a = world.own_for("a", SHORT * 2).await;
    assert_eq!(world.send(a, 7, Call::Renew).await, kept());
    let expires_at = world.answered_at() + SHORT * 2;

    world.pass(SHORT).await;
    assert_eq!(world.send(a, 7, Call::Renew).await, Said::Stale);
    assert_eq!(world.send(a, 6, Call::Renew).await, Said::Stale);

    world.pass_until(expires_at).await;
    granted(world.claim(b).await);
    assert_eq!(world.send(a, 8, Call::Renew).await, Said::Gone);
}

/// Neither the opening nor claims and releases with higher numbers make a renewal stale.
pub async fn renewals_are_compared_with_renewals_only(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    world.send(a, 7, claim_of(JOB)).await;
    world.send(a, 8, release_of(JOB)).await;

    assert_eq!(world.send(a, 3, Call::Renew).await, kept());
}

/// Numbers are compared within one lease: what one worker renews does not make another's renewal stale.
pub async fn renewals_of_one_worker_do_not_make_those_of_another_stale(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let (a, b) = (world.open("a").await, world.open("b").await);
    assert_eq!(world.send(a, 90, Call::Renew).await, kept());

    assert_eq!(world.send(b, 1, Call::Renew).await, kept());
    assert_eq!(world.send(b, 1, Call::Renew).await, Said::Stale);
}

/// Whatever the reason, a closed lease is over for every call, and its ticket is free. A release in its name frees
/// nothing of others.
pub async fn a_closed_lease_is_gone(fixture: impl Fixture) {
    let mut world = World::of(fixture);

    for why in [Closing::Left, Closing::Expired, Closing::Proved] {
        let a = world.own("a").await;
        world.close(a, why).await;

        for call in [Call::Renew, claim_of(JOB), step_down_of(JOB), Call::Held] {
            assert_eq!(world.send_next(a, call.clone()).await, Said::Gone, "{why:?} {call:?}");
        }
        let b = world.own("b").await;
        assert_eq!(world.release(a).await, Released::Free);
        assert_eq!((world.owners().await, world.held(b).await), (vec!["b".into()], vec![JOB.into()]));
        world.close(b, Closing::Left).await;
    }
}

/// Everything goes with the lease in one step: tickets and places in queues.
pub async fn closing_a_lease_frees_all_that_it_holds_and_awaits(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b, c] = [world.open("a").await, world.open("b").await, world.open_for("c", HOUR).await];
    granted(world.claim_at(b, "z").await);
    for resource in ["x", "y", "z"] {
        world.claim_at(a, resource).await;
    }

    world.close(a, Closing::Left).await;
    world.leave(b, "z", tenure_core::Leaving::Released).await;

    for resource in ["x", "y", "z"] {
        granted(world.claim_at(c, resource).await);
    }
}

/// The first close decides what the history says; a later one is answered, and changes nothing.
pub async fn closing_a_dead_lease_changes_nothing(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own("a").await;
    world.close(a, Closing::Left).await;

    world.close(a, Closing::Proved).await;
    world.own("b").await;
    world.close(a, Closing::Proved).await;

    let history = world.history().await;
    assert_eq!(history[..2], [("a".into(), HistoryEvent::Granted), ("a".into(), HistoryEvent::Released)]);
    assert_eq!(world.owners().await, ["b"]);
}

/// `held` is what a worker settles its ownerships by: resource, ticket and token, and nothing of others.
pub async fn held_lists_what_the_lease_holds_by_ticket_and_token(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b] = world.crowd(["a", "b"], 2).await;
    granted(world.claim_at(a, "other").await);
    waiting(world.claim_at(b, "other").await);
    let token = granted(world.claim_with(b, 2, 0).await).token;

    let said = world.send(b, 0, Call::Held).await;

    assert_eq!(said, Said::Held(vec![Holding { resource: name(JOB), ticket: Ticket(1), token }]));
    assert_eq!(world.held(a).await, ["job", "other"]);
}

/// Time, incarnation and longest ttl are on every answer, also on those that give nothing.
pub async fn every_answer_is_stamped(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let first = world.stamp();
    let open = Call::Open { ttl: LONG, label: label("a"), metadata: Metadata::default() };
    let (stale, gone) = (Call::Renew, Call::Held);

    let calls = [
        open,
        Call::Renew,
        stale,
        claim_of(JOB),
        release_of(JOB),
        Call::Held,
        Call::Close(Closing::Left),
        gone,
    ];
    for call in calls {
        let stamp = world.answer(a, 50, call.clone()).await.stamp;

        assert_eq!((stamp.incarnation, stamp.longest), (first.incarnation, LONG), "{call:?}");
        assert!(stamp.now >= first.now && stamp.now.since(first.now) < HOUR, "{call:?}: {stamp:?}");
    }
}

/// The clock that an answer names runs as the lease's does: it is what workers vouch by.
pub async fn the_time_on_the_answers_runs(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let before = world.now().await;

    world.fixture.pass(SHORT).await;

    let went_by = world.now().await.since(before);
    assert!(went_by >= SHORT * 9 / 10 && went_by < SHORT * 20, "{went_by:?} instead of {SHORT:?}");
}

/// The longest ttl in use is told to everybody, and is not forgotten as soon as its lease ends.
pub async fn the_longest_ttl_is_kept_and_told(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open_for("a", LONG / 2).await;
    assert_eq!(world.stamp().longest, LONG / 2);

    let b = world.open_for("b", LONG * 2).await;
    world.renew(a).await;
    assert_eq!(world.stamp().longest, LONG * 2);

    world.close(b, Closing::Left).await;
    world.open_for("c", LONG).await;
    world.renew(a).await;
    assert_eq!(world.stamp().longest, LONG * 2);
}
