//! The conformance suite is able to fail: stores that break a rule on purpose, and the case that finds each out.
#![allow(clippy::unwrap_used)] // What fails here is the test.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::conformance::{Fixture, Relay, Restarted, restarts};
use tenure::store::{Condition, Entry, Hints, MemoryBackend, MemoryStore, Messages, Pending, Store};
use tenure::testing::ManualClock;
use tenure_core::oracle::{Here, Ledger};
use tenure_core::{
    Answer, Call, Claimed, Closing, Grant, Holder, Incarnation, JobAct, JobRecord, JobSaid, JobStep, JobView,
    Label, LeaseId, Leaving, Metadata, Notice, Occurrence, Payload, Published, Released, Request,
    ResourceName, ResourceView, Said, Stamp, StepDownReply, StoreTime, Tickets, Token,
};
use tokio::sync::mpsc;

type Case = (&'static str, Pin<Box<dyn Future<Output = ()> + Send>>);

/// The cases that a store with this flaw fails.
async fn found_out_by(flaw: Flaw) -> Vec<&'static str> {
    let cases: Vec<Case> = tenure::conformance!(@each futures [Flawed::fresh(flaw)]);
    let mut failed = vec![];
    for (name, case) in cases {
        if tokio::spawn(case).await.is_err() {
            failed.push(name);
        }
    }
    failed
}

/// Each flaw has a case that is about it; and what can be seen in an answer, the random sequences see, too.
macro_rules! flaws {
    ($($claim:ident: $flaw:expr => $case:ident $(+ $also:ident)*;)+) => {$(
        #[tokio::test(start_paused = true)]
        async fn $claim() {
            let failed = found_out_by($flaw).await;

            for case in [stringify!($case) $(, stringify!($also))*] {
                assert!(failed.contains(&case), "{case} passes; these fail: {failed:#?}");
            }
        }
    )+};
}

#[tokio::test(start_paused = true)]
async fn a_store_without_a_flaw_passes() {
    let failed = found_out_by(Flaw::default()).await;

    assert!(failed.is_empty(), "{failed:#?}");
}

