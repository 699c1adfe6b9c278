//! Each rule over records, on a store that does nothing but compare and swap.

mod attacks;
mod client;
mod contact;
mod found;
mod ownership;
mod world;

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use self::world::*;
use super::*;
use crate::Happened;
use crate::fanout::Payload;
use crate::job::{Begin, Holder, JobAct, JobOutcome, JobStep, Note, Occurrence};
use crate::message::*;
use crate::moment::StoreTime;
use crate::names::{Label, Metadata, Plan};
use crate::planted::{Bug, Planted};

const TTL: Duration = Duration::from_secs(15);
const A: LeaseId = LeaseId(1);
const B: LeaseId = LeaseId(2);
const C: LeaseId = LeaseId(3);

// ---- what a request costs ------------------------------------------------------------------------------------

// req: C2
#[test]
fn a_release_is_one_commit_without_a_read() {
    let mut world = World::owned_by_a();
    world.count();

    assert_eq!(world.release(A), Released::Free);

    assert_eq!(world.count(), Cost { reads: 0, commits: 1, writes: 1 });
}

#[test]
fn an_owner_hears_who_joins_so_that_its_release_is_one_commit() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    assert!(world.signals.contains(&Signal::Changed(A, name())));
    world.tell(A, "r");
    world.count();

    assert_eq!(world.release(A), Released::Free);

    assert_eq!(world.count(), Cost { reads: 0, commits: 1, writes: 1 });
}

#[test]
fn a_claim_after_a_hint_with_the_record_is_one_commit_without_a_read() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.release(A);
    world.tell(B, "r");
    world.count();

    assert_eq!(granted(world.claim(B)).term, Term(2));

    assert_eq!(world.count(), Cost { reads: 0, commits: 1, writes: 1 });
}

#[test]
fn a_look_reads_once_and_writes_nothing() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.count();

    waits(world.claim(B));

    assert_eq!(world.count(), Cost { reads: 1, commits: 0, writes: 0 });
}

#[test]
fn a_renewal_is_one_commit_without_a_read_whatever_is_owned() {
    let mut world = World::owned_by_a();
    world.count();

    assert!(matches!(world.renew(A), Said::Kept { .. }));

    assert_eq!(world.count(), Cost { reads: 0, commits: 1, writes: 1 });
}

#[test]
fn a_take_over_is_two_commits_without_a_read_the_end_of_the_lease_and_the_grant() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.pass(TTL / 2);
    world.renew(B);
    world.pass(TTL / 2);
    world.count();

    assert_eq!(granted(world.claim(B)).term, Term(2));

    assert_eq!(world.count(), Cost { reads: 0, commits: 2, writes: 2 });
}

#[test]
fn an_owner_that_was_told_what_it_is_asked_for_is_not_told_again() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.act(Act::Ask(name(), world.resource().token, None));
    world.count();

    waits(world.claim(B));

    assert_eq!(world.count(), Cost { reads: 1, commits: 0, writes: 0 });
}

#[test]
fn who_set_the_tickets_last_is_noted_once() {
    let mut world = World::owned_by_a();
    let earlier = SetBy { opened: Some(StoreTime::from_micros(1)), lease: C };
    world.edit_resource(|resource| resource.set_by = earlier);
    world.tell(A, "r");
    world.count();

    granted(world.claim(A));
    assert_eq!((world.count().writes, world.resource().set_by.lease), (1, A));
    granted(world.claim(A));
    assert_eq!(world.count().writes, 0);
}

#[test]
fn behind_a_full_queue_nothing_is_written() {
    let mut world = World::owned_by_a();
    for lease in 10..10 + MOST_WAITERS as u128 + 1 {
        world.open(LeaseId(lease), TTL);
        waits(world.claim(LeaseId(lease)));
    }
    world.open(B, TTL);
    world.count();

    let waiting = waits(world.claim(B));

    assert_eq!((waiting.ahead as usize, waiting.look_again), (MOST_WAITERS + 1, TTL));
    assert_eq!(world.count().writes, 0);
    assert_eq!(world.resource().queue.len(), MOST_WAITERS + 1);
}

