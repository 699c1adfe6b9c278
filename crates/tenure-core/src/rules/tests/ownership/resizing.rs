//! The number of tickets may change.

use super::*;

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

    let wishes: Vec<_> = store.resource("job").owners.iter().map(|owner| owner.wish).collect();
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

    assert_eq!(store.resource("job").owners.len(), 1);
    assert_eq!(store.history().last(), Some(&("b", HistoryEvent::Died)));
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
    assert_eq!(waiting(store.claim_with(d, tickets(2), 0)).why, WaitReason::Taken);

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
