//! Opening the database: whose it is, which version, which boot, whether it is the file that was here before.

use std::fs;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};
use tenure_core::{Incarnation, StoreTime};

use super::connection::Patience;
use super::error::{Failure, io_error};
use super::host::Host;
use super::lock::{self, Census};
use super::place::{Files, Identity, Place};
use super::records::{micros, time};
use crate::runtime::engine::random;
use crate::store::open::Missing;
use crate::{Error, ErrorKind};

const TABLES: &str = include_str!("schema.sql");
const VERSION: i64 = 3;
/// The last version that kept the rules in its tables.
const OLD: i64 = 2;
/// `Tenu`, so that the file tells whose it is.
const APPLICATION: i64 = 0x5465_6e75;

const HAS_TABLES: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema)";
const HOST: &str = "SELECT life, boot, ahead_us, file_dev, file_ino, folder_dev, folder_ino, uncertain_since
    FROM host WHERE one = 1";
const SETTLE: &str = "INSERT OR REPLACE INTO host
    (one, life, boot, ahead_us, file_dev, file_ino, folder_dev, folder_ino, uncertain_since)
    VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
/// The latest time in the file: the store's clock goes on from there.
const LATEST: &str = "SELECT max(
    (SELECT coalesce(max(stamp), 0) FROM record),
    (SELECT coalesce(max(at), 0) FROM history))";

/// A connection that is ready for transactions.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) db: Connection,
    pub(super) files: Files,
    pub(super) folder: Identity,
}

/// How much a commit survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// The end of any process.
    Normal,
    /// The loss of power, too: each commit is synced.
    Full,
}

/// The store as a transaction finds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present {
    pub(super) life: Incarnation,
    pub(super) now: StoreTime,
    pub(super) uncertain_since: Option<StoreTime>,
}

impl Present {
    /// To be asked first in a transaction, so that the clock is read after the snapshot or the write lock is taken.
    pub(super) fn of(transaction: &Transaction<'_>, host: &Host) -> Result<Self, Failure> {
        let Some(row) = Row::find(transaction)?.filter(|row| row.boot == host.boot) else {
            return Err(Failure::OtherBoot);
        };
        let now = time(host.boottime_us().saturating_add(row.ahead_us));
        Ok(Self { life: row.life, now, uncertain_since: row.uncertain_since })
    }
}

/// Opens the database.
pub(super) fn connect(
    place: &Place,
    host: &Host,
    missing: Missing,
    durability: Durability,
    patience: &Patience,
) -> Result<Opened, Error> {
    place.check()?;
    if !place.path.exists() {
        if missing == Missing::Leave {
            return Err(place.unavailable("it does not exist"));
        }
        // Not created before the workers of the removed file have gone: someone may be about to restore a backup.
        if census(place)?.held {
            return Err(still_held(place, "it was removed"));
        }
    }
    let had_folder = place.folder.exists();
    place.make_folder()?;
    if missing == Missing::Create {
        place.create()?;
    }
    loop {
        match try_connect(place, host, durability, patience) {
            // Changing the journal mode does not wait by itself.
            Err(failure) if failure.is_busy() && !patience.is_over() => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(failure) => {
                let error = failure.into_error("open", &place.path);
                // Leave nothing beside the database of another program.
                if !had_folder && matches!(error.kind(), ErrorKind::Refused | ErrorKind::Corrupt) {
                    let _in_use = fs::remove_dir(&place.folder);
                }
                return Err(error);
            }
            Ok(opened) => return Ok(opened),
        }
    }
}

fn try_connect(
    place: &Place,
    host: &Host,
    durability: Durability,
    patience: &Patience,
) -> Result<Opened, Failure> {
    // Without SQLITE_OPEN_URI, so that a path is a path. Without SQLITE_OPEN_CREATE, see `Place::create`.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(&place.path, flags)?;
    db.busy_handler(Some(patience.handler()))?;
    // Plans that depend on bound values would be made again with every call.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.set_prepared_statement_cache_capacity(32);
    // Another process may be creating the tables: look at them in one snapshot.
    let known = version(&*db.transaction()?, place)?;
    let mode: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(place.refused(&format!("its journal mode stays {mode:?}, and it has to be WAL")).into());
    }
    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0")?;
    // Processes that live for a short time leave their part of the log to the next one. This waits for nobody.
    db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;

    // If there is nothing to write this does not wait for other writers.
    let settled = if known == VERSION { settled(&db, place, host)? } else { None };
    let (files, folder) = match settled {
        Some(settled) => settled,
        None => set_up(&mut db, place, host)?,
    };
    if durability == Durability::Normal {
        db.execute_batch("PRAGMA synchronous = NORMAL")?;
    }

    // The file may have been replaced meanwhile.
    place.check()?;
    match present_files(place, &db)? {
        found if found == files => Ok(Opened { db, files, folder }),
        _ => Err(place.unavailable("it was replaced in the meantime").into()),
    }
}

/// The files and the folder, if the database is at home here.
fn settled(db: &Connection, place: &Place, host: &Host) -> Result<Option<(Files, Identity)>, Failure> {
    let Some(row) = Row::find(db)? else { return Ok(None) };
    let (files, folder) = (present_files(place, db)?, place.make_folder()?);
    let at_home = row.boot == host.boot && row.home == Home { file: files.database, folder };
    Ok(at_home.then_some((files, folder)))
}

