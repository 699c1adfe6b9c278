//! Records, conditions, listings and the history.

use super::*;

#[tokio::test]
async fn an_operator_can_read_a_record() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let created = creation(resource("nightly"), r#"{"term":1}"#);
    let (version, stamp) = (created.put[0].version, apply(&backend, created).await);

    let Reply::List(fields) = server.command(&["HGETALL", "{tenure}:resource/nightly"]) else {
        panic!("no hash")
    };

    let fields: Vec<String> = fields.iter().map(Reply::text).collect();
    let (version, stamp) = (format!("{:016x}", version.0), stamp.as_micros().to_string());
    assert_eq!(fields, ["version", &version, "stamp", &stamp, "value", r#"{"term":1}"#]);
    let Reply::List(keys) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
    assert!(keys.iter().all(|key| key.text().starts_with("{tenure}:")), "{keys:?}");
    assert_eq!(server.command(&["TTL", "{tenure}:resource/nightly"]), Reply::Number(-1));
}

#[tokio::test]
async fn records_come_in_the_order_asked_and_missing_ones_have_no_version() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let keys = [Key::Meta, resource("b"), Key::Lease(LeaseId(7)), resource("a"), Key::Runs(name("a"))];
    let stamp = apply(&backend, creation(keys[1].clone(), "b")).await;
    apply(&backend, creation(keys[4].clone(), "runs")).await;

    let shown = backend.read(&keys).await.expect("an answer");

    let found: Vec<_> = shown.records.iter().map(|record| record.key.clone()).collect();
    assert_eq!(found, keys);
    let texts = |record: &Stored| record.value.as_ref().map(|text| text.as_str().to_owned());
    let texts: Vec<_> = shown.records.iter().map(texts).collect();
    assert_eq!(texts, [None, Some("b".into()), None, None, Some("runs".into())]);
    assert!(shown.records.iter().all(|record| (record.version == Version::NONE) == record.value.is_none()));
    assert_eq!(shown.records[1].stamp, Some(stamp));
    assert!(shown.now > Some(stamp) && shown.wall == shown.now.map(StoreTime::as_micros));
}

#[tokio::test]
async fn any_text_comes_back_as_it_was() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let long = "é".repeat(1 << 20);

    for (index, text) in
        ["", "\0", "a\0b\r\n$3\r\n\u{10ffff}\u{7f}", "18446744073709551615", "{\"n\":1e400}", " '\"\\", &long]
            .into_iter()
            .enumerate()
    {
        let key = resource(&format!("r{index}"));
        apply(&backend, creation(key.clone(), text)).await;
        assert_eq!(super::text(&backend, key).await.as_deref(), Some(text));
    }
    for odd in ["a b", "}:lease/x", "{x}", "ä/*?[", "meta"] {
        apply(&backend, creation(resource(odd), odd)).await;
        assert_eq!(text(&backend, resource(odd)).await.as_deref(), Some(odd));
    }
    let listed = backend.list(Listing::Resources, None).await.expect("a page").shown.records;
    assert_eq!(listed.len(), 12);
}

#[tokio::test]
async fn versions_are_exact() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let mut created = creation(resource("a"), "1");
    created.put[0].version = Version(u64::MAX);
    apply(&backend, created).await;

    let near = change(resource("a"), Version(u64::MAX - 1), "2");
    let conflict = commit(&backend, &[near]).await;

    let present = read(&backend, resource("a")).await;
    assert_eq!(
        (present.version, &conflict.done[0]),
        (Version(u64::MAX), &Committed::Conflict(vec![present.clone()]))
    );
    apply(&backend, change(resource("a"), Version(u64::MAX), "2")).await;
}

#[tokio::test]
async fn a_change_is_all_or_nothing_and_tells_only_what_differs() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let created = creation(Key::Meta, "meta");
    let meta = created.put[0].version;
    apply(&backend, created).await;
    apply(&backend, creation(resource("a"), "a")).await;
    let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
    subscriptions.follow(Channel::new("c")).await.expect("a subscription");

    let mut wrong = creation(resource("b"), "b");
    wrong.expect.extend([(Key::Meta, meta), (resource("a"), version()), (Key::Ttls, Version::NONE)]);
    wrong.put.push(Put { key: resource("a"), version: version(), value: None });
    wrong.history.push(entry("b", "never"));
    wrong.signals.push(signal(&["c"], "never"));
    let commits = commit(&backend, &[wrong.clone()]).await;

    let present = read(&backend, resource("a")).await;
    assert_eq!(commits.done, [Committed::Conflict(vec![present.clone()])]);
    assert_eq!(text(&backend, resource("b")).await, None);
    assert!(history(&backend, None, 10).await.is_empty());

    // With what is there it is applied, as a whole and with one stamp.
    wrong.expect[2].1 = present.version;
    let stamp = apply(&backend, wrong).await;
    assert_eq!(text(&backend, resource("a")).await, None);
    assert_eq!(read(&backend, resource("b")).await.stamp, Some(stamp));
    assert_eq!(history(&backend, None, 10).await, ["never"]);
    let heard = hear(&mut signals).await;
    assert_eq!((heard.stamp, heard.text.as_str()), (Some(stamp), "never"));
    assert!(signals.try_recv().is_err());
}

