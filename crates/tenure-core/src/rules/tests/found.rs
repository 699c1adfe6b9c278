//! What a request finds that an earlier one, which is late or in doubt, has left: ways to two owners, to a token that
//! falls, to a stuck ticket.

use alloc::collections::BTreeMap;

use super::*;
use crate::names::ResourceName;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn one_by_one() -> World {
    World { capabilities: ONE_BY_ONE, operator: Client::new(ONE_BY_ONE), ..World::new() }
}

impl World {
    /// All data is lost within one life of the store.
    fn wipe(&mut self) {
        (self.records, self.lost_nothing) = (BTreeMap::new(), false);
    }

    fn opening(&mut self, lease: LeaseId, ttl: Duration) -> Act {
        let label = Label::new("worker").unwrap();
        Act::Call(self.request(lease, Call::Open { ttl, label, metadata: Metadata::default() }), None)
    }

    /// One of the writes of a change, on a store that swaps records one by one.
    fn swap_one(&mut self, sending: &Sending, put: usize) -> bool {
        let (key, value) = sending.change.put[put].clone();
        let expect = sending.change.expect.iter().filter(|(expected, _)| *expected == key).cloned().collect();
        let change = Change { expect, put: vec![(key, value)], ..Change::default() };
        let revisions = vec![sending.revisions[put]];
        self.apply(&[Sending { change, version: sending.version, revisions }])[0]
    }

    /// The next step of a request, which has to be a read: what the store shows, on its way.
    fn next_read(&mut self, client: &mut Client, operation: &mut Operation) -> (Shown, Vec<Found>) {
        let env = self.env();
        match client.step(&env, operation) {
            Step::Read(keys) => (self.shown(), keys.iter().map(|key| self.find(key)).collect()),
            other => panic!("{other:?}"),
        }
    }

    fn rest(&mut self, client: &mut Client, operation: Operation) -> Said {
        match self.finish(client, operation) {
            Reply::Answer(answer) => answer.said,
            other => panic!("{other:?}"),
        }
    }

    fn held(&mut self, lease: LeaseId) -> Said {
        self.call(lease, Call::Held)
    }
}

// S1. One by one. A's first claim of r is late; B owns r. All data is wiped, then A's claim is applied. The look that
// would refuse it is answered after an older answer of the same process, from before the wipe: the cache keeps the
// older one, and the look counts what is in the cache.
#[test]
fn a_look_after_a_grant_counts_what_it_shows_and_not_an_older_answer_that_came_first() {
    let mut world = one_by_one();
    world.open(A, TTL);
    world.open(B, TTL);
    let mut client = world.client(A);
    let request = world.request(A, claim_of(1, 0));
    let (mut claim, life, grant) = world.begin(&mut client, request);
    granted(world.claim(B));
    // A renews; the last answer to that, from before the wipe, is slow.
    let request = world.request(A, Call::Renew);
    let (mut renewal, renewing, sendings) = world.begin(&mut client, request);
    let fates = world.commit(renewing, &sendings);
    let env = world.env();
    client.committed(&env, &mut renewal, world.shown(), fates);
    let slow = world.next_read(&mut client, &mut renewal);

    world.wipe();
    let fates = world.commit(life, &grant);
    assert!(matches!(fates[0], Fate::Done(_)), "r does not exist, as A expected");
    let env = world.env();
    client.committed(&env, &mut claim, world.shown(), fates);
    let look = world.next_read(&mut client, &mut claim);
    assert!(look.1.iter().all(|found| found.value.is_none()), "it shows that the namespace is gone");
    for (operation, (shown, records)) in [(&mut renewal, slow), (&mut claim, look)] {
        let env = world.env();
        client.read(&env, operation, shown, records);
    }

    let said = world.rest(&mut client, claim);
    assert!(
        !matches!(&said, Said::Claimed(claimed) if matches!(claimed[0], Claimed::Granted(_))),
        "{said:?} while B, which has heard nothing yet, trusts its lease"
    );
}

