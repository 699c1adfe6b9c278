//! Leases, tickets and the queue, one test for each rule. The helpers, with the `Store` that has a clock to set, are below.

mod jobs;

use alloc::format;

use super::*;
use crate::message::{Claimed, Leave, Leaving, Released, Term, Ticket, Waiting, Want, Why};
use crate::names::{Label, Metadata, ResourceName, Tickets};
use crate::shown::{OwnerView, ResourceView, WaiterView};

/// What a waiter with this ttl leaves to each one before it: 100 ms, which is also 15 s / 150.
const STEP: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3600);
const MICRO: Duration = Duration::from_micros(1);
const ZERO: Duration = Duration::ZERO;

// open

#[test]
fn opening_a_lease_again_changes_nothing() {
    let mut store = Store::new();
    let a = store.open("a");
    let before = store.world.records.clone();

    store.pass(secs(5));
    let said = store.open_again(a, "another", TTL);

    assert_eq!(said, Said::Opened);
    assert!(store.world.records == before);
}

// req: T3
#[test]
fn a_late_open_does_not_make_a_dead_lease_again_within_the_hour() {
    let mut store = Store::new();
    let a = store.open("a");
    store.close(a, Closing::Left);

    store.pass(HOUR - MICRO);
    let late = store.open_again(a, "a", TTL);

    assert_eq!(late, Said::Gone);
    assert_eq!(store.renew(a), Said::Gone);
}

// renew

// req: H6
#[test]
fn a_renewal_extends_the_lease_by_its_own_ttl_from_the_clock_of_the_store() {
    let mut store = Store::new();
    let a = store.open_for("a", secs(30));

    store.pass(secs(20));
    let said = store.renew(a);

    assert_eq!(said, kept());
    assert_eq!(store.world.lease(a).renewed, Some(store.now()));
}

// req: T3
#[test]
fn a_renewal_of_a_dead_or_unknown_lease_is_gone_and_creates_nothing() {
    let mut store = Store::new();
    let a = store.open("a");
    store.close(a, Closing::Left);
    let before = store.world.records.clone();

    let closed = store.renew(a);
    let unknown = store.renew(LeaseId(99));

    assert_eq!((closed, unknown), (Said::Gone, Said::Gone));
    assert!(store.world.records == before);
}

// req: E4
#[test]
fn a_repeated_or_older_renewal_is_stale_and_extends_nothing() {
    let mut store = Store::new();
    let a = store.open("a");
    store.renew_as(a, 7);
    let before = store.world.records.clone();

    store.pass(secs(5));
    let repeated = store.renew_as(a, 7);
    let older = store.renew_as(a, 6);

    assert_eq!((repeated, older), (Said::Stale, Said::Stale));
    assert!(store.world.records == before);
}

#[test]
fn renewals_are_compared_with_renewals_only() {
    let mut store = Store::new();
    let a = store.open("a");
    store.send(a, claim_of("job"));
    store.send(a, release_of("job"));

    assert_eq!(store.renew_as(a, 1), kept());
}

#[test]
fn a_renewal_carries_as_many_notices_as_fit_and_says_that_there_are_more() {
    let mut store = Store::new();
    let a = store.open("a");
    for job in 0..MOST_NOTICES + 1 {
        let grant = granted(store.claim_at(a, &format!("job-{job}")));
        store.ask_at(&format!("job-{job}"), grant.token);
    }

    let (first, more) = store.notices_and_more(a);

    assert_eq!((first.len(), more), (MOST_NOTICES, true));
}

#[test]
fn every_renewal_repeats_a_notice_until_the_ticket_is_released() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;
    store.ask_at("job", token);

    let standing = Said::Kept { notices: vec![notice_of("job", token, Wish::Asked)], more: false };
    assert_eq!([store.renew(a), store.renew(a)], [standing.clone(), standing]);

    store.release(a);
    assert_eq!(store.renew(a), kept());
}

// claim

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

    assert_eq!((second.ahead, second.why), (0, Why::Taken));
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
    assert_eq!(waiting(fourth).why, Why::Taken);
    assert_eq!((after_a_release.ticket, after_a_release.term), (Ticket(1), Term(4)));
    assert_eq!(waiting(fifth).why, Why::Taken);
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
    assert_eq!(waiting(answers[1]).why, Why::Taken);
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

// when to look again

