//! Work that is done once, by one of many workers, and then never again: a migration, a seed, a backfill.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tenure_core::{
    Begin, EndReason, JobAct, JobRecord, JobSaid, JobState, Label, Occurrence, Plan, ResourceName, WaitReason,
};
use tokio::sync::oneshot;
use tracing::Instrument;

use crate::campaign::CampaignBuilder;
use crate::campaign::candidacy::Entered;
use crate::campaign::changes::Changes;
use crate::campaign::state::{Change, Signal};
use crate::campaign::work_guard::Stint;
use crate::jobs::store::Desk;
use crate::ownership::Ownership;
use crate::runtime::engine::Command;
use crate::runtime::events::{self, Event};
use crate::runtime::telemetry;
use crate::worker::{Inner, Worker};
use crate::{Error, Kind};

/// What came of work that is done once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it may be that it was done elsewhere, or is not done yet"]
pub enum Once {
    /// It was done here, just now.
    Ran,
    /// It was done by a worker before, or while this one waited.
    Done {
        /// By whom.
        by: Label,
        /// When it began, by the store's clock.
        began: SystemTime,
        /// How long it took.
        took: Duration,
    },
    /// Another worker is at it, and this one was not to wait.
    UnderWay,
}

/// What work that is done once may return: nothing, or a result.
pub trait Tried {
    /// What went wrong, if something did.
    ///
    /// # Errors
    /// What went wrong.
    fn tried(self) -> Result<(), Box<dyn StdError + Send + Sync>>;

    /// Whether the ownership ended first. Then nothing is written down, and whoever owns next tries.
    fn is_unfinished(&self) -> bool {
        false
    }
}

impl Tried for () {
    fn tried(self) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Ok(())
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> Tried for Result<(), E> {
    fn tried(self) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.map_err(Into::into)
    }
}

#[cfg(feature = "cron")]
impl Tried for crate::jobs::cron::Ended {
    fn tried(self) -> Result<(), Box<dyn StdError + Send + Sync>> {
        match self {
            Self::Ran => Ok(()),
            Self::Failed(what) => Err(what.into()),
            Self::Unfinished => Err("the ownership ended first".into()),
        }
    }

    fn is_unfinished(&self) -> bool {
        *self == Self::Unfinished
    }
}

/// Work to be done once, with settings. See [`Worker::to_do_once`].
#[derive(Debug)]
#[must_use = "nothing is done until `run`"]
pub struct OnceBuilder {
    worker: Arc<Inner>,
    campaign: CampaignBuilder,
    resource: Result<ResourceName, Error>,
    patience: Patience,
}

impl OnceBuilder {
    /// As [`CampaignBuilder::priority`].
    pub fn priority(self, priority: i32) -> Self {
        Self { campaign: self.campaign.priority(priority), ..self }
    }

    /// Goes on if another worker is at it: then it is [`Once::UnderWay`].
    pub fn or_go_on(self) -> Self {
        Self { patience: Patience::GoesOn, ..self }
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
    pub async fn run<R: Tried>(self, work: impl AsyncFnMut(Ownership) -> R) -> Result<Once, Error> {
        once(self, work).await
    }
}

impl Worker {
    /// Work that is done once, to be settled and done: [`once`](Self::once) with settings.
    pub fn to_do_once(&self, name: impl AsRef<str>) -> OnceBuilder {
        let name = name.as_ref();
        let named =
            || Ok(ResourceName::new(name).and_then(|name| ResourceName::new(&format!("once:{name}")))?);
        OnceBuilder {
            worker: self.inner().clone(),
            campaign: CampaignBuilder::new(self.inner().clone(), named()),
            resource: named(),
            patience: Patience::Waits,
        }
    }

    /// Does `work` on one worker, once: whoever comes later learns that it is done, and whoever comes meanwhile waits for it.
    /// Its resource is `once:NAME`, and the record of it is kept for as long as the store keeps its data. It is written down as done before others may begin.
    ///
    /// Work that fails is tried again by the next one who comes or waits; so is work whose worker died in the middle of it.
    /// So it should be such that half of it does no harm, or fence what it writes. It runs in the task of the caller, and
    /// may borrow. When the ownership ends it is told by its [`Ownership`], and dropped at the harder stop.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
    /// # let worker = tenure::Worker::connect("memory:").await?;
    /// # async fn migrate(token: u64) -> Result<(), std::io::Error> { Ok(()) }
    /// worker.once("migration-42", async |own| migrate(own.token()).await).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Kind::Failed`] when the work fails here, with its error as the source; and when the name breaks its limit, this worker is at
    /// it already or was shut down, or the store refuses.
    // req: E13
    pub async fn once<R: Tried>(
        &self,
        name: impl AsRef<str>,
        work: impl AsyncFnMut(Ownership) -> R,
    ) -> Result<Once, Error> {
        self.to_do_once(name).run(work).await
    }

