//! Which life of a server this is, and what a server without our data can show.

use super::*;
use tenure_core::WaitReason;
use testkit::shim::Step;

const TTL: Duration = Duration::from_secs(2);

/// The answer to the first claim of a newcomer with a lease of 2 s.
async fn first_claim(server: &Redis) -> Claimed {
    let store = open(&server.url()).await.expect("a store");
    let lease = LeaseId(u128::from_le_bytes(random()));
    assert_eq!(said(&store, lease, opening(TTL)).await, Said::Opened);
    claimed(&store, lease, "job").await
}

fn is_quarantined(claimed: Claimed) -> bool {
    matches!(claimed, Claimed::Waiting(waiting) if waiting.why == WaitReason::Quarantine)
}

/// A server that has been up for an hour, as far as it knows.
fn long_running(options: Options) -> Redis {
    let server = options.own_clock().start();
    server.clock().step(Step::Forward(Duration::from_secs(3_600)));
    testkit::eventually(PATIENCE, "it notices how old it is", || {
        server
            .info("server", "uptime_in_seconds")
            .and_then(|text| text.parse().ok())
            .is_some_and(|up: u64| up > 3_000)
    });
    server
}

#[tokio::test]
async fn a_server_that_has_been_running_without_our_data_grants_at_once() {
    let server = long_running(Options::new());

    assert!(matches!(first_claim(&server).await, Claimed::Granted(_)));
}

#[tokio::test]
async fn a_server_that_has_just_begun_is_in_quarantine() {
    let server = Options::new().start();

    assert!(is_quarantined(first_claim(&server).await));
}

#[tokio::test]
async fn a_server_that_was_emptied_is_in_quarantine() {
    for words in [&["FLUSHALL"][..], &["FLUSHDB"], &["SWAPDB", "0", "1"], &["REPLICAOF", "NO", "ONE"]] {
        let server = long_running(Options::new());
        server.command(words);

        assert!(is_quarantined(first_claim(&server).await), "{words:?}");
    }
}

/// What would hide that it was emptied counts like it.
#[tokio::test]
async fn a_server_whose_counts_were_reset_is_in_quarantine() {
    let server = long_running(Options::new());
    server.command(&["FLUSHALL"]);
    server.command(&["CONFIG", "RESETSTAT"]);

    assert!(is_quarantined(first_claim(&server).await));
}

#[tokio::test]
async fn a_server_that_dropped_keys_is_in_quarantine() {
    let server = long_running(Options::new());
    server.command(&["SET", "x", "y"]);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    // Any command that takes memory makes room first.
    server.command(&["SET", "z", "y"]);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);

    assert!(is_quarantined(first_claim(&server).await));
}

/// Keys moved in and slots taken over leave no trace in the counts.
#[tokio::test]
async fn a_node_of_a_cluster_without_our_data_is_in_quarantine() {
    assert!(is_quarantined(first_claim(&long_running(Options::new().cluster())).await));
}

#[tokio::test]
async fn a_restart_is_another_life_and_the_quarantine_ends() {
    let mut server = fresh(Options::new().aof("everysec"));
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    let before = ask(&store, lease, Call::Held).await.expect("an answer").stamp;
    let Claimed::Granted(grant) = claimed(&store, lease, "job").await else { panic!("not granted") };

    server.kill();
    server.start();

    let after = answered(&store, lease, Call::Held).await;
    assert_ne!(before.incarnation, after.stamp.incarnation);
    assert!(matches!(after.said, Said::Held(held) if held[0].token == grant.token), "nothing was lost");
    assert!(is_quarantined(claimed(&store, lease, "other").await));
    // The longest ttl of this namespace is a minute: waiting is a matter of the rules, and not of this test.
    vouch_for(&server);
    // A renewal shows that the record of the namespace has changed.
    assert!(matches!(said(&store, lease, Call::Renew).await, Said::Kept { .. }));
    assert!(matches!(claimed(&store, lease, "other").await, Claimed::Granted(_)));
}

/// Without the record of the namespace nobody knows what else was lost.
#[tokio::test]
async fn a_namespace_without_its_record_is_in_quarantine_for_the_longest_ttl() {
    for lost in [&["meta"][..], &["meta", "ttls"]] {
        let server = fresh(Options::new());
        let store = open(&server.url()).await.expect("a store");
        let owner = opened(&store).await;
        assert!(matches!(claimed(&store, owner, "job").await, Claimed::Granted(_)));
        for name in lost {
            assert_eq!(server.command(&["DEL", &format!("{{tenure}}:{name}")]), Reply::Number(1));
        }

        // One who knew it, with a shorter ttl of its own; or another, as long as the ttls in use are written down.
        let newcomer = if lost.len() == 1 { open(&server.url()).await.expect("a store") } else { store };
        let lease = opened_as(&newcomer, "newcomer", TTL).await;
        let Claimed::Waiting(look) = claimed(&newcomer, lease, "other").await else { panic!("granted") };
        assert_eq!(look.why, WaitReason::Quarantine);
        assert!(look.look_again > Duration::from_secs(30), "{lost:?}: owners have a minute: {look:?}");
    }
}

