//! What a run came to: a table for people, lines of JSON for programs, and the table in docs/guarantees.md.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Failure;
use crate::fault::Fault;
use crate::run::{Outcome, Row};
use crate::wish::Wish;

const HEADS: [&str; 10] = [
    "fault",
    "rounds",
    "blows",
    "ownerships",
    "overlaps",
    "lost entries",
    "token regressions",
    "longest vacancy / bound",
    "late",
    "control",
];
const DOCUMENT: &str = "docs/guarantees.md";

/// For a terminal.
pub(crate) fn text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let _ = writeln!(text, "\n{}\n", head(outcome));
        let mut lines = vec![HEADS.map(str::to_owned)];
        lines.extend(cells(outcome));
        let widths: Vec<usize> = (0..HEADS.len())
            .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
            .collect();
        for line in lines {
            let cells: Vec<String> =
                line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            let _ = writeln!(text, "{}", cells.join("  ").trim_end());
        }
        let _ = writeln!(text, "\nplanted, and seen:");
        for control in &outcome.controls {
            let _ = writeln!(text, "  {:<28} {:>4} {}", control.plant, control.seen, control.breaks);
        }
    }
    text
}

fn head(outcome: &Outcome) -> String {
    let Outcome { version, ttl, took, died, .. } = outcome;
    let ended = match died.len() {
        0 => String::new(),
        count => format!(", {count} processes ended by themselves"),
    };
    let whole: f64 = outcome.rows.iter().map(|row| row.took.as_secs_f64()).sum();
    let stalled: f64 = outcome.rows.iter().map(|row| row.stalled * row.took.as_secs_f64()).sum();
    let stalled = if whole > 0.0 { (stalled / whole * 100.0).min(100.0) } else { 0.0 };
    let took = took.as_secs_f64();
    format!(
        "{version}, ttl {ttl:?}, {took:.0} s, {stalled:.0} % of them with somebody waiting for a processor{ended}"
    )
}

/// A line per fault, also for those that a store cannot have.
fn cells(outcome: &Outcome) -> Vec<[String; HEADS.len()]> {
    let mut lines = Vec::new();
    for fault in Fault::ALL {
        let words = fault.words(outcome.kind).to_owned();
        if let Some(row) = outcome.rows.iter().find(|row| row.fault == fault) {
            lines.push(line(words, row));
        } else if let Some(why) = fault.is_beside_the_point(outcome.kind) {
            let mut line: [String; HEADS.len()] = std::array::from_fn(|_| "-".to_owned());
            (line[0], line[1]) = (words, why.to_owned());
            lines.push(line);
        }
    }
    lines
}

fn line(words: String, row: &Row) -> [String; HEADS.len()] {
    let millis = |span: Duration| format!("{:.0}", span.as_secs_f64() * 1e3);
    let verdict = &row.verdict;
    let vacancy = match verdict.longest {
        Some((longest, bound)) => format!("{} / {} ms", millis(longest), millis(bound)),
        None => "-".to_owned(),
    };
    let lost = match verdict.refused {
        0 => row.lost.len().to_string(),
        refused => format!("{} ({refused} refused)", row.lost.len()),
    };
    let rounds = match row.inconclusive {
        0 => row.rounds.len().to_string(),
        times => format!("{} (played {} times)", row.rounds.len(), times + 1),
    };
    [
        words,
        rounds,
        row.rounds.iter().map(|round| round.blows).sum::<u32>().to_string(),
        verdict.ownerships.to_string(),
        verdict.overlaps.len().to_string(),
        lost,
        verdict.regressions.len().to_string(),
        vacancy,
        if row.is_busy() { "busy".to_owned() } else { verdict.late.len().to_string() },
        verdict.control.to_string(),
    ]
}

/// One line per fault and store, and one per control.
pub(crate) fn json_lines(outcomes: &[Outcome], wish: &Wish) -> String {
    let mut lines = String::new();
    for outcome in outcomes {
        for row in &outcome.rows {
            let _ = writeln!(lines, "{}", of_row(outcome, row));
        }
        for control in &outcome.controls {
            let (store, seed) = (outcome.kind.name(), wish.seed);
            let line = json!({
                "store": store, "seed": seed, "planted": control.plant, "breaks": control.breaks, "seen": control.seen,
            });
            let _ = writeln!(lines, "{line}");
        }
    }
    lines
}

