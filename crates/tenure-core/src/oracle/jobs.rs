//! Jobs: who may claim an occurrence, and what became of it.
//!
//! What makes a claim good for once is `through`: it only rises, in the same step that names the one who runs it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::resource::Resource;
use super::{Here, Ledger};
use crate::job::{
    Begin, Holder, JOB_RECORDS, JobAct, JobCounts, JobOutcome, JobRecord, JobSaid, JobState, JobStep,
    JobView, Note, Occurrence, WallTime,
};
use crate::message::{Ticket, Token};
use crate::moment::StoreTime;
use crate::names::{Label, Plan, ResourceName};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Job {
    plan: Plan,
    through: Occurrence,
    counts: JobCounts,
    /// Oldest first. Only the latest can be running.
    runs: VecDeque<Run>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    record: JobRecord,
    /// How long it took is counted on the clock that does not step with the wall clock.
    began_at: StoreTime,
}

/// Who may begin, and when that is.
#[derive(Clone, Copy)]
struct Claimant<'a> {
    here: Here,
    token: Token,
    worker: &'a Label,
}

impl Ledger {
    /// Carries out one step of the job that is attached to the holder's resource. Marks nobody.
    pub fn job(&mut self, here: Here, step: &JobStep) -> JobSaid {
        let JobStep { holder, act } = step;
        match (act, self.worker_of(here, holder)) {
            // That it ran is true, whoever owns now.
            (JobAct::Finish { occurrence, outcome, note }, _) => {
                self.finish(here, holder, *occurrence, *outcome, note)
            }
            (JobAct::Attend { .. } | JobAct::Begin(_), None) => JobSaid::NotOwner,
            (JobAct::Attend { plan, from }, Some(_)) => self.attend(here, holder, plan, *from),
            (JobAct::Begin(begin), Some(worker)) => match self.jobs.get_mut(&holder.resource) {
                Some(job) => job.begin(Claimant { here, token: holder.token, worker: &worker }, *begin),
                None => JobSaid::Unknown,
            },
        }
    }

    /// One job with all its records that are kept, or every job with the latest, by name.
    #[must_use]
    pub fn jobs(&self, job: Option<&str>) -> Vec<JobView> {
        match job {
            Some(name) => self
                .jobs
                .get_key_value(name)
                .map(|(name, job)| job.view(name, JOB_RECORDS))
                .into_iter()
                .collect(),
            None => self.jobs.iter().map(|(name, job)| job.view(name, 1)).collect(),
        }
    }

    /// Under which ticket the holder owns, if it does: the ticket under exactly this token is held by this lease, which
    /// lives by the store's clock. Marks nobody.
    #[must_use]
    pub fn ticket_of(&self, here: Here, holder: &Holder) -> Option<Ticket> {
        let mut tenants = self.resources.get(&holder.resource).into_iter().flat_map(Resource::tenants);
        let tenant = tenants
            .find(|tenant| tenant.lease == holder.lease && tenant.grant.token == holder.token)
            .filter(|tenant| self.leases.lives(tenant.lease, here.now))?;
        Some(tenant.grant.ticket)
    }

    fn worker_of(&self, here: Here, holder: &Holder) -> Option<Label> {
        self.ticket_of(here, holder)?;
        self.leases.get(holder.lease).map(|lease| lease.label.clone())
    }

    fn attend(&mut self, here: Here, holder: &Holder, plan: &Plan, from: Occurrence) -> JobSaid {
        let from = from.min(WallTime::from_micros(here.wall).head_start());
        let job = self.jobs.entry(holder.resource.clone()).or_insert_with(|| Job::new(plan.clone(), from));
        job.interrupt(|running| running != holder.token);
        let before = core::mem::replace(&mut job.plan, plan.clone());
        let replaced = (before != *plan).then_some(before);
        if replaced.is_some() {
            // What the new plan would have had before was never to be.
            job.through = job.through.max(from);
        }
        JobSaid::Attended { through: job.through, latest: job.latest(), replaced }
    }

