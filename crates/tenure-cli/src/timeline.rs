//! The history of a resource: who owned from when to when, when nobody did, how often the owner changed. Prints nothing.
//!
//! Points in time are spans before now: an ownership from 9s to 4s ago lasted 5s.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tenure::admin::{HistoryEvent, OwnerView, ResourceView};
use tenure::store::Entry;
use tenure::types::{FlapLimit, Grant, Label};

use crate::output::span;

/// How long after the end of a lease the next worker owns, beside one reply of the store.
pub(crate) const LATEST_SUCCESSION: Duration = Duration::from_millis(50);

/// All that is known of one resource, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timeline {
    pub(crate) stints: Vec<Stint>,
    /// When the last ownership ended that is too long ago to be shown.
    pub(crate) before: Option<Duration>,
}

/// One ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stint {
    pub(crate) worker: String,
    pub(crate) ticket: u32,
    pub(crate) term: u64,
    pub(crate) token: u64,
    /// How long ago; unknown if the store has forgotten it.
    pub(crate) began: Option<Duration>,
    pub(crate) ended: Option<(Duration, HistoryEvent)>,
}

impl Stint {
    pub(crate) fn until(&self) -> Duration {
        self.ended.map_or(Duration::ZERO, |(ago, _)| ago)
    }

    /// For how long, as far as that is known.
    pub(crate) fn lasted(&self) -> Option<Duration> {
        self.began.map(|began| began.saturating_sub(self.until()))
    }
}

/// A span in which nobody owned any ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vacancy {
    /// How long ago it began.
    pub(crate) began: Duration,
    /// How long ago it ended, if it has.
    pub(crate) ended: Option<Duration>,
}

impl Vacancy {
    pub(crate) fn lasted(&self) -> Duration {
        self.began.saturating_sub(self.ended.unwrap_or_default())
    }
}

/// A ticket changed its owner too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flaps {
    pub(crate) changes: usize,
    pub(crate) within: Duration,
}

impl fmt::Display for Flaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the owner changed {} times within {}", self.changes, span(self.within))
    }
}

/// The history of each resource. The present owners are added where the store has forgotten how they began.
pub(crate) fn timelines(entries: &[Entry], present: &[ResourceView]) -> BTreeMap<String, Timeline> {
    let mut all: BTreeMap<String, Timeline> = BTreeMap::new();
    for view in present {
        all.entry(view.resource.to_string()).or_default();
    }
    for entry in entries {
        let timeline = all.entry(entry.resource.to_string()).or_default();
        let stint = timeline.stint(entry.grant, &entry.worker);
        match entry.what {
            HistoryEvent::Granted => stint.began = Some(entry.ago),
            what => stint.ended = Some((entry.ago, what)),
        }
    }
    for view in present {
        let Some(timeline) = all.get_mut(view.resource.as_str()) else { continue };
        for owner in &view.owners {
            let stint = timeline.stint(owner.grant, &owner.worker);
            if stint.began.is_none() && stint.ended.is_none() {
                stint.began = Some(owner.owned_for);
            }
        }
    }
    all
}

impl Timeline {
    /// The previous owner of the ticket, why it went, and for how long the ticket was free, as far as is known.
    pub(crate) fn before(&self, owner: &OwnerView) -> Option<(&Stint, HistoryEvent, Duration)> {
        let grant = owner.grant;
        let earlier = |stint: &&Stint| stint.ticket == grant.ticket.0 && stint.token < grant.token.0;
        let (stint, (ended, why)) =
            self.stints.iter().rev().filter(earlier).find_map(|stint| Some((stint, stint.ended?)))?;
        // Both from the history: the view was read at another moment.
        let began = self.stints.iter().find(|stint| stint.token == grant.token.0);
        let began = began.and_then(|stint| stint.began).unwrap_or(owner.owned_for);
        Some((stint, why, ended.saturating_sub(began)))
    }

    /// Whether the ticket had an owner before.
    pub(crate) fn has_had(&self, grant: Grant) -> bool {
        self.stints.iter().any(|stint| stint.ticket == grant.ticket.0 && stint.token < grant.token.0)
    }

    /// The ownership under this token, which is added if it was not known yet.
    fn stint(&mut self, grant: Grant, worker: &Label) -> &mut Stint {
        let token = grant.token.0;
        let at = self.stints.binary_search_by_key(&token, |stint| stint.token).unwrap_or_else(|at| {
            let (worker, ticket, term) = (worker.to_string(), grant.ticket.0, grant.term.0);
            self.stints.insert(at, Stint { worker, ticket, term, token, began: None, ended: None });
            at
        });
        &mut self.stints[at]
    }

