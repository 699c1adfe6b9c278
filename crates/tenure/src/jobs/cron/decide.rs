//! Which occurrence is to be begun now, which are left out, and when to look again. Pure: time comes in.

use std::time::Duration;

use super::schedule::{Schedule, Second};

/// What is done about occurrences that nobody began in time: no worker owned the job, the store was away, or the
/// occurrence before took too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misfire {
    /// They are left out: the next one that begins in time is begun. In time is within 5 s.
    Skip,
    /// The last of them is begun, however late; the others are left out.
    #[default]
    Once,
    /// Each is begun, one after the other, oldest first, if it is not older than this.
    All {
        /// What is older is left out.
        within: Duration,
    },
}

/// Within so much an occurrence is in time: a store that is asked twice, or a machine that is busy, is not late yet.
pub(super) const IN_TIME: i64 = 5;

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) next: Next,
    /// What is left out, whatever happens next: after what is claimed, up to the one that is begun or, if none is, up to now.
    pub(super) left_out: LeftOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is due.
    Begin(Second),
    /// Nothing is due before.
    Wait(Second),
    /// Nothing is ever due any more.
    Never,
}

/// Occurrences that are not begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Nobody could begin them in time.
    pub(super) missed: u64,
    /// The one before was still running.
    pub(super) skipped: u64,
}

