//! What a process makes of the answers that it gets: late ones, those of another life of the store, records that cannot
//! be read, clocks that go back; and how much it remembers, waits and reads.

use super::*;
use crate::fanout::Published;
use crate::job::JobSaid;
use crate::names::ResourceName;
use crate::timing::LONGEST_TTL;

const MILLI: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

fn named(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

/// A request while others go on, and its rest.
impl World {
    /// The commit that the request led to is answered.
    pub(super) fn answer(&mut self, client: &mut Client, operation: &mut Operation, fates: Vec<Fate>) {
        client.committed(&self.env(), operation, self.shown(), fates);
    }

    /// The rest of a request that a worker asks.
    pub(super) fn said(&mut self, client: &mut Client, operation: Operation) -> Said {
        match self.finish(client, operation) {
            Reply::Answer(answer) => answer.said,
            other => panic!("{other:?}"),
        }
    }

    fn edit(&mut self, name: &ResourceName, edit: impl FnOnce(&mut Resource)) {
        let key = Key::Resource(name.clone());
        let Some(Value::Resource(mut resource)) = self.value(&key) else { panic!("there is none") };
        edit(&mut resource);
        self.write(&key, resource.into());
    }

    /// The same process, whatever it is asked.
    fn with_client<T>(&mut self, lease: LeaseId, on: impl FnOnce(&mut Self, &mut Client) -> T) -> T {
        let mut client = self.client(lease);
        let result = on(self, &mut client);
        self.clients.insert(lease, client);
        result
    }
}

// ---- lives of the store --------------------------------------------------------------------------------------

#[test]
fn a_late_answer_of_an_earlier_life_says_nothing() {
    let mut world = World::owned_by_a();
    let mut client = world.client(A);
    let mut late = client.begin(&world.env(), Act::Wishes(A));
    let Step::Read(keys) = client.step(&world.env(), &mut late) else { panic!("it knows nothing fresh") };
    let (before, found) = (world.shown(), keys.iter().map(|key| world.find(key)).collect());
    world.life = Incarnation(2);
    let (mut client, _) = world.run(client, Act::Wishes(B));
    world.count();

    let env = world.env();
    client.read(&env, &mut late, before, found);
    world.finish(&mut client, late);
    world.clients.insert(A, client);

    assert_eq!(
        world.count(),
        Cost { reads: 1, commits: 0, writes: 0 },
        "life 2 is known, only A is read again"
    );
    assert!(matches!(world.renew(A), Said::Kept { .. }));
    assert_eq!(world.count(), Cost { reads: 0, commits: 1, writes: 1 });
}

// An eviction is applied in life 1; the store falls back to older data before it makes the answer.
#[test]
fn what_was_applied_in_a_life_before_the_one_that_answers_is_done_again() {
    let mut world = World::owned_by_a();
    let saved = world.records.clone();
    let mut operator = world.operator.clone();
    let token = world.resource().token;
    let (mut operation, life, sendings) = world.begin_act(&mut operator, Act::Evict(name(), token));
    let fates = world.commit(life, &sendings);
    assert!(matches!(fates[..], [Fate::Done(_)]));

    (world.records, world.life) = (saved, Incarnation(2));
    world.answer(&mut operator, &mut operation, fates);
    let reply = world.finish(&mut operator, operation);

    assert_eq!(reply, Reply::Asked(StepDownReply::Done));
    assert!(world.resource().owners.is_empty(), "the store that answers has heard of it");
}

// ---- clocks --------------------------------------------------------------------------------------------------

#[test]
fn once_the_stores_clock_went_back_the_own_lease_counts_for_no_more_than_it_shows() {
    let mut world = World::owned_by_a();
    let claim = || Call::Claim(vec![want(&named("s"))]);
    world.call(B, claim());
    world.call(B, Call::Release(vec![leave(&named("s"), Leaving::Released)]));
    world.renew(B);
    world.now = StoreTime::from_micros(world.now.as_micros() - 60_000_000);
    world.with_client(B, |world, client| {
        let operation = client.begin(&world.env(), Act::Wishes(C));
        world.finish(client, operation);
    });

    // What it knows of the resource is enough for a commit: it reads nothing before.
    let sendings = world.commit_of(B, claim());

    assert_eq!(sendings[0].change.window.until, Some(world.now + TTL));
}

#[test]
fn an_answer_that_was_overtaken_turns_no_clock_back() {
    let mut world = World::owned_by_a();
    let mut client = world.client(B);
    let mut late = client.begin(&world.env(), Act::Wishes(C));
    let Step::Read(keys) = client.step(&world.env(), &mut late) else { panic!("it knows nothing fresh") };
    let (before, found) = (world.shown(), keys.iter().map(|key| world.find(key)).collect());
    world.pass(Duration::from_secs(2));
    world.clients.insert(B, client);
    world.renew(B);
    let renewed = world.now;

    let env = world.env();
    world.with_client(B, |_, client| client.read(&env, &mut late, before, found));
    let sendings = world.commit_of(B, Call::Claim(vec![want(&named("s"))]));

    assert_eq!(sendings[0].change.window.until, Some(renewed + TTL));
}

// ---- conflicts and waits -------------------------------------------------------------------------------------

/// What a request does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Reads,
    Waits(Duration),
    Commits,
}

/// Carries out a request of which every round trip takes that long, with half of every spread. Before each of the first
/// commits, somebody else writes the resource. Says what the request does, in order.
fn course(world: &mut World, lease: LeaseId, call: Call, trip: Duration, conflicts: u32) -> Vec<Does> {
    let request = world.request(lease, call);
    course_of(world, lease, Act::Call(request, None), trip, conflicts)
}

