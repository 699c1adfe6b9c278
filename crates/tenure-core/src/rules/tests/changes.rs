//! What a change asks of the store: that it lasts, that it is applied also when memory is short, in which window.

use super::*;

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
