//! Jobs: who may claim an occurrence, and what became of it; and what an owner sends to all.
//!
//! What makes a claim good for once is `through`: it only rises, in the same change that names the one who runs it.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;

use super::change::{Change, Decision, Signal};
use super::keys::{Key, Window};
use super::records::{Job, Owner, Record, Resource, Rest, Run, Runs};
use super::view::View;
use crate::fanout::{Payload, Published};
use crate::job::{
    Begin, Holder, JOB_RECORDS, JobAct, JobCounts, JobOutcome, JobRecord, JobSaid, JobState, JobStep, Note,
    Occurrence, WallTime,
};
use crate::message::Token;
use crate::names::{Label, Plan};

/// Carries out one step of the job that is attached to the holder's resource.
pub(super) fn step(view: View<'_>, step: &JobStep) -> Decision<JobSaid> {
    let JobStep { holder, act } = step;
    let key = Key::Resource(holder.resource.clone());
    let Some((record, resource)) = view.resource(&holder.resource) else {
        return Decision::Read([key].into());
    };
    match act {
        // The run did happen, even if another worker owns now.
        JobAct::Finish { occurrence, outcome, note } => {
            finish(view, holder, (record, resource), (*occurrence, *outcome, note))
        }
        JobAct::Attend { plan, from } => match owning(view, holder) {
            Ok(own) => attend(view, &own, plan, *from),
            Err(not) => not.decision(JobSaid::NotOwner),
        },
        JobAct::Begin(begin) => match owning(view, holder) {
            Ok(own) => self::begin(view, &own, *begin),
            Err(not) => not.decision(JobSaid::NotOwner),
        },
    }
}

/// Sends a message to all subscribers, if the holder is the owner.
pub(super) fn publish(view: View<'_>, holder: &Holder, payload: &Payload) -> Decision<Published> {
    let own = match owning(view, holder) {
        Ok(own) => own,
        Err(not) => return not.decision(Published::NotOwner),
    };
    let message = Signal::Message {
        resource: holder.resource.clone(),
        ticket: own.owner.grant.ticket,
        token: holder.token,
        number: view.chance,
        payload: payload.clone(),
    };
    let change = Change {
        expect: vec![(Key::Resource(holder.resource.clone()), own.record.version)],
        window: Window { from: None, until: view.own_end(holder.lease) },
        signals: vec![message],
        ..Change::default()
    };
    Decision::commit(change, Published::Sent)
}

struct Owning<'a> {
    holder: &'a Holder,
    record: &'a Record,
    resource: &'a Resource,
    owner: &'a Owner,
    worker: &'a Label,
}

/// The holder does not own the ticket.
enum NotOwning {
    /// Only by what is known: these records have to be read first.
    AsFarAsKnown(BTreeSet<Key>),
    Surely,
}

impl NotOwning {
    fn decision<T>(self, said: T) -> Decision<T> {
        match self {
            Self::AsFarAsKnown(keys) => Decision::Read(keys),
            Self::Surely => Decision::Say(said),
        }
    }
}

/// The holder's ownership: the ticket under exactly this token is held by this lease, which lives.
fn owning<'a>(view: View<'a>, holder: &'a Holder) -> Result<Owning<'a>, NotOwning> {
    let (resource_key, lease_key) = (Key::Resource(holder.resource.clone()), Key::Lease(holder.lease));
    let (Some(record), Some(lease_record)) = (view.get(&resource_key), view.get(&lease_key)) else {
        return Err(NotOwning::AsFarAsKnown([resource_key, lease_key].into()));
    };
    let resource = record.resource();
    let owner = resource.and_then(|resource| resource.owner_under(holder.token));
    let owner = owner.filter(|owner| owner.lease == holder.lease);
    let lease = lease_record.lease().filter(|lease| {
        let now = view.now_by(lease_record);
        let over = lease.runs_out_at().zip(now).is_some_and(|(end, now)| end <= now);
        lease.ended.is_none() && !over
    });
    match (resource, owner, lease) {
        (Some(resource), Some(owner), Some(lease)) => {
            Ok(Owning { holder, record, resource, owner, worker: &lease.label })
        }
        _ if view.is_fresh(record) && view.is_fresh(lease_record) => Err(NotOwning::Surely),
        _ => Err(NotOwning::AsFarAsKnown([resource_key, lease_key].into())),
    }
}