flaws! {
    a_store_that_keeps_a_repeated_renewal_is_found_out:
        Flaw { said: |_, said| if *said == Said::Stale { *said = kept() }, ..Flaw::default() }
        => a_repeated_or_older_renewal_is_stale_and_extends_nothing
         + a_late_renewal_of_a_lease_that_ran_out_changes_nothing
         + the_store_says_what_the_ledger_says;
    a_store_that_renews_the_dead_is_found_out:
        Flaw {
            said: |request, said| if request.call == Call::Renew && *said == Said::Gone { *said = kept() },
            ..Flaw::default()
        }
        => an_owner_that_ran_out_is_ended_by_the_claim_that_takes_over
         + a_closed_lease_is_gone
         + an_owner_found_dead_by_a_claim_stays_dead
         + the_store_says_what_the_ledger_says;
    a_store_that_forgets_the_order_of_renewals_is_found_out:
        Flaw { asked: |request, count| request.seq.0 = count, ..Flaw::default() }
        => a_repeated_or_older_renewal_is_stale_and_extends_nothing + the_store_says_what_the_ledger_says;
    a_store_that_compares_renewals_with_other_requests_is_found_out:
        Flaw {
            said: |request, said| if request.call == Call::Renew && request.seq.0 < 5 { *said = Said::Stale },
            ..Flaw::default()
        }
        => renewals_are_compared_with_renewals_only + renewals_of_one_worker_do_not_make_those_of_another_stale;
    a_store_that_mixes_up_the_order_of_releases_is_found_out:
        Flaw { said: |_, said| if let Said::Released(all) = said { all.reverse() }, ..Flaw::default() }
        => a_release_is_answered_per_resource + a_batch_of_250_is_answered_in_order;
    a_store_that_kills_whoever_ran_out_is_found_out:
        Flaw { ends_the_run_out: true, ..Flaw::default() }
        => a_lease_that_ran_out_and_was_not_ended_is_renewed
         + a_worker_that_ran_out_is_given_nothing_until_it_renews
         + a_waiter_that_ran_out_is_dropped_and_not_ended
         + the_store_says_what_the_ledger_says;
    a_store_that_takes_a_repeated_release_for_anothers_is_found_out:
        Flaw { evicts_on_release: true, ..Flaw::default() }
        => a_repeated_release_changes_nothing + a_release_of_what_is_not_held_ends_nobody_elses_ownership;
    a_store_that_forgets_all_notices_but_the_first_is_found_out:
        Flaw {
            said: |_, said| if let Said::Kept { notices, .. } = said { notices.truncate(16) },
            ..Flaw::default()
        }
        => a_renewal_carries_16_notices_and_those_after_it_bring_the_rest;
    a_store_that_repeats_notices_after_the_release_is_found_out:
        Flaw { keeps_notices: true, ..Flaw::default() }
        => asking_tells_the_owner_until_it_releases_and_takes_nothing_away
         + evicting_frees_the_ticket_at_once_and_the_notice_stands_until_the_release
         + the_store_says_what_the_ledger_says;
    a_store_whose_queue_has_no_end_is_found_out:
        Flaw { shown: |view| if view.waiters.len() > 60 { view.waiters.push(view.waiters[0].clone()) }, ..Flaw::default() }
        => behind_a_full_queue_a_worker_has_no_place_and_is_not_lost
         + a_larger_priority_displaces_the_last_of_a_full_queue;
    a_store_that_judges_by_its_own_clock_alone_is_found_out:
        Flaw { asked: |request, _| request.judged_by = None, ..Flaw::default() }
        => an_owner_lives_in_front_of_a_worker_that_vouches_for_an_earlier_time
         + a_waiter_lives_in_front_of_a_worker_that_vouches_for_an_earlier_time
         + the_store_says_what_the_ledger_says;
    a_store_whose_tokens_shrink_is_found_out:
        Flaw { granted: |grant| grant.token = Token((1 << 52) - grant.token.0), ..Flaw::default() }
        => each_grant_adds_one_to_the_term_and_raises_the_token
         + the_token_grows_over_a_restart
         + many_workers_at_once_never_own_more_than_k_tickets
         + the_store_says_what_the_ledger_says;
    a_store_that_grants_one_ticket_too_many_is_found_out:
        Flaw {
            asked: |request, _| wants(request, |want| want.tickets = Tickets::new(want.tickets.count() + 1).unwrap()),
            ..Flaw::default()
        }
        => many_workers_at_once_never_own_more_than_k_tickets
         + the_lowest_free_ticket_is_given_and_never_more_than_k
         + the_store_says_what_the_ledger_says;
    a_store_that_ignores_priorities_is_found_out:
        Flaw { asked: |request, _| wants(request, |want| want.priority = 0), ..Flaw::default() }
        => waiters_are_served_by_priority_and_then_by_arrival + the_store_says_what_the_ledger_says;
    a_store_that_mixes_up_the_order_of_its_answers_is_found_out:
        Flaw { said: |_, said| if let Said::Claimed(all) = said { all.reverse() }, ..Flaw::default() }
        => a_batch_of_250_is_answered_in_order
         + the_resources_of_one_claim_are_independent_and_answered_in_its_order
         + the_store_says_what_the_ledger_says;
    a_store_that_folds_names_is_found_out:
        Flaw { asked: |request, _| wants(request, |want| fold(&mut want.resource)), ..Flaw::default() }
        => names_that_look_alike_are_different;
    a_store_that_drops_a_waiter_is_found_out:
        Flaw { shown: |view| drop(view.waiters.pop()), ..Flaw::default() }
        => reading_shows_owners_and_waiters + the_store_says_what_the_ledger_says;
    a_store_that_steps_down_without_queueing_is_found_out:
        Flaw {
            asked: |request, _| leaves(request, |how| if *how == Leaving::SteppedDown { *how = Leaving::Released }),
            ..Flaw::default()
        }
        => a_worker_that_steps_down_queues_at_the_tail_with_the_lowest_priority_waiting
         + many_workers_at_once_never_own_more_than_k_tickets
         + the_store_says_what_the_ledger_says;
    a_store_whose_history_hides_why_is_found_out:
        Flaw {
            asked: |request, _| if let Call::Close(why) = &mut request.call { *why = Closing::Left },
            ..Flaw::default()
        }
        => the_history_has_every_grant_and_every_ending_with_its_reason + the_store_says_what_the_ledger_says;
    a_store_that_loses_metadata_is_found_out:
        Flaw {
            asked: |request, _| if let Call::Open { metadata, .. } = &mut request.call { *metadata = Metadata::default() },
            ..Flaw::default()
        }
        => metadata_and_labels_come_back_as_they_were;
    a_store_that_forgets_the_longest_ttl_is_found_out:
        Flaw { stamped: |stamp| stamp.longest = stamp.longest.min(Duration::from_secs(15)), ..Flaw::default() }
        => the_longest_ttl_is_kept_and_told;
    a_store_that_looks_again_too_late_is_found_out:
        Flaw { waits: |look_again| *look_again += Duration::from_millis(100), ..Flaw::default() }
        => the_head_looks_again_when_the_first_of_the_owners_would_run_out
         + a_free_ticket_is_the_heads_at_once_and_the_nexts_after_a_step
         + the_store_says_what_the_ledger_says;
    a_store_that_swallows_hints_is_found_out:
        Flaw { deaf: true, ..Flaw::default() }
        => a_release_hints_the_head_at_once_and_the_next_after_one_step_of_its_own + evicting_hints_the_head;
    a_store_that_hands_out_an_occurrence_twice_is_found_out:
        Flaw { job: JobFlaw::HandsOutTwice, ..Flaw::default() }
        => an_occurrence_is_claimed_once_whoever_asks
         + what_was_done_once_is_not_done_again
         + the_store_keeps_jobs_as_the_ledger_does;
    a_store_that_does_not_raise_what_is_claimed_is_found_out:
        Flaw { job: JobFlaw::ThroughNotRaised, ..Flaw::default() }
        => an_occurrence_is_claimed_once_whoever_asks
         + many_owners_at_once_claim_each_occurrence_once
         + the_store_keeps_jobs_as_the_ledger_does;
    a_store_that_does_not_look_at_who_asks_is_found_out:
        Flaw { job: JobFlaw::HolderNotChecked, ..Flaw::default() }
        => only_the_owner_under_exactly_its_token_attends_and_begins
         + only_the_owner_under_exactly_its_token_publishes
         + the_store_keeps_jobs_as_the_ledger_does;
    a_store_that_lets_anybody_finish_is_found_out:
        Flaw { job: JobFlaw::FinishWithoutToken, ..Flaw::default() }
        => what_is_not_ones_own_latest_run_is_not_finished + the_store_keeps_jobs_as_the_ledger_does;
    a_store_that_forgets_the_first_token_of_a_run_is_found_out:
        Flaw { job: JobFlaw::KeyForgotten, ..Flaw::default() }
        => a_failed_or_interrupted_occurrence_is_run_again_if_asked_for_under_the_same_key
         + the_store_keeps_jobs_as_the_ledger_does;
    a_store_that_swallows_messages_is_found_out:
        Flaw { deaf: true, ..Flaw::default() }
        => a_message_reaches_every_subscriber_in_order + a_message_is_heard_for_its_resource_only;
}

