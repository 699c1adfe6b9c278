//! The one suite that every store passes: what it says is what [`tenure_core::oracle::Ledger`] would have said.
//!
//! Whoever writes a [`Store`] writes a [`Fixture`] for it, and one line more:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tenure::testing::ManualClock;
//! use tenure::conformance::{Fixture, Restarted};
//! use tenure::store::{MemoryStore, Store};
//!
//! struct Memory(ManualClock, Arc<MemoryStore>);
//!
//! impl Memory {
//!     async fn fresh() -> Self {
//!         let clock = ManualClock::new();
//!         Self(clock.clone(), Arc::new(MemoryStore::by_hand(clock)))
//!     }
//! }
//!
//! impl Fixture for Memory {
//!     fn store(&self) -> Arc<dyn Store> {
//!         self.1.clone()
//!     }
//!
//!     async fn pass(&self, span: Duration) {
//!         self.0.advance(span);
//!     }
//!
//!     async fn restart(&mut self) -> Restarted {
//!         Restarted::SameLife
//!     }
//! }
//!
//! tenure::conformance!(Memory::fresh().await);
//! ```
//!
//! [`conformance!`](crate::conformance!) writes one test per case, from one list: no store can leave one out. A
//! case is a sentence about the rules, and never asks which store it has. Most are about one rule each. Some are
//! about all of them: [`agreement`] plays random sequences against the store and the ledger, [`contention`] sets
//! many workers on a few resources at once.

pub mod agreement;
pub mod backend;
mod chance;
pub mod claims;
pub mod contention;
pub mod fanout;
pub mod hints;
pub mod jobs;
pub mod judging;
pub mod leases;
pub mod operators;
pub mod queue;
pub mod reading;
mod relay;
pub mod releases;
pub mod restarts;
pub mod sizes;
mod words;
mod world;

use std::sync::Arc;
use std::time::Duration;

pub use self::relay::Relay;
use crate::store::Store;

/// A store under test: empty, out of quarantine, and nobody else's.
pub trait Fixture: Send + Sync + 'static {
    /// The store. After a [`restart`](Self::restart) it is asked for again.
    fn store(&self) -> Arc<dyn Store>;

    /// Stops the store and starts it again, as its users would see it happen. One that cannot be restarted
    /// without its workers, such as a store in this process, does nothing and stays in the same life.
    fn restart(&mut self) -> impl Future<Output = Restarted> + Send;

    /// Lets so much time go by for the store. By default it really does; a store on a clock that is moved by
    /// hand moves it instead.
    fn pass(&self, span: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(span)
    }

    /// Whether waiters can rely on being woken. By default they can.
    fn hinting(&self) -> Hinting {
        Hinting::Prompt
    }
}

/// What a restart did to the life of the store. The answers' incarnation has to say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarted {
    /// The incarnation stayed: nothing may be lost.
    SameLife,
    /// The incarnation changed, with the data or without it: nothing may be granted for one `longest`.
    NewLife,
}

/// Whether a store wakes those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hinting {
    /// Who may take a ticket is told, soon.
    Prompt,
    /// Nobody may be told, for instance behind a pooler: waiters look again by themselves.
    MayBeSilent,
}

