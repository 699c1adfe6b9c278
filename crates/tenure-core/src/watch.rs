//! What a worker has seen of the store's clock, and up to which store time it can vouch: `judged_by`.
//!
//! The store's clock may step forward. Whoever watched it before the step knows better how much time has
//! gone by, and its judgement of another's death is held back to that. The watch belongs to the worker and
//! outlives its leases.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::moment::{Moment, StoreTime};
use crate::planted::{Bug, Planted};

/// Answers closer together than this part of `longest` are kept as one: their least.
const FINENESS: u32 = 32;
/// So many are kept at the most; beyond it, answers are kept as one however far apart.
const MOST: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Watch {
    /// In order of arrival: those of the last `longest`, and the one before them.
    seen: VecDeque<Seen>,
    /// Since when the watch has had no gap of a `longest` or more.
    watching_since: Option<Moment>,
    /// For how long answers were kept until now.
    longest: Duration,
    planted: Planted,
}

/// One answer, or several that came close together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seen {
    first_at: Moment,
    last_at: Moment,
    /// When the last one was asked for. What it says of the store's clock may be as old as that.
    asked_at: Moment,
    /// The store's clock less the worker's, on either clock; the least of the answers.
    ahead_of_boot: i64,
    ahead_of_raw: i64,
    slow: bool,
}

/// By how much the store's clock is ahead of the worker's, on either clock: the least that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Vouch {
    ahead_of_boot: i64,
    ahead_of_raw: i64,
}

impl Vouch {
    /// What both of them vouch for.
    pub(crate) fn least(self, other: Self) -> Self {
        Self {
            ahead_of_boot: self.ahead_of_boot.min(other.ahead_of_boot),
            ahead_of_raw: self.ahead_of_raw.min(other.ahead_of_raw),
        }
    }

    /// The latest store time that it vouches for at this moment.
    pub(crate) fn at(&self, now: Moment) -> StoreTime {
        let by_boot = self.ahead_of_boot.saturating_add_unsigned(now.boot_micros());
        let by_raw = self.ahead_of_raw.saturating_add_unsigned(now.raw_micros());
        StoreTime::from_micros(u64::try_from(by_boot.min(by_raw)).unwrap_or(0))
    }
}

impl Seen {
    /// Whether there is no gap of a `longest` or more between what this one saw and what the next did.
    fn leads_to(&self, next: &Self, longest: Duration) -> bool {
        next.first_at.longest_since(self.asked_at) < longest
    }

    fn is_beside(&self, later: &Self, close: Duration) -> bool {
        self.slow == later.slow && later.last_at.longest_since(self.first_at) < close
    }
}

impl Watch {
    pub(crate) fn new(planted: Planted) -> Self {
        Self { seen: VecDeque::new(), watching_since: None, longest: Duration::ZERO, planted }
    }

    /// Takes note of an answer that came `now`, was asked for at `asked_at`, and was stamped with `store`.
    pub(crate) fn note(
        &mut self,
        now: Moment,
        asked_at: Moment,
        store: StoreTime,
        ttl: Duration,
        longest: Duration,
    ) {
        let answer = Seen {
            first_at: now,
            last_at: now,
            asked_at,
            ahead_of_boot: difference(store, now.boot_micros()),
            ahead_of_raw: difference(store, now.raw_micros()),
            slow: now.longest_since(asked_at) > slow(ttl),
        };
        if self.seen.back().is_none_or(|last| !last.leads_to(&answer, longest)) {
            self.watching_since = Some(now);
        } else if longest > self.longest {
            // What was seen before the answers that are kept is forgotten: it does not count for a longer lease.
            // Neither does what was before a gap among them.
            if let (Some(first), Some(since)) = (self.seen.front(), self.watching_since)
                && first.first_at.has_surely_reached(since)
            {
                self.watching_since = Some(first.first_at);
            }
        }
        self.longest = longest;
        let full = self.seen.len() >= MOST;
        match self.seen.back_mut() {
            Some(last) if full || last.is_beside(&answer, longest / FINENESS) => {
                (last.last_at, last.asked_at) = (now, asked_at);
                last.ahead_of_boot = last.ahead_of_boot.min(answer.ahead_of_boot);
                last.ahead_of_raw = last.ahead_of_raw.min(answer.ahead_of_raw);
            }
            _ => self.seen.push_back(answer),
        }
        while self.seen.get(1).is_some_and(|second| now.shortest_since(second.last_at) > longest) {
            self.seen.pop_front();
        }
    }

