//! Who may take a free ticket, who comes first, and when to look again.

use std::time::Duration;

use tenure_core::{Closing, Ticket, WaitReason, Waiting};

use super::Fixture;
use super::world::*;

/// How many may wait for a resource with one ticket.
const QUEUE: usize = 64 + 1;

/// A place is taken once, with its priority; asking again does not move it.
pub async fn a_waiter_is_queued_once_and_keeps_the_priority_of_its_place(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own("a").await;
    let (b, c) = (world.wait("b").await, world.wait("c").await);

    let again = waiting(world.claim_with(c, 1, 9).await);

    assert_eq!(again.ahead, 1);
    assert_eq!(waiting(world.claim(b).await).ahead, 0);
    assert_eq!(world.waiters().await, ["b", "c"]);
}

/// Larger priorities first, also negative ones; of equals the one that came first.
pub async fn waiters_are_served_by_priority_and_then_by_arrival(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own("a").await;
    let priorities = [
        ("b", 0, 0),
        ("c", 5, 0),
        ("d", -1, 2),
        ("e", 5, 1),
        ("f", 0, 3),
        ("g", i32::MAX, 0),
        ("h", i32::MIN, 6),
    ];

    for (label, priority, ahead) in priorities {
        let worker = world.open(label).await;
        assert_eq!(waiting(world.claim_with(worker, 1, priority).await).ahead, ahead, "{label}");
    }

    assert_eq!(world.waiters().await, ["g", "c", "e", "b", "f", "d", "h"]);
}

/// The head takes a free ticket at once; the next leaves it to the head for one step.
pub async fn a_free_ticket_is_the_heads_at_once_and_the_nexts_after_a_step(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own("a").await;
    world.wait("b").await;
    // A lease of a minute has a step of 400 ms.
    let (c, d) = (world.wait_for("c", Duration::from_secs(60)).await, world.wait_for("d", HOUR).await);
    world.release(a).await;
    let freed_at = world.answered_at();

    let next = waiting(world.claim(c).await);
    assert_eq!((next.ahead, next.why), (1, WaitReason::Turn));
    world.assert_about(next.look_again, (freed_at + STEP * 4).since(world.shown_at()));

    world.pass_until(freed_at + STEP * 4).await;
    let last = waiting(world.claim(d).await);
    assert_eq!((last.ahead, last.why), (2, WaitReason::Turn));
    granted(world.claim(c).await);
    assert_eq!(world.waiters().await, ["b", "d"]);
}

/// The head does not wait for anything.
pub async fn the_head_takes_a_free_ticket_at_once(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own("a").await;
    let b = world.wait_for("b", HOUR).await;

    world.release(a).await;

    granted(world.claim(b).await);
}

/// Coming late to a free ticket does not mean coming first.
pub async fn a_newcomer_does_not_overtake_those_who_wait(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own("a").await;
    let b = world.wait("b").await;
    world.release(a).await;

    let c = world.open_for("c", HOUR).await;
    let newcomer = waiting(world.claim(c).await);

    assert_eq!((newcomer.ahead, newcomer.why), (1, WaitReason::Turn));
    granted(world.claim(b).await);
}

/// Two free tickets are the first two waiters' at once, in whichever order they come.
pub async fn as_many_waiters_as_there_are_free_tickets_may_take_one_at_once(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b] = world.crowd(["a", "b"], 2).await;
    let mut waiters = [a; 3];
    for (waiter, label) in waiters.iter_mut().zip(["c", "d", "e"]) {
        *waiter = world.open_for(label, HOUR).await;
        waiting(world.claim_with(*waiter, 2, 0).await);
    }
    let [c, d, e] = waiters;
    world.release(a).await;
    world.release(b).await;

    let third = waiting(world.claim_with(e, 2, 0).await);
    let second = granted(world.claim_with(d, 2, 0).await);
    let first = granted(world.claim_with(c, 2, 0).await);

    assert_eq!((third.ahead, third.why), (2, WaitReason::Turn));
    assert_eq!((second.ticket, first.ticket), (Ticket(0), Ticket(1)));
}

