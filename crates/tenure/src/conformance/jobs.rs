//! Jobs: an occurrence is claimed once, by the owner, and what became of it is kept.
//!
//! Occurrences here are small numbers: long past by every store's wall clock, and ahead of it by none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::{
    Begin, Call, Claimed, Closing, Holder, JOB_RECORDS, JobAct, JobCounts, JobOutcome, JobRecord, JobSaid,
    JobState, JobStep, JobView, Leaving, Metadata, Note, Occurrence, Plan, Released, Said, StepDownReply,
    Token,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::chance::Chance;
use super::reading::HOSTILE;
use super::world::*;
use super::{Fixture, Restarted};
use crate::store::Store;

/// The plan of most jobs here.
const PLAN: &str = "* * * * *";

/// A wrong token, another's lease, another resource: not the owner, and nothing changes.
pub async fn only_the_owner_under_exactly_its_token_attends_and_begins(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let (a, b) = (world.holder("a").await, world.wait("b").await);
    world.attend(&a, 0).await;
    let before = world.job().await;

    let wrong_token = Holder { token: Token(a.token.0 + 1), ..a.clone() };
    let wrong_lease = Holder { lease: b, ..a.clone() };
    let unknown_lease = Holder { lease: fresh(), ..a.clone() };
    let elsewhere = Holder { resource: name("elsewhere"), ..a.clone() };
    for holder in [&wrong_token, &wrong_lease, &unknown_lease, &elsewhere] {
        assert_eq!(world.attend(holder, 0).await, JobSaid::NotOwner);
        assert_eq!(world.begin(holder, 1).await, JobSaid::NotOwner);
    }

    assert_eq!(world.job().await, before);
    assert!(answered(world.store.jobs(Some(&name("elsewhere")))).await.is_empty());
}

/// A ticket that was given up, or taken away, or went with its lease, gives no right to a job.
pub async fn who_has_released_was_evicted_or_closed_is_not_the_owner_of_a_job(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    for (turn, end) in ["release", "step down", "evict", "close"].into_iter().enumerate() {
        let a = world.holder("a").await;
        world.attend(&a, 0).await;
        match end {
            "release" => assert_eq!(world.release(a.lease).await, Released::Free),
            "step down" => assert!(matches!(world.step_down(a.lease).await, Released::Again(_))),
            "evict" => assert_eq!(world.evict(a.token).await, StepDownReply::Done),
            _ => world.close(a.lease, Closing::Left).await,
        }
        let before = world.job().await;

        assert_eq!(world.attend(&a, 0).await, JobSaid::NotOwner, "after: {end}");
        assert_eq!(world.begin(&a, 1 + turn as u64).await, JobSaid::NotOwner, "after: {end}");
        assert_eq!(world.job().await, before);
        world.close(a.lease, Closing::Left).await;
    }
}

/// By the store's clock alone, and without a mark: whoever vouches for an earlier time finds the lease alive still.
pub async fn a_holder_that_ran_out_is_not_the_owner_and_is_not_marked(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder_for("a", SHORT).await;
    world.attend(&a, 0).await;
    let in_time = world.now().await;
    world.pass(SHORT).await;

    assert_eq!(world.begin(&a, 1).await, JobSaid::NotOwner);
    assert_eq!(world.attend(&a, 0).await, JobSaid::NotOwner);

    world.judged_by = Some(in_time);
    assert_eq!(world.renew(a.lease).await, kept());
    world.begun(&a, 1).await;
}

/// A new job begins where its first owner says: nothing before it counts.
pub async fn attending_makes_the_job_and_nothing_before_it_counts(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;

    assert_eq!(world.attend(&a, 5_000).await, attended(5_000, None, None));

    assert_eq!(world.begin(&a, 4_999).await, JobSaid::Taken(None));
    assert_eq!(world.begin(&a, 5_000).await, JobSaid::Taken(None));
    let record = world.begun(&a, 5_001).await;
    assert_eq!((record.occurrence, record.attempt), (at(5_001), 1));
}

