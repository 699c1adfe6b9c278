//! The smallest cases, exhaustively: every order of events that a few workers, a store and a bounded number of faults
//! can come to. It drives the `Worker` and the `rules::Client` that are shipped, over a store of records that decides
//! nothing. What the simulation finds by chance in long runs, this finds by completeness in short ones. req: H10
//!
//! What is looked at: S1 (at most K believe, no two in one ticket, in every state and again when the store grants), S2
//! (tokens increase over every grant), S3 (nobody works on a ticket that the store grants to another, and no lease is
//! ended while its worker trusts it), S5 (work has ended before its ticket is released or its lease closed), S6 (no
//! ownership is taken up twice, no ended lease is written, nobody that has left is given a ticket), L1 (nobody that has
//! left keeps one), L4 (no work starts beside the old one), and that every request comes to an end. That a take-over
//! and a hand-over *can* be reached is checked as well, so that the promises are not kept by idleness.
//!
//! What makes it finite, and what is therefore not seen here:
//! - Time stands still while things happen and then goes on by a quantum, a sixth of the ttl (or to the end of an
//!   owner's trust, or a hard stop, that is due before), up to a horizon around one ttl. What else is due between two
//!   quanta is done at the second.
//! - It begins with open leases ([`Begin`]), all opened at the same time, so that their renewals meet. There is one
//!   resource.
//! - All clocks run at one rate and nobody draws jitter. Drift and suspend are left to the simulation. So the timing is
//!   as tight as can be: a trust of 0.98 ttl.
//! - A message arrives within the quantum in which it was sent, unless a fault holds it up; then it arrives at any
//!   later time, or never: so a loss is a fault of that kind, too.
//! - [`Order::Any`] delivers commits, answers, hints and wake-ups in every order; a read is one step with the decision
//!   before it. In [`Order::Commits`] a commit, its answer and the reads up to the next commit are one step. In
//!   [`Order::Prompt`], for the larger cases, a worker does what is due as soon as time goes on, and a request is one
//!   step with all of its reads and commits; only a fault, out of the bounded number, comes between them.
//! - Records that watchers of a store without a clock are told of arrive at once. A hint brings its record along.
//! - A store that falls back falls back to its data as of the beginning. A link that is cut loses what is under way.
//! - Work that was told to stop at once does so before time goes on, which is what the margin is for; work that was
//!   told gently takes as long as it likes. Work does not end by itself.
//! - Operators act in one step, or stop after the first record. Evictions are not combined with a store that loses
//!   data: it may lose the eviction, and an eviction is the exception to S1.
//! - On a store that writes one by one, nobody leaves while the store falls back. Such a store cannot compare its
//!   lives: a commit of the life before that comes very late may give a ticket to a worker that has left.
//! - The store's clock steps only where no newcomer comes after it, which is what `Clock::Sane` assumes.
//! - A state is remembered by a hash of 64 bits: two that share one would be taken for one.

mod actor;
mod plan;
mod shared;
mod small;
mod store;
mod world;

use stateright::{Checker, HasDiscoveries, Model};
use tenure_core::Bug;

use plan::{Begin, Kind, Order, Plan, Trouble, Wish};
use small::{APART, HANDED_OVER, KEPT, Small, TAKEN_OVER, told};

// ---- the cases -------------------------------------------------------------------------------------------

const BAD_MESSAGES_AND_CRASHES: &[Trouble] =
    &[Trouble::Duplicate, Trouble::Hold, Trouble::HoldAnswer, Trouble::Crash];
const ONE_BY_ONE: &[Trouble] = &[Trouble::Half, Trouble::Hold, Trouble::Crash];
const NO_LOSS: &[Trouble] = &[
    Trouble::Duplicate,
    Trouble::Hold,
    Trouble::HoldAnswer,
    Trouble::Refuse,
    Trouble::Half,
    Trouble::Crash,
    Trouble::Cut,
];

