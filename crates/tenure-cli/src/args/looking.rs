//! What was typed to those commands that look at a store, and to the one that asks an owner to go.

use std::time::Duration;

use super::{At, duration, ttl};

pub(super) const ABOUT_HISTORY: &str = "\
Shows who owned what, when, for how long, and why it ended; and how long nobody did. A store keeps the latest 10000 \
beginnings and endings of a namespace.

In the bar of a ticket each letter is a worker and a dot stands for nobody; where more happened than fits, the one who \
owned for longest is shown. Flapping is pointed out: more than 5 changes of a ticket's owner within 10m.";

pub(super) const AFTER_HISTORY: &str = "\
Examples:
  tenure history
  tenure history nightly-report --since 1h
  tenure history --json | jq '.resources[] | {resource, vacant_for_ms}'";

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

pub(super) const ABOUT_STEP_DOWN: &str = "\
Asks the owner of a ticket to hand it over, waits until it has, and says who owns it then. Its work is stopped gently: a \
command of `tenure run` gets SIGTERM, and after its grace SIGKILL. The ticket is free only when the work has ended, and goes \
to the first who waits, or to --to. If nobody else wants it, the same worker gets it again.

With --force the ticket is taken away at once, for an owner that does not react. Until that owner learns of it, at its \
next renewal, two may work: only the token protects.";

pub(super) const AFTER_STEP_DOWN: &str = "\
Examples:
  tenure step-down scheduler
  tenure step-down scheduler --to web2-977-03bd2e11
  tenure step-down consumer --ticket 2 --wait 1m
  tenure step-down scheduler --force
  tenure step-down scheduler --json | jq -r .to.worker

Exit codes:
  0    it was handed over, also if nobody else wanted it
  123  the owner did not hand over within --wait; it stays asked
  125  there is no such owner or successor, or the store did not answer";

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

pub(super) const ABOUT_EXPLAIN: &str = "\
Says in sentences why the owner of RESOURCE owns it, who is next, and what would happen if it died now.";

pub(super) const AFTER_EXPLAIN: &str = "\
Examples:
  tenure explain nightly-report
  tenure explain consumer --store redis://cache
  tenure explain nightly-report --json | jq '.owners[].free_within_ms'";

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

pub(super) const ABOUT_DOCTOR: &str = "\
Says whether this store is safe as it is configured, how fast it answers, how its clock runs, and what follows for the ttl: \
how long a failover takes at worst, which outage of the store is survived, and which ttl fits.

It measures for about two seconds, also by renewing a lease of its own, which competes for nothing. A store that is not there \
yet is made, but for a file that was named.";

pub(super) const AFTER_DOCTOR: &str = "\
Examples:
  tenure doctor
  tenure doctor --store redis://cache --ttl 5s
  tenure doctor --json | jq .safe

Exit codes:
  0    safe: never two owners; concerns that cost time, or the record of what jobs
       have done, are told but do not count
  1    not safe: after some faults two may own at once
  125  the store did not answer, or cannot be used at all";

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// The ttl that the figures are about: 100ms to 1h
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = ttl)]
    pub(crate) ttl: Duration,

    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(super) const ABOUT_CONFIG: &str = "\
Shows every setting, its value, and where that came from. What is typed comes first, then the variable TENURE_KEY, then the \
file tenure.toml, then the default; so it is also where `once` and `restart` contradict each other, and two from one place are \
refused. The file is the one that TENURE_CONFIG names, else tenure.toml in the current folder, \
else tenure/tenure.toml in $XDG_CONFIG_HOME or ~/.config; only the first that is there is read.

Passwords in URLs are hidden.";

pub(super) const AFTER_CONFIG: &str = "\
A file with everything:
  store = \"redis://cache\"
  namespace = \"billing\"
  wait-for-store = true
  ttl = \"5s\"
  grace = \"10s\"
  wait = \"1m\"
  tickets = 3
  priority = 10
  exit-on-loss = true
  once = false
  restart = \"on-failure\"
  metadata = '{\"port\": 8080}'
  label = \"web1\"
  tz = \"Europe/Berlin\"

Examples:
  tenure config
  TENURE_TTL=5s tenure config --json
  tenure config --ttl 5s";

#[derive(Debug, clap::Args)]
pub(crate) struct Config {
    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}
