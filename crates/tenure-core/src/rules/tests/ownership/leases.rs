//! Leases: open, renew, close, and what a lease holds.

use super::*;

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
        (Closing::Left, HistoryEvent::Released),
        (Closing::Expired, HistoryEvent::Expired),
        (Closing::Proved, HistoryEvent::Died),
    ] {
        let mut store = Store::new();
        let a = store.own("a");

        store.close(a, why);

        assert_eq!(store.history(), [("a", HistoryEvent::Granted), ("a", what)]);
    }
}

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
