//! Jobs in their rows: who may claim an occurrence, and what became of it. The rules are those of the ledger.

use std::time::Duration;

use rusqlite::{Connection, Row, params};
use tenure_core::{
    Begin, Holder, JOB_RECORDS, JobAct, JobCounts, JobOutcome, JobRecord, JobSaid, JobState, JobStep,
    JobView, Label, Note, Occurrence, Plan, ResourceName, StoreTime, Ticket, Token, WallTime,
};

use super::rows::{self, Lease, bearer, lease_columns, micros, signed, time, unsigned};
use super::step::Step;
use super::trouble::{Outcome, Trouble, damaged};

/// Who holds the ticket under exactly this token, with its lease.
const OWNER: &str = concat!(
    "SELECT r.id, s.ticket, l.label, ",
    lease_columns!(),
    " FROM resource AS r JOIN seat AS s ON s.resource = r.id JOIN lease AS l ON l.id = s.lease
    WHERE r.namespace = ?1 AND r.name = ?2 AND s.token = ?3 AND l.bearer = ?4"
);
const FIND: &str = "SELECT j.resource, j.plan, j.through, j.ran, j.failed, j.interrupted, j.missed, j.skipped
    FROM job AS j JOIN resource AS r ON r.id = j.resource WHERE r.namespace = ?1 AND r.name = ?2";
const SAVE: &str = "INSERT INTO job
    (resource, plan, through, ran, failed, interrupted, missed, skipped) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (resource) DO UPDATE SET plan = ?2, through = ?3, ran = ?4, failed = ?5, interrupted = ?6,
    missed = ?7, skipped = ?8";
/// The latest runs, the latest first.
const RUNS: &str =
    "SELECT occurrence, attempt, token, key_token, worker, began_wall_us, began_at, state, took_us,
    missed, skipped, note FROM run WHERE resource = ?1 ORDER BY occurrence DESC LIMIT ?2";
const SAVE_RUN: &str = "INSERT OR REPLACE INTO run
    (resource, occurrence, attempt, token, key_token, worker, began_wall_us, began_at, state, took_us,
     missed, skipped, note)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
/// Drops what is older than the newest so many.
const DROP_RUNS: &str = "DELETE FROM run WHERE resource = ?1 AND occurrence <=
    (SELECT occurrence FROM run WHERE resource = ?1 ORDER BY occurrence DESC LIMIT 1 OFFSET ?2)";
const NAMES: &str = "SELECT r.name FROM job AS j JOIN resource AS r ON r.id = j.resource
    WHERE r.namespace = ?1 ORDER BY r.name";

/// One who owns a resource right now.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    resource: i64,
    pub(super) ticket: Ticket,
    worker: Label,
}

/// A job and its latest run, as the rows have them.
#[derive(Debug)]
struct Job {
    row: i64,
    plan: Plan,
    through: Occurrence,
    counts: JobCounts,
    latest: Option<Run>,
}

#[derive(Clone, Debug)]
struct Run {
    record: JobRecord,
    began_at: StoreTime,
}