/// Emptied within one life: those who knew the longest ttl bring it back, whatever their own is.
#[tokio::test]
async fn after_flushall_nothing_is_granted_for_the_longest_ttl_that_anybody_knew() {
    let server = fresh(Options::new());
    let [theirs, ours] =
        [open(&server.url()).await.expect("a store"), open(&server.url()).await.expect("a store")];
    let owner = opened(&theirs).await;
    assert!(matches!(claimed(&theirs, owner, "job").await, Claimed::Granted(_)));
    let short = opened_as(&ours, "short", TTL).await;
    assert!(matches!(claimed(&ours, short, "job").await, Claimed::Waiting(_)));

    server.command(&["FLUSHALL"]);

    assert_eq!(said(&ours, short, Call::Renew).await, Said::Gone);
    let short = opened_as(&ours, "short", TTL).await;
    let Claimed::Waiting(look) = claimed(&ours, short, "job").await else { panic!("two owners") };
    assert_eq!(look.why, WaitReason::Quarantine);
    assert!(look.look_again > Duration::from_secs(30), "the owner believes for up to a minute: {look:?}");
    assert_eq!(said(&theirs, owner, Call::Renew).await, Said::Gone);
}

/// Whoever comes with a longer ttl than the server has been running cannot be shown that nothing was lost.
#[tokio::test]
async fn a_server_that_has_run_for_less_than_a_ttl_is_in_quarantine() {
    let server = Options::new().own_clock().start();
    server.clock().step(Step::Forward(Duration::from_secs(30)));
    testkit::eventually(PATIENCE, "it notices how old it is", || {
        let uptime = server.info("server", "uptime_in_seconds");
        uptime.and_then(|text| text.parse().ok()).is_some_and(|up: u64| up >= 29)
    });
    let store = open(&server.url()).await.expect("a store");
    // A worker asks for hints first.
    let lease = LeaseId(u128::from_le_bytes(random()));
    let _hints = store.hints(lease).await.expect("a subscription");
    assert_eq!(said(&store, lease, opening(Duration::from_secs(60))).await, Said::Opened);

    assert!(is_quarantined(claimed(&store, lease, "job").await));
    // One with a shorter ttl would be let in, had it come first.
    let elsewhere = Namespace::new("elsewhere").expect("a namespace");
    let store = RedisStore::open(&server.url(), &elsewhere).await.expect("a store");
    let _hints = store.hints(lease).await.expect("a subscription");
    assert_eq!(said(&store, lease, opening(Duration::from_secs(10))).await, Said::Opened);
    assert!(matches!(claimed(&store, lease, "job").await, Claimed::Granted(_)));
}

/// A part of our data that somebody deleted, or a server evicted, is not taken for the end of an owner.
#[tokio::test]
async fn an_owner_whose_record_is_lost_is_waited_for() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let owner = opened_as(&store, "owner", TTL).await;
    assert!(matches!(claimed(&store, owner, "job").await, Claimed::Granted(_)));
    assert_eq!(server.command(&["DEL", &format!("{{tenure}}:lease/{}", hex(owner))]), Reply::Number(1));

    let store = open(&server.url()).await.expect("a store");
    let next = opened_as(&store, "next", TTL).await;
    let Claimed::Waiting(look) = claimed(&store, next, "job").await else { panic!("let in at once") };
    assert!(look.why == WaitReason::Taken && look.look_again > TTL * 9 / 10, "{look:?}");
    tokio::time::sleep(TTL / 2).await;
    assert!(matches!(said(&store, next, Call::Renew).await, Said::Kept { .. }));
    assert!(matches!(claimed(&store, next, "job").await, Claimed::Waiting(_)));
    tokio::time::sleep(TTL * 6 / 10).await;
    assert!(matches!(said(&store, next, Call::Renew).await, Said::Kept { .. }));
    assert!(matches!(claimed(&store, next, "job").await, Claimed::Granted(_)));
}

/// After a loss of everything the token still grows, because it follows the clock.
#[tokio::test]
async fn a_token_outlives_the_data() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    let Claimed::Granted(first) = claimed(&store, lease, "job").await else { panic!("not granted") };

    server.command(&["FLUSHALL"]);
    vouch_for(&server);

    // A process that knew nothing of what was lost.
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    let Claimed::Granted(next) = claimed(&store, lease, "job").await else { panic!("not granted") };
    assert!(next.token > first.token && next.term.0 == 1, "{next:?} after {first:?}");
}
