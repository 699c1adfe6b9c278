//! `tenure doctor`: is this store safe, how fast is it, how does its clock run, and which timing fits.

mod figures;

use std::time::Duration;

use serde::Serialize;
use tenure::store::{Concern, Cost};
use tenure::{Namespace, Timing};

use self::figures::{Clock, Figures, Trips};
use crate::args;
use crate::exit::{Exit, Failure};
use crate::output::{self, Colour, Style, clean, millis, short_span, span, wrapped};
use crate::reading::{Reading, patiently};

/// Grows when a field changes its meaning or goes. New fields may come without.
const VERSION: u32 = 1;
/// How long each kind of question is put.
const MEASURED_FOR: Duration = Duration::from_secs(1);

pub(crate) async fn doctor(typed: args::Doctor) -> Result<Exit, Failure> {
    let timing = Timing::new(typed.ttl)?;
    let reading = Reading::meant_by(typed.at)?;
    let store = open(&reading).await?;
    let concerns = store.safety().await?;
    let label = format!("tenure-doctor-{}", std::process::id());
    let measured = store.measure(&label, MEASURED_FOR).await?;
    let clock = if reading.place.is_file() { Clock::Shared } else { Clock::of_server(&measured.asked) };
    let findings = Findings {
        is_safe: concerns.iter().all(|concern| concern.cost < Cost::Exclusion),
        proves_deaths: reading.place.proves_deaths(),
        figures: Figures::of(timing, &measured),
        concerns,
        clock,
    };
    match typed.json {
        true => output::json(&findings.report(&reading))?,
        false => output::data(&findings.text(Style::of_stdout()))?,
    }
    Ok(if findings.is_safe { Exit::OK } else { Exit::UNSAFE })
}

/// The store. It is made if need be, because whether it works is what people want to know; but for a file that was
/// named, whose path may be misspelt.
async fn open(reading: &Reading) -> Result<Namespace, Failure> {
    if reading.place.is_file() && !reading.place.is_default() {
        return reading.require().await;
    }
    reading.place.make_folder()?;
    let open = async || Namespace::open_named(reading.place.url(), reading.namespace.as_str()).await;
    let store = patiently(&reading.place, reading.waits, open).await?;
    output::which_store(&reading.place, reading.namespace.as_str());
    Ok(store)
}

struct Findings {
    is_safe: bool,
    proves_deaths: bool,
    concerns: Vec<Concern>,
    clock: Clock,
    figures: Figures,
}

// ---- for people --------------------------------------------------------------------------------------------

impl Findings {
    fn text(&self, style: Style) -> String {
        let figures = &self.figures;
        let worst = self.concerns.iter().map(|concern| concern.cost).max();
        let safe = match worst {
            _ if !self.is_safe => style.paint(Colour::Bad, "no") + ", after some faults two may own at once",
            Some(Cost::Record) => {
                style.paint(Colour::Good, "yes")
                    + ", as far as the store tells, for what one owns; not for `tenure once` and `tenure cron`"
            }
            _ => style.paint(Colour::Good, "yes") + ", as far as the store tells: every promise holds",
        };
        let mut text = line("safe", &safe);
        for concern in &self.concerns {
            let (colour, cost) = match concern.cost {
                Cost::Time => (Colour::Warning, "costs time"),
                Cost::Record => (Colour::Warning, "forgets jobs"),
                _ => (Colour::Bad, "not safe"),
            };
            text += &line("", &format!("{}: {}", style.paint(colour, cost), clean(&concern.what)));
            text += &line("", &format!("hint: {}", clean(&concern.hint)));
        }
        text += &line("asking", &trips(&figures.asking));
        text += &line("renewing", &trips(&figures.renewing));
        text += &line("clock", &self.clock_text());
        text += &line("lease", &figures.lease_text());
        text += &line("failover", &self.failover_text());
        text += &line("outage", &figures.outage_text());
        wrapped(&(text + &line("ttl", &figures.ttl_text())), style.columns)
    }

    fn clock_text(&self) -> String {
        match &self.clock {
            Clock::Shared => "this host's own; steps of the wall clock do not matter".to_owned(),
            Clock::Server { ahead, is_ahead, uncertain, rate, rate_uncertain } => {
                let side = if *is_ahead { "ahead of" } else { "behind" };
                let rate = match (rate, rate_uncertain) {
                    (Some(rate), Some(uncertain)) => format!(
                        "over the measurement its rate differs by {rate:.2} % (give or take {uncertain:.2}); up to 10 % is allowed"
                    ),
                    _ => "too few answers to compare rates".to_owned(),
                };
                format!(
                    "the server's, {} {side} this host's (give or take {}), which does no harm; {rate}. Not known: how it \
                     runs over hours, whether it steps",
                    short_span(*ahead),
                    short_span(*uncertain)
                )
            }
        }
    }

    fn failover_text(&self) -> String {
        let worst = span(self.figures.worst_failover());
        match self.proves_deaths {
            true => format!("milliseconds after a process dies; {worst} at worst, after one that hangs"),
            false => format!(
                "{worst} at worst after an owner dies: its lease, 50ms and the slowest answer; milliseconds where the guard of \
                 `tenure run` reports it"
            ),
        }
    }
}