    /// Only what happened within this span until now. An ownership that began earlier keeps its beginning.
    pub(crate) fn within(mut self, since: Option<Duration>) -> Self {
        if let Some(since) = since {
            let (told, too_old): (Vec<Stint>, Vec<Stint>) =
                self.stints.into_iter().partition(|stint| stint.until() <= since);
            self.before = too_old.iter().map(Stint::until).min();
            self.stints = told;
        }
        self
    }

    /// The same, seen later by this span.
    pub(crate) fn older_by(mut self, span: Duration) -> Self {
        for stint in &mut self.stints {
            stint.began = stint.began.map(|ago| ago + span);
            stint.ended = stint.ended.map(|(ago, what)| (ago + span, what));
        }
        self.before = self.before.map(|ago| ago + span);
        self
    }

    /// How far back anything is known.
    pub(crate) fn reaches(&self) -> Duration {
        let began = self.stints.iter().map(|stint| stint.began.unwrap_or_else(|| stint.until()));
        began.chain(self.before).max().unwrap_or_default()
    }

    /// When nobody owned, oldest first, since the first known ownership. If the store forgot a beginning, the time before that
    /// end counts as owned.
    pub(crate) fn vacancies(&self) -> Vec<Vacancy> {
        let mut spans: Vec<(Duration, Duration)> = self
            .stints
            .iter()
            .map(|stint| (stint.began.unwrap_or_else(|| self.reaches()), stint.until()))
            .collect();
        spans.sort_by(|a, b| b.cmp(a));
        let (mut vacancies, mut owned_until) = (Vec::new(), self.before);
        for (began, until) in spans {
            match owned_until {
                Some(owned) if began < owned => vacancies.push(Vacancy { began: owned, ended: Some(began) }),
                _ => {}
            }
            owned_until = Some(owned_until.map_or(until, |owned: Duration| owned.min(until)));
        }
        if let Some(owned) = owned_until.filter(|owned| !owned.is_zero()) {
            vacancies.push(Vacancy { began: owned, ended: None });
        }
        vacancies
    }

    /// How long nobody owned, within the last `since` if that is given.
    pub(crate) fn vacant_for(&self, since: Option<Duration>) -> Duration {
        let cut = since.unwrap_or(Duration::MAX);
        let vacancies = self.vacancies().into_iter();
        vacancies.map(|one| Vacancy { began: one.began.min(cut), ..one }.lasted()).sum()
    }

    /// When each ticket changed its owner, oldest first. A new ownership of the same worker counts too, unless the worker had
    /// released the ticket or stepped down.
    pub(crate) fn changes(&self) -> BTreeMap<u32, Vec<Duration>> {
        let mut before: BTreeMap<u32, &Stint> = BTreeMap::new();
        let mut changes: BTreeMap<u32, Vec<Duration>> = BTreeMap::new();
        for stint in &self.stints {
            if let (Some(before), Some(began)) = (before.insert(stint.ticket, stint), stint.began) {
                let was_given_up =
                    matches!(before.ended, Some((_, HistoryEvent::Released | HistoryEvent::SteppedDown)));
                if before.worker != stint.worker || !was_given_up {
                    changes.entry(stint.ticket).or_default().push(began);
                }
            }
        }
        changes
    }

    /// Whether it ever flapped, as far as is known.
    pub(crate) fn flapping(&self) -> Option<Flaps> {
        self.flapping_within(Duration::MAX)
    }

    /// Whether it flaps now: the same, by the latest changes only.
    pub(crate) fn flapping_now(&self) -> Option<Flaps> {
        self.flapping_within(FlapLimit::default().within())
    }

    /// The most changes of one ticket, not longer ago than `since`, if the library calls that flapping.
    fn flapping_within(&self, since: Duration) -> Option<Flaps> {
        let limit = FlapLimit::default();
        let most = |mut changes: Vec<Duration>| {
            changes.retain(|ago| *ago <= since);
            let within = |first: usize| {
                let until = changes[first].saturating_sub(limit.within());
                changes[first..].iter().take_while(|ago| **ago >= until).count()
            };
            (0..changes.len()).map(within).max()
        };
        let changes = self.changes().into_values().filter_map(most).max()?;
        let is_too_many = changes > usize::try_from(limit.changes()).unwrap_or(usize::MAX);
        is_too_many.then_some(Flaps { changes, within: limit.within() })
    }

