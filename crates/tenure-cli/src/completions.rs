//! `tenure completions`: made from the same arguments as `--help`, without the hidden ones.

use clap::CommandFactory;

use crate::args::Args;
use crate::exit::{Exit, Failure};
use crate::output;

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<Exit, Failure> {
    let all = crate::config::with_settings(Args::command());
    let shown = all.get_subcommands().filter(|one| !one.is_hide_set()).cloned();
    let mut shown = clap::Command::new("tenure").version(env!("CARGO_PKG_VERSION")).subcommands(shown);
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut shown, "tenure", &mut text);
    output::data(&String::from_utf8_lossy(&text)).map(|()| Exit::OK)
}
