//! What a record is: a name, a version, a stamp and a text.

use std::collections::BTreeSet;

use tenure_core::{Key, LeaseId, Version};

use super::BackendFixture;
use super::harness::*;
use crate::store::backend::Listing;
use crate::store::codec::key_name;

pub async fn a_record_is_read_back_as_it_was_written(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let (id, job) = (LeaseId(7), name("job"));
    let keys =
        [Key::Meta, Key::Ttls, Key::Lease(id), Key::Info(id), Key::Resource(job.clone()), Key::Runs(job)];

    for key in &keys {
        let text_now = format!("{{\"key\": {key:?}}}");
        let written = version();
        let stamp = store.apply(&write(written, &text_now, &[(key, NONE)])).await;

        let record = store.read_one(key).await;
        assert_eq!((record.version, record.stamp, text(&record)), (written, stamp, Some(&*text_now)));
    }
}

pub async fn an_overwritten_record_shows_the_new_version_and_text_only(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let key = resource("job");
    let first = store.create(&key, "a text that is a good deal longer than the one after it").await;

    let second = version();
    let stamp = store.apply(&write(second, "short", &[(&key, first)])).await;

    let record = store.read_one(&key).await;
    assert_eq!((record.version, record.stamp, text(&record)), (second, stamp, Some("short")));
    let stale = store.refused(&write(version(), "late", &[(&key, first)])).await;
    assert_eq!(stale, [record]);
}

pub async fn a_deleted_record_is_at_version_none_and_can_be_created_again(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let (key, other) = (resource("job"), resource("other"));
    let (first, beside) = (store.create(&key, "first").await, store.create(&other, "beside").await);
    assert_eq!(store.refused(&delete(&[(&key, version())])).await, [store.read_one(&key).await]);

    store.apply(&delete(&[(&key, first)])).await;

    assert_eq!(store.read_one(&key).await.version, NONE);
    assert_eq!(store.read_one(&other).await.version, beside);
    assert_eq!(store.refused(&write(version(), "late", &[(&key, first)])).await[0].version, NONE);
    assert_eq!(store.list(Listing::Resources).await, [store.read_one(&other).await]);
    let second = store.create(&key, "second").await;
    let record = store.read_one(&key).await;
    assert_eq!((record.version, text(&record)), (second, Some("second")));
}

/// Versions that a signed number, a floating-point number or a cut one would take for each other.
pub async fn versions_use_all_64_bits(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let big = [1, 1 << 31, 1 << 32, 1 << 53, (1 << 53) + 1, i64::MAX as u64, 1 << 63, (1 << 63) + 1];
    let versions = big.into_iter().chain([u64::MAX - 1, u64::MAX]).map(Version);

    for (index, version) in versions.enumerate() {
        let key = resource(&format!("r{index}"));
        store.apply(&write(version, "text", &[(&key, NONE)])).await;
        assert_eq!(store.read_one(&key).await.version, version);

        let bits = [1, 1 << 10, 1 << 32, 1 << 52, 1 << 53, 1 << 63];
        for near in bits.map(|bit| Version(version.0 ^ bit)) {
            let differs = store.refused(&write(Version(77), "late", &[(&key, near)])).await;
            assert_eq!(differs[0].version, version, "expecting {near:?}");
        }
        store.apply(&write(Version(78), "next", &[(&key, version)])).await;
    }
}

pub async fn an_empty_text_is_not_a_deletion(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let key = resource("job");

    let version = store.create(&key, "").await;

    let record = store.read_one(&key).await;
    assert_eq!((record.version, text(&record)), (version, Some("")));
}

pub async fn a_text_of_100_kb_comes_back_as_it_was(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let key = resource("job");
    let long: String = (0..10_000).map(|n| format!("{n:06} é;")).collect();
    assert_eq!(long.len(), 100_000);

    let created = store.create(&key, &long).await;

    let record = store.read_one(&key).await;
    assert_eq!(record.version, created);
    assert!(text(&record) == Some(&*long), "{} bytes came back otherwise", long.len());
    let conflict = store.refused(&write(version(), "late", &[(&key, NONE)])).await;
    assert!(conflict == [record], "a conflict shows another text");
    assert!(text(&store.list(Listing::Resources).await[0]) == Some(&*long), "a listing shows another text");
}