#[tokio::test]
async fn a_new_life_with_or_without_the_data_passes_if_it_grants_nothing_for_one_longest() {
    for life in [Life::KeepsItsData, Life::FindsNothing] {
        restarts::a_restart_loses_nothing_or_grants_nothing_for_one_longest(Ruled::fresh(life)).await;
        restarts::the_token_grows_over_a_restart(Ruled::fresh(life)).await;
    }
}

/// The store itself begins a new life, with its data and without them.
#[tokio::test]
async fn the_memory_store_grants_nothing_for_one_longest_in_a_new_life() {
    for begin in [MemoryBackend::new_life, MemoryBackend::lose_all] {
        restarts::a_restart_loses_nothing_or_grants_nothing_for_one_longest(Reborn::fresh(begin)).await;
        restarts::nobody_is_ended_for_having_run_out_in_a_quarantine(Reborn::fresh(begin)).await;
        restarts::the_token_grows_over_a_restart(Reborn::fresh(begin)).await;
    }
}

/// The ledger does end in a quarantine who has run out, as a store must not.
#[tokio::test]
async fn a_store_that_ends_leases_in_a_quarantine_is_found_out() {
    let store = Ruled::fresh(Life::EndsInQuarantine);

    let case = restarts::nobody_is_ended_for_having_run_out_in_a_quarantine(store);

    assert!(tokio::spawn(case).await.is_err());
}

