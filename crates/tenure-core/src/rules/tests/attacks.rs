//! Ways to two owners, to a stuck ticket or to work without end that were open once.

use alloc::collections::BTreeMap;

use super::*;
use crate::names::{ResourceName, Tickets};
use crate::output::{Input, Now, Output};
use crate::timing::Timing;
use crate::worker::Worker;

const SECOND: Duration = Duration::from_secs(1);

/// The store's clock goes back by a minute, then this is done, and it goes forward again.
fn while_the_clock_is_back(world: &mut World, done: impl FnOnce(&mut World)) {
    world.pass(SECOND);
    let before = world.now;
    world.now = StoreTime::from_micros(before.as_micros() - 60_000_000);
    done(world);
    world.now = before;
    world.pass(SECOND);
}

impl World {
    /// Something in the process of this lease asks the store, not its worker: another worker, a sweep, a look at
    /// wishes.
    fn background(&mut self, lease: LeaseId) {
        let client = self.client(lease);
        let (client, _) = self.run(client, Act::Wishes(LeaseId(99)));
        self.clients.insert(lease, client);
    }
}

// S1. A renews at 0. The clock goes back by 60 s at 1 s and forward again at 2 s; B's worker has heard nothing
// meanwhile, but another request of its process has.
#[test]
fn a_lease_is_not_ended_early_because_another_request_saw_the_clock_back() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.renew(A);
    world.background(B);
    let client = world.client(B);
    let (client, _) = world.run(client, Act::Wishes(A));
    world.clients.insert(B, client);

    while_the_clock_is_back(&mut world, |world| {
        world.background(B);
    });

    let judged = world.now;
    let said = world.claim_judging(B, judged, 0);
    assert!(
        matches!(said, Claimed::Waiting(_)),
        "2 s after A renewed for 15 s: {said:?}, {:?}",
        world.lease(A).ended
    );
}

// S1. The same steps; nobody in B's process saw them, but an operator wrote A's lease in between.
#[test]
fn a_notice_that_was_written_while_the_clock_was_back_does_not_shorten_a_lease() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.renew(A);

    while_the_clock_is_back(&mut world, |world| {
        assert_eq!(
            world.act(Act::Ask(name(), world.resource().token, None)),
            Reply::Asked(StepDownReply::Done)
        );
    });

    let judged = world.now;
    let said = world.claim_judging(B, judged, 0);
    assert!(
        matches!(said, Claimed::Waiting(_)),
        "2 s after A renewed for 15 s: {said:?}, {:?}",
        world.lease(A).ended
    );
}

// S1. The same for a quarantine: somebody opens a lease with another ttl while the clock is back.
#[test]
fn a_quarantine_is_not_shortened_by_who_writes_meta_while_the_clock_is_back() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.life = Incarnation(2);
    world.renew(B);
    assert_eq!(waits(world.claim(B)).why, WaitReason::Quarantine);

    while_the_clock_is_back(&mut world, |world| {
        world.open(C, TTL + SECOND);
    });

    let judged = world.now;
    world.claim_judging(B, judged, 0);
    assert!(world.meta().quarantine.is_some(), "over after 2 s of 15 s");
}

