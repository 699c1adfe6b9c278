//! Commits: compared, stamped, and as durable as they say, whoever else writes.

use super::child::Process;
use super::*;
use tenure::ErrorKind;
use tenure::store::backend::{Channel, Listing};
use tenure_core::{StoreTime, Window};
use testkit::disk::Disk;

/// Adds one to a number in a record, so many times, against others who do the same.
pub(crate) async fn count(store: &SqliteBackend, times: usize) {
    let (key, life) = (resource("count"), life(store).await);
    let mut seen = find(store, &key).await;
    for _ in 0..times {
        loop {
            let number: u64 =
                seen.value.as_ref().map_or(0, |value| value.as_str().parse().expect("a number"));
            let change = write(&key, seen.version, &(number + 1).to_string());
            let written = Stored {
                key: key.clone(),
                version: change.put[0].version,
                stamp: None,
                value: change.put[0].value.clone(),
            };
            match store.commit(life, &[change]).await.expect("an answer").done.remove(0) {
                Committed::Done { .. } => {
                    seen = written;
                    break;
                }
                Committed::Conflict(mut others) => seen = others.remove(0),
            }
        }
    }
}

#[tokio::test]
async fn of_several_processes_that_write_one_record_none_overwrites_another() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let others: Vec<Process> = (0..2).map(|_| Process::start("counter", &folder.file())).collect();

    count(&store, 200).await;
    others.iter().for_each(|other| assert_eq!(other.child.hears(), "done"));

    assert_eq!(value(&store, &resource("count")).await.as_deref(), Some("600"));
}

#[tokio::test]
async fn names_and_values_are_data() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let names = ["'); DROP TABLE record; --", "%", "_", "lease/00", "ä 日本 \u{1F600}", "\\", "\"", "?1"];
    let values = ["", "\0", "a\0b", "'; DELETE FROM record; --", "\u{FFFF}", &"x".repeat(1 << 20)];

    for resource_name in names {
        for content in values {
            let key = resource(resource_name);
            let before = find(&store, &key).await.version;
            assert!(is_done(&commit_one(&store, write(&key, before, content)).await));
            assert!(value(&store, &key).await.is_some_and(|found| found == content), "{resource_name}");
        }
    }

    let page = store.list(Listing::Resources, None).await.expect("a page");
    let mut expected: Vec<Key> = names.into_iter().map(resource).collect();
    expected.sort();
    assert_eq!(page.shown.records.into_iter().map(|found| found.key).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn stamps_are_times_of_the_hosts_clock_and_never_go_back() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut last = StoreTime::from_micros(testkit::boottime());

    for _ in 0..50 {
        let version = find(&store, &Key::Ttls).await.version;
        let Committed::Done { stamp } = commit_one(&store, write(&Key::Ttls, version, "{}")).await else {
            panic!("nobody else writes");
        };
        let shown = snapshot(&store, &[Key::Ttls]).await;
        assert_eq!(shown.records[0].stamp, stamp);
        assert!(stamp >= Some(last) && shown.now >= stamp);
        last = shown.now.expect("a clock");
    }
    assert!(last <= StoreTime::from_micros(testkit::boottime()));
}

#[tokio::test]
async fn a_window_is_judged_when_the_change_is_applied_and_not_when_it_was_asked_for() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let (life, now) = (life(&store).await, snapshot(&store, &[]).await.now.expect("a clock"));
    let writer = sql(&folder.file(), "BEGIN IMMEDIATE");
    let until = Some(now + Duration::from_millis(300));
    let late = Change { window: Window { from: None, until }, ..write(&Key::Meta, Version::NONE, "{}") };
    let changes = [late];

    let committing = store.commit(life, &changes);
    let ending = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        writer.execute_batch("COMMIT").expect("it ends");
    };
    let (commits, ()) = tokio::join!(committing, ending);

    assert_eq!(commits.expect("an answer").done, [Committed::Conflict(Vec::new())]);
}

#[tokio::test]
async fn reads_and_messages_do_not_wait_for_a_writer() {
    let folder = Folder::new();
    let store = open(&folder.file());
    assert!(is_done(&commit_one(&store, write(&Key::Meta, Version::NONE, "{}")).await));
    let (channels, mut signals) = store.listen().await.expect("it listens");
    channels.follow(Channel::new("one")).await.expect("it follows");
    let writer = sql(&folder.file(), "BEGIN IMMEDIATE");

    let shown = snapshot(&store, &[Key::Meta]).await;
    let signal = Signal { to: vec![Channel::new("one")], text: "hello".into() };
    let expect = vec![(Key::Meta, shown.records[0].version)];
    let message = Change { expect, signals: vec![signal], ..Change::default() };
    assert!(is_done(&commit_one(&store, message).await));

    assert_eq!(signals.recv().await.expect("a signal").text.as_str(), "hello");
    writer.execute_batch("COMMIT").expect("it still writes");
}

