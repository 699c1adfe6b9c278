//! What is written. It compiles without a warning and runs: a test does both.

use super::names::{ModuleName, PackageName, Resource};
use crate::exit::Failure;

/// The file of a module.
pub(super) fn module(name: &ModuleName, resources: &[Resource]) -> String {
    let (module, Camel { own, job }) = (name.as_str(), Camel::of(name));
    let mut text = format!(
        "\
//! The module `{module}`: what runs on one copy of this program at a time, or on a few.

tenure::resources! {{
    /// What the module owns.
    pub enum {job} in \"{module}\" {{
"
    );
    for resource in resources {
        let tickets = match resource.tickets {
            1 => String::new(),
            tickets => format!(" (tickets: {tickets})"),
        };
        text += &format!("        {} = \"{}\"{tickets},\n", resource.camel(), resource.as_str());
    }
    text += &format!(
        "    \
    }}
}}

/// What the work needs stands here; `.with(state)` before `.obtain` hands a clone of it to the callbacks.
#[derive(Debug, Default)]
pub struct {own};

impl tenure::Module for {own} {{
    /// The application has started: compete from here on.
    async fn on_started(&mut self, worker: &tenure::Worker) -> Result<(), tenure::AnyError> {{
"
    );
    for resource in resources {
        text += &obtained(job, resource);
    }
    text += "        Ok(())
    }

    /// The application closes: all work has ended, and the tickets are free.
    async fn on_close(self) -> Result<(), tenure::AnyError> {
        Ok(())
    }
}
";
    for resource in resources {
        let (full, snake) = (format!("{module}.{}", resource.as_str()), resource.snake());
        text += &format!(
            "
/// On the winner only, once per win.
async fn start_{snake}(own: tenure::Ownership) {{
    let (ticket, term) = (own.ticket(), own.term());
    println!(\"{full}: owns ticket {{ticket}}, term {{term}}\");
    // Dropped where it stands when the ownership ends.
    while own.run(tick(&own)).await.is_ok() {{}}
}}

/// Cleanup: once per win, before the ticket is free.
async fn stop_{snake}(ending: tenure::Ending) {{
    println!(\"{full}: stopped ({{ending:?}})\");
}}
"
        );
    }
    text + "
/// Stands for the work.
async fn tick(own: &tenure::Ownership) {
    let (resource, pid) = (own.resource(), std::process::id());
    println!(\"{resource}: Hello World, pid {pid}\");
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
}
"
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

/// What the types of a module are called.
struct Camel {
    own: String,
    job: &'static str,
}

impl Camel {
    fn of(name: &ModuleName) -> Self {
        let own = name.camel();
        let job = if own == "Job" { "Work" } else { "Job" };
        Self { own, job }
    }
}

/// The files of a service. `tenure` is the folder of the crate.
pub(super) fn app(name: &PackageName, tenure: &str) -> Result<[(&'static str, String); 4], Failure> {
    let name = name.as_str();
    // As JSON quotes it, so does TOML.
    let source = format!("{{ path = {} }}", serde_json::Value::from(tenure));
    let manifest = format!(
        "\
[package]
name = \"{name}\"
version = \"0.1.0\"
edition = \"2024\"

[dependencies]
# For servers that many hosts share: features = [\"redis\", \"postgres\"]
tenure = {source}
tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\", \"time\"] }}
tracing-subscriber = {{ version = \"0.3\", default-features = false, features = [\"fmt\", \"std\"] }}
"
    );
    let main = format!(
        "\
//! {name}: a service of which many copies may run. Its modules say what runs on one of them at a time, or on a few.

mod hello;

#[tokio::main]
async fn main() -> Result<(), tenure::Error> {{
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    // Copies compete if they share a store: a file for those of one host, a server for those of many.
    let store = std::env::var(\"TENURE_STORE\").unwrap_or_else(|_| \"sqlite:tenure.db\".to_owned());
    // Until SIGTERM or SIGINT; then the work is stopped, its cleanup awaited, and others take over.
    tenure::App::connect(&store)
        .await?
        .module(hello::Hello)
        // tenure: modules
        .run()
        .await
}}
"
    );
    let (hello, timer) = (ModuleName::new("hello")?, Resource::all(&["timer".to_owned()], 1)?);
    Ok([
        ("Cargo.toml", manifest),
        (".gitignore", "/target\n/tenure.db*\n".to_owned()),
        ("src/main.rs", main),
        ("src/hello.rs", module(&hello, &timer)),
    ])
}