fn course_of(world: &mut World, lease: LeaseId, act: Act, trip: Duration, conflicts: u32) -> Vec<Does> {
    let mut client = world.client(lease);
    let mut operation = client.begin(&world.env(), act);
    let (mut done, mut commits) = (Vec::new(), 0);
    loop {
        let env = Env { jitter: 1 << 15, ..world.env() };
        match client.step(&env, &mut operation) {
            Step::Read(keys) => {
                done.push(Does::Reads);
                world.pass(trip);
                let env = world.env();
                world.read(&mut client, &env, &mut operation, &keys);
            }
            Step::Wait(span) => done.push(Does::Waits(span)),
            Step::Commit(life, sendings) => {
                done.push(Does::Commits);
                if commits < conflicts {
                    world.edit_resource(|resource| resource.arrivals += 1);
                }
                commits += 1;
                let fates = world.commit(life, &sendings);
                world.pass(trip);
                let env = Env { jitter: 1 << 15, ..world.env() };
                client.committed(&env, &mut operation, world.shown(), fates);
            }
            Step::Done(_) => break,
            other => panic!("{other:?}"),
        }
    }
    world.clients.insert(lease, client);
    done
}

fn waits_of(done: &[Does]) -> Vec<Duration> {
    let span = |does: &Does| if let Does::Waits(span) = does { Some(*span) } else { None };
    done.iter().filter_map(span).collect()
}

/// A server that is busy, and a lease that is good for an hour: a wait that grew with both would let all others come
/// first.
#[test]
fn between_two_attempts_nobody_waits_for_longer_than_half_a_second() {
    let mut world = World::owned_by_a();
    world.open(C, HOUR);

    let done = course(&mut world, C, claim_of(1, 0), MILLI * 500, 8);

    assert_eq!(waits_of(&done), [MILLI * 250; 7], "half of it");
}

/// Others want the same 40. All at once, each would make all others conflict.
#[test]
fn after_a_conflict_a_claim_of_many_goes_on_with_a_few_at_a_time() {
    let mut world = World::new();
    [A, B].into_iter().for_each(|lease| world.open(lease, TTL));
    let names: Vec<ResourceName> = (0..40).map(|number| named(&alloc::format!("s.{number:02}"))).collect();
    let claim = || Call::Claim(names.iter().map(want).collect());
    let request = world.request(B, claim());
    let mut client = world.client(B);
    let (mut operation, life, sendings) = world.begin(&mut client, request);
    assert_eq!(sendings.len(), 40);
    world.call(A, claim());

    let fates = world.commit(life, &sendings);
    world.answer(&mut client, &mut operation, fates);
    let mut sent = Vec::new();
    let reply = loop {
        let env = world.env();
        match client.step(&env, &mut operation) {
            Step::Read(keys) => world.read(&mut client, &env, &mut operation, &keys),
            Step::Commit(life, sendings) => {
                sent.push(sendings.iter().map(|sending| sending.change.put[0].0.clone()).collect::<Vec<_>>());
                let fates = world.commit(life, &sendings);
                world.answer(&mut client, &mut operation, fates);
            }
            Step::Done(reply) => break reply,
            other => panic!("{other:?}"),
        }
    };

    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 8]);
    assert_ne!(sent[0][0], Key::Resource(names[0].clone()), "everybody begins elsewhere");
    let Reply::Answer(answer) = reply else { panic!("{reply:?}") };
    let Said::Claimed(claimed) = answer.said else { panic!("{:?}", answer.said) };
    assert_eq!(claimed.len(), 40);
    assert!(claimed.iter().all(|claimed| matches!(claimed, Claimed::Waiting(Waiting { ahead: 0, .. }))));
}

#[test]
fn every_wait_between_two_attempts_is_twice_the_one_before_up_to_32_round_trips() {
    let mut world = World::owned_by_a();

    let done = course(&mut world, B, claim_of(1, 0), MILLI, 8);

    assert_eq!(waits_of(&done), [1, 2, 4, 8, 16, 16, 16].map(|millis| MILLI * millis), "half of each");
}

#[test]
fn nobody_waits_for_longer_than_an_eighth_of_its_ttl_between_two_attempts() {
    let mut world = World::owned_by_a();
    world.open(C, Duration::from_secs(2));

    let done = course(&mut world, C, claim_of(1, 0), MILLI * 200, 2);

    assert_eq!(waits_of(&done), [MILLI * 125], "half of it");
}

#[test]
fn nor_does_the_owner_of_a_job() {
    let mut world = World::new();
    world.open(A, Duration::from_secs(2));
    let token = granted(world.claim(A)).token;
    let holder = Holder { lease: A, resource: name(), token };
    let (plan, from) = (Plan::new("daily").unwrap(), Occurrence::ONCE);
    let act = Act::Job(JobStep { holder, act: JobAct::Attend { plan, from } });

    let done = course_of(&mut world, A, act, MILLI * 200, 5);

    assert_eq!(waits_of(&done), [MILLI * 125], "half of it");
}

#[test]
fn an_urgent_change_waits_from_the_fifth_conflict_on() {
    let mut world = World::owned_by_a();
    let release = Call::Release(vec![leave(&name(), Leaving::Released)]);

    let done = course(&mut world, A, release, MILLI, 5);

    let mut expected = vec![Does::Commits; 5];
    expected.extend([Does::Waits(MILLI * 8), Does::Reads, Does::Commits]);
    assert_eq!(done, expected);
}

