//! Names that become Rust identifiers, checked before anything is written.

use std::path::Path;

use tenure::store::Tickets;

use crate::args::count;
use crate::exit::Failure;
use crate::output::beginning;

/// Longer names make unreadable code.
const LONGEST: usize = 40;

const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "union", "unsafe", "unsized", "use",
    "virtual", "where", "while", "yield",
];

/// Names that mean something else in the code of a module or around it.
const TAKEN: &[&str] = &[
    "alloc", "core", "std", "main", "lib", "test", "tenure", "tokio", "ok", "err", "some", "none", "option",
    "result",
];

/// The name of a module.
#[derive(Debug)]
pub(crate) struct ModuleName(String);

impl ModuleName {
    pub(crate) fn new(typed: &str) -> Result<Self, Failure> {
        let failure = || {
            let what = "1 to 40 of a-z 0-9 _, beginning with a letter, without __ and without _ at the end";
            Failure::new(format!("a module cannot be called {:?}: it is not {what}", beginning(typed)))
        };
        if !is_word(typed, "_") {
            let near = typed.to_lowercase().replace(['-', ' '], "_");
            return Err(if is_word(&near, "_") {
                failure().hint(format!("`{near}` can be"))
            } else {
                failure()
            });
        }
        if KEYWORDS.contains(&typed) || TAKEN.contains(&typed) {
            return Err(Failure::new(format!(
                "a module cannot be called `{typed}`: Rust means something else by it"
            )));
        }
        Ok(Self(typed.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// As a type.
    pub(crate) fn camel(&self) -> String {
        camel(&self.0)
    }
}

/// A resource of a module.
#[derive(Debug)]
pub(crate) struct Resource {
    name: String,
    pub(crate) tickets: u32,
}

impl Resource {
    /// All that were typed, each once; those without a number have `tickets`.
    pub(crate) fn all(typed: &[String], tickets: u32) -> Result<Vec<Self>, Failure> {
        let mut all: Vec<Self> = Vec::new();
        for typed in typed {
            let one = Self::new(typed, tickets)?;
            if let Some(other) = all.iter().find(|other| other.camel() == one.camel()) {
                return Err(Failure::new(match other.name == one.name {
                    true => format!("the resource `{}` is there twice", one.name),
                    false => format!(
                        "`{}` and `{}` would be the same in Rust: `{}`",
                        other.name,
                        one.name,
                        one.camel()
                    ),
                }));
            }
            all.push(one);
        }
        Ok(all)
    }

    fn new(typed: &str, otherwise: u32) -> Result<Self, Failure> {
        let (name, number) =
            typed.split_once(':').map_or((typed, None), |(name, number)| (name, Some(number)));
        if !is_word(name, "_-") || name == "self" {
            let what = "1 to 40 of a-z 0-9 _ -, beginning with a letter, without two of _ - together or one at the end";
            return Err(Failure::new(format!(
                "a resource cannot be called {:?}: it is not {what}",
                beginning(name)
            ))
            .hint("the module's name is put before it: `echo` of `student` is `student.echo`"));
        }
        let failed = |why: String| Failure::new(format!("--resource {typed}: {why}"));
        let tickets = match number {
            None => otherwise,
            Some(number) => {
                let number = count(number).map_err(failed)?;
                Tickets::new(number).map_err(|limit| failed(limit.to_string()))?.count()
            }
        };
        Ok(Self { name: name.to_owned(), tickets })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    /// As a variant.
    pub(crate) fn camel(&self) -> String {
        camel(&self.name)
    }

    /// As a part of a function's name.
    pub(crate) fn snake(&self) -> String {
        self.name.replace('-', "_")
    }

    /// For people.
    pub(crate) fn told(&self, module: &ModuleName) -> String {
        let name = format!("`{}.{}`", module.as_str(), self.name);
        if self.tickets == 1 { name } else { format!("{name} ({} tickets)", self.tickets) }
    }
}

/// The name of a package, which is that of its folder.
#[derive(Debug)]
pub(crate) struct PackageName(String);

impl PackageName {
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_taken = TAKEN.contains(&name) || KEYWORDS.contains(&name) || name == "tracing-subscriber";
        if !is_word(name, "_-") || is_taken {
            let what = "1 to 40 of a-z 0-9 _ -, beginning with a letter, and no word of Rust";
            let shown = beginning(&path.display().to_string());
            return Err(Failure::new(format!("a package cannot be called {shown:?}: it is not {what}")));
        }
        Ok(Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Parts of letters and digits, beginning with a letter, joined by single ones of `joints`.
fn is_word(name: &str, joints: &str) -> bool {
    let is_part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= LONGEST
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.split(|c| joints.contains(c)).all(is_part)
}

fn camel(name: &str) -> String {
    let parts = name.split(['_', '-']).map(|part| {
        let (first, rest) = part.split_at(part.len().min(1));
        first.to_uppercase() + rest
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<T>(checked: Result<T, Failure>) -> String {
        checked.err().map(|failure| failure.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_is_no_word_of_rust_is_refused_with_what_could_be() {
        for wrong in
            ["", "Student", "9a", "a b", "a__b", "a_", "_a", "a.b", "../x", "a-b", "ä", &"x".repeat(41)]
        {
            assert!(said(ModuleName::new(wrong)).contains("it is not 1 to 40 of a-z"), "{wrong:?}");
        }
        let hint =
            |wrong| ModuleName::new(wrong).err().and_then(|failure| failure.hinted().map(str::to_owned));
        assert_eq!(hint("Daily-Report").as_deref(), Some("`daily_report` can be"));
        for taken in ["match", "self", "tokio", "std", "result", "main"] {
            assert!(said(ModuleName::new(taken)).contains("Rust means something else by it"), "{taken}");
        }
        assert_eq!(ModuleName::new("daily_report_2").expect("a name").camel(), "DailyReport2");
    }

    #[test]
    fn a_resource_has_its_own_number_of_tickets_or_that_of_all() {
        let typed = ["echo".to_owned(), "daily-report:2".to_owned()];

        let all = Resource::all(&typed, 3).expect("two");

        let shown: Vec<_> = all.iter().map(|one| (one.camel(), one.snake(), one.tickets)).collect();
        assert_eq!(
            shown,
            [("Echo".into(), "echo".into(), 3), ("DailyReport".into(), "daily_report".into(), 2)]
        );
    }

    #[test]
    fn resources_that_would_be_one_in_rust_are_refused() {
        let all = |typed: &[&str]| {
            let typed: Vec<String> = typed.iter().map(|one| (*one).to_owned()).collect();
            said(Resource::all(&typed, 1))
        };
        assert_eq!(all(&["a", "a:2"]), "the resource `a` is there twice");
        assert_eq!(all(&["a-b", "a_b"]), "`a-b` and `a_b` would be the same in Rust: `AB`");
        assert!(all(&["a:0"]).contains("number of tickets \"0\" is not 1 to 1000"));
        assert!(all(&["a:x"]).contains("must be a number from 1 to 1000"));
        assert!(all(&["Echo"]).contains("a resource cannot be called \"Echo\""));
        assert!(all(&["self"]).contains("cannot be called"));
    }

    #[test]
    fn a_package_is_called_as_its_folder() {
        assert_eq!(PackageName::of(Path::new("some/Where/my-shop")).expect("a name").as_str(), "my-shop");
        for wrong in ["", "..", "x/..", "Shop", "a/tenure", "test", "fn"] {
            assert!(PackageName::of(Path::new(wrong)).is_err(), "{wrong}");
        }
    }
}
