//! SQLite and `fork`. A connection must not be used or closed by two processes, and SQLite keeps what it knows about locks in
//! memory that a child inherits: a connection that the child opens would believe in locks that only the parent has. So every
//! connection is closed just before a fork, and opened again when it is needed.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use tokio::sync::OwnedMutexGuard;

use super::schema::Opened;
use crate::Error;
use crate::runtime::process::{self, PerProcess};

/// The connection of one thread while no job uses it. Whoever has the lock may use it.
pub(super) type Slot = Arc<tokio::sync::Mutex<Option<Opened>>>;
type Slots = Vec<Weak<tokio::sync::Mutex<Option<Opened>>>>;

/// How long a fork waits for the jobs under way. After that the child cannot use SQLite.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(100);

static SLOTS: PerProcess<Mutex<Slots>> = PerProcess::new();
/// The process that inherited no connection, and so may use SQLite. 0 until one does.
static CLEAN: AtomicU32 = AtomicU32::new(0);

/// A place for a connection that is closed before every fork.
///
/// # Errors
/// In a child that was forked in the middle of a job, or without telling the C library.
pub(super) fn slot() -> Result<Slot, Error> {
    let here = process::id();
    match CLEAN.compare_exchange(0, here, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => handlers::register()?,
        Err(clean) if clean == here => {}
        Err(_) => {
            let what = "cannot use SQLite in this process: it was forked while its parent used a database";
            return Err(Error::refused(what));
        }
    }
    let slot = Slot::default();
    let mut slots = slots();
    slots.retain(|slot| slot.strong_count() > 0);
    slots.push(Arc::downgrade(&slot));
    Ok(slot)
}

fn slots() -> MutexGuard<'static, Slots> {
    SLOTS.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the forking thread keeps until the fork is over: no thread opens a connection meanwhile.
struct Held {
    slots: MutexGuard<'static, Slots>,
    closed: Vec<OwnedMutexGuard<Option<Opened>>>,
    /// Whether the child inherits no connection.
    is_clean: bool,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

fn close_all() -> Held {
    let (slots, until) = (slots(), Instant::now() + PATIENCE);
    let mut held =
        Held { slots, closed: Vec::new(), is_clean: CLEAN.load(Ordering::SeqCst) == process::id() };
    for slot in held.slots.iter().filter_map(Weak::upgrade) {
        // In line for the lock: a thread with one job after the other hands it over after the present one.
        let mut locked = pin!(tokio::task::unconstrained(slot.lock_owned()));
        let lock = loop {
            match locked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(lock) => break Some(lock),
                Poll::Pending if Instant::now() >= until => break None,
                Poll::Pending => std::thread::sleep(PAUSE),
            }
        };
        held.is_clean &= lock.is_some();
        held.closed.extend(lock.map(|mut lock| {
            if let Some(Opened { db, .. }) = lock.take() {
                // The log stays as it is: it is needed again at once. An error only costs time.
                let _slower = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            }
            lock
        }));
    }
    held
}

#[allow(unsafe_code)] // The C library calls these around every fork.
mod handlers {
    use super::{CLEAN, Error, HELD, Ordering, close_all, process};

    pub(super) fn register() -> Result<(), Error> {
        // SAFETY: the three functions live as long as the process, and do not unwind.
        let failed = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        match failed {
            0 => Ok(()),
            code => {
                CLEAN.store(0, Ordering::SeqCst);
                let error = std::io::Error::from_raw_os_error(code);
                Err(Error::unavailable("cannot prepare for forks").because(error))
            }
        }
    }

    extern "C" fn before() {
        let held = close_all();
        // A thread that is just ending has no place to keep it, and then nothing is clean.
        let _ending = HELD.try_with(|place| *place.borrow_mut() = Some(held));
    }

    extern "C" fn in_parent() {
        let _ending = HELD.try_with(|place| drop(place.borrow_mut().take()));
    }

    extern "C" fn in_child() {
        let held = HELD.try_with(|place| place.borrow_mut().take()).ok().flatten();
        if held.as_ref().is_some_and(|held| held.is_clean) {
            CLEAN.store(process::id(), Ordering::SeqCst);
        }
        // The locks are the parent's.
        std::mem::forget(held);
    }
}
