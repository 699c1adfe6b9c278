//! Claims, and when a waiter looks again.

use super::*;

// req: T1
#[test]
fn the_first_grant_has_ticket_0_and_term_1_and_the_wall_clock_as_its_token() {
    let mut store = Store::new();
    let a = store.open("a");

    let grant = granted(store.claim(a));

    assert_eq!(grant, Grant { ticket: Ticket(0), term: Term(1), token: Token(store.world.wall) });
}

// req: T2 O3
#[test]
fn of_two_first_claims_with_the_default_tickets_one_wins_and_one_waits() {
    let mut store = Store::new();
    let (a, b) = (store.open("a"), store.open("b"));

    granted(store.claim_with(a, Tickets::default(), 0));
    let second = waiting(store.claim_with(b, Tickets::default(), 0));

    assert_eq!((second.ahead, second.why), (0, WaitReason::Taken));
    assert_eq!((store.owners(), store.waiters()), (vec!["a"], vec!["b"]));
}

// req: H3
#[test]
fn an_owner_that_claims_again_is_given_the_same_grant() {
    let mut store = Store::new();
    let a = store.open("a");
    let first = store.claim(a);
    let history = store.history();

    store.pass(secs(1));
    let again = store.claim(a);

    assert_eq!(again, first);
    assert_eq!(store.history(), history);
}

// req: T1
#[test]
fn each_grant_adds_one_to_the_term_however_the_last_one_ended() {
    let mut store = Store::new();
    let mut terms = vec![];

    for why in [Closing::Left, Closing::Expired, Closing::Proved] {
        let a = store.open("a");
        terms.push(granted(store.claim(a)).term);
        store.release(a);
        terms.push(granted(store.claim(a)).term);
        store.close(a, why);
    }

    assert_eq!(terms, [1, 2, 3, 4, 5, 6].map(Term));
}

// req: T1
#[test]
fn the_token_grows_also_when_the_wall_clock_goes_back_or_stands_still() {
    let mut store = Store::new();
    let a = store.open("a");
    let first = granted(store.claim(a)).token;

    store.release(a);
    store.world.wall -= 1_000_000;
    let after_a_step_back = granted(store.claim(a)).token;
    store.release(a);
    store.world.wall = after_a_step_back.0 + 5;
    store.world.call(a, Call::Held);
    let caught_up = granted(store.claim(a)).token;

    assert_eq!(after_a_step_back, Token(first.0 + 1));
    assert_eq!(caught_up, Token(first.0 + 6));
}

#[test]
fn a_wall_clock_beyond_the_year_2200_does_not_count_for_a_token() {
    let year_2200 = 7_258_118_400_000_000;
    for (wall, token) in [(year_2200 - 1, year_2200 - 1), (year_2200, 1)] {
        let mut store = Store::new();
        store.world.wall = wall;
        let a = store.open("a");

        assert_eq!(granted(store.claim(a)).token, Token(token));
    }
}

// req: T1
#[test]
fn a_resource_that_nobody_wants_for_days_keeps_its_term_and_token() {
    let mut store = Store::new();
    let a = store.open("a");
    let first = granted(store.claim(a));

    for _ in 0..48 {
        store.pass(HOUR);
        store.open("another");
    }
    store.world.wall = first.token.0;
    let b = store.open("b");
    let next = granted(store.claim(b));

    assert_eq!((next.term, next.token), (Term(2), Token(first.token.0 + 1)));
}

// req: O2 H16
#[test]
fn the_lowest_free_ticket_is_given_and_never_more_than_k() {
    let mut store = Store::new();
    let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(|label| store.open(label));
    let three = tickets(3);
    let first = [a, b, c].map(|lease| granted(store.claim_with(lease, three, 0)).ticket);

    let fourth = store.claim_with(d, three, 0);
    store.release(b);
    let after_a_release = granted(store.claim_with(d, three, 0));
    let fifth = store.claim_with(e, three, 0);

    assert_eq!(first, [0, 1, 2].map(Ticket));
    assert_eq!(waiting(fourth).why, WaitReason::Taken);
    assert_eq!((after_a_release.ticket, after_a_release.term), (Ticket(1), Term(4)));
    assert_eq!(waiting(fifth).why, WaitReason::Taken);
}

