//! `tenure man`: made from the same text as `--help`.

use clap::CommandFactory;

use crate::args::Args;
use crate::exit::{Exit, Failure};
use crate::output;

pub(crate) fn man(name: &str) -> Result<Exit, Failure> {
    let mut all = crate::config::with_settings(Args::command());
    all.build();
    let pages = pages_of(&all);
    let page = match pages.iter().find(|(page, _)| page == name) {
        _ if name.is_empty() => all.clone(),
        Some((_, one)) => {
            let title = format!("tenure-{name}");
            (*one).clone().name(title.clone()).display_name(title)
        }
        None => {
            let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
            let failure = Failure::new(format!("there is no command `{name}`"));
            return Err(failure.did_you_mean(name, &names, || format!("there are {}", names.join(", "))));
        }
    };
    let mut text = Vec::new();
    let written = clap_mangen::Man::new(page).render(&mut text);
    written.map_err(|error| Failure::new("cannot write the manual").because(&error))?;
    output::data(&String::from_utf8_lossy(&text)).map(|()| Exit::OK)
}

/// Every command that has a page, and the commands below it, such as `new-app`. There is none of `help`.
fn pages_of(all: &clap::Command) -> Vec<(String, &clap::Command)> {
    let is_shown = |one: &&clap::Command| !one.is_hide_set() && one.get_name() != "help";
    let shown = all.get_subcommands().filter(is_shown);
    let pages = shown.flat_map(|one| {
        let below = one.get_subcommands().filter(is_shown);
        let below = below.map(move |below| (format!("{}-{}", one.get_name(), below.get_name()), below));
        std::iter::once((one.get_name().to_owned(), one)).chain(below)
    });
    pages.collect()
}
