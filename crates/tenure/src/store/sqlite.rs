//! `sqlite:PATH` The embedded store: many processes, one host, nothing to install.
//!
//! Every operation is one step in one transaction (`BEGIN IMMEDIATE`), decided by the rules of
//! [`tenure_core::Ledger`]. The store's time is BOOTTIME, so wall-clock steps do not exist here. A worker's death
//! is proved by its lock file, so that a ticket moves within milliseconds of `kill -9`. What the files beside the
//! database are for is said in the modules below; nothing here knows workers or drivers.

mod burial;
mod desk;
mod ears;
mod fan;
#[cfg(test)]
mod fuzz;
mod hints;
mod host;
mod jobs;
mod litter;
mod lock;
mod place;
mod read;
mod record;
mod rows;
mod schema;
mod step;
mod tickets;
mod trouble;
mod watch;

use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, mpsc};

use tenure_core::{
    Answer, Asked, Call, Holder, JobAct, JobSaid, JobStep, JobView, Label, LeaseId, Namespace, Payload,
    Published, Request, ResourceName, ResourceView, Token,
};
use tokio::sync::oneshot;

use self::desk::{Desk, Job, Shared};
use self::ears::{Ears, News};
use self::hints::Hinted;
use self::host::Host;
use self::place::Place;
use super::{Entry, Hints, Messages, Pending, Store};
use crate::Error;

/// A namespace of a SQLite file. Many processes of one host may open it; each has its own.
///
/// Its database work happens on threads of its own. Dropping it ends these, but lets no lock of a lease go: the
/// work may still run. Only `close` does, or the end of the process.
pub struct SqliteStore {
    /// Renewals, and what must not wait behind claims.
    renewals: mpsc::Sender<Job>,
    claims: mpsc::Sender<Job>,
    reads: mpsc::Sender<Job>,
    shared: Arc<Shared>,
}

/// Whether leases have lock files, by which the death of their workers can be proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    On,
    Off,
}

impl SqliteStore {
    /// Opens `path`, and makes the file if it is not there; its folder has to be. Blocks for a moment, and for
    /// up to 5 s while others write.
    ///
    /// # Errors
    /// `Refused` for a path in a missing or read-only folder, a file system that is not known to be safe, a hard
    /// link, a file mounted by itself, another program's database, a newer version, and a file in use by systems
    /// with different boot ids. `Corrupt` for a damaged file. `Unavailable` while the disk is full, while others
    /// write for too long, and while workers of an earlier file at this path still run.
    pub fn open(path: impl AsRef<Path>, namespace: &Namespace) -> Result<Self, Error> {
        Self::with(path.as_ref(), namespace, Proof::On)
    }

    /// The same for workers whose work may outlive them, in child processes that do not hold their locks: their
    /// death is never proved, their leases run out instead.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_without_proof(path: impl AsRef<Path>, namespace: &Namespace) -> Result<Self, Error> {
        Self::with(path.as_ref(), namespace, Proof::Off)
    }

    /// The lock of a lease that this process opened, for those who are to do its work together with it: as long
    /// as one of them has it open nobody takes the worker for dead.
    #[must_use]
    pub fn lock(&self, lease: LeaseId) -> Option<File> {
        if self.shared.proof == Proof::Off {
            // There it proves nothing.
            return None;
        }
        lock::share(&lock::path(&self.shared.place.folder, lease))
    }

    /// The same for a lease that this process is about to open: who is to hold the lock from the beginning gets it
    /// before the lease is there. Closing the lease lets it go, also when it was never opened.
    ///
    /// # Errors
    /// When another process has it, or the file cannot be made.
    pub fn take_lock(&self, lease: LeaseId) -> Result<File, Error> {
        let Shared { place, .. } = &*self.shared;
        let path = lock::path(&place.folder, lease);
        lock::take(&path, None)
            .map_err(|error| trouble::refused_by_kernel("make the lock file", &path, error))?;
        lock::share(&path).ok_or_else(|| {
            Error::refused(format!("cannot take the lock `{}`: another process has it", path.display()))
        })
    }

    fn with(path: &Path, namespace: &Namespace, proof: Proof) -> Result<Self, Error> {
        let (ears, deaf) = Ears::new()?;
        let (place, host) = (Place::find(path)?, Host::new()?);
        let (folder, us) = (place.folder.clone(), host.process.clone());
        let (namespace, hinted) = (namespace.clone(), Arc::new(Hinted::default()));
        let shared = Arc::new(Shared { place, host, namespace, proof, ears, hinted: hinted.clone() });
        let reads = Desk::start(&shared, "tenure-sqlite-reads", None)?;
        let claims = Desk::start(&shared, "tenure-sqlite-claims", Some(reads.clone()))?;
        let renewals = Desk::start(&shared, "tenure-sqlite-renewals", Some(reads.clone()))?;
        deaf.start(folder, us, hinted, renewals.clone())?;
        // A desk that has gone said why already.
        let _ = reads.send(Box::new(Desk::clear_litter));
        Ok(Self { renewals, claims, reads, shared })
    }

    /// Has a desk do something, and waits for what comes of it.
    async fn at<T: Send + 'static>(
        &self,
        desk: &mpsc::Sender<Job>,
        job: impl FnOnce(&mut Desk) -> Result<T, Error> + Send + 'static,
        late: Late,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |desk| {
            if late == Late::Skip && reply.is_closed() {
                return;
            }
            // Who dropped its interest meanwhile does not hear it.
            let _ = reply.send(job(desk));
        });
        desk.send(job).map_err(|_| ended())?;
        answer
            .await
            .unwrap_or_else(|_| Err(Error::unavailable("a thread of the store failed at this request")))
    }
}

