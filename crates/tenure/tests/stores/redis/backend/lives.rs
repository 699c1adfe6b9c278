//! Which life of the server it is, what is kept over its end, and what a server without our data can show.

use super::*;
use tenure::store::Impact;
use testkit::proxy::Proxy;
use testkit::shim::Step;

const MINUTE: Duration = Duration::from_secs(60);

/// Commits within the life before, and sees that nothing is applied.
async fn assert_rejected(backend: &RedisBackend, before: Incarnation) -> Incarnation {
    let mut late = creation(resource("late"), "late");
    late.history.push(entry("late", "late"));
    let commits = backend.commit(before, &[late.clone(), late]).await.expect("an answer");
    assert_ne!(commits.life, before);
    assert_eq!(commits.done, [Committed::Conflict(Vec::new()), Committed::Conflict(Vec::new())]);
    assert_eq!(text(backend, resource("late")).await, None);
    assert!(!history(backend, None, 100).await.contains(&"late".to_owned()));
    assert_eq!(life(backend).await, commits.life);
    commits.life
}

#[tokio::test]
async fn a_restart_is_another_life_and_needs_no_failed_request() {
    for options in [Options::new().aof("always"), Options::new().set("save", "3600 1000000"), Options::new()]
    {
        let keeps = format!("{options:?}").contains("save") || format!("{options:?}").contains("aof: true");
        let mut server = options.start();
        let backend = open(&server.url()).await;
        apply(&backend, creation(resource("a"), "a")).await;
        let before = life(&backend).await;
        assert_eq!(format!("{:032x}", before.0), server.life());

        server.stop();
        server.start();
        // The server closed the connection. That is told as soon as this task lets others run.
        tokio::time::sleep(Duration::from_millis(50)).await;

        let after = assert_rejected(&backend, before).await;
        assert_eq!(format!("{:032x}", after.0), server.life());
        assert_eq!(text(&backend, resource("a")).await.is_some(), keeps);
        assert!(!backend.lost_nothing(Duration::ZERO).await.expect("an answer"));
        apply(&backend, creation(resource("b"), "b")).await;
    }
}