fn of_row(outcome: &Outcome, row: &Row) -> Value {
    let millis = |span: Duration| (span.as_secs_f64() * 1e6).round() / 1e3;
    let (verdict, longest) = (&row.verdict, row.verdict.longest);
    let rounds: Vec<Value> = row
        .rounds
        .iter()
        .map(|round| {
            let marks: Vec<Value> = round
                .marks
                .iter()
                .map(|mark| {
                    let at = |time: u64| time.saturating_sub(round.window.from) as f64 / 1e3;
                    json!({ "whom": mark.whom, "what": mark.what, "from_ms": at(mark.from), "to_ms": at(mark.to) })
                })
                .collect();
            let took = (round.window.to - round.window.from) as f64 / 1e3;
            json!({ "seed": round.seed, "blows": round.blows, "took_ms": took, "marks": marks })
        })
        .collect();
    json!({
        "store": outcome.kind.name(),
        "version": outcome.version,
        "ttl_ms": millis(outcome.ttl),
        "fault": row.fault.name(),
        "rounds": rounds,
        "blows": row.rounds.iter().map(|round| round.blows).sum::<u32>(),
        "ownerships": verdict.ownerships,
        "overlaps": verdict.overlaps,
        "lost_entries": row.lost,
        "refused_writes": verdict.refused,
        "token_regressions": verdict.regressions,
        "late": verdict.late,
        "busy": row.is_busy(),
        "inconclusive": row.inconclusive,
        "slow_writes": verdict.slow,
        "longest_vacancy_ms": longest.map(|(longest, _)| millis(longest)),
        "bound_ms": longest.map(|(_, bound)| millis(bound)),
        "control": verdict.control,
        "stalled": (row.stalled * 1e3).round() / 1e3,
        "took_ms": millis(row.took),
    })
}

/// Puts the table of each store between its two marks in the document.
pub(crate) fn publish(outcomes: &[Outcome], wish: &Wish) -> Result<(), Failure> {
    let path = Path::new(DOCUMENT);
    let mut document =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {DOCUMENT}: {error}"))?;
    for outcome in outcomes {
        document = between(&document, outcome.kind.name(), &markdown(outcome, wish))?;
    }
    Ok(std::fs::write(path, document)?)
}

fn between(document: &str, store: &str, written: &str) -> Result<String, Failure> {
    let (begins, ends) = marks(store);
    let (before, rest) = document.split_once(&begins).ok_or("the document has no mark for the table")?;
    let (_, after) = rest.split_once(&ends).ok_or("the mark for the table has no end")?;
    Ok(format!("{before}{begins}\n{written}{ends}{after}"))
}

fn marks(store: &str) -> (String, String) {
    let begins = format!("<!-- faults on {store}: written by `scripts/faults --publish` -->");
    (begins, format!("<!-- faults on {store}: end -->"))
}

fn markdown(outcome: &Outcome, wish: &Wish) -> String {
    let mut text = String::new();
    let (head, names, rule) = (head(outcome), HEADS.join(" | "), "---|".repeat(HEADS.len()));
    let _ = writeln!(
        text,
        "**{head}**, {}, {}, seed {}, `scripts/faults {}`",
        today(),
        kernel(),
        wish.seed,
        wish.typed
    );
    let _ = writeln!(text, "\n| {names} |\n|{rule}");
    for line in cells(outcome) {
        let _ = writeln!(text, "| {} |", line.join(" | "));
    }
    let seen = |control: &crate::controls::Control| {
        format!("{} ({} {})", control.plant, control.seen, control.breaks)
    };
    let controls: Vec<String> = outcome.controls.iter().map(seen).collect();
    let _ = writeln!(text, "\nPlanted, and seen: {}.", controls.join("; "));
    text
}

fn today() -> String {
    let date = std::process::Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    date.map(|date| String::from_utf8_lossy(&date.stdout).trim().to_owned()).unwrap_or_default()
}

fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("Linux {}, {cores} cores", release.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_a_store_is_put_between_its_marks_and_nothing_else_is_touched() {
        let (begins, ends) = marks("redis");
        let (other, over) = marks("sqlite");
        let document = format!("before\n{other}\nkept\n{over}\n{begins}\nold\n{ends}\nafter\n");

        let new = between(&document, "redis", "new\n").expect("there are marks");

        assert_eq!(new, document.replace("old", "new"));
        assert_eq!(between(&new, "redis", "new\n").expect("there are marks"), new);
        assert!(between("no marks", "redis", "new\n").is_err());
    }

    #[test]
    fn the_document_has_a_place_for_every_store() {
        let document = include_str!("../../../docs/guarantees.md");

        for kind in testkit::StoreKind::ALL {
            assert!(between(document, kind.name(), "new\n").is_ok(), "{kind:?}");
        }
    }
}
