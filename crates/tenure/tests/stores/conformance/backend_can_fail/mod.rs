//! The suite for backends is able to fail: backends that break a promise on purpose, and the case that finds each out.
#![allow(clippy::unwrap_used)] // What fails here is the test.

mod backend;
mod flaw;
mod listener;

use std::pin::Pin;

use tenure::store::backend::{Change, Commits, Committed, Heard, Page, Signal, Snapshot, Stored};
use tenure::store::codec::key_name;
use tenure_core::{Key, LeaseId, Version, Window};

use self::flaw::{Flaw, Flawed, Habit, conflicts, earlier, later, renamed, texts};

type Case = (&'static str, Pin<Box<dyn Future<Output = ()> + Send>>);

fn cases(flaw: Flaw) -> Vec<Case> {
    tenure::backend_conformance!(@each futures [Flawed::fresh(flaw)])
}

/// Those of the cases that fail.
async fn failed(cases: Vec<Case>) -> Vec<&'static str> {
    let mut failed = vec![];
    for (name, case) in cases {
        if tokio::spawn(case).await.is_err() {
            failed.push(name);
        }
    }
    failed
}

#[tokio::test(start_paused = true)]
async fn a_backend_without_a_flaw_passes() {
    assert_eq!(failed(cases(Flaw::default())).await, Vec::<&str>::new());
}

/// Each flaw has cases that are about it.
macro_rules! flaws {
    ($($claim:ident: $flaw:expr => $case:ident $(+ $also:ident)*;)+) => {$(
        #[tokio::test(start_paused = true)]
        async fn $claim() {
            let about_it = [stringify!($case) $(, stringify!($also))*];
            let cases: Vec<Case> = cases($flaw).into_iter().filter(|(name, _)| about_it.contains(name)).collect();

            assert_eq!(cases.len(), about_it.len(), "a name that no case has");
            let mut passed = about_it.to_vec();
            let failed = failed(cases).await;
            passed.retain(|case| !failed.contains(case));
            assert_eq!(passed, Vec::<&str>::new(), "these do not notice");
        }
    )+};
}

fn asked(asked: fn(&mut Change)) -> Flaw {
    Flaw { asked, ..Flaw::default() }
}

fn done(done: fn(&[Change], &mut Commits)) -> Flaw {
    Flaw { done, ..Flaw::default() }
}

fn shown(shown: fn(&mut Snapshot)) -> Flaw {
    Flaw { shown, ..Flaw::default() }
}

fn paged(paged: fn(&mut Page, Option<&Key>)) -> Flaw {
    Flaw { paged, ..Flaw::default() }
}

fn named(named: fn(&Key) -> Key) -> Flaw {
    Flaw { named, ..Flaw::default() }
}

fn heard(heard: fn(&mut Heard)) -> Flaw {
    Flaw { heard, ..Flaw::default() }
}

fn does(habit: Habit) -> Flaw {
    Flaw { habit: Some(habit), ..Flaw::default() }
}