    /// The latest store time that the worker can vouch for `now`; nothing on first contact.
    pub(crate) fn judged_by(&self, now: Moment, longest: Duration) -> Option<StoreTime> {
        self.vouch(longest).map(|vouch| vouch.at(now))
    }

    /// What the worker can vouch for, from now on; nothing on first contact.
    ///
    /// A slow answer would hold the judgement back by what it took, so it is left out, but only where a quick
    /// one before it, without a gap in between, saw the same: else the last look before a step could be
    /// among the slow ones.
    pub(crate) fn vouch(&self, longest: Duration) -> Option<Vouch> {
        let forgetful = self.planted.has(Bug::SlowAnswersForgotten);
        let mut quick = forgetful && self.seen.iter().any(|seen| !seen.slow);
        let mut before: Option<&Seen> = None;
        let mut least: Option<Vouch> = None;
        for seen in &self.seen {
            quick &= before.is_none_or(|before| before.leads_to(seen, longest)) || forgetful;
            before = Some(seen);
            if seen.slow && quick {
                continue;
            }
            quick |= !seen.slow;
            let vouch = Vouch { ahead_of_boot: seen.ahead_of_boot, ahead_of_raw: seen.ahead_of_raw };
            least = Some(least.map_or(vouch, |least: Vouch| least.least(vouch)));
        }
        least
    }

    /// How long a newcomer has to watch still before it has watched for one `longest`.
    pub(crate) fn still_to_watch(&self, now: Moment, longest: Duration) -> Option<Duration> {
        let since = self.watching_since?;
        let until = since + longest;
        (!now.has_surely_reached(until)).then(|| now.surely_until(until))
    }
}

/// An answer that takes longer is a slow one.
pub(crate) fn slow(ttl: Duration) -> Duration {
    ttl / 20
}

