//! Where the owner of a resource does what concerns the job of that name in the store.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Holder, JobAct, JobOutcome, JobRecord, JobSaid, JobStep, Note, Occurrence, ResourceName};
use tokio::sync::oneshot;

use crate::lead::Lead;
use crate::runtime::engine::Command;
use crate::runtime::events::{self, Event, StoreChange};
use crate::worker::Inner;
use crate::{Error, ErrorKind};

/// The shortest and the longest pause before the store is asked again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// One ownership, as the store knows it.
#[derive(Debug)]
pub(crate) struct Desk {
    worker: Arc<Inner>,
    lead: Lead,
    holder: Holder,
}

impl Desk {
    /// Nothing when the ownership has ended.
    pub(crate) async fn of(worker: Arc<Inner>, lead: Lead) -> Option<Self> {
        let holder = lead.holder().await?;
        Some(Self { worker, lead, holder })
    }

    /// Asks until the store answers. Every step can be repeated, so an unknown outcome is found out by asking again.
    ///
    /// # Errors
    /// When asking again changes nothing.
    pub(crate) async fn ask(&self, act: JobAct) -> Result<JobSaid, Error> {
        let step = Arc::new(JobStep { holder: self.holder.clone(), act });
        let mut pause = PAUSES.0;
        loop {
            match self.ask_once(step.clone()).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    unanswered(&self.holder.resource, &error);
                }
                said => return said,
            }
            Box::pin(self.worker.doze(pause)).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Writes down how a run ended. The record, unless somebody else has taken the job up meanwhile.
    ///
    /// # Errors
    /// When asking again changes nothing.
    pub(crate) async fn finish(
        &self,
        occurrence: Occurrence,
        failure: Option<&str>,
    ) -> Result<Option<JobRecord>, Error> {
        let outcome = if failure.is_some() { JobOutcome::Failed } else { JobOutcome::Ran };
        let note = Note::of(failure.unwrap_or_default());
        match self.ask(JobAct::Finish { occurrence, outcome, note }).await? {
            JobSaid::Finished(record) => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    /// Each attempt has a third of what is left, so that there is time for another. When nothing is left only the end of a run is
    /// still told, which no hurry protects.
    async fn ask_once(&self, step: Arc<JobStep>) -> Result<JobSaid, Error> {
        let longest = self.worker.timing.ttl() / 3;
        let left = self.lead.remaining() / 3;
        let limit = if left.is_zero() {
            longest / 3
        } else {
            left.clamp(Duration::from_millis(10).min(longest), longest)
        };
        let clocks = self.worker.clocks.clone();
        let (answer, answered) = oneshot::channel();
        let ask = Command::Ask(Box::new(move |store| {
            Box::pin(async move {
                let said = tokio::select! {
                    biased;
                    said = store.job(&step) => said,
                    () = clocks.doze(limit) => Err(Error::unavailable("the store did not answer in time")),
                };
                // Whoever asked may have given up.
                let _gone = answer.send(said);
            })
        }));
        let over = || Error::unavailable("the worker has been shut down");
        self.worker.commands.send(ask).map_err(|_| over())?;
        answered.await.map_err(|_| over())?
    }
}

/// Tells that the store did not answer about a job.
pub(crate) fn unanswered(resource: &ResourceName, error: &Error) {
    let change = StoreChange::failed("job", error);
    events::tell(Event::Store { worker: None, resource: Some(resource.clone()), change });
}