#[test]
fn a_full_queue_that_is_written_is_noticed() {
    let mut world = World::owned_by_a();
    for lease in 10..10 + MOST_WAITERS as u128 + 1 {
        world.open(LeaseId(lease), TTL);
        waits(world.claim(LeaseId(lease)));
    }
    world.planted = Planted::with(Bug::FullQueueIsWritten);
    world.open(C, TTL);
    world.count();

    waits(world.claim(C));

    assert!(world.count().writes > 0);
}

#[test]
fn from_the_second_conflict_on_whoever_joins_waits_and_reads_and_whoever_releases_does_neither() {
    let joins = || claim_of(1, 0);
    let releases = || Call::Release(vec![Leave { resource: name(), how: Leaving::Released }]);

    assert_eq!(after_conflicts(Planted::default(), B, joins()), ["commit", "wait", "read"]);
    assert_eq!(after_conflicts(Planted::default(), A, releases()), ["commit", "commit"]);
    assert_eq!(
        after_conflicts(Planted::with(Bug::CommitAfterWait), B, joins()),
        ["commit", "wait", "commit"]
    );
    assert_eq!(after_conflicts(Planted::with(Bug::AllWaitAlike), A, releases()), ["commit", "wait", "read"]);
}

/// What a request does after each of two conflicts.
fn after_conflicts(planted: Planted, lease: LeaseId, call: Call) -> Vec<&'static str> {
    let mut world = World { planted, ..World::new() };
    world.open(A, TTL);
    granted(world.claim(A));
    world.open(B, TTL);
    let request = world.request(lease, call);
    let mut client = world.client(lease);
    let (mut operation, life, mut sendings) = world.begin(&mut client, request);
    let mut done = Vec::new();
    for _ in 0..2 {
        world.edit_resource(|resource| resource.arrivals += 1);
        let fates = world.commit(life, &sendings);
        let env = world.env();
        client.committed(&env, &mut operation, world.shown(), fates);
        match client.step(&world.env(), &mut operation) {
            Step::Commit(_, again) => {
                done.push("commit");
                sendings = again;
            }
            Step::Wait(_) => {
                done.push("wait");
                let next = client.step(&world.env(), &mut operation);
                done.push(if matches!(next, Step::Read(_)) { "read" } else { "commit" });
            }
            other => panic!("{other:?}"),
        }
    }
    done
}

#[test]
fn a_higher_priority_takes_the_last_place_of_a_full_queue() {
    let mut world = World::owned_by_a();
    for lease in 10..10 + MOST_WAITERS as u128 + 1 {
        world.open(LeaseId(lease), TTL);
        waits(world.claim(LeaseId(lease)));
    }
    world.open(B, TTL);

    assert_eq!(waits(world.claim_with(B, 1, 5)).ahead, 0);

    let queue = world.resource().queue;
    assert_eq!((queue.len(), queue[0].lease), (MOST_WAITERS + 1, B));
}

// ---- what a change asks of the store -------------------------------------------------------------------------

/// What the first commit of this demands of the store.
fn demands(world: &mut World, lease: LeaseId, act: Act) -> Vec<&'static str> {
    let mut client = world.client(lease);
    let (_, _, sendings) = world.begin_act(&mut client, act);
    world.clients.insert(lease, client);
    let change = &sendings[0].change;
    let window = change.window;
    let demands = [
        ("essential", change.essential),
        ("urgent", change.urgent),
        ("lasting", change.lasting),
        ("from", window.from.is_some()),
        ("until the lease ends", window.until == Some(world.now + TTL)),
    ];
    assert!(window.until.is_none() || demands[4].1, "{window:?}");
    demands.into_iter().filter(|(_, demanded)| *demanded).map(|(what, _)| what).collect()
}

