//! A thread with a connection of its own, which carries out jobs one after the other.
//!
//! The caller waits for the answer without blocking; one that no longer waits only drops its interest.

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use tenure_core::{
    Answer, Call, Holder, JobSaid, JobStep, LeaseId, Message, Namespace, Payload, Published, Request, Said,
    Stamp,
};

use super::Proof;
use super::burial::Unheard;
use super::ears::{Ears, News};
use super::fan;
use super::hints::{self, Hinted};
use super::host::Host;
use super::lock::{self, Taken};
use super::place::{Files, Place};
use super::schema::{self, Connected, Missing};
use super::step::{INCARNATION, Opener, Step};
use super::trouble::{Outcome, Trouble, refused_by_kernel};
use crate::Error;

/// After so many commits somebody moves the log into the database.
const CHECKPOINT: u32 = 250;
/// Who waits for another's commit looks so often without sleeping: about as long as a step without a sync takes.
const LOOKS: i32 = 40;
/// Then it sleeps for this long, twice as long, and so on.
const FIRST_NAP: Duration = Duration::from_micros(100);
/// But it looks again no later than this.
const LONGEST_NAP: Duration = Duration::from_millis(2);

pub(super) type Job = Box<dyn FnOnce(&mut Desk) + Send>;

/// What the desks of one store have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) place: Place,
    pub(super) host: Host,
    pub(super) namespace: Namespace,
    pub(super) proof: Proof,
    pub(super) ears: Ears,
    /// Our leases that were told of a free ticket.
    pub(super) hinted: Arc<Hinted>,
}

pub(super) struct Desk {
    pub(super) db: Connection,
    files: Files,
    pub(super) namespace: i64,
    pub(super) shared: Arc<Shared>,
    patience: Patience,
    /// Whether commits are durable at present.
    is_durable: bool,
    /// Whether the last claim was granted something and nothing was released since, so that the next one probably
    /// will be, too.
    expects_grant: bool,
    /// Who moves the log into the database and buries the dead, so that neither renewals nor claims wait for it.
    sweeper: Option<mpsc::Sender<Job>>,
    commits: u32,
    /// Whom a hint did not reach, where there is nobody else to look after them.
    pub(super) unheard: Vec<Unheard>,
    /// As of the last step.
    stamp: Stamp,
}

