//! Three workers on one machine; the owner prints "Hello World, pid N" every 2 s. Kill it, and another goes on.
//!
//! `cargo run --example hello` starts all three. `cargo run --example hello -- worker FILE` is one of them.
// req: A5

use std::process::{Child, Command};
use std::time::Duration;

use tenure::{Ownership, Worker};

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

async fn greet(own: Ownership) {
    // Ends by itself when the ownership does; then `run` competes again.
    while own.holds() {
        println!("Hello World, pid {} (term {})", std::process::id(), own.term());
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    println!("pid {} owns nothing any more", std::process::id());
}

/// Starts three, and waits until all of them are gone.
fn watch_three() -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("tenure-hello-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let file = folder.join("tenure.db");
    println!("three workers compete on {}; end one with `kill -9 PID`, all with Ctrl-C", file.display());
    let start = || Command::new(std::env::current_exe()?).arg("worker").arg(&file).spawn();
    let workers = [start()?, start()?, start()?];
    println!("pids: {:?}", workers.each_ref().map(Child::id));
    std::thread::scope(|scope| {
        for mut worker in workers {
            scope.spawn(move || match worker.wait() {
                Ok(status) => println!("pid {} is gone: {status}", worker.id()),
                Err(error) => println!("cannot wait for pid {}: {error}", worker.id()),
            });
        }
    });
    Ok(std::fs::remove_dir_all(folder)?)
}
