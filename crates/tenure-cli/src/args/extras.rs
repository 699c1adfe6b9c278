//! What was typed to the commands that use no store of the user: the demo, completions, manual, SQL, new code.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use tenure::Timing;

use super::{count, help, ttl};

#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// How many workers to start with: 1 to 9; the script needs 3
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = workers)]
    pub(crate) workers: u8,

    // Not `ttl`: that is a setting, and this is a show.
    /// How long a lease lasts in the demo
    #[arg(id = "demo_ttl", long = "ttl", value_name = "DURATION", default_value = "2s", value_parser = ttl)]
    pub(crate) ttl: Timing,

    /// Play a fixed scenario without a terminal, and report whether the promises held
    #[arg(long)]
    pub(crate) script: bool,

    /// Plant a worker that goes on working after a loss: the script has to notice
    #[arg(long, hide = true, requires = "script")]
    pub(crate) plant: bool,
}

fn workers(typed: &str) -> Result<u8, String> {
    let read = typed.parse().ok().filter(|count| (1..=9).contains(count));
    read.ok_or_else(|| "must be a number from 1 to 9".to_owned())
}

/// One worker of the demo. Nobody types this.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoWorker {
    #[arg(long)]
    pub(crate) folder: PathBuf,
    #[arg(long = "name")]
    pub(crate) name: String,
    #[arg(id = "demo_ttl", long = "ttl", value_parser = ttl)]
    pub(crate) ttl: Timing,
    #[arg(long)]
    pub(crate) plant: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// The command; without one, all of `tenure`
    #[arg(id = "of", value_name = "COMMAND", num_args = 0..=2)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Schema {
    /// The store
    #[arg(value_enum, value_name = "STORE")]
    pub(crate) kind: StoreKind,

    /// The namespace, which is the name of the schema: 1 to 40 of a-z 0-9 _ -, not starting with pg_
    #[arg(long, default_value = "tenure")]
    pub(crate) namespace: String,

    /// Grant what a worker needs, and no more, to this role, which must exist: 1 to 63 bytes
    #[arg(long, value_name = "NAME")]
    pub(crate) role: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum StoreKind {
    Postgres,
}

#[derive(Debug, clap::Args)]
pub(crate) struct New {
    #[command(subcommand)]
    pub(crate) what: NewWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NewWhat {
    /// Write a module with typed resources into this Cargo project, and wire it in
    #[command(long_about = help::about(help::MODULE), after_help = help::after(help::MODULE))]
    Module(NewModule),
    /// Write a small service that runs
    #[command(long_about = help::about(help::APP), after_help = help::after(help::APP))]
    App(NewApp),
}

#[derive(Debug, clap::Args)]
pub(crate) struct NewModule {
    /// The name of the module: a-z 0-9 _, starting with a letter
    pub(crate) name: String,

    /// A resource of the module: a-z 0-9 _ -; after a colon its number of tickets, 1 to 1000
    #[arg(long = "resource", value_name = "RESOURCE[:K]", required = true)]
    pub(crate) resources: Vec<String>,

    // Not the setting: that is about workers that run.
    /// The number of tickets of resources without a number of their own
    #[arg(id = "each", long = "tickets", value_name = "K", default_value_t = 1, value_parser = count)]
    pub(crate) tickets: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NewApp {
    /// The folder to create; its last part is the name of the package
    pub(crate) path: PathBuf,

    /// Depend on the checkout of Tenure in this folder instead of a version
    #[arg(long, value_name = "PATH")]
    pub(crate) tenure_path: Option<PathBuf>,
}