/// Writes the job if it has changed, else says the answer.
fn written(view: View<'_>, own: &Owning<'_>, job: Job, said: JobSaid) -> Decision<JobSaid> {
    if own.resource.job.as_deref() == Some(&job) {
        return said_of(view, own.record, &own.holder.resource, said);
    }
    let resource = Resource { job: Some(Box::new(job)), ..own.resource.clone() };
    let change = Change::of(Key::Resource(own.holder.resource.clone()), own.record.version, resource);
    let window = Window { from: None, until: view.own_end(own.holder.lease) };
    Decision::commit(Change { window, lasting: true, urgent: true, ..change }, said)
}

/// An answer that writes nothing rests on what was read for this request.
fn said_of(
    view: View<'_>,
    record: &Record,
    name: &crate::names::ResourceName,
    said: JobSaid,
) -> Decision<JobSaid> {
    match view.is_fresh(record) {
        true => Decision::Say(said),
        false => Decision::Read([Key::Resource(name.clone())].into()),
    }
}

fn attend(view: View<'_>, own: &Owning<'_>, plan: &Plan, from: Occurrence) -> Decision<JobSaid> {
    let from = from.min(WallTime::from_micros(view.wall).head_start());
    let (counts, rest) = (JobCounts::default(), Rest::new());
    let new = || Job { plan: plan.clone(), through: from, counts, latest: None, rest };
    let mut job = own.resource.job.as_deref().cloned().unwrap_or_else(new);
    interrupt(&mut job, |running| running != own.holder.token);
    let before = core::mem::replace(&mut job.plan, plan.clone());
    let replaced = (before != *plan).then_some(before);
    if replaced.is_some() {
        // What the new plan would have had before was never to be.
        job.through = job.through.max(from);
    }
    let said = JobSaid::Attended { through: job.through, latest: latest(&job), replaced };
    written(view, own, job, said)
}

fn begin(view: View<'_>, own: &Owning<'_>, begin: Begin) -> Decision<JobSaid> {
    let name = &own.holder.resource;
    let Some(job) = own.resource.job.as_deref() else {
        return said_of(view, own.record, name, JobSaid::Unknown);
    };
    let taken = || said_of(view, own.record, name, JobSaid::Taken(latest(job)));
    if begin.occurrence > WallTime::from_micros(view.wall).head_start() {
        return said_of(view, own.record, name, JobSaid::Early);
    }
    if begin.occurrence > job.through {
        return claim(view, own, job.clone(), begin);
    }
    let Some(run) = job.latest.as_ref().filter(|run| run.record.occurrence == begin.occurrence) else {
        return taken();
    };
    match run.record.state {
        // Its reply was lost.
        JobState::Running if run.record.token == own.holder.token => {
            said_of(view, own.record, name, JobSaid::Begun(run.record.clone()))
        }
        // Late: this owner has begun it, and it has ended since.
        _ if run.record.token == own.holder.token => taken(),
        JobState::Running | JobState::Failed | JobState::Interrupted if begin.again => {
            repeat(view, own, job.clone())
        }
        _ => taken(),
    }
}

