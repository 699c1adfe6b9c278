//! One worker process of the demo: works while it owns, and writes down when it works.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::Duration;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tenure::{Lead, Worker};

use super::RESOURCE;
use super::lives::now_us;
use super::stage::{LIVES, store_in};
use crate::exit::{Exit, Failure};
use crate::settings::DemoWorker;

/// How often a worker shows that it works.
const STROKE: Duration = Duration::from_millis(2);

pub(crate) async fn work(settings: DemoWorker) -> Result<Exit, Failure> {
    let DemoWorker { folder, label, timing, is_planted } = settings;
    // The workers end with the demo.
    let parent = getppid();
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    bound.map_err(|error| Failure::new("cannot be bound to the demo").because(&error))?;
    if getppid() != parent {
        return Ok(Exit::FAILED);
    }
    let file = OpenOptions::new().append(true).open(folder.join(LIVES));
    let file = file.map_err(|error| Failure::new("cannot open the book of the demo").because(&error))?;
    let builder = Worker::builder(&store_in(&folder)).label(label.as_str()).timing(timing);
    let worker = builder.connect().await?;
    loop {
        let book = Book { file: file.try_clone().map_err(|error| Failure::new("no file").because(&error))? };
        worker.campaign(RESOURCE).run(async |lead| book.keep(lead, is_planted).await).await?;
    }
}

struct Book {
    file: File,
}

impl Book {
    async fn keep(&self, lead: Lead, is_planted: bool) {
        if is_planted && let Ok(file) = self.file.try_clone() {
            let term = lead.term();
            // The mistake that a lease is there to prevent: work that nobody stops.
            std::thread::spawn(move || {
                let book = Self { file };
                loop {
                    book.write(now_us(), term);
                    std::thread::sleep(STROKE);
                }
            });
        }
        loop {
            // The time first: whoever is paused after the check writes down when it was true.
            let now = now_us();
            if !lead.holds() {
                return;
            }
            self.write(now, lead.term());
            tokio::time::sleep(STROKE).await;
        }
    }

    /// One line, in one write: those of several processes do not mix.
    fn write(&self, at_us: u64, term: u64) {
        let line = format!("{at_us} {} {term}\n", std::process::id());
        // A full disk shows as nobody working, which the demo reports.
        let _full = (&self.file).write_all(line.as_bytes());
    }
}