// S1, for ever. A claims two resources at once: one is granted in life 1, the other meets a conflict; then the store
// falls back to older data in life 2. The worker has settled in life 2 before the claim is answered.
#[test]
fn what_another_life_has_granted_is_not_told_as_granted_in_this_one() {
    let (r, s) = (name(), ResourceName::new("s").unwrap());
    let mut world = World::new();
    world.open(B, TTL);
    let mut a = Actor::new(&mut world);
    let open = a.input(&mut world, Input::Enter(want(&r)));
    assert!(a.input(&mut world, Input::Enter(want(&s))).is_empty());
    let opened = a.answer(&mut world, &open[0]);
    world.pass(Duration::from_millis(2900)); // The answer takes so long.
    let saved = world.records.clone();
    let claim = a.input(&mut world, Input::Answered(open[0].clone(), opened));
    assert!(matches!(&claim[0].call, Call::Claim(wants) if wants.len() == 2));

    // Both are free when A looks; B takes s before A commits.
    let (mut operation, life, sendings) = world.begin(&mut a.client, claim[0].clone());
    granted(claimed(world.call(B, Call::Claim(vec![want(&s)]))));
    let fates = world.commit(life, &sendings);
    let env = world.env();
    a.client.committed(&env, &mut operation, world.shown(), fates);
    assert!(world.resource().owner_with(A).is_some(), "A has r in life 1, and is not told yet");

    // The store falls back; A renews, and settles in life 2.
    (world.records, world.life, world.lost_nothing) = (saved, Incarnation(2), false);
    world.pass(Duration::from_millis(2200));
    let requests = a.input(&mut world, Input::Tick);
    a.answer_all(&mut world, requests);

    // Now the rest of the claim.
    let Reply::Answer(answer) = world.finish(&mut a.client, operation) else { panic!() };
    let requests = a.input(&mut world, Input::Answered(claim[0].clone(), answer));
    a.answer_all(&mut world, requests);

    // One quarantine later B owns r; A goes on renewing.
    world.open(C, TTL);
    for _ in 0..30 {
        world.pass(SECOND);
        let requests = a.input(&mut world, Input::Tick);
        a.answer_all(&mut world, requests);
        world.renew(C);
        world.claim(C);
    }
    let owner = world.resource().owners.first().map(|owner| owner.lease);
    let believes = a.worker.owned().any(|(name, _)| *name == r);
    assert!(
        !believes || owner == Some(A),
        "the store says {:?}, and A believes 35 s later",
        owner.map(|lease| lease.0)
    );
}

/// A worker with its lease A, and its process.
struct Actor {
    worker: Worker,
    client: Client,
    abandoned: Vec<Seq>,
}

impl Actor {
    fn new(world: &mut World) -> Self {
        let (timing, label) = (Timing::new(TTL).unwrap(), Label::new("a").unwrap());
        let worker = Worker::new(timing, label, Metadata::default(), world.env().at);
        Self { worker, client: Client::new(CAPABILITIES), abandoned: Vec::new() }
    }

    fn input(&mut self, world: &mut World, input: Input) -> Vec<Request> {
        let now = Now { at: world.env().at, jitter: 0, fresh: A };
        self.worker.handle(now, input);
        let mut requests = Vec::new();
        while let Some(output) = self.worker.poll() {
            match output {
                Output::Send(request) => requests.push(request),
                Output::Abandon(seq) => self.abandoned.push(seq),
                _ => {}
            }
        }
        requests
    }

