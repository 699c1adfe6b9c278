//! Releases and step-downs.

use super::*;

// req: H8
#[test]
fn a_release_frees_the_ticket_and_wakes_the_head() {
    let mut store = Store::new();
    let a = store.own("a");
    let b = store.wait("b");

    let released = store.release(a);

    assert_eq!(released, Released::Free);
    assert_eq!(store.hints(), [("b", ZERO)]);
    assert_eq!(granted(store.claim(b)).term, Term(2));
}

#[test]
fn a_release_leaves_the_queue() {
    let mut store = Store::new();
    store.own("a");
    let (b, c) = (store.wait("b"), store.wait("c"));

    assert_eq!(store.release(b), Released::Free);

    assert_eq!(store.waiters(), ["c"]);
    assert_eq!(waiting(store.claim(c)).ahead, 0);
    assert!(store.hints().is_empty(), "nothing became free");
}

// req: E4
#[test]
fn a_release_of_what_is_not_held_ends_nobody_elses_ownership() {
    let mut store = Store::new();
    store.own("a");
    let b = store.open("b");

    assert_eq!(store.release(b), Released::Free);
    assert_eq!(store.release_at(b, "never-claimed"), Released::Free);

    assert_eq!(store.owners(), ["a"]);
}

// req: T3
#[test]
fn a_release_under_a_lease_that_was_ended_takes_nothing_from_the_next() {
    let mut store = Store::new();
    let a = store.own("a");
    store.pass(TTL);
    store.own("b");

    store.release(a);

    assert_eq!(store.owners(), ["b"]);
}

#[test]
fn a_worker_that_steps_down_queues_at_the_tail_with_the_lowest_priority_waiting() {
    let mut store = Store::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|label| store.open(label));
    store.claim_with(a, Tickets::ONE, 9);
    store.claim_with(b, Tickets::ONE, 3);
    store.claim_with(c, Tickets::ONE, -2);

    let released = store.step_down(a);
    store.claim_with(d, Tickets::ONE, -1);

    let look_again = STEP * 2;
    let claimed = Claimed::Waiting(Waiting { ahead: 2, look_again, why: WaitReason::Turn });
    assert_eq!(released, Released::Again(claimed));
    assert_eq!(store.waiters(), ["b", "d", "c", "a"]);
    assert_eq!(granted(store.claim(b)).term, Term(2));
}

// req: H8
#[test]
fn a_worker_that_steps_down_before_a_full_queue_gets_no_place() {
    for (waiters, queues) in [(MOST_WAITERS, true), (MOST_WAITERS + 1, false)] {
        let mut store = Store::new();
        let a = store.own("a");
        for _ in 0..waiters {
            store.wait("w");
        }

        let Released::Again(claimed) = store.step_down(a) else { panic!("it does not wait") };

        assert_eq!(waiting(claimed).ahead as usize, waiters);
        assert_eq!((store.resource("job").waits(a), store.queued()), (queues, MOST_WAITERS + 1));
        if !queues {
            assert_eq!(waiting(claimed).look_again, TTL);
        }
    }
}

#[test]
fn stepping_down_wakes_the_others_and_not_the_worker_itself() {
    let mut store = Store::new();
    let a = store.own("a");
    store.wait("b");

    store.step_down(a);

    assert_eq!(store.hints(), [("b", ZERO)]);
}

// req: T1
#[test]
fn stepping_down_with_nobody_waiting_is_answered_with_the_next_term() {
    let mut store = Store::new();
    let a = store.own("a");

    let Released::Again(claimed) = store.step_down(a) else { panic!("not answered like a claim") };

    assert_eq!(granted(claimed).term, Term(2));
    assert_eq!(store.held(a), ["job"]);
}
