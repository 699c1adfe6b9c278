use super::*;

/// In seconds since 1970, what the text says in UTC.
fn at(utc: &str) -> Second {
    utc.parse::<Timestamp>().expect("a time").as_second()
}

fn schedule(spec: &str, zone: &str) -> Schedule {
    Schedule::new(spec).and_then(|schedule| schedule.in_zone(zone)).expect("a schedule")
}

/// The occurrences after `from` up to `to`, as the clocks of the zone show them.
fn shown(spec: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    let schedule = schedule(spec, zone);
    let found = std::iter::successors(schedule.next(at(from)), |second| schedule.next(*second));
    let show = |second: Second| {
        stamp(second).expect("a time").to_zoned(schedule.zone.clone()).strftime("%H:%M%:z").to_string()
    };
    found.take_while(|second| *second <= at(to)).map(show).collect()
}

fn refused(outcome: Result<Schedule, Error>) -> String {
    outcome.expect_err("it is refused").to_string()
}

// req: E12
#[test]
fn a_time_of_day_that_is_left_out_happens_when_the_clocks_go_on_and_one_that_is_repeated_the_first_time() {
    // Berlin puts its clocks from 02:00 to 03:00, and back from 03:00 to 02:00.
    let forward = |spec| shown(spec, "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z");
    assert_eq!(forward("30 2 * * *"), ["03:00+02:00", "02:30+02:00"]);
    assert_eq!(forward("0 2 * * *"), ["03:00+02:00", "02:00+02:00"]);
    assert_eq!(forward("30 2,14 * * *"), ["14:30+01:00", "03:00+02:00", "14:30+02:00", "02:30+02:00"]);
    let back = |spec| shown(spec, "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z");
    assert_eq!(back("30 2 * * *"), ["02:30+02:00", "02:30+01:00"]);
    assert_eq!(back("0 3 * * *"), ["03:00+01:00", "03:00+01:00"]);
    // New York does so at another hour, Lord Howe by half an hour, London on the border of UTC.
    let new_york = |spec, from, to| shown(spec, "America/New_York", from, to);
    assert_eq!(new_york("30 2 * * *", "2026-03-07T12:00:00Z", "2026-03-08T12:00:00Z"), ["03:00-04:00"]);
    assert_eq!(new_york("30 1 * * *", "2026-10-31T12:00:00Z", "2026-11-01T12:00:00Z"), ["01:30-04:00"]);
    let lord_howe = |spec, from, to| shown(spec, "Australia/Lord_Howe", from, to);
    assert_eq!(lord_howe("15 2 * * *", "2026-10-03T12:00:00Z", "2026-10-04T12:00:00Z"), ["02:30+11:00"]);
    assert_eq!(lord_howe("45 1 * * *", "2026-04-04T12:00:00Z", "2026-04-05T12:00:00Z"), ["01:45+11:00"]);
    let london = |spec, from, to| shown(spec, "Europe/London", from, to);
    assert_eq!(london("30 1 * * *", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z"), ["02:00+01:00"]);
    assert_eq!(london("30 1 * * *", "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z"), ["01:30+01:00"]);
}

// req: E12
#[test]
fn several_times_of_day_that_are_left_out_happen_as_one() {
    let spec = |spec| shown(spec, "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T02:30:00Z");

    assert_eq!(spec("*/15 2 * * *"), ["03:00+02:00"]);
    assert_eq!(spec("*/30 2,3,4 * * *"), ["03:00+02:00", "03:30+02:00", "04:00+02:00", "04:30+02:00"]);
    assert_eq!(
        schedule("*/30 2,3,4 * * *", "Europe/Berlin")
            .count(at("2026-03-29T00:30:00Z"), at("2026-03-29T02:30:00Z")),
        4
    );
}

// req: E12
#[test]
fn what_happens_in_every_hour_goes_by_elapsed_time() {
    for (zone, from, to) in [
        ("Europe/Berlin", "2026-03-28T22:00:00Z", "2026-03-29T06:00:00Z"),
        ("Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T06:00:00Z"),
        ("America/New_York", "2026-11-01T02:00:00Z", "2026-11-01T10:00:00Z"),
        ("Europe/London", "2026-03-28T22:00:00Z", "2026-03-29T06:00:00Z"),
        ("UTC", "2026-10-24T22:00:00Z", "2026-10-25T06:00:00Z"),
    ] {
        for (spec, step) in
            [("*/15 * * * *", 900), ("0 * * * *", 3600), ("* * * * *", 60), ("*/20 * * * * *", 20)]
        {
            let schedule = schedule(spec, zone);
            let found = std::iter::successors(schedule.next(at(from)), |second| schedule.next(*second));
            let found: Vec<Second> = found.take_while(|second| *second <= at(to)).collect();
            let even: Vec<Second> = (1..=8 * 3600 / step).map(|n| at(from) + n * step).collect();
            assert_eq!(found, even, "{spec} in {zone}");
            assert_eq!(schedule.count(at(from), at(to)), even.len() as u64, "{spec} in {zone}");
        }
    }
}

#[test]
fn a_day_that_a_zone_left_out_is_no_trouble() {
    // Samoa went from 29 to 31 December 2011 over night.
    let found = shown("0 12 * * *", "Pacific/Apia", "2011-12-29T11:00:00Z", "2012-01-01T11:00:00Z");
    assert_eq!(found, ["12:00-10:00", "00:00+14:00", "12:00+14:00", "12:00+14:00"]);
}

// req: E12
#[test]
fn five_fields_six_fields_names_and_the_special_days_are_understood() {
    let next = |spec| {
        let second = schedule(spec, "UTC").next(at("2026-05-20T10:00:00Z")).expect("it comes");
        stamp(second).expect("a time").to_string()
    };
    assert_eq!(next("0 6 * * *"), "2026-05-21T06:00:00Z");
    assert_eq!(next("30 0 6 * * *"), "2026-05-21T06:00:30Z");
    assert_eq!(next("  0  6  *  *  MON-FRI "), "2026-05-21T06:00:00Z");
    assert_eq!(next("0 6 * jan *"), "2027-01-01T06:00:00Z");
    assert_eq!(next("0 0 29 2 *"), "2028-02-29T00:00:00Z");
    assert_eq!(next("0 0 L * *"), "2026-05-31T00:00:00Z");
    assert_eq!(next("0 0 * * 5#2"), "2026-06-12T00:00:00Z");
    assert_eq!(next("0 0 13 * 5"), "2026-05-22T00:00:00Z", "either the day or the weekday");
    assert_eq!(next("@daily"), "2026-05-21T00:00:00Z");
    assert_eq!(next("0 0 * * 7"), next("0 0 * * 0"));
}

#[test]
fn what_is_not_understood_is_refused_and_says_which_field_and_what_it_may_be() {
    let spec = |spec: &str| refused(Schedule::new(spec));
    assert_eq!(
        spec("61 * * * *"),
        "minute \"61\" of the cron spec is not *, 0-59, or a list, range or step of those"
    );
    assert!(spec("0 0 24 * * *").starts_with("hour \"24\""), "{}", spec("0 0 24 * * *"));
    assert!(spec("0 6 * FEBR *").starts_with("month \"FEBR\""), "{}", spec("0 6 * FEBR *"));
    assert!(spec("0 6 * * 8").starts_with("weekday \"8\""), "{}", spec("0 6 * * 8"));
    for wrong in [
        "",
        "hello",
        "* * * *",
        "* * * * * * *",
        "@reboot",
        "@daily @daily",
        "*/0 * * * *",
        "5-1 * * * *",
        "ä * * * *",
    ] {
        assert!(spec(wrong).contains("cron spec"), "{wrong}: {}", spec(wrong));
    }
    assert!(spec(&"1,".repeat(5000)).len() < 400);
    assert!(spec("* * * *").contains("has 4 fields; it takes five fields"), "{}", spec("* * * *"));
}

#[test]
fn a_day_that_never_comes_is_refused() {
    for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 0 31 2 *"] {
        assert_eq!(
            refused(Schedule::new(never)),
            format!("cron spec {never:?} never comes: its months have no such day")
        );
    }
}

#[test]
fn beyond_the_calendar_nothing_comes() {
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX.unsigned_abs());
    for spec in ["* * * * *", "0 6 * * *"] {
        assert_eq!(schedule(spec, "Europe/Berlin").after(last), None);
    }
}

