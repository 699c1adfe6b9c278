//! Opening the database: whose it is, which version, which boot; and what is refused.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};
use tenure_core::{Closing, LeaseId, Namespace, StoreTime};

use super::host::Host;
use super::lock::{self, Identity, Verdict};
use super::place::{Files, Place};
use super::rows::{Ended, Lease, lease_columns, micros, nanos, span, time};
use super::trouble::{Outcome, Trouble, refused_by_kernel};
use crate::{Error, Kind};

/// The tables as they are made, and what each version has more than the one before. Its length is the version.
pub(super) const TABLES: [&str; 2] = [include_str!("schema.sql"), include_str!("jobs.sql")];
const VERSION: i64 = TABLES.len() as i64;
/// `Tenu`, so that the file tells whose it is.
const APPLICATION: i64 = 0x5465_6e75;
/// How long opening waits for others who write.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

const OTHER_TABLES: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema)";
const META: &str = "SELECT boot, ahead_us, quiet_until, file_dev, file_ino, folder_dev, folder_ino FROM meta
    WHERE one = 1";
const SETTLED: &str = "INSERT OR REPLACE INTO meta
    (one, boot, ahead_us, quiet_until, file_dev, file_ino, folder_dev, folder_ino)
    VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)";
/// The longest lease that the file has seen, in any namespace.
const LONGEST: &str = "SELECT max(
    (SELECT coalesce(max(longest_ns), 0) FROM namespace),
    (SELECT coalesce(max(ttl_ns), 0) FROM lease))";
/// The latest time that anything in the file names: the store's clock must not go back behind it.
const LATEST: &str = "SELECT max(
    (SELECT coalesce(max(max(opened_at, expires_at, coalesce(ended_at, 0))), 0) FROM lease),
    (SELECT coalesce(max(since), 0) FROM seat),
    (SELECT coalesce(max(at), 0) FROM history))";
/// Leases that nobody has ended, of all namespaces.
const UNENDED: &str = concat!(
    "SELECT ",
    lease_columns!(),
    ", l.lock_ino IS NOT NULL FROM lease AS l WHERE l.ended_at IS NULL AND l.boot <> ?1"
);
const MOVE: &str = "UPDATE lease SET boot = ?2, expires_at = ?3,
    lock_dev = NULL, lock_ino = NULL, pid = NULL, pid_started = NULL, pid_ns = NULL WHERE id = ?1";
const JOIN: &str = "INSERT INTO namespace (name) VALUES (?1)";
const NAMESPACE: &str = "SELECT id FROM namespace WHERE name = ?1";

/// A connection that is ready for steps.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) db: Connection,
    pub(super) files: Files,
    pub(super) namespace: i64,
}

/// What is to be done where there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    /// Somebody may be about to put another one in its place.
    Leave,
}

/// Opens the database.
pub(super) fn connect(
    place: &Place,
    host: &Host,
    namespace: &Namespace,
    missing: Missing,
) -> Result<Connected, Error> {
    place.check()?;
    if missing == Missing::Leave && !place.path.exists() {
        return Err(Error::unavailable(format!("cannot open `{}`: it does not exist", place.path.display())));
    }
    let had_folder = place.folder.exists();
    place.make_folder()?;
    let until = Instant::now() + PATIENCE;
    loop {
        match try_connect(place, host, namespace, missing) {
            Err(trouble) if trouble.is_busy() && Instant::now() < until => {
                // Changing the journal mode does not wait by itself.
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(trouble) => {
                let error = trouble.told("open", &place.path);
                // Beside what is no store of ours nothing stays that was not there. Where it is one, somebody may be about
                // to use the folder.
                if !had_folder && matches!(error.kind(), Kind::Refused | Kind::Corrupt) {
                    let _in_use = fs::remove_dir(&place.folder);
                }
                return Err(error);
            }
            Ok(connected) => return Ok(connected),
        }
    }
}

fn try_connect(place: &Place, host: &Host, namespace: &Namespace, missing: Missing) -> Outcome<Connected> {
    let is_new = !place.path.exists();
    // Without SQLITE_OPEN_URI: a path is a path.
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, missing == Missing::Make);
    let mut db = Connection::open_with_flags(&place.path, flags)?;
    if is_new {
        // It will hold lease ids, which are rights. By name: closing another descriptor of the file would drop
        // SQLite's own locks.
        fs::set_permissions(&place.path, Permissions::from_mode(0o600))
            .map_err(|error| refused_by_kernel("open", &place.path, error))?;
    }
    db.busy_timeout(PATIENCE)?;
    // A plan that depends on the values bound to it is made anew at every call, and that costs more than the call.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // More than there are statements.
    db.set_prepared_statement_cache_capacity(128);
    // In one snapshot: somebody else may be making the tables just now.
    let known = version(&*db.transaction()?, place)?;
    let mode: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(place.refused(&format!("its journal mode stays {mode:?}, and it has to be WAL")).into());
    }
    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = 0")?;
    // What short-lived processes left in the log is moved by whoever comes next; it waits for nobody.
    db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    let step = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Only now: on overlay a file becomes another one when it is first opened for writing.
    let file = place.files().map_err(|error| refused_by_kernel("open", &place.path, error))?;
    let Some(file) = file.map(|files| files.database).filter(|_| !has_moved(&step)) else {
        return Err(replaced(place));
    };
    // Somebody else may have been quicker.
    let known = if known < VERSION { version(&step, place)? } else { known };
    if known < VERSION {
        bring_up(&step, known)?;
    }
    let folder = fs::metadata(&place.folder)
        .map_err(|error| refused_by_kernel("open the folder", &place.folder, error))?;
    let proofs = settle(&step, place, host, Home { file, folder: Identity::of(&folder) })?;
    let namespace = join(&step, namespace)?;
    step.commit()?;
    drop(proofs);
    db.execute_batch("PRAGMA synchronous = NORMAL")?;

    // What was opened is what lies there, as far as that can be said of a moment.
    place.check()?;
    let files = place.files().map_err(|error| refused_by_kernel("open", &place.path, error))?;
    let files = files.filter(|files| files.database == file && !has_moved(&db));
    Ok(Connected { db, files: files.ok_or_else(|| replaced(place))?, namespace })
}

