//! The history: what is appended by changes, and read by people.

use std::time::Duration;

use tenure_core::{Key, StoreTime};

use super::BackendFixture;
use super::harness::*;
use crate::store::backend::{Change, HistoryEntry};

/// Creates the lease of this number, with these entries.
fn with(number: u128, history: Vec<HistoryEntry>) -> Change {
    Change { history, ..write(version(), "text", &[(&lease(number), NONE)]) }
}

pub async fn the_history_is_in_the_order_of_the_changes(fixture: impl BackendFixture) {
    let handles = Handle::several(&fixture, 2).await;
    let mut expected = Vec::new();
    for round in 0..10 {
        let text = |n: usize| format!("{round} {n}");
        let change = |n: usize| {
            let entries =
                vec![entry("job", &text(n)), entry("other", &text(n + 1)), entry("job", &text(n + 2))];
            with((round * 10 + n) as u128, entries)
        };
        let changes = [change(0), change(3), change(6)];
        handles[round % 2].apply_all(&changes[..handles[0].can.most_changes.min(3)]).await;
        expected.extend((0..9).map(text));
    }

    for handle in &handles {
        assert_eq!(handle.past().await, expected);
    }
}

/// An ending that was found late is appended late; the time it names is kept as it is.
pub async fn an_entry_has_the_time_it_names_or_that_of_its_change(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let stamp = store.apply(&with(1, vec![entry("job", "first")])).await;
    let mut expected = vec![(stamp, "first".to_owned())];
    fixture.pass(Duration::from_millis(2)).await;

    if let Some(stamp) = stamp {
        let earlier = StoreTime::from_micros(stamp.as_micros() - 1_234_567);
        let late = HistoryEntry { at: Some(earlier), ..entry("job", "ended") };
        let granted = store.apply(&with(2, vec![late, entry("job", "granted")])).await;
        assert!(granted > Some(stamp), "time has gone by");
        expected.extend([(Some(earlier), "ended".to_owned()), (granted, "granted".to_owned())]);
    }

    assert_eq!(store.history(None, 10).await, expected);
    assert_eq!(store.history(Some(&name("job")), 10).await, expected);
}

pub async fn the_history_of_a_resource_leaves_out_the_others(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let names = ["job", "Job", "job ", "jo", "jobs", "*", "%", "_ob", HOSTILE_NAME];
    for (number, name) in (0..).zip(names.iter().chain(&names)) {
        store.apply(&with(number, vec![entry(name, &format!("{name} {number}"))])).await;
    }

    for (number, text) in names.into_iter().enumerate() {
        let entries = store.history(Some(&name(text)), 10).await;
        let texts: Vec<String> = entries.into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, [format!("{text} {number}"), format!("{text} {}", number + names.len())]);
    }
    assert_eq!(store.history(Some(&name("unheard of")), 10).await, []);
    assert_eq!(store.past().await.len(), names.len() * 2);
}

const HOSTILE_NAME: &str = "it's {a} \\ \"job\"; -- 🦀 \u{202e}";

pub async fn the_newest_entries_are_shown(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    for number in 0..30 {
        let of = if number % 3 == 0 { "rare" } else { "often" };
        store.apply(&with(number, vec![entry(of, &number.to_string())])).await;
    }
    let texts = async |of: Option<&str>, most| {
        let entries = store.history(of.map(name).as_ref(), most).await;
        entries.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
    };

    assert_eq!(texts(None, 3).await, ["27", "28", "29"]);
    assert_eq!(texts(Some("rare"), 3).await, ["21", "24", "27"]);
    assert_eq!(texts(Some("often"), 2).await, ["28", "29"]);
    assert_eq!(texts(None, 0).await, Vec::<String>::new());
    assert_eq!(texts(None, 30).await.len(), 30);
    assert_eq!(texts(Some("rare"), 1_000_000).await.len(), 10);
}

pub async fn ten_thousand_entries_are_kept_and_not_many_more(fixture: impl BackendFixture) {
    const PER_CHANGE: usize = 60;
    let store = Handle::of(&fixture).await;
    let entries = |change: usize| {
        (0..PER_CHANGE).map(move |n| entry("job", &(change * PER_CHANGE + n).to_string())).collect()
    };
    let changes: Vec<Change> = (0..220).map(|n| with(n as u128, entries(n))).collect();
    let total = changes.len() * PER_CHANGE;
    for some in changes.chunks(20) {
        store.apply_all(some).await;
    }

    let shown = store.past().await;

    assert!((10_000..=12_000).contains(&shown.len()), "{} of {total} entries are left", shown.len());
    let newest: Vec<String> = (total - shown.len()..total).map(|n| n.to_string()).collect();
    assert!(shown == newest, "the newest are kept, in order");
    assert!(store.history(Some(&name("job")), total).await.len() >= 10_000);
}

pub async fn hostile_text_in_the_history_comes_back_as_it_was(fixture: impl BackendFixture) {
    let store = Handle::of(&fixture).await;
    let long = HOSTILE.repeat(20);
    let texts = ["", " ", "\n", "{}", "null", "\\", "\t\u{1}\u{7f}\u{85}", HOSTILE, &long];
    let entries = texts.map(|text| entry(HOSTILE_NAME, text)).to_vec();

    store.apply(&Change { history: entries, ..write(version(), "text", &[(&Key::Meta, NONE)]) }).await;

    assert_eq!(store.past().await, texts);
}
