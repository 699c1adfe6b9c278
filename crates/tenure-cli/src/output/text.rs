//! Text for people: harmless to a terminal, in tables that fit, with readable spans.

use std::time::Duration;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Whether a character could control a terminal, or make text look like other text: control characters, those that change the
/// direction of writing, and invisible ones.
fn steers(c: char) -> bool {
    let hidden = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    c.is_control() || hidden
}

/// Text from the store or from outside, made safe to print.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

/// JSON made safe to print: characters that could control a terminal are escaped, and mean the same to a program.
pub(crate) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // Only between the values: inside them it is escaped already.
            '\n' => text.push(c),
            c if steers(c) => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    text += &format!("\\u{unit:04x}");
                }
            }
            c => text.push(c),
        }
    }
    text
}

/// The beginning of what was typed, for error messages.
pub(crate) fn beginning(typed: &str) -> String {
    let mut shown: String = typed.chars().take(60).collect();
    if shown.len() < typed.len() {
        shown += "...";
    }
    shown
}

/// The width in columns.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// As much of a text as fits into so many columns. A cut text ends with `mark`.
pub(crate) fn cut(text: &str, columns: usize, mark: char) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut left = columns.saturating_sub(1);
    for c in text.chars() {
        let takes = c.width().unwrap_or(0);
        if takes > left {
            break;
        }
        left -= takes;
        kept.push(c);
    }
    if columns > 0 {
        kept.push(mark);
    }
    kept
}

/// Sentences on a terminal: broken between words, not within; what follows is set in by as much as a line's second word,
/// if there is a gap before that, else as its first.
pub(crate) fn wrapped(text: &str, columns: Option<usize>) -> String {
    // Longer lines are hard to read.
    let Some(columns) = columns.map(|columns| columns.min(100)) else { return text.to_owned() };
    let mut lines = Vec::new();
    for line in text.split('\n') {
        if width(line) <= columns {
            lines.push(line.to_owned());
            continue;
        }
        let indent = indent(line).min(columns / 2);
        let mut present = line[..line.len() - line.trim_start().len()].to_owned();
        for word in line.trim_start().split_inclusive(' ') {
            if width(&present) + width(word.trim_end()) > columns && !present.trim().is_empty() {
                lines.push(present.trim_end().to_owned());
                present = " ".repeat(indent);
            }
            present += word;
        }
        lines.push(present);
    }
    lines.join("\n")
}

/// Where the text of a line begins: after a name and its gap, or after blanks.
fn indent(line: &str) -> usize {
    let first = line.len() - line.trim_start().len();
    let gap = line[first..].find("  ").map(|at| first + at);
    let second = gap.map(|gap| gap + line[gap..].len() - line[gap..].trim_start().len());
    second.filter(|second| *second <= 20).unwrap_or(first)
}

/// Filled up with blanks to so many columns.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// Rows under a head. If they do not fit, each cell becomes a line of its own.
pub(crate) struct Table<const N: usize> {
    pub(crate) head: [&'static str; N],
    pub(crate) rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// Nothing at all for no rows. A column in which nothing stands is left out. `columns` is the width of the terminal,
    /// where there is one.
    pub(crate) fn text(&self, columns: Option<usize>) -> String {
        let cleaned: Vec<[String; N]> =
            self.rows.iter().map(|row| row.each_ref().map(|cell| clean(cell))).collect();
        let used: Vec<usize> = (0..N).filter(|at| cleaned.iter().any(|row| !row[*at].is_empty())).collect();
        let widths: Vec<usize> = used
            .iter()
            .map(|at| cleaned.iter().map(|row| width(&row[*at])).fold(width(self.head[*at]), usize::max))
            .collect();
        if columns.is_some_and(|columns| widths.iter().map(|width| width + 2).sum::<usize>() > columns + 2) {
            return self.stacked(&cleaned, &used);
        }
        let line = |cell: &dyn Fn(usize) -> String| {
            let cells = used.iter().zip(&widths).map(|(at, width)| padded(&cell(*at), width + 2));
            cells.collect::<String>().trim_end().to_owned() + "\n"
        };
        let head = if cleaned.is_empty() { String::new() } else { line(&|at| self.head[at].to_owned()) };
        head + &cleaned.iter().map(|row| line(&|at| row[at].clone())).collect::<String>()
    }

    fn stacked(&self, rows: &[[String; N]], used: &[usize]) -> String {
        let one = |row: &[String; N]| {
            let cells = used.iter().filter(|at| !row[**at].is_empty());
            cells.map(|at| format!("{}: {}\n", self.head[*at].to_lowercase(), row[*at])).collect::<String>()
        };
        rows.iter().map(one).collect::<Vec<String>>().join("\n")
    }
}

/// A span for people, as fine as they need it.
pub(crate) fn span(span: Duration) -> String {
    let millis = span.as_millis();
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..60_000 if millis % 1_000 < 100 => format!("{}s", millis / 1_000),
        1_000..60_000 => format!("{}.{}s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => two(millis / 60_000, "m", millis / 1_000 % 60, "s"),
        3_600_000..86_400_000 => two(millis / 3_600_000, "h", millis / 60_000 % 60, "m"),
        _ => two(millis / 86_400_000, "d", millis / 3_600_000 % 24, "h"),
    }
}

/// The second part only if there is one.
fn two(large: u128, unit: &str, small: u128, smaller: &str) -> String {
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit} {small}{smaller}") }
}

