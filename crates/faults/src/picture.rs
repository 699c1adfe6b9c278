//! The picture of a round: for a few tickets, who believed to own them and when, above what the store said; and what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use testkit::{Micros, StoreKind};

use crate::judge::{Interval, Ticket, Written};
use crate::sampler::Sample;
use crate::stage::{Round, STORE};

/// So many tickets are shown: those that changed hands most.
const TICKETS: usize = 5;
const LEFT: f64 = 150.0;
const WIDTH: f64 = 1000.0;
const LANE: f64 = 16.0;
const TOP: f64 = 64.0;

/// Draws it as SVG.
pub(crate) fn draw(
    kind: StoreKind,
    round: &Round,
    written: &[Written],
    samples: &[Sample],
    ttl: Duration,
) -> String {
    let (from, to) = (round.window.from, round.window.to);
    let mut intervals: Vec<Interval> = written.iter().filter_map(Interval::of).collect();
    intervals.retain(|interval| interval.last >= from && interval.first <= to);
    intervals.sort_by_key(|interval| interval.first);
    let shown = chosen(&intervals, round);
    let mut drawing = Drawing { from, to, body: String::new(), y: TOP, colours: BTreeMap::new() };
    drawing.marks_of(round, |mark| mark == STORE);
    drawing.marks_of(round, |mark| mark != STORE);
    for at in shown {
        drawing.ticket(at, &intervals, samples);
    }
    let title = format!(
        "{} on {}, ttl {ttl:?}, seed {}",
        round.fault.words(kind).replace('`', ""),
        kind.name(),
        round.seed
    );
    drawing.finish(&title)
}

/// The tickets with most owners, those of victims first.
fn chosen(intervals: &[Interval], round: &Round) -> Vec<Ticket> {
    let victims: BTreeSet<&str> = round.marks.iter().map(|mark| mark.whom.as_str()).collect();
    let mut score: BTreeMap<Ticket, usize> = BTreeMap::new();
    for interval in intervals {
        let weight = if victims.contains(interval.worker.as_str()) { 3 } else { 1 };
        *score.entry(interval.at).or_default() += weight;
    }
    let mut tickets: Vec<(Ticket, usize)> = score.into_iter().collect();
    tickets.sort_by_key(|(at, score)| (std::cmp::Reverse(*score), *at));
    let mut shown: Vec<Ticket> = tickets.into_iter().take(TICKETS).map(|(at, _)| at).collect();
    shown.sort_unstable();
    shown
}

struct Drawing {
    from: Micros,
    to: Micros,
    body: String,
    y: f64,
    colours: BTreeMap<String, usize>,
}

impl Drawing {
    fn x(&self, at: Micros) -> f64 {
        let span = (self.to - self.from).max(1) as f64;
        let at = at.clamp(self.from, self.to) - self.from;
        LEFT + at as f64 / span * WIDTH
    }

    /// A colour for each worker, far apart on the wheel.
    fn colour(&mut self, worker: &str) -> String {
        let next = self.colours.len();
        let index = *self.colours.entry(worker.to_owned()).or_insert(next);
        format!("hsl({}, 60%, 62%)", (index * 137) % 360)
    }

    fn bar(&mut self, from: Micros, to: Micros, fill: &str, text: &str) {
        let (x, y, width) = self.bare(from, to, fill, text);
        if width > 7.0 * text.len() as f64 {
            let _ =
                writeln!(self.body, r#"<text x="{:.1}" y="{:.1}">{text}</text>"#, x + 3.0, y + LANE - 6.0);
        }
    }

    /// A bar that says what it is only to who points at it.
    fn bare(&mut self, from: Micros, to: Micros, fill: &str, text: &str) -> (f64, f64, f64) {
        let (x, y) = (self.x(from), self.y);
        let width = (self.x(to) - x).max(1.0);
        let _ = writeln!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{:.1}" fill="{fill}"><title>{text}</title></rect>"#,
            LANE - 3.0
        );
        (x, y, width)
    }

