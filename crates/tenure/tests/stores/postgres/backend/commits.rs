//! What a commit compares, writes and answers; reading, listing, history.

use tenure::ErrorKind;
use tenure::store::backend::{Backend, Change, Channel, Committed, HistoryEntry, Listing};
use tenure_core::{Incarnation, Key, ResourceName, StoreTime, Version, Window};

use super::fixture::{
    Fresh, Words, apply, commit, differing, is_done, lease, life, read, resource, set, snapshot, text, write,
};

#[tokio::test]
async fn records_are_created_changed_deleted_and_read_in_the_order_asked() {
    let fresh = Fresh::start().await;
    let (a, b, none) = (resource("a"), lease(7), resource("none"));

    let stamp = apply(&fresh.backend, write(&a, Version::NONE, "1").and_write(&b, Version::NONE, "2")).await;

    let shown = snapshot(&fresh.backend, &[b.clone(), none.clone(), a.clone(), b.clone()]).await;
    let keys: Vec<&Key> = shown.records.iter().map(|stored| &stored.key).collect();
    assert_eq!(keys, [&b, &none, &a, &b]);
    assert_eq!(text(&shown.records[0]), Some("2"));
    assert_eq!(
        (shown.records[1].version, shown.records[1].stamp, text(&shown.records[1])),
        (Version::NONE, None, None)
    );
    assert_eq!(shown.records[2].stamp, Some(StoreTime::from_micros(stamp)));
    assert_eq!(shown.records[0].stamp, shown.records[2].stamp);
    assert!(shown.now.expect("a clock").as_micros() >= stamp);
    assert_eq!(shown.wall, shown.now.map(StoreTime::as_micros));

    let before = shown.records[2].version;
    let change = write(&a, before, "3");
    let version = change.put[0].version;
    apply(&fresh.backend, change).await;
    let after = read(&fresh.backend, &a).await;
    assert_eq!((after.version, text(&after)), (version, Some("3")));

    apply(&fresh.backend, Change::default().and_delete(&a, version)).await;
    assert_eq!(read(&fresh.backend, &a).await.version, Version::NONE);
    assert_eq!(fresh.sql("SELECT count(*) FROM @.record"), "1");
    apply(&fresh.backend, write(&a, Version::NONE, "again")).await;
}

#[tokio::test]
async fn a_conflict_returns_only_the_records_that_differ_and_writes_nothing() {
    let fresh = Fresh::start().await;
    let (a, b, c, gone) = (resource("a"), resource("b"), resource("c"), resource("gone"));
    let (of_a, of_b) = (set(&fresh.backend, &a, "a").await, set(&fresh.backend, &b, "b").await);
    let wrong = Version(of_b.0 ^ 1);

    let change = write(&a, of_a, "new").and_write(&b, wrong, "new").and_expect(&gone, Version(9));
    let answer = commit(&fresh.backend, &[change.and_write(&c, Version::NONE, "new")]).await;

    let Committed::Conflict(records) = &answer.done[0] else { panic!("it was applied") };
    let mut keys: Vec<&Key> = records.iter().map(|stored| &stored.key).collect();
    keys.sort();
    assert_eq!(keys, [&b, &gone]);
    let present = records.iter().find(|stored| stored.key == b).expect("b");
    assert_eq!((present.version, text(present)), (of_b, Some("b")));
    assert!(present.stamp.is_some());
    let absent = records.iter().find(|stored| stored.key == gone).expect("gone");
    assert_eq!((absent.version, absent.stamp, text(absent)), (Version::NONE, None, None));
    assert_eq!(read(&fresh.backend, &a).await.version, of_a);
    assert_eq!(fresh.sql("SELECT count(*) FROM @.record"), "2", "nothing is left of the new record");
}

#[tokio::test]
async fn of_a_batch_each_change_is_applied_or_not_by_itself() {
    let fresh = Fresh::start().await;
    let meta = set(&fresh.backend, &Key::Meta, "meta").await;
    set(&fresh.backend, &resource("taken"), "taken").await;
    let other = set(&fresh.backend, &resource("other"), "other").await;
    let channel = Channel::new("nobody_listens");
    let one = |name: &str| {
        let mut change = write(&resource(name), Version::NONE, name).and_expect(&Key::Meta, meta);
        let of = ResourceName::new(name).expect("a name");
        change.history.push(HistoryEntry { resource: of, at: None, text: name.into() });
        change.and_signal(&channel, name)
    };
    let changes = [
        one("first"),
        one("taken").and_write(&resource("beside"), Version::NONE, "never"),
        one("late").within(Window { until: Some(StoreTime::from_micros(1)), from: None }),
        one("early").within(Window { from: Some(StoreTime::from_micros(1 << 55)), until: None }),
        one("last"),
        Change::default().and_delete(&resource("other"), Version(other.0 ^ 1)),
    ];

    let answer = commit(&fresh.backend, &changes).await;

    let done: Vec<bool> = answer.done.iter().map(is_done).collect();
    assert_eq!(done, [true, false, false, false, true, false]);
    assert_eq!(differing(&answer.done[1]), [&resource("taken")]);
    assert!(differing(&answer.done[2]).is_empty() && differing(&answer.done[3]).is_empty());
    let keys = fresh.sql("SELECT string_agg(key, ' ' ORDER BY key) FROM @.record");
    assert_eq!(keys, "meta resource/first resource/last resource/other resource/taken");
    assert_eq!(fresh.sql("SELECT string_agg(entry, ' ' ORDER BY id) FROM @.history"), "first last");
}

