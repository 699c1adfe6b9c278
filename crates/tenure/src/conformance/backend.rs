//! The suite that every [`Backend`] passes before any rule runs on it.
//!
//! Whoever writes a [`Backend`] writes a [`BackendFixture`] for it, and one line more:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tenure::testing::ManualClock;
//! use tenure::conformance::Restarted;
//! use tenure::conformance::backend::BackendFixture;
//! use tenure::store::MemoryBackend;
//! use tenure::store::backend::Backend;
//!
//! struct Memory(ManualClock, Arc<MemoryBackend>);
//!
//! impl Memory {
//!     fn fresh() -> Self {
//!         let clock = ManualClock::new();
//!         Self(clock.clone(), Arc::new(MemoryBackend::by_hand(clock)))
//!     }
//! }
//!
//! impl BackendFixture for Memory {
//!     fn backend(&self) -> Arc<dyn Backend> {
//!         self.1.clone()
//!     }
//!
//!     async fn pass(&self, span: Duration) {
//!         self.0.advance(span);
//!     }
//!
//!     async fn restart(&mut self) -> Restarted {
//!         self.1.new_life();
//!         Restarted::NewLife
//!     }
//! }
//!
//! tenure::backend_conformance!(Memory::fresh());
//! ```
//!
//! [`backend_conformance!`](crate::backend_conformance!) writes one test per case, from one list: no backend can leave
//! one out. A case is a sentence about [`Backend`], and never asks which backend it has. Where a backend lacks a
//! [capability](tenure_core::Capabilities), the case checks what backends of that kind promise instead.

#[allow(missing_docs)] // The names of the cases say what they are about.
pub mod cancellation;
#[allow(missing_docs)]
pub mod changes;
#[allow(missing_docs)]
pub mod clock;
#[allow(missing_docs)]
pub mod contention;
mod harness;
#[allow(missing_docs)]
pub mod history;
#[allow(missing_docs)]
pub mod listing;
#[allow(missing_docs)]
pub mod lives;
#[allow(missing_docs)]
pub mod reading;
#[allow(missing_docs)]
pub mod records;
#[allow(missing_docs)]
pub mod signals;

use std::sync::Arc;
use std::time::Duration;

use super::Restarted;
use crate::store::backend::Backend;

/// A backend under test, on an empty namespace that nobody else uses.
pub trait BackendFixture: Send + Sync + 'static {
    /// The backend. After a [`restart`](Self::restart) it is asked for again; who has it from before may go on using it.
    fn backend(&self) -> Arc<dyn Backend>;

    /// A second backend on the same namespace, opened as another process would open it. By default it is the same one,
    /// for backends that take several listeners.
    fn another(&self) -> impl Future<Output = Arc<dyn Backend>> + Send {
        let backend = self.backend();
        async move { backend }
    }

    /// Stops the database and starts it again, as its users would see it happen.
    fn restart(&mut self) -> impl Future<Output = Restarted> + Send;

    /// Lets so much time go by on the backend's clock. By default it really does; a backend on a clock that is moved
    /// by hand moves it instead.
    fn pass(&self, span: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(span)
    }
}