// C opens with a ttl that is new: it is noted first. Then somebody changes the namespace, once.
#[test]
fn a_conflict_after_something_was_applied_is_the_first_one_again() {
    let mut world = World::owned_by_a();
    let (label, metadata) = (Label::new("c").unwrap(), Metadata::default());
    let request = world.request(C, Call::Open { ttl: TTL * 2, label, metadata });
    let mut client = world.client(C);
    // The first contact, the note of the ttl.
    let env = world.env();
    let operation = client.begin(&env, Act::Wishes(C));
    world.finish(&mut client, operation);
    let (mut operation, life, sendings) = world.begin(&mut client, request);
    let fates = world.commit(life, &sendings);
    world.answer(&mut client, &mut operation, fates);
    let Step::Commit(life, sendings) = client.step(&world.env(), &mut operation) else { panic!("it opens") };

    world.open(LeaseId(4), TTL * 3);
    let fates = world.commit(life, &sendings);
    world.answer(&mut client, &mut operation, fates);

    assert_eq!(operation.attempts(), (2, 1));
    assert!(matches!(client.step(&world.env(), &mut operation), Step::Commit(..)), "it does not wait");
}

#[test]
fn whoever_makes_a_queue_8_long_waits_a_little_and_reads_again_before_it_joins() {
    let mut world = World::owned_by_a();
    for lease in 10..16 {
        world.open(LeaseId(lease), TTL);
        waits(world.claim(LeaseId(lease)));
    }
    world.open(C, TTL);

    let seventh = course(&mut world, B, claim_of(1, 0), MILLI, 0);
    let eighth = course(&mut world, C, claim_of(1, 0), MILLI, 0);

    assert_eq!((waits_of(&seventh), seventh.last()), (vec![], Some(&Does::Commits)));
    let last = [Does::Waits(MILLI * 4), Does::Reads, Does::Commits];
    assert_eq!(eighth[eighth.len() - 3..], last, "half of a round trip for each");
}

#[test]
fn the_third_attempt_of_a_renewal_expects_nothing_but_the_lease() {
    let mut world = World::owned_by_a();
    let request = world.request(A, Call::Renew);
    let mut client = world.client(A);
    let (mut operation, mut life, mut sendings) = world.begin(&mut client, request);
    let mut expected = vec![sendings[0].change.expect.len()];
    for n in 0..2 {
        world.open(LeaseId(50 + n), TTL * (2 + n as u32)); // writes meta
        let fates = world.commit(life, &sendings);
        world.answer(&mut client, &mut operation, fates);
        let Step::Commit(next, again) = client.step(&world.env(), &mut operation) else { panic!("it waits") };
        (life, sendings) = (next, again);
        expected.push(sendings[0].change.expect.len());
    }

    assert_eq!(expected, [2, 2, 1]);
}

#[test]
fn no_two_changes_of_a_commit_have_one_version_and_none_that_of_a_missing_record() {
    for chance in [0, u128::MAX] {
        let mut world = World::new();
        world.open(A, TTL);
        let wants = ["s", "t", "u"].map(|text| want(&named(text)));
        let request = world.request(A, Call::Claim(wants.to_vec()));
        let mut client = world.client(A);
        let mut operation = client.begin(&world.env(), Act::Call(request, None));
        let sendings = loop {
            let env = Env { chance, ..world.env() };
            match client.step(&env, &mut operation) {
                Step::Read(keys) => world.read(&mut client, &env, &mut operation, &keys),
                Step::Commit(_, sendings) => break sendings,
                other => panic!("{other:?}"),
            }
        };

        let mut versions: Vec<Version> = sendings.iter().map(|sending| sending.version).collect();
        versions.push(Version::NONE);
        versions.sort();
        versions.dedup();
        assert_eq!(versions.len(), 4);
    }
}

// ---- doubt ---------------------------------------------------------------------------------------------------

#[test]
fn a_commit_that_was_answered_leaves_no_doubt() {
    let mut world = World::new();
    world.open(A, TTL);
    let mut client = world.client(A);
    let request = world.request(A, claim_of(1, 0));
    let (mut operation, life, sendings) = world.begin(&mut client, request);
    world.open(C, TTL * 2); // writes meta, which the grant expects
    let fates = world.commit(life, &sendings);
    assert!(matches!(&fates[..], [Fate::Conflict(_)]));
    world.answer(&mut client, &mut operation, fates);
    drop(operation);
    world.clients.insert(A, client);
    world.count();

    assert_eq!(world.release(A), Released::Free);

    assert_eq!(world.count().writes, 0);
}

// B reads r; then A releases it, B claims it, and the claim is given up half-way. Only then the first answer arrives.
#[test]
fn an_answer_from_before_a_commit_was_sent_says_nothing_about_it() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.release(B);
    let mut client = world.client(B);
    let mut early = client.begin(&world.env(), Act::Wishes(B));
    let Step::Read(keys) = client.step(&world.env(), &mut early) else { panic!("it knows nothing fresh") };
    let found: Vec<Found> = keys.iter().map(|key| world.find(key)).collect();
    assert!(found.iter().any(|found| found.key == Key::Resource(name())));
    world.clients.insert(B, client);
    world.release(A);
    world.tell(B, "r");
    let late = world.commit_of(B, claim_of(1, 0));
    assert!(late[0].change.lasting, "it is a grant");

    let env = world.env();
    world.with_client(B, |world, client| client.read(&env, &mut early, world.shown(), found));
    assert_eq!(world.release(B), Released::Free);

    assert_eq!(world.apply(&late), [false], "the claim comes too late");
    assert!(world.resource().owners.is_empty());
}

#[test]
fn an_answer_that_shows_another_version_ends_a_doubt_and_a_lease_is_closed_in_order() {
    for seen in [false, true] {
        let mut world = World::new();
        world.open(A, TTL);
        world.open(B, TTL);
        drop(world.commit_of(A, claim_of(1, 0)));
        granted(world.claim(B));
        if seen {
            world.act_as(A, Act::Wishes(A));
        }

        assert_eq!(world.close(A), Said::Closed);

        assert_eq!(world.lease(A).ended.map(|ended| ended.clean), Some(seen));
    }
}