impl Step<'_> {
    /// Carries out one step of a job. Marks nobody. What it changes has to be durable.
    pub(super) fn job(&mut self, step: &JobStep) -> Outcome<JobSaid> {
        let JobStep { holder, act } = step;
        match (act, self.owner(holder)?) {
            // That it ran is true, whoever owns now.
            (JobAct::Finish { occurrence, outcome, note }, _) => {
                self.finish(holder, *occurrence, *outcome, note)
            }
            (JobAct::Attend { .. } | JobAct::Begin(_), None) => Ok(JobSaid::NotOwner),
            (JobAct::Attend { plan, from }, Some(owner)) => self.attend(&owner, holder, plan, *from),
            (JobAct::Begin(begin), Some(owner)) => self.begin(&owner, holder, *begin),
        }
    }

    /// Whether the holder owns: the ticket under exactly this token is held by this lease, which lives by the store's
    /// clock. Marks nobody.
    pub(super) fn owner(&self, holder: &Holder) -> Outcome<Option<Owner>> {
        let (name, token) = (holder.resource.as_str(), signed(holder.token.0));
        let mut find = self.db.prepare_cached(OWNER)?;
        let mut found = find.query(params![self.namespace, name, token, bearer(holder.lease)])?;
        let Some(row) = found.next()? else { return Ok(None) };
        if !Lease::of(row, 3)?.lives(self.here.now()) {
            return Ok(None);
        }
        Ok(Some(Owner { resource: row.get(0)?, ticket: Ticket(row.get(1)?), worker: rows::label(row, 2)? }))
    }

    fn attend(&mut self, owner: &Owner, holder: &Holder, plan: &Plan, from: Occurrence) -> Outcome<JobSaid> {
        let from = from.min(WallTime::from_micros(self.wall).head_start());
        let found = Job::find(self.db, self.namespace, &holder.resource)?;
        let is_new = found.is_none();
        let mut job = found.unwrap_or_else(|| Job {
            row: owner.resource,
            plan: plan.clone(),
            through: from,
            counts: JobCounts::default(),
            latest: None,
        });
        let is_left = job.interrupt(self.db, |running| running != holder.token)?;
        let before = std::mem::replace(&mut job.plan, plan.clone());
        let replaced = (before != *plan).then_some(before);
        if replaced.is_some() {
            // What the new plan would have had before was never to be.
            job.through = job.through.max(from);
        }
        if is_new || is_left || replaced.is_some() {
            job.save(self.db)?;
        }
        Ok(JobSaid::Attended { through: job.through, latest: job.latest(), replaced })
    }

    fn begin(&mut self, owner: &Owner, holder: &Holder, begin: Begin) -> Outcome<JobSaid> {
        let Some(mut job) = Job::find(self.db, self.namespace, &holder.resource)? else {
            return Ok(JobSaid::Unknown);
        };
        if begin.occurrence > WallTime::from_micros(self.wall).head_start() {
            return Ok(JobSaid::Early);
        }
        let fresh = JobRecord {
            occurrence: begin.occurrence,
            attempt: 1,
            token: holder.token,
            key_token: holder.token,
            worker: owner.worker.clone(),
            began_at: WallTime::from_micros(self.wall),
            state: JobState::Running,
            took: None,
            missed: begin.missed,
            skipped: begin.skipped,
            note: Note::default(),
        };
        if begin.occurrence > job.through {
            job.through = begin.occurrence;
            job.counts.missed += u64::from(begin.missed);
            job.counts.skipped += u64::from(begin.skipped);
            return self.run(job, fresh);
        }
        let Some(latest) = job.latest().filter(|latest| latest.occurrence == begin.occurrence) else {
            return Ok(JobSaid::Taken(job.latest()));
        };
        match latest.state {
            // Its reply was lost.
            JobState::Running if latest.token == holder.token => Ok(JobSaid::Begun(latest)),
            // Late: this owner has begun it, and it has ended since.
            _ if latest.token == holder.token => Ok(JobSaid::Taken(Some(latest))),
            JobState::Running | JobState::Failed | JobState::Interrupted if begin.again => {
                let JobRecord { attempt, key_token, missed, skipped, .. } = latest;
                let attempt = attempt.saturating_add(1);
                self.run(job, JobRecord { attempt, key_token, missed, skipped, ..fresh })
            }
            _ => Ok(JobSaid::Taken(Some(latest))),
        }
    }

    /// The occurrence is this owner's to run. Whoever goes on without a word about the last one has left it in the
    /// middle.
    fn run(&mut self, mut job: Job, record: JobRecord) -> Outcome<JobSaid> {
        job.interrupt(self.db, |_| true)?;
        job.latest = Some(Run { record: record.clone(), began_at: self.here.now() });
        job.save(self.db)?;
        job.save_latest(self.db)?;
        self.db.prepare_cached(DROP_RUNS)?.execute(params![job.row, JOB_RECORDS as i64])?;
        Ok(JobSaid::Begun(record))
    }

    fn finish(
        &mut self,
        holder: &Holder,
        occurrence: Occurrence,
        outcome: JobOutcome,
        note: &Note,
    ) -> Outcome<JobSaid> {
        let Some(mut job) = Job::find(self.db, self.namespace, &holder.resource)? else {
            return Ok(JobSaid::Unknown);
        };
        let now = self.here.now();
        let ours = |run: &&mut Run| (run.record.occurrence, run.record.token) == (occurrence, holder.token);
        match job.latest.as_mut().filter(ours) {
            Some(run) if run.record.state == JobState::Running => {
                run.record.state = outcome.into();
                run.record.took = Some(now.since(run.began_at));
                run.record.note = note.clone();
                let record = run.record.clone();
                match outcome {
                    JobOutcome::Ran => job.counts.ran += 1,
                    JobOutcome::Failed => job.counts.failed += 1,
                }
                job.save(self.db)?;
                job.save_latest(self.db)?;
                Ok(JobSaid::Finished(record))
            }
            Some(run) if run.record.state == outcome.into() => Ok(JobSaid::Finished(run.record.clone())),
            _ => Ok(JobSaid::Taken(job.latest())),
        }
    }
}

