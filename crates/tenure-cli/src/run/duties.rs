//! What `tenure cron` and `tenure once` do with an ownership: run the command for each occurrence, or once.

use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::UNIX_EPOCH;

use tenure::Lead;
use tenure::jobs::cron::{Change, Skipped, Tick};
use tenure::jobs::{Occurrence, Once};

use super::{Outcome, Work};
use crate::exit::{Exit, Failure};
use crate::output::{say, say_with_hint, span};
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

    /// What the end of a command means for its job. Code 0 means done, even after the command was told to stop; any other end
    /// after that is not a failure of the job.
    async fn job_ended(&self, outcome: Outcome) -> tenure::Outcome {
        match outcome {
            Outcome::Ended { status, .. } | Outcome::Stopped(status) if status.success() => {
                tenure::Outcome::Done
            }
            // The terminal tells both, and the command may be gone before we have given up anything.
            Outcome::Ended { .. } if self.state().asked().is_some() => tenure::Outcome::Unfinished,
            Outcome::Ended { status, .. } => tenure::Outcome::Failed(said(status).into()),
            Outcome::Stopped(_) | Outcome::Done(_) => tenure::Outcome::Unfinished,
            Outcome::NotRun(failure) => tenure::Outcome::Failed(failure.to_string().into()),
            // All of it is over: whoever drives the campaign sees that the guard is gone, and drops this.
            Outcome::Unguarded(_) => std::future::pending().await,
        }
    }

    /// Runs the command if nobody has done it before.
    pub(super) async fn run_once(&self, name: &str, goes_on: bool) -> Result<Outcome, tenure::Error> {
        let mut once = self.worker.once_builder(name).priority(self.settings.priority);
        let ownerships = once.ownerships();
        let run = async {
            let mut failed_with = Exit::FAILED;
            let work = async |lead: Lead| {
                let outcome = self.under(&lead, named([("TENURE_JOB", name.to_owned())])).await;
                match &outcome {
                    Outcome::NotRun(failure) => failed_with = failure.exit(),
                    Outcome::Ended { status, .. } => failed_with = Exit::of(*status),
                    _ => {}
                }
                self.job_ended(outcome).await
            };
            let tried = if goes_on { once.try_run(work).await } else { once.run(work).await.map(Some) };
            self.tried_once(tried, failed_with)
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
                let ago = (UNIX_EPOCH + began.since_epoch())
                    .elapsed()
                    .map(|ago| format!(", {} ago", span(ago)))
                    .unwrap_or_default();
                say(format!("`{resource}` was done by `{by}`{ago}; it took {}", span(took)));
                Ok(Outcome::Done(Exit::OK))
            }
            Ok(None) => {
                say(format!("another worker runs `{resource}`; going on without waiting for it"));
                Ok(Outcome::Done(Exit::OK))
            }
            Err(error) if error.kind() == tenure::ErrorKind::Failed => {
                Ok(Outcome::NotRun(Failure::from(error).with_exit(failed_with)))
            }
            // It ran, and that could not be written down: whoever asked us to stop has to know, too.
            Err(error) if error.kind() == tenure::ErrorKind::Unavailable => Ok(Outcome::NotRun(error.into())),
            Err(error) => Err(error),
        }
    }

    /// Prints what people should know of a job. A run that went well is not news.
    fn tell_of(&self, cron: &Cron, change: &Change) {
        let job = cron.name.as_str();
        let at = |occurrence: &Occurrence| cron.schedule.show(UNIX_EPOCH + occurrence.since_epoch());
        let left_out = |count: u64, why: &str| {
            let many =
                if count == 1 { "1 occurrence is".to_owned() } else { format!("{count} occurrences are") };
            format!("`{job}`: {many} left out: {why}")
        };
        say(match change {
            Change::Failed { occurrence, what } => format!("`{job}` of {} failed: {what}", at(occurrence)),
            Change::Stopped { occurrence } => {
                format!("`{job}` of {} was stopped; the next owner finds it interrupted", at(occurrence))
            }
            Change::Interrupted { occurrence, worker } => format!(
                "`{job}` of {} was interrupted: `{worker}` had begun it, and did not say how it ended",
                at(occurrence)
            ),
            Change::Missed { count } => left_out(*count, "no worker started them in time"),
            Change::Skipped { count, reason: Skipped::StillRunning } => {
                left_out(*count, "the one before was still running")
            }
            Change::Skipped { count, .. } => left_out(*count, "this host's clock is ahead of the store's"),
            Change::PlanChanged { before } => {
                let now = cron.schedule.plan();
                let line =
                    format!("`{job}` had another plan until now: `{before}`; from now on it is `{now}`");
                return say_with_hint(
                    line,
                    Some("all workers of a job should have the same spec and time zone"),
                );
            }
            Change::Refused { what } => format!("`{job}`: the store cannot be asked: {what}"),
            _ => return,
        });
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
        (None, None) => "unknown end".to_owned(),
    }
}
