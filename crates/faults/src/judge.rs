//! Judges what the workers wrote down, apart from the workers and from the library. It knows times, tickets, tokens and
//! lists, and nothing of processes and stores.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use testkit::Micros;
use testkit::metronome::Lateness;

use crate::book::{How, Kind, Record};
use crate::list::Entry;

/// A hand-over is a few steps, and each may be as late as the machine.
const STEPS: u32 = 10;

/// More is never forgiven to a machine that has more to do than it can.
const LONGEST_STALL: Duration = Duration::from_secs(1);

/// A ticket: resource and number.
pub(crate) type Ticket = (u32, u32);

/// A record and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) worker: String,
    pub(crate) record: Record,
}

/// A grant, as the store's history tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) resource: u32,
    pub(crate) term: u64,
    pub(crate) token: u64,
}

/// One ownership, as far as it is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) worker: String,
    pub(crate) at: Ticket,
    pub(crate) term: u64,
    pub(crate) token: u64,
    pub(crate) first: Micros,
    /// It held at this time; where it was given up gently, its cleanup was not over before.
    pub(crate) last: Micros,
}

impl Interval {
    pub(crate) fn of(written: &Written) -> Option<Self> {
        let Record { kind, resource, ticket, term, token, began, last, ended, .. } = written.record;
        let last = match ended {
            Some((at, How::Gently)) => at.max(last),
            _ => last,
        };
        (kind == Kind::Ownership).then(|| Self {
            worker: written.worker.clone(),
            at: (resource, ticket),
            term,
            token,
            first: began,
            last,
        })
    }

    fn told(&self, zero: Micros) -> String {
        let since = |at: Micros| (at as f64 - zero as f64) / 1e6;
        let Self { worker, term, token, .. } = self;
        format!("{worker} (term {term}, token {token}) {:.4} to {:.4} s", since(self.first), since(self.last))
    }
}

/// A span in which vacancies are judged alike.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) from: Micros,
    pub(crate) to: Micros,
    /// When the store could be reached again, if it could not.
    pub(crate) healed: Option<Micros>,
    /// What is allowed from the end of an ownership, or from then, to the next beginning.
    pub(crate) bound: Duration,
    /// Tickets that may stay free: of resources that have fewer for a while.
    pub(crate) free: BTreeSet<Ticket>,
}

/// What is judged.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) written: &'a [Written],
    /// The tickets of each resource.
    pub(crate) tickets: &'a [u32],
    pub(crate) windows: &'a [Window],
    pub(crate) late: &'a Lateness,
    /// How much longer than it held the control takes each at its word.
    pub(crate) longer: Duration,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) ownerships: usize,
    pub(crate) overlaps: Vec<String>,
    pub(crate) regressions: Vec<String>,
    /// Vacancies that were too long.
    pub(crate) late: Vec<String>,
    /// The longest vacancy beside what was allowed.
    pub(crate) longest: Option<(Duration, Duration)>,
    /// What the control saw.
    pub(crate) control: usize,
    /// How many writes came late, and were refused by their token.
    pub(crate) refused: u64,
    /// How many the machine held up for longer than the margin.
    pub(crate) slow: u64,
}

/// Judges what was written in the windows.
pub(crate) fn judge(evidence: &Evidence<'_>) -> Verdict {
    let Some(zero) = evidence.windows.first().map(|window| window.from) else { return Verdict::default() };
    let mut intervals: Vec<Interval> = evidence.written.iter().filter_map(Interval::of).collect();
    intervals.retain(|interval| interval.last >= zero);
    intervals.sort_by_key(|interval| (interval.at, interval.first, interval.token));
    let mut verdict = Verdict {
        ownerships: intervals.iter().filter(|interval| interval.first >= zero).count(),
        control: overlaps(&stretched(&intervals, evidence.longer), evidence.tickets, zero).len(),
        overlaps: overlaps(&intervals, evidence.tickets, zero),
        regressions: regressions(&intervals, zero),
        refused: evidence.written.iter().map(|written| written.record.refused).sum(),
        slow: evidence.written.iter().map(|written| written.record.slow).sum(),
        ..Verdict::default()
    };
    for pair in intervals.windows(2).filter(|pair| pair[0].at == pair[1].at) {
        vacancy(&pair[0], &pair[1], evidence, zero, &mut verdict);
    }
    verdict
}

