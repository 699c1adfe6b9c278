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
    let page = match &typed.command {
        None => all,
        Some(name) => {
            let shown = |one: &&clap::Command| !one.is_hide_set();
            let names: Vec<&str> = all.get_subcommands().filter(shown).map(clap::Command::get_name).collect();
            if !names.contains(&name.as_str()) {
                let failure = Failure::new(format!("there is no command `{name}`"));
                return Err(match nearest(name, &names) {
                    Some(near) => failure.hint(format!("did you mean `{near}`?")),
                    None => failure.hint(format!("there are {}", names.join(", "))),
                });
            }
            let one = all.find_subcommand(name).cloned().unwrap_or(all);
            one.name(format!("tenure-{name}")).display_name(format!("tenure-{name}"))
        }
    };
    let mut text = Vec::new();
    let written = clap_mangen::Man::new(page).render(&mut text);
    written.map_err(|error| Failure::new("cannot write the manual").because(&error))?;
    output::data(&String::from_utf8_lossy(&text))?;
    Ok(Exit::OK)
}
