//! Short words for what cases say and expect: spans, names, requests, and answers looked into.

use std::time::Duration;

use tenure_core::{
    Call, Claimed, Grant, Hint, Label, LeaseId, Leave, Leaving, Moment, Notice, Released, Request,
    ResourceName, Said, Seq, StoreTime, Tickets, Token, Waiting, Want, Wish,
};

use crate::store::{Hints, Pending};

/// For leases that are to live through the case, however slow the store is. Their step is 100 ms.
pub(super) const LONG: Duration = Duration::from_secs(15);
/// For leases that are to run out.
pub(super) const SHORT: Duration = Duration::from_millis(500);
/// For waiters whose turn is not to come while the case looks on: their step is 24 s.
pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// The shortest step.
pub(super) const STEP: Duration = Duration::from_millis(100);
/// By how much a span may differ from what the rules say: a store may count with another resolution than ours.
pub(super) const TOLERANCE: Duration = Duration::from_millis(5);
pub(super) const MICRO: Duration = Duration::from_micros(1);
pub(super) const ZERO: Duration = Duration::ZERO;
/// What most cases are about.
pub(super) const JOB: &str = "job";

/// Longer than any store that works takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the store says, if it does within a generous limit.
pub(super) async fn answered<T>(pending: Pending<'_, T>) -> T {
    match tokio::time::timeout(PATIENCE, pending).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => panic!("the store does not know: {error} ({error:?})"),
        Err(_) => panic!("the store did not answer within {PATIENCE:?}"),
    }
}

/// The next wake-up, waited for with a limit.
pub(super) async fn next_hint(hints: &mut Hints) -> (String, Duration) {
    match tokio::time::timeout(PATIENCE, hints.recv()).await {
        Ok(Some(Hint { resource, after, .. })) => (resource.to_string(), after),
        Ok(None) => panic!("the stream of hints ended"),
        Err(_) => panic!("no hint came within {PATIENCE:?}"),
    }
}

/// The id of a lease, random and used once.
pub(super) fn fresh() -> LeaseId {
    let mut id = [0; 16];
    getrandom::fill(&mut id).expect("the system has random numbers");
    LeaseId(u128::from_le_bytes(id))
}

pub(super) fn request(lease: LeaseId, seq: u64, judged_by: Option<StoreTime>, call: Call) -> Request {
    Request { lease, seq: Seq(seq), asked_at: Moment::new(ZERO, ZERO), limit: PATIENCE, judged_by, call }
}

pub(super) fn earlier(time: StoreTime, span: Duration) -> StoreTime {
    let span = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    StoreTime::from_micros(time.as_micros().saturating_sub(span))
}

pub(super) fn name(text: &str) -> ResourceName {
    ResourceName::new(text).expect("a valid name")
}

pub(super) fn label(text: &str) -> Label {
    Label::new(text).expect("a valid label")
}

pub(super) fn tickets(count: u32) -> Tickets {
    Tickets::new(count).expect("a valid number")
}

pub(super) fn want(resource: &str) -> Want {
    Want { resource: name(resource), tickets: Tickets::ONE, priority: 0 }
}

pub(super) fn claim_of(resource: &str) -> Call {
    Call::Claim(vec![want(resource)])
}

pub(super) fn release_of(resource: &str) -> Call {
    Call::Release(vec![Leave { resource: name(resource), how: Leaving::Released }])
}

pub(super) fn step_down_of(resource: &str) -> Call {
    Call::Release(vec![Leave { resource: name(resource), how: Leaving::SteppedDown }])
}

pub(super) fn notice_of(resource: &str, token: Token, wish: Wish) -> Notice {
    Notice { resource: name(resource), token, wish }
}

/// Kept, with nothing to tell.
pub(super) fn kept() -> Said {
    Said::Kept { notices: vec![], more: false }
}

#[track_caller]
pub(super) fn only_claimed(said: Said) -> Claimed {
    match said {
        Said::Claimed(answers) if answers.len() == 1 => answers[0],
        said => panic!("the claim of one resource was answered {said:?}"),
    }
}

#[track_caller]
pub(super) fn only_released(said: Said) -> Released {
    match said {
        Said::Released(answers) if answers.len() == 1 => answers[0],
        said => panic!("the release of one resource was answered {said:?}"),
    }
}

#[track_caller]
pub(super) fn granted(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => grant,
        claimed => panic!("a claim that should be granted was answered {claimed:?}"),
    }
}

#[track_caller]
pub(super) fn waiting(claimed: Claimed) -> Waiting {
    match claimed {
        Claimed::Waiting(waiting) => {
            assert!(waiting.look_again >= Duration::from_millis(1), "too soon to look again: {waiting:?}");
            waiting
        }
        claimed => panic!("a claim that should wait was answered {claimed:?}"),
    }
}
