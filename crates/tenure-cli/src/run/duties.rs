//! What `tenure cron` and `tenure once` do with an ownership: the command is run for each occurrence, or once.

use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::UNIX_EPOCH;

use tenure::Lead;
use tenure::jobs::cron::{Change, Tick};
use tenure::jobs::{Occurrence, Once};

use super::{Outcome, Work};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::settings::Cron;

impl Work<'_> {
    /// Runs the command for every occurrence that is this worker's, until somebody asks to stop.
    pub(super) async fn run_cron(&self, cron: &Cron) -> Result<Outcome, tenure::Error> {
        let mut job = self
            .worker
            .cron(&cron.name, &cron.spec)
            .time_zone(cron.schedule.time_zone())
            .misfire(cron.misfire)
            .jitter(cron.jitter)
            .interrupted(cron.interrupted)
            .priority(self.settings.priority);
        let (ownerships, mut happened) = (job.ownerships(), job.changes());
        let run = async {
            let mut served = pin!(job.serve(async |tick| self.tick(cron, &tick).await));
            loop {
                tokio::select! {
                    biased;
                    Some(change) = happened.next() => self.tell_of(cron, &change),
                    served = &mut served => {
                        served?;
                        // What it told with its last breath.
                        while let Some(change) = happened.next().await {
                            self.tell_of(cron, &change);
                        }
                        let exit = self.state().asked().map_or(Exit::FAILED, |asked| Exit::by_signal(asked.number));
                        return Ok(Outcome::Done(exit));
                    }
                }
            }
        };
        self.drive(ownerships, run).await
    }

    /// Runs the command for one occurrence.
    async fn tick(&self, cron: &Cron, tick: &Tick) -> tenure::Outcome {
        let more = [
            ("TENURE_JOB", cron.name.clone()),
            ("TENURE_OCCURRENCE", cron.schedule.show(UNIX_EPOCH + tick.occurrence().since_epoch())),
            ("TENURE_KEY", tick.key().to_owned()),
            ("TENURE_ATTEMPT", tick.attempt().to_string()),
        ];
        let ended = self.job_ended(self.under(tick.lead(), named(more)).await).await;
        self.show_owned(tick.lead().term());
        ended
    }

    /// What the end of a command means for its job. Code 0 is its own word that all is done, also when it was told to stop; what
    /// else it ends with after that is no failure of the job.
    async fn job_ended(&self, outcome: Outcome) -> tenure::Outcome {
        match outcome {
            Outcome::Ended { status, .. } | Outcome::Stopped(status) if status.success() => {
                tenure::Outcome::Done
            }
            // The terminal tells both, and the command may be gone before we have given up anything.
            Outcome::Ended { .. } if self.state().asked().is_some() => tenure::Outcome::Unfinished,
            Outcome::Ended { status, .. } => tenure::Outcome::Failed(said(status).into()),
            Outcome::Stopped(_) | Outcome::Done(_) => tenure::Outcome::Unfinished,
            Outcome::NotRun(_, failure) => tenure::Outcome::Failed(failure.to_string().into()),
            // All of it is over: whoever drives the campaign sees that the guard is gone, and drops this.
            Outcome::Unguarded(_) => std::future::pending().await,
        }
    }

    /// Runs the command if nobody has done it before.
    pub(super) async fn run_once(&self, name: &str, goes_on: bool) -> Result<Outcome, tenure::Error> {
        let mut once = self.worker.once_builder(name).priority(self.settings.priority);
        let (ownerships, failed_with) = (once.ownerships(), std::cell::Cell::new(Exit::FAILED));
        let run = async {
            let work = async |lead: Lead| {
                let outcome = self.under(&lead, named([("TENURE_JOB", name.to_owned())])).await;
                match &outcome {
                    Outcome::NotRun(exit, _) => failed_with.set(*exit),
                    Outcome::Ended { status, .. } => failed_with.set(Exit::of(*status)),
                    _ => {}
                }
                self.job_ended(outcome).await
            };
            let tried = if goes_on { once.try_run(work).await } else { once.run(work).await.map(Some) };
            self.tried_once(tried, failed_with.get())
        };
        self.drive(ownerships, run).await
    }

    fn tried_once(
        &self,
        tried: Result<Option<Once>, tenure::Error>,
        failed_with: Exit,
    ) -> Result<Outcome, tenure::Error> {
        let resource = self.settings.resource.as_str();
        match tried {
            Ok(Some(Once::Ran)) => Ok(Outcome::Done(Exit::OK)),
            Ok(Some(Once::Done { by, began, took })) => {
                output::done_before(resource, by.as_str(), UNIX_EPOCH + began.since_epoch(), took);
                Ok(Outcome::Done(Exit::OK))
            }
            Ok(None) => {
                output::under_way(resource);
                Ok(Outcome::Done(Exit::OK))
            }
            Err(error) if error.kind() == tenure::ErrorKind::Failed => {
                Ok(Outcome::NotRun(failed_with, Failure::from(error)))
            }
            // It ran, and that could not be written down: whoever asked us to stop has to know, too.
            Err(error) if error.kind() == tenure::ErrorKind::Unavailable => {
                Ok(Outcome::NotRun(Exit::FAILED, Failure::from(error)))
            }
            Err(error) => Err(error),
        }
    }

    /// What people should know of a job; that all is well they need not.
    fn tell_of(&self, cron: &Cron, change: &Change) {
        let job = cron.name.as_str();
        let at = |occurrence: &Occurrence| cron.schedule.show(UNIX_EPOCH + occurrence.since_epoch());
        match change {
            Change::Failed { occurrence, what } => output::job_failed(job, &at(occurrence), what),
            Change::Stopped { occurrence } => output::job_stopped(job, &at(occurrence)),
            Change::Interrupted { occurrence, worker } => {
                output::job_interrupted(job, &at(occurrence), worker.as_str());
            }
            Change::Missed { count } => output::job_left_out(job, *count, "nobody began them in time"),
            Change::Skipped { count, reason } => {
                let why = match reason {
                    tenure::jobs::cron::Skipped::StillRunning => "the one before was still running",
                    _ => "this host's clock is ahead of the store's",
                };
                output::job_left_out(job, *count, why);
            }
            Change::PlanChanged { before } => output::plan_changed(job, before, &cron.schedule.plan()),
            Change::Refused { what } => output::job_refused(job, what),
            _ => {}
        }
    }
}

fn named<const N: usize>(variables: [(&str, String); N]) -> Vec<(String, String)> {
    variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// How a command ended, as the store keeps it.
fn said(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "it ended, nobody knows how".to_owned(),
    }
}
