//! Incarnations, quarantine and the longest ttl.

use super::*;

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
    let quarantine = |look_again| Waiting { ahead: 0, look_again, why: WaitReason::Quarantine };
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
    assert_eq!(waiting(store.claim(b)).why, WaitReason::Quarantine);
}

#[test]
fn stepping_down_in_a_quarantine_queues_and_grants_nothing() {
    let mut store = Store::new();
    let a = store.own("a");

    store.restart();
    store.renew(a);
    let Released::Again(claimed) = store.step_down(a) else { panic!("not answered like a claim") };

    assert_eq!(waiting(claimed).why, WaitReason::Quarantine);
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

        assert_eq!((later.look_again, later.why), (secs(10), WaitReason::Quarantine), "{first:?}");
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

    assert_eq!((early.look_again, early.why), (secs(10), WaitReason::Quarantine));
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

    assert_eq!((still.look_again, still.why), (secs(40), WaitReason::Quarantine));
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

    assert_eq!((held_back.look_again, held_back.why), (TTL - secs(1), WaitReason::Quarantine));
}

#[test]
fn the_longest_ttl_of_all_leases_is_kept() {
    let mut store = Store::new();
    store.open_for("a", secs(20));
    store.open_for("b", secs(10));

    assert_eq!(store.world.meta().longest, secs(20));
}