    /// Tickets that were ever owned.
    pub(crate) fn tickets(&self) -> Vec<u32> {
        let mut tickets: Vec<u32> = self.stints.iter().map(|stint| stint.ticket).collect();
        tickets.sort_unstable();
        tickets.dedup();
        tickets
    }

    /// Workers in the order of their first ownership.
    pub(crate) fn workers(&self) -> Vec<&str> {
        let mut workers: Vec<&str> = Vec::new();
        for stint in &self.stints {
            if !workers.contains(&stint.worker.as_str()) {
                workers.push(&stint.worker);
            }
        }
        workers
    }

    /// The last `span` in so many columns, oldest first: who owned the ticket for the longest part of each, as an
    /// index into `workers`, or nobody.
    pub(crate) fn bar(
        &self,
        ticket: u32,
        span: Duration,
        columns: usize,
        workers: &[&str],
    ) -> Vec<Option<usize>> {
        let slice = span.as_nanos() / (columns as u128).max(1);
        let at = |column: usize| span.as_nanos().saturating_sub(slice * column as u128);
        let of_ticket: Vec<&Stint> = self.stints.iter().filter(|stint| stint.ticket == ticket).collect();
        let column = |column: usize| {
            let (from, until) = (at(column), at(column + 1));
            let mut longest = (0, None);
            let mut owned = 0;
            for stint in &of_ticket {
                let began = stint.began.unwrap_or(Duration::MAX).as_nanos();
                let part = began.min(from).saturating_sub(stint.until().as_nanos().max(until));
                owned += part;
                if part > longest.0 {
                    longest = (part, workers.iter().position(|worker| *worker == stint.worker));
                }
            }
            let nobody = (from - until).saturating_sub(owned);
            if longest.0 >= nobody { longest.1 } else { None }
        };
        (0..columns).map(column).collect()
    }
}

/// The letter of a worker in a bar.
pub(crate) fn letter(worker: Option<usize>) -> char {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    match worker {
        None => '.',
        Some(number) => LETTERS.get(number).map_or('*', |letter| char::from(*letter)),
    }
}

