//! Work that is done once, by one of many workers, and then never again: a migration, a seed, a backfill.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Begin, EndReason, JobAct, JobRecord, JobSaid, JobState, Label, Occurrence, Plan, ResourceName,
    WaitReason, WallTime,
};
use tokio::sync::oneshot;
use tracing::Instrument;

use crate::campaign::CampaignBuilder;
use crate::campaign::candidacy::Candidacy;
use crate::campaign::changes::Changes;
use crate::campaign::state::{Change, Signal};
use crate::campaign::work_guard::WorkGuard;
use crate::jobs::store::Desk;
use crate::lead::Lead;
use crate::outcome::{IntoOutcome, Outcome};
use crate::runtime::engine::Command;
use crate::runtime::events::{self, Event};
use crate::runtime::telemetry;
use crate::worker::{Inner, Worker};
use crate::{Error, ErrorKind};

/// What became of work that is done once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Once {
    /// This call did it.
    Ran,
    /// A worker did it before, or while this one waited.
    Done {
        /// The label of the worker that did it.
        by: Label,
        /// When it began, by the store's clock.
        began: WallTime,
        /// How long it took.
        took: Duration,
    },
}

/// Work to be done once, with settings. See [`Worker::once_builder`].
#[derive(Debug)]
#[must_use = "nothing is done until `run`"]
pub struct OnceBuilder {
    campaign: CampaignBuilder,
}

impl OnceBuilder {
    /// As [`CampaignBuilder::priority`].
    pub fn priority(self, priority: i32) -> Self {
        Self { campaign: self.campaign.priority(priority) }
    }

    /// What happens to the campaign for it on this worker: that it waits, owns, and why an ownership ended.
    #[must_use]
    pub fn ownerships(&mut self) -> Changes {
        self.campaign.changes()
    }

    /// Does `work`, unless it is done.
    ///
    /// # Errors
    /// As [`Worker::once`].
    // req: E13
    pub async fn run<R: IntoOutcome>(self, work: impl AsyncFnMut(Lead) -> R) -> Result<Once, Error> {
        once(self.campaign, None, work).await
    }

    /// Does `work`, unless it is done. `None` while another worker is at it.
    ///
    /// # Errors
    /// As [`Worker::once`].
    // req: E13
    pub async fn try_run<R: IntoOutcome>(
        self,
        work: impl AsyncFnMut(Lead) -> R,
    ) -> Result<Option<Once>, Error> {
        once(self.campaign, Some(None), work).await
    }
}

impl Worker {
    /// [`once`](Self::once) with settings.
    pub fn once_builder(&self, name: impl AsRef<str>) -> OnceBuilder {
        OnceBuilder { campaign: CampaignBuilder::of_job(self.inner().clone(), "once", name.as_ref()) }
    }

    /// Does `work` once: one worker does it, the others wait for it, and workers that come later learn that it is done. Its
    /// resource is `once:NAME`. The store records that it is done before it frees the ticket, and keeps this for as long
    /// as it keeps its data.
    ///
    /// Work that fails is tried again by the next worker that comes or waits, and so is work whose worker died in the middle.
    /// So half of it must do no harm, or it has to fence what it writes. It runs in the task of the caller, and may borrow.
    /// When the ownership ends, its [`Lead`] tells the work, and the work is dropped at the harder stop.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
    /// # let worker = tenure::Worker::connect("memory:").await?;
    /// # async fn migrate(token: u64) -> Result<(), std::io::Error> { Ok(()) }
    /// worker.once("migration-42", async |lead| migrate(lead.token()).await).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Failed`] when the work fails here, with its error as the source. Also when the name breaks its limit, this worker
    /// is at it already or was shut down, or the store refuses.
    // req: E13
    pub async fn once<R: IntoOutcome>(
        &self,
        name: impl AsRef<str>,
        work: impl AsyncFnMut(Lead) -> R,
    ) -> Result<Once, Error> {
        self.once_builder(name).run(work).await
    }