#[test]
fn any_two_faults_among_three_workers_and_two_tickets_break_no_promise() {
    let troubles = &[
        Trouble::Hold,
        Trouble::HoldAnswer,
        Trouble::Crash,
        Trouble::Cut,
        Trouble::FallBack,
        Trouble::Restart,
    ];
    let plan = Plan { faults: 2, troubles, horizon: 4, ..Plan::THREE };

    check(&plan, &[]);
}

#[test]
fn any_two_faults_between_two_workers_break_no_promise() {
    let plan = Plan { faults: 2, horizon: 5, ..Plan::TWO };

    check(&plan, &[]);
}

#[test]
fn no_promise_is_broken_by_any_fault_around_a_hand_over_among_three_workers() {
    let plan = Plan { faults: 1, wishes: 1, horizon: 2, ..Plan::THREE };

    check(&plan, &[HANDED_OVER]);
}

#[test]
fn no_promise_is_broken_by_any_fault_in_any_order_of_commits_among_three_workers() {
    let plan = Plan { faults: 1, horizon: 7, order: Order::Commits, ..Plan::THREE };

    check(&plan, &[TAKEN_OVER]);
}

#[test]
fn no_promise_is_broken_by_any_fault_in_any_order_of_messages_between_two_workers() {
    let plan = Plan { faults: 1, horizon: 7, order: Order::Any, ..Plan::TWO };

    check(&plan, &[TAKEN_OVER]);
}

#[test]
fn no_promise_is_broken_by_two_bad_messages_or_crashes_in_any_order_between_two_workers() {
    let (faults, troubles) = (2, BAD_MESSAGES_AND_CRASHES);
    let horizon = 5;
    let plan = Plan { faults, troubles, horizon, order: Order::Any, ..Plan::TWO };

    check(&plan, &[]);
}

#[test]
fn no_promise_is_broken_by_a_store_that_restarts_around_a_hand_over_in_any_order() {
    let (faults, wishes, horizon) = (1, 1, 4);
    let troubles = &Trouble::OF_THE_STORE;
    let plan = Plan { faults, troubles, wishes, horizon, order: Order::Commits, ..Plan::TWO };

    check(&plan, &[HANDED_OVER]);
}

#[test]
fn no_promise_is_broken_by_a_bad_message_or_a_crash_around_a_hand_over_in_any_order() {
    let (faults, wishes, horizon) = (1, 1, 3);
    let troubles = BAD_MESSAGES_AND_CRASHES;
    let plan = Plan { faults, troubles, wishes, horizon, order: Order::Any, ..Plan::TWO };

    check(&plan, &[HANDED_OVER]);
}

#[test]
fn no_promise_is_broken_by_any_fault_while_two_workers_compete_for_a_new_resource() {
    let (faults, horizon, order) = (1, 8, Order::Commits);
    let plan = Plan { faults, horizon, order, begin: Begin::Free, ..Plan::TWO };

    check(&plan, &[TAKEN_OVER]);
}

#[test]
fn no_promise_is_broken_by_any_fault_around_a_worker_that_leaves() {
    let (faults, wishes, horizon) = (1, 1, 2);
    let (wish, troubles) = (&[Wish::Leave, Wish::Shutdown], &Trouble::OF_MESSAGES);
    let plan = Plan { faults, troubles, wishes, wish, horizon, begin: Begin::Free, ..Plan::TWO };

    check(&Plan { order: Order::Commits, ..plan.clone() }, &[]);
    check(&Plan { order: Order::Any, workers: 1, horizon: 3, ..plan }, &[]);
}

#[test]
fn whoever_leaves_keeps_no_ticket_in_a_store_that_falls_back() {
    let (faults, wishes, renew, horizon) = (1, 1, 1, 8);
    let troubles = &[Trouble::Cut, Trouble::LoseAll, Trouble::FallBack, Trouble::Restart];
    let wish = &[Wish::Leave, Wish::Shutdown];
    let plan = Plan { faults, troubles, wishes, wish, renew, horizon, ..Plan::ONE };

    check(&plan, &[]);
}