/// The occurrence is after all that were claimed: it is this owner's. The run before it moves to the earlier ones.
fn claim(view: View<'_>, own: &Owning<'_>, mut job: Job, begin: Begin) -> Decision<JobSaid> {
    let Begin { occurrence, missed, skipped, .. } = begin;
    // The last run has no outcome, so its owner left it in the middle.
    interrupt(&mut job, |_| true);
    job.through = occurrence;
    job.counts.missed += u64::from(missed);
    job.counts.skipped += u64::from(skipped);
    let record = JobRecord {
        occurrence,
        attempt: 1,
        token: own.holder.token,
        key_token: own.holder.token,
        worker: own.worker.clone(),
        began_at: WallTime::from_micros(view.wall),
        state: JobState::Running,
        took: None,
        missed,
        skipped,
        note: Note::default(),
    };
    let before = job.latest.replace(Run { record: record.clone(), began: None });
    let said = JobSaid::Begun(record);
    let Some(before) = before else { return written(view, own, job, said) };
    let key = Key::Runs(own.holder.resource.clone());
    let Some(runs_record) = view.get(&key) else { return Decision::Read([key].into()) };
    let mut runs = runs_record.runs().cloned().unwrap_or_else(Runs::default);
    runs.runs.push(before.record);
    let surplus = runs.runs.len().saturating_sub(JOB_RECORDS - 1);
    runs.runs.drain(..surplus);
    match written(view, own, job, said) {
        Decision::Commit(change, said) => Decision::commit(change.and(key, runs_record.version, runs), said),
        other => other,
    }
}

/// The latest occurrence is begun once more, under the key of its first attempt.
fn repeat(view: View<'_>, own: &Owning<'_>, mut job: Job) -> Decision<JobSaid> {
    interrupt(&mut job, |_| true);
    let Some(run) = &mut job.latest else {
        return said_of(view, own.record, &own.holder.resource, JobSaid::Taken(None));
    };
    run.began = None;
    run.record = JobRecord {
        attempt: run.record.attempt.saturating_add(1),
        token: own.holder.token,
        worker: own.worker.clone(),
        began_at: WallTime::from_micros(view.wall),
        state: JobState::Running,
        took: None,
        note: Note::default(),
        ..run.record.clone()
    };
    let said = JobSaid::Begun(run.record.clone());
    written(view, own, job, said)
}

fn finish(
    view: View<'_>,
    holder: &Holder,
    (record, resource): (&Record, Option<&Resource>),
    (occurrence, outcome, note): (Occurrence, JobOutcome, &Note),
) -> Decision<JobSaid> {
    let name = &holder.resource;
    let Some((resource, job)) = resource.and_then(|resource| Some((resource, resource.job.as_deref()?)))
    else {
        return said_of(view, record, name, JobSaid::Unknown);
    };
    let mut job = job.clone();
    let ours = |run: &&mut Run| (run.record.occurrence, run.record.token) == (occurrence, holder.token);
    match job.latest.as_mut().filter(ours) {
        Some(run) if run.record.state == JobState::Running => {
            run.record.state = outcome.into();
            let now = view.now_by(record);
            run.record.took = now.zip(run.began).map(|(now, began)| now.since(began));
            run.record.note = note.clone();
            let said = JobSaid::Finished(run.record.clone());
            match outcome {
                JobOutcome::Ran => job.counts.ran += 1,
                JobOutcome::Failed => job.counts.failed += 1,
            }
            let resource = Resource { job: Some(Box::new(job)), ..resource.clone() };
            let change = Change::of(Key::Resource(name.clone()), record.version, resource);
            // That it ran is written down also where the store takes nothing new.
            Decision::commit(Change { lasting: true, essential: true, urgent: true, ..change }, said)
        }
        Some(run) if run.record.state == outcome.into() => {
            let said = JobSaid::Finished(run.record.clone());
            said_of(view, record, name, said)
        }
        _ => {
            let said = JobSaid::Taken(latest(&job));
            said_of(view, record, name, said)
        }
    }
}

/// Notes that the latest run, if it is under way under such a token, was left in the middle.
fn interrupt(job: &mut Job, under: impl Fn(Token) -> bool) {
    let running = |run: &&mut Run| run.record.state == JobState::Running && under(run.record.token);
    if let Some(run) = job.latest.as_mut().filter(running) {
        run.record.state = JobState::Interrupted;
        job.counts.interrupted += 1;
    }
}

fn latest(job: &Job) -> Option<JobRecord> {
    job.latest.as_ref().map(|run| run.record.clone())
}
