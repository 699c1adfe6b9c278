//! What was typed to those commands that show how `tenure` works, or help to type.

use std::path::PathBuf;
use std::time::Duration;

use super::{duration, ttl};

pub(super) const ABOUT_DEMO: &str = "\
Shows in a minute what Tenure does, without a server: real worker processes compete on a temporary store, and who owns is \
drawn live. Kill the owner and see who takes over, and how soon; pause it, and see that it does not believe itself the owner \
when it is resumed. Every worker writes down when it works, and it is checked that no two ever do at once.

With --script a fixed scenario is played without a terminal; it takes some seconds.";

pub(super) const AFTER_DEMO: &str = "\
Keys:
  k  kill the owner with SIGKILL, or the worker chosen with its number
  p  pause it with SIGSTOP          r  resume all that are paused
  s  ask the owner to step down     a  add a worker
  q  quit

Examples:
  tenure demo
  tenure demo --workers 5 --ttl 5s
  tenure demo --script

Exit codes:
  0    nothing that was promised was broken
  1    two worked at once, or nobody took over in time
  125  it could not be shown";

#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// How many workers to begin with: 1 to 9; the script needs 3
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = workers)]
    pub(crate) workers: u8,

    // Not `ttl`: that is a setting, and this is a show.
    /// How long a lease lasts in the show
    #[arg(id = "demo_ttl", long = "ttl", value_name = "DURATION", default_value = "2s", value_parser = ttl)]
    pub(crate) ttl: Duration,

    /// Play a fixed scenario without a terminal, and say whether the promises held
    #[arg(long)]
    pub(crate) script: bool,

    /// Plant a worker that goes on working after it lost: the script has to notice
    #[arg(long, hide = true, requires = "script")]
    pub(crate) plant: bool,
}

fn workers(typed: &str) -> Result<u8, String> {
    let read = typed.parse().ok().filter(|count| (1..=9).contains(count));
    read.ok_or_else(|| "it is not a number from 1 to 9".to_owned())
}

/// One worker of the demo. Nobody types this.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoWorker {
    #[arg(long = "at")]
    pub(crate) url: String,
    #[arg(long = "name")]
    pub(crate) name: String,
    #[arg(id = "demo_ttl", long = "ttl", value_parser = duration)]
    pub(crate) ttl: Duration,
    #[arg(long)]
    pub(crate) lives: PathBuf,
    #[arg(long)]
    pub(crate) plant: bool,
}

pub(super) const ABOUT_COMPLETIONS: &str = "\
Prints what makes a shell complete the words of `tenure`: commands, options, and what they take.";

pub(super) const AFTER_COMPLETIONS: &str = "\
Examples:
  tenure completions bash > ~/.local/share/bash-completion/completions/tenure
  tenure completions zsh > ~/.zfunc/_tenure      # with ~/.zfunc in fpath
  tenure completions fish > ~/.config/fish/completions/tenure.fish";

#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

pub(super) const ABOUT_MAN: &str = "\
Prints the manual as a man page: that of `tenure` itself, or of one of its commands.";

pub(super) const AFTER_MAN: &str = "\
Examples:
  tenure man | man -l -
  tenure man run | man -l -
  tenure man new app | man -l -
  tenure man > ~/.local/share/man/man1/tenure.1";

#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Of which command
    #[arg(id = "of", value_name = "COMMAND", num_args = 0..=2)]
    pub(crate) command: Vec<String>,
}
