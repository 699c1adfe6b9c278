//! The rules of jobs, one test each.

use super::*;
use crate::job::{
    Begin, Holder, JOB_RECORDS, JobAct, JobCounts, JobOutcome, JobRecord, JobSaid, JobState, JobStep,
    JobView, Note, Occurrence,
};
use crate::names::Plan;

// who may

// req: E11
#[test]
fn only_the_owner_under_exactly_its_token_attends_and_begins() {
    let mut store = Store::new();
    let (a, b) = (store.owner("a"), store.wait("b"));
    store.attend(&a, 0);
    let before = store.world.records.clone();

    let wrong_token = Holder { token: Token(a.token.0 + 1), ..a.clone() };
    let wrong_lease = Holder { lease: b, ..a.clone() };
    let elsewhere = Holder { resource: name("elsewhere"), ..a.clone() };

    for holder in [wrong_token, wrong_lease, elsewhere] {
        assert_eq!(store.attend(&holder, 0), JobSaid::NotOwner);
        assert_eq!(store.begin(&holder, 1), JobSaid::NotOwner);
    }
    assert!(store.world.records == before);
}

#[test]
fn who_has_released_was_evicted_or_has_run_out_is_not_the_owner_and_nobody_is_marked() {
    for end in [
        |store: &mut Store, a: &Holder| assert_eq!(store.release(a.lease), Released::Free),
        |store: &mut Store, a: &Holder| assert_eq!(store.evict(a.token), StepDownReply::Done),
        |store: &mut Store, a: &Holder| store.close(a.lease, Closing::Left),
        |store: &mut Store, _: &Holder| store.pass(TTL),
    ] {
        let mut store = Store::new();
        let a = store.owner("a");
        store.attend(&a, 0);
        end(&mut store, &a);
        let before = store.world.records.clone();

        assert_eq!(store.attend(&a, 0), JobSaid::NotOwner);
        assert_eq!(store.begin(&a, 1), JobSaid::NotOwner);
        assert!(store.world.records == before);
    }
}

// attend

#[test]
fn attending_makes_the_job_and_nothing_before_it_counts() {
    let mut store = Store::new();
    let a = store.owner("a");

    let said = store.attend(&a, 5_000);

    assert_eq!(said, attended(5_000, None, None));
    assert_eq!(store.begin(&a, 5_000), JobSaid::Taken(None));
    assert_eq!(begun(store.begin(&a, 5_001)).attempt, 1);
}

#[test]
fn a_job_cannot_be_made_to_begin_in_the_future() {
    let mut store = Store::new();
    let a = store.owner("a");
    let last = store.world.wall / 1_000 + 60_000;

    let said = store.attend(&a, last + 5_000);

    assert_eq!(said, attended(last, None, None));
}

#[test]
fn attending_again_changes_nothing() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 5_000);
    let record = begun(store.begin(&a, 6_000));
    let before = store.world.records.clone();

    let said = store.attend(&a, 9_000);

    assert_eq!(said, attended(6_000, Some(record), None));
    assert!(store.world.records == before);
}

#[test]
fn another_plan_replaces_the_one_before_and_that_is_said_once() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend_with(&a, "0 6 * * *", 0);

    let first = store.attend_with(&a, "0 7 * * *", 0);
    let second = store.attend_with(&a, "0 7 * * *", 0);

    assert_eq!(first, attended(0, None, Some("0 6 * * *")));
    assert_eq!(second, attended(0, None, None));
    assert_eq!(store.job_view().plan.as_str(), "0 7 * * *");
}

#[test]
fn the_next_owner_finds_what_the_last_one_left_in_the_middle() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    let left = begun(store.begin(&a, 7));
    store.release(a.lease);
    let b = store.owner("b");

    let said = store.attend(&b, 0);

    let interrupted = JobRecord { state: JobState::Interrupted, ..left };
    assert_eq!(said, attended(7, Some(interrupted), None));
    assert_eq!(store.job_view().counts, JobCounts { interrupted: 1, ..JobCounts::default() });
}

// begin

