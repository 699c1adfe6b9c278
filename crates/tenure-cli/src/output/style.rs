//! Colours and characters beyond ASCII: only on a terminal, and only if the environment allows them.

use std::io::{self, IsTerminal};

/// What stdout can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) is_coloured: bool,
    pub(crate) is_unicode: bool,
    /// The width of the terminal, where there is one.
    pub(crate) columns: Option<usize>,
}

impl Style {
    /// As for a file or a pipe.
    pub(crate) const PLAIN: Self = Self { is_coloured: false, is_unicode: false, columns: None };

    /// What stdout can show and the environment allows.
    pub(crate) fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self::PLAIN;
        }
        let told = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_dumb = told("TERM").is_none_or(|term| term == "dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(told).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        Self {
            is_coloured: !is_dumb && told("NO_COLOR").is_none(),
            is_unicode: !is_dumb && (locale.contains("utf-8") || locale.contains("utf8")),
            columns: columns(),
        }
    }

    /// In this colour of the sixteen, if colours may be used.
    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        match self.is_coloured {
            true => format!("\u{1b}[{}m{text}\u{1b}[0m", colour.code()),
            false => text.to_owned(),
        }
    }

    /// The mark at the end of a cut text.
    pub(crate) fn mark(self) -> char {
        if self.is_unicode { '\u{2026}' } else { '~' }
    }
}

fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    // A terminal that does not know says zero.
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// The colours that every terminal has, by what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Good,
    Bad,
    Warning,
    Faint,
    Strong,
    /// One of six, for telling workers apart.
    Worker(usize),
}

impl Colour {
    const fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Warning => "33",
            Self::Faint => "2",
            Self::Strong => "1",
            Self::Worker(number) => ["36", "33", "35", "32", "34", "31"][number % 6],
        }
    }
}