/// Attending again, for instance because the answer was lost, changes nothing.
pub async fn attending_again_changes_nothing(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    world.attend(&a, 5_000).await;
    let record = world.begun(&a, 6_000).await;
    let before = world.job().await;

    assert_eq!(world.attend(&a, 9_000).await, attended(6_000, Some(record), None));
    assert_eq!(world.job().await, before);
}

/// A worker whose clock runs ahead cannot make a job that rests until then.
pub async fn a_job_cannot_be_made_to_begin_in_the_future(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    world.attend(&a, 0).await;
    let wall = world.begun(&a, 1).await.began_at;
    let elsewhere = world.holder_at("b", "elsewhere").await;

    let said = world.step(&elsewhere, attend_of(PLAN, Occurrence::LAST)).await;

    let JobSaid::Attended { through, .. } = said else { panic!("{said:?}") };
    let first = wall.head_start().as_millis();
    assert!((first..first + 20_000).contains(&through.as_millis()), "{through} at {wall:?}");
}

/// Another plan replaces the one before; whoever brings it is told.
pub async fn another_plan_replaces_the_one_before_and_that_is_said_once(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    let (longest, strange) = ("p".repeat(200), "0 6 * * * Europe/Berlin 'it\"s' {x} %s 日本");
    world.attend_with(&a, "0 6 * * *").await;

    for (before, after) in [("0 6 * * *", &*longest), (&*longest, strange)] {
        assert_eq!(world.attend_with(&a, after).await, attended(0, None, Some(before)));
        assert_eq!(world.attend_with(&a, after).await, attended(0, None, None));
        assert_eq!(world.job().await.plan.as_str(), after);
    }
    // What a new plan would have had before it was brought was never to be; a mark that is further on stays.
    assert_eq!(world.step(&a, attend_of("new", at(9))).await, attended(9, None, Some(strange)));
    assert_eq!(world.step(&a, attend_of("newer", at(5))).await, attended(9, None, Some("new")));
    assert_eq!(world.step(&a, attend_of("newer", at(20))).await, attended(9, None, None));
}

/// What the last owner left in the middle is interrupted as soon as the next one takes the job up.
pub async fn the_next_owner_finds_what_the_last_one_left_in_the_middle(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    world.attend(&a, 0).await;
    let left = world.begun(&a, 7).await;
    world.release(a.lease).await;
    let b = world.holder("b").await;

    let interrupted = JobRecord { state: JobState::Interrupted, ..left };
    assert_eq!(world.attend(&b, 0).await, attended(7, Some(interrupted.clone()), None));
    assert_eq!(world.attend(&b, 0).await, attended(7, Some(interrupted.clone()), None));

    let JobView { counts, records, .. } = world.job().await;
    assert_eq!(records, [interrupted]);
    assert_eq!(counts, JobCounts { interrupted: 1, ..JobCounts::default() });
}

/// Whoever asks, under whatever token: what was claimed is not claimed again, nor anything before it.
// req: E11
pub async fn an_occurrence_is_claimed_once_whoever_asks(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    world.attend(&a, 0).await;
    world.begun(&a, 7).await;
    let finished = world.finish(&a, 7, JobOutcome::Ran).await;
    let JobSaid::Finished(record) = finished else { panic!("{finished:?}") };
    assert_eq!(world.begin(&a, 7).await, JobSaid::Taken(Some(record.clone())));
    world.release(a.lease).await;
    let b = world.holder("b").await;
    world.attend(&b, 0).await;

    for (occurrence, again) in [(7, false), (7, true), (6, false), (6, true), (1, false)] {
        let said = world.step(&b, begin_of(occurrence, again)).await;
        assert_eq!(said, JobSaid::Taken(Some(record.clone())), "{occurrence}, again: {again}");
    }
    assert_eq!(world.begun(&b, 8).await.token, b.token);
    assert_eq!(world.job().await.through, at(8));
}