impl Job {
    fn find(db: &Connection, namespace: i64, name: &ResourceName) -> Outcome<Option<Self>> {
        let mut find = db.prepare_cached(FIND)?;
        let mut found = find.query(params![namespace, name.as_str()])?;
        let Some(row) = found.next()? else { return Ok(None) };
        let count = |column| -> Outcome<u64> { whole(row.get(column)?) };
        let mut job = Self {
            row: row.get(0)?,
            plan: rows::plan(row, 1)?,
            through: occurrence(row.get(2)?)?,
            counts: JobCounts {
                ran: count(3)?,
                failed: count(4)?,
                interrupted: count(5)?,
                missed: count(6)?,
                skipped: count(7)?,
            },
            latest: None,
        };
        job.latest = runs(db, job.row, 1)?.pop();
        // Were it lost, what it claimed would look as if it could be claimed.
        if job.latest.as_ref().is_some_and(|latest| latest.record.occurrence > job.through) {
            return Err(Trouble::Damaged(format!("the job {name:?} has run what nobody claimed")));
        }
        Ok(Some(job))
    }

    fn save(&self, db: &Connection) -> Outcome<()> {
        let JobCounts { ran, failed, interrupted, missed, skipped } = self.counts;
        db.prepare_cached(SAVE)?.execute(params![
            self.row,
            self.plan.as_str(),
            signed(self.through.as_millis()),
            signed(ran),
            signed(failed),
            signed(interrupted),
            signed(missed),
            signed(skipped)
        ])?;
        Ok(())
    }

    fn save_latest(&self, db: &Connection) -> Outcome<()> {
        let Some(Run { record, began_at }) = &self.latest else { return Ok(()) };
        db.prepare_cached(SAVE_RUN)?.execute(params![
            self.row,
            signed(record.occurrence.as_millis()),
            record.attempt,
            signed(record.token.0),
            signed(record.key_token.0),
            record.worker.as_str(),
            signed(record.began_at.as_micros()),
            micros(*began_at),
            code(record.state),
            record.took.map(|took| i64::try_from(took.as_micros()).unwrap_or(i64::MAX)),
            record.missed,
            record.skipped,
            record.note.as_str()
        ])?;
        Ok(())
    }

    /// Notes that the latest run, if it is under way under such a token, was left in the middle. Says whether it was.
    fn interrupt(&mut self, db: &Connection, under: impl Fn(Token) -> bool) -> Outcome<bool> {
        let running = |run: &&mut Run| run.record.state == JobState::Running && under(run.record.token);
        let Some(run) = self.latest.as_mut().filter(running) else { return Ok(false) };
        run.record.state = JobState::Interrupted;
        self.counts.interrupted += 1;
        self.save_latest(db)?;
        Ok(true)
    }