/// Writes one test per case of the [suite for backends](mod@crate::conformance::backend), each with a fixture of its
/// own.
///
/// It takes the expression that makes a fresh [`BackendFixture`]; it may
/// await. The tests run on tokio, so `tokio` with the features `macros` and `rt-multi-thread` has to be among the
/// dev-dependencies.
#[macro_export]
macro_rules! backend_conformance {
    (@tests [$fixture:expr] $($topic:ident: $($case:ident)+;)+) => {
        $($(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::conformance::backend::$topic::$case($fixture).await;
            }
        )+)+
    };
    // Every case by name, with what runs it on a fixture: for tests of the suite itself.
    (@futures [$fixture:expr] $($topic:ident: $($case:ident)+;)+) => {
        vec![$($(
            (stringify!($case), Box::pin($crate::conformance::backend::$topic::$case($fixture)) as _)
        ),+),+]
    };
    (@each $then:ident [$($with:tt)*]) => {
        $crate::backend_conformance! { @$then [$($with)*]
            reading:
                a_record_that_was_never_written_is_at_version_none
                records_come_in_the_order_of_the_keys
                reading_no_records_tells_the_life
                a_write_is_seen_by_every_handle_once_it_is_answered
                many_reads_at_once_are_all_answered
                the_concerns_about_the_configuration_can_be_read;
            records:
                a_record_is_read_back_as_it_was_written
                an_overwritten_record_shows_the_new_version_and_text_only
                a_deleted_record_is_at_version_none_and_can_be_created_again
                versions_use_all_64_bits
                an_empty_text_is_not_a_deletion
                a_text_of_100_kb_comes_back_as_it_was
                hostile_text_comes_back_as_it_was
                hostile_names_are_names_like_others
                names_that_look_alike_are_different_records;
            changes:
                a_change_with_one_wrong_expectation_is_not_applied
                a_conflict_shows_exactly_the_records_that_differ
                a_record_that_is_only_expected_is_compared
                a_record_is_created_only_where_there_is_none
                a_change_may_write_nothing
                a_commit_without_changes_is_answered
                a_batch_of_250_is_answered_in_order
                changes_of_one_commit_may_expect_the_same_record
                a_change_of_many_records_is_applied
                a_doubled_commit_conflicts_and_shows_its_own_version
                lasting_and_essential_changes_are_changes_like_others;
            clock:
                a_change_is_applied_only_within_its_window
                a_change_outside_of_its_window_changes_nothing
                a_window_that_opens_lets_the_change_in_from_then_on
                a_window_that_closes_keeps_the_change_out_from_then_on
                a_conflict_outside_of_the_window_changes_nothing_either
                each_change_of_a_batch_has_its_own_window
                the_stamp_is_what_a_later_read_shows
                a_record_keeps_its_stamp_until_it_is_written
                stamps_do_not_run_backwards
                the_stamp_is_taken_after_waiting_for_others
                the_clock_of_an_answer_is_not_before_any_stamp;
            lives:
                a_commit_for_another_life_changes_nothing_and_tells_the_life
                a_restart_keeps_everything_or_begins_another_life
                a_handle_from_before_a_restart_works_again
                after_a_restart_a_listener_hears_or_knows_that_it_does_not
                a_store_that_lost_data_does_not_say_that_it_lost_nothing;
            contention:
                of_many_who_create_a_record_one_succeeds
                increments_of_one_record_are_all_counted
                changes_of_several_records_in_different_orders_are_all_kept
                overlapping_batches_in_different_orders_are_all_kept;
            listing:
                an_empty_namespace_lists_nothing
                records_are_listed_in_the_order_of_their_names
                leases_and_resources_are_listed_apart
                a_long_listing_has_every_record_once
                a_listing_goes_on_after_a_record_that_is_gone
                a_listing_while_others_write_has_what_stands_throughout_once;
            history:
                the_history_is_in_the_order_of_the_changes
                an_entry_has_the_time_it_names_or_that_of_its_change
                the_history_of_a_resource_leaves_out_the_others
                the_newest_entries_are_shown
                ten_thousand_entries_are_kept_and_not_many_more
                hostile_text_in_the_history_comes_back_as_it_was;
            signals:
                a_signal_is_heard_by_all_who_follow_its_channel
                a_signal_carries_its_text_and_the_stamp_of_its_change
                a_signal_of_the_greatest_length_is_heard
                only_what_is_sent_after_following_is_heard
                a_channel_that_was_forgotten_is_not_heard
                a_channel_that_was_forgotten_can_be_followed_again
                following_a_channel_twice_changes_nothing
                a_signal_goes_to_one_of_its_channels
                a_signal_passes_over_a_channel_whose_listener_has_gone
                a_change_that_is_not_applied_sends_nothing
                what_a_signal_tells_of_can_be_read
                signals_of_one_sender_come_in_order
                many_signals_of_many_senders_are_all_heard;
            cancellation:
                a_read_that_is_given_up_disturbs_nobody
                a_commit_that_is_given_up_is_applied_as_a_whole_or_not_at_all
                listening_that_is_given_up_can_be_begun_again;
        }
    };
    ($fixture:expr) => {
        $crate::backend_conformance! { @each tests [$fixture] }
    };
}
