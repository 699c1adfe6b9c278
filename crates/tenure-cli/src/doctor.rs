//! `tenure doctor`: whether a store is safe, how fast it is, how its clock runs, and which ttl fits.

pub(crate) mod figures;

use std::time::Duration;

use tenure::admin::Admin;
use tenure::store::Impact;

use self::figures::{Clock, Figures, Findings, ServerClock, Trips};
use crate::exit::{Exit, Failure};
use crate::json;
use crate::open::patiently;
use crate::output::{Colour, Style, clean, short_span, span, wrapped};
use crate::settings::{self, Store};

/// How long to measure reads, and then writes.
const MEASURED_FOR: Duration = Duration::from_secs(1);

pub(crate) async fn doctor(settings: settings::Doctor) -> Result<Exit, Failure> {
    let settings::Doctor { timing, look } = settings;
    let (store, place) = (open(&look.store).await?, &look.store.place);
    let concerns = store.safety().await?;
    let label = format!("tenure-doctor-{}", std::process::id());
    let measured = store.measure(&label, MEASURED_FOR).await?;
    let clock = if place.is_file() { Clock::Shared } else { Clock::Server(ServerClock::of(&measured.asked)) };
    let (proves_deaths, figures) = (place.proves_deaths(), Figures::of(timing, &measured));
    let findings = Findings { proves_deaths, figures, concerns, clock };
    let exit = look.answer(|| json::doctor(&findings), |style| findings.text(style))?;
    Ok(if findings.is_safe() { exit } else { Exit::UNSAFE })
}

/// Opens the store. Creates it if need be, because whether it works is the question; but not a file that was named, whose
/// path may be misspelt.
async fn open(at: &Store) -> Result<Admin, Failure> {
    if at.place.is_file() && !at.place.is_default() {
        return at.require().await;
    }
    at.place.make_folder()?;
    let open = async || Admin::open_named(at.place.url(), at.namespace.as_str()).await;
    let store = patiently(&at.place, at.waits, open).await?;
    at.say_which();
    Ok(store)
}

// ---- for people --------------------------------------------------------------------------------------------

impl Findings {
    fn text(&self, style: Style) -> String {
        let figures = &self.figures;
        let worst = self.concerns.iter().map(|concern| concern.cost).max();
        let safe = match worst {
            _ if !self.is_safe() => {
                style.paint(Colour::Bad, "no") + ", after some faults two workers may own at once"
            }
            Some(Impact::Record) => {
                style.paint(Colour::Good, "yes")
                    + ", as far as the store tells, for ownerships; not for `tenure once` and `tenure cron`"
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
            Clock::Server(ServerClock { ahead_us, uncertain, rate }) => {
                let side = if *ahead_us < 0 { "behind" } else { "ahead of" };
                let rate = match rate {
                    Some((rate, uncertain)) => format!(
                        "during the measurement its rate differed by {rate:.2} % (give or take {uncertain:.2}); up to 10 % is allowed"
                    ),
                    None => "too few replies to compare rates".to_owned(),
                };
                format!(
                    "the server's, {} {side} this host's (give or take {}), which does no harm; {rate}. Not known: how it \
                     runs over hours, whether it steps",
                    short_span(Duration::from_micros(ahead_us.unsigned_abs())),
                    short_span(*uncertain)
                )
            }
        }
    }

    fn failover_text(&self) -> String {
        let worst = span(self.figures.worst_failover());
        match self.proves_deaths {
            true => format!("milliseconds after a process dies; at most {worst} after one hangs"),
            false => format!(
                "at most {worst} after an owner dies: its lease, 50ms and the slowest reply; milliseconds where the guard of \
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
        "median {}, p99 {}, slowest {} ({} replies)",
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
                "; this namespace has seen one of {}: use the same ttl everywhere, in case the store loses its data",
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
            "the store may be away for {} and no ownership is lost; for up to {} if it goes away just after a renewal",
            span(least),
            span(most)
        )
    }

    fn ttl_text(&self) -> String {
        let (suggested, ttl) = (span(self.suggested_ttl()), span(self.timing.ttl()));
        match self.timing.ttl() {
            present if present < self.suggested_ttl() => {
                format!("{suggested} or longer is suggested: {ttl} leaves too little room for slow replies")
            }
            present if present == self.suggested_ttl() => {
                format!("{suggested} is the shortest that fits this store")
            }
            _ => format!(
                "{ttl} fits; the shortest that does is {suggested}. A shorter ttl fails over sooner, a longer one survives longer outages"
            ),
        }
    }
}
