//! Whether a resource changes its owner too often: each change costs a stop and a start, and something is wrong.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_core::{LimitError, Moment, Term};

/// How often a resource may change its owner before that is called flapping: so many times per ticket within a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlapLimit {
    changes: u32,
    within: Duration,
}

impl FlapLimit {
    /// More than five changes per ticket within ten minutes: a deployment that goes through a handful of workers is
    /// none.
    pub const USUAL: Self = Self { changes: 5, within: Duration::from_secs(600) };

    /// More than `changes` changes per ticket `within` this span are flapping.
    ///
    /// # Errors
    /// When `changes` is zero, or the span is.
    pub fn new(changes: u32, within: Duration) -> Result<Self, LimitError> {
        if changes == 0 {
            return Err(LimitError::new("number of changes", "0", "at least 1"));
        }
        if within.is_zero() {
            return Err(LimitError::new("span of changes", "0s", "longer than nothing"));
        }
        Ok(Self { changes, within })
    }

    /// How many changes per ticket are still as it should be.
    #[must_use]
    pub const fn changes(self) -> u32 {
        self.changes
    }

    /// In how long a time.
    #[must_use]
    pub const fn within(self) -> Duration {
        self.within
    }
}

impl Default for FlapLimit {
    fn default() -> Self {
        Self::USUAL
    }
}

/// How many ownerships are remembered at most, beside two.
const MOST_KEPT: u64 = 1000;

/// The terms under which a campaign came to own, as far back as they matter. A worker sees only its own, but the store
/// counts everybody's: what lies between two terms happened elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// The only one so far: most campaigns never have a second, and there may be thousands.
    first: Option<(Moment, Term)>,
    seen: VecDeque<(Moment, Term)>,
    told_at: Option<Moment>,
}

impl Terms {
    /// Notes an ownership. Says how many changes there were within the span, if that is too many; once per span.
    pub(crate) fn note(&mut self, now: Moment, term: Term, limit: FlapLimit, tickets: u32) -> Option<u64> {
        if self.first.is_none() && self.seen.is_empty() {
            self.first = Some((now, term));
            return None;
        }
        self.seen.extend(self.first.take());
        let is_old = |at: Moment| now.longest_since(at) > limit.within;
        while self.seen.front().is_some_and(|(at, _)| is_old(*at)) {
            self.seen.pop_front();
        }
        self.seen.push_back((now, term));
        let allowed = u64::from(limit.changes) * u64::from(tickets);
        // Of many in a short time the newest tell enough.
        while u64::try_from(self.seen.len()).is_ok_and(|count| count > allowed.min(MOST_KEPT) + 2) {
            self.seen.pop_front();
        }
        let (_, first) = self.seen.front()?;
        let changes = term.0.saturating_sub(first.0);
        if changes <= allowed || self.told_at.is_some_and(|at| !is_old(at)) {
            return None;
        }
        self.told_at = Some(now);
        Some(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::new(Duration::from_secs(seconds), Duration::from_secs(seconds))
    }

    fn limit() -> FlapLimit {
        FlapLimit::new(3, Duration::from_secs(60)).expect("a limit")
    }

    #[test]
    fn changes_up_to_the_limit_are_none_and_the_next_one_is_told_once_per_span() {
        let mut terms = Terms::default();

        for (second, term) in [(0, 1), (10, 2), (20, 3), (30, 4)] {
            assert_eq!(terms.note(at(second), Term(term), limit(), 1), None, "term {term}");
        }
        assert_eq!(terms.note(at(40), Term(5), limit(), 1), Some(4));
        assert_eq!(terms.note(at(50), Term(6), limit(), 1), None, "told already");
        assert_eq!(terms.note(at(101), Term(20), limit(), 1), Some(14));
    }

    #[test]
    fn changes_that_went_by_elsewhere_count() {
        let mut terms = Terms::default();

        assert_eq!(terms.note(at(0), Term(10), limit(), 1), None);
        assert_eq!(terms.note(at(30), Term(15), limit(), 1), Some(5));
    }

    #[test]
    fn what_lies_further_back_than_the_span_does_not_count() {
        let mut terms = Terms::default();

        for (second, term) in [(0, 1), (61, 5), (122, 9)] {
            assert_eq!(terms.note(at(second), Term(term), limit(), 1), None, "term {term}");
        }
    }

    #[test]
    fn every_ticket_may_change_as_often() {
        let mut terms = Terms::default();

        assert_eq!(terms.note(at(0), Term(1), limit(), 10), None);
        assert_eq!(terms.note(at(1), Term(31), limit(), 10), None);
        assert_eq!(terms.note(at(2), Term(32), limit(), 10), Some(31));
    }

    #[test]
    fn a_thousand_changes_take_no_more_memory_than_a_few() {
        let mut terms = Terms::default();

        for number in 0..1000 {
            terms.note(at(0), Term(number), limit(), 1);
        }

        assert!(terms.seen.len() <= 5, "{}", terms.seen.len());
    }

    #[test]
    fn a_limit_of_nothing_is_refused() {
        assert!(FlapLimit::new(0, Duration::from_secs(1)).is_err());
        assert!(FlapLimit::new(1, Duration::ZERO).is_err());
    }
}