/// Who, when, and how many were left out before it.
pub async fn a_claim_is_written_down_with_who_when_and_what_was_left_out(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("it's \"a\" label").await;
    world.attend(&a, 0).await;
    let claim = |occurrence, missed, skipped| {
        JobAct::Begin(Begin { occurrence: at(occurrence), missed, skipped, again: false })
    };

    let before = world.now().await;
    let first = begun(world.step(&a, claim(7, 2, u32::MAX)).await);
    let after = world.now().await;
    world.pass(SHORT).await;
    let before_second = world.now().await;
    let second = begun(world.step(&a, claim(8, 1, 1)).await);
    let after_second = world.now().await;

    let expected = JobRecord {
        occurrence: at(7),
        attempt: 1,
        token: a.token,
        key_token: a.token,
        worker: label("it's \"a\" label"),
        began_at: first.began_at,
        state: JobState::Running,
        took: None,
        missed: 2,
        skipped: u32::MAX,
        note: Note::default(),
    };
    assert_eq!(first, expected);
    let between = Duration::from_micros(second.began_at.as_micros() - first.began_at.as_micros());
    let (least, most) = (before_second.since(after), after_second.since(before));
    assert!(
        between + TOLERANCE >= least && between <= most + TOLERANCE,
        "{between:?} of {least:?} to {most:?}"
    );
    let counts = world.job().await.counts;
    assert_eq!((counts.missed, counts.skipped), (3, u64::from(u32::MAX) + 1));
}

/// The answer to a claim may be lost: asking again under the same token gives the same record.
pub async fn beginning_again_under_the_same_token_gives_the_same_record(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    world.attend(&a, 0).await;
    let first = world.begin(&a, 7).await;
    let before = world.job().await;
    world.pass(TOLERANCE * 2).await;

    assert_eq!(world.begin(&a, 7).await, first);
    assert_eq!(world.step(&a, begin_of(7, true)).await, first);

    assert_eq!(world.job().await, before);
}

/// Nobody begins or finishes what nobody took up.
pub async fn a_job_that_nobody_attended_is_unknown(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;

    assert_eq!(world.begin(&a, 7).await, JobSaid::Unknown);
    assert_eq!(world.finish(&a, 7, JobOutcome::Ran).await, JobSaid::Unknown);

    assert!(answered(world.store.jobs(None)).await.is_empty());
    assert!(answered(world.store.jobs(Some(&name(JOB)))).await.is_empty());
}

/// A worker whose clock runs ahead must not use up the future.
pub async fn what_is_more_than_60_s_ahead_of_the_wall_clock_is_early(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    world.attend(&a, 0).await;
    let last = world.begun(&a, 1).await.began_at.head_start().as_millis();
    let before = world.job().await;

    // Not by a millisecond: the store's clock goes on meanwhile.
    for early in [last + 20_000, Occurrence::LAST.as_millis()] {
        assert_eq!(world.begin(&a, early).await, JobSaid::Early);
    }
    assert_eq!(world.job().await, before);
    assert_eq!(world.begun(&a, last).await.occurrence, at(last));
}

/// A repetition is another attempt at the same occurrence, under the key of the first.
pub async fn a_failed_or_interrupted_occurrence_is_run_again_if_asked_for_under_the_same_key(
    fixture: impl Fixture,
) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    world.attend(&a, 0).await;
    let first = world.begun(&a, 7).await;
    let failed = world.finish_with(&a, 7, JobOutcome::Failed, "no").await;
    let JobSaid::Finished(failed) = failed else { panic!("{failed:?}") };

    assert_eq!(world.begin(&a, 7).await, JobSaid::Taken(Some(failed.clone())));
    // Under the same token it would be a late request.
    assert_eq!(world.step(&a, begin_of(7, true)).await, JobSaid::Taken(Some(failed)));
    world.release(a.lease).await;
    let b = world.holder("b").await;
    world.attend(&b, 0).await;
    let second = begun(world.step(&b, begin_of(7, true)).await);
    world.release(b.lease).await;
    let c = world.holder("c").await;
    world.attend(&c, 0).await;
    let third = begun(world.step(&c, begin_of(7, true)).await);

    assert_eq!((first.attempt, second.attempt, third.attempt), (1, 2, 3));
    assert_eq!((second.state, second.took, second.note.as_str()), (JobState::Running, None, ""));
    assert_eq!((third.token, third.key_token, third.worker.as_str()), (c.token, a.token, "c"));
    let keys = [first, second, third.clone()].map(|record| record.key(&name(JOB)));
    assert!(keys.iter().all(|key| *key == format!("{JOB}/7/{}", a.token.0)), "{keys:?}");
    let JobView { counts, records, through, .. } = world.job().await;
    assert_eq!((counts.failed, counts.interrupted, through, records), (1, 1, at(7), vec![third]));
}