#[test]
fn the_head_looks_again_when_the_first_of_the_owners_would_run_out() {
    let mut store = Store::new();
    let (a, b, c) = (store.open("a"), store.open("b"), store.open("c"));
    store.claim_with(a, tickets(2), 0);
    store.claim_with(b, tickets(2), 0);

    store.pass(secs(4));
    store.renew(a);
    let head = waiting(store.claim_with(c, tickets(2), 0));

    assert_eq!(head, Waiting { ahead: 0, look_again: TTL - secs(4), why: Why::Taken });
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

// release

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
    let claimed = Claimed::Waiting(Waiting { ahead: 2, look_again, why: Why::Turn });
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

// close

// req: O5
#[test]
fn closing_a_lease_frees_all_that_it_holds_and_awaits_in_one_step() {
    let mut store = Store::new();
    let (a, b, c) = (store.open("a"), store.open("b"), store.open("c"));
    store.claim_at(b, "z");
    for resource in ["x", "y", "z"] {
        store.claim_at(a, resource);
    }

    store.close(a, Closing::Left);
    store.release_at(b, "z");

    for resource in ["x", "y", "z"] {
        granted(store.claim_at(c, resource));
    }
}

// req: H8
#[test]
fn closing_a_lease_wakes_the_head_of_all_that_it_held() {
    let mut store = Store::new();
    let (a, b, c) = (store.open("a"), store.open("b"), store.open("c"));
    for resource in ["x", "y"] {
        store.claim_at(a, resource);
        store.claim_at(b, resource);
    }
    store.claim_at(c, "y");

    store.close(a, Closing::Left);

    assert_eq!(store.hints(), [("b", ZERO), ("b", ZERO), ("c", STEP)]);
}

#[test]
fn closing_a_lease_frees_more_than_fits_into_one_commit() {
    let mut store = Store::new();
    let (a, b) = (store.open("a"), store.open("b"));
    for job in 0..251 {
        store.claim_at(a, &format!("job-{job}"));
        store.claim_at(b, &format!("job-{job}"));
    }

    store.close(a, Closing::Left);

    assert_eq!(store.hints().len(), 251);
    granted(store.claim_at(b, "job-250"));
}

#[test]
fn closing_a_dead_or_unknown_lease_changes_nothing() {
    let mut store = Store::new();
    let a = store.own("a");
    store.wait("b");
    store.close(a, Closing::Left);
    store.hints();
    let before = store.world.records.clone();

    store.pass(secs(1));
    store.close(a, Closing::Proved);
    store.close(LeaseId(99), Closing::Left);

    assert!(store.world.records == before);
}

// req: H19
#[test]
fn the_history_says_why_the_lease_of_an_owner_was_closed() {
    for (why, what) in [
        (Closing::Left, Happened::Released),
        (Closing::Expired, Happened::Expired),
        (Closing::Proved, Happened::Died),
    ] {
        let mut store = Store::new();
        let a = store.own("a");

        store.close(a, why);

        assert_eq!(store.history(), [("a", Happened::Granted), ("a", what)]);
    }
}

// held

#[test]
fn held_lists_what_the_lease_holds_by_ticket_and_token() {
    let mut store = Store::new();
    let (a, b) = (store.open("a"), store.open("b"));
    store.claim_with(a, tickets(2), 0);
    let Grant { token, .. } = granted(store.claim_with(b, tickets(2), 0));
    store.claim_at(a, "other");
    store.claim_at(b, "other");

    let said = store.send(b, Call::Held);

    assert_eq!(said, Said::Held(vec![Holding { resource: name("job"), ticket: Ticket(1), token }]));
}

#[test]
fn a_dead_or_unknown_lease_holds_nothing() {
    let mut store = Store::new();
    let a = store.own("a");
    store.close(a, Closing::Left);

    let said = [a, LeaseId(99)].map(|lease| store.send(lease, Call::Held));

    assert_eq!(said, [Said::Gone, Said::Gone]);
}

// ask and evict

// req: H18
#[test]
fn asking_tells_the_owner_and_takes_nothing_away() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;

    let asked = store.ask_at("job", token);

    assert_eq!(asked, Asked::Done);
    assert_eq!(store.wishes(a), [Wish::Asked]);
    assert_eq!(store.owners(), ["a"]);
}

// req: H18
#[test]
fn a_named_successor_goes_to_the_head_before_every_priority() {
    let mut store = Store::new();
    let [a, b, c] = ["a", "b", "c"].map(|label| store.open(label));
    let token = granted(store.claim(a)).token;
    store.claim_with(b, Tickets::ONE, i32::MAX);
    store.claim(c);

    let asked = store.ask_for(token, "c");
    store.step_down(a);

    assert_eq!(asked, Asked::Done);
    assert_eq!(store.hints(), [("c", ZERO), ("b", STEP)]);
    granted(store.claim(c));
    assert_eq!(store.waiters(), ["b", "a"]);
}

// req: H18
#[test]
fn a_newcomer_comes_behind_a_named_successor_whatever_its_priority() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;
    store.wait("b");
    store.wait("c");
    store.ask_for(token, "c");

    let d = store.open("d");
    let place = waiting(store.claim_with(d, tickets(1), 5));

    assert_eq!((place.ahead, store.waiters()), (1, vec!["c", "d", "b"]));
}

#[test]
fn the_successor_that_was_named_last_is_the_head() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;
    store.wait("b");
    store.wait("c");

    store.ask_for(token, "b");
    store.ask_for(token, "c");

    assert_eq!(store.waiters(), ["c", "b"]);
}

// req: H18
#[test]
fn an_owner_that_steps_down_for_a_successor_does_not_go_before_later_priorities() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;
    store.wait("b");
    store.ask_for(token, "b");

    store.step_down(a);
    let c = store.open("c");
    store.claim_with(c, Tickets::ONE, 5);

    assert_eq!(store.waiters(), ["b", "c", "a"]);
}

