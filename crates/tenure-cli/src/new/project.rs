//! The Cargo project around a folder: which file is its root, and how to register a module there.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::names::ModuleName;
use crate::exit::Failure;

const MANIFEST: &str = "Cargo.toml";
/// Modules are added above such a line.
const MARKER: &str = "// tenure: modules";
const ADD: &str = "cargo add tenure && cargo add tokio --features macros,rt-multi-thread,time";

/// A package, and the file in which its modules are declared.
#[derive(Debug)]
pub(super) struct Project {
    folder: PathBuf,
    pub(super) root: PathBuf,
    text: String,
    /// Its modules are public then.
    is_library: bool,
    dependencies: Vec<String>,
}

/// The root of a project with one module more.
#[derive(Debug)]
pub(super) struct Wired {
    pub(super) text: String,
    pub(super) declaration: String,
    pub(super) registration: String,
    pub(super) is_registered: bool,
}

impl Project {
    /// The one whose folder this is, or lies above it.
    pub(super) fn around(here: &Path) -> Result<Self, Failure> {
        let folder = here.ancestors().find(|folder| folder.join(MANIFEST).is_file()).ok_or_else(|| {
            Failure::new(format!(
                "there is no Cargo project here: no Cargo.toml in `{}` or above it",
                here.display()
            ))
            .hint("`tenure new app NAME` makes one")
        })?;
        let path = folder.join(MANIFEST);
        let manifest = read(&path)?;
        let manifest = parsed(&path, &manifest)?;
        if table(&manifest, "package").is_none() {
            return Err(Failure::new(format!(
                "`{}` is a workspace without a package of its own",
                path.display()
            ))
            .hint("go to the folder of the package that the module is for"));
        }
        let dependencies: Vec<String> = table(&manifest, "dependencies")
            .map(|listed| listed.keys().map(|key| key.get_ref().replace('-', "_")).collect())
            .unwrap_or_default();
        for needed in ["tenure", "tokio"] {
            if !dependencies.iter().any(|one| one == needed) {
                return Err(
                    Failure::new(format!("`{}` does not depend on `{needed}`", path.display())).hint(ADD)
                );
            }
        }
        let (root, is_library, text) = root_of(folder, &manifest)?;
        Ok(Self { folder: folder.to_owned(), root, text, is_library, dependencies })
    }

    /// Where the module is to be written; nothing is there yet.
    pub(super) fn place_of(&self, name: &ModuleName) -> Result<PathBuf, Failure> {
        let name = name.as_str();
        let beside = self.root.parent().unwrap_or(&self.folder);
        let file = beside.join(format!("{name}.rs"));
        for there in [&file, &beside.join(name).join("mod.rs")] {
            // Also a link that leads nowhere.
            if there.symlink_metadata().is_ok() {
                return Err(Failure::new(format!(
                    "`{}` is there already; nothing was written",
                    self.shown(there)
                )));
            }
        }
        if self.dependencies.iter().any(|one| one == name) {
            return Err(Failure::new(format!(
                "a module cannot be called `{name}`: the project depends on a crate of that name"
            )));
        }
        Ok(file)
    }

    /// The root with the module in it. Where no application is found it is only declared.
    pub(super) fn wired(&self, name: &ModuleName) -> Result<Wired, Failure> {
        let (word, root) = (name.as_str(), self.shown(&self.root));
        if self.text.lines().any(|line| declared(line) == Some(word)) {
            return Err(Failure::new(format!("`{root}` has a module `{word}` already; nothing was written")));
        }
        let visibility = if self.is_library { "pub " } else { "" };
        let declaration = format!("{visibility}mod {word};");
        let registration = format!(".module({word}::{})", name.camel());
        let registered = with_registration(&self.text, &registration);
        let is_registered = registered.is_some();
        let text = with_declaration(registered.as_deref().unwrap_or(&self.text), &declaration, word);
        Ok(Wired { text, declaration, registration, is_registered })
    }

    /// A path of the project, for people.
    pub(super) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.folder).unwrap_or(path).display().to_string()
    }
}

/// The root with an application, else the program, else the library.
fn root_of(folder: &Path, manifest: &DeTable<'_>) -> Result<(PathBuf, bool, String), Failure> {
    let path_of = |target: &DeTable<'_>| text_of(target, "path").map(|path| folder.join(path));
    let mut candidates = vec![(folder.join("src/main.rs"), false)];
    if let Some(DeValue::Array(programs)) = manifest.get("bin").map(toml::Spanned::get_ref) {
        let programs = programs.iter().filter_map(|program| program.get_ref().as_table());
        // In src/bin every file is a program of its own.
        let paths = programs.filter_map(path_of).filter(|path| !path.starts_with(folder.join("src/bin")));
        candidates.extend(paths.map(|path| (path, false)));
    }
    let library = table(manifest, "lib").and_then(path_of);
    candidates.push((library.unwrap_or_else(|| folder.join("src/lib.rs")), true));
    let mut roots = Vec::new();
    for (path, is_library) in candidates {
        if path.is_file() {
            let text = read(&path)?;
            roots.push((path, is_library, text));
        }
    }
    let applied = roots.iter().position(|(.., text)| with_registration(text, "").is_some());
    match roots.is_empty() {
        false => Ok(roots.swap_remove(applied.unwrap_or(0))),
        true => Err(Failure::new(format!("`{}` has neither src/main.rs nor src/lib.rs", folder.display()))),
    }
}