#[tokio::test]
async fn a_store_that_lost_its_data_and_grants_at_once_is_found_out() {
    for life in [Life::GrantsAtOnce, Life::HidesItsLoss] {
        let case = restarts::a_restart_loses_nothing_or_grants_nothing_for_one_longest(Ruled::fresh(life));

        assert!(tokio::spawn(case).await.is_err(), "{life:?}");
    }
}

/// That no case is left out: what the files of the suite define is what the list has.
#[tokio::test]
async fn every_case_is_in_the_list() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
    let mut defined = vec![];
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let cases = text.lines().filter_map(|line| line.strip_prefix("pub async fn "));
        // What takes more than a fixture is for those who want more of a case than the suite has.
        let cases = cases.filter(|case| !case.contains("(seeds:"));
        defined.extend(cases.map(|case| case.split('(').next().unwrap().to_string()));
    }
    let listed: Vec<Case> = tenure::conformance!(@each futures [Flawed::fresh(Flaw::default())]);
    let mut listed: Vec<String> = listed.iter().map(|(name, _)| name.to_string()).collect();

    defined.sort();
    listed.sort();
    assert_eq!(listed, defined);
}

// A store with a flaw.

/// What a store does wrong: with what it is asked, and with what it says.
#[derive(Clone, Copy)]
struct Flaw {
    asked: fn(&mut Request, u64),
    said: fn(&Request, &mut Said),
    granted: fn(&mut Grant),
    waits: fn(&mut Duration),
    shown: fn(&mut ResourceView),
    stamped: fn(&mut Stamp),
    /// Whoever asks under a lease that has run out finds it ended.
    ends_the_run_out: bool,
    /// Whoever releases takes the ticket from its owner.
    evicts_on_release: bool,
    /// What a worker was told once it is told with every renewal.
    keeps_notices: bool,
    job: JobFlaw,
    deaf: bool,
}

/// What a store does wrong with jobs.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum JobFlaw {
    #[default]
    None,
    /// What is taken is given all the same.
    HandsOutTwice,
    /// Whatever was claimed before, it is as if nothing had been.
    ThroughNotRaised,
    /// Anybody is taken for the owner.
    HolderNotChecked,
    /// Anybody is taken for the one who began.
    FinishWithoutToken,
    /// A repetition has another key.
    KeyForgotten,
}

impl Default for Flaw {
    fn default() -> Self {
        Self {
            asked: |_, _| (),
            said: |_, _| (),
            granted: |_| (),
            waits: |_| (),
            shown: |_| (),
            stamped: |_| (),
            ends_the_run_out: false,
            evicts_on_release: false,
            keeps_notices: false,
            job: JobFlaw::None,
            deaf: false,
        }
    }
}

struct Flawed {
    clock: ManualClock,
    store: Arc<FlawedStore>,
}

struct FlawedStore {
    flaw: Flaw,
    inner: MemoryStore,
    count: AtomicU64,
    /// Who was granted what last.
    owners: Mutex<HashMap<ResourceName, Holder>>,
    /// How long each lease lives, and until when.
    ends: Mutex<HashMap<LeaseId, (Duration, StoreTime)>>,
    notices: Mutex<HashMap<LeaseId, Vec<Notice>>>,
}

impl Flawed {
    fn fresh(flaw: Flaw) -> Self {
        let clock = ManualClock::new();
        let inner = MemoryStore::by_hand(clock.clone());
        let (count, owners, ends, notices) =
            (AtomicU64::new(0), Mutex::default(), Mutex::default(), Mutex::default());
        Self { clock, store: Arc::new(FlawedStore { flaw, inner, count, owners, ends, notices }) }
    }
}

impl Fixture for Flawed {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }

    async fn restart(&mut self) -> Restarted {
        Restarted::SameLife
    }
}

impl fmt::Debug for FlawedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlawedStore")
    }
}

