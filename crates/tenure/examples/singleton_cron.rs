//! Three workers, one job of every second: each occurrence is run by one of them. After three the one that owns the job leaves, as in a
//! deploy, and another goes on with the next second; none is left out, and none is done twice.
//!
//! `cargo run --example singleton_cron`
// req: A5 E10 E11

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::Worker;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), tenure::Error> {
    let (count, mut jobs) = (Arc::new(AtomicU32::new(0)), Vec::new());
    for number in 1..=3 {
        let worker = Worker::builder("memory:").label(format!("worker {number}")).connect().await?;
        let (label, runs) = (worker.label().to_owned(), count.clone());
        let job = worker.cron("report", "* * * * * *").run(move |tick| {
            println!("{label} reports at {}, once: {}", tick.occurrence(), tick.key());
            runs.fetch_add(1, Ordering::SeqCst);
            async {}
        })?;
        jobs.push((worker, job));
    }
    until(&count, 3).await;
    for (worker, job) in &jobs {
        if job.is_owner() {
            println!("{} leaves", worker.label());
            worker.shutdown().await;
            break;
        }
    }
    until(&count, 6).await;
    for (worker, _) in &jobs {
        worker.shutdown().await;
    }
    Ok(())
}

async fn until(count: &AtomicU32, runs: u32) {
    while count.load(Ordering::SeqCst) < runs {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
