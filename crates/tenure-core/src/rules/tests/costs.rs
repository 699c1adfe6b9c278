//! How many reads, commits and writes a request costs, and how it waits between attempts.

use super::*;

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