fn difference(store: StoreTime, own: u64) -> i64 {
    let clamp = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
    clamp(store.as_micros()).saturating_sub(clamp(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const QUICK: Duration = Duration::from_millis(1);
    const SLOW: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Moment {
        Moment::new(Duration::from_secs(seconds), Duration::from_secs(seconds))
    }

    fn before(now: Moment, span: Duration) -> Moment {
        let earlier = |micros: u64| Duration::from_micros(micros).saturating_sub(span);
        Moment::new(earlier(now.boot_micros()), earlier(now.raw_micros()))
    }

    fn store(seconds: u64) -> StoreTime {
        StoreTime::from_micros(seconds * 1_000_000)
    }

    fn watch(answers: &[(u64, Duration, u64)]) -> Watch {
        let mut watch = Watch::new(Planted::default());
        for (now, took, stamp) in answers {
            watch.note(at(*now), before(at(*now), *took), store(*stamp), TTL, TTL);
        }
        watch
    }

    #[test]
    fn when_the_longest_ttl_grows_only_what_is_remembered_counts_as_watched() {
        let mut watch = Watch::new(Planted::default());
        for now in 0..100 {
            watch.note(at(now), before(at(now), QUICK), store(now), TTL, TTL);
        }
        assert_eq!(watch.still_to_watch(at(99), TTL), None);

        watch.note(at(100), before(at(100), QUICK), store(100), TTL, TTL * 6);

        let left = watch.still_to_watch(at(100), TTL * 6).expect("it has forgotten what was long ago");
        assert!(left > TTL * 4, "{left:?}");
    }

    #[test]
    fn what_was_seen_before_a_gap_does_not_count_when_the_longest_ttl_grows() {
        let mut watch = watch(&[(0, QUICK, 1000), (30, QUICK, 1030)]);
        assert_eq!(watch.still_to_watch(at(30), TTL), Some(TTL));

        watch.note(at(31), before(at(31), QUICK), store(1031), TTL, TTL * 2);

        assert_eq!(watch.still_to_watch(at(31), TTL * 2), Some(TTL * 2 - Duration::from_secs(1)));
    }

    #[test]
    fn on_first_contact_nothing_is_vouched_for() {
        assert_eq!(watch(&[]).judged_by(at(5), TTL), None);
    }

    #[test]
    fn a_step_forward_is_not_believed_by_those_who_watched_before_it() {
        let watch = watch(&[(0, QUICK, 1000), (3, QUICK, 1003), (6, QUICK, 1066)]);

        assert_eq!(watch.judged_by(at(7), TTL), Some(store(1007)));
    }

    #[test]
    fn a_step_forward_is_believed_once_all_have_seen_it_for_longer_than_the_longest_lease() {
        let watch = watch(&[
            (0, QUICK, 1000),
            (3, QUICK, 1063),
            (6, QUICK, 1066),
            (9, QUICK, 1069),
            (14, QUICK, 1074),
            (18, QUICK, 1078),
        ]);

        assert_eq!(watch.judged_by(at(19), TTL), Some(store(1079)));
    }

    #[test]
    fn one_answer_from_before_the_window_is_kept() {
        let watch = watch(&[(0, QUICK, 1000), (100, QUICK, 1160)]);

        assert_eq!(watch.judged_by(at(101), TTL), Some(store(1101)));
    }

    #[test]
    fn a_slow_answer_after_a_quick_one_does_not_hold_the_judgement_back() {
        let watch = watch(&[(0, QUICK, 1000), (3, SLOW, 1002), (6, QUICK, 1006)]);

        assert_eq!(watch.judged_by(at(7), TTL), Some(store(1007)));
    }

    #[test]
    fn a_slow_answer_before_the_first_quick_one_counts() {
        let watch = watch(&[(0, SLOW, 999), (3, QUICK, 1063)]);

        assert_eq!(watch.judged_by(at(4), TTL), Some(store(1003)));
    }

    #[test]
    fn a_quick_answer_from_before_a_gap_does_not_stand_for_a_slow_one_after_it() {
        // The clock went back by 60 s in the gap, and forward again after the slow answer.
        let watch = watch(&[(0, QUICK, 1000), (15, SLOW, 955), (20, QUICK, 1020)]);

        assert_eq!(watch.judged_by(at(21), TTL), Some(store(961)));
    }

    #[test]
    fn time_asleep_is_not_vouched_for() {
        let watch = watch(&[(0, QUICK, 1000)]);
        let after_suspend = Moment::new(Duration::from_secs(60), Duration::from_secs(1));

        assert_eq!(watch.judged_by(after_suspend, TTL), Some(store(1001)));
    }

    #[test]
    fn a_newcomer_watches_for_one_longest_and_a_gap_begins_it_anew() {
        let mut watch = watch(&[(0, QUICK, 1000), (6, QUICK, 1006)]);

        assert_eq!(watch.still_to_watch(at(7), TTL), Some(Duration::from_secs(3)));
        assert_eq!(watch.still_to_watch(at(10), TTL), None);
        watch.note(at(20), before(at(20), QUICK), store(1020), TTL, TTL);
        assert_eq!(watch.still_to_watch(at(20), TTL), Some(TTL));
    }

    #[test]
    fn an_answer_that_took_long_closes_no_gap() {
        // It came in time, but what it says is from before the gap.
        let long = Duration::from_secs(9);
        let watch = watch(&[(10, QUICK, 1010), (20, long, 1011), (29, QUICK, 1029)]);

        assert_eq!(watch.still_to_watch(at(30), TTL), Some(Duration::from_secs(9)));
    }

    #[test]
    fn many_answers_cost_little_memory() {
        let mut watch = Watch::new(Planted::default());
        for n in 0..100_000u64 {
            let now = Moment::new(Duration::from_millis(n), Duration::from_millis(n));
            let took = if n.is_multiple_of(2) { QUICK } else { SLOW };
            watch.note(now, before(now, took), store(1000), TTL, TTL);
        }

        assert!(watch.seen.len() <= MOST, "{}", watch.seen.len());
    }
}
