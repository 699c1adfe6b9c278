//! Replicas that take over, and primaries that come back: forth and back is not where it began.

use super::arena::{AT_LAST, Arena};
use super::*;
use tenure::types::Clock;
use tenure_core::WaitReason;
use testkit::proxy::{Link, Proxy};

const TTL: Duration = Duration::from_secs(2);
const LONG_TTL: Duration = Duration::from_secs(6);

fn is_quarantined(claimed: Claimed) -> bool {
    matches!(claimed, Claimed::Waiting(waiting) if waiting.why == WaitReason::Quarantine)
}

/// A primary that nobody has to wait for, and its replica.
fn pair() -> (Redis, Redis) {
    let (primary, replica) = (Options::new().aof("everysec").start(), Options::new().start());
    replica.follow(&primary);
    vouch_for(&primary);
    (primary, replica)
}

/// Takes the grants from a primary that it made since its replica was promoted: it becomes that one's replica, and then
/// the primary again. Its process is the same all the time, and nobody has asked the other one anything.
fn forth_and_back(primary: &Redis, replica: &Redis) {
    primary.follow(replica);
    primary.promote();
}

#[tokio::test]
async fn a_primary_that_was_a_replica_meanwhile_is_another_life() {
    let (primary, replica) = pair();
    let store = open(&primary.url()).await.expect("a store");
    let [owner, other] = [opened(&store).await, opened(&store).await];
    testkit::eventually(PATIENCE, "the leases are known there", || {
        replica.command(&["ZCARD", "{tenure}:names/lease"]).text() == "2"
    });

    replica.promote();
    let granted = ask(&store, owner, claiming("job")).await.expect("an answer");
    assert!(matches!(&granted.said, Said::Claimed(claimed) if matches!(claimed[0], Claimed::Granted(_))));
    let process = primary.info("server", "run_id");
    forth_and_back(&primary, &replica);
    assert_eq!(primary.info("server", "run_id"), process);

    let next = ask(&store, other, claiming("job")).await.expect("an answer");
    assert_ne!(next.stamp.incarnation, granted.stamp.incarnation);
    let Said::Claimed(claimed) = next.said else { panic!("{next:?}") };
    assert!(is_quarantined(claimed[0]), "the owner may still believe: {claimed:?}");
    assert_eq!(said(&store, owner, Call::Held).await, Said::Held(vec![]));
}

