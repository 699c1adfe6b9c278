//! The stores, and what can be done to each as a whole. Nothing else here knows which store it has.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use testkit::StoreKind;
use testkit::disk::Disk;
use testkit::postgres::{self, Postgres};
use testkit::proxy::Proxy;
use testkit::redis::{self, Redis};
use testkit::shim::Step;

use crate::Failure;

/// Room for the data of an hour, and little enough to be filled in a moment.
const DISK_MIB: u32 = 320;

/// A lease that a restart of the server fits in.
pub(crate) fn ttl(kind: StoreKind) -> Duration {
    match kind {
        StoreKind::Sqlite | StoreKind::Redis => Duration::from_millis(1_500),
        StoreKind::Postgres => Duration::from_secs(2),
    }
}

/// A store of its own.
#[derive(Debug)]
pub(crate) enum Ground {
    Sqlite(Box<File>),
    Redis(Box<Redis>),
    Postgres(Box<Postgres>),
}

/// A SQLite file on a disk of its own.
#[derive(Debug)]
pub(crate) struct File {
    /// Somebody else who writes, and does not come to an end.
    writer: Mutex<Option<rusqlite::Connection>>,
    // In this order: the disk goes, then its folder.
    disk: Disk,
    folder: TempDir,
}

impl File {
    /// Carries what is in the log over to the file, and empties it. It may be in use, or the disk full; then it stays.
    fn shorten_log(&self) {
        let log = rusqlite::Connection::open(self.path()).and_then(|log| {
            log.busy_timeout(Duration::from_millis(300))?;
            log.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        });
        let _stays = log;
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("disk").join("tenure.db")
    }
}

impl Ground {
    pub(crate) fn open(kind: StoreKind) -> Result<Self, Failure> {
        Ok(match kind {
            StoreKind::Sqlite => {
                let folder = tempfile::Builder::new().prefix("tenure-faults-").tempdir()?;
                let disk = Disk::mount(&folder.path().join("disk"), DISK_MIB);
                Self::Sqlite(Box::new(File { writer: Mutex::default(), disk, folder }))
            }
            StoreKind::Redis => {
                let options = redis::Options::new().aof("everysec").own_clock().disk(DISK_MIB);
                Self::Redis(Box::new(options.start()))
            }
            StoreKind::Postgres => {
                let options = postgres::Options::new().own_clock().disk(DISK_MIB);
                Self::Postgres(Box::new(options.set("wal_keep_size", "0").start()))
            }
        })
    }

    pub(crate) fn kind(&self) -> StoreKind {
        match self {
            Self::Sqlite(_) => StoreKind::Sqlite,
            Self::Redis(_) => StoreKind::Redis,
            Self::Postgres(_) => StoreKind::Postgres,
        }
    }

    /// What it calls itself.
    pub(crate) fn version(&self) -> String {
        match self {
            Self::Sqlite(_) => format!("SQLite {}", rusqlite::version()),
            Self::Redis(server) => {
                format!("Redis {}", server.info("server", "redis_version").unwrap_or_default())
            }
            Self::Postgres(server) => format!("PostgreSQL {}", server.sql("SHOW server_version")),
        }
    }

    /// A link to its server, if it has one.
    pub(crate) fn link(&self) -> Option<Proxy> {
        match self {
            Self::Sqlite(_) => None,
            Self::Redis(server) => Some(Proxy::to(server.port())),
            Self::Postgres(server) => Some(Proxy::to(server.port())),
        }
    }

    /// Its URL, by way of a link if there is one.
    pub(crate) fn url(&self, link: Option<&Proxy>) -> String {
        match (self, link) {
            (Self::Sqlite(file), _) => format!("sqlite:{}", file.path().display()),
            (Self::Redis(server), None) => server.url(),
            (Self::Redis(_), Some(link)) => format!("redis://127.0.0.1:{}", link.port()),
            (Self::Postgres(server), None) => server.url(),
            (Self::Postgres(server), Some(link)) => server.url_at(link.port()),
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Sqlite(_) => {}
            Self::Redis(server) => server.kill(),
            Self::Postgres(server) => server.kill(),
        }
    }

    /// Starts it again with what it has.
    pub(crate) fn start(&mut self) {
        match self {
            Self::Sqlite(_) => {}
            Self::Redis(server) => server.start(),
            Self::Postgres(server) => server.start(),
        }
    }

