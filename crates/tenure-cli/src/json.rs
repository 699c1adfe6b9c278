//! The JSON that `--json` prints, as plain structs built from the library's views. Nothing here prints or reads settings, so a
//! server can return the same structs.
//!
//! Points in time are spans before now, because the reader's clock may differ from the store's. Only jobs have times.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;
use tenure::admin::{HistoryEvent, OwnerView, WaiterView};
use tenure::jobs::cron::Schedule;
use tenure::jobs::{JobRecord, JobState, JobView};
use tenure::store::{Condition, Impact, Warning};
use tenure::types::{Label, Metadata, ResourceName};

use crate::doctor::figures::{Clock, Findings, Trips};
use crate::status::Seen;
use crate::step_down::Handed;
use crate::timeline::{LATEST_SUCCESSION, Stint, Timeline, Vacancy};

/// Grows when a field changes its meaning or goes. New fields may come without.
const VERSION: u32 = 1;
/// The prefix of a job's resource.
pub(crate) const CRON: &str = "cron:";

/// An answer, with the store and the namespace it is about.
#[derive(Serialize)]
pub(crate) struct Report<'a, T> {
    version: u32,
    store: String,
    namespace: &'a str,
    #[serde(flatten)]
    answer: T,
}

impl<'a, T> Report<'a, T> {
    /// `store` is printed as it is, so it must be a URL without secrets.
    pub(crate) fn new(store: String, namespace: &'a str, answer: T) -> Self {
        Self { version: VERSION, store, namespace, answer }
    }
}

// ---- status, explain ---------------------------------------------------------------------------------------

#[derive(Serialize)]
pub(crate) struct Status<'a> {
    /// How long the store still grants nothing.
    withheld_ms: Option<u64>,
    /// Resources whose records cannot be read.
    unreadable: Vec<&'a str>,
    resources: Vec<Resource<'a>>,
}

impl<'a> Status<'a> {
    pub(crate) fn of(condition: &'a Condition, seen: &'a [Seen]) -> Self {
        Self {
            withheld_ms: condition.withheld.map(millis),
            unreadable: condition.unreadable.iter().map(ResourceName::as_str).collect(),
            resources: seen.iter().map(Resource::of).collect(),
        }
    }
}

/// A resource as it is now.
#[derive(Serialize)]
pub(crate) struct Resource<'a> {
    resource: &'a str,
    tickets: u32,
    flapping: bool,
    done_by: Option<&'a str>,
    /// How long the store still grants nothing.
    withheld_ms: Option<u64>,
    /// Whether the store itself proves that a process is dead. Only `explain` says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    proves_deaths: Option<bool>,
    owners: Vec<Owner<'a>>,
    /// In order: the first one is next.
    waiters: Vec<Waiter<'a>>,
}

#[derive(Serialize)]
struct Owner<'a> {
    #[serde(flatten)]
    holder: Holder<'a>,
    owned_for_ms: u64,
    lease_left_ms: u64,
    metadata: Value,
    #[serde(flatten)]
    reason: Option<Reason<'a>>,
}

/// Who owns a ticket.
#[derive(Serialize)]
struct Holder<'a> {
    worker: &'a str,
    ticket: u32,
    term: u64,
    token: u64,
}

#[derive(Serialize)]
struct Waiter<'a> {
    worker: &'a str,
    lease_left_ms: u64,
    metadata: Value,
}

/// Why an owner owns, and when its ticket would be free if it died.
#[derive(Serialize)]
struct Reason<'a> {
    before: Option<Before<'a>>,
    /// If it died now and nothing proved its death.
    free_within_ms: u64,
}

#[derive(Serialize)]
struct Before<'a> {
    worker: &'a str,
    term: u64,
    token: u64,
    ended: &'static str,
    free_for_ms: u64,
}

impl<'a> Resource<'a> {
    fn of(Seen { view, timeline, done_by }: &'a Seen) -> Self {
        Self {
            resource: view.resource.as_str(),
            tickets: view.tickets,
            flapping: timeline.flapping_now().is_some(),
            done_by: done_by.as_ref().map(Label::as_str),
            withheld_ms: view.withheld.map(millis),
            proves_deaths: None,
            owners: view.owners.iter().map(Owner::of).collect(),
            waiters: view.waiters.iter().map(Waiter::of).collect(),
        }
    }