/// Writes one test per case of the [conformance suite](mod@crate::conformance), each with a fixture of its own.
///
/// It takes the expression that makes a fresh [`Fixture`]; it may await. The tests run
/// on tokio, so `tokio` with the features `macros` and `rt-multi-thread` has to be among the dev-dependencies.
#[macro_export]
macro_rules! conformance {
    (@tests [$fixture:expr] $($topic:ident: $($case:ident)+;)+) => {
        $($(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::conformance::$topic::$case($fixture).await;
            }
        )+)+
    };
    // Every case by name, with what runs it on a fixture: for tests of the suite itself.
    (@futures [$fixture:expr] $($topic:ident: $($case:ident)+;)+) => {
        vec![$($((stringify!($case), Box::pin($crate::conformance::$topic::$case($fixture)) as _)),+),+]
    };
    (@each $then:ident [$($with:tt)*]) => {
        $crate::conformance! { @$then [$($with)*]
            leases:
                a_lease_lives_as_long_as_it_is_renewed
                a_lease_that_ran_out_and_was_not_ended_is_renewed
                an_owner_that_ran_out_is_ended_by_the_claim_that_takes_over
                a_renewal_counts_from_the_clock_of_the_store
                opening_a_lease_again_changes_nothing
                a_late_open_does_not_make_a_dead_lease_again
                an_unknown_lease_is_gone_and_nothing_is_created
                closing_an_unknown_lease_does_not_forbid_it
                a_repeated_or_older_renewal_is_stale_and_extends_nothing
                renewals_are_compared_with_renewals_only
                renewals_of_one_worker_do_not_make_those_of_another_stale
                a_closed_lease_is_gone
                closing_a_lease_frees_all_that_it_holds_and_awaits
                closing_a_dead_lease_changes_nothing
                held_lists_what_the_lease_holds_by_ticket_and_token
                every_answer_is_stamped
                the_time_on_the_answers_runs
                the_longest_ttl_is_kept_and_told;
            claims:
                the_first_grant_has_ticket_0_and_term_1
                of_two_first_claims_one_wins_and_one_waits
                an_owner_that_claims_again_is_given_the_same_grant
                each_grant_adds_one_to_the_term_and_raises_the_token
                a_resource_is_never_forgotten
                the_lowest_free_ticket_is_given_and_never_more_than_k
                the_resources_of_one_claim_are_independent_and_answered_in_its_order
                a_batch_of_250_is_answered_in_order
                the_numbers_of_claims_and_releases_do_not_matter
                the_ticket_of_an_owner_that_ran_out_is_granted
                the_length_of_the_owners_lease_counts_and_not_that_of_the_challenger;
            queue:
                a_waiter_is_queued_once_and_keeps_the_priority_of_its_place
                waiters_are_served_by_priority_and_then_by_arrival
                a_free_ticket_is_the_heads_at_once_and_the_nexts_after_a_step
                the_head_takes_a_free_ticket_at_once
                a_newcomer_does_not_overtake_those_who_wait
                as_many_waiters_as_there_are_free_tickets_may_take_one_at_once
                nobody_waits_more_than_ten_steps_for_those_before_it
                the_step_follows_the_claimants_ttl_and_is_at_least_100_ms
                the_steps_count_from_the_latest_of_the_free_tickets
                the_steps_of_a_dead_owners_ticket_count_from_the_end_of_its_lease
                dead_waiters_are_cleared_by_those_who_look
                behind_a_full_queue_a_worker_has_no_place_and_is_not_lost
                a_larger_priority_displaces_the_last_of_a_full_queue
                the_head_looks_again_when_the_first_of_the_owners_would_run_out
                positions_1_to_8_look_a_step_later_each_and_the_rest_a_ttl_later
                a_look_again_is_at_least_a_millisecond_and_at_most_a_ttl;
            releases:
                a_release_frees_the_ticket
                a_release_leaves_the_queue
                a_release_of_what_is_not_held_ends_nobody_elses_ownership
                a_repeated_release_changes_nothing
                a_release_is_answered_per_resource
                a_worker_that_steps_down_queues_at_the_tail_with_the_lowest_priority_waiting
                stepping_down_with_nobody_waiting_is_answered_with_the_next_term
                the_priority_of_a_dead_waiter_does_not_count_for_who_steps_down
                stepping_down_counts_the_tickets_of_owners_that_were_closed
                a_waiter_that_steps_down_goes_to_the_tail;
            operators:
                asking_tells_the_owner_until_it_releases_and_takes_nothing_away
                a_notice_ends_with_its_ownership
                a_named_successor_goes_to_the_head_before_every_priority
                the_successor_that_was_named_last_is_the_head
                of_two_waiters_with_one_label_the_earlier_is_the_successor
                a_successor_that_does_not_wait_or_is_dead_is_refused_and_nothing_changes
                a_wish_under_another_token_changes_nothing_and_is_told_who_owns
                evicting_frees_the_ticket_at_once_and_the_notice_stands_until_the_release
                an_ownership_is_evicted_once
                a_stronger_notice_is_not_replaced_by_a_weaker_one
                a_wish_about_an_owner_that_was_closed_comes_too_late
                a_renewal_carries_16_notices_and_those_after_it_bring_the_rest
                an_eviction_is_told_at_once_beside_any_number_of_notices;
            sizes:
                a_claim_changes_the_tickets_only_if_its_lease_was_opened_later
                a_later_claim_of_the_lease_that_set_the_tickets_changes_them
                a_claim_that_confirms_the_tickets_sets_them
                lowering_the_tickets_asks_the_owners_of_the_highest_to_step_down
                after_lowering_nobody_is_granted_until_fewer_than_k_own
                raising_the_tickets_lets_waiters_in
                raised_tickets_are_left_to_those_who_come_first
                raising_the_tickets_again_gives_those_that_were_left;
            judging:
                an_owner_lives_in_front_of_a_worker_that_vouches_for_an_earlier_time
                a_worker_that_ran_out_is_given_nothing_until_it_renews
                a_waiter_lives_in_front_of_a_worker_that_vouches_for_an_earlier_time
                a_worker_cannot_vouch_for_more_than_the_clock_of_the_store
                an_owner_found_dead_by_a_claim_stays_dead
                a_waiter_that_ran_out_is_dropped_and_not_ended
                a_late_renewal_of_a_lease_that_ran_out_changes_nothing
                reading_asking_evicting_and_what_others_do_elsewhere_end_nobody;
            hints:
                a_release_hints_the_head_at_once_and_the_next_after_one_step_of_its_own
                stepping_down_hints_the_others_and_not_the_worker_itself
                closing_a_lease_hints_the_heads_of_all_that_it_held
                evicting_hints_the_head
                raising_the_tickets_hints_as_many_as_are_free_now_and_the_next
                a_claim_that_finds_the_owner_dead_hints_those_who_come_first
                a_dead_waiter_at_the_head_costs_the_next_one_a_step_at_most
                a_release_of_a_surplus_ticket_hints_nobody
                nobody_is_hinted_when_nothing_became_free;
            reading:
                reading_shows_owners_and_waiters
                reading_leaves_out_the_dead
                reading_lists_all_that_were_ever_claimed_by_name
                the_history_has_every_grant_and_every_ending_with_its_reason
                an_entry_says_when_what_happened_to_whose_ownership
                an_ending_that_nobody_has_come_across_is_read_at_its_place_in_time
                a_lease_that_is_closed_after_it_ran_out_ended_when_it_ran_out
                hostile_names_are_names_like_others
                names_that_look_alike_are_different
                metadata_and_labels_come_back_as_they_were
                two_workers_with_one_label_are_harmless;
            restarts:
                a_restart_loses_nothing_or_grants_nothing_for_one_longest
                nobody_is_ended_for_having_run_out_in_a_quarantine
                the_token_grows_over_a_restart;
            jobs:
                only_the_owner_under_exactly_its_token_attends_and_begins
                who_has_released_was_evicted_or_closed_is_not_the_owner_of_a_job
                a_holder_that_ran_out_is_not_the_owner_and_is_not_marked
                attending_makes_the_job_and_nothing_before_it_counts
                attending_again_changes_nothing
                a_job_cannot_be_made_to_begin_in_the_future
                another_plan_replaces_the_one_before_and_that_is_said_once
                the_next_owner_finds_what_the_last_one_left_in_the_middle
                an_occurrence_is_claimed_once_whoever_asks
                a_claim_is_written_down_with_who_when_and_what_was_left_out
                beginning_again_under_the_same_token_gives_the_same_record
                a_job_that_nobody_attended_is_unknown
                what_is_more_than_60_s_ahead_of_the_wall_clock_is_early
                a_failed_or_interrupted_occurrence_is_run_again_if_asked_for_under_the_same_key
                what_runs_under_another_token_is_taken_unless_it_may_be_run_again
                going_on_to_the_next_leaves_the_last_one_interrupted
                a_run_ends_with_its_outcome_its_length_and_a_note
                a_run_that_ended_after_its_lease_did_is_written_down_all_the_same
                finishing_again_says_the_same_and_another_outcome_changes_nothing
                what_is_not_ones_own_latest_run_is_not_finished
                what_was_done_once_is_not_done_again
                the_last_50_records_are_kept_oldest_first
                reading_all_jobs_lists_them_by_name_with_the_latest_record
                jobs_with_hostile_names_are_jobs_like_others
                jobs_outlive_a_restart_that_keeps_the_data
                many_owners_at_once_claim_each_occurrence_once;
            fanout:
                a_message_reaches_every_subscriber_in_order
                a_message_carries_any_bytes_up_to_4096
                only_the_owner_under_exactly_its_token_publishes
                who_has_released_was_evicted_closed_or_ran_out_publishes_nothing
                publishing_marks_nobody
                each_of_several_owners_is_heard_under_its_ticket
                a_message_is_heard_for_its_resource_only
                who_stops_listening_disturbs_nobody;
            agreement:
                the_store_says_what_the_ledger_says
                the_store_keeps_jobs_as_the_ledger_does;
            contention:
                many_workers_at_once_never_own_more_than_k_tickets;
        }
    };
    ($fixture:expr) => {
        $crate::conformance! { @each tests [$fixture] }
    };
}
