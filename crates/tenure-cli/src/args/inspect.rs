//! What was typed to the commands that look at a store, and to `tenure step-down`.

use std::time::Duration;

use tenure::Timing;

use super::{At, duration, ttl};

/// The store to look at, and the form of the answer.
#[derive(Debug, clap::Args)]
pub(crate) struct Look {
    /// Print JSON, for programs; spans are in milliseconds
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// Only this resource
    pub(crate) resource: Option<String>,

    /// Redraw all the time, with bars of who owned lately, until q is pressed
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) look: Look,
}

#[derive(Debug, clap::Args)]
pub(crate) struct History {
    /// Only this resource
    pub(crate) resource: Option<String>,

    /// Only the time from so long ago until now [default: all that is known]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) since: Option<Duration>,

    #[command(flatten)]
    pub(crate) look: Look,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StepDown {
    /// The resource whose owner is to step down
    pub(crate) resource: String,

    /// The owner's ticket; needed only if several are owned
    #[arg(long, value_name = "N")]
    pub(crate) ticket: Option<u32>,

    /// The next owner: the label of a waiting worker
    #[arg(long, value_name = "LABEL", conflicts_with = "force")]
    pub(crate) to: Option<String>,

    /// Take the ticket away at once, without asking
    #[arg(long)]
    pub(crate) force: bool,

    // Not `wait`: that is a setting of `run`, and means something else.
    /// How long to wait for the outcome, then exit 123 [default: for ever]
    #[arg(id = "outcome_within", long = "wait", value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    #[command(flatten)]
    pub(crate) look: Look,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The resource to explain
    pub(crate) resource: String,

    #[command(flatten)]
    pub(crate) look: Look,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// The ttl that the figures are about: 100ms to 1h
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = ttl)]
    pub(crate) ttl: Timing,

    #[command(flatten)]
    pub(crate) look: Look,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Config {
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}
