//! Bar charts, drawn as SVG.

use plotters::prelude::*;

use super::cell::Column;
use crate::Failure;

/// One picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chart {
    pub(super) file: &'static str,
    pub(super) title: &'static str,
    pub(super) column: Column,
    unit: &'static str,
    /// What one of that unit is in what is measured.
    scale: f64,
    /// Where the least is thousands of times less than the most.
    is_logarithmic: bool,
}

pub(super) const ALL: [Chart; 4] = [
    Chart {
        file: "hand-over.svg",
        title: "Graceful hand-over, median (ms, logarithmic)",
        column: Column::HandOver,
        unit: "ms",
        scale: 1e-3,
        is_logarithmic: true,
    },
    Chart {
        file: "crash.svg",
        title: "kill -9 until the next one owns, median (ms, logarithmic; lease of 2 s)",
        column: Column::Crash,
        unit: "ms",
        scale: 1e-3,
        is_logarithmic: true,
    },
    Chart {
        file: "waiting.svg",
        title: "Commands per second with 100 waiting (logarithmic)",
        column: Column::Waiting,
        unit: "",
        scale: 1.0,
        is_logarithmic: true,
    },
    Chart {
        file: "hung-link.svg",
        title: "Seconds in which two own, link hung for 8 s",
        column: Column::Hung,
        unit: "s",
        scale: 1.0,
        is_logarithmic: false,
    },
];

const WIDTH: u32 = 760;
const BAR: u32 = 26;
const HEAD: u32 = 40;
/// Where the bars begin, so that the names fit before them.
const LEFT: i32 = 210;
/// Behind the longest one, for its number.
const RIGHT: i32 = 90;
const OURS: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);
const THEIRS: RGBColor = RGBColor(0x9a, 0xa5, 0xb1);

impl Chart {
    /// Names and what was measured, in the order given.
    pub(super) fn draw(&self, bars: &[(String, f64)]) -> Result<String, Failure> {
        let mut svg = String::new();
        let height = HEAD + BAR * u32::try_from(bars.len())? + 10;
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let text = ("sans-serif", 14).into_font();
        area.draw(&Text::new(self.title, (10, 12), ("sans-serif", 16).into_font()))?;
        for (number, (name, measured)) in bars.iter().enumerate() {
            let top = i32::try_from(HEAD + BAR * u32::try_from(number)?)?;
            let bottom = top + i32::try_from(BAR)? - 6;
            let end = LEFT + self.length(*measured, bars);
            let colour = if name.contains("enure") { OURS } else { THEIRS };
            area.draw(&Text::new(name.as_str(), (10, top + 3), text.clone()))?;
            area.draw(&Rectangle::new([(LEFT, top), (end, bottom)], colour.filled()))?;
            area.draw(&Text::new(self.show(*measured), (end + 6, top + 3), text.clone()))?;
        }
        area.present()?;
        drop(area);
        Ok(svg)
    }

    fn show(&self, measured: f64) -> String {
        let number = measured / self.scale;
        let number = if number < 10.0 { format!("{number:.2}") } else { format!("{number:.0}") };
        format!("{number} {}", self.unit).trim_end().to_owned()
    }

    /// In pixels.
    fn length(&self, measured: f64, bars: &[(String, f64)]) -> i32 {
        let room = f64::from(WIDTH) - f64::from(LEFT + RIGHT);
        let most = bars.iter().map(|(_, measured)| *measured).fold(f64::MIN_POSITIVE, f64::max);
        let part = if self.is_logarithmic {
            // The least has a bar, too: a tenth of it is nothing.
            let positive = bars.iter().map(|(_, measured)| *measured).filter(|measured| *measured > 0.0);
            let nothing = positive.fold(most, f64::min) / 10.0;
            (measured.max(nothing) / nothing).ln() / (most / nothing).ln()
        } else {
            measured / most
        };
        (part * room).round() as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_picture_and_every_bar_has_its_name_and_number() {
        let bars = [("Tenure".to_owned(), 0.001), ("another".to_owned(), 1.0)];

        let svg = ALL[0].draw(&bars).expect("a picture");

        assert_eq!(ALL[0].length(1.0, &bars), i32::try_from(WIDTH).expect("small") - LEFT - RIGHT);
        for text in ["<svg", "Tenure", "another", "1.00 ms", "1000 ms"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
    }
}
