//! The end of an ownership: stop, release, claim again, close.

use super::*;

// req: H7 O9
#[test]
fn on_a_step_down_the_ticket_is_released_only_when_the_work_has_ended() {
    let mut stage = Stage::owning();

    stage.feed(Input::StepDown(name("r")));
    assert!(!stage.owns("r") && stage.saw(&stop("r", 1, EndReason::SteppedDown)));
    stage.until_renewal();
    stage.answer(kept());
    assert!(stage.releases().is_empty());
    stage.stopped("r", 1);

    assert_eq!(stage.releases(), [(name("r"), Leaving::SteppedDown)]);
}

#[test]
fn work_that_overstays_its_grace_is_stopped_by_force_once() {
    let mut stage = Stage::owning();

    stage.feed(Input::StepDown(name("r")));
    for _ in 0..4 {
        stage.until_renewal();
        stage.answer(kept());
    }

    assert_eq!(stage.count(&stop_hard("r", 1)), 1);
    assert!(stage.releases().is_empty());
}

#[test]
fn a_gentle_stop_turns_hard_when_the_trust_runs_out_meanwhile() {
    let mut stage = Stage::owning();
    let until = stage.trusted_until().unwrap();

    stage.pass(5_000);
    stage.feed(Input::StepDown(name("r")));
    stage.pass_to(until + MARGIN / 2);

    assert_eq!(stage.count(&stop_hard("r", 1)), 1);
}

#[test]
fn a_release_is_repeated_until_it_is_answered_and_only_then_is_claimed_again() {
    let mut stage = Stage::owning();
    stage.feed(Input::End { resource: name("r"), token: Token(1), ending: EndReason::Failed });
    stage.stopped("r", 1);
    stage.fail();

    stage.pass(1_000);
    assert_eq!(stage.releases().len(), 2);
    assert_eq!(stage.claims(), 1);
    stage.answer(Said::Released(vec![Released::Free]));
    stage.pass(1_000);

    assert_eq!(stage.claims(), 2);
}

// req: H1
#[test]
fn work_that_fails_again_and_again_waits_longer_and_longer() {
    let mut stage = Stage::owning();

    let waits: Vec<u64> = (1..=3)
        .map(|token| {
            stage.feed(Input::End { resource: name("r"), token: Token(token), ending: EndReason::Failed });
            stage.stopped("r", token);
            stage.answer(Said::Released(vec![Released::Free]));
            let (from, claims) = (stage.now, stage.claims());
            while stage.claims() == claims {
                stage.pass(1);
            }
            stage.answer(granted(token + 1));
            stage.now - from
        })
        .collect();

    assert_eq!(waits, [100, 200, 400]);
}

// req: O7
#[test]
fn work_that_finishes_leaves_the_campaign() {
    let mut stage = Stage::owning();

    stage.feed(Input::End { resource: name("r"), token: Token(1), ending: EndReason::Finished });
    stage.stopped("r", 1);
    stage.answer(Said::Released(vec![Released::Free]));

    assert!(stage.saw(&Output::Left(name("r"))) && !stage.worker.is_campaigning(&name("r")));
}

#[test]
fn an_end_or_a_stop_under_another_token_changes_nothing() {
    let mut stage = Stage::owning();

    stage.feed(Input::End { resource: name("r"), token: Token(9), ending: EndReason::Finished });
    stage.feed(Input::Stopped { resource: name("r"), token: Token(9) });

    assert!(stage.owns("r") && stage.releases().is_empty());
}

// req: O13
#[test]
fn after_a_loss_it_claims_again_under_a_new_lease_once_the_old_work_has_ended() {
    let mut stage = Stage::owning();
    let old = stage.worker.lease();
    stage.pass(TRUST);
    stage.answer_open();
    assert_ne!(stage.worker.lease(), old);
    assert_eq!(stage.claims(), 1);

    stage.stopped("r", 1);

    assert_eq!(stage.claims(), 2);
    let closed = stage.every.iter().find(|request| request.call == Call::Close(Closing::Expired));
    assert_eq!(closed.map(|request| Some(request.lease)), Some(old));
}

#[test]
fn a_dead_lease_is_closed_only_when_the_last_work_under_it_has_ended() {
    let mut stage = Stage::new();
    stage.enter("a");
    stage.enter("b");
    stage.answer(Said::Opened);
    stage.answer(Said::Claimed(vec![Claimed::Granted(grant(1)), Claimed::Granted(grant(2))]));
    stage.pass(TRUST);

    stage.stopped("a", 1);
    assert!(!stage.every.iter().any(|request| matches!(request.call, Call::Close(_))));
    stage.stopped("b", 2);

    assert!(stage.every.iter().any(|request| request.call == Call::Close(Closing::Expired)));
}

#[test]
fn a_lease_that_the_store_forgot_is_closed_too_when_the_work_under_it_has_ended() {
    let mut stage = Stage::owning();
    let old = stage.worker.lease();
    stage.until_renewal();

    stage.answer(Said::Gone);
    assert!(!stage.every.iter().any(|request| matches!(request.call, Call::Close(_))));
    stage.stopped("r", 1);

    let closed = stage.every.iter().find(|request| matches!(request.call, Call::Close(_)));
    assert_eq!(closed.map(|request| Some(request.lease)), Some(old));
}