    /// As [`once`](Self::once), but it does not wait: `None` while another worker is at it.
    ///
    /// # Errors
    /// As [`once`](Self::once).
    // req: E13
    pub async fn try_once<R: IntoOutcome>(
        &self,
        name: impl AsRef<str>,
        work: impl AsyncFnMut(Lead) -> R,
    ) -> Result<Option<Once>, Error> {
        self.once_builder(name).try_run(work).await
    }
}

/// `taken` is the answer when another worker is at it; without one it waits.
async fn once<R: IntoOutcome, T: From<Once>>(
    campaign: CampaignBuilder,
    mut taken: Option<T>,
    mut work: impl AsyncFnMut(Lead) -> R,
) -> Result<T, Error> {
    let (resource, mut campaign) = campaign.named()?;
    if let Some(done) = look(&campaign.worker, &resource).await? {
        return Ok(done.into());
    }
    let mut changes = campaign.changes();
    let mut candidacy = campaign.enter()?;
    loop {
        let guard = tokio::select! {
            biased;
            signal = candidacy.signal() => match signal {
                Some(Signal::Start(guard)) => guard,
                Some(_) => continue,
                None => return Err(Error::refused("the worker was shut down")),
            },
            Some(change) = changes.next() => match change {
                Change::Waiting(waiting) if waiting.why == WaitReason::Taken => match taken.take() {
                    Some(taken) => {
                        candidacy.leave();
                        candidacy.left().await;
                        return Ok(taken);
                    }
                    None => continue,
                },
                _ => continue,
            },
        };
        let token = guard.grant.token;
        let mut guard = Some(guard);
        let tried = try_it(&mut candidacy, &mut guard, &mut work).await;
        let ending = match &tried {
            Some(Ok(_)) => EndReason::Finished,
            Some(Err(_)) => EndReason::Failed,
            // The clock may have said so before the driver did.
            None => EndReason::SteppedDown,
        };
        candidacy.end(token, ending);
        drop(guard);
        if let Some(tried) = tried {
            candidacy.leave();
            candidacy.left().await;
            return tried.map(T::from);
        }
    }
}

/// Whether it is done already; for that nobody has to compete.
async fn look(worker: &Arc<Inner>, resource: &ResourceName) -> Result<Option<Once>, Error> {
    let (answer, answered) = oneshot::channel();
    let (name, clocks, limit) = (resource.clone(), worker.clocks.clone(), worker.timing.ttl() / 3);
    let ask = Command::Ask(Box::new(move |store| {
        Box::pin(async move {
            let views = tokio::select! {
                views = store.jobs(Some(&name)) => views,
                () = clocks.doze(limit) => Ok(Vec::new()),
            };
            // Whoever asked may have given up.
            let _gone = answer.send(views);
        })
    }));
    let over = || Error::refused("the worker has been shut down");
    worker.commands.send(ask).map_err(|_| over())?;
    match answered.await.map_err(|_| over())? {
        Ok(views) => {
            Ok(views.into_iter().flat_map(|view| view.records).next_back().and_then(|latest| done(&latest)))
        }
        // It is found out in the campaign, which waits for a store that is away.
        Err(error) if error.kind() == ErrorKind::Unavailable => Ok(None),
        Err(error) => Err(error),
    }
}

fn done(record: &JobRecord) -> Option<Once> {
    let (began, took) = (record.began_at, record.took.unwrap_or_default());
    (record.state == JobState::Ran).then(|| Once::Done { by: record.worker.clone(), began, took })
}

