//! `claim`: who is granted what, under which term and token.

use tenure_core::{
    BATCH, Call, Claimed, Closing, HistoryEvent, Leave, Leaving, Released, Said, Term, Ticket, WaitReason,
};

use super::Fixture;
use super::world::*;

/// Languages without 64-bit integers hold every whole number below this.
const TOKENS_END: u64 = 1 << 53;

/// The first ownership of a resource that nobody ever claimed.
pub async fn the_first_grant_has_ticket_0_and_term_1(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;

    let grant = granted(world.claim(a).await);

    assert_eq!((grant.ticket, grant.term), (Ticket(0), Term(1)));
    assert!((1..TOKENS_END).contains(&grant.token.0), "{grant:?}");
}

/// One owner, and the other is told that it waits, for what, and how many come first.
pub async fn of_two_first_claims_one_wins_and_one_waits(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let (a, b) = (world.open("a").await, world.open("b").await);

    granted(world.claim(a).await);
    let second = waiting(world.claim(b).await);

    assert_eq!((second.ahead, second.why), (0, WaitReason::Taken));
    assert_eq!((world.owners().await, world.waiters().await), (vec!["a".into()], vec!["b".into()]));
}

/// A claim that is sent again, because its answer was lost, is no second ownership.
pub async fn an_owner_that_claims_again_is_given_the_same_grant(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let first = world.claim(a).await;

    world.pass(SHORT / 10).await;

    assert_eq!(world.claim(a).await, first);
    assert_eq!(world.history().await, [("a".into(), HistoryEvent::Granted)]);
}

/// However an ownership ends, the next has the next term and a larger token.
pub async fn each_grant_adds_one_to_the_term_and_raises_the_token(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let mut grants = vec![];

    for why in [Closing::Left, Closing::Expired, Closing::Proved] {
        let a = world.open("a").await;
        for how in [Leaving::Released, Leaving::Failed] {
            grants.push(granted(world.claim(a).await));
            world.leave(a, JOB, how).await;
        }
        let evicted = granted(world.claim(a).await);
        world.evict(evicted.token).await;
        let stepping_down = granted(world.claim(a).await);
        let Released::Again(again) = world.step_down(a).await else { panic!("not answered like a claim") };
        grants.extend([evicted, stepping_down, granted(again)]);
        world.close(a, why).await;
    }
    let owner = world.open("d").await;
    grants.push(granted(world.claim(owner).await));
    let next = world.wait("e").await;
    world.release(owner).await;
    grants.push(granted(world.claim(next).await));
    world.release(next).await;
    let runs_out = world.open_for("b", SHORT).await;
    grants.push(granted(world.claim(runs_out).await));
    world.pass(SHORT).await;
    let c = world.open("c").await;
    grants.push(granted(world.claim(c).await));

    let terms: Vec<Term> = grants.iter().map(|grant| grant.term).collect();
    assert_eq!(terms, (1..=grants.len() as u64).map(Term).collect::<Vec<_>>());
    assert!(grants.is_sorted_by(|a, b| a.token < b.token), "{grants:?}");
}

/// A resource that nobody holds or awaits keeps its term and token.
pub async fn a_resource_is_never_forgotten(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let first = granted(world.claim(a).await);
    world.close(a, Closing::Left).await;
    world.pass(SHORT).await;

    let b = world.open("b").await;
    let second = granted(world.claim(b).await);

    assert_eq!(second.term, Term(2));
    assert!(second.token > first.token);
}

/// K owners and no more; a freed number is given again, the lowest first.
pub async fn the_lowest_free_ticket_is_given_and_never_more_than_k(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, b, c, d, e] = ["a", "b", "c", "d", "e"];
    let [a, b, c, d, e] = [
        world.open(a).await,
        world.open(b).await,
        world.open(c).await,
        world.open_for(d, HOUR).await,
        world.open(e).await,
    ];
    for (number, lease) in (0..).zip([a, b, c]) {
        assert_eq!(granted(world.claim_with(lease, 3, 0).await).ticket, Ticket(number));
    }

    assert_eq!(waiting(world.claim_with(d, 3, 0).await).why, WaitReason::Taken);
    world.release(b).await;
    let after_a_release = granted(world.claim_with(d, 3, 0).await);

    assert_eq!((after_a_release.ticket, after_a_release.term), (Ticket(1), Term(4)));
    assert_eq!(waiting(world.claim_with(e, 3, 0).await).why, WaitReason::Taken);
}