/// Why an ownership ended: for programs, in a table, and in a sentence about the worker.
pub(crate) const fn ended(what: HistoryEvent) -> [&'static str; 3] {
    match what {
        HistoryEvent::Granted => ["granted", "began", "began it"],
        HistoryEvent::Released => ["released", "released", "released it"],
        HistoryEvent::Failed => ["failed", "its work failed", "gave it up because its work failed"],
        HistoryEvent::SteppedDown => ["stepped_down", "stepped down", "stepped down"],
        HistoryEvent::Expired => ["expired", "its lease ran out", "lost it: its lease ran out"],
        HistoryEvent::Died => ["died", "it died", "died, and its death was proved"],
        HistoryEvent::Evicted => ["evicted", "evicted", "was evicted by an operator"],
        _ => ["other", "ended", "lost it"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn stint(worker: &str, term: u64, began: u32, ended: Option<(u32, HistoryEvent)>) -> Stint {
        Stint {
            worker: worker.to_owned(),
            ticket: 0,
            term,
            token: term,
            began: Some(S * began),
            ended: ended.map(|(ago, what)| (S * ago, what)),
        }
    }

    fn of(stints: Vec<Stint>) -> Timeline {
        Timeline { stints, before: None }
    }

    #[test]
    fn nobody_owned_between_an_end_and_the_next_beginning_and_after_the_last_end() {
        let timeline = of(vec![
            stint("a", 1, 60, Some((40, HistoryEvent::Died))),
            stint("b", 2, 35, Some((10, HistoryEvent::Released))),
        ]);

        let gaps: Vec<(Duration, Option<Duration>)> =
            timeline.vacancies().iter().map(|one| (one.began, one.ended)).collect();
        assert_eq!(gaps, [(S * 40, Some(S * 35)), (S * 10, None)]);
        assert_eq!(timeline.vacant_for(None), S * 15);
        assert_eq!(timeline.vacant_for(Some(S * 38)), S * 13);
    }

    #[test]
    fn what_is_too_long_ago_to_be_told_still_began_a_vacancy() {
        let timeline = of(vec![stint("a", 1, 60, Some((40, HistoryEvent::Died))), stint("b", 2, 10, None)]);

        let late = timeline.clone().within(Some(S * 30));
        assert_eq!((late.stints.len(), late.vacant_for(Some(S * 30))), (1, S * 20));
        assert_eq!(late.vacancies(), [Vacancy { began: S * 40, ended: Some(S * 10) }]);

        let mut over = timeline;
        over.stints.pop();
        let over = over.within(Some(S * 30));
        assert_eq!((over.stints.len(), over.vacant_for(Some(S * 30))), (0, S * 30));
        assert_eq!(of(vec![]).within(Some(S)).vacancies(), []);
    }

    #[test]
    fn a_present_owner_whose_beginning_was_forgotten_is_told_of() {
        let owner = OwnerView {
            worker: Label::new("a").expect("a label"),
            metadata: tenure::types::Metadata::default(),
            grant: Grant {
                ticket: tenure::types::Ticket(0),
                term: tenure::types::Term(7),
                token: tenure::types::Token(70),
            },
            owned_for: S * 9,
            left: S,
        };
        let resource = tenure::types::ResourceName::new("job").expect("a name");
        let view =
            ResourceView { resource, tickets: 1, owners: vec![owner], waiters: vec![], withheld: None };

        let all = timelines(&[], &[view]);

        let job = &all["job"];
        assert_eq!((job.stints[0].began, job.stints[0].ended, job.vacancies()), (Some(S * 9), None, vec![]));
    }

    #[test]
    fn a_ticket_that_somebody_owns_meanwhile_leaves_no_vacancy() {
        let mut other = stint("b", 2, 50, None);
        other.ticket = 1;
        let timeline = of(vec![stint("a", 1, 60, Some((40, HistoryEvent::Died))), other]);

        assert_eq!(timeline.vacancies(), []);
        assert_eq!(timeline.tickets(), [0, 1]);
    }

    #[test]
    fn six_changes_within_ten_minutes_are_flapping_and_giving_up_to_oneself_is_no_change() {
        let run = |count: u64, step: u32, what: HistoryEvent, name: fn(u64) -> String| {
            let stints = (0..=count).map(|term| {
                let began = step * (count - term) as u32 + step;
                let mut one = stint("", term, began, Some((began - step, what)));
                one.worker = name(term);
                one
            });
            of(stints.collect()).flapping().map(|flaps| flaps.changes)
        };
        let other = |term: u64| format!("w{term}");
        let same = |_: u64| "w".to_owned();

        assert_eq!(run(6, 60, HistoryEvent::Released, other), Some(6));
        assert_eq!(run(6, 130, HistoryEvent::Released, other), None);
        assert_eq!(run(5, 1, HistoryEvent::Released, other), None);
        assert_eq!(run(9, 1, HistoryEvent::Released, same), None);
        assert_eq!(run(9, 1, HistoryEvent::Died, same), Some(9));
    }

    #[test]
    fn what_flapped_ten_minutes_ago_does_not_flap_now() {
        let changed_until = |last: u32| {
            let stints = (0..=6).map(|term| {
                let began = last + 6 - term;
                stint(&format!("w{term}"), u64::from(term), began, Some((began - 1, HistoryEvent::Released)))
            });
            of(stints.collect())
        };

        let (late, just, old) = (changed_until(1), changed_until(595), changed_until(596));

        assert_eq!(late.flapping_now(), Some(Flaps { changes: 6, within: S * 600 }));
        assert_eq!((just.flapping_now(), old.flapping_now()), (late.flapping(), None));
        assert_eq!(old.flapping(), late.flapping());
    }

    #[test]
    fn a_bar_shows_who_owned_for_the_longest_part_of_each_column() {
        let timeline = of(vec![stint("a", 1, 100, Some((60, HistoryEvent::Died))), stint("b", 2, 40, None)]);
        let workers = timeline.workers();

        let bar: String = timeline.bar(0, S * 100, 10, &workers).into_iter().map(letter).collect();

        assert_eq!(bar, "aaaa..bbbb");
        assert_eq!(timeline.bar(0, S * 100, 0, &workers), []);
        assert_eq!(timeline.bar(0, Duration::ZERO, 3, &workers).len(), 3);
    }

    #[test]
    fn a_beginning_that_the_store_forgot_is_unknown_and_leaves_no_vacancy() {
        let mut first = stint("a", 1, 60, Some((40, HistoryEvent::Died)));
        first.began = None;
        let timeline = of(vec![first, stint("b", 2, 40, None)]);

        assert_eq!((timeline.stints[0].lasted(), timeline.vacancies()), (None, vec![]));
        assert_eq!(timeline.clone().within(Some(S * 39)).stints.len(), 1);
    }
}
