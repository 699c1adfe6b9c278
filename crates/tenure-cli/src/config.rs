//! Settings from the variables `TENURE_*` and from `tenure.toml`; and `tenure config`, which shows where each comes from.
//!
//! A setting is an option of some command. A setting that is found here becomes the default of that option, so that what was
//! typed comes first.

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
use crate::json::Setting;
use crate::output::{self, Style, Table, say};
use crate::place::{Place, without_secrets};
use crate::settings;

/// Names the file, which must exist then.
const FILE_VARIABLE: &str = "TENURE_CONFIG";
const PREFIX: &str = "TENURE_";

/// What was found outside the command line.
#[derive(Debug, Default)]
pub(crate) struct Found {
    file: Option<PathBuf>,
    values: BTreeMap<&'static str, (String, Origin)>,
    /// Settings that another one overrides, as a line each.
    overruled: Vec<String>,
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
    /// Reads the environment and the file. What cannot be a setting is refused here, before the command starts.
    pub(crate) fn gather(typed: &ArgMatches) -> Result<Self, Failure> {
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
            if value.is_empty() {
                continue;
            }
            let value = value.into_string().map_err(|_| Failure::new(format!("{name} is not UTF-8")))?;
            key.check(&value).map_err(|why| Failure::new(format!("{name}: {why}")))?;
            found.values.insert(key.name, (value, Origin::Variable(name.to_owned())));
        }
        found.settle(typed.subcommand().map(|(_, typed)| typed))?;
        Ok(found)
    }

    /// Of two settings that contradict each other, the flag counts, then the variable, then the file. Two from the same place
    /// are an error.
    fn settle(&mut self, typed: Option<&ArgMatches>) -> Result<(), Failure> {
        for key in KEYS {
            let Some(other) = key.excludes else { continue };
            let Some((value, place)) = self.values.get(key.name) else { continue };
            let (another, by) =
                match (typed.and_then(|typed| typed_value(typed, other)), self.values.get(other)) {
                    // A switch is typed without a value.
                    (Some(typed), _) if typed == "true" => (typed, format!("--{other}")),
                    (Some(typed), _) => (typed.clone(), format!("--{other} {typed}")),
                    (None, Some((another, at))) => match (place, at) {
                        (Origin::File { .. }, Origin::Variable(_)) => {
                            (another.clone(), format!("{at}={another}"))
                        }
                        (Origin::Variable(_), Origin::File { .. }) => continue,
                        _ if !keys::contradict(value, another) => continue,
                        _ => {
                            let what =
                                format!("`{}` and `{other}` contradict each other: {place}, {at}", key.name);
                            return Err(Failure::new(what).hint("keep one of them"));
                        }
                    },
                    (None, None) => continue,
                };
            if keys::contradict(value, &another) {
                let line = format!("`{}` ({place}) does not count: `{by}` comes first", key.name);
                self.overruled.push(line);
                self.values.remove(key.name);
            }
        }
        Ok(())
    }

    /// Settings that another one overrides, as a line each.
    pub(crate) fn overruled(&self) -> Vec<String> {
        self.overruled.clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The same command line, with the found settings as its defaults. `typed` is what was understood without them.
    pub(crate) fn apply_to(&self, command: clap::Command, typed: &ArgMatches) -> clap::Command {
        match typed.subcommand() {
            Some((name, _)) => command.mut_subcommand(name, |one| self.apply_to_one(one)),
            None => command,
        }
    }

    fn apply_to_one(&self, command: clap::Command) -> clap::Command {
        // A positional argument of that name is something else.
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

/// What was typed for an option.
fn typed_value(typed: &ArgMatches, id: &str) -> Option<String> {
    let value = typed.try_get_raw(id).ok()??.next()?;
    let is_typed = typed.value_source(id) == Some(ValueSource::CommandLine);
    is_typed.then(|| value.to_string_lossy().into_owned())
}

/// Refuses a variable that looks like a misspelt setting. Others are left alone: an orchestrator sets some for a service named
/// `tenure`.
fn refuse_misspelt(name: &str) -> Result<(), Failure> {
    if RESERVED.contains(&name) || name == FILE_VARIABLE {
        return Ok(());
    }
    // Two letters are most of a short name.
    let most = |key: &str| if key.len() < "TENURE_".len() + 4 { 1 } else { 2 };
    let is_near = |key: &String| strsim::osa_distance(name, key) <= most(key);
    let near = KEYS.iter().map(Key::variable).find(is_near);
    near.map_or(Ok(()), |near| {
        Err(Failure::new(format!("there is no setting {name}")).hint(format!("did you mean {near}?")))
    })
}

/// The command line with every setting as an option of `config`, which shows what a flag would change.
pub(crate) fn with_settings(command: clap::Command) -> clap::Command {
    let options = KEYS.iter().filter_map(|key| Some(key.option_of(&command)?.clone().required(false)));
    let options: Vec<clap::Arg> = options.collect();
    command.mut_subcommand("config", |config| config.args(options))
}

// ---- tenure config -----------------------------------------------------------------------------------------

pub(crate) fn config(settings: &settings::Config) -> Result<Exit, Failure> {
    let settings::Config { json, file, settings, overruled } = settings;
    overruled.iter().for_each(say);
    if *json {
        return output::json(&crate::json::config(file.as_deref(), settings)).map(|()| Exit::OK);
    }
    match file {
        Some(file) => say(format!("settings from `{}`", file.display())),
        None => {
            let places: Vec<String> =
                file::places().iter().map(|path| format!("`{}`", path.display())).collect();
            say(format!("no settings file: neither {}", places.join(" nor ")));
        }
    }
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
        let (from, place) = match (typed_value(matches, &key.id()), self.values.get(key.name)) {
            (Some(typed), _) => {
                let flag = format!("--{}", key.name);
                key.check(&typed).map_err(|why| Failure::new(format!("{flag}: {why}")))?;
                ("flag", Some(flag))
            }
            (None, Some((_, place @ Origin::Variable(_)))) => ("environment", Some(place.to_string())),
            (None, Some((_, place @ Origin::File { .. }))) => ("file", Some(place.to_string())),
            (None, None) => ("default", None),
        };
        let value = match (key.name, value) {
            // Without a home folder there is no default store.
            ("store", None) => Place::find(None).ok().map(|place| place.to_string()),
            ("store", Some(url)) => Some(without_secrets(&url)),
            (_, value) => value,
        };
        Ok(Setting { setting: key.name, value, from, place })
    }
}
