//! One job on one worker: takes it up when the worker comes to own it, claims what is due, has it run, writes down how
//! it ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{Begin, Grant, JobAct, JobRecord, JobSaid, JobState, Occurrence, Plan, ResourceName};
use tracing::Instrument;

use super::decide::{Decision, Misfire, Next, decide};
use super::schedule::{Schedule, Second};
use super::{Change, Interrupted, Skipped, Tick};
use crate::campaign::callbacks::{self, Wish};
use crate::campaign::candidacy::Candidacy;
use crate::campaign::changes::Listeners;
use crate::campaign::state::Signal;
use crate::campaign::work_guard::WorkGuard;
use crate::jobs::store::Desk;
use crate::jobs::store::unanswered;
use crate::outcome::{IntoOutcome, Outcome};
use crate::runtime::events::{self, Event};
use crate::runtime::telemetry;
use crate::{EndReason, Error};

/// How often an occurrence that is interrupted again and again is run in all: one that kills its owner must not go round for
/// ever.
const MOST_ATTEMPTS: u32 = 5;
/// Before something that may have changed is looked at again.
const PAUSE: Duration = Duration::from_secs(1);
/// Before a store is asked again that said that it would change nothing.
const LONG_PAUSE: Duration = Duration::from_secs(30);

/// What is known of a job from its beginning.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) resource: ResourceName,
    pub(super) schedule: Schedule,
    pub(super) plan: Plan,
    pub(super) misfire: Misfire,
    pub(super) interrupted: Interrupted,
    /// In milliseconds: everything happens so much later than the schedule says.
    pub(super) delay: u64,
    pub(super) told: Listeners<Change>,
}

/// What becomes of the work when the ownership is lost. When it is given up gently, the work may go on to the harder stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnLoss {
    /// It is dropped.
    Drop,
    /// It is told by its ownership, and dropped at the harder stop.
    Tell,
}

/// Serves the job until the campaign is over, or somebody wants to leave. Whatever ends that is told to who listens, also if it
/// never begins.
pub(super) fn serve<R: IntoOutcome>(
    job: Arc<Job>,
    wish: Wish,
    candidacy: Candidacy,
    on_loss: OnLoss,
    work: impl AsyncFnMut(Tick, Arc<WorkGuard>) -> R,
) -> impl Future<Output = ()> {
    let over = Over(job);
    async move { until_it_is_over(&over.0, wish, candidacy, on_loss, work).await }
}

async fn until_it_is_over<R: IntoOutcome>(
    job: &Job,
    mut wish: Wish,
    mut candidacy: Candidacy,
    on_loss: OnLoss,
    mut work: impl AsyncFnMut(Tick, Arc<WorkGuard>) -> R,
) {
    telemetry::job_entered(&job.resource);
    while let Some(signal) = callbacks::next(&mut candidacy, &mut wish).await {
        let Signal::Start(guard) = signal else { continue };
        if !candidacy.state.holds(guard.grant.token) {
            // It waited for this runtime, for longer than the trust lasted.
            candidacy.end(guard.grant.token, EndReason::SteppedDown);
            continue;
        }
        let mut place = Place { candidacy: &mut candidacy, wish: &mut wish, is_stopped: false };
        let lead = place.candidacy.lead(guard.grant);
        let worker = place.candidacy.worker().clone();
        let Some(desk) = place.unless_stopped(Desk::of(worker, lead)).await.flatten() else { continue };
        let grant = guard.grant;
        let term = Term { job, desk, grant, guard: Mutex::new(Some(guard)), on_loss };
        Box::pin(term.serve(&mut place, &mut work)).await;
        if !place.is_stopped {
            // It cannot go on, as with a clock beyond the calendar: somebody else may.
            candidacy.end(grant.token, EndReason::Failed);
        }
    }
}

/// Whatever ends the job, also a panic or the end of its runtime: whoever listens is told that nothing comes any more.
struct Over(Arc<Job>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.told.end();
    }
}

/// Where the signals of the campaign come from.
struct Place<'a> {
    candidacy: &'a mut Candidacy,
    wish: &'a mut Wish,
    /// The ownership is over, or to be given up.
    is_stopped: bool,
}

impl Place<'_> {
    /// What comes of it, unless the ownership ends first.
    async fn unless_stopped<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                biased;
                signal = self.candidacy.signal() => match signal {
                    Some(Signal::Stop(_) | Signal::StopHard) | None => {
                        self.is_stopped = true;
                        return None;
                    }
                    Some(_) => {}
                },
                () = self.wish.wants_to_leave() => self.candidacy.leave(),
                done = &mut what => return Some(done),
            }
        }
    }

    /// Lets the work run until it ends, or has to. What it came to, if it did.
    async fn work<R>(&mut self, on_loss: OnLoss, work: impl Future<Output = R>) -> Option<R> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                signal = self.candidacy.signal() => match signal {
                    Some(Signal::Stop(why)) => {
                        self.is_stopped = true;
                        if on_loss == OnLoss::Drop && !why.is_gentle() {
                            return None;
                        }
                    }
                    Some(Signal::StopHard) | None => {
                        self.is_stopped = true;
                        return None;
                    }
                    Some(_) => {}
                },
                () = self.wish.wants_to_leave() => self.candidacy.leave(),
                done = &mut work => return Some(done),
            }
        }
    }
}

