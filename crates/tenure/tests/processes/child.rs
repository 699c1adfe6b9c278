//! Other processes: this program, started again with a role to play.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tenure::types::OnOverdue;
use testkit::child::{Child, again};

const ROLE: &str = "TENURE_TEST_ROLE";
const FOLDER: &str = "TENURE_TEST_FOLDER";
const NAME: &str = "TENURE_TEST_NAME";
const TICKETS: &str = "TENURE_TEST_TICKETS";
const TTL: &str = "TENURE_TEST_TTL_MS";

/// What another process is to do.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) role: String,
    /// Where the database is, and the books.
    pub(crate) folder: PathBuf,
    /// The label of its worker, and the name of its book.
    pub(crate) name: String,
    pub(crate) tickets: u32,
    pub(crate) ttl: Duration,
}

impl Part {
    pub(crate) fn new(role: &str, folder: &Path, name: &str, ttl: Duration) -> Self {
        Self { role: role.to_owned(), folder: folder.to_owned(), name: name.to_owned(), tickets: 1, ttl }
    }

    /// This program, to be started with the part.
    pub(crate) fn command(&self) -> Command {
        let mut command = again(module_path!(), &[]);
        command.env(ROLE, &self.role).env(FOLDER, &self.folder).env(NAME, &self.name);
        command.env(TICKETS, self.tickets.to_string()).env(TTL, self.ttl.as_millis().to_string());
        command
    }

    pub(crate) fn start(&self) -> Child {
        Child::start(self.command())
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.folder.join("tenure.db").display())
    }

    fn from_environment() -> Option<Self> {
        let text = |name| std::env::var(name).expect(name);
        let number = |name| text(name).parse::<u32>().expect(name);
        Some(Self {
            role: std::env::var(ROLE).ok()?,
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
            "application" => super::signals::applies(&part).await,
            "broken worker" => super::worker::works_for_ever(&part).await,
            "waits" => super::pauses::waits(&part).await,
            "blocked" => super::pauses::blocked(&part).await,
            "blocked with a beacon" => super::pauses::blocked_with_a_beacon(&part).await,
            "overdue" => super::pauses::overdue(&part, OnOverdue::Report).await,
            "overdue, and exits" => super::pauses::overdue(&part, OnOverdue::Exit).await,
            "watches the clock" => super::pauses::watches_the_clock(&part).await,
            "jumps" => super::pauses::jumps(&part).await,
            other => panic!("there is no role {other:?}"),
        }
    });
}