pub async fn hostile_text_comes_back_as_it_was(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let control: String = (1..=0x9f).filter_map(char::from_u32).filter(|c| c.is_control()).collect();
    let long = HOSTILE.repeat(10);
    let texts = [HOSTILE, &control, "\n", " ", "null", "0", "-1", "1e400", "{}", "\"", "\\", "\r\n", &long];

    for (index, hostile) in texts.into_iter().enumerate() {
        let key = resource(&format!("r{index}"));
        store.create(&key, hostile).await;

        assert_eq!(text(&store.read_one(&key).await), Some(hostile));
    }
}

/// Whatever a name may be: the record under it is found, listed, replaced, and nobody else's.
pub async fn hostile_names_are_names_like_others(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let pieces = HOSTILE.split(' ').map(str::to_owned).filter(|piece| !piece.is_empty());
    let mut names: Vec<String> = pieces.collect();
    names.extend(["x".repeat(200), "é".repeat(100), "🦀".repeat(50), " ".repeat(200), "'".repeat(200)]);
    names.extend(
        ["' OR 1=1 --", "{a}b", "}{", "a b", "a\u{a0}b", "NULL", "-1", "0x00", "*", "[a-z]"].map(Into::into),
    );
    names.extend(["meta", "ttls", "lease/", "/", "//", "../..", "resource/job", "C:\\x"].map(Into::into));
    let names: BTreeSet<String> = names.into_iter().collect();
    let keys: Vec<Key> = names.iter().map(|name| resource(name)).collect();

    let created: Vec<_> = keys.iter().map(|key| write(version(), &key_name(key), &[(key, NONE)])).collect();
    store.apply_all(&created).await;

    let records = store.read(&keys).await;
    for (key, (record, change)) in keys.iter().zip(records.iter().zip(&created)) {
        assert_eq!(record.version, change.put[0].version, "{key:?}");
        assert_eq!(text(record), Some(&*key_name(key)));
    }
    assert_eq!(store.list(Listing::Resources).await, records);
    let replaced: Vec<_> =
        records.iter().map(|record| write(version(), "next", &[(&record.key, record.version)])).collect();
    store.apply_all(&replaced).await;
    for (record, change) in store.read(&keys).await.iter().zip(&replaced) {
        assert_eq!(record.version, change.put[0].version, "{:?}", record.key);
    }
}

/// Case, accents, spaces, widths, kinds: nothing is folded, trimmed or cut.
pub async fn names_that_look_alike_are_different_records(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let alike =
        ["job", "Job", "JOB", "job ", " job", "jo b", "job\u{200b}", "ｊｏｂ", "jób", "jo\u{301}b", "jоb"];
    let long = "x".repeat(199);
    let (one, two) = (format!("{long}1"), format!("{long}2"));
    let names = alike.into_iter().chain([&*long, &one, &two, "1", "01", "1.0", "+1"]).map(name);
    let mut keys: Vec<Key> = names.flat_map(|name| [Key::Resource(name.clone()), Key::Runs(name)]).collect();
    for id in [0, 1, 0x10, 1 << 64, (1 << 64) + 1, u128::MAX].map(LeaseId) {
        keys.extend([Key::Lease(id), Key::Info(id)]);
    }
    keys.extend([Key::Meta, Key::Ttls, resource("meta"), resource("ttls")]);

    for (index, key) in keys.iter().enumerate() {
        store.create(key, &format!("text {index}")).await;
    }

    for (index, record) in store.read(&keys).await.iter().enumerate() {
        assert_eq!(text(record), Some(&*format!("text {index}")), "{}", key_name(&record.key));
    }
}