// req: H18 T11
#[test]
fn of_two_waiters_with_one_label_the_earlier_is_the_successor() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;
    let (_, earlier, later) = (store.wait("b"), store.wait("twin"), store.wait("twin"));

    store.ask_for(token, "twin");

    assert_eq!(waiting(store.claim(earlier)).ahead, 0);
    assert_eq!(waiting(store.claim(later)).ahead, 2);
}

// req: H18
#[test]
fn a_successor_that_does_not_wait_or_is_dead_is_refused_and_nothing_changes() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;
    store.wait("b");
    store.pass(secs(10));
    store.renew(a);
    store.open("c");
    store.pass(secs(5));
    let before = store.world.records.clone();

    let asked = ["a", "b", "c", "nobody"].map(|label| store.ask_for(token, label));

    assert_eq!(asked, [(); 4].map(|()| Asked::NotWaiting));
    assert!(store.world.records == before);
}

// req: E4
#[test]
fn a_wish_under_another_token_changes_nothing_and_is_told_who_owns() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;
    store.wait("b");
    let before = store.world.records.clone();

    let old = Token(token.0 - 1);
    let answers = [store.ask_at("job", old), store.ask_for(old, "b"), store.evict(old)];

    assert_eq!(answers, [(); 3].map(|()| Asked::OtherOwners(vec![token])));
    assert_eq!(store.ask_at("unknown", token), Asked::OtherOwners(vec![]));
    assert!(store.world.records == before);
}

#[test]
fn evicting_frees_the_ticket_at_once_and_wakes_the_head() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;
    let b = store.wait("b");

    let evicted = store.evict(token);

    assert_eq!(evicted, Asked::Done);
    assert_eq!(store.hints(), [("b", ZERO)]);
    assert!(store.held(a).is_empty());
    assert_eq!(granted(store.claim(b)).term, Term(2));
}

#[test]
fn the_notice_of_an_eviction_stands_until_the_release() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;
    store.evict(token);

    let standing = Said::Kept { notices: vec![notice_of("job", token, Wish::Evicted)], more: false };
    assert_eq!([store.renew(a), store.renew(a)], [standing.clone(), standing]);

    store.release(a);
    assert!(store.wishes(a).is_empty());
}

#[test]
fn a_stronger_notice_is_not_replaced_by_a_weaker_one() {
    let mut store = Store::new();
    let (a, b) = (store.open("a"), store.open("b"));
    store.claim_with(a, tickets(2), 0);
    let token = granted(store.claim_with(b, tickets(2), 0)).token;

    store.ask_at("job", token);
    store.pass(secs(1));
    let c = store.open("c");
    store.claim_with(c, tickets(1), 0);
    assert_eq!(store.wishes(b), [Wish::Asked]);

    store.evict(token);
    assert_eq!(store.wishes(b), [Wish::Evicted]);
}

// one judgement of life

#[test]
fn a_step_of_the_stores_clock_kills_nobody_in_front_of_a_worker_that_was_watching() {
    let mut store = Store::new();
    let a = store.own("a");
    let b = store.wait("b");
    store.judged_by = Some(store.now() + secs(1));

    store.pass(HOUR);

    waiting(store.claim(b));
    assert_eq!(store.open_again(a, "a", TTL), Said::Opened);
    assert_eq!(store.renew(a), kept());
    assert_eq!(store.release(a), Released::Free);
}

#[test]
fn a_worker_cannot_vouch_for_more_than_the_clock_of_the_store() {
    let mut store = Store::new();
    store.own("a");
    let b = store.open("b");

    store.judged_by = Some(store.now() + HOUR);

    waiting(store.claim(b));
    assert_eq!(store.renew(b), kept());
}

// req: T3
#[test]
fn an_owner_found_dead_by_a_claim_stays_dead_for_those_who_judge_by_an_earlier_time() {
    let mut store = Store::new();
    let a = store.own("a");
    let earlier = store.now();
    store.pass(TTL);

    store.own("b");
    store.judged_by = Some(earlier);

    assert_eq!(store.renew(a), Said::Gone);
}

#[test]
fn a_late_claim_of_a_lease_that_has_run_out_is_given_nothing() {
    let mut store = Store::new();
    let a = store.open("a");
    store.send(a, Call::Renew);

    store.pass(TTL * 10);
    let late = only_claimed(store.send(a, claim_of("job")));

    waiting(late);
    assert_eq!(store.history(), []);
}

#[test]
fn reading_asking_evicting_and_what_others_do_elsewhere_mark_nobody() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;
    let earlier = store.now();
    store.pass(TTL);

    store.send(a, Call::Held);
    store.owners();
    store.history();
    let b = store.open("b");
    store.claim_at(b, "elsewhere");
    store.close(b, Closing::Left);
    store.ask_at("job", token);
    store.evict(token);

    store.judged_by = Some(earlier);
    assert_eq!(store.wishes(a), [Wish::Evicted], "its renewal is kept");
}

// who may take a free ticket