/// The module that a line declares, if it does.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        // `pub mod`, `pub(crate) mod`, `pub(in crate::x) mod`.
        Some(rest) => rest
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(')'))
            .map_or(rest, |(_, rest)| rest)
            .trim_start(),
        None => line,
    };
    let name = line.strip_prefix("mod ")?.trim_start();
    let end = name.find([';', '{', ' ']).unwrap_or(name.len());
    Some(&name[..end])
}

/// Adds `mod x;` in alphabetical order to the first block of such lines; else before the first item.
fn with_declaration(text: &str, declaration: &str, name: &str) -> String {
    let ending = ending_of(text);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_block = |line: &str| {
        declared(line).is_some() && !line.starts_with([' ', '\t']) && line.trim_end().ends_with(';')
    };
    let joined = |at: usize, added: String| {
        let (before, after) = lines.split_at(at);
        before.concat() + &added + &after.concat()
    };
    if let Some(first) = lines.iter().position(|line| is_block(line)) {
        let block: Vec<&str> = lines[first..].iter().copied().take_while(|line| is_block(line)).collect();
        let mut at = block.iter().take_while(|line| declared(line).is_some_and(|other| other < name)).count();
        // What stands above the first one belongs to it.
        if at == 0 && first > 0 && lines[first - 1].trim_start().starts_with(['#', '/']) {
            at = 1;
        }
        let at = first + at;
        // The last line of a file may lack its end.
        let before = if at > 0 && !lines[at - 1].ends_with('\n') { ending } else { "" };
        return joined(at, format!("{before}{declaration}{ending}"));
    }
    let at = own_beginning(&lines);
    let before = if at > 0 && !lines[at - 1].trim().is_empty() { ending } else { "" };
    let after = if lines.get(at).is_none_or(|line| line.trim().is_empty()) { "" } else { ending };
    joined(at, format!("{before}{declaration}{ending}{after}"))
}

/// How many lines stand before the first item: documentation and attributes of the file, and comments that stand alone.
fn own_beginning(lines: &[&str]) -> usize {
    let mut in_comment = false;
    let is_item = |line: &&str| {
        if in_comment || line.starts_with("/*") {
            in_comment = !line.contains("*/");
            return false;
        }
        line.starts_with(|c: char| c.is_ascii_alphabetic())
            || line.starts_with("#[")
            || line.starts_with("///")
    };
    let first = lines.iter().position(is_item).unwrap_or(lines.len());
    // A comment right above the item belongs to it.
    let is_comment = |line: &&&str| line.starts_with("//") && !line.starts_with("//!");
    first - lines[..first].iter().rev().take_while(is_comment).count()
}

/// Adds a line to the application: above the marker, else above its `.run()`. `None` if it has neither.
fn with_registration(text: &str, registration: &str) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let marked = lines.iter().position(|line| line.trim_start().starts_with(MARKER));
    // Other crates have an `App`, too.
    let is_used = lines.iter().any(|line| line.starts_with("use tenure::") && line.contains("App"));
    let is_made = |line: &str| {
        ["App::connect(", "App::new("]
            .iter()
            .any(|made| line.contains(&format!("tenure::app::{made}")) || is_used && line.contains(made))
    };
    let running = || {
        let made = lines.iter().position(|line| !line.trim_start().starts_with("//") && is_made(line))?;
        let is_run = |line: &&str| {
            line.trim_start().starts_with(".run()") || line.trim_start().starts_with(".run_until(")
        };
        lines[made..].iter().position(is_run).map(|at| made + at)
    };
    let at = marked.or_else(running)?;
    let indent = &lines[at][..lines[at].len() - lines[at].trim_start().len()];
    let (before, after) = lines.split_at(at);
    Some(before.concat() + indent + registration + ending_of(text) + &after.concat())
}

/// As the lines of the file end.
fn ending_of(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// The folder of the crate `tenure` in a checkout.
pub(super) fn checkout(path: &Path) -> Result<String, Failure> {
    let is_it = |folder: &Path| {
        let text = std::fs::read_to_string(folder.join(MANIFEST)).ok()?;
        let manifest = DeTable::parse(&text).ok()?;
        (text_of(table(manifest.get_ref(), "package")?, "name")? == "tenure").then_some(())
    };
    let found =
        [path.to_owned(), path.join("crates/tenure")].into_iter().find(|folder| is_it(folder).is_some());
    let found = found.ok_or_else(|| {
        Failure::new(format!("`{}` is no checkout of Tenure: there is no package `tenure`", path.display()))
    })?;
    let found = found
        .canonicalize()
        .map_err(|error| Failure::new(format!("cannot find `{}`", found.display())).because(&error))?;
    found
        .into_os_string()
        .into_string()
        .map_err(|_| Failure::new(format!("`{}` is not UTF-8", path.display())))
}

/// The manifest of a workspace above a folder that is to be made.
pub(super) fn workspace_around(folder: &Path) -> Option<PathBuf> {
    let manifests = folder.ancestors().skip(1).map(|above| above.join(MANIFEST));
    manifests.into_iter().find(|path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        DeTable::parse(&text).is_ok_and(|manifest| table(manifest.get_ref(), "workspace").is_some())
    })
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read `{}`", path.display())).because(&error))
}