#[test]
fn what_ends_or_keeps_something_is_essential_a_grant_lasts_and_whoever_takes_has_to_be_in_time() {
    let leave = |how| Call::Release(vec![Leave { resource: name(), how }]);
    let call = |world: &mut World, lease, call| {
        let act = Act::Call(world.request(lease, call), None);
        demands(world, lease, act)
    };
    let mut world = World::new();
    for lease in [A, B, C] {
        world.open(lease, TTL);
    }

    // All of these are given up before they reach the store.
    assert_eq!(call(&mut world, A, Call::Renew), ["essential", "urgent"]);
    assert_eq!(call(&mut world, A, claim_of(1, 0)), ["urgent", "lasting", "until the lease ends"]);
    assert_eq!(call(&mut world, A, leave(Leaving::Released)), ["essential", "urgent"], "it makes sure");
    granted(world.claim(A));
    assert_eq!(call(&mut world, B, claim_of(1, 0)), ["until the lease ends"]);
    assert_eq!(call(&mut world, A, leave(Leaving::Released)), ["essential", "urgent"]);
    assert_eq!(call(&mut world, A, leave(Leaving::SteppedDown)), ["essential", "urgent", "lasting"]);
    waits(world.claim(B));
    world.renew(A);
    world.tell(A, "r");
    assert_eq!(call(&mut world, A, leave(Leaving::SteppedDown)), ["essential", "urgent"]);
    assert_eq!(call(&mut world, C, Call::Close(Closing::Left)), ["essential", "urgent"]);

    let token = world.resource().token;
    let holder = Holder { lease: A, resource: name(), token };
    let job = |act| Act::Job(JobStep { holder: holder.clone(), act });
    let (plan, occurrence) = (Plan::new("daily").unwrap(), Occurrence::ONCE);
    let attend = job(JobAct::Attend { plan, from: Occurrence::new(0).unwrap() });
    let begin = job(JobAct::Begin(Begin { occurrence, missed: 0, skipped: 0, again: false }));
    let finish = job(JobAct::Finish { occurrence, outcome: JobOutcome::Ran, note: Note::default() });
    assert_eq!(demands(&mut world, A, attend.clone()), ["urgent", "lasting", "until the lease ends"]);
    world.act_as(A, attend);
    assert_eq!(demands(&mut world, A, begin.clone()), ["urgent", "lasting", "until the lease ends"]);
    world.act_as(A, begin);
    assert_eq!(demands(&mut world, A, finish), ["essential", "urgent", "lasting"]);
    let publish = Act::Publish(holder.clone(), Payload::new(b"x").unwrap());
    assert_eq!(demands(&mut world, A, publish), ["until the lease ends"]);

    // A has run out, and B has not.
    world.pass(TTL / 2);
    world.renew(B);
    world.pass(TTL / 2);
    assert_eq!(call(&mut world, B, claim_of(1, 0)), ["essential", "urgent", "from"]);
    assert!(demands(&mut world, C, Act::Evict(name(), token)).is_empty());
    world.act_as(C, Act::Sweep(vec![A]));
    world.pass(TTL_LINGERS);
    assert_eq!(demands(&mut world, C, Act::Sweep(vec![A])), ["essential", "from"], "it has time");
    world.act(Act::Prove(A));
    world.pass(Duration::from_secs(30 * 24 * 3600));
    assert_eq!(demands(&mut world, C, Act::Sweep(vec![A])), ["from"]);
}

// ---- life and death ------------------------------------------------------------------------------------------

// req: T3
#[test]
fn only_the_store_and_the_candidate_together_end_a_lease() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    let ends = world.now + TTL;

    world.pass(TTL);
    waits(world.claim_judging(B, ends + Duration::from_micros(0), -1));
    world.now = StoreTime::from_micros(ends.as_micros() - 1);
    waits(world.claim_judging(B, ends + TTL, 0));
    assert!(world.lease(A).ended.is_none(), "one of the two clocks was not there yet");

    world.now = ends;
    assert_eq!(granted(world.claim_judging(B, ends, 0)).term, Term(2));
    assert_eq!(world.lease(A).ended.map(|ended| (ended.at, ended.why)), Some((Some(ends), Closing::Expired)));
}

#[test]
fn a_lease_that_the_stores_clock_is_not_asked_about_is_noticed() {
    let from = |planted| {
        let mut world = World { planted, ..World::new() };
        world.open(A, TTL);
        granted(world.claim(A));
        world.open(B, TTL);
        let ends = world.now + TTL;
        waits(world.claim(B));
        world.pass(TTL / 2);
        world.renew(B);
        world.pass(TTL / 2);
        let sendings = world.commit_of(B, claim_of(1, 0));
        assert_eq!(sendings[0].change.put[0].0, Key::Lease(A));
        (sendings[0].change.window.from, ends)
    };

    let (right, ends) = from(Planted::default());
    assert_eq!(right, Some(ends));
    for bug in [Bug::BoundAlone, Bug::JudgedByOff] {
        assert_eq!(from(Planted::with(bug)).0, None, "{bug:?}");
    }
}

