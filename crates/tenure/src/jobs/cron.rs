//! Jobs that run at set times, each occurrence once in the whole cluster.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
//! let worker = tenure::Worker::connect("memory:").await?;
//! let report = worker.cron("daily-report", "0 6 * * *").run(async |tick| println!("reports, once: {}", tick.key()))?;
//! # report.stop().await; Ok(()) }
//! ```
//!
//! Every worker says the same, and one of them owns the job at a time. It claims each occurrence in the store, in one
//! atomic step under its token, before it runs it: so each is claimed at most once, whatever fails. docs/cron.md says what
//! becomes of those that were missed or interrupted, and what happens when clocks are changed.

mod clockwork;
mod decide;
#[cfg(test)]
mod fuzz;
mod job;
mod run;
mod schedule;
mod times;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tenure_core::{JobRecord, Label, Occurrence, Plan, ResourceName};

pub(crate) use self::clockwork::Clockwork;
pub use self::decide::Misfire;
use self::job::{Job, OnLoss};
pub use self::schedule::Schedule;
use crate::Error;
use crate::campaign::callbacks::Wish;
use crate::campaign::changes::Listeners;
use crate::campaign::work_guard::WorkGuard;
use crate::campaign::{Campaign, CampaignBuilder};
use crate::lead::Lead;
use crate::outcome::IntoOutcome;
use crate::worker::Inner;

/// What is done about an occurrence whose owner died, or lost the ownership, in the middle of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interrupted {
    /// It is written down as interrupted, and the job goes on with the next: at most once.
    #[default]
    Leave,
    /// The next owner runs it again, with the same [`key`](Tick::key), up to five times in all.
    Again,
}

/// A job to be. See [`Worker::cron`](crate::Worker::cron).
#[derive(Debug)]
#[must_use = "a job begins with `run`"]
pub struct CronBuilder {
    campaign: CampaignBuilder,
    schedule: Result<Schedule, Error>,
    misfire: Misfire,
    interrupted: Interrupted,
    jitter: Duration,
    listeners: Listeners<Change>,
}

impl CronBuilder {
    pub(crate) fn new(worker: Arc<Inner>, name: &str, spec: &str) -> Self {
        Self {
            campaign: CampaignBuilder::of_job(worker, "cron", name),
            schedule: Schedule::new(spec),
            misfire: Misfire::default(),
            interrupted: Interrupted::default(),
            jitter: Duration::ZERO,
            listeners: Listeners::default(),
        }
    }

    /// The time zone that the spec means, by its IANA name, such as `Europe/Berlin`; by default UTC.
    // req: E12
    pub fn time_zone(self, name: &str) -> Self {
        Self { schedule: self.schedule.and_then(|schedule| schedule.in_zone(name)), ..self }
    }

    /// What is done about occurrences that nobody began in time; by default the last of them is run.
    pub fn misfire(self, misfire: Misfire) -> Self {
        Self { misfire, ..self }
    }

    /// What is done about an occurrence whose owner died in it; by default it is left so.
    pub fn interrupted(self, interrupted: Interrupted) -> Self {
        Self { interrupted, ..self }
    }

    /// Delays the job by up to so much, so that many with one spec do not begin at once. How much is made from its
    /// name: it is the same for every worker and every occurrence.
    pub fn jitter(self, jitter: Duration) -> Self {
        Self { jitter, ..self }
    }

    /// As [`CampaignBuilder::priority`]: who is to own the job rather than others.
    pub fn priority(self, priority: i32) -> Self {
        Self { campaign: self.campaign.priority(priority), ..self }
    }

    /// What happens to the job on this worker, from its beginning. Nothing is left out.
    #[must_use]
    pub fn changes(&mut self) -> Changes {
        self.listeners.listen()
    }

    /// What happens to the campaign for the job on this worker: that it waits, owns, and why an ownership ended.
    #[must_use]
    pub fn ownerships(&mut self) -> crate::Changes {
        self.campaign.changes()
    }