#[test]
fn a_lease_whose_opening_was_not_answered_is_there_for_a_claim() {
    let mut world = World::new();
    world.open(B, TTL);
    let (label, metadata) = (Label::new("worker").unwrap(), Metadata::default());
    let opening = world.commit_of(A, Call::Open { ttl: TTL, label, metadata });
    assert_eq!(world.apply(&opening), [true]);

    assert_eq!(granted(world.claim(A)).term, Term(1));
}

// ---- what cannot be read -------------------------------------------------------------------------------------

#[test]
fn a_request_goes_on_without_a_record_that_cannot_be_read_if_it_is_about_others_too() {
    let (r, s, t) = (named("r"), named("s"), named("t"));
    let claim = |names: &[&ResourceName]| Call::Claim(names.iter().map(|name| want(name)).collect());
    let release = |names: &[&ResourceName]| {
        Call::Release(names.iter().map(|name| leave(name, Leaving::Released)).collect())
    };
    for (call, goes_on) in [
        (claim(&[&r]), false),
        (claim(&[&r, &s]), true),
        (claim(&[&s, &t]), false),
        (release(&[&r]), false),
        (release(&[&r, &s]), true),
        (release(&[&s, &t]), false),
        (Call::Held, true),
        (Call::Renew, false),
    ] {
        let mut world = World::new();
        let act = Act::Call(world.request(A, call.clone()), None);
        assert_eq!(is_content_without(&mut world, act, &r), goes_on, "{call:?}");
    }
    let mut world = World::new();
    assert!(is_content_without(&mut world, Act::Wishes(A), &r));
    assert!(!is_content_without(&mut world, Act::Evict(r.clone(), Token(1)), &r));
}

fn is_content_without(world: &mut World, act: Act, resource: &ResourceName) -> bool {
    let mut client = world.client(A);
    let mut operation = client.begin(&world.env(), act);
    client.unreadable(&mut operation, resource)
}

#[test]
fn beside_a_record_that_cannot_be_read_the_others_are_granted_held_asked_for_and_released() {
    let (r, s) = (named("r"), named("s"));
    let mut world = World::new();
    world.open(A, TTL);
    world.unreadable = [s.clone()].into();

    let said = world.call(A, Call::Claim(vec![want(&s), want(&r)]));
    let Said::Claimed(claimed) = said else { panic!("{said:?}") };
    let Claimed::Granted(grant) = claimed[1] else { panic!("{claimed:?}") };
    assert_eq!(waits(claimed[0]), Waiting { ahead: 0, look_again: TTL * 4, why: WaitReason::Unreadable });

    let held = Holding { resource: r.clone(), ticket: grant.ticket, token: grant.token };
    assert_eq!(world.call(A, Call::Held), Said::Held(vec![held]));
    assert_eq!(world.act_as(A, Act::Wishes(A)), Reply::Done);

    let leaves = vec![leave(&s, Leaving::Released), leave(&r, Leaving::Released)];
    assert_eq!(world.call(A, Call::Release(leaves)), Said::Released(vec![Released::Free; 2]));
    assert!(world.resource().owners.is_empty());
}

// ---- what a lease holds --------------------------------------------------------------------------------------

#[test]
fn a_lease_that_somebody_else_has_ended_holds_nothing() {
    let mut world = World::owned_by_a();
    world.act(Act::Prove(A));

    assert_eq!(world.call(A, Call::Held), Said::Gone);
}

#[test]
fn a_ticket_that_a_step_down_was_answered_with_is_held() {
    let mut world = World::new();
    world.open(A, TTL);

    let said = world.call(A, Call::Release(vec![leave(&name(), Leaving::SteppedDown)]));
    let Said::Released(released) = said else { panic!("{said:?}") };
    let Released::Again(Claimed::Granted(grant)) = released[0] else { panic!("{released:?}") };

    let held = Holding { resource: name(), ticket: grant.ticket, token: grant.token };
    assert_eq!(world.call(A, Call::Held), Said::Held(vec![held]));
}

// A has released s; then the store falls back to data in which A owns both.
#[test]
fn after_a_fallback_what_was_released_is_held_again_and_a_worker_that_asks_less_is_noticed() {
    for (planted, expected) in
        [(Planted::default(), vec!["r", "s"]), (Planted::with(Bug::HeldAsksOnlyForOwned), vec!["r"])]
    {
        let mut world = World { planted, ..World::new() };
        world.open(A, TTL);
        world.call(A, Call::Claim(vec![want(&named("r")), want(&named("s"))]));
        let saved = world.records.clone();
        world.call(A, Call::Release(vec![leave(&named("s"), Leaving::Released)]));
        (world.records, world.life) = (saved, Incarnation(2));

        let said = world.call(A, Call::Held);

        let Said::Held(held) = said else { panic!("{said:?}") };
        let held: Vec<&str> = held.iter().map(|holding| holding.resource.as_str()).collect();
        assert_eq!(held, expected);
    }
}

#[test]
fn wishes_that_do_not_fit_into_a_lease_are_looked_for_once_and_told_with_the_next_renewal() {
    let mut world = World::new();
    world.open(A, TTL);
    let wants: Vec<Want> = (0..MOST_NOTICES + 1).map(|n| want(&named(&alloc::format!("n{n}")))).collect();
    let said = world.call(A, Call::Claim(wants.clone()));
    let Said::Claimed(claimed) = said else { panic!("{said:?}") };
    let must_look = |world: &mut World| world.with_client(A, |_, client| client.must_look(A));
    for (want, claimed) in wants.iter().zip(claimed) {
        assert!(matches!(world.renew(A), Said::Kept { more: false, .. }) && !must_look(&mut world));
        world.act(Act::Ask(want.resource.clone(), granted(claimed).token, None));
    }

    assert!(matches!(world.renew(A), Said::Kept { more: true, .. }));
    assert_eq!([must_look(&mut world), must_look(&mut world)], [true, false]);
    world.act_as(A, Act::Wishes(A));

    let said = world.renew(A);
    let Said::Kept { notices, more: false } = said else { panic!("{said:?}") };
    assert_eq!(notices.len(), MOST_NOTICES + 1);
}