// req: E11
#[test]
fn an_occurrence_is_claimed_once_whoever_asks() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    let record = begun(store.begin(&a, 7));
    store.finish(&a, 7, JobOutcome::Ran);
    store.release(a.lease);
    let b = store.owner("b");
    store.attend(&b, 0);

    for (occurrence, again) in [(7, false), (7, true), (6, false), (6, true)] {
        let said = store.step(&b, begin_of(occurrence, again));
        let JobSaid::Taken(Some(taken)) = said else { panic!("{said:?}") };
        assert_eq!((taken.occurrence, taken.token), (record.occurrence, a.token));
    }
    assert_eq!(begun(store.begin(&b, 8)).token, b.token);
}

#[test]
fn a_claim_is_written_down_with_who_when_and_what_was_left_out() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    let claim = Begin { occurrence: at(7), missed: 2, skipped: 3, again: false };

    let record = begun(store.step(&a, JobAct::Begin(claim)));

    let expected = JobRecord {
        occurrence: at(7),
        attempt: 1,
        token: a.token,
        key_token: a.token,
        worker: label("a"),
        began_at: crate::job::WallTime::from_micros(store.world.wall),
        state: JobState::Running,
        took: None,
        missed: 2,
        skipped: 3,
        note: Note::default(),
    };
    assert_eq!(record, expected);
    let JobView { through, counts, records, .. } = store.job_view();
    assert_eq!((through, records), (at(7), vec![expected]));
    assert_eq!(counts, JobCounts { missed: 2, skipped: 3, ..JobCounts::default() });
}

#[test]
fn beginning_again_under_the_same_token_gives_the_same_record() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    let first = store.begin(&a, 7);
    let before = store.world.records.clone();

    store.pass(secs(1));

    assert_eq!(store.begin(&a, 7), first);
    assert_eq!(store.step(&a, begin_of(7, true)), first);
    assert!(store.world.records == before);
}

#[test]
fn a_job_that_nobody_attended_is_unknown() {
    let mut store = Store::new();
    let a = store.owner("a");

    assert_eq!(store.begin(&a, 7), JobSaid::Unknown);
    assert_eq!(store.finish(&a, 7, JobOutcome::Ran), JobSaid::Unknown);
    assert!(store.resource("job").job.is_none());
}

#[test]
fn what_is_more_than_60_s_ahead_of_the_wall_clock_is_early_and_uses_nothing_up() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    let before = store.world.records.clone();
    let last = store.world.wall / 1_000 + 60_000;

    assert_eq!(store.begin(&a, last + 1), JobSaid::Early);
    assert!(store.world.records == before);
    assert_eq!(begun(store.begin(&a, last)).occurrence, at(last));
}

#[test]
fn a_failed_or_interrupted_occurrence_is_run_again_if_asked_for_under_the_same_key() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    let first = begun(store.begin(&a, 7));
    store.finish(&a, 7, JobOutcome::Failed);

    let unasked = store.begin(&a, 7);
    let late = store.step(&a, begin_of(7, true));
    store.release(a.lease);
    let b = store.owner("b");
    store.attend(&b, 0);
    let second = begun(store.step(&b, begin_of(7, true)));
    store.release(b.lease);
    let c = store.owner("c");
    store.attend(&c, 0);
    let third = begun(store.step(&c, begin_of(7, true)));

    assert!(matches!(unasked, JobSaid::Taken(Some(_))));
    assert!(matches!(late, JobSaid::Taken(Some(JobRecord { state: JobState::Failed, .. }))));
    assert_eq!((first.attempt, second.attempt, third.attempt), (1, 2, 3));
    assert_eq!((third.token, third.key_token, third.worker.as_str()), (c.token, a.token, "c"));
    let keys = [first, second, third].map(|record| record.key(&name("job")));
    assert!(keys.iter().all(|key| *key == format!("job/7/{}", a.token.0)), "{keys:?}");
    let JobView { counts, records, .. } = store.job_view();
    assert_eq!((counts.failed, counts.interrupted, records.len()), (1, 1, 1));
}

