//! Upper and lower bounds of the time that has passed, each for the question that it answers.

use alloc::collections::BTreeMap;

use super::*;
use crate::output::{Input, Now, Output};
use crate::timing::Timing;
use crate::worker::Worker;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const D: LeaseId = LeaseId(4);

fn without_a_clock() -> World {
    let capabilities = Capabilities { clock: false, ..CAPABILITIES };
    World { clock: false, capabilities, operator: Client::new(capabilities), ..World::new() }
}

impl World {
    /// The other of two primaries: its life, its data.
    fn switch(&mut self, other: &mut BTreeMap<Key, Found>, life: u128) {
        core::mem::swap(&mut self.records, other);
        self.life = Incarnation(life);
    }

    /// A owns in life 1, and B renews; D waits for the end of a quarantine in life 2, which is another primary.
    fn two_primaries(&mut self) -> BTreeMap<Key, Found> {
        for lease in [A, B] {
            self.open(lease, TTL);
        }
        granted(self.claim(A));
        let old = self.records.clone();
        (self.life, self.lost_nothing) = (Incarnation(2), false);
        self.open(D, TTL);
        assert_eq!(waits(self.claim(D)).why, WaitReason::Quarantine);
        old
    }
}

// S1. Without a clock. The quarantine of life 2 is 14 s old when B comes over from life 1, where A was kept a moment
// ago. B cannot tell how old it is: it has just seen it.
#[test]
fn without_a_clock_a_quarantine_that_is_new_to_a_process_is_not_taken_for_a_new_one() {
    let mut world = without_a_clock();
    let mut other = world.two_primaries();
    for passed in [5, 5, 4] {
        world.pass(SECOND * passed);
        world.renew(D);
        world.switch(&mut other, 1);
        assert!(matches!(world.renew(A), Said::Kept { .. }));
        assert!(matches!(world.renew(B), Said::Kept { .. }));
        world.switch(&mut other, 2);
    }

    world.renew(B);
    world.pass(SECOND + SECOND / 10);

    let said = world.claim(D);
    assert!(matches!(said, Claimed::Waiting(_)), "{said:?}, 1.1 s after A was kept for 15 s in life 1");
}

// The same. Two requests of one process begin a quarantine at once: one of them does, and both know its age.
#[test]
fn without_a_clock_a_process_begins_one_quarantine_however_many_requests_it_has() {
    let mut world = without_a_clock();
    world.open(A, TTL);
    let mut client = world.client(A);
    world.life = Incarnation(2);
    let request = world.request(A, Call::Renew);
    let (mut first, life, sendings) = world.begin(&mut client, request);
    let fates = world.commit(life, &sendings);
    world.answer(&mut client, &mut first, fates);
    let mut second = client.begin(&world.env(), Act::Wishes(A));
    let sent = [&mut first, &mut second].map(|operation| {
        loop {
            let env = world.env();
            match client.step(&env, operation) {
                Step::Read(keys) => world.read(&mut client, &env, operation, &keys),
                Step::Commit(life, sendings) => break (life, sendings),
                other => panic!("{other:?}"),
            }
        }
    });
    for (operation, (life, sendings)) in [&mut first, &mut second].into_iter().zip(sent) {
        let fates = world.commit(life, &sendings);
        world.answer(&mut client, operation, fates);
    }
    let begun = world.version(&Key::Meta);

    world.finish(&mut client, second);
    world.finish(&mut client, first);

    assert!(world.meta().quarantine.is_some());
    assert_eq!(world.version(&Key::Meta), begun);
}

// S1. The clock of the new primary goes back by a minute in its quarantine: to D, which sees it 10 s later, it has
// begun then; to B, which comes over 20 s later, it has just begun.
#[test]
fn a_quarantine_that_began_after_the_present_time_is_not_taken_for_a_new_one() {
    let mut world = World::new();
    let mut other = world.two_primaries();
    let keep = |world: &mut World, other: &mut BTreeMap<Key, Found>, at: StoreTime| {
        world.switch(other, 1);
        let now = core::mem::replace(&mut world.now, at);
        assert!(matches!(world.renew(A), Said::Kept { .. }));
        assert!(matches!(world.renew(B), Said::Kept { .. }));
        world.now = now;
        world.switch(other, 2);
    };
    let begun = world.now;
    world.pass(SECOND);
    world.now = StoreTime::from_micros(world.now.as_micros() - 60_000_000);
    for passed in [10, 20] {
        world.pass(SECOND * if passed == 10 { 9 } else { 10 });
        world.renew(D);
        waits(world.claim(D));
        keep(&mut world, &mut other, begun + SECOND * passed);
    }

    world.renew(B);
    world.pass(SECOND * 5 + SECOND / 10);

    let judged = world.now;
    let said = world.claim_judging(D, judged, 0);
    assert!(matches!(said, Claimed::Waiting(_)), "{said:?}, 5 s after A was kept for 15 s in life 1");
}