    /// The same, with the reason for each owner.
    pub(crate) fn explained(seen: &'a Seen, proves_deaths: bool) -> Self {
        let explained = |view| Owner { reason: Some(Reason::of(view, &seen.timeline)), ..Owner::of(view) };
        let owners = seen.view.owners.iter().map(explained).collect();
        Self { proves_deaths: Some(proves_deaths), owners, ..Self::of(seen) }
    }
}

impl<'a> Owner<'a> {
    fn of(view: &'a OwnerView) -> Self {
        Self {
            holder: Holder::of(view),
            owned_for_ms: millis(view.owned_for),
            lease_left_ms: millis(view.left),
            metadata: metadata(&view.metadata),
            reason: None,
        }
    }
}

impl<'a> Holder<'a> {
    fn of(OwnerView { worker, grant, .. }: &'a OwnerView) -> Self {
        let (ticket, term, token) = (grant.ticket.0, grant.term.0, grant.token.0);
        Self { worker: worker.as_str(), ticket, term, token }
    }
}

impl<'a> Waiter<'a> {
    fn of(view: &'a WaiterView) -> Self {
        let (worker, lease_left_ms) = (view.worker.as_str(), millis(view.left));
        Self { worker, lease_left_ms, metadata: metadata(&view.metadata) }
    }
}

impl<'a> Reason<'a> {
    fn of(owner: &OwnerView, timeline: &'a Timeline) -> Self {
        let before = timeline.before(owner).map(|(stint, why, free_for)| Before {
            worker: &stint.worker,
            term: stint.term,
            token: stint.token,
            ended: code(why),
            free_for_ms: millis(free_for),
        });
        Self { before, free_within_ms: millis(owner.left + LATEST_SUCCESSION) }
    }
}

/// Metadata is checked to be JSON when it is set. Anything else becomes a string.
pub(crate) fn metadata(metadata: &Metadata) -> Value {
    serde_json::from_str(metadata.as_str()).unwrap_or_else(|_| Value::from(metadata.as_str()))
}

// ---- history -----------------------------------------------------------------------------------------------

#[derive(Serialize)]
pub(crate) struct History<'a> {
    since_ms: Option<u64>,
    resources: Vec<Past<'a>>,
}

/// What is known of a resource.
#[derive(Serialize)]
struct Past<'a> {
    resource: &'a str,
    vacant_for_ms: u64,
    changes: usize,
    flapping: bool,
    ownerships: Vec<Ownership<'a>>,
    vacancies: Vec<Nobody>,
}

#[derive(Serialize)]
struct Ownership<'a> {
    #[serde(flatten)]
    holder: Holder<'a>,
    began_ago_ms: Option<u64>,
    ended_ago_ms: Option<u64>,
    owned_for_ms: Option<u64>,
    ended: Option<&'static str>,
}

#[derive(Serialize)]
struct Nobody {
    began_ago_ms: u64,
    ended_ago_ms: Option<u64>,
    lasted_ms: u64,
}

impl<'a> History<'a> {
    /// Of the last `since`; without it, all that is known.
    pub(crate) fn of(timelines: &'a [(String, Timeline)], since: Option<Duration>) -> Self {
        let past = |(name, timeline): &'a (String, Timeline)| Past {
            resource: name,
            vacant_for_ms: millis(timeline.vacant_for(since)),
            changes: timeline.changes().values().map(Vec::len).sum(),
            flapping: timeline.flapping().is_some(),
            ownerships: timeline.stints.iter().map(Ownership::of).collect(),
            vacancies: timeline.vacancies().into_iter().map(Nobody::of).collect(),
        };
        Self { since_ms: since.map(millis), resources: timelines.iter().map(past).collect() }
    }
}

impl<'a> Ownership<'a> {
    fn of(stint: &'a Stint) -> Self {
        let Stint { worker, ticket, term, token, .. } = stint;
        Self {
            holder: Holder { worker, ticket: *ticket, term: *term, token: *token },
            began_ago_ms: stint.began.map(millis),
            ended_ago_ms: stint.ended.map(|(ago, _)| millis(ago)),
            owned_for_ms: stint.lasted().map(millis),
            ended: stint.ended.map(|(_, what)| code(what)),
        }
    }
}

impl Nobody {
    fn of(one: Vacancy) -> Self {
        let (began_ago_ms, lasted_ms) = (millis(one.began), millis(one.lasted()));
        Self { began_ago_ms, ended_ago_ms: one.ended.map(millis), lasted_ms }
    }
}

