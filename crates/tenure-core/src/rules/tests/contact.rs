//! What is written on the first contact with a store, or with another life of it.

use super::super::contact::{Arrival, Before, arrive};
use super::*;
use crate::moment::Moment;

const LIFE: Incarnation = Incarnation(2);
const EARLIER: Incarnation = Incarnation(1);
const VERSION: Version = Version(5);
const SECRET: u128 = 50;
/// What is drawn for what is new.
const DRAWN: (u128, u64) = (60, 6);

/// What a process writes that knows of a ttl of 15 s, in life 2.
fn written(meta: Option<Meta>, before: Option<Before>, lasts: bool, lost_nothing: bool) -> Option<Meta> {
    let (at, now) = (Moment::new(TTL, TTL), StoreTime::from_micros(9_000_000));
    let asked = Some(Order(1));
    let (arrived, turned_back) = (Order(2), None);
    let seen = Seen { asked, arrived, first_at: at, at, now: Some(now), turned_back, marked_at: at };
    let (key, stamp) = (Key::Meta, Some(now));
    let record = Record::arrived(
        Found { key, version: VERSION, revision: 1, stamp, value: meta.map(Value::from) },
        seen,
    );
    let (secret, mark) = DRAWN;
    let arrival = Arrival { before, known: TTL, lasts, lost_nothing, secret, mark };
    let change = arrive(&record, LIFE, &arrival)?;
    assert_eq!(change.expect, [(Key::Meta, VERSION)]);
    assert!(change.urgent, "nothing is decided before it");
    match change.put.into_iter().next() {
        Some((Key::Meta, Some(Value::Meta(meta)))) => Some(meta),
        other => panic!("{other:?}"),
    }
}

fn meta(life: Incarnation, longest: Duration, quarantine: Option<Quarantine>) -> Meta {
    Meta { life, longest, quarantine, floor: Token(3), secret: SECRET, rest: Rest::new() }
}

/// One that stands already.
fn standing(from: Incarnation) -> Option<Quarantine> {
    let since = Some(StoreTime::from_micros(8_000_000));
    Some(Quarantine { since, mark: 5, from: Some(from), rest: Rest::new() })
}

/// One that begins.
fn begun(from: Option<Incarnation>) -> Option<Quarantine> {
    Some(Quarantine { since: None, mark: DRAWN.1, from, rest: Rest::new() })
}

fn before(life: Incarnation, secret: Option<u128>, longest: Duration) -> Option<Before> {
    Some(Before { life, secret, longest })
}

#[test]
fn a_store_without_data_begins_with_a_quarantine() {
    for (before, longest, quarantine) in [
        (None, TTL, begun(None)),
        // The process knows of data in another life, or of others in this one.
        (before(EARLIER, None, TTL * 4), TTL * 4, begun(Some(EARLIER))),
        (before(LIFE, Some(SECRET), TTL * 4), TTL * 4, begun(Some(LIFE))),
        // It knows of none.
        (before(LIFE, None, TTL * 4), TTL, begun(None)),
    ] {
        let expected = Meta { secret: DRAWN.0, floor: Token(0), ..meta(LIFE, longest, quarantine) };
        assert_eq!(written(None, before, true, true), Some(expected), "{before:?}");
    }
}

#[test]
fn the_quarantine_of_a_new_namespace_ends_when_the_store_has_lost_nothing_and_no_other_does() {
    let other = Incarnation(9);
    for (found, before, lost_nothing, expected) in [
        (begun(None), None, true, Some(meta(LIFE, TTL, None))),
        (begun(None), None, false, None),
        (standing(other), None, true, None),
        (None, None, true, None),
        // The process knows of data in another life.
        (begun(None), before(EARLIER, None, TTL), true, Some(meta(LIFE, TTL, begun(Some(EARLIER))))),
    ] {
        let found = meta(LIFE, TTL, found);
        assert_eq!(
            written(Some(found.clone()), before, true, lost_nothing),
            expected,
            "{found:?}, {before:?}"
        );
    }
}

#[test]
fn another_life_of_a_store_begins_with_a_quarantine_for_the_longest_ttl_that_is_known() {
    let (unknown, nine) = (None, Incarnation(9));
    for (before, longest, from) in [
        (unknown, TTL * 2, EARLIER),
        (before(nine, Some(SECRET), TTL), TTL * 2, nine),
        (before(nine, Some(SECRET), TTL * 4), TTL * 4, nine),
    ] {
        let found = meta(EARLIER, TTL * 2, standing(Incarnation(0)));
        let expected = meta(LIFE, longest, begun(Some(from)));
        assert_eq!(written(Some(found), before, true, false), Some(expected), "{before:?}");
    }
}

#[test]
fn in_a_life_that_others_know_already_a_quarantine_begins_unless_one_that_is_long_enough_stands() {
    let known = |quarantine| Some(meta(LIFE, TTL * 2, quarantine));
    let brought = |longest| before(EARLIER, Some(SECRET), longest);
    let anew = |from| Some(meta(LIFE, TTL * 2, begun(Some(from))));
    for (found, before, lasts, expected) in [
        (known(None), None, true, None),
        (known(standing(EARLIER)), brought(TTL * 2), true, None),
        (known(standing(EARLIER)), brought(TTL * 2), false, anew(EARLIER)),
        (known(standing(Incarnation(9))), brought(TTL * 2), true, anew(EARLIER)),
        (known(None), brought(TTL * 2), true, anew(EARLIER)),
        // It stands, and lasts for longer.
        (known(standing(EARLIER)), brought(TTL * 4), true, Some(meta(LIFE, TTL * 4, standing(EARLIER)))),
        // The data are those that the process knew, or others.
        (known(None), before(LIFE, Some(SECRET), TTL), true, None),
        (known(None), before(LIFE, Some(SECRET + 1), TTL), true, anew(LIFE)),
    ] {
        assert_eq!(written(found.clone(), before, lasts, false), expected, "{found:?}, {before:?}, {lasts}");
    }
}
