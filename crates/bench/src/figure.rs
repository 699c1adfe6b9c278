//! One line of the report: what was measured, beside its baseline, against its limit.

use std::fmt::Write;

use serde_json::{Value, json};

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    store: &'static str,
    /// The measurement that it belongs to.
    part: &'static str,
    what: String,
    measured: f64,
    unit: Unit,
    /// What it is compared with, in the same unit.
    baseline: Option<(String, f64)>,
    limit: Limit,
    /// Where the median over several runs is not that of the two numbers shown.
    ratio: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Bytes,
    Times,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// Reported, not demanded.
    Free,
    AtMost(f64),
    TimesBaseline(f64),
}

impl Figure {
    pub(crate) fn new(what: impl Into<String>, measured: f64, unit: Unit) -> Self {
        Self {
            store: "",
            part: "",
            what: what.into(),
            measured,
            unit,
            baseline: None,
            limit: Limit::Free,
            ratio: None,
        }
    }

    pub(crate) fn of(self, store: &'static str, part: &'static str) -> Self {
        Self { store, part, ..self }
    }

    pub(crate) fn beside(self, baseline: impl Into<String>, measured: f64) -> Self {
        Self { baseline: Some((baseline.into(), measured)), ..self }
    }

    pub(crate) fn with_ratio(self, ratio: f64) -> Self {
        Self { ratio: Some(ratio), ..self }
    }

    pub(crate) fn at_most(self, limit: f64) -> Self {
        Self { limit: Limit::AtMost(limit), ..self }
    }

    pub(crate) fn at_most_times(self, limit: f64) -> Self {
        Self { limit: Limit::TimesBaseline(limit), ..self }
    }

    fn ratio(&self) -> Option<f64> {
        self.ratio.or_else(|| self.baseline.as_ref().map(|(_, baseline)| self.measured / baseline))
    }

    pub(crate) fn is_missed(&self) -> bool {
        // What is not a number met no limit.
        let is_met = match self.limit {
            Limit::Free => true,
            Limit::AtMost(limit) => self.measured <= limit,
            Limit::TimesBaseline(limit) => self.ratio().is_some_and(|ratio| ratio <= limit),
        };
        !is_met
    }

    fn verdict(&self) -> &'static str {
        match (self.limit, self.is_missed()) {
            (Limit::Free, _) => "",
            (_, false) => "pass",
            (_, true) => "MISSED",
        }
    }

    fn cells(&self) -> [String; 6] {
        let baseline = self.baseline.as_ref();
        let limit = match self.limit {
            Limit::Free => String::new(),
            Limit::AtMost(limit) => format!("<= {}", self.unit.show(limit)),
            Limit::TimesBaseline(limit) => format!("<= {limit} x"),
        };
        [
            format!("{} {}: {}", self.store, self.part, self.what),
            self.unit.show(self.measured),
            baseline
                .map_or_else(String::new, |(what, measured)| format!("{} {what}", self.unit.show(*measured))),
            self.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2} x")),
            limit,
            self.verdict().to_owned(),
        ]
    }

    fn value(&self) -> Value {
        let (limit, of) = match self.limit {
            Limit::Free => (Value::Null, Value::Null),
            Limit::AtMost(limit) => (json!(limit), json!("measured")),
            Limit::TimesBaseline(limit) => (json!(limit), json!("ratio")),
        };
        json!({
            "store": self.store,
            "part": self.part,
            "what": self.what,
            "measured": self.measured,
            "unit": self.unit.name(),
            "baseline": self.baseline.as_ref().map(|(_, measured)| measured),
            "baseline_is": self.baseline.as_ref().map(|(what, _)| what),
            "ratio": self.ratio(),
            "limit": limit,
            "limit_is_for": of,
            "met": (self.limit != Limit::Free).then(|| !self.is_missed()),
        })
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Times => "times",
        }
    }

    fn show(self, number: f64) -> String {
        match self {
            Self::Seconds if number >= 1.0 => format!("{number:.2} s"),
            Self::Seconds if number >= 1e-3 => format!("{:.2} ms", number * 1e3),
            Self::Seconds if number >= 1e-6 => format!("{:.0} us", number * 1e6),
            Self::Seconds => format!("{:.1} ns", number * 1e9),
            Self::Bytes => format!("{number:.0} B"),
            Self::Times if number.fract().abs() < 1e-9 => format!("{number:.0}"),
            Self::Times => format!("{number:.2}"),
        }
    }
}

/// The report for people.
pub(crate) fn table(figures: &[Figure]) -> String {
    let head = ["what", "measured", "beside it", "ratio", "limit", ""].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(figures.iter().map(Figure::cells)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut table = String::new();
    for row in rows {
        let [what, measured, beside, ratio, limit, verdict] = row;
        let [w0, w1, w2, w3, w4, _] = widths;
        let line =
            format!("{what:w0$}  {measured:>w1$}  {beside:<w2$}  {ratio:>w3$}  {limit:>w4$}  {verdict}");
        // Writing to a string does not fail.
        let _ = writeln!(table, "{}", line.trim_end());
    }
    table
}

/// The report for programs.
pub(crate) fn json(figures: &[Figure]) -> String {
    let figures: Vec<Value> = figures.iter().map(Figure::value).collect();
    format!("{:#}\n", json!({ "figures": figures }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_missed_by_more_than_it_allows_and_by_what_is_not_a_number() {
        let beside = |measured| Figure::new("", measured, Unit::Seconds).beside("", 2.0).at_most_times(4.0);

        assert!(!beside(8.0).is_missed() && beside(8.1).is_missed() && beside(f64::NAN).is_missed());
        assert!(!beside(1.0).with_ratio(4.0).is_missed() && beside(1.0).with_ratio(4.1).is_missed());
        assert!(Figure::new("", 3.0, Unit::Times).at_most(2.0).is_missed());
    }

    #[test]
    fn numbers_are_shown_in_the_unit_that_fits() {
        let shown = [2.0, 2e-3, 2e-6, 2e-9].map(|number| Unit::Seconds.show(number));

        assert_eq!(shown, ["2.00 s", "2.00 ms", "2 us", "2.0 ns"]);
    }
}
