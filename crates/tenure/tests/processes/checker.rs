//! Judges the books of all workers of one resource, apart from the workers and from the library.
//!
//! What a book proves is that its worker held from the begin of an ownership to the last line that says so. Real
//! ownerships last longer; so whatever overlaps here did overlap.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use testkit::metronome::Lateness;

use super::book::{Line, Micros};

/// A hand-over is a few steps, and each may be as late as the machine.
pub(crate) const STEPS: u32 = 10;

/// An ownership, as far as its worker could write of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) worker: String,
    pub(crate) ticket: u32,
    pub(crate) term: u64,
    pub(crate) token: u64,
    pub(crate) first: Micros,
    pub(crate) last: Micros,
}

/// A grant, as the store's history tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) worker: String,
    pub(crate) ticket: u32,
    pub(crate) term: u64,
    pub(crate) token: u64,
}

/// What the books are held against.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) tickets: u32,
    /// All grants of the resource, in the order of the store.
    pub(crate) grants: Vec<Granted>,
    /// Workers that were ended, and so may have won without writing it down.
    pub(crate) ended: BTreeSet<String>,
    /// How long a ticket may be without an owner while others wait.
    pub(crate) within: Duration,
    /// And by how much the machine itself was late meanwhile.
    pub(crate) late: Lateness,
}

/// What must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Two held one ticket at once.
    SameTicket(Interval, Interval),
    /// More than K held at this time.
    Crowd(Micros, Vec<Interval>),
    /// The next ownership of a ticket has not a larger token and term.
    Backwards(Interval, Interval),
    /// The next grant of the resource has not the next term and a larger token.
    Numbers(Granted, Granted),
    /// Somebody held what was never granted to it.
    NotGranted(Interval),
    /// Somebody won, lives, and never started.
    NeverStarted(Granted),
    /// A ticket was without an owner for too long.
    Late(Duration, Interval, Interval),
    /// A worker started twice without a cleanup in between, or cleaned up without a start.
    Untidy(String, Line),
}

/// What the books say, if they are in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) intervals: usize,
    /// After which ownership, for how long its ticket had no owner.
    pub(crate) gaps: BTreeMap<u64, Duration>,
}

/// Judges all books, by the names of their workers.
pub(crate) fn check(books: &BTreeMap<String, Vec<Line>>, rules: &Rules) -> Result<Findings, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut intervals = Vec::new();
    let mut started = BTreeSet::new();
    for (worker, lines) in books {
        intervals.extend(intervals_of(worker, lines));
        faults.extend(untidy(worker, lines));
        started.extend(lines.iter().filter_map(|line| match line {
            Line::Begin { token, .. } | Line::End { token, .. } => Some(*token),
            Line::Held { .. } | Line::Cleanup { .. } => None,
        }));
    }
    intervals.sort_by_key(|interval| interval.first);
    let mut findings = Findings { intervals: intervals.len(), ..Findings::default() };

    faults.extend(crowds(&intervals, rules.tickets));
    for ticket in 0..rules.tickets {
        let owners: Vec<&Interval> = intervals.iter().filter(|interval| interval.ticket == ticket).collect();
        for (before, after) in owners.iter().zip(owners.iter().skip(1)) {
            if after.first <= before.last {
                faults.push(Fault::SameTicket((*before).clone(), (*after).clone()));
            }
            if after.token <= before.token || after.term <= before.term {
                faults.push(Fault::Backwards((*before).clone(), (*after).clone()));
            }
            let gap = Duration::from_micros(after.first.saturating_sub(before.last));
            if gap > rules.within + rules.late.within(before.last, after.first) * STEPS {
                faults.push(Fault::Late(gap, (*before).clone(), (*after).clone()));
            }
            findings.gaps.insert(before.token, gap);
        }
    }
    faults.extend(misnumbered(&rules.grants));
    let of_store: BTreeSet<_> =
        rules.grants.iter().map(|g| (g.worker.as_str(), g.ticket, g.term, g.token)).collect();
    let unknown =
        |own: &&Interval| !of_store.contains(&(own.worker.as_str(), own.ticket, own.term, own.token));
    faults.extend(intervals.iter().filter(unknown).cloned().map(Fault::NotGranted));
    let idle = |grant: &&Granted| !started.contains(&grant.token) && !rules.ended.contains(&grant.worker);
    faults.extend(rules.grants.iter().filter(idle).cloned().map(Fault::NeverStarted));
    if faults.is_empty() { Ok(findings) } else { Err(faults) }
}

fn intervals_of(worker: &str, lines: &[Line]) -> Vec<Interval> {
    let mut intervals: Vec<Interval> = Vec::new();
    for line in lines {
        match *line {
            Line::Begin { at, ticket, term, token } => {
                let worker = worker.to_owned();
                intervals.push(Interval { worker, ticket, term, token, first: at, last: at });
            }
            Line::Held { at, token } => {
                let own = intervals.iter_mut().rfind(|interval| interval.token == token);
                let own = own.unwrap_or_else(|| panic!("{worker} held {token} and never began it"));
                own.last = own.last.max(at);
            }
            Line::End { .. } | Line::Cleanup { .. } => {}
        }
    }
    intervals
}

/// Starts and cleanups take turns.
fn untidy(worker: &str, lines: &[Line]) -> Option<Fault> {
    let mut works = None;
    for line in lines {
        works = match (*line, works) {
            (Line::Begin { token, .. } | Line::End { token, .. }, None) => Some(token),
            (Line::Held { token, .. } | Line::End { token, .. }, Some(under)) if token == under => works,
            (Line::Cleanup { .. }, Some(_)) => None,
            _ => return Some(Fault::Untidy(worker.to_owned(), *line)),
        };
    }
    None
}

/// Each time at which more than K hold, once.
fn crowds(intervals: &[Interval], tickets: u32) -> Vec<Fault> {
    let crowd = |own: &Interval| {
        let holds = |other: &&Interval| other.first <= own.first && own.first <= other.last;
        let owners: Vec<Interval> = intervals.iter().filter(holds).cloned().collect();
        (owners.len() > tickets as usize).then_some(Fault::Crowd(own.first, owners))
    };
    intervals.iter().filter_map(crowd).collect()
}

fn misnumbered(grants: &[Granted]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (before, after) in grants.iter().zip(grants.iter().skip(1)) {
        if after.term != before.term + 1 || after.token <= before.token {
            faults.push(Fault::Numbers(before.clone(), after.clone()));
        }
    }
    faults
}
