//! The worker's promises, one by one, against answers that the test makes up.

use super::*;
use crate::message::BATCH;
use crate::message::{
    Answer, Claimed, Closing, Grant, Holding, Incarnation, Leaving, Notice, Released, Said, Stamp, Term,
    Ticket, Token, Why, Wish,
};
use crate::moment::StoreTime;
use crate::names::Tickets;
use crate::output::HeldBack;
use alloc::format;
use alloc::string::String;
use alloc::vec;

const TTL: Duration = Duration::from_secs(9);
const TRUST: u64 = 7_200;
const MARGIN: u64 = 900;

// ---- trust -------------------------------------------------------------------------------------------------

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
    assert!(stage.saw(&stop("r", 1, Ending::Expired)) && stage.saw(&Output::Trust(None)));
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

    assert!(!stage.owns("r") && stage.saw(&stop("r", 1, Ending::Expired)) && stage.saw(&Output::Trust(None)));
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

    assert!(!stage.owns("r") && stage.saw(&stop("r", 1, Ending::Expired)));
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

    assert!(stage.saw(&stop("r", 1, Ending::Expired)));
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
    assert!(stage.saw(&stop("r", 1, Ending::Expired)));
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

// ---- the end of an ownership -------------------------------------------------------------------------------

// req: H7 O9
#[test]
fn on_a_step_down_the_ticket_is_released_only_when_the_work_has_ended() {
    let mut stage = Stage::owning();

    stage.feed(Input::StepDown(name("r")));
    assert!(!stage.owns("r") && stage.saw(&stop("r", 1, Ending::SteppedDown)));
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
    stage.feed(Input::End { resource: name("r"), token: Token(1), ending: Ending::Failed });
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
            stage.feed(Input::End { resource: name("r"), token: Token(token), ending: Ending::Failed });
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

    stage.feed(Input::End { resource: name("r"), token: Token(1), ending: Ending::Finished });
    stage.stopped("r", 1);
    stage.answer(Said::Released(vec![Released::Free]));

    assert!(stage.saw(&Output::Left(name("r"))) && !stage.worker.is_campaigning(&name("r")));
}

