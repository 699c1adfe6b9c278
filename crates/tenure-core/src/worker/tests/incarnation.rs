//! A new incarnation of the store, and how far a worker vouches for the store's clock.

use super::*;

#[test]
fn a_renewal_kept_by_a_new_incarnation_counts_only_once_held_has_agreed() {
    let mut stage = Stage::owning();
    let old = stage.trusted_until();
    let asked = stage.until_renewal();

    stage.answer_as(2, kept());
    assert_eq!(stage.trusted_until(), old);
    assert_eq!(stage.sent.as_ref().map(|request| &request.call), Some(&Call::Held));
    stage.pass(200);
    stage.answer_as(2, Said::Held(vec![holding("r", 1)]));

    assert_eq!(stage.trusted_until(), Some(asked + TRUST));
    assert!(stage.owns("r"));
}

#[test]
fn what_a_new_incarnation_does_not_know_ends_as_missing() {
    for held in [vec![], vec![holding("r", 7)]] {
        let mut stage = Stage::owning();
        stage.until_renewal();
        stage.answer_as(2, kept());

        stage.answer_as(2, Said::Held(held));
        assert!(stage.saw(&stop("r", 1, EndReason::Missing)));
        stage.stopped("r", 1);

        assert_eq!(stage.releases(), [(name("r"), Leaving::Released)]);
    }
}

#[test]
fn what_only_the_new_incarnation_knows_is_released() {
    let mut stage = Stage::opened();
    stage.answer(waiting(0, 9_000));
    stage.until_renewal();
    stage.answer_as(2, kept());

    stage.answer_as(2, Said::Held(vec![holding("r", 5), holding("elsewhere", 6)]));

    assert_eq!(stage.releases(), [(name("elsewhere"), Leaving::Released), (name("r"), Leaving::Released)]);
}

#[test]
fn a_release_that_a_new_incarnation_does_not_know_of_is_repeated() {
    let mut stage = Stage::owning();
    stage.feed(Input::StepDown(name("r")));
    stage.stopped("r", 1);
    let release = stage.sent.clone().unwrap();
    stage.until_renewal();
    stage.answer_as(2, kept());

    stage.answer_as(2, Said::Held(vec![holding("r", 1)]));
    let again = stage.releases().len();
    let old = Said::Released(vec![Released::Again(Claimed::Waiting(SOME_PLACE))]);
    stage.feed(Input::Answered(release, stamped(old, 1, stage.now)));

    assert!(again > 1);
    assert_eq!(stage.claims(), 1);
}

#[test]
fn nothing_is_claimed_or_taken_up_while_a_new_incarnation_is_not_confirmed() {
    let mut stage = Stage::opened();
    stage.until_renewal();
    let claim = stage.claim_under_way().unwrap();
    let claims = stage.claims();
    stage.answer_as(2, kept());

    stage.feed(Input::Answered(claim, stamped(granted(1), 2, stage.now)));
    stage.pass(500);
    assert!(!stage.owns("r"));
    assert_eq!(stage.claims(), claims);
    stage.answer_as(2, Said::Held(vec![]));

    assert_eq!(stage.claims(), claims + 1);
}

#[test]
fn held_that_is_answered_by_yet_another_incarnation_settles_nothing() {
    let mut stage = Stage::owning();
    let old = stage.trusted_until();
    stage.until_renewal();
    stage.answer_as(2, kept());

    stage.answer_as(3, Said::Held(vec![holding("r", 1)]));
    assert_eq!(stage.trusted_until(), old);
    let again = stage.until_renewal();
    stage.answer_as(3, kept());
    stage.answer_as(3, Said::Held(vec![holding("r", 1)]));

    assert_eq!(stage.trusted_until(), Some(again + TRUST));
}

#[test]
fn a_strict_newcomer_watches_the_clock_for_one_longest_first() {
    let mut stage = Stage::with(Timing::new(TTL).unwrap().with_clock(Clock::Strict));
    stage.enter("r");
    stage.answer(Said::Opened);
    let from = stage.now;
    assert!(stage.saw(&Output::Report(Report::HeldBack(HeldBack::Watching, TTL))));

    while stage.claims() == 0 {
        stage.pass(1);
        stage.keep();
    }

    assert_eq!(stage.now - from, TTL.as_millis() as u64);
}

#[test]
fn a_request_carries_the_store_time_that_the_worker_can_vouch_for() {
    let mut stage = Stage::new();
    stage.enter("r");
    assert_eq!(stage.sent.as_ref().unwrap().judged_by, None);

    stage.pass(100);
    stage.answer(Said::Opened);

    assert_eq!(stage.sent.as_ref().unwrap().judged_by, Some(store_time(stage.now)));
}

#[test]
fn what_a_store_spends_after_it_decided_holds_back_nothing() {
    let mut stage = Stage::new();
    stage.enter("r");
    let open = stage.sent.clone().unwrap();
    stage.pass(100);

    let mut answer = stamped(Said::Opened, 1, stage.now - 30);
    answer.stamp.shown = store_time(stage.now);
    stage.feed(Input::Answered(open, answer));

    assert_eq!(stage.sent.as_ref().unwrap().judged_by, Some(store_time(stage.now)));
}

