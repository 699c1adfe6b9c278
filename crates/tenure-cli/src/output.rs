//! The only part that prints. Data goes to stdout, everything else to stderr, in lines that start with `tenure: `.
//!
//! `text` formats tables and spans, and removes what could control a terminal. `style` knows what the terminal can show,
//! `screen` draws on all of it, `clap_error` prints what clap has to say.

mod clap_error;
mod screen;
mod style;
mod text;

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use serde_json::Value;

pub(crate) use self::clap_error::clap_error;
pub(crate) use self::screen::{Line, Screen, Wish};
pub(crate) use self::style::{Colour, Style};
pub(crate) use self::text::{Table, beginning, clean, cut, escaped, short_span, span, width, wrapped};
use crate::exit::{Exit, Failure};
use crate::json;
use crate::settings::Look;

/// How many lines wait for a slow reader. Further ones are dropped.
const LINES: usize = 256;
/// How long the end of `tenure` waits for such a reader.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes to stderr on a thread of its own, so that a reader that does not read never delays the stop of a command.
struct Speaker {
    lines: SyncSender<String>,
    is_done: Mutex<Receiver<()>>,
}

impl Speaker {
    fn get() -> Option<&'static Self> {
        static SPEAKER: OnceLock<Option<Speaker>> = OnceLock::new();
        SPEAKER.get_or_init(Self::start).as_ref()
    }

    fn start() -> Option<Self> {
        let (lines, to_write) = sync_channel::<String>(LINES);
        let (done, is_done) = sync_channel(1);
        let write = move || {
            for line in to_write {
                // An empty line asks whether all has been written. A closed stderr is no reason to stop.
                let _closed = match line.as_str() {
                    "" => done.send(()).map_err(io::Error::other),
                    line => io::stderr().lock().write_all(line.as_bytes()),
                };
            }
        };
        let thread = std::thread::Builder::new().name("tenure-stderr".into()).spawn(write);
        thread.ok().map(|_| Self { lines, is_done: Mutex::new(is_done) })
    }

    fn write(line: &str) {
        if let Some(speaker) = Self::get() {
            let _full = speaker.lines.try_send(without_control(line));
        }
    }
}

/// One line for people.
pub(crate) fn say(line: impl AsRef<str>) {
    say_with_hint(line, None);
}

/// A line and what may help, in one piece, so that no other line comes between them.
pub(crate) fn say_with_hint(line: impl AsRef<str>, hint: Option<&str>) {
    let hint = hint.map(|hint| format!("\nhint: {hint}\n")).unwrap_or_default();
    Speaker::write(&format!("tenure: {}\n{hint}", line.as_ref()));
}

/// What to do next.
pub(crate) fn hint(line: &str) {
    Speaker::write(&format!("\nhint: {line}\n"));
}

pub(crate) fn failed(failure: &Failure) {
    say_with_hint(failure.to_string(), failure.hinted());
}

/// Waits until all lines are written, or nobody reads them.
pub(crate) fn finish() {
    if let Some(speaker) = Speaker::get()
        && speaker.lines.try_send(String::new()).is_ok()
        && let Ok(is_done) = speaker.is_done.lock()
    {
        let _slow = is_done.recv_timeout(PATIENCE);
    }
}

/// Prints a line from the guard, which has no thread to wait for a reader. It is dropped if the reader is not ready.
pub(crate) fn from_guard(line: &str) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stderr = io::stderr();
    let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
        let line = format!("tenure: {}\n", without_control(line));
        let _closed = stderr.lock().write_all(line.as_bytes());
    }
}

/// Names and texts from outside come back in messages, and must not control a terminal.
fn without_control(line: &str) -> String {
    line.split('\n').map(clean).collect::<Vec<String>>().join("\n")
}

// ---- data --------------------------------------------------------------------------------------------------

impl Look {
    /// Prints an answer in the form that is wanted.
    pub(crate) fn answer(
        &self,
        json: impl FnOnce() -> Value,
        text: impl FnOnce(Style) -> String,
    ) -> Result<Exit, Failure> {
        if self.json {
            let (store, namespace) = (self.store.place.to_string(), self.store.namespace.as_str());
            self::json(&json::report(&store, namespace, json()))?;
        } else {
            data(&text(Style::of_stdout()))?;
        }
        Ok(Exit::OK)
    }
}

/// Data for programs.
pub(crate) fn json(report: &Value) -> Result<(), Failure> {
    data(&(escaped(&format!("{report:#}")) + "\n"))
}

/// Data, as it is. A reader may stop before the end of it.
pub(crate) fn data(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new("cannot write to stdout").because(&error))
        }
        _ => Ok(()),
    }
}

// ---- sentences that more than one command prints -------------------------------------------------------------

/// Why a store grants nothing.
pub(crate) fn grants_nothing(left: Duration) -> String {
    format!("the store is new, was restarted or lost its data, and grants nothing for {}", span(left))
}

pub(crate) fn same_label(resource: &str, label: &str) {
    say(format!(
        "more than one worker of `{resource}` is labelled `{label}`: harmless, but people cannot tell them apart"
    ));
}

pub(crate) fn does_not_die(command: &str, count: usize) {
    let many = processes(count);
    say(format!(
        "`{command}`: {many} of it cannot be killed; until they are gone, this worker gives nothing up and claims nothing"
    ));
}

pub(crate) fn processes(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}