// Whether a change is applied.
flaws! {
    forgetting_the_first_expectation_is_found_out:
        asked(|change| drop(change.expect.drain(..change.expect.len().min(1))))
        => a_change_with_one_wrong_expectation_is_not_applied + a_record_is_created_only_where_there_is_none;
    forgetting_the_last_expectation_is_found_out:
        asked(|change| drop(change.expect.pop()))
        => a_change_with_one_wrong_expectation_is_not_applied + a_record_that_is_only_expected_is_compared;
    forgetting_an_expectation_in_the_middle_is_found_out:
        asked(|change| if change.expect.len() > 2 { drop(change.expect.remove(2)) })
        => a_change_with_one_wrong_expectation_is_not_applied + a_conflict_shows_exactly_the_records_that_differ;
    forgetting_what_is_only_expected_is_found_out:
        asked(|change| change.expect.retain(|(key, _)| change.put.iter().any(|put| put.key == *key)))
        => a_record_that_is_only_expected_is_compared + a_change_may_write_nothing
         + changes_of_one_commit_may_expect_the_same_record;
    taking_none_for_any_version_is_found_out:
        asked(|change| change.expect.retain(|(_, version)| *version != Version::NONE))
        => a_record_is_created_only_where_there_is_none + of_many_who_create_a_record_one_succeeds
         + a_doubled_commit_conflicts_and_shows_its_own_version;
    writing_on_conflict_is_found_out:
        does(Habit::WritesOnConflict)
        => a_change_with_one_wrong_expectation_is_not_applied + increments_of_one_record_are_all_counted;
    writing_half_on_conflict_is_found_out:
        does(Habit::WritesHalfOnConflict)
        => a_change_with_one_wrong_expectation_is_not_applied
         + changes_of_several_records_in_different_orders_are_all_kept;
    comparing_before_locking_is_found_out:
        does(Habit::ComparesBeforeItLocks)
        => increments_of_one_record_are_all_counted + of_many_who_create_a_record_one_succeeds
         + changes_of_several_records_in_different_orders_are_all_kept
         + overlapping_batches_in_different_orders_are_all_kept;
    failing_a_whole_batch_for_one_change_is_found_out:
        does(Habit::BatchIsAllOrNothing) => a_batch_of_250_is_answered_in_order;
    stopping_a_batch_at_a_conflict_is_found_out:
        does(Habit::BatchStopsAtConflict) => a_batch_of_250_is_answered_in_order;
    claiming_what_was_not_written_is_found_out:
        does(Habit::LosesWrites)
        => increments_of_one_record_are_all_counted + a_write_is_seen_by_every_handle_once_it_is_answered;
    ignoring_the_life_is_found_out:
        does(Habit::IgnoresLife)
        => a_commit_for_another_life_changes_nothing_and_tells_the_life
         + a_restart_keeps_everything_or_begins_another_life;
    repeating_the_life_of_the_asker_is_found_out:
        does(Habit::TellsTheLifeOfTheAsker) => a_commit_for_another_life_changes_nothing_and_tells_the_life;
    comparing_half_of_the_life_is_found_out:
        does(Habit::ComparesHalfOfTheLife) => a_commit_for_another_life_changes_nothing_and_tells_the_life;
}

// What is written.
flaws! {
    losing_a_put_is_found_out:
        asked(|change| if change.put.len() > 1 { drop(change.put.pop()) })
        => a_change_of_many_records_is_applied + changes_of_several_records_in_different_orders_are_all_kept;
    ignoring_deletions_is_found_out:
        asked(|change| change.put.retain(|put| put.value.is_some()))
        => a_deleted_record_is_at_version_none_and_can_be_created_again;
    deleting_by_an_empty_text_is_found_out:
        asked(|change| change.put.iter_mut().filter(|put| put.value.is_none()).for_each(|put| put.value = Some("".into())))
        => a_deleted_record_is_at_version_none_and_can_be_created_again;
    taking_an_empty_text_for_a_deletion_is_found_out:
        asked(|change| texts(change, |text| if text.is_empty() { None } else { Some(text.into()) }))
        => an_empty_text_is_not_a_deletion;
    trimming_texts_is_found_out:
        asked(|change| texts(change, |text| Some(text.trim().into())))
        => hostile_text_comes_back_as_it_was;
    cutting_texts_is_found_out:
        asked(|change| texts(change, |text| Some(text.chars().take(65_536).collect::<String>().into())))
        => a_text_of_100_kb_comes_back_as_it_was;
    versions_as_floating_point_numbers_are_found_out:
        Flaw { versioned: |version| Version(version.0 as f64 as u64), ..Flaw::default() }
        => versions_use_all_64_bits + a_record_is_read_back_as_it_was_written;
    versions_of_63_bits_are_found_out:
        Flaw { versioned: |version| Version(version.0 & (u64::MAX >> 1)), ..Flaw::default() }
        => versions_use_all_64_bits;
    folding_the_case_of_names_is_found_out:
        named(|key| renamed(key, str::to_lowercase)) => names_that_look_alike_are_different_records;
    trimming_names_is_found_out:
        named(|key| renamed(key, |name| format!("{}x", name.trim_end())))
        => names_that_look_alike_are_different_records;
    cutting_names_is_found_out:
        named(|key| renamed(key, |name| name.chars().take(100).collect()))
        => names_that_look_alike_are_different_records;
    splitting_names_at_braces_is_found_out:
        named(|key| renamed(key, |name| name.replace(['{', '}'], "_")))
        => hostile_names_are_names_like_others;
    confusing_kinds_of_records_is_found_out:
        named(|key| match key {
            Key::Info(id) => Key::Lease(*id),
            key => key.clone(),
        })
        => names_that_look_alike_are_different_records + leases_and_resources_are_listed_apart;
    half_a_lease_id_is_found_out:
        named(|key| match key {
            Key::Lease(id) => Key::Lease(LeaseId(id.0 & u128::from(u64::MAX))),
            key => key.clone(),
        })
        => names_that_look_alike_are_different_records + records_are_listed_in_the_order_of_their_names;
}