#[test]
fn a_wish_that_was_found_is_not_told_once_its_ticket_is_released() {
    let mut world = World::new();
    world.open(A, TTL);
    let names: Vec<ResourceName> = (0..3).map(|n| named(&alloc::format!("n{n}"))).collect();
    let said = world.call(A, Call::Claim(names.iter().map(want).collect()));
    let Said::Claimed(claimed) = said else { panic!("{said:?}") };
    let tokens: Vec<Token> = claimed.iter().map(|claimed| granted(*claimed).token).collect();
    // They stand on the seats, and not in the lease.
    for name in &names {
        world.edit(name, |resource| resource.owners[0].wish = Some(Wish::Asked));
    }
    world.act_as(A, Act::Wishes(A));

    world.call(A, Call::Release(vec![leave(&names[1], Leaving::Released)]));

    assert_eq!(notices(world.renew(A)), [(tokens[0], Wish::Asked), (tokens[2], Wish::Asked)]);
    assert_eq!(notices(world.renew(A)), [], "each is told once");
}

#[test]
fn an_ownership_begins_without_the_notices_of_the_one_before() {
    let mut world = World::owned_by_a();
    let evicted = world.resource().token;
    world.act(Act::Evict(name(), evicted));
    assert_eq!(notices(world.renew(A)), [(evicted, Wish::Evicted)]);

    let token = granted(world.claim(A)).token;

    assert_eq!(notices(world.renew(A)), []);
    world.act(Act::Ask(name(), token, None));
    assert_eq!(notices(world.renew(A)), [(token, Wish::Asked)]);
}

// A has released r. Somebody who has not heard of that writes into its lease that r is asked for, while A renews.
#[test]
fn a_notice_about_what_was_released_is_not_told_when_it_comes_late() {
    let mut world = World::owned_by_a();
    let token = world.resource().token;
    world.release(A);
    let mut client = world.client(A);
    let request = world.request(A, Call::Renew);
    let (mut operation, life, sendings) = world.begin(&mut client, request);
    let fates = world.commit(life, &sendings);
    world.answer(&mut client, &mut operation, fates);
    let notice = Notice { resource: name(), token, wish: Wish::Asked };
    let lease = Lease { notices: vec![notice], ..world.lease(A) };
    world.write(&Key::Lease(A), lease.into());
    let (mut client, _) = world.run(client, Act::Wishes(A));

    assert_eq!(notices(world.said(&mut client, operation)), []);

    world.clients.insert(A, client);
    assert_eq!(notices(world.renew(A)), []);
}

// ---- how much is remembered ----------------------------------------------------------------------------------

// A owns r, which comes after 10 000 names that it has claimed before.
#[test]
fn a_worker_that_has_claimed_countless_resources_holds_what_a_list_of_all_shows() {
    let mut world = World::new();
    world.open(A, TTL);
    for n in 0..10_000 {
        let request = world.request(A, Call::Claim(vec![want(&named(&alloc::format!("n{n}")))]));
        world.with_client(A, |world, client| drop(client.begin(&world.env(), Act::Call(request, None))));
    }

    assert!(!lists_all(&mut world), "10 000 are remembered by name");
    let request = world.request(A, Call::Claim(vec![want(&named("n7"))]));
    world.with_client(A, |world, client| drop(client.begin(&world.env(), Act::Call(request, None))));
    assert!(!lists_all(&mut world), "it was among them");

    let grant = granted(world.claim(A));

    assert!(lists_all(&mut world));
    let held = Holding { resource: name(), ticket: grant.ticket, token: grant.token };
    assert_eq!(world.call(A, Call::Held), Said::Held(vec![held]));
}

/// Whether A looks at a list of all resources for what it holds.
fn lists_all(world: &mut World) -> bool {
    let act = Act::Call(world.request(A, Call::Held), None);
    world.with_client(A, |world, client| {
        let mut operation = client.begin(&world.env(), act);
        matches!(client.step(&world.env(), &mut operation), Step::List)
    })
}

// Those of long ago are forgotten: no request is under way for so long.
#[test]
fn a_process_remembers_the_last_5_000_to_10_000_resources_that_a_lease_has_left() {
    let mut world = World::new();
    world.open(A, TTL);
    let nth = |n: u32| named(&alloc::format!("n{n}"));
    let mut client = world.client(A);
    let begin = |world: &mut World, client: &mut Client, call: Call| {
        let act = Act::Call(world.request(A, call), None);
        client.begin(&world.env(), act)
    };
    let late =
        [0, 5_000, 5_001, 9_999].map(|n| begin(&mut world, &mut client, Call::Claim(vec![want(&nth(n))])));
    for n in 0..10_001 {
        drop(begin(&mut world, &mut client, Call::Release(vec![leave(&nth(n), Leaving::Released)])));
    }

    let said = late.map(|operation| claimed(world.said(&mut client, operation)));

    let waits = said.map(|claimed| matches!(claimed, Claimed::Waiting(_)));
    assert_eq!(waits, [false, false, true, true]);
}

