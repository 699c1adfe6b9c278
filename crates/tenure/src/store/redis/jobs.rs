//! Jobs, and what owners send: one script each.

use std::collections::BTreeMap;

use tenure_core::{
    Begin, Holder, JobAct, JobOutcome, JobSaid, JobStep, JobView, Payload, Published, ResourceName,
};

use super::answers::jobs as answers;
use super::answers::jobs::Jobs;
use super::ears::fan;
use super::scripts::{ATTEND, BEGIN, FINISH, LIST, PUBLISH};
use super::trouble::Outcome;
use super::{PATIENCE, RedisStore, hex, of_one, words};

impl RedisStore {
    pub(super) async fn take_step(&self, JobStep { holder, act }: &JobStep) -> Outcome<JobSaid> {
        let mut said = holder_words(holder);
        let script = match act {
            JobAct::Attend { plan, from } => {
                said.extend(words([plan.as_str(), &from.to_string()]));
                &ATTEND
            }
            JobAct::Begin(Begin { occurrence, missed, skipped, again }) => {
                let again = if *again { "again" } else { "" };
                said.extend(words([
                    &occurrence.to_string(),
                    &missed.to_string(),
                    &skipped.to_string(),
                    again,
                ]));
                &BEGIN
            }
            JobAct::Finish { occurrence, outcome, note } => {
                let outcome = match outcome {
                    JobOutcome::Ran => "ran",
                    JobOutcome::Failed => "failed",
                };
                said.extend(words([&occurrence.to_string(), outcome, note.as_str()]));
                &FINISH
            }
        };
        // Each step can be repeated, and is by those who are in a hurry.
        answers::said(self.claims.carry_for_the_hasty(PATIENCE, &self.question(script, &said)).await?)
    }

    pub(super) async fn read_jobs(&self, job: Option<&ResourceName>) -> Outcome<Vec<JobView>> {
        let (name, mut cursor) = (job.map_or("", ResourceName::as_str), String::new());
        // While others are made one may be told twice.
        let mut all = BTreeMap::new();
        loop {
            let Jobs { views, cursor: next, left_out } =
                answers::jobs(self.look(&LIST, [name, &cursor]).await?, job)?;
            all.extend(views.into_iter().map(|view| (view.job.clone(), view)));
            of_one(job, left_out)?;
            if next.is_empty() {
                return Ok(all.into_values().collect());
            }
            cursor = next;
        }
    }

    pub(super) async fn send(&self, holder: &Holder, payload: &Payload) -> Outcome<Published> {
        let mut said = holder_words(holder);
        said.push(fan(self.namespace.as_str(), &holder.resource).into_bytes());
        said.push(payload.as_bytes().to_vec());
        answers::published(self.claims.carry_for_the_hasty(PATIENCE, &self.question(&PUBLISH, &said)).await?)
    }
}

/// What a script is told of one who acts as an owner.
fn holder_words(holder: &Holder) -> Vec<Vec<u8>> {
    words([&hex(holder.lease), holder.resource.as_str(), &holder.token.0.to_string()])
}
