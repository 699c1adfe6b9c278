//! Prints clap's help and version, and its errors in our form.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{Speaker, Style, data, hint, say};
use crate::args::{NEGATIVE, is_negative};
use crate::exit::Exit;

/// Help and version are data; everything else is an error.
pub(crate) fn clap_error(mut error: clap::Error) -> Exit {
    if !error.use_stderr() {
        let text = error.render();
        let is_coloured = Style::of_stdout().is_coloured;
        let text = if is_coloured { text.ansi().to_string() } else { text.to_string() };
        return data(&text).map_or(Exit::FAILED, |()| Exit::OK);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        Speaker::write(&error.render().to_string());
        return Exit::FAILED;
    }
    if let Some(ContextValue::Strings(known)) = error.get(ContextKind::ValidSubcommand) {
        let known = known.iter().filter(|known| *known != "demo-worker").cloned().collect();
        error.insert(ContextKind::ValidSubcommand, ContextValue::Strings(known));
    }
    let command = std::env::args_os().nth(1).and_then(|word| word.into_string().ok()).unwrap_or_default();
    let usage = match command.as_str() {
        "run" => Some("RESOURCE"),
        "cron" => Some("SPEC --job NAME"),
        "once" => Some("NAME"),
        _ => None,
    };
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    if is_unknown && usage.is_some() {
        // Clap suggests to pass it as a value after `--`, but there begins the command.
        error.remove(ContextKind::Suggested);
    }
    if is_unknown && let Some((option, value)) = negative_duration() {
        say(format!("invalid value '{value}' for '{option}': {NEGATIVE}"));
        return Exit::FAILED;
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).replace("\n  tip: ", "\nhint: ");
    say(text.trim_end());
    let has_separator = std::env::args_os().any(|word| word == "--");
    if let Some(usage) = usage.filter(|_| is_unknown && !has_separator && !text.contains("hint: ")) {
        hint(&format!("the command follows `--`: tenure {command} {usage} [OPTIONS] -- COMMAND"));
    }
    Exit::FAILED
}

/// The first option with a negative span, which clap takes for another option.
fn negative_duration() -> Option<(String, String)> {
    let words = std::env::args_os().take_while(|word| word != "--");
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let is_given = |pair: &&[String]| {
        let has_unit = pair[1].ends_with(|c: char| c.is_ascii_lowercase());
        pair[0].starts_with("--") && is_negative(&pair[1]) && has_unit
    };
    words.windows(2).find(is_given).map(|pair| (pair[0].clone(), pair[1].clone()))
}