// What is answered.
flaws! {
    answers_in_the_wrong_order_are_found_out:
        done(|_, commits| commits.done.reverse())
        => a_batch_of_250_is_answered_in_order + each_change_of_a_batch_has_its_own_window;
    two_swapped_answers_are_found_out:
        done(|_, commits| if commits.done.len() > 20 { commits.done.swap(4, 5) })
        => a_batch_of_250_is_answered_in_order;
    a_conflict_that_shows_nothing_is_found_out:
        done(|_, commits| conflicts(commits, Vec::clear))
        => a_conflict_shows_exactly_the_records_that_differ + a_doubled_commit_conflicts_and_shows_its_own_version;
    a_conflict_that_shows_one_record_is_found_out:
        done(|_, commits| conflicts(commits, |records| records.truncate(1)))
        => a_conflict_shows_exactly_the_records_that_differ;
    a_conflict_without_stamps_is_found_out:
        done(|_, commits| conflicts(commits, |records| records.iter_mut().for_each(|record| record.stamp = None)))
        => a_record_is_created_only_where_there_is_none;
    a_conflict_that_shows_what_does_not_differ_is_found_out:
        does(Habit::ConflictShowsAll)
        => a_conflict_shows_exactly_the_records_that_differ + a_change_with_one_wrong_expectation_is_not_applied;
    taking_a_doubled_commit_for_done_is_found_out:
        done(|changes, commits| for (change, done) in changes.iter().zip(&mut commits.done) {
            let Committed::Conflict(records) = done else { continue };
            let is_mine = |record: &Stored| change.put.iter().any(|put| put.version == record.version);
            if let Some(mine) = records.iter().find(|record| is_mine(record)) {
                *done = Committed::Done { stamp: mine.stamp };
            }
        })
        => a_doubled_commit_conflicts_and_shows_its_own_version;
    records_in_the_wrong_order_are_found_out:
        shown(|snapshot| snapshot.records.sort_by(|a, b| a.key.cmp(&b.key)))
        => records_come_in_the_order_of_the_keys;
    texts_of_other_records_are_found_out:
        shown(|snapshot| {
            let mut texts: Vec<_> = snapshot.records.iter().map(|record| record.value.clone()).collect();
            let exist = |records: &[Stored]| records.iter().all(|record| record.value.is_some());
            if exist(&snapshot.records) {
                texts.reverse();
                snapshot.records.iter_mut().zip(texts).for_each(|(record, text)| record.value = text);
            }
        })
        => names_that_look_alike_are_different_records + hostile_names_are_names_like_others;
    leaving_out_missing_records_is_found_out:
        shown(|snapshot| snapshot.records.retain(|record| record.version != Version::NONE))
        => a_record_that_was_never_written_is_at_version_none + records_come_in_the_order_of_the_keys;
    stale_reads_are_found_out:
        does(Habit::ReadsStale)
        => a_write_is_seen_by_every_handle_once_it_is_answered + increments_of_one_record_are_all_counted;
    stale_reads_on_a_second_handle_are_found_out:
        does(Habit::ReadsStaleElsewhere)
        => a_write_is_seen_by_every_handle_once_it_is_answered + increments_of_one_record_are_all_counted;
    mixing_up_concurrent_reads_is_found_out:
        does(Habit::MixesUpReads) => many_reads_at_once_are_all_answered;
}

