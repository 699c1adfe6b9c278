//! The arguments as they were typed. `settings` checks them and says what they mean.

mod extras;
mod help;
mod inspect;
mod jobs;

use std::ffi::OsString;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tenure::Timing;
use tenure::store::Tickets;
use tenure::types::Metadata;

pub(crate) use self::extras::{Completions, Demo, DemoWorker, Man, New, NewWhat, Schema, StoreKind};
pub(crate) use self::inspect::{Config, Doctor, Explain, History, Look, Status, StepDown};
pub(crate) use self::jobs::{Cron, Interrupted, Once};
use self::jobs::{USAGE_CRON, USAGE_ONCE};

const USAGE_RUN: &str = "tenure run [OPTIONS] <RESOURCE> -- <COMMAND>...";

/// Runs a command on one machine at a time, or on at most K of them, and moves it to another when that one fails.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, after_help = help::TENURE.trim_end(), max_term_width = 110)]
#[command(subcommand_required = true, arg_required_else_help = false)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) wanted: Wanted,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Wanted {
    /// Run a command only while owning a ticket
    #[command(long_about = help::about(help::RUN), after_help = help::after(help::RUN), override_usage = USAGE_RUN)]
    Run(Run),
    /// Run a command at set times, once per time in the whole cluster
    #[command(long_about = help::about(help::CRON), after_help = help::after(help::CRON), override_usage = USAGE_CRON)]
    Cron(Cron),
    /// Run a command once in the whole cluster
    #[command(long_about = help::about(help::ONCE), after_help = help::after(help::ONCE), override_usage = USAGE_ONCE)]
    Once(Once),
    /// Show owners and waiters
    #[command(long_about = help::about(help::STATUS), after_help = help::after(help::STATUS))]
    Status(Status),
    /// Show who owned what, when, and why that ended
    #[command(long_about = help::about(help::HISTORY), after_help = help::after(help::HISTORY))]
    History(History),
    /// Ask an owner to hand over, and wait until it has
    #[command(long_about = help::about(help::STEP_DOWN), after_help = help::after(help::STEP_DOWN))]
    StepDown(StepDown),
    /// Explain why a worker owns, who is next, and what happens if it dies
    #[command(long_about = help::about(help::EXPLAIN), after_help = help::after(help::EXPLAIN))]
    Explain(Explain),
    /// Check whether the store is safe, how fast it is, and which ttl fits
    #[command(long_about = help::about(help::DOCTOR), after_help = help::after(help::DOCTOR))]
    Doctor(Doctor),
    /// Show the settings in force, and where each comes from
    #[command(long_about = help::about(help::CONFIG), after_help = help::after(help::CONFIG))]
    Config(Config),
    /// Show what Tenure does, with real workers, in a minute
    #[command(long_about = help::about(help::DEMO), after_help = help::after(help::DEMO))]
    Demo(Demo),
    #[command(hide = true)]
    DemoWorker(DemoWorker),
    /// Print completions for a shell
    #[command(long_about = help::about(help::COMPLETIONS), after_help = help::after(help::COMPLETIONS))]
    Completions(Completions),
    /// Print the manual as a man page
    #[command(long_about = help::about(help::MAN), after_help = help::after(help::MAN))]
    Man(Man),
    /// Print the SQL that creates the tables, to apply it yourself
    #[command(long_about = help::about(help::SCHEMA), after_help = help::after(help::SCHEMA))]
    Schema(Schema),
    /// Write a module with typed resources, or a small service
    #[command(long_about = help::about(help::NEW), after_help = help::after(help::NEW), disable_help_subcommand = true)]
    New(New),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The resource to own: 1 to 200 bytes without control characters
    pub(crate) resource: String,

    /// How many workers may own the resource at once: 1 to 1000; the worker that joined last decides
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = tickets, allow_negative_numbers = true)]
    pub(crate) tickets: u32,

    /// How long to wait for the first ownership, then exit 123; 0s: run only if a ticket is free now [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// Exit with code 124 when the ownership is lost, instead of competing again
    #[arg(long)]
    pub(crate) exit_on_loss: bool,

    /// Start the command at most once: exit with code 124 after a hand-over too
    #[arg(long, conflicts_with = "restart")]
    pub(crate) once: bool,

    /// When to run a command again that ended by itself, after a pause that grows up to a minute
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Restart::Never)]
    pub(crate) restart: Restart,

    #[command(flatten)]
    pub(crate) competing: Competing,

    #[command(flatten)]
    pub(crate) at: At,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The worker: its lease, and what others see of it.
#[derive(Debug, clap::Args)]
pub(crate) struct Competing {
    /// How long the lease lasts without a renewal: 100ms to 1h
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = ttl)]
    pub(crate) ttl: Timing,

    /// How long the command may take to end when it is stopped gently; 0s kills it at once [default: one ttl]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) grace: Option<Duration>,

    /// Waiting workers with a larger number are served first, then those that came first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,

    /// JSON that `tenure status` shows for this worker: at most 4096 bytes
    #[arg(long, value_name = "JSON", value_parser = metadata)]
    pub(crate) metadata: Option<String>,

    /// The name of this worker, for people [default: host, pid and a random part]
    #[arg(long)]
    pub(crate) label: Option<String>,
}