#[test]
fn beyond_50_000_records_a_process_keeps_those_of_the_namespace_and_its_own_leases() {
    let mut world = World::owned_by_a();
    let mut client = world.client(A);
    let (env, life) = (world.env(), world.life);
    let tell = |client: &mut Client, n: u32| {
        let key = Key::Resource(named(&alloc::format!("n{n}")));
        client.told(&env, life, world.find(&key));
    };
    let kept = [Key::Meta, Key::Ttls, Key::Lease(A)];
    let others = [Key::Resource(name()), Key::Info(A)];
    let all = |client: &Client, keys: &[Key]| keys.iter().all(|key| client.seen(key).is_some());
    assert!(all(&client, &kept) && all(&client, &others));
    let most = 50_000 - kept.len() as u32 - others.len() as u32;

    (0..most + 1).for_each(|n| tell(&mut client, n));
    assert!(all(&client, &kept) && all(&client, &others), "50 001 are there, and nothing was dropped");

    tell(&mut client, most + 1);
    assert!(all(&client, &kept));
    assert!(others.iter().all(|key| client.seen(key).is_none()));
}

#[test]
fn a_process_knows_who_owns_who_waits_and_how_long_each_leaves_it_to_the_others() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.open(C, TTL * 20);
    waits(world.claim(C));

    let client = world.client(C);

    let step = TTL * 20 / 150;
    assert_eq!((client.owners(&name()), client.waiters(&name())), (vec![A], vec![B, C]));
    assert_eq!((client.owners(&named("s")), client.waiters(&named("s"))), (vec![], vec![]));
    let behind = |lease, free| client.step_behind(&name(), lease, free);
    assert_eq!([behind(C, 1), behind(C, 2), behind(C, 3)], [step, Duration::ZERO, Duration::ZERO]);
    assert_eq!([behind(B, 0), behind(B, 1), behind(A, 0)], [MILLI * 100, Duration::ZERO, Duration::ZERO]);
}

// ---- sweeping ------------------------------------------------------------------------------------------------

#[test]
fn a_sweep_deletes_every_lease_that_ended_long_ago_and_what_its_worker_said() {
    let mut world = World::new();
    for lease in [A, B, C] {
        world.open(lease, TTL);
        world.renew(lease);
    }
    world.close(A);
    world.close(B);

    world.pass(HOUR);
    world.act(Act::Sweep(vec![A, B, C]));

    let there = |key: Key| world.value(&key).is_some();
    assert_eq!([A, B, C].map(|lease| there(Key::Lease(lease))), [false, false, true]);
    assert_eq!([A, B, C].map(|lease| there(Key::Info(lease))), [false, false, true]);
}

#[test]
fn a_ttl_may_be_unused_when_it_was_noted_an_hour_ago_and_is_not_the_only_one() {
    let mut world = World::new();
    assert!(!may_have_unused_ttls(&mut world), "nothing is known");
    world.open(A, TTL);
    world.pass(HOUR);
    assert!(!may_have_unused_ttls(&mut world), "there is only one");
    world.open(B, TTL * 2);
    let looked = LookedAtLeases { linger: HOUR * 2, ..world.looked(&[TTL, TTL * 2]) };
    world.act_as(A, Act::DropTtls(looked));
    assert!(may_have_unused_ttls(&mut world), "the first one is old");

    let mut world = World::new();
    world.open(B, TTL * 2);
    world.open(A, TTL);
    world.pass(HOUR - MILLI);
    assert!(!may_have_unused_ttls(&mut world), "both are new");
    world.pass(MILLI);
    assert!(may_have_unused_ttls(&mut world));
}

fn may_have_unused_ttls(world: &mut World) -> bool {
    let env = world.env();
    world.with_client(A, |_, client| client.may_have_unused_ttls(&env))
}

#[test]
fn where_the_store_has_no_clock_a_ttl_may_be_unused_an_hour_after_it_was_seen() {
    let mut world = World { clock: false, ..World::new() };
    world.open(B, TTL * 2);
    world.open(A, TTL);

    world.pass(HOUR - MILLI);
    assert!(!may_have_unused_ttls(&mut world));
    world.pass(MILLI);
    assert!(may_have_unused_ttls(&mut world));
}

// ---- what a first contact and a store that swaps one record at a time cost ------------------------------------

#[test]
fn a_process_that_knows_nothing_yet_reads_once() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    let holder = Holder { lease: A, resource: name(), token: world.resource().token };
    let payload = Payload::new(b"x").unwrap();
    let call = |world: &mut World, call| Act::Call(world.request(B, call), None);
    for act in [
        call(&mut world, Call::Renew),
        call(&mut world, Call::Claim(vec![want(&named("free"))])),
        Act::Publish(holder, payload),
        call(&mut world, Call::Close(Closing::Left)),
        Act::Prove(A),
    ] {
        world.count();
        drop(world.run(Client::new(CAPABILITIES), act.clone()));
        assert_eq!(world.count().reads, 1, "{act:?}");
    }
}

#[test]
fn a_store_without_data_is_asked_once_whether_it_lost_any_for_as_long_as_a_lease_may_have_lived() {
    let open = |ttl| {
        let (label, metadata) = (Label::new("a").unwrap(), Metadata::default());
        Act::Call(World::new().request(A, Call::Open { ttl, label, metadata }), None)
    };
    // For how long each of these asks, of a store that cannot tell.
    let within = |acts: Vec<Act>| {
        let mut world = World { lost_nothing: false, ..World::new() };
        let (mut client, mut asked) = (world.client(A), Vec::new());
        for act in acts {
            let mut operation = client.begin(&world.env(), act);
            loop {
                let env = world.env();
                match client.step(&env, &mut operation) {
                    Step::Read(keys) => world.read(&mut client, &env, &mut operation, &keys),
                    Step::LostNothing(within) => {
                        asked.push(within);
                        client.lost_nothing(&mut operation, world.lost_nothing);
                    }
                    Step::Commit(life, sendings) => {
                        let fates = world.commit(life, &sendings);
                        world.answer(&mut client, &mut operation, fates);
                    }
                    Step::Done(_) => break,
                    other => panic!("{other:?}"),
                }
            }
        }
        asked
    };

    let knows_no_other_ttl = vec![open(TTL * 4)];
    assert_eq!(within(knows_no_other_ttl), [TTL * 4]);
    let knows_of_none = vec![Act::Wishes(A), Act::Wishes(A)];
    assert_eq!(within(knows_of_none), [LONGEST_TTL]);
    let asks_for_less = vec![Act::Wishes(A), open(TTL * 4)];
    assert_eq!(within(asks_for_less), [LONGEST_TTL, TTL * 4]);
}

