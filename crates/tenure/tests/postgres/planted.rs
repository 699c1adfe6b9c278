//! Bugs, planted in the functions of a private namespace: the tests above, or the suite, must find each of them.

use tenure::conformance::{claims, hints, jobs, judging, leases, queue, releases, restarts, sizes};
use tenure::store::Claimed;

use crate::fixture::{Fresh, start};
use crate::locking::{
    claim_batches, claim_behind_a_lock, claim_while_the_quarantine_grows, sweep_behind_the_living,
};

/// Plays a case of the suite on a store with a bug, and says whether it was found.
macro_rules! finds {
    ($case:path, $wrong:expr, $instead_of:expr) => {{
        let fresh = Fresh::start().await;
        fresh.plant($wrong, $instead_of);
        let found = tokio::spawn($case(fresh)).await;
        assert!(found.is_err_and(|error| error.is_panic()), "nobody found {:?}", $wrong);
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_the_transactions_begin_is_found() {
    let fresh = Fresh::start().await;
    fresh.plant("now()", "clock_timestamp()");

    let (token, freed) = claim_behind_a_lock(&fresh).await;

    assert!(token < freed, "nobody found it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_without_an_order_are_found() {
    let fresh = Fresh::on(start()).await;
    fresh.plant("ORDER BY random() FOR NO KEY UPDATE", "ORDER BY id FOR NO KEY UPDATE");
    fresh.server().sql("ALTER SYSTEM SET deadlock_timeout = '10ms'");
    fresh.server().sql("SELECT pg_reload_conf()");

    let (deadlocks, _) = claim_batches(&fresh, 3).await;

    assert!(deadlocks > 0, "nobody found it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_ignores_what_is_vouched_for_is_found() {
    finds!(
        judging::an_owner_lives_in_front_of_a_worker_that_vouches_for_an_earlier_time,
        "c.vouched := c.now_us",
        "c.vouched := least(vouched_for, c.now_us)"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_ignores_what_is_vouched_for_is_found() {
    finds!(
        judging::every_call_judges_its_own_lease_by_what_the_worker_vouches_for,
        "own.expires_at <= now_us",
        "own.expires_at <= least(vouched_for, now_us)"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_revives_the_dead_is_found() {
    finds!(
        leases::a_closed_lease_is_gone,
        "IF own.id IS NULL THEN",
        "IF own.id IS NULL OR own.ended_at IS NOT NULL THEN"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_without_its_number_is_found() {
    finds!(
        releases::a_release_below_the_newest_claim_is_stale,
        "SET released = number\n            WHERE lease = c.lease AND resource = r.id AND true",
        "SET released = number\n            WHERE lease = c.lease AND resource = r.id AND claimed < number"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_a_quarantine_is_found() {
    finds!(
        restarts::a_restart_loses_nothing_or_grants_nothing_for_one_longest,
        "quarantine_from = NULL::bigint,",
        "quarantine_from = clock(),"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_number_that_cannot_be_had_taken_for_an_owner_that_ends_now_is_found() {
    finds!(
        sizes::after_lowering_nobody_is_granted_until_fewer_than_k_own,
        "t.resource = r.id",
        "t.resource = r.id AND t.lease IS NOT NULL"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarantine_that_is_read_before_the_locks_is_found() {
    let fresh = Fresh::start().await;
    // Read where a claim begins, before it has waited for anything.
    let begin = "IF waits AND tickets = '{1}' AND";
    let read = "done := set_config('planted.longest', (SELECT longest_ns FROM meta)::text, true) IS NULL;";
    fresh.plant(&format!("{read} {begin}"), begin);
    let believe = "c.longest_ns := current_setting('planted.longest')::bigint; c.now_us := shown()";
    fresh.plant(believe, "c.now_us := shown()");

    let claimed = claim_while_the_quarantine_grows(&fresh).await;

    assert!(matches!(claimed, Claimed::Granted(_)), "nobody found it: {claimed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quick_claim_of_what_another_owns_is_found() {
    finds!(
        queue::a_waiter_is_queued_once_and_keeps_the_priority_of_its_place,
        "SELECT count(*) = 1 FROM ticket",
        "SELECT count(*) = 1 AND bool_and(lease IS NULL) FROM ticket"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quick_claim_that_overtakes_others_is_found() {
    finds!(
        queue::a_free_ticket_is_the_heads_at_once_and_the_nexts_after_a_step,
        "(-w.named, -w.priority::bigint, w.arrival) < (-p.named, -p.priority::bigint, -1)\n                    OR",
        "(-w.named, -w.priority::bigint, w.arrival) < (-p.named, -p.priority::bigint, p.arrival)\n                    OR"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quick_claim_whose_token_does_not_grow_is_found() {
    finds!(
        claims::each_grant_adds_one_to_the_term_and_raises_the_token,
        "its_token := its_token - 1",
        "its_token := greatest(its_token, now_us)"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quick_release_that_tells_nobody_is_found() {
    finds!(
        hints::a_release_hints_the_head_at_once_and_the_next_after_one_step_of_its_own,
        "w.resource = where_id AND false ORDER BY place LIMIT 2",
        "w.resource = where_id ORDER BY place LIMIT 2"
    );
}

#[tokio::test]
async fn a_sweep_that_begins_elsewhere_for_each_row_is_found() {
    let fresh = Fresh::start().await;
    let anew = "WHERE id >= first + floor(random() * (last - first + 1))::bigint ORDER BY";
    fresh.plant(anew, "WHERE id >= start ORDER BY");

    assert_eq!(sweep_behind_the_living(&fresh).await, 0, "nobody found it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_occurrence_that_is_not_used_up_is_found() {
    finds!(
        jobs::an_occurrence_is_claimed_once_whoever_asks,
        "SET through = through, missed",
        "SET through = number, missed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_an_owner_whose_lease_has_run_out_is_found() {
    finds!(
        jobs::a_holder_that_ran_out_is_not_the_owner_and_is_not_marked,
        "bearer = who AND ended_at IS NULL OFFSET 0",
        "bearer = who AND ended_at IS NULL AND expires_at > now_us OFFSET 0"
    );
}
