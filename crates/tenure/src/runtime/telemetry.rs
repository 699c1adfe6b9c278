//! How events are logged and counted. Labels are bounded: `class` is the part of a resource
//! name before the first `:` or `.`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure_core::{Call, EndReason, Grant, Label, ResourceName};

use crate::campaign::state::Change;
use crate::runtime::events::{Event, StoreChange};
use crate::runtime::process;

fn class(resource: &ResourceName) -> String {
    resource.as_str().split([':', '.']).next().unwrap_or_default().to_owned()
}

/// Starts every series of a campaign at zero, so that a query for an increase sees its first event.
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
    metrics::counter!("tenure_overdue_total", "class" => class(resource)).increment(0);
    metrics::counter!("tenure_renewals_total").increment(0);
    metrics::counter!("tenure_renewal_failures_total").increment(0);
}

/// Describes the metrics to the exporter, once.
fn describe() {
    // Not a `Once`: a forked child would wait for a thread of its parent.
    static DESCRIBED_IN: AtomicU32 = AtomicU32::new(0);
    if DESCRIBED_IN.swap(process::id(), Ordering::Relaxed) != process::id() {
        metrics::describe_counter!("tenure_acquired_total", "ownerships that started in this process");
        metrics::describe_counter!("tenure_lost_total", "ownerships that this process lost");
        metrics::describe_gauge!("tenure_owned", "ownerships of this process now");
        metrics::describe_counter!(
            "tenure_flapping_total",
            "how often the owner of a resource changed too often"
        );
        metrics::describe_counter!("tenure_overdue_total", "ownerships whose work did not stop when told to");
        metrics::describe_counter!("tenure_renewals_total", "renewals that succeeded");
        metrics::describe_counter!("tenure_ticks_total", "ticks at which work was started in this process");
        metrics::describe_counter!("tenure_ticks_skipped_total", "ticks at which it was not, by reason");
        metrics::describe_counter!(
            "tenure_runs_total",
            "runs of jobs that ended in this process, by outcome"
        );
        metrics::describe_histogram!("tenure_run_seconds", "how long a run of a job took");
        metrics::describe_counter!(
            "tenure_renewal_failures_total",
            "renewals that failed or got no reply in time"
        );
        metrics::describe_histogram!("tenure_renew_seconds", "how long an answered renewal took");
        metrics::describe_histogram!(
            "tenure_trust_left_ratio",
            "how much of the trust was left at a renewal"
        );
    }
}

/// The span in which the work of an ownership runs, so that its own log lines name the ownership.
pub(crate) fn span(resource: &ResourceName, grant: Grant) -> tracing::Span {
    tracing::info_span!("ownership", %resource, ticket = grant.ticket.0, term = grant.term.0, token = grant.token.0)
}

/// Something that is counted and is not an event: it happens too often.
#[derive(Debug)]
pub(crate) enum Figure {
    /// A campaign for this resource began.
    Entered(ResourceName),
    /// A renewal was answered. `left` is the part of the trust that was left if the store kept the lease; near zero it was a
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
            tracing::info!(%resource, attempt, "starting one-time work");
        }
        Event::OnceInterrupted { resource, by } => interrupted(resource, by),
        Event::Store { worker, resource, change } => {
            store(worker.as_ref().map(Label::as_str), resource.as_ref().map(ResourceName::as_str), change);
        }
        Event::Panicked { what } => {
            tracing::error!(what, "internal error: Tenure panicked; this worker owns nothing any more");
        }
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
        Change::Overdue(grant) => {
            let (term, token) = (grant.term.0, grant.token.0);
            tracing::error!(worker, %resource, term, token, "the work does not stop although it was told to");
            metrics::counter!("tenure_overdue_total", "class" => class(resource)).increment(1);
        }
        Change::Waiting(waiting) => {
            tracing::debug!(worker, %resource, ahead = waiting.ahead, why = ?waiting.why, look_again = ?waiting.look_again, "waiting");
        }
        Change::Flapping { changes, within } => {
            tracing::warn!(worker, %resource, changes, ?within, "changes its owner too often");
            metrics::counter!("tenure_flapping_total", "class" => class(resource)).increment(1);
        }
        Change::TicketsChanged { tickets, asked } => {
            tracing::info!(worker, %resource, tickets, asked, "the number of tickets is not the one before");
        }
        Change::DuplicateLabel => {
            tracing::warn!(worker, %resource, "another live worker has the same label");
        }
        Change::WorkFailed { term, what } => {
            tracing::error!(worker, %resource, term = term.0, what, "the work failed");
        }
        Change::CleanupFailed { term, what } => {
            tracing::error!(worker, %resource, term = term.0, what, "the cleanup failed");
        }
        Change::CleanupDropped { term } => {
            tracing::error!(worker, %resource, term = term.0, "the cleanup did not end in time and was dropped");
        }
    }
}

