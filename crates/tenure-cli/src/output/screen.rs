//! Draws on the whole terminal. The terminal is restored whatever ends the program, except SIGKILL.

use std::io::{self, IsTerminal, Write};
use std::sync::Once;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{
    Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{execute, queue, terminal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::{Colour, Style, clean, cut, width};
use crate::exit::{Exit, Failure};

/// What the user or the system wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Key(char),
    Up,
    Down,
    /// The terminal has another size, or may show something else: draw again.
    Redraw,
    Quit(Exit),
}

/// One line: pieces of text, each in its colour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line(Vec<(Option<Colour>, String)>);

impl Line {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::default().and(None, text)
    }

    pub(crate) fn in_colour(colour: Colour, text: impl Into<String>) -> Self {
        Self::default().and(Some(colour), text)
    }

    pub(crate) fn and(mut self, colour: Option<Colour>, text: impl Into<String>) -> Self {
        self.0.push((colour, text.into()));
        self
    }

    /// As it is written on so many columns, made harmless.
    pub(crate) fn painted(&self, columns: usize, style: Style) -> String {
        let (mut painted, mut left) = (String::new(), columns);
        for (colour, text) in &self.0 {
            let text = clean(text);
            let shown = cut(&text, left, style.mark());
            left -= width(&shown).min(left);
            painted += &colour.map_or_else(|| shown.clone(), |colour| style.paint(colour, &shown));
            if shown != text {
                break;
            }
        }
        painted
    }
}

/// The terminal while it is ours.
pub(crate) struct Screen {
    /// Keys and signals. Some of them stop the process for a while.
    wanted: mpsc::UnboundedReceiver<Wanted>,
    style: Style,
}

enum Wanted {
    Wish(Wish),
    Suspend,
}