/// The old primary knows nothing of what its successor granted. Those who come back from there tell it.
#[tokio::test]
async fn who_comes_back_from_another_life_makes_a_quarantine() {
    let (primary, replica) = pair();
    let proxy = Proxy::to(primary.port());
    let store = open(&format!("redis://127.0.0.1:{}", proxy.port())).await.expect("a store");
    let owner = opened_as(&store, "owner", TTL).await;
    testkit::eventually(PATIENCE, "the lease is known there", || {
        replica.command(&["ZCARD", "{tenure}:names/lease"]).text() == "1"
    });

    replica.promote();
    proxy.point_to(replica.port());
    // There, too, it comes from another life, and has to wait for its end.
    let granted = async {
        loop {
            let kept = ask(&store, owner, Call::Renew).await;
            assert!(kept.is_err() || matches!(kept, Ok(Answer { said: Said::Kept { .. }, .. })), "{kept:?}");
            match ask(&store, owner, claiming("job")).await.map(|answer| answer.said) {
                Ok(Said::Claimed(claimed)) if matches!(claimed[0], Claimed::Granted(_)) => return,
                _ => tokio::time::sleep(TTL / 10).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, granted).await.expect("it owns");
    assert!(matches!(said(&store, owner, Call::Renew).await, Said::Kept { .. }));

    // Those who stayed have noticed nothing.
    let stayed = open(&primary.url()).await.expect("a store");
    let newcomer = opened_as(&stayed, "newcomer", TTL).await;
    assert!(matches!(claimed(&stayed, newcomer, "other").await, Claimed::Granted(_)));

    proxy.point_to(primary.port());
    // Its lease ran out here, and nobody has ended it.
    let back = answered(&store, owner, Call::Renew).await;
    assert!(matches!(back.said, Said::Kept { .. }), "{back:?}");

    assert!(is_quarantined(claimed(&stayed, newcomer, "job").await), "the owner believes for up to a ttl");
    let ends = async {
        while is_quarantined(claimed(&stayed, newcomer, "job").await) {
            assert!(matches!(said(&stayed, newcomer, Call::Renew).await, Said::Kept { .. }));
            tokio::time::sleep(TTL / 10).await;
        }
    };
    tokio::time::timeout(PATIENCE, ends).await.expect("it ends");
    assert!(matches!(claimed(&stayed, newcomer, "job").await, Claimed::Granted(_)));
}

/// A server that has been running for long, and never had our data, has nothing to lose; those who come from another one
/// have.
#[tokio::test]
async fn who_is_sent_to_another_server_makes_a_quarantine_there() {
    let (server, other) = (fresh(Options::new()), fresh(Options::new()));
    let proxy = Proxy::to(server.port());
    let store = open(&format!("redis://127.0.0.1:{}", proxy.port())).await.expect("a store");
    assert!(matches!(claimed(&store, opened(&store).await, "job").await, Claimed::Granted(_)));

    proxy.point_to(other.port());
    let lease = LeaseId(u128::from_le_bytes(random()));
    assert_eq!(answered(&store, lease, opening(TTL)).await.said, Said::Opened);

    assert!(is_quarantined(claimed(&store, lease, "job").await));
    let newcomer = open(&other.url()).await.expect("a store");
    assert!(is_quarantined(claimed(&newcomer, opened(&newcomer).await, "job").await));
}

/// One that a restart brought from the life before is one of many: they do not make the quarantine longer and longer.
#[tokio::test]
async fn a_quarantine_is_begun_once_for_all_who_come_from_the_same_life() {
    // With `everysec` Redis puts off the writing itself, not only the syncing, while the disk is slow: the leases would be gone.
    let mut server = fresh(Options::new().aof("always"));
    let stores = [open(&server.url()).await.expect("a store"), open(&server.url()).await.expect("a store")];
    let leases = [opened(&stores[0]).await, opened(&stores[1]).await];
    let since = |server: &Redis| record(server, "meta")["quarantine"]["since"].as_u64();
    assert_eq!(since(&server), None);

    server.kill();
    server.start();

    let mut begun = vec![];
    for (store, lease) in stores.iter().zip(leases) {
        let said = answered(store, lease, Call::Renew).await.said;
        assert!(matches!(said, Said::Kept { .. }), "{said:?}");
        begun.push((since(&server), server.command(&["HGET", "{tenure}:meta", "version"])));
    }
    assert_eq!(begun[0], begun[1]);
}

/// A server that is a replica now says so, also to those who only look.
#[tokio::test]
async fn a_primary_that_became_a_replica_confirms_nothing() {
    let (primary, replica) = pair();
    let store = open(&primary.url()).await.expect("a store");
    let lease = opened(&store).await;
    claimed(&store, lease, "job").await;
    assert!(matches!(said(&store, lease, Call::Held).await, Said::Held(held) if held.len() == 1));

    replica.promote();
    primary.follow(&replica);

    let error = ask(&store, lease, Call::Held).await.expect_err("a replica is no store");
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Refused), "{}", chain(&error));
}

/// An owner with a grant that was lost on the way forth and back, and cannot be reached.
async fn owner_without_a_grant() -> (Arena, Redis) {
    let mut arena = Arena::empty(Options::new().aof("everysec"), LONG_TTL);
    let replica = Options::new().start();
    replica.follow(&arena.server);
    vouch_for(&arena.server);
    let owner = arena.enter(Clock::Sane).await;
    let warm_up = arena.contestants[owner].worker.campaign("warm-up").acquire_within(AT_LAST).await;
    warm_up.expect("an ownership").release().await;
    testkit::eventually(PATIENCE, "the lease is known there", || {
        replica.command(&["ZCARD", "{tenure}:names/lease"]).text() == "1"
    });
    replica.promote();
    arena.compete(owner);
    arena.until("it owns", |arena| arena.observer.owners().len() == 1).await;
    arena.link_all(Link::Refuse);
    forth_and_back(&arena.server, &replica);
    (arena, replica)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_forth_and_back_behind_the_owners_back_lets_nobody_in_twice() {
    let (mut arena, _replica) = owner_without_a_grant().await;
    let token = arena.observer.newest_token();

    arena.join(Clock::Sane).await;

    arena.moves_on_from(token).await;
    arena.assert_survived();
}

/// The control: were it the same life, the newcomer would be let in while the owner still believes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_another_life_a_failover_forth_and_back_lets_another_in() {
    let (mut arena, _replica) = owner_without_a_grant().await;

    vouch_for(&arena.server);
    arena.join(Clock::Sane).await;
    arena.until("the newcomer owns", |arena| arena.observer.begun() > 1).await;

    assert!(arena.contestants[0].is_owner() && arena.observer.most() == 2, "{:?}", arena.observer);
}