/// Also without `attend`: what runs under another token may be run again only if asked for.
pub async fn what_runs_under_another_token_is_taken_unless_it_may_be_run_again(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    world.attend(&a, 0).await;
    let running = world.begun(&a, 7).await;
    world.release(a.lease).await;
    let b = world.holder("b").await;

    assert_eq!(world.begin(&b, 7).await, JobSaid::Taken(Some(running)));
    let again = begun(world.step(&b, begin_of(7, true)).await);

    assert_eq!((again.attempt, again.token, again.key_token), (2, b.token, a.token));
    assert_eq!(world.job().await.counts.interrupted, 1);
}

/// Only the latest can be running.
pub async fn going_on_to_the_next_leaves_the_last_one_interrupted(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    world.attend(&a, 0).await;
    world.begun(&a, 7).await;

    world.begun(&a, 8).await;

    let JobView { counts, records, .. } = world.job().await;
    let states: Vec<JobState> = records.iter().map(|record| record.state).collect();
    assert_eq!(states, [JobState::Interrupted, JobState::Running]);
    assert_eq!(counts, JobCounts { interrupted: 1, ..JobCounts::default() });
}

/// How it ended, how long it took, and what the work had to say.
pub async fn a_run_ends_with_its_outcome_its_length_and_a_note(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    world.attend(&a, 0).await;
    let (longest, strange) = ("n".repeat(200), "it's \"full\"; -- {x} %s \\n 日本 🦀");
    let runs = [(7, JobOutcome::Failed, &*longest), (8, JobOutcome::Ran, strange), (9, JobOutcome::Ran, "")];

    for (occurrence, outcome, note) in runs {
        let before = world.now().await;
        let record = world.begun(&a, occurrence).await;
        let began_at = world.now().await;
        world.pass(STEP).await;
        let ended_at = world.now().await;
        let said = world.finish_with(&a, occurrence, outcome, note).await;
        let after = world.now().await;

        let JobSaid::Finished(finished) = said else { panic!("{said:?}") };
        let took = finished.took.expect("a run that has ended took some time");
        let (least, most) = (ended_at.since(began_at), after.since(before));
        assert!(took + TOLERANCE >= least && took <= most + TOLERANCE, "{took:?} of {least:?} to {most:?}");
        let expected =
            JobRecord { state: outcome.into(), took: finished.took, note: Note::of(note), ..record };
        assert_eq!(finished, expected);
        assert_eq!(world.job().await.records.last(), Some(&expected));
    }
    assert_eq!(world.job().await.counts, JobCounts { ran: 2, failed: 1, ..JobCounts::default() });
}

/// That it ran is true, whatever became of the lease.
pub async fn a_run_that_ended_after_its_lease_did_is_written_down_all_the_same(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder_for("a", SHORT).await;
    world.attend(&a, 0).await;
    world.begun(&a, 7).await;
    world.pass(SHORT).await;
    let b = world.holder("b").await;

    let said = world.finish(&a, 7, JobOutcome::Ran).await;

    assert!(matches!(&said, JobSaid::Finished(record) if record.state == JobState::Ran), "{said:?}");
    world.attend(&b, 0).await;
    assert_eq!(world.job().await.counts, JobCounts { ran: 1, ..JobCounts::default() });
}

