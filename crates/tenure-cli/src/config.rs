//! Settings that were not typed: `TENURE_*`, then `tenure.toml`. And `tenure config`, which says where each came from.
//!
//! A setting is an option of some command. What is found here becomes the default of that option, so that what was
//! typed comes first by itself, and nothing has to be decided twice.

mod file;
#[cfg(test)]
mod fuzz;
mod known;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::ArgMatches;
use clap::parser::ValueSource;
use serde::Serialize;

use self::file::File;
use self::known::{KNOWN, Known, RESERVED};
use crate::args;
use crate::exit::{Exit, Failure};
use crate::output::{self, Style, Table};
use crate::place::{Place, without_secrets};

/// Grows when a field changes its meaning or goes. New fields may come without.
const VERSION: u32 = 1;
/// Names the file; then it has to be there.
const FILE_VARIABLE: &str = "TENURE_CONFIG";
const PREFIX: &str = "TENURE_";

/// What was found outside the command line.
#[derive(Debug, Default)]
pub(crate) struct Found {
    file: Option<PathBuf>,
    values: BTreeMap<&'static str, (String, Origin)>,
    /// What was found and does not count, because something that comes first contradicts it.
    overruled: Vec<Overruled>,
}

/// A setting that does not count, and what took its place.
#[derive(Debug)]
struct Overruled {
    key: &'static str,
    place: String,
    by: String,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Variable(String),
    File { path: PathBuf, line: usize },
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File { path, line } => write!(f, "{} line {line}", path.display()),
        }
    }
}

