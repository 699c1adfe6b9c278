//! Tickets and the queue: whose turn it is, who is woken, what is cleared away.

use super::*;

// req: L3
#[test]
fn whoever_joins_does_not_set_anew_when_the_ticket_was_freed() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.release(A);
    world.pass(Duration::from_millis(60));
    world.open(C, TTL);
    assert_eq!(waits(world.claim(C)).why, WaitReason::Turn);

    world.pass(Duration::from_millis(50));

    assert_eq!(granted(world.claim(C)).term, Term(2), "a step after the release the next may take it");
}

// B has seen the lease of C once. C has renewed since.
#[test]
fn a_waiter_that_has_renewed_since_it_was_seen_is_not_overtaken() {
    let mut world = World::owned_by_a();
    world.open(C, TTL);
    waits(world.claim(C));
    waits(world.claim(B));
    for _ in 0..2 {
        world.pass(TTL / 2);
        [A, B, C].iter().for_each(|lease| drop(world.renew(*lease)));
    }
    world.release(A);
    world.tell(B, "r");

    assert_eq!(waits(world.claim(B)).why, WaitReason::Turn);
}

#[test]
fn the_store_grants_nothing_to_later_waiters_before_their_steps_are_over() {
    let mut world = World::owned_by_a();
    let (d, step) = (LeaseId(4), Duration::from_millis(100));
    world.open(C, TTL);
    world.open(d, TTL);
    for lease in [B, C, d] {
        waits(world.claim(lease));
    }
    world.release(A);
    let freed = world.now;
    world.pass(step * 5);

    for (lease, from) in [(B, None), (C, Some(freed + step)), (d, Some(freed + step * 2))] {
        world.tell(lease, "r");
        let sendings = world.commit_of(lease, claim_of(1, 0));
        assert!(sendings[0].change.lasting, "it is a grant");
        assert_eq!(sendings[0].change.window.from, from);
    }
}

#[test]
fn a_hint_goes_on_to_those_behind_when_nobody_listens() {
    let mut world = World::owned_by_a();
    world.open(C, TTL);
    waits(world.claim(B));
    waits(world.claim(C));
    world.signals.clear();

    world.call(A, Call::Release(vec![leave(&name(), Leaving::SteppedDown)]));

    let (resource, step) = (name(), Duration::from_millis(100));
    let head = Signal::Look { to: vec![B, C], resource: resource.clone(), after: Duration::ZERO };
    let next = Signal::Look { to: vec![C], resource, after: step };
    assert_eq!(world.signals, [head, next], "A is not told what it did itself");
}

#[test]
fn whoever_clears_dead_waiters_away_leaves_the_living_in_their_places() {
    let mut world = World::owned_by_a();
    let d = LeaseId(4);
    world.open(C, TTL);
    world.open(d, TTL);
    for lease in [C, B, d] {
        waits(world.claim(lease));
    }
    world.act(Act::Prove(C));

    assert_eq!(waits(world.claim(B)).ahead, 0);

    let queue = world.resource().queue;
    assert_eq!(
        queue.iter().map(|waiter| (waiter.lease, waiter.arrival)).collect::<Vec<_>>(),
        [(B, 2), (d, 3)]
    );
}

// With two free tickets ten waiters are looked at.
#[test]
fn one_change_drops_eight_dead_waiters_at_most() {
    let mut world = World::new();
    let d = LeaseId(4);
    for lease in [A, B, C] {
        world.open(lease, TTL);
        granted(world.claim_with(lease, 3, 0));
    }
    for lease in (10..22).map(LeaseId) {
        world.open(lease, TTL);
        waits(world.claim_with(lease, 3, 0));
    }
    for lease in (10..22).map(LeaseId) {
        world.act(Act::Prove(lease));
    }
    world.release(B);
    world.release(C);
    world.pass(Duration::from_secs(1));
    world.open(d, TTL);

    granted(world.claim_with(d, 3, 0));

    assert_eq!(world.resource().queue.len(), 12 - 8);
}

#[test]
fn a_ticket_beyond_k_is_noticed() {
    for (planted, owners) in [(Planted::default(), 1), (Planted::with(Bug::TicketsNotCounted), 2)] {
        let mut world = World { planted, ..World::new() };
        for lease in [A, B] {
            world.open(lease, TTL);
            world.claim(lease);
        }

        assert_eq!(world.resource().owners.len(), owners);
    }
}

#[test]
fn whoever_steps_down_clears_away_other_owners_that_are_known_to_be_dead() {
    let mut world = World::new();
    for lease in [A, B] {
        world.open(lease, TTL);
        granted(world.claim_with(lease, 2, 0));
    }
    world.act(Act::Prove(B));
    granted(world.claim_with(A, 2, 0)); // It looks at B.

    world.call(A, Call::Release(vec![leave(&name(), Leaving::SteppedDown)]));

    assert!(world.resource().owner_with(B).is_none());
    assert!(world.history.iter().any(|event| event.what == HistoryEvent::Died));
}

#[test]
fn whoever_takes_the_last_free_ticket_of_a_dead_owner_wakes_nobody() {
    let mut world = World::owned_by_a();
    world.open(C, TTL);
    waits(world.claim(B));
    waits(world.claim(C));
    world.act(Act::Prove(A));
    world.signals.clear();

    granted(world.claim(B));

    assert!(!world.signals.iter().any(|signal| matches!(signal, Signal::Look { .. })), "{:?}", world.signals);
}

#[test]
fn tickets_stand_by_their_numbers() {
    let mut world = World::new();
    for lease in [A, B, C] {
        world.open(lease, TTL);
        granted(world.claim_with(lease, 3, 0));
    }
    world.release(B);
    granted(world.claim_with(B, 3, 0));

    let tickets: Vec<u32> = world.resource().owners.iter().map(|owner| owner.grant.ticket.0).collect();
    assert_eq!(tickets, [0, 1, 2]);
}

#[test]
fn what_a_newer_version_wrote_is_kept() {
    let mut world = World::owned_by_a();
    let newer: Rest = [("paused".to_string(), "true".into())].into_iter().collect();
    world.edit_resource(|resource| resource.rest = newer.clone());

    waits(world.claim(B));
    world.release(A);

    assert_eq!(world.resource().rest, newer);
}

#[test]
fn a_seat_under_a_lease_that_is_missing_is_waited_for_as_long_as_its_owner_could_believe() {
    let mut world = World::owned_by_a();
    world.records.remove(&Key::Lease(A));

    waits(world.claim(B));
    world.pass(TTL);
    world.renew(B);

    assert_eq!(granted(world.claim(B)).term, Term(2));
}

// req: H19
#[test]
fn a_take_over_is_in_the_history_with_how_the_owner_before_ended() {
    let mut world = World::owned_by_a();
    world.pass(TTL * 2);
    world.renew(B);
    granted(world.claim(B));

    let what: Vec<HistoryEvent> = world.history.iter().map(|event| event.what).collect();
    assert_eq!(what, [HistoryEvent::Granted, HistoryEvent::Expired, HistoryEvent::Granted]);
}