#[test]
fn an_ended_lease_is_never_written_again() {
    let mut world = World::owned_by_a();
    world.pass(TTL);
    world.renew(B);
    granted(world.claim(B));

    let before = world.version(&Key::Lease(A));
    assert_eq!(world.renew(A), Said::Gone);
    assert_eq!(world.close(A), Said::Closed);

    assert_eq!(world.version(&Key::Lease(A)), before);
}

#[test]
fn a_lease_that_others_have_ended_or_written_again_is_not_opened_again() {
    let open = || {
        let (label, metadata) = (Label::new("worker").unwrap(), Metadata::default());
        Call::Open { ttl: TTL, label, metadata }
    };
    let ended: fn(&mut World) = |world| assert_eq!(world.act(Act::Prove(A)), Reply::Done);
    let adopted: fn(&mut World) = |world| {
        world.records.remove(&Key::Lease(A));
        waits(world.claim(B));
        assert!(world.lease(A).ended.is_none(), "the ticket names it, so it was written again");
    };
    for end in [ended, adopted] {
        let mut world = World::owned_by_a();
        end(&mut world);

        assert_eq!(world.call(A, open()), Said::Gone);
    }
}

#[test]
fn a_lease_that_ran_out_and_was_not_ended_is_renewed() {
    let mut world = World::owned_by_a();
    world.pass(TTL * 3);

    assert!(matches!(world.renew(A), Said::Kept { .. }));

    waits(world.claim(B));
}

// req: D1
#[test]
fn a_step_back_of_the_stores_clock_blocks_a_ticket_for_one_ttl_at_most() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));

    world.now = StoreTime::from_micros(world.now.as_micros() - 900_000_000);
    world.renew(B);
    waits(world.claim(B));
    world.pass(TTL / 2);
    world.renew(B);
    waits(world.claim(B));
    world.pass(TTL / 2);
    world.renew(B);

    assert_eq!(granted(world.claim(B)).term, Term(2));
}

#[test]
fn a_notice_from_another_does_not_extend_a_lease() {
    let mut world = World::owned_by_a();
    let ends = world.now + TTL;
    world.pass(TTL / 2);

    assert_eq!(world.act(Act::Ask(name(), world.resource().token, None)), Reply::Asked(Asked::Done));

    world.now = ends;
    world.renew(B);
    assert_eq!(granted(world.claim(B)).term, Term(2));
}

#[test]
fn a_renewal_under_a_number_that_was_used_is_stale() {
    let mut world = World::owned_by_a();
    world.renew_as(A, 50);
    let before = world.version(&Key::Lease(A));

    assert_eq!(world.renew_as(A, 50), Said::Stale);
    assert_eq!(world.renew_as(A, 49), Said::Stale);

    assert_eq!(world.version(&Key::Lease(A)), before);
}

#[test]
fn a_clone_that_is_taken_for_oneself_is_noticed() {
    let mut world = World { planted: Planted::with(Bug::ClonesAreOurselves), ..World::new() };
    world.open(A, TTL);
    world.renew_as(A, 50);

    assert!(matches!(world.renew_as(A, 50), Said::Kept { .. }), "and the right one says Stale, as above");
}

#[test]
fn a_commit_that_arrives_twice_counts_once_and_counts() {
    let mut world = World::owned_by_a();
    world.doubled = true;

    assert!(matches!(world.renew(A), Said::Kept { .. }));
    assert_eq!(world.release(A), Released::Free);
    assert_eq!(granted(world.claim(B)).term, Term(2));
}

// ---- doubt ---------------------------------------------------------------------------------------------------

// req: S6
#[test]
fn a_release_makes_sure_that_a_claim_of_before_cannot_be_applied_any_more() {
    let mut world = World::new();
    world.open(A, TTL);
    let late = world.commit_of(A, claim_of(1, 0));

    assert_eq!(world.release(A), Released::Free);

    assert_eq!(world.apply(&late), [false], "the claim comes too late");
    assert!(world.resource().seats.is_empty());
}

#[test]
fn a_release_of_what_a_lost_reply_has_granted_gives_it_up() {
    let mut world = World::new();
    world.open(A, TTL);
    let late = world.commit_of(A, claim_of(1, 0));
    assert_eq!(world.apply(&late), [true]);

    assert_eq!(world.release(A), Released::Free);

    assert!(world.resource().seats.is_empty());
}

