//! Three of five consumers work on a queue, each on its own share of it: the ticket says which. Who is paused or dies
//! loses its share to one that waits, and what it took with it is not done twice: the queue looks at the token.
//!
//! `cargo run --example queue_consumer`
// req: A5

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::fence::{Fence, Marks, Stale};
use tenure::{Lead, Worker};

const SHARES: u32 = 3;
const JOBS: u32 = 30;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = Arc::new(Queue::new());
    let mut consumers = tokio::task::JoinSet::new();
    for number in 1..=5 {
        let worker = Worker::builder("memory:queue").label(format!("consumer {number}")).connect().await?;
        let queue = queue.clone();
        consumers.spawn(async move {
            let campaign = worker.campaign("mails").tickets(SHARES);
            campaign.run(async move |lead| consume(&lead, &queue, worker.label()).await).await
        });
    }
    // Every consumer ends when its share is done; then one that waited looks whether something is left of it.
    while let Some(ended) = consumers.join_next().await {
        ended??;
    }
    let done = queue.done.lock().unwrap_or_else(PoisonError::into_inner);
    println!("{} of {JOBS} jobs are done", done.len());
    assert!(done.values().all(|times| *times == 1), "each of them once");
    Ok(())
}

/// Works on one share until it is empty, or is dropped where it stands when the ownership ends.
async fn consume(lead: &Lead, queue: &Queue, name: &str) {
    let (share, fence) = (lead.ticket(), lead.fence());
    while let Some(job) = queue.next(share) {
        // The work itself.
        tokio::time::sleep(Duration::from_millis(5)).await;
        match queue.finish(job, &fence) {
            Ok(()) => println!("{name}: job {job} of share {share}"),
            // Somebody else has this share now.
            Err(stale) => return println!("{name}: {stale}"),
        }
    }
}

/// What a database or a broker would be.
struct Queue {
    marks: Marks,
    waiting: Mutex<Vec<u32>>,
    done: Mutex<BTreeMap<u32, u32>>,
}

impl Queue {
    fn new() -> Self {
        Self { marks: Marks::new(), waiting: Mutex::new((0..JOBS).collect()), done: Mutex::default() }
    }

    /// The first job of a share. It stays until it is finished.
    fn next(&self, share: u32) -> Option<u32> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().copied().find(|job| job % SHARES == share)
    }

    /// Takes note that a job is done, unless whoever says so came too late.
    fn finish(&self, job: u32, under: &Fence) -> Result<(), Stale> {
        self.marks.admit(under)?;
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).retain(|waits| *waits != job);
        *self.done.lock().unwrap_or_else(PoisonError::into_inner).entry(job).or_default() += 1;
        Ok(())
    }
}
