//! What the driver says of itself: log lines and metrics. Labels are bounded: `class` is the part of a resource
//! name before the first `:` or `.`.

use std::time::Duration;

use tenure_core::{Answer, Call, Ending, Grant, HeldBack, Moment, Report, Request, ResourceName, Said};

use crate::Error;

fn class(resource: &ResourceName) -> String {
    resource.as_str().split([':', '.']).next().unwrap_or_default().to_owned()
}

/// Every series of a campaign begins at zero: what shows up with its first event is missed by whoever looks for an
/// increase.
pub(crate) fn entered(resource: &ResourceName) {
    describe();
    metrics::counter!("tenure_acquired_total", "class" => class(resource)).increment(0);
    metrics::gauge!("tenure_owned", "class" => class(resource)).increment(0.0);
    for ending in [Ending::Expired, Ending::Gone, Ending::Missing, Ending::Evicted, Ending::Cloned] {
        let reason = reason(ending);
        metrics::counter!("tenure_lost_total", "class" => class(resource), "reason" => reason).increment(0);
    }
    metrics::counter!("tenure_flapping_total", "class" => class(resource)).increment(0);
    metrics::counter!("tenure_renewals_total").increment(0);
    metrics::counter!("tenure_renewal_failures_total").increment(0);
}

/// Says to the exporter, once, what the numbers mean.
fn describe() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        metrics::describe_counter!("tenure_acquired_total", "ownerships that began here");
        metrics::describe_counter!(
            "tenure_lost_total",
            "ownerships that ended against the will of the worker"
        );
        metrics::describe_gauge!("tenure_owned", "ownerships that are held here now");
        metrics::describe_counter!(
            "tenure_flapping_total",
            "how often a resource was seen to change its owner too often"
        );
        metrics::describe_counter!("tenure_renewals_total", "renewals that the store kept");
        metrics::describe_counter!("tenure_renewal_failures_total", "renewals that came to nothing");
        metrics::describe_histogram!("tenure_renew_seconds", "how long an answered renewal took");
        metrics::describe_histogram!(
            "tenure_trust_left_ratio",
            "how much of the trust was left at a renewal"
        );
    });
}

/// What the work of an ownership runs in, so that its own log lines tell for whom it worked.
pub(crate) fn span(resource: &ResourceName, grant: Grant) -> tracing::Span {
    tracing::info_span!("ownership", %resource, ticket = grant.ticket.0, term = grant.term.0, token = grant.token.0)
}

// req: T8 E14
pub(crate) fn acquired(label: &str, resource: &ResourceName, grant: Grant) {
    let Grant { ticket, term, token } = grant;
    tracing::info!(worker = label, %resource, ticket = ticket.0, term = term.0, token = token.0, "became owner");
    metrics::counter!("tenure_acquired_total", "class" => class(resource)).increment(1);
    metrics::gauge!("tenure_owned", "class" => class(resource)).increment(1.0);
}

pub(crate) fn ended(label: &str, resource: &ResourceName, grant: Grant, ending: Ending) {
    let (Grant { term, token, .. }, reason) = (grant, reason(ending));
    if ending.is_gentle() {
        tracing::info!(worker = label, %resource, term = term.0, token = token.0, reason, "gives up the ownership");
    } else {
        tracing::warn!(worker = label, %resource, term = term.0, token = token.0, reason, "lost the ownership");
        metrics::counter!("tenure_lost_total", "class" => class(resource), "reason" => reason).increment(1);
    }
    metrics::gauge!("tenure_owned", "class" => class(resource)).decrement(1.0);
}

pub(crate) fn flaps(label: &str, resource: &ResourceName, changes: u64, within: Duration) {
    tracing::warn!(worker = label, %resource, changes, ?within, "changes its owner too often");
    metrics::counter!("tenure_flapping_total", "class" => class(resource)).increment(1);
}

/// `left` is how much of a full trust was left when the answer came: near zero it was a near miss.
pub(crate) fn answered(request: &Request, answer: &Answer, now: Moment, left: f64) {
    if request.call == Call::Renew {
        let took = now.longest_since(request.asked_at);
        metrics::histogram!("tenure_renew_seconds").record(took.as_secs_f64());
        if matches!(answer.said, Said::Kept { .. }) {
            metrics::counter!("tenure_renewals_total").increment(1);
            metrics::histogram!("tenure_trust_left_ratio").record(left.clamp(0.0, 1.0));
        }
    }
}

pub(crate) fn failed(label: &str, request: &Request, error: &Error) {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(worker = label, call = name(&request.call), %error, cause, "the store did not answer as hoped");
    if request.call == Call::Renew {
        metrics::counter!("tenure_renewal_failures_total").increment(1);
    }
}

/// Nothing came of it within its time limit.
pub(crate) fn overdue(label: &str, call: &'static str) {
    tracing::warn!(worker = label, call, "the store did not answer in time");
    if call == name(&Call::Renew) {
        metrics::counter!("tenure_renewal_failures_total").increment(1);
    }
}

/// No hints for this lease.
pub(crate) fn deaf(error: &Error) {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(%error, cause, "no hints from the store; looking again has to do");
}

pub(crate) fn reported(label: &str, report: &Report) {
    match report {
        Report::Queued(resource, waiting) => {
            tracing::debug!(worker = label, %resource, ahead = waiting.ahead, why = ?waiting.why, "waits");
        }
        Report::HeldBack(HeldBack::StoreForgot, left) => {
            tracing::warn!(worker = label, ?left, "the store forgot a live lease; not competing for a while");
        }
        Report::HeldBack(_, left) => {
            tracing::info!(worker = label, ?left, "watches the store's clock before it competes");
        }
        Report::NewIncarnation => {
            tracing::warn!(worker = label, "the store was restarted; confirming what is owned");
        }
        _ => {}
    }
}

pub(crate) fn name(call: &Call) -> &'static str {
    match call {
        Call::Open { .. } => "open",
        Call::Renew => "renew",
        Call::Claim(_) => "claim",
        Call::Release(_) => "release",
        Call::Held => "held",
        Call::Close(_) => "close",
    }
}

// req: H17
pub(crate) fn reason(ending: Ending) -> &'static str {
    match ending {
        Ending::Finished => "finished",
        Ending::Failed => "failed",
        Ending::SteppedDown => "stepped_down",
        Ending::Left => "left",
        Ending::Asked => "asked",
        Ending::Lowered => "lowered",
        Ending::Evicted => "evicted",
        Ending::Expired => "expired",
        Ending::Gone => "gone",
        Ending::Missing => "missing",
        Ending::Cloned => "cloned",
        _ => "other",
    }
}
