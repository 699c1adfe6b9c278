//! Waiters that do not listen are looked at: whose lock can be won is dead, and nobody has to wait a step for it.
//!
//! Without this, a queue of waiters that were killed together would cost those behind it a step for each.

use std::fs::File;

use rusqlite::{Connection, OptionalExtension, params};
use tenure_core::{Closing, LeaseId, ResourceName};

use super::desk::Desk;
use super::ears::News;
use super::hints;
use super::lock::{self, Identity, Verdict};
use super::record::Record;
use super::rows::bearer;
use super::schema::PATIENCE;
use super::step::Step;
use super::trouble::Outcome;

/// How many times the next few are looked at; each time one `wake` names them.
const ROUNDS: usize = 64;

const LOCK: &str = "SELECT lock_dev, lock_ino FROM lease
    WHERE namespace = ?1 AND bearer = ?2 AND ended_at IS NULL AND lock_ino IS NOT NULL";

/// A waiter that a hint did not reach.
#[derive(Clone, Debug)]
pub(super) struct Unheard {
    pub(super) lease: LeaseId,
    pub(super) resource: ResourceName,
}

impl Desk {
    /// Closes the leases of those who are proved dead, and wakes those behind them.
    pub(super) fn bury(&mut self, unheard: Vec<Unheard>) {
        self.unheard = unheard;
        for _ in 0..ROUNDS {
            let suspects = std::mem::take(&mut self.unheard);
            let dead = self.proved(suspects);
            if dead.is_empty() {
                return;
            }
            match self.transact(PATIENCE, false, |step| step.bury(&dead)) {
                Ok(_) => dead.iter().for_each(|(dead, _)| self.forget(dead.lease)),
                // Then they are found when their leases run out.
                Err(trouble) => return self.report(trouble),
            }
        }
    }

    /// Those of them whose locks can be won, with their locks.
    fn proved(&self, suspects: Vec<Unheard>) -> Vec<(Unheard, File)> {
        let mut proved: Vec<(Unheard, File)> = Vec::new();
        for suspect in suspects {
            let Ok(Some(identity)) = identity(&self.db, self.namespace, suspect.lease) else { continue };
            let path = lock::path(&self.shared.place.folder, suspect.lease);
            // One that is named twice is held by ourselves the second time.
            if let Ok(Verdict::Won(proof)) = lock::prove(&path, Some(identity)) {
                proved.push((suspect, proof));
            }
        }
        proved
    }

    /// Closes a lease whose lock was won; `proof` is that lock, kept until it is written down.
    pub(super) fn close_proved(&mut self, lease: LeaseId, proof: File) {
        match self.transact(PATIENCE, false, |step| step.close(lease, Closing::Proved)) {
            Ok(_) => self.forget(lease),
            // The ears try again.
            Err(trouble) => self.report(trouble),
        }
        drop(proof);
    }

    /// After it is written down that a worker is dead.
    fn forget(&self, lease: LeaseId) {
        hints::remove(&self.shared.place.folder, lease);
        self.shared.ears.tell(News::Over(lease));
    }

    fn report(&self, trouble: super::trouble::Trouble) {
        let error = trouble.told("close a dead worker's lease in", &self.shared.place.path);
        tracing::debug!(%error, "the proof of a death was not written down");
    }
}

impl Step<'_> {
    fn bury(&mut self, dead: &[(Unheard, File)]) -> Outcome<()> {
        for (dead, _) in dead {
            self.close(dead.lease, Closing::Proved)?;
        }
        let mut resources: Vec<&ResourceName> = dead.iter().map(|(dead, _)| &dead.resource).collect();
        resources.sort();
        resources.dedup();
        for resource in resources {
            if let Some(record) = Record::find(self.db, self.namespace, resource)? {
                self.wake(&record, None, self.here.now());
            }
        }
        Ok(())
    }
}

fn identity(db: &Connection, namespace: i64, lease: LeaseId) -> Outcome<Option<Identity>> {
    let mut find = db.prepare_cached(LOCK)?;
    let found = find.query_row(params![namespace, bearer(lease)], |row| {
        Ok(Identity { dev: row.get(0)?, ino: row.get(1)? })
    });
    Ok(found.optional()?)
}
