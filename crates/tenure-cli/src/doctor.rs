//! `tenure doctor`: is this store safe, how fast is it, how does its clock run, and which timing fits.

pub(crate) mod figures;

use std::time::Duration;

use tenure::admin::Admin;
use tenure::store::Impact;

use self::figures::{Clock, Figures, Findings, Trips};
use crate::exit::{Exit, Failure};
use crate::json;
use crate::open::patiently;
use crate::output::{self, Colour, Style, clean, short_span, span, wrapped};
use crate::settings::{self, Form, Store};

/// How long each kind of question is put.
const MEASURED_FOR: Duration = Duration::from_secs(1);

pub(crate) async fn doctor(settings: settings::Doctor) -> Result<Exit, Failure> {
    let settings::Doctor { timing, form, store: at } = settings;
    let store = open(&at).await?;
    let concerns = store.safety().await?;
    let label = format!("tenure-doctor-{}", std::process::id());
    let measured = store.measure(&label, MEASURED_FOR).await?;
    let clock = if at.place.is_file() { Clock::Shared } else { Clock::of_server(&measured.asked) };
    let findings = Findings {
        proves_deaths: at.place.proves_deaths(),
        figures: Figures::of(timing, &measured),
        concerns,
        clock,
    };
    match form {
        Form::Programs => output::report(&at, json::Doctor::of(&findings))?,
        _ => output::data(&findings.text(Style::of_stdout()))?,
    }
    Ok(if findings.is_safe() { Exit::OK } else { Exit::UNSAFE })
}

/// The store. It is made if need be, because whether it works is what people want to know; but for a file that was
/// named, whose path may be misspelt.
async fn open(at: &Store) -> Result<Admin, Failure> {
    if at.place.is_file() && !at.place.is_default() {
        return at.require().await;
    }
    at.place.make_folder()?;
    let open = async || Admin::open_named(at.place.url(), at.namespace.as_str()).await;
    let store = patiently(&at.place, at.waits, open).await?;
    output::which_store(&at.place, at.namespace.as_str());
    Ok(store)
}

// ---- for people --------------------------------------------------------------------------------------------

impl Findings {
    fn text(&self, style: Style) -> String {
        let figures = &self.figures;
        let worst = self.concerns.iter().map(|concern| concern.cost).max();
        let safe = match worst {
            _ if !self.is_safe() => {
                style.paint(Colour::Bad, "no") + ", after some faults two may own at once"
            }
            Some(Impact::Record) => {
                style.paint(Colour::Good, "yes")
                    + ", as far as the store tells, for what one owns; not for `tenure once` and `tenure cron`"
            }
            _ => style.paint(Colour::Good, "yes") + ", as far as the store tells: every promise holds",
        };
        let mut text = line("safe", &safe);
        for concern in &self.concerns {
            let (colour, cost) = match concern.cost {
                Impact::Time => (Colour::Warning, "costs time"),
                Impact::Record => (Colour::Warning, "forgets jobs"),
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
