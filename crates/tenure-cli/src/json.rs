//! The JSON of `--json`, made from what the library returns. Nothing here prints, or knows of arguments and settings, so a
//! server can return the same documents.
//!
//! Points in time are spans before now, because the reader's clock may differ from the store's. Only jobs have times.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::admin::{OwnerView, WaiterView};
use tenure::jobs::{JobRecord, JobState};
use tenure::store::{Condition, Impact, Warning};
use tenure::types::{Label, Metadata, ResourceName};

use crate::doctor::figures::{Clock, Findings, Trips};
use crate::timeline::{LATEST_SUCCESSION, Stint, Timeline, Vacancy, ended};
use crate::view::{Handed, ScheduledJob, Seen};

/// Grows when a field is removed or changes its meaning. New fields may be added without.
const VERSION: u32 = 1;

/// An answer, with the store and the namespace it is about. `store` must be a URL without secrets.
pub(crate) fn report(store: &str, namespace: &str, answer: Value) -> Value {
    joined(json!({ "version": VERSION, "store": store, "namespace": namespace }), answer)
}

/// The fields of both objects.
fn joined(mut first: Value, second: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut first, second) {
        fields.extend(more);
    }
    first
}

fn list<T>(all: impl IntoIterator<Item = T>, one: impl FnMut(T) -> Value) -> Vec<Value> {
    all.into_iter().map(one).collect()
}

// ---- status, explain ---------------------------------------------------------------------------------------

pub(crate) fn status(condition: &Condition, seen: &[Seen]) -> Value {
    json!({
        // How long the store still grants nothing.
        "withheld_ms": condition.withheld.map(millis),
        "unreadable": list(&condition.unreadable, |name| name.as_str().into()),
        "resources": list(seen, resource),
    })
}

/// A resource as it is now.
fn resource(seen: &Seen) -> Value {
    let owners = list(&seen.view.owners, owner);
    resource_with(seen, json!({}), &owners)
}

/// The same, with the reason for each owner, and whether the store itself proves that a process is dead.
pub(crate) fn explained(seen: &Seen, proves_deaths: bool) -> Value {
    let explained = |view| joined(owner(view), reason(view, &seen.timeline));
    let owners = list(&seen.view.owners, explained);
    resource_with(seen, json!({ "proves_deaths": proves_deaths }), &owners)
}

fn resource_with(Seen { view, timeline, done_by }: &Seen, more: Value, owners: &[Value]) -> Value {
    let head = json!({
        "resource": view.resource.as_str(),
        "tickets": view.tickets,
        "flapping": timeline.flapping_now().is_some(),
        "done_by": done_by.as_ref().map(Label::as_str),
        "withheld_ms": view.withheld.map(millis),
    });
    // The first waiter is next.
    joined(joined(head, more), json!({ "owners": owners, "waiters": list(&view.waiters, waiter) }))
}

fn owner(view: &OwnerView) -> Value {
    let more = json!({
        "owned_for_ms": millis(view.owned_for),
        "lease_left_ms": millis(view.left),
        "metadata": metadata(&view.metadata),
    });
    joined(holder(view), more)
}

/// Who owns a ticket.
fn holder(OwnerView { worker, grant, .. }: &OwnerView) -> Value {
    let (ticket, term, token) = (grant.ticket.0, grant.term.0, grant.token.0);
    json!({ "worker": worker.as_str(), "ticket": ticket, "term": term, "token": token })
}

fn waiter(view: &WaiterView) -> Value {
    json!({
        "worker": view.worker.as_str(),
        "lease_left_ms": millis(view.left),
        "metadata": metadata(&view.metadata),
    })
}

/// Why an owner owns, and when its ticket would be free if it died now and nothing proved its death.
fn reason(owner: &OwnerView, timeline: &Timeline) -> Value {
    let before = timeline.before(owner).map(|(stint, why, free_for)| {
        let Stint { worker, term, token, .. } = stint;
        let (why, free_for) = (ended(why)[0], millis(free_for));
        json!({ "worker": worker, "term": term, "token": token, "ended": why, "free_for_ms": free_for })
    });
    json!({ "before": before, "free_within_ms": millis(owner.left + LATEST_SUCCESSION) })
}

/// Metadata is checked to be JSON when it is set. Anything else becomes a string.
pub(crate) fn metadata(metadata: &Metadata) -> Value {
    serde_json::from_str(metadata.as_str()).unwrap_or_else(|_| Value::from(metadata.as_str()))
}

// ---- history -----------------------------------------------------------------------------------------------

/// What is known of the last `since`; without it, all that is known.
pub(crate) fn history(timelines: &[(String, Timeline)], since: Option<Duration>) -> Value {
    let past = |(name, timeline): &(String, Timeline)| {
        json!({
            "resource": name,
            "vacant_for_ms": millis(timeline.vacant_for(since)),
            "changes": timeline.changes().values().map(Vec::len).sum::<usize>(),
            "flapping": timeline.flapping().is_some(),
            "ownerships": list(&timeline.stints, ownership),
            "vacancies": list(timeline.vacancies(), vacancy),
        })
    };
    json!({ "since_ms": since.map(millis), "resources": list(timelines, past) })
}

fn ownership(stint: &Stint) -> Value {
    json!({
        "worker": stint.worker,
        "ticket": stint.ticket,
        "term": stint.term,
        "token": stint.token,
        "began_ago_ms": stint.began.map(millis),
        "ended_ago_ms": stint.ended.map(|(ago, _)| millis(ago)),
        "owned_for_ms": stint.lasted().map(millis),
        "ended": stint.ended.map(|(_, what)| ended(what)[0]),
    })
}