    fn name(&mut self, text: &str) {
        let _ = writeln!(self.body, r#"<text x="8" y="{:.1}">{text}</text>"#, self.y + LANE - 6.0);
    }

    fn marks_of(&mut self, round: &Round, fits: impl Fn(&str) -> bool) {
        for mark in round.marks.iter().filter(|mark| fits(&mark.whom)) {
            self.name(&escaped(&mark.whom));
            self.bare(mark.from, mark.to.max(mark.from + 4_000), "#c33", &escaped(&mark.what));
            let (x, y) = (self.x(mark.to) + 6.0, self.y + LANE - 6.0);
            let _ = writeln!(
                self.body,
                r##"<text x="{x:.1}" y="{y:.1}" fill="#c33">{}</text>"##,
                escaped(&mark.what)
            );
            self.y += LANE;
        }
    }

    /// A line per worker that owned it, and one for the store.
    fn ticket(&mut self, at: Ticket, intervals: &[Interval], samples: &[Sample]) {
        self.y += LANE / 2.0;
        let (resource, ticket) = at;
        let heading = format!(
            r#"<text x="8" y="{:.1}" font-weight="bold">r{resource:02}, ticket {ticket}</text>"#,
            self.y + 10.0
        );
        let _ = writeln!(self.body, "{heading}");
        self.y += LANE;
        let of_it: Vec<&Interval> = intervals.iter().filter(|interval| interval.at == at).collect();
        let mut workers: Vec<&str> = Vec::new();
        for interval in &of_it {
            if !workers.contains(&interval.worker.as_str()) {
                workers.push(&interval.worker);
            }
        }
        for worker in workers {
            self.name(&format!("{} believes", escaped(worker)));
            let fill = self.colour(worker);
            for interval in of_it.iter().filter(|interval| interval.worker == worker) {
                self.bar(interval.first, interval.last, &fill, &format!("term {}", interval.term));
            }
            self.y += LANE;
        }
        self.name("the store says");
        for (from, to, said) in said(at, samples) {
            match said {
                Some(worker) => {
                    let fill = self.colour(&worker);
                    self.bar(from, to, &fill, &escaped(&worker));
                }
                None => self.bar(from, to, "#ccc", "no answer"),
            }
        }
        self.y += LANE;
    }

    fn finish(self, title: &str) -> String {
        let (height, right) = (self.y + 30.0, LEFT + WIDTH);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {height:.0}\" font-family=\"sans-serif\" \
             font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"8\" y=\"20\" font-size=\"14\">{}</text>\n",
            right + 120.0,
            escaped(title)
        );
        let seconds = (self.to - self.from) as f64 / 1e6;
        let every = if seconds > 8.0 { 1.0 } else { 0.5 };
        let mut at = 0.0;
        while at <= seconds {
            let x = LEFT + at / seconds * WIDTH;
            let _ = writeln!(
                text,
                r##"<line x1="{x:.1}" y1="48" x2="{x:.1}" y2="{:.1}" stroke="#ddd"/><text x="{x:.1}" y="44" fill="#777">{at} s</text>"##,
                height - 20.0
            );
            at += every;
        }
        text + &self.body + "</svg>\n"
    }
}

/// What the store said of a ticket, in spans: a worker, or nothing where it did not answer. Where it names nobody there is
/// no span.
fn said(at: Ticket, samples: &[Sample]) -> Vec<(Micros, Micros, Option<String>)> {
    let mut spans: Vec<(Micros, Micros, Option<String>)> = Vec::new();
    for pair in samples.windows(2) {
        let (sample, until) = (&pair[0], pair[1].at);
        let said = match &sample.owners {
            None => None,
            Some(owners) => match owners.get(&at) {
                Some(worker) => Some(worker.clone()),
                None => continue,
            },
        };
        match spans.last_mut() {
            Some((_, to, last)) if *to == sample.at && *last == said => *to = until,
            _ => spans.push((sample.at, until, said)),
        }
    }
    spans
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_store_said_is_put_together_into_spans() {
        let sample = |at, worker: Option<&str>| Sample {
            at,
            owners: Some(worker.map(|worker| ((0, 0), worker.to_owned())).into_iter().collect()),
        };
        let samples = [
            sample(0, Some("a")),
            sample(10, Some("a")),
            sample(20, None),
            Sample { at: 30, owners: None },
            sample(40, Some("b")),
            sample(50, None),
        ];

        let spans = said((0, 0), &samples);

        let (a, b) = (Some("a".to_owned()), Some("b".to_owned()));
        assert_eq!(spans, [(0, 20, a), (30, 40, None), (40, 50, b)]);
    }
}