// req: O5
#[test]
fn the_resources_of_one_claim_are_independent_and_answered_in_its_order() {
    let mut store = Store::new();
    let (a, b) = (store.open("a"), store.open("b"));
    store.claim_at(a, "y");

    let said = store.send(b, Call::Claim(vec![want("z"), want("y"), want("x")]));
    let Said::Claimed(answers) = said else { panic!("{said:?}") };
    store.send(b, release_of("z"));

    assert_eq!(granted(answers[0]).term, Term(1));
    assert_eq!(waiting(answers[1]).why, WaitReason::Taken);
    assert_eq!(granted(answers[2]).term, Term(1));
    assert_eq!(store.held(b), ["x"]);
}

#[test]
fn a_waiter_is_queued_once_and_keeps_the_priority_of_its_place() {
    let mut store = Store::new();
    store.own("a");
    let (b, c) = (store.wait("b"), store.wait("c"));

    let again = waiting(store.claim_with(c, Tickets::ONE, 9));

    assert_eq!(again.ahead, 1);
    assert_eq!(waiting(store.claim(b)).ahead, 0);
    assert_eq!(store.waiters(), ["b", "c"]);
}

// req: T3
#[test]
fn a_dead_or_unknown_lease_is_granted_nothing_and_takes_no_place() {
    let mut store = Store::new();
    let a = store.open("a");
    store.close(a, Closing::Left);

    let said = [a, LeaseId(99)].map(|lease| store.send(lease, claim_of("job")));

    assert_eq!(said, [Said::Gone, Said::Gone]);
    assert_eq!(store.world.version(&Key::Resource(name("job"))), Version::NONE);
}

#[test]
fn the_head_looks_again_when_the_first_of_the_owners_would_run_out() {
    let mut store = Store::new();
    let (a, b, c) = (store.open("a"), store.open("b"), store.open("c"));
    store.claim_with(a, tickets(2), 0);
    store.claim_with(b, tickets(2), 0);

    store.pass(secs(4));
    store.renew(a);
    let head = waiting(store.claim_with(c, tickets(2), 0));

    assert_eq!(head, Waiting { ahead: 0, look_again: TTL - secs(4), why: WaitReason::Taken });
}

#[test]
fn positions_1_to_8_look_a_step_later_each_and_the_rest_a_ttl_later() {
    let mut store = Store::new();
    store.own("a");
    let workers: Vec<LeaseId> = (0..11).map(|_| store.open("w")).collect();

    let spans: Vec<Duration> = workers.iter().map(|w| waiting(store.claim(*w)).look_again).collect();

    for (position, span) in (0..).zip(&spans[..9]) {
        assert_eq!(*span, TTL + STEP * position, "position {position}");
    }
    assert_eq!(spans[9..], [TTL + TTL, TTL + TTL]);
}

// req: H6
#[test]
fn the_length_of_the_owners_lease_counts_and_not_that_of_the_challenger() {
    let mut store = Store::new();
    let a = store.open_for("a", secs(30));
    store.claim(a);

    let b = store.open_for("b", secs(3));
    assert_eq!(waiting(store.claim(b)).look_again, secs(30));

    store.pass(secs(30) - MICRO);
    let c = store.open_for("c", secs(3));
    waiting(store.claim(c));
    store.pass(MICRO);
    granted(store.claim(c));
}

#[test]
fn nobody_is_told_to_look_again_within_a_millisecond() {
    let mut store = Store::new();
    store.own("a");

    store.pass(TTL - MICRO);
    let b = store.open("b");
    let head = waiting(store.claim(b));

    assert_eq!(head.look_again, Duration::from_millis(1));
}

#[test]
fn a_judgement_far_behind_the_clock_of_the_store_does_not_stretch_the_look_beyond_a_ttl() {
    let mut store = Store::new();
    let before = store.now();
    store.pass(HOUR);
    store.own("a");
    let b = store.open("b");

    store.judged_by = Some(before);
    let head = waiting(store.claim(b));

    assert_eq!(head.look_again, TTL);
}

#[test]
fn a_step_back_of_the_clock_does_not_stretch_the_look_beyond_a_ttl_while_a_ticket_is_free() {
    let mut store = Store::new();
    let a = store.own("a");
    let (_, c) = (store.wait("b"), store.wait("c"));
    store.release(a);

    store.world.now = store.now_less(HOUR / 4);
    let next = waiting(store.claim(c));

    assert!(next.look_again <= TTL, "{next:?}");
}