fn vacancy(one: Vacancy) -> Value {
    let (began, lasted) = (millis(one.began), millis(one.lasted()));
    json!({ "began_ago_ms": began, "ended_ago_ms": one.ended.map(millis), "lasted_ms": lasted })
}

// ---- jobs --------------------------------------------------------------------------------------------------

pub(crate) fn jobs(jobs: &[ScheduledJob<'_>]) -> Value {
    json!({ "jobs": list(jobs, job) })
}

fn job(job: &ScheduledJob<'_>) -> Value {
    let counts = job.view.counts;
    json!({
        "job": job.name,
        "plan": job.view.plan.as_str(),
        // By this host's clock; null if the plan cannot be parsed.
        "next": job.next(),
        "ran": counts.ran,
        "failed": counts.failed,
        "interrupted": counts.interrupted,
        "missed": counts.missed,
        "skipped": counts.skipped,
        // Oldest first.
        "occurrences": list(&job.view.records, |record| occurrence(job, record)),
    })
}

fn occurrence(job: &ScheduledJob<'_>, record: &JobRecord) -> Value {
    json!({
        "occurrence": job.scheduled(record),
        "state": state(record.state),
        "attempt": record.attempt,
        "worker": record.worker.as_str(),
        "token": record.token.0,
        "key": record.key(&job.view.job),
        // By the store's clock.
        "began": job.began(record),
        "took_ms": record.took.map(millis),
        "missed_before": record.missed,
        "skipped_before": record.skipped,
        "note": record.note.as_str(),
    })
}

/// What became of an occurrence.
pub(crate) fn state(state: JobState) -> &'static str {
    match state {
        JobState::Running => "running",
        JobState::Ran => "ran",
        JobState::Failed => "failed",
        JobState::Interrupted => "interrupted",
        _ => "unknown",
    }
}

// ---- step-down ---------------------------------------------------------------------------------------------

/// `handed` is `None` if the owner did not hand over in time.
pub(crate) fn step_down(
    resource: &ResourceName,
    owner: &OwnerView,
    handed: Option<&Handed>,
    took: Duration,
) -> Value {
    let (outcome, to) = match handed {
        None => ("not_yet", None),
        Some(Handed::ToNobody { .. }) => ("free", None),
        Some(Handed::Back(next)) => ("owned_again", Some(holder(next))),
        Some(Handed::To(next)) => ("handed_over", Some(holder(next))),
    };
    let (resource, from) = (resource.as_str(), holder(owner));
    json!({ "resource": resource, "outcome": outcome, "from": from, "to": to, "took_ms": millis(took) })
}

// ---- doctor ------------------------------------------------------------------------------------------------

pub(crate) fn doctor(findings: &Findings) -> Value {
    let (figures, timing) = (&findings.figures, findings.figures.timing);
    json!({
        "safe": findings.is_safe(),
        "concerns": list(&findings.concerns, concern),
        "asking": trips(&figures.asking),
        "renewing": trips(&figures.renewing),
        "clock": clock(&findings.clock),
        "ttl_ms": millis(timing.ttl()),
        "renew_ms": millis(timing.renew()),
        "trust_ms": millis(timing.trust()),
        "longest_ttl_seen_ms": Some(figures.longest).filter(|longest| !longest.is_zero()).map(millis),
        "proves_deaths": findings.proves_deaths,
        "worst_failover_ms": millis(figures.worst_failover()),
        "survived_outage_ms": millis(figures.outage().0),
        "suggested_ttl_ms": millis(figures.suggested_ttl()),
    })
}

fn concern(warning: &Warning) -> Value {
    let cost = match warning.cost {
        Impact::Time => "time",
        Impact::Record => "record",
        _ => "exclusion",
    };
    json!({ "cost": cost, "what": warning.what, "hint": warning.hint })
}

fn trips(trips: &Trips) -> Value {
    json!({
        "count": trips.count,
        "median_us": micros(trips.median),
        "p99_us": micros(trips.p99),
        "slowest_us": micros(trips.slowest),
    })
}

fn clock(clock: &Clock) -> Value {
    let (whose, server) = match clock {
        Clock::Shared => ("host", None),
        Clock::Server(server) => ("server", Some(server)),
    };
    json!({
        "whose": whose,
        "ahead_us": server.map(|server| server.ahead_us),
        "ahead_uncertain_us": server.map(|server| micros(server.uncertain)),
        "rate_percent": server.and_then(|server| server.rate).map(|(rate, _)| rate),
        "rate_uncertain_percent": server.and_then(|server| server.rate).map(|(_, uncertain)| uncertain),
    })
}

// ---- config ------------------------------------------------------------------------------------------------

/// A setting in force.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) setting: &'static str,
    pub(crate) value: Option<String>,
    pub(crate) from: &'static str,
    pub(crate) place: Option<String>,
}

/// The settings in force. They belong to no store.
pub(crate) fn config(file: Option<&Path>, settings: &[Setting]) -> Value {
    let setting = |one: &Setting| json!({ "setting": one.setting, "value": one.value, "from": one.from, "where": one.place });
    json!({
        "version": VERSION,
        "file": file.map(|path| path.display().to_string()),
        "settings": list(settings, setting),
    })
}

// ---- spans -------------------------------------------------------------------------------------------------

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_a_worker_tells_is_shown_as_it_is() {
        let told = Metadata::new("[-2011e40,0.1,3]").expect("short");

        assert_eq!(metadata(&told).to_string(), "[-2.011e+43,0.1,3]");
    }
}