#[test]
fn without_doubt_a_release_of_nothing_writes_nothing() {
    let mut world = World::owned_by_a();
    world.count();

    assert_eq!(world.release(B), Released::Free);

    assert_eq!(world.count().writes, 0);
}

// ---- quarantine and ttls -------------------------------------------------------------------------------------

// req: S1
#[test]
fn in_a_new_life_nothing_is_granted_or_ended_for_one_longest() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.life = Incarnation(2);
    world.pass(TTL);

    world.renew(B);
    assert_eq!(waits(world.claim(B)).why, Why::Quarantine);
    assert!(world.lease(A).ended.is_none());

    world.pass(TTL);
    world.renew(B);
    assert_eq!(granted(world.claim(B)).term, Term(2));
}

#[test]
fn in_a_new_life_a_waiter_that_ran_out_keeps_its_place_for_one_longest() {
    let mut world = World::owned_by_a();
    world.open(C, TTL);
    waits(world.claim(C));
    waits(world.claim(B));
    world.pass(TTL / 2);
    world.life = Incarnation(2);
    world.renew(B);
    world.pass(TTL / 2);

    let waiting = waits(world.claim(B));

    assert_eq!((waiting.ahead, waiting.why, world.resource().waits(C)), (1, Why::Quarantine, true));
}

#[test]
fn who_brings_a_longer_ttl_from_another_life_has_it_respected() {
    let mut world = World::new();
    world.open(A, TTL * 4);
    world.records.clear();
    (world.life, world.lost_nothing) = (Incarnation(2), false);

    assert_eq!(world.renew(A), Said::Gone);

    assert_eq!(world.meta().longest, TTL * 4);
}

// req: D4
#[test]
fn what_was_wiped_within_a_life_is_noticed_and_a_longer_ttl_respected() {
    let mut world = World::new();
    world.open(A, TTL * 4);
    granted(world.claim(A));

    world.records.clear();
    world.lost_nothing = false;
    world.open(B, TTL);
    world.pass(TTL / 2);
    assert_eq!(world.renew(A), Said::Gone);

    assert_eq!(world.meta().longest, TTL * 4);
    world.pass(TTL * 4 - Duration::from_micros(1));
    world.renew(B);
    assert_eq!(waits(world.claim(B)).why, Why::Quarantine);
    world.pass(Duration::from_micros(1));
    granted(world.claim(B));
}

#[test]
fn who_knew_what_was_wiped_does_not_believe_that_nothing_was_lost() {
    let mut world = World::owned_by_a();

    world.records.clear();
    world.renew(A);
    world.open(C, TTL);

    assert_eq!(waits(world.claim(C)).why, Why::Quarantine);
}

#[test]
fn a_lease_that_ran_out_is_ended_by_a_sweep_only_when_it_was_watched_or_long_ago() {
    let hour = Duration::from_secs(3600);
    let mut world = World::owned_by_a();
    let is_ended = |world: &World| world.lease(A).ended.is_some();

    // The store's clock goes far ahead: nobody has watched the lease for so long.
    world.act(Act::Sweep(vec![A]));
    world.now = world.now + hour * 2;
    world.act(Act::Sweep(vec![A]));
    assert!(!is_ended(&world));

    world.pass(TTL);
    world.act(Act::Sweep(vec![A]));
    assert!(is_ended(&world));
}

#[test]
fn a_lease_that_ran_out_is_ended_by_a_sweep_an_hour_later_and_never_in_a_quarantine() {
    let hour = Duration::from_secs(3600);
    for (life, after, is_ended) in [
        (1, TTL + hour - Duration::from_micros(1), false),
        (1, TTL + hour, true),
        (2, (TTL + hour) * 2, false),
    ] {
        let mut world = World::owned_by_a();
        world.life = Incarnation(life);
        world.act(Act::Sweep(vec![A]));
        world.pass(after);

        world.act(Act::Sweep(vec![A]));

        assert_eq!(world.lease(A).ended.is_some(), is_ended, "{after:?} in life {life}");
    }
}

