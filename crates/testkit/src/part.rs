//! What a competing process is to do, handed over in its environment: a test starts its own program again with a part.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::child::again;

const ROLE: &str = "TENURE_TEST_ROLE";
const URL: &str = "TENURE_TEST_URL";
const FOLDER: &str = "TENURE_TEST_FOLDER";
const NAME: &str = "TENURE_TEST_NAME";
const TICKETS: &str = "TENURE_TEST_TICKETS";
const TTL: &str = "TENURE_TEST_TTL_MS";

/// What another process is to do.
#[derive(Clone, Debug)]
pub struct Part {
    /// One of the roles that the program knows.
    pub role: String,
    /// Its store.
    pub url: String,
    /// Where the books are.
    pub folder: PathBuf,
    /// The label of its worker, and the name of its book.
    pub name: String,
    /// How many tickets its resource has.
    pub tickets: u32,
    /// The ttl of its lease.
    pub ttl: Duration,
}

impl Part {
    /// A part on the store at this URL, with one ticket.
    #[must_use]
    pub fn new(role: &str, url: &str, folder: &Path, name: &str, ttl: Duration) -> Self {
        let (role, url, name) = (role.to_owned(), url.to_owned(), name.to_owned());
        Self { role, url, folder: folder.to_owned(), name, tickets: 1, ttl }
    }

    /// The same on a SQLite file in the folder.
    #[must_use]
    pub fn in_folder(role: &str, folder: &Path, name: &str, ttl: Duration) -> Self {
        Self::new(role, &format!("sqlite:{}", folder.join("tenure.db").display()), folder, name, ttl)
    }

    /// This program, to be started with the part: the test `a_child_plays_its_role` in `module` plays it.
    #[must_use]
    pub fn command(&self, module: &str) -> Command {
        let mut command = again(module, &[]);
        command.env(ROLE, &self.role).env(URL, &self.url).env(FOLDER, &self.folder).env(NAME, &self.name);
        command.env(TICKETS, self.tickets.to_string()).env(TTL, self.ttl.as_millis().to_string());
        command
    }

    /// The part of this process; `None` if the process is not such a child.
    ///
    /// # Panics
    /// If it is incomplete.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
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
