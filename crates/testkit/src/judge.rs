//! Judges the books of all workers of one resource, apart from the workers and from the library.
//!
//! What a book proves is that its worker held from the begin of an ownership to the last line that says so. Real
//! ownerships last longer; so whatever overlaps here did overlap.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use crate::Micros;
use crate::book::{Line, read};
use crate::metronome::Lateness;

#[cfg(test)]
mod tests;

/// A hand-over is a few steps, and each may be as late as the machine.
pub const STEPS: u32 = 10;

/// An ownership, as far as its worker could write of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Whose.
    pub worker: String,
    /// Which ticket.
    pub ticket: u32,
    /// Its term.
    pub term: u64,
    /// Its token.
    pub token: u64,
    /// When it held for the first time that is known.
    pub first: Micros,
    /// And for the last.
    pub last: Micros,
}

/// A grant, as the store's history tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// To whom.
    pub worker: String,
    /// Which ticket.
    pub ticket: u32,
    /// Its term.
    pub term: u64,
    /// Its token.
    pub token: u64,
}

/// What the books are held against.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How many tickets the resource has.
    pub tickets: u32,
    /// All grants of the resource, in the order of the store.
    pub grants: Vec<Granted>,
    /// Workers that were ended, and so may have won without writing it down.
    pub ended: BTreeSet<String>,
    /// How long a ticket may be without an owner while others wait.
    pub within: Duration,
    /// And by how much the machine itself was late meanwhile.
    pub late: Lateness,
}

/// What must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
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
pub struct Findings {
    /// How many ownerships there were.
    pub intervals: usize,
    /// After which ownership, for how long its ticket had no owner.
    pub gaps: BTreeMap<u64, Duration>,
}

/// The books of some workers, by their names.
pub type Books = BTreeMap<String, Vec<Line>>;

/// Reads the books of these workers.
#[must_use]
pub fn books<'a>(folder: &Path, names: impl IntoIterator<Item = &'a str>) -> Books {
    names.into_iter().map(|name| (name.to_owned(), read(folder, name))).collect()
}

/// All ownerships, in the order of their beginnings.
#[must_use]
pub fn intervals(books: &Books) -> Vec<Interval> {
    let mut intervals: Vec<Interval> =
        books.iter().flat_map(|(worker, lines)| intervals_of(worker, lines)).collect();
    intervals.sort_by_key(|interval| interval.first);
    intervals
}

/// What must not be, whatever became of the store: more than K at once, one ticket twice, a token that does not rise.
#[must_use]
pub fn overlaps(intervals: &[Interval], tickets: u32) -> Vec<Fault> {
    let mut faults = crowds(intervals, tickets);
    for (before, after) in successions(intervals) {
        if after.first <= before.last {
            faults.push(Fault::SameTicket(before.clone(), after.clone()));
        }
        if after.token <= before.token {
            faults.push(Fault::Backwards(before.clone(), after.clone()));
        }
    }
    faults
}

/// Judges all books against the store's history.
///
/// # Errors
/// What must not be.
pub fn check(books: &Books, rules: &Rules) -> Result<Findings, Vec<Fault>> {
    let intervals = intervals(books);
    let mut findings = Findings { intervals: intervals.len(), ..Findings::default() };
    let mut faults = overlaps(&intervals, rules.tickets);
    faults.extend(books.iter().filter_map(|(worker, lines)| untidy(worker, lines)));
    for (before, after) in successions(&intervals) {
        if after.term <= before.term && after.token > before.token {
            faults.push(Fault::Backwards(before.clone(), after.clone()));
        }
        let gap = Duration::from_micros(after.first.saturating_sub(before.last));
        if gap > rules.within + rules.late.within(before.last, after.first) * STEPS {
            faults.push(Fault::Late(gap, before.clone(), after.clone()));
        }
        findings.gaps.insert(before.token, gap);
    }
    faults.extend(misnumbered(&rules.grants));
    let of_store: BTreeSet<_> =
        rules.grants.iter().map(|g| (g.worker.as_str(), g.ticket, g.term, g.token)).collect();
    let unknown =
        |own: &&Interval| !of_store.contains(&(own.worker.as_str(), own.ticket, own.term, own.token));
    faults.extend(intervals.iter().filter(unknown).cloned().map(Fault::NotGranted));
    let started: BTreeSet<u64> = books.values().flatten().filter_map(started).collect();
    let idle = |grant: &&Granted| !started.contains(&grant.token) && !rules.ended.contains(&grant.worker);
    faults.extend(rules.grants.iter().filter(idle).cloned().map(Fault::NeverStarted));
    if faults.is_empty() { Ok(findings) } else { Err(faults) }
}

fn started(line: &Line) -> Option<u64> {
    match line {
        Line::Begin { token, .. } | Line::End { token, .. } => Some(*token),
        Line::Held { .. } | Line::Cleanup { .. } => None,
    }
}

/// Each ownership of a ticket, and the next one of the same ticket.
fn successions(intervals: &[Interval]) -> Vec<(&Interval, &Interval)> {
    let mut latest: BTreeMap<u32, &Interval> = BTreeMap::new();
    intervals.iter().filter_map(|own| Some((latest.insert(own.ticket, own)?, own))).collect()
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