/// One ownership of the job.
struct Term<'a> {
    job: &'a Job,
    desk: Desk,
    grant: Grant,
    /// Until the ownership was lost and no work runs.
    guard: Mutex<Option<Arc<WorkGuard>>>,
    on_loss: OnLoss,
}

/// How far the job has come in this ownership.
struct Course {
    /// Every occurrence up to here is claimed, or does not count.
    through: Second,
    /// To be claimed first: it is to be run again, or the store said that it is too early for it.
    first: Option<Begin>,
    /// When the last run ended.
    busy_until: Option<Second>,
    /// What is left out up to here has been told.
    told: Second,
    /// That the clocks differ has been told.
    is_early: bool,
}

impl Term<'_> {
    /// Until the ownership ends.
    async fn serve<R: IntoOutcome>(
        &self,
        place: &mut Place<'_>,
        work: &mut impl AsyncFnMut(Tick, Arc<WorkGuard>) -> R,
    ) {
        let Some(mut course) = self.attend(place).await else { return };
        while let Some(begin) = self.next(place, &mut course).await {
            let Some(said) = self.ask(place, JobAct::Begin(begin)).await else { return };
            match said {
                JobSaid::Begun(record) => {
                    course.through = course.through.max(second_of(record.occurrence));
                    self.run(place, record, work).await;
                    course.busy_until = Some(self.now(place));
                }
                JobSaid::Taken(Some(record)) if second_of(record.occurrence) > course.through => {
                    course.through = second_of(record.occurrence);
                }
                JobSaid::Unknown => match self.attend(place).await {
                    Some(taken_up) => course = taken_up,
                    None => return,
                },
                JobSaid::Early => {
                    if !std::mem::replace(&mut course.is_early, true) {
                        self.tell(&Change::Skipped { count: 1, reason: Skipped::TooEarly });
                    }
                    // This one, and not a later one by a clock that goes on being wrong: else none would ever be run.
                    course.first = Some(begin);
                    self.pause(place, PAUSE).await;
                }
                // The store knows better who owns: we hear of it before long.
                _ => self.pause(place, PAUSE).await,
            }
            if place.is_stopped {
                return;
            }
        }
    }

    /// Takes the job up; tells what the owner before left behind.
    async fn attend(&self, place: &mut Place<'_>) -> Option<Course> {
        loop {
            let now = Occurrence::new(self.job.shifted(place.candidacy.worker().clocks.wall())).ok()?;
            let attend = JobAct::Attend { plan: self.job.plan.clone(), from: now };
            let JobSaid::Attended { through, latest, replaced } = self.ask(place, attend).await? else {
                self.pause(place, PAUSE).await;
                if place.is_stopped {
                    return None;
                }
                continue;
            };
            if let Some(before) = replaced {
                self.tell(&Change::PlanChanged { before: before.to_string() });
            }
            // One that is running under this token is ours, after a store that answered late.
            let left = latest.filter(|latest| latest.state == JobState::Interrupted);
            if let Some(JobRecord { occurrence, worker, .. }) = &left {
                self.tell(&Change::Interrupted { occurrence: *occurrence, worker: worker.clone() });
            }
            let is_repeated =
                |left: &JobRecord| self.job.interrupted == Interrupted::Again && left.attempt < MOST_ATTEMPTS;
            let again =
                |left: JobRecord| Begin { occurrence: left.occurrence, missed: 0, skipped: 0, again: true };
            let (first, through) = (left.filter(is_repeated).map(again), second_of(through));
            return Some(Course { through, first, busy_until: None, told: through, is_early: false });
        }
    }

    /// Waits for what is due, and says what is to be claimed; nothing when the ownership ends first.
    async fn next(&self, place: &mut Place<'_>, course: &mut Course) -> Option<Begin> {
        if let Some(begin) = course.first.take() {
            return Some(begin);
        }
        loop {
            let (now, job) = (self.now(place), self.job);
            let Decision { next, left_out } =
                decide(&job.schedule, job.misfire, course.through, course.busy_until, now);
            self.tell_left_out(course, &next, now);
            match next {
                Next::Begin(second) => {
                    let [missed, skipped] = [left_out.missed, left_out.skipped]
                        .map(|count| u32::try_from(count).unwrap_or(u32::MAX));
                    let occurrence = Occurrence::new(second.unsigned_abs() * 1000).ok()?;
                    return Some(Begin { occurrence, missed, skipped, again: false });
                }
                Next::Wait(second) => {
                    let due = (second.unsigned_abs() * 1000).saturating_add(job.delay);
                    let worker = place.candidacy.worker().clone();
                    let clockwork = worker.clockwork().ok()?;
                    place.unless_stopped(clockwork.until(due.saturating_mul(1000))).await?;
                }
                Next::Never => place.unless_stopped(std::future::pending()).await?,
            }
        }
    }

    /// What is left out is told when it is seen, and once.
    fn tell_left_out(&self, course: &mut Course, next: &Next, now: Second) {
        let upto = if let Next::Begin(second) = next { second - 1 } else { now };
        let from = course.told.max(course.through);
        if upto <= from {
            return;
        }
        let skipped = course.busy_until.map_or(0, |until| self.job.schedule.count(from, until.min(upto)));
        let missed = self.job.schedule.count(from, upto) - skipped;
        course.told = upto;
        if missed > 0 {
            self.tell(&Change::Missed { count: missed });
        }
        if skipped > 0 {
            self.tell(&Change::Skipped { count: skipped, reason: Skipped::StillRunning });
        }
    }

    /// Has the occurrence run, which is this owner's, and writes down how it ended.
    async fn run<R: IntoOutcome>(
        &self,
        place: &mut Place<'_>,
        record: JobRecord,
        work: &mut impl AsyncFnMut(Tick, Arc<WorkGuard>) -> R,
    ) {
        let (occurrence, attempt) = (record.occurrence, record.attempt);
        let Some(guard) = self.guard().clone() else { return };
        let tick = Tick::new(place.candidacy.lead(self.grant), record);
        if !tick.lead().holds() {
            // The answer came too late: whoever owns next finds it interrupted.
            self.tell(&Change::Stopped { occurrence });
            return;
        }
        self.tell(&Change::Began { occurrence, attempt });
        let span = telemetry::span(&self.job.resource, self.grant);
        let began = place.candidacy.worker().clocks.now();
        let ended = place.work(self.on_loss, work(tick, guard).instrument(span)).await;
        let took = place.candidacy.worker().clocks.now().longest_since(began);
        let (failure, change) = match ended.map_or(Outcome::Unfinished, IntoOutcome::into_outcome) {
            Outcome::Done => (None, Change::Ran { occurrence }),
            Outcome::Failed(error) => {
                let what = error.to_string();
                (Some(what.clone()), Change::Failed { occurrence, what })
            }
            Outcome::Unfinished => {
                telemetry::run_ended(&self.job.resource, "stopped", took);
                self.tell(&Change::Stopped { occurrence });
                return;
            }
        };
        telemetry::run_ended(&self.job.resource, if failure.is_some() { "failed" } else { "ran" }, took);
        self.finish(place, occurrence, failure.as_deref()).await;
        self.tell(&change);
    }

    /// Writes down how it ended, as long as the ownership lasts and for a while after it: that it ran is true.
    async fn finish(&self, place: &mut Place<'_>, occurrence: Occurrence, failure: Option<&str>) {
        let finish = || self.desk.finish(occurrence, failure);
        if !place.is_stopped
            && let Some(finished) = place.unless_stopped(finish()).await
        {
            return self.note(finished.err());
        }
        if !place.candidacy.state.may_go_on(self.grant.token) {
            // The work has ended, and the lease protects nothing any more. What is still written down is not work.
            *self.guard() = None;
        }
        let worker = place.candidacy.worker().clone();
        let finished = tokio::select! {
            biased;
            finished = finish() => finished,
            () = Box::pin(worker.doze(worker.timing.ttl() / 3)) => {
                Err(Error::unavailable("the store did not answer before the ownership was over"))
            }
        };
        self.note(finished.err());
    }

    /// Asks until there is an answer; nothing when the ownership ends first.
    async fn ask(&self, place: &mut Place<'_>, act: JobAct) -> Option<JobSaid> {
        loop {
            match place.unless_stopped(self.desk.ask(act.clone())).await? {
                Ok(said) => return Some(said),
                Err(error) => {
                    self.note(Some(error));
                    self.pause(place, LONG_PAUSE).await;
                }
            }
            if place.is_stopped {
                return None;
            }
        }
    }

    fn guard(&self) -> MutexGuard<'_, Option<Arc<WorkGuard>>> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pause(&self, place: &mut Place<'_>, span: Duration) {
        let worker = place.candidacy.worker().clone();
        let _stopped = place.unless_stopped(Box::pin(worker.doze(span))).await;
    }

    fn note(&self, error: Option<Error>) {
        if let Some(error) = error {
            unanswered(&self.job.resource, &error);
            self.tell(&Change::Refused { what: error.to_string() });
        }
    }

    fn tell(&self, change: &Change) {
        events::tell(Event::Job { resource: self.job.resource.clone(), change: change.clone() });
        self.job.told.tell(change);
    }

    /// What counts as now, in whole seconds.
    fn now(&self, place: &Place<'_>) -> Second {
        let millis = self.job.shifted(place.candidacy.worker().clocks.wall());
        Second::try_from(millis / 1000).unwrap_or(Second::MAX)
    }
}

impl Job {
    /// What counts as now, in milliseconds since 1970, when the wall clock shows so many microseconds.
    fn shifted(&self, wall: u64) -> u64 {
        (wall / 1000).saturating_sub(self.delay)
    }
}

/// What is claimed with a part of a second counts as claimed up to that second.
fn second_of(occurrence: Occurrence) -> Second {
    (occurrence.as_millis() / 1000).cast_signed()
}
