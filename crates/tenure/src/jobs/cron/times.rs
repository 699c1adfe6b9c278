//! The times of day that a spec names, as sets of hours, minutes and seconds; by bits, so that nothing is walked through.

/// Seconds of a day, without regard to clocks that are changed.
pub(super) const DAY: i64 = 24 * 60 * 60;

/// Times of day: every combination of these hours, minutes and seconds. None of the three is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    hours: Set,
    minutes: Set,
    seconds: Set,
}

impl Times {
    /// Nothing if one of the three is empty.
    pub(super) fn new(
        hours: impl Iterator<Item = u32>,
        minutes: impl Iterator<Item = u32>,
        seconds: impl Iterator<Item = u32>,
    ) -> Option<Self> {
        let times = Self { hours: hours.collect(), minutes: minutes.collect(), seconds: seconds.collect() };
        [times.hours, times.minutes, times.seconds].iter().all(|set| set.0 != 0).then_some(times)
    }

    /// Whether there are some in every hour of the day.
    pub(super) fn are_in_every_hour(self) -> bool {
        self.hours.len() == 24
    }

    /// The first at `second` of the day or after it.
    pub(super) fn next(self, second: i64) -> Option<i64> {
        let (h, m, s) = parts(second)?;
        let (hours, minutes, seconds) = (self.hours, self.minutes, self.seconds);
        let (first_minute, first_second) = (minutes.from(0)?, seconds.from(0)?);
        let in_minute =
            || (hours.has(h) && minutes.has(m)).then(|| seconds.from(s)).flatten().map(|s| (h, m, s));
        let in_hour = || hours.has(h).then(|| minutes.from(m + 1)).flatten().map(|m| (h, m, first_second));
        let later = || hours.from(h + 1).map(|h| (h, first_minute, first_second));
        in_minute().or_else(in_hour).or_else(later).map(whole)
    }

    /// The last at `second` of the day or before it.
    pub(super) fn last(self, second: i64) -> Option<i64> {
        let (h, m, s) = parts(second)?;
        let (hours, minutes, seconds) = (self.hours, self.minutes, self.seconds);
        let (last_minute, last_second) = (minutes.below(60)?, seconds.below(60)?);
        let in_minute =
            || (hours.has(h) && minutes.has(m)).then(|| seconds.below(s + 1)).flatten().map(|s| (h, m, s));
        let in_hour = || hours.has(h).then(|| minutes.below(m)).flatten().map(|m| (h, m, last_second));
        let earlier = || hours.below(h).map(|h| (h, last_minute, last_second));
        in_minute().or_else(in_hour).or_else(earlier).map(whole)
    }

    /// How many there are before `second` of the day.
    pub(super) fn count_before(self, second: i64) -> u64 {
        let (hours, minutes, seconds) = (self.hours, self.minutes, self.seconds);
        let per_hour = minutes.len() * seconds.len();
        let Some((h, m, s)) = parts(second) else { return hours.len() * per_hour };
        let in_minute = if minutes.has(m) { seconds.count_below(s) } else { 0 };
        let in_hour = if hours.has(h) { minutes.count_below(m) * seconds.len() + in_minute } else { 0 };
        hours.count_below(h) * per_hour + in_hour
    }
}

/// Hour, minute and second; nothing beyond the end of the day.
fn parts(second: i64) -> Option<(u32, u32, u32)> {
    let second = u32::try_from(second).ok().filter(|second| i64::from(*second) < DAY)?;
    Some((second / 3600, second / 60 % 60, second % 60))
}

fn whole((h, m, s): (u32, u32, u32)) -> i64 {
    i64::from(h * 3600 + m * 60 + s)
}

/// Numbers from 0 to 59.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set(u64);

impl FromIterator<u32> for Set {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().fold(0, |set, number| set | 1 << number))
    }
}

impl Set {
    fn len(self) -> u64 {
        self.0.count_ones().into()
    }

    fn has(self, number: u32) -> bool {
        self.0 & 1 << number != 0
    }

    /// The least that is not below `number`.
    fn from(self, number: u32) -> Option<u32> {
        let rest = self.0 >> number << number;
        (rest != 0).then(|| rest.trailing_zeros())
    }

    /// The greatest below `number`.
    fn below(self, number: u32) -> Option<u32> {
        self.cut(number).checked_ilog2()
    }

    fn count_below(self, number: u32) -> u64 {
        self.cut(number).count_ones().into()
    }

    fn cut(self, number: u32) -> u64 {
        self.0 & !(u64::MAX << number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_last_and_count_agree_with_walking_through_the_day() {
        let sets: [(&[u32], &[u32], &[u32]); 4] = [
            (&[0], &[0], &[0]),
            (&[23], &[59], &[59]),
            (&[0, 2, 23], &[0, 15, 59], &[0, 1, 59]),
            (&[7], &[5, 6], &[30]),
        ];
        for (hours, minutes, seconds) in sets {
            let times = Times::new(hours.iter().copied(), minutes.iter().copied(), seconds.iter().copied());
            let times = times.expect("none is empty");
            let fits = |second: i64| {
                let (h, m, s) = parts(second).expect("within the day");
                hours.contains(&h) && minutes.contains(&m) && seconds.contains(&s)
            };
            let all: Vec<i64> = (0..DAY).filter(|second| fits(*second)).collect();
            for second in (0..DAY).step_by(7).chain([DAY - 1]) {
                assert_eq!(times.next(second), all.iter().copied().find(|time| *time >= second), "{second}");
                assert_eq!(
                    times.last(second),
                    all.iter().copied().rev().find(|time| *time <= second),
                    "{second}"
                );
                let before = all.iter().filter(|time| **time < second).count();
                assert_eq!(times.count_before(second), before as u64, "{second}");
            }
            assert_eq!(times.count_before(DAY), all.len() as u64);
            assert_eq!(times.next(DAY), None);
        }
    }

    #[test]
    fn an_empty_set_is_no_time_at_all() {
        assert_eq!(Times::new([].into_iter(), [1].into_iter(), [1].into_iter()), None);
    }
}
