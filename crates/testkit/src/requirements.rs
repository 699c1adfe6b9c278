//! Checks that every requirement that the code cites with `// req:` stands in `docs/requirements.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_requirement_that_the_code_cites_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/requirements.md")).expect("docs/requirements.md is there");
    let listed = listed_in(&page);
    let mut files = Vec::new();
    ["crates", "examples"].iter().for_each(|folder| find_rust_files(&root.join(folder), &mut files));

    let mut cited = 0;
    let mut unknown = Vec::new();
    for file in files {
        let source = fs::read_to_string(&file).expect("source is text");
        for (line, id) in cited_in(&source) {
            cited += 1;
            if !listed.contains(id) {
                let file = file.strip_prefix(&root).unwrap_or(&file).display();
                unknown.push(format!("{file}:{line} cites {id}, which docs/requirements.md does not list"));
            }
        }
    }

    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    assert!(
        cited > 100,
        "only {cited} citations were found: does this test still look in the right folders?"
    );
}

#[test]
fn a_citation_is_found_with_its_line_and_an_unlisted_one_is_noticed() {
    let source = format!("fn a() {{}}\n    // {} O4 X9\nlet text = \"req: T1\";\n", "req:");

    let cited: Vec<_> = cited_in(&source).collect();

    assert_eq!(cited, [(2, "O4"), (2, "X9")]);
    assert_eq!(listed_in("- **O4** Text, as **O5** says.\n- O6 Text.\n"), BTreeSet::from(["O4"]));
}

/// The ids of the rows of the page: `- **O4** ...`.
fn listed_in(page: &str) -> BTreeSet<&str> {
    page.lines().filter_map(|line| Some(line.strip_prefix("- **")?.split_once("**")?.0)).collect()
}

/// Every id that a comment of the source cites, with its line.
fn cited_in(source: &str) -> impl Iterator<Item = (usize, &str)> {
    source.lines().enumerate().flat_map(|(index, line)| {
        let ids = line.trim_start().strip_prefix("// req:").unwrap_or_default();
        ids.split_whitespace().map(move |id| (index + 1, id))
    })
}

fn find_rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() && !path.ends_with("target") {
            find_rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
