//! When a job is to run: a cron spec in a time zone, and its occurrences as points in time.
//!
//! Occurrences are found in two steps: a date and time of day that the spec names, and when the clocks of the zone show it.
//! A spec with times in every hour goes by elapsed time: what the clocks leave out does not happen, what they repeat
//! happens again. Any other names times of day, and each happens once a day: one that the clocks leave out happens as soon
//! as they go on, one that they repeat happens the first time.

use std::time::{Duration, SystemTime};

use croner::parser::{CronParser, Seconds, Year};
use croner::{CronComponent, CronPattern, Weekday};
use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use super::times::{DAY, Times};
use crate::Error;

/// A point in time, in seconds since 1970.
pub(super) type Second = i64;
/// What the clocks on the wall show, as if it were in seconds since 1970.
type Shown = i64;

/// How far ahead an occurrence is looked for. The rarest, a 29 February on one day of the week, comes after 40 years at the latest.
const HORIZON: i64 = 41 * 366;
/// So that a plan, which is the spec and the zone, fits into the store.
const LONGEST: usize = 120;
/// What there is instead of fields.
const NAMES: [&str; 6] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@hourly"];

/// A cron spec in a time zone: five fields (minute, hour, day, month, weekday), or six with the seconds first.
#[derive(Clone, Debug)]
pub struct Schedule {
    spec: Box<str>,
    zone: TimeZone,
    /// Days and months.
    days: Box<CronPattern>,
    times: Times,
}

impl Schedule {
    /// The spec in UTC. The fields take numbers, `*`, lists (`1,2`), ranges (`1-5`), steps (`*/15`) and the names of
    /// months and weekdays; the day also `L` (the last), `15W` (the nearest weekday), the weekday `5#2` (the second Friday) and
    /// `5L` (the last). If both day and weekday are given, either will do. Instead of fields: `@yearly`, `@monthly`, `@weekly`,
    /// `@daily`, `@hourly`.
    ///
    /// # Errors
    /// When it is not understood, or never comes: the error says which field and what it may be.
    // req: E12
    pub fn new(spec: &str) -> Result<Self, Error> {
        let spec = spec.split_whitespace().collect::<Vec<_>>().join(" ");
        let fields: Vec<&str> = spec.split(' ').collect();
        let is_named = NAMES.iter().any(|name| name.eq_ignore_ascii_case(&spec));
        if spec.len() > LONGEST || !is_named && !(5..=6).contains(&fields.len()) {
            let what = if spec.len() > LONGEST { format!("more than {LONGEST} bytes") } else { count(&spec) };
            let begins: String = spec.chars().take(60).collect();
            return Err(Error::refused(format!(
                "cron spec {begins:?} has {what}; it takes five fields (minute hour day month weekday), six with the \
                 seconds first, or one of {}",
                NAMES.join(" ")
            )));
        }
        let parsed = parser().parse(&spec).map_err(|error| {
            let wrong = (!is_named).then(|| wrong_field(&fields)).flatten();
            Error::refused(wrong.unwrap_or_else(|| format!("cron spec {spec:?} is not understood")))
                .because(error)
        })?;
        let mut pattern = parsed.pattern;
        // It takes more memory than all the rest, and says nothing.
        pattern.years = CronComponent::default();
        let values = |field: &CronComponent| field.values().into_iter().map(u32::from).collect::<Vec<_>>();
        let [hours, minutes, seconds] = [&pattern.hours, &pattern.minutes, &pattern.seconds].map(values);
        let never = || Error::refused(format!("cron spec {spec:?} never comes: its months have no such day"));
        let times =
            Times::new(hours.into_iter(), minutes.into_iter(), seconds.into_iter()).ok_or_else(never)?;
        let schedule =
            Self { spec: spec.clone().into(), zone: TimeZone::UTC, days: Box::new(pattern), times };
        schedule.next_shown(0).ok_or_else(never)?;
        Ok(schedule)
    }

    /// The same in another time zone, by its IANA name, such as `Europe/Berlin`. What the system knows of time zones counts;
    /// where it knows nothing, what was known when this was built.
    ///
    /// # Errors
    /// When there is no such zone; the error says which one was perhaps meant.
    pub fn in_zone(self, name: &str) -> Result<Self, Error> {
        let zone = TimeZone::get(name).map_err(|error| {
            let begins: String = name.chars().take(60).collect();
            let meant =
                nearest_zone(name).map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
            let what = "is not an IANA name, such as UTC or Europe/Berlin";
            Error::refused(format!("time zone {begins:?} {what}{meant}")).because(error)
        })?;
        Ok(Self { zone, ..self })
    }