impl Found {
    /// Reads the environment and the file. What cannot be a setting is refused here, before anything is begun.
    pub(crate) fn gather() -> Result<Self, Failure> {
        let mut found = Self::default();
        if let Some(file) = File::find()? {
            for (known, value, line) in file.settings()? {
                let origin = Origin::File { path: file.path.clone(), line };
                found.values.insert(known.key, (value, origin));
            }
            found.file = Some(file.path);
        }
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
            let Some(known) = KNOWN.iter().find(|known| known.variable() == name) else {
                refuse_misspelt(name)?;
                continue;
            };
            // Empty is as if there were none.
            if value.is_empty() {
                continue;
            }
            let value = value.into_string().map_err(|_| Failure::new(format!("{name} is not UTF-8")))?;
            known.check(&value).map_err(|why| Failure::new(format!("{name}: {why}")))?;
            found.values.insert(known.key, (value, Origin::Variable(name.to_owned())));
        }
        found.settle()?;
        Ok(found)
    }

    /// Of two that contradict each other the one that comes first counts; two from the same place are refused.
    fn settle(&mut self) -> Result<(), Failure> {
        for known in KNOWN {
            let Some(other) = known.excludes else { continue };
            let (Some((value, from)), Some((another, place))) =
                (self.values.get(known.key), self.values.get(other))
            else {
                continue;
            };
            if !known::contradict(value, another) {
                continue;
            }
            match (from, place) {
                (Origin::Variable(_), Origin::File { .. }) => {
                    let by = format!("{from}={value}");
                    self.overrule(other, by);
                }
                (Origin::File { .. }, Origin::Variable(_)) => {}
                _ => {
                    let what =
                        format!("`{}` and `{other}` contradict each other: {from}, {place}", known.key);
                    return Err(Failure::new(what).hint("keep one of them"));
                }
            }
        }
        Ok(())
    }

    /// Drops what contradicts something that was typed.
    pub(crate) fn yield_to(&mut self, typed: &ArgMatches) {
        let Some((_, typed)) = typed.subcommand() else { return };
        for known in KNOWN {
            let Some(by) = known.excludes.filter(|other| is_typed(typed, other)) else { continue };
            let written = typed.get_raw(by).and_then(|mut all| all.next()).map(|one| one.to_string_lossy());
            let written = written.unwrap_or_default();
            if self.values.get(known.key).is_some_and(|(value, _)| known::contradict(value, &written)) {
                // A switch is typed without a value.
                let value = if written == "true" { String::new() } else { format!(" {written}") };
                self.overrule(known.key, format!("--{by}{value}"));
            }
        }
    }

    fn overrule(&mut self, key: &'static str, by: String) {
        if let Some((_, place)) = self.values.remove(key) {
            self.overruled.push(Overruled { key, place: place.to_string(), by });
        }
    }

    /// Says what does not count, and why.
    pub(crate) fn tell_overruled(&self) {
        for Overruled { key, place, by } in &self.overruled {
            output::overruled(key, place, by);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The same command line, with what was found in place of its defaults. `typed` is what was understood without.
    pub(crate) fn apply_to(&self, command: clap::Command, typed: &ArgMatches) -> clap::Command {
        match typed.subcommand() {
            Some((name, _)) => command.mut_subcommand(name, |one| self.apply_to_one(one)),
            None => command,
        }
    }

    fn apply_to_one(&self, command: clap::Command) -> clap::Command {
        // By its long name, too: what is told by its place is another thing.
        let has = |command: &clap::Command, known: &Known| {
            command
                .get_arguments()
                .any(|arg| arg.get_id() == known.id().as_str() && arg.get_long() == Some(known.key))
        };
        KNOWN.iter().fold(command, |command, known| match self.values.get(known.key) {
            Some((value, _)) if has(&command, known) => {
                command.mut_arg(known.id(), |arg| arg.default_value(value.clone()))
            }
            _ => command,
        })
    }
}

fn is_typed(typed: &ArgMatches, id: &str) -> bool {
    typed.try_contains_id(id).unwrap_or(false) && typed.value_source(id) == Some(ValueSource::CommandLine)
}

/// Other programs have variables, too, and an orchestrator makes some for a service of our name; but what looks like a
/// setting of ours and is none was meant to be one.
fn refuse_misspelt(name: &str) -> Result<(), Failure> {
    if RESERVED.contains(&name) || name == FILE_VARIABLE {
        return Ok(());
    }
    // Of a short one two letters are most of it.
    let most = |known: &str| if known.len() < "TENURE_".len() + 4 { 1 } else { 2 };
    let is_near = |known: &String| strsim::osa_distance(name, known) <= most(known);
    let near = KNOWN.iter().map(Known::variable).find(is_near);
    near.map_or(Ok(()), |near| {
        Err(Failure::new(format!("there is no setting {name}")).hint(format!("did you mean {near}?")))
    })
}

/// The command line with every setting as an option of `config`, so that people can see what a flag would change.
pub(crate) fn with_settings(command: clap::Command) -> clap::Command {
    let options = KNOWN.iter().filter_map(|known| Some(known.option_of(&command)?.clone().required(false)));
    let options: Vec<clap::Arg> = options.collect();
    command.mut_subcommand("config", |config| config.args(options))
}

// ---- tenure config -----------------------------------------------------------------------------------------

pub(crate) fn config(typed: &args::Config, matches: &ArgMatches, found: &Found) -> Result<Exit, Failure> {
    let mut settings = Vec::new();
    for known in KNOWN {
        settings.push(Setting::of(known, matches, found)?);
    }
    let file = found.file.as_ref().map(|path| path.display().to_string());
    if typed.json {
        output::json(&Report { version: VERSION, file, settings })?;
        return Ok(Exit::OK);
    }
    output::which_file(file.as_deref(), &file::places());
    let rows = settings.into_iter().map(|one| {
        let from = one.place.unwrap_or_else(|| one.from.to_owned());
        [one.setting.to_owned(), one.value.unwrap_or_else(|| format!("({})", one.otherwise)), from]
    });
    let table = Table { head: ["SETTING", "VALUE", "FROM"], rows: rows.collect() };
    output::data(&table.text(Style::of_stdout().columns))?;
    Ok(Exit::OK)
}

#[derive(Serialize)]
struct Report {
    version: u32,
    file: Option<String>,
    settings: Vec<Setting>,
}

#[derive(Serialize)]
struct Setting {
    setting: &'static str,
    value: Option<String>,
    from: &'static str,
    #[serde(rename = "where")]
    place: Option<String>,
    #[serde(skip)]
    otherwise: &'static str,
}

impl Setting {
    fn of(known: &'static Known, matches: &ArgMatches, found: &Found) -> Result<Self, Failure> {
        let raw = matches.try_get_raw(&known.id()).ok().flatten().and_then(|mut values| values.next());
        let value = raw.map(|value| value.to_string_lossy().into_owned());
        let is_typed = matches.value_source(&known.id()) == Some(ValueSource::CommandLine);
        let (from, place) = match found.values.get(known.key) {
            _ if is_typed => ("flag", Some(format!("--{}", known.key))),
            Some((_, place @ Origin::Variable(_))) => ("environment", Some(place.to_string())),
            Some((_, place @ Origin::File { .. })) => ("file", Some(place.to_string())),
            None => ("default", None),
        };
        if let Some(value) = value.as_ref().filter(|_| is_typed) {
            known.check(value).map_err(|why| Failure::new(format!("--{}: {why}", known.key)))?;
        }
        let value = match (known.key, value) {
            // Without a home there is no default store, and nothing to show.
            ("store", None) => Place::find(None).ok().map(|place| place.to_string()),
            ("store", Some(url)) => Some(without_secrets(&url)),
            (_, value) => value,
        };
        Ok(Self { setting: known.key, value, from, place, otherwise: known.otherwise })
    }
}