#[test]
fn a_zone_that_is_not_known_is_refused_with_the_one_that_was_perhaps_meant() {
    let zone = |name: &str| refused(Schedule::new("0 6 * * *").and_then(|schedule| schedule.in_zone(name)));
    assert_eq!(
        zone("Europe/Berln"),
        "time zone \"Europe/Berln\" is not an IANA name, such as UTC or Europe/Berlin; did you mean \"Europe/Berlin\"?"
    );
    assert!(zone("Tokyo").ends_with("did you mean \"Asia/Tokyo\"?"), "{}", zone("Tokyo"));
    assert!(zone("Mars/Phobos Base").ends_with("Europe/Berlin"), "{}", zone("Mars/Phobos Base"));
    assert!(zone(&"x".repeat(5000)).len() < 200);
    for odd in ["", "../../etc/passwd", "\0", "+25:00"] {
        assert!(zone(odd).starts_with("time zone"), "{odd}");
    }
    assert_eq!(schedule("0 6 * * *", "europe/berlin").plan(), "0 6 * * * Europe/Berlin");
    assert_eq!(Schedule::new(" 0  6 * * *").expect("a spec").plan(), "0 6 * * * UTC");
}

#[test]
fn a_time_is_shown_as_the_clocks_of_the_zone_show_it() {
    let schedule = schedule("30 2 * * *", "Europe/Berlin");
    let time = |utc| SystemTime::UNIX_EPOCH + Duration::from_secs(at(utc).unsigned_abs());

    let next = schedule.after(time("2026-03-28T12:00:00Z")).expect("it comes");
    assert_eq!(next, time("2026-03-29T01:00:00Z"));
    assert_eq!(schedule.show(next), "2026-03-29T03:00:00+02:00");
}

