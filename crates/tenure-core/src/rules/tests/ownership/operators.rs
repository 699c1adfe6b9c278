//! What operators ask for: step down, a named successor, evict.

use super::*;

// req: H18
#[test]
fn asking_tells_the_owner_and_takes_nothing_away() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;

    let asked = store.ask_at("job", token);

    assert_eq!(asked, StepDownReply::Done);
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

    assert_eq!(asked, StepDownReply::Done);
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

    assert_eq!(asked, [(); 4].map(|()| StepDownReply::NotWaiting));
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

    assert_eq!(answers, [(); 3].map(|()| StepDownReply::OtherOwners(vec![token])));
    assert_eq!(store.ask_at("unknown", token), StepDownReply::OtherOwners(vec![]));
    assert!(store.world.records == before);
}

#[test]
fn evicting_frees_the_ticket_at_once_and_wakes_the_head() {
    let mut store = Store::new();
    let a = store.open("a");
    let token = granted(store.claim(a)).token;
    let b = store.wait("b");

    let evicted = store.evict(token);

    assert_eq!(evicted, StepDownReply::Done);
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