// S1, for ever. One by one. A copy of the request that opened A's lease is late: it arrives after all data was wiped
// within one life. A's renewals are kept again; nobody tells A that its tickets are gone.
#[test]
fn a_lease_that_a_late_open_has_made_again_after_a_wipe_does_not_go_on() {
    let mut world = one_by_one();
    world.open(B, TTL);
    let mut client = world.client(A);
    let act = world.opening(A, TTL);
    let (mut operation, life, open) = world.begin_act(&mut client, act);
    assert_eq!(open[0].change.put.last().unwrap().0, Key::Lease(A));
    let fates = world.commit(life, &open);
    let env = world.env();
    client.committed(&env, &mut operation, world.shown(), fates);
    assert_eq!(world.rest(&mut client, operation), Said::Opened);
    world.clients.insert(A, client);
    granted(world.claim(A));
    world.pass(SECOND);
    assert!(matches!(world.renew(A), Said::Kept { .. }));

    world.wipe();
    let late = world.commit(life, &open);
    assert!(matches!(late[0], Fate::Done(_)));
    world.open(C, TTL);
    let (mut believes, mut kept) = (true, 0);
    for _ in 0..8 {
        world.pass(TTL / 5);
        believes = believes && matches!(world.renew(A), Said::Kept { .. });
        kept += u32::from(believes);
        world.renew(C);
        world.claim(C);
    }
    let owner = world.resource().owner_with(C).is_some();
    assert!(kept == 0, "A was kept {kept} times since, and believes; C owns: {owner}");
}

// S1 after the next loss of data. One by one. Nobody uses the hour, and it is not noted any more; whoever lets the
// longest ttl fall writes the ttls, then the namespace. Before that, or in between, A opens a lease of an hour.
#[test]
fn a_ttl_that_is_noted_while_it_is_dropped_still_counts() {
    for in_between in [false, true] {
        let mut world = one_by_one();
        world.open(C, HOUR);
        world.close(C);
        world.open(B, TTL);
        world.pass(TTL_LINGERS);
        world.renew(B);
        let looked = world.looked(&[TTL]);
        world.act(Act::DropTtls(looked));
        assert_eq!(world.meta().longest, HOUR, "the first step");
        let mut client = world.client(B);
        let looked = world.looked(&[TTL]);
        let (_, _, drop) = world.begin_act(&mut client, Act::DropTtls(looked));
        assert_eq!(drop[0].change.put.len(), 2);
        if in_between {
            assert!(world.swap_one(&drop[0], 0), "the ttls");
        }

        world.open(A, HOUR);
        granted(world.claim(A));
        if in_between || world.swap_one(&drop[0], 0) {
            world.swap_one(&drop[0], 1); // the namespace
        }

        assert!(matches!(world.renew(A), Said::Kept { .. }));
        assert!(world.meta().longest >= HOUR, "{:?}, while A relies on an hour", world.meta().longest);
    }
}

// The same. A has noted the hour and not opened its lease; or it has opened it, and not heard that its ttl was dropped.
#[test]
fn a_lease_is_open_only_when_its_ttl_is_noted() {
    for lease_is_there in [false, true] {
        let mut world = one_by_one();
        world.open(C, HOUR);
        world.close(C);
        world.open(B, TTL);
        world.pass(TTL_LINGERS);
        world.open(LeaseId(9), HOUR); // notes it again
        world.close(LeaseId(9));
        let mut client = world.client(A);
        let act = world.opening(A, HOUR);
        let (mut opening, _, opens) = world.begin_act(&mut client, act);
        let swap = |world: &mut World| (0..2).for_each(|put| assert!(world.swap_one(&opens[0], put)));
        if lease_is_there {
            swap(&mut world);
        }
        world.pass(TTL_LINGERS);
        world.drop_ttls(&[TTL]); // The look at all leases was before that.
        assert_eq!(world.meta().longest, TTL);
        if !lease_is_there {
            swap(&mut world);
        }
        let fates = vec![Fate::Done(Some(world.now))];
        world.answer(&mut client, &mut opening, fates);

        assert_eq!(world.said(&mut client, opening), Said::Opened);
        assert_eq!(world.meta().longest, HOUR, "A relies on it from here on");
    }
}