    /// Competes for the job from now on, in the background, and runs `work` once per occurrence while this worker owns it, in
    /// the runtime of the caller. It never overlaps itself. One that fails or panics is written down as failed, and the job
    /// goes on with the next. When the ownership ends the work is told by [`Tick::lead`]: on a gentle hand-over it may come to
    /// its end within the grace, on a loss it is dropped at once.
    ///
    /// # Errors
    /// When name or spec break their limits, the time zone is not known, this worker has a job of that name already, or
    /// there is no runtime.
    // req: E10 E11
    pub fn run<W, F>(self, mut work: W) -> Result<Cron, Error>
    where
        W: FnMut(Tick) -> F + Send + 'static,
        F: Future<Output: IntoOutcome> + Send + 'static,
    {
        let (job, campaign) = self.into_job()?;
        let campaign = campaign.start(|wish, candidacy| {
            let state = candidacy.state.clone();
            let work = move |tick: Tick, guard: Arc<WorkGuard>| {
                let mut running = run::in_a_task(state.clone(), &guard, || work(tick));
                async move { running.ended().await }
            };
            job::serve(job.clone(), wish, candidacy, OnLoss::Drop, work)
        })?;
        Ok(Cron { job, campaign })
    }

    /// The same in the task of the caller, until the worker is shut down: the work may borrow. When the ownership ends, it is
    /// told by [`Tick::lead`], and dropped at the harder stop only; what it returns until then counts. Dropping the future of
    /// `serve` ends the work and leaves; a panic of the work goes on to the caller.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn serve<R: IntoOutcome>(self, mut work: impl AsyncFnMut(Tick) -> R) -> Result<(), Error> {
        let (job, campaign) = self.into_job()?;
        let candidacy = campaign.enter()?;
        let wish = Wish::new(Arc::default(), Arc::default());
        job::serve(job, wish, candidacy, OnLoss::Tell, async |tick, _guard| work(tick).await).await;
        Ok(())
    }

    fn into_job(self) -> Result<(Arc<Job>, CampaignBuilder), Error> {
        let ((resource, campaign), schedule) = (self.campaign.named()?, self.schedule?);
        let job = Arc::new(Job {
            plan: Plan::new(&schedule.plan())?,
            delay: delay(&resource, self.jitter),
            resource,
            schedule,
            misfire: self.misfire,
            interrupted: self.interrupted,
            told: self.listeners,
        });
        campaign.worker.clockwork()?;
        Ok((job, campaign))
    }
}

/// How much later than its spec says a job begins, in milliseconds.
fn delay(resource: &ResourceName, jitter: Duration) -> u64 {
    // FNV-1a, and mixed once more, because names often differ in their last letter only: the same in every process and version.
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = resource.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = hash ^ hash >> 33;
    let most = u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX - 1).min(u64::MAX - 1);
    hash % (most + 1)
}

/// A job that runs in the background. Dropping the handle does not stop it.
#[derive(Clone, Debug)]
pub struct Cron {
    job: Arc<Job>,
    campaign: Campaign,
}

impl Cron {
    /// Whether this worker owns the job right now. Never stale.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.campaign.is_owner()
    }

    /// When the next occurrence is, whoever runs it, by the clock of this worker.
    #[must_use]
    pub fn next(&self) -> Option<Occurrence> {
        let now = Duration::from_micros(self.campaign.worker.clocks.wall());
        let next = self.job.schedule.after(UNIX_EPOCH + now)?.duration_since(UNIX_EPOCH).ok()?;
        Occurrence::new(u64::try_from(next.as_millis()).ok()?).ok()
    }

    /// Spec and time zone.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.job.schedule
    }

    /// What happens to the job on this worker, from now on. Nothing is left out; it ends with the job.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.job.told.listen()
    }

    /// Leaves the job to the others: lets the work that runs come to its end within the grace, and releases. Once it has
    /// returned the job does not run here any more, but for work that blocks its thread: that keeps the ticket until it has
    /// ended. Stopping what has stopped returns at once.
    pub async fn stop(&self) {
        self.campaign.stop().await;
    }
}

