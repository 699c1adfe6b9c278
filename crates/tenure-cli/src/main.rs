//! `tenure`, the command line: runs a command only while it owns a ticket, and shows who owns what.
//!
//! Each command goes the same way: `args` is what was typed, `settings` what is meant, one file carries it out, and `output`
//! is the only part that prints. `process` is the only file with `unsafe`; `guard` is another process.

mod args;
mod completions;
mod config;
mod demo;
mod doctor;
mod exit;
mod explain;
#[cfg(test)]
mod fuzz;
mod guard;
mod history;
mod jobs;
mod json;
mod man;
mod new;
mod notify;
mod open;
mod output;
mod place;
mod process;
mod run;
mod schema;
mod settings;
mod stall;
mod status;
mod step_down;
mod timeline;
mod tree;
mod trouble;
mod view;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use self::args::Args;
use self::config::Found;
use self::exit::{Exit, Failure};
use self::settings::Command;

fn main() -> ExitCode {
    let exit = match understood() {
        Ok(command) => command.and_then(carry_out),
        Err(clap_error) => Ok(output::clap_error(clap_error)),
    };
    let exit = exit.unwrap_or_else(|failure| {
        output::failed(&failure);
        failure.exit()
    });
    output::finish();
    exit.into()
}

/// What is meant: by the arguments, then the environment, then the file. The outer error is clap's, which may be help.
fn understood() -> Result<Result<Command, Failure>, clap::Error> {
    let command = || config::with_settings(Args::command());
    // Without settings first: help is given even if a file is wrong.
    let mut matches = command().try_get_matches()?;
    let uses_settings =
        !matches!(matches.subcommand_name(), Some("completions" | "man" | "demo" | "demo-worker" | "new"));
    let found = match if uses_settings { Found::gather(&matches) } else { Ok(Found::default()) } {
        Ok(found) => found,
        Err(failure) => return Ok(Err(failure)),
    };
    if !found.is_empty() {
        matches = found.apply_to(command(), &matches).try_get_matches()?;
    }
    let args = Args::from_arg_matches(&matches)?;
    Ok(Command::from_args(args, &matches, &found))
}

fn carry_out(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(run) => run::run(*run),
        Command::Status(status) => block_on(status::status(status)),
        Command::History(history) => block_on(history::history(history)),
        Command::Jobs(jobs) => block_on(jobs::jobs(jobs)),
        Command::StepDown(step_down) => block_on(step_down::step_down(step_down)),
        Command::Explain(explain) => block_on(explain::explain(explain)),
        Command::Doctor(doctor) => block_on(doctor::doctor(doctor)),
        Command::Config(config) => config::config(&config),
        Command::Demo(demo) => block_on(demo::demo(demo)),
        Command::DemoWorker(worker) => block_on(demo::work(worker)),
        Command::Completions(shell) => completions::completions(shell),
        Command::Man(command) => man::man(&command),
        Command::Schema(schema) => schema::schema(&schema),
        Command::New(new) => new::new(new),
    }
}

/// Everything happens on the main thread.
fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new("cannot start a runtime").because(&error))?;
    let done = runtime.block_on(future);
    // A thread of the runtime may hang on a disk. Do not wait for it.
    runtime.shutdown_background();
    done
}