#[test]
fn a_lease_is_deleted_an_hour_after_it_was_left_in_order_and_else_after_30_days() {
    let (hour, micro) = (Duration::from_secs(3600), Duration::from_micros(1));
    let left: fn(&mut World) = |world| assert_eq!(world.close(A), Said::Closed);
    let proved: fn(&mut World) = |world| assert_eq!(world.act(Act::Prove(A)), Reply::Done);
    let idle = || {
        let mut world = World::new();
        world.open(A, TTL);
        world
    };
    let month = hour * 24 * 30;
    for (mut world, end, kept) in
        [(World::owned_by_a(), left, hour), (idle(), left, hour), (World::owned_by_a(), proved, month)]
    {
        end(&mut world);

        world.pass(kept - micro);
        world.act(Act::Sweep(vec![A]));
        assert!(world.value(&Key::Lease(A)).is_some());
        world.pass(micro);
        let (_, _, sendings) = world.begin_act(&mut world.operator.clone(), Act::Sweep(vec![A]));
        let expected = [Key::Info(A), Key::Lease(A)].map(|key| (key.clone(), world.version(&key)));
        assert_eq!(sendings[0].change.expect, expected, "as they are now");
        world.act(Act::Sweep(vec![A]));
        assert!(world.value(&Key::Lease(A)).is_none() && world.value(&Key::Info(A)).is_none());
    }
}

#[test]
fn an_ended_lease_has_nothing_to_tell_and_those_who_follow_it_hear_of_the_end() {
    let mut world = World::owned_by_a();
    let notice = Notice { resource: name(), token: world.resource().token, wish: Wish::Asked };
    let asked = Lease { notices: vec![notice], all: true, ..world.lease(A) };
    world.write(&Key::Lease(A), asked.into());
    world.signals.clear();

    world.act(Act::Prove(A));

    assert_eq!((world.lease(A).notices, world.lease(A).all), (vec![], false));
    assert_eq!(world.signals, [Signal::Ended(A)]);
}

#[test]
fn a_ttl_that_was_noted_within_the_last_minute_is_not_noted_again() {
    let minute = Duration::from_secs(60);
    for (after, commits) in [(Duration::ZERO, 1), (minute - Duration::from_micros(1), 1), (minute, 2)] {
        let mut world = World::new();
        world.open(A, TTL);
        world.pass(after);
        world.count();

        world.open(B, TTL);

        assert_eq!(world.count().commits, commits, "{after:?}");
    }
}

#[test]
fn the_longest_ttl_falls_when_no_lease_uses_it_and_not_before() {
    let mut world = World::new();
    world.open(A, TTL * 4);
    world.open(B, TTL);
    world.pass(TTL_LINGERS);
    let in_use = |ttls: &[Duration]| ttls.iter().copied().collect();

    world.act(Act::DropTtls(in_use(&[TTL, TTL * 4]), TTL_LINGERS));
    assert_eq!(world.meta().longest, TTL * 4);
    world.act(Act::DropTtls(in_use(&[TTL]), TTL_LINGERS));
    assert_eq!(world.meta().longest, TTL);
}

#[test]
fn every_ttl_in_use_is_noted_and_those_that_no_lease_uses_are_dropped() {
    let noted = |world: &World| match world.value(&Key::Ttls) {
        Some(Value::Ttls(ttls)) => ttls.uses.iter().map(|used| used.ttl).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let mut world = World::new();
    world.open(A, TTL * 4);
    world.open(B, TTL);
    world.open(C, TTL * 2);
    assert_eq!(noted(&world), [TTL * 4, TTL, TTL * 2]);

    world.pass(TTL_LINGERS);
    world.act(Act::DropTtls([TTL, TTL * 4].into(), TTL_LINGERS));
    assert_eq!((noted(&world), world.meta().longest), (vec![TTL * 4, TTL], TTL * 4));
    world.count();
    world.act(Act::DropTtls([TTL, TTL * 4].into(), TTL_LINGERS));
    assert_eq!(world.count().writes, 0, "all are in use");
}

#[test]
fn a_ttl_that_was_just_noted_is_not_dropped() {
    let mut world = World::new();
    world.open(A, TTL);
    world.pass(TTL_LINGERS - Duration::from_secs(1));

    world.act(Act::DropTtls([].into(), TTL_LINGERS));

    assert_eq!(world.meta().longest, TTL);
}

// ---- queue and operators -------------------------------------------------------------------------------------

// req: L3
#[test]
fn whoever_joins_does_not_set_anew_when_the_ticket_was_freed() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.release(A);
    world.pass(Duration::from_millis(60));
    world.open(C, TTL);
    assert_eq!(waits(world.claim(C)).why, Why::Turn);

    world.pass(Duration::from_millis(50));

    assert_eq!(granted(world.claim(C)).term, Term(2), "a step after the release the next may take it");
}