/// When a worker that waits, and was told to look again after a minute, does; renewals come in as `answer` says: after how many
/// milliseconds, and by how many the store's clock is ahead of what it was.
fn looks_after(answer: impl Fn(u64) -> (u64, u64)) -> u64 {
    let mut stage = Stage::opened();
    stage.answer(waiting(0, 60_000));
    let (claims, told_at) = (stage.claims(), stage.now);
    loop {
        stage.pass(1);
        if stage.claims() > claims {
            return stage.now - told_at;
        }
        if let Some(renewal) = stage.sent.take() {
            let (took, ahead) = answer(stage.now - told_at);
            let applied = stage.now + ahead;
            stage.pass(took);
            stage.feed(Input::Answered(renewal, stamped(kept(), 1, applied)));
        }
    }
}

// req: L2
#[test]
fn who_can_vouch_for_more_again_looks_as_much_sooner() {
    assert_eq!(looks_after(|_| (0, 0)), 60_000);
    assert_eq!(looks_after(|at| (0, if at > 5_000 { 4_000 } else { 0 })), 56_000);
    // By little, and again: what is gained adds up, and is made up for when it is more than what counts as slow.
    let steps = |at: u64| (0, 300 * (u64::from(at > 5_000) + u64::from(at > 30_000)));
    assert_eq!(looks_after(steps), 59_400);
    assert_eq!(looks_after(|at| (0, if at > 5_000 { 460 } else { 0 })), 59_540);
    // What was lost again before anybody was told of it is not gained.
    assert_eq!(looks_after(|at| (0, if (5_000..9_000).contains(&at) { 4_000 } else { 0 })), 60_000);
}

#[test]
fn what_was_gained_before_another_one_was_told_counts_for_the_first() {
    let mut stage = Stage::opened();
    stage.answer(waiting(0, 60_000));
    let (told_at, claims) = (stage.now, stage.claims());
    let mut has_entered = false;

    while stage.claims() == claims + usize::from(has_entered) {
        stage.pass(1);
        // Of each of two small steps too little is gained by itself.
        let at = stage.now - told_at;
        stage.keep_ahead(300 * (u64::from(at > 5_000) + u64::from(at > 30_000)));
        if at > 28_000 && !has_entered {
            stage.enter("s");
            stage.sent = None;
            let claim = stage.claim_under_way().expect("a claim");
            stage.feed(Input::Answered(claim, stamped(waiting(0, 60_000), 1, stage.now + 300)));
            has_entered = true;
        }
    }

    assert_eq!(stage.now - told_at, 59_400);
}

#[test]
fn answers_that_take_longer_now_and_then_make_nobody_look_sooner() {
    for took in [440, 460, 1_000] {
        for every in [2, 3, 5, 10] {
            let late = |at: u64| (if (at / 3_000).is_multiple_of(every) { took } else { 1 }, 0);
            assert_eq!(looks_after(late), 60_000, "{took} of every {every}");
        }
    }
}

#[test]
fn a_clock_of_the_store_that_runs_fast_costs_no_looks() {
    for percent in [2, 5, 10] {
        let looks = looks_after(|at| (0, at * percent / 100));
        assert!((60_000 * (100 - percent) / 100 - 1_000..60_000).contains(&looks), "{percent} %: {looks}");
    }
}

// req: L2
#[test]
fn whoever_was_suspended_and_asked_meanwhile_looks_in_time_when_it_can_vouch_for_the_time_again() {
    let mut stage = Stage::opened();
    stage.answer(waiting(0, 2_000));
    // The store's clock goes on, and the worker's raw clock does not.
    stage.asleep += 5_000;
    stage.feed(Input::Tick);
    let claim = stage.claim_under_way().expect("a look");
    assert_eq!(claim.judged_by, Some(store_time(stage.now)), "what it slept through it cannot vouch for");
    let (told_at, claims) = (stage.now, stage.claims());
    stage.feed(Input::Answered(claim, stamped(waiting(0, 40_000), 1, stage.now + 5_000)));
    stage.sent = None;

    while stage.claims() == claims {
        stage.pass(1);
        stage.keep_ahead(5_000);
    }

    assert_eq!(stage.now - told_at, 35_000);
    assert_eq!(stage.sent.as_ref().unwrap().judged_by, Some(store_time(stage.now + 5_000)));
}

#[test]
fn an_answer_counts_from_what_was_vouched_for_when_it_was_asked_for() {
    let mut stage = Stage::opened();
    stage.answer(waiting(0, 20_000));
    let asked = loop {
        stage.pass(1);
        match stage.sent.take() {
            Some(claim) if matches!(claim.call, Call::Claim(_)) => break claim,
            Some(renewal) => {
                // Of the step at 6 s it can vouch from the renewal at 21 s on.
                let ahead = if stage.now > 7_000 { 4_000 } else { 0 };
                stage.feed(Input::Answered(renewal, stamped(kept(), 1, stage.now + ahead)));
            }
            None => {}
        }
    };
    assert_eq!(asked.judged_by, Some(store_time(stage.now)));
    let asked_at = stage.now;
    stage.until_renewal();
    let renewal = stage.sent.take().unwrap();
    stage.feed(Input::Answered(renewal, stamped(kept(), 1, stage.now + 4_000)));
    let (told_at, claims) = (stage.now, stage.claims());
    assert!(told_at - asked_at < 2_000, "the claim is under way still");
    stage.feed(Input::Answered(asked, stamped(waiting(0, 10_000), 1, stage.now + 4_000)));

    while stage.claims() == claims {
        stage.pass(1);
        stage.keep_ahead(4_000);
    }

    assert_eq!(stage.now - told_at, 6_000);
}
