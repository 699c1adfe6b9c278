//! `tenure`, the command line: runs a command only while it owns a ticket, and says who owns what.
//!
//! `args` is what was typed, `settings` what is meant, `output` the one file that prints, `process` the one
//! with `unsafe`, `guard` another process. Here is only which of them comes after which.

mod args;
mod exit;
mod guard;
mod link;
mod notify;
mod output;
mod place;
mod process;
mod run;
mod settings;
mod standstill;
mod status;
mod tree;
mod trouble;
mod wire;

use std::process::ExitCode;

use clap::Parser;

use self::args::{Args, Wanted};
use self::exit::{Exit, Failure};

fn main() -> ExitCode {
    let exit = match Args::try_parse() {
        Ok(args) => carry_out(args).unwrap_or_else(|failure| {
            output::failed(&failure);
            Exit::FAILED
        }),
        Err(told) => output::told_by_clap(&told),
    };
    output::finish();
    exit.into()
}

fn carry_out(args: Args) -> Result<Exit, Failure> {
    match args.wanted {
        Wanted::Run(typed) => {
            let settings = settings::Run::meant_by(typed)?;
            // Before there is any other thread: each inherits what is blocked from the one that starts it, and the guard
            // must be forked from a process that has none.
            let signals = process::Signals::block()?;
            let guard = guard::post(&settings, signals.before())?;
            trouble::listen();
            block_on(run::run(settings, signals, guard))
        }
        Wanted::Status(typed) => block_on(status::status(settings::Status::meant_by(typed)?)),
    }
}

/// Everything happens on the main thread.
fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new("cannot start a runtime").because(&error))?.block_on(future)
}
