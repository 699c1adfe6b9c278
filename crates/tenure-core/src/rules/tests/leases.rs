//! Leases: renewed, ended, swept, and the ttls that are in use.

use super::*;

// req: T3
#[test]
fn only_the_store_and_the_candidate_together_end_a_lease() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    let ends = world.now + TTL;

    world.pass(TTL);
    waits(world.claim_judging(B, ends + Duration::from_micros(0), -1));
    world.now = StoreTime::from_micros(ends.as_micros() - 1);
    waits(world.claim_judging(B, ends + TTL, 0));
    assert!(world.lease(A).ended.is_none(), "one of the two clocks was not there yet");

    world.now = ends;
    assert_eq!(granted(world.claim_judging(B, ends, 0)).term, Term(2));
    assert_eq!(world.lease(A).ended.map(|ended| (ended.at, ended.why)), Some((Some(ends), Closing::Expired)));
}

#[test]
fn a_lease_that_the_stores_clock_is_not_asked_about_is_noticed() {
    let from = |planted| {
        let mut world = World { planted, ..World::new() };
        world.open(A, TTL);
        granted(world.claim(A));
        world.open(B, TTL);
        let ends = world.now + TTL;
        waits(world.claim(B));
        world.pass(TTL / 2);
        world.renew(B);
        world.pass(TTL / 2);
        let sendings = world.commit_of(B, claim_of(1, 0));
        assert_eq!(sendings[0].change.put[0].0, Key::Lease(A));
        (sendings[0].change.window.from, ends)
    };

    let (right, ends) = from(Planted::default());
    assert_eq!(right, Some(ends));
    for bug in [Bug::BoundAlone, Bug::JudgedByOff] {
        assert_eq!(from(Planted::with(bug)).0, None, "{bug:?}");
    }
}

#[test]
fn an_ended_lease_is_never_written_again() {
    let mut world = World::owned_by_a();
    world.pass(TTL);
    world.renew(B);
    granted(world.claim(B));

    let before = world.version(&Key::Lease(A));
    assert_eq!(world.renew(A), Said::Gone);
    assert_eq!(world.close(A), Said::Closed);

    assert_eq!(world.version(&Key::Lease(A)), before);
}

#[test]
fn a_lease_that_others_have_ended_or_written_again_is_not_opened_again() {
    let open = || {
        let (label, metadata) = (Label::new("worker").unwrap(), Metadata::default());
        Call::Open { ttl: TTL, label, metadata }
    };
    let ended: fn(&mut World) = |world| assert_eq!(world.act(Act::Prove(A)), Reply::Done);
    let adopted: fn(&mut World) = |world| {
        world.records.remove(&Key::Lease(A));
        waits(world.claim(B));
        assert!(world.lease(A).ended.is_none(), "the ticket names it, so it was written again");
    };
    for end in [ended, adopted] {
        let mut world = World::owned_by_a();
        end(&mut world);

        assert_eq!(world.call(A, open()), Said::Gone);
    }
}

#[test]
fn a_lease_that_ran_out_and_was_not_ended_is_renewed() {
    let mut world = World::owned_by_a();
    world.pass(TTL * 3);

    assert!(matches!(world.renew(A), Said::Kept { .. }));

    waits(world.claim(B));
}

// req: L2
#[test]
fn a_step_back_of_the_stores_clock_blocks_a_ticket_for_one_ttl_at_most() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));

    world.now = StoreTime::from_micros(world.now.as_micros() - 900_000_000);
    world.renew(B);
    waits(world.claim(B));
    world.pass(TTL / 2);
    world.renew(B);
    waits(world.claim(B));
    world.pass(TTL / 2);
    world.renew(B);

    assert_eq!(granted(world.claim(B)).term, Term(2));
}

#[test]
fn a_notice_from_another_does_not_extend_a_lease() {
    let mut world = World::owned_by_a();
    let ends = world.now + TTL;
    world.pass(TTL / 2);

    assert_eq!(world.act(Act::Ask(name(), world.resource().token, None)), Reply::Asked(StepDownReply::Done));

    world.now = ends;
    world.renew(B);
    assert_eq!(granted(world.claim(B)).term, Term(2));
}

#[test]
fn a_renewal_under_a_number_that_was_used_is_stale() {
    let mut world = World::owned_by_a();
    world.renew_as(A, 50);
    let before = world.version(&Key::Lease(A));

    assert_eq!(world.renew_as(A, 50), Said::Stale);
    assert_eq!(world.renew_as(A, 49), Said::Stale);

    assert_eq!(world.version(&Key::Lease(A)), before);
}

#[test]
fn a_clone_that_is_taken_for_oneself_is_noticed() {
    let mut world = World { planted: Planted::with(Bug::ClonesAreOurselves), ..World::new() };
    world.open(A, TTL);
    world.renew_as(A, 50);

    assert!(matches!(world.renew_as(A, 50), Said::Kept { .. }), "and the right one says Stale, as above");
}

#[test]
fn a_commit_that_arrives_twice_counts_once_and_counts() {
    let mut world = World::owned_by_a();
    world.doubled = true;

    assert!(matches!(world.renew(A), Said::Kept { .. }));
    assert_eq!(world.release(A), Released::Free);
    assert_eq!(granted(world.claim(B)).term, Term(2));
}

