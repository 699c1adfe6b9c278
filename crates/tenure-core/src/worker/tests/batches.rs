//! Many resources at a time.

use super::*;

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
        Said::Claimed(vec![
            Claimed::Waiting(Waiting { ahead: 0, look_again: TTL, why: WaitReason::Taken });
            BATCH
        ]);
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
