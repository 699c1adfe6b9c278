//! Other processes: this program, started again with a role to play.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::child::again;

use super::words::SOON;

const ROLE: &str = "TENURE_TEST_ROLE";
const URL: &str = "TENURE_TEST_URL";
const FOLDER: &str = "TENURE_TEST_FOLDER";
const NAME: &str = "TENURE_TEST_NAME";
const TICKETS: &str = "TENURE_TEST_TICKETS";
const TTL: &str = "TENURE_TEST_TTL_MS";

/// What another process is to do.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) role: String,
    pub(crate) url: String,
    /// Where the books are.
    pub(crate) folder: PathBuf,
    /// The label of its worker, and the name of its book.
    pub(crate) name: String,
    pub(crate) tickets: u32,
    pub(crate) ttl: Duration,
}

impl Part {
    pub(crate) fn new(role: &str, url: &str, folder: &Path) -> Self {
        let (role, url, folder) = (role.to_owned(), url.to_owned(), folder.to_owned());
        Self { role, url, folder, name: String::new(), tickets: 1, ttl: SOON }
    }

    /// This program, to be started with the part.
    pub(crate) fn command(&self) -> Command {
        let mut command = again(module_path!(), &[]);
        command.env(ROLE, &self.role).env(URL, &self.url).env(FOLDER, &self.folder).env(NAME, &self.name);
        command.env(TICKETS, self.tickets.to_string()).env(TTL, self.ttl.as_millis().to_string());
        command
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    fn from_environment() -> Option<Self> {
        let text = |name| std::env::var(name).expect(name);
        let number = |name| text(name).parse::<u32>().expect(name);
        Some(Self {
            role: std::env::var(ROLE).ok()?,
            url: text(URL),
            folder: PathBuf::from(text(FOLDER)),
            name: text(NAME),
            tickets: number(TICKETS),
            ttl: Duration::from_millis(number(TTL).into()),
        })
    }
}

/// Not a test but the other process; without a role it is over at once.
#[test]
fn a_child_plays_its_role() {
    let Some(part) = Part::from_environment() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match part.role.as_str() {
            "worker" => super::worker::works(&part).await,
            "broken worker" => super::worker::works_for_ever(&part).await,
            other => panic!("there is no role {other:?}"),
        }
    });
}
