//! What a worker makes of replies, hints and notices.

use super::*;

// req: H3
#[test]
fn a_grant_that_answers_an_old_claim_is_not_taken_up() {
    let mut stage = Stage::opened();
    let old = stage.sent.clone().unwrap();
    stage.pass(2_400);
    assert!(stage.sent.as_ref().is_some_and(|newest| newest.seq > old.seq && newest.call == old.call));

    stage.feed(Input::Answered(old, stamped(granted(1), 1, stage.now)));
    assert!(!stage.owns("r"));
    stage.answer(granted(1));

    assert!(stage.owns("r"));
}

#[test]
fn a_grant_that_comes_after_the_campaign_was_left_is_not_taken_up() {
    let mut stage = Stage::opened();
    let claim = stage.sent.clone().unwrap();
    stage.feed(Input::Leave(name("r")));

    stage.feed(Input::Answered(claim, stamped(granted(1), 1, stage.now)));

    assert!(!stage.owns("r"));
    assert_eq!(stage.releases(), [(name("r"), Leaving::Released)]);
}

#[test]
fn a_hint_that_overtakes_the_answer_to_a_claim_is_not_lost() {
    let mut stage = Stage::opened();

    stage.feed(Input::Hinted { resource: name("r"), after: Duration::ZERO });
    stage.answer(waiting(0, 5_000));

    assert_eq!(stage.claims(), 2);
}

// req: H8
#[test]
fn after_missed_hints_whoever_waits_looks_once() {
    let mut stage = Stage::opened();
    stage.answer(waiting(0, 3_000));

    stage.feed(Input::Missed);
    assert_eq!(stage.claims(), 2);
    stage.answer(waiting(0, 3_000));
    stage.pass(2_999);

    assert_eq!(stage.claims(), 2);
}

// req: H8
#[test]
fn a_hint_wakes_and_without_one_it_looks_again() {
    let mut stage = Stage::opened();
    stage.answer(waiting(0, 3_000));

    stage.feed(Input::Hinted { resource: name("r"), after: Duration::from_millis(100) });
    stage.pass(99);
    assert_eq!(stage.claims(), 1);
    stage.pass(1);
    assert_eq!(stage.claims(), 2);
    stage.answer(waiting(0, 3_000));
    stage.pass(3_000);

    assert_eq!(stage.claims(), 3);
}

// req: H18
#[test]
fn a_hint_makes_an_owner_renew_soon_and_not_many_times_within_an_interval() {
    let hint = || Input::Hinted { resource: name("r"), after: Duration::ZERO };
    let mut stage = Stage::owning();
    let renewals = stage.renewals();
    let least = stage.worker.timing.renew() / 8;

    stage.pass(least.as_millis() as u64);
    stage.feed(hint());
    assert_eq!(stage.renewals(), renewals + 1);
    stage.answer(kept());
    (0..10).for_each(|_| stage.feed(hint()));
    assert_eq!(stage.renewals(), renewals + 1);

    stage.pass(least.as_millis() as u64);
    assert_eq!(stage.renewals(), renewals + 2);
}

// req: H9
#[test]
fn looks_are_spread_by_the_jitter_and_the_first_in_line_least() {
    let looks = |jitter: u16, ahead: u32| {
        let mut stage = Stage::opened();
        stage.jitter = jitter;
        stage.answer(waiting(ahead, 3_200));
        let (from, claims) = (stage.now, stage.claims());
        while stage.claims() == claims {
            stage.pass(1);
            if stage.sent.as_ref().is_some_and(|request| request.call == Call::Renew) {
                stage.answer(kept());
            }
        }
        stage.now - from
    };

    assert_eq!(looks(0, 0), 3_200);
    assert_eq!(looks(65_535, 0), 3_201);
    assert_eq!(looks(65_535, 3), 3_400);
}

#[test]
fn a_store_that_forgot_a_live_lease_is_not_asked_for_grants_for_one_longest() {
    let mut stage = Stage::owning();
    stage.until_renewal();

    stage.answer(Said::Gone);
    assert!(stage.saw(&stop("r", 1, EndReason::Gone)));
    assert!(stage.saw(&Output::Report(Report::HeldBack(HeldBack::StoreForgot, TTL))));
    let from = stage.now;
    stage.stopped("r", 1);
    stage.answer_open();
    while stage.claims() == 1 {
        stage.pass(1);
        stage.keep();
    }

    assert_eq!(stage.now - from, TTL.as_millis() as u64);
}

#[test]
fn a_stale_answer_to_the_newest_renewal_means_a_clone_and_the_lease_is_left_alone() {
    let mut stage = Stage::owning();
    stage.until_renewal();

    stage.answer(Said::Stale);
    stage.stopped("r", 1);

    assert!(stage.saw(&stop("r", 1, EndReason::Cloned)));
    assert!(!stage.every.iter().any(|request| matches!(request.call, Call::Close(_))));
}

#[test]
fn a_stale_answer_to_an_older_request_means_nothing() {
    let mut stage = Stage::owning();
    stage.until_renewal();
    let first = stage.sent.clone().unwrap();
    stage.pass(3_000);

    stage.feed(Input::Answered(first, stamped(Said::Stale, 1, stage.now)));

    assert!(stage.owns("r"));
}

// req: H18
#[test]
fn a_notice_ends_the_ownership_that_it_names_and_no_other() {
    for (wish, ending) in [
        (Wish::Asked, EndReason::Asked),
        (Wish::Lowered, EndReason::Lowered),
        (Wish::Evicted, EndReason::Evicted),
    ] {
        let mut stage = Stage::owning();
        let notice = |token| Said::Kept {
            notices: vec![Notice { resource: name("r"), token: Token(token), wish }],
            more: false,
        };

        stage.until_renewal();
        stage.answer(notice(9));
        assert!(stage.owns("r"));
        stage.until_renewal();
        stage.answer(notice(1));

        assert!(!stage.owns("r") && stage.saw(&stop("r", 1, ending)));
    }
}
