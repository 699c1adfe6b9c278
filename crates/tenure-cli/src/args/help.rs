//! The help of each command, one file per command. A line of dashes separates what the command does from its examples.

pub(super) const TENURE: &str = include_str!("help/tenure.txt");
pub(super) const APP: &str = include_str!("help/app.txt");
pub(super) const COMPLETIONS: &str = include_str!("help/completions.txt");
pub(super) const CONFIG: &str = include_str!("help/config.txt");
pub(super) const CRON: &str = include_str!("help/cron.txt");
pub(super) const DEMO: &str = include_str!("help/demo.txt");
pub(super) const DOCTOR: &str = include_str!("help/doctor.txt");
pub(super) const EXPLAIN: &str = include_str!("help/explain.txt");
pub(super) const HISTORY: &str = include_str!("help/history.txt");
pub(super) const MAN: &str = include_str!("help/man.txt");
pub(super) const MODULE: &str = include_str!("help/module.txt");
pub(super) const NEW: &str = include_str!("help/new.txt");
pub(super) const ONCE: &str = include_str!("help/once.txt");
pub(super) const RUN: &str = include_str!("help/run.txt");
pub(super) const SCHEMA: &str = include_str!("help/schema.txt");
pub(super) const STATUS: &str = include_str!("help/status.txt");
pub(super) const STEP_DOWN: &str = include_str!("help/step-down.txt");

/// What the command does. The lines of a paragraph are joined; clap wraps them to the width of the terminal.
pub(super) fn about(help: &str) -> String {
    let (about, _) = help.split_once(BETWEEN).unwrap_or((help, ""));
    about.split("\n\n").map(|lines| lines.replace('\n', " ")).collect::<Vec<String>>().join("\n\n")
}

/// Examples, exit codes and the like.
pub(super) fn after(help: &'static str) -> &'static str {
    help.split_once(BETWEEN).map_or("", |(_, after)| after.trim_end())
}

const BETWEEN: &str = "\n\n----\n";