// S1. Every store that can show that it has lost nothing. C asks a new store, which has lost nothing, and stands still.
// Others begin to use it; all data is wiped; then C goes on.
#[test]
fn that_nothing_was_lost_is_not_said_of_what_was_lost_since() {
    let mut world = World::new();
    let mut client = world.client(C);
    let act = world.opening(C, TTL);
    let mut operation = client.begin(&world.env(), act);
    let (life, meta) = loop {
        let env = world.env();
        match client.step(&env, &mut operation) {
            Step::Read(keys) => world.read(&mut client, &env, &mut operation, &keys),
            Step::LostNothing(_) => client.lost_nothing(&mut operation, world.lost_nothing),
            Step::Commit(life, sendings) => break (life, sendings),
            other => panic!("{other:?}"),
        }
    };
    world.open(A, TTL);
    granted(world.claim(A));
    world.pass(SECOND);
    world.wipe();

    let fates = world.commit(life, &meta);
    let env = world.env();
    client.committed(&env, &mut operation, world.shown(), fates);
    assert_eq!(world.rest(&mut client, operation), Said::Opened);
    world.clients.insert(C, client);
    let said = world.claim(C);
    assert!(matches!(said, Claimed::Waiting(_)), "{said:?}, 1 s after A was granted it for 15 s");
}

// S2. One by one. A's claim is late; B, behind it, takes the ticket. The store falls back to data from before both, in
// another life, and A's claim is applied there, after A has settled. When the quarantine is over A finds the ticket.
#[test]
fn a_ticket_that_a_claim_of_another_life_has_left_does_not_come_with_a_lower_token() {
    let mut world = one_by_one();
    for lease in [C, A, B] {
        world.open(lease, TTL);
    }
    granted(world.claim(C));
    waits(world.claim(A));
    waits(world.claim(B));
    world.release(C);
    let saved = world.records.clone();
    let late = world.commit_of(A, claim_of(1, 0));
    waits(world.claim(B)); // A's step is not over.
    world.pass(SECOND);
    let token = granted(world.claim(B)).token;

    (world.records, world.life) = (saved, Incarnation(2));
    assert!(matches!(world.renew(A), Said::Kept { .. }));
    assert_eq!(world.held(A), Said::Held(vec![]));
    assert_eq!(waits(world.claim(A)).why, WaitReason::Quarantine);
    world.commit(Incarnation(1), &late);
    for _ in 0..4 {
        world.pass(TTL / 3);
        world.renew(A);
    }
    let found = granted(world.claim(A)).token;
    assert!(found > token, "{} after {}", found.0, token.0);
}

// L1. One by one. The same for a resource that A has left: its late claim is applied in another life, after A has
// settled.
#[test]
fn a_claim_of_another_life_leaves_no_ticket_that_nobody_knows_of() {
    let mut world = one_by_one();
    for lease in [C, A, B] {
        world.open(lease, TTL);
    }
    granted(world.claim(C));
    world.release(C);
    let saved = world.records.clone();
    let late = world.commit_of(A, claim_of(1, 0));
    assert_eq!(world.release(A), Released::Free);

    (world.records, world.life) = (saved, Incarnation(2));
    assert!(matches!(world.renew(A), Said::Kept { .. }));
    assert_eq!(world.held(A), Said::Held(vec![]));
    world.commit(Incarnation(1), &late);
    let mut said = Vec::new();
    for _ in 0..30 {
        world.pass(TTL / 3);
        assert!(matches!(world.renew(A), Said::Kept { .. }));
        world.renew(B);
        said.push(world.claim(B));
    }
    assert!(
        said.iter().any(|claimed| matches!(claimed, Claimed::Granted(_))),
        "A left it, and has it for as long as it lives: {:?}",
        said.last()
    );
}