fn line(name: &str, what: &str) -> String {
    format!("{name:10}{what}\n")
}

fn trips(trips: &Trips) -> String {
    format!(
        "median {}, p99 {}, slowest {} ({} answers)",
        short_span(trips.median),
        short_span(trips.p99),
        short_span(trips.slowest),
        trips.count
    )
}

impl Figures {
    fn lease_text(&self) -> String {
        let longest = match self.longest {
            longest if longest.is_zero() => String::new(),
            longest if longest == self.timing.ttl() => String::new(),
            longest => format!(
                "; this namespace has seen one of {}: use one for all, in case the store loses its data",
                span(longest)
            ),
        };
        let (ttl, renew, trust) =
            (span(self.timing.ttl()), span(self.timing.renew()), span(self.timing.trust()));
        format!("ttl {ttl}, renewed every {renew}, trusted for {trust}{longest}")
    }

    fn outage_text(&self) -> String {
        let (least, most) = self.outage();
        format!(
            "the store may be away for {} and nobody loses anything; for up to {} if it goes just after a renewal",
            span(least),
            span(most)
        )
    }

    fn ttl_text(&self) -> String {
        let (suggested, ttl) = (span(self.suggested_ttl()), span(self.timing.ttl()));
        match self.timing.ttl() {
            present if present < self.suggested_ttl() => {
                format!("{suggested} or longer is suggested: {ttl} leaves too little room for slow answers")
            }
            present if present == self.suggested_ttl() => {
                format!("{suggested} is the shortest that fits this store")
            }
            _ => format!(
                "{ttl} fits; the shortest that does is {suggested}. Shorter: sooner failover; longer: longer outages survived"
            ),
        }
    }
}

// ---- for programs ------------------------------------------------------------------------------------------

#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    store: String,
    namespace: &'a str,
    safe: bool,
    concerns: Vec<Told<'a>>,
    asking: Answers,
    renewing: Answers,
    clock: ToldClock,
    ttl_ms: u64,
    renew_ms: u64,
    trust_ms: u64,
    longest_ttl_seen_ms: Option<u64>,
    proves_deaths: bool,
    worst_failover_ms: u64,
    survived_outage_ms: u64,
    suggested_ttl_ms: u64,
}

#[derive(Serialize)]
struct Told<'a> {
    cost: &'static str,
    what: &'a str,
    hint: &'a str,
}

#[derive(Serialize)]
struct Answers {
    count: usize,
    median_us: u64,
    p99_us: u64,
    slowest_us: u64,
}

#[derive(Serialize)]
struct ToldClock {
    whose: &'static str,
    ahead_us: Option<i64>,
    ahead_uncertain_us: Option<u64>,
    rate_percent: Option<f64>,
    rate_uncertain_percent: Option<f64>,
}

impl Findings {
    fn report<'a>(&'a self, reading: &'a Reading) -> Report<'a> {
        let figures = &self.figures;
        let told = |concern: &'a Concern| Told {
            cost: match concern.cost {
                Cost::Time => "time",
                Cost::Record => "record",
                _ => "exclusion",
            },
            what: &concern.what,
            hint: &concern.hint,
        };
        Report {
            version: VERSION,
            store: reading.place.to_string(),
            namespace: reading.namespace.as_str(),
            safe: self.is_safe,
            concerns: self.concerns.iter().map(told).collect(),
            asking: answers(&figures.asking),
            renewing: answers(&figures.renewing),
            clock: clock(&self.clock),
            ttl_ms: millis(figures.timing.ttl()),
            renew_ms: millis(figures.timing.renew()),
            trust_ms: millis(figures.timing.trust()),
            longest_ttl_seen_ms: Some(figures.longest).filter(|longest| !longest.is_zero()).map(millis),
            proves_deaths: self.proves_deaths,
            worst_failover_ms: millis(figures.worst_failover()),
            survived_outage_ms: millis(figures.outage().0),
            suggested_ttl_ms: millis(figures.suggested_ttl()),
        }
    }
}

fn answers(trips: &Trips) -> Answers {
    Answers {
        count: trips.count,
        median_us: micros(trips.median),
        p99_us: micros(trips.p99),
        slowest_us: micros(trips.slowest),
    }
}

fn clock(clock: &Clock) -> ToldClock {
    match clock {
        Clock::Shared => ToldClock {
            whose: "host",
            ahead_us: None,
            ahead_uncertain_us: None,
            rate_percent: None,
            rate_uncertain_percent: None,
        },
        Clock::Server { ahead, is_ahead, uncertain, rate, rate_uncertain } => {
            let ahead = i64::try_from(ahead.as_micros()).unwrap_or(i64::MAX);
            ToldClock {
                whose: "server",
                ahead_us: Some(if *is_ahead { ahead } else { -ahead }),
                ahead_uncertain_us: Some(micros(*uncertain)),
                rate_percent: *rate,
                rate_uncertain_percent: *rate_uncertain,
            }
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