#[tokio::test]
async fn an_attempt_that_is_given_up_holds_nobody_up_and_does_nothing() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let life = life(&store).await;
    let writer = sql(&folder.file(), "BEGIN IMMEDIATE");
    let given_up = [write(&Key::Meta, Version::NONE, "given up")];

    // One that has begun to wait, and some that have not begun.
    for _ in 0..5 {
        let attempt = tokio::time::timeout(Duration::from_millis(20), store.commit(life, &given_up)).await;
        assert!(attempt.is_err(), "it waits for the other");
    }
    // Well before the first one's patience with the writer is over.
    let changes = [write(&Key::Ttls, Version::NONE, "{}")];
    let next = store.commit(life, &changes);
    let ending = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        writer.execute_batch("COMMIT").expect("it ends");
    };
    let (next, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(2), next), ending);

    assert!(is_done(&next.expect("it does not queue").expect("an answer").done[0]));
    assert_eq!(value(&store, &Key::Meta).await, None);
}

#[tokio::test]
async fn a_writer_that_does_not_end_makes_the_store_unavailable() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let life = life(&store).await;
    let _writer = sql(&folder.file(), "BEGIN IMMEDIATE");

    let error = store.commit(life, &[write(&Key::Meta, Version::NONE, "{}")]).await.expect_err("it is busy");

    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().ends_with("another process is writing to it"), "{error}");
}

#[tokio::test]
async fn the_history_keeps_the_newest_ten_thousand_entries_of_each_namespace() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let other = Namespace::new("other").expect("a name");
    let other = SqliteBackend::open(folder.file(), &other).expect("it opens");
    let entry = |number: usize| HistoryEntry {
        resource: name(["a", "b"][number % 2]),
        at: number.is_multiple_of(3).then(|| StoreTime::from_micros(7)),
        text: number.to_string().into(),
    };
    assert!(is_done(&commit_one(&other, Change { history: vec![entry(1)], ..Change::default() }).await));

    for piece in 0..25 {
        let history = (piece * 500..(piece + 1) * 500).map(entry).collect();
        assert!(is_done(&commit_one(&store, Change { history, ..Change::default() }).await));
    }

    let all = store.history(None, usize::MAX).await.expect("a history");
    let texts: Vec<usize> =
        all.entries.iter().map(|(_, text)| text.as_str().parse().expect("a number")).collect();
    assert_eq!(texts, (2_500..12_500).collect::<Vec<_>>());
    for (number, (at, _)) in texts.iter().zip(&all.entries) {
        assert_eq!(*at == Some(StoreTime::from_micros(7)), number.is_multiple_of(3));
    }
    let one = store.history(Some(&name("b")), 3).await.expect("a history").entries;
    assert_eq!(one.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), ["12495", "12497", "12499"]);
    assert_eq!(other.history(None, 10).await.expect("a history").entries.len(), 1);
    let kept: i64 = sql(&folder.file(), "")
        .query_row("SELECT count(*) FROM history", [], |row| row.get(0))
        .expect("a count");
    assert!(kept <= 10_100, "{kept} entries are kept");
}

#[tokio::test]
async fn namespaces_in_one_file_do_not_meet() {
    let folder = Folder::new();
    let one = open(&folder.file());
    let two = SqliteBackend::open(folder.file(), &Namespace::new("two").expect("a name")).expect("it opens");

    assert!(is_done(&commit_one(&one, write(&resource("job"), Version::NONE, "one")).await));

    assert_eq!(value(&two, &resource("job")).await, None);
    assert!(is_done(&commit_one(&two, write(&resource("job"), Version::NONE, "two")).await));
    assert_eq!(value(&one, &resource("job")).await.as_deref(), Some("one"));
    assert_eq!(two.list(Listing::Resources, None).await.expect("a page").shown.records.len(), 1);
}

#[tokio::test]
async fn a_listing_is_complete_however_long_it_is() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let keys: Vec<Key> = (0..600).map(|number| resource(&format!("job {number:04}"))).collect();
    for piece in keys.chunks(250) {
        let changes: Vec<Change> = piece.iter().map(|key| write(key, Version::NONE, "{}")).collect();
        assert!(commit(&store, &changes).await.done.iter().all(is_done));
    }
    let lease = Key::Lease(new_lease());
    assert!(is_done(&commit_one(&store, write(&lease, Version::NONE, "{}")).await));

    let (mut listed, mut more): (Vec<Key>, bool) = (Vec::new(), true);
    while more {
        let page = store.list(Listing::Resources, listed.last()).await.expect("a page");
        listed.extend(page.shown.records.into_iter().map(|found| found.key));
        more = page.more;
    }

    assert_eq!(listed, keys);
    let leases = store.list(Listing::Leases, None).await.expect("a page");
    assert_eq!(
        (leases.shown.records[0].key.clone(), leases.shown.records.len(), leases.more),
        (lease, 1, false)
    );
}