fn parsed<'a>(path: &Path, text: &'a str) -> Result<DeTable<'a>, Failure> {
    let parsed = DeTable::parse(text).map_err(|error| {
        let why = error.message().lines().next().unwrap_or_default();
        Failure::new(format!("`{}` is not TOML: {why}", path.display()))
    })?;
    Ok(parsed.into_inner())
}

fn table<'a, 'b>(of: &'a DeTable<'b>, key: &str) -> Option<&'a DeTable<'b>> {
    of.get(key)?.get_ref().as_table()
}

fn text_of<'a>(of: &'a DeTable<'_>, key: &str) -> Option<&'a str> {
    of.get(key)?.get_ref().as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declares(text: &str) -> String {
        with_declaration(text, "mod new;", "new")
    }

    #[test]
    fn a_module_is_declared_in_the_order_of_the_alphabet() {
        assert_eq!(
            declares("mod a;\nmod z;\n\nfn main() {}\n"),
            "mod a;\nmod new;\nmod z;\n\nfn main() {}\n"
        );
        assert_eq!(declares("//! x\n\nmod z;\nmod za;\n"), "//! x\n\nmod new;\nmod z;\nmod za;\n");
        assert_eq!(
            declares("pub(crate) mod a;\n#[cfg(test)]\nmod tests;\n"),
            "pub(crate) mod a;\nmod new;\n#[cfg(test)]\nmod tests;\n"
        );
        assert_eq!(declares("mod a;"), "mod a;\nmod new;\n");
    }

    #[test]
    fn an_attribute_stays_with_its_module() {
        let text = "#[macro_use]\nmod z;\nmod za;\n";

        assert_eq!(declares(text), "#[macro_use]\nmod z;\nmod new;\nmod za;\n");
    }

    #[test]
    fn a_first_module_is_declared_below_what_is_about_the_whole_file() {
        assert_eq!(declares("fn main() {}\n"), "mod new;\n\nfn main() {}\n");
        assert_eq!(declares(""), "mod new;\n");
        assert_eq!(declares("//! x\n\nuse a;\n"), "//! x\n\nmod new;\n\nuse a;\n");
        assert_eq!(declares("//! x\nuse a;\n"), "//! x\n\nmod new;\n\nuse a;\n");
        assert_eq!(
            declares("// licence\n\n#![allow(\n    a[0],\n)]\n\n// of main\nfn main() {}\n"),
            "// licence\n\n#![allow(\n    a[0],\n)]\n\nmod new;\n\n// of main\nfn main() {}\n"
        );
        assert_eq!(declares("// licence\n\nfn main() {}\n"), "// licence\n\nmod new;\n\nfn main() {}\n");
        assert_eq!(declares("/// Docs.\nfn main() {}\n"), "mod new;\n\n/// Docs.\nfn main() {}\n");
        assert_eq!(declares("use a;\r\n"), "mod new;\r\n\r\nuse a;\r\n");
    }

    #[test]
    fn a_module_inside_another_is_not_the_block() {
        let text = "mod tests {\n    mod inner;\n}\n";

        assert_eq!(declares(text), "mod new;\n\nmod tests {\n    mod inner;\n}\n");
    }

    #[test]
    fn it_is_seen_that_a_module_is_there() {
        for line in ["mod x;", "pub mod x;", "  pub(crate) mod x {", "mod x{}", "pub(in crate::y) mod x;"] {
            assert_eq!(declared(line), Some("x"), "{line}");
        }
        for line in ["// mod x;", "use x;", "modx;", "fn mod_x() {}"] {
            assert_eq!(declared(line), None, "{line}");
        }
    }

    #[test]
    fn an_application_is_found_by_its_marker_or_by_how_it_runs() {
        let add = |text| with_registration(text, ".module(a::A)");

        assert_eq!(
            add("App::connect(x)\n    // tenure: modules\n    .run()\n").as_deref(),
            Some("App::connect(x)\n    .module(a::A)\n    // tenure: modules\n    .run()\n")
        );
        assert_eq!(
            add("tenure::app::App::new(x)\r\n\t.module(b)\r\n\t.run()\r\n").as_deref(),
            Some("tenure::app::App::new(x)\r\n\t.module(b)\r\n\t.module(a::A)\r\n\t.run()\r\n")
        );
        for other in ["server\n    .run()\n", "// App::new(x)\n    .run()\n", "App::new(x).run().await\n"] {
            assert_eq!(add(other), None, "{other}");
        }
    }
}
