//! What was typed to those commands that look at a store, and to the one that asks an owner to go.

use std::time::Duration;

use tenure::Timing;

use super::{At, duration, ttl};

#[derive(Debug, clap::Args)]
pub(crate) struct History {
    /// Only this resource
    pub(crate) resource: Option<String>,

    /// Only what was so within this span until now [default: all that is known]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) since: Option<Duration>,

    /// As JSON, for programs; spans are in milliseconds
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StepDown {
    /// Whose owner is to go
    pub(crate) resource: String,

    /// Which ticket; needed only if several are owned
    #[arg(long, value_name = "N")]
    pub(crate) ticket: Option<u32>,

    /// Who is to be the next: the label of a worker that waits
    #[arg(long, value_name = "LABEL", conflicts_with = "force")]
    pub(crate) to: Option<String>,

    /// Take it away at once, without asking
    #[arg(long)]
    pub(crate) force: bool,

    // Not `wait`: that is a setting of `run`, and means something else.
    /// How long to wait for the outcome, then exit 123 [default: for ever]
    #[arg(id = "outcome_within", long = "wait", value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// The outcome as JSON, for programs; spans are in milliseconds
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// What to explain
    pub(crate) resource: String,

    /// As JSON, for programs; spans are in milliseconds
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// The ttl that the figures are about: 100ms to 1h
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = ttl)]
    pub(crate) ttl: Timing,

    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Config {
    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}