/// Decides at `now`, when every occurrence up to `through` is claimed, and one was running until `busy_until`, if it was.
/// However long nobody looked, the work is bounded.
// req: E11
pub(super) fn decide(
    schedule: &Schedule,
    misfire: Misfire,
    through: Second,
    busy_until: Option<Second>,
    now: Second,
) -> Decision {
    let last = schedule.last(now).filter(|last| *last > through);
    let begin = last.and_then(|last| match misfire {
        Misfire::Skip => (now - last <= IN_TIME).then_some(last),
        Misfire::Once => Some(last),
        Misfire::All { within } => {
            let within = i64::try_from(within.as_secs()).unwrap_or(i64::MAX);
            let oldest = now.saturating_sub(within).saturating_sub(1);
            schedule.next(through.max(oldest)).filter(|first| *first <= last)
        }
    });
    let upto = begin.map_or(now, |begin| begin - 1);
    let skipped = busy_until.map_or(0, |busy_until| schedule.count(through, busy_until.min(upto)));
    let left_out = LeftOut { missed: schedule.count(through, upto) - skipped, skipped };
    let next = match begin {
        Some(begin) => Next::Begin(begin),
        None => schedule.next(through.max(now)).map_or(Next::Never, Next::Wait),
    };
    Decision { next, left_out }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60;

    fn every_minute() -> Schedule {
        Schedule::new("* * * * *").expect("a spec")
    }

    fn decision(
        misfire: Misfire,
        through: Second,
        busy_until: Option<Second>,
        now: Second,
    ) -> (Next, u64, u64) {
        let Decision { next, left_out } = decide(&every_minute(), misfire, through, busy_until, now);
        (next, left_out.missed, left_out.skipped)
    }

    const ALL: Misfire = Misfire::All { within: Duration::from_secs(180) };

    #[test]
    fn in_time_every_policy_begins_what_is_due_and_waits_for_what_is_not() {
        for misfire in [Misfire::Skip, Misfire::Once, ALL] {
            assert_eq!(decision(misfire, 600, None, 659), (Next::Wait(660), 0, 0));
            assert_eq!(decision(misfire, 600, None, 660), (Next::Begin(660), 0, 0));
            assert_eq!(decision(misfire, 600, None, 665), (Next::Begin(660), 0, 0));
        }
    }

    #[test]
    fn what_is_late_is_left_out_or_begun_once_or_all_of_it_within_the_window() {
        // Ten were missed: 660 to 1200.
        let now = 600 + 10 * MINUTE + 30;

        assert_eq!(decision(Misfire::Skip, 600, None, now), (Next::Wait(1260), 10, 0));
        assert_eq!(decision(Misfire::Once, 600, None, now), (Next::Begin(1200), 9, 0));
        assert_eq!(decision(ALL, 600, None, now), (Next::Begin(1080), 7, 0));
        assert_eq!(decision(ALL, 1080, None, now), (Next::Begin(1140), 0, 0));
        assert_eq!(decision(ALL, 1200, None, now), (Next::Wait(1260), 0, 0));
        let short = Misfire::All { within: Duration::from_secs(10) };
        assert_eq!(decision(short, 600, None, now), (Next::Wait(1260), 10, 0));
    }

    #[test]
    fn what_was_due_while_the_one_before_was_running_is_skipped_not_missed() {
        assert_eq!(decision(Misfire::Once, 600, Some(790), 790), (Next::Begin(780), 0, 2));
        assert_eq!(decision(Misfire::Skip, 600, Some(790), 790), (Next::Wait(840), 0, 3));
        assert_eq!(decision(ALL, 600, Some(790), 790), (Next::Begin(660), 0, 0));
        // It ended, and then nobody looked for a while.
        assert_eq!(decision(Misfire::Once, 600, Some(790), 950), (Next::Begin(900), 1, 3));
    }

    #[test]
    fn a_clock_that_is_behind_what_is_claimed_begins_nothing_again() {
        for misfire in [Misfire::Skip, Misfire::Once, ALL] {
            assert_eq!(decision(misfire, 6000, None, 600), (Next::Wait(6060), 0, 0));
        }
    }

    #[test]
    fn ten_years_away_from_a_job_of_every_second_are_decided_at_once() {
        let (schedule, year) = (Schedule::new("* * * * * *").expect("a spec"), 365 * 24 * 60 * MINUTE);
        let began = std::time::Instant::now();

        for misfire in [Misfire::Skip, Misfire::Once, ALL] {
            let decision = decide(&schedule, misfire, 600, None, 600 + 10 * year);
            assert!(matches!(decision.next, Next::Begin(_)));
            assert!(decision.left_out.missed >= 315_360_000 - 181);
        }
        // It takes milliseconds; walking through them would take minutes.
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }

    /// Whatever happens, each occurrence is begun or counted, exactly once and in order; with `Once` none is late and left out
    /// without a later one being begun at once.
    #[test]
    fn over_any_course_of_time_every_occurrence_is_begun_or_counted_once() {
        for seed in 1..=300_u64 {
            let mut chance = Chance(seed);
            let spec = ["* * * * * *", "*/7 * * * * *", "* * * * *", "*/15 2,3 * * *"][chance.below(4)];
            let zone = ["UTC", "Europe/Berlin", "Australia/Lord_Howe"][chance.below(3)];
            let schedule =
                Schedule::new(spec).and_then(|schedule| schedule.in_zone(zone)).expect("a schedule");
            let misfire = [Misfire::Skip, Misfire::Once, ALL][chance.below(3)];
            // Around the day on which the clocks are put forward in Berlin.
            let start = 1_774_659_600 + chance.below(80_000).cast_signed() as i64;
            let (mut now, mut through, mut busy_until, mut claimed) = (start, start, None, 0);
            for _ in 0..100 {
                let Decision { next, left_out } = decide(&schedule, misfire, through, busy_until, now);
                if let Next::Begin(begin) = next {
                    assert!(begin > through && begin <= now, "seed {seed}");
                    claimed += 1 + left_out.missed + left_out.skipped;
                    through = begin;
                    let took = chance.below(3) * chance.below(200);
                    now += took.cast_signed() as i64;
                    busy_until = Some(now);
                } else {
                    if misfire == Misfire::Once {
                        assert_eq!(
                            schedule.count(through, now),
                            0,
                            "seed {seed}: nothing that is due is put off"
                        );
                    }
                    now += chance.below(4000).cast_signed() as i64;
                }
                assert_eq!(claimed, schedule.count(start, through), "seed {seed}");
            }
        }
    }

    /// Xorshift; a seed that fails fails again.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % limit as u64) as usize
        }
    }
}
