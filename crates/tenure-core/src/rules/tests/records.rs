//! One record as a process sees it: which times count, what a later version changes, and what a worker was told.

use super::super::records::{is_told, notify};
use super::*;
use crate::moment::Moment;
use crate::names::ResourceName;

fn time(seconds: u64) -> StoreTime {
    StoreTime::from_micros(seconds * 1_000_000)
}

fn moment(seconds: u64) -> Moment {
    Moment::new(Duration::from_secs(seconds), Duration::from_secs(seconds))
}

fn lease(seq: u64, renewed: Time) -> Lease {
    Lease {
        ttl: TTL,
        label: Label::new("a").unwrap(),
        opened: Some(time(0)),
        renewed,
        seq: Seq(seq),
        mark: 0,
        notices: vec![],
        more_notices: false,
        ended: None,
        rest: Rest::new(),
    }
}

fn resource(frees: u64) -> Resource {
    Resource { frees, ..Resource::new(1, SetBy { opened: None, lease: A }) }
}

/// The record at this revision, as it arrives at `at` in the answer to a request when the store's clock shows `now`.
fn arrived(revision: u64, value: impl Into<Value>, at: u64, now: Option<StoreTime>) -> Record {
    let (asked, arrived) = (Some(Order(at * 2)), Order(at * 2 + 1));
    let at = moment(at);
    let found = Found {
        key: Key::Lease(A),
        version: Version(revision),
        revision,
        stamp: now,
        value: Some(value.into()),
    };
    Record::arrived(found, Seen { asked, arrived, first_at: at, at, now, turned_back: None, marked_at: at })
}

#[test]
fn only_a_renewal_or_a_freed_ticket_is_seen_anew() {
    let renewals: [Value; 3] = [lease(1, None).into(), lease(1, None).into(), lease(2, None).into()];
    let frees: [Value; 3] = [resource(1).into(), resource(1).into(), resource(2).into()];
    for [first, same, other] in [renewals, frees] {
        let first = arrived(1, first, 1, None);

        let same = arrived(2, same, 5, None).after(Some(&first)).unwrap();
        assert_eq!((same.seen.marked_at, same.seen.first_at), (moment(1), moment(5)), "{same:?}");

        let other = arrived(3, other, 6, None).after(Some(&same)).unwrap();
        assert_eq!(other.seen.marked_at, moment(6), "{other:?}");
    }
}

#[test]
fn a_hint_with_the_version_that_was_read_does_not_hide_that_it_was_read() {
    let known = arrived(1, lease(1, None), 1, None);
    let mut told = arrived(1, lease(1, None), 5, None);
    told.seen.asked = None;

    assert_eq!(told.after(Some(&known)).unwrap().seen.asked, known.seen.asked);
}

#[test]
fn a_time_counts_as_turned_back_only_if_it_lies_after_the_clock() {
    let renewed = Some(time(9));
    for (now, turned_back) in [(8, Some((time(8), moment(1)))), (9, None), (10, None)] {
        let record = arrived(1, lease(1, renewed), 1, Some(time(now)));
        assert_eq!(record.seen.turned_back, turned_back, "{now}");
    }
    for (now, turned_back) in [(8, Some((time(8), moment(2)))), (9, None)] {
        let mut record = arrived(1, lease(1, renewed), 1, Some(time(10)));
        record.turn_back(moment(2), time(now));
        assert_eq!(record.seen.turned_back, turned_back, "{now}");
        assert_eq!((record.seen.at, record.seen.now), (moment(2), Some(time(now))));
    }
}

#[test]
fn a_version_that_is_seen_again_keeps_the_lowest_time_and_when_it_was_seen_first() {
    let (renewed, known) = (Some(time(60)), 20);
    for (now, kept, since) in [(10, 10, 2), (20, 20, 1), (30, 20, 1)] {
        let known = arrived(1, lease(1, renewed), 1, Some(time(known)));

        let again = arrived(1, lease(1, renewed), 2, Some(time(now))).after(Some(&known)).unwrap();

        assert_eq!(again.lease().unwrap().renewed, Some(time(kept)), "{now}");
        assert_eq!(again.seen.turned_back, Some((time(kept), moment(since))), "{now}");
        assert_eq!(
            (again.seen.first_at, again.seen.marked_at, again.seen.at),
            (moment(1), moment(1), moment(2))
        );
    }
}

#[test]
fn a_lease_that_was_ended_after_it_ran_out_ended_when_it_ran_out() {
    for (ended_at, counts) in [(10, 10), (30, 15)] {
        let ended = Some(Ended { at: Some(time(ended_at)), why: Closing::Expired, clean: false });
        let record = arrived(1, Lease { ended, ..lease(1, Some(time(0))) }, 1, Some(time(60)));
        assert_eq!(record.lease().unwrap().ended.unwrap().at, Some(time(counts)));
    }
}

#[test]
fn a_notice_gives_way_only_to_a_stronger_one_or_to_one_about_a_later_ownership() {
    let r = name();
    for (token, wish, stands) in [
        (4, Wish::Evicted, (5, Wish::Asked)),
        (5, Wish::Lowered, (5, Wish::Asked)),
        (5, Wish::Evicted, (5, Wish::Evicted)),
        (6, Wish::Lowered, (6, Wish::Lowered)),
    ] {
        let mut lease = lease(1, None);
        notify(&mut lease, &r, Token(5), Wish::Asked);
        notify(&mut lease, &r, Token(token), wish);

        let notices: Vec<_> = lease.notices.iter().map(|notice| (notice.token.0, notice.wish)).collect();
        assert_eq!(notices, [stands], "{token} {wish:?}");
        assert!(is_told(&lease, &r, Token(token), wish), "{token} {wish:?}");
        assert!(!is_told(&lease, &r, Token(9), wish), "{token} {wish:?}");
        assert!(!is_told(&lease, &ResourceName::new("another").unwrap(), Token(1), wish));
    }
}

#[test]
fn unknown_fields_are_kept_and_no_field_is_none() {
    let none: Rest = [].into_iter().collect();
    assert_eq!(none, Rest::new());

    let one: Rest = [("new".to_string(), "1".into())].into_iter().collect();
    assert_eq!(one.iter().map(|(name, text)| (name.as_str(), &**text)).collect::<Vec<_>>(), [("new", "1")]);
}
