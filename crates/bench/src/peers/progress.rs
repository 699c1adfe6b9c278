//! A bar on standard error while it runs; where that is no terminal, a line for each thing that begins.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Instant;

const WIDTH: usize = 30;

/// How far it is.
#[derive(Debug)]
pub(super) struct Progress {
    all: usize,
    state: Mutex<State>,
    began: Instant,
    is_terminal: bool,
}

#[derive(Debug, Default)]
struct State {
    done: usize,
    running: Vec<String>,
}

impl Progress {
    pub(super) fn of(all: usize) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { all, state: Mutex::default(), began: Instant::now(), is_terminal }
    }

    /// Shows that this runs until it is done.
    pub(super) fn run<T>(&self, what: &str, work: impl FnOnce() -> T) -> T {
        self.change(|state| state.running.push(what.to_owned()));
        if !self.is_terminal {
            eprintln!("[{:>4} s] {what}", self.began.elapsed().as_secs());
        }
        let done = work();
        self.change(|state| {
            state.running.retain(|running| running != what);
            state.done += 1;
        });
        done
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        if self.is_terminal {
            let line = bar(state.done, self.all, self.began.elapsed().as_secs(), &state.running.join(", "));
            // Nobody looks at a terminal that is gone.
            let _gone = write!(std::io::stderr(), "\r\x1b[2K{line}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_terminal {
            eprintln!();
        }
    }
}

fn bar(done: usize, all: usize, seconds: u64, running: &str) -> String {
    let filled = WIDTH * done / all.max(1);
    let line = format!(
        "[{}{}] {done}/{all} {}:{:02} {running}",
        "#".repeat(filled),
        ".".repeat(WIDTH - filled.min(WIDTH)),
        seconds / 60,
        seconds % 60
    );
    // A longer one would not stay in its line.
    line.chars().take(110).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_full_when_all_is_done() {
        assert_eq!(bar(1, 2, 65, "crash"), format!("[{}{}] 1/2 1:05 crash", "#".repeat(15), ".".repeat(15)));
        assert_eq!(bar(2, 2, 0, ""), format!("[{}] 2/2 0:00 ", "#".repeat(30)));
    }
}
