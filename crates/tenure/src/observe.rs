//! What the driver says of itself: log lines and metrics. Labels are bounded: `class` is the part of a resource
//! name before the first `:` or `.`.

use std::time::Duration;

use tenure_core::{
    Answer, Call, Ending, Grant, HeldBack, Label, Moment, Report, Request, ResourceName, Said,
};

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
        metrics::describe_counter!("tenure_ticks_total", "ticks at which work was begun here");
        metrics::describe_counter!(
            "tenure_ticks_skipped_total",
            "ticks at which it was not, by the reason why"
        );
        metrics::describe_counter!("tenure_runs_total", "runs of jobs that ended here, by how they ended");
        metrics::describe_histogram!("tenure_run_seconds", "how long a run of a job took");
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

/// After it did not.
pub(crate) fn answers_again(label: &str) {
    tracing::info!(worker = label, recovered = true, "the store answers again");
}

/// No hints for this lease.
pub(crate) fn deaf(error: &Error) {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(%error, cause, "the store does not tell when a ticket is free; this worker finds out by itself, up to a lease later");
}

/// No messages of this resource for now.
pub(crate) fn unsubscribed(resource: &ResourceName, error: &Error) {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(%resource, %error, cause, "no messages from the store; what is sent meanwhile is lost");
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

// ---- jobs --------------------------------------------------------------------------------------------------

/// Why a tick is left out, in numbers.
const SKIPPED: [&str; 5] = ["not_owner", "silence", "missed", "still_running", "too_early"];
/// How a run ends, in numbers.
const RUNS: [&str; 3] = ["ran", "failed", "stopped"];

/// Every series of a job begins at zero.
pub(crate) fn job_entered(resource: &ResourceName) {
    ticks_begin(resource);
    for outcome in RUNS {
        metrics::counter!("tenure_runs_total", "class" => class(resource), "outcome" => outcome).increment(0);
    }
}

fn ticks_begin(resource: &ResourceName) {
    describe();
    metrics::counter!("tenure_ticks_total", "class" => class(resource)).increment(0);
    SKIPPED.iter().for_each(|reason| skipped(resource, reason, 0));
}

fn skipped(resource: &ResourceName, reason: &'static str, count: u64) {
    metrics::counter!("tenure_ticks_skipped_total", "class" => class(resource), "reason" => reason)
        .increment(count);
}

// req: E10
pub(crate) fn gate(resource: &ResourceName, is_open: bool, is_silent: bool) {
    ticks_begin(resource);
    match (is_open, is_silent) {
        (true, _) => metrics::counter!("tenure_ticks_total", "class" => class(resource)).increment(1),
        (false, true) => skipped(resource, "silence", 1),
        (false, false) => skipped(resource, "not_owner", 1),
    }
}

pub(crate) fn run_ended(resource: &ResourceName, outcome: &'static str, took: Duration) {
    describe();
    metrics::counter!("tenure_runs_total", "class" => class(resource), "outcome" => outcome).increment(1);
    metrics::histogram!("tenure_run_seconds", "class" => class(resource)).record(took.as_secs_f64());
}

pub(crate) fn once_began(resource: &ResourceName, attempt: u32) {
    job_entered(resource);
    tracing::info!(%resource, attempt, "begins what is done once");
}

/// The owner before left its work in the middle.
pub(crate) fn interrupted(resource: &ResourceName, worker: &Label) {
    tracing::warn!(%resource, %worker, "was interrupted");
}

pub(crate) fn job_unanswered(resource: &ResourceName, error: &Error) {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(%resource, %error, cause, "the store did not answer about a job");
}

#[cfg(feature = "cron")]
pub(crate) fn job(resource: &ResourceName, change: &crate::cron::Change) {
    use crate::cron::{Change, Skipped};

    match change {
        Change::Began { occurrence, attempt } => {
            metrics::counter!("tenure_ticks_total", "class" => class(resource)).increment(1);
            tracing::debug!(%resource, occurrence = millis(*occurrence), attempt, "begins");
        }
        Change::Ran { occurrence } => tracing::debug!(%resource, occurrence = millis(*occurrence), "ran"),
        Change::Failed { occurrence, what } => {
            tracing::error!(%resource, occurrence = millis(*occurrence), what, "the job failed");
        }
        Change::Stopped { occurrence } => {
            tracing::warn!(%resource, occurrence = millis(*occurrence), "the ownership ended before the job did");
        }
        Change::Interrupted { worker, .. } => interrupted(resource, worker),
        Change::Missed { count } => {
            skipped(resource, "missed", *count);
            tracing::warn!(%resource, count, "nobody began them in time");
        }
        Change::Skipped { count, reason: Skipped::StillRunning } => {
            skipped(resource, "still_running", *count);
            tracing::warn!(%resource, count, "left out, because the one before was still running");
        }
        Change::Skipped { count, reason: Skipped::TooEarly } => {
            skipped(resource, "too_early", *count);
            tracing::warn!(%resource, "the clock of this worker is more than a minute ahead of the store's");
        }
        Change::PlanChanged { before } => tracing::warn!(%resource, before, "had another plan"),
        // Told as it is heard.
        Change::Refused { .. } => {}
    }
}

#[cfg(feature = "cron")]
fn millis(time: std::time::SystemTime) -> u64 {
    let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
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
