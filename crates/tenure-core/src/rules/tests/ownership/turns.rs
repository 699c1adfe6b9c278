//! Who may take a free ticket, and who gets a hint.

use super::*;

#[test]
fn a_free_ticket_is_the_heads_at_once_and_the_nexts_after_a_step() {
    let mut store = Store::new();
    let a = store.own("a");
    let (_, c, d) = (store.wait("b"), store.wait("c"), store.wait("d"));
    store.release(a);

    let turn = |ahead| Waiting { ahead, look_again: STEP * ahead, why: WaitReason::Turn };
    assert_eq!(waiting(store.claim(c)), turn(1));
    assert_eq!(waiting(store.claim(d)), turn(2));

    store.pass(STEP - MICRO);
    waiting(store.claim(c));
    store.pass(MICRO);
    waiting(store.claim(d));
    granted(store.claim(c));
}

#[test]
fn a_newcomer_does_not_overtake_those_who_wait() {
    let mut store = Store::new();
    let a = store.own("a");
    let b = store.wait("b");
    store.release(a);

    let c = store.open("c");
    let newcomer = waiting(store.claim(c));

    assert_eq!((newcomer.ahead, newcomer.why), (1, WaitReason::Turn));
    granted(store.claim(b));
}

// req: O2
#[test]
fn as_many_waiters_as_there_are_free_tickets_may_take_one_at_once() {
    let mut store = Store::new();
    let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(|label| store.open(label));
    for worker in [a, b, c, d, e] {
        store.claim_with(worker, tickets(2), 0);
    }
    store.release(a);
    store.release(b);

    let third = waiting(store.claim_with(e, tickets(2), 0));
    let second = granted(store.claim_with(d, tickets(2), 0));

    assert_eq!(third, Waiting { ahead: 2, look_again: STEP, why: WaitReason::Turn });
    assert_eq!(second.ticket, Ticket(0));
    granted(store.claim_with(c, tickets(2), 0));
}

#[test]
fn nobody_waits_more_than_ten_steps_for_those_before_it() {
    let mut store = Store::new();
    let a = store.own("a");
    for _ in 0..15 {
        store.wait("w");
    }
    let last = store.wait("last");
    store.release(a);

    assert_eq!(waiting(store.claim(last)).look_again, STEP * 10);
    store.pass(STEP * 10);
    granted(store.claim(last));
}

#[test]
fn the_step_is_a_hundred_and_fiftieth_of_the_claimants_ttl_and_at_least_100_ms() {
    for (ttl, step) in [(secs(60), 400), (secs(1), 100)] {
        let mut store = Store::new();
        let a = store.own("a");
        store.wait("b");
        let c = store.open_for("c", ttl);
        store.claim(c);

        store.release(a);

        assert_eq!(waiting(store.claim(c)).look_again, Duration::from_millis(step));
    }
}

#[test]
fn the_steps_count_from_the_latest_of_the_free_tickets() {
    let mut store = Store::new();
    let workers = ["a", "b", "c", "d", "e"].map(|label| store.open(label));
    for worker in workers {
        store.claim_with(worker, tickets(2), 0);
    }
    store.release(workers[1]);
    store.pass(STEP / 2);
    store.release(workers[0]);

    let third = waiting(store.claim_with(workers[4], tickets(2), 0));

    assert_eq!(third.look_again, STEP);
}

#[test]
fn the_steps_of_a_dead_owners_ticket_count_from_the_end_of_its_lease() {
    let mut store = Store::new();
    store.own("a");
    store.pass(secs(10));
    let (_, c) = (store.wait("b"), store.wait("c"));
    store.pass(secs(5) + STEP / 4);

    let next = waiting(store.claim(c));

    assert_eq!(next, Waiting { ahead: 1, look_again: STEP * 3 / 4, why: WaitReason::Turn });
}

#[test]
fn dead_waiters_are_cleared_by_those_who_look_eight_at_a_time() {
    let mut store = Store::new();
    let a = store.own("a");
    for _ in 0..12 {
        store.wait("w");
    }
    store.pass(secs(10));
    store.renew(a);
    store.pass(secs(5));

    let b = store.open("b");
    let behind_the_dead = waiting(store.claim(b));
    let left_in_the_queue = store.queued();
    let second_look = waiting(store.claim(b));

    assert_eq!(behind_the_dead.ahead, 12 - 8);
    assert_eq!(left_in_the_queue, 12 - 8 + 1);
    assert_eq!((second_look.ahead, store.queued()), (0, 1));
}

#[test]
fn waiters_are_served_by_priority_and_then_by_arrival() {
    let mut store = Store::new();
    store.own("a");
    for (label, priority) in [("b", 0), ("c", 5), ("d", -1), ("e", 5), ("f", 0)] {
        let worker = store.open(label);
        store.claim_with(worker, Tickets::ONE, priority);
    }

    assert_eq!(store.waiters(), ["c", "e", "b", "f", "d"]);
}

// req: H8
#[test]
fn a_release_hints_the_head_at_once_and_the_next_after_one_step_of_its_own() {
    let mut store = Store::new();
    let a = store.own("a");
    store.wait("b");
    let c = store.open_for("c", secs(60));
    store.claim(c);
    store.wait("d");

    store.release(a);

    assert_eq!(store.hints(), [("b", ZERO), ("c", Duration::from_millis(400))]);
    assert!(store.hints().is_empty(), "they are given once");
}

// req: H8 O14
#[test]
fn raising_the_tickets_hints_as_many_as_are_free_now_and_the_next() {
    let mut store = Store::new();
    store.own("a");
    for label in ["b", "c", "d"] {
        store.wait(label);
    }
    store.pass(secs(1));

    let e = store.open("e");
    store.claim_with(e, tickets(3), 0);

    assert_eq!(store.hints(), [("b", ZERO), ("c", ZERO), ("d", STEP)]);
}

// req: H8
#[test]
fn a_claim_that_finds_the_owner_dead_leaves_the_ticket_to_those_who_come_first() {
    let mut store = Store::new();
    let a = store.own("a");
    store.pass(secs(10));
    let (_, c) = (store.wait("b"), store.wait("c"));
    store.pass(secs(5));

    let next = waiting(store.claim(c));

    assert_eq!(next, Waiting { ahead: 1, look_again: STEP, why: WaitReason::Turn });
    assert!(store.world.signals.contains(&Signal::Ended(a)), "those who follow the owner's lease are told");
}

#[test]
fn nobody_is_hinted_when_nothing_became_free() {
    let mut store = Store::new();
    let a = store.own("a");
    let b = store.wait("b");

    store.claim(a);
    store.claim(b);
    store.renew(a);
    store.close(b, Closing::Left);

    assert!(store.hints().is_empty());
}
