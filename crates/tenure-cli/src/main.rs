//! `tenure`, the command line: runs a command only while it owns a ticket, and says who owns what.
//!
//! `args` is what was typed, `settings` what is meant, `output` the one file that prints, `process` the one
//! with `unsafe`, `guard` another process. Here is only which of them comes after which.

mod args;
mod completions;
mod config;
mod demo;
mod doctor;
mod duplicate_labels;
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
mod watch;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};

use self::args::{Args, Wanted};
use self::config::Found;
use self::exit::{Exit, Failure};

fn main() -> ExitCode {
    let exit = match understood() {
        Ok((args, typed, found)) => carry_out(args, &typed, &found),
        Err(misunderstood) => misunderstood,
    };
    let exit = exit.unwrap_or_else(|failure| {
        output::failed(&failure);
        Exit::FAILED
    });
    output::finish();
    exit.into()
}

/// What was typed, filled up from the environment and the file. Otherwise how to exit: clap has told what is wrong, or given
/// help, or a setting is wrong.
fn understood() -> Result<(Args, ArgMatches, Found), Result<Exit, Failure>> {
    let told = |error| Ok(output::told_by_clap(error));
    let command = || config::with_settings(Args::command());
    // Without settings first: whoever asks for help is helped, whatever stands in a file.
    let typed = command().try_get_matches().map_err(told)?;
    let (typed, found) = match typed.subcommand_name() {
        Some("completions" | "man" | "demo" | "demo-worker" | "new") => (typed, Found::default()),
        _ => {
            let mut found = Found::gather().map_err(Err)?;
            found.yield_to(&typed);
            let typed = match found.is_empty() {
                true => typed,
                false => found.apply_to(command(), &typed).try_get_matches().map_err(told)?,
            };
            (typed, found)
        }
    };
    let args = Args::from_arg_matches(&typed).map_err(told)?;
    Ok((args, typed, found))
}

fn carry_out(args: Args, matches: &ArgMatches, found: &Found) -> Result<Exit, Failure> {
    match args.wanted {
        Wanted::Run(typed) => guarded(settings::Run::from_args(typed)?, || found.tell_overruled()),
        Wanted::Cron(typed) if typed.list || typed.history.is_some() => {
            block_on(jobs::jobs(settings::Jobs::from_args(typed)?))
        }
        Wanted::Cron(typed) => guarded(settings::Run::from_cron_args(typed)?, || {}),
        Wanted::Once(typed) => guarded(settings::Run::from_once_args(typed)?, || {}),
        Wanted::Status(typed) => block_on(status::status(settings::Status::from_args(typed)?)),
        Wanted::History(typed) => block_on(history::history(settings::History::from_args(typed)?)),
        Wanted::StepDown(typed) => block_on(step_down::step_down(settings::StepDown::from_args(typed)?)),
        Wanted::Explain(typed) => block_on(explain::explain(settings::Explain::from_args(typed)?)),
        Wanted::Doctor(typed) => block_on(doctor::doctor(settings::Doctor::from_args(typed)?)),
        Wanted::Config(typed) => {
            found.tell_overruled();
            config::config(&settings::Config::from_args(&typed, matches, found)?)
        }
        Wanted::Demo(typed) => block_on(demo::demo(settings::Demo::from_args(&typed)?)),
        Wanted::DemoWorker(typed) => block_on(demo::work(typed)),
        Wanted::Completions(typed) => completions::print(typed.shell),
        Wanted::Man(typed) => man::print(&typed.command),
        Wanted::Schema(typed) => schema::print(&settings::Schema::from_args(typed)?),
        Wanted::New(typed) => new::new(settings::New::from_args(typed)?),
    }
}

/// Runs a command under a guard. What is said first is said by a thread, so it comes after the fork.
fn guarded(settings: settings::Run, say_first: impl FnOnce()) -> Result<Exit, Failure> {
    // Before there is any other thread: each inherits what is blocked from the one that starts it, and the guard
    // must be forked from a process that has none.
    let signals = process::Signals::block()?;
    let guard = guard::post(&settings, signals.before())?;
    say_first();
    block_on(trouble::tell_while(settings.store.place.to_string(), run::run(settings, signals, guard)))
}

/// Everything happens on the main thread.
fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new("cannot start a runtime").because(&error))?;
    let done = runtime.block_on(future);
    // A disk may hang on a thread of its own; nobody waits for that in order to be told.
    runtime.shutdown_background();
    done
}