// S1. The answer that shows the quarantine of life 2 to B takes 6 s. Another request of B's process, which took no
// time, goes by it first.
#[test]
fn how_long_a_quarantine_lasts_counts_from_when_the_store_was_asked_whoever_asked() {
    let mut world = World::new();
    let mut other = world.two_primaries();
    world.pass(SECOND * 5);
    world.renew(D);
    world.switch(&mut other, 1);
    assert!(matches!(world.renew(A), Said::Kept { .. }));
    assert!(matches!(world.renew(B), Said::Kept { .. }));
    world.switch(&mut other, 2);
    world.pass(SECOND / 10);

    let mut client = world.client(B);
    let request = world.request(B, Call::Renew);
    let (mut slow, life, sendings) = world.begin(&mut client, request);
    let fates = world.commit(life, &sendings);
    let env = world.env();
    client.committed(&env, &mut slow, world.shown(), fates);
    let env = world.env();
    let Step::Read(keys) = client.step(&env, &mut slow) else { panic!() };
    let (shown, found) = (world.shown(), keys.iter().map(|key| world.find(key)).collect());
    world.pass(SECOND * 6);
    let env = world.env();
    client.read(&env, &mut slow, shown, found);
    let (mut client, _) = world.run(client, Act::Wishes(B));
    world.finish(&mut client, slow);
    world.clients.insert(B, client);
    world.renew(D);
    world.pass(SECOND * 4);

    let judged = world.now;
    let said = world.claim_judging(D, judged, 0);
    assert!(matches!(said, Claimed::Waiting(_)), "{said:?}, 10.1 s after A was kept for 15 s in life 1");
}

// S6, and a quarantine for everybody. All data is wiped; B's worker begins anew under the lease C, and owns. Then an
// answer comes from before the wipe.
#[test]
fn an_answer_from_before_a_wipe_that_comes_late_takes_nothing_away() {
    let mut world = World::owned_by_a();
    for n in 2..9 {
        world.open(LeaseId(100 + n), TTL * n as u32); // The namespace's record is written more than once.
    }
    let mut client = world.client(B);
    let looked = world.looked(&[TTL]);
    let mut late = client.begin(&world.env(), Act::DropTtls(looked));
    let env = world.env();
    let Step::Read(keys) = client.step(&env, &mut late) else { panic!() };
    let (shown, found): (_, Vec<Found>) = (world.shown(), keys.iter().map(|key| world.find(key)).collect());
    world.clients.insert(B, client);
    (world.records, world.lost_nothing) = (BTreeMap::new(), false);
    assert_eq!(world.renew(B), Said::Gone);
    let client = world.client(B);
    world.clients.insert(C, client);
    world.open(C, TTL);
    waits(world.claim(C));
    for _ in 0..8 * 3 {
        world.pass(TTL / 3);
        world.renew(C);
    }
    granted(world.claim(C));

    let mut client = world.client(C);
    client.read(&world.env(), &mut late, shown, found);
    world.clients.insert(C, client);

    let said = world.renew(C);
    assert!(matches!(said, Said::Kept { .. }), "{said:?}");
    assert_eq!(world.meta().quarantine, None);
}

// S1 after the next loss of data. The hour was noted an hour ago, and nobody uses it; B has looked at all leases and is
// about to forget it. A finds it noted: to its worker, which vouches for little, or which has no clock, just now.
#[test]
fn a_ttl_that_looks_lately_noted_is_not_forgotten_while_a_lease_is_opened_with_it() {
    for (clock, together) in [(true, true), (false, true), (false, false)] {
        let mut world = if clock { World::new() } else { without_a_clock() };
        world.capabilities.together = together;
        world.open(C, HOUR);
        let begun = world.now;
        world.close(C);
        world.open(B, TTL);
        world.pass(TTL_LINGERS);
        let mut client = world.client(B);
        let looked = world.looked(&[TTL]);
        let (_, life, drop) = world.begin_act(&mut client, Act::DropTtls(looked));

        let (label, metadata) = (Label::new("worker").unwrap(), Metadata::default());
        let request = world.request(A, Call::Open { ttl: HOUR, label, metadata });
        assert_eq!(world.send(Request { judged_by: Some(begun), ..request }), Said::Opened);
        world.commit(life, &drop);
        assert!(world.meta().longest >= HOUR, "{:?}, while A relies on an hour", world.meta().longest);

        world.drop_ttls(&[TTL, HOUR]);
        assert!(world.meta().longest >= HOUR, "{:?}, while A relies on an hour", world.meta().longest);
    }
}