#[test]
fn what_is_run_again_begins_anew_with_nothing_of_the_attempt_before_but_its_key() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    let first = begun(store.begin(&a, 7));
    store.pass(secs(3));
    let (outcome, note) = (JobOutcome::Failed, Note::of("disk full"));
    store.step(&a, JobAct::Finish { occurrence: at(7), outcome, note });
    store.release(a.lease);
    let b = store.owner("b");

    let second = begun(store.step(&b, begin_of(7, true)));

    let began_at = crate::job::WallTime::from_micros(store.world.wall);
    assert_eq!(second, JobRecord { attempt: 2, token: b.token, worker: label("b"), began_at, ..first });
    store.pass(secs(1));
    let JobSaid::Finished(ended) = store.finish(&b, 7, JobOutcome::Ran) else { panic!("it runs") };
    assert_eq!(ended.took, Some(secs(1)), "of this attempt");
}

#[test]
fn what_runs_under_another_token_is_taken_unless_it_may_be_run_again() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    store.begin(&a, 7);
    store.release(a.lease);
    let b = store.owner("b");

    let unasked = store.begin(&b, 7);
    let asked = begun(store.step(&b, begin_of(7, true)));

    assert!(matches!(unasked, JobSaid::Taken(Some(JobRecord { state: JobState::Running, .. }))));
    assert_eq!((asked.attempt, asked.token), (2, b.token));
    assert_eq!(store.job_view().counts.interrupted, 1);
}

#[test]
fn going_on_to_the_next_leaves_the_last_one_interrupted() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    store.begin(&a, 7);

    begun(store.begin(&a, 8));

    let JobView { counts, records, .. } = store.job_view();
    let states: Vec<_> = records.iter().map(|record| record.state).collect();
    assert_eq!(states, [JobState::Interrupted, JobState::Running]);
    assert_eq!(counts.interrupted, 1);
}

// finish

#[test]
fn a_run_ends_with_its_outcome_its_length_and_a_note() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    let record = begun(store.begin(&a, 7));
    store.pass(secs(3));

    let (outcome, note) = (JobOutcome::Failed, Note::of("disk full"));
    let said = store.step(&a, JobAct::Finish { occurrence: at(7), outcome, note: note.clone() });

    let expected = JobRecord { state: JobState::Failed, took: Some(secs(3)), note, ..record };
    assert_eq!(said, JobSaid::Finished(expected.clone()));
    assert_eq!(store.job_view().records, [expected]);
    assert_eq!(store.job_view().counts, JobCounts { failed: 1, ..JobCounts::default() });
}

#[test]
fn a_run_that_ended_after_its_lease_did_is_written_down_all_the_same() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    store.begin(&a, 7);
    store.pass(TTL);

    assert!(matches!(store.finish(&a, 7, JobOutcome::Ran), JobSaid::Finished(_)));
}

#[test]
fn finishing_again_with_the_same_outcome_says_the_same_and_with_another_changes_nothing() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    store.begin(&a, 7);
    let first = store.finish(&a, 7, JobOutcome::Ran);
    let before = store.world.records.clone();

    store.pass(secs(1));

    assert_eq!(store.finish(&a, 7, JobOutcome::Ran), first);
    assert!(matches!(store.finish(&a, 7, JobOutcome::Failed), JobSaid::Taken(Some(_))));
    assert!(store.world.records == before);
}

#[test]
fn what_is_not_ones_own_latest_run_is_not_finished() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    assert_eq!(store.finish(&a, 7, JobOutcome::Ran), JobSaid::Taken(None));
    store.begin(&a, 7);
    store.begin(&a, 8);
    store.release(a.lease);
    let b = store.owner("b");
    let before = store.world.records.clone();

    let earlier = store.finish(&a, 7, JobOutcome::Ran);
    let anothers = store.finish(&b, 8, JobOutcome::Ran);
    assert!(matches!((earlier, anothers), (JobSaid::Taken(Some(_)), JobSaid::Taken(Some(_)))));
    assert!(store.world.records == before);

    store.attend(&b, 0);
    let interrupted = store.finish(&a, 8, JobOutcome::Ran);
    assert!(matches!(interrupted, JobSaid::Taken(Some(JobRecord { state: JobState::Interrupted, .. }))));
}

// what is kept