#[test]
fn a_lease_that_ran_out_is_ended_by_a_sweep_only_when_it_was_watched_or_long_ago() {
    let hour = Duration::from_secs(3600);
    let mut world = World::owned_by_a();
    let is_ended = |world: &World| world.lease(A).ended.is_some();

    // The store's clock goes far ahead: nobody has watched the lease for so long.
    world.act(Act::Sweep(vec![A]));
    world.now = world.now + hour * 2;
    world.act(Act::Sweep(vec![A]));
    assert!(!is_ended(&world));

    world.pass(TTL);
    world.act(Act::Sweep(vec![A]));
    assert!(is_ended(&world));
}

#[test]
fn a_lease_that_ran_out_is_ended_by_a_sweep_an_hour_later_and_never_in_a_quarantine() {
    let hour = Duration::from_secs(3600);
    for (life, after, is_ended) in [
        (1, TTL + hour - Duration::from_micros(1), false),
        (1, TTL + hour, true),
        (2, (TTL + hour) * 2, false),
    ] {
        let mut world = World::owned_by_a();
        world.life = Incarnation(life);
        world.act(Act::Sweep(vec![A]));
        world.pass(after);

        world.act(Act::Sweep(vec![A]));

        assert_eq!(world.lease(A).ended.is_some(), is_ended, "{after:?} in life {life}");
    }
}

#[test]
fn a_lease_is_deleted_an_hour_after_it_was_left_in_order_and_else_after_30_days() {
    let (hour, micro) = (Duration::from_secs(3600), Duration::from_micros(1));
    let left: fn(&mut World) = |world| assert_eq!(world.close(A), Said::Closed);
    let proved: fn(&mut World) = |world| assert_eq!(world.act(Act::Prove(A)), Reply::Done);
    let idle = || {
        let mut world = World::new();
        world.open(A, TTL);
        world
    };
    let month = hour * 24 * 30;
    for (mut world, end, kept) in
        [(World::owned_by_a(), left, hour), (idle(), left, hour), (World::owned_by_a(), proved, month)]
    {
        end(&mut world);

        world.pass(kept - micro);
        world.act(Act::Sweep(vec![A]));
        assert!(world.value(&Key::Lease(A)).is_some());
        world.pass(micro);
        let (_, _, sendings) = world.begin_act(&mut world.operator.clone(), Act::Sweep(vec![A]));
        let expected = [Key::Info(A), Key::Lease(A)].map(|key| (key.clone(), world.version(&key)));
        assert_eq!(sendings[0].change.expect, expected, "as they are now");
        world.act(Act::Sweep(vec![A]));
        assert!(world.value(&Key::Lease(A)).is_none() && world.value(&Key::Info(A)).is_none());
    }
}

#[test]
fn an_ended_lease_has_nothing_to_tell_and_those_who_follow_it_hear_of_the_end() {
    let mut world = World::owned_by_a();
    let notice = Notice { resource: name(), token: world.resource().token, wish: Wish::Asked };
    let asked = Lease { notices: vec![notice], more_notices: true, ..world.lease(A) };
    world.write(&Key::Lease(A), asked.into());
    world.signals.clear();

    world.act(Act::Prove(A));

    assert_eq!((world.lease(A).notices, world.lease(A).more_notices), (vec![], false));
    assert_eq!(world.signals, [Signal::Ended(A)]);
}

#[test]
fn a_ttl_that_was_noted_within_the_last_minute_is_not_noted_again() {
    let minute = Duration::from_secs(60);
    for (after, commits) in [(Duration::ZERO, 1), (minute - Duration::from_micros(1), 1), (minute, 2)] {
        let mut world = World::new();
        world.open(A, TTL);
        world.pass(after);
        world.count();

        world.open(B, TTL);

        assert_eq!(world.count().commits, commits, "{after:?}");
    }
}

#[test]
fn the_longest_ttl_falls_when_no_lease_uses_it_and_not_before() {
    let mut world = World::new();
    world.open(A, TTL * 4);
    world.open(B, TTL);
    world.pass(TTL_LINGERS);

    world.drop_ttls(&[TTL, TTL * 4]);
    assert_eq!(world.meta().longest, TTL * 4);
    world.drop_ttls(&[TTL]);
    assert_eq!(world.meta().longest, TTL * 4, "it was in use a moment ago");
    world.pass(TTL_LINGERS);
    world.drop_ttls(&[TTL]);
    assert_eq!(world.meta().longest, TTL);
}

#[test]
fn every_ttl_in_use_is_noted_and_those_that_no_lease_uses_are_dropped() {
    let noted = |world: &World| match world.value(&Key::Ttls) {
        Some(Value::Ttls(ttls)) => ttls.uses.iter().map(|used| used.ttl).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let mut world = World::new();
    world.open(A, TTL * 4);
    world.open(B, TTL);
    world.open(C, TTL * 2);
    assert_eq!(noted(&world), [TTL * 4, TTL, TTL * 2]);

    world.pass(TTL_LINGERS);
    world.drop_ttls(&[TTL, TTL * 4]);
    assert_eq!((noted(&world), world.meta().longest), (vec![TTL * 4, TTL], TTL * 4));
    world.count();
    world.drop_ttls(&[TTL, TTL * 4]);
    assert_eq!(world.count().writes, 0, "all are in use");
}

#[test]
fn a_ttl_that_was_just_noted_is_not_dropped() {
    let mut world = World::new();
    world.open(A, TTL);
    world.pass(TTL_LINGERS - Duration::from_secs(1));

    world.drop_ttls(&[]);

    assert_eq!(world.meta().longest, TTL);
}