impl Screen {
    /// Takes the terminal. If there is none, `instead` says what else to do.
    pub(crate) fn enter(what: &str, instead: &str) -> Result<Self, Failure> {
        if !io::stdout().is_terminal() {
            return Err(Failure::new(format!("{what} needs a terminal, and stdout is none")).hint(instead));
        }
        if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
            let what = format!("{what} needs a terminal that can be drawn on, and TERM does not name one");
            return Err(Failure::new(what).hint(instead));
        }
        let failed = |error: io::Error| Failure::new("cannot use the terminal").because(&error);
        let (tell, wanted) = mpsc::unbounded_channel();
        for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP] {
            let mut signals = signal(SignalKind::from_raw(number)).map_err(failed)?;
            let tell = tell.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    let wanted = match number {
                        libc::SIGTSTP => Wanted::Suspend,
                        number => Wanted::Wish(Wish::Quit(Exit::by_signal(number))),
                    };
                    let _gone = tell.send(wanted);
                }
            });
        }
        restore_on_panic();
        begin().map_err(failed)?;
        // Ends with the process, or when no keys can be read. If the terminal is gone, drawing fails.
        let read = move || {
            while let Ok(event) = crossterm::event::read() {
                if wanted_by(&event).is_some_and(|wanted| tell.send(wanted).is_err()) {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("tenure-keys".into()).spawn(read).map_err(|error| {
            end();
            failed(error)
        })?;
        Ok(Self { wanted, style: Style::of_stdout() })
    }

    /// Columns and lines.
    pub(crate) fn size(&self) -> (usize, usize) {
        // A terminal that does not know its size gets what the first ones had.
        let known = terminal::size().ok().filter(|(columns, lines)| *columns > 0 && *lines > 0);
        let (columns, lines) = known.unwrap_or((80, 24));
        (usize::from(columns), usize::from(lines))
    }

    /// Shows these lines from the top, as many as there is room for.
    pub(crate) fn draw(&self, lines: &[Line]) -> Result<(), Failure> {
        let (columns, height) = self.size();
        let mut frame = Vec::new();
        let drawn = (|| {
            for row in 0..height {
                let text = lines.get(row).map(|line| line.painted(columns, self.style)).unwrap_or_default();
                let row = u16::try_from(row).unwrap_or(u16::MAX);
                queue!(frame, MoveTo(0, row), Print(text), Clear(ClearType::UntilNewLine))?;
            }
            let mut stdout = io::stdout().lock();
            stdout.write_all(&frame)?;
            stdout.flush()
        })();
        drawn.map_err(|error| Failure::new("cannot draw on the terminal").because(&error))
    }

    /// The next wish.
    pub(crate) async fn next(&mut self) -> Wish {
        match self.wanted.recv().await {
            Some(Wanted::Wish(wish)) => wish,
            Some(Wanted::Suspend) => suspend(),
            // The tasks that listen for signals hold the other end.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        end();
    }
}

fn wanted_by(event: &Event) -> Option<Wanted> {
    let Event::Key(key) = event else {
        return matches!(event, Event::Resize(..)).then_some(Wanted::Wish(Wish::Redraw));
    };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(Wanted::Wish(match key.code {
        KeyCode::Char('c') if with_control => Wish::Quit(Exit::by_signal(libc::SIGINT)),
        KeyCode::Char('z') if with_control => return Some(Wanted::Suspend),
        KeyCode::Char('l') if with_control => Wish::Redraw,
        KeyCode::Char('q') | KeyCode::Esc => Wish::Quit(Exit::OK),
        KeyCode::Char(key) => Wish::Key(key),
        KeyCode::Up => Wish::Up,
        KeyCode::Down => Wish::Down,
        _ => return None,
    }))
}

/// Gives the terminal back, stops as everybody does, and takes it again when continued.
fn suspend() -> Wish {
    end();
    let _stopped = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
    match begin() {
        Ok(()) => Wish::Redraw,
        Err(_) => Wish::Quit(Exit::FAILED),
    }
}

fn begin() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    let begun = execute!(io::stdout(), EnterAlternateScreen, DisableLineWrap, Hide, Clear(ClearType::All));
    if begun.is_err() {
        end();
    }
    begun
}

/// Twice does no harm.
fn end() {
    let _gone = execute!(io::stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
    let _gone = terminal::disable_raw_mode();
}

fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // First, so that what is said can be read.
            end();
            before(panic);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_where_the_terminal_ends_and_steers_nothing() {
        let line = Line::plain("ab\u{1b}[2J").and(Some(Colour::Bad), "cdef");
        let style = Style { is_coloured: true, is_unicode: false, columns: None };

        assert_eq!(line.painted(80, Style::PLAIN), "ab\u{fffd}[2Jcdef");
        assert_eq!(line.painted(8, style), "ab\u{fffd}[2J\u{1b}[31mc~\u{1b}[0m");
        assert_eq!(line.painted(3, Style::PLAIN), "ab~");
        assert_eq!(line.painted(0, Style::PLAIN), "");
    }

    /// Set for the process that is to panic.
    const ROLE: &str = "PANICS_ON_A_SCREEN";

    #[test]
    fn one_that_panics_when_told_to() {
        if std::env::var_os(ROLE).is_none() {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let screen = Screen::enter("a test", "").expect("a terminal");
            screen.draw(&[Line::plain("drawn")]).expect("it draws");
            panic!("on purpose");
        });
    }

    #[test]
    fn a_panic_leaves_the_terminal_as_it_was_and_can_be_read() {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        use std::io::Read;
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it can be used");
        let path = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("UTF-8");
        let theirs = std::fs::File::options().read(true).write(true).open(path).expect("the other end");
        let before = rustix::termios::tcgetattr(&theirs).expect("its settings");
        let end = || theirs.try_clone().expect("the same");
        let mut command = std::process::Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(std::env::current_exe().expect("a path"));
        command.args(["output::screen::tests::one_that_panics_when_told_to", "--exact", "--nocapture"]);
        command
            .env(ROLE, "1")
            .env("RUST_BACKTRACE", "0")
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end());

        let mut child = command.spawn().expect("it runs");
        // Read while it writes: a terminal holds little.
        let mut ours = std::fs::File::from(ours);
        let (mut raw, mut bytes) = (Vec::new(), [0; 1024]);
        while !String::from_utf8_lossy(&raw).contains("test result: ") {
            let count = ours.read(&mut bytes).expect("it is open");
            raw.extend_from_slice(&bytes[..count]);
        }
        assert!(!child.wait().expect("it ends").success());

        let raw = String::from_utf8_lossy(&raw);
        let at = |what: &str| raw.find(what).unwrap_or_else(|| panic!("no {what:?} in {raw:?}"));
        assert!(at("\u{1b}[?1049h") < at("drawn") && at("drawn") < at("\u{1b}[?1049l"), "{raw:?}");
        assert!(at("\u{1b}[?1049l") < at("on purpose"), "{raw:?}");
        let after = rustix::termios::tcgetattr(&theirs).expect("its settings");
        assert_eq!((after.local_modes, after.output_modes), (before.local_modes, before.output_modes));
    }
}