// The clock.
flaws! {
    ignoring_the_window_is_found_out:
        asked(|change| change.window = Window::default())
        => a_change_is_applied_only_within_its_window + a_window_that_opens_lets_the_change_in_from_then_on
         + a_window_that_closes_keeps_the_change_out_from_then_on + a_change_outside_of_its_window_changes_nothing
         + each_change_of_a_batch_has_its_own_window;
    ignoring_the_beginning_of_the_window_is_found_out:
        asked(|change| change.window.from = None)
        => a_change_is_applied_only_within_its_window + a_window_that_opens_lets_the_change_in_from_then_on;
    ignoring_the_end_of_the_window_is_found_out:
        asked(|change| change.window.until = None)
        => a_change_is_applied_only_within_its_window + a_window_that_closes_keeps_the_change_out_from_then_on;
    leaving_out_the_beginning_of_the_window_is_found_out:
        asked(|change| change.window.from = change.window.from.map(later)) => a_change_is_applied_only_within_its_window;
    including_the_end_of_the_window_is_found_out:
        asked(|change| change.window.until = change.window.until.map(later)) => a_change_is_applied_only_within_its_window;
    the_window_of_another_change_is_found_out:
        does(Habit::WindowOfTheFirst) => each_change_of_a_batch_has_its_own_window;
    stamps_from_before_the_lock_are_found_out:
        does(Habit::StampsBeforeItLocks) => the_stamp_is_taken_after_waiting_for_others;
    another_stamp_in_the_answer_is_found_out:
        done(|_, commits| for done in &mut commits.done {
            if let Committed::Done { stamp } = done { *stamp = stamp.map(earlier) }
        })
        => the_stamp_is_what_a_later_read_shows + a_record_is_read_back_as_it_was_written;
    one_stamp_for_ever_is_found_out:
        does(Habit::KeepsTheFirstStamp) => a_record_keeps_its_stamp_until_it_is_written;
    stamping_what_is_only_expected_is_found_out:
        does(Habit::RestampsWhatIsExpected) => a_record_keeps_its_stamp_until_it_is_written;
    an_old_clock_in_the_answer_is_found_out:
        shown(|snapshot| snapshot.now = snapshot.now.map(earlier))
        => the_clock_of_an_answer_is_not_before_any_stamp + a_record_is_read_back_as_it_was_written;
    an_old_clock_in_the_answer_to_a_commit_is_found_out:
        done(|_, commits| commits.now = commits.now.map(earlier)) => a_record_is_read_back_as_it_was_written;
    no_clock_in_the_answer_is_found_out:
        shown(|snapshot| snapshot.now = None) => a_record_that_was_never_written_is_at_version_none;
    a_clock_that_runs_backwards_is_found_out:
        does(Habit::ClockRunsBackwards) => stamps_do_not_run_backwards;
    stamps_without_a_clock_are_found_out:
        Flaw { clock: false, habit: Some(Habit::StampsAllTheSame), ..Flaw::default() }
        => a_record_is_read_back_as_it_was_written;
    a_window_without_a_clock_is_found_out:
        Flaw { clock: false, habit: Some(Habit::KeepsWindowsAllTheSame), ..Flaw::default() }
        => a_change_is_applied_only_within_its_window;
}

// One record at a time.
flaws! {
    hiding_what_was_written_before_it_stopped_is_found_out:
        Flaw {
            together: false,
            done: |changes, commits| for (change, done) in changes.iter().zip(&mut commits.done) {
                if let Committed::Conflict(records) = done {
                    records.retain(|record| change.put.iter().all(|put| put.version != record.version));
                }
            },
            ..Flaw::default()
        }
        => a_change_with_one_wrong_expectation_is_not_applied + a_doubled_commit_conflicts_and_shows_its_own_version;
    writing_in_another_order_is_found_out:
        Flaw { together: false, asked: |change| change.put.reverse(), ..Flaw::default() }
        => a_change_with_one_wrong_expectation_is_not_applied;
    remembering_and_sending_before_it_stopped_is_found_out:
        Flaw { together: false, habit: Some(Habit::TellsOnConflict), ..Flaw::default() }
        => a_change_with_one_wrong_expectation_is_not_applied;
}

