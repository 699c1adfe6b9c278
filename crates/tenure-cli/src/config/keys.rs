//! The table of settings. An option that is not in it can only be typed.

use clap::ValueEnum;
use tenure::jobs::cron::Schedule;
use tenure::store::Namespace;
use tenure::types::Label;

use crate::args::{Restart, duration, metadata, tickets, ttl};
use crate::output::beginning;
use crate::place::Place;

/// One setting. Its variable is `TENURE_KEY`, its option `--key`.
#[derive(Debug)]
pub(crate) struct Key {
    /// In the file, and as an option.
    pub(crate) name: &'static str,
    pub(super) form: Form,
    /// The default, in words, if it is worked out later.
    pub(super) otherwise: &'static str,
    /// Another setting that may contradict this one.
    pub(super) excludes: Option<&'static str>,
    check: fn(&str) -> Result<(), String>,
}

/// How it is written in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Number,
    Switch,
}

impl Form {
    pub(super) const fn wanted(self) -> &'static str {
        match self {
            Self::Text => "text in quotation marks",
            Self::Number => "a number",
            Self::Switch => "true or false",
        }
    }
}

const fn text(name: &'static str, otherwise: &'static str, check: fn(&str) -> Result<(), String>) -> Key {
    Key { name, form: Form::Text, otherwise, excludes: None, check }
}

const fn number(name: &'static str, check: fn(&str) -> Result<(), String>) -> Key {
    Key { name, form: Form::Number, otherwise: "", excludes: None, check }
}

const fn on_or_off(name: &'static str) -> Key {
    Key { name, form: Form::Switch, otherwise: "false", excludes: None, check: switch }
}

/// All of them.
pub(crate) const KEYS: &[Key] = &[
    text("store", "none: there is no home", |typed| said(Place::find(Some(typed.to_owned())))),
    text("namespace", "", |typed| said(Namespace::new(typed))),
    on_or_off("wait-for-store"),
    text("ttl", "", |typed| said(ttl(typed))),
    text("grace", "one ttl", |typed| said(duration(typed))),
    text("wait", "for ever", |typed| said(duration(typed))),
    number("tickets", |typed| said(tickets(typed))),
    text("label", "host, pid and a random part", |typed| said(Label::new(typed))),
    text("metadata", "none", |typed| said(metadata(typed))),
    number("priority", priority),
    Key { excludes: Some("once"), ..text("restart", "", restart) },
    on_or_off("exit-on-loss"),
    Key { excludes: Some("restart"), ..on_or_off("once") },
    text("tz", "", |typed| said(Schedule::new("@daily").and_then(|daily| daily.in_zone(typed)))),
];

/// Whether two settings that exclude each other are both in use.
pub(super) fn contradict(one: &str, other: &str) -> bool {
    let wants_nothing = |value: &str| matches!(value, "false" | "never");
    !wants_nothing(one) && !wants_nothing(other)
}

/// The variables that a command is given. Another `tenure` inside the command sees them.
pub(super) const RESERVED: &[&str] = &[
    "TENURE_RESOURCE",
    "TENURE_TICKET",
    "TENURE_TERM",
    "TENURE_TOKEN",
    "TENURE_WORKER",
    "TENURE_JOB",
    "TENURE_OCCURRENCE",
    "TENURE_KEY",
    "TENURE_ATTEMPT",
];

impl Key {
    pub(super) fn variable(&self) -> String {
        format!("TENURE_{}", self.name.to_uppercase().replace('-', "_"))
    }

    /// The id of the option.
    pub(super) fn id(&self) -> String {
        self.name.replace('-', "_")
    }

    /// The option itself, of the first command that has it.
    pub(super) fn option_of<'a>(&self, command: &'a clap::Command) -> Option<&'a clap::Arg> {
        let commands = ["run", "cron"].into_iter().filter_map(|name| command.find_subcommand(name));
        commands.flat_map(clap::Command::get_arguments).find(|arg| arg.get_id().as_str() == self.id())
    }

    /// Checks a value.
    pub(super) fn check(&self, value: &str) -> Result<(), String> {
        (self.check)(value)
    }
}

fn said<T>(checked: Result<T, impl ToString>) -> Result<(), String> {
    checked.map(drop).map_err(|why| why.to_string())
}

fn priority(typed: &str) -> Result<(), String> {
    said(typed.parse::<i32>().map_err(|_| format!("must be a number from {} to {}", i32::MIN, i32::MAX)))
}

fn restart(typed: &str) -> Result<(), String> {
    let known = Restart::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let known: Vec<String> = known.map(|value| value.get_name().to_owned()).collect();
    match known.iter().any(|known| known == typed) {
        true => Ok(()),
        false => Err(format!("{:?} is not one of {}", beginning(typed), known.join(", "))),
    }
}

fn switch(typed: &str) -> Result<(), String> {
    match typed {
        "true" | "false" => Ok(()),
        _ => Err(format!("{:?} is not true or false", beginning(typed))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Options that are about one call, and so are no settings.
    const TYPED_ONLY: &[&str] = &[
        "resource",
        "command",
        "json",
        "watch",
        "since",
        "ticket",
        "to",
        "force",
        "outcome_within",
        "shell",
        "of",
        "workers",
        "demo_ttl",
        "script",
        "plant",
        "folder",
        "name",
        "kind",
        "role",
        "spec",
        "job",
        "misfire",
        "jitter",
        "interrupted",
        "list",
        "history",
        "go_on",
    ];

    #[test]
    fn every_option_is_a_setting_or_about_one_call() {
        let command = crate::args::Args::command();
        for sub in command.get_subcommands() {
            for option in sub.get_arguments() {
                let id = option.get_id().as_str();
                let is_setting = KEYS.iter().any(|key| key.id() == id);
                assert!(is_setting != TYPED_ONLY.contains(&id), "{} {id}: a setting or not?", sub.get_name());
            }
        }
    }

    /// The first file in `text` that begins with its store.
    fn file_in(text: &str) -> String {
        let lines = text.lines().map(str::trim).skip_while(|line| !line.starts_with("store = "));
        lines.take_while(|line| line.contains(" = ")).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn a_file_with_everything_has_every_setting_in_the_help_and_in_the_docs() {
        let command = crate::args::Args::command();
        let help =
            command.find_subcommand("config").and_then(clap::Command::get_after_help).expect("it has one");
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
        let docs = std::fs::read_to_string(docs).expect("it is there");

        for text in [help.to_string(), docs] {
            let text = file_in(&text);
            let file = super::super::file::File { path: "tenure.toml".into(), text };
            let settings = file.settings().expect("it is sound");
            let missing = KEYS.iter().map(|key| key.name);
            let missing: Vec<&str> =
                missing.filter(|key| settings.iter().all(|(found, ..)| found.name != *key)).collect();
            assert_eq!(missing, Vec::<&str>::new(), "{}", file.text);
        }
    }

    #[test]
    fn what_is_refused_is_told_by_its_beginning() {
        let long = "x".repeat(5_000);
        for key in KEYS {
            if let Err(why) = key.check(&long) {
                assert!(why.len() < 400, "{}: {why}", key.name);
            }
        }
    }

    #[test]
    fn every_setting_is_an_option_and_its_default_passes_its_own_check() {
        let command = crate::args::Args::command();
        for key in KEYS {
            let option = key.option_of(&command).expect(key.name);
            assert_eq!(option.get_long(), Some(key.name));
            for value in option.get_default_values() {
                let value = value.to_str().expect("UTF-8");
                assert_eq!(key.check(value), Ok(()), "{}", key.name);
            }
        }
    }
}
