//! What operators ask for: step down, evict.

use super::*;

#[test]
fn an_eviction_tells_the_owner_before_it_frees_the_ticket() {
    let mut world = World::owned_by_a();
    let token = world.resource().token;

    assert_eq!(world.act(Act::Evict(name(), token)), Reply::Asked(StepDownReply::Done));

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

        let said = Reply::Asked(StepDownReply::OtherOwners(vec![next]));
        assert_eq!(world.finish(&mut operator, operation), said);
        assert!(world.records == before);
    }
}

#[test]
fn an_owner_that_was_not_told_of_a_wish_is_told_by_whoever_looks() {
    let mut world = World::owned_by_a();
    waits(world.claim(B));
    world.edit_resource(|resource| resource.owners[0].wish = Some(Wish::Asked));

    waits(world.claim(B));

    assert_eq!(notices(world.renew(A)), [(world.resource().token, Wish::Asked)]);
}