// Listings and the history.
flaws! {
    a_listing_in_the_order_of_a_language_is_found_out:
        paged(|page, _| page.shown.records.sort_by_key(|record| key_name(&record.key).to_lowercase()))
        => records_are_listed_in_the_order_of_their_names;
    a_listing_that_repeats_the_last_record_is_found_out:
        does(Habit::ListsFromInsteadOfAfter)
        => records_are_listed_in_the_order_of_their_names + a_long_listing_has_every_record_once;
    a_listing_that_ends_with_its_first_page_is_found_out:
        paged(|page, _| page.more = false)
        => a_long_listing_has_every_record_once + a_listing_while_others_write_has_what_stands_throughout_once;
    a_listing_that_skips_a_record_per_page_is_found_out:
        paged(|page, after| if after.is_some() && page.shown.records.len() > 1 { drop(page.shown.records.remove(0)) })
        => a_long_listing_has_every_record_once + records_are_listed_in_the_order_of_their_names;
    a_listing_that_ends_after_a_record_that_is_gone_is_found_out:
        does(Habit::ListsNothingAfterWhatIsGone) => a_listing_goes_on_after_a_record_that_is_gone;
    a_listing_of_everything_is_found_out:
        does(Habit::ListsAllKinds) => leases_and_resources_are_listed_apart;
    a_listing_with_old_texts_is_found_out:
        paged(|page, _| page.shown.records.iter_mut().for_each(|record| record.value = Some("old".into())))
        => records_are_listed_in_the_order_of_their_names;
    the_newest_first_is_found_out:
        Flaw { remembered: |history, _| history.entries.reverse(), ..Flaw::default() }
        => the_history_is_in_the_order_of_the_changes + the_newest_entries_are_shown;
    a_history_sorted_by_time_is_found_out:
        Flaw { remembered: |history, _| history.entries.sort_by_key(|(at, _)| *at), ..Flaw::default() }
        => an_entry_has_the_time_it_names_or_that_of_its_change;
    the_oldest_instead_of_the_newest_is_found_out:
        does(Habit::ShowsTheOldestHistory) => the_newest_entries_are_shown;
    more_history_than_asked_for_is_found_out:
        does(Habit::ShowsTheWholeHistory) => the_newest_entries_are_shown;
    the_history_of_all_for_that_of_one_is_found_out:
        does(Habit::ShowsTheHistoryOfAll)
        => the_history_of_a_resource_leaves_out_the_others + the_newest_entries_are_shown;
    a_short_history_is_found_out:
        Flaw {
            remembered: |history, _| drop(history.entries.drain(..history.entries.len().saturating_sub(1_000))),
            ..Flaw::default()
        }
        => ten_thousand_entries_are_kept_and_not_many_more;
    an_endless_history_is_found_out:
        Flaw {
            remembered: |history, most| {
                let missing = most.min(13_200).saturating_sub(history.entries.len());
                let is_cut = history.entries.first().is_some_and(|(_, text)| text.as_str() == "3200");
                let older = (0..if is_cut { missing } else { 0 }).map(|n| (history.now, n.to_string().into()));
                history.entries.splice(0..0, older);
            },
            ..Flaw::default()
        }
        => ten_thousand_entries_are_kept_and_not_many_more;
    losing_a_history_entry_is_found_out:
        asked(|change| if change.history.len() > 1 { drop(change.history.pop()) })
        => the_history_is_in_the_order_of_the_changes;
    ignoring_the_time_of_an_entry_is_found_out:
        asked(|change| change.history.iter_mut().for_each(|entry| entry.at = None))
        => an_entry_has_the_time_it_names_or_that_of_its_change;
    remembering_what_was_not_applied_is_found_out:
        does(Habit::RemembersOnConflict)
        => a_change_with_one_wrong_expectation_is_not_applied + a_doubled_commit_conflicts_and_shows_its_own_version
         + a_change_outside_of_its_window_changes_nothing
         + a_commit_for_another_life_changes_nothing_and_tells_the_life;
}