#[test]
fn a_free_ticket_is_the_heads_at_once_and_the_nexts_after_a_step() {
    let mut store = Store::new();
    let a = store.own("a");
    let (_, c, d) = (store.wait("b"), store.wait("c"), store.wait("d"));
    store.release(a);

    let turn = |ahead| Waiting { ahead, look_again: STEP * ahead, why: Why::Turn };
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

    assert_eq!((newcomer.ahead, newcomer.why), (1, Why::Turn));
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

    assert_eq!(third, Waiting { ahead: 2, look_again: STEP, why: Why::Turn });
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

    assert_eq!(next, Waiting { ahead: 1, look_again: STEP * 3 / 4, why: Why::Turn });
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

// hints

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

    assert_eq!(next, Waiting { ahead: 1, look_again: STEP, why: Why::Turn });
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

// tickets may change

// req: O14
#[test]
fn a_claim_changes_the_tickets_only_if_its_lease_was_opened_later() {
    let mut store = Store::new();
    let old = store.open("old");
    store.pass(secs(1));
    let [new, at_the_same_time] = ["new", "at the same time"].map(|label| store.open(label));
    store.claim_with(new, tickets(2), 0);

    store.claim_with(old, tickets(5), 0);
    store.claim_with(at_the_same_time, tickets(6), 0);
    assert_eq!(store.tickets(), 2);

    store.pass(secs(1));
    let newest = store.open("newest");
    store.claim_with(newest, tickets(3), 0);
    assert_eq!(store.tickets(), 3);
}

// req: O14
#[test]
fn a_later_claim_of_the_lease_that_set_the_tickets_changes_them() {
    let mut store = Store::new();
    let a = store.open("a");
    store.claim_with(a, tickets(2), 0);

    store.claim_with(a, tickets(4), 0);

    assert_eq!(store.tickets(), 4);
}

// req: O14 H16
#[test]
fn lowering_the_tickets_asks_the_owners_of_the_highest_to_step_down() {
    let mut store = Store::new();
    let owners = ["a", "b", "c"].map(|label| store.open(label));
    for owner in owners {
        store.claim_with(owner, tickets(3), 0);
    }
    store.pass(secs(1));

    let d = store.open("d");
    store.claim_with(d, tickets(1), 0);

    let wishes = owners.map(|owner| store.wishes(owner));
    assert_eq!(wishes, [vec![], vec![Wish::Lowered], vec![Wish::Lowered]]);
    assert_eq!(store.owners(), ["a", "b", "c"]);
}

#[test]
fn raising_the_tickets_again_takes_back_what_lowering_has_asked_for_and_nothing_else() {
    let mut store = Store::new();
    let [a, b, c] = ["a", "b", "c"].map(|label| store.open(label));
    let token = granted(store.claim_with(a, tickets(3), 0)).token;
    store.claim_with(b, tickets(3), 0);
    store.claim_with(c, tickets(3), 0);
    store.ask_at("job", token);
    store.pass(secs(1));
    let d = store.open("d");
    store.claim_with(d, tickets(1), 0);

    store.claim_with(d, tickets(2), 0);

    let wishes: Vec<_> = store.resource("job").seats.iter().map(|seat| seat.wish).collect();
    assert_eq!(wishes, [Some(Wish::Asked), None, Some(Wish::Lowered)]);
}

// Nobody takes that ticket, so nobody else would clear it away.
#[test]
fn a_dead_owner_of_a_ticket_beyond_k_is_cleared_away_by_whoever_looks() {
    let mut store = Store::new();
    let [a, b] = ["a", "b"].map(|label| store.open(label));
    store.claim_with(a, tickets(2), 0);
    store.claim_with(b, tickets(2), 0);
    store.pass(secs(1));
    let c = store.open("c");
    waiting(store.claim(c));
    store.close(b, Closing::Proved);
    store.renew(a);

    waiting(store.claim(c));

    assert_eq!(store.resource("job").seats.len(), 1);
    assert_eq!(store.history().last(), Some(&("b", Happened::Died)));
}

// req: O2 O14
#[test]
fn after_lowering_nobody_is_granted_until_fewer_than_k_own() {
    let mut store = Store::new();
    let [a, b, c] = ["a", "b", "c"].map(|label| store.open(label));
    for owner in [a, b, c] {
        store.claim_with(owner, tickets(3), 0);
    }
    store.pass(secs(1));
    let d = store.open("d");
    store.claim_with(d, tickets(2), 0);

    store.release(a);
    assert_eq!(waiting(store.claim_with(d, tickets(2), 0)).why, Why::Taken);

    store.release(c);
    let grant = granted(store.claim_with(d, tickets(2), 0));
    assert_eq!((grant.ticket, store.owners()), (Ticket(0), vec!["d", "b"]));
}

// req: O14
#[test]
fn raising_the_tickets_again_gives_those_that_were_left() {
    let mut store = Store::new();
    let [a, b] = ["a", "b"].map(|label| store.open(label));
    store.claim_with(a, tickets(2), 0);
    store.claim_with(b, tickets(2), 0);
    store.pass(secs(1));
    let c = store.open("c");
    store.claim_with(c, tickets(1), 0);
    store.release(b);

    let grant = granted(store.claim_with(c, tickets(2), 0));

    assert_eq!(grant.ticket, Ticket(1));
}

// incarnations, quarantine and the longest ttl

#[test]
fn every_answer_names_the_time_the_incarnation_and_the_longest_ttl() {
    let mut store = Store::new();
    let a = store.open("a");
    let open = Call::Open { ttl: TTL, label: label("a"), metadata: Metadata::default() };

    for call in
        [open, Call::Renew, claim_of("job"), release_of("job"), Call::Held, Call::Close(Closing::Left)]
    {
        let request = store.world.request(a, call);
        let Reply::Answer(answer) = store.world.act_as(a, Act::Call(request.clone(), None)) else { panic!() };

        let stamp =
            Stamp { now: store.now(), shown: store.now(), incarnation: store.world.life, longest: TTL };
        assert_eq!(answer.stamp, stamp, "{request:?}");
    }
}

#[test]
fn a_new_incarnation_grants_nothing_not_even_the_same_again_for_one_longest() {
    let mut store = Store::new();
    let a = store.open("a");
    let grant = granted(store.claim(a));

    store.restart();
    let quarantine = |look_again| Waiting { ahead: 0, look_again, why: Why::Quarantine };
    assert_eq!(waiting(store.claim(a)), quarantine(TTL));
    store.pass(secs(5));
    store.renew(a);
    store.pass(secs(10) - MICRO);
    assert_eq!(waiting(store.claim(a)), quarantine(Duration::from_millis(1)));

    store.pass(MICRO);
    assert_eq!(granted(store.claim(a)), grant);
}

#[test]
fn reading_tells_how_long_nothing_is_granted_also_before_a_new_life_is_noticed() {
    let mut store = Store::new();
    let a = store.own("a");
    assert_eq!(store.view().withheld, None);

    store.restart();
    store.pass(secs(1));
    assert_eq!(store.view().withheld, Some(TTL), "nobody has noticed yet");
    store.renew(a);
    store.pass(secs(5));
    assert_eq!(store.view().withheld, Some(TTL - secs(5)));
    store.world.now = StoreTime::from_micros(store.world.now.as_micros() - 30_000_000);
    assert_eq!(store.view().withheld, Some(TTL), "never more than that, whatever the clock does");
    store.pass(secs(30) + TTL - secs(5));
    assert_eq!(store.view().withheld, None, "also where nobody has asked since");
}

#[test]
fn renewals_and_releases_go_on_in_a_quarantine() {
    let mut store = Store::new();
    let a = store.own("a");
    let b = store.wait("b");

    store.restart();
    assert_eq!(store.renew(a), kept());
    assert_eq!(store.release(a), Released::Free);

    assert_eq!(store.hints(), [("b", ZERO)]);
    assert_eq!(waiting(store.claim(b)).why, Why::Quarantine);
}

#[test]
fn stepping_down_in_a_quarantine_queues_and_grants_nothing() {
    let mut store = Store::new();
    let a = store.own("a");

    store.restart();
    store.renew(a);
    let Released::Again(claimed) = store.step_down(a) else { panic!("not answered like a claim") };

    assert_eq!(waiting(claimed).why, Why::Quarantine);
    assert_eq!((store.owners().len(), store.waiters()), (0, vec!["a"]));
}

#[test]
fn the_quarantine_counts_from_the_first_open_renewal_or_claim() {
    let open = Call::Open { ttl: TTL, label: label("a"), metadata: Metadata::default() };
    for first in [open, Call::Renew, claim_of("job")] {
        let mut store = Store::new();
        let a = store.open("a");
        store.restart();
        store.pass(secs(4));
        store.send(a, first.clone());

        store.pass(secs(5));
        let later = waiting(store.claim(a));

        assert_eq!((later.look_again, later.why), (secs(10), Why::Quarantine), "{first:?}");
    }
}

#[test]
fn in_a_quarantine_the_queue_looks_again_at_its_end_a_step_apart() {
    let mut store = Store::bereft();
    let [a, b] = ["a", "b"].map(|label| store.open(label));

    let first = waiting(store.claim(a));
    let second = waiting(store.claim(b));

    assert_eq!((first.ahead, first.look_again), (0, TTL));
    assert_eq!((second.ahead, second.look_again), (1, TTL + STEP));
}

#[test]
fn a_ledger_found_without_data_is_in_quarantine_from_the_first_contact() {
    let mut store = Store::bereft();
    let a = store.open("a");

    store.pass(secs(5));
    let early = waiting(store.claim(a));
    store.renew(a);
    store.pass(secs(10));

    assert_eq!((early.look_again, early.why), (secs(10), Why::Quarantine));
    granted(store.claim(a));
}

#[test]
fn a_ledger_known_to_be_new_grants_at_once() {
    let mut store = Store::new();
    let a = store.open("a");

    granted(store.claim(a));
}

#[test]
fn a_quarantine_lasts_for_the_longest_ttl_that_is_known_by_its_end() {
    let mut store = Store::bereft();
    let a = store.open("a");
    store.pass(secs(10));
    store.renew(a);
    store.open_for("b", secs(60));

    store.pass(secs(10));
    let still = waiting(store.claim(a));

    assert_eq!((still.look_again, still.why), (secs(40), Why::Quarantine));
}

#[test]
fn a_quarantine_that_is_over_stays_over_when_a_longer_ttl_comes() {
    let mut store = Store::bereft();
    store.open("a");
    store.pass(TTL);
    let a = store.own("a");

    let b = store.open_for("b", secs(60));
    store.release(a);

    granted(store.claim(b));
}

#[test]
fn the_end_of_a_quarantine_is_judged_by_what_the_worker_can_vouch_for() {
    let mut store = Store::bereft();
    let a = store.open("a");
    store.judged_by = Some(store.now() + secs(1));

    store.pass(HOUR);
    store.renew(a);
    let held_back = waiting(store.claim(a));

    assert_eq!((held_back.look_again, held_back.why), (TTL - secs(1), Why::Quarantine));
}

#[test]
fn the_longest_ttl_of_all_leases_is_kept() {
    let mut store = Store::new();
    store.open_for("a", secs(20));
    store.open_for("b", secs(10));

    assert_eq!(store.world.meta().longest, secs(20));
}

// history

// req: H19
#[test]
fn the_history_has_every_grant_and_every_ending_with_its_reason() {
    let mut store = Store::new();
    let a = store.own("a");
    store.release(a);
    store.claim(a);
    store.step_down(a);
    store.leave(a, Leaving::Failed);
    let token = granted(store.claim(a)).token;
    store.evict(token);
    store.claim(a);
    store.pass(TTL);
    let b = store.own("b");
    store.close(b, Closing::Proved);
    store.own("c");

    let happened: Vec<Happened> = store.history().into_iter().map(|(_, what)| what).collect();
    let endings: Vec<Happened> = happened.iter().copied().filter(|what| *what != Happened::Granted).collect();
    assert_eq!(
        endings,
        [
            Happened::Released,
            Happened::SteppedDown,
            Happened::Failed,
            Happened::Evicted,
            Happened::Expired,
            Happened::Died
        ]
    );
    assert_eq!(happened.len() - endings.len(), 7, "grants");
}

// req: H19
#[test]
fn a_record_says_when_what_happened_to_whose_ownership() {
    let mut store = Store::new();
    let a = store.open("a");
    let grant = granted(store.claim(a));
    store.pass(secs(3));
    store.release(a);

    let last = store.events().pop().unwrap();

    let what = Happened::Released;
    assert_eq!(last, Event { at: Some(store.now()), resource: name("job"), worker: label("a"), grant, what });
}

// req: H19
#[test]
fn an_ending_that_nobody_has_come_across_is_read_as_it_will_be_written() {
    let mut store = Store::new();
    let a = store.own("a");
    let ran_out_at = Some(store.world.lease(a).renewed.unwrap() + TTL);
    store.pass(HOUR);

    let derived = store.events();
    store.own("b");
    let written = store.events();

    assert_eq!((derived[1].at, derived[1].what), (ran_out_at, Happened::Expired));
    assert_eq!(derived[..], written[..2]);
    assert_eq!(written.len(), 3);
}

// req: H19
#[test]
fn an_ending_that_nobody_has_come_across_is_read_at_its_place_in_time() {
    let mut store = Store::new();
    store.own("a");
    store.pass(TTL + secs(1));
    let b = store.open("b");
    store.claim_at(b, "elsewhere");

    assert_eq!(
        store.history(),
        [("a", Happened::Granted), ("a", Happened::Expired), ("b", Happened::Granted)]
    );
}

// req: H19
#[test]
fn evicting_an_owner_whose_death_was_proved_does_not_change_how_it_ended() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;
    store.close(a, Closing::Proved);
    let before = store.events();

    store.pass(secs(1));
    store.evict(token);

    assert_eq!(store.events(), before);
}

