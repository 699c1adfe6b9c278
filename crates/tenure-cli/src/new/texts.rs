//! The code that is written. A test compiles it without a warning and runs it.

use super::names::{ModuleName, PackageName, Resource};
use crate::exit::Failure;

/// The file of a module.
pub(super) fn module(name: &ModuleName, resources: &[Resource]) -> String {
    let (module, own) = (name.as_str(), name.camel());
    let job = if own == "Job" { "Work" } else { "Job" };
    let variant = |resource: &Resource| {
        let tickets = match resource.tickets {
            1 => String::new(),
            tickets => format!(" (tickets: {tickets})"),
        };
        format!("        {} = \"{}\"{tickets},\n", resource.camel(), resource.as_str())
    };
    let callbacks = |resource: &Resource| {
        let full = format!("{module}.{}", resource.as_str());
        include_str!("templates/callbacks.rs.in")
            .replace("@full@", &full)
            .replace("@snake@", &resource.snake())
    };
    include_str!("templates/module.rs.in")
        .replace("@module@", module)
        .replace("@job@", job)
        .replace("@own@", &own)
        .replace("@variants@", &resources.iter().map(variant).collect::<String>())
        .replace("@campaigns@", &resources.iter().map(|one| obtained(job, one)).collect::<String>())
        .replace("@callbacks@", &resources.iter().map(callbacks).collect::<String>())
}

/// The line that competes, or the lines: as rustfmt breaks it.
fn obtained(job: &str, resource: &Resource) -> String {
    let (variant, snake) = (resource.camel(), resource.snake());
    let (start, stop) = (format!("start_{snake}"), format!("stop_{snake}"));
    let whole = format!("{job}::{variant}.campaign(worker).obtain({start}, {stop})?");
    if whole.len() < NARROW {
        return format!("        {whole};\n");
    }
    let callbacks = match format!("{start}, {stop}") {
        callbacks if callbacks.len() <= NARROW => callbacks,
        _ => format!("\n                {start},\n                {stop},\n            "),
    };
    format!("        {job}::{variant}\n            .campaign(worker)\n            .obtain({callbacks})?;\n")
}

/// What is wider rustfmt breaks, of calls in a chain and of arguments.
const NARROW: usize = 60;

/// The files of a service. `tenure` is the folder of the crate.
pub(super) fn app(name: &PackageName, tenure: &str) -> Result<[(&'static str, String); 4], Failure> {
    // As JSON quotes it, so does TOML.
    let source = format!("{{ path = {} }}", serde_json::Value::from(tenure));
    let filled = |template: &str| template.replace("@name@", name.as_str()).replace("@source@", &source);
    let (hello, timer) = (ModuleName::new("hello")?, Resource::all(&["timer".to_owned()], 1)?);
    Ok([
        ("Cargo.toml", filled(include_str!("templates/Cargo.toml.in"))),
        (".gitignore", "/target\n/tenure.db*\n".to_owned()),
        ("src/main.rs", filled(include_str!("templates/main.rs.in"))),
        ("src/hello.rs", module(&hello, &timer)),
    ])
}