/// Why an ownership ended.
fn code(what: HistoryEvent) -> &'static str {
    match what {
        HistoryEvent::Granted => "granted",
        HistoryEvent::Released => "released",
        HistoryEvent::Failed => "failed",
        HistoryEvent::SteppedDown => "stepped_down",
        HistoryEvent::Expired => "expired",
        HistoryEvent::Died => "died",
        HistoryEvent::Evicted => "evicted",
        _ => "other",
    }
}

// ---- jobs --------------------------------------------------------------------------------------------------

#[derive(Serialize)]
pub(crate) struct Jobs<'a> {
    pub(crate) jobs: Vec<Job<'a>>,
}

#[derive(Serialize)]
pub(crate) struct Job<'a> {
    pub(crate) job: &'a str,
    pub(crate) plan: &'a str,
    /// By this host's clock; null if the plan cannot be parsed.
    pub(crate) next: Option<String>,
    pub(crate) ran: u64,
    pub(crate) failed: u64,
    pub(crate) interrupted: u64,
    pub(crate) missed: u64,
    pub(crate) skipped: u64,
    /// Oldest first.
    pub(crate) occurrences: Vec<Occurrence<'a>>,
}

#[derive(Serialize)]
pub(crate) struct Occurrence<'a> {
    pub(crate) occurrence: String,
    pub(crate) state: &'static str,
    pub(crate) attempt: u32,
    pub(crate) worker: &'a str,
    token: u64,
    key: String,
    /// By the store's clock.
    pub(crate) began: String,
    pub(crate) took_ms: Option<u64>,
    pub(crate) missed_before: u32,
    pub(crate) skipped_before: u32,
    pub(crate) note: &'a str,
}

impl<'a> Jobs<'a> {
    /// Only the jobs that run on a schedule.
    pub(crate) fn of(views: &'a [JobView]) -> Self {
        Self { jobs: views.iter().filter_map(Job::of).collect() }
    }
}

impl<'a> Job<'a> {
    fn of(view: &'a JobView) -> Option<Self> {
        let (plan, counts) = (view.plan.as_str(), view.counts);
        let schedule = schedule_of(plan);
        let shown = schedule.clone().or_else(|| Schedule::new("@daily").ok())?;
        let next = schedule.and_then(|schedule| Some(schedule.show(schedule.after(SystemTime::now())?)));
        Some(Self {
            job: view.job.as_str().strip_prefix(CRON)?,
            plan,
            next,
            ran: counts.ran,
            failed: counts.failed,
            interrupted: counts.interrupted,
            missed: counts.missed,
            skipped: counts.skipped,
            occurrences: view.records.iter().map(|record| Occurrence::of(view, record, &shown)).collect(),
        })
    }
}

impl<'a> Occurrence<'a> {
    fn of(view: &'a JobView, record: &'a JobRecord, shown: &Schedule) -> Self {
        let at = |span: Duration| shown.show(SystemTime::UNIX_EPOCH + span);
        Self {
            occurrence: at(Duration::from_millis(record.occurrence.as_millis())),
            state: match record.state {
                JobState::Running => "running",
                JobState::Ran => "ran",
                JobState::Failed => "failed",
                JobState::Interrupted => "interrupted",
                _ => "unknown",
            },
            attempt: record.attempt,
            worker: record.worker.as_str(),
            token: record.token.0,
            key: record.key(&view.job),
            // To the second, like the scheduled times.
            began: at(Duration::from_secs(record.began_at.as_micros() / 1_000_000)),
            took_ms: record.took.map(millis),
            missed_before: record.missed,
            skipped_before: record.skipped,
            note: record.note.as_str(),
        }
    }
}

/// A plan is a spec and a time zone.
fn schedule_of(plan: &str) -> Option<Schedule> {
    let (spec, zone) = plan.rsplit_once(' ')?;
    Schedule::new(spec).ok()?.in_zone(zone).ok()
}

// ---- step-down ---------------------------------------------------------------------------------------------

#[derive(Serialize)]
pub(crate) struct StepDown<'a> {
    resource: &'a str,
    outcome: &'static str,
    from: Holder<'a>,
    /// The next owner.
    to: Option<Holder<'a>>,
    took_ms: u64,
}

