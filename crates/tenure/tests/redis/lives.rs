//! Which life of a server this is, and what a server without our data can show.

use super::*;
use tenure_core::Why;
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
    matches!(claimed, Claimed::Waiting(waiting) if waiting.why == Why::Quarantine)
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

    let mut after = ask(&store, lease, Call::Held).await;
    if let Err(error) = &after {
        // The connection that was there before; the next one is new.
        assert_eq!(error.kind(), Kind::Unavailable);
        after = ask(&store, lease, Call::Held).await;
    }
    let after = after.expect("an answer of the new life");
    assert_ne!(before.incarnation, after.stamp.incarnation);
    assert!(matches!(after.said, Said::Held(held) if held[0].token == grant.token), "nothing was lost");
    assert!(is_quarantined(claimed(&store, lease, "other").await));
    // The longest ttl of this namespace is a minute: waiting is a matter of the rules, and not of this test.
    server.command(&["HSET", "{tenure}:state", "longest", "1000000"]);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(matches!(claimed(&store, lease, "other").await, Claimed::Granted(_)));
}

/// Which life it was is a part of the data, too: without it nobody knows what else was lost.
#[tokio::test]
async fn a_server_that_forgot_its_life_is_in_quarantine() {
    for keys in
        [&[][..], &["leases", "queue", "held", "history", "names", "newest", "gone", "ended", "metadata"]]
    {
        let server = long_running(Options::new());
        assert!(matches!(first_claim(&server).await, Claimed::Granted(_)));

        assert_eq!(server.command(&["HDEL", "{tenure}:state", "run"]), Reply::Number(1));
        for key in keys {
            server.command(&["DEL", &format!("{{tenure}}:{key}")]);
        }

        let store = open(&server.url()).await.expect("a store");
        let lease = opened(&store).await;
        let since = server.command(&["HGET", "{tenure}:state", "quarantine"]);
        assert!(since != Reply::Nil, "{keys:?}");
        if keys.is_empty() {
            assert!(is_quarantined(claimed(&store, lease, "other").await));
        }
    }
}

/// A part of our data that somebody deleted, or a server evicted, is not taken for the end of an owner.
#[tokio::test]
async fn an_owner_whose_record_is_lost_is_waited_for() {
    for details_too in [false, true] {
        let server = fresh(Options::new());
        let store = open(&server.url()).await.expect("a store");
        let owner = LeaseId(u128::from_le_bytes(random()));
        assert_eq!(said(&store, owner, opening(TTL)).await, Said::Opened);
        assert!(matches!(claimed(&store, owner, "job").await, Claimed::Granted(_)));

        server.command(&["DEL", "{tenure}:leases"]);
        if details_too {
            let field = format!("lease:{}", hex(owner));
            assert_eq!(server.command(&["HDEL", "{tenure}:state", &field]), Reply::Number(1));
        }

        let next = LeaseId(u128::from_le_bytes(random()));
        assert_eq!(said(&store, next, opening(TTL)).await, Said::Opened);
        let Claimed::Waiting(look) = claimed(&store, next, "job").await else { panic!("let in at once") };
        assert!(look.why == Why::Taken && look.look_again > TTL * 9 / 10, "{look:?}");
        tokio::time::sleep(TTL / 2).await;
        assert!(matches!(said(&store, next, Call::Renew).await, Said::Kept { .. }));
        assert!(matches!(claimed(&store, next, "job").await, Claimed::Waiting(_)));
        tokio::time::sleep(TTL * 6 / 10).await;
        assert!(matches!(claimed(&store, next, "job").await, Claimed::Granted(_)), "{details_too}");
    }
}

