//! How events are logged and counted. Labels are bounded: `class` is the part of a resource
//! name before the first `:` or `.`.

use std::time::Duration;

use tenure_core::{Call, EndReason, Grant, Label, ResourceName};

use crate::campaign::state::Change;
use crate::runtime::events::{Event, StoreChange};

fn class(resource: &ResourceName) -> String {
    resource.as_str().split([':', '.']).next().unwrap_or_default().to_owned()
}

/// Every series of a campaign begins at zero: what shows up with its first event is missed by whoever looks for an
/// increase.
fn entered(resource: &ResourceName) {
    describe();
    metrics::counter!("tenure_acquired_total", "class" => class(resource)).increment(0);
    metrics::gauge!("tenure_owned", "class" => class(resource)).increment(0.0);
    for ending in
        [EndReason::Expired, EndReason::Gone, EndReason::Missing, EndReason::Evicted, EndReason::Cloned]
    {
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

/// A number that is counted and not told as an event: it would be told too often.
#[derive(Debug)]
pub(crate) enum Figure {
    /// A campaign for this resource began.
    Entered(ResourceName),
    /// A renewal was answered after so long. If the store kept it: how much of a full trust was left; near zero it was a
    /// near miss.
    RenewalAnswered { took: Duration, left: Option<f64> },
    /// A renewal failed, or got no reply in time.
    RenewalFailed,
}

pub(crate) fn figure(figure: &Figure) {
    match figure {
        Figure::Entered(resource) => entered(resource),
        Figure::RenewalAnswered { took, left } => {
            metrics::histogram!("tenure_renew_seconds").record(took.as_secs_f64());
            if let Some(left) = left {
                metrics::counter!("tenure_renewals_total").increment(1);
                metrics::histogram!("tenure_trust_left_ratio").record(left.clamp(0.0, 1.0));
            }
        }
        Figure::RenewalFailed => metrics::counter!("tenure_renewal_failures_total").increment(1),
    }
}

/// Logs an event, and counts it.
pub(crate) fn event(event: &Event) {
    match event {
        Event::Campaign { worker, resource, change } => campaign(worker, resource, change),
        #[cfg(feature = "cron")]
        Event::Job { resource, change } => job(resource, change),
        Event::OnceBegan { resource, attempt } => {
            tracing::info!(%resource, attempt, "begins what is done once");
        }
        Event::OnceInterrupted { resource, by } => interrupted(resource, by),
        Event::Store { worker, resource, change } => {
            store(worker.as_ref().map(Label::as_str), resource.as_ref().map(ResourceName::as_str), change);
        }
        Event::Panicked { what } => tracing::error!(what, "the driver's work ended before its time"),
        Event::Dropped { count } => tracing::warn!(count, "events were not logged: the log is too slow"),
    }
}

// req: T8 E14
fn campaign(worker: &Label, resource: &ResourceName, change: &Change) {
    let worker = worker.as_str();
    match change {
        Change::Acquired(Grant { ticket, term, token }) => {
            let (ticket, term, token) = (ticket.0, term.0, token.0);
            tracing::info!(worker, %resource, ticket, term, token, "became owner");
            metrics::counter!("tenure_acquired_total", "class" => class(resource)).increment(1);
            metrics::gauge!("tenure_owned", "class" => class(resource)).increment(1.0);
        }
        Change::Ended(grant, ending) => {
            let (term, token, reason) = (grant.term.0, grant.token.0, reason(*ending));
            if ending.is_gentle() {
                tracing::info!(worker, %resource, term, token, reason, "gives up the ownership");
            } else {
                tracing::warn!(worker, %resource, term, token, reason, "lost the ownership");
                metrics::counter!("tenure_lost_total", "class" => class(resource), "reason" => reason)
                    .increment(1);
            }
            metrics::gauge!("tenure_owned", "class" => class(resource)).decrement(1.0);
        }
        Change::Waiting(waiting) => {
            tracing::debug!(worker, %resource, ahead = waiting.ahead, why = ?waiting.why, "waits");
        }
        Change::Flapping { changes, within } => {
            tracing::warn!(worker, %resource, changes, ?within, "changes its owner too often");
            metrics::counter!("tenure_flapping_total", "class" => class(resource)).increment(1);
        }
        Change::WorkFailed { term, what } => {
            tracing::error!(worker, %resource, term = term.0, what, "the work failed");
        }
        Change::CleanupFailed { term, what } => {
            tracing::error!(worker, %resource, term = term.0, what, "the cleanup failed");
        }
        Change::CleanupDropped { term } => {
            tracing::error!(worker, %resource, term = term.0, "the cleanup hangs; it is dropped");
        }
    }
}

fn store(worker: Option<&str>, resource: Option<&str>, change: &StoreChange) {
    match change {
        StoreChange::Failed { call: "job", error, cause } => {
            tracing::warn!(resource, error, cause, "the store did not answer about a job");
        }
        StoreChange::Failed { call, error, cause } => {
            tracing::warn!(worker, call, error, cause, "the store did not answer as hoped");
        }
        StoreChange::Silent { call } => tracing::warn!(worker, call, "the store did not answer in time"),
        StoreChange::Recovered => tracing::info!(worker, "the store answers again"),
        StoreChange::Restarted => tracing::warn!(worker, "the store was restarted; confirming what is owned"),
        StoreChange::ForgotLease { left } => {
            tracing::warn!(worker, ?left, "the store forgot a live lease; not competing for a while");
        }
        StoreChange::ClockWatched { left } => {
            tracing::info!(worker, ?left, "watches the store's clock before it competes");
        }
        StoreChange::Quarantine { left } => {
            tracing::info!(
                worker,
                ?left,
                "the store is new or lost its data: nothing is granted until earlier owners have stopped"
            );
        }
        StoreChange::QuarantineOver => tracing::info!(worker, "the store grants tickets again"),
        StoreChange::HintsLost { error, cause } => {
            tracing::warn!(
                worker,
                error,
                cause,
                "the store does not tell when a ticket is free; this worker finds out by itself, up to a lease later"
            );
        }
        StoreChange::HintsRestored => tracing::info!(worker, "the store tells again when a ticket is free"),
        StoreChange::MessagesLost { error, cause } => {
            tracing::warn!(
                resource,
                error,
                cause,
                "no messages from the store; what is sent meanwhile is lost"
            );
        }
        StoreChange::Warned(warning) => {
            tracing::warn!(cost = ?warning.cost, hint = %warning.hint, "{}", warning.what);
        }
        StoreChange::Unreadable { error } => tracing::warn!(error, "skipping a record that cannot be read"),
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

/// The owner before left its work in the middle.
fn interrupted(resource: &ResourceName, worker: &Label) {
    tracing::warn!(%resource, %worker, "was interrupted");
}

#[cfg(feature = "cron")]
fn job(resource: &ResourceName, change: &crate::jobs::cron::Change) {
    use crate::jobs::cron::{Change, Skipped};

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
pub(crate) fn reason(ending: EndReason) -> &'static str {
    match ending {
        EndReason::Finished => "finished",
        EndReason::Failed => "failed",
        EndReason::SteppedDown => "stepped_down",
        EndReason::Left => "left",
        EndReason::Asked => "asked",
        EndReason::Lowered => "lowered",
        EndReason::Evicted => "evicted",
        EndReason::Expired => "expired",
        EndReason::Gone => "gone",
        EndReason::Missing => "missing",
        EndReason::Cloned => "cloned",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use tenure_core::{Term, Ticket, Token, WaitReason, Waiting};

    use super::*;
    use crate::store::{Impact, Warning};

    /// Every event, once.
    fn all() -> Vec<Event> {
        let grant = Grant { ticket: Ticket(0), term: Term(7), token: Token(9) };
        let (term, second) = (grant.term, Duration::from_secs(1));
        let text = || "text".to_owned();
        let waiting = Waiting { ahead: 1, look_again: second, why: WaitReason::Taken };
        let campaigns = [
            Change::Acquired(grant),
            Change::Ended(grant, EndReason::Left),
            Change::Ended(grant, EndReason::Expired),
            Change::Waiting(waiting),
            Change::Flapping { changes: 6, within: second },
            Change::WorkFailed { term, what: text() },
            Change::CleanupFailed { term, what: text() },
            Change::CleanupDropped { term },
        ];
        let stores = [
            StoreChange::Failed { call: "renew", error: text(), cause: text() },
            StoreChange::Failed { call: "job", error: text(), cause: text() },
            StoreChange::Silent { call: "renew" },
            StoreChange::Recovered,
            StoreChange::Restarted,
            StoreChange::ForgotLease { left: second },
            StoreChange::ClockWatched { left: second },
            StoreChange::Quarantine { left: second },
            StoreChange::QuarantineOver,
            StoreChange::HintsLost { error: text(), cause: text() },
            StoreChange::HintsRestored,
            StoreChange::MessagesLost { error: text(), cause: text() },
            StoreChange::Warned(Warning { cost: Impact::Time, what: text(), hint: text() }),
            StoreChange::Unreadable { error: text() },
        ];
        let (worker, resource) = (Label::new("w").expect("a label"), ResourceName::new("r").expect("a name"));
        let of_campaign =
            |change| Event::Campaign { worker: worker.clone(), resource: resource.clone(), change };
        let of_store = |change| Event::Store { worker: Some(worker.clone()), resource: None, change };
        let mut all: Vec<Event> = campaigns.into_iter().map(of_campaign).collect();
        all.extend(stores.into_iter().map(of_store));
        all.extend([
            Event::OnceBegan { resource: resource.clone(), attempt: 1 },
            Event::OnceInterrupted { resource: resource.clone(), by: worker.clone() },
            Event::Panicked { what: text() },
            Event::Dropped { count: 3 },
        ]);
        all
    }

    #[test]
    fn every_event_is_one_line() {
        let lines = Arc::<Mutex<Vec<u8>>>::default();
        let pen = Pen(lines.clone());
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false);
        let all = all();

        tracing::subscriber::with_default(log.with_writer(move || pen.clone()).finish(), || {
            all.iter().for_each(event);
        });

        let text =
            String::from_utf8(lines.lock().unwrap_or_else(PoisonError::into_inner).clone()).expect("text");
        assert_eq!(text.lines().count(), all.len(), "{text}");
        assert!(
            text.contains(r#"lost the ownership worker="w" resource=r term=7 token=9 reason="expired""#),
            "{text}"
        );
        assert!(
            text.lines().any(|line| line.contains("INFO") && line.contains("nothing is granted")),
            "{text}"
        );
    }

    #[derive(Clone)]
    struct Pen(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Pen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
