//! Shutdown, leaving a campaign, and requests that cross.

use super::*;

// req: A2 A3
#[test]
fn a_shutdown_stops_the_work_then_closes_the_lease_in_one_write() {
    let mut stage = Stage::owning();
    stage.feed(Input::Shutdown);
    stage.feed(Input::Shutdown);
    assert!(stage.saw(&stop("r", 1, EndReason::Left)));
    assert!(!stage.every.iter().any(|request| matches!(request.call, Call::Close(_) | Call::Release(_))));

    stage.stopped("r", 1);
    stage.answer(Said::Closed);

    let closes = stage.every.iter().filter(|request| request.call == Call::Close(Closing::Left));
    assert_eq!((closes.count(), stage.releases().len()), (1, 0));
    assert_eq!(stage.count(&Output::Done), 1);
    assert_eq!(stage.worker.sleep(stage.moment()), None);
}

// req: H12
#[test]
fn a_shutdown_comes_to_its_end_although_the_store_hangs() {
    let mut stage = Stage::owning();
    stage.feed(Input::Shutdown);
    stage.stopped("r", 1);

    stage.pass(3 * TTL.as_millis() as u64);

    assert_eq!(stage.count(&Output::Done), 1);
}

// req: A3
#[test]
fn leaving_works_in_every_state_and_twice() {
    let mut before = Stage::new();
    before.enter("r");
    before.feed(Input::Leave(name("r")));
    assert!(before.saw(&Output::Left(name("r"))));

    let mut waits = Stage::opened();
    waits.answer(waiting(0, 9_000));
    waits.feed(Input::Leave(name("r")));
    waits.feed(Input::Leave(name("r")));
    waits.answer(Said::Released(vec![Released::Free]));
    assert_eq!(waits.count(&Output::Left(name("r"))), 1);

    let mut steps_down = Stage::owning();
    steps_down.feed(Input::StepDown(name("r")));
    steps_down.feed(Input::Leave(name("r")));
    steps_down.stopped("r", 1);
    assert_eq!(steps_down.releases(), [(name("r"), Leaving::Released)]);

    let mut silent = Stage::owning();
    silent.feed(Input::Leave(name("r")));
    silent.stopped("r", 1);
    silent.pass(TRUST);
    assert_eq!(silent.count(&Output::Left(name("r"))), 1);
}

#[test]
fn a_step_down_without_an_ownership_changes_nothing() {
    let mut stage = Stage::opened();

    stage.feed(Input::StepDown(name("r")));
    stage.feed(Input::StepDown(name("unknown")));

    assert!(stage.releases().is_empty() && stage.worker.is_campaigning(&name("r")));
}

#[test]
fn on_a_shutdown_what_has_ended_is_released_while_other_work_winds_down() {
    let mut stage = Stage::owning();
    stage.enter("slow");
    stage.answer(granted(2));

    stage.feed(Input::Shutdown);
    stage.stopped("r", 1);

    assert_eq!(stage.releases(), [(name("r"), Leaving::Released)]);
    assert_eq!(stage.count(&Output::Done), 0);
}

#[test]
fn leaving_while_the_release_of_a_step_down_is_under_way_still_leaves() {
    for again in [Claimed::Granted(grant(2)), Claimed::Waiting(SOME_PLACE)] {
        let mut stage = Stage::owning();
        stage.feed(Input::StepDown(name("r")));
        stage.stopped("r", 1);

        stage.feed(Input::Leave(name("r")));
        stage.answer(Said::Released(vec![Released::Again(again)]));
        assert!(!stage.owns("r"));
        stage.answer(Said::Released(vec![Released::Free]));

        let released = [(name("r"), Leaving::SteppedDown), (name("r"), Leaving::Released)];
        assert_eq!(stage.releases(), released);
        assert_eq!(stage.count(&Output::Left(name("r"))), 1);
    }
}

// req: A3
#[test]
fn entering_again_while_leaving_stays() {
    let mut stage = Stage::owning();
    stage.feed(Input::Leave(name("r")));

    stage.enter("r");
    stage.stopped("r", 1);
    stage.answer(Said::Released(vec![Released::Free]));

    assert_eq!((stage.claims(), stage.count(&Output::Left(name("r")))), (2, 0));
}

#[test]
fn entering_after_a_shutdown_is_answered_at_once() {
    let mut stage = Stage::owning();
    stage.feed(Input::Shutdown);

    stage.enter("late");

    assert!(stage.saw(&Output::Left(name("late"))));
}