/// However long the queue, its end waits for ten steps at most.
pub async fn nobody_waits_more_than_ten_steps_for_those_before_it(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own("a").await;
    for _ in 0..12 {
        world.wait("w").await;
    }
    let last = world.wait_for("last", Duration::from_secs(60)).await;
    world.release(a).await;
    let turn = world.answered_at() + STEP * 40;

    let look = waiting(world.claim(last).await);

    assert_eq!((look.ahead, look.why), (12, WaitReason::Turn));
    world.assert_about(look.look_again, turn.since(world.shown_at()));
    world.pass_until(turn).await;
    granted(world.claim(last).await);
}

/// The step is the greater of 100 ms and a hundred and fiftieth of the claimant's ttl.
pub async fn the_step_follows_the_claimants_ttl_and_is_at_least_100_ms(fixture: impl Fixture) {
    let mut world = World::of(fixture);

    for (ttl, step) in [(LONG * 20, STEP * 20), (LONG * 2 / 3, STEP)] {
        let a = world.own("a").await;
        let b = world.wait("b").await;
        let c = world.wait_for("c", ttl).await;
        world.release(a).await;
        let freed_at = world.answered_at();

        let claimed = world.claim(c).await;
        let left = (freed_at + step).since(world.shown_at());
        // A store that takes longer than a step for two requests has nothing to wait for any more.
        if !left.is_zero() {
            world.assert_about(waiting(claimed).look_again, left.max(Duration::from_millis(1)));
        }
        world.close(b, Closing::Left).await;
        world.close(c, Closing::Left).await;
    }
}

/// With several free tickets the steps count from when the latest became free.
pub async fn the_steps_count_from_the_latest_of_the_free_tickets(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b, _, _] = world.crowd(["a", "b", "c", "d"], 2).await;
    let e = world.open_for("e", HOUR).await;
    waiting(world.claim_with(e, 2, 0).await);
    world.release(b).await;
    world.pass(SHORT / 5).await;
    world.release(a).await;
    let freed_at = world.answered_at();

    let third = waiting(world.claim_with(e, 2, 0).await);

    world.assert_about(third.look_again, (freed_at + HOUR / 150).since(world.shown_at()));
}

/// The ticket of a dead owner was free from the end of its lease, whenever that is found out.
pub async fn the_steps_of_a_dead_owners_ticket_count_from_the_end_of_its_lease(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own_for("a", SHORT).await;
    world.wait("b").await;
    let c = world.wait_for("c", LONG * 20).await;
    world.renew(a).await;
    let ended_at = world.answered_at() + SHORT;
    world.pass_until(ended_at + STEP * 3).await;

    let next = waiting(world.claim(c).await);

    assert_eq!((next.ahead, next.why), (1, WaitReason::Turn));
    world.assert_about(next.look_again, (ended_at + STEP * 20).since(world.shown_at()));
}

/// Dead waiters are cleared by those who come across them, a few at a time: after as many looks nobody counts them.
pub async fn dead_waiters_are_cleared_by_those_who_look(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own("a").await;
    let mut dead = vec![];
    for _ in 0..12 {
        dead.push(world.wait("w").await);
    }
    world.wait_for("runs out", SHORT).await;
    for worker in dead {
        world.close(worker, Closing::Proved).await;
    }
    world.pass(SHORT).await;

    // Thirteen are dead, and each look knows of the first eight.
    let b = world.open_for("b", HOUR).await;
    assert!(waiting(world.claim(b).await).ahead <= 5);
    assert_eq!(waiting(world.claim(b).await).ahead, 0);
    world.release(a).await;

    granted(world.claim(b).await);
}