// S1, for ever. One by one. A is evicted: its notice is written, then the store falls back to older data, then its
// ticket is freed.
#[test]
fn an_eviction_that_spans_two_lives_leaves_nobody_that_goes_on() {
    let mut world = one_by_one();
    world.open(A, TTL);
    world.open(B, TTL);
    let token = granted(world.claim(A)).token;
    waits(world.claim(B));
    let saved = world.records.clone();
    let mut operator = world.operator.clone();
    let (mut evicting, _, evict) = world.begin_act(&mut operator, Act::Evict(name(), token));
    assert!(world.swap_one(&evict[0], 0), "the notice");

    (world.records, world.life) = (saved, Incarnation(2));
    assert!(matches!(world.renew(A), Said::Kept { .. }));
    assert!(matches!(world.held(A), Said::Held(held) if held.len() == 1));
    let freed = world.swap_one(&evict[0], 1);
    let env = world.env();
    let fates = vec![if freed { Fate::Done(Some(world.now)) } else { Fate::Conflict(vec![]) }];
    operator.committed(&env, &mut evicting, world.shown(), fates);
    let reply = world.finish(&mut operator, evicting);

    let (mut told, mut other) = (false, false);
    for _ in 0..8 {
        world.pass(TTL / 5);
        told |= notices(world.renew(A)).contains(&(token, Wish::Evicted));
        world.renew(B);
        other |= matches!(world.claim(B), Claimed::Granted(_));
    }
    assert!(told || !other, "B owns, and A was never told; the operator was told {reply:?}");
}

// S2. Every store. The store falls back to data from before a grant, in another life. A's process hears of it; then an
// answer comes from long before.
#[test]
fn an_answer_of_an_earlier_life_that_comes_late_does_not_make_a_token_fall() {
    let mut world = World::owned_by_a();
    world.release(A);
    let mut client = world.client(A);
    let request = world.request(A, Call::Held);
    let mut late = client.begin(&world.env(), Act::Call(request, None));
    let (shown, found) = world.next_read(&mut client, &mut late);
    world.clients.insert(A, client);
    let saved = world.records.clone();
    world.pass(SECOND * 5);
    let lost = granted(world.claim(B)).token;

    (world.records, world.life) = (saved, Incarnation(2));
    world.renew(A);
    world.held(A);
    assert_eq!(waits(world.claim(A)).why, WaitReason::Quarantine);
    world.pass(TTL);
    world.renew(A);
    let mut client = world.client(A);
    client.read(&world.env(), &mut late, shown, found);
    world.clients.insert(A, client);
    world.count();

    let token = granted(world.claim(A)).token;
    assert_eq!(world.count().reads, 0, "it rests on what was shown before");
    assert!(token > lost, "{token:?} after {lost:?}");
}

// An eviction that its owner never hears of. Every store. A was asked to step down, did, and owns again. It is evicted;
// then B, which has seen nothing since the first wish, knocks.
#[test]
fn who_has_not_seen_an_eviction_does_not_take_its_notice_back() {
    let mut world = World::owned_by_a();
    let first = world.resource().token;
    assert_eq!(world.act(Act::Ask(name(), first, None)), Reply::Asked(StepDownReply::Done));
    let outdated = world.find(&Key::Resource(name()));
    world.release(A);
    let second = granted(world.claim(A)).token;
    world.renew(A);
    assert_eq!(world.act(Act::Evict(name(), second)), Reply::Asked(StepDownReply::Done));

    let (now, written) = (world.find(&Key::Resource(name())), world.find(&Key::Lease(A)));
    assert_eq!(notices(world.renew(A)), [(second, Wish::Evicted)]);
    world.records.insert(written.key.clone(), written);
    world.records.insert(outdated.key.clone(), outdated);
    world.claim(B); // knocks
    world.records.insert(now.key.clone(), now);

    assert_eq!(notices(world.renew(A)), [(second, Wish::Evicted)]);
}