/// Compares with walking through every second of a few days around changes of the clocks.
#[test]
fn next_last_and_count_agree_with_walking_through_every_second() {
    let specs = [
        "*/7 * * * *",
        "0 * * * *",
        "30 2 * * *",
        "*/20 1-3 * * *",
        "15 0,2,23 * * *",
        "*/13 */7 1,2 * * *",
        "0 0 29 3 *",
    ];
    // A day and a half around each change.
    let changes = [
        ("UTC", "2026-03-28T12:00:00Z"),
        ("Europe/Berlin", "2026-03-28T12:00:00Z"),
        ("Europe/Berlin", "2026-10-24T12:00:00Z"),
        ("America/New_York", "2026-03-07T18:00:00Z"),
        ("America/New_York", "2026-10-31T18:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T00:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T00:00:00Z"),
        ("Asia/Kathmandu", "2026-03-28T12:00:00Z"),
    ];
    for (zone, day) in changes {
        for spec in specs {
            let schedule = schedule(spec, zone);
            let (from, to) = (at(day), at(day) + DAY * 3 / 2);
            let all = walked(&schedule, from, to);
            for second in
                (from + 1..to).step_by(599).chain(all.iter().flat_map(|time| [time - 1, *time, time + 1]))
            {
                let told = format!("{spec} in {zone} at {second}");
                if let Some(next) = all.iter().find(|time| **time > second) {
                    assert_eq!(schedule.next(second), Some(*next), "{told}");
                }
                if let Some(last) = all.iter().rev().find(|time| **time <= second) {
                    assert_eq!(schedule.last(second), Some(*last), "{told}");
                }
                let count = all.iter().filter(|time| **time <= second).count();
                assert_eq!(schedule.count(from, second), count as u64, "{told}");
            }
        }
    }
}

/// The occurrences after `from` up to `to`, by the rule as it is told.
fn walked(schedule: &Schedule, from: Second, to: Second) -> Vec<Second> {
    let fits = |shown: Shown| {
        let (day, second) = (shown.div_euclid(DAY), shown.rem_euclid(DAY));
        schedule.times.next(second) == Some(second) && schedule.has_day(day)
    };
    let shows = |second: Second| second + schedule.offset(second);
    let mut found = Vec::new();
    let mut seen = shows(from);
    for second in from + 1..=to {
        let shown = shows(second);
        let happens = if schedule.goes_by_elapsed_time() {
            fits(shown)
        } else {
            // Everything that the clocks have come to or jumped over since the furthest that they have shown.
            let new = seen + 1..=shown;
            seen = seen.max(shown);
            new.into_iter().any(fits)
        };
        if happens {
            found.push(second);
        }
    }
    found
}

#[test]
fn a_zone_is_known_also_where_the_system_knows_none() {
    let bundled = jiff::tz::TimeZoneDatabase::bundled();

    assert!(bundled.get("Europe/Berlin").is_ok(), "a bare container has no /usr/share/zoneinfo");
}
