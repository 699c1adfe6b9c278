//! The conformance suite is able to fail: stores that break a rule on purpose, and the case that finds each out.
#![allow(clippy::unwrap_used)] // What fails here is the test.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::ClockByHand;
use tenure::conformance::{Fixture, Relay, Restarted, restarts};
use tenure::store::{Entry, Hints, MemoryStore, Messages, Pending, Store};
use tenure_core::{
    Answer, Asked, Call, Claimed, Closing, Grant, Here, Holder, Incarnation, JobAct, JobRecord, JobSaid,
    JobStep, JobView, Label, LeaseId, Leaving, Ledger, Metadata, Occurrence, Payload, Published, Released,
    Request, ResourceName, ResourceView, Said, StoreTime, Tickets, Token,
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
         + a_late_renewal_is_stale_before_it_judges_anything
         + the_store_says_what_the_ledger_says;
    a_store_that_renews_the_dead_is_found_out:
        Flaw {
            said: |request, said| if request.call == Call::Renew && *said == Said::Gone { *said = kept() },
            ..Flaw::default()
        }
        => a_lease_that_is_not_renewed_runs_out + a_closed_lease_is_gone + an_owner_found_dead_by_a_claim_stays_dead;
    a_store_that_forgets_the_order_of_requests_is_found_out:
        Flaw { asked: |request, count| request.seq.0 = count, ..Flaw::default() }
        => a_claim_older_than_the_newest_claim_or_not_above_the_newest_release_is_stale
         + a_release_below_the_newest_claim_is_stale
         + a_release_not_above_the_newest_release_is_stale
         + the_store_says_what_the_ledger_says;
    a_store_that_hides_that_a_release_was_stale_is_found_out:
        Flaw {
            said: |_, said| if let Said::Released(all) = said {
                all.iter_mut().filter(|one| **one == Released::Stale).for_each(|one| *one = Released::Free);
            },
            ..Flaw::default()
        }
        => a_release_is_answered_per_resource + the_store_says_what_the_ledger_says;
    a_store_that_judges_by_its_own_clock_alone_is_found_out:
        Flaw { asked: |request, _| request.judged_by = None, ..Flaw::default() }
        => an_owner_lives_in_front_of_a_worker_that_vouches_for_an_earlier_time
         + every_call_judges_its_own_lease_by_what_the_worker_vouches_for
         + the_store_says_what_the_ledger_says;
    a_store_that_judges_releases_by_its_own_clock_alone_is_found_out:
        Flaw {
            asked: |request, _| if matches!(request.call, Call::Release(_)) { request.judged_by = None },
            ..Flaw::default()
        }
        => every_call_judges_its_own_lease_by_what_the_worker_vouches_for + the_store_says_what_the_ledger_says;
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
    a_store_that_forgets_the_longest_ttl_it_heard_of_is_found_out:
        Flaw { asked: |request, _| request.longest = Duration::ZERO, ..Flaw::default() }
        => the_greatest_of_the_longest_ttls_is_kept_and_told;
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
            job: JobFlaw::None,
            deaf: false,
        }
    }
}

struct Flawed {
    clock: ClockByHand,
    store: Arc<FlawedStore>,
}

struct FlawedStore {
    flaw: Flaw,
    inner: MemoryStore,
    count: AtomicU64,
    /// Who was granted what last.
    owners: Mutex<HashMap<ResourceName, Holder>>,
}

impl Flawed {
    fn fresh(flaw: Flaw) -> Self {
        let clock = ClockByHand::new();
        let inner = MemoryStore::by_hand(clock.clone());
        let (count, owners) = (AtomicU64::new(0), Mutex::default());
        Self { clock, store: Arc::new(FlawedStore { flaw, inner, count, owners }) }
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
            let mut answer = self.inner.call(&asked).await?;
            self.remember(&asked, &answer.said);
            let claimed = |claimed: &mut Claimed| match claimed {
                Claimed::Granted(grant) => (self.flaw.granted)(grant),
                Claimed::Waiting(waiting) => (self.flaw.waits)(&mut waiting.look_again),
                Claimed::Stale => {}
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    KeepsItsData,
    FindsNothing,
    /// The flaw: it has lost its data, says that it lives anew, and grants.
    GrantsAtOnce,
    /// The flaw: it has lost its data, and says nothing of it.
    HidesItsLoss,
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
            Life::KeepsItsData => (Incarnation(2), self.store.ledger.lock().unwrap().clone()),
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

    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>> {
        self.step(move |ledger, here| {
            resource.and_then(|name| ledger.read(here, name.as_str())).into_iter().collect()
        })
    }

    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>> {
        self.step(move |ledger, here| {
            let records = ledger.history(here).into_iter();
            let wanted = records.filter(|record| resource.is_none_or(|name| *name == record.resource));
            let entry = |record: tenure_core::Record| Entry {
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
    ) -> Pending<'a, Asked> {
        self.step(move |ledger, here| ledger.ask(here, resource.as_str(), token, to))
    }

    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, Asked> {
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
