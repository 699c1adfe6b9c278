//! `tenure new`: writes a module into a Cargo project and wires it in, or a small service that runs.
//!
//! Everything is looked at before anything is written, and nothing that is there is overwritten.

mod names;
mod project;
mod texts;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use tenure::store::Tickets;

use self::names::{ModuleName, PackageName, Resource};
use self::project::{Project, Wired};
use crate::args::count;
use crate::exit::{Exit, Failure};
use crate::output;

pub(crate) const ABOUT: &str = "\
Writes Rust code to begin with: a module with typed resources and its start and stop hooks, wired into the Cargo project \
around the current folder; or a small service that runs. Nothing that is there is overwritten.";

pub(crate) const AFTER: &str = "\
Examples:
  tenure new app shop --tenure-path ../tenure && cd shop && cargo run
  tenure new module student --resource echo --resource report:2
  tenure new module mails --resource send --tickets 3";

const ABOUT_MODULE: &str = "\
Writes src/NAME.rs with the resources NAME.RESOURCE, the work of each and its cleanup, and what happens when the application \
starts and closes. Declares it in src/main.rs, or in src/lib.rs where there is no main.rs, and adds it to the `tenure::App` \
there: above a line `// tenure: modules`, else above its `.run()`. Where neither is found it says which line to add.";

const AFTER_MODULE: &str = "\
Examples:
  tenure new module student --resource echo
  tenure new module student --resource echo --resource report:2
  tenure new module mails --resource send --tickets 3";

const ABOUT_APP: &str = "\
Writes a small service into a new folder: a worker, a module of which the work runs on one copy at a time, and a close in good \
order on SIGTERM and SIGINT. Its store is $TENURE_STORE, else the file tenure.db in the folder in which it runs.";

const AFTER_APP: &str = "\
Examples:
  tenure new app shop --tenure-path ../tenure     # with a checkout of Tenure
  cd shop && cargo run                            # in two terminals";

/// What was typed.
#[derive(Debug, clap::Args)]
pub(crate) struct New {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write a module with typed resources into this Cargo project, and wire it in
    #[command(long_about = ABOUT_MODULE, after_help = AFTER_MODULE)]
    Module(Module),
    /// Write a small service that runs
    #[command(long_about = ABOUT_APP, after_help = AFTER_APP)]
    App(App),
}

#[derive(Debug, clap::Args)]
struct Module {
    /// What it is called: a-z 0-9 _, beginning with a letter
    name: String,

    /// A resource of it, and how many may own that at once: a-z 0-9 _ - and, after a colon, 1 to 1000
    #[arg(long = "resource", value_name = "RESOURCE[:K]", required = true)]
    resources: Vec<String>,

    // Not the setting: that is about workers that run.
    /// How many may own those resources for which nothing is said
    #[arg(id = "each", long = "tickets", value_name = "K", default_value_t = 1, value_parser = count)]
    tickets: u32,
}

#[derive(Debug, clap::Args)]
struct App {
    /// The folder to make; the last part of it is the name of the package
    path: PathBuf,

    /// Depend on the checkout of Tenure in this folder, instead of a version
    #[arg(long, value_name = "PATH")]
    tenure_path: Option<PathBuf>,
}

pub(crate) fn new(typed: New) -> Result<Exit, Failure> {
    match typed.what {
        What::Module(typed) => module(&typed),
        What::App(typed) => app(&typed),
    }
}

fn module(typed: &Module) -> Result<Exit, Failure> {
    let name = ModuleName::new(&typed.name)?;
    let resources = Resource::all(&typed.resources, Tickets::new(typed.tickets)?.count())?;
    let here = std::env::current_dir().map_err(|error| cannot("tell the current folder", &error))?;
    let project = Project::around(&here)?;
    let file = project.place_of(&name)?;
    let wired = project.wired(&name)?;

    write_new(&file, &texts::module(&name, &resources))?;
    if let Err(error) = replace(&project.root, &wired.text) {
        // Ours, and of no use without being declared.
        let _stays = fs::remove_file(&file);
        return Err(cannot(&format!("write `{}`", project.shown(&project.root)), &error));
    }
    let names: Vec<String> = resources.iter().map(|resource| resource.told(&name)).collect();
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
        Some(format!("add `{registration}` to your `tenure::App`, before `.run()`: `{root}` has none"))
    };
    output::written(&written, next.as_deref())?;
    Ok(Exit::OK)
}

/// Whatever happens meanwhile, the file is there as it was or as it is to be.
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

fn app(typed: &App) -> Result<Exit, Failure> {
    let name = PackageName::of(&typed.path)?;
    let path = typed.tenure_path.as_deref().ok_or_else(|| {
        Failure::new("the crate `tenure` is not published yet")
            .hint("name a checkout of Tenure: --tenure-path PATH")
    })?;
    let tenure = project::checkout(path)?;
    let here = std::env::current_dir().map_err(|error| cannot("tell the current folder", &error))?;
    let workspace = project::workspace_around(&here.join(&typed.path));
    let files = texts::app(&name, &tenure)?;

    let folder = typed.path.display();
    match fs::create_dir(&typed.path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Failure::new(format!("`{folder}` is there already; nothing was written")));
        }
        made => made.map_err(|error| cannot(&format!("make the folder `{folder}`"), &error))?,
    }
    let mut written = Vec::new();
    for (path, text) in files {
        let file = typed.path.join(path);
        if let Err(failure) = write_new(&file, &text) {
            // It was not there before.
            let _stays = fs::remove_dir_all(&typed.path);
            return Err(failure);
        }
        written.push(format!("wrote `{}`", file.display()));
    }
    let next = match workspace {
        Some(workspace) => {
            let workspace = workspace.display();
            format!(
                "it lies within the workspace of `{workspace}`: add it to the members there, or an empty [workspace] \
                 table to its own manifest; then: cd {folder} && cargo run"
            )
        }
        None => format!("cd {folder} && cargo run, in two terminals; then Ctrl-C in the one that works"),
    };
    output::written(&written, Some(&next))?;
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
