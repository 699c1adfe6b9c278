//! Five copies of a service start at once, and each sees to the migration before it serves: one of them does it, the others
//! wait until it is done. Whoever starts later goes on at once.
//!
//! `cargo run --example migration`
// req: A5 E13

use std::time::Duration;

use tenure::Worker;
use tenure::admin::Admin;
use tenure::jobs::Once;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A store in memory lasts as long as somebody has it open.
    let _open = Admin::open("memory:migration").await?;
    let mut copies = tokio::task::JoinSet::new();
    for number in 1..=5 {
        copies.spawn(start(format!("copy {number}")));
    }
    while let Some(started) = copies.join_next().await {
        started??;
    }
    start("a late copy".to_owned()).await?;
    Ok(())
}

async fn start(label: String) -> Result<(), tenure::Error> {
    let worker = Worker::builder("memory:migration").label(label).connect().await?;
    match worker.once("migration-42", async |lead| migrate(lead.token()).await).await? {
        Once::Ran => println!("{} has migrated", worker.label()),
        Once::Done { by, .. } => println!("{} found it done by {by}", worker.label()),
    }
    println!("{} serves", worker.label());
    worker.shutdown().await;
    Ok(())
}

/// Half of it may have been done by one that died in it: so it is written such that it can be done again, or in one
/// transaction. The token fences what is written.
async fn migrate(_token: u64) -> Result<(), std::io::Error> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(())
}