/// The number of a namespace, which is made if need be. One that is known already costs no write, and so no sync: each process
/// opens the file several times.
fn join(step: &Transaction<'_>, namespace: &Namespace) -> Outcome<i64> {
    let mut find = step.prepare_cached(NAMESPACE)?;
    let found = find.query_row([namespace.as_str()], |row| row.get(0)).optional()?;
    if let Some(found) = found {
        return Ok(found);
    }
    step.prepare_cached(JOIN)?.execute([namespace.as_str()])?;
    Ok(find.query_row([namespace.as_str()], |row| row.get(0))?)
}

fn replaced(place: &Place) -> Trouble {
    let told = format!("cannot open `{}`: it was replaced in the meantime", place.path.display());
    Error::unavailable(told).into()
}

/// The version of our tables, 0 when there are none. Everything else is refused. Asks more than once, and so has to
/// be asked within a transaction.
fn version(db: &Connection, place: &Place) -> Outcome<i64> {
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let application: i64 = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let has_tables: bool = db.query_row(OTHER_TABLES, [], |row| row.get(0))?;
    match (application, version) {
        (0, 0) if !has_tables => Ok(0),
        (APPLICATION, 1..=VERSION) => Ok(version),
        (APPLICATION, newer) if newer > VERSION => Err(Trouble::Told(place.refused(&format!(
            "a newer Tenure made it (tables of version {newer}, known here: {VERSION}); update this one"
        )))),
        (APPLICATION, other) => Err(Trouble::Told(Error::corrupt(format!(
            "cannot open `{}`: there never was a version {other} of its tables",
            place.path.display()
        )))),
        _ => Err(Trouble::Told(place.refused("it is the database of another program"))),
    }
}

/// Makes the tables that this version has not. What is there stays as it is, and whoever has the file open goes on.
fn bring_up(step: &Transaction<'_>, version: i64) -> Outcome<()> {
    for tables in TABLES.iter().skip(usize::try_from(version).unwrap_or(0)) {
        step.execute_batch(tables)?;
    }
    step.pragma_update(None, "application_id", APPLICATION)?;
    step.pragma_update(None, "user_version", VERSION)?;
    Ok(())
}

/// Which file this is, and which folder of locks is beside it: a file that was moved is at home nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Home {
    file: Identity,
    folder: Identity,
}

impl Home {
    fn inodes(self) -> (i64, i64) {
        (self.file.ino, self.folder.ino)
    }
}

/// What the file says of itself.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    boot: String,
    /// How far the store's clock is ahead of BOOTTIME.
    pub(super) ahead_us: i64,
    /// Before then nothing is granted.
    pub(super) quiet_until: Option<StoreTime>,
    home: Home,
}

impl Meta {
    fn find(db: &Connection) -> Outcome<Option<Self>> {
        let found = db.prepare_cached(META)?.query_row([], |row| {
            let quiet_until: Option<i64> = row.get(2)?;
            Ok(Self {
                boot: row.get(0)?,
                ahead_us: row.get(1)?,
                quiet_until: quiet_until.map(time),
                home: Home {
                    file: Identity { dev: row.get(3)?, ino: row.get(4)? },
                    folder: Identity { dev: row.get(5)?, ino: row.get(6)? },
                },
            })
        });
        Ok(found.optional()?)
    }
}

/// What the file says of itself, if it is of this boot.
pub(super) fn meta(db: &Connection, host: &Host) -> Outcome<Option<Meta>> {
    Ok(Meta::find(db)?.filter(|meta| meta.boot == host.boot))
}