#[tokio::test]
async fn a_window_holds_its_beginning_and_not_its_end() {
    let fresh = Fresh::start().await;
    // The clock of the schema stands still.
    fresh.sql(
        "CREATE OR REPLACE FUNCTION @.clock() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT 1000000::bigint'",
    );
    let at = |from: Option<u64>, until: Option<u64>| Window {
        from: from.map(StoreTime::from_micros),
        until: until.map(StoreTime::from_micros),
    };
    let cases = [
        (at(Some(1_000_000), Some(1_000_001)), true),
        (at(Some(1_000_001), None), false),
        (at(None, Some(1_000_000)), false),
        (at(Some(u64::MAX), None), false),
        (at(None, Some(u64::MAX)), true),
    ];
    for (number, (window, fits)) in cases.into_iter().enumerate() {
        let change = write(&resource(&format!("r{number}")), Version::NONE, "").within(window);
        assert_eq!(is_done(&commit(&fresh.backend, &[change]).await.done[0]), fits, "{window:?}");
    }
}

#[tokio::test]
async fn a_commit_for_another_life_changes_nothing_and_tells_the_present_one() {
    let fresh = Fresh::start().await;
    let present = life(&fresh.backend).await;
    let key = resource("a");

    let answer = fresh.backend.commit(Incarnation(present.0 ^ 1), &[write(&key, Version::NONE, "x")]).await;

    let answer = answer.expect("an answer");
    assert_eq!((answer.life, answer.done), (present, vec![Committed::Conflict(Vec::new())]));
    assert!(answer.now.is_some());
    assert_eq!(read(&fresh.backend, &key).await.version, Version::NONE);
}

#[tokio::test]
async fn of_many_who_expect_the_same_version_one_is_applied() {
    let fresh = Fresh::start().await;
    let key = resource("popular");
    for round in 0..4 {
        let present = read(&fresh.backend, &key).await.version;
        let life = life(&fresh.backend).await;
        let mut racing = tokio::task::JoinSet::new();
        for number in 0..12 {
            let (backend, key) = (fresh.backend.clone(), key.clone());
            racing.spawn(async move {
                let change = write(&key, present, &format!("{round} {number}"));
                backend.commit(life, &[change]).await.expect("an answer").done.remove(0)
            });
        }
        let done = racing.join_all().await;

        assert_eq!(done.iter().filter(|done| is_done(done)).count(), 1, "{done:?}");
        let now = read(&fresh.backend, &key).await;
        for conflict in done.iter().filter(|done| !is_done(done)) {
            assert_eq!(*conflict, Committed::Conflict(vec![now.clone()]));
        }
    }
}

#[tokio::test]
async fn hostile_names_and_values_are_kept_as_they_are() {
    let fresh = Fresh::start().await;
    let names = [
        "'; DROP TABLE record; --",
        "a\"b\\c",
        "%_[a-z]*",
        "{a,NULL,\"b\"}",
        "NULL",
        "naïve 🦀 名",
        "a/b",
        "$1 $$",
    ];
    let long = "x\u{1F980}\\\"'".repeat(30_000);
    let values =
        ["", "NULL", "{\"a\":\"\\u0000\"}", "'; DROP SCHEMA x; --", "\\x00 \u{1}\u{7f}\r\n\t", &long];
    for name in names {
        for value in values {
            set(&fresh.backend, &resource(name), value).await;
            assert_eq!(text(&read(&fresh.backend, &resource(name)).await), Some(value), "{name}");
        }
    }
    let page = fresh.backend.list(Listing::Resources, None).await.expect("a page");
    assert_eq!(page.shown.records.len(), names.len());

    let zero = fresh
        .backend
        .commit(life(&fresh.backend).await, &[write(&resource("zero"), Version::NONE, "a\0b")])
        .await;
    let told = zero.expect_err("PostgreSQL has no such text");
    assert_eq!(told.kind(), ErrorKind::Refused);
    assert!(!format!("{told} {told:?}").contains("a\\0b"), "{told:?}");
}

