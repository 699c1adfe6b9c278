//! Schedules, by the million: what is accepted comes, again and again, and is found quickly.

use std::time::{Duration, SystemTime};

use testkit::fuzz::{Maker, Verdict, fuzz, is_a_sentence};

use super::schedule::Schedule;

const SPECS: &[&str] = &[
    "0 6 * * *",
    "*/15 * * * *",
    "30 2,14 * * MON-FRI",
    "*/20 * * * * *",
    "0 0 29 2 *",
    "0 0 L * *",
    "0 0 15W * *",
    "0 0 * * 5#2",
    "0 0 * JAN-MAR,dec 5L",
    "0 0 31 4,6 *",
    "59 23 31 12 7",
    "@daily",
    "@yearly",
];

const ZONES: &[&str] = &[
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Europe/London",
    "Asia/Kathmandu",
    "America/Sao_Paulo",
];

/// A field by the grammar, with numbers that fit mostly.
fn field(make: &mut Maker, first: usize, last: usize, extra: &[&str]) -> String {
    let number = |make: &mut Maker| (first + make.below(last - first + 2)).to_string();
    match make.below(10) {
        0..=3 => "*".to_owned(),
        4 => format!("*/{}", make.below(70)),
        5 => format!("{}-{}", number(make), number(make)),
        6 => format!("{},{}", number(make), number(make)),
        7 => format!("{}-{}/{}", number(make), number(make), make.below(9)),
        8 => make.pick(extra).to_owned(),
        _ => number(make),
    }
}

fn spec(make: &mut Maker) -> String {
    if make.is_one_of(2) {
        return make.text(SPECS);
    }
    let seconds = if make.is_one_of(4) { field(make, 0, 59, &["0"]) + " " } else { String::new() };
    let (minute, hour) = (field(make, 0, 59, &["0"]), field(make, 0, 23, &["3"]));
    let day = field(make, 1, 31, &["L", "15W", "31W", "LW", "?"]);
    let month = field(make, 1, 12, &["FEB", "jan-mar", "2"]);
    format!(
        "{seconds}{minute} {hour} {day} {month} {}",
        field(make, 0, 7, &["MON", "5#5", "5L", "1#6", "sun-sat"])
    )
}

/// A second that a clock may show: of our time, of any other, or at an edge.
fn second(make: &mut Maker) -> u64 {
    if make.is_one_of(8) { make.number() & i64::MAX.unsigned_abs() } else { make.number() % 7_258_118_400 }
}

#[test]
fn schedules() {
    let make = |make: &mut Maker| (spec(make), make.pick(ZONES), second(make));
    fuzz("schedules", make, |(spec, zone, second)| {
        let schedule = match Schedule::new(spec) {
            Ok(schedule) => schedule.in_zone(zone).expect("a zone"),
            Err(error) => {
                is_a_sentence(&error.to_string());
                assert!(error.to_string().contains("cron spec"), "{error}");
                return Verdict::Refused;
            }
        };
        let plan = schedule.plan();
        let (again, same_zone) = plan.rsplit_once(' ').expect("a spec and a zone");
        let again =
            Schedule::new(again).and_then(|again| again.in_zone(same_zone)).expect("a plan is understood");
        assert_eq!((again.plan(), same_zone), (plan.clone(), *zone));
        assert!(tenure_core::Plan::new(&plan).is_ok(), "it fits into the store");

        let from = SystemTime::UNIX_EPOCH + Duration::from_secs(*second);
        let mut last = from;
        for _ in 0..3 {
            let Some(next) = schedule.after(last) else {
                // Beyond the year 9000 the calendar ends.
                assert!(*second > 220_000_000_000, "nothing comes after {last:?}");
                return Verdict::Accepted;
            };
            assert!(next > last, "{next:?} is not after {last:?}");
            assert_eq!(again.after(last), Some(next));
            assert!(!schedule.show(next).is_empty());
            last = next;
        }
        let second_of = |time: SystemTime| {
            time.duration_since(SystemTime::UNIX_EPOCH).expect("later").as_secs().cast_signed()
        };
        // Those who look back find the same ones.
        let (from, third) = (second_of(from), second_of(last));
        assert_eq!(schedule.last(third), Some(third));
        // What is more than 40 years ago is not counted.
        if third - from < 40 * 365 * 86_400 {
            assert_eq!(schedule.count(from, third), 3);
            assert_eq!(schedule.count(from, third - 1), 2);
        }
        let second = schedule.last(third - 1).expect("the one before");
        assert!(second > from && schedule.next(second) == Some(third), "{second} {third}");
        Verdict::Accepted
    });
}

#[test]
fn time_zones() {
    let make = |make: &mut Maker| make.text(ZONES);
    let daily = Schedule::new("@daily").expect("a spec");
    fuzz("time_zones", make, |name| {
        let zone = daily.clone().in_zone(name);
        match &zone {
            Ok(schedule) => {
                assert!(schedule.time_zone().eq_ignore_ascii_case(name), "{}", schedule.time_zone());
            }
            Err(error) => {
                is_a_sentence(&error.to_string());
                assert!(error.to_string().starts_with("time zone "), "{error}");
            }
        }
        Verdict::of(&zone)
    });
}