#[tokio::test]
async fn a_replica_that_takes_over_is_in_another_life_and_the_old_primary_is_left() {
    let (old, new) = (Options::new().start(), Options::new().start());
    let proxy = Proxy::to(old.port());
    let backend = open(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    apply(&backend, creation(resource("a"), "a")).await;
    new.follow(&old);
    let before = life(&backend).await;
    let (_subscriptions, mut signals) = backend.listen().await.expect("a connection");

    // As with Sentinel: the name leads to the new one, and connections that were made before to the old one.
    new.promote();
    proxy.point_to(new.port());
    let after = assert_rejected(&backend, before).await;

    assert_eq!(text(&backend, resource("a")).await.as_deref(), Some("a"));
    assert_eq!(format!("{:032x}", after.0), new.life());
    let ended = tokio::time::timeout(PATIENCE, signals.recv()).await.expect("soon");
    assert_eq!(ended, None);
}

#[tokio::test]
async fn a_primary_that_was_demoted_is_not_asked_again_over_the_same_connection() {
    let (first, second) = (Options::new().start(), Options::new().start());
    let backend = open(&first.url()).await;
    let before = life(&backend).await;

    first.follow(&second);
    for _ in 0..2 {
        let error = backend.commit(before, &[creation(resource("a"), "a")]).await.expect_err("a replica");
        assert!(chain(&error).contains("replica"), "{}", chain(&error));
        let error = backend.read(&[Key::Meta]).await.expect_err("a replica");
        assert!(chain(&error).contains("replica"), "{}", chain(&error));
    }
    first.promote();

    assert_rejected(&backend, before).await;
}

/// A server that says it has been up for a minute, and has none of our data.
fn long_running(options: Options) -> Redis {
    let server = options.own_clock().start();
    server.clock().step(Step::Forward(MINUTE));
    testkit::eventually(PATIENCE, "it counts the minute", || {
        server
            .info("server", "uptime_in_seconds")
            .is_some_and(|uptime| uptime.parse::<u64>().is_ok_and(|up| up > 59))
    });
    server
}

async fn lost_nothing(server: &Redis, within: Duration) -> bool {
    open(&server.url()).await.lost_nothing(within).await.expect("an answer")
}

#[tokio::test]
async fn a_server_that_has_run_for_long_enough_shows_that_it_lost_nothing() {
    let server = long_running(Options::new());

    assert!(lost_nothing(&server, MINUTE / 2).await);
    assert!(!lost_nothing(&server, MINUTE * 2).await);

    // Neither is another namespace evidence nor the record that whoever asks has made, but all others are.
    server.command(&["SET", "{other}:meta", "1"]);
    let backend = open(&server.url()).await;
    apply(&backend, creation(Key::Meta, "meta")).await;
    assert!(lost_nothing(&server, MINUTE / 2).await);
    apply(&backend, creation(resource("a"), "a")).await;
    assert!(!lost_nothing(&server, MINUTE / 2).await);
}

#[tokio::test]
async fn a_server_that_may_have_lost_data_shows_nothing() {
    assert!(!lost_nothing(&long_running(Options::new().cluster()), MINUTE / 2).await);

    let server = long_running(Options::new());
    for command in [&["SWAPDB", "0", "1"][..], &["FLUSHDB"], &["FLUSHALL"], &["REPLICAOF", "NO", "ONE"]] {
        server.command(&["CONFIG", "RESETSTAT"]);
        assert!(!lost_nothing(&server, MINUTE / 2).await, "RESETSTAT");
        server.command(command);
        assert!(!lost_nothing(&server, MINUTE / 2).await, "{command:?}");
    }
    let server = long_running(Options::new());
    server.command(&["SET", "x", "y", "EX", "1000"]);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    server.command(&["SET", "z", "y"]);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(server.info("stats", "evicted_keys").as_deref(), Some("1"));
    assert!(!lost_nothing(&server, MINUTE / 2).await, "eviction");
}

/// The life goes on, so only the versions protect: what was there is missed by whoever expects it, and `meta` is gone.
#[tokio::test]
async fn after_flushall_nothing_that_was_there_is_found_at_its_version() {
    let server = long_running(Options::new());
    let backend = open(&server.url()).await;
    let [meta, created] = [creation(Key::Meta, "meta"), creation(resource("a"), "a")];
    let expected = [(Key::Meta, meta.put[0].version), (resource("a"), created.put[0].version)];
    commit(&backend, &[meta, created]).await;

    server.command(&["FLUSHALL"]);
    let mut renewal = change(resource("a"), expected[1].1, "b");
    renewal.expect.push(expected[0].clone());
    let mut grant = creation(resource("new"), "b");
    grant.expect.push(expected[0].clone());
    let commits = commit(&backend, &[renewal, grant]).await;

    for (done, count) in commits.done.iter().zip([2, 1]) {
        let Committed::Conflict(differing) = done else { panic!("applied") };
        assert_eq!(differing.len(), count);
        assert!(differing.iter().all(|record| record.version == Version::NONE && record.value.is_none()));
    }
    assert_eq!(read(&backend, Key::Meta).await.version, Version::NONE);
    assert!(!backend.lost_nothing(MINUTE / 2).await.expect("an answer"));
}

/// The backend reports the clock as it is; a time that lies ahead of it is the rules' business.
#[tokio::test]
async fn a_step_back_of_the_clock_is_reported_and_holds_nothing_up() {
    for step in [Duration::from_secs(20), Duration::from_secs(15 * 60)] {
        let server = Options::new().own_clock().start();
        let backend = open(&server.url()).await;
        let mut created = creation(resource("a"), "1");
        created.history.push(entry("a", "before"));
        let first = created.put[0].version;
        let before = apply(&backend, created).await;
        let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
        subscriptions.follow(Channel::new("c")).await.expect("a subscription");

        server.clock().step(Step::Back(step));
        let shown = backend.read(&[resource("a")]).await.expect("an answer");
        let now = shown.now.expect("a clock");
        assert_eq!(shown.records[0].stamp, Some(before));
        assert!(before.since(now) > step - Duration::from_secs(10) && before.since(now) <= step);

        // A window of the time before is closed until then; one of the time now is open.
        let window = Window { from: Some(before), until: None };
        let early = Change { window, ..change(resource("a"), first, "2") };
        assert_eq!(commit(&backend, &[early]).await.done, [Committed::Conflict(Vec::new())]);
        let window = Window { from: Some(now), until: Some(before) };
        let mut renewal = Change { window, ..change(resource("a"), first, "2") };
        renewal.history.push(entry("a", "after"));
        renewal.signals.push(signal(&["c"], "hello"));
        let stamp = apply(&backend, renewal).await;

        assert!(stamp < before);
        assert_eq!(read(&backend, resource("a")).await.stamp, Some(stamp));
        assert_eq!(hear(&mut signals).await.stamp, Some(stamp));
        assert_eq!(history(&backend, None, 10).await, ["before", "after"]);
        assert_eq!(history(&backend, Some("a"), 1).await, ["after"]);
    }
}

#[tokio::test]
async fn safety_tells_what_the_configuration_costs_as_of_now() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let costs = async || -> Vec<Impact> {
        backend.safety().await.expect("a report").iter().map(|concern| concern.cost).collect()
    };

    assert_eq!(costs().await, [Impact::Record]);
    server.command(&["CONFIG", "SET", "appendonly", "yes"]);
    assert_eq!(costs().await, []);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    assert_eq!(costs().await, []);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert_eq!(costs().await, [Impact::Exclusion]);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let replica = Options::new().start();
    replica.follow(&server);
    assert_eq!(costs().await, [Impact::Exclusion]);
}