fn store(worker: Option<&str>, resource: Option<&str>, change: &StoreChange) {
    let (error, cause) = change.error().unzip();
    match change {
        StoreChange::Failed { call, .. } => {
            tracing::warn!(worker, resource, call, error, cause, "{change}");
        }
        StoreChange::Silent { call } => tracing::warn!(worker, call, "{change}"),
        StoreChange::ForgotLease { left } => tracing::warn!(worker, ?left, "{change}"),
        StoreChange::ClockWatched { left } | StoreChange::Quarantine { left } => {
            tracing::info!(worker, ?left, "{change}");
        }
        StoreChange::Recovered | StoreChange::QuarantineOver | StoreChange::HintsRestored => {
            tracing::info!(worker, "{change}");
        }
        StoreChange::Warned(warning) => {
            tracing::warn!(cost = ?warning.cost, hint = %warning.hint, "{change}");
        }
        StoreChange::Restarted
        | StoreChange::HintsLost { .. }
        | StoreChange::MessagesLost { .. }
        | StoreChange::Unreadable { .. } => tracing::warn!(worker, resource, error, cause, "{change}"),
    }
}

// ---- jobs --------------------------------------------------------------------------------------------------

/// The values of `reason` of a skipped tick.
const SKIPPED: [&str; 5] = ["not_owner", "silence", "missed", "still_running", "too_early"];
/// The values of `outcome` of a run.
const RUNS: [&str; 3] = ["ran", "failed", "stopped"];

/// Starts every series of a job at zero.
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

/// The previous owner did not finish its work.
fn interrupted(resource: &ResourceName, worker: &Label) {
    tracing::warn!(%resource, %worker, "the previous run was interrupted");
}

