//! Resources without limit: everybody owns them, and no store is asked.

use super::*;

fn unlimited() -> Stage {
    let mut stage = Stage::new();
    stage.feed(Input::EnterUnlimited(name("r")));
    assert!(stage.saw(&start(1)));
    stage
}

fn start(term: u64) -> Output {
    let grant = Grant { ticket: Ticket(0), term: Term(term), token: Token(term) };
    Output::Start(Ownership { resource: name("r"), grant })
}

// req: O4
#[test]
fn a_resource_without_limit_is_owned_at_once_and_no_store_is_asked() {
    let mut stage = unlimited();

    stage.pass(3 * TTL.as_millis() as u64);

    assert!(stage.every.is_empty() && stage.worker.is_campaigning(&name("r")));
    assert_eq!(stage.worker.sleep(stage.moment()), None);
}

// req: O4
#[test]
fn without_limit_work_that_fails_begins_again_after_a_pause() {
    let mut stage = unlimited();

    stage.feed(Input::End { resource: name("r"), token: Token(1), ending: EndReason::Failed });
    assert!(stage.saw(&stop("r", 1, EndReason::Failed)));
    stage.stopped("r", 1);

    stage.pass(99);
    assert!(!stage.saw(&start(2)));
    stage.pass(1);
    assert!(stage.saw(&start(2)));
}

// req: A2
#[test]
fn without_limit_a_shutdown_waits_for_the_work_and_hurries_it_after_the_grace() {
    let mut stage = unlimited();

    stage.feed(Input::Shutdown);
    assert!(stage.saw(&stop("r", 1, EndReason::Left)) && !stage.saw(&Output::Done));
    stage.pass(stage.worker.timing.grace().as_millis() as u64);
    assert!(stage.saw(&Output::StopHard { resource: name("r"), token: Token(1) }));
    stage.stopped("r", 1);

    assert!(stage.saw(&Output::Left(name("r"))));
    assert_eq!(stage.count(&Output::Done), 1);
    stage.feed(Input::EnterUnlimited(name("other")));
    assert!(stage.saw(&Output::Left(name("other"))));
}

#[test]
fn without_limit_what_is_said_of_an_earlier_term_changes_nothing() {
    let mut stage = unlimited();
    stage.feed(Input::StepDown(name("r")));
    stage.stopped("r", 1);
    assert!(stage.saw(&start(2)));

    let before = stage.outputs.len();
    stage.feed(Input::End { resource: name("r"), token: Token(1), ending: EndReason::Left });
    stage.stopped("r", 1);

    assert_eq!(stage.outputs.len(), before);
}

#[test]
fn without_limit_work_that_ends_by_itself_leaves() {
    let mut stage = unlimited();

    stage.stopped("r", 1);

    assert!(stage.saw(&stop("r", 1, EndReason::Finished)) && stage.saw(&Output::Left(name("r"))));
    assert!(!stage.worker.is_campaigning(&name("r")));
}

// req: S3
#[test]
fn a_lease_that_ends_does_not_end_what_has_no_limit() {
    let mut stage = Stage::owning();
    stage.feed(Input::EnterUnlimited(name("free")));
    let stops = |stage: &Stage, of: &str| {
        let is_stop =
            |output: &&Output| matches!(output, Output::Stop { resource, .. } if resource.as_str() == of);
        stage.outputs.iter().filter(is_stop).count()
    };

    stage.pass(TRUST);

    assert_eq!((stops(&stage, "r"), stops(&stage, "free")), (1, 0));
}

// req: A2
#[test]
fn the_lease_is_closed_while_work_without_limit_still_winds_down() {
    let mut stage = Stage::owning();
    stage.feed(Input::EnterUnlimited(name("free")));

    stage.feed(Input::Shutdown);
    stage.stopped("r", 1);

    assert!(stage.every.iter().any(|request| request.call == Call::Close(Closing::Left)));
    stage.answer(Said::Closed);
    assert!(!stage.saw(&Output::Done));
    stage.stopped("free", 1);
    assert_eq!(stage.count(&Output::Done), 1);
}

// req: O4
#[test]
fn a_resource_without_limit_needs_no_lease_and_a_worker_may_change_between_the_two() {
    let mut stage = Stage::owning();
    stage.feed(Input::Leave(name("r")));

    stage.feed(Input::EnterUnlimited(name("r")));
    assert_eq!(stage.count(&start(1)), 1, "the work under the lease still runs");
    stage.stopped("r", 1);
    stage.answer(Said::Released(vec![Released::Free]));
    stage.pass(1);
    assert_eq!((stage.count(&start(1)), stage.claims()), (2, 1));

    stage.feed(Input::Leave(name("r")));
    stage.enter("r");
    assert_eq!(stage.claims(), 1);
    stage.stopped("r", 1);
    stage.pass(1);
    assert_eq!(stage.claims(), 2);
}

#[test]
fn without_limit_work_that_ignores_its_stop_is_overdue() {
    let mut stage = unlimited();
    stage.feed(Input::StepDown(name("r")));

    // The grace of the work, and one for its cleanup.
    stage.pass(2 * 9_000 + MARGIN / 4);

    assert_eq!(stage.count(&overdue("r", 1)), 1);
}