/// One run of a job.
#[derive(Debug)]
pub struct Tick {
    lead: Lead,
    record: JobRecord,
    key: String,
}

impl Tick {
    fn new(lead: Lead, record: JobRecord) -> Self {
        let key = record.key(lead.resource());
        Self { lead, record, key }
    }

    /// The time that was scheduled; it may be later by now.
    #[must_use]
    pub fn occurrence(&self) -> Occurrence {
        self.record.occurrence
    }

    /// The same for every attempt at this occurrence, and for no other: job, scheduled time and the token of the first
    /// attempt. Hand it to whatever can refuse to do a thing twice.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// 1, and more if an attempt before was [interrupted](Interrupted::Again).
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.record.attempt
    }

    /// How many occurrences before this one were left out, because nobody began them in time or the one before was still
    /// running.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        u64::from(self.record.missed) + u64::from(self.record.skipped)
    }

    /// The ownership under which it runs: whether it still holds, when it is lost, the token to fence writes with.
    #[must_use]
    pub fn lead(&self) -> &Lead {
        &self.lead
    }
}

/// What happens to a job on this worker, as its [`changes`](Cron::changes) tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// An occurrence is this worker's to run, and its work starts.
    Began {
        /// Which one.
        occurrence: Occurrence,
        /// 1 for the first attempt; more if earlier ones were interrupted.
        attempt: u32,
    },
    /// Its work came to its end.
    Ran {
        /// Which one.
        occurrence: Occurrence,
    },
    /// Its work failed, or panicked.
    Failed {
        /// Which one.
        occurrence: Occurrence,
        /// What it had to say.
        what: String,
    },
    /// The ownership ended first, and the work was dropped.
    Stopped {
        /// Which one.
        occurrence: Occurrence,
    },
    /// The owner before left an occurrence in the middle.
    Interrupted {
        /// Which one.
        occurrence: Occurrence,
        /// Who.
        worker: Label,
    },
    /// So many occurrences were begun by nobody in time, and are left out.
    Missed {
        /// How many.
        count: u64,
    },
    /// So many occurrences are left out on purpose.
    Skipped {
        /// How many.
        count: u64,
        /// Why.
        reason: Skipped,
    },
    /// The store had another plan for the job of this name, which is replaced.
    PlanChanged {
        /// The one before.
        before: String,
    },
    /// The store cannot be asked about the job, and asking again at once changes nothing.
    Refused {
        /// What it said.
        what: String,
    },
}

/// Why an occurrence is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skipped {
    /// The one before was still running.
    StillRunning,
    /// The clock of this worker is more than a minute ahead of the store's: it waits.
    TooEarly,
}

/// A stream of what happens to a job.
pub type Changes = crate::Changes<Change>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delays_of_many_jobs_are_spread_over_the_whole_span_and_never_change() {
        let name = |number: u32| ResourceName::new(&format!("cron:job-{number}")).expect("a name");
        let second = Duration::from_secs(1);
        let mut counts = [0_u32; 10];
        for number in 0..1000 {
            let delay = delay(&name(number), second * 10);
            assert!(delay <= 10_000);
            counts[usize::try_from(delay / 1000).expect("small").min(9)] += 1;
        }

        assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
        let first: Vec<u64> = (0..4).map(|number| delay(&name(number), second * 30)).collect();
        assert_eq!(
            first,
            [12_128, 10_793, 24_908, 22_562],
            "another version of this must not run a job twice as late"
        );
        assert_eq!(delay(&name(1), Duration::ZERO), 0);
        delay(&name(1), Duration::MAX);
    }
}