// S6. Every store. A gives up r and s in one request. Somebody with a newer library has just written r in a form that A
// cannot read, and writes it later in the old form again.
#[test]
fn a_worker_does_not_find_again_what_it_gave_up_while_it_could_not_be_read() {
    let mut world = World::owned_by_a();
    let (r, s) = (name(), ResourceName::new("s").unwrap());
    granted(claimed(world.call(A, Call::Claim(vec![want(&s)]))));
    let before = world.resource().token;
    world.edit_resource(|_| ());
    let mut client = world.client(A);
    let leaves = [&r, &s].map(|resource| leave(resource, Leaving::Released));
    let request = world.request(A, Call::Release(leaves.to_vec()));
    let (mut operation, life, sendings) = world.begin(&mut client, request);
    let mut fates = world.commit(life, &sendings);
    for (sending, fate) in sendings.iter().zip(&mut fates) {
        if sending.change.put[0].0 == Key::Resource(r.clone()) {
            // What differs cannot be read.
            assert!(client.unreadable(&mut operation, &r));
            *fate = Fate::Conflict(vec![]);
        }
    }
    let env = world.env();
    client.committed(&env, &mut operation, world.shown(), fates);
    let said = world.rest(&mut client, operation);
    world.clients.insert(A, client);
    assert_eq!(said, Said::Released(vec![Released::Free; 2]), "A may forget both");

    world.pass(SECOND);
    world.renew(A);
    world.edit_resource(|_| ());
    // The worker has left, and wants it again: nobody else has had it.
    let said = world.claim(A);
    assert!(
        !matches!(said, Claimed::Granted(grant) if grant.token == before),
        "the ownership that was given up: {said:?}"
    );
}

// An operator's wish is lost. Every store. There are more notices than fit; the answer to the renewal that would say so
// is lost. Nobody waits, so nobody knocks again.
#[test]
fn that_there_are_more_notices_than_fit_is_said_until_it_is_heard() {
    let mut world = asked_for_much(World::new());
    let mut client = world.client(A);
    let request = world.request(A, Call::Renew);
    let (mut operation, life, mut sendings) = world.begin(&mut client, request);
    while !matches!(world.commit(life, &sendings)[0], Fate::Done(_)) {
        let fates = world.commit(life, &sendings);
        let env = world.env();
        client.committed(&env, &mut operation, world.shown(), fates);
        let env = world.env();
        let Step::Commit(_, again) = client.step(&env, &mut operation) else { panic!() };
        sendings = again;
    }
    drop(operation); // The answer is lost.
    world.clients.insert(A, client);

    let more = (0..5).any(|_| matches!(world.renew(A), Said::Kept { more: true, .. }));
    assert!(more, "A is never told of four of the wishes");
}

// The same where records are swapped one by one, and nothing is lost: the namespace changes while the renewal is under
// way, which is then done again.
#[test]
fn that_there_are_more_notices_than_fit_is_said_by_a_renewal_that_is_done_again() {
    let mut world = asked_for_much(one_by_one());
    world.act_as(A, Act::Sweep(vec![A])); // A has read its lease.
    let mut client = world.client(A);
    let request = world.request(A, Call::Renew);
    let (mut operation, life, sendings) = world.begin(&mut client, request);
    let fates = world.commit(life, &sendings);
    assert!(matches!(fates[0], Fate::Done(_)));
    world.open(C, TTL * 2); // writes meta
    let env = world.env();
    client.committed(&env, &mut operation, world.shown(), fates);

    let said = world.rest(&mut client, operation);
    world.clients.insert(A, client);
    let more = matches!(said, Said::Kept { more: true, .. });
    let more = more || (0..5).any(|_| matches!(world.renew(A), Said::Kept { more: true, .. }));
    assert!(more, "A is never told of four of the wishes");
}

/// A owns 20 resources, and is asked for all of them.
fn asked_for_much(mut world: World) -> World {
    world.open(A, TTL);
    for n in 0..20 {
        let resource = ResourceName::new(&alloc::format!("n{n}")).unwrap();
        let token = granted(claimed(world.call(A, Call::Claim(vec![want(&resource)])))).token;
        assert_eq!(world.act(Act::Ask(resource, token, None)), Reply::Asked(StepDownReply::Done));
    }
    assert!(world.lease(A).more_notices);
    world
}
