//! Each rule over records, on a store that does nothing but compare and swap.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::message::*;
use crate::moment::{Moment, StoreTime};
use crate::names::{Label, Metadata, ResourceName, Tickets};
use crate::{Asked, Happened};

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

// req: S6
#[test]
fn a_claim_that_is_still_under_way_takes_nothing_after_a_release() {
    let mut world = World::new();
    world.open(A, TTL);
    let (mut claim, late) = world.under_way(A, claim_of(1, 0));
    assert_eq!(world.release(A), Released::Free);

    let fates = world.commit(world.life, &late);
    let (env, shown) = (world.env(), world.shown());
    let client = world.clients.get_mut(&A).unwrap();
    client.committed(&env, &mut claim, shown, fates);
    let step = client.step(&env, &mut claim);

    let Step::Done(Reply::Answer(answer)) = step else { panic!("{step:?}") };
    assert_eq!(answer.said, Said::Claimed(vec![Claimed::Stale]));
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

#[test]
fn an_eviction_tells_the_owner_before_it_frees_the_ticket() {
    let mut world = World::owned_by_a();
    let token = world.resource().token;

    assert_eq!(world.act(Act::Evict(name(), token)), Reply::Asked(Asked::Done));

    let written: Vec<&Key> = world.written.iter().rev().take(2).rev().collect();
    assert_eq!(written, [&Key::Lease(A), &Key::Resource(name())]);
    assert_eq!(notices(world.renew(A)), [(token, Wish::Evicted)]);
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
    world.edit_resource(|resource| drop(resource.rest.insert("paused".to_string(), "true".into())));

    waits(world.claim(B));
    world.release(A);

    assert_eq!(world.resource().rest.get("paused").map(|text| &**text), Some("true"));
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

// ---- the world -----------------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    reads: u32,
    commits: u32,
    writes: u32,
}

/// A store, and one process for each lease.
struct World {
    records: BTreeMap<Key, Found>,
    clients: BTreeMap<LeaseId, Client>,
    operator: Client,
    life: Incarnation,
    now: StoreTime,
    /// What the clocks of all processes show, in microseconds.
    own: u64,
    lost_nothing: bool,
    doubled: bool,
    chance: u128,
    seq: u64,
    cost: Cost,
    written: Vec<Key>,
    history: Vec<Event>,
}

const CAPABILITIES: Capabilities =
    Capabilities { clock: true, together: true, most_changes: 250, most_signal_bytes: 8_000 };

impl World {
    fn new() -> Self {
        Self {
            records: BTreeMap::new(),
            clients: BTreeMap::new(),
            operator: Client::new(CAPABILITIES),
            life: Incarnation(1),
            now: StoreTime::from_micros(5_000_000_000),
            own: 1_000_000,
            lost_nothing: true,
            doubled: false,
            chance: 0,
            seq: 0,
            cost: Cost::default(),
            written: Vec::new(),
            history: Vec::new(),
        }
    }

    /// A owns, B has a lease.
    fn owned_by_a() -> Self {
        let mut world = Self::new();
        world.open(A, TTL);
        assert_eq!(granted(world.claim(A)).term, Term(1));
        world.open(B, TTL);
        world
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
        self.own += span.as_micros() as u64;
    }

    fn env(&mut self) -> Env {
        self.chance += 0x1_0000_0000_0000_0001;
        self.own += 1;
        let at = Duration::from_micros(self.own);
        Env { at: Moment::new(at, at), wall: self.now.as_micros(), jitter: 0, chance: self.chance }
    }

    fn shown(&self) -> Shown {
        Shown { life: self.life, now: Some(self.now), wall: Some(self.now.as_micros()) }
    }

    fn find(&self, key: &Key) -> Found {
        let missing =
            Found { key: key.clone(), version: Version::NONE, revision: 0, stamp: None, value: None };
        self.records.get(key).cloned().unwrap_or(missing)
    }

    fn version(&self, key: &Key) -> Version {
        self.find(key).version
    }

    /// Compares and swaps. Says which of the changes were applied.
    fn apply(&mut self, sendings: &[Sending]) -> Vec<bool> {
        let mut applied = Vec::new();
        for Sending { change, version, revisions } in sendings {
            let fits = change.expect.iter().all(|(key, expected)| self.version(key) == *expected);
            let done = fits && change.window.contains(self.now);
            if done {
                for ((key, value), revision) in change.put.iter().zip(revisions) {
                    self.cost.writes += 1;
                    self.written.push(key.clone());
                    let (stamp, revision) = (Some(self.now), *revision);
                    match value.clone() {
                        Some(value) => {
                            let value = Some(value);
                            let found = Found { key: key.clone(), version: *version, revision, stamp, value };
                            self.records.insert(key.clone(), found);
                        }
                        None => drop(self.records.remove(key)),
                    }
                }
                self.history.extend(change.history.clone());
            }
            applied.push(done);
        }
        applied
    }

    fn commit(&mut self, life: Incarnation, sendings: &[Sending]) -> Vec<Fate> {
        let applied = match life == self.life {
            true => self.apply(sendings),
            false => vec![false; sendings.len()],
        };
        let fate = |(sending, applied): (&Sending, bool)| match applied {
            true => Fate::Done(Some(self.now)),
            false => {
                let differ =
                    sending.change.expect.iter().filter(|(key, version)| self.version(key) != *version);
                Fate::Conflict(differ.map(|(key, _)| self.find(key)).collect())
            }
        };
        sendings.iter().zip(applied).map(fate).collect()
    }

    fn run(&mut self, mut client: Client, act: Act) -> (Client, Reply) {
        let env = self.env();
        let mut operation = client.begin(&env, act);
        for _ in 0..100 {
            let env = self.env();
            match client.step(&env, &mut operation) {
                Step::Done(reply) => return (client, reply),
                Step::Wait(_) => {}
                Step::Read(keys) => {
                    self.cost.reads += 1;
                    let found = keys.iter().map(|key| self.find(key)).collect();
                    client.read(&env, &mut operation, self.shown(), found);
                }
                Step::LostNothing(_) => client.lost_nothing(&mut operation, self.lost_nothing),
                Step::List => client.listed(&mut operation, Vec::new()),
                Step::Commit(life, sendings) => {
                    self.cost.commits += 1;
                    let mut fates = self.commit(life, &sendings);
                    if self.doubled {
                        fates = self.commit(life, &sendings);
                    }
                    client.committed(&env, &mut operation, self.shown(), fates);
                }
            }
        }
        panic!("it gets nowhere");
    }

    fn act(&mut self, act: Act) -> Reply {
        let (operator, reply) = self.run(self.operator.clone(), act);
        self.operator = operator;
        reply
    }

    fn request(&mut self, lease: LeaseId, call: Call) -> Request {
        self.seq += 1;
        let at = self.env().at;
        let (seq, judged_by) = (Seq(self.seq), None);
        Request { lease, seq, asked_at: at, limit: TTL, judged_by, longest: TTL, call }
    }

    fn send(&mut self, request: Request) -> Said {
        let lease = request.lease;
        let client = self.clients.remove(&lease).unwrap_or_else(|| Client::new(CAPABILITIES));
        let (client, reply) = self.run(client, Act::Call(request, None));
        self.clients.insert(lease, client);
        match reply {
            Reply::Answer(answer) => answer.said,
            other => panic!("{other:?}"),
        }
    }

    fn call(&mut self, lease: LeaseId, call: Call) -> Said {
        let request = self.request(lease, call);
        self.send(request)
    }

    fn open(&mut self, lease: LeaseId, ttl: Duration) {
        let label = Label::new("worker").unwrap();
        let said = self.call(lease, Call::Open { ttl, label, metadata: Metadata::default() });
        assert_eq!(said, Said::Opened);
    }

    fn renew(&mut self, lease: LeaseId) -> Said {
        self.call(lease, Call::Renew)
    }

    fn renew_as(&mut self, lease: LeaseId, seq: u64) -> Said {
        let request = self.request(lease, Call::Renew);
        self.send(Request { seq: Seq(seq), ..request })
    }

    fn close(&mut self, lease: LeaseId) -> Said {
        self.call(lease, Call::Close(Closing::Left))
    }

    fn claim(&mut self, lease: LeaseId) -> Claimed {
        self.claim_with(lease, 1, 0)
    }

    fn claim_with(&mut self, lease: LeaseId, tickets: u32, priority: i32) -> Claimed {
        claimed(self.call(lease, claim_of(tickets, priority)))
    }

    /// A claim by a worker that vouches for that time, plus so many microseconds.
    fn claim_judging(&mut self, lease: LeaseId, judged: StoreTime, more: i64) -> Claimed {
        self.renew(lease);
        let request = self.request(lease, claim_of(1, 0));
        let judged = StoreTime::from_micros(judged.as_micros().saturating_add_signed(more));
        claimed(self.send(Request { judged_by: Some(judged), ..request }))
    }

    fn release(&mut self, lease: LeaseId) -> Released {
        let leave = Leave { resource: name(), how: Leaving::Released };
        match self.call(lease, Call::Release(vec![leave])) {
            Said::Released(released) => released[0],
            other => panic!("{other:?}"),
        }
    }

    /// The commit that a request leads to, given up before it is answered.
    fn commit_of(&mut self, lease: LeaseId, call: Call) -> Vec<Sending> {
        self.under_way(lease, call).1
    }

    /// A request up to its first commit, which is not answered yet.
    fn under_way(&mut self, lease: LeaseId, call: Call) -> (Operation, Vec<Sending>) {
        let request = self.request(lease, call);
        let mut client = self.clients.remove(&lease).unwrap();
        let env = self.env();
        let mut operation = client.begin(&env, Act::Call(request, None));
        let sendings = loop {
            let env = self.env();
            match client.step(&env, &mut operation) {
                Step::Read(keys) => {
                    let found = keys.iter().map(|key| self.find(key)).collect();
                    client.read(&env, &mut operation, self.shown(), found);
                }
                Step::Commit(_, sendings) => break sendings,
                other => panic!("{other:?}"),
            }
        };
        self.clients.insert(lease, client);
        (operation, sendings)
    }

    /// A hint brings the record.
    fn tell(&mut self, lease: LeaseId, _resource: &str) {
        let (env, found, life) = (self.env(), self.find(&Key::Resource(name())), self.life);
        self.clients.get_mut(&lease).unwrap().told(&env, life, found);
    }

    fn count(&mut self) -> Cost {
        core::mem::take(&mut self.cost)
    }

    fn resource(&self) -> Resource {
        match self.find(&Key::Resource(name())).value {
            Some(Value::Resource(resource)) => resource,
            other => panic!("{other:?}"),
        }
    }

    fn edit_resource(&mut self, edit: impl FnOnce(&mut Resource)) {
        let mut resource = self.resource();
        edit(&mut resource);
        let found = self.records.get_mut(&Key::Resource(name())).unwrap();
        found.value = Some(resource.into());
        found.version = Version(found.version.0 ^ 0xffff);
        found.revision += 1;
    }

    fn lease(&self, id: LeaseId) -> Lease {
        match self.find(&Key::Lease(id)).value {
            Some(Value::Lease(lease)) => lease,
            other => panic!("{other:?}"),
        }
    }

    fn meta(&self) -> Meta {
        match self.find(&Key::Meta).value {
            Some(Value::Meta(meta)) => meta,
            other => panic!("{other:?}"),
        }
    }
}

fn name() -> ResourceName {
    ResourceName::new("r").unwrap()
}

fn claim_of(tickets: u32, priority: i32) -> Call {
    Call::Claim(vec![Want { resource: name(), tickets: Tickets::new(tickets).unwrap(), priority }])
}

fn claimed(said: Said) -> Claimed {
    match said {
        Said::Claimed(claimed) => claimed[0],
        other => panic!("{other:?}"),
    }
}

fn granted(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn waits(claimed: Claimed) -> Waiting {
    match claimed {
        Claimed::Waiting(waiting) => waiting,
        other => panic!("{other:?}"),
    }
}

fn notices(said: Said) -> Vec<(Token, Wish)> {
    match said {
        Said::Kept { notices, .. } => notices.iter().map(|notice| (notice.token, notice.wish)).collect(),
        other => panic!("{other:?}"),
    }
}