#[tokio::test]
async fn a_change_waits_for_its_window_by_the_clock_of_the_server() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let shown = backend.read(&[Key::Meta]).await.expect("an answer");
    let now = shown.now.expect("a clock");
    let (hour, later) = (Duration::from_secs(3600), now + Duration::from_secs(3600));
    let earlier = StoreTime::from_micros(now.as_micros() - 3_600_000_000);
    assert_eq!(later.since(now), hour);

    for (from, until, fits) in [
        (Some(earlier), Some(later), true),
        (Some(now), None, true),
        (None, Some(later), true),
        (Some(later), None, false),
        (None, Some(now), false),
        (None, Some(earlier), false),
        (Some(StoreTime::from_micros(u64::MAX)), None, false),
        (None, Some(StoreTime::from_micros(u64::MAX)), true),
    ] {
        let key = resource(&format!("{from:?} {until:?}"));
        let windowed = Change { window: Window { from, until }, ..creation(key.clone(), "x") };
        let done = commit(&backend, &[windowed]).await.done.remove(0);
        assert_eq!(matches!(done, Committed::Done { .. }), fits, "{key:?}");
        assert!(fits || done == Committed::Conflict(Vec::new()));
        assert_eq!(text(&backend, key).await.is_some(), fits);
    }
}

#[tokio::test]
async fn changes_of_one_commit_succeed_and_conflict_by_themselves() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let key = |index: usize| resource(&format!("r{index:03}"));
    let text = "x".repeat(1000);
    let meta = creation(Key::Meta, "meta");
    let expected = (Key::Meta, meta.put[0].version);
    apply(&backend, meta).await;
    let created: Vec<Change> = (0..250).step_by(2).map(|index| creation(key(index), &text)).collect();
    assert!(commit(&backend, &created).await.done.iter().all(|done| matches!(done, Committed::Done { .. })));

    let mut again: Vec<Change> = (0..250).map(|index| creation(key(index), "again")).collect();
    again.iter_mut().for_each(|change| change.expect.push(expected.clone()));
    again.iter_mut().for_each(|change| change.history.push(entry("r", "granted")));
    let commits = commit(&backend, &again).await;

    assert_eq!(commits.done.len(), backend.capabilities().most_changes);
    for (index, done) in commits.done.iter().enumerate() {
        match done {
            Committed::Done { stamp } => assert!(index % 2 == 1 && *stamp == commits.now),
            Committed::Conflict(differing) => {
                assert_eq!((index % 2, differing.len(), &differing[0].key), (0, 1, &key(index)));
                assert_eq!(differing[0].version, created[index / 2].put[0].version);
                assert_eq!(differing[0].value.as_ref().map(Text::as_str), Some(text.as_str()));
            }
        }
    }
    assert_eq!(history(&backend, None, 1000).await.len(), 125);
}

#[tokio::test]
async fn a_commit_that_comes_twice_is_applied_once() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let mut created = creation(resource("a"), "1");
    created.history.push(entry("a", "granted"));
    apply(&backend, created.clone()).await;

    let again = commit(&backend, &[created.clone()]).await;

    let Committed::Conflict(differing) = &again.done[0] else { panic!("applied twice") };
    assert_eq!(differing[0].version, created.put[0].version);
    assert_eq!(history(&backend, None, 10).await, ["granted"]);
}

#[tokio::test]
async fn of_many_who_write_the_same_record_one_wins() {
    let server = Options::new().start();
    let backend = std::sync::Arc::new(open(&server.url()).await);
    let life = life(&backend).await;
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..64 {
        let backend = backend.clone();
        tasks.spawn(async move {
            let change = creation(resource("a"), &index.to_string());
            let commits = backend.commit(life, &[change]).await.expect("an answer");
            matches!(commits.done[0], Committed::Done { .. })
        });
    }

    let won = tasks.join_all().await.into_iter().filter(|won| *won).count();

    assert_eq!(won, 1);
}