#[cfg(feature = "cron")]
fn job(resource: &ResourceName, change: &crate::jobs::cron::Change) {
    use crate::jobs::cron::{Change, Skipped};

    match change {
        Change::Began { occurrence, attempt } => {
            metrics::counter!("tenure_ticks_total", "class" => class(resource)).increment(1);
            tracing::debug!(%resource, %occurrence, attempt, "run started");
        }
        Change::Ran { occurrence } => {
            tracing::debug!(%resource, %occurrence, "run finished");
        }
        Change::Failed { occurrence, what } => {
            tracing::error!(%resource, %occurrence, what, "the job failed");
        }
        Change::Stopped { occurrence } => {
            tracing::warn!(%resource, %occurrence, "run stopped: the ownership ended");
        }
        Change::Interrupted { worker, .. } => interrupted(resource, worker),
        Change::Missed { count } => {
            skipped(resource, "missed", *count);
            tracing::warn!(%resource, count, "occurrences missed: no worker started them in time");
        }
        Change::Skipped { count, reason: Skipped::StillRunning } => {
            skipped(resource, "still_running", *count);
            tracing::warn!(%resource, count, "occurrences skipped: the previous run was still going");
        }
        Change::Skipped { count, reason: Skipped::TooEarly } => {
            skipped(resource, "too_early", *count);
            tracing::warn!(%resource, "the clock of this worker is more than a minute ahead of the store's");
        }
        Change::PlanChanged { before } => {
            tracing::warn!(%resource, before, "the schedule of the job has changed");
        }
        // Logged as a failed request.
        Change::Refused { .. } => {}
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

    /// An example of each variant. Without one of them it does not compile.
    macro_rules! one_of_each {
        ($type:ty: $($(#[$only:meta])? $pattern:pat => $example:expr,)+) => {{
            let _is_complete = |one: &$type| match one { $($(#[$only])? $pattern => {})+ };
            [$($(#[$only])? {
                let example: $type = $example;
                assert!(matches!(example, $pattern), "{example:?}");
                example
            }),+]
        }};
    }

    fn text() -> String {
        "text".to_owned()
    }

    fn of_campaign() -> impl IntoIterator<Item = Change> {
        let (term, second) = (GRANT.term, Duration::from_secs(1));
        one_of_each! { Change:
            Change::Acquired(_) => Change::Acquired(GRANT),
            Change::Ended(..) => Change::Ended(GRANT, EndReason::Expired),
            Change::Overdue(_) => Change::Overdue(GRANT),
            Change::Waiting(_) => {
                Change::Waiting(Waiting { ahead: 1, look_again: second, why: WaitReason::Taken })
            },
            Change::Flapping { .. } => Change::Flapping { changes: 6, within: second },
            Change::TicketsChanged { .. } => Change::TicketsChanged { tickets: 2, asked: 1 },
            Change::DuplicateLabel => Change::DuplicateLabel,
            Change::WorkFailed { .. } => Change::WorkFailed { term, what: text() },
            Change::CleanupFailed { .. } => Change::CleanupFailed { term, what: text() },
            Change::CleanupDropped { .. } => Change::CleanupDropped { term },
        }
    }

    fn of_store() -> impl IntoIterator<Item = StoreChange> {
        let left = Duration::from_secs(1);
        one_of_each! { StoreChange:
            StoreChange::Failed { .. } => StoreChange::Failed { call: "renew", error: text(), cause: text() },
            StoreChange::Silent { .. } => StoreChange::Silent { call: "renew" },
            StoreChange::Recovered => StoreChange::Recovered,
            StoreChange::Restarted => StoreChange::Restarted,
            StoreChange::ForgotLease { .. } => StoreChange::ForgotLease { left },
            StoreChange::ClockWatched { .. } => StoreChange::ClockWatched { left },
            StoreChange::Quarantine { .. } => StoreChange::Quarantine { left },
            StoreChange::QuarantineOver => StoreChange::QuarantineOver,
            StoreChange::HintsLost { .. } => StoreChange::HintsLost { error: text(), cause: text() },
            StoreChange::HintsRestored => StoreChange::HintsRestored,
            StoreChange::MessagesLost { .. } => StoreChange::MessagesLost { error: text(), cause: text() },
            StoreChange::Warned(_) => {
                StoreChange::Warned(Warning { cost: Impact::Time, what: text(), hint: text() })
            },
            StoreChange::Unreadable { .. } => StoreChange::Unreadable { error: text() },
        }
    }

    #[cfg(feature = "cron")]
    fn of_job() -> impl IntoIterator<Item = crate::jobs::cron::Change> {
        use crate::jobs::cron::{Change, Skipped};
        let (occurrence, worker) = (tenure_core::Occurrence::ONCE, Label::new("w").expect("a label"));
        one_of_each! { Change:
            Change::Began { .. } => Change::Began { occurrence, attempt: 1 },
            Change::Ran { .. } => Change::Ran { occurrence },
            Change::Failed { .. } => Change::Failed { occurrence, what: text() },
            Change::Stopped { .. } => Change::Stopped { occurrence },
            Change::Interrupted { .. } => Change::Interrupted { occurrence, worker: worker.clone() },
            Change::Missed { .. } => Change::Missed { count: 2 },
            Change::Skipped { reason: Skipped::StillRunning, .. } => {
                Change::Skipped { count: 2, reason: Skipped::StillRunning }
            },
            Change::Skipped { reason: Skipped::TooEarly, .. } => {
                Change::Skipped { count: 2, reason: Skipped::TooEarly }
            },
            Change::PlanChanged { .. } => Change::PlanChanged { before: text() },
            Change::Refused { .. } => Change::Refused { what: text() },
        }
    }

    fn all() -> Vec<Event> {
        let (worker, resource) = (Label::new("w").expect("a label"), ResourceName::new("r").expect("a name"));
        let others = one_of_each! { Event:
            Event::Campaign { .. } => {
                let change = Change::Ended(GRANT, EndReason::Left);
                Event::Campaign { worker: worker.clone(), resource: resource.clone(), change }
            },
            #[cfg(feature = "cron")]
            Event::Job { .. } => {
                let change = crate::jobs::cron::Change::Missed { count: 1 };
                Event::Job { resource: resource.clone(), change }
            },
            Event::OnceBegan { .. } => Event::OnceBegan { resource: resource.clone(), attempt: 1 },
            Event::OnceInterrupted { .. } => {
                Event::OnceInterrupted { resource: resource.clone(), by: worker.clone() }
            },
            Event::Store { .. } => {
                let change = StoreChange::Failed { call: "job", error: text(), cause: text() };
                Event::Store { worker: None, resource: Some(resource.clone()), change }
            },
            Event::Panicked { .. } => Event::Panicked { what: text() },
            Event::Dropped { .. } => Event::Dropped { count: 3 },
        };
        let campaign =
            |change| Event::Campaign { worker: worker.clone(), resource: resource.clone(), change };
        let store = |change| Event::Store { worker: Some(worker.clone()), resource: None, change };
        let mut all: Vec<Event> = others.into_iter().collect();
        all.extend(of_campaign().into_iter().map(campaign));
        all.extend(of_store().into_iter().map(store));
        #[cfg(feature = "cron")]
        all.extend(of_job().into_iter().map(|change| Event::Job { resource: resource.clone(), change }));
        all
    }

    const GRANT: Grant = Grant { ticket: Ticket(0), term: Term(7), token: Token(9) };

    #[test]
    fn every_event_is_one_line() {
        let lines = Arc::<Mutex<Vec<u8>>>::default();
        let pen = Pen(lines.clone());
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false);
        let all = all();
        #[cfg(feature = "cron")]
        let silent = |event: &&Event| {
            matches!(event, Event::Job { change: crate::jobs::cron::Change::Refused { .. }, .. })
        };
        #[cfg(not(feature = "cron"))]
        let silent = |_: &&Event| false;

        tracing::subscriber::with_default(log.with_writer(move || pen.clone()).finish(), || {
            all.iter().for_each(event);
        });

        let text =
            String::from_utf8(lines.lock().unwrap_or_else(PoisonError::into_inner).clone()).expect("text");
        assert_eq!(text.lines().count(), all.len() - all.iter().filter(silent).count(), "{text}");
        assert!(
            text.contains(r#"lost the ownership worker="w" resource=r term=7 token=9 reason="expired""#),
            "{text}"
        );
        assert!(
            text.lines().any(|line| line.contains("INFO")
                && line.contains("it grants nothing until earlier owners have stopped")),
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