// read

// req: O16 T9
#[test]
fn reading_shows_owners_and_waiters_with_all_that_people_ask_for() {
    let mut store = Store::new();
    let metadata = Metadata::new(r#"{"zone":"b"}"#).unwrap();
    let (a, b) = (LeaseId(101), LeaseId(102));
    for (lease, worker) in [(a, "a"), (b, "b")] {
        store.send(lease, Call::Open { ttl: TTL, label: label(worker), metadata: metadata.clone() });
    }
    let grant = granted(store.claim(a));
    store.claim(b);
    store.pass(secs(4));
    store.renew(b);

    let view = store.view();

    let (owned_for, left) = (secs(4), TTL - secs(4));
    let owner = OwnerView { worker: label("a"), metadata: metadata.clone(), grant, owned_for, left };
    let waiter = WaiterView { worker: label("b"), metadata, left: TTL };
    let (owners, waiters) = (vec![owner], vec![waiter]);
    let withheld = None;
    assert_eq!(view, ResourceView { resource: name("job"), tickets: 1, owners, waiters, withheld });
}

// req: O16
#[test]
fn reading_leaves_out_the_dead() {
    let mut store = Store::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|label| store.open(label));
    for worker in [a, b, c, d] {
        store.claim_with(worker, tickets(2), 0);
    }

    store.close(a, Closing::Left);
    store.close(c, Closing::Left);
    assert_eq!((store.owners(), store.waiters()), (vec!["b"], vec!["d"]));

    store.pass(TTL);
    assert_eq!((store.owners().len(), store.waiters().len()), (0, 0));
}