/// The answer may be lost: the same again is the same; another outcome comes too late.
pub async fn finishing_again_says_the_same_and_another_outcome_changes_nothing(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    world.attend(&a, 0).await;
    world.begun(&a, 7).await;
    let first = world.finish_with(&a, 7, JobOutcome::Ran, "first").await;
    let before = world.job().await;
    world.pass(TOLERANCE * 2).await;

    assert_eq!(world.finish_with(&a, 7, JobOutcome::Ran, "second").await, first);
    let another = world.finish(&a, 7, JobOutcome::Failed).await;

    assert_eq!(another, JobSaid::Taken(before.records.last().cloned()));
    assert_eq!(world.job().await, before);
}

/// Another occurrence, another's run, one that was interrupted: nothing changes.
pub async fn what_is_not_ones_own_latest_run_is_not_finished(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder("a").await;
    world.attend(&a, 0).await;
    assert_eq!(world.finish(&a, 7, JobOutcome::Ran).await, JobSaid::Taken(None));
    world.begun(&a, 7).await;
    let running = world.begun(&a, 8).await;
    world.release(a.lease).await;
    let b = world.holder("b").await;
    let before = world.job().await;

    for (holder, occurrence) in [(&a, 7), (&a, 9), (&b, 8)] {
        let said = world.finish(holder, occurrence, JobOutcome::Ran).await;
        assert_eq!(said, JobSaid::Taken(Some(running.clone())), "{occurrence}");
    }
    assert_eq!(world.job().await, before);

    world.attend(&b, 0).await;
    let interrupted = JobRecord { state: JobState::Interrupted, ..running };
    assert_eq!(world.finish(&a, 8, JobOutcome::Ran).await, JobSaid::Taken(Some(interrupted)));
    assert_eq!(world.job().await.counts, JobCounts { interrupted: 2, ..JobCounts::default() });
}

/// The latest record is for ever: that is what makes once once.
// req: E13
pub async fn what_was_done_once_is_not_done_again(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let once = || JobAct::Begin(Begin { occurrence: Occurrence::ONCE, missed: 0, skipped: 0, again: true });
    let a = world.holder("a").await;
    world.attend_with(&a, "once").await;
    begun(world.step(&a, once()).await);
    world.finish(&a, 1, JobOutcome::Failed).await;
    world.close(a.lease, Closing::Left).await;

    let b = world.holder("b").await;
    world.attend_with(&b, "once").await;
    assert_eq!(begun(world.step(&b, once()).await).attempt, 2, "the next one tries");
    world.finish(&b, 1, JobOutcome::Ran).await;
    world.close(b.lease, Closing::Left).await;

    let c = world.holder("c").await;
    world.attend_with(&c, "once").await;
    let said = world.step(&c, once()).await;
    let JobSaid::Taken(Some(record)) = said else { panic!("{said:?}") };
    assert_eq!((record.worker.as_str(), record.state), ("b", JobState::Ran));
}

/// Bounded: the oldest go first, the counts stay.
pub async fn the_last_50_records_are_kept_oldest_first(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.holder_for("a", HOUR).await;
    world.attend(&a, 0).await;
    for occurrence in 1..=JOB_RECORDS as u64 + 3 {
        world.begun(&a, occurrence).await;
        world.finish(&a, occurrence, JobOutcome::Ran).await;
    }

    let JobView { records, counts, through, .. } = world.job().await;
    let kept: Vec<u64> = records.iter().map(|record| record.occurrence.as_millis()).collect();
    assert_eq!(kept, (4..=JOB_RECORDS as u64 + 3).collect::<Vec<_>>());
    assert!(records.iter().all(|record| record.state == JobState::Ran), "{records:?}");
    assert_eq!((counts.ran, through), (JOB_RECORDS as u64 + 3, at(JOB_RECORDS as u64 + 3)));
}