#[test]
fn no_promise_is_broken_where_records_are_written_one_by_one() {
    let (faults, horizon, order) = (1, 8, Order::Any);
    let one = Plan { faults, troubles: ONE_BY_ONE, horizon, order, store: Kind::OneByOne, ..Plan::TWO };
    let two = Plan { faults: 2, horizon: 7, order: Order::Prompt, ..one.clone() };
    let any = Plan { faults: 1, troubles: &Trouble::ALL, ..two.clone() };

    check(&one, &[TAKEN_OVER]);
    check(&two, &[TAKEN_OVER]);
    check(&any, &[TAKEN_OVER]);
}

#[test]
fn no_promise_is_broken_by_any_fault_where_the_store_has_no_clock() {
    let (faults, horizon, order) = (1, 8, Order::Commits);
    let plan = Plan { faults, horizon, order, store: Kind::NoClock, ..Plan::TWO };

    check(&plan, &[TAKEN_OVER]);
}

#[test]
fn no_promise_is_broken_when_the_clock_of_the_store_steps() {
    let troubles = &[Trouble::StepForward, Trouble::StepBack];
    let plan = Plan { faults: 1, troubles, horizon: 9, order: Order::Any, ..Plan::TWO };

    check(&plan, &[]);
    check(&Plan { wishes: 1, horizon: 9, order: Order::Commits, ..plan }, &[HANDED_OVER]);
}

#[test]
fn no_promise_is_broken_by_any_fault_around_an_eviction() {
    let wish = &[Wish::Evict, Wish::EvictHalf];
    let (faults, wishes, horizon, order) = (1, 1, 4, Order::Commits);
    let plan = Plan { faults, troubles: NO_LOSS, wishes, wish, horizon, order, ..Plan::TWO };

    check(&plan, &[]);
    check(&Plan { store: Kind::OneByOne, ..plan }, &[]);
}

#[test]
fn no_promise_is_broken_when_a_guard_ends_the_work_and_the_lease() {
    let troubles = &[Trouble::Guard];
    let (faults, horizon, order) = (1, 7, Order::Commits);
    let plan = Plan { faults, troubles, horizon, order, ..Plan::TWO };

    check(&plan, &[]);
}

/// Mistakes that break a promise, each in the smallest case that shows it.
const BREAKING: &[(Bug, Plan)] = &[
    (Bug::BelieveTooLong, Plan { faults: 1, horizon: 7, troubles: &[Trouble::Cut], ..Plan::THREE }),
    (Bug::ReleaseBeforeStop, Plan { wishes: 1, horizon: 1, ..Plan::THREE }),
    (
        Bug::QuarantineOff,
        Plan { faults: 2, horizon: 1, troubles: &[Trouble::Crash, Trouble::LoseAll], ..Plan::THREE },
    ),
    (
        Bug::TrustFromTheReply,
        Plan { faults: 2, horizon: 10, troubles: &[Trouble::HoldAnswer, Trouble::Cut], ..Plan::TWO },
    ),
    (
        Bug::OlderRenewalCounts,
        Plan { faults: 2, horizon: 9, troubles: &[Trouble::HoldAnswer, Trouble::Cut], ..Plan::TWO },
    ),
    (Bug::RenewalRecreatesLease, Plan { faults: 1, horizon: 2, troubles: &[Trouble::Guard], ..Plan::TWO }),
    (
        Bug::ConfirmationOff,
        Plan { faults: 1, horizon: 8, troubles: &[Trouble::FallBack], begin: Begin::Free, ..Plan::TWO },
    ),
    (Bug::EndedInQuarantine, Plan { faults: 1, horizon: 7, troubles: &[Trouble::FallBack], ..Plan::TWO }),
    (
        Bug::CommitWithoutLife,
        Plan {
            faults: 1,
            horizon: 1,
            troubles: &[Trouble::FallBack],
            begin: Begin::Free,
            order: Order::Any,
            ..Plan::TWO
        },
    ),
    (
        Bug::LeaveInDoubt,
        Plan {
            faults: 1,
            horizon: 3,
            troubles: &[Trouble::Hold],
            wishes: 1,
            wish: &[Wish::Leave],
            begin: Begin::Free,
            order: Order::Any,
            ..Plan::ONE
        },
    ),
    (
        Bug::ReadoptAfterRelease,
        Plan {
            horizon: 1,
            wishes: 1,
            wish: &[Wish::Leave],
            begin: Begin::Free,
            order: Order::Any,
            ..Plan::TWO
        },
    ),
    (Bug::TokenResetOnRelease, Plan { wishes: 1, horizon: 1, ..Plan::TWO }),
    (Bug::ClaimBeforeReleaseAnswered, Plan { wishes: 1, horizon: 1, order: Order::Any, ..Plan::TWO }),
    (Bug::ClaimWhileWorkRuns, Plan { faults: 1, horizon: 7, troubles: &[Trouble::Cut], ..Plan::TWO }),
    (Bug::TicketsNotCounted, Plan { begin: Begin::Free, ..Plan::TWO }),
    (
        Bug::JudgedByOff,
        Plan { faults: 1, horizon: 7, troubles: &[Trouble::StepForward], order: Order::Any, ..Plan::TWO },
    ),
    (
        Bug::BoundAlone,
        Plan { faults: 1, horizon: 7, troubles: &[Trouble::StepBack], order: Order::Any, ..Plan::TWO },
    ),
    (
        Bug::SeatBeforeNotice,
        Plan { horizon: 6, wishes: 1, wish: &[Wish::EvictHalf], store: Kind::OneByOne, ..Plan::TWO },
    ),
];

