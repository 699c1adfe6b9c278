//! `ask` and `evict`, and the notices that follow from them.

use std::collections::BTreeSet;

use tenure_core::{Call, Closing, HistoryEvent, NOTICES, Released, Said, StepDownReply, Term, Token, Wish};

use super::Fixture;
use super::world::*;

/// The owner is told and goes on owning; every renewal repeats it until the release.
pub async fn asking_tells_the_owner_until_it_releases_and_takes_nothing_away(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let token = granted(world.claim(a).await).token;

    assert_eq!(world.ask(token, None).await, StepDownReply::Done);

    let standing = Said::Kept { notices: vec![notice_of(JOB, token, Wish::Asked)], more: false };
    for _ in 0..2 {
        assert_eq!(world.renew(a).await, standing);
    }
    assert_eq!(world.owners().await, ["a"]);
    world.release(a).await;
    assert_eq!(world.renew(a).await, kept());
}

/// However the next ownership is come by, it begins without the notice of the last.
pub async fn a_notice_ends_with_its_ownership(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let token = granted(world.claim(a).await).token;
    world.ask(token, None).await;

    let Released::Again(again) = world.step_down(a).await else { panic!("not answered like a claim") };
    assert_eq!(world.renew(a).await, kept());

    world.evict(granted(again).token).await;
    granted(world.claim(a).await);
    assert_eq!(world.renew(a).await, kept());
}

/// A named successor comes first, before every priority, when the owner steps down.
pub async fn a_named_successor_goes_to_the_head_before_every_priority(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b, c] = [world.open("a").await, world.open_for("b", HOUR).await, world.open_for("c", HOUR).await];
    let token = granted(world.claim(a).await).token;
    world.claim_with(b, 1, i32::MAX).await;
    world.claim(c).await;

    assert_eq!(world.ask(token, Some("c")).await, StepDownReply::Done);
    world.step_down(a).await;

    assert_eq!(world.waiters().await, ["c", "b", "a"]);
    assert_eq!(waiting(world.claim(b).await).ahead, 1);
    granted(world.claim(c).await);
}

/// The operator's last word counts; who was named before comes next.
pub async fn the_successor_that_was_named_last_is_the_head(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let token = granted(world.claim(a).await).token;
    for label in ["b", "c", "d"] {
        world.wait(label).await;
    }

    world.ask(token, Some("c")).await;
    world.ask(token, Some("d")).await;

    assert_eq!(world.waiters().await, ["d", "c", "b"]);
}

/// Two workers with one label: the earlier is meant.
pub async fn of_two_waiters_with_one_label_the_earlier_is_the_successor(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let token = granted(world.claim(a).await).token;
    let (_, first, second) = (world.wait("b").await, world.wait("twin").await, world.wait("twin").await);

    world.ask(token, Some("twin")).await;

    assert_eq!(waiting(world.claim(first).await).ahead, 0);
    assert_eq!(waiting(world.claim(second).await).ahead, 2);
}

/// A successor has to wait and live: the owner itself, the dead, those elsewhere and strangers do not do.
pub async fn a_successor_that_does_not_wait_or_is_dead_is_refused_and_nothing_changes(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let token = granted(world.claim(a).await).token;
    world.wait_for("ran out", SHORT).await;
    let closed = world.wait("closed").await;
    world.close(closed, Closing::Left).await;
    let elsewhere = world.open("elsewhere").await;
    world.claim_at(elsewhere, "other").await;
    world.pass(SHORT).await;

    for label in ["a", "ran out", "closed", "elsewhere", "nobody"] {
        assert_eq!(world.ask(token, Some(label)).await, StepDownReply::NotWaiting, "{label}");
    }

    assert_eq!(world.renew(a).await, kept());
}

/// The token protects the owner of now from a wish that was meant for an owner of before.
pub async fn a_wish_under_another_token_changes_nothing_and_is_told_who_owns(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b] = world.crowd(["a", "b"], 2).await;
    let [first, second] =
        [granted(world.claim_with(a, 2, 0).await).token, granted(world.claim_with(b, 2, 0).await).token];
    let c = world.open("c").await;
    waiting(world.claim_with(c, 2, 0).await);

    let other = Token(first.0 - 1);
    for said in [world.ask(other, None).await, world.ask(other, Some("c")).await, world.evict(other).await] {
        let StepDownReply::OtherOwners(mut tokens) = said else {
            panic!("a wish for nobody was answered {said:?}")
        };
        tokens.sort();
        assert_eq!(tokens, [first, second]);
    }
    assert_eq!(world.ask_at("unknown", first, None).await, StepDownReply::OtherOwners(vec![]));
    assert_eq!(world.evict_at("unknown", first).await, StepDownReply::OtherOwners(vec![]));

    assert_eq!(world.owners().await, ["a", "b"]);
    assert_eq!([world.renew(a).await, world.renew(b).await], [kept(), kept()]);
    assert_eq!(world.all_names().await, [JOB]);
}

