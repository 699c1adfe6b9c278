//! Asks the store again and again who owns what, beside the workers: for pictures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tenure::admin::Admin;
use testkit::{Micros, boottime};

use crate::judge::Ticket;
use crate::part;

const EVERY: Duration = Duration::from_millis(25);
/// A store that takes longer does not answer.
const PATIENCE: Duration = Duration::from_millis(150);

/// What the store said at one time; nothing where it did not answer.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Micros,
    pub(crate) owners: Option<BTreeMap<Ticket, String>>,
}

/// A thread that asks until it is stopped.
#[derive(Debug)]
pub(crate) struct Sampler {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    pub(crate) fn start(url: String, namespace: String) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let told = stops.clone();
        let thread = std::thread::spawn(move || {
            let mut samples = Vec::new();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return samples };
            let Ok(tools) = runtime.block_on(Admin::open_named(&url, &namespace)) else { return samples };
            while !told.load(Ordering::Relaxed) {
                let at = boottime();
                let said = runtime.block_on(async { tokio::time::timeout(PATIENCE, tools.read_all()).await });
                let owners = said.ok().and_then(Result::ok).map(|views| {
                    let owners = views.into_iter().filter_map(|view| {
                        let resource = part::number(view.resource.as_str())?;
                        Some(view.owners.into_iter().map(move |owner| {
                            ((resource, owner.grant.ticket.0), owner.worker.as_str().to_owned())
                        }))
                    });
                    owners.flatten().collect()
                });
                samples.push(Sample { at, owners });
                std::thread::sleep(EVERY);
            }
            samples
        });
        Self { stops, thread }
    }

    pub(crate) fn stop(self) -> Vec<Sample> {
        self.stops.store(true, Ordering::Relaxed);
        // A picture is not worth a failure.
        self.thread.join().unwrap_or_default()
    }
}