/// When to run a command again that ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Restart {
    /// Never: tenure exits with it
    Never,
    /// After a code other than 0, or a signal
    OnFailure,
    /// After every end
    Always,
}

/// The store.
#[derive(Debug, clap::Args)]
pub(crate) struct At {
    /// The store: sqlite:PATH for one host, redis://HOST or postgres://HOST/DATABASE for many [default: $TENURE_STORE,
    /// else the one in tenure.toml, else a SQLite file in the user's state folder]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,

    /// The part of the store that one group of workers uses: 1 to 40 of a-z 0-9 _ -, not starting with pg_
    #[arg(long, default_value = "tenure")]
    pub(crate) namespace: String,

    /// Wait for a store that does not exist yet or does not answer, instead of failing
    #[arg(long)]
    pub(crate) wait_for_store: bool,
}

/// A count. Its limit is checked later.
pub(crate) fn count(typed: &str) -> Result<u32, String> {
    typed.parse().map_err(|_| no_count())
}

/// A number of tickets.
pub(crate) fn tickets(typed: &str) -> Result<u32, String> {
    count(typed).and_then(|count| Tickets::new(count).map(|_| count).map_err(|_| no_count()))
}

fn no_count() -> String {
    format!("must be a number from 1 to {}", Tickets::MOST)
}

/// A time to live.
pub(crate) fn ttl(typed: &str) -> Result<Timing, String> {
    Timing::new(duration(typed)?).map_err(|_| "must be from 100ms to 1h".to_owned())
}

/// Metadata of a worker.
pub(crate) fn metadata(typed: &str) -> Result<String, String> {
    Metadata::new(typed).map_err(|limit| limit.to_string())?;
    match serde_json::from_str::<serde::de::IgnoredAny>(typed) {
        Ok(_) => Ok(typed.to_owned()),
        Err(_) => Err("must be JSON, such as '{\"zone\":\"b\"}'".to_owned()),
    }
}

/// A span as people write it: `1500ms`, `15s`, `2m`, `1h`, `7d`; also `1.5s`.
pub(crate) fn duration(typed: &str) -> Result<Duration, String> {
    if is_negative(typed) {
        return Err(NEGATIVE.to_owned());
    }
    let ends = typed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(typed.len());
    let (number, unit) = typed.split_at(ends);
    let unit_micros = match unit {
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        "h" => 3600e6,
        "d" => 86_400e6,
        // A longer one was hardly meant as a number.
        "" if (1..=20).contains(&number.len()) => {
            return Err(format!("a unit is missing: write {number}s or {number}ms"));
        }
        _ => return Err("write a number and ms, s, m, h or d, such as 1500ms, 15s or 2m".to_owned()),
    };
    let begins: String = number.chars().take(20).collect();
    let number: f64 = number.parse().map_err(|_| format!("{begins:?} is not a number"))?;
    // To the nearest microsecond: a tenth of a second is not a binary fraction.
    let micros = (number * unit_micros).round();
    if micros > LONGEST_MICROS {
        return Err("must be less than a thousand years".to_owned());
    }
    Ok(Duration::from_micros(micros as u64))
}

/// Whether it looks like a span with a sign.
pub(crate) fn is_negative(typed: &str) -> bool {
    typed.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

pub(crate) const NEGATIVE: &str = "a duration cannot be negative";

/// A thousand years: longer than anything lasts, and far from where numbers run out.
const LONGEST_MICROS: f64 = 1000.0 * 365.25 * 86_400.0 * 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn spans_are_written_as_people_do() {
        for (typed, millis) in [
            ("1500ms", 1500),
            ("15s", 15_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("0.1s", 100),
            ("1.5d", 129_600_000),
        ] {
            assert_eq!(duration(typed), Ok(Duration::from_millis(millis)), "{typed}");
        }
        assert_eq!(duration("7258118399999ms"), Ok(Duration::from_millis(7_258_118_399_999)));
    }

    #[test]
    fn what_is_no_span_is_refused_with_a_sentence() {
        assert_eq!(duration("15"), Err("a unit is missing: write 15s or 15ms".to_owned()));
        assert_eq!(duration("-1s"), Err("a duration cannot be negative".to_owned()));
        for wrong in ["", "s", "-1s", "1.2.3s", "15 s", "15sec", "1w", "infs", "nan"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
        for long in ["9".repeat(4000), ".".repeat(4000)] {
            for unit in ["", "h"] {
                let why = duration(&format!("{long}{unit}")).expect_err("too long");
                assert!(why.len() < 100, "{why}");
            }
        }
    }
}
