//! What was found, on one page: tables for people, JSON for programs.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::cell::{Cell, Cells, Column};
use super::chart;
use super::roster::Peer;
use crate::Failure;

/// One peer, with what was found or why it was not measured.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) peer: Peer,
    pub(super) cells: Result<Cells, String>,
}

#[derive(Debug)]
pub(super) struct Report {
    rows: Vec<Row>,
    versions: Vec<String>,
    date: String,
    machine: String,
}

/// Titles of the tables, and their columns.
const TABLES: [(&str, &[Column]); 4] = {
    use Column::*;
    [
        ("How fast ownership moves", &[HandOver, Crash, Excess]),
        ("Whether two can own", &[AfterPause, Hung, Cut, CheckCost]),
        ("What the server is asked per second", &[Held1, Held100, Held1000, Waiting, PerHandOver]),
        ("What it costs the process", &[Memory]),
    ]
};

/// Where `--publish` writes in docs/benchmarks.md.
const BEGIN: &str = "<!-- peers: begin -->";
const END: &str = "<!-- peers: end -->";
/// The charts, beside it.
const FOLDER: &str = "peers";

impl Report {
    pub(super) fn new(rows: Vec<Row>, versions: Vec<String>) -> Self {
        Self { rows, versions, date: today(), machine: machine() }
    }

    /// The page: what was measured, tables, and where peers are better.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let head = format!("{}, {}. {}.", self.date, self.machine, self.versions.join(", "));
        let _ = writeln!(text, "{head}\n");
        for (title, columns) in TABLES {
            let columns: Vec<Column> =
                columns.iter().copied().filter(|column| self.is_asked_for(*column)).collect();
            if !columns.is_empty() {
                let _ = writeln!(text, "**{title}**\n\n{}", self.table(&columns));
            }
        }
        for row in &self.rows {
            if let Err(reason) = &row.cells {
                let _ = writeln!(text, "Not measured: {}. {reason}.", row.peer.name);
            }
        }
        let _ = writeln!(text, "{}", self.where_peers_are_better());
        text
    }

    fn is_asked_for(&self, column: Column) -> bool {
        self.rows.iter().any(|row| row.cells.as_ref().is_ok_and(|cells| cells.contains_key(&column)))
    }

    fn table(&self, columns: &[Column]) -> String {
        let mut head = vec!["".to_owned()];
        head.extend(columns.iter().map(|column| column.title().to_owned()));
        let mut lines = vec![head];
        for row in &self.rows {
            let cells = columns.iter().map(|column| match &row.cells {
                Ok(cells) => cells.get(column).map_or_else(String::new, |cell| self.show(*column, cell)),
                Err(_) => "not measured".to_owned(),
            });
            let mut line = vec![row.peer.name.to_owned()];
            line.extend(cells);
            if columns.contains(&Column::CheckCost) {
                line[0] = format!("{} ({})", row.peer.name, row.peer.check.name());
            }
            lines.push(line);
        }
        aligned(&lines)
    }

    /// The best of a column stands out.
    fn show(&self, column: Column, cell: &Cell) -> String {
        let is_best = match (cell.rank(), self.best(column)) {
            (Some(rank), Some(best)) => rank <= best && !matches!(cell, Cell::Answers { .. }),
            _ => false,
        };
        if is_best { format!("**{}**", cell.show(column)) } else { cell.show(column) }
    }

    fn best(&self, column: Column) -> Option<f64> {
        let ranks = self.rows.iter().filter_map(|row| row.rank(column));
        ranks.min_by(f64::total_cmp)
    }

    /// In sentences: what a peer does better than Tenure on the same store or, on a store that Tenure does not know, better
    /// than Tenure on any.
    fn where_peers_are_better(&self) -> String {
        if !self.rows.iter().any(|row| row.peer.is_ours() && row.has_figures()) {
            return "Nothing of Tenure was measured to compare with.\n".to_owned();
        }
        let mut text = "**Where a peer is better than Tenure**, on the same store or, on another one, than Tenure on any:\n\n".to_owned();
        let mut is_any = false;
        for (_, columns) in TABLES {
            for column in columns {
                let better: Vec<String> =
                    self.rows.iter().filter_map(|row| self.how_it_is_better(row, *column)).collect();
                if !better.is_empty() {
                    is_any = true;
                    let title = column.title().split(':').next().unwrap_or_default();
                    let _ = writeln!(text, "- {title}: {}.", better.join("; "));
                }
            }
        }
        if is_any { text } else { "No peer is better than Tenure in any column.\n".to_owned() }
    }

    fn how_it_is_better(&self, row: &Row, column: Column) -> Option<String> {
        // Less than a twentieth is no difference.
        const PART: f64 = 0.95;
        if row.peer.is_ours() {
            return None;
        }
        let rank = row.rank(column)?;
        let ours = || self.rows.iter().filter(|other| other.peer.is_ours());
        let beside = |other: &&Row| other.peer.store == row.peer.store;
        let is_shared = ours().any(|other| other.peer.store == row.peer.store);
        let rivals: Vec<&Row> = ours().filter(|other| !is_shared || beside(other)).collect();
        let best = rivals.into_iter().filter(|other| other.rank(column).is_some());
        let best = best.min_by(|a, b| {
            f64::total_cmp(&a.rank(column).unwrap_or(f64::MAX), &b.rank(column).unwrap_or(f64::MAX))
        })?;
        if rank >= (best.rank(column)? - column.tolerance()) * PART {
            return None;
        }
        let show = |row: &Row| {
            row.cells.as_ref().ok().and_then(|cells| cells.get(&column)).map(|cell| cell.show(column))
        };
        Some(format!("{} ({}, against {} of {})", row.peer.name, show(row)?, show(best)?, best.peer.name))
    }

    /// How many cells could not be measured though they should have been.
    pub(super) fn failures(&self) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.cells.as_ref().ok()).flat_map(Cells::values);
        cells.filter(|cell| matches!(cell, Cell::Says(text) if text.starts_with("failed"))).count()
    }

    pub(super) fn json(&self) -> String {
        let rows = self.rows.iter().map(|row| match &row.cells {
            Ok(cells) => {
                let cells = cells.iter().map(|(column, cell)| (column.id().to_owned(), cell.value()));
                let cells: serde_json::Map<String, Value> = cells.collect();
                json!({ "peer": row.peer.id, "name": row.peer.name, "check": row.peer.check.name(), "measured": cells })
            }
            Err(reason) => json!({ "peer": row.peer.id, "name": row.peer.name, "not_measured": reason }),
        });
        let rows: Vec<Value> = rows.collect();
        let value =
            json!({ "date": self.date, "machine": self.machine, "versions": self.versions, "peers": rows });
        format!("{value:#}\n")
    }

    /// Rewrites what stands between the markers in benchmarks.md, and the charts beside it.
    pub(super) fn publish(&self, docs: &Path) -> Result<(), Failure> {
        let mut page = self.text();
        std::fs::create_dir_all(docs.join(FOLDER))?;
        for chart in chart::ALL {
            let bars: Vec<(String, f64)> = self
                .rows
                .iter()
                .filter_map(|row| Some((row.peer.name.replace('`', ""), row.rank(chart.column)?)))
                .collect();
            if bars.is_empty() {
                continue;
            }
            std::fs::write(docs.join(FOLDER).join(chart.file), chart.draw(&bars)?)?;
            let _ = writeln!(page, "![{}]({FOLDER}/{})", chart.title, chart.file);
        }
        let path = docs.join("benchmarks.md");
        let text = std::fs::read_to_string(&path)?;
        Ok(std::fs::write(&path, between_markers(&text, &page)?)?)
    }
}