/// Creates the tables if there are none, and settles the file.
fn set_up(db: &mut Connection, place: &Place, host: &Host) -> Result<(Files, Identity), Failure> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version(&transaction, place)? == 0 {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    let (files, folder) = (present_files(place, &transaction)?, place.make_folder()?);
    settle(&transaction, place, host, Home { file: files.database, folder })?;
    transaction.commit()?;
    Ok((files, folder))
}

/// The files at the path, if `db` has opened the database among them.
fn present_files(place: &Place, db: &Connection) -> Result<Files, Failure> {
    let found = place.files().map_err(|error| io_error("open", &place.path, error))?;
    let found = found.filter(|_| !has_moved(db));
    found.ok_or_else(|| place.unavailable("it was replaced in the meantime").into())
}

/// The version of our tables, 0 if there are none. Refuses every other content. Asks more than once, and so has to be
/// asked within a transaction.
fn version(db: &Connection, place: &Place) -> Result<i64, Failure> {
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let application: i64 = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let has_tables: bool = db.query_row(HAS_TABLES, [], |row| row.get(0))?;
    let refused = match (application, version) {
        (0, 0) if !has_tables => return Ok(0),
        (APPLICATION, VERSION) => return Ok(VERSION),
        (APPLICATION, 1..=OLD) => place.refused(&format!(
            "an earlier build of Tenure made it (tables of version {version}), and its data cannot be taken over; \
             stop the workers that use it, then remove the file, or choose another path"
        )),
        (APPLICATION, newer) if newer > VERSION => place.refused(&format!(
            "a newer build of Tenure made it (tables of version {newer}, known here: {VERSION}); update this one"
        )),
        (APPLICATION, _) => Error::corrupt(format!(
            "cannot open `{}`: unknown table version {version}",
            place.path.display()
        )),
        _ => place.refused("it is the database of another program"),
    };
    Err(refused.into())
}

/// Which file this is, and which folder of lock files is beside it.
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

/// The row of the table `host`.
#[derive(Clone, Debug)]
struct Row {
    life: Incarnation,
    boot: String,
    ahead_us: i64,
    home: Home,
    uncertain_since: Option<StoreTime>,
}

impl Row {
    fn find(db: &Connection) -> Result<Option<Self>, Failure> {
        let found = db.prepare_cached(HOST)?.query_row([], |row| {
            let uncertain_since: Option<i64> = row.get(7)?;
            Ok(Self {
                life: Incarnation(u128::from_be_bytes(row.get(0)?)),
                boot: row.get(1)?,
                ahead_us: row.get(2)?,
                home: Home {
                    file: Identity { dev: row.get(3)?, ino: row.get(4)? },
                    folder: Identity { dev: row.get(5)?, ino: row.get(6)? },
                },
                uncertain_since: uncertain_since.map(time),
            })
        });
        Ok(found.optional()?)
    }

    fn write(&self, db: &Connection) -> Result<(), Failure> {
        let Home { file, folder } = self.home;
        let (life, since) = (self.life.0.to_be_bytes(), self.uncertain_since.map(micros));
        db.prepare_cached(SETTLE)?.execute(params![
            life,
            self.boot,
            self.ahead_us,
            file.dev,
            file.ino,
            folder.dev,
            folder.ino,
            since
        ])?;
        Ok(())
    }
}

/// Brings the file into this boot and this place.
///
/// The file keeps its life over a reboot: no process survived that could believe in something which the file does not
/// know. A file that was not here before (a new one, or a copy in place of another) begins a new life, because workers
/// may believe in what only the earlier file knew. It is not used at all while one of them holds its lock.
fn settle(db: &Connection, place: &Place, host: &Host, home: Home) -> Result<(), Failure> {
    let before = Row::find(db)?;
    let same_boot = before.as_ref().is_some_and(|row| row.boot == host.boot);
    if same_boot && before.as_ref().is_some_and(|row| row.home == home) {
        return Ok(());
    }
    // Device numbers may change with a boot.
    let known = before.filter(|row| !same_boot && row.home.inodes() == home.inodes());
    let census = census(place)?;
    let boottime_us = host.boottime_us();
    let latest = || db.query_row(LATEST, [], |row| row.get::<_, i64>(0));
    let row = match known {
        Some(_) if census.held => return Err(Failure::OtherBoot),
        Some(row) => {
            let ahead_us = latest()?.saturating_sub(boottime_us);
            Row { boot: host.boot.clone(), home, ahead_us, ..row }
        }
        None if census.held => {
            return Err(still_held(place, "it is not the file that was here before").into());
        }
        None => {
            let ahead_us = latest()?.saturating_sub(boottime_us).max(0);
            let now = time(boottime_us.saturating_add(ahead_us));
            let uncertain_since = census.unproved.then_some(now);
            let life = Incarnation(random::<16>());
            Row { life, boot: host.boot.clone(), ahead_us, home, uncertain_since }
        }
    };
    row.write(db)
}

fn census(place: &Place) -> Result<Census, Error> {
    lock::census(&place.folder).map_err(|error| io_error("look for locks in", &place.folder, error))
}

fn still_held(place: &Place, why: &str) -> Error {
    place.unavailable(&format!(
        "{why}, and workers of the earlier file still hold locks in `{}`; it can be used when they have gone",
        place.folder.display()
    ))
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