#[tokio::test]
async fn a_resource_of_which_a_part_is_lost_is_granted_to_nobody() {
    let (record, seat) = (&["resource:job"][..], &["seat:job\u{0}0"][..]);
    let both = &[record, seat].concat()[..];
    let (state, names) = ("{tenure}:state", "{tenure}:names");
    let rest = ["{tenure}:held", "{tenure}:queue", "{tenure}:newest", "{tenure}:leases"];
    for (fields, keys) in [
        (seat, &[][..]),
        (record, &[]),
        (both, &[]),
        (record, &[names]),
        (both, &[names]),
        (&[], &[state]),
        (&[], &[state, names]),
        (&[], &[&[state, names], &rest[..]].concat()),
    ] {
        let server = fresh(Options::new());
        let store = open(&server.url()).await.expect("a store");
        let [a, b] = [opened(&store).await, opened(&store).await];
        claimed(&store, a, "job").await;
        claimed(&store, b, "job").await;

        let lost = |kind: &[&str], what: &[&str]| {
            let said =
                if what.is_empty() { Reply::Number(0) } else { server.command(&[kind, what].concat()) };
            assert_eq!(said, Reply::Number(i64::try_from(what.len()).expect("few")), "{what:?}");
        };
        lost(&["HDEL", state], fields);
        lost(&["DEL"], keys);

        // With the state the lease of b is lost, too.
        let newcomer = opened(&store).await;
        let error = ask(&store, newcomer, claiming("job")).await.expect_err("nobody knows who owns it");
        assert_eq!(error.kind(), Kind::Corrupt, "{fields:?} {keys:?}: {}", chain(&error));
        for lease in [a, b] {
            match ask(&store, lease, claiming("job")).await {
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Corrupt, "{fields:?} {keys:?}: {}", chain(&error));
                }
                Ok(answer) => assert!(answer.said == Said::Gone && keys.contains(&state), "{answer:?}"),
            }
        }
    }
}

/// Old leases are cleared by those who come; an owner is judged only by those who claim what it owns.
#[tokio::test]
async fn opening_a_lease_clears_old_ones_and_marks_no_owner() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [owner, idle] = [opened(&store).await, opened(&store).await];
    assert!(matches!(claimed(&store, owner, "job").await, Claimed::Granted(_)));
    let now = ask(&store, owner, Call::Held).await.expect("an answer").stamp.now;
    let long_ago = (now.as_micros() - 7_200_000_000).to_string();
    for lease in [owner, idle] {
        server.command(&["ZADD", "{tenure}:leases", &long_ago, &hex(lease)]);
    }

    // For what it says about time the newcomer can vouch.
    let newcomer = LeaseId(u128::from_le_bytes(random()));
    let sent = Request { judged_by: Some(now), ..request(newcomer, opening(TTL)) };
    assert_eq!(store.call(&sent).await.expect("an answer").said, Said::Opened);

    let is_marked = |lease| server.command(&["HEXISTS", "{tenure}:ended", &hex(lease)]).text() == "1";
    assert_eq!((is_marked(owner), is_marked(idle)), (false, true));
    // So it lives for one who vouches for an earlier time, and renews.
    let earlier = Some(StoreTime::from_micros(now.as_micros() - 8_000_000_000));
    let renewal = Request { judged_by: earlier, ..request(owner, Call::Renew) };
    assert!(matches!(store.call(&renewal).await.expect("an answer").said, Said::Kept { .. }));
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

    assert_eq!(said(&store, lease, Call::Renew).await, Said::Gone);
    let lease = opened(&store).await;
    let Claimed::Granted(next) = claimed(&store, lease, "job").await else { panic!("not granted") };
    assert!(next.token > first.token && next.term.0 == 1, "{next:?} after {first:?}");
}

/// A number that Lua cannot hold is refused, and does not become another one.
#[tokio::test]
async fn a_number_beyond_what_scripts_can_hold_is_refused() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    let numbered = |seq| Request { seq: Seq(seq), ..request(lease, Call::Renew) };

    assert_eq!(store.call(&numbered(1 << 53)).await.expect_err("too large").kind(), Kind::Refused);
    let far = StoreTime::from_micros(u64::MAX);
    let largest = Request { judged_by: Some(far), ..numbered((1 << 53) - 1) };
    assert!(matches!(store.call(&largest).await.expect("an answer").said, Said::Kept { .. }));
    assert_eq!(store.call(&numbered((1 << 53) - 2)).await.expect("an answer").said, Said::Stale);
}