impl Relay for FlawedStore {
    fn behind(&self) -> &dyn Store {
        &self.inner
    }

    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Box::pin(async move {
            let mut asked = request.clone();
            (self.flaw.asked)(&mut asked, self.count.fetch_add(1, Ordering::SeqCst) + 1);
            self.before(&asked).await?;
            let mut answer = self.inner.call(&asked).await?;
            self.remember(&asked, &answer.said);
            self.after(&asked, &mut answer);
            (self.flaw.stamped)(&mut answer.stamp);
            let claimed = |claimed: &mut Claimed| match claimed {
                Claimed::Granted(grant) => (self.flaw.granted)(grant),
                Claimed::Waiting(waiting) => (self.flaw.waits)(&mut waiting.look_again),
            };
            match &mut answer.said {
                Said::Claimed(all) => all.iter_mut().for_each(claimed),
                Said::Released(all) => all.iter_mut().for_each(|one| {
                    if let Released::Again(again) = one {
                        claimed(again);
                    }
                }),
                _ => {}
            }
            (self.flaw.said)(request, &mut answer.said);
            Ok(answer)
        })
    }

    fn hints(&self, lease: LeaseId) -> Pending<'_, Hints> {
        // The sender is kept by nobody's hand but the runtime's: a stream that stays open and silent.
        let (to, hints) = mpsc::unbounded_channel();
        match self.flaw.deaf {
            true => Box::pin(async move {
                tokio::spawn(async move { to.closed().await });
                Ok(hints)
            }),
            false => self.inner.hints(lease),
        }
    }

    fn condition(&self) -> Pending<'_, Condition> {
        self.inner.condition()
    }

    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>> {
        Box::pin(async move {
            let mut views = self.inner.read(resource).await?;
            views.iter_mut().for_each(self.flaw.shown);
            Ok(views)
        })
    }

    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid> {
        Box::pin(self.flawed_step(step))
    }

    fn publish<'a>(&'a self, holder: &'a Holder, payload: &'a Payload) -> Pending<'a, Published> {
        Box::pin(async move { self.inner.publish(&self.taken_for(holder), payload).await })
    }

    fn subscribe<'a>(&'a self, resource: &'a ResourceName) -> Pending<'a, Messages> {
        let (to, messages) = mpsc::unbounded_channel();
        match self.flaw.deaf {
            true => Box::pin(async move {
                tokio::spawn(async move { to.closed().await });
                Ok(messages)
            }),
            false => self.inner.subscribe(resource),
        }
    }
}

impl FlawedStore {
    /// What it does wrong before it carries a request out.
    async fn before(&self, request: &Request) -> Result<(), tenure::Error> {
        if self.flaw.ends_the_run_out {
            let held = Request { lease: LeaseId(0), call: Call::Held, ..request.clone() };
            let now = self.inner.call(&held).await?.stamp.now;
            let end = self.ends.lock().unwrap().get(&request.lease).map(|(_, end)| *end);
            if end.is_some_and(|end| end <= now) {
                let close = Request { call: Call::Close(Closing::Expired), ..request.clone() };
                let _closed = self.inner.call(&close).await?;
            }
        }
        if let (true, Call::Release(leaves)) = (self.flaw.evicts_on_release, &request.call) {
            for leave in leaves {
                let owner = self.owners.lock().unwrap().get(&leave.resource).cloned();
                if let Some(owner) = owner {
                    self.inner.evict(&leave.resource, owner.token).await?;
                }
            }
        }
        Ok(())
    }

    /// What it remembers of an answer, and does wrong with it.
    fn after(&self, request: &Request, answer: &mut Answer) {
        let now = answer.stamp.now;
        let mut ends = self.ends.lock().unwrap();
        match (&request.call, &answer.said) {
            (Call::Open { ttl, .. }, Said::Opened) => {
                ends.entry(request.lease).or_insert((*ttl, now + *ttl));
            }
            (Call::Renew, Said::Kept { .. }) => {
                ends.entry(request.lease).and_modify(|(ttl, end)| *end = now + *ttl);
            }
            _ => {}
        }
        if let (true, Said::Kept { notices, .. }) = (self.flaw.keeps_notices, &mut answer.said) {
            let mut known = self.notices.lock().unwrap();
            let known = known.entry(request.lease).or_default();
            for notice in notices.iter() {
                if !known.contains(notice) {
                    known.push(notice.clone());
                }
            }
            notices.clone_from(known);
        }
    }