// what comes in and what never goes out

#[test]
fn a_lease_id_is_never_printed() {
    let mut store = Store::new();
    let secret = LeaseId(271_828_182_845);
    store.send(secret, Call::Open { ttl: TTL, label: label("a"), metadata: Metadata::default() });
    store.claim(secret);
    store.wait("b");
    store.release(secret);
    store.step_down(secret);

    let request = store.world.request(secret, Call::Renew);
    let printed = format!("{:?} {:#?} {request:?}", store.world.records, store.world.clients);

    assert!(printed.contains("LeaseId(..)"));
    for digits in [format!("{}", secret.0), format!("{:x}", secret.0), format!("{:X}", secret.0)] {
        assert!(!printed.contains(&digits), "{printed}");
    }
}

// the store, with a clock to set

/// The store, and workers by label.
struct Store {
    world: World,
    /// What the callers vouch for.
    judged_by: Option<StoreTime>,
    /// By lease: the first has the id 1.
    labels: Vec<&'static str>,
}

impl Store {
    fn new() -> Self {
        Self { world: World::new(), judged_by: None, labels: vec![] }
    }

    /// A store found without data, which may have had some.
    fn bereft() -> Self {
        let mut store = Self::new();
        store.world.lost_nothing = false;
        store
    }

    fn pass(&mut self, span: Duration) {
        self.world.pass(span);
    }