/// A store that swaps records one by one has put a grant for A. The look at what it expected has not been made.
fn put_but_not_looked_at() -> (World, Client, Operation) {
    let mut world = World { capabilities: ONE_BY_ONE, ..World::new() };
    world.open(A, TTL);
    let mut client = world.client(A);
    let request = world.request(A, claim_of(1, 0));
    let (mut operation, life, sendings) = world.begin(&mut client, request);
    let fates = world.commit(life, &sendings);
    world.answer(&mut client, &mut operation, fates);
    (world, client, operation)
}

/// Somebody who comes from another life begins a quarantine.
fn quarantined(world: &mut World) {
    let quarantine = Quarantine { since: None, mark: 7, from: Some(Incarnation(9)), rest: Rest::new() };
    let meta = Meta { quarantine: Some(quarantine), ..world.meta() };
    world.write(&Key::Meta, meta.into());
}

#[test]
fn where_records_are_swapped_one_by_one_a_renewal_and_a_grant_count_after_one_look_at_what_they_expected() {
    let mut world = World { capabilities: ONE_BY_ONE, ..World::new() };
    world.open(A, TTL);
    world.count();

    assert!(matches!(world.renew(A), Said::Kept { .. }));
    assert_eq!(world.count(), Cost { reads: 1, commits: 1, writes: 1 });
    granted(world.claim(A));
    assert_eq!(world.count(), Cost { reads: 2, commits: 1, writes: 1 }, "one read before it, one after it");
}

// The store restarts between the put of a grant and the look at what it expected; another process has noticed already.
#[test]
fn where_records_are_swapped_one_by_one_a_grant_does_not_count_if_the_namespace_has_changed() {
    let (mut world, mut client, operation) = put_but_not_looked_at();

    quarantined(&mut world);
    let said = world.said(&mut client, operation);

    assert_eq!(waits(claimed(said)).why, WaitReason::Quarantine);
}

// The same, and the look at what it expected is lost: the next request finds the ticket, and writes K or nothing.
#[test]
fn where_records_are_swapped_one_by_one_a_ticket_that_is_found_counts_after_a_look_at_the_namespace() {
    for (tickets, commits) in [(1, 0), (2, 1)] {
        let (mut world, client, _) = put_but_not_looked_at();
        world.clients.insert(A, client);
        let mut calm = world.clone();
        calm.count();

        quarantined(&mut world);
        assert_eq!(waits(world.claim_with(A, tickets, 0)).why, WaitReason::Quarantine);

        granted(calm.claim_with(A, tickets, 0));
        assert_eq!(calm.read_last, [Key::Meta]);
        assert_eq!(calm.count().commits, commits);
    }
}

// The answer to a renewal comes after the process has heard of another life, and an operator has written the lease.
#[test]
fn a_renewal_that_was_applied_in_the_life_before_is_not_taken_for_a_clones() {
    let mut world = World::owned_by_a();
    let mut client = world.client(A);
    let request = world.request(A, Call::Renew);
    let (mut operation, life, sendings) = world.begin(&mut client, request);
    let fates = world.commit(life, &sendings);
    let shown = world.shown();
    let token = world.resource().token;
    assert_eq!(world.act(Act::Ask(name(), token, None)), Reply::Asked(StepDownReply::Done));
    world.life = Incarnation(2);
    let other = client.begin(&world.env(), Act::Wishes(A));
    world.finish(&mut client, other);

    client.committed(&world.env(), &mut operation, shown, fates);

    let Said::Kept { notices, .. } = world.said(&mut client, operation) else { panic!("it is not kept") };
    assert_eq!(notices.len(), 1);
}

// A machine is copied with the worker on it: both renew under the same number.
#[test]
fn a_renewal_of_the_same_number_that_a_clone_has_sent_is_not_ones_own() {
    let mut world = World::owned_by_a();
    let mut client = world.client(A);
    let mut clone = client.clone();
    let request = world.request(A, Call::Renew);
    let (mut theirs, life, sendings) = world.begin(&mut clone, request.clone());
    let (mut operation, _, ours) = world.begin(&mut client, request);
    let fates = world.commit(life, &sendings);
    world.answer(&mut clone, &mut theirs, fates);
    assert_eq!(notices(world.said(&mut clone, theirs)), []);

    let fates = world.commit(life, &ours);
    world.answer(&mut client, &mut operation, fates);

    assert_eq!(world.said(&mut client, operation), Said::Stale);
}

// ---- what is said --------------------------------------------------------------------------------------------

#[test]
fn when_to_look_again_counts_from_the_answer() {
    let mut world = World::owned_by_a();
    let mut client = world.client(B);
    let request = world.request(B, claim_of(1, 0));
    let (mut operation, life, sendings) = world.begin(&mut client, request);
    let fates = world.commit(life, &sendings);
    world.pass(TTL / 3);
    world.answer(&mut client, &mut operation, fates);

    let said = world.said(&mut client, operation);

    assert_eq!(waits(claimed(said)).look_again, TTL - TTL / 3);
}

