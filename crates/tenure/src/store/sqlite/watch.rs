//! Whom a waiter watches: the head the owners, the next the head. Found out in the step that made it wait.

use rusqlite::params;
use tenure_core::{Claimed, LeaseId, ResourceName};

use super::host::Process;
use super::lock::Identity;
use super::record::Record;
use super::step::{Case, Step};
use super::trouble::Outcome;

/// How many owners one waiter watches; the death of others is found when their leases end.
const WATCHED: usize = 64;

const TARGET: &str = "SELECT lock_dev, lock_ino, pid, pid_started, pid_ns FROM lease WHERE id = ?1";

/// One whose death would matter.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) lease: LeaseId,
    pub(super) lock: Identity,
    /// Absent when the row does not say.
    pub(super) process: Option<Process>,
}

/// Whom one of our leases watches because of one resource. It replaces what was said before.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) lease: LeaseId,
    pub(super) resource: ResourceName,
    pub(super) whom: Vec<Target>,
    pub(super) role: Role,
}

/// What those who are watched are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Owners,
    /// The waiter before us. When it dies nothing is free, but it is our turn to watch the owners.
    Head,
}

impl Watch {
    pub(super) fn nobody(lease: LeaseId, resource: &ResourceName) -> Self {
        Self { lease, resource: resource.clone(), whom: Vec::new(), role: Role::Owners }
    }
}

impl Step<'_> {
    /// Notes whom the claimant watches from now on.
    pub(super) fn watch(&mut self, case: &Case, record: &Record, claimed: &Claimed) -> Outcome<()> {
        let mut watch = Watch::nobody(case.lease.id, &record.name);
        if let Claimed::Waiting(waiting) = claimed {
            let rows: Vec<(i64, LeaseId)> = match waiting.ahead {
                0 => {
                    record.tenants().take(WATCHED).map(|tenant| (tenant.lease.row, tenant.lease.id)).collect()
                }
                1 => {
                    watch.role = Role::Head;
                    let mut living = record.waiters().filter(|waiter| waiter.lives(case.judged));
                    let head = living.next().and_then(|waiter| waiter.lease);
                    head.map(|lease| (lease.row, lease.id)).into_iter().collect()
                }
                _ => Vec::new(),
            };
            for (row, lease) in rows {
                watch.whom.extend(self.target(row, lease)?);
            }
        }
        self.watches.push(watch);
        Ok(())
    }

    /// What a row says of its worker; nothing when its death cannot be proved.
    fn target(&mut self, row: i64, lease: LeaseId) -> Outcome<Option<Target>> {
        if let Some(target) = self.targets.get(&row) {
            return Ok(Some(target.clone()));
        }
        let found = self.db.prepare_cached(TARGET)?.query_row(params![row], |found| {
            let (dev, ino): (Option<i64>, Option<i64>) = (found.get(0)?, found.get(1)?);
            let (pid, started): (Option<i32>, Option<i64>) = (found.get(2)?, found.get(3)?);
            let pid_ns: Option<String> = found.get(4)?;
            let process = pid.zip(started).zip(pid_ns);
            let process = process.map(|((pid, started), pid_ns)| Process { pid, started, pid_ns });
            let lock = dev.zip(ino).map(|(dev, ino)| Identity { dev, ino });
            Ok(lock.map(|lock| Target { lease, lock, process }))
        })?;
        if let Some(target) = &found {
            self.targets.insert(row, target.clone());
        }
        Ok(found)
    }
}
