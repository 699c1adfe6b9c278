//! The owner prints "Hello World, pid N" every 2 s. Run it in three terminals, and end the one that prints.
//!
//! `cargo run --example hello`
// req: A5

use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let worker = tenure::Worker::connect("sqlite:hello.db").await?; // or redis://HOST (feature "redis"), postgres://..
    worker.campaign("hello").spawn(async |lead| {
        loop {
            println!("Hello World, pid {} (term {})", std::process::id(), lead.term());
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    })?;
    tokio::signal::ctrl_c().await?;
    worker.shutdown().await; // another one goes on at once
    Ok(())
}