    /// The first occurrence after `time`.
    #[must_use]
    pub fn after(&self, time: SystemTime) -> Option<SystemTime> {
        let second =
            time.duration_since(SystemTime::UNIX_EPOCH).map_or(-1, |since| since.as_secs().cast_signed());
        // Beyond the calendar nothing comes.
        stamp(second)?;
        let next = u64::try_from(self.next(second)?).ok()?;
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(next))
    }

    /// What the clocks of its time zone show at `time`, as in `2026-03-29T03:00:00+02:00`.
    #[must_use]
    pub fn show(&self, time: SystemTime) -> String {
        match Timestamp::try_from(time) {
            Ok(stamp) => stamp.display_with_offset(self.zone.to_offset(stamp)).to_string(),
            Err(_) => "a time beyond the calendar".to_owned(),
        }
    }

    /// The name of its time zone.
    #[must_use]
    pub fn time_zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Spec and zone, as one text.
    #[must_use]
    pub fn plan(&self) -> String {
        format!("{} {}", self.spec, self.time_zone())
    }

    /// The first occurrence after `second`.
    pub(super) fn next(&self, second: Second) -> Option<Second> {
        if !self.goes_by_elapsed_time() {
            return self.next_shown(self.shown_by(second) + 1).and_then(|shown| self.happens(shown));
        }
        let mut from = second + 1;
        loop {
            let (offset, until) = (self.offset(from), self.change_after(from));
            let next = self.next_shown(from + offset)? - offset;
            match until {
                Some(until) if next >= until => from = until,
                _ => return Some(next),
            }
        }
    }

    /// The last occurrence at `second` or before it.
    pub(super) fn last(&self, second: Second) -> Option<Second> {
        if !self.goes_by_elapsed_time() {
            return self.last_shown(self.shown_by(second)).and_then(|shown| self.happens(shown));
        }
        let mut upto = second;
        loop {
            let (offset, since) = (self.offset(upto), self.change_upto(upto));
            let last = self.last_shown(upto + offset)? - offset;
            match since {
                Some(since) if last < since => upto = since - 1,
                _ => return Some(last),
            }
        }
    }

    /// How many occurrences there are after `after`, up to `upto` and with it. What is more than 40 years ago is not counted.
    pub(super) fn count(&self, after: Second, upto: Second) -> u64 {
        let after = after.max(upto.saturating_sub(HORIZON * DAY));
        if after >= upto {
            return 0;
        }
        let changes = || {
            let from = stamp(after).into_iter().flat_map(|after| self.zone.following(after));
            from.map(|change| change.timestamp().as_second()).take_while(|change| *change <= upto)
        };
        if self.goes_by_elapsed_time() {
            let mut from = after + 1;
            let mut count = 0;
            for until in changes().chain([upto + 1]) {
                let offset = self.offset(from);
                count += self.count_shown(from + offset, until + offset);
                from = until;
            }
            return count;
        }
        // Those that are left out happen at once, and so are one.
        let doubled = changes().map(|change| {
            let (left_out, goes_on) = (change + self.offset(change - 1), change + self.offset(change));
            self.count_shown(left_out, goes_on + 1).saturating_sub(1)
        });
        let count = self.count_shown(self.shown_by(after) + 1, self.shown_by(upto) + 1);
        count.saturating_sub(doubled.sum())
    }

    fn goes_by_elapsed_time(&self) -> bool {
        self.times.are_in_every_hour()
    }

    // ---- what the clocks show ------------------------------------------------------------------------------

    fn next_shown(&self, from: Shown) -> Option<Shown> {
        let (day, second) = (from.div_euclid(DAY), from.rem_euclid(DAY));
        let today = self.times.next(second).filter(|_| self.has_day(day));
        if let Some(second) = today {
            return Some(day * DAY + second);
        }
        let day = (day + 1..=day + HORIZON).find(|day| self.has_day(*day))?;
        Some(day * DAY + self.times.next(0)?)
    }

    fn last_shown(&self, upto: Shown) -> Option<Shown> {
        let (day, second) = (upto.div_euclid(DAY), upto.rem_euclid(DAY));
        let today = self.times.last(second).filter(|_| self.has_day(day));
        if let Some(second) = today {
            return Some(day * DAY + second);
        }
        let day = (day - HORIZON..day).rev().find(|day| self.has_day(*day))?;
        Some(day * DAY + self.times.last(DAY - 1)?)
    }

    /// How many are shown from `from` on, before `to`.
    fn count_shown(&self, from: Shown, to: Shown) -> u64 {
        if from >= to {
            return 0;
        }
        let (first, last) = (from.div_euclid(DAY), to.div_euclid(DAY));
        let count = |day: i64| {
            let before = |shown: Shown| self.times.count_before((shown - day * DAY).clamp(0, DAY));
            before(to) - before(from)
        };
        (first..=last).filter(|day| self.has_day(*day)).map(count).sum()
    }

    fn has_day(&self, day: i64) -> bool {
        let Some(date) = stamp(day * DAY).map(|stamp| Offset::UTC.to_datetime(stamp).date()) else {
            return false;
        };
        let (month, number) = (date.month().unsigned_abs().into(), date.day().unsigned_abs().into());
        let weekday =
            Weekday::from_days_from_sunday(date.weekday().to_sunday_zero_offset().unsigned_abs().into());
        // What a date cannot be is no day of ours.
        self.days.month_match(month).unwrap_or(false)
            && self.days.day_match(date.year().into(), month, number, weekday).unwrap_or(false)
    }

    // ---- when they show it ---------------------------------------------------------------------------------

    fn offset(&self, second: Second) -> i64 {
        stamp(second).map_or(0, |stamp| self.zone.to_offset(stamp).seconds().into())
    }

    /// When the clocks are changed next.
    fn change_after(&self, second: Second) -> Option<Second> {
        Some(self.zone.following(stamp(second)?).next()?.timestamp().as_second())
    }

    /// When they were changed last.
    fn change_upto(&self, second: Second) -> Option<Second> {
        Some(self.zone.preceding(stamp(second + 1)?).next()?.timestamp().as_second())
    }

    /// The last of the times of day that have happened by then, if each happens once.
    fn shown_by(&self, second: Second) -> Shown {
        let shown = second + self.offset(second);
        match self.change_upto(second) {
            // The clocks were put back: what they repeat has happened.
            Some(change) => shown.max(change - 1 + self.offset(change - 1)),
            None => shown,
        }
    }

    /// When that time of day happens, if each happens once.
    fn happens(&self, shown: Shown) -> Option<Second> {
        let clocks = Offset::UTC.to_datetime(stamp(shown)?);
        match self.zone.to_ambiguous_timestamp(clocks).offset() {
            AmbiguousOffset::Unambiguous { offset } => Some(shown - i64::from(offset.seconds())),
            AmbiguousOffset::Fold { before, .. } => Some(shown - i64::from(before.seconds())),
            AmbiguousOffset::Gap { before, .. } => self.change_upto(shown - i64::from(before.seconds())),
        }
    }
}