impl<'a> StepDown<'a> {
    /// `handed` is `None` if the owner did not hand over in time.
    pub(crate) fn of(
        resource: &'a ResourceName,
        owner: &'a OwnerView,
        handed: Option<&'a Handed>,
        took: Duration,
    ) -> Self {
        let (outcome, to) = match handed {
            None => ("not_yet", None),
            Some(Handed::ToNobody { .. }) => ("free", None),
            Some(Handed::Back(next)) => ("owned_again", Some(Holder::of(next))),
            Some(Handed::To(next)) => ("handed_over", Some(Holder::of(next))),
        };
        Self { resource: resource.as_str(), outcome, from: Holder::of(owner), to, took_ms: millis(took) }
    }
}

// ---- doctor ------------------------------------------------------------------------------------------------

#[derive(Serialize)]
pub(crate) struct Doctor<'a> {
    safe: bool,
    concerns: Vec<Concern<'a>>,
    asking: Answers,
    renewing: Answers,
    clock: StoreClock,
    ttl_ms: u64,
    renew_ms: u64,
    trust_ms: u64,
    longest_ttl_seen_ms: Option<u64>,
    proves_deaths: bool,
    worst_failover_ms: u64,
    survived_outage_ms: u64,
    suggested_ttl_ms: u64,
}

#[derive(Serialize)]
struct Concern<'a> {
    cost: &'static str,
    what: &'a str,
    hint: &'a str,
}

#[derive(Serialize)]
struct Answers {
    count: usize,
    median_us: u64,
    p99_us: u64,
    slowest_us: u64,
}

#[derive(Default, Serialize)]
struct StoreClock {
    whose: &'static str,
    ahead_us: Option<i64>,
    ahead_uncertain_us: Option<u64>,
    rate_percent: Option<f64>,
    rate_uncertain_percent: Option<f64>,
}

impl<'a> Doctor<'a> {
    pub(crate) fn of(findings: &'a Findings) -> Self {
        let (figures, timing) = (&findings.figures, findings.figures.timing);
        Self {
            safe: findings.is_safe(),
            concerns: findings.concerns.iter().map(Concern::of).collect(),
            asking: Answers::of(&figures.asking),
            renewing: Answers::of(&figures.renewing),
            clock: StoreClock::of(&findings.clock),
            ttl_ms: millis(timing.ttl()),
            renew_ms: millis(timing.renew()),
            trust_ms: millis(timing.trust()),
            longest_ttl_seen_ms: Some(figures.longest).filter(|longest| !longest.is_zero()).map(millis),
            proves_deaths: findings.proves_deaths,
            worst_failover_ms: millis(figures.worst_failover()),
            survived_outage_ms: millis(figures.outage().0),
            suggested_ttl_ms: millis(figures.suggested_ttl()),
        }
    }
}

impl<'a> Concern<'a> {
    fn of(warning: &'a Warning) -> Self {
        let cost = match warning.cost {
            Impact::Time => "time",
            Impact::Record => "record",
            _ => "exclusion",
        };
        Self { cost, what: &warning.what, hint: &warning.hint }
    }
}

impl Answers {
    fn of(trips: &Trips) -> Self {
        let (median_us, p99_us) = (micros(trips.median), micros(trips.p99));
        Self { count: trips.count, median_us, p99_us, slowest_us: micros(trips.slowest) }
    }
}

impl StoreClock {
    fn of(clock: &Clock) -> Self {
        match *clock {
            Clock::Shared => Self { whose: "host", ..Self::default() },
            Clock::Server { ahead, is_ahead, uncertain, rate, rate_uncertain } => {
                let ahead = i64::try_from(ahead.as_micros()).unwrap_or(i64::MAX);
                Self {
                    whose: "server",
                    ahead_us: Some(if is_ahead { ahead } else { -ahead }),
                    ahead_uncertain_us: Some(micros(uncertain)),
                    rate_percent: rate,
                    rate_uncertain_percent: rate_uncertain,
                }
            }
        }
    }
}

// ---- config ------------------------------------------------------------------------------------------------

/// The settings in force. They belong to no store.
#[derive(Serialize)]
pub(crate) struct Config<'a> {
    version: u32,
    file: Option<String>,
    settings: &'a [Setting],
}

#[derive(Debug, Serialize)]
pub(crate) struct Setting {
    pub(crate) setting: &'static str,
    pub(crate) value: Option<String>,
    pub(crate) from: &'static str,
    #[serde(rename = "where")]
    pub(crate) place: Option<String>,
}

impl<'a> Config<'a> {
    pub(crate) fn of(file: Option<&Path>, settings: &'a [Setting]) -> Self {
        Self { version: VERSION, file: file.map(|path| path.display().to_string()), settings }
    }
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