/// Brings the file into this boot and this place. The locks that were won are to be kept until the COMMIT.
///
/// A file that was not here before (new, or a copy in the place of another) may not know who works: it grants nothing
/// while a lock beside it is held, nor, where work may outlive all who hold its lock, for as long as that may.
fn settle(db: &Connection, place: &Place, host: &Host, home: Home) -> Outcome<Vec<File>> {
    let before = Meta::find(db)?;
    let same_boot = before.as_ref().filter(|before| before.boot == host.boot);
    if same_boot.is_some_and(|before| before.home == home) {
        return Ok(Vec::new());
    }
    // Before any lock is won here, which would count as held.
    let census = lock::census(&place.folder)
        .map_err(|error| refused_by_kernel("look for locks in", &place.folder, error))?;
    let (ahead, proofs) = match same_boot {
        Some(before) => (before.ahead_us, Vec::new()),
        None => settle_boot(db, place, host)?,
    };
    if census.is_held {
        return Err(still_held(place, before.is_none()));
    }
    let is_stranger = match &before {
        None => true,
        Some(_) if same_boot.is_some() => true,
        // Device numbers change over a boot.
        Some(before) => before.home.inodes() != home.inodes(),
    };
    let quiet_until = match census.unproved.filter(|_| is_stranger) {
        Some(unproved) => {
            let longest: i64 = db.query_row(LONGEST, [], |row| row.get(0))?;
            Some(host.now(ahead) + unproved.max(span(longest)))
        }
        None => same_boot.and_then(|before| before.quiet_until),
    };
    let quiet_until = quiet_until.map(micros);
    let Home { file, folder } = home;
    db.prepare_cached(SETTLED)?.execute(params![
        host.boot,
        ahead,
        quiet_until,
        file.dev,
        file.ino,
        folder.dev,
        folder.ino
    ])?;
    Ok(proofs)
}

fn still_held(place: &Place, is_empty: bool) -> Trouble {
    let what = if is_empty { "it is empty" } else { "it is not the file that was here before" };
    Trouble::Told(Error::unavailable(format!(
        "cannot open `{}`: {what}, but workers of an earlier file still hold locks in `{}`; \
         nothing is granted until they have gone",
        place.path.display(),
        place.folder.display()
    )))
}

/// Brings the file into this boot: a lease of another one is dead if its lock can be won too, lives on for a full
/// ttl if there is no lock file or the lock proves nothing, and if the lock is held the whole store is refused.
/// Says how far the store's clock is ahead of BOOTTIME, and which locks were won.
fn settle_boot(db: &Connection, place: &Place, host: &Host) -> Outcome<(i64, Vec<File>)> {
    let latest: i64 = db.query_row(LATEST, [], |row| row.get(0))?;
    let ahead = latest.saturating_sub(host.boottime_us()).max(0);
    let now = host.now(ahead);
    let mut read = db.prepare_cached(UNENDED)?;
    let leases = read.query_map([&host.boot], |row| Ok((Lease::of(row, 0)?, row.get(8)?)))?;
    let leases: Vec<(Lease, bool)> = leases.collect::<Result<_, _>>()?;
    let mut proofs = Vec::new();
    for (mut lease, is_provable) in leases {
        match (verdict(place, lease.id)?, is_provable) {
            (Verdict::Won(file), true) => {
                proofs.push(file);
                lease.end(db, Ended { at: now.min(lease.expires_at), why: Closing::Proved })?;
            }
            (Verdict::NoFile, _) | (Verdict::Won(_), false) => {
                let expires_at = micros(now).saturating_add(nanos(lease.ttl) / 1000);
                let full = micros(time(expires_at));
                db.prepare_cached(MOVE)?.execute(params![lease.row, host.boot, full])?;
            }
            (Verdict::Held, _) => {
                return Err(Trouble::Told(place.refused(
                    "a worker of a system with another boot id holds a lease in it; systems (containers) that see \
                     different boot ids cannot share one file",
                )));
            }
        }
    }
    Ok((ahead, proofs))
}

/// By the file's name alone: device numbers change over a boot.
fn verdict(place: &Place, lease: LeaseId) -> Outcome<Verdict> {
    let path = lock::path(&place.folder, lease);
    Ok(lock::prove(&path, None).map_err(|error| refused_by_kernel("try the lock", &path, error))?)
}

/// Whether the file that SQLite has open is no longer the one at its path.
#[allow(unsafe_code)] // Only SQLite knows which file it opened.
fn has_moved(db: &Connection) -> bool {
    let mut moved: std::ffi::c_int = 1;
    // SAFETY: the handle is that of an open connection which this thread owns; the name is a C string; for this
    // operation SQLite writes one int through the pointer, which is valid for the call.
    let done = unsafe {
        rusqlite::ffi::sqlite3_file_control(
            db.handle(),
            c"main".as_ptr(),
            rusqlite::ffi::SQLITE_FCNTL_HAS_MOVED,
            (&raw mut moved).cast(),
        )
    };
    done != rusqlite::ffi::SQLITE_OK || moved != 0
}