    /// It answers nobody. A file is written to by somebody else, who does not come to an end.
    pub(crate) fn pause(&mut self) -> Result<(), Failure> {
        match self {
            Self::Sqlite(file) => {
                let writer = rusqlite::Connection::open(file.path())?;
                writer.busy_timeout(Duration::from_secs(5))?;
                writer.execute_batch("BEGIN IMMEDIATE")?;
                *file.writer.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(writer);
            }
            Self::Redis(server) => server.process().pause(),
            Self::Postgres(server) => server.pause(),
        }
        Ok(())
    }

    pub(crate) fn resume(&mut self) -> Result<(), Failure> {
        match self {
            Self::Sqlite(file) => {
                let writer = file.writer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(writer) = writer {
                    writer.execute_batch("ROLLBACK")?;
                }
            }
            Self::Redis(server) => server.process().resume(),
            Self::Postgres(server) => server.resume(),
        }
        Ok(())
    }

    /// All that it knew of this namespace is gone.
    pub(crate) fn forget(&mut self, namespace: &str) -> Result<(), Failure> {
        match self {
            Self::Sqlite(file) => {
                for suffix in ["", "-wal", "-shm"] {
                    let mut path = file.path().into_os_string();
                    path.push(suffix);
                    std::fs::remove_file(path)?;
                }
            }
            Self::Redis(server) => {
                server.kill();
                server.wipe();
                server.start();
            }
            // Newcomers make it again.
            Self::Postgres(server) => drop(server.sql(&format!("DROP SCHEMA {namespace} CASCADE"))),
        }
        Ok(())
    }

    /// The same without another start of the server.
    pub(crate) fn empty(&mut self, namespace: &str) -> Result<(), Failure> {
        match self {
            Self::Redis(server) => drop(server.command(&["FLUSHALL"])),
            Self::Sqlite(_) | Self::Postgres(_) => self.forget(namespace)?,
        }
        Ok(())
    }

    /// The code that it runs for us is gone: scripts, or functions, which are kept for [`restore_code`](Self::restore_code).
    pub(crate) fn remove_code(&mut self, namespace: &str) {
        match self {
            Self::Sqlite(_) => {}
            Self::Redis(server) => drop(server.command(&["SCRIPT", "FLUSH"])),
            Self::Postgres(server) => {
                server.sql(&format!(
                    "CREATE TABLE public.kept AS SELECT pg_get_functiondef(p.oid) AS text FROM pg_proc p \
                     WHERE pronamespace = '{namespace}'::regnamespace AND proname IN ('renew', 'claim', 'open');
                     DO $do$ DECLARE f record; BEGIN FOR f IN SELECT p.oid::regprocedure AS name FROM pg_proc p \
                     WHERE pronamespace = '{namespace}'::regnamespace AND proname IN ('renew', 'claim', 'open') \
                     LOOP EXECUTE 'DROP FUNCTION ' || f.name; END LOOP; END $do$"
                ));
            }
        }
    }

    pub(crate) fn restore_code(&mut self) {
        if let Self::Postgres(server) = self {
            server.sql(
                "DO $do$ DECLARE f record; BEGIN FOR f IN SELECT text FROM public.kept \
                 LOOP EXECUTE f.text; END LOOP; END $do$; DROP TABLE public.kept",
            );
        }
    }

    /// Its wall clock is set.
    pub(crate) fn step_clock(&self, step: Step) {
        match self {
            Self::Sqlite(_) => {}
            Self::Redis(server) => server.clock().step(step),
            Self::Postgres(server) => server.clock().step(step),
        }
    }

    pub(crate) fn fill_disk(&mut self) {
        match self {
            Self::Sqlite(file) => {
                // What the log has in store for itself would last for a while: it is given back first, and taken away. Filling
                // up takes a moment, and then it has some again.
                for _ in 0..2 {
                    file.shorten_log();
                    file.disk.fill();
                }
            }
            Self::Redis(server) => server.disk().fill(),
            Self::Postgres(server) => {
                server.disk().fill();
                // What the log has in store for itself has to be used up, too. An error says that it is.
                let _full = (0..40).all(|_| {
                    let write = "SELECT pg_logical_emit_message(true, 'faults', repeat('x', 500000))";
                    server.try_sql(write).is_ok()
                });
            }
        }
    }

    /// There is room again; a server that has stopped by itself is started.
    pub(crate) fn free_disk(&mut self) {
        match self {
            Self::Sqlite(file) => file.disk.free(),
            Self::Redis(server) => server.disk().free(),
            Self::Postgres(server) => server.free_disk(),
        }
    }
}
