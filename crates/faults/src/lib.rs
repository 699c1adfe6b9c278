//! `faults`: real workers in processes of their own, on a real store, and everything that goes wrong with processes, links,
//! clocks, disks and stores, done to them by a plan that a seed repeats. What became of the promises is judged from outside
//! the workers: by what they wrote down on one clock, by lists that only owners may change, and by the store's own history.
//!
//! `fault` says what is done, `fleet` and `ground` do it to workers and stores, `stage` plays rounds of it; `judge` knows
//! nothing of all that. `worker` and `command` are what the processes do.
#![cfg(target_os = "linux")]

mod book;
mod command;
mod controls;
mod fault;
mod fleet;
mod ground;
mod judge;
mod list;
mod part;
mod picture;
mod run;
mod sampler;
mod stage;
mod table;
mod wish;
mod worker;

use std::path::Path;
use std::process::ExitCode;

/// What can go wrong with a run. A promise that was broken is not an error but a result.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The hidden subcommands: what the processes are that this program starts.
const WORKER: &str = "worker";
const COMMAND: &str = "command";

/// Does what was typed.
#[must_use]
pub fn main(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [WORKER, part] => serde_json::from_str(part)
            .map_err(Failure::from)
            .and_then(worker::play)
            .map(|()| ExitCode::SUCCESS),
        [COMMAND, scene] => command::play(Path::new(scene)).map(|()| ExitCode::SUCCESS),
        _ => wish::Wish::parse(&words).and_then(|wish| run::run(&wish)),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("faults: {failure}");
        ExitCode::from(2)
    })
}