    fn finish(
        &mut self,
        here: Here,
        holder: &Holder,
        occurrence: Occurrence,
        outcome: JobOutcome,
        note: &Note,
    ) -> JobSaid {
        let Some(job) = self.jobs.get_mut(&holder.resource) else { return JobSaid::Unknown };
        let ours = |run: &&mut Run| (run.record.occurrence, run.record.token) == (occurrence, holder.token);
        match job.runs.back_mut().filter(ours) {
            Some(run) if run.record.state == JobState::Running => {
                run.record.state = outcome.into();
                run.record.took = Some(here.now.since(run.began_at));
                run.record.note = note.clone();
                match outcome {
                    JobOutcome::Ran => job.counts.ran += 1,
                    JobOutcome::Failed => job.counts.failed += 1,
                }
                JobSaid::Finished(run.record.clone())
            }
            Some(run) if run.record.state == outcome.into() => JobSaid::Finished(run.record.clone()),
            _ => JobSaid::Taken(job.latest()),
        }
    }
}

impl Job {
    fn new(plan: Plan, through: Occurrence) -> Self {
        Self { plan, through, counts: JobCounts::default(), runs: VecDeque::new() }
    }

    fn begin(&mut self, by: Claimant<'_>, begin: Begin) -> JobSaid {
        if begin.occurrence > WallTime::from_micros(by.here.wall).head_start() {
            return JobSaid::Early;
        }
        if begin.occurrence > self.through {
            return self.claim(by, begin);
        }
        let Some(run) = self.runs.back().filter(|run| run.record.occurrence == begin.occurrence) else {
            return JobSaid::Taken(self.latest());
        };
        match run.record.state {
            // Its reply was lost.
            JobState::Running if run.record.token == by.token => JobSaid::Begun(run.record.clone()),
            // Late: this owner has begun it, and it has ended since.
            _ if run.record.token == by.token => JobSaid::Taken(self.latest()),
            JobState::Running | JobState::Failed | JobState::Interrupted if begin.again => self.repeat(by),
            _ => JobSaid::Taken(self.latest()),
        }
    }

    /// The occurrence is after all that were claimed: it is this owner's.
    fn claim(&mut self, by: Claimant<'_>, begin: Begin) -> JobSaid {
        let Begin { occurrence, missed, skipped, .. } = begin;
        // Whoever goes on to the next without a word about the last one has left it in the middle.
        self.interrupt(|_| true);
        self.through = occurrence;
        self.counts.missed += u64::from(missed);
        self.counts.skipped += u64::from(skipped);
        let record = JobRecord {
            occurrence,
            attempt: 1,
            token: by.token,
            key_token: by.token,
            worker: by.worker.clone(),
            began_at: WallTime::from_micros(by.here.wall),
            state: JobState::Running,
            took: None,
            missed,
            skipped,
            note: Note::default(),
        };
        if self.runs.len() >= JOB_RECORDS {
            self.runs.pop_front();
        }
        self.runs.push_back(Run { record: record.clone(), began_at: by.here.now });
        JobSaid::Begun(record)
    }

    /// The latest occurrence is begun once more, under the key of its first attempt.
    fn repeat(&mut self, by: Claimant<'_>) -> JobSaid {
        self.interrupt(|_| true);
        let Some(run) = self.runs.back_mut() else { return JobSaid::Taken(None) };
        run.began_at = by.here.now;
        run.record = JobRecord {
            attempt: run.record.attempt.saturating_add(1),
            token: by.token,
            worker: by.worker.clone(),
            began_at: WallTime::from_micros(by.here.wall),
            state: JobState::Running,
            took: None,
            note: Note::default(),
            ..run.record.clone()
        };
        JobSaid::Begun(run.record.clone())
    }

    /// Notes that the latest run, if it is under way under such a token, was left in the middle.
    fn interrupt(&mut self, under: impl Fn(Token) -> bool) {
        let running = |run: &&mut Run| run.record.state == JobState::Running && under(run.record.token);
        if let Some(run) = self.runs.back_mut().filter(running) {
            run.record.state = JobState::Interrupted;
            self.counts.interrupted += 1;
        }
    }

    fn latest(&self) -> Option<JobRecord> {
        self.runs.back().map(|run| run.record.clone())
    }

    fn view(&self, job: &ResourceName, most: usize) -> JobView {
        let old = self.runs.len().saturating_sub(most);
        JobView {
            job: job.clone(),
            plan: self.plan.clone(),
            through: self.through,
            counts: self.counts,
            records: self.runs.iter().skip(old).map(|run| run.record.clone()).collect(),
        }
    }
}
