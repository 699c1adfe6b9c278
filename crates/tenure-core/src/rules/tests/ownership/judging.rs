//! By what time a lease is judged.

use super::*;

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