impl Desk {
    /// Starts a desk on a thread called `name`. It ends when everybody who could give it a job has gone.
    pub(super) fn start(
        shared: &Arc<Shared>,
        name: &str,
        sweeper: Option<mpsc::Sender<Job>>,
    ) -> Result<mpsc::Sender<Job>, Error> {
        let (to, jobs) = mpsc::channel::<Job>();
        let (ready, is_ready) = mpsc::channel();
        let shared = Arc::clone(shared);
        let run = move || match Self::open(shared, sweeper, Missing::Make) {
            Ok(desk) => {
                // The one who waits for it may have given up.
                let _ = ready.send(Ok(()));
                desk.work(jobs);
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        let gone = |error| Error::unavailable("cannot start a thread for the store").because(error);
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(gone)?;
        is_ready
            .recv()
            .unwrap_or_else(|_| Err(Error::unavailable("a thread of the store ended at its start")))?;
        Ok(to)
    }

    /// Carries out jobs until nobody can give any more. One that panics is answered by nobody, and costs the connection,
    /// of which nothing is known then; the desk goes on.
    fn work(mut self, jobs: mpsc::Receiver<Job>) {
        let mut is_in_doubt = false;
        for job in jobs {
            if is_in_doubt {
                // Where it cannot be opened now, the old connection has rolled back and says itself what it cannot do.
                match Self::open(Arc::clone(&self.shared), self.sweeper.clone(), Missing::Leave) {
                    Ok(desk) => (self, is_in_doubt) = (desk, false),
                    Err(error) => tracing::warn!(%error, "the store is not opened again after a panic"),
                }
            }
            is_in_doubt |= panic::catch_unwind(AssertUnwindSafe(|| job(&mut self))).is_err();
        }
    }

    fn open(
        shared: Arc<Shared>,
        sweeper: Option<mpsc::Sender<Job>>,
        missing: Missing,
    ) -> Result<Self, Error> {
        let Connected { mut db, files, namespace } =
            schema::connect(&shared.place, &shared.host, &shared.namespace, missing)?;
        let patience = Patience::default();
        db.busy_handler(Some(patience.handler()))
            .map_err(|error| Trouble::Sql(error).told("open", &shared.place.path))?;
        let now = shared.host.now(0);
        let stamp = Stamp { now, shown: now, incarnation: INCARNATION, longest: Duration::ZERO };
        let (is_durable, expects_grant, commits) = (false, false, 0);
        Ok(Self {
            db,
            files,
            namespace,
            shared,
            patience,
            is_durable,
            expects_grant,
            sweeper,
            commits,
            unheard: Vec::new(),
            stamp,
        })
    }

    /// Carries out what a worker asks.
    pub(super) fn call(&mut self, request: &Request) -> Result<Answer, Error> {
        let answered = self.answer(request);
        if matches!(request.call, Call::Close(_)) {
            // No work stands on a lease that is closed. Where that cannot be written down, others can prove it now.
            self.let_go(request.lease);
        }
        answered
    }

    fn answer(&mut self, request: &Request) -> Result<Answer, Error> {
        let doing = match request.call {
            Call::Open { .. } => {
                self.follow(self.found()?, Missing::Make)?;
                return self.open_lease(request, &lock::path(&self.shared.place.folder, request.lease));
            }
            Call::Renew => "renew the lease in",
            Call::Claim(_) => "claim in",
            Call::Release(_) => "release in",
            Call::Held => "ask for what is held in",
            Call::Close(_) => "close the lease in",
        };
        if !self.is_home_of(request.lease)? {
            return Ok(self.gone(request));
        }
        let is_claim = matches!(request.call, Call::Claim(_));
        let starts_durable = is_claim && (self.shared.hinted.take(request.lease) || self.expects_grant);
        let done = self.transact(request.limit, starts_durable, |step| step.apply(request, None));
        let (answer, after) = done.map_err(|trouble| trouble.told(doing, &self.shared.place.path))?;
        match request.call {
            Call::Claim(_) => self.expects_grant = after.granted,
            // What was just let go is for others.
            Call::Release(_) => self.expects_grant = false,
            _ => {}
        }
        Ok(answer)
    }

    /// A step of a job. What it changes is committed durably, as a grant is.
    pub(super) fn job(&mut self, step: &JobStep) -> Result<JobSaid, Error> {
        if !self.is_home_of(step.holder.lease)? {
            return Ok(JobSaid::NotOwner);
        }
        let done = self.transact(schema::PATIENCE, true, |at| at.job(step));
        let what = format!("take a step of the job `{}` in", step.holder.resource);
        done.map(|(said, _)| said).map_err(|trouble| trouble.told(&what, &self.shared.place.path))
    }

    /// Sends to all who have subscribed, if the holder owns. It is sent while nobody else can take a step, so that no
    /// later owner can have spoken before.
    pub(super) fn publish(&mut self, holder: &Holder, payload: &Payload) -> Result<Published, Error> {
        if !self.is_home_of(holder.lease)? {
            return Ok(Published::NotOwner);
        }
        let shared = Arc::clone(&self.shared);
        let folder = &shared.place.folder;
        let send = |step: &mut Step<'_>| {
            let Some(owner) = step.owner(holder)? else { return Ok(None) };
            let (resource, ticket, token) = (holder.resource.clone(), owner.ticket, holder.token);
            let message = Message { resource, ticket, token, payload: payload.clone() };
            let sent = fan::send(folder, &shared.namespace, &message);
            Ok(Some(sent.map_err(|error| refused_by_kernel("send to the sockets in", folder, error))?))
        };
        let sent = self.transact(schema::PATIENCE, false, send);
        match sent.map_err(|trouble| trouble.told("publish in", &shared.place.path))? {
            (Some(slow), _) => {
                slow.wait(fan::PATIENCE);
                Ok(Published::Sent)
            }
            (None, _) => Ok(Published::NotOwner),
        }
    }

    /// Whether the file that lies there is the one in which this lease was opened, as far as this process knows. Only what
    /// was seen counts: where we cannot look, we do not know.
    fn is_home_of(&mut self, lease: LeaseId) -> Result<bool, Error> {
        let opened_in = lock::database_of(&lock::path(&self.shared.place.folder, lease));
        let is_foreign = |here| opened_in.is_some_and(|database| database != here);
        let found = self.found()?;
        if found.is_none_or(|found| is_foreign(found.database)) {
            return Ok(false);
        }
        self.follow(found, Missing::Leave)?;
        Ok(!is_foreign(self.files.database))
    }

    /// An operator's wish.
    pub(super) fn wish<T>(
        &mut self,
        doing: &str,
        act: impl Fn(&mut Step<'_>) -> Outcome<T>,
    ) -> Result<T, Error> {
        self.follow(self.found()?, Missing::Leave)?;
        let done = self.transact(schema::PATIENCE, false, act);
        done.map(|(done, _)| done).map_err(|trouble| trouble.told(doing, &self.shared.place.path))
    }

    /// Reads what stands at one instant.
    pub(super) fn read<T>(
        &mut self,
        act: impl FnOnce(&Connection, i64, tenure_core::StoreTime) -> Outcome<T>,
    ) -> Result<T, Error> {
        self.follow(self.found()?, Missing::Leave)?;
        self.patience.until(schema::PATIENCE);
        let (shared, namespace) = (Arc::clone(&self.shared), self.namespace);
        let read = |db: &mut Connection| {
            let snapshot = db.transaction()?;
            // Its first statement: the clock is read after the state is fixed.
            let meta = schema::meta(&snapshot, &shared.host)?.ok_or_else(|| other_boot(&shared.place))?;
            act(&snapshot, namespace, shared.host.now(meta.ahead_us))
        };
        read(&mut self.db).map_err(|trouble| trouble.told("read", &self.shared.place.path))
    }

    /// Opens a lease: first its lock, then its row.
    fn open_lease(&mut self, request: &Request, path: &Path) -> Result<Answer, Error> {
        let is_ours = schema::meta(&self.db, &self.shared.host);
        if is_ours.map_err(|trouble| trouble.told("read", &self.shared.place.path))?.is_none() {
            // A system with another boot id was here while no lease of ours lived: settle that again.
            *self = Self::open(Arc::clone(&self.shared), self.sweeper.clone(), Missing::Leave)?;
        }
        let unproved = match (self.shared.proof, &request.call) {
            (Proof::Off, Call::Open { ttl, .. }) => Some(*ttl),
            _ => None,
        };
        // Without proofs the row does not name the lock. It is taken all the same: whoever puts another file in this
        // one's place finds it.
        let opening = lock::Opening { database: self.files.database, unproved };
        let taken = lock::take(path, Some(opening))
            .map_err(|error| refused_by_kernel("make the lock file", path, error))?;
        let opener = Opener {
            lock: match taken {
                Taken::Now(lock) | Taken::Before(lock) => Some(lock),
                Taken::ByOthers => None,
            },
            proof: self.shared.proof,
            boot: self.shared.host.boot.clone(),
            process: self.shared.host.process.clone(),
        };
        let done = self.transact(request.limit, false, |step| step.apply(request, Some(&opener)));
        let is_made = match &done {
            Ok((_, after)) => after.opened,
            // It never began. Of any other error we do not know: the lock stays.
            Err(trouble) => !trouble.is_busy(),
        };
        if matches!(taken, Taken::Now(_)) && !is_made {
            lock::discard(path);
        }
        done.map(|(answer, _)| answer)
            .map_err(|trouble| trouble.told("open a lease in", &self.shared.place.path))
    }

    /// One step in one transaction. A step that grants something is committed durably: when that turns out only
    /// in the end, it is undone and done again.
    pub(super) fn transact<T>(
        &mut self,
        limit: Duration,
        starts_durable: bool,
        act: impl Fn(&mut Step<'_>) -> Outcome<T>,
    ) -> Outcome<(T, After)> {
        self.patience.until(limit);
        let mut durable = starts_durable;
        loop {
            self.make_durable(durable)?;
            let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let meta = schema::meta(&transaction, &self.shared.host)?;
            let meta = meta.ok_or_else(|| other_boot(&self.shared.place))?;
            // Read under the lock: the order of times is the order of steps.
            let now = self.shared.host.now(meta.ahead_us);
            let mut step = Step::new(&transaction, self.namespace, now, Host::wall())?;
            step.quiet_until = meta.quiet_until;
            let done = act(&mut step)?;
            if step.granted && !durable {
                durable = true;
                drop(step);
                transaction.rollback()?;
                continue;
            }
            self.stamp = step.stamp();
            let after = After { granted: step.granted, opened: step.opened };
            let (wakes, watches, forgotten) = (step.wakes, step.watches, step.forgotten);
            transaction.commit()?;
            self.look_after(hints::send(&self.shared.place.folder, &wakes));
            if !watches.is_empty() {
                self.shared.ears.tell(News::Watch(watches));
            }
            for lease in forgotten {
                lock::remove(&lock::path(&self.shared.place.folder, lease));
                hints::remove(&self.shared.place.folder, lease);
            }
            self.sweep();
            return Ok((done, after));
        }
    }

    /// Has somebody look at those whom a hint did not reach.
    fn look_after(&mut self, unheard: Vec<Unheard>) {
        match &self.sweeper {
            _ if unheard.is_empty() => {}
            Some(sweeper) => drop(sweeper.send(Box::new(|desk| desk.bury(unheard)))),
            None => self.unheard.extend(unheard),
        }
    }

    fn make_durable(&mut self, durable: bool) -> Outcome<()> {
        if self.is_durable != durable {
            let level = if durable { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            self.db.execute_batch(level)?;
            self.is_durable = durable;
        }
        Ok(())
    }

    /// Now and then, has the log moved into the database.
    fn sweep(&mut self) {
        self.commits += 1;
        if self.commits < CHECKPOINT {
            return;
        }
        self.commits = 0;
        if let Some(sweeper) = &self.sweeper {
            // When the sweeper has gone the store is being closed, and closing moves the log, too.
            let _ = sweeper.send(Box::new(|desk| {
                let moved = desk.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
                if let Err(error) = moved {
                    tracing::debug!(%error, "the log was not moved into the database");
                }
            }));
        }
    }

    /// Follows the path to another file, if another one was found there.
    fn follow(&mut self, found: Option<Files>, missing: Missing) -> Result<(), Error> {
        if found == Some(self.files) {
            return Ok(());
        }
        *self = Self::open(Arc::clone(&self.shared), self.sweeper.clone(), missing)?;
        Ok(())
    }

    /// Which files lie there now.
    fn found(&self) -> Result<Option<Files>, Error> {
        let path = &self.shared.place.path;
        self.shared.place.files().map_err(|error| {
            Error::unavailable(format!("cannot look for `{}`: the system refused", path.display()))
                .because(error)
        })
    }

    /// The answer of a store that is no longer the one in which the lease was opened.
    fn gone(&self, request: &Request) -> Answer {
        let longest = self.stamp.longest.max(request.longest);
        let said = if matches!(request.call, Call::Close(_)) { Said::Closed } else { Said::Gone };
        Answer { stamp: Stamp { longest, ..self.stamp }, said }
    }

    pub(super) fn let_go(&self, lease: LeaseId) {
        lock::let_go(&lock::path(&self.shared.place.folder, lease));
        self.shared.hinted.take(lease);
        self.shared.ears.tell(News::Closed(lease));
    }
}

/// What is known of a step after its COMMIT.
#[derive(Clone, Copy, Debug)]
pub(super) struct After {
    granted: bool,
    opened: bool,
}

fn other_boot(place: &Place) -> Trouble {
    Trouble::Told(place.refused(
        "a system with another boot id uses it now; systems (containers) that see different boot ids cannot share \
         one file",
    ))
}

/// How long a desk waits for others who write.
#[derive(Clone, Debug)]
struct Patience {
    began_at: Instant,
    /// In microseconds since then.
    until: Arc<AtomicU64>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { began_at: Instant::now(), until: Arc::default() }
    }
}

impl Patience {
    fn until(&self, limit: Duration) {
        let until = self.began_at.elapsed() + limit.min(schema::PATIENCE);
        self.until.store(u64::try_from(until.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// SQLite's own handler sleeps for up to 100 ms at a time; a commit takes a few.
    fn handler(&self) -> impl FnMut(i32) -> bool + Send + 'static + use<> {
        let patience = self.clone();
        move |tries| {
            let now = u64::try_from(patience.began_at.elapsed().as_micros()).unwrap_or(u64::MAX);
            if now >= patience.until.load(Ordering::Relaxed) {
                return false;
            }
            match u32::try_from(tries.saturating_sub(LOOKS)) {
                // Most steps are over before a sleep would be.
                Err(_) => std::thread::yield_now(),
                Ok(naps) => std::thread::sleep((FIRST_NAP * 2_u32.pow(naps.min(10))).min(LONGEST_NAP)),
            }
            true
        }
    }
}