    fn remember(&self, request: &Request, said: &Said) {
        let (Call::Claim(wants), Said::Claimed(answers)) = (&request.call, said) else { return };
        for (want, answer) in wants.iter().zip(answers) {
            if let Claimed::Granted(grant) = answer {
                let (lease, resource) = (request.lease, want.resource.clone());
                let holder = Holder { lease, resource: resource.clone(), token: grant.token };
                self.owners.lock().unwrap().insert(resource, holder);
            }
        }
    }

    /// Whoever asks is taken for the owner, if that is the flaw.
    fn taken_for(&self, holder: &Holder) -> Holder {
        let owner = self.owners.lock().unwrap().get(&holder.resource).cloned();
        match self.flaw.job {
            JobFlaw::HolderNotChecked => owner.unwrap_or_else(|| holder.clone()),
            _ => holder.clone(),
        }
    }

    async fn flawed_step(&self, step: &JobStep) -> Result<JobSaid, tenure::Error> {
        let mut step = step.clone();
        step.holder = self.taken_for(&step.holder);
        let mut latest =
            self.inner.jobs(Some(&step.holder.resource)).await?.pop().and_then(|mut job| job.records.pop());
        let (holder, occurrence) = (
            step.holder.clone(),
            match &step.act {
                JobAct::Begin(begin) => Some(begin.occurrence),
                _ => None,
            },
        );
        match (self.flaw.job, &mut step.act, &latest) {
            (JobFlaw::FinishWithoutToken, JobAct::Finish { .. }, Some(latest)) => {
                step.holder.token = latest.token;
            }
            (JobFlaw::ThroughNotRaised, JobAct::Begin(begin), Some(latest)) => {
                begin.occurrence = Occurrence::new(latest.occurrence.as_millis() + 1).unwrap();
            }
            _ => {}
        }
        let mut said = self.inner.job(&step).await?;
        match (self.flaw.job, &mut said, occurrence) {
            (JobFlaw::HandsOutTwice, JobSaid::Taken(record), Some(_)) => {
                if let Some(record) = record.take().or_else(|| latest.take()) {
                    said = JobSaid::Begun(JobRecord { token: holder.token, ..record });
                }
            }
            (JobFlaw::ThroughNotRaised, JobSaid::Begun(record), Some(occurrence)) => {
                record.occurrence = occurrence;
            }
            (JobFlaw::KeyForgotten, JobSaid::Begun(record), _) => record.key_token = record.token,
            _ => {}
        }
        Ok(said)
    }
}

fn kept() -> Said {
    Said::Kept { notices: vec![], more: false }
}

fn wants(request: &mut Request, change: fn(&mut tenure_core::Want)) {
    if let Call::Claim(wants) = &mut request.call {
        wants.iter_mut().for_each(change);
    }
}

fn leaves(request: &mut Request, change: fn(&mut Leaving)) {
    if let Call::Release(leaves) = &mut request.call {
        leaves.iter_mut().for_each(|leave| change(&mut leave.how));
    }
}

fn fold(name: &mut ResourceName) {
    *name = ResourceName::new(&name.as_str().to_lowercase()).unwrap();
}

// A store that begins another life.

struct Reborn {
    clock: ManualClock,
    store: Arc<MemoryStore>,
    begin: fn(&MemoryBackend),
}

impl Reborn {
    fn fresh(begin: fn(&MemoryBackend)) -> Self {
        let clock = ManualClock::new();
        Self { clock: clock.clone(), store: Arc::new(MemoryStore::by_hand(clock)), begin }
    }
}

impl Fixture for Reborn {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }

    async fn restart(&mut self) -> Restarted {
        self.clock.advance(Duration::from_millis(1));
        (self.begin)(self.store.backend());
        Restarted::NewLife
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    KeepsItsData,
    FindsNothing,
    /// The flaw: it has lost its data, says that it lives anew, and grants.
    GrantsAtOnce,
    /// The flaw: it has lost its data, and says nothing of it.
    HidesItsLoss,
    /// The flaw: it keeps its data, and ends in a quarantine who has run out. So does the ledger.
    EndsInQuarantine,
}

struct Ruled {
    life: Life,
    store: Arc<RuledStore>,
}

