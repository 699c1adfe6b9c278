//! Rounds that are mostly about jobs: owners that come and go, and steps that come in any order.

use std::time::Duration;

use tenure_core::{
    Begin, Call, Closing, Holder, JobAct, JobOutcome, JobRecord, JobSaid, JobStep, JobView, LeaseId, Note,
    Occurrence, Plan, ResourceName,
};

use super::Round;
use super::compare::{Tokens, close};
use super::moves::Move;
use crate::conformance::Fixture;
use crate::conformance::world::*;

impl<F: Fixture> Round<'_, F> {
    pub(super) fn choose_for_jobs(&mut self) -> Move {
        match self.chance.below(100) {
            0..10 => Move::Pass(Duration::from_micros(1_000 + self.chance.below(150_000))),
            10..16 => self.join(),
            16..24 => self.send(Call::Renew),
            24..42 => self.claim(),
            42..50 => self.leave(),
            50..52 => self.send(Call::Close(Closing::Left)),
            52..54 => match self.known_token() {
                Some((resource, token)) => Move::Evict(resource, token),
                None => Move::Read,
            },
            54..95 => self.step_of_a_job(),
            _ => Move::Read,
        }
    }

    /// A step by somebody who owns the resource, or once did, or never.
    fn step_of_a_job(&mut self) -> Move {
        let Some((resource, token)) = self.known_token() else { return self.claim() };
        let owner = self.ledger.owner_of(resource.as_str(), self.tokens.term(&resource, token));
        let anybody = usize::try_from(self.chance.below(self.players.len() as u64)).unwrap_or(0);
        let anybody: LeaseId = self.players[anybody].lease;
        let lease = owner.filter(|_| self.chance.percent(92)).unwrap_or(anybody);
        let view = self.ledger.jobs(Some(resource.as_str())).pop();
        let through = view.as_ref().map_or(0, |view| view.through.as_millis());
        // Mostly the next, or the latest; small, so that no wall clock has a say in it, or far too early.
        let occurrence = match self.chance.below(10) {
            0..4 => through,
            4..8 => through + 1 + self.chance.below(3),
            8 => self.chance.below(through + 3),
            _ if self.chance.percent(30) => Occurrence::LAST.as_millis(),
            _ => through + 1,
        };
        let occurrence = Occurrence::new(occurrence).unwrap_or(Occurrence::LAST);
        let act = match self.chance.below(10) {
            0..2 => {
                let plan = self.chance.one_of(&["* * * * *", "0 6 * * *", "once"]);
                let from = Occurrence::new(self.chance.below(10)).unwrap_or_default();
                JobAct::Attend { plan: Plan::new(plan).expect("a valid plan"), from }
            }
            2..7 => JobAct::Begin(Begin {
                occurrence,
                missed: u32::try_from(self.chance.below(3)).unwrap_or(0),
                skipped: u32::try_from(self.chance.below(3)).unwrap_or(0),
                again: self.chance.percent(40),
            }),
            _ => JobAct::Finish {
                occurrence,
                outcome: self.chance.one_of(&[JobOutcome::Ran, JobOutcome::Failed]),
                note: Note::of(self.chance.one_of(&["", "it's \"done\"", "日本"])),
            },
        };
        Move::Job(JobStep { holder: Holder { lease, resource, token }, act })
    }

    /// Asks both, and adopts what the ledger makes of it.
    pub(super) async fn step_job(&mut self, step: JobStep) {
        let resource = step.holder.resource.clone();
        let before = self.world.now().await;
        let answer = answered(self.world.store.job(&step)).await;
        let after = self.world.now().await;
        self.slack = self.slack.max(after.since(before));

        let said = self.tokens.job_in_terms(&resource, answer.clone());
        let mut ours = step.clone();
        ours.holder.token = self.tokens.term(&resource, step.holder.token);
        let mut expected = vec![];
        for at in [before, after] {
            let mut ledger = self.ledger.clone();
            let theirs = ledger.job(self.here(at), &ours);
            if same_job_said(&said, &theirs, self.slack) {
                self.ledger = ledger;
                return;
            }
            expected.push(theirs);
        }
        let who = self.label_of(step.holder.lease);
        self.differ(&format!("{who} asked for {ours:?}"), &answer, &expected[0]);
    }

    /// Compares what can be read of the job of a resource.
    pub(super) async fn read_job(&mut self, resource: &ResourceName) {
        let views = answered(self.world.store.jobs(Some(resource))).await;
        let ours = self.ledger.jobs(Some(resource.as_str()));
        let in_terms = |mut view: JobView| {
            let records = view.records.into_iter();
            view.records = records.map(|record| self.tokens.record_in_terms(resource, record)).collect();
            view
        };
        let theirs: Vec<JobView> = views.into_iter().map(in_terms).collect();
        let agree = theirs.len() == ours.len()
            && theirs.iter().zip(&ours).all(|(theirs, ours)| same_job(theirs, ours, self.slack));
        if !agree {
            self.differ(&format!("a reader of the job {resource}"), &theirs, &ours);
        }
    }
}

impl Tokens {
    fn job_in_terms(&self, resource: &ResourceName, said: JobSaid) -> JobSaid {
        let terms = |record| self.record_in_terms(resource, record);
        match said {
            JobSaid::Attended { through, latest, replaced } => {
                JobSaid::Attended { through, latest: latest.map(terms), replaced }
            }
            JobSaid::Begun(record) => JobSaid::Begun(terms(record)),
            JobSaid::Finished(record) => JobSaid::Finished(terms(record)),
            JobSaid::Taken(record) => JobSaid::Taken(record.map(terms)),
            said => said,
        }
    }

    fn record_in_terms(&self, resource: &ResourceName, record: JobRecord) -> JobRecord {
        let (token, key_token) = (self.term(resource, record.token), self.term(resource, record.key_token));
        JobRecord { token, key_token, ..record }
    }
}

fn same_job_said(store: &JobSaid, ledger: &JobSaid, slack: Duration) -> bool {
    match (store, ledger) {
        (
            JobSaid::Attended { through, latest, replaced },
            JobSaid::Attended { through: through_too, latest: latest_too, replaced: replaced_too },
        ) => {
            (through, replaced) == (through_too, replaced_too)
                && same_records(latest.as_slice(), latest_too.as_slice(), slack)
        }
        (JobSaid::Begun(a), JobSaid::Begun(b)) | (JobSaid::Finished(a), JobSaid::Finished(b)) => {
            same_record(a, b, slack)
        }
        (JobSaid::Taken(a), JobSaid::Taken(b)) => same_records(a.as_slice(), b.as_slice(), slack),
        (a, b) => a == b,
    }
}

fn same_job(store: &JobView, ledger: &JobView, slack: Duration) -> bool {
    (&store.job, &store.plan, store.through, store.counts)
        == (&ledger.job, &ledger.plan, ledger.through, ledger.counts)
        && same_records(&store.records, &ledger.records, slack)
}

fn same_records(store: &[JobRecord], ledger: &[JobRecord], slack: Duration) -> bool {
    store.len() == ledger.len() && store.iter().zip(ledger).all(|(a, b)| same_record(a, b, slack))
}

/// The ledger's wall clock stands still; how long a run took goes by both of its ends.
fn same_record(store: &JobRecord, ledger: &JobRecord, slack: Duration) -> bool {
    let took = match (store.took, ledger.took) {
        (Some(a), Some(b)) => close(a, b, slack * 2),
        (a, b) => a == b,
    };
    let (began_at, took_too) = (store.began_at, store.took);
    took && *store == JobRecord { began_at, took: took_too, ..ledger.clone() }
}
