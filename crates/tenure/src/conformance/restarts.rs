//! What outlives a restart of the store. Where the incarnation stays, everything; where it changes, caution.

use tenure_core::{Call, Claimed, Closing, Said, Term, WaitReason, Wish};

use super::world::*;
use super::{Fixture, Restarted};

/// Where the incarnation stays nothing was lost. Where it changes nothing is granted for one `longest`: an owner
/// that the store does not know may still trust.
pub async fn a_restart_loses_nothing_or_grants_nothing_for_one_longest(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    // Short, so that a quarantine does not last; long enough to outlast the restart of a server in one life.
    let ttl = SHORT * 6;
    let [a, b, dead] =
        [world.open_for("a", ttl).await, world.open_for("b", ttl).await, world.open_for("dead", ttl).await];
    world.close(dead, Closing::Left).await;
    let grant = granted(only_claimed(world.send(a, 5, claim_of(JOB)).await));
    waiting(world.claim(b).await);
    world.send(a, 9, Call::Renew).await;
    world.ask(grant.token, None).await;
    let (view, history) = (world.view().await, world.history().await);

    match world.restart().await {
        Restarted::SameLife => {
            assert_eq!(world.send(a, 9, Call::Renew).await, Said::Stale);
            let standing = vec![notice_of(JOB, grant.token, Wish::Asked)];
            assert_eq!(world.send(a, 10, Call::Renew).await, Said::Kept { notices: standing, more: false });
            assert_eq!(world.renew(b).await, kept());
            assert_eq!(world.renew(dead).await, Said::Gone);
            assert_eq!(world.open_again(dead, "dead", ttl).await, Said::Gone);
            assert_eq!(world.claim(a).await, Claimed::Granted(grant));
            let after = world.view().await;
            assert_eq!(
                (after.tickets, world.owners().await, world.waiters().await),
                (1, vec!["a".into()], vec!["b".into()])
            );
            assert_eq!((after.owners[0].grant, &after.owners[0].metadata), (grant, &view.owners[0].metadata));
            assert_eq!(world.history().await, history);
            assert_eq!(world.stamp().longest, ttl);
        }
        Restarted::NewLife => {
            let c = world.open_for("c", ttl).await;
            let quarantined_from = world.answered_at();
            for _ in 0..3 {
                let look = waiting(world.claim(c).await);
                assert_eq!(look.why, WaitReason::Quarantine, "{look:?}");
                // Those of before the restart may come first by a step each; they do not renew.
                assert!(look.look_again <= ttl + STEP * 2 + TOLERANCE, "{look:?}");
                let withheld = world.view().await.withheld.expect("a quarantine is told");
                assert!(withheld <= look.look_again + TOLERANCE, "{withheld:?} and {look:?}");
                world.pass(ttl / 4).await;
                assert_eq!(world.renew(c).await, kept());
            }

            world.pass_until(quarantined_from + ttl).await;
            assert_eq!(world.view().await.withheld, None);
            let next = granted(world.claim(c).await);
            assert!(next.token > grant.token, "{next:?} after {grant:?}");
            assert!([Term(1), Term(2)].contains(&next.term), "{next:?}");
        }
    }
}

/// In a quarantine nobody is ended for having run out: after a failover every lease may look so. Whoever renews goes on.
pub async fn nobody_is_ended_for_having_run_out_in_a_quarantine(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let c = world.open_for("c", SHORT * 8).await;
    let a = world.own_for("a", SHORT).await;
    if world.restart().await == Restarted::SameLife {
        return;
    }
    let kept_its_data = !answered(world.store.read(Some(&name(JOB)))).await.is_empty();
    world.pass(SHORT * 2).await;

    let c = if kept_its_data { c } else { world.open_for("c", SHORT * 8).await };
    let look = waiting(world.claim(c).await);

    assert_eq!(look.why, WaitReason::Quarantine, "{look:?}");
    if kept_its_data {
        assert_eq!(world.renew(a).await, kept());
        assert_eq!(world.owners().await, ["a"]);
    }
}

/// The token fences across every restart, with the data and without it.
pub async fn the_token_grows_over_a_restart(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open_for("a", SHORT * 2).await;
    let first = granted(world.claim(a).await);
    world.release(a).await;

    world.restart().await;

    let b = world.open_for("b", SHORT * 4).await;
    let mut claimed = world.claim(b).await;
    // A quarantine, if there is one, lasts for the longest ttl.
    for _ in 0..8 {
        let Claimed::Waiting(_) = claimed else { break };
        world.pass(SHORT).await;
        world.renew(b).await;
        claimed = world.claim(b).await;
    }
    assert!(granted(claimed).token > first.token, "{claimed:?} after {first:?}");
}
