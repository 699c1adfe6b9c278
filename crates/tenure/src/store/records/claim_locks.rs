//! One lock per resource, so that the claims of one process do not make each other conflict.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tenure_core::{ResourceName, Want};

use super::Inner;
use crate::store::backend::Backend;

/// With so many locks, those that nobody uses are removed.
const MOST_LOCKS: usize = 256;

/// Claims of one process for one resource go one after the other, unless that takes long. All at once they would make
/// each other conflict, and one of them might never succeed. Releases take no lock.
pub(super) type ClaimLocks = Mutex<HashMap<ResourceName, Weak<tokio::sync::Mutex<()>>>>;

impl<B: Backend> Inner<B> {
    /// Locks these resources for a claim. After `limit` it goes on with the locks that it has.
    pub(super) async fn lock_claims(
        &self,
        wants: &[Want],
        limit: Duration,
    ) -> Vec<tokio::sync::OwnedMutexGuard<()>> {
        // All claims lock in the same order, so that no two wait for each other.
        let resources: BTreeSet<&ResourceName> = wants.iter().map(|want| &want.resource).collect();
        let locks: Vec<_> = {
            let mut locks = self.claim_locks.lock().unwrap_or_else(PoisonError::into_inner);
            if locks.len() >= MOST_LOCKS {
                locks.retain(|_, lock| lock.strong_count() > 0);
            }
            let lock = |resource: &ResourceName| match locks.get(resource).and_then(Weak::upgrade) {
                Some(lock) => lock,
                None => {
                    let lock = Arc::new(tokio::sync::Mutex::new(()));
                    locks.insert(resource.clone(), Arc::downgrade(&lock));
                    lock
                }
            };
            resources.into_iter().map(lock).collect()
        };
        let mut taken = Vec::with_capacity(locks.len());
        // Real time, even on a manual clock: it only limits the wait.
        let late = tokio::time::sleep(limit);
        tokio::pin!(late);
        for lock in locks {
            tokio::select! {
                guard = lock.lock_owned() => taken.push(guard),
                () = &mut late => break,
            }
        }
        taken
    }
}