// Signals.
flaws! {
    swallowing_signals_is_found_out:
        asked(|change| change.signals.clear()) => a_signal_is_heard_by_all_who_follow_its_channel;
    sending_what_was_not_applied_is_found_out:
        does(Habit::SendsOnConflict)
        => a_change_that_is_not_applied_sends_nothing + a_change_with_one_wrong_expectation_is_not_applied
         + a_change_may_write_nothing + a_change_outside_of_its_window_changes_nothing
         + a_commit_for_another_life_changes_nothing_and_tells_the_life;
    sending_too_early_is_found_out:
        does(Habit::SendsBeforeItWrites) => what_a_signal_tells_of_can_be_read;
    sending_to_all_channels_is_found_out:
        asked(|change| {
            let to_each = |signal: &Signal| {
                let text = signal.text.clone();
                signal.to.iter().map(move |to| Signal { to: vec![to.clone()], text: text.clone() }).collect::<Vec<_>>()
            };
            change.signals = change.signals.iter().flat_map(to_each).collect();
        })
        => a_signal_goes_to_one_of_its_channels;
    sending_to_the_last_channel_is_found_out:
        asked(|change| change.signals.iter_mut().for_each(|signal| signal.to.reverse()))
        => a_signal_goes_to_one_of_its_channels;
    sending_in_another_order_is_found_out:
        asked(|change| change.signals.reverse()) => signals_of_one_sender_come_in_order;
    losing_signals_of_a_burst_is_found_out:
        does(Habit::LosesBursts) => many_signals_of_many_senders_are_all_heard;
    dropping_the_text_of_a_signal_is_found_out:
        heard(|heard| heard.text = "".into()) => a_signal_carries_its_text_and_the_stamp_of_its_change;
    trimming_signals_is_found_out:
        heard(|heard| heard.text = heard.text.as_str().trim().to_owned().into())
        => a_signal_carries_its_text_and_the_stamp_of_its_change;
    cutting_signals_is_found_out:
        heard(|heard| heard.text = heard.text.as_str().chars().take(8_000).collect::<String>().into())
        => a_signal_of_the_greatest_length_is_heard;
    another_stamp_in_a_signal_is_found_out:
        heard(|heard| heard.stamp = heard.stamp.map(later)) => a_signal_carries_its_text_and_the_stamp_of_its_change;
    no_stamp_in_a_signal_is_found_out:
        heard(|heard| heard.stamp = None) => a_signal_carries_its_text_and_the_stamp_of_its_change;
    telling_one_listener_only_is_found_out:
        does(Habit::OneListener) => a_signal_is_heard_by_all_who_follow_its_channel;
    not_following_yet_is_found_out:
        does(Habit::FollowsLater) => only_what_is_sent_after_following_is_heard;
    hearing_what_was_sent_before_is_found_out:
        does(Habit::RepeatsThePast) => only_what_is_sent_after_following_is_heard;
    hearing_twice_what_is_followed_twice_is_found_out:
        does(Habit::HearsTwice) => following_a_channel_twice_changes_nothing;
    not_forgetting_is_found_out:
        does(Habit::NeverForgets)
        => a_channel_that_was_forgotten_is_not_heard + a_signal_passes_over_a_channel_whose_listener_has_gone;
    forgetting_for_good_is_found_out:
        does(Habit::ForgetsForGood) => a_channel_that_was_forgotten_can_be_followed_again;
    hearing_all_channels_is_found_out:
        does(Habit::HearsAll) => a_signal_is_heard_by_all_who_follow_its_channel + a_signal_goes_to_one_of_its_channels;
}

// Lives, and attempts that are given up.
flaws! {
    hiding_a_new_life_is_found_out:
        does(Habit::HidesItsLife) => a_restart_keeps_everything_or_begins_another_life;
    losing_data_in_the_same_life_is_found_out:
        does(Habit::HidesItsLoss) => a_restart_keeps_everything_or_begins_another_life;
    denying_a_loss_is_found_out:
        does(Habit::DeniesItsLoss) => a_store_that_lost_data_does_not_say_that_it_lost_nothing;
    never_recovering_from_a_restart_is_found_out:
        does(Habit::NeverRecovers) => a_handle_from_before_a_restart_works_again;
    a_listener_that_is_cut_off_silently_is_found_out:
        does(Habit::CutsOffSilently) => after_a_restart_a_listener_hears_or_knows_that_it_does_not;
    writing_half_when_given_up_is_found_out:
        does(Habit::StopsHalfWay) => a_commit_that_is_given_up_is_applied_as_a_whole_or_not_at_all;
    queueing_behind_what_was_given_up_is_found_out:
        does(Habit::QueuesBehindTheGivenUp)
        => a_commit_that_is_given_up_is_applied_as_a_whole_or_not_at_all + a_read_that_is_given_up_disturbs_nobody;
    answering_what_was_given_up_is_found_out:
        does(Habit::AnswersTheGivenUp) => a_read_that_is_given_up_disturbs_nobody;
}

/// That no case is left out: what the files of the suite define is what the list has.
#[tokio::test]
async fn every_case_is_in_the_list() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance/backend");
    let mut defined = vec![];
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let cases = text.lines().filter_map(|line| line.strip_prefix("pub async fn "));
        defined.extend(cases.map(|case| case.split('(').next().unwrap().to_string()));
    }
    let mut listed: Vec<String> = cases(Flaw::default()).iter().map(|(name, _)| name.to_string()).collect();

    defined.sort();
    listed.sort();
    assert_eq!(listed, defined);
}
