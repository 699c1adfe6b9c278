//! Three workers on one machine; the owner prints "Hello World, pid N" every 2 s. Kill it, and another goes on.
//!
//! `cargo run --example hello` starts all three. `cargo run --example hello -- worker FILE` is one of them.
// req: A5

use std::io::Write;
use std::time::Duration;

use tenure::{Lead, Worker};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => watch_three(),
        ["worker", file] => work(file),
        _ => Err("usage: hello [worker FILE]".into()),
    }
}

/// One worker: competes for `hello`, and says so while it owns it.
#[tokio::main(flavor = "current_thread")]
async fn work(file: &str) -> Result<(), Failure> {
    let worker = Worker::connect(&format!("sqlite:{file}")).await?;
    worker.campaign("hello").run(greet).await?;
    Ok(())
}

async fn greet(lead: Lead) {
    let _parting = Parting;
    // Ends by itself when the ownership does; then `run` competes again.
    while lead.holds() {
        say(&format!("Hello World, pid {} (term {})", std::process::id(), lead.term()));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// Says so when the work has ended, by itself or because it was dropped: after a pause `run` does not let it go on.
struct Parting;

impl Drop for Parting {
    fn drop(&mut self) {
        say(&format!("pid {} owns nothing any more", std::process::id()));
    }
}

/// Starts three, and waits until all of them are gone or somebody says so; then clears up.
#[tokio::main(flavor = "current_thread")]
async fn watch_three() -> Result<(), Failure> {
    // From here on Ctrl-C does not end this process: somebody has to clear up.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let folder = std::env::temp_dir().join(format!("tenure-hello-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let file = folder.join("tenure.db");
    say(&format!("three workers compete on {}; end one with `kill -9 PID`, all with Ctrl-C", file.display()));
    let start = || Command::new(std::env::current_exe()?).arg("worker").arg(&file).kill_on_drop(true).spawn();
    let workers = [start()?, start()?, start()?];
    say(&format!("pids: {:?}", workers.each_ref().map(|worker| worker.id().unwrap_or_default())));

    let (goes_on, told) = watch::channel(());
    let mut running = JoinSet::new();
    for worker in workers {
        running.spawn(until_gone(worker, told.clone()));
    }
    let all_gone = async { while running.join_next().await.is_some() {} };
    tokio::select! {
        () = all_gone => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    drop(goes_on);
    running.join_all().await;
    Ok(std::fs::remove_dir_all(folder)?)
}

/// Waits until a worker is gone; when the others end, too, it does not wait for long.
async fn until_gone(mut worker: Child, mut told: watch::Receiver<()>) {
    let pid = worker.id().unwrap_or_default();
    let status = tokio::select! {
        status = worker.wait() => status,
        _ = told.changed() => match worker.kill().await {
            Ok(()) => worker.wait().await,
            Err(error) => Err(error),
        },
    };
    match status {
        Ok(status) => say(&format!("pid {pid} is gone: {status}")),
        Err(error) => say(&format!("cannot wait for pid {pid}: {error}")),
    }
}

/// To whoever listens; nobody may any more, and there is still something to clear up.
fn say(line: &str) {
    let _closed = writeln!(std::io::stdout(), "{line}");
}