/// What a judge would see who takes each at its word for so much longer.
fn stretched(intervals: &[Interval], longer: Duration) -> Vec<Interval> {
    let longer = u64::try_from(longer.as_micros()).unwrap_or(u64::MAX);
    intervals.iter().map(|interval| Interval { last: interval.last + longer, ..interval.clone() }).collect()
}

/// Two with one ticket at once, and more than K at once.
fn overlaps(intervals: &[Interval], tickets: &[u32], zero: Micros) -> Vec<String> {
    let mut found = Vec::new();
    for pair in intervals.windows(2).filter(|pair| pair[0].at == pair[1].at) {
        let (one, other) = (&pair[0], &pair[1]);
        if other.first <= one.last {
            let (resource, ticket) = one.at;
            let span = (one.last.min(other.last) - other.first) as f64 / 1e3;
            let told = format!("{} and {}", one.told(zero), other.told(zero));
            found.push(format!("ticket {ticket} of r{resource:02} twice, for {span:.1} ms: {told}"));
        }
    }
    for (resource, most) in (0u32..).zip(tickets) {
        let of_it: Vec<&Interval> = intervals.iter().filter(|interval| interval.at.0 == resource).collect();
        for own in &of_it {
            let present: Vec<&Interval> = of_it
                .iter()
                .copied()
                .filter(|other| other.first <= own.first && own.first <= other.last)
                .collect();
            let distinct: BTreeSet<u32> = present.iter().map(|other| other.at.1).collect();
            // Told once, of the one that came last. Where one ticket is owned twice that has been told.
            let is_last = present.iter().all(|other| (other.first, other.at.1) <= (own.first, own.at.1));
            if is_last && distinct.len() > *most as usize {
                let count = present.len();
                found.push(format!("{count} own r{resource:02} when {} begins", own.told(zero)));
            }
        }
    }
    found
}

/// Tokens that do not rise from one ownership of a ticket to the next, or that two have.
fn regressions(intervals: &[Interval], zero: Micros) -> Vec<String> {
    let mut found = Vec::new();
    let mut seen: HashMap<(u32, u64), &Interval> = HashMap::new();
    for interval in intervals {
        if let Some(other) = seen.insert((interval.at.0, interval.token), interval) {
            found.push(format!("one token twice: {} and {}", other.told(zero), interval.told(zero)));
        }
    }
    for pair in intervals.windows(2).filter(|pair| pair[0].at == pair[1].at) {
        if pair[1].token < pair[0].token {
            found.push(format!("a token falls: {} and {}", pair[0].told(zero), pair[1].told(zero)));
        }
    }
    found
}

/// How long a ticket had no owner, and whether that was too long.
fn vacancy(one: &Interval, other: &Interval, evidence: &Evidence<'_>, zero: Micros, verdict: &mut Verdict) {
    let inside = |window: &&Window| window.from <= one.last && one.last < window.to;
    let Some(window) = evidence.windows.iter().find(inside) else { return };
    if window.free.contains(&one.at) || other.first <= one.last {
        return;
    }
    let from = window.healed.map_or(one.last, |healed| healed.max(one.last));
    let vacant = Duration::from_micros(other.first.saturating_sub(from));
    if verdict.longest.is_none_or(|(longest, bound)| {
        vacant.as_secs_f64() / window.bound.as_secs_f64() > longest.as_secs_f64() / bound.as_secs_f64()
    }) {
        verdict.longest = Some((vacant, window.bound));
    }
    let busy = evidence.late.within(from, other.first) * STEPS;
    let busy = busy.max(evidence.late.stalled(from, other.first)).min(LONGEST_STALL);
    if vacant > window.bound + busy {
        let (resource, ticket) = one.at;
        verdict.late.push(format!(
            "ticket {ticket} of r{resource:02} had no owner for {vacant:?}, and {:?} and {busy:?} of stall are allowed: {} \
             and {}",
            window.bound,
            one.told(zero),
            other.told(zero)
        ));
    }
}