// B has seen the lease of C once. C has renewed since.
#[test]
fn a_waiter_that_has_renewed_since_it_was_seen_is_not_overtaken() {
    let mut world = World::owned_by_a();
    world.open(C, TTL);
    waits(world.claim(C));
    waits(world.claim(B));
    for _ in 0..2 {
        world.pass(TTL / 2);
        [A, B, C].iter().for_each(|lease| drop(world.renew(*lease)));
    }
    world.release(A);
    world.tell(B, "r");

    assert_eq!(waits(world.claim(B)).why, Why::Turn);
}

#[test]
fn the_store_grants_nothing_to_later_waiters_before_their_steps_are_over() {
    let mut world = World::owned_by_a();
    let (d, step) = (LeaseId(4), Duration::from_millis(100));
    world.open(C, TTL);
    world.open(d, TTL);
    for lease in [B, C, d] {
        waits(world.claim(lease));
    }
    world.release(A);
    let freed = world.now;
    world.pass(step * 5);

    for (lease, from) in [(B, None), (C, Some(freed + step)), (d, Some(freed + step * 2))] {
        world.tell(lease, "r");
        let sendings = world.commit_of(lease, claim_of(1, 0));
        assert!(sendings[0].change.lasting, "it is a grant");
        assert_eq!(sendings[0].change.window.from, from);
    }
}

#[test]
fn a_hint_goes_on_to_those_behind_when_nobody_listens() {
    let mut world = World::owned_by_a();
    world.open(C, TTL);
    waits(world.claim(B));
    waits(world.claim(C));
    world.signals.clear();

    world.call(A, Call::Release(vec![leave(&name(), Leaving::SteppedDown)]));

    let (resource, step) = (name(), Duration::from_millis(100));
    let head = Signal::Look { to: vec![B, C], resource: resource.clone(), after: Duration::ZERO };
    let next = Signal::Look { to: vec![C], resource, after: step };
    assert_eq!(world.signals, [head, next], "A is not told what it did itself");
}

#[test]
fn whoever_clears_dead_waiters_away_leaves_the_living_in_their_places() {
    let mut world = World::owned_by_a();
    let d = LeaseId(4);
    world.open(C, TTL);
    world.open(d, TTL);
    for lease in [C, B, d] {
        waits(world.claim(lease));
    }
    world.act(Act::Prove(C));

    assert_eq!(waits(world.claim(B)).ahead, 0);

    let queue = world.resource().queue;
    assert_eq!(queue.iter().map(|place| (place.lease, place.arrival)).collect::<Vec<_>>(), [(B, 2), (d, 3)]);
}

// With two free tickets ten waiters are looked at.
#[test]
fn one_change_drops_eight_dead_waiters_at_most() {
    let mut world = World::new();
    let d = LeaseId(4);
    for lease in [A, B, C] {
        world.open(lease, TTL);
        granted(world.claim_with(lease, 3, 0));
    }
    for lease in (10..22).map(LeaseId) {
        world.open(lease, TTL);
        waits(world.claim_with(lease, 3, 0));
    }
    for lease in (10..22).map(LeaseId) {
        world.act(Act::Prove(lease));
    }
    world.release(B);
    world.release(C);
    world.pass(Duration::from_secs(1));
    world.open(d, TTL);

    granted(world.claim_with(d, 3, 0));

    assert_eq!(world.resource().queue.len(), 12 - 8);
}

#[test]
fn a_ticket_beyond_k_is_noticed() {
    for (planted, owners) in [(Planted::default(), 1), (Planted::with(Bug::TicketsNotCounted), 2)] {
        let mut world = World { planted, ..World::new() };
        for lease in [A, B] {
            world.open(lease, TTL);
            world.claim(lease);
        }

        assert_eq!(world.resource().seats.len(), owners);
    }
}

