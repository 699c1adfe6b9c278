//! How long a worker trusts its lease, and what ends the trust.

use super::*;

// req: H5
#[test]
fn trust_runs_from_when_it_was_asked_not_from_when_it_was_answered() {
    let mut stage = Stage::owning();
    let asked = stage.until_renewal();

    stage.pass(1_300);
    stage.answer(kept());

    assert_eq!(stage.trusted_until(), Some(asked + TRUST));
}

#[test]
fn a_lease_that_had_to_be_asked_for_twice_is_trusted_from_the_first_time() {
    let mut stage = Stage::new();
    let first = stage.now;
    stage.enter("r");
    stage.fail();
    stage.pass(100);

    stage.answer(Said::Opened);

    assert_eq!(stage.trusted_until(), Some(first + TRUST));
}

// req: H4
#[test]
fn one_failed_renewal_costs_nothing() {
    let mut stage = Stage::owning();
    stage.until_renewal();
    stage.fail();

    let again = stage.until_renewal();
    stage.answer(kept());

    assert!(stage.owns("r"));
    assert_eq!(stage.trusted_until(), Some(again + TRUST));
}

// req: E2 E5
#[test]
fn a_hung_renewal_is_given_up_after_a_third_of_what_is_left_and_never_overlaps() {
    let mut stage = Stage::owning();
    let asked = stage.until_renewal();
    let hung = stage.sent.clone().unwrap();
    let left = stage.trusted_until().unwrap() - asked;

    stage.pass(left / 3 - 1);
    assert_eq!(stage.sent.as_ref(), Some(&hung));
    stage.pass(1);

    assert!(stage.saw(&Output::Abandon(hung.seq)));
    let again = stage.sent.clone().unwrap();
    assert_eq!((again.call, again.seq), (Call::Renew, Seq(hung.seq.0 + 1)));
}

// req: E5 E7
#[test]
fn when_the_store_is_silent_the_work_stops_at_the_end_of_the_trust_and_harder_at_half_of_the_margin() {
    let mut stage = Stage::owning();
    let until = stage.trusted_until().unwrap();

    stage.pass_to(until - 1);
    assert!(stage.owns("r"));
    stage.pass(1);
    assert!(stage.saw(&stop("r", 1, EndReason::Expired)) && stage.distrusts());
    stage.pass(MARGIN / 2 - 1);
    assert!(!stage.saw(&stop_hard("r", 1)));
    stage.pass(1);

    assert!(stage.saw(&stop_hard("r", 1)));
}

#[test]
fn a_lease_that_was_ended_from_outside_is_over_and_another_one_is_not() {
    let mut stage = Stage::owning();
    let lease = stage.worker.lease().unwrap();

    stage.feed(Input::Ended(LeaseId(lease.0 + 1)));
    assert!(stage.owns("r"));
    stage.feed(Input::Ended(lease));

    assert!(!stage.owns("r") && stage.saw(&stop("r", 1, EndReason::Expired)) && stage.distrusts());
}

// req: T3 E8
#[test]
fn a_late_kept_does_not_revive_what_has_run_out() {
    let mut stage = Stage::owning();
    stage.until_renewal();
    let renewal = stage.sent.clone().unwrap();

    // A pause: no tick, and the first thing that comes is the answer.
    stage.now = stage.trusted_until().unwrap() + 1;
    stage.feed(Input::Answered(renewal, stamped(kept(), 1, stage.now)));

    assert!(!stage.owns("r") && stage.saw(&stop("r", 1, EndReason::Expired)));
    assert_eq!(stage.trusted_until(), None);
}

#[test]
fn an_answer_to_a_renewal_that_was_given_up_extends_nothing() {
    let mut stage = Stage::owning();
    let until = stage.trusted_until();
    stage.until_renewal();
    let first = stage.sent.clone().unwrap();
    stage.pass(3_000);

    stage.feed(Input::Answered(first, stamped(kept(), 1, stage.now)));

    assert_eq!(stage.trusted_until(), until);
}

#[test]
fn suspend_counts_against_the_trust() {
    let mut stage = Stage::owning();

    stage.asleep += TRUST;
    stage.feed(Input::Tick);

    assert!(stage.saw(&stop("r", 1, EndReason::Expired)));
}

// req: H14
#[test]
fn without_a_beat_within_the_beacon_renewals_stop() {
    let mut stage = Stage::with(Timing::new(TTL).unwrap().with_beacon(Duration::from_secs(2)).unwrap());
    stage.enter("r");
    stage.answer(Said::Opened);
    stage.answer(granted(1));

    stage.pass(TRUST);

    assert!(!stage.every.iter().any(|request| request.call == Call::Renew));
    assert!(stage.saw(&stop("r", 1, EndReason::Expired)));
    assert_eq!(stage.worker.sleep(stage.moment()), Some(Duration::from_millis(MARGIN / 2)));
}

#[test]
fn with_a_beat_in_time_renewals_go_on() {
    let mut stage = Stage::with(Timing::new(TTL).unwrap().with_beacon(Duration::from_secs(2)).unwrap());
    stage.enter("r");
    stage.answer(Said::Opened);
    stage.answer(granted(1));

    stage.pass(3_000);
    stage.feed(Input::Beat);
    stage.pass(400);

    assert_eq!(stage.sent.as_ref().map(|request| &request.call), Some(&Call::Renew));
}