    fn latest(&self) -> Option<JobRecord> {
        self.latest.as_ref().map(|run| run.record.clone())
    }

    fn view(self, db: &Connection, name: ResourceName, most: usize) -> Outcome<JobView> {
        let mut runs = runs(db, self.row, most)?;
        runs.reverse();
        let records = runs.into_iter().map(|run| run.record).collect();
        Ok(JobView { job: name, plan: self.plan, through: self.through, counts: self.counts, records })
    }
}

/// One job with all its records that are kept, oldest first, or every job with the latest, by name. Of all, a damaged one
/// is left out.
pub(super) fn jobs(db: &Connection, namespace: i64, name: Option<&ResourceName>) -> Outcome<Vec<JobView>> {
    let view = |name: ResourceName, most| match Job::find(db, namespace, &name)? {
        Some(job) => job.view(db, name, most).map(Some),
        None => Ok(None),
    };
    if let Some(name) = name {
        return Ok(view(name.clone(), JOB_RECORDS)?.into_iter().collect());
    }
    let mut read = db.prepare_cached(NAMES)?;
    let mut rows = read.query([namespace])?;
    let mut views = Vec::new();
    while let Some(row) = rows.next()? {
        let name = rows::resource(row, 0)?;
        match view(name.clone(), 1) {
            Err(trouble) if trouble.is_damage() => {
                tracing::warn!(job = %name, ?trouble, "a damaged job is left out");
            }
            found => views.extend(found?),
        }
    }
    Ok(views)
}

/// The latest runs, the latest first.
fn runs(db: &Connection, job: i64, most: usize) -> Outcome<Vec<Run>> {
    let mut read = db.prepare_cached(RUNS)?;
    let mut rows = read.query(params![job, signed(most as u64)])?;
    let mut runs = Vec::new();
    while let Some(row) = rows.next()? {
        runs.push(run(row)?);
    }
    Ok(runs)
}

fn run(row: &Row<'_>) -> Outcome<Run> {
    let small = |column| -> Outcome<u32> {
        u32::try_from(row.get::<_, i64>(column)?)
            .map_err(|_| Trouble::Damaged("a count of a run is too large".into()))
    };
    let took: Option<i64> = row.get(8)?;
    let record = JobRecord {
        occurrence: occurrence(row.get(0)?)?,
        attempt: small(1)?,
        token: Token(whole(row.get(2)?)?),
        key_token: Token(whole(row.get(3)?)?),
        worker: rows::label(row, 4)?,
        began_at: WallTime::from_micros(whole(row.get(5)?)?),
        state: state(row.get(7)?)?,
        took: took.map(|took| Duration::from_micros(unsigned(took))),
        missed: small(9)?,
        skipped: small(10)?,
        note: Note::of(rows::text(row, 11)?),
    };
    Ok(Run { record, began_at: time(row.get(6)?) })
}

fn occurrence(millis: i64) -> Outcome<Occurrence> {
    Occurrence::new(whole(millis)?).map_err(|limit| damaged(&limit))
}

fn whole(number: i64) -> Outcome<u64> {
    u64::try_from(number).map_err(|_| Trouble::Damaged(format!("the number {number} of a job is below 0")))
}

fn code(state: JobState) -> i64 {
    match state {
        JobState::Running => 0,
        JobState::Ran => 1,
        JobState::Failed => 2,
        // The one that is left; the enum may grow, and then this has to.
        _ => 3,
    }
}

fn state(code: i64) -> Outcome<JobState> {
    match code {
        0 => Ok(JobState::Running),
        1 => Ok(JobState::Ran),
        2 => Ok(JobState::Failed),
        3 => Ok(JobState::Interrupted),
        other => Err(Trouble::Damaged(format!("a run cannot be in state {other}"))),
    }
}