/// A list of all jobs has each with its latest record, by name; resources without a job are not in it.
pub async fn reading_all_jobs_lists_them_by_name_with_the_latest_record(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.holder_at("nobody", "no job").await;
    for (job, runs) in [("cron:b", 2), ("cron:a", 1), ("once:c", 0)] {
        let holder = world.holder_at("a", job).await;
        world.attend(&holder, 0).await;
        for occurrence in 1..=runs {
            world.begun(&holder, occurrence).await;
        }
    }

    let views = answered(world.store.jobs(None)).await;

    let seen: Vec<(&str, u64, Vec<u64>)> = views
        .iter()
        .map(|view| {
            let records = view.records.iter().map(|record| record.occurrence.as_millis()).collect();
            (view.job.as_str(), view.through.as_millis(), records)
        })
        .collect();
    assert_eq!(seen, [("cron:a", 1, vec![1]), ("cron:b", 2, vec![2]), ("once:c", 0, vec![])]);
}

/// A name is data, for jobs as for resources.
pub async fn jobs_with_hostile_names_are_jobs_like_others(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let (longest, wide) = ("n".repeat(200), "é".repeat(100));
    let alike = ["job", "Job", "job ", "1", "01"];
    let names: Vec<&str> = HOSTILE.into_iter().chain([&*longest, &*wide]).chain(alike).collect();
    let lease = world.open_for("a", HOUR).await;

    for (index, job) in (1..).zip(&names) {
        let token = granted(world.claim_at(lease, job).await).token;
        let holder = Holder { lease, resource: name(job), token };
        assert_eq!(world.attend(&holder, 0).await, attended(0, None, None), "{job:?} was taken for another");
        assert_eq!(world.begun(&holder, index).await.key(&name(job)), format!("{job}/{index}/{}", token.0));
        assert!(matches!(world.finish(&holder, index, JobOutcome::Ran).await, JobSaid::Finished(_)));
    }

    for (index, job) in (1..).zip(&names) {
        let views = answered(world.store.jobs(Some(&name(job)))).await;
        assert!(views.len() == 1 && views[0].job.as_str() == *job, "{job:?}: {views:?}");
        assert_eq!((views[0].through, views[0].counts.ran), (at(index), 1), "{job:?}");
    }
    assert_eq!(answered(world.store.jobs(None)).await.len(), names.len());
}

/// Where the incarnation stays, nothing is lost. Where it changes, what there is can be read, and the next owner goes on.
pub async fn jobs_outlive_a_restart_that_keeps_the_data(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    // Short, so that a quarantine does not last; long enough to outlast the restart of a server in one life.
    let a = world.holder_for("a", SHORT * 6).await;
    world.attend(&a, 0).await;
    world.begun(&a, 7).await;
    world.finish_with(&a, 7, JobOutcome::Failed, "why").await;
    world.begun(&a, 8).await;
    let before = world.job().await;

    let restarted = world.restart().await;

    let after = answered(world.store.jobs(Some(&name(JOB)))).await;
    match restarted {
        Restarted::SameLife => {
            assert_eq!(after, [before]);
            assert!(matches!(world.finish(&a, 8, JobOutcome::Ran).await, JobSaid::Finished(_)));
        }
        Restarted::NewLife => {
            let b = world.open_for("b", SHORT * 6).await;
            let token = loop {
                match world.claim(b).await {
                    Claimed::Granted(grant) => break grant.token,
                    Claimed::Waiting(_) => world.pass(STEP).await,
                }
                assert_eq!(world.renew(b).await, kept());
            };
            let b = Holder { lease: b, resource: name(JOB), token };
            world.attend(&b, 0).await;
            assert_eq!(world.begun(&b, 9).await.token, b.token);
        }
    }
}