#[derive(Debug)]
struct RuledStore {
    micros: AtomicU64,
    incarnation: Incarnation,
    ledger: Mutex<Ledger>,
}

impl Ruled {
    fn fresh(life: Life) -> Self {
        Self {
            life,
            store: Arc::new(RuledStore::new(3_600_000_000, Incarnation(1), Ledger::new(Incarnation(1)))),
        }
    }
}

impl Fixture for Ruled {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn pass(&self, span: Duration) {
        self.store.micros.fetch_add(span.as_micros() as u64, Ordering::SeqCst);
    }

    async fn restart(&mut self) -> Restarted {
        // The wall clock goes on meanwhile.
        let now = self.store.micros.load(Ordering::SeqCst) + 1_000;
        let (incarnation, ledger) = match self.life {
            Life::KeepsItsData | Life::EndsInQuarantine => {
                (Incarnation(2), self.store.ledger.lock().unwrap().clone())
            }
            Life::FindsNothing => (Incarnation(2), Ledger::bereft()),
            Life::GrantsAtOnce => (Incarnation(2), Ledger::new(Incarnation(2))),
            Life::HidesItsLoss => (Incarnation(1), Ledger::new(Incarnation(1))),
        };
        self.store = Arc::new(RuledStore::new(now, incarnation, ledger));
        if incarnation == Incarnation(1) { Restarted::SameLife } else { Restarted::NewLife }
    }
}

impl RuledStore {
    fn new(micros: u64, incarnation: Incarnation, ledger: Ledger) -> Self {
        Self { micros: AtomicU64::new(micros), incarnation, ledger: Mutex::new(ledger) }
    }

    fn step<'a, T: Send + 'a>(
        &'a self,
        act: impl FnOnce(&mut Ledger, Here) -> T + Send + 'a,
    ) -> Pending<'a, T> {
        Box::pin(async move {
            let micros = self.micros.load(Ordering::SeqCst);
            let here = Here::new(StoreTime::from_micros(micros), micros, self.incarnation)?;
            Ok(act(&mut self.ledger.lock().unwrap(), here))
        })
    }
}

impl Store for RuledStore {
    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        self.step(|ledger, here| ledger.apply(here, request))
    }

    fn hints(&self, _: LeaseId) -> Pending<'_, Hints> {
        Box::pin(async { Ok(mpsc::unbounded_channel().1) })
    }

    fn condition(&self) -> Pending<'_, Condition> {
        Box::pin(async { Ok(Condition::default()) })
    }

    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>> {
        self.step(move |ledger, here| {
            resource.and_then(|name| ledger.read(here, name.as_str())).into_iter().collect()
        })
    }

    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>> {
        self.step(move |ledger, here| {
            let records = ledger.history(here).into_iter();
            let wanted = records.filter(|record| resource.is_none_or(|name| *name == record.resource));
            let entry = |record: tenure_core::oracle::Record| Entry {
                ago: here.now().since(record.at),
                resource: record.resource,
                worker: record.worker,
                grant: record.grant,
                what: record.what,
            };
            wanted.map(entry).collect()
        })
    }

    fn ask<'a>(
        &'a self,
        resource: &'a ResourceName,
        token: Token,
        to: Option<&'a Label>,
    ) -> Pending<'a, StepDownReply> {
        self.step(move |ledger, here| ledger.ask(here, resource.as_str(), token, to))
    }

    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, StepDownReply> {
        self.step(move |ledger, here| ledger.evict(here, resource.as_str(), token))
    }

    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid> {
        self.step(|ledger, here| ledger.job(here, step))
    }

    fn jobs<'a>(&'a self, job: Option<&'a ResourceName>) -> Pending<'a, Vec<JobView>> {
        self.step(move |ledger, _| ledger.jobs(job.map(ResourceName::as_str)))
    }

    fn publish<'a>(&'a self, holder: &'a Holder, _: &'a Payload) -> Pending<'a, Published> {
        self.step(|ledger, here| match ledger.ticket_of(here, holder) {
            Some(_) => Published::Sent,
            None => Published::NotOwner,
        })
    }

    fn subscribe<'a>(&'a self, _: &'a ResourceName) -> Pending<'a, Messages> {
        Box::pin(async { Ok(mpsc::unbounded_channel().1) })
    }
}
