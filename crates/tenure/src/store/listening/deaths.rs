//! Proved deaths: which workers the store's witness watches, and what happens when one of them is dead.

use crate::runtime::events;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::Hint;
use tenure_core::rules::{Act, Key, Value};

use super::Listening;
use crate::store::backend::{Backend, Proof, Stored, Text, Witness};
use crate::store::codec;
use crate::store::records::Inner;

#[derive(Debug, Default)]
pub(super) struct Watched {
    /// How many waiters of this process it concerns.
    pub(super) waiters: usize,
    /// The text that the witness needs, once it has been read.
    pub(super) vouched: Option<Text>,
}

impl<B: Backend> Inner<B> {
    /// Has the witness watch the workers whose deaths concern waiters of this process.
    pub(super) async fn watch(self: &Arc<Self>) {
        self.listen_for_deaths();
        let keys: Vec<Key> = {
            let listening = self.listening();
            let unread = listening.watched.iter().filter(|(_, watched)| watched.vouched.is_none());
            unread.map(|(lease, _)| Key::Info(*lease)).collect()
        };
        let read = self.backend.read(&keys).await;
        let mut listening = self.listening();
        match read {
            Ok(snapshot) => {
                for Stored { key, value, .. } in snapshot.records {
                    let (Key::Info(lease), Some(text)) = (&key, value) else { continue };
                    let Ok((_, Value::Info(info))) = codec::decode(&key, text.as_str()) else { continue };
                    if let (Some(watched), Some(witness)) = (listening.watched.get_mut(lease), info.witness) {
                        watched.vouched = Some(witness.into());
                    }
                }
            }
            // Waiters that look again are noted again.
            Err(_) => {
                listening.waits.values_mut().for_each(|waits| waits.watched.clear());
                listening.watched.clear();
            }
        }
        self.watch_vouched(&listening);
    }

    /// Passes the workers whose texts are known to the witness. Called under the lock, so that the last list is the
    /// latest.
    pub(super) fn watch_vouched(&self, listening: &Listening) {
        let vouched = listening.watched.iter().filter_map(|(lease, watched)| {
            let vouched = watched.vouched.clone()?;
            Some((*lease, vouched))
        });
        self.backend.witness().iter().for_each(|witness| witness.watch(vouched.clone().collect()));
    }

    /// Starts the task that ends the leases of dead workers.
    pub(super) fn listen_for_deaths(self: &Arc<Self>) {
        let mut listening = self.listening();
        let Some(mut deaths) = self.backend.witness().and_then(Witness::deaths) else { return };
        let inner = Arc::downgrade(self);
        listening.deaths = Some(tokio::spawn(async move {
            while let Some(proof) = deaths.recv().await {
                let Some(inner) = inner.upgrade() else { return };
                inner.died(proof).await;
            }
        }));
    }

    pub(super) async fn died(&self, proof: Proof) {
        let dead = proof.lease;
        // The proof is kept until the end is committed: meanwhile no other process can prove the same.
        if let Err(error) = self.run(Act::Prove(dead)).await {
            // The witness proves it again in a moment, as long as the worker is watched.
            events::debug("cannot write down that a worker is dead", &error);
            return;
        }
        drop(proof);
        let mut listening = self.listening();
        listening.watched.remove(&dead);
        let mut concerned = Vec::new();
        for ((lease, resource), waits) in &mut listening.waits {
            if waits.watched.remove(&dead) {
                concerned.push(Hint { lease: *lease, resource: resource.clone(), after: Duration::ZERO });
            }
        }
        self.watch_vouched(&listening);
        concerned.into_iter().for_each(|hint| listening.hint(hint));
    }
}