#[test]
fn whoever_steps_down_clears_away_other_owners_that_are_known_to_be_dead() {
    let mut world = World::new();
    for lease in [A, B] {
        world.open(lease, TTL);
        granted(world.claim_with(lease, 2, 0));
    }
    world.act(Act::Prove(B));
    granted(world.claim_with(A, 2, 0)); // It looks at B.

    world.call(A, Call::Release(vec![leave(&name(), Leaving::SteppedDown)]));

    assert!(world.resource().seat_of(B).is_none());
    assert!(world.history.iter().any(|event| event.what == Happened::Died));
}

#[test]
fn whoever_takes_the_last_free_ticket_of_a_dead_owner_wakes_nobody() {
    let mut world = World::owned_by_a();
    world.open(C, TTL);
    waits(world.claim(B));
    waits(world.claim(C));
    world.act(Act::Prove(A));
    world.signals.clear();

    granted(world.claim(B));

    assert!(!world.signals.iter().any(|signal| matches!(signal, Signal::Look { .. })), "{:?}", world.signals);
}

#[test]
fn tickets_stand_by_their_numbers() {
    let mut world = World::new();
    for lease in [A, B, C] {
        world.open(lease, TTL);
        granted(world.claim_with(lease, 3, 0));
    }
    world.release(B);
    granted(world.claim_with(B, 3, 0));

    let tickets: Vec<u32> = world.resource().seats.iter().map(|seat| seat.grant.ticket.0).collect();
    assert_eq!(tickets, [0, 1, 2]);
}

#[test]
fn an_eviction_tells_the_owner_before_it_frees_the_ticket() {
    let mut world = World::owned_by_a();
    let token = world.resource().token;

    assert_eq!(world.act(Act::Evict(name(), token)), Reply::Asked(Asked::Done));

    let written: Vec<&Key> = world.written.iter().rev().take(2).rev().collect();
    assert_eq!(written, [&Key::Lease(A), &Key::Resource(name())]);
    assert!(world.signals.contains(&Signal::Knock(A, name())));
    assert_eq!(notices(world.renew(A)), [(token, Wish::Evicted)]);
}

#[test]
fn what_an_operator_wants_of_an_owner_that_has_released_meanwhile_takes_nothing_from_the_next() {
    let acts: [fn(Token) -> Act; 2] =
        [|token| Act::Evict(name(), token), |token| Act::Ask(name(), token, None)];
    for act in acts {
        let mut world = World::owned_by_a();
        let mut operator = world.operator.clone();
        let token = world.resource().token;
        let (mut operation, life, sendings) = world.begin_act(&mut operator, act(token));
        world.release(A);
        let next = granted(world.claim(B)).token;
        let before = world.records.clone();

        let fates = world.commit(life, &sendings);
        let env = world.env();
        operator.committed(&env, &mut operation, world.shown(), fates);

        let said = Reply::Asked(Asked::OtherOwners(vec![next]));
        assert_eq!(world.finish(&mut operator, operation), said);
        assert!(world.records == before);
    }
}

#[test]
fn an_owner_that_was_not_told_of_a_wish_is_told_by_whoever_looks() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.edit_resource(|resource| resource.seats[0].wish = Some(Wish::Asked));

    waits(world.claim(B));

    assert_eq!(notices(world.renew(A)), [(world.resource().token, Wish::Asked)]);
}

#[test]
fn what_a_newer_version_wrote_is_kept() {
    let mut world = World::owned_by_a();
    let newer: Rest = [("paused".to_string(), "true".into())].into_iter().collect();
    world.edit_resource(|resource| resource.rest = newer.clone());

    waits(world.claim(B));
    world.release(A);

    assert_eq!(world.resource().rest, newer);
}

#[test]
fn a_seat_under_a_lease_that_is_missing_is_waited_for_as_long_as_its_owner_could_believe() {
    let mut world = World::owned_by_a();
    world.records.remove(&Key::Lease(A));

    waits(world.claim(B));
    world.pass(TTL);
    world.renew(B);

    assert_eq!(granted(world.claim(B)).term, Term(2));
}

// req: H19
#[test]
fn a_take_over_is_in_the_history_with_how_the_owner_before_ended() {
    let mut world = World::owned_by_a();
    world.pass(TTL * 2);
    world.renew(B);
    granted(world.claim(B));

    let what: Vec<Happened> = world.history.iter().map(|event| event.what).collect();
    assert_eq!(what, [Happened::Granted, Happened::Expired, Happened::Granted]);
}
