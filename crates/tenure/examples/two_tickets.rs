//! Two of four workers own a resource at a time, each one seat of its own; when one leaves, the next takes its seat.
//!
//! `cargo run --example two_tickets`
// req: A5

use std::time::Duration;

use tenure::{Campaign, Worker};

tenure::resources! {
    /// What runs on a few workers only.
    enum Job in "demo" { Echo = "echo" (tickets: 2) }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), tenure::Error> {
    let mut workers = Vec::new();
    for number in 1..=4 {
        // All on one store in memory; in earnest each is a process, and the store a server or a file.
        let worker =
            Worker::builder("memory:two-tickets").label(format!("worker {number}")).connect().await?;
        let campaign = compete(&worker)?;
        workers.push((worker, campaign));
    }
    while workers.len() >= 2 {
        let owners = loop {
            let owners = workers[0].1.owners().await?;
            if owners.len() == 2 {
                break owners;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let leaves = workers.iter().position(|(worker, _)| worker.label() == owners[0].worker.as_str());
        let (worker, campaign) = workers.remove(leaves.unwrap_or_default());
        println!("-- {} leaves", worker.label());
        campaign.stop().await;
        worker.shutdown().await;
    }
    for (worker, _) in workers {
        worker.shutdown().await;
    }
    Ok(())
}

fn compete(worker: &Worker) -> Result<Campaign, tenure::Error> {
    let name = worker.label().to_owned();
    worker.campaign(Job::Echo).tickets(Job::Echo.tickets()).with(name).obtain(
        async |own, name| println!("{name} has seat {} (term {})", own.ticket(), own.term()),
        async |ending, name| println!("{name} gave it up: {ending:?}"),
    )
}