#[test]
fn an_end_or_a_stop_under_another_token_changes_nothing() {
    let mut stage = Stage::owning();

    stage.feed(Input::End { resource: name("r"), token: Token(9), ending: Ending::Finished });
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

// ---- what the store says -----------------------------------------------------------------------------------

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
    assert!(stage.saw(&stop("r", 1, Ending::Gone)));
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

    assert!(stage.saw(&stop("r", 1, Ending::Cloned)));
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
    for (wish, ending) in
        [(Wish::Asked, Ending::Asked), (Wish::Lowered, Ending::Lowered), (Wish::Evicted, Ending::Evicted)]
    {
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

// ---- a new life of the store -------------------------------------------------------------------------------

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
        assert!(stage.saw(&stop("r", 1, Ending::Missing)));
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

// ---- many at a time ----------------------------------------------------------------------------------------

// req: L2
#[test]
fn of_many_those_who_are_due_the_longest_are_claimed_first() {
    let mut stage = Stage::new();
    let names: Vec<String> = (0..BATCH * 5).map(|number| format!("r{number:05}")).collect();
    names.iter().for_each(|name| stage.enter(name));
    stage.answer_open();
    let asked: Vec<Request> =
        stage.every.iter().filter(|request| matches!(request.call, Call::Claim(_))).cloned().collect();
    assert_eq!(asked.len(), AT_ONCE);

    // Those who were asked for are wanted again at once, by somebody's hint, and the last ones were never asked for.
    stage.pass(10);
    for name in &names {
        stage.feed(Input::Hinted { resource: self::name(name), after: Duration::ZERO });
    }
    let said =
        Said::Claimed(vec![Claimed::Waiting(Waiting { ahead: 0, look_again: TTL, why: Why::Taken }); BATCH]);
    stage.feed(Input::Answered(asked[0].clone(), stamped(said, 1, stage.now)));

    let Call::Claim(wants) = &stage.sent.as_ref().unwrap().call else { panic!("a claim") };
    let wanted: Vec<&str> = wants.iter().map(|want| want.resource.as_str()).collect();
    assert_eq!(wanted, names[BATCH * 4..]);
}

// req: H15
#[test]
fn ten_thousand_resources_cost_one_renewal_and_few_claims() {
    let mut stage = Stage::new();
    for n in 0..10_000 {
        stage.enter(&format!("r{n}"));
    }
    stage.answer(Said::Opened);
    while let Some(Request { call: Call::Claim(wants), .. }) = stage.claim_under_way() {
        assert!(wants.len() <= BATCH);
        let grants = wants.iter().map(|_| Claimed::Granted(grant(1))).collect();
        stage.answer_claim(Said::Claimed(grants));
    }
    assert_eq!(stage.worker.owned().count(), 10_000);
    assert_eq!(stage.claims(), 40);

    let from = stage.now;
    for _ in 0..9 {
        stage.until_renewal();
        stage.answer(kept());
    }

    assert_eq!(stage.now - from, 9 * TTL.as_millis() as u64 / 3);
}

// req: O15
#[test]
fn entering_twice_is_one_campaign_and_changes_what_it_wants() {
    let mut stage = Stage::opened();
    stage.answer(waiting(0, 9_000));
    assert!(stage.worker.is_campaigning(&name("r")));

    let want = Want { resource: name("r"), tickets: Tickets::new(3).unwrap(), priority: 7 };
    stage.feed(Input::Enter(want.clone()));

    assert_eq!(stage.sent.as_ref().map(|request| &request.call), Some(&Call::Claim(vec![want])));
}

// ---- leaving -----------------------------------------------------------------------------------------------

// req: A2 A3
#[test]
fn a_shutdown_stops_the_work_then_closes_the_lease_in_one_write() {
    let mut stage = Stage::owning();
    stage.feed(Input::Shutdown);
    stage.feed(Input::Shutdown);
    assert!(stage.saw(&stop("r", 1, Ending::Left)));
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

    assert!(stage.saw(&stop("r", 1, Ending::Finished)) && !stage.owns("r"));
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

// ---- the stage ---------------------------------------------------------------------------------------------

const SOME_PLACE: Waiting = Waiting { ahead: 0, look_again: TTL, why: Why::Taken };

/// A worker, its clock, and what it has sent and said.
struct Stage {
    worker: Worker,
    /// In milliseconds.
    now: u64,
    asleep: u64,
    jitter: u16,
    /// The newest request that is not answered.
    sent: Option<Request>,
    every: Vec<Request>,
    outputs: Vec<Output>,
    ids: u128,
}

impl Stage {
    fn with(timing: Timing) -> Self {
        let label = Label::new("w").unwrap();
        let worker = Worker::new(timing, label, Metadata::default(), moment(1_000, 0));
        let (every, outputs) = (Vec::new(), Vec::new());
        Self { worker, now: 1_000, asleep: 0, jitter: 0, sent: None, every, outputs, ids: 0 }
    }

    fn new() -> Self {
        Self::with(Timing::new(TTL).unwrap())
    }

    /// With a lease, and a claim of `r` under way.
    fn opened() -> Self {
        let mut stage = Self::new();
        stage.enter("r");
        stage.answer(Said::Opened);
        stage
    }

    /// Owning `r` under token 1.
    fn owning() -> Self {
        let mut stage = Self::opened();
        stage.answer(granted(1));
        assert!(stage.owns("r"));
        stage
    }

    fn moment(&self) -> Moment {
        moment(self.now + self.asleep, self.now)
    }

    fn feed(&mut self, input: Input) {
        self.ids += 1;
        let now = Now { at: self.moment(), jitter: self.jitter, fresh: LeaseId(self.ids) };
        self.worker.handle(now, input);
        while let Some(output) = self.worker.poll() {
            if let Output::Send(request) = &output {
                self.sent = Some(request.clone());
                self.every.push(request.clone());
            }
            self.outputs.push(output);
        }
    }

    /// Lets time go by, as a driver does: it comes back when there is something to do.
    fn pass(&mut self, millis: u64) {
        self.pass_to(self.now + millis);
    }

    fn pass_to(&mut self, end: u64) {
        while let Some(span) = self.worker.sleep(self.moment()) {
            let due = self.now + span.as_micros().div_ceil(1000) as u64;
            if due > end {
                break;
            }
            assert!(due > self.now || !span.is_zero(), "it wants to be woken at once, for ever");
            self.now = due;
            self.feed(Input::Tick);
        }
        self.now = end;
        self.feed(Input::Tick);
    }

    /// Until the next renewal leaves; says when.
    fn until_renewal(&mut self) -> u64 {
        let renewals =
            |stage: &Self| stage.every.iter().filter(|request| request.call == Call::Renew).count();
        let before = renewals(self);
        while renewals(self) == before {
            self.pass(1);
        }
        self.now
    }

    fn answer(&mut self, said: Said) {
        self.answer_as(1, said);
    }

    fn answer_as(&mut self, incarnation: u128, said: Said) {
        let request = self.sent.take().expect("a request is under way");
        self.feed(Input::Answered(request, stamped(said, incarnation, self.now)));
    }

    /// Answers the renewal that is under way, if one is.
    fn keep(&mut self) {
        if self.sent.as_ref().is_some_and(|request| request.call == Call::Renew) {
            self.answer(kept());
        }
    }

    /// The same by a store whose clock is ahead of what it was.
    fn keep_ahead(&mut self, millis: u64) {
        if let Some(renewal) = self.sent.take_if(|request| request.call == Call::Renew) {
            self.feed(Input::Answered(renewal, stamped(kept(), 1, self.now + millis)));
        }
    }

    fn answer_open(&mut self) {
        let open = self.every.iter().rev().find(|request| matches!(request.call, Call::Open { .. })).cloned();
        self.feed(Input::Answered(open.expect("an open"), stamped(Said::Opened, 1, self.now)));
    }

    fn claim_under_way(&self) -> Option<Request> {
        let asked = self.worker.under_way.iter().find(|asked| asked.batch == Batch::Claims)?;
        self.every.iter().find(|request| request.seq == asked.attempt.seq).cloned()
    }

    fn answer_claim(&mut self, said: Said) {
        let claim = self.claim_under_way().expect("a claim");
        self.feed(Input::Answered(claim, stamped(said, 1, self.now)));
    }

    fn fail(&mut self) {
        let request = self.sent.take().expect("a request is under way");
        self.feed(Input::Failed(request));
    }

    fn enter(&mut self, resource: &str) {
        self.feed(Input::Enter(Want { resource: name(resource), tickets: Tickets::ONE, priority: 0 }));
    }

    fn stopped(&mut self, resource: &str, token: u64) {
        self.feed(Input::Stopped { resource: name(resource), token: Token(token) });
    }

    fn owns(&self, resource: &str) -> bool {
        self.worker.owned().any(|(owned, _)| owned.as_str() == resource)
    }

    fn trusted_until(&self) -> Option<u64> {
        self.worker.trusted_until().map(|until| until.boot_micros() / 1000)
    }

    fn saw(&self, output: &Output) -> bool {
        self.outputs.contains(output)
    }

    fn count(&self, output: &Output) -> usize {
        self.outputs.iter().filter(|seen| *seen == output).count()
    }

    fn claims(&self) -> usize {
        self.every.iter().filter(|request| matches!(request.call, Call::Claim(_))).count()
    }

    fn renewals(&self) -> usize {
        self.every.iter().filter(|request| matches!(request.call, Call::Renew)).count()
    }

    fn releases(&self) -> Vec<(ResourceName, Leaving)> {
        let calls = self.every.iter().filter_map(|request| match &request.call {
            Call::Release(leaves) => Some(leaves),
            _ => None,
        });
        calls.flatten().map(|leave| (leave.resource.clone(), leave.how)).collect()
    }
}

fn moment(boot: u64, raw: u64) -> Moment {
    Moment::new(Duration::from_millis(boot), Duration::from_millis(raw))
}

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

/// The store's clock runs with the worker's, a thousand seconds ahead.
fn store_time(now: u64) -> StoreTime {
    StoreTime::from_micros((1_000_000 + now) * 1_000)
}

fn stamped(said: Said, incarnation: u128, now: u64) -> Answer {
    let (now, incarnation) = (store_time(now), Incarnation(incarnation));
    let stamp = Stamp { now, shown: now, incarnation, longest: TTL };
    Answer { stamp, said }
}

fn grant(token: u64) -> Grant {
    Grant { ticket: Ticket(0), term: Term(token), token: Token(token) }
}

fn granted(token: u64) -> Said {
    Said::Claimed(vec![Claimed::Granted(grant(token))])
}

fn waiting(ahead: u32, millis: u64) -> Said {
    let look_again = Duration::from_millis(millis);
    Said::Claimed(vec![Claimed::Waiting(Waiting { ahead, look_again, why: Why::Taken })])
}

fn holding(resource: &str, token: u64) -> Holding {
    Holding { resource: name(resource), ticket: Ticket(0), token: Token(token) }
}

fn kept() -> Said {
    Said::Kept { notices: vec![], more: false }
}

fn stop(resource: &str, token: u64, ending: Ending) -> Output {
    Output::Stop { resource: name(resource), token: Token(token), ending }
}

fn stop_hard(resource: &str, token: u64) -> Output {
    Output::StopHard { resource: name(resource), token: Token(token) }
}