    fn now(&self) -> StoreTime {
        self.world.now
    }

    fn now_less(&self, span: Duration) -> StoreTime {
        StoreTime::from_micros(self.world.now.as_micros() - u64::try_from(span.as_micros()).unwrap())
    }

    /// The next life of the store, with all its data.
    fn restart(&mut self) {
        self.world.life = Incarnation(self.world.life.0 + 1);
    }

    fn send(&mut self, lease: LeaseId, call: Call) -> Said {
        let request = self.world.request(lease, call);
        self.world.send(Request { judged_by: self.judged_by, ..request })
    }

    fn renew_as(&mut self, lease: LeaseId, seq: u64) -> Said {
        self.world.renew_as(lease, seq)
    }

    fn open(&mut self, label: &'static str) -> LeaseId {
        self.open_for(label, TTL)
    }

    fn open_for(&mut self, label: &'static str, ttl: Duration) -> LeaseId {
        self.labels.push(label);
        let lease = LeaseId(self.labels.len() as u128);
        assert_eq!(self.open_again(lease, label, ttl), Said::Opened);
        lease
    }

    fn open_again(&mut self, lease: LeaseId, text: &str, ttl: Duration) -> Said {
        self.send(lease, Call::Open { ttl, label: label(text), metadata: Metadata::default() })
    }

    /// A new worker that owns `job`.
    fn own(&mut self, label: &'static str) -> LeaseId {
        let lease = self.open(label);
        granted(self.claim(lease));
        lease
    }

    /// A new worker that waits for `job`.
    fn wait(&mut self, label: &'static str) -> LeaseId {
        let lease = self.open(label);
        waiting(self.claim(lease));
        lease
    }

    fn renew(&mut self, lease: LeaseId) -> Said {
        self.send(lease, Call::Renew)
    }

    #[track_caller]
    fn notices_and_more(&mut self, lease: LeaseId) -> (Vec<Notice>, bool) {
        match self.renew(lease) {
            Said::Kept { notices, more } => (notices, more),
            said => panic!("not kept: {said:?}"),
        }
    }

    #[track_caller]
    fn wishes(&mut self, lease: LeaseId) -> Vec<Wish> {
        self.notices_and_more(lease).0.into_iter().map(|notice| notice.wish).collect()
    }

    /// Claims the one ticket of `job`.
    fn claim(&mut self, lease: LeaseId) -> Claimed {
        self.claim_at(lease, "job")
    }

    fn claim_at(&mut self, lease: LeaseId, resource: &str) -> Claimed {
        only_claimed(self.send(lease, claim_of(resource)))
    }

    fn claim_with(&mut self, lease: LeaseId, tickets: Tickets, priority: i32) -> Claimed {
        let want = Want { resource: name("job"), tickets, priority };
        only_claimed(self.send(lease, Call::Claim(vec![want])))
    }

    fn release(&mut self, lease: LeaseId) -> Released {
        self.release_at(lease, "job")
    }

    fn release_at(&mut self, lease: LeaseId, resource: &str) -> Released {
        only_released(self.send(lease, release_of(resource)))
    }

    fn step_down(&mut self, lease: LeaseId) -> Released {
        self.leave(lease, Leaving::SteppedDown)
    }

    fn leave(&mut self, lease: LeaseId, how: Leaving) -> Released {
        only_released(self.send(lease, Call::Release(vec![Leave { resource: name("job"), how }])))
    }

    fn close(&mut self, lease: LeaseId, why: Closing) {
        assert_eq!(self.send(lease, Call::Close(why)), Said::Closed);
    }

