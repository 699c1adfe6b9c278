//! Memory, eviction and keys that hold something else.

use super::*;

#[tokio::test]
async fn at_the_memory_limit_only_essential_changes_are_applied() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let created = creation(Key::Lease(LeaseId(1)), "1");
    let first = created.put[0].version;
    apply(&backend, created).await;
    let life = life(&backend).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);

    let mut ordinary = creation(resource("a"), "a");
    ordinary.history.push(entry("a", "granted"));
    let error = backend.commit(life, &[ordinary.clone()]).await.expect_err("no memory");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().ends_with("it is at its memory limit"), "{error}");

    let mut renewal = Change { essential: true, ..change(Key::Lease(LeaseId(1)), first, &"x".repeat(1000)) };
    renewal.history.push(entry("a", "renewed"));
    let second = renewal.put[0].version;
    apply(&backend, renewal).await;
    let mut end = Change { essential: true, ..change(Key::Lease(LeaseId(1)), second, "") };
    end.put[0].value = None;
    apply(&backend, end).await;

    assert_eq!(text(&backend, resource("a")).await, None);
    assert_eq!(history(&backend, None, 10).await, ["renewed"]);
    assert_eq!(read(&backend, Key::Lease(LeaseId(1))).await.version, Version::NONE);
    // An essential change is applied whatever else is in its commit, and a conflict needs no memory.
    let essential = Change { essential: true, ..creation(Key::Lease(LeaseId(2)), "2") };
    let done = commit(&backend, &[ordinary, essential]).await.done;
    assert!(matches!(done[1], Committed::Done { .. }), "{done:?}");
    let conflict = commit(&backend, &[creation(Key::Lease(LeaseId(2)), "2")]).await;
    assert!(matches!(conflict.done[0], Committed::Conflict(_)));
}

#[tokio::test]
async fn a_server_that_may_evict_our_keys_is_refused_and_one_that_may_not_is_used() {
    let server = Options::new().set("maxmemory-policy", "allkeys-lru").start();
    assert!(refused(&server.url()).await.contains("\"allkeys-lru\", which may evict records"));

    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "noeviction"] {
        server.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        open(&server.url()).await;
    }
}

#[tokio::test]
async fn a_policy_that_is_changed_later_is_noticed_with_the_next_connection() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let before = life(&backend).await;

    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    // Both at once need a second connection, after which the first is not used, either.
    let keys = [Key::Meta];
    let (one, other) = tokio::join!(backend.read(&keys), backend.read(&keys));
    assert!(one.is_err() || other.is_err());
    let error = backend.commit(before, &[creation(resource("a"), "a")]).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Refused, "{}", chain(&error));

    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    apply(&backend, creation(resource("a"), "a")).await;
}

#[tokio::test]
async fn a_replica_is_refused() {
    let (primary, replica) = (Options::new().start(), Options::new().start());
    replica.follow(&primary);

    assert!(refused(&replica.url()).await.contains("it is a replica; use the address of its primary"));
}

#[tokio::test]
async fn keys_with_another_programs_data_are_reported_before_anything_is_written() {
    for taken in ["names/lease", "names/resource", "history/all", "history/names", "resource/b"] {
        let server = Options::new().start();
        let backend = open(&server.url()).await;
        server.command(&["SET", &format!("{{tenure}}:{taken}"), "theirs"]);
        let life = life(&backend).await;
        let mut both = creation(resource("a"), "a");
        for key in [resource("b"), Key::Lease(LeaseId(1))] {
            let more = creation(key, "b");
            both.expect.extend(more.expect);
            both.put.extend(more.put);
        }
        both.history.push(entry("a", "granted"));

        let error = backend.commit(life, &[both]).await.expect_err("taken");

        assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", chain(&error));
        assert!(error.to_string().contains("another program's data"), "{error}");
        // At most a name without a record, which listings leave out.
        let Reply::List(keys) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
        let ours = keys.iter().map(Reply::text).filter(|key| !key.ends_with(taken));
        assert_eq!(ours.filter(|key| !key.starts_with("{tenure}:names/")).count(), 0, "{taken}: {keys:?}");
        if !taken.starts_with("names/resource") {
            let listed = backend.list(Listing::Resources, None).await;
            assert!(listed.is_err() || listed.is_ok_and(|page| page.shown.records.is_empty()), "{taken}");
        }
    }
}

#[tokio::test]
async fn a_damaged_record_is_one_that_nobody_can_read_and_is_not_quoted() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    for fields in [
        &["version", "xyz"][..],
        &["value", "secret"],
        &["version", "1", "stamp", "secret", "value", "secret"],
    ] {
        server.command(&["DEL", "{tenure}:resource/a"]);
        let mut words = vec!["HSET", "{tenure}:resource/a"];
        words.extend(fields);
        server.command(&words);

        let records = backend.read(&[resource("a")]).await.expect("an answer").records;

        assert!(records[0].value.as_ref().is_some_and(|text| text.as_str().is_empty()), "{fields:?}");
        assert!(records[0].version != Version::NONE, "{fields:?}: it would be written over");
    }
}

#[tokio::test]
async fn a_clock_beyond_the_year_2200_is_refused() {
    let server = Options::new().own_clock().start();
    let backend = open(&server.url()).await;

    server.clock().step(testkit::shim::Step::Forward(Duration::from_secs(200 * 366 * 86400)));

    let error = backend.read(&[Key::Meta]).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Refused, "{}", chain(&error));
    assert!(error.to_string().ends_with("its clock is beyond the year 2200"), "{error}");
}
