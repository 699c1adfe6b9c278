//! The other process: a worker with a job of every second, which writes down each of its runs before it does anything else.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure::jobs::cron::{Misfire, Tick};
use tenure::{Timing, Worker};
use testkit::child::Child;
use testkit::part::Part;
use testkit::shim::Clock;

/// Starts another process with this part, perhaps on a wall clock of its own.
pub(crate) fn start(part: &Part, clock: Option<&Clock>) -> Child {
    let mut command = part.command(module_path!());
    clock.iter().for_each(|clock| clock.wind(&mut command));
    Child::start(command)
}

/// Where a worker writes.
pub(crate) fn book(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.book"))
}

/// What stands in a book: occurrences in milliseconds, and keys. A line that was not finished says nothing.
pub(crate) fn read(book: &Path) -> Vec<(u64, String)> {
    let text = std::fs::read_to_string(book).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line: &str| {
        let (occurrence, key) = line.split_once(' ').expect("two words");
        (occurrence.parse().expect("a number"), key.to_owned())
    };
    whole.lines().map(parse).collect()
}

/// Not a test but the other process; without a part it is over at once.
#[test]
fn a_child_plays_its_role() {
    let Some(part) = Part::of_this_process() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work(&part));
}

async fn work(part: &Part) {
    let mut terminate =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("a signal");
    let timing = Timing::new(part.ttl).expect("sound");
    let worker =
        Worker::builder(&part.url).label(&part.name).timing(timing).connect().await.expect("a worker");
    let book = OpenOptions::new()
        .append(true)
        .create_new(true)
        .open(book(&part.folder, &part.name))
        .expect("a new book");
    let all = Misfire::All { within: Duration::from_secs(3600) };
    let book = Arc::new(book);
    let job = worker.cron("job", "* * * * * *").misfire(all);
    let _job = job.run(move |tick| run(tick, book.clone())).expect("it begins");
    terminate.recv().await;
    worker.shutdown().await;
}

async fn run(tick: Tick, book: Arc<File>) {
    let line = format!("{} {}\n", tick.occurrence().as_millis(), tick.key());
    // In one call: a reader sees all of a line, or a piece at the end of the file, which is no line.
    assert_eq!((&*book).write(line.as_bytes()).expect("it can be written"), line.len());
    // Long enough for some to be in the middle of it when something happens.
    tokio::time::sleep(Duration::from_millis(50)).await;
}
