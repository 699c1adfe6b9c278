//! What was read from a store, ready to be shown in sentences, tables or JSON. Prints nothing.

use std::time::{Duration, SystemTime};

use tenure::admin::{OwnerView, ResourceView};
use tenure::jobs::cron::Schedule;
use tenure::jobs::{JobRecord, JobView};
use tenure::types::Label;

use crate::timeline::Timeline;

/// The prefix of a job's resource.
pub(crate) const CRON: &str = "cron:";

/// A resource as it is now.
pub(crate) struct Seen {
    pub(crate) view: ResourceView,
    pub(crate) timeline: Timeline,
    /// Who has done it, if it is one-time work.
    pub(crate) done_by: Option<Label>,
}

/// What became of a ticket whose owner was asked to go.
#[derive(Debug)]
pub(crate) enum Handed {
    /// Another worker owns it.
    To(OwnerView),
    /// The same worker owns it again.
    Back(OwnerView),
    ToNobody {
        waiting: usize,
        withheld: Option<Duration>,
    },
}

/// A job that runs on a schedule. Its times are shown in the time zone of the schedule; in UTC if that cannot be parsed.
pub(crate) struct ScheduledJob<'a> {
    pub(crate) name: &'a str,
    pub(crate) view: &'a JobView,
    schedule: Option<Schedule>,
}

impl<'a> ScheduledJob<'a> {
    /// Nothing for one-time work.
    pub(crate) fn of(view: &'a JobView) -> Option<Self> {
        let (spec, zone) = view.plan.as_str().rsplit_once(' ').unwrap_or_default();
        let schedule = Schedule::new(spec).and_then(|schedule| schedule.in_zone(zone)).ok();
        Some(Self { name: view.job.as_str().strip_prefix(CRON)?, view, schedule })
    }

    /// By this host's clock.
    pub(crate) fn next(&self) -> Option<String> {
        let schedule = self.schedule.as_ref()?;
        Some(schedule.show(schedule.after(SystemTime::now())?))
    }

    /// When an occurrence was scheduled.
    pub(crate) fn scheduled(&self, record: &JobRecord) -> String {
        self.show(Duration::from_millis(record.occurrence.as_millis()))
    }

    /// When it began by the store's clock, to the second, like the scheduled times.
    pub(crate) fn began(&self, record: &JobRecord) -> String {
        self.show(Duration::from_secs(record.began_at.as_micros() / 1_000_000))
    }

    fn show(&self, since_epoch: Duration) -> String {
        let schedule = self.schedule.clone().or_else(|| Schedule::new("@daily").ok());
        schedule.map(|schedule| schedule.show(SystemTime::UNIX_EPOCH + since_epoch)).unwrap_or_default()
    }
}
