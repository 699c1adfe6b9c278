//! A thread of its own for everything that a lease depends on, with its own small runtime.
//!
//! One per process and store, shared by the workers of that process. A blocked application runtime never costs a
//! lease, because nothing of the lease runs there.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};

use crate::Error;
use crate::outcome::panic_message;
use crate::runtime::events::{self, Event};
use crate::runtime::process::Owned;

/// The thread, as the workers of a store see it. It ends when the last of them has.
#[derive(Debug)]
pub(crate) struct Driver {
    jobs: Owned<mpsc::UnboundedSender<Job>>,
}

/// Something to be done on that thread, where the store's connections live.
pub(crate) type Job = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

impl Driver {
    pub(crate) fn start() -> Result<Arc<Self>, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::unavailable("cannot start the driver's runtime").because(error))?;
        let (jobs, arriving) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name("tenure-driver".into())
            .spawn(move || runtime.block_on(drive(arriving)))
            .map_err(|error| Error::unavailable("cannot start the driver's thread").because(error))?;
        Ok(Arc::new(Self { jobs: Owned::new(jobs) }))
    }

    /// Does this on the driver's thread, and waits for what comes of it. Dropping it ends the work, too.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (mut done, is_done) = oneshot::channel();
        self.spawn(Box::pin(async move {
            tokio::select! {
                // Whoever asked may have given up just now.
                said = work => drop(done.send(said)),
                () = done.closed() => {}
            }
        }))?;
        is_done.await.map_err(|_| Error::unavailable("the driver's thread has ended"))?
    }

    /// Does this on the driver's thread.
    pub(crate) fn spawn(&self, job: Job) -> Result<(), Error> {
        self.jobs.get()?.send(job).map_err(|_| Error::unavailable("the driver's thread has ended"))
    }
}

/// Does the jobs side by side, until nobody can give it another one and all are done.
async fn drive(mut arriving: mpsc::UnboundedReceiver<Job>) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            job = arriving.recv() => match job {
                Some(job) => drop(running.spawn(job)),
                None => break,
            },
            Some(ended) = running.join_next() => report(ended),
        }
    }
    while let Some(ended) = running.join_next().await {
        report(ended);
    }
}

/// A panic in tenure itself: what it drove has ended, and says so to whom it concerns when it is dropped.
// req: S7
fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        let what = match error.try_into_panic() {
            Ok(panic) => panic_message(&*panic),
            Err(error) => error.to_string(),
        };
        events::tell(Event::Panicked { what });
    }
}