/// By their tokens, the terms of one life of a store go up by one; what is owned was granted. (By time they would not: a
/// history that was written while the store's clock was set back is out of order.)
pub(crate) fn numbers(grants: &[Granted], since: &BTreeMap<u32, u64>, written: &[Written]) -> Vec<String> {
    let mut found = Vec::new();
    let mut before: BTreeMap<u32, &Granted> = BTreeMap::new();
    let mut known: HashSet<(u32, u64)> = HashSet::new();
    let is_new = |resource: u32, token: u64| since.get(&resource).is_none_or(|last| token > *last);
    let mut grants: Vec<&Granted> = grants.iter().collect();
    grants.sort_by_key(|grant| (grant.resource, grant.token));
    for grant in &grants {
        known.insert((grant.resource, grant.token));
        if let Some(last) = before.insert(grant.resource, grant)
            && is_new(grant.resource, grant.token)
            && (grant.term != last.term + 1 || grant.token <= last.token)
        {
            found.push(format!("after {last:?} came {grant:?}"));
        }
    }
    let oldest: BTreeMap<u32, u64> = grants.iter().rev().map(|grant| (grant.resource, grant.token)).collect();
    for Written { worker, record } in written {
        let is_recent = oldest.get(&record.resource).is_some_and(|oldest| record.token >= *oldest);
        let is_ours = record.kind == Kind::Ownership && is_new(record.resource, record.token) && is_recent;
        if is_ours && !known.contains(&(record.resource, record.token)) {
            found.push(format!(
                "{worker} owned r{:02} under a token that was never given: {}",
                record.resource, record.token
            ));
        }
    }
    found
}

/// Keeps count of which entries have been looked for.
#[derive(Debug, Default)]
pub(crate) struct Auditor {
    checked: HashMap<(Ticket, u64), u64>,
}