/// Mistakes by which nothing happens that should, and what is never reached because of them.
const IDLE: &[(Bug, &str, Plan)] = &[
    (Bug::LookTooLate, TAKEN_OVER, Plan { faults: 1, horizon: 6, troubles: &[Trouble::Crash], ..Plan::TWO }),
    (Bug::NobodyIsHinted, HANDED_OVER, Plan { wishes: 1, horizon: 1, ..Plan::TWO }),
];

#[test]
fn each_planted_bug_breaks_a_promise_in_a_small_case() {
    println!("| planted bug | states | what it breaks |\n|---|---|---|");
    for (bug, plan) in BREAKING {
        let plan = Plan { bug: Some(*bug), ..plan.clone() };
        let checker = search(&plan, HasDiscoveries::AnyFailures);

        let path = checker.discovery(APART).or_else(|| checker.discovery(KEPT));
        let path = path.unwrap_or_else(|| panic!("{bug:?} breaks no promise"));
        let broken = path.last_state().broken.unwrap_or(APART);
        println!("| {bug:?} | {} | {broken} |", checker.unique_state_count());
    }
}

#[test]
fn each_planted_bug_that_idles_keeps_a_small_case_from_its_end() {
    for (bug, end, plan) in IDLE {
        let right = search(plan, HasDiscoveries::AnyOf([*end].into()));
        let wrong = search(&Plan { bug: Some(*bug), ..plan.clone() }, HasDiscoveries::AnyOf([*end].into()));

        assert!(right.discovery(end).is_some(), "{end} in the case of {bug:?}");
        assert!(wrong.discovery(end).is_none(), "{bug:?} is not found: {end}");
    }
}

fn search(plan: &Plan, until: HasDiscoveries) -> impl Checker<Small> + use<> {
    Small::new(plan).checker().threads(2).finish_when(until).spawn_bfs().join()
}

/// Looks at every state that the plan allows, or until a promise is broken.
fn check(plan: &Plan, reachable: &[&'static str]) {
    let checker = search(plan, HasDiscoveries::AnyFailures);

    let Plan { workers, tickets, begin, store, faults, wishes, horizon, order, .. } = plan;
    let (unique, depth) = (checker.unique_state_count(), checker.max_depth());
    println!(
        "workers: {workers}, tickets: {tickets}, {begin:?}, {store:?}, faults: {faults}, wishes: {wishes}, \
         quanta: {horizon}, order: {order:?}; {unique} states, {depth} steps deep"
    );
    for promise in [APART, KEPT] {
        if let Some(path) = checker.discovery(promise) {
            panic!("not {promise}:\n{}", told(path));
        }
    }
    for possible in reachable {
        assert!(checker.discovery(possible).is_some(), "never {possible}");
    }
}