// A has opened its lease between the look and the first step: its ttl is in use, and not noted.
#[test]
fn a_ttl_that_is_found_in_use_is_noted_again_so_that_nobody_looks_for_an_hour() {
    let mut world = without_a_clock();
    world.open(C, HOUR);
    world.close(C);
    world.open(B, TTL);
    let looked = world.looked(&[TTL]);
    world.act(Act::DropTtls(looked.clone()));
    world.pass(TTL_LINGERS);
    world.open(A, HOUR);
    world.act(Act::DropTtls(looked));
    let looks = |world: &mut World| {
        let env = world.env();
        world.operator.may_have_unused_ttls(&env)
    };
    assert!(looks(&mut world), "the longest ttl is not noted");

    world.drop_ttls(&[TTL, HOUR]);

    assert!(!looks(&mut world));
    assert_eq!(world.meta().longest, HOUR);
}

// The same without a clock. Two processes have looked at all leases before A opened its own: one takes the note of the
// hour away, and the other may not let the longest ttl fall with what it saw.
#[test]
fn the_longest_ttl_does_not_fall_after_a_look_from_before_the_ttl_was_dropped() {
    let mut world = without_a_clock();
    world.open(C, HOUR);
    world.close(C);
    world.open(B, TTL);
    world.pass(TTL_LINGERS);
    let looked = world.looked(&[TTL]);
    world.act(Act::DropTtls(LookedAtLeases { ttls: Version::NONE, ..looked.clone() }));
    world.pass(TTL_LINGERS);
    world.open(A, HOUR);

    for _ in 0..2 {
        world.act(Act::DropTtls(looked.clone()));
    }

    assert_eq!(world.meta().longest, HOUR);
}

// L2. A owns; the store restarts with its data, and A leaves before it has looked at them again. Its lease is swept
// after an hour, as one that had released everything.
#[test]
fn who_leaves_without_knowing_what_it_owns_does_not_say_that_it_released_everything() {
    let mut world = World::owned_by_a();
    world.life = Incarnation(2);
    assert_eq!(world.close(A), Said::Closed);
    assert!(
        world.resource().owner_with(A).is_none() || world.lease(A).ended.is_some_and(|ended| !ended.clean)
    );
    world.pass(HOUR);
    world.act(Act::Sweep(vec![A]));

    world.open(C, TTL);
    granted(world.claim(C));
}

// L2. Two workers share a process. All data is wiped; one of them hears of it, and the other is told without a look at
// the store. What it is told then is no answer of the store's clock.
#[test]
fn who_is_answered_without_a_look_at_the_store_goes_on_vouching_for_its_clock() {
    let mut world = World::new();
    world.open(B, TTL);
    let (timing, label) = (Timing::new(TTL).unwrap(), Label::new("a").unwrap());
    let mut worker = Worker::new(timing, label, Metadata::default(), world.env().at);
    let mut input = |world: &mut World, input: Input| {
        worker.handle(Now { at: world.env().at, jitter: 0, fresh: A }, input);
        let mut sent = Vec::new();
        while let Some(output) = worker.poll() {
            if let Output::Send(request) = output {
                sent.push(request);
            }
        }
        sent
    };
    let answer =
        |world: &mut World, request: &Request| match world.act_as(B, Act::Call(request.clone(), None)) {
            Reply::Answer(answer) => Input::Answered(request.clone(), answer),
            other => panic!("{other:?}"),
        };
    let open = input(&mut world, Input::Enter(want(&name())));
    let opened = answer(&mut world, &open[0]);
    let claim = input(&mut world, opened);
    let claimed = answer(&mut world, &claim[0]);
    input(&mut world, claimed);
    world.pass(TTL / 3);

    (world.records, world.lost_nothing) = (BTreeMap::new(), false);
    assert_eq!(world.renew(B), Said::Gone);
    let renewal = input(&mut world, Input::Tick);
    world.count();
    let gone = answer(&mut world, &renewal[0]);
    assert_eq!(world.count(), Cost::default());
    let mut next = input(&mut world, gone);
    while next.is_empty() {
        world.pass(SECOND / 10);
        next = input(&mut world, Input::Tick);
    }
    let judged = next[0].judged_by.unwrap();
    assert!(world.now.since(judged) < TTL, "{judged:?} at {:?}", world.now);
}

// Every later restart costs an hour. All data is wiped; B, which knows of an hour, has it respected. Nobody uses it any
// more.
#[test]
fn a_longest_ttl_that_came_from_other_data_is_forgotten_like_any_other() {
    let mut world = World::new();
    world.open(A, HOUR);
    world.open(B, TTL);
    world.renew(B);
    (world.records, world.lost_nothing) = (BTreeMap::new(), false);
    world.open(C, TTL);
    assert_eq!(world.renew(B), Said::Gone);
    assert_eq!(world.meta().longest, HOUR);

    for _ in 0..3 * 24 {
        world.pass(HOUR);
        world.open(D, TTL);
        world.claim(D);
        let env = world.env();
        let mut client = world.client(D);
        if client.may_have_unused_ttls(&env) {
            let looked = world.looked(&[TTL]);
            client = world.run(client, Act::DropTtls(looked)).0;
        }
        world.clients.insert(D, client);
    }

    assert_eq!(world.meta().quarantine, None);
    assert_eq!(world.meta().longest, TTL);
}