    fn ask_at(&mut self, resource: &str, token: Token) -> Asked {
        asked(self.world.act(Act::Ask(name(resource), token, None)))
    }

    fn ask_for(&mut self, token: Token, successor: &str) -> Asked {
        asked(self.world.act(Act::Ask(name("job"), token, Some(label(successor)))))
    }

    fn evict(&mut self, token: Token) -> Asked {
        asked(self.world.act(Act::Evict(name("job"), token)))
    }

    #[track_caller]
    fn held(&mut self, lease: LeaseId) -> Vec<&'static str> {
        let Said::Held(holdings) = self.send(lease, Call::Held) else { panic!("the lease is dead") };
        let known = ["job", "x", "y", "z"];
        known.into_iter().filter(|name| holdings.iter().any(|h| h.resource.as_str() == *name)).collect()
    }

    /// Who was told to look, and after how long, since the last time.
    fn hints(&mut self) -> Vec<(&'static str, Duration)> {
        let look = |signal| match signal {
            Signal::Look { to, after, .. } => Some((self.labels[to[0].0 as usize - 1], after)),
            _ => None,
        };
        core::mem::take(&mut self.world.signals).into_iter().filter_map(look).collect()
    }

    /// What happened, oldest first, with the endings that nobody has come across yet.
    fn events(&self) -> Vec<Event> {
        let reader = self.reader();
        let mut events = self.world.history.clone();
        for key in self.world.records.keys() {
            if let Key::Resource(name) = key {
                events.extend(reader.endings(name, &self.resource(name.as_str())));
            }
        }
        events.sort_by_key(|event| event.at);
        events
    }

    fn history(&self) -> Vec<(&'static str, Happened)> {
        self.events().iter().map(|event| (self.label(&event.worker), event.what)).collect()
    }

    fn reader(&self) -> Reader {
        let metadata = |id: LeaseId| match self.world.find(&Key::Info(id)).value {
            Some(Value::Info(info)) => info.metadata,
            _ => Metadata::default(),
        };
        let leases = self.world.records.keys().filter_map(|key| match key {
            Key::Lease(id) => Some((*id, (self.world.lease(*id), metadata(*id)))),
            _ => None,
        });
        let meta = self.world.meta();
        let now = Some(self.world.now);
        Reader {
            now,
            leases: leases.collect(),
            withheld: Reader::withheld(Some(&meta), self.world.life, now),
        }
    }

    fn view(&self) -> ResourceView {
        self.reader().view(&name("job"), &self.resource("job"))
    }

    fn resource(&self, text: &str) -> Resource {
        match self.world.value(&Key::Resource(name(text))) {
            Some(Value::Resource(resource)) => resource,
            other => panic!("{other:?}"),
        }
    }

    fn tickets(&self) -> u32 {
        self.view().tickets
    }

    /// The owners of `job`, by ticket.
    fn owners(&self) -> Vec<&'static str> {
        self.view().owners.iter().map(|owner| self.label(&owner.worker)).collect()
    }

    /// Those who wait for `job`, in order.
    fn waiters(&self) -> Vec<&'static str> {
        self.view().waiters.iter().map(|waiter| self.label(&waiter.worker)).collect()
    }

    fn label(&self, worker: &Label) -> &'static str {
        self.labels.iter().find(|label| **label == worker.as_str()).unwrap()
    }

    /// How many stand in the queue of `job`, the dead among them.
    fn queued(&self) -> usize {
        self.resource("job").queue.len()
    }
}

fn asked(reply: Reply) -> Asked {
    match reply {
        Reply::Asked(asked) => asked,
        other => panic!("{other:?}"),
    }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

fn tickets(count: u32) -> Tickets {
    Tickets::new(count).unwrap()
}

fn want(resource: &str) -> Want {
    Want { resource: name(resource), tickets: Tickets::ONE, priority: 0 }
}

fn claim_of(resource: &str) -> Call {
    Call::Claim(vec![want(resource)])
}

fn release_of(resource: &str) -> Call {
    Call::Release(vec![Leave { resource: name(resource), how: Leaving::Released }])
}

fn notice_of(resource: &str, token: Token, wish: Wish) -> Notice {
    Notice { resource: name(resource), token, wish }
}

/// Kept, with nothing to tell.
fn kept() -> Said {
    Said::Kept { notices: vec![], more: false }
}

#[track_caller]
fn only_claimed(said: Said) -> Claimed {
    match said {
        Said::Claimed(answers) if answers.len() == 1 => answers[0],
        said => panic!("not one answer to a claim: {said:?}"),
    }
}

#[track_caller]
fn only_released(said: Said) -> Released {
    match said {
        Said::Released(answers) if answers.len() == 1 => answers[0],
        said => panic!("not one answer to a release: {said:?}"),
    }
}

#[track_caller]
fn granted(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => grant,
        claimed => panic!("not granted: {claimed:?}"),
    }
}

#[track_caller]
fn waiting(claimed: Claimed) -> Waiting {
    match claimed {
        Claimed::Waiting(waiting) => waiting,
        claimed => panic!("not waiting: {claimed:?}"),
    }
}
