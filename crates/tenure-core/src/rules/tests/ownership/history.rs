//! What people read: history, owners and waiters; and that no lease id is printed.

use super::*;

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

    let happened: Vec<HistoryEvent> = store.history().into_iter().map(|(_, what)| what).collect();
    let endings: Vec<HistoryEvent> =
        happened.iter().copied().filter(|what| *what != HistoryEvent::Granted).collect();
    assert_eq!(
        endings,
        [
            HistoryEvent::Released,
            HistoryEvent::SteppedDown,
            HistoryEvent::Failed,
            HistoryEvent::Evicted,
            HistoryEvent::Expired,
            HistoryEvent::Died
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

    let what = HistoryEvent::Released;
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

    assert_eq!((derived[1].at, derived[1].what), (ran_out_at, HistoryEvent::Expired));
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
        [("a", HistoryEvent::Granted), ("a", HistoryEvent::Expired), ("b", HistoryEvent::Granted)]
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