/// One ownership: what came of it, unless it was lost before.
async fn try_it<R: IntoOutcome>(
    candidacy: &mut Candidacy,
    guard: &mut Option<Arc<WorkGuard>>,
    work: &mut impl AsyncFnMut(Lead) -> R,
) -> Option<Result<Once, Error>> {
    let (grant, resource) = (guard.as_ref()?.grant, candidacy.resource.clone());
    let lead = candidacy.lead(grant);
    let desk = Desk::of(candidacy.worker().clone(), lead.clone()).await?;
    // Nothing was done before the first time.
    let plan = Plan::new("once").map_err(Error::from);
    let attend = plan.map(|plan| JobAct::Attend { plan, from: Occurrence::default() });
    let begin = Begin { occurrence: Occurrence::ONCE, missed: 0, skipped: 0, again: true };
    let asked = async {
        let attended = desk.ask(attend?).await?;
        if let JobSaid::Attended { latest: Some(latest), .. } = &attended
            && latest.state == JobState::Interrupted
        {
            events::tell(Event::OnceInterrupted { resource: resource.clone(), by: latest.worker.clone() });
        }
        let is_taken_up = matches!(attended, JobSaid::Attended { .. });
        if is_taken_up { desk.ask(JobAct::Begin(begin)).await } else { Ok(attended) }
    };
    let record = match lead.run(asked).await.ok()? {
        Err(error) => return Some(Err(error)),
        Ok(JobSaid::Begun(record)) => record,
        Ok(JobSaid::Taken(Some(record))) if record.state == JobState::Ran => return done(&record).map(Ok),
        // The store knows better who owns: we hear of it before long.
        Ok(_) => {
            lead.lost().await;
            return None;
        }
    };
    if !lead.holds() {
        return None;
    }
    telemetry::job_entered(&resource);
    events::tell(Event::OnceBegan { resource: resource.clone(), attempt: record.attempt });
    let began = candidacy.worker().clocks.now();
    let work = Box::pin(work(lead.clone()).instrument(telemetry::span(&resource, grant)));
    let ended = until_it_has_to_end(candidacy, work).await;
    let took = candidacy.worker().clocks.now().longest_since(began);
    let tried = match ended.map_or(Outcome::Unfinished, IntoOutcome::into_outcome) {
        Outcome::Done => Ok(()),
        Outcome::Failed(error) => Err(error),
        Outcome::Unfinished => {
            telemetry::run_ended(&resource, "stopped", took);
            return None;
        }
    };
    let failure = tried.as_ref().err().map(ToString::to_string);
    telemetry::run_ended(&resource, if failure.is_some() { "failed" } else { "ran" }, took);
    let finished = match lead.run(desk.finish(record.occurrence, failure.as_deref())).await {
        Ok(finished) => finished,
        Err(lost) => {
            if !lost.0.is_gentle() {
                // The work has ended, and the lease protects nothing any more. What is still written down is not work.
                candidacy.leave();
                drop(guard.take());
            }
            finish_late(&desk, candidacy.worker(), record.occurrence, failure.as_deref()).await
        }
    };
    Some(match (tried, finished) {
        (Err(error), _) => Err(Error::failed(format!("`{resource}` failed")).because(error)),
        (Ok(()), Ok(Some(_))) => Ok(Once::Ran),
        (Ok(()), finished) => {
            let told = Error::unavailable(format!(
                "`{resource}` ran here, but that could not be written down: it may run again"
            ));
            Err(match finished {
                Err(error) => told.because(error),
                Ok(_) => told,
            })
        }
    })
}

/// Lets the work run. When the ownership ends it may wind down until the harder stop; what it came to until then counts.
async fn until_it_has_to_end<R>(
    candidacy: &mut Candidacy,
    mut work: std::pin::Pin<Box<impl Future<Output = R>>>,
) -> Option<R> {
    loop {
        tokio::select! {
            biased;
            signal = candidacy.signal() => match signal {
                Some(Signal::StopHard) | None => return None,
                Some(_) => {}
            },
            done = &mut work => return Some(done),
        }
    }
}

/// Writes down how it ended, for up to one ttl after the ownership, because that it ran is true.
async fn finish_late(
    desk: &Desk,
    worker: &Inner,
    occurrence: Occurrence,
    failure: Option<&str>,
) -> Result<Option<JobRecord>, Error> {
    tokio::select! {
        biased;
        finished = desk.finish(occurrence, failure) => finished,
        () = worker.doze(worker.timing.ttl()) => Err(Error::unavailable("the store did not answer")),
    }
}