fn ended() -> Error {
    Error::unavailable("a thread of the store has ended")
}

/// What becomes of a job that nobody waits for any more when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Late {
    /// It would hold up the next attempt, and give what nobody takes up.
    Skip,
    /// It gives something up, which is as good late.
    Do,
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.shared.ears.tell(News::Stop);
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.shared.place.path)
            .field("namespace", &self.shared.namespace)
            .finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        let (desk, late) = match request.call {
            Call::Renew | Call::Held => (&self.renewals, Late::Skip),
            Call::Close(_) => (&self.renewals, Late::Do),
            Call::Open { .. } | Call::Claim(_) => (&self.claims, Late::Skip),
            Call::Release(_) => (&self.claims, Late::Do),
        };
        let (request, claims) = (request.clone(), self.claims.clone());
        let call = move |desk: &mut Desk| {
            let answer = desk.call(&request);
            if let (Call::Close(_), lease) = (&request.call, request.lease) {
                // An attempt to open it that was given up may be at work there still, and take the lock once more.
                let _ = claims.send(Box::new(move |desk| desk.let_go(lease)));
            }
            answer
        };
        Box::pin(self.at(desk, call, late))
    }

    fn hints(&self, lease: LeaseId) -> Pending<'_, Hints> {
        let (to, hints) = tokio::sync::mpsc::unbounded_channel();
        let (reply, bound) = oneshot::channel();
        // The ears make the socket: a disk may hang, and the caller's thread must not.
        self.shared.ears.tell(News::Listen { lease, to, reply });
        Box::pin(async move {
            bound.await.unwrap_or_else(|_| Err(ended()))?;
            Ok(hints)
        })
    }

    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>> {
        let resource = resource.cloned();
        let read = move |desk: &mut Desk| {
            desk.read(|db, namespace, now| read::resources(db, namespace, now, resource.as_ref()))
        };
        Box::pin(self.at(&self.reads, read, Late::Skip))
    }

    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>> {
        let resource = resource.cloned();
        let read = move |desk: &mut Desk| {
            desk.read(|db, namespace, now| {
                let records = read::history(db, namespace, now, resource.as_ref())?;
                Ok(records.into_iter().map(|record| Entry::of(record, now)).collect())
            })
        };
        Box::pin(self.at(&self.reads, read, Late::Skip))
    }

    fn ask<'a>(
        &'a self,
        resource: &'a ResourceName,
        token: Token,
        successor: Option<&'a Label>,
    ) -> Pending<'a, Asked> {
        let (resource, successor) = (resource.clone(), successor.cloned());
        let ask =
            move |desk: &mut Desk| desk.wish("ask in", |step| step.ask(&resource, token, successor.as_ref()));
        Box::pin(self.at(&self.claims, ask, Late::Skip))
    }

    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, Asked> {
        let resource = resource.clone();
        let evict = move |desk: &mut Desk| desk.wish("evict in", |step| step.evict(&resource, token));
        Box::pin(self.at(&self.claims, evict, Late::Skip))
    }

    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid> {
        let late = match step.act {
            JobAct::Attend { .. } | JobAct::Begin(_) => Late::Skip,
            JobAct::Finish { .. } => Late::Do,
        };
        let step = step.clone();
        Box::pin(self.at(&self.claims, move |desk| desk.job(&step), late))
    }

    fn jobs<'a>(&'a self, job: Option<&'a ResourceName>) -> Pending<'a, Vec<JobView>> {
        let job = job.cloned();
        let read =
            move |desk: &mut Desk| desk.read(|db, namespace, _| jobs::jobs(db, namespace, job.as_ref()));
        Box::pin(self.at(&self.reads, read, Late::Skip))
    }

    fn publish<'a>(&'a self, holder: &'a Holder, payload: &'a Payload) -> Pending<'a, Published> {
        let (holder, payload) = (holder.clone(), payload.clone());
        // It may wait for subscribers, and nothing that a lease depends on waits behind it there.
        Box::pin(self.at(&self.reads, move |desk| desk.publish(&holder, &payload), Late::Skip))
    }

    fn subscribe<'a>(&'a self, resource: &'a ResourceName) -> Pending<'a, Messages> {
        let (to, messages) = tokio::sync::mpsc::unbounded_channel();
        let (reply, bound) = oneshot::channel();
        let (namespace, resource) = (self.shared.namespace.clone(), resource.clone());
        self.shared.ears.tell(News::Subscribe { namespace, resource, to, reply });
        Box::pin(async move {
            bound.await.unwrap_or_else(|_| Err(ended()))?;
            Ok(messages)
        })
    }

    fn share_lock(&self, lease: LeaseId) -> Result<Option<OwnedFd>, Error> {
        match (self.shared.proof, self.lock(lease)) {
            (Proof::Off, _) => Ok(None),
            (Proof::On, Some(lock)) => Ok(Some(lock.into())),
            (Proof::On, None) => Err(Error::unavailable(format!(
                "cannot share the lock of a lease in `{}`: this process does not hold it, or has too many files open",
                self.shared.place.path.display()
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads;
