//! `tenure completions` and `tenure man`: both are made from the same words as `--help`.

use clap::CommandFactory;

use crate::args::{Args, Completions, Man};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::reading::nearest;

pub(crate) fn completions(typed: &Completions) -> Result<Exit, Failure> {
    let all = crate::config::with_settings(Args::command());
    // Nobody types what is hidden.
    let shown = all.get_subcommands().filter(|one| !one.is_hide_set()).cloned();
    let mut shown = clap::Command::new("tenure").version(env!("CARGO_PKG_VERSION")).subcommands(shown);
    let mut text = Vec::new();
    clap_complete::generate(typed.shell, &mut shown, "tenure", &mut text);
    output::data(&String::from_utf8_lossy(&text))?;
    Ok(Exit::OK)
}

pub(crate) fn man(typed: &Man) -> Result<Exit, Failure> {
    let mut all = crate::config::with_settings(Args::command());
    all.build();
    let page = match typed.command.join("-") {
        name if name.is_empty() => all,
        name => {
            let pages = pages_of(&all);
            let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
            let Some((_, one)) = pages.iter().find(|(page, _)| *page == name) else {
                let failure = Failure::new(format!("there is no command `{name}`"));
                return Err(match nearest(&name, &names) {
                    Some(near) => failure.hint(format!("did you mean `{near}`?")),
                    None => failure.hint(format!("there are {}", names.join(", "))),
                });
            };
            let title = format!("tenure-{name}");
            (*one).clone().name(title.clone()).display_name(title)
        }
    };
    let mut text = Vec::new();
    let written = clap_mangen::Man::new(page).render(&mut text);
    written.map_err(|error| Failure::new("cannot write the manual").because(&error))?;
    output::data(&String::from_utf8_lossy(&text))?;
    Ok(Exit::OK)
}

/// What there is a page of: every command that is shown, and those below it, as in `new-app`. There is none of `help`.
fn pages_of(all: &clap::Command) -> Vec<(String, &clap::Command)> {
    let is_shown = |one: &&clap::Command| !one.is_hide_set() && one.get_name() != "help";
    let shown = all.get_subcommands().filter(is_shown);
    let pages = shown.flat_map(|one| {
        let below = one
            .get_subcommands()
            .filter(is_shown)
            .map(move |below| (format!("{}-{}", one.get_name(), below.get_name()), below));
        std::iter::once((one.get_name().to_owned(), one)).chain(below)
    });
    pages.collect()
}
