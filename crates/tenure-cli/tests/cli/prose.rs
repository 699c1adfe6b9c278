//! What users read is plain English: short sentences, lines that fit a screen, none of our old habits.

use std::path::{Path, PathBuf};

use super::help::COMMANDS;
use super::scene::Scene;

/// A sentence with more words than this is read twice.
const MOST_WORDS: usize = 35;
/// A longer line does not fit a split screen.
const MOST_COLUMNS: usize = 120;
/// Habits of the old texts, in lower case. Each has a plainer form in the style guide.
const HABITS: [&str; 9] = [
    "how-manieth",
    "as hoped",
    "as much sooner",
    "born again",
    "is told as such",
    "none is",
    "that there is",
    "there is none",
    "whoever",
];

/// The files that users read. `requirements.md` quotes what others ask for.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"]
        .map(|name| root.join(name))
        .into();
    let docs = std::fs::read_dir(root.join("docs")).expect("the folder of docs");
    pages.extend(docs.map(|entry| entry.expect("an entry").path()).filter(|path| {
        path.extension().is_some_and(|ending| ending == "md") && !path.ends_with("requirements.md")
    }));
    pages.sort();
    pages
}

/// The prose of a page, as numbered lines: no code blocks, tables or headings.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let is_prose =
            !in_code && !line.starts_with(['|', '#', '<']) && !line.trim_start().starts_with("```");
        lines.push((number + 1, if is_prose { line } else { "" }));
    }
    lines
}

/// Sentences with the line on which they begin. A list item, a colon and an empty line end a sentence, too.
fn sentences(lines: &[(usize, &str)]) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    let (mut begun, mut sentence) = (0, String::new());
    let mut end = |begun: usize, sentence: &mut String| {
        if !sentence.is_empty() {
            all.push((begun, std::mem::take(sentence)));
        }
    };
    for (number, line) in lines {
        let item = line.trim_start();
        // In help, options and commands have a column of their own, and examples a line.
        let begins_item = item.starts_with(['-', '*', '>'])
            || ["  ", " = "].iter().any(|mark| item.contains(mark))
            || item.starts_with("tenure ")
            || item.split_once(". ").is_some_and(|(mark, _)| mark.parse::<u32>().is_ok());
        if item.is_empty() || begins_item {
            end(begun, &mut sentence);
        }
        for word in item.split_whitespace() {
            if sentence.is_empty() {
                begun = *number;
            } else {
                sentence.push(' ');
            }
            sentence.push_str(word);
            if word.trim_end_matches(['*', '"', ')', '_']).ends_with(['.', '!', '?', ':', ';']) {
                end(begun, &mut sentence);
            }
        }
    }
    end(begun, &mut sentence);
    all
}

fn complaints(name: &str, text: &str) -> Vec<String> {
    let lines = prose(text);
    let mut found = Vec::new();
    for (number, line) in &lines {
        let columns = line.chars().count();
        if columns > MOST_COLUMNS {
            found.push(format!("{name}:{number}: {columns} columns, {MOST_COLUMNS} are the most"));
        }
    }
    for (number, sentence) in sentences(&lines) {
        let words = sentence.split_whitespace().count();
        let lower = sentence.to_lowercase();
        if words > MOST_WORDS {
            found.push(format!(
                "{name}:{number}: a sentence of {words} words, {MOST_WORDS} are the most: {sentence}"
            ));
        }
        for habit in HABITS.iter().filter(|habit| lower.contains(**habit)) {
            found.push(format!("{name}:{number}: says {habit:?}: {sentence}"));
        }
    }
    found
}

#[test]
fn the_pages_are_plain_english() {
    let mut found = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        let name = page.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        found.extend(complaints(&name, &text));
    }

    assert!(found.is_empty(), "{} places to rewrite:\n{}", found.len(), found.join("\n"));
}

#[test]
fn the_help_is_plain_english() {
    let scene = Scene::new();
    let mut found = Vec::new();
    for command in COMMANDS {
        let help = scene.done(&[command, "--help"]).stdout;
        found.extend(complaints(&format!("tenure {command} --help"), &String::from_utf8_lossy(&help)));
    }

    assert!(found.is_empty(), "{} places to rewrite:\n{}", found.len(), found.join("\n"));
}

#[test]
fn the_check_notices_a_long_sentence_a_wide_line_and_an_old_habit() {
    let long = "word ".repeat(36) + "end.";
    let wide = "w".repeat(121);

    assert_eq!(complaints("page", &long).len(), 2, "too long, and too wide");
    assert_eq!(complaints("page", &wide).len(), 1);
    assert_eq!(complaints("page", "It did not go as hoped.").len(), 1);
    assert_eq!(complaints("page", "A short sentence. Another one:\n\n```sh\nas hoped\n```").len(), 0);
}
