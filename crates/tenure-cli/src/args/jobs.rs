//! What was typed to `tenure cron` and `tenure once`.

use std::ffi::OsString;
use std::time::Duration;

use tenure::jobs::cron;

use super::{At, Competing, Look, duration};

pub(super) const USAGE_CRON: &str = "\
tenure cron [OPTIONS] <SPEC> --job <NAME> -- <COMMAND>...
       tenure cron --list [--json] [OPTIONS]
       tenure cron --history <JOB> [--json] [OPTIONS]";

#[derive(Debug, clap::Args)]
pub(crate) struct Cron {
    /// When to run: five fields, six with the seconds first, or @hourly, @daily and so on
    #[arg(required_unless_present_any = ["list", "history"], conflicts_with_all = ["list", "history"])]
    pub(crate) spec: Option<String>,

    /// The name of the job; its resource is cron:NAME
    #[arg(long, value_name = "NAME")]
    #[arg(required_unless_present_any = ["list", "history"], conflicts_with_all = ["list", "history"])]
    pub(crate) job: Option<String>,

    /// The time zone of SPEC, by its IANA name
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) tz: String,

    /// What to do about occurrences that no worker started in time: skip them, run the last one once, or all:SPAN to run
    /// each that is not older
    #[arg(long, value_name = "skip|once|all:SPAN", default_value = "once", value_parser = misfire)]
    pub(crate) misfire: cron::Misfire,

    /// Delay the job by up to this much; the delay of one name is always the same
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(crate) jitter: Duration,

    /// What to do about an occurrence whose owner died while it ran
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Interrupted::Leave)]
    pub(crate) interrupted: Interrupted,

    /// List the jobs, and the outcome of the latest occurrence of each
    #[arg(long, conflicts_with = "history")]
    pub(crate) list: bool,

    /// Show the outcomes of the latest occurrences of a job
    #[arg(long, value_name = "JOB")]
    pub(crate) history: Option<String>,

    #[command(flatten)]
    pub(crate) competing: Competing,

    #[command(flatten)]
    pub(crate) look: Look,

    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    #[arg(required_unless_present_any = ["list", "history"], conflicts_with_all = ["list", "history", "json"])]
    pub(crate) command: Vec<OsString>,
}

/// What to do about an occurrence whose owner died while it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Interrupted {
    /// Leave it
    Leave,
    /// Run it again on the next owner, with the same key, up to five times in all
    Again,
}

/// `skip`, `once` or `all:1h`.
pub(crate) fn misfire(typed: &str) -> Result<cron::Misfire, String> {
    match typed.split_once(':') {
        None if typed == "skip" => Ok(cron::Misfire::Skip),
        None if typed == "once" => Ok(cron::Misfire::Once),
        Some(("all", span)) => Ok(cron::Misfire::All { within: duration(span)? }),
        _ => Err("must be skip, once, or all: and a span, such as all:1h".to_owned()),
    }
}

pub(super) const USAGE_ONCE: &str = "tenure once [OPTIONS] <NAME> -- <COMMAND>...";

#[derive(Debug, clap::Args)]
pub(crate) struct Once {
    /// The name of the work; its resource is once:NAME
    pub(crate) name: String,

    /// How long to wait while another worker runs it, then exit 123 [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait while another worker runs it
    #[arg(long, conflicts_with = "wait")]
    pub(crate) go_on: bool,

    #[command(flatten)]
    pub(crate) competing: Competing,

    #[command(flatten)]
    pub(crate) at: At,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_is_skipped_run_once_or_all_of_it_within_a_span() {
        assert_eq!(misfire("skip"), Ok(cron::Misfire::Skip));
        assert_eq!(misfire("once"), Ok(cron::Misfire::Once));
        assert_eq!(misfire("all:1h"), Ok(cron::Misfire::All { within: Duration::from_secs(3600) }));
        for wrong in ["", "all", "all:", "all:1", "once:1h", "never"] {
            assert!(misfire(wrong).is_err(), "{wrong:?}");
        }
    }
}