    fn answer(&mut self, world: &mut World, request: &Request) -> Answer {
        let env = world.env();
        let operation = self.client.begin(&env, Act::Call(request.clone(), None));
        match world.finish(&mut self.client, operation) {
            Reply::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn answer_all(&mut self, world: &mut World, mut requests: Vec<Request>) {
        while let Some(request) = requests.pop() {
            let answer = self.answer(world, &request);
            requests.extend(self.input(world, Input::Answered(request, answer)));
        }
    }
}

// L1. The worker leaves while its claim is under way. The claim is not abandoned; it decides again after the release.
#[test]
fn a_claim_that_is_under_way_takes_nothing_after_the_release() {
    let mut world = World::new();
    world.open(B, TTL);
    let mut a = Actor::new(&mut world);
    let open = a.input(&mut world, Input::Enter(want(&name())));
    let opened = a.answer(&mut world, &open[0]);
    let claim = a.input(&mut world, Input::Answered(open[0].clone(), opened));
    let (mut operation, life, sendings) = world.begin(&mut a.client, claim[0].clone());

    let release = a.input(&mut world, Input::Leave(name()));
    assert!(matches!(release[0].call, Call::Release(_)) && a.abandoned.is_empty());
    a.answer_all(&mut world, release);
    assert!(!a.worker.is_campaigning(&name()), "it has left");

    let fates = world.commit(life, &sendings);
    let env = world.env();
    a.client.committed(&env, &mut operation, world.shown(), fates);
    let Reply::Answer(answer) = world.finish(&mut a.client, operation) else { panic!() };
    let requests = a.input(&mut world, Input::Answered(claim[0].clone(), answer));
    a.answer_all(&mut world, requests);
    // It goes on renewing, for another campaign.
    let more = a.input(&mut world, Input::Enter(want(&ResourceName::new("s").unwrap())));
    a.answer_all(&mut world, more);
    for _ in 0..120 {
        world.pass(SECOND);
        let requests = a.input(&mut world, Input::Tick);
        a.answer_all(&mut world, requests);
        world.renew(B);
    }
    let said = world.claim(B);
    assert!(matches!(said, Claimed::Granted(_)), "nobody works under the ticket for two minutes: {said:?}");
}

// D4 again, and records without end: the lease of a worker that died while it owned nothing.
#[test]
fn the_lease_of_a_waiter_that_died_is_ended_and_swept_some_day() {
    let mut world = World::owned_by_a();
    world.open(C, TTL * 240);
    waits(world.claim(C));
    // C is killed. Others come across it.
    for _ in 0..3 {
        world.pass(Duration::from_secs(40 * 24 * 3600));
        world.renew(A);
        world.renew(B);
        let judged = world.now;
        waits(world.claim_judging(B, judged, 0));
        world.act(Act::Sweep(vec![C]));
    }
    assert!(!world.resource().waits(C), "it is out of the queue");

    let lease = world.find(&Key::Lease(C)).value;
    assert!(lease.is_none(), "after 120 days: {lease:?}");
}

// Held, for a worker that has touched more than 10 000 names, in a namespace of more than 50 000 resources.
#[test]
fn held_comes_to_an_end_in_a_namespace_of_many_resources() {
    let mut world = World::new();
    world.open(A, TTL);
    let mut client = world.client(A);
    for n in 0..10_001 {
        let resource = ResourceName::new(&alloc::format!("n{n}")).unwrap();
        let want = Want { resource, tickets: Tickets::new(1).unwrap(), priority: 0 };
        let request = world.request(A, Call::Claim(vec![want]));
        let env = world.env();
        drop(client.begin(&env, Act::Call(request, None)));
    }
    let all: Vec<ResourceName> =
        (0..50_500).map(|n| ResourceName::new(&alloc::format!("n{n}")).unwrap()).collect();
    let request = world.request(A, Call::Held);
    let env = world.env();
    let mut operation = client.begin(&env, Act::Call(request, None));
    let mut reads = 0;
    loop {
        let env = world.env();
        match client.step(&env, &mut operation) {
            Step::Done(_) => break,
            Step::List => client.listed(&mut operation, all.clone()),
            Step::Read(keys) => {
                reads += 1;
                let found = keys.iter().map(|key| world.find(key)).collect();
                client.read(&env, &mut operation, world.shown(), found);
            }
            other => panic!("{other:?}"),
        }
        assert!(reads < 450, "50 500 records are 202 reads of 250; {reads} were made and there is no end");
    }
}

// Records as a stranger or a bug may have left them. A release build goes on with 0 instead: the token falls.
#[test]
fn a_revision_at_its_end_is_no_panic() {
    goes_on_after(|found| found.revision = u64::MAX);
}

#[test]
fn a_token_at_its_end_is_no_panic() {
    goes_on_after(|found| edited(found, |resource| resource.token = Token(u64::MAX)));
}

#[test]
fn a_term_at_its_end_is_no_panic() {
    goes_on_after(|found| edited(found, |resource| resource.term = Term(u64::MAX)));
}

#[test]
fn a_count_at_its_end_is_no_panic() {
    goes_on_after(|found| edited(found, |resource| resource.arrivals = u64::MAX));
}

fn goes_on_after(edit: fn(&mut Found)) {
    let mut world = World::owned_by_a();
    edit(world.records.get_mut(&Key::Resource(name())).unwrap());
    waits(world.claim(B));
    let (token, successor) = (world.resource().owners[0].grant.token, Label::new("worker").ok());
    assert_eq!(world.act(Act::Ask(name(), token, successor)), Reply::Asked(StepDownReply::Done));
    assert!(world.resource().queue[0].named > 0);
    world.release(A);
    world.claim(B);
}

fn edited(found: &mut Found, edit: fn(&mut Resource)) {
    if let Some(Value::Resource(resource)) = &mut found.value {
        edit(resource);
    }
    found.version = Version(found.version.0 ^ 0xffff);
}

// A store that swaps one record at a time: meta changes between the put of a renewal and the look at meta after it.
#[test]
fn a_renewal_that_has_to_be_verified_again_is_not_taken_for_a_clones() {
    let mut world = World::new();
    world.clients.insert(A, Client::new(ONE_BY_ONE));
    world.open(A, TTL);
    let mut client = world.client(A);
    let request = world.request(A, Call::Renew);
    let (mut operation, life, sendings) = world.begin(&mut client, request);
    let fates = world.commit(life, &sendings);
    world.open(C, TTL * 2); // writes meta
    let env = world.env();
    client.committed(&env, &mut operation, world.shown(), fates);

    let Reply::Answer(answer) = world.finish(&mut client, operation) else { panic!() };
    assert!(matches!(answer.said, Said::Kept { .. }), "{:?}", answer.said);
}

// S1 with mixed ttls. All data is lost within one life (FLUSHALL). A newcomer with a short ttl comes first; then those
// who know of the long ttl renew.
#[test]
fn after_a_flush_those_who_know_of_a_longer_ttl_have_it_respected() {
    let mut world = World::new();
    world.open(A, TTL * 240); // an hour
    granted(world.claim(A));
    world.open(B, TTL);
    world.renew(B);
    (world.records, world.lost_nothing) = (BTreeMap::new(), false);

    world.open(C, TTL); // a newcomer
    assert_eq!(world.renew(B), Said::Gone); // B knows of the hour
    assert_eq!(waits(world.claim(C)).why, WaitReason::Quarantine);
    world.pass(TTL);
    world.renew(C);

    let said = world.claim(C);
    assert!(matches!(said, Claimed::Waiting(_)), "{said:?}: A trusts its lease for 50 minutes more");
}

// S1 with mixed ttls. Two lives in a row; the process hears of the second before it has brought what it knew.
#[test]
fn what_a_process_knows_of_the_longest_ttl_outlives_two_lives() {
    let mut world = World::new();
    world.open(A, TTL * 240);
    world.open(B, TTL);
    world.renew(B);
    (world.records, world.life, world.lost_nothing) = (BTreeMap::new(), Incarnation(2), false);
    world.open(C, TTL);
    // B reads the meta of life 2; before it can write anything, life 3 begins, without data again.
    let mut client = world.client(B);
    let request = world.request(B, Call::Renew);
    let env = world.env();
    let mut operation = client.begin(&env, Act::Call(request, None));
    let mut reads = 0;
    while reads < 1 {
        let env = world.env();
        match client.step(&env, &mut operation) {
            Step::Commit(life, sendings) => {
                assert!(life != world.life);
                let fates = sendings.iter().map(|_| Fate::Conflict(Vec::new())).collect();
                client.committed(&env, &mut operation, world.shown(), fates);
            }
            Step::Read(keys) => {
                let found = keys.iter().map(|key| world.find(key)).collect();
                client.read(&env, &mut operation, world.shown(), found);
                reads += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    (world.records, world.life) = (BTreeMap::new(), Incarnation(3));
    world.finish(&mut client, operation);

    assert_eq!(world.meta().longest, TTL * 240);
}

// S1. The new primary (life 2) was touched once, by an operator, while all workers went on with the old one (life 1)
// for longer than a quarantine. Then they come over.
#[test]
fn a_quarantine_that_is_over_does_not_stand_for_those_who_come_later() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    let token = world.resource().token;
    let old = world.records.clone();
    world.life = Incarnation(2);
    world.act(Act::Ask(name(), Token(token.0 + 1), None)); // of another owner: nothing but the contact is written
    assert!(world.meta().quarantine.is_some());
    let begun = world.now;
    let new = core::mem::replace(&mut world.records, old);

    world.life = Incarnation(1);
    for _ in 0..4 {
        world.pass(5 * SECOND);
        assert!(matches!(world.renew(A), Said::Kept { .. }));
        world.renew(B);
        waits(world.claim(B));
    }
    (world.life, world.records) = (Incarnation(2), new);

    let mut slow = world.clone();
    let judged = world.now;
    let said = world.claim_judging(B, judged, 0);
    assert!(
        matches!(said, Claimed::Waiting(_)),
        "at the very moment in which A was kept by the old primary: {said:?}"
    );

    // B cannot vouch for the store's clock: to it, the quarantine looks as if it had just begun.
    let request = slow.request(B, Call::Renew);
    slow.send(Request { judged_by: Some(begun), ..request });
    slow.open(C, TTL);
    assert_eq!(waits(slow.claim_judging(C, judged, 0)).why, WaitReason::Quarantine, "whoever comes next can");
}

// Cost: what one look costs where there are many owners, all of whom renew.
#[test]
fn a_look_at_many_owners_reads_at_most_64_leases() {
    let mut world = World::new();
    let owners = 200;
    for lease in 100..100 + owners {
        world.open(LeaseId(lease), TTL);
        granted(world.claim_with(LeaseId(lease), owners as u32, 0));
    }
    world.open(B, TTL);
    waits(world.claim_with(B, owners as u32, 0));
    for _ in 0..3 {
        world.pass(TTL / 3);
        (100..100 + owners).for_each(|lease| drop(world.renew(LeaseId(lease))));
        world.renew(B);
    }
    world.count();

    waits(world.claim_with(B, owners as u32, 0));

    let cost = world.count();
    assert!(cost.reads <= 2 && cost.commits == 0, "{cost:?}");
    let leases = world.read_last.iter().filter(|key| matches!(key, Key::Lease(_))).count();
    assert_eq!(leases, 64);
}

// L1. A look reads 64 leases of owners at most. The one that died has to be among them some time, whatever its number.
#[test]
fn of_many_owners_those_are_looked_at_whose_leases_end_first() {
    let (owners, dies) = (66, LeaseId(165));
    let mut world = World::new();
    for lease in 100..100 + owners {
        world.open(LeaseId(lease), TTL);
        granted(world.claim_with(LeaseId(lease), owners as u32, 0));
    }
    world.open(B, TTL);
    let mut looks = Vec::new();
    for _ in 0..6 {
        world.pass(TTL / 3);
        (100..100 + owners)
            .map(LeaseId)
            .filter(|lease| *lease != dies)
            .for_each(|lease| drop(world.renew(lease)));
        world.renew(B);
        looks.push(world.claim_with(B, owners as u32, 0));
    }

    assert!(looks.iter().any(|claimed| matches!(claimed, Claimed::Granted(_))), "{looks:?}");
}

// S1 after the next failover. The seventeenth ttl drives the shortest from the list, although leases use it; when the
// longer ones go, the longest is what is left in the list.
#[test]
fn the_longest_ttl_never_falls_below_that_of_a_living_lease() {
    let mut world = World::new();
    world.open(A, TTL * 2);
    for n in 0..16 {
        let lease = LeaseId(100 + n);
        world.open(lease, TTL * 10 + SECOND * n as u32);
        world.close(lease);
    }
    world.pass(TTL_LINGERS);
    assert!(matches!(world.renew(A), Said::Kept { .. }), "A lives");
    world.open(B, TTL);

    world.drop_ttls(&[TTL, TTL * 2]);

    assert!(world.meta().longest >= TTL * 2, "{:?}, while A relies on {:?}", world.meta().longest, TTL * 2);
}

// S1, for ever. C has read that A owns; then all data is wiped within one life of the store. C finds the lease of A
// missing and writes it again, so that it runs out. A renews it, and hears of no new life.
#[test]
fn a_lease_that_was_wiped_does_not_come_back_to_its_worker() {
    let mut world = World::owned_by_a();
    world.open(C, TTL);
    let mut client = world.client(C);
    let request = world.request(C, Call::Claim(vec![want(&name())]));
    let env = world.env();
    let mut operation = client.begin(&env, Act::Call(request, None));
    loop {
        let env = world.env();
        match client.step(&env, &mut operation) {
            Step::Read(keys) => {
                if keys.contains(&Key::Lease(A)) {
                    (world.records, world.lost_nothing) = (BTreeMap::new(), false);
                }
                let found = keys.iter().map(|key| world.find(key)).collect();
                client.read(&env, &mut operation, world.shown(), found);
            }
            Step::Commit(life, sendings) => {
                world.commit(life, &sendings);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(world.value(&Key::Lease(A)).is_some(), "C has written it again");

    assert_eq!(world.renew(A), Said::Gone);
}

// L1. B leaves the queue; then the store falls back to data in which B waits. B lives, and would never claim what it is
// woken for.
#[test]
fn a_worker_leaves_the_queues_of_older_data_that_it_has_left() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    let saved = world.records.clone();
    world.release(B);
    (world.records, world.life) = (saved, Incarnation(2));
    assert!(world.resource().waits(B));

    world.renew(B);
    let held = world.call(B, Call::Held);

    assert_eq!(held, Said::Held(vec![]));
    assert!(!world.resource().waits(B));
}

// The same, but B has only stepped down: it waits on.
#[test]
fn a_worker_that_has_stepped_down_keeps_its_place_in_older_data() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.call(A, Call::Release(vec![Leave { resource: name(), how: Leaving::SteppedDown }]));
    let saved = world.records.clone();
    (world.records, world.life) = (saved, Incarnation(2));
    assert!(world.resource().waits(A));

    world.renew(A);
    let held = world.call(A, Call::Held);

    assert_eq!(held, Said::Held(vec![]));
    assert!(world.resource().waits(A));
}

// A renewal is applied; the store restarts with its data, and another request of the process hears of the new life
// first.
#[test]
fn a_renewal_that_is_answered_after_a_restart_is_not_taken_for_a_clones() {
    let mut world = World::owned_by_a();
    let mut client = world.client(A);
    let request = world.request(A, Call::Renew);
    let (mut operation, life, sendings) = world.begin(&mut client, request);
    let (fates, before) = (world.commit(life, &sendings), world.shown());
    world.life = Incarnation(2);
    let (mut client, _) = world.run(client, Act::Wishes(B));

    let env = world.env();
    client.committed(&env, &mut operation, before, fates);
    let Reply::Answer(answer) = world.finish(&mut client, operation) else { panic!() };

    assert!(matches!(answer.said, Said::Kept { .. }), "{:?}", answer.said);
}

// L1, and worse. A steps down; while that is under way it leaves for good, and comes back as the owner. The first
// request decides again.
#[test]
fn a_step_down_that_is_late_takes_nothing_away_and_no_place_in_the_queue() {
    for comes_back in [false, true] {
        let mut world = World::owned_by_a();
        waits(world.claim(B));
        let leave = Leave { resource: name(), how: Leaving::SteppedDown };
        let request = world.request(A, Call::Release(vec![leave]));
        let mut client = world.client(A);
        let (mut late, life, sendings) = world.begin(&mut client, request);
        world.clients.insert(A, client);

        assert_eq!(world.release(A), Released::Free);
        world.release(B);
        if comes_back {
            granted(world.claim(A));
        }
        let mut client = world.client(A);
        let fates = world.commit(life, &sendings);
        let env = world.env();
        client.committed(&env, &mut late, world.shown(), fates);
        world.finish(&mut client, late);

        assert_eq!(world.resource().owner_with(A).is_some(), comes_back);
        assert!(!world.resource().waits(A));
    }
}