impl Row {
    fn has_figures(&self) -> bool {
        self.cells.as_ref().is_ok_and(|cells| cells.values().any(|cell| cell.rank().is_some()))
    }

    fn rank(&self, column: Column) -> Option<f64> {
        self.cells.as_ref().ok()?.get(&column)?.rank()
    }
}

fn between_markers(text: &str, page: &str) -> Result<String, Failure> {
    let (before, rest) = text.split_once(BEGIN).ok_or("benchmarks.md has no mark where the peers begin")?;
    let (_, after) = rest.split_once(END).ok_or("benchmarks.md has no mark where the peers end")?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", page.trim_end()))
}

/// A table in Markdown that can also be read as it is.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!(" {cell:width$} |"));
        let _ = writeln!(text, "|{}", cells.collect::<String>());
        if number == 0 {
            let rule = widths.iter().map(|width| format!("{}|", "-".repeat(width + 2)));
            let _ = writeln!(text, "|{}", rule.collect::<String>());
        }
    }
    text
}

/// By the machine's calendar.
fn today() -> String {
    let said = std::process::Command::new("date").arg("+%Y-%m-%d").output();
    said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned()).unwrap_or_default()
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux");
    format!("{cores} cores, {}, all on one machine", name.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::roster;

    fn row(id: &str, column: Column, number: f64) -> Row {
        let peer = *roster::ALL.iter().find(|peer| peer.id == id).expect("a peer");
        Row { peer, cells: Ok(Cells::from([(column, Cell::number(number))])) }
    }

    fn report(rows: Vec<Row>) -> Report {
        Report { rows, versions: Vec::new(), date: String::new(), machine: String::new() }
    }

    #[test]
    fn the_page_says_where_a_peer_is_better_on_the_same_store() {
        let ours =
            || vec![row("tenure-redis", Column::HandOver, 2.0), row("tenure-sqlite", Column::HandOver, 0.5)];
        let with = |id: &str, number: f64| {
            let mut rows = ours();
            rows.push(row(id, Column::HandOver, number));
            report(rows).where_peers_are_better()
        };

        assert!(with("rslock", 1.0).contains("rslock (1.00 s, against 2.00 s of Tenure on Redis)"));
        assert!(with("rslock", 1.99).starts_with("No peer"));
        assert!(
            report(vec![row("rslock", Column::Crash, 1.0)])
                .where_peers_are_better()
                .starts_with("Nothing of Tenure")
        );
        assert!(with("kazoo", 1.0).starts_with("No peer"));
        assert!(
            with("kazoo", 0.4).contains("kazoo Election (400.00 ms, against 500.00 ms of Tenure on SQLite)")
        );
    }

    #[test]
    fn a_peer_that_was_not_measured_is_named_with_the_reason() {
        let mut rows = vec![row("tenure-redis", Column::HandOver, 2.0), row("rslock", Column::HandOver, 3.0)];
        rows[1].cells = Err("`cargo` failed: no network".to_owned());
        let text = report(rows).text();

        assert!(text.contains("| rslock "), "{text}");
        assert!(text.contains("Not measured: rslock. `cargo` failed: no network."), "{text}");
    }

    #[test]
    fn publishing_leaves_the_rest_of_the_page_alone() {
        let page = format!("above\n{BEGIN}\nold\n{END}\nbelow\n");

        let written = between_markers(&page, "new\n").expect("markers");
        assert_eq!(written, format!("above\n{BEGIN}\nnew\n{END}\nbelow\n"));
        assert_eq!(between_markers(&written, "new").expect("markers"), written);
        assert!(between_markers("no markers", "new").is_err());
    }
}