#[tokio::test]
async fn a_full_disk_is_unavailable_and_what_is_essential_still_overwrites() {
    let folder = Folder::new();
    let disk = Disk::mount(&folder.path().join("disk"), 4);
    let store = open(&folder.path().join("disk/tenure.db"));
    let lease = Key::Lease(new_lease());
    assert!(is_done(&commit_one(&store, write(&lease, Version::NONE, "0")).await));
    let life = life(&store).await;

    disk.fill();
    let mut error = None;
    for number in 0..10_000 {
        let change = write(&resource(&format!("job {number}")), Version::NONE, &"x".repeat(4000));
        if let Err(refused) = store.commit(life, &[change]).await {
            error = Some(refused);
            break;
        }
        disk.fill();
    }

    let error = error.expect("the disk is full");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().ends_with("the disk is full"), "{error}");
    for number in 1..50 {
        let version = find(&store, &lease).await.version;
        let renewal = Change { essential: true, ..write(&lease, version, &number.to_string()) };
        assert!(is_done(&commit_one(&store, renewal).await), "renewal {number}");
    }
    disk.free();
    assert!(is_done(&commit_one(&store, write(&Key::Meta, Version::NONE, "{}")).await));
    drop(store);
}

/// How often the log was begun anew, as its header tells.
fn restarts(log: &Path) -> u32 {
    let header = std::fs::read(log).expect("a log");
    header.get(12..16).map_or(0, |count| u32::from_be_bytes(count.try_into().expect("four bytes")))
}

#[tokio::test]
async fn the_log_begins_anew_although_somebody_always_writes() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let (life, mut version, log) = (life(&store).await, Version::NONE, folder.path().join("tenure.db-wal"));
    let (begun, before) = (Instant::now(), restarts(&log));

    while restarts(&log) < before + 3 {
        assert!(begun.elapsed() < 3 * LIMIT, "it grows for ever");
        for _ in 0..500 {
            let change = write(&Key::Meta, version, &"x".repeat(1000));
            version = change.put[0].version;
            assert!(is_done(&store.commit(life, &[change]).await.expect("an answer").done[0]));
        }
    }
}

#[tokio::test]
async fn an_attempt_that_is_given_up_before_it_began_is_skipped() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let life = life(&store).await;
    let writer = sql(&folder.file(), "BEGIN IMMEDIATE");
    let (first, second) =
        ([write(&Key::Ttls, Version::NONE, "{}")], [write(&Key::Meta, Version::NONE, "{}")]);

    let waiting = store.commit(life, &first);
    let behind = async {
        let attempt = tokio::time::timeout(Duration::from_millis(50), store.commit(life, &second)).await;
        assert!(attempt.is_err(), "it waits behind the first");
        writer.execute_batch("COMMIT").expect("it ends");
    };
    let (commits, ()) = tokio::join!(waiting, behind);
    assert!(is_done(&commits.expect("an answer").done[0]));

    // Done by the same thread, after both.
    assert!(is_done(&commit_one(&store, write(&resource("job"), Version::NONE, "{}")).await));
    assert_eq!(value(&store, &Key::Meta).await, None);
}

/// Prints how long a read and a commit take, beside a single UPDATE that is synced by SQLite alone on the same disk.
#[tokio::test]
#[ignore = "a measurement: run it alone, with --release and --nocapture"]
async fn what_a_commit_costs() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let bare = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (x TEXT); INSERT INTO t VALUES ('')";
    let bare = sql(&folder.path().join("bare.db"), bare);
    let (life, content) = (life(&store).await, "x".repeat(500));
    let mut spans: [Vec<Duration>; 5] = Default::default();
    let mut version = Version::NONE;

    // In turns, so that what else the machine does hits all alike.
    for number in 0..2_000 {
        // Other content each time: SQLite writes and syncs nothing for an UPDATE that changes nothing.
        let other = format!("{content}{number}");
        let begun = Instant::now();
        bare.execute("UPDATE t SET x = ?1", [&other]).expect("an update");
        spans[0].push(begun.elapsed());
        let begun = Instant::now();
        find(&store, &Key::Meta).await;
        spans[1].push(begun.elapsed());
        for (index, lasting) in [(2, false), (3, true)] {
            let begun = Instant::now();
            let change = Change { lasting, ..write(&Key::Meta, version, &content) };
            version = change.put[0].version;
            assert!(is_done(&store.commit(life, &[change]).await.expect("an answer").done[0]));
            spans[index].push(begun.elapsed());
        }
        let begun = Instant::now();
        let seen = find(&store, &Key::Meta).await.version;
        let change = Change { lasting: true, ..write(&Key::Meta, seen, &content) };
        version = change.put[0].version;
        assert!(is_done(&store.commit(life, &[change]).await.expect("an answer").done[0]));
        spans[4].push(begun.elapsed());
    }

    let names = ["bare UPDATE, FULL", "read", "commit", "commit, lasting", "read and commit, lasting"];
    for (name, mut spans) in names.into_iter().zip(spans) {
        spans.sort();
        println!("{name}: p50 {:?}, p99 {:?}", spans[spans.len() / 2], spans[spans.len() * 99 / 100]);
    }
}
