//! Listings of leases and resources.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::{Key, LeaseId};

use super::BackendFixture;
use super::harness::*;
use crate::store::backend::{Change, Listing, Stored};
use crate::store::codec::key_name;

fn creations(keys: &[Key]) -> Vec<Change> {
    keys.iter().map(|key| write(version(), &key_name(key), &[(key, NONE)])).collect()
}

fn keys_of(records: &[Stored]) -> Vec<Key> {
    records.iter().map(|record| record.key.clone()).collect()
}

fn in_order(keys: &[Key]) -> Vec<Key> {
    let mut keys = keys.to_vec();
    keys.sort_by_key(key_name);
    keys
}

pub async fn an_empty_namespace_lists_nothing(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;

    for of in [Listing::Leases, Listing::Resources] {
        assert_eq!(store.list(of).await, []);
        assert_eq!(store.list_after(of, Some(&resource("job"))).await, []);
    }
}

/// By the bytes of the names, whatever the language of the server.
pub async fn records_are_listed_in_the_order_of_their_names(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let names = [
        "b", "a", "B", "A", "Z", "z", "é", "e", "f", "-", "_", "a b", "a-b", "ab", "a_b", "10", "9", "~",
        "🦀", "\u{ffff}", "ß", "ss",
    ];
    let resources: Vec<Key> = names.into_iter().map(resource).collect();
    let numbers = [9, 10, 0xff, 0x100, 0, u128::MAX, 1 << 127, (1 << 127) - 1, 1 << 64, 1 << 63];
    let leases: Vec<Key> = numbers.into_iter().map(lease).collect();
    store.apply_all(&creations(&resources)).await;
    store.apply_all(&creations(&leases)).await;

    for (of, keys) in [(Listing::Resources, in_order(&resources)), (Listing::Leases, in_order(&leases))] {
        let listed = store.list(of).await;
        assert_eq!(keys_of(&listed), keys);
        assert_eq!(listed, store.read(&keys).await, "a listing shows what a read shows");
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(keys_of(&store.list_after(of, Some(key)).await), keys[index + 1..], "after {key:?}");
        }
    }
}

pub async fn leases_and_resources_are_listed_apart(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let ids = [0, 1, u128::MAX].map(LeaseId);
    let names = ["lease/1", "resource/a", "meta", "zzz", " "].map(name);
    let mut all = vec![Key::Meta, Key::Ttls];
    all.extend(ids.into_iter().flat_map(|id| [Key::Info(id), Key::Lease(id)]));
    all.extend(names.clone().into_iter().flat_map(|name| [Key::Runs(name.clone()), Key::Resource(name)]));
    store.apply_all(&creations(&all)).await;

    let (leases, resources) = (store.list(Listing::Leases).await, store.list(Listing::Resources).await);

    assert_eq!(keys_of(&leases), ids.map(Key::Lease));
    assert_eq!(keys_of(&resources), in_order(&names.map(Key::Resource)));
}

pub async fn a_long_listing_has_every_record_once(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let leases: Vec<Key> =
        (0..2_300).map(|n: u128| lease(n.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060))).collect();
    let resources: Vec<Key> = (0..120).map(|n| resource(&format!("{}{n}", "long ".repeat(38)))).collect();
    store.apply_all(&creations(&leases)).await;
    store.apply_all(&creations(&resources)).await;

    assert_eq!(keys_of(&store.list(Listing::Leases).await), in_order(&leases));
    assert_eq!(keys_of(&store.list(Listing::Resources).await), in_order(&resources));
}

pub async fn a_listing_goes_on_after_a_record_that_is_gone(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let keys: Vec<Key> = ["a", "b", "c", "d"].map(resource).to_vec();
    store.apply_all(&creations(&keys)).await;
    let gone = store.read_one(&keys[1]).await;

    store.apply(&delete(&[(&gone.key, gone.version)])).await;

    assert_eq!(keys_of(&store.list_after(Listing::Resources, Some(&gone.key)).await), keys[2..]);
    let never = resource("a and a bit");
    assert_eq!(keys_of(&store.list_after(Listing::Resources, Some(&never)).await), keys[2..]);
    assert_eq!(store.list_after(Listing::Resources, Some(&keys[3])).await, []);
}

/// Others create, overwrite and delete around it.
pub async fn a_listing_while_others_write_has_what_stands_throughout_once(fixture: impl BackendFixture) {
    let (store, other) = (Handle::of(&fixture).await, Handle::another(&fixture).await);
    let standing: Vec<Key> = (0..700).map(|n| resource(&format!("{n:03} standing"))).collect();
    store.apply_all(&creations(&standing)).await;
    let enough = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (enough, standing) = (enough.clone(), standing.clone());
        async move {
            let mut round = 0;
            while !enough.load(Ordering::SeqCst) {
                let brief: Vec<Key> = (0..20).map(|n| resource(&format!("{:03} {round}", n * 35))).collect();
                other.apply_all(&creations(&brief)).await;
                let some: Vec<Key> = standing.iter().skip(round % 35).step_by(35).cloned().collect();
                let next = |record: &Stored| write(version(), "next", &[(&record.key, record.version)]);
                let overwritten: Vec<Change> = other.read(&some).await.iter().map(next).collect();
                other.apply_all(&overwritten).await;
                let gone = |record: &Stored| delete(&[(&record.key, record.version)]);
                let deleted: Vec<Change> = other.read(&brief).await.iter().map(gone).collect();
                other.apply_all(&deleted).await;
                round += 1;
                tokio::task::yield_now().await;
            }
        }
    });

    for _ in 0..8 {
        let listed = keys_of(&store.list(Listing::Resources).await);
        let stood: Vec<Key> = listed.into_iter().filter(|key| key_name(key).ends_with("standing")).collect();
        assert_eq!(stood, standing);
        tokio::task::yield_now().await;
    }

    enough.store(true, Ordering::SeqCst);
    writer.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
}