/// How many workers there are at once, and how many occurrences there are to claim.
const WORKERS: u64 = 12;
const OCCURRENCES: usize = 150;
/// A store that works needs a few seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Owners come and go, and each claims once more while it gives up its ticket: taken together, every occurrence was claimed
/// by one of them, and none was left out.
pub async fn many_owners_at_once_claim_each_occurrence_once(fixture: impl Fixture) {
    let claimed = Arc::<Mutex<BTreeMap<u64, Token>>>::default();
    let until = Instant::now() + LIMIT;

    let mut tasks = JoinSet::new();
    for number in 0..WORKERS {
        tasks.spawn(hurry(number, fixture.store(), claimed.clone(), until));
    }
    while let Some(done) = tasks.join_next().await {
        // The first mistake is the one to look at; the others are dropped with the set.
        done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }

    let claimed = std::mem::take(&mut *claimed.lock().unwrap_or_else(PoisonError::into_inner));
    let all: Vec<u64> = claimed.keys().copied().collect();
    assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>(), "none was left out");
    let view = answered(fixture.store().jobs(Some(&name(JOB)))).await.remove(0);
    assert_eq!(view.through.as_millis(), all.len() as u64);
    let JobCounts { ran, failed, interrupted, .. } = view.counts;
    let running = view.records.iter().filter(|record| record.state == JobState::Running).count() as u64;
    assert_eq!((ran + interrupted + running, failed), (all.len() as u64, 0));
    for record in view.records {
        assert_eq!((Some(&record.token), record.attempt), (claimed.get(&record.occurrence.as_millis()), 1));
    }
}

/// One worker that owns for a moment, again and again.
async fn hurry(
    number: u64,
    store: Arc<dyn Store>,
    claimed: Arc<Mutex<BTreeMap<u64, Token>>>,
    until: Instant,
) {
    let count = || claimed.lock().unwrap_or_else(PoisonError::into_inner).len();
    let note = |record: &JobRecord| {
        let occurrence = record.occurrence.as_millis();
        let before = claimed.lock().unwrap_or_else(PoisonError::into_inner).insert(occurrence, record.token);
        assert_eq!(before, None, "{occurrence} was claimed before: {record:?}");
    };
    let mut chance = Chance::new(number);
    let (lease, mut seq) = (fresh(), 0);
    let mut next = |call| {
        seq += 1;
        request(lease, seq, None, call)
    };
    let open = next(Call::Open { ttl: HOUR, label: label("worker"), metadata: Metadata::default() });
    assert_eq!(answered(store.call(&open)).await.said, Said::Opened);
    while count() < OCCURRENCES {
        assert!(Instant::now() < until, "{} occurrences within {LIMIT:?}", count());
        let claim = next(claim_of(JOB));
        let Claimed::Granted(grant) = only_claimed(answered(store.call(&claim)).await.said) else {
            tokio::time::sleep(Duration::from_millis(1 + chance.below(10))).await;
            continue;
        };
        let holder = Holder { lease, resource: name(JOB), token: grant.token };
        let step = |act| JobStep { holder: holder.clone(), act };
        let said = answered(store.job(&step(attend_of(PLAN, at(0))))).await;
        let JobSaid::Attended { through, .. } = said else { panic!("{said:?}") };
        let mut upcoming = through.as_millis() + 1;
        for _ in 0..chance.below(3) {
            note(&begun(answered(store.job(&step(begin_of(upcoming, false)))).await));
            if chance.percent(80) {
                let (occurrence, outcome) = (at(upcoming), JobOutcome::Ran);
                let finish = step(JobAct::Finish { occurrence, outcome, note: Note::default() });
                let said = answered(store.job(&finish)).await;
                assert!(matches!(said, JobSaid::Finished(_)), "{said:?}");
            }
            upcoming += 1;
        }
        // Three at once: the claim, the same again, and the end of the right to it.
        let late = step(begin_of(upcoming, false));
        let how = chance.one_of(&[Leaving::Released, Leaving::Failed]);
        let release = next(Call::Release(vec![tenure_core::Leave { resource: name(JOB), how }]));
        let (one, two, released) = tokio::join!(
            answered(store.job(&late)),
            answered(store.job(&late)),
            answered(store.call(&release))
        );
        assert_eq!(released.said, Said::Released(vec![Released::Free]));
        // If both were in time they are one claim.
        for said in [&one, &two] {
            assert!(matches!(said, JobSaid::Begun(_) | JobSaid::NotOwner), "{said:?}");
        }
        if let Some(record) = [one, two].into_iter().find_map(|said| match said {
            JobSaid::Begun(record) => Some(record),
            _ => None,
        }) {
            note(&record);
        }
        let after = answered(store.job(&late)).await;
        assert_eq!(after, JobSaid::NotOwner, "a claim after the release");
    }
    let close = next(Call::Close(Closing::Left));
    assert_eq!(answered(store.call(&close)).await.said, Said::Closed);
}