#[tokio::test]
async fn listings_come_in_pages_in_the_order_of_names() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let mut names: Vec<String> = (0..600).map(|index| format!("r{}", index * 7919 % 600)).collect();
    names.extend(["a b", "a", "ä", "a-b", "B"].map(str::to_owned));
    for some in names.chunks(200) {
        let created: Vec<Change> = some.iter().map(|name| creation(resource(name), name)).collect();
        commit(&backend, &created).await;
    }
    apply(&backend, creation(Key::Lease(LeaseId(2)), "two")).await;
    apply(&backend, creation(Key::Lease(LeaseId(1)), "one")).await;
    apply(&backend, creation(Key::Info(LeaseId(1)), "info")).await;
    // Deleted by the rules, and behind our back.
    let gone = read(&backend, resource("r1")).await;
    let mut deletion = change(gone.key.clone(), gone.version, "");
    deletion.put[0].value = None;
    apply(&backend, deletion).await;
    (0..300).for_each(|index| drop(server.command(&["DEL", &format!("{{tenure}}:resource/r{index}")])));
    names.retain(|name| {
        name.strip_prefix('r').is_none_or(|index| index.parse::<u32>().expect("a number") >= 300)
    });
    names.sort();

    let (mut listed, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = backend.list(Listing::Resources, after.as_ref()).await.expect("a page");
        assert!(page.shown.now.is_some() && !page.shown.records.is_empty());
        after = page.shown.records.last().map(|record| record.key.clone());
        listed.extend(
            page.shown.records.iter().map(|record| record.value.clone().expect("a text").as_str().to_owned()),
        );
        pages += 1;
        if !page.more {
            break;
        }
    }

    assert_eq!(listed, names);
    assert!(pages > 1);
    let leases = backend.list(Listing::Leases, None).await.expect("a page");
    let texts: Vec<_> =
        leases.shown.records.iter().map(|record| record.value.clone().expect("a text")).collect();
    assert_eq!((texts, leases.more), (vec![Text::from("one"), Text::from("two")], false));
    let nothing = backend.list(Listing::Leases, Some(&Key::Lease(LeaseId(2)))).await.expect("a page");
    assert!(nothing.shown.records.is_empty() && !nothing.more);
}

#[tokio::test]
async fn a_record_that_was_deleted_and_made_again_is_listed_once() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    for _ in 0..2 {
        let created = creation(resource("a"), "a");
        let mut deletion = change(resource("a"), created.put[0].version, "");
        deletion.put[0].value = None;
        apply(&backend, created).await;
        apply(&backend, deletion).await;
        assert!(backend.list(Listing::Resources, None).await.expect("a page").shown.records.is_empty());
    }
    apply(&backend, creation(resource("a"), "a")).await;

    assert_eq!(backend.list(Listing::Resources, None).await.expect("a page").shown.records.len(), 1);
}

#[tokio::test]
async fn the_history_is_told_oldest_first_of_all_or_of_one() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    for index in 0..6 {
        let mut appended = Change::default();
        for at in 0..100 {
            // Names that begin with each other's.
            let name = ["a", "ab", "a b"][at % 3];
            appended.history.push(entry(name, &format!("{name} {index} {at}")));
        }
        apply(&backend, appended).await;
    }
    let past = StoreTime::from_micros(1234);
    let mut late = Change::default();
    late.history.push(HistoryEntry { at: Some(past), ..entry("ä", "ended long ago") });
    apply(&backend, late).await;

    let all = history(&backend, None, 1000).await;
    assert_eq!((all.len(), all[0].as_str(), all[599].as_str()), (601, "a 0 0", "a 5 99"));
    let of_one = history(&backend, Some("ab"), 1000).await;
    let expected: Vec<String> = all.iter().filter(|text| text.starts_with("ab ")).cloned().collect();
    assert_eq!(of_one, expected);
    assert_eq!(history(&backend, Some("a"), 2).await, ["a 5 96", "a 5 99"]);
    assert_eq!(history(&backend, None, 2).await, ["a 5 99", "ended long ago"]);
    assert!(history(&backend, Some("b"), 2).await.is_empty());
    assert!(history(&backend, None, 0).await.is_empty());
    let found = backend.history(Some(&name("ä")), 1).await.expect("an answer");
    assert_eq!(found.entries, [(Some(past), Text::from("ended long ago"))]);
    let newest = backend.history(Some(&name("a")), 1).await.expect("an answer");
    assert!(newest.entries[0].0 > Some(past) && newest.entries[0].0 <= newest.now);
}

#[tokio::test]
async fn the_history_keeps_the_newest_entries_only() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    for batch in 0..41 {
        let entries = (batch * 250..(batch + 1) * 250)
            .map(|index| entry(if index % 2 == 0 { "even" } else { "odd" }, &index.to_string()));
        apply(&backend, Change { history: entries.collect(), ..Change::default() }).await;
    }

    let all: Vec<String> = (250..10_250).map(|index| index.to_string()).collect();
    assert_eq!(history(&backend, None, 20_000).await, all);
    let odd: Vec<String> = (251..10_250).step_by(2).map(|index| index.to_string()).collect();
    assert_eq!(history(&backend, Some("odd"), 20_000).await, odd);
    assert_eq!(server.command(&["XLEN", "{tenure}:history/all"]), Reply::Number(10_000));
    assert_eq!(server.command(&["ZCARD", "{tenure}:history/names"]), Reply::Number(10_000));
}

#[tokio::test]
async fn namespaces_and_databases_do_not_meet() {
    let server = Options::new().start();
    let backend = open(&server.url()).await;
    let elsewhere = Namespace::new("other").expect("a namespace");
    let others = [
        open(&format!("{}/3", server.url())).await,
        RedisBackend::open(&server.url(), &elsewhere).await.expect("a backend"),
    ];
    apply(&backend, creation(resource("a"), "a")).await;

    for other in others {
        assert_eq!(text(&other, resource("a")).await, None);
        apply(&other, creation(resource("a"), "other")).await;
    }
    assert_eq!(text(&backend, resource("a")).await.as_deref(), Some("a"));
}