// The process reads, and is held up for two seconds before it goes on. By then a lease, or a quarantine, has run out;
// but the store has shown no such time yet.
#[test]
fn what_the_stores_clock_does_not_allow_yet_is_waited_for_and_it_is_said_why() {
    let second = Duration::from_secs(1);
    for (life, why) in [(1, WaitReason::Taken), (2, WaitReason::Quarantine)] {
        let mut world = World::owned_by_a();
        world.life = Incarnation(life);
        world.with_client(B, |world, client| {
            let operation = client.begin(&world.env(), Act::Wishes(B));
            world.finish(client, operation);
        });
        world.pass(TTL - second);
        world.renew(B);
        if why == WaitReason::Quarantine {
            world.renew(A);
        }
        let mut client = world.client(B);
        let act = Act::Call(world.request(B, claim_of(1, 0)), None);
        let mut operation = client.begin(&world.env(), act);
        let said = loop {
            let env = world.env();
            match client.step(&env, &mut operation) {
                Step::Read(keys) => {
                    world.read(&mut client, &env, &mut operation, &keys);
                    world.own += 2_000_000;
                }
                Step::Done(Reply::Answer(answer)) => break answer.said,
                other => panic!("{other:?}"),
            }
        };

        let Waiting { look_again, why: said, .. } = waits(claimed(said));
        assert_eq!((look_again, said), (second, why));
    }
}

#[test]
fn an_owner_whose_lease_has_run_out_by_the_stores_clock_alone_does_nothing_as_the_owner() {
    let mut world = World::owned_by_a();
    let holder = Holder { lease: A, resource: name(), token: world.resource().token };
    world.now = world.now + TTL;
    let before = world.records.clone();

    let (plan, from) = (Plan::new("daily").unwrap(), Occurrence::ONCE);
    let attend = Act::Job(JobStep { holder: holder.clone(), act: JobAct::Attend { plan, from } });
    assert_eq!(world.act_as(A, attend), Reply::Job(JobSaid::NotOwner));
    let publish = Act::Publish(holder, Payload::new(b"x").unwrap());
    assert_eq!(world.act_as(A, publish), Reply::Published(Published::NotOwner));

    assert!(world.records == before);
}

#[test]
fn what_an_owner_sends_is_sent_and_nothing_that_others_send() {
    let mut world = World::owned_by_a();
    let (token, payload) = (world.resource().token, Payload::new(b"x").unwrap());
    let publish = |lease| Act::Publish(Holder { lease, resource: name(), token }, payload.clone());
    world.signals.clear();

    assert_eq!(world.act_as(B, publish(B)), Reply::Published(Published::NotOwner));
    assert_eq!(world.signals, []);
    assert_eq!(world.act_as(A, publish(A)), Reply::Published(Published::Sent));
    assert!(matches!(&world.signals[..], [Signal::Message { payload: sent, .. }] if *sent == payload));
}

#[test]
fn what_an_owner_sends_is_not_sent_if_it_was_evicted_meanwhile() {
    let mut world = World::owned_by_a();
    let token = world.resource().token;
    let holder = Holder { lease: A, resource: name(), token };
    let mut client = world.client(A);
    let publish = Act::Publish(holder, Payload::new(b"x").unwrap());
    let (mut operation, life, sendings) = world.begin_act(&mut client, publish);
    world.act(Act::Evict(name(), token));
    world.signals.clear();
    world.count();

    let fates = world.commit(life, &sendings);
    world.answer(&mut client, &mut operation, fates);

    assert_eq!(world.finish(&mut client, operation), Reply::Published(Published::NotOwner));
    assert_eq!((world.signals.len(), world.count().reads), (0, 1), "it says so after a look at both records");
}

// ---- planted bugs --------------------------------------------------------------------------------------------

#[test]
fn a_take_over_goes_after_the_end_of_the_lease_and_one_that_goes_with_it_or_before_is_noticed() {
    let commit = |planted| {
        let mut world = World { planted, ..World::new() };
        world.open(A, TTL);
        granted(world.claim(A));
        world.open(B, TTL);
        world.pass(TTL / 2);
        world.renew(B);
        world.pass(TTL / 2);
        let sendings = world.commit_of(B, claim_of(1, 0));
        let what = |change: &Change| (change.put[0].0.clone(), change.lasting);
        sendings.iter().map(|sending| what(&sending.change)).collect::<Vec<_>>()
    };

    let (end, grant) = ((Key::Lease(A), false), (Key::Resource(name()), true));
    assert_eq!(commit(Planted::default()), vec![end.clone()]);
    assert_eq!(commit(Planted::with(Bug::BatchLeans)), [end, grant.clone()]);
    assert_eq!(commit(Planted::with(Bug::TakeBeforeEnd)), [grant]);
}

#[test]
fn a_renewal_counts_only_when_it_was_applied_and_one_that_counts_for_an_older_one_is_noticed() {
    for planted in [Planted::default(), Planted::with(Bug::OlderRenewalCounts)] {
        let mut world = World { planted, ..World::new() };
        world.open(A, TTL);
        let request = world.request(A, Call::Renew);
        let mut client = world.client(A);
        let (mut operation, life, sendings) = world.begin(&mut client, request.clone());
        let lease = world.lease(A);
        world.write(&Key::Lease(A), lease.into());
        let fates = world.commit(life, &sendings);
        world.answer(&mut client, &mut operation, fates);

        assert!(matches!(world.said(&mut client, operation), Said::Kept { .. }));

        assert_eq!(world.lease(A).seq == request.seq, planted == Planted::default());
    }
}

#[test]
fn a_renewal_that_brings_an_ended_lease_back_is_noticed() {
    for planted in [Planted::default(), Planted::with(Bug::RenewalRecreatesLease)] {
        let mut world = World { planted, ..World::new() };
        world.open(A, TTL);
        world.act(Act::Prove(A));

        let said = world.renew(A);

        let is_back = planted != Planted::default();
        assert_eq!(matches!(said, Said::Kept { .. }), is_back);
        assert_eq!(world.lease(A).ended.is_none(), is_back);
    }
}