/// One answer per resource, in the order of the claim; what happens to one does not touch another.
pub async fn the_resources_of_one_claim_are_independent_and_answered_in_its_order(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let (a, b) = (world.open("a").await, world.open("b").await);
    granted(world.claim_at(a, "y").await);

    let said = world.send_next(b, Call::Claim(vec![want("y"), want("z"), want("x")])).await;

    let Said::Claimed(answers) = said else { panic!("a claim was answered {said:?}") };
    assert_eq!(answers.len(), 3);
    assert_eq!(waiting(answers[0]).why, WaitReason::Taken);
    assert_eq!(granted(answers[1]).term, Term(1));
    assert_eq!(granted(answers[2]).term, Term(1));
    world.leave(b, "z", Leaving::Released).await;
    assert_eq!(world.held(b).await, ["x"]);
}

/// A full batch, of which every third resource is another's, is answered in order, and released in order.
pub async fn a_batch_of_250_is_answered_in_order(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    // Not in the order of the names: a store that sorts them must sort its answers back.
    let resources: Vec<String> = (0..BATCH).map(|i| format!("job-{}", i * 7 % BATCH)).collect();
    let is_taken = |index: usize| index % 3 == 1;
    let taken: Vec<_> = resources.iter().skip(1).step_by(3).map(|resource| want(resource)).collect();
    let (a, b) = (world.open_for("a", HOUR).await, world.open_for("b", HOUR).await);
    world.send_next(a, Call::Claim(taken.clone())).await;

    let said = world.send_next(b, Call::Claim(resources.iter().map(|name| want(name)).collect())).await;

    let Said::Claimed(answers) = said else { panic!("a claim was answered {said:?}") };
    assert_eq!(answers.len(), BATCH);
    for (index, answer) in answers.iter().enumerate() {
        assert_eq!(matches!(answer, Claimed::Waiting(_)), is_taken(index), "{index}: {answer:?}");
    }
    assert_eq!(world.held(b).await.len(), BATCH - taken.len());

    let how = |index| if is_taken(index) { Leaving::SteppedDown } else { Leaving::Released };
    let leave = |(index, resource): (usize, &String)| Leave { resource: name(resource), how: how(index) };
    let said = world.send_next(b, Call::Release(resources.iter().enumerate().map(leave).collect())).await;

    let Said::Released(released) = said else { panic!("a release was answered {said:?}") };
    assert_eq!(released.len(), BATCH);
    for (index, answer) in released.iter().enumerate() {
        assert_eq!(matches!(answer, Released::Again(_)), is_taken(index), "{index}: {answer:?}");
    }
    assert!(world.held(b).await.is_empty());
}

/// Claims and releases are carried out as they come: their numbers are for the worker, which matches answers by them.
pub async fn the_numbers_of_claims_and_releases_do_not_matter(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;

    for (seq, term) in [(9, 1), (3, 2), (3, 3)] {
        let claimed = only_claimed(world.send(a, seq, claim_of(JOB)).await);
        assert_eq!(granted(claimed).term, Term(term));
        assert_eq!(only_released(world.send(a, seq, release_of(JOB)).await), Released::Free);
        assert!(world.held(a).await.is_empty());
    }
}

/// The ticket of an owner that did not renew is taken by whoever looks next.
pub async fn the_ticket_of_an_owner_that_ran_out_is_granted(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own_for("a", SHORT).await;
    let b = world.wait("b").await;

    world.pass(SHORT).await;
    let grant = granted(world.claim(b).await);

    assert_eq!((grant.ticket, grant.term), (Ticket(0), Term(2)));
    assert_eq!((world.owners().await, world.waiters().await.len()), (vec!["b".into()], 0));
}

/// How long an owner is safe is its own choice, and never a challenger's.
pub async fn the_length_of_the_owners_lease_counts_and_not_that_of_the_challenger(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    world.own_for("a", LONG).await;
    let b = world.open_for("b", SHORT).await;
    waiting(world.claim(b).await);

    world.pass(SHORT).await;
    let c = world.open_for("c", SHORT).await;
    let head = waiting(world.claim(c).await);

    assert_eq!((head.ahead, head.why), (0, WaitReason::Taken));
    assert!(head.look_again > LONG / 4, "{head:?}");
}