#[test]
fn a_hint_that_overtakes_the_answer_to_a_step_down_is_not_lost() {
    let mut stage = Stage::owning();
    stage.feed(Input::StepDown(name("r")));
    stage.stopped("r", 1);

    stage.feed(Input::Hinted { resource: name("r"), after: Duration::ZERO });
    stage.answer(Said::Released(vec![Released::Again(Claimed::Waiting(SOME_PLACE))]));

    assert_eq!(stage.claims(), 2);
}

#[test]
fn work_that_says_it_has_ended_unasked_has_finished() {
    let mut stage = Stage::owning();

    stage.stopped("r", 1);

    assert!(stage.saw(&stop("r", 1, EndReason::Finished)) && !stage.owns("r"));
    assert_eq!(stage.releases(), [(name("r"), Leaving::Released)]);
}

#[test]
fn an_answer_that_says_too_little_wedges_nobody() {
    let mut stage = Stage::opened();

    stage.answer(Said::Claimed(vec![]));
    stage.pass(1_000);

    assert_eq!(stage.claims(), 2);
}

#[test]
fn with_the_lease_goes_everything_that_is_under_way() {
    let mut stage = Stage::owning();
    stage.until_renewal();
    stage.answer_as(2, kept());
    let held = stage.sent.clone().unwrap();

    stage.now = stage.trusted_until().unwrap();
    stage.feed(Input::Tick);

    assert_eq!(held.call, Call::Held);
    assert!(stage.saw(&Output::Abandon(held.seq)));
}

#[test]
fn a_failure_that_nobody_waits_for_is_not_reported() {
    let mut stage = Stage::opened();
    let claim = stage.sent.clone().unwrap();
    stage.answer(waiting(0, 9_000));

    stage.feed(Input::Failed(claim.clone()));

    assert!(!stage.saw(&Output::Report(Report::Unanswered(claim.seq))));
}

// req: A3 H12
#[test]
fn who_leaves_waits_for_a_silent_store_for_a_third_of_the_ttl_and_the_release_goes_on() {
    let mut stage = Stage::owning();
    stage.feed(Input::Leave(name("r")));
    stage.stopped("r", 1);
    let left = Output::Left(name("r"));

    stage.pass(2_999);
    assert!(!stage.saw(&left));
    stage.pass(1);
    assert_eq!(stage.count(&left), 1);
    stage.answer_release();

    assert!(!stage.worker.is_campaigning(&name("r")));
    assert_eq!(stage.count(&left), 1);
}

#[test]
fn work_that_runs_on_does_not_count_as_silence_of_the_store() {
    let mut stage = Stage::owning();
    stage.feed(Input::Leave(name("r")));

    stage.pass(3_500);
    assert!(!stage.saw(&Output::Left(name("r"))));
    stage.stopped("r", 1);
    stage.pass(2_999);

    assert!(!stage.saw(&Output::Left(name("r"))));
}

#[test]
fn entering_while_a_silent_store_is_still_told_of_the_release_claims_when_it_has_answered() {
    let mut stage = Stage::owning();
    stage.feed(Input::Leave(name("r")));
    stage.stopped("r", 1);
    stage.pass(3_500);

    stage.enter("r");
    assert_eq!(stage.claims(), 1);
    stage.answer_release();
    stage.pass(1);

    assert_eq!((stage.claims(), stage.count(&Output::Left(name("r")))), (2, 1));
}

// req: A2
#[test]
fn who_waits_for_a_shutdown_waits_for_a_silent_store_for_a_third_of_the_ttl() {
    let mut stage = Stage::owning();
    stage.feed(Input::Shutdown);
    stage.pass(1_000);
    stage.stopped("r", 1);

    stage.pass(2_999);
    assert!(!stage.saw(&Output::Unheard));
    stage.pass(1);
    assert_eq!(stage.count(&Output::Unheard), 1);

    // One more who waits.
    stage.feed(Input::Shutdown);
    stage.pass(3_000);
    assert_eq!((stage.count(&Output::Unheard), stage.count(&Output::Done)), (2, 0));
    let close = stage.every.iter().rev().find(|request| matches!(request.call, Call::Close(_))).cloned();
    stage.feed(Input::Answered(close.unwrap(), stamped(Said::Closed, 1, stage.now)));
    assert_eq!(stage.count(&Output::Done), 1);
}
