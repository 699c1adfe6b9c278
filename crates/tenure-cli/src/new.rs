//! `tenure new`: writes a module into a Cargo project and registers it there, or writes a small service that runs.
//!
//! Everything is checked before anything is written, and no file is overwritten.

pub(crate) mod names;
mod project;
mod texts;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use self::names::{ModuleName, PackageName, Resource};
use self::project::{Project, Wired};
use crate::exit::{Exit, Failure};
use crate::output::{clean, data, hint};
use crate::settings;

pub(crate) fn new(settings: settings::New) -> Result<Exit, Failure> {
    match settings {
        settings::New::Module { name, resources } => module(&name, &resources),
        settings::New::App { name, path, tenure } => app(&name, &path, &tenure),
    }
}

fn module(name: &ModuleName, resources: &[Resource]) -> Result<Exit, Failure> {
    let here = std::env::current_dir().map_err(|error| cannot("tell the current folder", &error))?;
    let project = Project::around(&here)?;
    let file = project.place_of(name)?;
    let wired = project.wired(name)?;

    write_new(&file, &texts::module(name, resources))?;
    if let Err(error) = replace(&project.root, &wired.text) {
        // Of no use without its declaration.
        let _stays = fs::remove_file(&file);
        return Err(cannot(&format!("write `{}`", project.shown(&project.root)), &error));
    }
    let names: Vec<String> = resources.iter().map(|resource| resource.told(name)).collect();
    let Wired { declaration, registration, is_registered, .. } = wired;
    let root = project.shown(&project.root);
    let mut written = vec![
        format!("wrote `{}`: {}", project.shown(&file), names.join(", ")),
        format!("added `{declaration}` to `{root}`"),
    ];
    let next = if is_registered {
        written.push(format!("added `{registration}` to the application in `{root}`"));
        None
    } else {
        Some(format!("add `{registration}` to your `tenure::app::App`, before `.run()`: `{root}` has none"))
    };
    report(&written, next.as_deref())
}

/// Replaces a file in one step: whatever happens, it has the old text or the new.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension(format!("rs.{}", std::process::id()));
    let written = fs::metadata(path).and_then(|found| {
        fs::write(&beside, text)?;
        fs::set_permissions(&beside, found.permissions())?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        let _stays = fs::remove_file(&beside);
    }
    written
}

fn app(name: &PackageName, path: &Path, tenure: &Path) -> Result<Exit, Failure> {
    let tenure = project::checkout(tenure)?;
    let here = std::env::current_dir().map_err(|error| cannot("tell the current folder", &error))?;
    let workspace = project::workspace_around(&here.join(path));
    let files = texts::app(name, &tenure)?;

    let folder = path.display();
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Failure::new(format!("`{folder}` is there already; nothing was written")));
        }
        made => made.map_err(|error| cannot(&format!("make the folder `{folder}`"), &error))?,
    }
    let mut written = Vec::new();
    for (name, text) in files {
        let file = path.join(name);
        if let Err(failure) = write_new(&file, &text) {
            // It was not there before.
            let _stays = fs::remove_dir_all(path);
            return Err(failure);
        }
        written.push(format!("wrote `{}`", file.display()));
    }
    let next = match workspace {
        Some(workspace) => {
            let workspace = workspace.display();
            format!(
                "it lies in the workspace of `{workspace}`: add it to the members there, or an empty [workspace] \
                 table to its own manifest; then: cd {folder} && cargo run"
            )
        }
        None => format!("cd {folder} && cargo run, in two terminals; then Ctrl-C in the one that works"),
    };
    report(&written, Some(&next))
}

/// Prints what was written, and what to do next.
fn report(written: &[String], next: Option<&str>) -> Result<Exit, Failure> {
    data(&written.iter().map(|line| clean(line) + "\n").collect::<String>())?;
    next.into_iter().for_each(hint);
    Ok(Exit::OK)
}

/// Writes a file that is not there yet, with its folder.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let write = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
    };
    write().map_err(|error| cannot(&format!("write `{}`", path.display()), &error))
}

fn cannot(what: &str, error: &io::Error) -> Failure {
    Failure::new(format!("cannot {what}")).because(error)
}