// Short words.

impl<F: Fixture> World<F> {
    /// A new worker that owns the job.
    pub(super) async fn holder(&mut self, label: &str) -> Holder {
        self.holder_for(label, LONG).await
    }

    pub(super) async fn holder_for(&mut self, label: &str, ttl: Duration) -> Holder {
        let lease = self.open_for(label, ttl).await;
        let token = granted(self.claim(lease).await).token;
        Holder { lease, resource: name(JOB), token }
    }

    pub(super) async fn holder_at(&mut self, label: &str, resource: &str) -> Holder {
        let lease = self.open(label).await;
        let token = granted(self.claim_at(lease, resource).await).token;
        Holder { lease, resource: name(resource), token }
    }

    async fn step(&mut self, holder: &Holder, act: JobAct) -> JobSaid {
        answered(self.store.job(&JobStep { holder: holder.clone(), act })).await
    }

    async fn attend(&mut self, holder: &Holder, from: u64) -> JobSaid {
        self.step(holder, attend_of(PLAN, at(from))).await
    }

    async fn attend_with(&mut self, holder: &Holder, plan: &str) -> JobSaid {
        self.step(holder, attend_of(plan, at(0))).await
    }

    async fn begin(&mut self, holder: &Holder, occurrence: u64) -> JobSaid {
        self.step(holder, begin_of(occurrence, false)).await
    }

    async fn begun(&mut self, holder: &Holder, occurrence: u64) -> JobRecord {
        begun(self.begin(holder, occurrence).await)
    }

    async fn finish(&mut self, holder: &Holder, occurrence: u64, outcome: JobOutcome) -> JobSaid {
        self.finish_with(holder, occurrence, outcome, "").await
    }

    async fn finish_with(
        &mut self,
        holder: &Holder,
        occurrence: u64,
        outcome: JobOutcome,
        note: &str,
    ) -> JobSaid {
        self.step(holder, JobAct::Finish { occurrence: at(occurrence), outcome, note: Note::of(note) }).await
    }

    /// The job as it stands.
    async fn job(&self) -> JobView {
        let mut views = answered(self.store.jobs(Some(&name(JOB)))).await;
        assert_eq!(views.len(), 1, "views of one job: {views:?}");
        views.remove(0)
    }
}

fn at(millis: u64) -> Occurrence {
    Occurrence::new(millis).expect("a valid occurrence")
}

fn attend_of(plan: &str, from: Occurrence) -> JobAct {
    JobAct::Attend { plan: Plan::new(plan).expect("a valid plan"), from }
}

fn begin_of(occurrence: u64, again: bool) -> JobAct {
    JobAct::Begin(Begin { occurrence: at(occurrence), missed: 0, skipped: 0, again })
}

fn attended(through: u64, latest: Option<JobRecord>, replaced: Option<&str>) -> JobSaid {
    let replaced = replaced.map(|plan| Plan::new(plan).expect("a valid plan"));
    JobSaid::Attended { through: at(through), latest, replaced }
}

#[track_caller]
fn begun(said: JobSaid) -> JobRecord {
    match said {
        JobSaid::Begun(record) => record,
        said => panic!("an occurrence that should be claimed was answered {said:?}"),
    }
}