#[test]
fn a_lease_whose_work_outlasts_it_for_long_is_closed_all_the_same_when_the_work_has_ended() {
    let mut stage = Stage::owning();
    let old = stage.worker.lease().unwrap();
    let closes = |request: &&Request| matches!(request.call, Call::Close(_)) && request.lease == old;

    stage.pass(TRUST + 10 * 9_000);
    assert_eq!(stage.every.iter().filter(closes).count(), 0);
    stage.stopped("r", 1);

    assert_eq!(stage.every.iter().filter(closes).count(), 1);
}

#[test]
fn a_lease_whose_opening_was_given_up_is_closed() {
    let mut stage = Stage::new();
    stage.enter("r");
    let opening = stage.sent.clone().unwrap().lease;

    stage.pass(TRUST);

    let closed = stage.every.iter().find(|request| matches!(request.call, Call::Close(_)));
    assert_eq!(closed.map(|request| request.lease), Some(opening));
}

#[test]
fn a_lease_that_is_gone_before_it_was_known_to_be_open_is_closed() {
    let mut stage = Stage::new();
    stage.enter("r");
    let opening = stage.sent.clone().unwrap().lease;

    stage.answer(Said::Gone);

    let closed = stage.every.iter().find(|request| matches!(request.call, Call::Close(_)));
    assert_eq!(closed.map(|request| request.lease), Some(opening));
}

// req: S3 S5
#[test]
fn work_that_ignores_a_loss_is_overdue_once_while_a_quarter_of_the_margin_is_left() {
    let mut stage = Stage::owning();
    let until = stage.trusted_until().unwrap();

    stage.pass_to(until + MARGIN * 3 / 4 - 1);
    assert_eq!((stage.count(&stop_hard("r", 1)), stage.count(&overdue("r", 1))), (1, 0));
    stage.pass(1);
    assert_eq!(stage.count(&overdue("r", 1)), 1);
    stage.pass(10 * 9_000);
    assert_eq!(stage.count(&overdue("r", 1)), 1);
}

#[test]
fn work_that_overstays_its_grace_is_overdue_when_its_cleanup_has_had_a_grace_too() {
    let mut stage = Stage::owning();
    stage.feed(Input::StepDown(name("r")));
    let hard_at = stage.now + 9_000;
    while stage.now <= hard_at {
        stage.until_renewal();
        stage.answer(kept());
    }
    assert_eq!((stage.count(&stop_hard("r", 1)), stage.count(&overdue("r", 1))), (1, 0));

    while stage.now <= hard_at + 9_000 + MARGIN / 4 {
        stage.until_renewal();
        stage.answer(kept());
    }

    assert_eq!((stage.count(&stop_hard("r", 1)), stage.count(&overdue("r", 1))), (1, 1));
    assert!(stage.releases().is_empty(), "the ticket stays while the work runs");
}

#[test]
fn a_lease_that_is_lost_after_the_grace_leaves_a_cleanup_only_the_margin() {
    let mut stage = Stage::owning();
    stage.feed(Input::StepDown(name("r")));
    let hard_at = stage.now + 9_000;
    // The last renewal is answered before the grace is over.
    while stage.now + 3_000 <= hard_at {
        stage.until_renewal();
        stage.answer(kept());
    }
    let until = stage.trusted_until().unwrap();

    stage.pass_to(until + MARGIN * 3 / 4 - 1);
    assert_eq!((stage.count(&stop_hard("r", 1)), stage.count(&overdue("r", 1))), (1, 0));
    stage.pass(1);

    assert_eq!(stage.count(&overdue("r", 1)), 1);
}

#[test]
fn work_that_ends_when_it_is_stopped_hard_is_never_overdue() {
    let mut stage = Stage::owning();
    let until = stage.trusted_until().unwrap();
    stage.pass_to(until + MARGIN / 2);

    stage.stopped("r", 1);
    stage.pass(10 * 9_000);

    assert_eq!((stage.count(&stop_hard("r", 1)), stage.count(&overdue("r", 1))), (1, 0));
}

#[test]
fn after_a_long_pause_work_has_a_quarter_of_a_margin_to_stop_before_it_is_overdue() {
    let mut stage = Stage::owning();
    stage.now += 10 * 9_000;

    stage.feed(Input::Tick);
    assert_eq!((stage.count(&stop_hard("r", 1)), stage.count(&overdue("r", 1))), (1, 0));
    stage.pass(MARGIN / 4 - 1);
    assert!(!stage.saw(&overdue("r", 1)));
    stage.pass(1);

    assert!(stage.saw(&overdue("r", 1)));
}

// req: L4
#[test]
fn a_worker_does_not_compete_again_while_overdue_work_runs() {
    let mut stage = Stage::owning();
    stage.pass(TRUST + MARGIN);
    stage.answer_open();
    assert!(stage.saw(&overdue("r", 1)));

    stage.enter("r");
    stage.feed(Input::Hinted { resource: name("r"), after: Duration::ZERO });
    stage.pass(MARGIN);
    assert_eq!(stage.claims(), 1);
    stage.stopped("r", 1);

    assert_eq!(stage.claims(), 2);
}

#[test]
fn a_lease_that_ran_out_protects_for_the_margin_and_one_that_was_withdrawn_not_at_all() {
    let mut ran_out = Stage::owning();
    let until = ran_out.trusted_until().unwrap();
    ran_out.pass_to(until);
    assert!(ran_out.outputs.iter().any(|output| {
        matches!(output, Output::Distrust { protected_until: Some(at) } if at.boot_micros() / 1000 == until + MARGIN)
    }));

    let mut forgotten = Stage::owning();
    forgotten.until_renewal();
    forgotten.answer(Said::Gone);
    assert!(forgotten.saw(&Output::Distrust { protected_until: None }));
}