    /// The same, but goes on if another worker is at it: then it is [`Once::UnderWay`].
    ///
    /// # Errors
    /// As [`once`](Self::once).
    // req: E13
    pub async fn try_once<R: Tried>(
        &self,
        name: impl AsRef<str>,
        work: impl AsyncFnMut(Ownership) -> R,
    ) -> Result<Once, Error> {
        self.to_do_once(name).or_go_on().run(work).await
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Waits,
    GoesOn,
}

async fn once<R: Tried>(todo: OnceBuilder, mut work: impl AsyncFnMut(Ownership) -> R) -> Result<Once, Error> {
    let OnceBuilder { worker, mut campaign, resource, patience } = todo;
    let resource = resource?;
    if let Some(done) = look(&worker, &resource).await? {
        return Ok(done);
    }
    let mut changes = campaign.changes();
    let mut entered = campaign.enter()?;
    loop {
        let stint = tokio::select! {
            biased;
            signal = entered.signal() => match signal {
                Some(Signal::Start(stint)) => stint,
                Some(_) => continue,
                None => return Err(Error::refused("the worker was shut down")),
            },
            Some(change) = changes.next() => match change {
                Change::Waiting(waiting) if waiting.why == WaitReason::Taken && patience == Patience::GoesOn => {
                    entered.leave();
                    entered.is_over().await;
                    return Ok(Once::UnderWay);
                }
                _ => continue,
            },
        };
        let token = stint.grant.token;
        let tried = try_it(&mut entered, &stint, &mut work).await;
        let ending = match &tried {
            Some(Ok(_)) => EndReason::Finished,
            Some(Err(_)) => EndReason::Failed,
            // The clock may have said so before the driver did.
            None => EndReason::SteppedDown,
        };
        entered.end(token, ending);
        drop(stint);
        if let Some(tried) = tried {
            entered.leave();
            entered.is_over().await;
            return tried;
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
        Err(error) if error.kind() == Kind::Unavailable => Ok(None),
        Err(error) => Err(error),
    }
}

fn done(record: &JobRecord) -> Option<Once> {
    let began = SystemTime::UNIX_EPOCH + Duration::from_micros(record.began_at.as_micros());
    let took = record.took.unwrap_or_default();
    (record.state == JobState::Ran).then(|| Once::Done { by: record.worker.clone(), began, took })
}

/// One ownership: what came of it, unless it was lost before.
async fn try_it<R: Tried>(
    entered: &mut Entered,
    stint: &Stint,
    work: &mut impl AsyncFnMut(Ownership) -> R,
) -> Option<Result<Once, Error>> {
    let (grant, resource) = (stint.grant, entered.resource.clone());
    let own = entered.view(grant);
    let desk = Desk::of(entered.worker().clone(), entered.view(grant)).await?;
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
    let record = match own.run(asked).await.ok()? {
        Err(error) => return Some(Err(error)),
        Ok(JobSaid::Begun(record)) => record,
        Ok(JobSaid::Taken(Some(record))) if record.state == JobState::Ran => return done(&record).map(Ok),
        // The store knows better who owns: we hear of it before long.
        Ok(_) => {
            own.lost().await;
            return None;
        }
    };
    if !own.holds() {
        return None;
    }
    telemetry::job_entered(&resource);
    events::tell(Event::OnceBegan { resource: resource.clone(), attempt: record.attempt });
    let began = entered.worker().clocks.now();
    let work = Box::pin(work(entered.view(grant)).instrument(telemetry::span(&resource, grant)));
    let ended = until_it_has_to_end(entered, work).await;
    let took = entered.worker().clocks.now().longest_since(began);
    let Some(tried) = ended.filter(|ended| !ended.is_unfinished()).map(Tried::tried) else {
        telemetry::run_ended(&resource, "stopped", took);
        return None;
    };
    let failure = tried.as_ref().err().map(ToString::to_string);
    telemetry::run_ended(&resource, if failure.is_some() { "failed" } else { "ran" }, took);
    let finished = finish(&desk, &own, entered.worker(), record.occurrence, failure.as_deref()).await;
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
    entered: &mut Entered,
    mut work: std::pin::Pin<Box<impl Future<Output = R>>>,
) -> Option<R> {
    loop {
        tokio::select! {
            biased;
            signal = entered.signal() => match signal {
                Some(Signal::StopHard) | None => return None,
                Some(_) => {}
            },
            done = &mut work => return Some(done),
        }
    }
}

/// Writes down how it ended: as long as the ownership lasts and for one ttl after it, because that it ran is true.
async fn finish(
    desk: &Desk,
    own: &Ownership,
    worker: &Inner,
    occurrence: Occurrence,
    failure: Option<&str>,
) -> Result<Option<JobRecord>, Error> {
    if let Ok(finished) = own.run(desk.finish(occurrence, failure)).await {
        return finished;
    }
    tokio::select! {
        biased;
        finished = desk.finish(occurrence, failure) => finished,
        () = worker.doze(worker.timing.ttl()) => Err(Error::unavailable("the store did not answer")),
    }
}