/// The ticket is free at once, and the worker is told until it releases.
pub async fn evicting_frees_the_ticket_at_once_and_the_notice_stands_until_the_release(
    fixture: impl Fixture,
) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let token = granted(world.claim(a).await).token;
    let b = world.wait_for("b", HOUR).await;

    assert_eq!(world.evict(token).await, StepDownReply::Done);

    assert!(world.held(a).await.is_empty());
    assert_eq!(granted(world.claim(b).await).term, Term(2));
    let standing = Said::Kept { notices: vec![notice_of(JOB, token, Wish::Evicted)], more: false };
    for _ in 0..2 {
        assert_eq!(world.renew(a).await, standing);
    }
    world.release(a).await;
    assert_eq!(world.renew(a).await, kept());
    assert_eq!(world.owners().await, ["b"]);
}

/// Evicting twice ends one ownership, and not the next.
pub async fn an_ownership_is_evicted_once(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let token = granted(world.claim(a).await).token;
    world.evict(token).await;
    let b = world.open("b").await;
    let next = granted(world.claim(b).await).token;

    assert_eq!(world.evict(token).await, StepDownReply::OtherOwners(vec![next]));
    assert_eq!(world.ask(token, None).await, StepDownReply::OtherOwners(vec![next]));

    assert_eq!(world.owners().await, ["b"]);
}

/// Who was asked and is then evicted hears of the eviction; who was asked hears no less when K is lowered.
pub async fn a_stronger_notice_is_not_replaced_by_a_weaker_one(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [_, b] = world.crowd(["a", "b"], 2).await;
    let token = granted(world.claim_with(b, 2, 0).await).token;

    world.ask(token, None).await;
    world.pass(TOLERANCE).await;
    let c = world.open("c").await;
    world.claim_with(c, 1, 0).await;
    assert_eq!(world.wishes(b).await, [Wish::Asked]);

    world.evict(token).await;
    assert_eq!(world.wishes(b).await, [Wish::Evicted]);
}

/// The death of an owner that was proved is not rewritten by a late wish.
pub async fn a_wish_about_an_owner_that_was_closed_comes_too_late(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let token = granted(world.claim(a).await).token;
    world.close(a, Closing::Proved).await;

    assert_eq!(world.ask(token, None).await, StepDownReply::OtherOwners(vec![]));
    assert_eq!(world.evict(token).await, StepDownReply::OtherOwners(vec![]));

    assert_eq!(
        world.history().await,
        [("a".into(), HistoryEvent::Granted), ("a".into(), HistoryEvent::Died)]
    );
}

/// At most 16 notices stand in a lease. A renewal says when there are more, and those that follow bring the rest.
pub async fn a_renewal_carries_16_notices_and_those_after_it_bring_the_rest(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open_for("a", HOUR).await;
    let resources: Vec<String> = (0..NOTICES + 16).map(|i| format!("job-{i}")).collect();
    let said = world.send_next(a, Call::Claim(resources.iter().map(|name| want(name)).collect())).await;
    let Said::Claimed(answers) = said else { panic!("a claim was answered {said:?}") };
    for (resource, answer) in resources.iter().zip(answers) {
        assert_eq!(world.ask_at(resource, granted(answer).token, None).await, StepDownReply::Done);
    }

    let (first, more) = world.notices(a).await;
    assert_eq!((first.len(), more), (16, true));
    let all = world.all_notices(a, first, resources.len()).await;

    assert!(all.values().all(|notice| notice.wish == Wish::Asked));
    assert_eq!(all.into_keys().collect::<BTreeSet<_>>(), resources.into_iter().collect());
}

/// However many notices there are, an eviction is told by name with the next renewal.
pub async fn an_eviction_is_told_at_once_beside_any_number_of_notices(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open_for("a", HOUR).await;
    let mut tokens = vec![];
    for number in 0..20 {
        let resource = format!("job-{number}");
        let token = granted(world.claim_at(a, &resource).await).token;
        world.ask_at(&resource, token, None).await;
        tokens.push((resource, token));
    }

    let (resource, token) = &tokens[19];
    assert_eq!(world.evict_at(resource, *token).await, StepDownReply::Done);

    let (notices, _) = world.notices(a).await;
    assert!(notices.contains(&notice_of(resource, *token, Wish::Evicted)), "{notices:?}");
}