/// A span that may be far below a millisecond.
pub(crate) fn short_span(took: Duration) -> String {
    let micros = took.as_micros();
    match micros {
        0..1_000 => format!("{micros}us"),
        1_000..10_000 => format!("{}.{}ms", micros / 1_000, micros % 1_000 / 100),
        _ => span(took),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_as_fine_as_people_can_use() {
        for (millis, shown) in [
            (0, "0ms"),
            (750, "750ms"),
            (12_000, "12s"),
            (1_500, "1.5s"),
            (123_000, "2m 3s"),
            (300_000, "5m"),
            (7_500_000, "2h 5m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), shown);
        }
        assert_eq!(short_span(Duration::from_micros(480)), "480us");
        assert_eq!(short_span(Duration::from_micros(1_480)), "1.4ms");
        assert_eq!(short_span(Duration::from_micros(31_480)), "31ms");
    }

    #[test]
    fn what_could_steer_a_terminal_is_replaced_and_in_json_escaped() {
        assert_eq!(clean("a\u{1b}[31mb\u{9b}c\u{202e}d\u{7f}"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}d\u{fffd}");
        assert_eq!(
            escaped("{\n\"\u{9b}\": \"\u{202e}\u{e0041}\"}"),
            "{\n\"\\u009b\": \"\\u202e\\udb40\\udc41\"}"
        );
        assert_eq!(clean("naïve 仕事"), "naïve 仕事");
    }

    #[test]
    fn text_is_cut_and_padded_by_the_columns_that_it_takes() {
        assert_eq!(cut("仕事場", 5, '~'), "仕事~");
        assert_eq!(cut("仕事場", 6, '~'), "仕事場");
        assert_eq!(cut("abc", 1, '~'), "~");
        assert_eq!(cut("abc", 0, '~'), "");
        assert_eq!(padded("仕事", 6), "仕事  ");
    }

    #[test]
    fn sentences_are_broken_between_words_and_set_in_under_their_beginning() {
        let text =
            "ttl       one two three four\n  five six seven eight nine\nfiveandtwentyletters and more\n";

        let broken = "ttl       one two\n          three four\n  five six seven\n  eight nine\nfiveandtwentyletters\nand more\n";
        assert_eq!(wrapped(text, Some(20)), broken);
        assert_eq!(wrapped(text, None), text);
        assert_eq!(wrapped("abcdef ghi", Some(1)), "abcdef\nghi");
    }

    #[test]
    fn a_table_that_does_not_fit_is_stacked_and_a_column_without_anything_left_out() {
        let row = |a: &str, b: &str| [a.to_owned(), String::new(), b.to_owned()];
        let table = Table { head: ["NAME", "NONE", "WHO"], rows: vec![row("job", "worker-1"), row("x", "")] };

        assert_eq!(table.text(None), "NAME  WHO\njob   worker-1\nx\n");
        assert_eq!(table.text(Some(14)), table.text(None));
        assert_eq!(table.text(Some(13)), "name: job\nwho: worker-1\n\nname: x\n");
        assert_eq!(Table::<3> { head: ["A", "B", "C"], rows: vec![] }.text(None), "");
    }
}