impl Auditor {
    /// The entries that were acknowledged and are in none of the lists: those of this round, and of the rounds before and
    /// after it, into which one may have been written just when the round changed. Those of the two that are over are
    /// `settled`; an entry in the third is looked for once more when that round is over.
    pub(crate) fn missing(
        &mut self,
        written: &[Written],
        lists: &HashMap<Ticket, Vec<Entry>>,
        settled: &HashMap<Ticket, Vec<Entry>>,
    ) -> Vec<String> {
        let set = |lists: &HashMap<Ticket, Vec<Entry>>| -> HashSet<(Ticket, Entry)> {
            lists.iter().flat_map(|(at, entries)| entries.iter().map(|entry| (*at, *entry))).collect()
        };
        let (all, settled) = (set(lists), set(settled));
        let mut missing = Vec::new();
        for Written { worker, record } in written {
            let (at, token) = ((record.resource, record.ticket), record.token);
            let checked = self.checked.entry((at, token)).or_default();
            for number in *checked + 1..=record.written {
                let entry = (at, Entry { token, number });
                if !all.contains(&entry) {
                    missing.push(format!(
                        "entry {number} of {worker} under token {token} of r{:02}, ticket {}",
                        at.0, at.1
                    ));
                }
                if settled.contains(&entry) || !all.contains(&entry) {
                    *checked = number;
                }
            }
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn owned(worker: &str, at: Ticket, term: u64, first: Micros, last: Micros) -> Written {
        let record = Record {
            kind: Kind::Ownership,
            resource: at.0,
            ticket: at.1,
            term,
            token: 1_000 + term,
            began: first,
            last,
            ended: None,
            written: 0,
            refused: 0,
            slow: 0,
        };
        Written { worker: worker.to_owned(), record }
    }

    fn judged(written: &[Written], tickets: &[u32]) -> Verdict {
        let window = Window { from: 0, to: Micros::MAX, healed: None, bound: SECOND, free: BTreeSet::new() };
        let (windows, late) = ([window], Lateness::default());
        judge(&Evidence { written, tickets, windows: &windows, late: &late, longer: SECOND })
    }

    #[test]
    fn what_is_in_order_is_not_complained_of_and_the_control_sees_something() {
        let verdict = judged(&[owned("a", (0, 0), 1, 100, 200), owned("b", (0, 0), 2, 201, 300)], &[1]);

        assert!(verdict.overlaps.is_empty() && verdict.regressions.is_empty() && verdict.late.is_empty());
        assert_eq!((verdict.ownerships, verdict.control), (2, 1));
        assert_eq!(verdict.longest, Some((Duration::from_micros(1), SECOND)));
    }

    #[test]
    fn two_with_one_ticket_are_found() {
        let verdict = judged(&[owned("a", (0, 0), 1, 100, 200), owned("b", (0, 0), 2, 200, 300)], &[1]);

        assert_eq!(verdict.overlaps.len(), 1, "{verdict:?}");
    }

    #[test]
    fn more_than_k_are_found_whatever_their_tickets() {
        let three = [0, 1, 2].map(|ticket| owned("a", (0, ticket), u64::from(ticket) + 1, 100, 200));

        assert!(judged(&three, &[3]).overlaps.is_empty());
        assert_eq!(judged(&three, &[2]).overlaps.len(), 1);
    }

    #[test]
    fn an_ownership_that_was_given_up_lasts_until_its_cleanup_is_over() {
        let mut first = owned("a", (0, 0), 1, 100, 200);
        let second = owned("b", (0, 0), 2, 250, 300);
        first.record.ended = Some((260, How::Lost));
        assert!(judged(&[first.clone(), second.clone()], &[1]).overlaps.is_empty());

        first.record.ended = Some((260, How::Gently));

        assert_eq!(judged(&[first, second], &[1]).overlaps.len(), 1);
    }

    #[test]
    fn tokens_that_fall_or_are_given_twice_are_found() {
        let falls = [owned("a", (0, 0), 2, 100, 200), owned("b", (0, 0), 1, 300, 400)];
        let twice = [owned("a", (0, 0), 1, 100, 200), owned("b", (0, 1), 1, 100, 200)];

        assert_eq!(judged(&falls, &[1]).regressions.len(), 1);
        assert_eq!(judged(&twice, &[2]).regressions.len(), 1);
    }

    #[test]
    fn a_vacancy_is_too_long_by_its_bound_and_counts_from_when_the_store_was_back() {
        let written = [owned("a", (0, 0), 1, 100, 200), owned("b", (0, 0), 2, 1_500_000, 1_600_000)];
        assert_eq!(judged(&written, &[1]).late.len(), 1);

        let window =
            Window { from: 0, to: Micros::MAX, healed: Some(600_000), bound: SECOND, free: BTreeSet::new() };
        let (windows, late) = ([window], Lateness::default());
        let evidence =
            Evidence { written: &written, tickets: &[1], windows: &windows, late: &late, longer: SECOND };
        assert!(judge(&evidence).late.is_empty());
    }

    #[test]
    fn terms_that_are_left_out_and_owners_that_nobody_elected_are_found() {
        let grant = |term| Granted { resource: 0, term, token: 1_000 + term };
        let since = BTreeMap::new();
        assert!(numbers(&[grant(1), grant(2)], &since, &[owned("a", (0, 0), 2, 0, 1)]).is_empty());

        assert_eq!(numbers(&[grant(1), grant(3)], &since, &[]).len(), 1);
        assert_eq!(numbers(&[grant(1), grant(2)], &since, &[owned("a", (0, 0), 3, 0, 1)]).len(), 1);
    }

    #[test]
    fn an_entry_that_is_in_no_list_is_missing_once() {
        let mut auditor = Auditor::default();
        let mut written = owned("a", (0, 0), 1, 100, 200);
        written.record.written = 3;
        let entry = |number| Entry { token: 1_001, number };
        let lists = HashMap::from([((0, 0), vec![entry(1), entry(3)])]);

        assert_eq!(auditor.missing(std::slice::from_ref(&written), &lists, &lists).len(), 1);
        assert_eq!(auditor.missing(&[written], &lists, &lists), Vec::<String>::new());
    }

    #[test]
    fn an_entry_of_a_round_that_is_not_over_is_looked_for_again() {
        let mut auditor = Auditor::default();
        let mut written = owned("a", (0, 0), 1, 100, 200);
        written.record.written = 1;
        let lists = HashMap::from([((0, 0), vec![Entry { token: 1_001, number: 1 }])]);
        let nothing = HashMap::new();
        assert_eq!(auditor.missing(std::slice::from_ref(&written), &lists, &nothing), Vec::<String>::new());

        assert_eq!(auditor.missing(&[written], &nothing, &nothing).len(), 1);
    }
}