#[tokio::test]
async fn what_no_backend_has_to_understand_is_refused() {
    let fresh = Fresh::start().await;
    let life = life(&fresh.backend).await;
    let key = resource("a");
    let unexpected = Change { expect: Vec::new(), ..write(&key, Version::NONE, "x") };
    let twice = [write(&key, Version::NONE, "x"), write(&key, Version::NONE, "y")];
    let long = write(&key, Version::NONE, "x").and_signal(&Channel::new("c"), &"x".repeat(7_901));
    let many: Vec<Change> = (0..251).map(|number| write(&lease(number), Version::NONE, "x")).collect();

    for changes in [&[unexpected][..], &twice, &[long], &many] {
        let told = fresh.backend.commit(life, changes).await.expect_err("it is refused");
        assert_eq!(told.kind(), ErrorKind::Refused, "{told}");
    }
    assert_eq!(fresh.sql("SELECT count(*) FROM @.record"), "0");
}

#[tokio::test]
async fn listings_come_in_pages_in_the_order_of_names() {
    let fresh = Fresh::start().await;
    set(&fresh.backend, &Key::Meta, "meta").await;
    set(&fresh.backend, &Key::Info(tenure::store::LeaseId(1)), "info").await;
    set(&fresh.backend, &Key::Runs(ResourceName::new("a").expect("a name")), "runs").await;
    set(&fresh.backend, &resource("~last"), "r").await;
    set(&fresh.backend, &resource("Z"), "r").await;
    set(&fresh.backend, &resource("a"), "r").await;
    for batch in 0..3 {
        let changes: Vec<Change> =
            (0..200).map(|number| write(&lease(batch * 200 + number), Version::NONE, "lease")).collect();
        assert!(commit(&fresh.backend, &changes).await.done.iter().all(is_done));
    }

    let (mut seen, mut after): (Vec<Key>, Option<Key>) = (Vec::new(), None);
    loop {
        let page = fresh.backend.list(Listing::Leases, after.as_ref()).await.expect("a page");
        assert!(
            page.shown.records.iter().all(|stored| text(stored) == Some("lease") && stored.stamp.is_some())
        );
        seen.extend(page.shown.records.iter().map(|stored| stored.key.clone()));
        after = seen.last().cloned();
        if !page.more {
            break;
        }
        assert!(!page.shown.records.is_empty());
    }
    assert_eq!(seen, (0..600).map(lease).collect::<Vec<_>>());
    let page = fresh.backend.list(Listing::Resources, None).await.expect("a page");
    let names: Vec<Key> = page.shown.records.into_iter().map(|stored| stored.key).collect();
    assert_eq!((names, page.more), (vec![resource("Z"), resource("a"), resource("~last")], false));
}

fn entry(resource: &str, at: Option<u64>, text: &str) -> HistoryEntry {
    let resource = ResourceName::new(resource).expect("a name");
    HistoryEntry { resource, at: at.map(StoreTime::from_micros), text: text.into() }
}

#[tokio::test]
async fn the_newest_entries_of_the_history_come_oldest_first() {
    let fresh = Fresh::start().await;
    let mut stamp = 0;
    for (number, of) in ["a", "b", "a", "a"].into_iter().enumerate() {
        let history = vec![
            entry(of, Some(5), &format!("{number} ended")),
            entry(of, None, &format!("{number} granted")),
        ];
        stamp = apply(&fresh.backend, Change { history, ..Change::default() }).await;
    }

    let of_a = ResourceName::new("a").expect("a name");
    let history = fresh.backend.history(Some(&of_a), 3).await.expect("an answer");
    let texts: Vec<&str> = history.entries.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["2 granted", "3 ended", "3 granted"]);
    assert_eq!(history.entries[1].0, Some(StoreTime::from_micros(5)));
    assert_eq!(history.entries[2].0, Some(StoreTime::from_micros(stamp)));
    assert!(history.now.expect("a clock").as_micros() >= stamp);
    let all = fresh.backend.history(None, usize::MAX).await.expect("an answer");
    assert_eq!((all.entries.len(), all.entries[2].1.as_str()), (8, "1 ended"));
}

#[tokio::test]
async fn the_history_is_bounded() {
    let fresh = Fresh::start().await;
    fresh.sql(
        "INSERT INTO @.history (resource, at, entry) SELECT 'old', 1, 'old' FROM generate_series(1, 14000)",
    );

    for _ in 0..12 {
        let history = (0..100).map(|_| entry("new", None, "new")).collect();
        apply(&fresh.backend, Change { history, ..Change::default() }).await;
    }

    assert_eq!(fresh.sql("SELECT count(*) BETWEEN 10000 AND 10200 FROM @.history"), "t");
    assert_eq!(fresh.sql("SELECT count(*) FROM @.history WHERE entry = 'new'"), "1200");
}
