//! Settings that were not typed: `TENURE_*`, then `tenure.toml`. And `tenure config`, which says where each came from.
//!
//! A setting is an option of some command. What is found here becomes the default of that option, so that what was
//! typed comes first by itself, and nothing has to be decided twice.

mod file;
#[cfg(test)]
mod fuzz;
mod keys;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;

use self::file::File;
use self::keys::{KEYS, Key, RESERVED};
use crate::exit::{Exit, Failure};
use crate::json::{self, Setting};
use crate::output::{self, Style, Table};
use crate::place::{Place, without_secrets};
use crate::settings::{self, Form};

/// Names the file; then it has to be there.
const FILE_VARIABLE: &str = "TENURE_CONFIG";
const PREFIX: &str = "TENURE_";

/// What was found outside the command line.
#[derive(Debug, Default)]
pub(crate) struct Found {
    file: Option<PathBuf>,
    values: BTreeMap<&'static str, (String, Origin)>,
    /// Settings that do not count: which, where it was found, and what takes precedence.
    overruled: Vec<(&'static str, Origin, String)>,
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
            for (key, value, line) in file.settings()? {
                let origin = Origin::File { path: file.path.clone(), line };
                found.values.insert(key.name, (value, origin));
            }
            found.file = Some(file.path);
        }
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
            let Some(key) = KEYS.iter().find(|key| key.variable() == name) else {
                refuse_misspelt(name)?;
                continue;
            };
            // Empty is as if there were none.
            if value.is_empty() {
                continue;
            }
            let value = value.into_string().map_err(|_| Failure::new(format!("{name} is not UTF-8")))?;
            key.check(&value).map_err(|why| Failure::new(format!("{name}: {why}")))?;
            found.values.insert(key.name, (value, Origin::Variable(name.to_owned())));
        }
        found.settle()?;
        Ok(found)
    }

    /// Of two that contradict each other the one that comes first counts; two from the same place are refused.
    fn settle(&mut self) -> Result<(), Failure> {
        for key in KEYS {
            let Some(other) = key.excludes else { continue };
            let (Some((value, from)), Some((another, place))) =
                (self.values.get(key.name), self.values.get(other))
            else {
                continue;
            };
            if !keys::contradict(value, another) {
                continue;
            }
            match (from, place) {
                (Origin::Variable(_), Origin::File { .. }) => {
                    let by = format!("{from}={value}");
                    self.overrule(other, by);
                }
                (Origin::File { .. }, Origin::Variable(_)) => {}
                _ => {
                    let what = format!("`{}` and `{other}` contradict each other: {from}, {place}", key.name);
                    return Err(Failure::new(what).hint("keep one of them"));
                }
            }
        }
        Ok(())
    }

    /// Drops what contradicts something that was typed.
    pub(crate) fn yield_to(&mut self, typed: &ArgMatches) {
        let Some((_, typed)) = typed.subcommand() else { return };
        for key in KEYS {
            let Some(by) = key.excludes.filter(|other| is_typed(typed, other)) else { continue };
            let written = typed.get_raw(by).and_then(|mut all| all.next()).map(|one| one.to_string_lossy());
            let written = written.unwrap_or_default();
            if self.values.get(key.name).is_some_and(|(value, _)| keys::contradict(value, &written)) {
                // A switch is typed without a value.
                let value = if written == "true" { String::new() } else { format!(" {written}") };
                self.overrule(key.name, format!("--{by}{value}"));
            }
        }
    }

    fn overrule(&mut self, key: &'static str, by: String) {
        if let Some((_, place)) = self.values.remove(key) {
            self.overruled.push((key, place, by));
        }
    }

    /// Says what does not count, and why.
    pub(crate) fn tell_overruled(&self) {
        for (key, place, by) in &self.overruled {
            output::overruled(key, &place.to_string(), by);
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
        let has = |command: &clap::Command, key: &Key| {
            command
                .get_arguments()
                .any(|arg| arg.get_id() == key.id().as_str() && arg.get_long() == Some(key.name))
        };
        KEYS.iter().fold(command, |command, key| match self.values.get(key.name) {
            Some((value, _)) if has(&command, key) => {
                command.mut_arg(key.id(), |arg| arg.default_value(value.clone()))
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
    let most = |key: &str| if key.len() < "TENURE_".len() + 4 { 1 } else { 2 };
    let is_near = |key: &String| strsim::osa_distance(name, key) <= most(key);
    let near = KEYS.iter().map(Key::variable).find(is_near);
    near.map_or(Ok(()), |near| {
        Err(Failure::new(format!("there is no setting {name}")).hint(format!("did you mean {near}?")))
    })
}

/// The command line with every setting as an option of `config`, so that people can see what a flag would change.
pub(crate) fn with_settings(command: clap::Command) -> clap::Command {
    let options = KEYS.iter().filter_map(|key| Some(key.option_of(&command)?.clone().required(false)));
    let options: Vec<clap::Arg> = options.collect();
    command.mut_subcommand("config", |config| config.args(options))
}

// ---- tenure config -----------------------------------------------------------------------------------------

pub(crate) fn config(settings: &settings::Config) -> Result<Exit, Failure> {
    let settings::Config { form, file, settings } = settings;
    if *form == Form::Programs {
        return output::json(&json::Config::of(file.as_deref(), settings)).map(|()| Exit::OK);
    }
    output::which_file(file.as_deref(), &file::places());
    let rows = KEYS.iter().zip(settings).map(|(key, one)| {
        let value = one.value.clone().unwrap_or_else(|| format!("({})", key.otherwise));
        [one.setting.to_owned(), value, one.place.clone().unwrap_or_else(|| one.from.to_owned())]
    });
    let table = Table { head: ["SETTING", "VALUE", "FROM"], rows: rows.collect() };
    output::data(&table.text(Style::of_stdout().columns)).map(|()| Exit::OK)
}

impl Found {
    /// Every setting. `matches` is what was typed to `config`.
    pub(crate) fn all_in_force(&self, matches: &ArgMatches) -> Result<Vec<Setting>, Failure> {
        KEYS.iter().map(|key| self.in_force(key, matches)).collect()
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The value of a setting, and where it came from.
    fn in_force(&self, key: &'static Key, matches: &ArgMatches) -> Result<Setting, Failure> {
        let raw = matches.try_get_raw(&key.id()).ok().flatten().and_then(|mut values| values.next());
        let value = raw.map(|value| value.to_string_lossy().into_owned());
        let is_typed = matches.value_source(&key.id()) == Some(ValueSource::CommandLine);
        let (from, place) = match self.values.get(key.name) {
            _ if is_typed => ("flag", Some(format!("--{}", key.name))),
            Some((_, place @ Origin::Variable(_))) => ("environment", Some(place.to_string())),
            Some((_, place @ Origin::File { .. })) => ("file", Some(place.to_string())),
            None => ("default", None),
        };
        if let Some(value) = value.as_ref().filter(|_| is_typed) {
            key.check(value).map_err(|why| Failure::new(format!("--{}: {why}", key.name)))?;
        }
        let value = match (key.name, value) {
            // Without a home there is no default store, and nothing to show.
            ("store", None) => Place::find(None).ok().map(|place| place.to_string()),
            ("store", Some(url)) => Some(without_secrets(&url)),
            (_, value) => value,
        };
        Ok(Setting { setting: key.name, value, from, place })
    }
}
