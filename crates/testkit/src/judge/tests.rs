//! A check that finds nothing proves nothing unless it finds something where there is something.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Fault, Granted, Rules, check};
use crate::Micros;
use crate::book::Line;
use crate::metronome::Lateness;

#[test]
fn books_in_order_have_no_fault() {
    let books = books(&[("a", owned(100, 200, 1)), ("b", owned(210, 300, 2))]);

    let findings = check(&books, &rules(1, &[("a", 1), ("b", 2)])).expect("no fault");

    assert_eq!(findings.intervals, 2);
    assert_eq!(findings.gaps[&token(1)], Duration::from_micros(10));
}

#[test]
fn two_on_one_ticket_at_once_are_found() {
    let books = books(&[("a", owned(100, 200, 1)), ("b", owned(200, 300, 2))]);

    let faults = check(&books, &rules(1, &[("a", 1), ("b", 2)])).expect_err("they overlap");

    assert!(
        matches!(&faults[..], [Fault::Crowd(200, who), Fault::SameTicket(..)] if who.len() == 2),
        "{faults:?}"
    );
}

#[test]
fn more_than_so_many_at_once_are_found_whatever_their_tickets() {
    let mut three = vec![("a", owned(100, 200, 1)), ("b", owned(110, 190, 2)), ("c", owned(150, 160, 3))];
    for (seat, (_, lines)) in three.iter_mut().enumerate() {
        if let Line::Begin { ticket, .. } = &mut lines[0] {
            *ticket = u32::try_from(seat).expect("few");
        }
    }
    let mut rules = rules(3, &[("a", 1), ("b", 2), ("c", 3)]);
    for (seat, grant) in rules.grants.iter_mut().enumerate() {
        grant.ticket = u32::try_from(seat).expect("few");
    }
    assert!(check(&books(&three), &rules).is_ok());

    rules.tickets = 2;

    let faults = check(&books(&three), &rules).expect_err("three of two");
    assert!(matches!(&faults[..], [Fault::Crowd(150, who)] if who.len() == 3), "{faults:?}");
}

#[test]
fn a_token_that_falls_is_found() {
    let books = books(&[("a", owned(100, 200, 2)), ("b", owned(300, 400, 1))]);

    let faults = check(&books, &rules(1, &[("a", 2), ("b", 1)])).expect_err("it falls");

    assert!(matches!(&faults[..], [Fault::Backwards(..), Fault::Numbers(..)]), "{faults:?}");
}

#[test]
fn a_term_that_is_left_out_is_found() {
    let books = books(&[("a", owned(100, 200, 1)), ("b", owned(300, 400, 3))]);

    let faults = check(&books, &rules(1, &[("a", 1), ("b", 3)])).expect_err("two is missing");

    assert!(matches!(&faults[..], [Fault::Numbers(before, _)] if before.term == 1), "{faults:?}");
}

#[test]
fn an_owner_that_nobody_elected_and_a_winner_that_never_started_are_found() {
    let books = books(&[("a", owned(100, 200, 1)), ("b", owned(300, 400, 2))]);
    let mut rules = rules(1, &[("a", 1), ("b", 2)]);
    let stranger = Granted { worker: "c".to_owned(), token: token(3), ..rules.grants.remove(1) };
    rules.grants.push(stranger);

    let faults = check(&books, &rules).expect_err("c was elected");
    assert!(
        matches!(&faults[..], [Fault::NotGranted(b), Fault::NeverStarted(c)] if b.worker == "b" && c.worker == "c"),
        "{faults:?}"
    );

    rules.ended.insert("c".to_owned());
    let faults = check(&books, &rules).expect_err("b was not elected");
    assert!(matches!(&faults[..], [Fault::NotGranted(_)]), "one that was killed may not have come to write");
}

#[test]
fn a_ticket_without_an_owner_for_too_long_is_found() {
    let books = books(&[("a", owned(100, 200, 1)), ("b", owned(1_000_201, 1_000_300, 2))]);

    let faults = check(&books, &rules(1, &[("a", 1), ("b", 2)])).expect_err("too late");

    assert!(matches!(&faults[..], [Fault::Late(gap, ..)] if *gap > Duration::from_secs(1)), "{faults:?}");
}

#[test]
fn a_start_without_a_cleanup_before_it_is_found() {
    let mut twice = owned(100, 200, 1);
    twice.retain(|line| !matches!(line, Line::Cleanup { .. }));
    twice.extend(owned(300, 400, 2));

    let faults = check(&books(&[("a", twice)]), &rules(1, &[("a", 1), ("a", 2)])).expect_err("no cleanup");

    assert!(matches!(&faults[..], [Fault::Untidy(..)]), "{faults:?}");
}

fn token(term: u64) -> u64 {
    1000 + term
}

fn owned(first: Micros, last: Micros, term: u64) -> Vec<Line> {
    let token = token(term);
    vec![
        Line::Begin { at: first, ticket: 0, term, token },
        Line::Held { at: last, token },
        Line::End { at: last + 1, token },
        Line::Cleanup { at: last + 2 },
    ]
}

fn books(books: &[(&str, Vec<Line>)]) -> BTreeMap<String, Vec<Line>> {
    books.iter().map(|(worker, lines)| ((*worker).to_owned(), lines.clone())).collect()
}

fn rules(tickets: u32, grants: &[(&str, u64)]) -> Rules {
    let granted = |(worker, term): &(&str, u64)| Granted {
        worker: (*worker).to_owned(),
        ticket: 0,
        term: *term,
        token: token(*term),
    };
    let grants = grants.iter().map(granted).collect();
    Rules {
        tickets,
        grants,
        ended: BTreeSet::new(),
        within: Duration::from_secs(1),
        late: Lateness::default(),
    }
}