// req: E13
#[test]
fn what_was_done_once_is_never_forgotten() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    begun(store.step(&a, JobAct::Begin(once())));
    store.finish(&a, 1, JobOutcome::Ran);
    store.close(a.lease, Closing::Left);

    store.pass(HOUR * 24 * 400);
    let b = store.owner("b");
    store.attend(&b, 0);
    let said = store.step(&b, JobAct::Begin(once()));

    let JobSaid::Taken(Some(record)) = said else { panic!("{said:?}") };
    assert_eq!((record.worker.as_str(), record.state), ("a", JobState::Ran));
}

#[test]
fn the_last_50_records_are_kept_oldest_first_and_a_list_of_all_has_the_latest() {
    let mut store = Store::new();
    let a = store.owner("a");
    store.attend(&a, 0);
    for occurrence in 1..=55 {
        store.begin(&a, occurrence);
        store.finish(&a, occurrence, JobOutcome::Ran);
    }

    let occurrences =
        |view: &JobView| view.records.iter().map(|record| record.occurrence.as_millis()).collect::<Vec<_>>();
    assert_eq!(occurrences(&store.job_view()), (6..=55).collect::<Vec<_>>());
    assert_eq!(store.job_view().records.len(), JOB_RECORDS);
    let Some(Value::Runs(runs)) = store.world.value(&Key::Runs(name("job"))) else { panic!("no runs") };
    assert_eq!(runs.runs.len(), JOB_RECORDS - 1, "the latest run is in the resource");
    assert_eq!(store.job_view().counts.ran, 55);
    let latest = job_view(&name("job"), &store.resource("job"), None).unwrap();
    assert_eq!(occurrences(&latest), [55]);
}

// short words

impl Store {
    /// A new worker that owns `job`.
    fn owner(&mut self, label: &'static str) -> Holder {
        let lease = self.open(label);
        let token = granted(self.claim(lease)).token;
        Holder { lease, resource: name("job"), token }
    }

    fn step(&mut self, holder: &Holder, act: JobAct) -> JobSaid {
        let step = JobStep { holder: holder.clone(), act };
        match self.world.act_as(holder.lease, Act::Job(step)) {
            Reply::Job(said) => said,
            other => panic!("{other:?}"),
        }
    }

    fn attend(&mut self, holder: &Holder, from: u64) -> JobSaid {
        self.attend_with(holder, "* * * * *", from)
    }

    fn attend_with(&mut self, holder: &Holder, plan: &str, from: u64) -> JobSaid {
        self.step(holder, JobAct::Attend { plan: Plan::new(plan).unwrap(), from: at(from) })
    }

    fn begin(&mut self, holder: &Holder, occurrence: u64) -> JobSaid {
        self.step(holder, begin_of(occurrence, false))
    }

    fn finish(&mut self, holder: &Holder, occurrence: u64, outcome: JobOutcome) -> JobSaid {
        self.step(holder, JobAct::Finish { occurrence: at(occurrence), outcome, note: Note::default() })
    }

    #[track_caller]
    fn job_view(&self) -> JobView {
        let earlier = match self.world.find(&Key::Runs(name("job"))).value {
            Some(Value::Runs(runs)) => Some(runs),
            _ => None,
        };
        job_view(&name("job"), &self.resource("job"), earlier.as_ref()).unwrap()
    }
}

fn at(millis: u64) -> Occurrence {
    Occurrence::new(millis).unwrap()
}

fn begin_of(occurrence: u64, again: bool) -> JobAct {
    JobAct::Begin(Begin { occurrence: at(occurrence), missed: 0, skipped: 0, again })
}

fn once() -> Begin {
    Begin { occurrence: Occurrence::ONCE, missed: 0, skipped: 0, again: true }
}

fn attended(through: u64, latest: Option<JobRecord>, replaced: Option<&str>) -> JobSaid {
    let replaced = replaced.map(|plan| Plan::new(plan).unwrap());
    JobSaid::Attended { through: at(through), latest, replaced }
}

#[track_caller]
fn begun(said: JobSaid) -> JobRecord {
    match said {
        JobSaid::Begun(record) => record,
        said => panic!("not begun: {said:?}"),
    }
}