// L1. Without a clock. A gives up while its first claim is in doubt: the resource is written only so that it exists. It
// has one ticket for ever, whatever the others want.
#[test]
fn a_resource_that_was_written_only_to_exist_gets_its_tickets_from_the_first_claim() {
    for mut world in [World::new(), without_a_clock()] {
        for lease in [A, B, C] {
            world.open(lease, TTL);
        }
        let clock = world.clock;
        world.commit_of(A, claim_of(2, 0));
        assert_eq!(world.release(A), Released::Free);
        world.pass(SECOND);
        granted(world.claim_with(B, 2, 0));

        let said = world.claim_with(C, 2, 0);
        assert!(matches!(said, Claimed::Granted(_)), "{said:?}, clock: {clock}");
    }
}

// The same: who opens a lease later sets K.
#[test]
fn without_a_clock_a_later_lease_sets_the_number_of_tickets() {
    for mut world in [World::new(), without_a_clock()] {
        world.open(A, TTL);
        granted(world.claim(A));
        world.pass(SECOND);
        world.open(B, TTL);
        let (clock, said) = (world.clock, world.claim_with(B, 2, 0));
        assert!(matches!(said, Claimed::Granted(_)), "{said:?}, clock: {clock}");
    }
}

// S6, L1. A, a newcomer, takes a free ticket that B does not take in time. The store's clock is 50 ms back when the
// claim arrives: it is refused, and a copy of it is still on the way. A gives up; then the copy arrives.
#[test]
fn a_copy_of_a_claim_that_came_too_early_takes_nothing_after_the_release() {
    let mut world = World::new();
    for lease in [C, B, A] {
        world.open(lease, TTL);
    }
    granted(world.claim(C));
    waits(world.claim(B));
    world.release(C);
    world.pass(SECOND / 10);
    let mut client = world.client(A);
    let request = world.request(A, claim_of(1, 0));
    let (mut claim, life, sendings) = world.begin(&mut client, request);
    assert!(sendings[0].change.window.from.is_some(), "{sendings:?}");
    let now = world.now;
    world.now = StoreTime::from_micros(now.as_micros() - 50_000);
    let fates = world.commit(life, &sendings);
    assert_eq!(fates, [Fate::Conflict(vec![])]);
    let env = world.env();
    client.committed(&env, &mut claim, world.shown(), fates);
    let Reply::Answer(answer) = world.finish(&mut client, claim) else { panic!() };
    waits(claimed(answer.said));
    world.clients.insert(A, client);
    assert_eq!(world.release(A), Released::Free);

    world.now = now;
    world.pass(SECOND / 100);
    world.commit(life, &sendings);
    assert!(
        world.resource().owner_with(A).is_none(),
        "A has left, and holds the ticket for as long as it lives"
    );
}

// The mark. A renewal is applied, a notice is written over it, the answer is lost; a copy and the next renewal follow.
#[test]
fn copies_of_a_renewal_between_notices_are_neither_a_clones_nor_renew_again() {
    let mut world = World::owned_by_a();
    let mut client = world.client(A);
    let request = world.request(A, Call::Renew);
    let (mut renewal, life, sendings) = world.begin(&mut client, request);
    world.commit(life, &sendings);
    let token = world.resource().token;
    world.act(Act::Ask(name(), token, None));
    let written = world.version(&Key::Lease(A));
    let fates = world.commit(life, &sendings);
    assert_eq!(world.version(&Key::Lease(A)), written);
    let env = world.env();
    client.committed(&env, &mut renewal, world.shown(), fates);
    let mut clone = client.clone();
    let Reply::Answer(answer) = world.finish(&mut client, renewal.clone()) else { panic!() };
    assert_eq!(notices(answer.said), [(token, Wish::Asked)]);
    // Cloned in the middle of the request: both go on with it, and the first to renew anew stays.
    let Reply::Answer(answer) = world.finish(&mut clone, renewal) else { panic!() };
    assert!(matches!(answer.said, Said::Kept { .. }), "{:?}", answer.said);
    let seq = world.seq + 1;
    world.clients.insert(A, client);
    assert!(matches!(world.renew_as(A, seq), Said::Kept { .. }));
    world.clients.insert(A, clone);
    assert_eq!(world.renew_as(A, seq), Said::Stale);
}