fn stamp(second: i64) -> Option<Timestamp> {
    Timestamp::from_second(second).ok()
}

fn parser() -> CronParser {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build()
}

fn count(spec: &str) -> String {
    match spec.split_whitespace().count() {
        1 => "1 field".to_owned(),
        count => format!("{count} fields"),
    }
}

/// Which field it is that is not understood, and what it may be.
fn wrong_field(fields: &[&str]) -> Option<String> {
    const ALLOWED: [(&str, &str); 6] = [
        ("second", "0-59"),
        ("minute", "0-59"),
        ("hour", "0-23"),
        ("day", "1-31, L or 15W"),
        ("month", "1-12 or JAN-DEC"),
        ("weekday", "0-7 or SUN-SAT (0 and 7 are Sunday), 5#2 or 5L"),
    ];
    let skipped = ALLOWED.len() - fields.len();
    fields.iter().enumerate().find_map(|(index, field)| {
        let index = index + skipped;
        let alone: Vec<&str> =
            (0..ALLOWED.len()).map(|other| if other == index { *field } else { "*" }).collect();
        let (name, allowed) = ALLOWED[index];
        let wrong = || {
            format!(
                "{name} {field:?} of the cron spec is not *, {allowed}, or a list, range or step of those"
            )
        };
        parser().parse(&alone.join(" ")).is_err().then(wrong)
    })
}

/// The known name that takes the fewest changes, if they are few.
fn nearest_zone(name: &str) -> Option<String> {
    let wanted = name.to_lowercase();
    if wanted.len() > 40 {
        return None;
    }
    let known = jiff::tz::db().available().map(|known| known.to_string());
    let plain = known.filter(|known| !known.starts_with("posix/") && !known.starts_with("right/"));
    let measured = plain.map(|known| (changes(&wanted, &known.to_lowercase()), known));
    // The city alone is what people remember.
    let by_city = |(distance, known): (usize, String)| {
        let city = known.rsplit('/').next().unwrap_or_default().to_lowercase();
        (distance.min(1 + changes(&wanted, &city)), known)
    };
    let (distance, known) = measured.map(by_city).min()?;
    (distance <= 3).then_some(known)
}

/// How many letters have to be put in, left out or replaced to make one of the other.
fn changes(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, against) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *against);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests;
