//! Two of four workers own a resource at a time, each with a ticket of its own; when one leaves, the next takes its ticket.
//!
//! `cargo run --example two_tickets`
// req: A5

use std::collections::VecDeque;

use tenure::{Campaign, Worker};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

tenure::resources! {
    /// What runs on a few workers only.
    enum Job in "demo" { Echo = "echo" (tickets: 2) }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), tenure::Error> {
    let (seated, mut seats) = unbounded_channel();
    let mut workers = Vec::new();
    for number in 0..4 {
        // All on one store in memory; in earnest each is a process, and the store a server or a file.
        let label = format!("worker {}", number + 1);
        let worker = Worker::builder("memory:two-tickets").label(label).connect().await?;
        let campaign = compete(&worker, number, seated.clone())?;
        workers.push((worker, campaign));
    }

    // Two own from here on. The one that began first leaves, and the next begins.
    let mut owners: VecDeque<usize> = VecDeque::new();
    for turn in 0..workers.len() {
        while owners.len() < 2.min(workers.len() - turn) {
            owners.extend(seats.recv().await);
        }
        let Some((worker, campaign)) = owners.pop_front().map(|number| &workers[number]) else { break };
        println!("-- {} leaves", worker.label());
        campaign.stop().await;
        worker.shutdown().await;
    }
    Ok(())
}

fn compete(
    worker: &Worker,
    number: usize,
    seated: UnboundedSender<usize>,
) -> Result<Campaign, tenure::Error> {
    let (name, leaver) = (worker.label().to_owned(), worker.label().to_owned());
    Job::Echo.campaign(worker).obtain(
        move |lead| {
            println!("{name} has ticket {} (term {})", lead.ticket(), lead.term());
            seated.send(number).ok();
            async {}
        },
        move |why| {
            println!("{leaver} gave it up: {why:?}");
            async {}
        },
    )
}