/// The queue holds 64 and one for each ticket. Behind it a worker is told to look once per ttl, has no place, and is
/// served once there is room.
// req: L3
pub async fn behind_a_full_queue_a_worker_has_no_place_and_is_not_lost(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own_for("a", HOUR).await;
    let mut waiters = vec![];
    for _ in 0..QUEUE {
        waiters.push(world.wait_for("w", HOUR).await);
    }

    let behind = world.open_for("behind", HOUR).await;
    for _ in 0..2 {
        let look = waiting(world.claim(behind).await);
        assert!(look.ahead >= 64, "{look:?}");
        world.assert_about(look.look_again + world.shown_at().since(world.answered_at()), HOUR);
        assert_eq!(world.waiters().await.len(), QUEUE);
    }

    world.release(waiters.remove(0)).await;
    assert_eq!(waiting(world.claim(behind).await).ahead as usize, QUEUE - 1);
    assert_eq!(world.waiters().await.last().map(String::as_str), Some("behind"));
    for waiter in waiters {
        world.release(waiter).await;
    }
    world.release(a).await;
    granted(world.claim(behind).await);
}

/// A larger priority takes the last place of a full queue. Whoever had it is not lost.
// req: L3
pub async fn a_larger_priority_displaces_the_last_of_a_full_queue(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own_for("a", HOUR).await;
    for _ in 1..QUEUE {
        world.wait_for("w", HOUR).await;
    }
    let last = world.wait_for("last", HOUR).await;

    let urgent = world.open_for("urgent", HOUR).await;
    assert_eq!(waiting(world.claim_with(urgent, 1, 1).await).ahead, 0);

    let queue = world.waiters().await;
    assert_eq!((queue.len(), queue[0].as_str()), (QUEUE, "urgent"));
    assert!(!queue.contains(&"last".into()));
    world.release(a).await;
    granted(world.claim_with(urgent, 1, 1).await);
    assert_eq!(waiting(world.claim(last).await).ahead as usize, QUEUE - 1);
    assert_eq!(world.waiters().await.last().map(String::as_str), Some("last"));
}

/// The head looks when the first of the owners would be dead if it stopped renewing now.
pub async fn the_head_looks_again_when_the_first_of_the_owners_would_run_out(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let first_end = world.answered_at() + LONG;
    let (b, c) = (world.open_for("b", LONG * 2).await, world.open("c").await);
    for owner in [a, b] {
        granted(world.claim_with(owner, 2, 0).await);
    }

    let head = waiting(world.claim_with(c, 2, 0).await);

    assert_eq!((head.ahead, head.why), (0, WaitReason::Taken));
    world.assert_about(head.look_again, first_end.since(world.shown_at()));
}

/// Those behind look a step later each, so that they do not come in a crowd; the far ones a ttl later.
pub async fn positions_1_to_8_look_a_step_later_each_and_the_rest_a_ttl_later(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own("a").await;
    world.renew(a).await;
    let ends_at = world.answered_at() + LONG;

    for ahead in 0..11 {
        let worker = world.open("w").await;
        let look = waiting(world.claim(worker).await);

        let later = if ahead <= 8 { STEP * ahead } else { LONG };
        assert_eq!((look.ahead, look.why), (ahead, WaitReason::Taken));
        world.assert_about(look.look_again, ends_at.since(world.shown_at()) + later);
    }
}

/// Nobody is told to ask again at once, and nobody to stay away for longer than a ttl by a stale judgement.
pub async fn a_look_again_is_at_least_a_millisecond_and_at_most_a_ttl(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own_for("a", SHORT).await;
    let b = world.open("b").await;
    world.renew(a).await;
    let ends_at = world.answered_at() + SHORT;
    world.pass_until(ends_at).await;

    world.judged_by = Some(earlier(ends_at, MICRO));
    let nearly_over = waiting(world.claim(b).await);
    world.judged_by = Some(earlier(ends_at, HOUR / 2));
    let far_behind = waiting(world.claim(b).await);

    world.assert_about(nearly_over.look_again, Duration::from_millis(1));
    assert_eq!(
        Waiting { look_again: ZERO, ..far_behind },
        Waiting { ahead: 0, look_again: ZERO, why: WaitReason::Taken }
    );
    world.assert_about(far_behind.look_again + world.shown_at().since(world.answered_at()), SHORT);
}
